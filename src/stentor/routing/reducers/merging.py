"""Merging: one filter in place of several from the same destination (R-03.20, R-03.21).

What comes from a destination, its *parts*, is grouped. Each group is known outside by one filter,
its merger, which covers all parts of the group; a group of one is the part itself. The stage
stands in front of the routing table and the covering reducer, so these see mergers only. Whoever
sent the parts knows nothing of it and withdraws them one by one.

A merger is *perfect* if it matches exactly what its parts match together. Perfect mergers are made
of filters that are the same but for one attribute, whose two constraints have a simple union. The
groups are sorted by what they say on each attribute, given the rest; what merges with a
constraint touches it, so it stands next to it. Hence a new part looks at a few neighbors, however
many there are. A part inside a merger just joins its group.

When a part is withdrawn, the merger stays perfect if the other parts that overlap it match all that
it matched; no others can help. Otherwise the group is dissolved, and its parts stand alone until a
new one merges with them: a withdrawal is often the first of several. This also holds where parts
overlap, and where a part lay inside a merger that was made without it: the group always knows every
part that came from the destination, so nothing that is still wanted can get lost (the printed
algorithm forgets some, see 03/X-03.20 to X-03.23).

*Imperfect* mergers widen what differs. Their imperfection is the share of vain matches among all
matches of the merger, measured on a sample of notifications (03/A8); it must stay within a budget,
when the group is made and whenever it has lost a part. They are for neighbors only: what goes to a
client must match exactly.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import Any, NamedTuple

from stentor.errors import FilterTooComplex, InvalidConfiguration
from stentor.filters import Filter, Questions
from stentor.filters.constraint import Constraint
from stentor.filters.effort import TooCostly, within
from stentor.filters.merging import constraint_order, widened
from stentor.filters.ranges import Ranges
from stentor.matching import FilterTable
from stentor.routing.reducers.sample import Sample

#: Intervals, values or cells in one constraint of a merger. Mergers are sent whole, so they must
#: not grow with the number of their parts.
LARGEST = 64
#: Steps that looking for one merger may take.
MERGER_STEPS = 4_000
#: How many groups before and after a new part are tried.
NEARBY = 2
#: Groups of any form that are tried in addition when widening is allowed.
RECENT = 8


class Delta(NamedTuple):
    """Mergers that are new, and those that are gone."""

    added: list[Filter]
    removed: list[Filter]


class _Group:
    """Parts, and the filter that stands for them."""

    __slots__ = ("filter", "number", "parts")

    def __init__(self, number: int, filter: Filter, parts: Iterable[Filter]) -> None:
        self.number = number
        self.filter = filter
        self.parts = dict.fromkeys(parts)


class MergingStage:
    """The mergers of what one destination asks for.

    >>> stage = MergingStage()
    >>> _ = stage.add(Filter("x between 0 and 10"))
    >>> stage.add(Filter("x between 5 and 20"))
    Delta(added=[Filter('x between 0 and 20')], removed=[Filter('x between 0 and 10')])
    >>> stage.remove(Filter("x between 0 and 10"))
    Delta(added=[Filter('x between 5 and 20')], removed=[Filter('x between 0 and 20')])
    """

    def __init__(self, looseness: float = 0.0, sample: Sample | None = None) -> None:
        """With `looseness`, mergers may match that share in vain, measured on the sample."""
        if not 0.0 <= looseness <= 1.0:
            raise InvalidConfiguration(f"looseness is a share from 0 to 1, not {looseness!r}")
        self._looseness = looseness
        self._sample = sample or Sample()
        self._numbers = count()
        self._held: dict[Filter, int] = {}
        self._group_of: dict[Filter, _Group] = {}
        self._groups: FilterTable[_Group] = FilterTable()
        self._neighborhoods = _Neighborhoods()
        self._recent: dict[_Group, None] = {}
        self._changes: dict[Filter, int] = {}

    def add(self, part: Filter, *, merge: bool = True) -> Delta:
        """The destination asks for this, possibly once more.

        Without `merge` it is only put into a group that covers it, if there is one.
        """
        held = self._held[part] = self._held.get(part, 0) + 1
        if held == 1:
            self._insert(part, merge=merge)
        return self._take()

    def remove(self, part: Filter) -> Delta:
        """It no longer does, as far as this one time is concerned."""
        self._held[part] -= 1
        if not self._held[part]:
            del self._held[part]
            self._withdraw(part)
        return self._take()

    @property
    def mergers(self) -> list[Filter]:
        """What stands for all the parts."""
        groups = dict.fromkeys(self._group_of.values())
        return [group.filter for group in groups]

    @property
    def all_parts(self) -> list[Filter]:
        return list(self._held)

    def parts(self, merger: Filter) -> list[Filter]:
        """The parts that a merger stands for (c(M) in the book)."""
        return [part for part, group in self._group_of.items() if group.filter == merger]

    def __contains__(self, part: object) -> bool:
        return part in self._held

    def __len__(self) -> int:
        return len(self._held)

    def _take(self) -> Delta:
        """The changes so far; what came and went is none."""
        changes, self._changes = self._changes, {}
        return Delta(
            [filter for filter, change in changes.items() if change > 0],
            [filter for filter, change in changes.items() if change < 0],
        )

    # -- parts come

    def _insert(self, part: Filter, *, merge: bool) -> None:
        coverers = self._groups.coverers(part)
        if coverers:
            group = min(coverers, key=_number)
            group.parts[part] = None
            self._group_of[part] = group
            return
        merger, parts = part, {part: None}
        self._absorb(merger, parts)
        while merge and (found := self._merge(merger, parts)) is not None:
            merger, group = found
            self._close(group)
            parts.update(group.parts)
            self._absorb(merger, parts)
        self._open(merger, parts)

    def _absorb(self, merger: Filter, parts: dict[Filter, None]) -> None:
        """Take over all groups that the merger covers."""
        for group in sorted(self._groups.covered(merger), key=_number):
            self._close(group)
            parts.update(group.parts)

    def _merge(self, filter: Filter, parts: Iterable[Filter]) -> tuple[Filter, _Group] | None:
        """A merger with one of the groups, if there is one that is good enough."""
        nearby = self._neighborhoods.near(filter)
        for group, name in nearby.items():
            merger = perfect_merger(filter, group.filter, name)
            if merger is not None:
                return merger, group
        if not self._looseness:
            return None
        best: tuple[float, Filter, _Group] | None = None
        for group in dict.fromkeys([*nearby, *list(self._recent)[-RECENT:]]):
            wide = _widened(filter, group.filter)
            if wide is not None:
                together = chain(parts, group.parts)
                imperfection = self._sample.imperfection(wide, together)
                if imperfection <= self._looseness and (best is None or imperfection < best[0]):
                    best = imperfection, wide, group
        return None if best is None else best[1:]

    # -- parts go

    def _withdraw(self, part: Filter) -> None:
        group = self._group_of.pop(part)
        del group.parts[part]
        if group.parts and self._still_good(group, part):
            return
        self._close(group)
        for other in group.parts:
            self._insert(other, merge=False)

    def _still_good(self, group: _Group, gone: Filter) -> bool:
        questions = Questions()
        others = [part for part in group.parts if questions.overlaps(part, gone)]
        if any(questions.covers(part, gone) for part in others):
            return True
        if len(others) > 1 and _union(others).covers(gone):
            return True
        if not self._looseness or len(group.parts) < 2:
            return False
        return self._sample.imperfection(group.filter, group.parts) <= self._looseness

    # -- groups

    def _open(self, merger: Filter, parts: Iterable[Filter]) -> None:
        group = _Group(next(self._numbers), merger, parts)
        for part in group.parts:
            self._group_of[part] = group
        self._groups.add(group, merger)
        self._neighborhoods.add(group)
        if self._looseness:
            self._recent[group] = None
        self._changes[merger] = self._changes.get(merger, 0) + 1

    def _close(self, group: _Group) -> None:
        self._groups.remove(group)
        self._neighborhoods.remove(group)
        self._recent.pop(group, None)
        self._changes[group.filter] = self._changes.get(group.filter, 0) - 1


class _Neighborhoods:
    """Groups that are the same but for one attribute, sorted by what they say on it."""

    def __init__(self) -> None:
        self._sorted: dict[tuple[str, frozenset[Any]], list[tuple[Any, int, _Group]]] = {}

    def add(self, group: _Group) -> None:
        for place, item in _places(group.filter, group):
            insort(self._sorted.setdefault(place, []), item)

    def remove(self, group: _Group) -> None:
        for place, item in _places(group.filter, group):
            items = self._sorted[place]
            del items[bisect_left(items, item)]
            if not items:
                del self._sorted[place]

    def near(self, filter: Filter) -> dict[_Group, str]:
        """Those that stand next to where the filter would, each with the attribute that differs.

        Lists of values and intervals are sorted apart, and each may touch the other.
        """
        found: dict[_Group, str] = {}
        if len(filter.conjuncts) == 1:
            (conjunct,) = filter.conjuncts
            for name, constraint in conjunct.constraints.items():
                items = self._sorted.get((name, conjunct.without(name)))
                if items:
                    for order in _orders(constraint):
                        at = bisect_left(items, (order,))
                        for _, _, group in items[max(0, at - NEARBY) : at + NEARBY]:
                            found[group] = name
        return found


def _places(
    filter: Filter, group: _Group
) -> Iterator[tuple[tuple[str, frozenset[Any]], tuple[Any, int, _Group]]]:
    if len(filter.conjuncts) == 1:
        (conjunct,) = filter.conjuncts
        for name, constraint in conjunct.constraints.items():
            item = (constraint_order(constraint), group.number, group)
            yield (name, conjunct.without(name)), item


def _orders(constraint: Constraint) -> list[tuple[Any, ...]]:
    """Where the constraint would stand among lists of values, open ranges and intervals.

    Below its own lower end there is at most one of each that reaches up to it; if it has no lower
    end, it reaches up to the first ones.
    """
    own = constraint_order(constraint)
    type_name, kind, *rest = own
    match kind:
        case 0 | 2:
            return [(type_name, other, *rest) for other in (0, 2)] + [(type_name, 1)]
        case 1:
            return [(type_name, other) for other in (0, 1, 2)]
        case _:
            return [own]


def perfect_merger(mine: Filter, theirs: Filter, name: str) -> Filter | None:
    """One conjunction that matches exactly what the two match together, if there is one.

    They are conjunctions, the same but for the attribute of that name.

    >>> print(perfect_merger(Filter("x < 5"), Filter("x between 5 and 7"), "x"))
    x <= 7
    >>> print(perfect_merger(Filter("x < 5"), Filter("x >= 5"), "x"))
    x is number
    """
    conjunct = mine.conjuncts[0]
    theirs_on_it = theirs.conjuncts[0].constraints[name]
    constraint = _exact_merger(conjunct.constraints[name], theirs_on_it)
    if constraint is None:
        return None
    merged = conjunct.replacing(name, constraint)
    return Filter.of_conjuncts([] if merged is None else [merged])


def _exact_merger(mine: Constraint, theirs: Constraint) -> Constraint | None:
    """The union, if it is simple and does not take too much to write down."""
    try:
        with within(MERGER_STEPS):
            merged = mine.merge(theirs)
    except (TooCostly, FilterTooComplex):
        return None
    return merged if merged is not None and _extent(merged) <= LARGEST else None


def _extent(constraint: Constraint) -> int:
    """How many intervals, values or cells it takes to write the constraint down."""
    return sum(
        len(part.pieces) if isinstance(part, Ranges) else part.size for _, part in constraint.parts
    )


def _union(filters: Iterable[Filter]) -> Filter:
    return Filter.of_conjuncts(c for filter in filters for c in filter.conjuncts)


def _widened(mine: Filter, theirs: Filter) -> Filter | None:
    if len(mine.conjuncts) != 1 or len(theirs.conjuncts) != 1:
        return None
    try:
        wide = widened(mine.conjuncts[0], theirs.conjuncts[0])
    except FilterTooComplex:
        return None
    if wide is None or any(_extent(c) > LARGEST for c in wide.constraints.values()):
        return None
    return Filter.of_conjuncts([wide])


def _number(group: _Group) -> int:
    return group.number
