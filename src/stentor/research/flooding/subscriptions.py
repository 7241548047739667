"""Subscription flooding: every subscription goes to every broker (07/4.2).

The overlay is a complete graph. Each broker tells all others what its clients want, so the broker
where a notification is published matches it once and sends it, in one hop, to exactly the brokers
that want it; there it is matched again, against the clients' own subscriptions. Notifications take
the shortest way and nobody handles one in vain, but each change of a subscription costs a message
to every other broker. That suits few brokers and interests that stay.

Under the strategy `simple` each subscription is announced, under `identity` each distinct filter
once. What a neighbor announced is dropped when its link goes down; when it comes up, both ends
announce all they have.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Literal, TypeAlias, get_args

from stentor.errors import UnknownStrategy
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.research.flooding.access import AccessPoint
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    FilterId,
    Kind,
    Message,
    Outputs,
    Send,
)
from stentor.routing.table import Neighbor

Strategy: TypeAlias = Literal["simple", "identity"]


class Interest(Message, frozen=True):
    """What the sender's clients want in addition, and what no longer, under their keys."""

    kind: ClassVar[Kind] = "subscription"

    added: tuple[tuple[Hashable, Filter], ...] = ()
    removed: tuple[Hashable, ...] = ()


class Direct(Message, frozen=True):
    """A notification for clients of the receiver."""

    kind: ClassVar[Kind] = "notification"

    notification: Notification


class SubscriptionFloodingRouter(AccessPoint):
    """Tells everybody what its clients want, and sends notifications straight to who wants them.

    >>> from stentor.model import NotificationId
    >>> router = SubscriptionFloodingRouter("a")
    >>> for neighbor in "bc":
    ...     _ = router.link_up(neighbor)
    >>> _ = router.receive("c", Interest(added=((1, Filter("x > 1")),)))
    >>> quote = Notification({"x": 2}, id=NotificationId("p", 0, 0))
    >>> [output.to for output in router.publish("p", quote)]
    ['c']
    """

    def __init__(self, id: BrokerId, strategy: Strategy = "simple") -> None:
        if strategy not in get_args(Strategy):
            raise UnknownStrategy(
                f"subscription flooding has no strategy {strategy!r}; "
                f"choose one of {', '.join(get_args(Strategy))}"
            )
        super().__init__(id)
        self._strategy = strategy
        self._announced: dict[Hashable, Filter] = {}
        #: How many subscriptions stand behind each announcement.
        self._behind: dict[Hashable, int] = {}

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if not self._hold(id, filter):
            return []
        key = self._key(id, filter)
        self._behind[key] = self._behind.get(key, 0) + 1
        if self._behind[key] > 1:
            return []
        self._announced[key] = filter
        return self._tell_all(Interest(added=((key, filter),)))

    def unsubscribe(self, id: FilterId) -> Outputs:
        filter = self._release(id)
        if filter is None:
            return []
        key = self._key(id, filter)
        self._behind[key] -= 1
        if self._behind[key]:
            return []
        del self._behind[key], self._announced[key]
        return self._tell_all(Interest(removed=(key,)))

    def _key(self, id: FilterId, filter: Filter) -> Hashable:
        return id if self._strategy == "simple" else filter

    def _tell_all(self, message: Interest) -> Outputs:
        return [Send(neighbor, message) for neighbor in self._neighbors]

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        brokers, deliveries = self._match(notification)
        message = Direct(notification)
        return [Send(to, message) for to in self._neighbors if to in brokers] + deliveries

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        match message:
            case Direct(notification):
                return self._match(notification)[1]
            case Interest(added, removed):
                source = Neighbor(sender)
                for key in removed:
                    if key in self._table.at(source):
                        self._table.remove(source, key)
                for key, filter in added:
                    if key not in self._table.at(source):
                        self._table.add(source, key, filter)
                return []
        raise self._not_for_me(sender, message)

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._neighbors[neighbor] = None
        if not self._announced:
            return []
        return [Send(neighbor, Interest(added=tuple(self._announced.items())))]

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._neighbors.pop(neighbor, None)
        gone = Neighbor(neighbor)
        for key in list(self._table.at(gone)):
            self._table.remove(gone, key)
        return []
