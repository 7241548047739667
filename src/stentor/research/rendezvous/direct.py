"""Rendezvous among brokers that all reach each other: one hop to the meeting place, one back.

A subscription s is kept by the brokers SN(s), an event e is taken to the brokers EN(e), and these
have one in common whenever e matches s. Who they are is said by a `Placement`, a function of the
filter or event and of the set of brokers, nothing else; so brokers that know of the same brokers
agree without a word. The router does the rest:

    subscribe     the subscriber's broker tells each broker of SN(s) to keep s
    publish       the publisher's broker serves its own clients at once and sends e to all of EN(e),
                  also if it is in EN(e) itself (07/T-01)
    rendezvous    tests e against what it keeps and sends it once to each broker with a subscription
                  that matches, except to where it came from; in some placements it passes e on
    notice        the subscriber's broker tests e against its clients' filters and delivers it

Events may meet subscriptions of one broker at several rendezvous, so a broker takes only the first
notice of each event. It tests all its filters then, so the others could add nothing. The memory for
this is bounded: a notice that comes after so many later ones that it cannot be told from a
repetition is dropped, and counted in `late`.

Membership. A link that comes up is a broker that joins, a link that goes down one that has left or
failed. What is kept at a rendezvous is only an image of what subscribers' brokers hold: each of
them knows where its subscriptions are kept, and when the set of brokers changes it moves those
whose places have changed, with one message to each broker concerned. What a rendezvous keeps for a
broker that is gone is dropped. So when all brokers know of the same brokers and all messages have
arrived, every table is what it would be had these brokers been there from the beginning. Before
that, delivery is best effort (07/T-03). The set of brokers must be the same seen from everywhere:
a lasting failure of one link between two live brokers would separate more than these two.

Two events of one publisher may meet at different rendezvous and overtake each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar, Final, Protocol

from stentor.errors import InvalidTopology
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model.notification import Notification
from stentor.model.seen import SeenIds
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    Deliver,
    FilterId,
    Kind,
    Message,
    Outputs,
    Send,
    TableSize,
)

#: Notices of one publisher that may be outstanding while later ones arrive.
WINDOW: Final = 1_024


class Keep(Message, frozen=True):
    """Keep these subscriptions of mine, and no longer those."""

    kind: ClassVar[Kind] = "subscription"
    added: tuple[tuple[FilterId, Filter], ...] = ()
    withdrawn: tuple[FilterId, ...] = ()


class Publication(Message, frozen=True):
    """An event on its way to a rendezvous; the clients at its origin have it already."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification
    origin: BrokerId


class Notice(Message, frozen=True):
    """An event for a broker one of whose subscriptions matches it."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification


class Placement(Protocol):
    """Which brokers meet over what, among a given set of brokers."""

    def homes(self, filter: Filter) -> Iterable[BrokerId]:
        """SN: the brokers that keep the filter; `UnsupportedMapping` if none can."""

    def entries(self, notification: Notification) -> Iterable[BrokerId]:
        """The brokers to which the publisher's broker sends the event: EN, or the first of EN."""

    def onward(self, broker: BrokerId, notification: Notification) -> Iterable[BrokerId]:
        """The brokers to which one of EN passes the event on, so that it comes to all of EN."""


