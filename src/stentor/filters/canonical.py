"""The one form of a filter.

Equal filters are equal values, whatever words they were written in. That takes automata, divisions
of collections and decision diagrams, and for some filters more of these than anybody can wait for.
So a filter has two forms. The *written* one is what its text says, multiplied out, with all that is
said about an attribute in one place; it is quick to find, and does not depend on the order of
conditions. The *decided* one is worked out from it within a budget: sets in their plainest form,
conjuncts merged and covered ones left out. A filter that cannot be decided within the budget stays
as it is written. It matches just as exactly; only its relations to other filters are then answered
cautiously, and it equals the filters that are written like it.

Printing a filter and reading the text gives an equal one. That is why a decision counts only if the
decided form, taken as a text of its own, is decided to be itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from stentor.errors import FilterTooComplex
from stentor.filters.collection import CollectionSet
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.describe import expression_of
from stentor.filters.diagram import diagram
from stentor.filters.effort import TooCostly, afresh, spend
from stentor.filters.merging import exact_union, merge_conjuncts
from stentor.filters.normalize import conjuncts_of, folded
from stentor.filters.numbers import SplitNumbers
from stentor.filters.ranges import Ranges
from stentor.filters.records import Records
from stentor.filters.tested import Tested

#: Steps that deciding the form of a filter may take.
DECISION_STEPS: Final = 10_000

Form = tuple[tuple[Conjunct, ...], Hashable]


def canonical(conjuncts: Iterable[Conjunct]) -> Form:
    """The conjuncts of the one form of their union, and a key that is equal for equal unions."""
    written = _written(conjuncts)
    if len(written) < 2 and all(is_plain(c) for c in written):
        return tuple(written), None
    try:
        with afresh(DECISION_STEPS):
            found = decided(written)
    except (TooCostly, FilterTooComplex):
        return tuple(written), None
    key: Hashable = None
    if len(found) > 1:
        shape = diagram(found)
        if shape is not None:
            single = shape.conjunct
            if single is None:
                key = shape.key
            else:
                found = (single,)
    return (found, key) if _is_stable(written, found) else (tuple(written), None)


def _written(conjuncts: Iterable[Conjunct]) -> list[Conjunct]:
    """What they say, in the words that were used.

    Some of it may have been worked out on the way, when parentheses were multiplied out or filters
    merged. That must not show: what is written alike is decided alike, or stays alike.
    """
    return [conjunct.as_written() for conjunct in folded(conjuncts)]


def is_plain(conjunct: Conjunct) -> bool:
    """Whether nothing about its constraints has to be worked out."""
    return all(type(part) is Ranges for c in conjunct.constraints.values() for _, part in c.parts)


def decided(written: list[Conjunct]) -> tuple[Conjunct, ...]:
    """The conjuncts in their plainest form, those that were written first in that order."""
    place: dict[Conjunct, int] = {}
    for i, conjunct in enumerate(written):
        spend(weight(conjunct))
        settled = _settled(conjunct)
        if settled is not None:
            place.setdefault(settled, i)
    # The same work in the same order, whatever the order of the text.
    merged = merge_conjuncts(sorted(place, key=repr), exact_union)
    return tuple(sorted(merged, key=lambda c: place.get(c, len(written))))


def weight(conjunct: Conjunct) -> int:
    """Steps that looking at all of a conjunct takes, to hash it or to put it in order."""
    total = 16 + 32 * len(conjunct.residuals)
    for constraint in conjunct.constraints.values():
        total += _constraint_weight(constraint)
    return total


def _constraint_weight(constraint: Constraint) -> int:
    total = 8
    for _, part in constraint.parts:
        if type(part) is Ranges:
            total += 8 + len(part.cuts)
        elif type(part) is Tested:
            total += 16 * part.weight
        elif type(part) is CollectionSet:
            for cell in part.cells:
                total += 24 + _constraint_weight(cell.universe)
                for hit in cell.hits:
                    total += _constraint_weight(hit)
        elif type(part) is Records:
            total += 8 + sum(map(weight, part.conjuncts))
        elif type(part) is SplitNumbers:
            total += 8 + len(part.floats.cuts) + len(part.ints.cuts)
    return total


def _settled(conjunct: Conjunct) -> Conjunct | None:
    if is_plain(conjunct):
        return conjunct
    constraints: dict[str, Constraint] = {n: c.settled() for n, c in conjunct.constraints.items()}
    return Conjunct.of(constraints, conjunct.residuals)


def _is_stable(written: list[Conjunct], found: tuple[Conjunct, ...]) -> bool:
    """Whether the decided form would be decided again to be itself."""
    if len(found) < 2 and all(is_plain(c) for c in found):
        return True
    if set(written) == set(found):
        return True
    try:
        with afresh(DECISION_STEPS):
            again = decided(_written(conjuncts_of(expression_of(found))))
    except (TooCostly, FilterTooComplex):
        return False
    return set(again) == set(found)
