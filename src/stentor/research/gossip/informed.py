"""Semi-probabilistic routing: certain near a subscriber, random elsewhere (07/4.6).

A subscription travels at most phi hops, so each broker knows the interests of its surroundings. A
notification goes to every link that leads towards a matching subscription; where no link does, it
goes to a random share tau of the links, and so strays until it meets a trail. It never goes back to
where it came from, and a broker handles each notification once. With phi at least the diameter and
tau = 0 this is filter-based routing; with phi = 0 and tau = 1 it is flooding.

How subscriptions spread. The links may form cycles, so a subscription reaches a broker on several
ways, and perhaps on a long one first. It is spread as a distance vector: each broker remembers how
far away every neighbor said that the subscription is, lets the entry point to the nearest one,
and tells the others its own distance, which is one more, as long as that is at most phi. When a
shorter way shows up later, the smaller distance is announced anew, and reaches the brokers that it
brings within phi hops. An entry always points to a broker whose distance is smaller, so following
the entries leads to the subscriber.

How they vanish. When a link goes down, what was heard over it is forgotten and the others are told
the new distance, or that there is none. Around a cycle brokers may then keep up each other's belief
in a way that is gone, but with each hop the distance grows, and at phi it ends. So every wave ends,
and two waves cannot chase each other round a ring for ever, as they can without a horizon (trap 16
of sheet 03). An unsubscription need not wait for that: ids are never used again, so it is passed on
as final, to all who were told of the subscription, and leaves a tombstone behind that stops
announcements still on their way. Tombstones only save messages: a broker that has forgotten one
and believes a late announcement is told by the same neighbor, later on the same link, that it is
over. So their number can be bounded without risk.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Hashable
from typing import ClassVar, Final

from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.research.gossip.edge import Edge, deliveries
from stentor.research.gossip.memory import ID_LIMIT
from stentor.research.gossip.options import at_least, share
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    FilterId,
    Kind,
    Message,
    Outputs,
    Send,
)
from stentor.routing.table import Destination, Local, Neighbor

#: Unsubscriptions that a broker remembers.
TOMBSTONE_LIMIT: Final = 10_000


class Event(Message, frozen=True):
    """A notification on its way."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification


class Reachable(Message, frozen=True):
    """The subscription can be reached through the sender, and is so many hops from the receiver."""

    kind: ClassVar[Kind] = "subscription"
    id: FilterId
    filter: Filter
    distance: int


class Unreachable(Message, frozen=True):
    """It cannot be reached through the sender any more; `final` if it is withdrawn altogether."""

    kind: ClassVar[Kind] = "subscription"
    id: FilterId
    final: bool


class _Trail:
    """A subscription, as far as a broker knows the way to it.

    `heard` has its distance by way of each neighbor, and by way of this broker itself if it was
    made here; `told` is what the neighbors were told. `via` is where the table's entry points.
    """

    __slots__ = ("filter", "heard", "told", "via")

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.heard: dict[BrokerId, int] = {}
        self.told: dict[BrokerId, int] = {}
        self.via: BrokerId | None = None


