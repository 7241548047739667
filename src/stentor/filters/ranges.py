"""Sets of values of one ordered domain: the interval-set class of R-02.20.

A set is written as the sorted sequence of cuts at which membership changes, and whether it holds
at the beginning of the domain:

    x < 5                 starts=True   cuts=((5, 0),)
    x between 1 and 5     starts=False  cuts=((1, 0), (5, 1))
    x != 3                starts=True   cuts=((3, 0), (3, 1))

Every union of intervals with open, closed or missing ends has exactly one such form, the form is
closed under and, or and not, and equality, covering and overlap become exact. All comparisons,
intervals, finite sets and their complements, and string prefixes are such sets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from stentor.filters.domains import (
    BEGIN,
    BYTES,
    END,
    REAL,
    STRING,
    Cut,
    Domain,
    first_above,
    last_below,
)
from stentor.filters.effort import spend

_INF: Final = float("inf")
#: Cuts at either end that a long set shows of itself.
_SHOWN: Final = 32

Piece = tuple[Cut | None, Cut | None]


class Ranges:
    """An immutable set of values of one domain."""

    __slots__ = ("_hash", "cuts", "domain", "starts")

    def __init__(self, domain: Domain, starts: bool, cuts: tuple[Cut, ...]) -> None:
        """The cuts must be normal and strictly increasing; see `of_cuts` for any others."""
        self.domain = domain
        self.starts = starts
        self.cuts = cuts
        self._hash = 0

    @staticmethod
    def of_cuts(domain: Domain, starts: bool, cuts: Iterable[Cut]) -> Ranges:
        """From cuts in order, which may still need normalizing; two equal ones cancel out."""
        normal: list[Cut] = []
        for cut in cuts:
            place = domain.normal(cut)
            if place is BEGIN:
                starts = not starts
            elif place is END:
                continue
            elif normal and normal[-1] == place:
                normal.pop()
            else:
                normal.append(place)  # type: ignore[arg-type]
        return Ranges(domain, starts, tuple(normal))

    @staticmethod
    def points(domain: Domain, values: Iterable[Any]) -> Ranges:
        """The finite set of these values."""
        ordered = sorted(dict.fromkeys(values))
        cuts = [(v, side) for v in ordered for side in (0, 1)]
        if len(cuts) > 2 and domain is REAL and ordered[0] > -_INF and ordered[-1] < _INF:
            return Ranges(domain, False, tuple(cuts))  # a finite number has normal cuts
        return Ranges.of_cuts(domain, False, cuts)

    @staticmethod
    def between(
        domain: Domain, low: Any, high: Any, low_side: int = 0, high_side: int = 1
    ) -> Ranges:
        """From low to high; by default both belong to it."""
        if not (low, low_side) < (high, high_side):  # values need no other order than `<`
            return Ranges(domain, False, ())
        return Ranges.of_cuts(domain, False, ((low, low_side), (high, high_side)))

    @staticmethod
    def above(domain: Domain, low: Any, side: int = 0) -> Ranges:
        return Ranges.of_cuts(domain, False, ((low, side),))

    @staticmethod
    def below(domain: Domain, high: Any, side: int = 1) -> Ranges:
        return Ranges.of_cuts(domain, True, ((high, side),))

    # -- tests

    def contains(self, value: Any) -> bool:
        return (bisect_right(self.cuts, (value, 0)) & 1 == 1) is not self.starts

    @property
    def is_none(self) -> bool:
        return not self.starts and not self.cuts

    @property
    def is_all(self) -> bool:
        return self.starts and not self.cuts

    def includes(self, other: Ranges) -> bool:
        """Whether every value of `other` is in this set."""
        mine, theirs = self.cuts, other.cuts
        if len(mine) == 2 == len(theirs) and not (self.starts or other.starts):  # two intervals
            return not (theirs[0] < mine[0] or mine[1] < theirs[1])
        return other._combine(self, 0b0010).is_none

    def intersects(self, other: Ranges) -> bool:
        mine, theirs = self.cuts, other.cuts
        if len(mine) == 2 == len(theirs) and not (self.starts or other.starts):
            return mine[0] < theirs[1] and theirs[0] < mine[1]
        return not self.intersection(other).is_none

    # -- Boolean operations

    def union(self, other: Ranges) -> Ranges:
        return self._combine(other, 0b1110)

    def intersection(self, other: Ranges) -> Ranges:
        mine, theirs = self.cuts, other.cuts
        if len(mine) == 1 == len(theirs) and self.starts is not other.starts:
            low, high = (theirs[0], mine[0]) if self.starts else (mine[0], theirs[0])
            return Ranges(self.domain, False, (low, high) if low < high else ())
        return self._combine(other, 0b1000)

    def complement(self) -> Ranges:
        return Ranges(self.domain, not self.starts, self.cuts)

    def _combine(self, other: Ranges, truth: int) -> Ranges:
        """Sweep both cut lists; `truth` is the operation's truth table.

        Its bit 2b + a says what becomes of a value with membership a here and b in `other`:
        0b1000 is "and", 0b1110 is "or", 0b0010 is "here but not there".
        """
        mine, theirs = self.cuts, other.cuts
        n, m = len(mine), len(theirs)
        if n + m > 8:
            spend((n + m) // 2)
        place = 2 * other.starts + self.starts
        state = starts = bool(truth >> place & 1)
        out: list[Cut] = []
        i = j = 0
        while i < n or j < m:
            if j >= m or (i < n and mine[i] < theirs[j]):
                cut = mine[i]
                i += 1
                place ^= 1
            else:
                cut = theirs[j]
                if i < n and mine[i] == cut:
                    i += 1
                    place ^= 1
                j += 1
                place ^= 2
            if bool(truth >> place & 1) is not state:
                state = not state
                out.append(cut)
        return Ranges(self.domain, starts, tuple(out))

    def merge(self, other: Ranges) -> Ranges | None:
        """The union, if it is no more complicated than the two sets were (R-02.30).

        >>> from stentor.filters.domains import REAL
        >>> Ranges.between(REAL, 2, 4).merge(Ranges.between(REAL, 3, 5)).cuts
        ((2, 0), (5, 1))
        >>> Ranges.between(REAL, 2, 3).merge(Ranges.between(REAL, 5, 6)) is None
        True
        """
        union = self.union(other)
        return union if union.size <= max(self.size, other.size) else None

    # -- shape

    @property
    def pieces(self) -> list[Piece]:
        """The maximal intervals, each as (lower cut, upper cut); None where it has no end."""
        cuts: tuple[Cut | None, ...] = (None, *self.cuts) if self.starts else self.cuts
        if len(cuts) == 2:
            return [(cuts[0], cuts[1])]
        if len(cuts) & 1:
            cuts = (*cuts, None)
        return list(zip(cuts[::2], cuts[1::2], strict=True))

    @property
    def values(self) -> list[Any] | None:
        """The members, if each piece is a single value; else None."""
        if self.starts and self.domain.least is None:
            return None
        if len(self.cuts) > 8:
            spend(len(self.cuts))
        domain, normal = self.domain, self.domain.normal
        found: list[Any] = []
        for low, high in self.pieces:
            value = first_above(domain, low)
            if value is None or normal((value, 1)) != (END if high is None else high):
                return None
            found.append(value)
        return found

    @property
    def is_listable(self) -> bool:
        """Whether it is a set that one would write as a list: single values and short runs."""
        if self.values is not None:
            return True
        domain = self.domain
        return (domain.discrete or domain is STRING or domain is BYTES) and all(
            _is_short_run(first_above(domain, low), last_below(domain, high))
            for low, high in self.pieces
        )

    @property
    def size(self) -> int:
        """1 for what one comparison, interval, set or their complement can say; else pieces."""
        if len(self.cuts) <= 2:
            return 1
        complement = self.complement()
        if self.is_listable or complement.is_listable:
            return 1
        return min(len(self.pieces), len(complement.pieces))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranges):
            return NotImplemented
        return (
            self.cuts == other.cuts and self.starts == other.starts and self.domain is other.domain
        )

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((self.domain.name, self.starts, self.cuts))
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.domain, self.starts, self.cuts)

    def __repr__(self) -> str:
        cuts: Any = self.cuts
        if len(cuts) > 2 * _SHOWN:  # many lists are put in order by this
            cuts = f"{len(cuts)} cuts, {cuts[:_SHOWN]}…{cuts[-_SHOWN:]}"
        return f"Ranges({self.domain.name}, {self.starts}, {cuts})"


def _restore(domain: Domain, starts: bool, cuts: tuple[Cut, ...]) -> Ranges:
    """Values of an unordered type have a different order in every process: sort them again."""
    return Ranges(domain, starts, tuple(sorted(cuts)))


#: Where values can be counted, a run of at most so many is as good as a list of them.
_SHORT_RUN: Final = 16


def _is_short_run(first: Any, last: Any) -> bool:
    if isinstance(first, int) and isinstance(last, int):  # bool among them
        return last - first < _SHORT_RUN
    if isinstance(first, datetime) and isinstance(last, datetime):
        return last - first < _SHORT_RUN * timedelta.resolution
    if isinstance(first, str) and isinstance(last, str):
        return _adds_zeros(first.encode(), last.encode())
    return isinstance(first, bytes) and isinstance(last, bytes) and _adds_zeros(first, last)


def _adds_zeros(first: bytes, last: bytes) -> bool:
    """Between two texts there are no others iff the second adds nothing but zeros to the first."""
    return len(last) - len(first) < _SHORT_RUN and last.rstrip(b"\0") == first.rstrip(b"\0")
