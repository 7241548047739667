"""The history of ids: what a flooding router keeps so that nothing goes round in circles (03/A15).

In a graph with cycles a notification reaches a broker on several ways. The broker keeps the ids of
those it has processed and ignores repeats (R-03.42). Ids cannot be kept for ever, and one that is
dropped too early is accepted and flooded once more. The ways to clean up differ in what they
need; all share one rule, which makes them safe by construction (03/P15): whatever might have been
forgotten is refused. `refused` counts such cases.

- `Sequences`, the default, needs nothing. Flooding brings every notification to every broker, and
  as long as links stay, in the order of its producer: whoever sent the later one over a link had
  sent the earlier one before. So the ids of a producer are one interval, and memory grows with
  the number of producers only.
- `AgeWindow` needs clocks that roughly agree.
- `Rounds` needs the number of brokers, and loses nothing, however slow the links are.
- `Watermarks` is the scheme of the literature. It makes progress on trees only.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Protocol, TypeAlias

from stentor.model.identity import NotificationId
from stentor.model.seen import SeenIds
from stentor.routing.protocol import BrokerId, Message, Outputs

#: Tells the time, in the unit in which timers run. A host passes its clock; the core has none.
Clock: TypeAlias = Callable[[], float]


class History(Protocol):
    """Which notifications a broker has processed.

    The broker where a notification is published stamps it, and the stamp travels along. After each
    step, the router asks what is `due`.
    """

    #: Notifications that came too late to tell whether they were processed before.
    refused: int = 0

    @abstractmethod
    def admit(self, id: NotificationId, stamp: float) -> bool:
        """Whether the notification is new and to be processed; from now on it is not new."""

    def stamp(self) -> float:
        """The stamp of a notification that is published here now."""
        return 0.0

    def link_up(self, neighbor: BrokerId) -> None:
        """There is a new link, on which nothing has been said."""
        return

    def link_down(self, neighbor: BrokerId) -> None:
        """It is gone."""
        return

    def receive(self, sender: BrokerId, message: Message) -> bool:
        """A message that is no notification; whether it was one for the history."""
        return False

    def expired(self, timer: Hashable) -> None:
        """A timer that was due has run out."""
        return

    def due(self) -> Outputs:
        """What is to be sent and armed, after a step of the router."""
        return []

    @abstractmethod
    def __len__(self) -> int:
        """How much is kept: ids, or producers where these are enough."""


class Sequences(History):
    """Keeps what was processed of each producer, as intervals of sequence numbers.

    >>> history = Sequences()
    >>> history.admit(NotificationId("p", 0, 0), 0.0), history.admit(NotificationId("p", 0, 0), 0.0)
    (True, False)
    """

    def __init__(self, seen: SeenIds | None = None) -> None:
        self._seen = SeenIds() if seen is None else seen

    def admit(self, id: NotificationId, stamp: float) -> bool:
        if self._seen.add(id):
            return True
        self.refused += self._seen.too_old(id)
        return False

    def __len__(self) -> int:
        return self._seen.producers


class StampedIds:
    """Ids with their stamps, down to a floor: below it, nothing is kept and nothing is new.

    >>> ids = StampedIds()
    >>> ids.add(NotificationId("p", 0, 0), 1.0), ids.add(NotificationId("p", 0, 0), 1.0)
    (True, False)
    >>> ids.forget_below(2.0)
    >>> ids.add(NotificationId("p", 0, 0), 1.0), len(ids)
    (False, 0)
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._ids: set[NotificationId] = set()
        self._oldest_first: list[tuple[float, NotificationId]] = []
        self.floor = -math.inf

    def add(self, id: NotificationId, stamp: float) -> bool:
        """Whether the id is new. When there are too many, the floor rises over the oldest."""
        if stamp < self.floor or id in self._ids:
            return False
        self._ids.add(id)
        heappush(self._oldest_first, (stamp, id))
        if self._limit is not None and len(self._ids) > self._limit:
            self.forget_below(math.nextafter(self._oldest_first[0][0], math.inf))
        return True

    def forget_below(self, stamp: float) -> None:
        self.floor = max(self.floor, stamp)
        while self._oldest_first and self._oldest_first[0][0] < self.floor:
            self._ids.remove(heappop(self._oldest_first)[1])

    def __len__(self) -> int:
        return len(self._ids)
