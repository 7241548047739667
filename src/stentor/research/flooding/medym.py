"""Match early, multicast dynamically: subscription flooding with summaries (07/4.2, MEDYM).

Each broker announces one filter that covers all subscriptions of its clients, and announces it anew
only when that filter changes. The broker where a notification is published matches it once, against
all summaries, and so knows the brokers it goes to. They travel with it: each broker on the way
delivers if it is on the list, and splits the rest by the next hop on a shortest path, without
matching anything again. A summary may promise too much; the last broker matches exactly.

In a complete graph each hop is the last one. Any other overlay is described to every broker by its
links, and announcements are then flooded. An announcement has a version, and a broker passes on
only what is newer than what it knows, so announcements do not go round in cycles either (07/T-06).
A broker that restarted hears of its former self over its first link and goes on above that version.
The description is static: over a link that is down nothing is sent, and `undeliverable` counts what
should have been.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from stentor.errors import InvalidTopology
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.research.flooding.access import AccessPoint
from stentor.research.flooding.summary import MAX_CONJUNCTS, Summary
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


class Announcement(Message, frozen=True):
    """What clients of a broker want, in summary."""

    kind: ClassVar[Kind] = "subscription"

    origin: BrokerId
    version: int
    summary: Filter


class Addressed(Message, frozen=True):
    """A notification and the brokers that it is to reach by way of the receiver."""

    kind: ClassVar[Kind] = "notification"

    notification: Notification
    destinations: tuple[BrokerId, ...]


class MatchEarlyRouter(AccessPoint):
    """Matches a notification where it is published and sends it to a list of brokers.

    >>> from stentor.model import NotificationId
    >>> router = MatchEarlyRouter("a", links=[("a", "b"), ("b", "c")])
    >>> _ = router.link_up("b")
    >>> _ = router.receive("b", Announcement("c", 1, Filter("x > 1")))
    >>> quote = Notification({"x": 2}, id=NotificationId("p", 0, 0))
    >>> [(output.to, output.message.destinations) for output in router.publish("p", quote)]
    [('b', ('c',))]
    """

    def __init__(
        self,
        id: BrokerId,
        links: Iterable[tuple[BrokerId, BrokerId]] | None = None,
        *,
        max_conjuncts: int = MAX_CONJUNCTS,
    ) -> None:
        """Without links, the overlay is a complete graph."""
        super().__init__(id)
        self._next_hop = None if links is None else next_hops(id, links)
        self._own = Summary(max_conjuncts)
        self._version = 0
        self._known: dict[BrokerId, Announcement] = {}
        #: Notifications, times destinations, that found no link on their way.
        self.undeliverable = 0

    # -- interest

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        changed = self._hold(id, filter) and self._own.add(filter)
        return self._announce() if changed else []

    def unsubscribe(self, id: FilterId) -> Outputs:
        filter = self._release(id)
        return self._announce() if filter is not None and self._own.remove(filter) else []

    def _announce(self) -> Outputs:
        self._version += 1
        return [Send(neighbor, self._announcement()) for neighbor in self._neighbors]

    def _announcement(self) -> Announcement:
        return Announcement(self._id, self._version, self._own.filter)

    def _learn(self, news: Announcement, sender: BrokerId) -> Outputs:
        if news.origin == self._id:
            if news.version < self._version or news == self._announcement():
                return []
            self._version = news.version  # of a former life
            return self._announce()
        known = self._known.get(news.origin)
        if known is not None and news.version <= known.version:
            return []
        self._forget(news.origin)
        self._known[news.origin] = news
        if not news.summary.is_never:
            self._table.add(Neighbor(news.origin), None, news.summary)
        if self._next_hop is None:
            return []
        return [Send(neighbor, news) for neighbor in self._neighbors if neighbor != sender]

    def _forget(self, origin: BrokerId) -> None:
        known = self._known.pop(origin, None)
        if known is not None and not known.summary.is_never:
            self._table.remove(Neighbor(origin), None)

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._neighbors[neighbor] = None
        told = list(self._known.values()) if self._next_hop is not None else []
        if self._version:
            told.append(self._announcement())
        return [Send(neighbor, announcement) for announcement in told]

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._neighbors.pop(neighbor, None)
        if self._next_hop is None:
            self._forget(neighbor)
        return []

    # -- notifications

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        brokers, deliveries = self._match(notification)
        destinations = [broker for broker in self._known if broker in brokers]
        return self._split(notification, destinations) + deliveries

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        match message:
            case Announcement():
                return self._learn(message, sender)
            case Addressed(notification, destinations):
                further = [broker for broker in destinations if broker != self._id]
                outputs = self._split(notification, further)
                if len(further) < len(destinations):
                    outputs += self._match(notification)[1]
                return outputs
        raise self._not_for_me(sender, message)

    def _split(self, notification: Notification, destinations: list[BrokerId]) -> Outputs:
        by_hop: dict[BrokerId, list[BrokerId]] = {}
        for broker in destinations:
            hop = broker if self._next_hop is None else self._next_hop.get(broker)
            if hop is not None and hop in self._neighbors:
                by_hop.setdefault(hop, []).append(broker)
            else:
                self.undeliverable += 1
        return [Send(hop, Addressed(notification, tuple(far))) for hop, far in by_hop.items()]


def next_hops(
    start: BrokerId, links: Iterable[tuple[BrokerId, BrokerId]]
) -> dict[BrokerId, BrokerId]:
    """For each other broker, the neighbor of `start` on a shortest path to it.

    Each hop shortens the way that is left, so brokers that choose differently among paths of equal
    length still never send anything in circles.

    >>> next_hops(1, [(1, 2), (2, 3), (1, 4)])
    {2: 2, 4: 4, 3: 2}
    """
    neighbors: dict[BrokerId, list[BrokerId]] = {start: []}
    for a, b in links:
        neighbors.setdefault(a, []).append(b)
        neighbors.setdefault(b, []).append(a)
    hops = {neighbor: neighbor for neighbor in neighbors[start] if neighbor != start}
    border = deque(hops)
    while border:
        broker = border.popleft()
        for further in neighbors[broker]:
            if further != start and further not in hops:
                hops[further] = hops[broker]
                border.append(further)
    if len(hops) + 1 < len(neighbors):
        lost = [broker for broker in neighbors if broker != start and broker not in hops]
        raise InvalidTopology(
            f"the links lead from {start!r} to only {len(hops)} of {len(neighbors) - 1} other "
            f"brokers; {lost[0]!r} cannot be reached"
        )
    return hops
