"""Events whose turn has not come, in the order in which it will."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from operator import itemgetter
from typing import Any, Final, TypeAlias

from stentor.composite.events import Occurrence
from stentor.composite.intervals import END_OF_TIME
from stentor.composite.pattern_runs import Work

#: What an event is sorted by, a number that no other has, the event, and its work.
Entry: TypeAlias = tuple[Any, ...]
#: The last two of these; many entries are read one by one, so that few new objects stay.
event_and_work: Final = itemgetter(5, 6)


class EventHeap:
    """Events with what they are to patterns, as a heap. A sorted list is one as well, and quicker
    to take the beginning of.
    """

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._is_sorted = True
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first(self) -> int:
        """When the first of them is over; the end of time if there is none."""
        return self._heap[0][0] if self._heap else END_OF_TIME

    def add(self, events: Iterable[Occurrence], works: Iterable[Work], since: int) -> int:
        """Take those in that are not over before that time; how many these are.

        Few are put into the heap one by one; many are sorted into it, which is quicker.
        """
        heap, numbers = self._heap, self._numbers
        new = [
            (event[0], event[1], event[2], event[3], next(numbers), event, work)
            for event, work in zip(events, works, strict=True)
            if event[0] >= since
        ]
        if 8 * len(new) >= len(heap):
            heap += new
            heap.sort()
            self._is_sorted = True
        else:
            for each in new:
                heappush(heap, each)
            self._is_sorted = False
        return len(new)

    def take(self, before: int, most: int, *, together: bool) -> list[Entry]:
        """Those that are over before that time, in their order, or as many of them as this; more,
        if what has ended at one moment is to stay `together`.
        """
        heap, together = self._heap, together and most > 0
        if self._is_sorted:
            place = bisect_left(heap, (before,))
            if place > most:
                place = bisect_left(heap, (heap[most - 1][0] + 1,)) if together else most
            taken = heap[:place]
            del heap[:place]
        else:
            taken = []
            while heap and heap[0][0] < before:
                if len(taken) >= most and not (together and heap[0][0] == taken[-1][0]):
                    break
                taken.append(heappop(heap))
        return taken

    def all(self) -> list[Entry]:
        """All of them, in their order."""
        return sorted(self._heap)
