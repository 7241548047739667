"""A set of offsets of one stream: all up to a floor, and intervals above it.

What is dealt with in order is a floor that rises. What is dealt with out of order lies above it in
intervals, and joins the floor when the gap between is filled. So the set is small, whatever its
size: it has as many intervals as there are gaps, and those are what nobody has dealt with yet.

The set is one flat list of bounds

    [end, start, end, start, end, ...]          ends exclusive, everything ascending

in which a bisection tells by parity whether an offset lies in the set or in a gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from stentor.errors import InvalidValue


class Offsets:
    """Offsets that have been dealt with.

    >>> done = Offsets(floor=3)
    >>> done.add(6), done.add(5), 4 in done, done.floor, done.intervals
    (None, None, False, 3, 1)
    >>> done.add(4)
    >>> done.floor, done.intervals
    (6, 0)
    """

    __slots__ = ("_bounds",)

    def __init__(self, floor: int = -1) -> None:
        """With a floor of -1 nothing is known, not even that nothing is in it."""
        self._bounds = [floor + 1]

    @property
    def floor(self) -> int:
        """Everything up to here is in the set."""
        return self._bounds[0] - 1

    @property
    def top(self) -> int:
        """The highest offset in the set."""
        return self._bounds[-1] - 1

    @property
    def intervals(self) -> int:
        """How many there are above the floor."""
        return len(self._bounds) // 2

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self._bounds, offset) % 2 == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        starts, ends = self._bounds[1::2], self._bounds[2::2]
        above = [f"{a}..{b - 1}" for a, b in zip(starts, ends, strict=True)]
        return f"<Offsets {', '.join([f'..{self.floor}', *above])}>"

    def copy(self) -> Offsets:
        """An independent set of the same offsets."""
        other = Offsets()
        other._bounds = list(self._bounds)
        return other

    def add(self, offset: int) -> None:
        if self._bounds[-1] == offset:  # next in order: by far the most frequent
            self._bounds[-1] = offset + 1
        else:
            self.add_range(offset, offset)

    def add_all(self, offsets: Sequence[int]) -> None:
        """Many, which mostly follow one another.

        >>> done = Offsets(floor=3)
        >>> done.add_all([4, 5, 8, 9, 7])
        >>> done
        <Offsets ..5, 7..9>
        """
        first = last = offsets[0] if offsets else 0
        for offset in offsets[1:]:
            if offset != last + 1:
                self.add_range(first, last)
                first = offset
            last = offset
        if offsets:
            self.add_range(first, last)

    def add_range(self, first: int, last: int) -> None:
        """All from the first to the last; nothing if the last lies before the first."""
        if last < first:
            return
        bounds, end = self._bounds, last + 1
        i, j = bisect_left(bounds, first), bisect_right(bounds, end)
        bounds[i:j] = [first][: i % 2] + [end][: j % 2]

    def discard(self, offset: int) -> None:
        """Take it out again."""
        bounds, end = self._bounds, offset + 1
        i, j = bisect_left(bounds, offset), bisect_right(bounds, end)
        bounds[i:j] = [offset][i % 2 :] + [end][j % 2 :]

    def cut(self, top: int) -> None:
        """Take out everything above this offset."""
        i = bisect_left(self._bounds, top + 1)
        self._bounds[i:] = [top + 1][i % 2 :]

    def without(self, floor: int) -> Offsets:
        """Those that lie above this floor, as if nothing were known below it."""
        rest = Offsets()
        if floor < 0:
            rest._bounds = list(self._bounds)
        else:
            i = bisect_right(self._bounds, floor + 1)
            rest._bounds += [floor + 1][i % 2 :] + self._bounds[i:]
        return rest

    def update(self, other: Offsets) -> None:
        """Add all that are in another set."""
        self.add_range(0, other.floor)
        for start, end in zip(other._bounds[1::2], other._bounds[2::2], strict=True):
            self.add_range(start, end - 1)

    # -- plain data

    def to_data(self) -> list[int]:
        """What lies above the floor, as lengths of gaps and intervals in turn: small numbers."""
        return [b - a for a, b in pairwise(self._bounds)]

    @classmethod
    def from_data(cls, floor: int, lengths: list[int]) -> Offsets:
        """What `to_data` wrote; `InvalidValue` for other data."""
        if len(lengths) % 2 or any(length <= 0 for length in lengths):
            raise InvalidValue("these are not the lengths of gaps and intervals in turn")
        self = cls(floor)
        self._bounds = list(accumulate(lengths, initial=floor + 1))
        return self
