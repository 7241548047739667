"""Simple routing in cycles: every subscription grows a tree of its own (R-03.45, 03/A16 repaired).

A subscription is flooded. A broker keeps the neighbor from which it came first and drops all other
copies, so the first arrivals form a spanning tree, and which one it is depends on how fast the
links happen to be: trees differ and share the load. A notification goes, at each broker, to the
sources of the subscriptions that it matches. As those trees differ, it may come to a broker twice;
the ids of notifications tell (R-03.42).

Withdrawals need care: guarded by nothing but "is the filter in the table", a subscription and its
withdrawal may chase each other round a cycle for ever (03, trap 16). The cure is to remember
withdrawn ids. Here one number for each origin stands for all of them. A broker numbers what it
states, and floods keep the order: a broker passes on everything in the order in which it came, so
whoever passes on statement 7 of an origin has passed on statement 6 on the same link before, or got
it from there. Hence a statement is new exactly if its number is higher than any heard of its
origin; what is lower, subscription or withdrawal, has been dealt with.

When a link comes up, its ends tell each other the whole state of each origin, as of the last number
heard. When a link fails, trees are cut and statements may be lost, so a new *epoch* begins: a
broker that sees it forgets all that others stated, and states all of its own subscriptions anew,
from number one. Every statement says its epoch. One of an older epoch is ignored; one of a newer
epoch takes its receiver into that epoch, so the first statement of an epoch carries it through the
network. What a lost broker had stated disappears that way, and one that starts again need not know
how far it had counted. Within an epoch no link fails, so what was said about order holds without
exception.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, TypeAlias

from stentor.errors import InvalidConfiguration, InvalidTopology, UnknownBroker
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model.notification import Notification
from stentor.model.seen import SeenIds
from stentor.routing.graph.owners import Owners
from stentor.routing.graph.paths import order
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

#: Subscriptions by id, each with the neighbor, or the broker itself, from which it came.
Sourced: TypeAlias = dict[FilterId, tuple[Filter, BrokerId]]
#: A number, and the broker that began the epoch, as two may begin one at the same time.
Epoch: TypeAlias = tuple[int, BrokerId]


class Statement(Message, frozen=True):
    """Subscriptions that an origin adds and withdraws; if `whole`, these are all it has."""

    kind: ClassVar[Kind] = "subscription"
    epoch: Epoch
    origin: BrokerId
    number: int
    add: tuple[tuple[FilterId, Filter], ...] = ()
    remove: tuple[FilterId, ...] = ()
    whole: bool = False


class Passed(Message, frozen=True):
    """A notification."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification


