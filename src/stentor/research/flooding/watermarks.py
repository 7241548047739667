"""Clean-up by watermarks (03/A17 as printed): progress on trees, none on cycles.

Each broker keeps, for itself and for each neighbor, a time before which nothing new will come from
there. To each neighbor it passes on the lowest of the others. On a tree these watermarks rise, and
ids below all of them are forgotten. On a cycle each depends on itself in the end, so none ever
rises above the initial value: use `Rounds` there. It is here for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import ClassVar, Final

from stentor.model.identity import NotificationId
from stentor.research.flooding.history import Clock, History, StampedIds
from stentor.routing.protocol import Arm, BrokerId, Kind, Message, Outputs, Send

#: After how much time a broker that publishes nothing raises its own watermark.
IDLE: Final = 60.0

_TIMER: Final = "watermarks"


class Watermark(Message, frozen=True):
    """Nothing with a lower stamp comes over this link any more."""

    kind: ClassVar[Kind] = "control"

    stamp: float


class Watermarks(History):
    """Keeps ids until no neighbor can send an older notification.

    >>> now = 5.0
    >>> history = Watermarks(lambda: now)
    >>> history.link_up("east")
    >>> history.admit(NotificationId("p", 0, 0), 4.0), history.receive("east", Watermark(4.5))
    (True, True)
    >>> history.expired("watermarks")
    >>> _ = history.due()
    >>> len(history)
    0
    """

    def __init__(self, clock: Clock, *, idle: float = IDLE) -> None:
        self._clock = clock
        self._idle = idle
        self._ids = StampedIds()
        self._own = -math.inf
        self._heard: dict[BrokerId, float] = {}
        self._told: dict[BrokerId, float] = {}
        self._armed = False
        self._news = False

    def stamp(self) -> float:
        self._own = max(self._clock(), math.nextafter(self._own, math.inf))
        return self._own

    def admit(self, id: NotificationId, stamp: float) -> bool:
        self._news = True
        if stamp < self._ids.floor:
            self.refused += 1
        return self._ids.add(id, stamp)

    def link_up(self, neighbor: BrokerId) -> None:
        self._heard[neighbor] = self._told[neighbor] = -math.inf

    def link_down(self, neighbor: BrokerId) -> None:
        del self._heard[neighbor], self._told[neighbor]

    def receive(self, sender: BrokerId, message: Message) -> bool:
        if not isinstance(message, Watermark):
            return False
        self._heard[sender] = message.stamp
        return True

    def expired(self, timer: Hashable) -> None:
        self._armed = False
        self._own = max(self._own, self._clock())

    def due(self) -> Outputs:
        outputs: Outputs = []
        for neighbor, told in self._told.items():
            lowest = min((self._own, *(t for n, t in self._heard.items() if n != neighbor)))
            if lowest > told:
                self._told[neighbor] = lowest
                outputs.append(Send(neighbor, Watermark(lowest)))
        self._ids.forget_below(min((self._own, *self._heard.values())))
        if self._news and not self._armed:
            self._news, self._armed = False, True
            outputs.append(Arm(_TIMER, self._idle))
        return outputs

    def __len__(self) -> int:
        return len(self._ids)
