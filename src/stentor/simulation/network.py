"""`Network`: simulated networks of every overlay."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from stentor.errors import (
    InvalidConfiguration,
    InvalidTopology,
    UnknownBroker,
)
from stentor.matching import Commons, Matcher
from stentor.model.event_types import EventType, EventTypes
from stentor.research.clusters import CellRouter, Cells
from stentor.research.first_arrival import FirstArrivalRouter
from stentor.research.flooding import MatchEarlyRouter, SubscriptionFloodingRouter
from stentor.research.gossip import GossipRouter, GroupRouter, GroupTree, SemiProbabilisticRouter
from stentor.research.rendezvous import (
    AttributeSplit,
    Axis,
    BoxRouter,
    BoxSpace,
    KeyRendezvousRouter,
    KeySpaceSplit,
    SelectiveAttribute,
    TopicRouter,
)
from stentor.research.trees import CarryingRouter
from stentor.routing.graph import GraphRouter
from stentor.routing.protocol import BrokerId, LiveRouter, Router
from stentor.routing.reducers import check_reduction
from stentor.routing.rendezvous import Pastry, TypeRendezvousRouter
from stentor.routing.strategy import STRATEGIES, Strategy
from stentor.routing.tree import Role, TreeRouter
from stentor.simulation import topology
from stentor.simulation.trees import TreeHost, check_choice

#: The routing strategies on graphs with cycles.
GRAPH_ROUTINGS: Final = (*STRATEGIES, "first-arrival")
#: What a rendezvous is found by.
MAPPINGS: Final = (
    "types",
    "topics",
    "boxes",
    "attribute-split",
    "key-space-split",
    "selective-attribute",
)


class Network(TreeHost):
    """Brokers, links and clients in one process, for every overlay.

    >>> net = Network.graph([(1, 2), (2, 3), (3, 1)], routing="covering")
    >>> a, b = net.client(at=1), net.client(at=3)
    >>> wanted = b.subscribe("x > 1")
    >>> net.settle()
    >>> _ = a.publish({"x": 2})
    >>> net.settle()
    >>> len(b.received), net.check().ok
    (1, True)
    """

    # -- overlays: a constructor for each

    @classmethod
    def tree(
        cls,
        edges: Iterable[tuple[BrokerId, BrokerId]],
        routing: str | Strategy = "covering",
        advertisements: str | Strategy | None = None,
        *,
        brokers: Iterable[BrokerId] = (),
        looseness: float = 0.0,
        sample: Iterable[Mapping[str, Any]] | None = None,
        engine: Callable[[], Matcher[Any]] | None = None,
        planned: bool = False,
        record: bool = True,
        seed: int | None = None,
    ) -> Network:
        """Peers on an acyclic overlay. `brokers` names those that have no link.

        With `planned`, routers carry notifications themselves, and links can be replaced in every
        way (`replace_link`), but nothing is journaled.

        `looseness` and `sample` are for imperfect merging: the share of a merger's matches that
        may be in vain, and the notifications that it is measured on. A very long run that need not
        be checked takes less memory if nothing is recorded (`record=False`).

        >>> Network.tree([(1, 2), (2, 3), (3, 1)])
        Traceback (most recent call last):
        ...
        stentor.errors.InvalidTopology: the link 3-1 closes a cycle; take one of its links away, \
