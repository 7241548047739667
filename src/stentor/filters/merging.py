"""Perfect and imperfect merging of filters (sheet 02, §3.7, §3.8 and algorithm 4.4).

A merger replaces several filters by one that covers them all. It is *perfect* if it matches nothing
that none of them matched. Two conjuncts have a perfect merger if one covers the other, or if they
are the same but for one attribute whose two constraints have a union that is no more complicated
than they were. So conjuncts are hashed by what they say apart from one attribute; equal hashes are
the candidates, found without comparing pairs. Merging is repeated until nothing changes. It is
greedy, in a fixed order, and can end above the optimum (02/5.7), which is exponential to find.

An *imperfect* merger widens: on each attribute where the filters differ it takes the smallest
simple constraint around both. How much it lets through in vain is measured on a sample of traffic,
and it is used only within a budget of that looseness. A subscriber is always tested against
its own filter in the end, so looseness costs traffic and never shows (R-02.36).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from stentor.filters.collection import CollectionSet
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint, Part
from stentor.filters.effort import spend
from stentor.filters.ranges import Ranges
from stentor.filters.records import Records

if TYPE_CHECKING:
    from stentor.filters.filter import Filter

Combine = Callable[[Constraint, Constraint], Constraint | None]


def exact_union(mine: Constraint, theirs: Constraint) -> Constraint | None:
    """For the disjuncts of one filter: any union will do."""
    return mine.union(theirs).settled()


def perfect_merger(mine: Constraint, theirs: Constraint) -> Constraint | None:
    """For different filters: only a union that is as simple as they are."""
    return mine.merge(theirs)


def merge_conjuncts(conjuncts: Iterable[Conjunct], combine: Combine) -> list[Conjunct]:
    """Merge to a fixpoint: those that differ in one attribute are combined, covered ones go."""
    current = list(dict.fromkeys(conjuncts))
    while len(current) > 1:
        merged = _merge_once(current, combine)
        kept = drop_covered(current if merged is None else merged)
        if merged is None and len(kept) == len(current):
            break
        current = kept
    return current


#: Comparisons that looking for covered conjuncts may take; beyond, some may stay.
COVER_TESTS = 50_000


def drop_covered(conjuncts: Sequence[Conjunct]) -> list[Conjunct]:
    """Only those that no other one covers; the first of equal ones stays."""
    if len(conjuncts) < 2:
        return list(conjuncts)
    by_names: dict[frozenset[str], _SameNames] = {}
    for conjunct in conjuncts:
        names = frozenset(conjunct.constraints)
        if names not in by_names:
            by_names[names] = _SameNames(names)
        by_names[names].add(conjunct)
    dropped: set[int] = set()
    tests = 0
    for names, group in by_names.items():
        # A conjunct excludes something on each of its names, so those it covers mention them all.
        spend(len(by_names))
        coverers = [other for other in by_names if other <= names]
        tests += len(by_names)
        for conjunct in group.members:
            candidates = [c for other in coverers for c in by_names[other].coverers(conjunct)]
            spend(4 + 4 * len(candidates))
            tests += len(candidates)
            if tests > COVER_TESTS:
                return [c for c in conjuncts if id(c) not in dropped]
            for other in candidates:
                if other is not conjunct and id(other) not in dropped and other.covers(conjunct):
                    dropped.add(id(conjunct))
                    break
    return [c for c in conjuncts if id(c) not in dropped]


class _SameNames:
    """Conjuncts on the same attributes, those with one value for some attribute found by it."""

    def __init__(self, names: frozenset[str]) -> None:
        self.members: list[Conjunct] = []
        self._pinned: dict[tuple[str, Constraint], list[Conjunct]] = defaultdict(list)
        self._names = sorted(names)
        self._free: list[Conjunct] = []

    def add(self, conjunct: Conjunct) -> None:
        self.members.append(conjunct)
        for name in self._names:
            if conjunct.constraints[name].is_single:
                self._pinned[name, conjunct.constraints[name]].append(conjunct)
                return
        self._free.append(conjunct)

    def coverers(self, conjunct: Conjunct) -> list[Conjunct]:
        """All that may cover it: one that is pinned to a value covers only what has that value."""
        found = list(self._free)
        for name in self._names:
            found += self._pinned.get((name, conjunct.constraints[name]), ())
        return found


def _merge_once(conjuncts: list[Conjunct], combine: Combine) -> list[Conjunct] | None:
    """Merge within the most promising group; None if no group has anything to merge."""
    groups: dict[tuple[str, Hashable], list[Conjunct]] = defaultdict(list)
    for conjunct in conjuncts:
        spend(2 + len(conjunct.constraints) ** 2)
        for name in conjunct.constraints:
            groups[name, conjunct.without(name)].append(conjunct)
    candidates = [(key, group) for key, group in groups.items() if len(group) > 1]
    # Largest saving first, then by name; the sort is stable, so the order of arrival decides next.
    candidates.sort(key=lambda item: (-len(item[1]), item[0][0]))
    gone: set[int] = set()
    new: list[Conjunct] = []
    for (name, _), group in candidates:
        if any(id(c) in gone for c in group):
            continue
        spend(8 * len(group))
        merged = merge_constraints([c.constraints[name] for c in group], combine)
        if len(merged) < len(group):
            gone.update(id(c) for c in group)
            replaced = [group[0].replacing(name, constraint) for constraint in merged]
            new += [conjunct for conjunct in replaced if conjunct is not None]
    if not gone:
        return None
    return list(dict.fromkeys([*(c for c in conjuncts if id(c) not in gone), *new]))


def merge_constraints(constraints: Sequence[Constraint], combine: Combine) -> list[Constraint]:
    """N-ary merging on one attribute (R-02.31): sort, sweep neighbors, repeat while it helps."""
    current = list(dict.fromkeys(constraints))
    if combine is exact_union:
        return [Constraint.union_of(current).settled()]
    current = _join_finite(current, combine)
    changed = True
    while changed and len(current) > 1:
        changed = False
        current.sort(key=constraint_order)
        swept: list[Constraint] = []
        for constraint in current:
            for i in range(len(swept) - 1, max(-1, len(swept) - 1 - _LOOK_BACK), -1):
                merged = combine(swept[i], constraint)
                if merged is not None:
                    swept[i] = merged
                    changed = True
                    break
            else:
                swept.append(constraint)
        current = swept
    return current


#: Sorted by lower end, what merges with a constraint stands close before it.
_LOOK_BACK = 64


def _joined_by_halves(constraints: list[Constraint], combine: Combine) -> list[Constraint]:
    """Join neighbors, then what came of them: a sweep would copy a growing union each time."""
    while True:
        joined: list[Constraint] = []
        for a, b in zip(constraints[::2], constraints[1::2], strict=False):
            merged = combine(a, b)
            joined += (a, b) if merged is None else (merged,)
        joined += constraints[len(constraints) & ~1 :]
        if len(joined) == len(constraints):
            return joined
        constraints = joined


def _join_finite(constraints: list[Constraint], combine: Combine) -> list[Constraint]:
    """Finite sets of one type have a merger, whatever their order."""
    finite: dict[str, list[Constraint]] = defaultdict(list)
    result: list[Constraint] = []
    for constraint in constraints:
        if _is_finite(constraint):
            finite[constraint.parts[0][0]].append(constraint)
        else:
            result.append(constraint)
    for group in finite.values():
        result += _joined_by_halves(group, combine)
    return result


def _is_finite(constraint: Constraint) -> bool:
    if constraint.rest or constraint.absent or len(constraint.parts) != 1:
        return False
    part = constraint.parts[0][1]
    return isinstance(part, Ranges) and part.values is not None


def constraint_order(constraint: Constraint) -> tuple[Any, ...]:
    """Finite sets first, then by lower end."""
    for type_name, part in constraint.parts:
        if isinstance(part, Ranges):
            if part.starts or not part.cuts:
                return (type_name, 1, 0, ())
            return (type_name, 0 if part.values is not None else 2, 0, _Lowest(part.cuts[0]))
        return (type_name, 3, 0, repr(part))
    return ("", constraint.rest, constraint.absent, ())


class _Lowest:
    """A sort key of a cut that never fails to compare with another kind of key."""

    __slots__ = ("cut",)

    def __init__(self, cut: Any) -> None:
        self.cut = cut

    def __lt__(self, other: object) -> bool:
        return isinstance(other, _Lowest) and self.cut < other.cut

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Lowest) and self.cut == other.cut


# -- imperfect merging


@dataclass(frozen=True)
class Merger:
    """A filter in place of others, with what it costs (R-02.35)."""

    filter: Filter
    originals: tuple[Filter, ...]
    #: Share of the sample that the merger matches and none of the originals does.
    looseness: float

    @property
    def perfect(self) -> bool:
        """It matches nothing that none of the originals matches."""
        return self.looseness == 0.0 and self.filter.is_union_of(self.originals)


def hull(mine: Constraint, theirs: Constraint) -> Constraint:
    """A simple constraint around both, as tight as one comparison, interval or cell can be."""
    merged = mine.merge(theirs)
    if merged is not None:
        return merged
    union = mine.union(theirs)
    around: Ranges | CollectionSet | None = None
    if not union.rest and not union.absent and len(union.parts) == 1:
        ((type_name, part),) = union.parts
        around = _cell_around(part) if isinstance(part, CollectionSet) else _interval_around(part)
    if around is None or around.is_all:
        return Constraint(rest=True, absent=union.absent)
    return Constraint(((type_name, around),))


def _interval_around(part: Part) -> Ranges:
    """From the lowest value to the highest."""
    bounds = part if isinstance(part, Ranges) else part.bounds  # type: ignore[union-attr]
    cuts = bounds.cuts
    ends_high = bounds.starts is (len(cuts) % 2 == 0)  # whether it reaches the domain's end
    if bounds.starts:
        return Ranges(bounds.domain, True, () if ends_high else cuts[-1:])
    return Ranges(bounds.domain, False, cuts[:1] if ends_high else (cuts[0], cuts[-1]))


def _cell_around(part: CollectionSet) -> CollectionSet | None:
    """One cell, if there are words for its universe: a list of elements, or all but a list."""
    cell = part.hull
    if cell is None:
        return None
    universe = cell.universe
    if any(isinstance(part, Records) for _, part in universe.parts):
        return CollectionSet((cell,))
    if universe.is_all_values or _is_finite(universe) or _is_finite(universe.complement()):
        return CollectionSet((cell,))
    return None


def widened(mine: Conjunct, theirs: Conjunct) -> Conjunct | None:
    """The hull on every attribute that both mention; what only one mentions is dropped.

    None if it turns out that nothing can match either of them.
    """
    constraints = {
        name: hull(constraint, theirs.constraints[name])
        for name, constraint in mine.constraints.items()
        if name in theirs.constraints
    }
    return Conjunct.of(constraints, mine.residuals & theirs.residuals)


def differing(mine: Conjunct, theirs: Conjunct) -> int:
    """On how many attributes the two say something different."""
    names = {*mine.constraints, *theirs.constraints}
    return sum(mine.constraints.get(n) != theirs.constraints.get(n) for n in names)


def looseness(
    merger: Filter, originals: Iterable[Filter], sample: Sequence[Mapping[str, Any]]
) -> float:
    """The share of the sample that the merger matches in vain (R-02.34)."""
    if not sample:
        return 0.0
    kept = list(originals)
    vain = sum(merger.matches(n) and not any(f.matches(n) for f in kept) for n in sample)
    return vain / len(sample)


def merge_within_budget(
    filters: Sequence[Filter],
    sample: Sequence[Mapping[str, Any]],
    *,
    budget: float = 0.01,
    max_differing: int = 2,
) -> list[Merger]:
    """Merge filters, nearest first, as long as each merger's looseness stays within the budget.

    Perfect mergers are taken first and cost nothing. Then pairs are widened in the order of the
    looseness they would add (a predicate proximity graph whose edges are measured, R-02.32).
    Every merger remembers its originals, so that one of them can be taken back. Without a sample
    nothing can be measured, and only perfect mergers are made.
    """
    from stentor.filters.filter import Filter, merge_all

    groups: list[Merger] = []
    for merged in merge_all(filters):
        originals = tuple(dict.fromkeys([f for f in filters if merged.covers(f)]))
        groups.append(Merger(merged, originals, looseness(merged, originals, sample)))
    # Where covering cannot be told, a merger does not know its originals: leave these alone.
    lost = set(filters).difference(*[g.originals for g in groups]) if groups else set()
    groups += [Merger(f, (f,), 0.0) for f in dict.fromkeys(filters) if f in lost]
    while sample:
        best: tuple[float, int, int, Merger] | None = None
        for (i, a), (j, b) in combinations(enumerate(groups), 2):
            if len(a.filter.conjuncts) != 1 or len(b.filter.conjuncts) != 1:
                continue
            mine, theirs = a.filter.conjuncts[0], b.filter.conjuncts[0]
            if differing(mine, theirs) > max_differing:
                continue
            around = widened(mine, theirs)
            if around is None:
                continue
            wide = Filter.of_conjuncts([around])
            originals = tuple(dict.fromkeys((*a.originals, *b.originals)))
            loose = looseness(wide, originals, sample)
            if loose <= budget and (best is None or loose < best[0]):
                best = (loose, i, j, Merger(wide, originals, loose))
        if best is None:
            break
        _, i, j, merger = best
        groups = [g for k, g in enumerate(groups) if k not in (i, j)] + [merger]
    return groups
