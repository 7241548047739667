"""Sets of numbers that treat integers and floats differently.

Most filters do not care whether 5 arrives as an integer or as a float, and their sets of numbers
are plain `Ranges` over the reals. A type test (`x is int and x > 3`) separates the two, and
then the integers are a discrete domain of their own, in which `x > 3 and x < 5` is `x = 4`.
`SplitNumbers` holds both halves. A set that has the same meaning for both is never kept in this
form: `numbers` gives back plain `Ranges` for it, so every set still has one form only.
"""

from __future__ import annotations

from math import ceil, floor, inf
from typing import Final

from stentor.filters.domains import INTEGER, REAL, Cut, first_above, last_below
from stentor.filters.effort import spend
from stentor.filters.ranges import Ranges
from stentor.model.values import INT_MAX, INT_MIN

#: No longer run of integers than this is listed.
LONGEST_RUN: Final = 1_024


class SplitNumbers:
    """The floats in `floats` together with the integers in `ints`."""

    __slots__ = ("floats", "ints")

    def __init__(self, floats: Ranges, ints: Ranges) -> None:
        self.floats = floats
        self.ints = ints

    def contains(self, value: float) -> bool:
        return (self.ints if type(value) is int else self.floats).contains(value)

    @property
    def is_none(self) -> bool:
        return self.floats.is_none and self.ints.is_none

    @property
    def is_all(self) -> bool:
        return self.floats.is_all and self.ints.is_all

    def includes(self, other: Ranges | SplitNumbers) -> bool:
        floats, ints = halves(other)
        return self.floats.includes(floats) and self.ints.includes(ints)

    def intersects(self, other: Ranges | SplitNumbers) -> bool:
        floats, ints = halves(other)
        return self.floats.intersects(floats) or self.ints.intersects(ints)

    def union(self, other: Ranges | SplitNumbers) -> Ranges | SplitNumbers:
        floats, ints = halves(other)
        return numbers(self.floats.union(floats), self.ints.union(ints))

    def intersection(self, other: Ranges | SplitNumbers) -> Ranges | SplitNumbers:
        floats, ints = halves(other)
        return numbers(self.floats.intersection(floats), self.ints.intersection(ints))

    def complement(self) -> Ranges | SplitNumbers:
        return numbers(self.floats.complement(), self.ints.complement())

    def merge(self, other: Ranges | SplitNumbers) -> Ranges | SplitNumbers | None:
        floats, ints = halves(other)
        merged_floats, merged_ints = self.floats.merge(floats), self.ints.merge(ints)
        if merged_floats is None or merged_ints is None:
            return None
        return numbers(merged_floats, merged_ints)

    @property
    def size(self) -> int:
        """A half that is everything or nothing takes no more than the type test."""
        return max(1, sum([h.size for h in (self.floats, self.ints) if h.cuts]))

    @property
    def members(self) -> tuple[list[float], list[int]] | None:
        """All floats and all integers in it, if they can be listed."""
        floats = self.floats.values
        ints: list[int] = []
        for low, high in self.ints.pieces:
            first, last = first_above(INTEGER, low), last_below(INTEGER, high)
            if floats is None or last - first >= LONGEST_RUN:
                return None
            spend(last - first + 1)
            ints += range(first, last + 1)
        return None if floats is None else ([float(value) for value in floats], ints)

    # Beside plain `Ranges`, as a part of a `Tested` set.

    domain: Final = REAL
    values: Final = None

    @property
    def bounds(self) -> Ranges:
        """A plain set that includes this one."""
        ints = Ranges(REAL, self.ints.starts, self.ints.cuts)  # an integer n as [n, n + 1)
        return self.floats.union(ints)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SplitNumbers):
            return NotImplemented
        return self.floats == other.floats and self.ints == other.ints

    def __hash__(self) -> int:
        return hash((self.floats, self.ints))

    def __repr__(self) -> str:
        return f"SplitNumbers({self.floats!r}, {self.ints!r})"


# Relations between plain sets of numbers of either kind. (`Ranges` knows only its own.)

Numbers = Ranges | SplitNumbers


def union(a: Numbers, b: Numbers) -> Numbers:
    return b.union(a) if isinstance(a, Ranges) else a.union(b)


def intersection(a: Numbers, b: Numbers) -> Numbers:
    return b.intersection(a) if isinstance(a, Ranges) else a.intersection(b)


def intersects(a: Numbers, b: Numbers) -> bool:
    return b.intersects(a) if isinstance(a, Ranges) else a.intersects(b)


def includes(a: Numbers, b: Numbers) -> bool:
    if isinstance(a, Ranges):
        if isinstance(b, Ranges):
            return a.includes(b)
        a = SplitNumbers(a, integers_of(a))
    return a.includes(b)


def merge(a: Numbers, b: Numbers) -> Numbers | None:
    return b.merge(a) if isinstance(a, Ranges) else a.merge(b)


def numbers(floats: Ranges, ints: Ranges) -> Ranges | SplitNumbers:
    """The set with these floats and these integers, in its one form."""
    return floats if integers_of(floats) == ints else SplitNumbers(floats, ints)


def halves(numbers: Ranges | SplitNumbers) -> tuple[Ranges, Ranges]:
    if isinstance(numbers, SplitNumbers):
        return numbers.floats, numbers.ints
    return numbers, integers_of(numbers)


def integers_of(reals: Ranges) -> Ranges:
    """The 64-bit integers in a set of reals."""
    return Ranges.of_cuts(INTEGER, reals.starts, [_integer_cut(cut) for cut in reals.cuts])


def _integer_cut(cut: Cut) -> Cut:
    value, side = cut
    if type(value) is int and INT_MIN <= value < INT_MAX:  # by far the most frequent
        return (value + 1 if side else value, 0)
    if value == inf or value > INT_MAX:
        return (INT_MAX, 1)
    if value == -inf or value < INT_MIN:
        return (INT_MIN, 0)
    return (floor(value) + 1, 0) if side else (ceil(value), 0)


ONLY_INTS = SplitNumbers(Ranges(REAL, False, ()), Ranges(INTEGER, True, ()))
ONLY_FLOATS = SplitNumbers(Ranges(REAL, True, ()), Ranges(INTEGER, False, ()))
