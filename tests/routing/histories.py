"""Generated histories of whole networks, held against the formal model.

A history is made from a seed: an overlay, clients, and a random sequence of what clients do, of
messages that arrive in any order that the links allow, and of links and brokers that fail where the
overlay claims to survive it. What must hold is the same for all overlays:

  - the recorded trace keeps every promise of the service, and on trees FIFO and causal order too;
  - a publication when all is quiet reaches exactly the clients that the model says;
  - on trees, under exact strategies, over exactly the links of the smallest subtree, and no
    broker holds a filter that another one from the same neighbor covers;
  - when everything is withdrawn, every table is empty.

Run as a program it takes a number of histories and a first seed, and prints what it ran:

    python tests/routing/histories.py 10000
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, pairwise, product
from typing import Any

from stentor.filters import Filter
from stentor.matching import BruteForce
from stentor.model import Notification
from stentor.research.trees import CarryingRouter
from stentor.routing.table import Neighbor
from stentor.routing.tree import TreeRouter
from stentor.simulation import Client, Network, topology
from stentor.simulation.trees import REPLACEMENTS

EXACT = ("simple", "identity", "covering", "merging")
EVENTS: list[dict[str, Any]] = [
    *({"x": x, "y": y} for x in range(6) for y in range(5)),
    *({"x": x} for x in range(6)),
    {"x": "text"},
    {"y": 1},
    {"z": 1},
]


@dataclass(frozen=True)
class Style:
    """What clients of an overlay ask for and publish."""

    filter: Callable[[random.Random], str]
    event: Callable[[random.Random], Notification]


def any_filter(rng: random.Random) -> str:
    low = rng.randint(0, 4)
    high = rng.randint(low, 5)
    span = f"x is int and x between {low} and {high}"
    kind = rng.random()
    if kind < 0.45:
        return span
    if kind < 0.65:
        other = rng.randint(0, 3)
        return f"{span} and y is int and y between {other} and {rng.randint(other, 4)}"
    if kind < 0.75:
        return f"y is int and y between {low} and {high}"
    if kind < 0.85:
        return f"x = {low} or y = {high}"
    return rng.choice(
        [
            "true",
            "exists x",
            "x != 2",
            "x in (1, 4)",
            "y is missing",
            "x < 3",
            "x >= 3",
            "x is string",
        ]
    )


def any_event(rng: random.Random) -> Notification:
    return Notification(rng.choice(EVENTS))


def typed_filter(rng: random.Random) -> str:
    wanted = rng.choice(["isa quote", "isa trade", "isa quote.bond", "isa alarm"])
    return rng.choice([wanted, f"{wanted} and ({any_filter(rng)})"])


def typed_event(rng: random.Random) -> Notification:
    kind = rng.choice(["quote", "trade", "quote.bond", "quote.bond.junk", "alarm"])
    return Notification(rng.choice(EVENTS), type=kind)


def topic_filter(rng: random.Random) -> str:
    wanted = rng.choice(["topic = 'a'", "topic = 'b'", "topic in ('a', 'c')"])
    return rng.choice([wanted, f"{wanted} and ({any_filter(rng)})"])


def topic_event(rng: random.Random) -> Notification:
    return Notification({**rng.choice(EVENTS), "topic": rng.choice("abcd")})


def box_filter(rng: random.Random) -> str:
    low, other = rng.randint(0, 4), rng.randint(0, 4)
    span = f"x between {low} and {rng.randint(low, 5)}"
    return rng.choice(
        [f"{span} and y >= {other}", f"{span} and exists y", f"x != 3 and y < {other}"]
    )


def box_event(rng: random.Random) -> Notification:
    return Notification({"x": rng.randint(0, 5), "y": rng.randint(0, 5)})


ANY = Style(any_filter, any_event)
TYPED = Style(typed_filter, typed_event)
TOPICS = Style(topic_filter, topic_event)
BOXES = Style(box_filter, box_event)


@dataclass(frozen=True)
class Overlay:
    """A way to route, and what it claims."""

    name: str
    make: Callable[[random.Random, int], Network]
    style: Style = ANY
    advertisements: bool = False
    #: Whether it is a tree whose strategy forwards nothing in vain.
    exact: bool = False
    #: Which faults it survives: "links" that come back, "any" that leave it connected, "brokers".
    faults: str = ""
    ordered: bool = False
    #: Whether its links are between the peers of a tree, and can be replaced.
    peers: bool = False

    @property
    def of_brokers(self) -> bool:
        """Whether live brokers route so; others are routing of the literature."""
        return self.name.startswith(("tree", "hierarchy", "hybrid", "graph", "rendezvous types"))


def random_tree(rng: random.Random, most: int = 8) -> list[tuple[int, int]]:
    return [(rng.randint(1, i - 1), i) for i in range(2, rng.randint(2, most) + 1)]


def random_graph(rng: random.Random) -> list[tuple[int, int]]:
    edges = random_tree(rng, 7)
    size = len(edges) + 1
    for _ in range(rng.randint(0, 5)):
        a, b = sorted((rng.randint(1, size), rng.randint(1, size)))
        if a != b and (a, b) not in edges:
            edges.append((a, b))
    return edges


def _overlays() -> list[Overlay]:
    found: list[Overlay] = []

    def tree(routing: str, offers: str | None, looseness: float = 0.0) -> None:
        def make(rng: random.Random, seed: int) -> Network:
            sample = EVENTS if looseness else None
            return Network.tree(
                random_tree(rng), routing, offers, looseness=looseness, sample=sample,
                engine=BruteForce, planned=rng.random() < 0.3, seed=seed,
            )  # fmt: skip

        name = f"tree {routing}" + (f" {looseness}" if looseness else "")
        found.append(
            Overlay(
                name + (f" / {offers}" if offers else ""),
                make,
                advertisements=offers is not None,
                exact=routing != "flooding" and not looseness,
                faults="links",
                ordered=True,
                peers=True,
            )
        )

    def hierarchy(routing: str) -> None:
        found.append(
            Overlay(
                f"hierarchy {routing}",
                lambda rng, seed: Network.hierarchy(random_tree(rng), routing, root=1, seed=seed),
                faults="links",
                ordered=True,
            )
        )

    def graph(routing: str, offers: str | None) -> None:
        found.append(
            Overlay(
                f"graph {routing}" + (f" / {offers}" if offers else ""),
                lambda rng, seed: Network.graph(random_graph(rng), routing, offers, seed=seed),
                advertisements=offers is not None,
                faults="any",
            )
        )

    def hybrid(rng: random.Random, seed: int, advertised: bool = False) -> Network:
        core = random_tree(rng, 4)
        size = len(core) + 1
        below = {100 + i: rng.randint(1, size) for i in range(rng.randint(1, 3))}
        below |= {200 + i: rng.choice(sorted(below)) for i in range(rng.randint(0, 3))}
        flooded = [1] if rng.random() < 0.5 else []
        offers = rng.choice(EXACT) if advertised else None
        return Network.hybrid(core, below, rng.choice(EXACT), offers, flooded=flooded, seed=seed)

    tree("flooding", None)
    for routing in EXACT:
        tree(routing, None)
        hierarchy(routing)
        graph(routing, None)
    for routing, offers in product(EXACT, EXACT):
        tree(routing, offers)
    for looseness in (0.1, 0.4, 1.0):
        tree("merging", None, looseness)
    tree("merging", "covering", 0.3)
    graph("flooding", None)
    graph("first-arrival", None)
    graph("covering", "identity")
    graph("simple", "merging")
    found.append(Overlay("hybrid", hybrid, ordered=True))
    found.append(
        Overlay(
            "hybrid advertised",
            lambda rng, seed: hybrid(rng, seed, advertised=True),
            advertisements=True,
            ordered=True,
        )
    )
    axes = [("x", 0, 5), ("y", 0, 5)]
    for mapping, style in {
        "types": TYPED,
        "topics": TOPICS,
        "boxes": BOXES,
        "attribute-split": BOXES,
        "key-space-split": BOXES,
        "selective-attribute": BOXES,
    }.items():

        def ring(rng: random.Random, seed: int, mapping: str = mapping) -> Network:
            options: dict[str, Any] = {"leaves": rng.choice([2, 4]), "digit_bits": 1}
            if mapping == "types":
                options["routing"] = rng.choice(EXACT)
            return Network.rendezvous(rng.randint(2, 8), mapping, axes=axes, seed=seed, **options)

        found.append(Overlay(f"rendezvous {mapping}", ring, style, faults="brokers"))

    def advertised_ring(rng: random.Random, seed: int) -> Network:
        return Network.rendezvous(
            rng.randint(2, 8), "types", rng.choice(EXACT), rng.choice(EXACT), leaves=2,
            digit_bits=1, store=rng.choice(["path", "root"]), seed=seed,
        )  # fmt: skip

    found.append(
        Overlay(
            "rendezvous types / any", advertised_ring, TYPED, advertisements=True, faults="brokers"
        )
    )

    def cells(rng: random.Random, seed: int) -> Network:
        members = {
            c: [10 * c + i for i in range(rng.randint(1, 3))] for c in range(rng.randint(1, 4))
        }
        edges = [(rng.randint(0, c - 1), c) for c in range(1, len(members))]
        return Network.cells(members, edges, rng.choice(EXACT), seed=seed)

    found.append(Overlay("cells", cells))
    for routing in ("simple", "identity", "summary"):

        def mesh(rng: random.Random, seed: int, routing: str = routing) -> Network:
            return Network.mesh(rng.randint(2, 7), routing, seed=seed)

        found.append(Overlay(f"mesh {routing}", mesh, faults="brokers"))
    return found


OVERLAYS = _overlays()


class History:
    """One generated run."""

    def __init__(self, overlay: Overlay, seed: int) -> None:
        self.overlay = overlay
        self.rng = random.Random(f"{overlay.name}/{seed}")
        self.net = overlay.make(self.rng, seed)
        self.clients = [self._client() for _ in range(self.rng.randint(1, 5))]
        self.wanted: dict[str, dict[Any, Filter]] = {c.id: {} for c in self.clients}
        self.offered: dict[str, dict[Any, Filter]] = {c.id: {} for c in self.clients}
        self.newcomers = count(1000)
        self.faulty = overlay.faults != "" and self.rng.random() < 0.4

    def _client(self) -> Client:
        return self.net.client(at=self.rng.choice(self.net.brokers))

    def run(self) -> None:
        rng = self.rng
        if self.overlay.advertisements:
            for client in self.clients:
                if rng.random() < 0.7:
                    self.advertise(client)
        for _ in range(rng.randint(3, 25)):
            self.act()
            for _ in range(rng.randint(0, 5)):
                self.net.step()
        self.net.settle()
        self.quiet_publications()
        orders = ("fifo", "causal") if self.overlay.ordered and not self.faulty else ()
        report = self.net.check(order=orders, settling=not self.faulty)
        assert report.ok, report
        self.antichains()
        self.withdraw_everything()

    # -- what happens

    def act(self) -> None:
        rng = self.rng
        client = rng.choice(self.clients)
        kind = rng.random()
        if self.faulty and kind < 0.12:
            self.fault()
        elif kind < 0.45:
            filter = Filter(self.overlay.style.filter(rng))
            self.wanted[client.id][client.subscribe(filter)] = filter
        elif kind < 0.6 and self.wanted[client.id]:
            id = rng.choice(sorted(self.wanted[client.id]))
            del self.wanted[client.id][id]
            client.unsubscribe(id)
        elif kind < 0.68 and self.overlay.advertisements:
            self.advertise(client)
        elif kind < 0.75 and self.offered[client.id]:
            id = rng.choice(sorted(self.offered[client.id]))
            del self.offered[client.id][id]
            client.unadvertise(id)
        elif kind < 0.78 and len(self.clients) > 1:
            self.leave(client)
        elif kind < 0.81:
            self.join()
        else:
            client.publish(self.overlay.style.event(rng))

    def advertise(self, client: Client) -> None:
        broad = "isa quote" if self.overlay.style is TYPED else "true"
        filter = Filter(self.rng.choice([self.overlay.style.filter(self.rng), broad]))
        self.offered[client.id][client.advertise(filter)] = filter

    def leave(self, client: Client) -> None:
        client.leave()
        self.clients.remove(client)

    def join(self) -> None:
        client = self._client()
        self.clients.append(client)
        self.wanted[client.id], self.offered[client.id] = {}, {}

    def fault(self) -> None:
        net, rng = self.net, self.rng
        if self.overlay.faults == "brokers":
            if rng.random() < 0.5 or len(net.brokers) < 3:
                net.add_broker(next(self.newcomers))
            else:
                self.lose(rng.choice(net.brokers))
        elif self.overlay.faults == "any" and rng.random() < 0.3 and len(net.brokers) > 2:
            # A graph that falls apart is healed; its brokers may die for good.
            broker = rng.choice(net.brokers)
            self.lose(broker)
            self.heal()
        elif net.links and self.overlay.peers and rng.random() < 0.6:
            self.replace_link()
        elif net.links:
            a, b = rng.choice(net.links)
            net.disconnect(a, b)
            for _ in range(rng.randint(0, 8)):
                net.step()
            if self.overlay.faults == "any" and rng.random() < 0.5:
                self.heal()
            elif self.overlay.peers:
                # In the middle of a planned change, another link may have taken its place.
                net.settle()
                self.heal()
            else:
                net.connect(a, b)

    def replace_link(self) -> None:
        net, rng = self.net, self.rng
        if net.is_changing:
            return
        a, b = rng.choice(net.links)
        rest = [link for link in net.links if set(link) != {a, b}]
        new = [rng.choice(sorted(topology.reachable(end, rest))) for end in (a, b)]
        rng.shuffle(new)
        if set(new) != {a, b}:
            how = rng.choice(REPLACEMENTS) if net.carried else "strawman"
            net.replace_link((a, b), (new[0], new[1]), how)

    def lose(self, broker: Any) -> None:
        self.clients = [c for c in self.clients if c.at != broker]
        self.net.fail_broker(broker)
        if not self.clients:
            self.join()

    def heal(self) -> None:
        brokers = self.net.brokers
        reached = topology.reachable(brokers[0], self.net.links)
        for broker in brokers:
            if broker not in reached:
                self.net.connect(brokers[0], broker)
                reached = topology.reachable(brokers[0], self.net.links)

    # -- what must hold

    def quiet_publications(self) -> None:
        for _ in range(self.rng.randint(2, 8)):
            publisher = self.rng.choice(self.clients)
            event = self.overlay.style.event(self.rng)
            had = {client.id: len(client.received) for client in self.clients}
            before = self.net.counters.copy()
            publisher.publish(event)
            self.net.settle()
            got = [c.id for c in self.clients for _ in c.received[had[c.id] :]]
            expected = [c for c in self.clients if self.is_owed(publisher, c, event)]
            assert sorted(got) == sorted(c.id for c in expected), (
                f"{event!r} of {publisher!r} reached {got}, not {expected}\n{self.net.trace}"
            )
            if self.overlay.exact:
                used = (self.net.counters - before).links["notification"]
                assert used == Counter(self.smallest_subtree(publisher, expected)), used

    def is_owed(self, publisher: Client, client: Client, event: Notification) -> bool:
        offered = not self.overlay.advertisements or any(
            filter.matches(event) for filter in self.offered[publisher.id].values()
        )
        return offered and any(f.matches(event) for f in self.wanted[client.id].values())

    def smallest_subtree(self, publisher: Client, expected: list[Client]) -> set[Any]:
        links = self.net.links
        ways = [topology.path(publisher.at, client.at, links) for client in expected]
        return {link for way in ways for link in pairwise(way)}

    def antichains(self) -> None:
        for broker in self.net.brokers:
            router = self.net.router(broker)
            if isinstance(router, TreeRouter | CarryingRouter):
                layer = router.plane.subscriptions
                if layer.strategy.name in ("covering", "merging"):
                    for neighbor in layer.neighbors:
                        held = list(layer.table.at(Neighbor(neighbor)).values())
                        pairs = [(f, g) for f in held for g in held if f is not g and f.covers(g)]
                        assert not pairs, (broker, neighbor, pairs)

    def withdraw_everything(self) -> None:
        for client in self.clients:
            if self.rng.random() < 0.5:
                client.leave()
            else:
                for id in self.wanted[client.id]:
                    client.unsubscribe(id)
                for id in self.offered[client.id]:
                    client.unadvertise(id)
            for _ in range(self.rng.randint(0, 4)):
                self.net.step()
        self.net.settle()
        sizes = self.net.table_sizes()
        left = {b: s for b, s in sizes.items() if s.total or s.advertisements}
        assert not left, left
        for broker in self.net.brokers:
            router = self.net.router(broker)
            assert not isinstance(router, TreeRouter | CarryingRouter) or router.plane.is_empty


def run_history(overlay: Overlay, seed: int) -> None:
    try:
        History(overlay, seed).run()
    except BaseException as error:
        error.add_note(f"history of {overlay.name!r} with seed {seed}")
        raise


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    chosen = sys.argv[3] if len(sys.argv) > 3 else ""
    overlays = [o for o in OVERLAYS if o.name.startswith(chosen)]
    done: Counter[str] = Counter()
    start = time.perf_counter()
    for i in range(wanted):
        overlay = overlays[i % len(overlays)]
        run_history(overlay, first + i // len(overlays))
        done[overlay.name] += 1
    seconds = time.perf_counter() - start
    print(f"{wanted} histories of {len(overlays)} overlays, none wrong, {seconds:.0f} s")
    for name, number in done.items():
        print(f"  {number:6} {name}")


if __name__ == "__main__":
    main()
