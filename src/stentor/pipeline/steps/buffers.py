"""The buffer of one group of events that are put into order. See `ordering` for what it is for.

Plain lists of tuples: there is one buffer for each producer, most are small, and each is loaded,
changed and dumped in every micro-batch. Nothing here knows of Spark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

#: The time of an event that has none: before all others.
NO_TIME: Final = -(2**62)


class Mark(NamedTuple):
    """Where in the order an event stands."""

    effective: int
    producer: str
    epoch: int
    sequence: int


#: An event: its time in microseconds, producer, epoch, sequence number, and all of it as text.
Event: TypeAlias = tuple[int, str, int, int, str]
#: An event in its place: what makes a `Mark`, its own time, and its text. These sort by themselves.
Placed: TypeAlias = tuple[int, str, int, int, int, str]

_own_order: Final = itemgetter(1, 2, 3)
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(tuple[Mark | None, list[Placed]])


def arrange(events: Iterable[Event]) -> list[Placed]:
    """The events in their order, each with its effective time.

    >>> [placed[0] for placed in arrange([(5, "a", 0, 1, ""), (9, "a", 0, 0, "")])]
    [9, 9]
    """
    latest: dict[str, int] = {}
    found: list[Placed] = []
    for micros, producer, epoch, sequence, event in sorted(events, key=_own_order):
        effective = max(micros, latest.get(producer, NO_TIME))
        latest[producer] = effective
        found.append((effective, producer, epoch, sequence, micros, event))
    found.sort()
    return found


class Buffer:
    """Events that wait, in order, and the mark of the last that has left."""

    def __init__(self, mark: Mark | None = None, waiting: list[Placed] | None = None) -> None:
        self._mark = mark
        self._waiting: list[Placed] = [] if waiting is None else waiting

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first_time(self) -> int | None:
        """The effective time of the first that waits."""
        return self._waiting[0][0] if self._waiting else None

    def take(self, arrived: Iterable[Event]) -> list[str]:
        """Add events; those that are late are not added, but returned."""
        late: list[str] = []
        events = [(each[4], *each[1:4], each[5]) for each in self._waiting]
        for micros, producer, epoch, sequence, event in arrived:
            mark = self._mark
            if mark is not None and producer == mark.producer:
                # Of the producer that the mark is from, its own order decides.
                if (epoch, sequence) < mark[2:]:
                    late.append(event)
                    continue
                micros = max(micros, mark.effective)
            events.append((micros, producer, epoch, sequence, event))
        waiting = arrange(events)
        behind = 0 if self._mark is None else bisect_left(waiting, self._mark)
        late += [placed[5] for placed in waiting[:behind]]
        self._waiting = waiting[behind:]
        return late

    def release(self, watermark: int, limit: int) -> list[str]:
        """Let go those that the watermark has passed, and those for which there is no room."""
        passed = bisect_left(self._waiting, (watermark,))
        count = max(passed, len(self._waiting) - limit)
        released, self._waiting = self._waiting[:count], self._waiting[count:]
        if released:
            self._mark = Mark(*released[-1][:4])
        return [placed[5] for placed in released]

    def dump(self) -> bytes:
        """The buffer as bytes, for the state of a query."""
        return _encoder.encode((self._mark, self._waiting))

    @classmethod
    def load(cls, data: bytes) -> Buffer:
        """What `dump` wrote."""
        return cls(*_decoder.decode(data))