class SemiProbabilisticRouter(Edge):
    """Routes by the subscriptions within `phi` hops, else to a share `tau` of the links.

    >>> router = SemiProbabilisticRouter("here", random.Random(7), phi=2, tau=0.5)
    >>> _ = router.link_up("a"), router.link_up("b")
    >>> [told] = router.receive("a", Reachable(FilterId("ann", 1), Filter("x > 1"), 1))
    >>> told.to, told.message.distance
    ('b', 2)
    >>> from stentor.model import NotificationId
    >>> matching = Notification({"x": 2}, id=NotificationId("bob", 0, 0))
    >>> [output.to for output in router.publish("bob", matching)]
    ['a']
    """

    def __init__(
        self,
        id: BrokerId,
        rng: random.Random,
        *,
        phi: int,
        tau: float,
        id_limit: int = ID_LIMIT,
        tombstone_limit: int = TOMBSTONE_LIMIT,
    ) -> None:
        super().__init__(id, id_limit)
        self._rng = rng
        self._phi = at_least(0, phi=phi)
        self._tau = share(tau=tau)
        self._links: dict[BrokerId, None] = {}
        self._trails: dict[FilterId, _Trail] = {}
        self._dead: OrderedDict[FilterId, None] = OrderedDict()
        self._tombstone_limit = at_least(1, tombstone_limit=tombstone_limit)

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._links)

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        return [] if self._holds(id) else self._hear(id, filter, self._id, 0)

    def unsubscribe(self, id: FilterId) -> Outputs:
        return self._bury(id) if self._holds(id) else []

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        self._published(notification)
        return self._route(None, notification)

    # -- other brokers

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        match message:
            case Event(notification):
                return self._route(sender, notification) if self._arrived(notification) else []
            case Reachable(id, filter, distance):
                return [] if id in self._dead else self._hear(id, filter, sender, distance)
            case Unreachable(id, final):
                if final:
                    return self._bury(id)
                return self._lose(id, sender)
        raise self._foreign(message)

    def expired(self, timer: Hashable) -> Outputs:
        return []

    # -- notifications

    def _route(self, sender: BrokerId | None, notification: Notification) -> Outputs:
        targets = self._table.targets(notification)
        others = [link for link in self._links if link != sender]
        chosen = [link for link in others if Neighbor(link) in targets]
        if not chosen:
            chosen = [link for link in others if self._rng.random() < self._tau]
        event = Event(notification)
        return deliveries(notification, targets) + [Send(link, event) for link in chosen]

    # -- subscriptions

    def _hear(self, id: FilterId, filter: Filter, source: BrokerId, distance: int) -> Outputs:
        trail = self._trails.get(id)
        if trail is None:
            trail = self._trails[id] = _Trail(filter)
        trail.heard[source] = distance
        return self._settle(id, trail)

    def _lose(self, id: FilterId, source: BrokerId) -> Outputs:
        trail = self._trails.get(id)
        if trail is None or trail.heard.pop(source, None) is None:
            return []
        return self._settle(id, trail)

    def _bury(self, id: FilterId) -> Outputs:
        """The subscription is withdrawn: pass it on to all who were told of it."""
        trail = self._trails.pop(id, None)
        if trail is None:
            return []
        self._point(id, trail, None)
        self._dead[id] = None
        if len(self._dead) > self._tombstone_limit:
            self._dead.popitem(last=False)
        return [Send(link, Unreachable(id, final=True)) for link in trail.told]

    def _settle(self, id: FilterId, trail: _Trail) -> Outputs:
        """Point to the nearest, and tell the neighbors what differs from what they were told."""
        via = min(trail.heard, key=trail.heard.__getitem__, default=None)
        self._point(id, trail, via)
        if via is None:
            del self._trails[id]
        onward = None if via is None or trail.heard[via] >= self._phi else trail.heard[via] + 1
        outputs: Outputs = []
        for link in self._links:
            distance = None if link == via else onward
            if distance == trail.told.get(link):
                continue
            if distance is None:
                del trail.told[link]
                outputs.append(Send(link, Unreachable(id, final=False)))
            else:
                trail.told[link] = distance
                outputs.append(Send(link, Reachable(id, trail.filter, distance)))
        return outputs

    def _point(self, id: FilterId, trail: _Trail, via: BrokerId | None) -> None:
        """Let the table's entry point to another neighbor, to the client here, or to none."""
        if via == trail.via:
            return
        if trail.via is not None:
            self._table.remove(self._destination(id, trail.via), id)
        if via is not None:
            self._table.add(self._destination(id, via), id, trail.filter)
        trail.via = via

    def _destination(self, id: FilterId, via: BrokerId) -> Destination:
        return Local(id.client) if via == self._id else Neighbor(via)

    # -- links

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._links[neighbor] = None
        return self._settle_all()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._links.pop(neighbor, None)
        for trail in self._trails.values():
            trail.heard.pop(neighbor, None)
            trail.told.pop(neighbor, None)
        return self._settle_all()

    def _settle_all(self) -> Outputs:
        trails = list(self._trails.items())
        return [output for id, trail in trails for output in self._settle(id, trail)]
