"""In which order journals are read while a query catches up: by time.

A limit on the rows of a batch leaves something in the journals, and what is left must not be older
than what was taken. Else the watermark of an aggregate, which follows the newest event that was
read, would pass what a busy broker still has while a quiet one is already exhausted.

Brokers tell the times of their events. In one journal these need not rise: publishers have clocks
of their own, and events may wait on their way. So each entry is ranked by the latest time up to and
including it, from where reading stands, which never falls. A batch takes the lowest ranks of all
journals. Then whatever is left has a rank as high as anything that was taken, and is older than
that only by as much as it is behind an event in front of it in its own journal. In other words: an
event can be late in many journals only if it would be late in its own, read alone.

An entry that the filter leaves out, or that has no time, has the rank of the one before it. Equal
ranks are shared among the journals, so that there is progress whatever the times are. A journal
that was read to its end has no say: what will come to it is taken to be of now.

Brokers tell the sizes of what they would send, too. A limit in bytes takes as many of the lowest
ranks as fit, and one if none does.

What was learned is kept until it was read, so brokers look at each entry once. They are
asked for as many entries at a time as a batch takes from each, more or less: about one question for
each journal and batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from math import inf
from typing import Final

from stentor.pipeline.source.offsets import shares
from stentor.protocol.messages import Stretch

#: The least number of entries whose times are asked for at once.
LEAST: Final = 1_000

#: The times of a journal from one offset to another.
Ask = Callable[[str, int, int], Iterable[Stretch]]


class Timeline:
    """The ranks of a journal's entries, from a position on, as far as they are known.

    >>> line = Timeline(1)
    >>> line.add([1, 2, 4], [5.0, 3.0, 8.0], through=4)
    >>> line.below(8.0), line.through(5.0), line.through(8.0)
    (4, 4, 5)
    """

    def __init__(self, position: int) -> None:
        self.position = position
        #: The first entry of which nothing is known.
        self.known = position
        # From which entry on which rank counts; both rise.
        self._offsets = array("q", [position])
        self.ranks = array("d", [-inf])
        # Entries that the filter matches, and how many bytes those up to each have, from some
        # beginning on: there is one more of these.
        self._sized = array("q")
        self._ends = array("q", [0])

    @property
    def highest(self) -> float:
        """The rank of the last known entry; what follows has at least that."""
        return self.ranks[-1]

    def add(
        self,
        offsets: Sequence[int],
        times: Iterable[float | None],
        through: int,
        sizes: Sequence[int] = (),
    ) -> None:
        """Take in what comes behind what is known, up to and including `through`."""
        highest = self.highest
        for offset, time in zip(offsets, times, strict=True):
            if time is not None and time > highest:
                highest = time
                self._offsets.append(offset)
                self.ranks.append(time)
        if sizes:
            self._sized.extend(offsets)
            self._ends.extend(islice(accumulate(sizes, initial=self._ends[-1]), 1, None))
        self.known = max(self.known, through + 1)

    def bytes_of(self, count: int) -> int:
        """How many bytes the next `count` known entries have, without those that nobody reads."""
        return self._ends[bisect_left(self._sized, self.position + count)] - self._ends[0]

    def below(self, rank: float) -> int:
        """The first known entry with at least this rank; `known` if there is none."""
        return self._at(bisect_left(self.ranks, rank))

    def through(self, rank: float) -> int:
        """The first known entry with a higher rank; `known` if there is none."""
        return self._at(bisect_right(self.ranks, rank))

    def move(self, position: int) -> None:
        """Reading stands at this known entry now."""
        self.position = position
        behind = bisect_right(self._offsets, position) - 1
        del self._offsets[:behind], self.ranks[:behind]
        read = bisect_left(self._sized, position)
        del self._sized[:read], self._ends[:read]

    def _at(self, index: int) -> int:
        if index == len(self._offsets):
            return self.known
        return max(self._offsets[index], self.position)


class Timelines:
    """What is known of the times of several journals."""

    def __init__(self, ask: Ask, *, sized: bool = False) -> None:
        """`sized` if it is to be known how many bytes entries have, which takes memory."""
        self._ask = ask
        self._sized = sized
        self._lines: dict[str, Timeline] = {}

    def earliest(
        self, positions: Mapping[str, int], heads: Mapping[str, int], limit: int
    ) -> dict[str, int]:
        """How many entries of each journal are among the `limit` earliest of all that wait."""
        lines = self._lines = {stream: self._line(stream, at) for stream, at in positions.items()}
        size = max(LEAST, -(-limit // len(lines)))
        while True:
            # What is unknown can matter if it may be among the first of its own journal.
            unknown = [
                stream
                for stream, line in lines.items()
                if line.known <= heads[stream] and line.known - line.position < limit
            ]
            if not unknown:
                break
            lowest = min(unknown, key=lambda stream: lines[stream].highest)
            certain = lines[lowest].highest
            if sum(line.below(certain) - line.position for line in lines.values()) >= limit:
                break
            self._learn(lowest, min(heads[lowest], lines[lowest].known + size - 1))
        return _earliest(lines, limit)

    def within(
        self, positions: Mapping[str, int], heads: Mapping[str, int], limit: int, most_bytes: int
    ) -> dict[str, int]:
        """As many of the earliest as have at most so many bytes together; but at least one."""
        limit = min(limit, sum(heads[stream] + 1 - at for stream, at in positions.items()))
        tried = min(LEAST, limit)
        while True:
            found = self.earliest(positions, heads, tried)
            size = self._bytes_of(found)
            if size > most_bytes or tried == limit:
                break
            # About as many as are still missing, by what the others had; but not many more.
            more = tried * (most_bytes - size) // max(1, size) + LEAST
            tried = min(limit, tried + min(more, 4 * tried))
        if size <= most_bytes:
            return found
        low, high = 1, tried  # the most that fit, one at least
        while low < high:
            middle = (low + high + 1) // 2
            if self._bytes_of(_earliest(self._lines, middle)) <= most_bytes:
                low = middle
            else:
                high = middle - 1
        return _earliest(self._lines, low)

    def _bytes_of(self, counts: Mapping[str, int]) -> int:
        return sum(self._lines[stream].bytes_of(count) for stream, count in counts.items())

    def _line(self, stream: str, position: int) -> Timeline:
        line = self._lines.get(stream)
        if line is None or not line.position <= position < line.known:
            return Timeline(position)
        line.move(position)
        return line

    def _learn(self, stream: str, last: int) -> None:
        line = self._lines[stream]
        for stretch in self._ask(stream, line.known, last):
            # A broker of an earlier release does not say how large they are.
            sizes = stretch.sizes if self._sized else ()
            line.add(stretch.offsets, stretch.times, min(stretch.through, last), sizes)
        # What has gone since the end of the journal was told has no times.
        line.known = max(line.known, last + 1)


def _earliest(lines: Mapping[str, Timeline], limit: int) -> dict[str, int]:
    reached = (_reached(line, lines, limit) for line in lines.values())
    rank = min(each for each in reached if each is not None)
    found = {stream: line.below(rank) - line.position for stream, line in lines.items()}
    equal = {s: line.through(rank) - line.position - found[s] for s, line in lines.items()}
    more = shares(equal, limit - sum(found.values()))
    return {stream: count + more[stream] for stream, count in found.items()}


def _reached(line: Timeline, lines: Mapping[str, Timeline], limit: int) -> float | None:
    """The lowest rank in a timeline up to which all together have as many entries as the limit."""
    low, high = 0, len(line.ranks)
    while low < high:
        middle = (low + high) // 2
        rank = line.ranks[middle]
        if sum(each.through(rank) - each.position for each in lines.values()) >= limit:
            high = middle
        else:
            low = middle + 1
    return line.ranks[low] if low < len(line.ranks) else None
