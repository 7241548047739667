"""A broker's whole decision logic, still pure: a router and the clients it serves.

The router decides where filters and notifications go. The node adds what belongs to a client,
whatever the overlay: it numbers subscriptions and publications, holds back publications that their
producer has not advertised (R-03.26), and lets a notification pass the client's delivery gate
before it counts as delivered (01/A-7). Like a router it answers each call with what is to be done;
a host carries it out. `Deliver` in its answers means: delivered, once and for all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from stentor.errors import NotAdvertised, RepeatedPublication, UnknownClient
from stentor.filters import Filter
from stentor.model.identity import IdSource
from stentor.model.notification import Notification
from stentor.model.seen import SeenIds
from stentor.node.gate import Gate
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    Deliver,
    FilterId,
    Message,
    Outputs,
    Router,
    WithdrawsTogether,
)


@dataclass
class _Client:
    """What the node keeps of one client."""

    gate: Gate
    ids: IdSource
    subscriptions: dict[FilterId, Filter] = field(default_factory=dict)
    advertisements: dict[FilterId, Filter] = field(default_factory=dict)
    last_filter: int = 0
    published: SeenIds = field(default_factory=SeenIds)

    def new_id(self, client: ClientId) -> FilterId:
        self.last_filter += 1
        return FilterId(client, self.last_filter)


class Node:
    """A router with its clients.

    >>> from stentor.routing import tree_router
    >>> node = Node(tree_router("here"))
    >>> node.join("ann")
    >>> wanted, _ = node.subscribe("ann", Filter("price > 100"))
    >>> _, outputs = node.publish("ann", Notification({"price": 120}))
    >>> [output.to for output in outputs]
    ['ann']
    """

    def __init__(self, router: Router, *, enforce_advertisements: bool = False) -> None:
        self.router = router
        self.refused = 0
        self._enforce = enforce_advertisements
        self._clients: dict[ClientId, _Client] = {}

    @property
    def id(self) -> BrokerId:
        return self.router.id

    @property
    def clients(self) -> frozenset[ClientId]:
        return frozenset(self._clients)

    # -- clients come and go

    def join(self, client: ClientId, *, epoch: int = 0, gate: Gate | None = None) -> None:
        """Serve a client. One that moves here brings its gate, so that nothing comes twice.

        A client that was served before needs a higher epoch, so that no id is used again.
        """
        if client not in self._clients:
            self._clients[client] = _Client(
                Gate() if gate is None else gate,
                IdSource(client, epoch),
                last_filter=epoch << 32,
            )

    def leave(self, client: ClientId) -> Outputs:
        """Withdraw all that the client subscribed and advertised, and forget it.

        In one step if the router can; else what says most goes first, since withdrawing a large
        filter first announces small ones that are about to go as well (03/A14).
        """
        held = self._client(client)
        if isinstance(self.router, WithdrawsTogether):
            outputs = self.router.withdraw(list(held.subscriptions), list(held.advertisements))
        else:
            outputs = []
            for id in _smallest_first(held.subscriptions):
                outputs += self.router.unsubscribe(id)
            for id in _smallest_first(held.advertisements):
                outputs += self.router.unadvertise(id)
        del self._clients[client]
        return self._gated(outputs)

    def _client(self, client: ClientId) -> _Client:
        try:
            return self._clients[client]
        except KeyError:
            raise UnknownClient(
                f"broker {self.id!r} serves no client {client!r}; let it join first"
            ) from None

    def gate(self, client: ClientId) -> Gate:
        """The client's delivery gate, which it takes along when it moves."""
        return self._client(client).gate

    def subscriptions(self, client: ClientId) -> dict[FilterId, Filter]:
        return dict(self._client(client).subscriptions)

    def advertisements(self, client: ClientId) -> dict[FilterId, Filter]:
        return dict(self._client(client).advertisements)

    # -- what clients do

    def subscribe(self, client: ClientId, filter: Filter) -> tuple[FilterId, Outputs]:
        held = self._client(client)
        id = held.new_id(client)
        outputs = self.router.subscribe(id, filter)  # may refuse; then nothing has changed
        held.gate.subscribe(id, filter)
        held.subscriptions[id] = filter
        return id, self._gated(outputs)

    def unsubscribe(self, client: ClientId, id: FilterId) -> Outputs:
        held = self._client(client)
        if held.subscriptions.pop(id, None) is None:
            return []
        held.gate.unsubscribe(id)
        return self._gated(self.router.unsubscribe(id))

    def advertise(self, client: ClientId, filter: Filter) -> tuple[FilterId, Outputs]:
        held = self._client(client)
        id = held.new_id(client)
        outputs = self.router.advertise(id, filter)
        held.advertisements[id] = filter
        return id, self._gated(outputs)

    def unadvertise(self, client: ClientId, id: FilterId) -> Outputs:
        held = self._client(client)
        if held.advertisements.pop(id, None) is None:
            return []
        return self._gated(self.router.unadvertise(id))

    def publish(
        self, client: ClientId, notification: Notification, *, strict: bool = False
    ) -> tuple[Notification, Outputs]:
        """Send a notification on its way; the answer has it with its id.

        Where advertisements are enforced, one that no advertisement of the client matches is
        dropped and counted in `refused`, or is an error if `strict`.
        """
        held = self._client(client)
        notification = _stamped(notification, client, held)
        if self._enforce and not any(
            filter.matches(notification) for filter in held.advertisements.values()
        ):
            self.refused += 1
            if strict:
                raise NotAdvertised(
                    f"{client!r} has advertised nothing that matches {dict(notification)}; "
                    "advertise it before publishing"
                )
            return notification, []
        return notification, self._gated(self.router.publish(client, notification))

    def offers(self, overlapping: Filter | None = None) -> list[Filter]:
        """What may currently be published, as far as this broker knows (R-01.37)."""
        found = self.router.offers()
        return [f for f in found if overlapping is None or f.overlaps(overlapping)]

    # -- what the network does

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        return self._gated(self.router.receive(sender, message))

    def link_up(self, neighbor: BrokerId) -> Outputs:
        return self._gated(self.router.link_up(neighbor))

    def link_down(self, neighbor: BrokerId) -> Outputs:
        return self._gated(self.router.link_down(neighbor))

    def expired(self, timer: Hashable) -> Outputs:
        return self._gated(self.router.expired(timer))

    def apply(self, step: Callable[[], Outputs]) -> Outputs:
        """Run a step that only some routers know, such as a planned change of links."""
        return self._gated(step())

    def _gated(self, outputs: Outputs) -> Outputs:
        """The outputs, with only those deliveries that pass the client's gate."""
        passed: Outputs = []
        for output in outputs:
            if isinstance(output, Deliver):
                client = self._clients.get(output.to)
                if client is None or not client.gate.offer(output.notification):
                    continue
                taken = client.gate.take()
                if taken is None:
                    continue
                output = Deliver(output.to, taken)
            passed.append(output)
        return passed


def _stamped(notification: Notification, client: ClientId, held: _Client) -> Notification:
    """The notification with an id: the client's next, or the one it brings if that is new.

    What is not advertised uses its id up all the same (R-01.33).
    """
    id = notification.id
    if id is None:
        new = next(id for id in held.ids if held.published.add(id))
        return notification.replace(id=new)
    if not held.published.add(id):
        raise RepeatedPublication(
            f"{id} was published by {client!r} before, or is too old to tell; "
            "leave the id out to get a new one"
        )
    return notification


def _smallest_first(filters: dict[FilterId, Filter]) -> list[FilterId]:
    """What covers another filter mostly mentions fewer attributes, so those that say more first."""
    return sorted(filters, key=lambda id: -sum(len(c.constraints) for c in filters[id].conjuncts))
