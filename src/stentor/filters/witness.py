"""Witnesses: one state of an attribute that a constraint accepts.

Whatever covers a filter accepts everything the filter accepts, its witnesses among them. So one
witness for each attribute turns the search for covering filters into matching, and the search for
covered filters into a search for points. A witness is always a true value of the model, found by
proposing a few and asking the set. Where none of them is in it (between two neighboring doubles, in
an open interval of a registered type, behind a registered operator) there is no witness, and the
caller has to do without.

Witnesses lie at the edge of their set. That separates it best from other sets of its kind: the
least value above 5 is in `x > 4` but not in `x > 6`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import inf, nextafter
from typing import Any, Final

from stentor.filters.collection import CollectionSet
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint, Part, everything
from stentor.filters.domains import BOOL, BYTES, INTEGER, REAL, STRING, TIME, Domain
from stentor.filters.numbers import SplitNumbers
from stentor.filters.patterns import Pattern
from stentor.filters.ranges import Piece, Ranges
from stentor.filters.records import Records
from stentor.filters.tested import Tested
from stentor.filters.unordered import plain
from stentor.model.record import Record
from stentor.model.values import COLLECTION, INT_MIN

#: Type and comparable value.
Witness = tuple[str, Any]


class Absent:
    """The witness of a constraint that accepts absence."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()

#: A witness, or absence, or None where no witness is known.
Sample = Witness | Absent | None

#: Tried in this order for a constraint that accepts values of any type.
_COMMON_TYPES: Final = ("number", "string", "bool", "time", "bytes", COLLECTION)


def witness(constraint: Constraint) -> Sample:
    """A state that the constraint accepts; None if none was found.

    >>> from stentor import Filter
    >>> witness(Filter("x > 5 and x is int").conjuncts[0].constraints["x"])
    ('number', 6)
    >>> witness(Filter("s suffix 'ing'").conjuncts[0].constraints["s"])
    ('string', 'ing')
    """
    if constraint.absent:
        return ABSENT
    for type_name, part in constraint.parts:
        value = _member(part)
        if value is not None:
            return type_name, value
    if constraint.rest:
        mentioned = {name for name, _ in constraint.parts}
        for type_name in _COMMON_TYPES:
            if type_name not in mentioned:
                return type_name, _member(everything(type_name))
    return None


def _member(part: Part) -> Any:
    """A value of the set, or None."""
    for value in _proposals(part):
        if value is not None and part.contains(value):
            return value
    return None


def _proposals(part: Part) -> Iterator[Any]:
    if isinstance(part, Ranges):
        for piece in part.pieces[:_PIECES]:
            yield from _in_piece(part.domain, piece)
    elif isinstance(part, SplitNumbers):
        yield from _proposals(part.ints)
        for number in _proposals(part.floats):
            yield float(number)
    elif not part.is_settled:
        return  # what it holds was too much work to find out
    elif isinstance(part, CollectionSet):
        for cell in part.cells:
            yield _collection([witness(hit) for hit in cell.key[1]])
    elif isinstance(part, Records):
        for conjunct in part.conjuncts:
            yield _record(conjunct)
    elif _only_patterns(part):
        yield from _accepted(part)


#: How many pieces of a set are asked for a member; the first nearly always has one.
_PIECES: Final = 4


def _collection(elements: list[Sample]) -> tuple[Any, ...] | None:
    if not all(isinstance(element, tuple) for element in elements):
        return None
    return tuple([plain(element[1]) for element in elements if isinstance(element, tuple)])


def _record(conjunct: Conjunct) -> Record | None:
    fields: dict[str, Any] = {}
    for name, constraint in conjunct.constraints.items():
        state = witness(constraint)
        if state is None:
            return None
        if isinstance(state, tuple):
            fields[name] = plain(state[1])
    return Record(fields)


def _only_patterns(part: Tested) -> bool:
    return all(type(leaf.test) is Pattern for leaf in part.leaves)


def _accepted(part: Tested) -> Iterator[Any]:
    """Strings that a pattern accepts: first the text it is written with, then any."""
    is_bytes = part.domain is BYTES
    if part.operator == "leaf" and part.test.kind in ("suffix", "contains"):
        yield part.test.text.encode("latin-1") if is_bytes else part.test.text
    dfa = part.dfa
    example = None if dfa is None else dfa.example()
    if example is not None and (not is_bytes or all(ord(c) < 256 for c in example)):
        yield example.encode("latin-1") if is_bytes else example


def _in_piece(domain: Domain, piece: Piece) -> Iterator[Any]:
    """Values at the ends of an interval."""
    low, high = piece
    if low is not None:
        yield _above(domain, low[0]) if low[1] else low[0]
    if high is not None:
        yield high[0] if high[1] else _below(domain, high[0])
    if low is None:
        yield _LEAST.get(domain)
    if domain is REAL and low is not None and high is not None:
        yield _halfway(low[0], high[0])  # integers too large for the doubles at their side


def _above(domain: Domain, value: Any) -> Any:
    """The least value above another, if there is one."""
    if domain is REAL:
        return nextafter(value, inf)
    if domain is STRING:
        return value + "\0"
    return value + b"\0" if domain is BYTES else None


def _below(domain: Domain, value: Any) -> Any:
    """The greatest value below another, if there is one."""
    if domain is REAL:
        return nextafter(value, -inf)
    if domain is INTEGER:
        return value - 1
    if domain is BOOL:
        return False
    return value - timedelta(microseconds=1) if domain is TIME else None


def _halfway(low: float, high: float) -> float | None:
    if isinstance(low, int) and isinstance(high, int):
        return (low + high) // 2
    return low / 2 + high / 2


_LEAST: Final[dict[Domain, Any]] = {
    REAL: 0,
    INTEGER: INT_MIN,
    BOOL: False,
    STRING: "",
    BYTES: b"",
    TIME: datetime.min.replace(tzinfo=UTC),
}
