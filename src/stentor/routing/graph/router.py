"""`GraphRouter`: content-based routing on any graph, with cycles, failures and growth.

Every broker floods its links (`link_states`) and so knows the graph, and in it the one shortest
path between any two brokers (`paths`). The *tree of a broker* is made of its paths to all others.

Interest. A broker reduces the subscriptions of its own clients to a set that it announces
(`local_set`), and this set spreads along the broker's own tree to all others (`spread`). Entries
are kept by origin. Nothing is suppressed in favor of another origin's filter, so the mistake that
acyclic tables make on a graph (08, trap 6: each of two brokers relies on the other to be
reachable through a third) cannot be made.

Notifications. One that enters at broker P travels the tree of P. A broker matches it, which gives
the origins whose clients want it, and passes it to those of its children in the tree of P behind
which there is such an origin. So once the graph is known to all, a notification uses exactly
the edges of the smallest part of the tree of P that joins P to those origins, each once. While it
is not, brokers may send along different trees: ids tell what came before, and the number of
hops is limited.

Advertisements. With them, each broker's advertisements are reduced and spread to all brokers
likewise, and a filter of origin O is passed to a child in the tree of O only if behind that child
some broker advertises what overlaps it. Paths are the same in both directions, so those are the
brokers from which a notification for O would come this way. When advertisements or trees
change, the filters concerned are decided anew.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping

from stentor.errors import InvalidConfiguration, InvalidTopology, UnknownBroker
from stentor.filters import Filter
from stentor.matching import FilterTable, Index
from stentor.model.notification import Notification
from stentor.model.seen import SeenIds
from stentor.routing.graph.link_states import LinkState, LinkStates
from stentor.routing.graph.local_set import LocalSet
from stentor.routing.graph.messages import Entry, Forward, Interest, Offer, Topology
from stentor.routing.graph.owners import Owners
from stentor.routing.graph.paths import Graph, order
from stentor.routing.graph.spread import Spread
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    Deliver,
    FilterId,
    Message,
    Outputs,
    Send,
    TableSize,
)


class GraphRouter:
    """A broker's routing decisions on a generic graph.

    >>> a, b = GraphRouter("a"), GraphRouter("b")
    >>> for send in (*a.link_up("b"), *b.link_up("a")):
    ...     receiver, sender = (a, "b") if send.to == "a" else (b, "a")
    ...     _ = receiver.receive(sender, send.message)
    >>> [interest] = a.subscribe(FilterId("ann", 1), Filter("x > 1"))
    >>> interest.to, interest.message.add
    ('b', ((0, Filter('x > 1')),))
    """

    def __init__(
        self,
        id: BrokerId,
        strategy: str = "covering",
        advertisements: str | None = None,
        costs: Mapping[BrokerId, int] | None = None,
    ) -> None:
        """Both strategies are one of simple, identity, covering and merging.

        Without `advertisements`, subscriptions go to all brokers, and advertisements to none.
        `costs` are those of the links to neighbors, present and future; otherwise they are 1.
        """
        self._id = id
        self._subscriptions = LocalSet(strategy)
        self._advertisements = LocalSet(advertisements or "simple")
        self._advertised_only = advertisements is not None
        self._links = LinkStates(id, costs)
        self._neighbors: dict[BrokerId, None] = {}
        self._graph = Graph({})
        self._branches: dict[BrokerId, dict[BrokerId, BrokerId]] = {}
        self._children: dict[BrokerId, frozenset[BrokerId]] = {}
        self._interests = Spread(id, Interest, self._towards, self._interested)
        self._offers = Spread(id, Offer, self._towards, self._told_of_offers)
        self._clients: Owners[Index[Filter], ClientId] = Owners(Index(background=False))
        self._remote: Owners[Index[Filter], BrokerId] = Owners(Index(background=False))
        self._wanted: Owners[FilterTable[Filter], tuple[BrokerId, int]] = Owners(FilterTable())
        self._offered: Owners[FilterTable[Filter], BrokerId] = Owners(FilterTable())
        self._seen = SeenIds()

    @property
    def id(self) -> BrokerId:
        return self._id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._neighbors)

    def routes(self) -> dict[BrokerId, tuple[BrokerId, int]]:
        """For each other broker that can be reached: the neighbor on the way, and the cost."""
        costs = self._graph.tree(self._id).costs
        return {to: (via, costs[to]) for to, via in self._branches_of(self._id).items()}

    # -- local clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._subscriptions.filters:
            return []
        self._clients.add(filter, id.client)
        return self._interest(self._id, self._id, *self._subscriptions.add(id, filter))

    def unsubscribe(self, id: FilterId) -> Outputs:
        filter = self._subscriptions.filters.get(id)
        if filter is None:
            return []
        self._clients.remove(filter, id.client)
        return self._interest(self._id, self._id, *self._subscriptions.remove(id))

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._advertisements.filters:
            return []
        return self._offer(self._id, self._id, *self._advertisements.add(id, filter))

    def unadvertise(self, id: FilterId) -> Outputs:
        if id not in self._advertisements.filters:
            return []
        return self._offer(self._id, self._id, *self._advertisements.remove(id))

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        assert notification.id is not None
        self._seen.add(notification.id)
        hops = len(self._graph.tree(self._id).costs)
        return self._route(notification, self._id, self._id, hops)

    # -- other brokers

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        if sender not in self._neighbors:
            raise UnknownBroker(
                f"{sender!r} is no neighbor of {self._id!r}; announce the link with link_up first"
            )
        match message:
            case Forward(notification, entry, hops):
                return self._forwarded(sender, notification, entry, hops)
            case Interest(origin, add, remove):
                return self._interest(sender, origin, add, remove)
            case Offer(origin, add, remove):
                return self._offer(sender, origin, add, remove)
            case Topology(states):
                return self._learn(sender, states)
        raise InvalidConfiguration(
            f"{sender!r} sent {self._id!r} a {type(message).__name__}, which is no message of "
            "graph routing; all brokers of an overlay must run the same kind of router"
        )

    def link_up(self, neighbor: BrokerId) -> Outputs:
        if neighbor == self._id or neighbor in self._neighbors:
            raise InvalidTopology(f"{self._id!r} cannot have a second link to {neighbor!r}")
        others = sorted(self._neighbors, key=order)
        self._neighbors[neighbor] = None
        self._interests.link_up(neighbor)
        self._offers.link_up(neighbor)
        state = self._links.linked(self._neighbors)
        outputs: Outputs = [Send(neighbor, Topology(self._links.all()))]
        outputs += [Send(other, Topology((state,))) for other in others]
        return outputs + self._graph_changed()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        if neighbor not in self._neighbors:
            raise UnknownBroker(f"{self._id!r} has no link to {neighbor!r} that could go down")
        del self._neighbors[neighbor]
        state = self._links.linked(self._neighbors)
        outputs: Outputs = [
            Send(other, Topology((state,))) for other in sorted(self._neighbors, key=order)
        ]
        for origin, filters in self._interests.link_down(neighbor).items():
            self._note_interest(neighbor, origin, (), filters.items())
        lost: list[Filter] = []
        for origin, filters in self._offers.link_down(neighbor).items():
            for filter in filters.values():
                self._offered.remove(filter, origin)
                lost.append(filter)
        return outputs + self._graph_changed() + self._reconsider(lost)

    def expired(self, timer: Hashable) -> Outputs:
        """This router arms no timers."""
        return []

    # -- what is known

    def table_size(self) -> TableSize:
        return TableSize(
            local=len(self._subscriptions.filters),
            remote=self._interests.remote(),
            advertisements=len(self._advertisements.filters) + self._offers.remote(),
        )

    def offers(self) -> list[Filter]:
        return sorted(self._offered.filters, key=str)

    # -- the graph

    def _learn(self, sender: BrokerId, states: Iterable[LinkState]) -> Outputs:
        news = self._links.learn(states)
        if not news:
            return []
        # What a broker says of itself, in answer to what it once said, is news for the sender too.
        own = tuple(state for state in news if state.origin == self._id)
        outputs: Outputs = [Send(sender, Topology(own))] if own else []
        for neighbor in sorted(self._neighbors, key=order):
            if neighbor != sender:
                outputs.append(Send(neighbor, Topology(tuple(news))))
        return outputs + self._graph_changed()

    def _graph_changed(self) -> Outputs:
        """Compute the trees anew, if need be, and tell of the origins whose trees differ here."""
        edges = self._links.edges()
        if edges == self._graph.costs:
            return []
        origins = dict.fromkeys((*self._offers.origins(), *self._interests.origins()))
        before = {origin: (self._towards(origin), self._branches_of(origin)) for origin in origins}
        self._graph = Graph(edges)
        self._branches = {}
        self._children = {}
        outputs: Outputs = []
        for spread in (self._offers, self._interests):
            for origin in spread.origins():
                if before[origin] != (self._towards(origin), self._branches_of(origin)):
                    outputs += spread.tell(origin)
        return outputs

    def _branches_of(self, root: BrokerId) -> dict[BrokerId, BrokerId]:
        """In the tree of a broker: for each broker behind this one, the child on the way to it."""
        branches = self._branches.get(root)
        if branches is None:
            branches = self._branches[root] = self._graph.tree(root).branches(self._id)
        return branches

    def _children_of(self, root: BrokerId) -> frozenset[BrokerId]:
        """The children of this broker in the tree of another, or in its own."""
        children = self._children.get(root)
        if children is None:
            children = self._children[root] = frozenset(self._branches_of(root).values())
        return children

    def _towards(self, origin: BrokerId) -> BrokerId | None:
        if origin == self._id:
            return origin
        return self._branches_of(self._id).get(origin)

    # -- filters

    def _interest(
        self, sender: BrokerId, origin: BrokerId, add: Iterable[Entry], remove: Iterable[int]
    ) -> Outputs:
        came, went = self._interests.update(sender, origin, add, remove)
        self._note_interest(sender, origin, came, went)
        return self._interests.tell(origin, _numbers(came, went))

    def _note_interest(
        self, sender: BrokerId, origin: BrokerId, came: Iterable[Entry], went: Iterable[Entry]
    ) -> None:
        for number, filter in came:
            if sender != self._id:
                self._remote.add(filter, origin)
            if self._advertised_only:
                self._wanted.add(filter, (origin, number))
        for number, filter in went:
            if sender != self._id:
                self._remote.remove(filter, origin)
            if self._advertised_only:
                self._wanted.remove(filter, (origin, number))

    def _interested(self, origin: BrokerId, filter: Filter) -> Collection[BrokerId]:
        """The children in the origin's tree behind which something may be published for it."""
        if not self._advertised_only:
            return self._children_of(origin)
        branches = self._branches_of(origin)
        advertisers = self._offered.of(self._offered.engine.overlapping(filter))
        return {branches[broker] for broker in advertisers if broker in branches}

    def _told_of_offers(self, origin: BrokerId, filter: Filter) -> Collection[BrokerId]:
        """The children in the origin's tree, if advertisements are made use of."""
        return self._children_of(origin) if self._advertised_only else ()

    def _offer(
        self, sender: BrokerId, origin: BrokerId, add: Iterable[Entry], remove: Iterable[int]
    ) -> Outputs:
        came, went = self._offers.update(sender, origin, add, remove)
        for _, filter in came:
            self._offered.add(filter, origin)
        for _, filter in went:
            self._offered.remove(filter, origin)
        outputs = self._offers.tell(origin, _numbers(came, went))
        return outputs + self._reconsider(filter for _, filter in (*came, *went))

    def _reconsider(self, advertised: Iterable[Filter]) -> Outputs:
        """These advertisements came or went: decide anew where overlapping interests go."""
        concerned: dict[BrokerId, set[int]] = {}
        for filter in dict.fromkeys(advertised):
            for origin, number in self._wanted.of(self._wanted.engine.overlapping(filter)):
                concerned.setdefault(origin, set()).add(number)
        outputs: Outputs = []
        for origin in sorted(concerned, key=order):
            outputs += self._interests.tell(origin, concerned[origin])
        return outputs

    # -- notifications

    def _forwarded(
        self, sender: BrokerId, notification: Notification, entry: BrokerId, hops: int
    ) -> Outputs:
        assert notification.id is not None
        if not self._seen.add(notification.id):
            return []
        return self._route(notification, sender, entry, hops)

    def _route(
        self, notification: Notification, sender: BrokerId, entry: BrokerId, hops: int
    ) -> Outputs:
        clients = self._clients.of(self._clients.engine.match(notification))
        outputs: Outputs = [Deliver(client, notification) for client in sorted(clients)]
        branches = self._branches_of(entry)
        if hops and branches:
            origins = self._remote.of(self._remote.engine.match(notification))
            ways = {branches[origin] for origin in origins if origin in branches} - {sender}
            onward = Forward(notification, entry, hops - 1)
            outputs += [Send(neighbor, onward) for neighbor in sorted(ways, key=order)]
        return outputs


def _numbers(*entries: Iterable[Entry]) -> set[int]:
    return {number for part in entries for number, _ in part}
