"""One filter that covers many, of bounded size, kept up to date change by change.

The filters are the leaves of a balanced binary tree. An inner node holds conjuncts that cover all
leaves below it: those of its children, merged, and where they are more than allowed, the nearest
ones widened into one around them. The root covers everything.

A change concerns the nodes between one leaf and the root. Those that do not cover an added filter
take it in. After a removal they are made anew from their children, up to the first that stays as it
was. So a change among very many filters costs a few unions, and mostly the root stays: it changes
only when the union does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, TypeAlias

from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint, Part
from stentor.filters.merging import differing, exact_union, merge_conjuncts, widened
from stentor.filters.ranges import Ranges

#: Conjuncts that a summary may have.
MAX_CONJUNCTS: Final = 8
#: Ends of intervals that it may list for one attribute of one conjunct; a single value has two.
MAX_CUTS: Final = 64

_Node: TypeAlias = tuple[Conjunct, ...]


class Summary:
    """Covers all filters that were added and not removed.

    >>> summary = Summary()
    >>> summary.add(Filter("x > 5")), summary.add(Filter("x > 7")), summary.add(Filter("x > 1"))
    (True, False, True)
    >>> summary.remove(Filter("x > 5")), summary.filter
    (False, Filter('x > 1'))
    """

    def __init__(self, max_conjuncts: int = MAX_CONJUNCTS) -> None:
        self._max = max_conjuncts
        self._leaf: dict[Filter, int] = {}
        self._times: dict[Filter, int] = {}
        #: The root is at 1, the children of node i at 2 i and 2 i + 1; leaves fill the upper half.
        self._nodes: list[_Node] = [(), ()]
        self._free = [0]
        #: The root as a filter; it matches nothing if nothing is to be covered.
        self.filter = Filter.of_conjuncts(())

    def __len__(self) -> int:
        """How many distinct filters are covered."""
        return len(self._leaf)

    def add(self, filter: Filter) -> bool:
        """Cover the filter too; whether the summary changed."""
        self._times[filter] = self._times.get(filter, 0) + 1
        if self._times[filter] > 1:
            return False
        if not self._free:
            self._grow()
        leaf = self._leaf[filter] = self._free.pop()
        place = len(self._nodes) // 2 + leaf
        missing: Sequence[Conjunct] = filter.conjuncts
        added = self._nodes[place] = self._bounded(filter.conjuncts)
        while place := place // 2:
            held = self._nodes[place]
            missing = [c for c in added if not any(h.covers(c) for h in held)]
            if missing:
                self._nodes[place] = self._bounded((*held, *missing))
        return bool(missing) and self._root_changed()

    def remove(self, filter: Filter) -> bool:
        """Cover it no longer; whether the summary changed. It must have been added."""
        self._times[filter] -= 1
        if self._times[filter]:
            return False
        leaf = self._leaf.pop(filter)
        del self._times[filter]
        self._free.append(leaf)
        place = len(self._nodes) // 2 + leaf
        self._nodes[place] = ()
        while place := place // 2:
            held, self._nodes[place] = self._nodes[place], self._joined(place)
            if self._nodes[place] == held:
                return False
        return self._root_changed()

    def _root_changed(self) -> bool:
        """Whether the new root means something else than the old one, not just in other words."""
        before, self.filter = self.filter, Filter.of_conjuncts(self._nodes[1])
        return self.filter != before

    def _grow(self) -> None:
        """The tree becomes the left half of one that is twice as large."""
        old = self._nodes
        leaves = len(old) // 2
        nodes: list[_Node] = [()] * (2 * len(old))
        nodes[1] = old[1]
        width = 1
        while width <= leaves:
            nodes[2 * width : 3 * width] = old[width : 2 * width]
            width *= 2
        self._nodes = nodes
        self._free = list(reversed(range(leaves, 2 * leaves)))

    def _joined(self, place: int) -> _Node:
        left, right = self._nodes[2 * place], self._nodes[2 * place + 1]
        return self._bounded((*left, *right)) if left and right else left or right

    def _bounded(self, conjuncts: Iterable[Conjunct]) -> _Node:
        """Few enough conjuncts, each short enough, that together cover the given ones."""
        found = [_shortened(c) for c in merge_conjuncts(conjuncts, exact_union)]
        while len(found) > self._max:
            # The two that differ in the fewest attributes are replaced by one around both.
            mine, theirs = min(combinations(found, 2), key=lambda pair: differing(*pair))
            around = widened(mine, theirs)
            if around is None:
                found = [c for c in found if c is not mine and c is not theirs]
                continue
            around = _shortened(around)
            found = [c for c in found if not around.covers(c)]
            found.append(around)
        return tuple(found)


def _shortened(conjunct: Conjunct) -> Conjunct:
    """The conjunct, or one that covers it and lists fewer values."""
    long = {
        name: Constraint(
            tuple((type_name, _without_gaps(part)) for type_name, part in constraint.parts),
            rest=constraint.rest,
            absent=constraint.absent,
        )
        for name, constraint in conjunct.constraints.items()
        if any(isinstance(p, Ranges) and len(p.cuts) > MAX_CUTS for _, p in constraint.parts)
    }
    if not long:
        return conjunct
    return Conjunct({**conjunct.constraints, **long}, conjunct.residuals)


def _without_gaps(part: Part) -> Part:
    """The lowest pieces of a set as they are, and one piece from there to its highest value."""
    if not isinstance(part, Ranges) or len(part.cuts) <= MAX_CUTS:
        return part
    kept = MAX_CUTS - 1 - part.starts  # cuts, so many that after the last of them it is inside
    ends_outside = (len(part.cuts) % 2 == 1) is part.starts
    return Ranges(part.domain, part.starts, part.cuts[:kept] + part.cuts[-1:] * ends_outside)