class FirstArrivalRouter:
    """Simple routing on a graph, by first arrival.

    >>> router = FirstArrivalRouter("a")
    >>> _ = router.link_up("b"), router.link_up("c")
    >>> arrived = Statement((0, 0), "d", 1, add=((FilterId("ann", 1), Filter("x > 1")),))
    >>> [send.to for send in router.receive("b", arrived)], router.receive("c", arrived)
    (['c'], [])
    >>> router.sources()
    {FilterId(client='ann', number=1): 'b'}
    """

    def __init__(self, id: BrokerId) -> None:
        self._id = id
        self._neighbors: dict[BrokerId, None] = {}
        self._epoch: Epoch = (0, 0)
        self._table: dict[BrokerId, Sourced] = {id: {}}
        self._heard: dict[BrokerId, int] = {id: 0}
        self._advertised: dict[FilterId, Filter] = {}
        self._clients: Owners[Index[Filter], ClientId] = Owners(Index(background=False))
        self._remote: Owners[Index[Filter], BrokerId] = Owners(Index(background=False))
        self._seen = SeenIds()

    @property
    def id(self) -> BrokerId:
        return self._id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._neighbors)

    def sources(self) -> dict[FilterId, BrokerId]:
        """For each subscription at another broker: the neighbor from which it came first."""
        return {
            id: source
            for origin, entries in self._table.items()
            if origin != self._id
            for id, (_, source) in entries.items()
        }

    # -- local clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._table[self._id]:
            return []
        self._clients.add(filter, id.client)
        self._table[self._id][id] = (filter, self._id)
        return self._state(add=((id, filter),))

    def unsubscribe(self, id: FilterId) -> Outputs:
        if id not in self._table[self._id]:
            return []
        filter, _ = self._table[self._id].pop(id)
        self._clients.remove(filter, id.client)
        return self._state(remove=(id,))

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        """Only this broker gets to know: subscriptions go everywhere, advertised or not."""
        self._advertised.setdefault(id, filter)
        return []

    def unadvertise(self, id: FilterId) -> Outputs:
        self._advertised.pop(id, None)
        return []

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        return self._route(self._id, notification)

    # -- other brokers

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        if sender not in self._neighbors:
            raise UnknownBroker(
                f"{sender!r} is not a neighbor of {self._id!r}; announce the link with link_up "
                "first"
            )
        match message:
            case Passed(notification):
                return self._route(sender, notification)
            case Statement():
                return self._stated(sender, message)
        raise InvalidConfiguration(
            f"{sender!r} sent {self._id!r} a {type(message).__name__}, which is not a message of "
            "first-arrival routing; all brokers of an overlay must run the same kind of router"
        )

    def link_up(self, neighbor: BrokerId) -> Outputs:
        if neighbor == self._id or neighbor in self._neighbors:
            raise InvalidTopology(f"{self._id!r} cannot have a second link to {neighbor!r}")
        self._neighbors[neighbor] = None
        return [Send(neighbor, self._whole(origin)) for origin in sorted(self._heard, key=order)]

    def link_down(self, neighbor: BrokerId) -> Outputs:
        if neighbor not in self._neighbors:
            raise UnknownBroker(f"{self._id!r} has no link to {neighbor!r} that could go down")
        del self._neighbors[neighbor]
        return self._enter((self._epoch[0] + 1, self._id))

    def expired(self, timer: Hashable) -> Outputs:
        """This router arms no timers."""
        return []

    # -- what is known

    def table_size(self) -> TableSize:
        return TableSize(
            local=len(self._table[self._id]),
            remote=sum(len(entries) for o, entries in self._table.items() if o != self._id),
            advertisements=len(self._advertised),
        )

    def offers(self) -> list[Filter]:
        return sorted(dict.fromkeys(self._advertised.values()), key=str)

    # -- statements

    def _state(
        self,
        add: tuple[tuple[FilterId, Filter], ...] = (),
        remove: tuple[FilterId, ...] = (),
    ) -> Outputs:
        """State a change of the broker's own subscriptions."""
        number = self._heard[self._id] = self._heard[self._id] + 1
        return self._flood(Statement(self._epoch, self._id, number, add, remove))

    def _whole(self, origin: BrokerId) -> Statement:
        entries = self._table.get(origin, {})
        add = tuple((id, filter) for id, (filter, _) in entries.items())
        return Statement(self._epoch, origin, self._heard[origin], add, whole=True)

    def _stated(self, sender: BrokerId, statement: Statement) -> Outputs:
        outputs: Outputs = []
        if _age(statement.epoch) < _age(self._epoch):
            return outputs
        if statement.epoch != self._epoch:
            outputs = self._enter(statement.epoch)
        origin = statement.origin
        if origin == self._id or statement.number <= self._heard.get(origin, -1):
            return outputs
        self._heard[origin] = statement.number
        entries = self._table.setdefault(origin, {})
        for id in list(entries) if statement.whole else statement.remove:
            if id in entries:  # a broker that just started again may withdraw what nobody heard of
                self._remote.remove(*entries.pop(id))
        for id, filter in statement.add:
            if id not in entries:
                entries[id] = (filter, sender)
                self._remote.add(filter, sender)
        if not entries:
            del self._table[origin]
        return outputs + self._flood(statement, sender)

    def _enter(self, epoch: Epoch) -> Outputs:
        """Begin an epoch, or join it: forget what others stated, and state all anew."""
        own = self._table.pop(self._id)
        for entries in self._table.values():
            for filter, source in entries.values():
                self._remote.remove(filter, source)
        self._epoch = epoch
        self._table = {self._id: own}
        self._heard = {self._id: 0}
        return self._state(add=tuple((id, filter) for id, (filter, _) in own.items()))

    def _flood(self, message: Message, sender: BrokerId | None = None) -> Outputs:
        neighbors = sorted(self._neighbors, key=order)
        return [Send(neighbor, message) for neighbor in neighbors if neighbor != sender]

    # -- notifications

    def _route(self, sender: BrokerId, notification: Notification) -> Outputs:
        assert notification.id is not None
        if not self._seen.add(notification.id):
            return []
        clients = self._clients.of(self._clients.engine.match(notification))
        outputs: Outputs = [Deliver(client, notification) for client in sorted(clients)]
        sources = self._remote.of(self._remote.engine.match(notification))
        ways = sorted((s for s in sources if s != sender), key=order)
        return outputs + [Send(neighbor, Passed(notification)) for neighbor in ways]


def _age(epoch: Epoch) -> tuple[Any, ...]:
    """Sorts epochs, the newest last."""
    return epoch[0], order(epoch[1])
