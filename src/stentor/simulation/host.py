"""`Host`: runs nodes, with virtual links and a virtual clock.

Every broker is a `Node` around the same router that a live broker runs. A call of a client is one
step of its broker, carried out at once; the messages that result are on their way until they are
taken off their links by `step` or `settle`. Timers run when nothing is on its way any more:
`settle` comes back when there is neither a message nor a timer left.

The run is recorded in `trace` in the terms of the formal model, so that `check()` can say whether
the service did what it promises.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations, count
from typing import Any

from stentor.errors import (
    DuplicateBroker,
    InvalidConfiguration,
    InvalidTopology,
    UnknownBroker,
    UnknownClient,
    Unsettled,
)
from stentor.filters import Filter
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification
from stentor.node import Node
from stentor.routing.protocol import (
    Arm,
    BrokerId,
    ClientId,
    Close,
    Deliver,
    FilterId,
    Message,
    Outputs,
    Router,
    Send,
    TableSize,
)
from stentor.semantics import Report, Trace, check
from stentor.simulation import topology
from stentor.simulation.client import Client
from stentor.simulation.counters import Counters
from stentor.simulation.links import Channel, Links

#: Steps after which `settle` gives up: something is going round in circles.
PATIENCE = 10_000_000


class Host:
    """Brokers, links and clients in one process.

    It takes any routers; `Network` makes those of every overlay.

    >>> from stentor.routing import tree_router
    >>> net = Host({name: tree_router(name) for name in "ab"}, [("a", "b")])
    >>> net.brokers
    ['a', 'b']
    """

    def __init__(
        self,
        routers: Mapping[BrokerId, Router],
        links: Iterable[tuple[BrokerId, BrokerId]] | None,
        *,
        seed: int | None = None,
        advertisements: bool = False,
        make: Callable[[BrokerId], Router] | None = None,
        acyclic: bool = False,
        record: bool = True,
    ) -> None:
        """Without links, every broker can reach every other, as the Internet lets it.

        With a `seed`, messages arrive in a random order that the links allow. `advertisements`
        says whether publications must be advertised. `make` gives the router of a broker that is
        added later. On an `acyclic` overlay, links that would close a cycle are refused. A run that
        need not be checked does without its trace by `record=False`.
        """
        self.counters = Counters()
        self.trace = Trace()
        self.now = 0.0
        self._nodes: dict[BrokerId, Node] = {}
        self._clients: dict[ClientId, Client] = {}
        self._client_numbers = count(1)
        #: How often there was a client of this name: ids are never used again.
        self._lives: Counter[ClientId] = Counter()
        self._links = Links(seed)
        self._mesh = links is None
        self._advertisements = advertisements
        self._make = make
        self._acyclic = acyclic
        self._record = record
        self._hung_up: set[tuple[BrokerId, BrokerId]] = set()
        self._timers: list[tuple[float, int, BrokerId, Hashable]] = []
        self._armed: dict[tuple[BrokerId, Hashable], int] = {}
        self._timer_numbers = count()
        for id, router in routers.items():
            topology.check_id(id)
            if router.id != id:
                raise InvalidConfiguration(f"the router of {id!r} says that it is {router.id!r}")
            self._nodes[id] = Node(router, enforce_advertisements=advertisements)
        if links is not None:
            links = list(links)
            topology.brokers_of(links)
            topology.check_edges(links)
        for a, b in combinations(self._nodes, 2) if links is None else links:
            self._open(self.node(a).id, self.node(b).id)

    # -- the brokers

    @property
    def brokers(self) -> list[BrokerId]:
        return list(self._nodes)

    @property
    def links(self) -> list[tuple[BrokerId, BrokerId]]:
        return [(a, b) for a, b in combinations(self._nodes, 2) if self._links.is_open(a, b)]

    def node(self, broker: BrokerId) -> Node:
        try:
            return self._nodes[broker]
        except KeyError:
            raise UnknownBroker(
                f"there is no broker {broker!r} here; there are {_listed(self._nodes)}"
            ) from None

    def router(self, broker: BrokerId) -> Router:
        return self.node(broker).router

    def table_sizes(self) -> dict[BrokerId, TableSize]:
        """How many entries each broker holds."""
        return {id: node.router.table_size() for id, node in self._nodes.items()}

    # -- clients

    def client(self, at: BrokerId, id: ClientId | None = None) -> Client:
        """A new client at a broker."""
        node = self.node(at)
        if id is None:
            id = next(name for n in self._client_numbers if (name := f"c{n}") not in self._clients)
        elif id in self._clients:
            raise InvalidConfiguration(f"there is a client {id!r} already; give another id")
        node.join(id, epoch=self._lives[id])
        self._lives[id] += 1
        client = self._clients[id] = Client(self, id, at)
        return client

    def subscribe(self, client: Client, filter: Filter) -> FilterId:
        id, outputs = self._at(client).subscribe(client.id, filter)
        if self._record:
            self.trace.sub(client.id, id, filter)
        self._carry_out(client.at, outputs)
        return id

    def unsubscribe(self, client: Client, id: FilterId) -> None:
        outputs = self._at(client).unsubscribe(client.id, id)
        if self._record:
            self.trace.unsub(client.id, id)
        self._carry_out(client.at, outputs)

    def advertise(self, client: Client, filter: Filter) -> FilterId:
        id, outputs = self._at(client).advertise(client.id, filter)
        if self._record:
            self.trace.adv(client.id, id, filter)
        self._carry_out(client.at, outputs)
        return id

    def unadvertise(self, client: Client, id: FilterId) -> None:
        outputs = self._at(client).unadvertise(client.id, id)
        if self._record:
            self.trace.unadv(client.id, id)
        self._carry_out(client.at, outputs)

    def publish(
        self, client: Client, notification: Notification, *, strict: bool = False
    ) -> NotificationId:
        notification, outputs = self._at(client).publish(client.id, notification, strict=strict)
        if self._record:
            self.trace.pub(client.id, notification)
        self._carry_out(client.at, outputs)
        assert notification.id is not None
        return notification.id

    def offers(self, client: Client, overlapping: Filter | None) -> list[Filter]:
        return self._at(client).offers(overlapping)

    def leave(self, client: Client) -> None:
        node = self._at(client)
        self._record_withdrawals(client)
        self._carry_out(client.at, node.leave(client.id))
        del self._clients[client.id]

    def _record_withdrawals(self, client: Client) -> None:
        """A client that goes asks for nothing any more, and offers nothing."""
        if self._record:
            node = self.node(client.at)
            for id in node.subscriptions(client.id):
                self.trace.unsub(client.id, id)
            for id in node.advertisements(client.id):
                self.trace.unadv(client.id, id)

    def _at(self, client: Client) -> Node:
        if self._clients.get(client.id) is not client:
            raise UnknownClient(f"{client!r} has left; make a new client")
        return self.node(client.at)

    # -- time

    @property
    def pending(self) -> list[Channel]:
        """The links, as (from, to), on which a message may arrive next."""
        return self._links.pending

    def on_the_way(self, sender: BrokerId, receiver: BrokerId) -> list[Message]:
        """The messages from one broker to another that have not arrived, the next one first."""
        return self._links.on_the_way(sender, receiver)

    def step(self, channel: Channel | None = None) -> bool:
        """Let one message arrive, from the given link or from any; False if there is none."""
        arrival = self._links.arrive(channel)
        if arrival is None:
            return False
        sender, receiver, message = arrival
        self._carry_out(receiver, self._nodes[receiver].receive(sender, message))
        return True

    def settle(self) -> None:
        """Let everything arrive, and all timers run out."""
        for _ in range(PATIENCE):
            if not self.step() and not self._fire():
                if self._record:
                    self.trace.quiescent()
                return
        raise Unsettled(
            f"after {PATIENCE} steps there are still messages on their way: {self.pending}"
        )

    def _fire(self) -> bool:
        """Let the next timer run out; False if there is none."""
        while self._timers:
            at, number, broker, timer = heapq.heappop(self._timers)
            if self._armed.get((broker, timer)) == number and broker in self._nodes:
                del self._armed[broker, timer]
                self.now = at
                self._carry_out(broker, self._nodes[broker].expired(timer))
                return True
        return False

    def _carry_out(self, broker: BrokerId, outputs: Outputs) -> None:
        for output in outputs:
            match output:
                case Send(to, message):
                    if self._links.send(broker, to, message):
                        self.counters.links[message.kind][broker, to] += 1
                    else:
                        self.counters.lost += 1
                case Deliver(to, notification):
                    self.counters.delivered += 1
                    if self._record:
                        self.trace.notify(to, notification)
                    self._clients[to].received.append(notification)
                case Close(to):
                    self._hung_up.add((broker, to))
                    if (to, broker) in self._hung_up:
                        self._close(broker, to)
                case Arm(timer, after):
                    number = self._armed[broker, timer] = next(self._timer_numbers)
                    heapq.heappush(self._timers, (self.now + after, number, broker, timer))

    def check(self, *, order: Sequence[str] = (), settling: bool = True) -> Report:
        """Whether the run so far kept the promises of the service, and if not, where and why.

        `order` names orders that it should have kept: fifo, causal, total_pairwise, total_global.
        Without `settling`, only what was delivered is judged, not what is missing.
        """
        return check(
            self.trace, advertisements=self._advertisements, order=order, settling=settling
        )

    # -- brokers and links come and go

    def connect(self, a: BrokerId, b: BrokerId) -> None:
        """A new link between two brokers."""
        self._check_links([(a, b)])
        self._open(a, b)

    def disconnect(self, a: BrokerId, b: BrokerId) -> None:
        """Take a link away, with what is on its way; both ends are told.

        For an end it makes no difference whether the link failed or was taken away.
        """
        for broker in (a, b):
            self.node(broker)
        if not self._links.is_open(a, b):
            raise InvalidTopology(f"there is no link between {a!r} and {b!r}")
        self._close(a, b)
        self._carry_out(a, self._nodes[a].link_down(b))
        self._carry_out(b, self._nodes[b].link_down(a))

    def add_broker(self, id: BrokerId, links: Iterable[BrokerId] = ()) -> None:
        """A new broker, linked to others; where all reach all, to all."""
        if id in self._nodes:
            raise DuplicateBroker(f"there is a broker {id!r} already; choose another id")
        if self._make is None:
            raise InvalidConfiguration("this network does not know how to make routers")
        others = list(self._nodes) if self._mesh else list(links)
        topology.check_id(id)
        self._check_links([(other, id) for other in others], newcomer=id)
        self._nodes[id] = Node(self._make(id), enforce_advertisements=self._advertisements)
        for other in others:
            self._open(other, id)

    def fail_broker(self, id: BrokerId) -> list[BrokerId]:
        """The broker dies, and its clients with it. The answer is who its neighbors were."""
        node = self.node(id)
        neighbors = [other for other in self._nodes if self._links.is_open(id, other)]
        for client in [c for c in self._clients.values() if c.at == id]:
            self._record_withdrawals(client)
            del self._clients[client.id]
        for other in neighbors:
            self._close(id, other)
        del self._nodes[node.id]
        self._armed = {key: n for key, n in self._armed.items() if key[0] != id}
        for other in neighbors:
            self._carry_out(other, self._nodes[other].link_down(id))
        return neighbors

    def remove_broker(self, id: BrokerId) -> list[BrokerId]:
        """The broker goes as planned: its clients leave, what is on its way arrives first."""
        self.node(id)
        for client in [c for c in self._clients.values() if c.at == id]:
            self.leave(client)
        self.settle()
        return self.fail_broker(id)

    def _open(self, a: BrokerId, b: BrokerId) -> None:
        self._links.open(a, b)
        self._carry_out(a, self._nodes[a].link_up(b))
        self._carry_out(b, self._nodes[b].link_up(a))

    def _close(self, a: BrokerId, b: BrokerId) -> None:
        self._hung_up -= {(a, b), (b, a)}
        self.counters.lost += self._links.close(a, b)

    def _check_links(
        self, new: list[tuple[BrokerId, BrokerId]], newcomer: BrokerId | None = None
    ) -> None:
        """Whether the overlay allows these links."""
        links = [] if self._mesh else self.links
        for a, b in new:
            for broker in (a, b):
                if broker != newcomer:
                    self.node(broker)
            if a == b:
                raise InvalidTopology(f"a link {a!r}-{b!r} would lead from a broker to itself")
            if self._links.is_open(a, b):
                raise InvalidTopology(f"there is a link between {a!r} and {b!r} already")
            if self._acyclic and b in topology.reachable(a, links):
                raise InvalidTopology(
                    f"a link {a!r}-{b!r} would close a cycle; take another away first"
                )
            links.append((a, b))


def _listed(brokers: Iterable[Any]) -> str:
    shown = [repr(broker) for broker in brokers]
    return ", ".join(shown[:10]) + (", ..." if len(shown) > 10 else "")