class DirectRendezvousRouter:
    """A router for brokers that meet where a placement says."""

    def __init__(self, id: BrokerId, place: Callable[[list[BrokerId]], Placement]) -> None:
        """`place` gives the placement for a set of brokers, whatever their order."""
        self._id = id
        self._place = place
        self._placement: Placement | None = None
        self._neighbors: dict[BrokerId, None] = {}
        # What clients here want, and which brokers keep it for them.
        self._wanted: dict[FilterId, Filter] = {}
        self._homes: dict[FilterId, dict[BrokerId, None]] = {}
        self._clients: Index[FilterId] = Index(background=False)
        # What is kept here, and for whom.
        self._kept: Index[tuple[BrokerId, FilterId]] = Index(background=False)
        self._kept_for: dict[BrokerId, dict[FilterId, None]] = {}
        self._advertised: dict[FilterId, Filter] = {}
        self._visited = SeenIds(max_intervals=WINDOW)
        self._noticed = SeenIds(max_intervals=WINDOW)
        #: Events dropped because they came too late to be told from a repetition.
        self.late = 0

    @property
    def id(self) -> BrokerId:
        return self._id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._neighbors)

    @property
    def placement(self) -> Placement:
        """Who meets where, among the brokers that are known now."""
        if self._placement is None:
            self._placement = self._place([self._id, *self._neighbors])
        return self._placement

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._wanted:
            return []
        homes = self._homes[id] = dict.fromkeys(self.placement.homes(filter))
        self._wanted[id] = filter
        self._clients.add(id, filter)
        return [o for home in homes for o in self._to(home, Keep(added=((id, filter),)))]

    def unsubscribe(self, id: FilterId) -> Outputs:
        if id not in self._wanted:
            return []
        del self._wanted[id]
        self._clients.remove(id)
        return [o for home in self._homes.pop(id) for o in self._to(home, Keep(withdrawn=(id,)))]

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        """Remembered for `offers` only: a rendezvous finds subscribers without it."""
        self._advertised.setdefault(id, filter)
        return []

    def unadvertise(self, id: FilterId) -> Outputs:
        self._advertised.pop(id, None)
        return []

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        outputs = self._deliver(notification)
        publication = Publication(notification, self._id)
        for broker in self.placement.entries(notification):
            outputs += self._to(broker, publication)
        return outputs

    # -- messages

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        match message:
            case Keep(added, withdrawn):
                return self._keep(sender, added, withdrawn)
            case Publication():
                return self._meet(sender, message)
            case Notice(notification):
                is_new = self._is_new(notification, self._noticed)
                return self._deliver(notification) if is_new else []
        raise InvalidTopology(
            f"broker {sender!r} sent a {type(message).__name__}, which broker {self._id!r} does "
            "not understand; all brokers of a network must have routers of the same kind"
        )

    def _to(self, broker: BrokerId, message: Message) -> Outputs:
        """Send it, or act on it here if this is the broker."""
        return self.receive(broker, message) if broker == self._id else [Send(broker, message)]

    def _keep(
        self,
        sender: BrokerId,
        added: Iterable[tuple[FilterId, Filter]],
        withdrawn: Iterable[FilterId],
    ) -> Outputs:
        kept_for = self._kept_for.setdefault(sender, {})
        for id, filter in added:
            if id not in kept_for:
                kept_for[id] = None
                self._kept.add((sender, id), filter)
        for id in withdrawn:
            if id in kept_for:
                del kept_for[id]
                self._kept.remove((sender, id))
        if not kept_for:
            del self._kept_for[sender]
        return []

    def _meet(self, sender: BrokerId, publication: Publication) -> Outputs:
        """Test the event against what is kept here, the first time it comes."""
        notification = publication.notification
        if not self._is_new(notification, self._visited):
            return []
        # Whoever passed it on has tested it, but its origin may only have sent it on its way.
        outputs: Outputs = [
            Send(broker, publication)
            for broker in self.placement.onward(self._id, notification)
            if broker != sender or sender == publication.origin
        ]
        matched = {broker for broker, _ in self._kept.match(notification)}
        for broker in self._kept_for:  # in an order that does not change from run to run
            if broker in matched and broker != publication.origin:
                outputs += self._to(broker, Notice(notification))
        return outputs

    def _is_new(self, notification: Notification, seen: SeenIds) -> bool:
        id = notification.id
        assert id is not None
        if seen.add(id):
            return True
        self.late += seen.too_old(id)
        return False

    def _deliver(self, notification: Notification) -> Outputs:
        clients = {id.client for id in self._clients.match(notification)}
        return [Deliver(client, notification) for client in sorted(clients)]

    # -- brokers come and go

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._neighbors[neighbor] = None
        return self._relocate()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._neighbors.pop(neighbor, None)
        for id in self._kept_for.pop(neighbor, ()):
            self._kept.remove((neighbor, id))
        return self._relocate()

    def _relocate(self) -> Outputs:
        """Bring the clients' subscriptions to where they belong now."""
        self._placement = None
        added: dict[BrokerId, list[tuple[FilterId, Filter]]] = {}
        withdrawn: dict[BrokerId, list[FilterId]] = {}
        for id, filter in self._wanted.items():
            before, after = self._homes[id], dict.fromkeys(self.placement.homes(filter))
            self._homes[id] = after
            for home in after.keys() - before.keys():
                added.setdefault(home, []).append((id, filter))
            for home in before.keys() - after.keys():
                withdrawn.setdefault(home, []).append(id)
        outputs: Outputs = []
        for broker in (self._id, *self._neighbors):
            if broker in added or broker in withdrawn:
                keep = Keep(tuple(added.get(broker, ())), tuple(withdrawn.get(broker, ())))
                outputs += self._to(broker, keep)
        return outputs

    def expired(self, timer: Hashable) -> Outputs:
        """There are no timers."""
        return []

    # -- questions

    def table_size(self) -> TableSize:
        return TableSize(len(self._wanted), len(self._kept), len(self._advertised))

    def offers(self) -> list[Filter]:
        return list(self._advertised.values())
