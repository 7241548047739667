"""A virtual journal: what a simulated disk has written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from stentor.node.agenda import Append
from stentor.node.log import LastValue
from stentor.node.schedule import Delayed, Scheduled
from stentor.protocol.messages import StreamId


class MemoryLog:
    """A journal in memory.

    >>> log = MemoryLog("b1#")
    >>> log.head, log.low, log.offset_at(0.0)
    (0, 1, 1)
    """

    def __init__(self, stream: StreamId, *, at_once: int = 1_000) -> None:
        """No read returns more than `at_once` entries."""
        self._stream = stream
        self._at_once = at_once
        self.entries: list[tuple[bytes, float]] = []
        #: The newest epoch and sequence number of each producer.
        self.published: dict[str, tuple[int, int]] = {}
        self.kept: dict[str, LastValue] = {}
        self.schedule: dict[str, Delayed] = {}
        self._low = 1

    @property
    def stream(self) -> StreamId:
        return self._stream

    @property
    def head(self) -> int:
        return len(self.entries)

    @property
    def low(self) -> int:
        return self._low

    def read(self, first: int, limit: int) -> list[bytes]:
        assert first >= self._low, "what retention has taken must not be asked for"
        last = first - 1 + min(limit, self._at_once)
        return [data for data, _ in self.entries[first - 1 : last]]

    def offset_at(self, since: float) -> int:
        return max(bisect_left(self.entries, since, key=lambda entry: entry[1]) + 1, self._low)

    def last_values(self, after: str, limit: int) -> list[LastValue]:
        keys = sorted(key for key in self.kept if key > after)
        return [self.kept[key] for key in keys[: min(limit, self._at_once)]]

    def delayed(self, ids: Sequence[str]) -> dict[str, bytes]:
        return {id: self.schedule[id].data for id in ids if id in self.schedule}

    def scheduled(self) -> list[Scheduled]:
        """What is kept until it is due."""
        entries = sorted(self.schedule.values(), key=lambda each: each.due)
        return [each.entry for each in entries]

    def write(self, append: Append, time: float) -> int:
        """The offset of the first of what is written."""
        first = self.head + 1
        self.entries += [(data, time) for data in append.items]
        self.published |= append.marks
        self.schedule |= {each.id: each for each in append.schedule}
        for id in append.unschedule:
            del self.schedule[id]  # nothing is delivered twice
        for key, i in append.retain:
            self.kept[key] = LastValue(key, time, append.items[i])
        return first

    def trim(self, low: int) -> None:
        """Retention: everything below is gone."""
        self._low = max(self._low, min(low, self.head + 1))