or use Network.graph, which routes on cycles
        """
        edges = list(edges)
        names = topology.brokers_of(edges, brokers)
        topology.check_tree(names, edges)
        strategy, offers = _strategies(routing, advertisements, looseness, sample)
        commons = Commons() if engine is None else None

        def make(id: BrokerId) -> Router | LiveRouter:
            if planned:
                return CarryingRouter(id, strategy, offers, engine)
            return TreeRouter(id, strategy, offers, engine=engine, commons=commons)

        return cls._made(make, names, edges, offers, seed, acyclic=True, record=record)

    @classmethod
    def hierarchy(
        cls,
        edges: Iterable[tuple[BrokerId, BrokerId]] | Mapping[BrokerId, BrokerId],
        routing: str | Strategy = "covering",
        advertisements: str | Strategy | None = None,
        *,
        root: BrokerId | None = None,
        looseness: float = 0.0,
        sample: Iterable[Mapping[str, Any]] | None = None,
        seed: int | None = None,
    ) -> Network:
        """A rooted tree: filters go up only, notifications always go up, and down where wanted.

        Links are (parent, child), in any order if the root is named; or each child is given its
        parent.

        >>> Network.hierarchy({"desk": "hall", "door": "hall"}).links
        [('hall', 'desk'), ('hall', 'door')]
        """
        if isinstance(edges, Mapping):
            edges = [(parent, child) for child, parent in edges.items()]
        edges = list(edges)
        names = topology.brokers_of(edges, () if edges or root is None else (root,))
        topology.check_tree(names, edges)
        parents = topology.parents(edges, root)
        return cls._hybrid(names, edges, parents, routing, advertisements, looseness, sample, seed)

    @classmethod
    def hybrid(
        cls,
        peers: Iterable[tuple[BrokerId, BrokerId]],
        subtrees: Mapping[BrokerId, BrokerId],
        routing: str | Strategy = "covering",
        advertisements: str | Strategy | None = None,
        *,
        flooded: Iterable[BrokerId] = (),
        looseness: float = 0.0,
        sample: Iterable[Mapping[str, Any]] | None = None,
        seed: int | None = None,
    ) -> Network:
        """Peers at the core and hierarchies below them; `subtrees` gives brokers their parents.

        In the subtrees of the brokers named in `flooded` every notification goes everywhere, and
        filters only go up to that broker.

        >>> net = Network.hybrid([("rome", "oslo")], {"desk": "rome"}, flooded=["rome"])
        >>> net.links
        [('rome', 'oslo'), ('rome', 'desk')]
        """
        peers = list(peers)
        for broker in topology.brokers_of(peers):
            if broker in subtrees:
                raise InvalidTopology(
                    f"{broker!r} has a parent, {subtrees[broker]!r}, and so no peers; "
                    "link its root instead"
                )
        edges = [*peers, *((parent, child) for child, parent in subtrees.items())]
        names = topology.brokers_of(edges)
        topology.check_tree(names, edges)
        roots = set(flooded)
        if not roots <= set(names):
            raise UnknownBroker(
                f"{sorted(roots - set(names), key=str)} are to be flooded, but are not brokers here"
            )
        return cls._hybrid(
            names, edges, dict(subtrees), routing, advertisements, looseness, sample, seed, roots
        )

    @classmethod
    def _hybrid(
        cls,
        names: list[BrokerId],
        edges: list[tuple[BrokerId, BrokerId]],
        parents: dict[BrokerId, BrokerId],
        routing: str | Strategy,
        advertisements: str | Strategy | None,
        looseness: float,
        sample: Iterable[Mapping[str, Any]] | None,
        seed: int | None,
        flooded: set[BrokerId] = frozenset(),  # type: ignore[assignment]
    ) -> Network:
        strategy, offers = _strategies(routing, advertisements, looseness, sample)
        commons = Commons()

        def is_flooded(id: BrokerId) -> bool:
            while id not in flooded and id in parents:
                id = parents[id]
            return id in flooded

        def make(id: BrokerId) -> TreeRouter:
            children = topology.children_of(parents, id)
            role = Role(parents.get(id), children, is_flooded(id))
            return TreeRouter(id, strategy, offers, role, commons=commons)

        net = cls._made(make, names, edges, offers, seed, acyclic=True)
        net._parents = parents
        return net

    @classmethod
    def graph(
        cls,
        edges: Iterable[tuple[BrokerId, BrokerId]],
        routing: str = "covering",
        advertisements: str | None = None,
        *,
        costs: Mapping[tuple[BrokerId, BrokerId], int] | None = None,
        seed: int | None = None,
    ) -> Network:
        """Any connected graph; cycles make it survive the loss of links and brokers.

        Notifications take the tree of shortest paths from where they are published; `costs` are
        lengths of links, otherwise all are 1. With `routing="flooding"` every notification goes
        everywhere, once; with `"first-arrival"` each subscription has a tree of its own.
        """
        edges = list(edges)
        names = topology.brokers_of(edges)
        topology.check_edges(edges)
        topology.check_connected(names, edges)
        check_choice("routing strategy for graphs", routing, GRAPH_ROUTINGS)
        if advertisements is not None:
            check_reduction(advertisements)
            if routing == "first-arrival":
                raise InvalidConfiguration(
                    f"with routing={routing!r} advertisements go nowhere; leave them out, or use "
                    "another strategy"
                )
        lengths = _lengths(costs or {}, edges)
        commons = Commons()

        def make(id: BrokerId) -> Router | LiveRouter:
            if routing == "first-arrival":
                return FirstArrivalRouter(id)
            return GraphRouter(id, routing, advertisements, lengths.get(id), commons=commons)

        return cls._made(make, names, edges, advertisements, seed)

    @classmethod
    def rendezvous(
        cls,
        brokers: int | Iterable[BrokerId],
        mapping: str = "types",
        routing: str | None = None,
        advertisements: str | None = None,
        *,
        axes: Iterable[tuple[str, Any, Any]] = (),
        attribute: str = "topic",
        types: EventTypes | None = None,
        schemas: bool = False,
        store: str = "path",
        catch_all: bool = False,
        digit_bits: int = 4,
        leaves: int = 16,
        seed: int | None = None,
    ) -> Network:
        """Brokers that all reach each other; filters and notifications meet at a third one.

        The mapping says where. `types`: one place for each event type, with a tree of brokers
        towards it. `topics`: likewise for each value of `attribute`, filtered at the edge.
        `boxes` and the three key mappings cut up the space of some attributes, given as `axes` of
        (name, lowest, highest). A filter that a mapping cannot carry is refused, unless there is a
        place that is asked for every notification (`catch_all`).

        Only `types` know a strategy of `routing`, covering if none is given; advertisements, so
        that notifications need not pass the meeting place; and `schemas`: event types that are
        declared at their place (`declare`) and checked there.

        >>> net = Network.rendezvous(4, "boxes", axes=[("price", 0, 1000)])
        >>> _ = net.client(at=1).subscribe("price > 100")
        >>> _ = net.client(at=1).subscribe("color = 'red'")
        Traceback (most recent call last):
        ...
        stentor.errors.UnsupportedMapping: ...
        """
        names = _names(brokers)
        check_choice("rendezvous mapping", mapping, MAPPINGS)
        if mapping != "types" and routing is not None:
            raise InvalidConfiguration(
                f"filters of the mapping {mapping!r} travel one by one; leave routing out"
            )
        strategy = routing or "covering"
        check_reduction(strategy)
        if mapping == "topics" and catch_all:
            raise InvalidConfiguration("topics have no catch_all place; leave it out")
        if mapping != "types" and (advertisements is not None or schemas or types is not None):
            raise InvalidConfiguration(
                f"advertisements, types and schemas are for the mapping 'types', not {mapping!r}"
            )

        def ring(id: BrokerId) -> Pastry:
            return Pastry(id, digit_bits=digit_bits, leaves=leaves)

        def dimensions() -> list[Axis]:
            given: list[Any] = list(axes)
            found = [Axis(*axis) for axis in given if isinstance(axis, tuple) and len(axis) == 3]
            if not found or len(found) < len(given):
                raise InvalidConfiguration(
                    f"the mapping {mapping!r} needs attributes with their domains; "
                    "give axes=[(name, lowest, highest), ...]"
                )
            return found

        make: Callable[[BrokerId], Router]
        match mapping:
            case "types":

                def make(id: BrokerId) -> Router:
                    return TypeRendezvousRouter(
                        ring(id),
                        strategy=cast(Any, strategy),
                        store=cast(Any, store),
                        catch_all=catch_all,
                        types=types,
                        advertisements=cast(Any, advertisements or False),
                        schemas=schemas,
                    )

            case "topics":

                def make(id: BrokerId) -> Router:
                    return TopicRouter(ring(id), attribute=attribute)

            case "boxes":
                space = BoxSpace(dimensions(), catch_all=catch_all)

                def make(id: BrokerId) -> Router:
                    return BoxRouter(id, space)

            case _:
                kinds = (AttributeSplit, KeySpaceSplit, SelectiveAttribute)
                keys = kinds[MAPPINGS.index(mapping) - 3](dimensions(), catch_all=catch_all)

                def make(id: BrokerId) -> Router:
                    return KeyRendezvousRouter(id, keys)

        return cls._made(make, names, None, advertisements, seed)

    def declare(self, at: BrokerId, declaration: EventType) -> None:
        """Declare an event type from a broker, where types have `schemas`."""
        router = self.router(at)
        if not isinstance(router, TypeRendezvousRouter):
            raise InvalidConfiguration(
                "event types are declared in networks made by "
                "Network.rendezvous(..., 'types', schemas=True)"
            )
        self.apply(at, router.declare(declaration))

    @classmethod
    def cells(
        cls,
        cells: Mapping[str | int, Iterable[BrokerId]],
        edges: Iterable[tuple[str | int, str | int]],
        routing: str | Strategy = "covering",
        advertisements: str | Strategy | None = None,
        *,
        seed: int | None = None,
    ) -> Network:
        """A tree of cells, each of several brokers that stand in for each other.

        >>> net = Network.cells({"west": [1, 2], "east": [3, 4]}, [("west", "east")])
        >>> reader, writer = net.client(at=4), net.client(at=2)
        >>> _ = reader.subscribe("x > 1")
        >>> _ = net.fail_broker(1), net.fail_broker(3)
        >>> net.settle()
        >>> _ = writer.publish({"x": 2})
        >>> net.settle()
        >>> len(reader.received)
        1
        """
        layout = Cells(cells, edges)
        strategy, offers = _strategies(routing, advertisements)

        def make(id: BrokerId) -> Router:
            return CellRouter(CarryingRouter(id, strategy, offers), layout)

        return cls._made(make, layout.brokers, list(layout.links), offers, seed)

    @classmethod
    def mesh(
        cls,
        brokers: int | Iterable[BrokerId],
        routing: str = "identity",
        *,
        seed: int | None = None,
    ) -> Network:
        """Subscription flooding: every broker knows what all others want, and sends directly.

        `simple` announces each subscription, `identity` each distinct filter, `summary` one filter
        around all of a broker's subscriptions.
        """
        names = _names(brokers)

        def make(id: BrokerId) -> Router:
            if routing == "summary":
                return MatchEarlyRouter(id)
            return SubscriptionFloodingRouter(id, cast(Any, routing))

        return cls._made(make, names, None, None, seed)

    @classmethod
    def gossip(
        cls,
        brokers: int | Iterable[BrokerId],
        *,
        fanout: int = 4,
        mode: str = "push",
        ttl: int | None = None,
        view: int | None = None,
        seed: int = 0,
    ) -> Network:
        """Basic gossip: each broker tells a few others at random. Delivery is likely, not sure."""
        names = _names(brokers)

        def make(id: BrokerId) -> Router:
            rng = random.Random(f"{seed}/{id}")
            return GossipRouter(id, rng, fanout=fanout, ttl=ttl, view=view, mode=cast(Any, mode))

        return cls._made(make, names, None, None, seed)

    @classmethod
    def informed_gossip(
        cls,
        edges: Iterable[tuple[BrokerId, BrokerId]],
        *,
        phi: int,
        tau: float,
        seed: int = 0,
    ) -> Network:
        """Subscriptions travel `phi` hops; where none is known, a share `tau` of links is tried."""
        edges = list(edges)
        names = topology.brokers_of(edges)
        topology.check_edges(edges)
        topology.check_connected(names, edges)

        def make(id: BrokerId) -> Router:
            return SemiProbabilisticRouter(id, random.Random(f"{seed}/{id}"), phi=phi, tau=tau)

        return cls._made(make, names, edges, None, seed)

    @classmethod
    def group_gossip(
        cls,
        groups: Sequence[Any],
        *,
        fanout: int = 4,
        floor: float = 0.05,
        delegates: int = 2,
        seed: int = 0,
    ) -> Network:
        """Gossip among the interested, in a tree of groups given as nested lists of brokers."""
        tree = GroupTree(groups, delegates=delegates)

        def make(id: BrokerId) -> Router:
            rng = random.Random(f"{seed}/{id}")
            return GroupRouter(id, tree, rng, fanout=fanout, floor=floor)

        return cls._made(make, tree.brokers, None, None, seed)

    @classmethod
    def _made(
        cls,
        make: Callable[[BrokerId], Router | LiveRouter],
        names: list[BrokerId],
        edges: list[tuple[BrokerId, BrokerId]] | None,
        offers: object,
        seed: int | None,
        *,
        acyclic: bool = False,
        record: bool = True,
    ) -> Network:
        routers = {name: make(name) for name in names}
        return cls(
            routers,
            edges,
            seed=seed,
            advertisements=offers is not None,
            make=make,
            acyclic=acyclic,
            record=record,
        )


def _names(brokers: int | Iterable[BrokerId]) -> list[BrokerId]:
    """The brokers, or as many as there shall be, numbered from 1."""
    given = list(range(1, brokers + 1)) if isinstance(brokers, int) else list(brokers)
    names = topology.brokers_of((), given)
    if not names:
        raise InvalidTopology("a network needs at least one broker")
    return names


def _lengths(
    costs: Mapping[tuple[BrokerId, BrokerId], int], edges: Sequence[tuple[BrokerId, BrokerId]]
) -> dict[BrokerId, dict[BrokerId, int]]:
    """For each broker the costs of its links."""
    links = {frozenset(edge) for edge in edges}
    lengths: dict[BrokerId, dict[BrokerId, int]] = {}
    for (a, b), cost in costs.items():
        if frozenset((a, b)) not in links:
            raise InvalidTopology(f"there is no link {a!r}-{b!r} that could cost {cost}")
        lengths.setdefault(a, {})[b] = cost
        lengths.setdefault(b, {})[a] = cost
    return lengths


def _strategies(
    routing: str | Strategy,
    advertisements: str | Strategy | None,
    looseness: float = 0.0,
    sample: Iterable[Mapping[str, Any]] | None = None,
) -> tuple[Strategy, Strategy | None]:
    if isinstance(routing, Strategy) and (looseness or sample is not None):
        raise InvalidConfiguration("give looseness and sample in the Strategy itself")
    strategy = Strategy.of(routing, looseness, sample)
    return strategy, None if advertisements is None else Strategy.of(advertisements)
