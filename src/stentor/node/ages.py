"""About when offsets of streams were published, as far as a broker has heard.

A broker hears how far streams have come, and notes the time of that once in a while. Of each stream
some notes are kept: if there are too many, every second one of them goes. So what was published
lately is known to the second, and what is old, to within a share of its age.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from operator import itemgetter
from typing import Final

from stentor.protocol.messages import StreamId

#: Notes that are kept of a stream, and streams of which notes are kept.
NOTES: Final = 256
STREAMS: Final = 10_000


class Ages:
    """Notes of how far streams were at some times.

    >>> ages = Ages()
    >>> ages.note({"b1#0": 7}, 100.0)
    >>> ages.note({"b1#0": 9}, 101.0)
    >>> ages.at("b1#0", 7), ages.at("b1#0", 8), ages.at("b1#0", 10)
    (100.0, 101.0, None)
    """

    def __init__(self) -> None:
        self._notes: dict[StreamId, list[tuple[int, float]]] = {}

    def note(self, heads: Mapping[StreamId, int], time: float) -> None:
        """Streams are there at this time."""
        for stream, head in heads.items():
            notes = self._notes.setdefault(stream, [])
            if not notes or head > notes[-1][0]:
                notes.append((head, time))
                if len(notes) > NOTES:
                    del notes[1:-1:2]
        while len(self._notes) > STREAMS:
            del self._notes[next(iter(self._notes))]

    def at(self, stream: StreamId, offset: int) -> float | None:
        """When it was first heard that the stream had come so far; None if that is not so.

        What was published before the first note is as old as that, at least.
        """
        notes = self._notes.get(stream, [])
        place = bisect_left(notes, offset, key=itemgetter(0))
        return notes[place][1] if place < len(notes) else None
