"""The schedule: publications that are on disk and not yet due.

The notifications themselves are in the broker's database. Here is when each is due, in which order,
and how much room they take, so that nobody fills it up for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, NamedTuple

from stentor.node.allowance import Shares

#: How many, and how many bytes of them, are kept unless it is set otherwise.
MOST: Final = 100_000
#: When something is due for which another thing has to happen first: the last second of a calendar.
NEVER: Final = 253_402_300_799.0
MOST_BYTES: Final = 2**30


class Delayed(NamedTuple):
    """A publication that is due later."""

    #: Its id, as a text.
    id: str
    #: Seconds since 1970.
    due: float
    #: The grant of its publisher, and the key under which it will be the last value.
    owner: str | None
    key: str | None
    data: bytes

    @property
    def entry(self) -> Scheduled:
        """Its place on the schedule."""
        return Scheduled(*self[:4], len(self.data))


class Scheduled(NamedTuple):
    """The same without its content: how many bytes it has."""

    id: str
    due: float
    owner: str | None
    key: str | None
    size: int


class Schedule:
    """Publications in the order in which they are due.

    >>> schedule = Schedule()
    >>> schedule.restore([Scheduled("ann:7:0", 20.0, None, None, 5),
    ...                   Scheduled("ann:7:1", 10.0, None, None, 5)])
    >>> schedule.next, [each.id for each in schedule.take(15.0, 10)]
    (10.0, ['ann:7:1'])
    """

    def __init__(
        self, most: int = MOST, most_bytes: int = MOST_BYTES, owners: Iterable[str] = ()
    ) -> None:
        """The grants among `owners` share the room."""
        self.resize(most, most_bytes, owners)
        self._entries: dict[str, Scheduled] = {}
        self._counts: Counter[str | None] = Counter()
        self._sizes: Counter[str | None] = Counter()
        #: Those that are on disk, each with its newest place on the heap; older ones mean nothing.
        self._stored: dict[str, int] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._order = count()
        #: Those that leave the schedule and are not published.
        self.dropped: set[str] = set()

    def resize(self, most: int, most_bytes: int, owners: Iterable[str]) -> None:
        """From now on these share so much room. What is there stays."""
        owners = tuple(owners)
        self._most = most, most_bytes
        self._shares = Shares(most, owners), Shares(most_bytes, owners)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        return self._sizes.total()

    @property
    def next(self) -> float:
        """When something may be due; infinity if nothing is on disk."""
        return self._heap[0][0] if self._heap else inf

    def problem(self, owner: str | None, size: int) -> str | None:
        """Why there is no room for one more of so many bytes; None if there is."""
        (most, most_bytes), (counted, sized) = self._most, self._shares
        if not counted.has_room(owner, self._counts):
            return f"{len(self)} publications wait to be delivered later, of {most} at most"
        if not sized.has_room(owner, self._sizes + Counter({owner: size - 1})):
            return (
                f"{self.bytes} bytes of publications wait to be delivered later, "
                f"of {most_bytes} at most"
            )
        return None

    def put(self, delayed: Delayed) -> None:
        """One is on its way to the disk."""
        self._add(delayed.entry)

    def _add(self, entry: Scheduled) -> None:
        self._entries[entry.id] = entry
        self._counts[entry.owner] += 1
        self._sizes[entry.owner] += entry.size

    def arm(self, ids: Iterable[str]) -> None:
        """These are on disk; those that were dropped meanwhile stay so."""
        for id in ids:
            entry = self._entries.get(id)
            if entry is not None:
                place = self._stored[id] = next(self._order)
                if entry.due < NEVER:
                    heappush(self._heap, (entry.due, place, id))

    def let_go(self, id: str, due: float, *, dropped: bool = False) -> None:
        """One that was never due is now, or as soon as it is on disk; or it is `dropped` then."""
        entry = self._entries.get(id)
        if entry is not None:
            self._entries[id] = entry._replace(due=due)
            if dropped:
                self.dropped.add(id)
            if id in self._stored:
                self.arm([id])

    def restore(self, entries: Iterable[Scheduled]) -> None:
        """Take up what is on disk, and not here."""
        for entry in entries:
            if entry.id not in self._entries:
                self._add(entry)
                self.arm([entry.id])

    def get(self, id: str) -> Scheduled | None:
        """One that is on disk."""
        return self._entries.get(id) if id in self._stored else None

    def take(self, time: float, most: int) -> list[Scheduled]:
        """What is due, the earliest first. It stays on the schedule until it is dropped."""
        found: list[Scheduled] = []
        while self._heap and self._heap[0][0] <= time and len(found) < most:
            _, place, id = heappop(self._heap)
            if self._stored.get(id) == place:
                found.append(self._entries[id])
        return found

    def drop(self, id: str) -> None:
        """It is published, or will not be."""
        entry = self._entries.pop(id, None)
        self._stored.pop(id, None)
        self.dropped.discard(id)
        if entry is not None:
            self._counts[entry.owner] -= 1
            self._sizes[entry.owner] -= entry.size
