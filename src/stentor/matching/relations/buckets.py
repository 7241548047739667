"""Conjuncts filed so that those which cover, or are covered by, a given one are found quickly.

The theory is in `relations`: conjuncts of one shape form a group, those of a group that fix the
same attributes to the same values form a bucket, and a large bucket has indexes on the attributes
that are not fixed. What is found here are candidates; the caller tests them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.effort import spend
from stentor.filters.numbers import SplitNumbers
from stentor.filters.ranges import Ranges
from stentor.filters.tested import Tested
from stentor.filters.witness import Absent, Sample, Witness, witness
from stentor.matching.counting.value_index import ValueIndex
from stentor.matching.relations.point_index import PointIndex, accepts

#: A bucket with more conjuncts than this is indexed; with fewer than half of it, no longer.
LARGE: Final = 24
#: To test one conjunct takes as long as to find so many of them in an index; and so many are found
#: in the time of an elementary step.
TEST: Final = 8
FOUND: Final = 4

Names = frozenset[str]
#: The attributes that a conjunct mentions, and those of them that it fixes to one value.
Shape = tuple[Names, tuple[str, ...]]


class Row:
    """A distinct conjunct, the filters that it is part of, and those that it is the first of."""

    __slots__ = (
        *("_samples", "conjunct", "constraints", "leads", "names", "number", "owners", "points"),
    )

    def __init__(self, conjunct: Conjunct, number: int = 0) -> None:
        """What is found comes by these numbers where no other order is at hand."""
        self.number = number
        self.conjunct = conjunct
        self.constraints = conjunct.constraints
        self.names: Names = frozenset(conjunct.constraints)
        self.owners: dict[Any, None] = {}
        self.leads: set[Any] = set()
        self.points: dict[str, Witness] = {}
        for name, constraint in sorted(conjunct.constraints.items()):
            point = _point(constraint)
            if point is not None:
                self.points[name] = point
        self._samples: dict[str, Sample] = dict(self.points)

    @property
    def shape(self) -> Shape:
        return self.names, tuple(self.points)

    def sample(self, name: str) -> Sample:
        """A witness for the attribute, if one is known."""
        if name not in self._samples:
            self._samples[name] = witness(self.constraints[name])
        return self._samples[name]

    def may_lie_within(self, other: Row) -> bool:
        """Whether the other one accepts its witness on all attributes that both mention."""
        mine = self.constraints
        return all(
            accepts(constraint, self.sample(name))
            for name, constraint in other.constraints.items()
            if name in mine
        )


class _Ranged:
    """Indexes on the attributes that a set of conjuncts mentions without fixing them."""

    __slots__ = ("absent", "by_constraint", "by_witness", "rows")

    def __init__(self, names: Iterable[str], rows: Collection[Row]) -> None:
        self.rows = rows
        self.by_constraint: dict[str, ValueIndex[Row]] = {n: ValueIndex() for n in names}
        self.by_witness: dict[str, PointIndex[Row]] = {n: PointIndex() for n in names}
        self.absent: dict[str, set[Row]] = {n: set() for n in names}
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        for name, index in self.by_constraint.items():
            constraint = row.constraints[name]
            index.add(row, constraint)
            self.by_witness[name].add(row, row.sample(name))
            if constraint.absent:
                self.absent[name].add(row)

    def remove(self, row: Row) -> None:
        for name, index in self.by_constraint.items():
            index.remove(row, row.constraints[name])
            self.by_witness[name].remove(row, row.sample(name))
            self.absent[name].discard(row)

    def around(self, probe: Row) -> Collection[Row] | None:
        """The conjuncts that accept a witness of the probe; None if that is not known.

        What one index finds is tested on the other attributes if it is little, which costs less
        than to search theirs as well.
        """
        found: Collection[Row] | None = None
        for name, index in self.by_constraint.items():
            sample = probe.sample(name)
            if sample is None:
                continue
            if found is not None and TEST * len(found) < len(self.rows):
                found = [row for row in found if accepts(row.constraints[name], sample)]
            else:
                if isinstance(sample, Absent):
                    these = self.absent[name]
                else:
                    these = set(index.find(*sample))
                found = these if found is None else these.intersection(found)
                spend(len(these) // FOUND)
            if not found:
                break
        return None if found is None else sorted(found, key=_number)


def _number(row: Row) -> int:
    return row.number


def _within(indexes: dict[str, PointIndex[Row]], probe: Row) -> set[Row] | None:
    """The conjuncts whose witness the probe accepts on its most selective attributes."""
    constraints = probe.constraints
    counts = {n: index.count(constraints[n]) for n, index in indexes.items() if n in constraints}
    found: set[Row] | None = None
    for name in sorted(counts, key=counts.__getitem__):
        if found is not None and TEST * len(found) < counts[name]:
            break
        spend(counts[name] // FOUND)
        these = indexes[name].find(constraints[name])
        found = set(these) if found is None else found.intersection(these)
    return found


class _Bucket:
    """Conjuncts of one shape that fix the same attributes to the same values."""

    __slots__ = ("ranged", "rows", "values")

    def __init__(self, values: dict[str, Witness]) -> None:
        self.values = values
        self.rows: dict[Row, None] = {}
        self.ranged: _Ranged | None = None

    def add(self, row: Row) -> None:
        self.rows[row] = None
        if self.ranged is not None:
            self.ranged.add(row)
        elif len(self.rows) > LARGE:
            self.ranged = _Ranged([n for n in row.constraints if n not in row.points], self.rows)

    def remove(self, row: Row) -> None:
        del self.rows[row]
        if self.ranged is not None:
            self.ranged.remove(row)
            if len(self.rows) < LARGE // 2:
                self.ranged = None

    def around(self, probe: Row) -> Iterable[Row]:
        found = None if self.ranged is None else self.ranged.around(probe)
        return self.rows if found is None else found

    def within(self, probe: Row) -> Iterable[Row]:
        found = None if self.ranged is None else _within(self.ranged.by_witness, probe)
        return self.rows if found is None else found


class Group:
    """Conjuncts of one shape, in buckets."""

    def __init__(self, shape: Shape) -> None:
        self.names, self.points = shape
        self.ranged = tuple(name for name in sorted(self.names) if name not in self.points)
        self.buckets: dict[tuple[Witness, ...], _Bucket] = {}
        self.by_value: dict[str, PointIndex[_Bucket]] = {n: PointIndex() for n in self.points}
        #: For each attribute, how many conjuncts may fix it to one value without saying so.
        self.disguised: Counter[str] = Counter()
        #: By witness over all buckets; built when first needed, then kept up to date.
        self.by_witness: dict[str, PointIndex[Row]] | None = None

    def add(self, row: Row) -> None:
        values = tuple(row.points.values())
        bucket = self.buckets.get(values)
        if bucket is None:
            bucket = self.buckets[values] = _Bucket(row.points)
            for name, value in row.points.items():
                self.by_value[name].add(bucket, value)
        bucket.add(row)
        self.disguised.update(self._disguised(row))
        for name, index in (self.by_witness or {}).items():
            index.add(row, row.sample(name))

    def remove(self, row: Row) -> None:
        values = tuple(row.points.values())
        bucket = self.buckets[values]
        bucket.remove(row)
        if not bucket.rows:
            del self.buckets[values]
            for name, value in bucket.values.items():
                self.by_value[name].remove(bucket, value)
        self.disguised.subtract(self._disguised(row))
        for name, index in (self.by_witness or {}).items():
            index.remove(row, row.sample(name))

    def _disguised(self, row: Row) -> list[str]:
        return [name for name in self.ranged if _may_be_point(row.constraints[name])]

    @property
    def rows(self) -> Iterator[Row]:
        for bucket in self.buckets.values():
            yield from bucket.rows

    def around(self, probe: Row) -> Iterator[Row]:
        """Conjuncts that may cover the probe, whose attributes include those of the group."""
        values: list[Witness] = []
        for name in self.points:
            sample = probe.sample(name)
            if isinstance(sample, Absent):
                return
            if sample is None:  # nothing to look up
                yield from self.rows
                return
            values.append(sample)
        bucket = self.buckets.get(tuple(values))
        if bucket is not None:
            yield from bucket.around(probe)

    def within(self, probe: Row, *, alone: bool) -> Iterator[Row]:
        """Conjuncts that the probe may cover, alone or together with others."""
        if alone and any(
            name not in self.points and not self.disguised[name] for name in probe.points
        ):
            return  # a single value covers nothing larger
        if len(self.buckets) > LARGE and not any(name in self.points for name in probe.names):
            found = _within(self._by_witness(), probe)
            yield from self.rows if found is None else found
            return
        for bucket in self.meeting(probe, exact=True):
            yield from bucket.within(probe)

    def _by_witness(self) -> dict[str, PointIndex[Row]]:
        if self.by_witness is None:
            self.by_witness = {name: PointIndex() for name in self.ranged}
            for row in self.rows:
                for name, index in self.by_witness.items():
                    index.add(row, row.sample(name))
        return self.by_witness

    def meeting(self, probe: Row, *, exact: bool) -> Iterator[_Bucket]:
        """The buckets whose values the probe accepts, and if not exact possibly others."""
        shared = [name for name in self.points if name in probe.constraints]
        if not shared:
            yield from self.buckets.values()
            return
        if len(shared) == len(self.points) and all(name in probe.points for name in shared):
            bucket = self.buckets.get(tuple([probe.points[name] for name in self.points]))
            if bucket is not None:
                yield bucket
            return
        constraints = probe.constraints
        best = min(shared, key=lambda name: self.by_value[name].count(constraints[name]))
        others = [name for name in shared if name != best] if exact else []
        for bucket in dict.fromkeys(self.by_value[best].find(constraints[best])):
            if all(accepts(constraints[name], bucket.values[name]) for name in others):
                yield bucket


def _point(constraint: Constraint) -> Witness | None:
    """The one value that the constraint plainly accepts."""
    if constraint.rest or constraint.absent or len(constraint.parts) != 1:
        return None
    type_name, part = constraint.parts[0]
    if not isinstance(part, Ranges) or len(part.cuts) > 2:
        return None
    values = part.values
    return (type_name, values[0]) if values is not None and len(values) == 1 else None


def _may_be_point(constraint: Constraint) -> bool:
    """Whether it may accept a single value without being a plain set: a pattern, or an integer."""
    return any(isinstance(part, Tested | SplitNumbers) for _, part in constraint.parts)
