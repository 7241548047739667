"""Event flooding: every notification goes to every broker (03/A2, 03/A15, 07/4.1).

A broker passes each notification that it has not seen on to all neighbors but the one it came from,
and tests it against the subscriptions of its own clients. It works on every connected graph,
cycles included. Subscriptions cause no messages and take effect at once; every notification costs
one message per link and direction at most, on a tree one less than there are brokers.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from stentor.errors import RepeatedPublication
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.research.flooding.access import AccessPoint
from stentor.research.flooding.history import History, Sequences
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    FilterId,
    Kind,
    Message,
    Outputs,
    Send,
)


class Flooded(Message, frozen=True):
    """A notification on its way to everybody, with the stamp of where it was published."""

    kind: ClassVar[Kind] = "notification"

    notification: Notification
    stamp: float


class FloodingRouter(AccessPoint):
    """Passes every notification on, once.

    >>> from stentor.model import NotificationId
    >>> router = FloodingRouter("b")
    >>> for neighbor in "ac":
    ...     _ = router.link_up(neighbor)
    >>> router.subscribe(FilterId("ann", 1), Filter("x > 1"))
    []
    >>> message = Flooded(Notification({"x": 2}, id=NotificationId("p", 0, 0)), 0.0)
    >>> [output.to for output in router.receive("a", message)]
    ['c', 'ann']
    >>> router.receive("c", message)
    []
    """

    def __init__(self, id: BrokerId, history: History | None = None) -> None:
        super().__init__(id)
        self.history = Sequences() if history is None else history
        #: Copies of notifications that came on another way before.
        self.repeats = 0

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        self._hold(id, filter)
        return []

    def unsubscribe(self, id: FilterId) -> Outputs:
        self._release(id)
        return []

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        assert notification.id is not None
        stamp = self.history.stamp()
        if not self.history.admit(notification.id, stamp):
            raise RepeatedPublication(
                f"{notification.id} was published before; give the notification a new id"
            )
        return self._flood(notification, stamp, None)

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        if not isinstance(message, Flooded):
            if not self.history.receive(sender, message):
                raise self._not_for_me(sender, message)
            return self.history.due()
        assert message.notification.id is not None
        if not self.history.admit(message.notification.id, message.stamp):
            self.repeats += 1
            return self.history.due()
        return self._flood(message.notification, message.stamp, sender)

    def _flood(self, notification: Notification, stamp: float, sender: BrokerId | None) -> Outputs:
        message = Flooded(notification, stamp)
        outputs: Outputs = [Send(to, message) for to in self._neighbors if to != sender]
        _, deliveries = self._match(notification)
        return outputs + deliveries + self.history.due()

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._neighbors[neighbor] = None
        self.history.link_up(neighbor)
        return self.history.due()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._neighbors.pop(neighbor, None)
        self.history.link_down(neighbor)
        return self.history.due()

    def expired(self, timer: Hashable) -> Outputs:
        self.history.expired(timer)
        return self.history.due()
