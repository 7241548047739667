"""What a filter is about: the values it fixes an attribute to, and the event types it names.

A rendezvous has a name, so a filter can be carried there only if it says which names its
notifications can have. All answers here are on the safe side: whatever the conjunct matches has at
least one of the names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from stentor.filters.addressing.content import TYPE, TYPES
from stentor.filters.collection import CollectionSet
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.operators import constraint as constraint_of
from stentor.filters.ranges import Ranges
from stentor.model.event_types import event_types
from stentor.model.values import value_type_of

#: Types whose values have one written form that is the same everywhere.
_WRITTEN: Final = frozenset({"string", "number", "bool", "bytes", "time"})


def written(value: Any) -> str | None:
    """A value as the name of a topic; None for a collection or a value of a custom type.

    Numbers that are equal have one name, whatever their type is.

    >>> written(7) == written(7.0), written(7) == written("7")
    (True, False)
    """
    kind = value_type_of(value)
    if kind not in _WRITTEN:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{kind}:{value}"


def topics_of(conjunct: Conjunct, attribute: str) -> list[str] | None:
    """The topics that the conjunct asks for; None unless it fixes the attribute to some values.

    >>> from stentor.filters import Filter
    >>> (conjunct,) = Filter("topic in ('a', 'b') and level > 3").conjuncts
    >>> topics_of(conjunct, "topic")
    ['string:a', 'string:b']
    """
    values = _values(conjunct.constraints.get(attribute))
    if values is None:
        return None
    names = [written(value) for value in values]
    return None if None in names else [name for name in names if name is not None]


def types_of(conjunct: Conjunct) -> list[str] | None:
    """Event types, one of which, or a subtype, each notification must have; None if there are none.

    >>> from stentor.filters import Filter
    >>> for text in ("isa quote.stock and price > 1", "_type prefix 'quote.'", "price > 1"):
    ...     (conjunct,) = Filter(text).conjuncts
    ...     print(types_of(conjunct))
    ['quote.stock']
    ['quote']
    None
    """
    choices = list(_required(conjunct.constraints.get(TYPES)))
    by_name = _paths(conjunct.constraints.get(TYPE))
    if by_name is not None:
        choices.append(by_name)
    return min(choices, key=_breadth, default=None)


def _values(constraint: Constraint | None) -> list[Any] | None:
    """All values that satisfy the constraint, if it lists them."""
    if constraint is None or constraint.rest or constraint.absent:
        return None
    found: list[Any] = []
    for _, part in constraint.parts:
        values = part.values if isinstance(part, Ranges) else None
        if values is None:
            return None
        found += values
    return found


def _required(constraint: Constraint | None) -> Iterable[list[str]]:
    """Of a set of types: lists of types, of each of which it must hold at least one."""
    if constraint is None or constraint.rest or constraint.absent:
        return
    cells = [
        cell
        for _, part in constraint.parts
        if isinstance(part, CollectionSet)
        for cell in part.cells
    ]
    if len(cells) != 1 or len(constraint.parts) != 1:
        return
    for hit in cells[0].hits:
        types = _values(hit)
        if types is not None and all(isinstance(name, str) for name in types):
            yield types


def _paths(constraint: Constraint | None) -> list[str] | None:
    """Types above all those whose name satisfies the constraint."""
    if constraint is None or constraint.rest or constraint.absent:
        return None
    found: dict[str, None] = {}
    for type_name, part in constraint.parts:
        if type_name != "string" or not isinstance(part, Ranges):
            return None
        for low, high in part.pieces:
            piece = Ranges(part.domain, False, tuple(cut for cut in (low, high) if cut is not None))
            name = None if low is None else _above(piece, str(low[0]))
            if name is None:
                return None
            found[name] = None
    return list(found)


def _above(piece: Ranges, lowest: str) -> str | None:
    """The longest type name that all names in an interval are, or begin with before a dot."""
    if piece.values is not None:
        return lowest
    path = lowest
    while "." in path:
        path = path.rpartition(".")[0]
        if constraint_of("prefix", (path + ".",)).includes(Constraint.of_part("string", piece)):
            return path
    return None


def _breadth(types: list[str]) -> tuple[int, int, list[str]]:
    """Fewer types are better; of as many, those furthest down."""
    return len(types), -sum(len(event_types.ancestors(name)) for name in types), types
