"""The worked examples of the routing sheets on trees, number for number."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from stentor.filters import Filter
from stentor.model import Notification
from stentor.routing import FilterId, Outputs, Send, Strategy, TreeRouter
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import BrokerId
from stentor.routing.table import Destination, Local, Neighbor
from stentor.simulation import Client, Network

EXACT = ("simple", "identity", "covering", "merging")


def within(low: int, high: int) -> Filter:
    """An interval of integers, so that [0,10] and [11,20] have nothing between them."""
    return Filter(f"x is int and x between {low} and {high}")


def entries(net: Network, broker: BrokerId) -> dict[str, set[Filter]]:
    """A broker's table, with clients and neighbors by name."""
    router = net.router(broker)
    assert isinstance(router, TreeRouter)
    table = router.plane.subscriptions.table
    return {name_of(d): set(table.at(d).values()) for d in table.destinations}


def name_of(destination: Destination) -> str:
    """Of a client, or of a neighbor; a client's inbox is known by both its names."""
    return str(destination.id).partition("@")[0]


def remote_entries(net: Network) -> int:
    return sum(size.remote for size in net.table_sizes().values())


def all_entries(net: Network) -> int:
    return sum(size.total for size in net.table_sizes().values())


def cost_of(net: Network, *steps: Any) -> list[int]:
    """Subscription messages that each step causes, until all is quiet again."""
    costs = []
    for step in steps:
        before = net.counters.subscriptions
        step()
        net.settle()
        costs.append(net.counters.subscriptions - before)
    return costs


def forwards_of(net: Network, publisher: Client, **attributes: Any) -> int:
    before = net.counters.notifications
    publisher.publish(attributes)
    net.settle()
    return net.counters.notifications - before


# -- one step at broker 1, which has the neighbors 2 and 3, and S where S is a neighbor (03/§5.1)


class Bench:
    """A router, and what each of its neighbors holds for it, learned from its messages alone."""

    def __init__(self, routing: str, *neighbors: BrokerId) -> None:
        self.router = TreeRouter(1, Strategy(routing))
        self.held: dict[BrokerId, dict[Any, Filter]] = {n: {} for n in neighbors}
        for neighbor in neighbors:
            assert self.router.link_up(neighbor) == []

    def hears(
        self, sender: BrokerId, *, add: Iterable[Filter] = (), remove: Iterable[Filter] = ()
    ) -> list[BrokerId]:
        update = SubscriptionUpdate(tuple((f, f) for f in add), tuple(remove))
        return self._carry_out(self.router.receive(sender, update))

    def subscribes(self, client: str, filter: Filter, number: int = 1) -> list[BrokerId]:
        return self._carry_out(self.router.subscribe(FilterId(client, number), filter))

    def unsubscribes(self, client: str, number: int = 1) -> list[BrokerId]:
        return self._carry_out(self.router.unsubscribe(FilterId(client, number)))

    def _carry_out(self, outputs: Outputs) -> list[BrokerId]:
        """To whom a message went; no neighbor may get two in one step (R-03.11)."""
        told: list[BrokerId] = []
        for output in outputs:
            assert isinstance(output, Send)
            assert isinstance(output.message, SubscriptionUpdate)
            held = self.held[output.to]
            for key, filter in output.message.added:
                assert key not in held
                held[key] = filter
            for key in output.message.removed:
                del held[key]
            told.append(output.to)
        assert len(told) == len(set(told))
        return sorted(told, key=str)

    def holds(self, neighbor: BrokerId) -> set[Filter]:
        return set(self.held[neighbor].values())

    @property
    def table(self) -> set[tuple[Filter, Any]]:
        table = self.router.plane.subscriptions.table
        return {(f, d.id) for d in table.destinations for f in table.at(d).values()}


F, G = within(0, 10), within(2, 5)


@pytest.mark.spec("03/X-03.1", "R-03.09")
def test_a_notification_goes_to_matching_clients_and_matching_neighbors_only() -> None:
    bench = Bench("simple", 2, 3)
    bench.subscribes("X2", within(0, 4))
    bench.router.receive(2, SubscriptionUpdate(((FilterId("elsewhere", 1), within(2, 9)),), ()))
    bench.router.receive(3, SubscriptionUpdate(((FilterId("nowhere", 1), within(5, 9)),), ()))
    assert bench.router.route([Notification({"x": 3})], None) == {
        Neighbor(2): [0],
        Local("X2"): [0],
    }


@pytest.mark.spec("03/X-03.2", "R-03.17")
def test_simple_routing_tells_every_neighbor() -> None:
    bench = Bench("simple", 2, 3)
    assert bench.subscribes("X1", F) == [2, 3]
    assert bench.table == {(F, "X1")}
    assert bench.held == {2: {FilterId("X1", 1): F}, 3: {FilterId("X1", 1): F}}


@pytest.mark.spec("03/X-03.3", "R-03.18")
def test_identity_passes_on_what_has_no_twin() -> None:
    bench = Bench("identity", 2, 3, "S")
    assert bench.hears("S", add=[F]) == [2, 3]
    assert bench.table == {(F, "S")}
    assert bench.holds(2) == bench.holds(3) == {F}


@pytest.mark.spec("03/X-03.4", "R-03.18")
def test_identity_tells_only_the_neighbor_from_which_the_twin_came() -> None:
    bench = Bench("identity", 2, 3)
    twin = Filter("x is int and x >= 0 and x <= 10")
    bench.hears(3, add=[twin])
    assert bench.subscribes("S", F) == [3]
    assert bench.table == {(F, 3), (F, "S")}


@pytest.mark.spec("03/X-03.5", "R-03.19", "03/8.1")
def test_covering_tells_only_the_neighbor_from_which_the_coverer_came() -> None:
    bench = Bench("covering", 2, 3)
    bench.hears(3, add=[F])
    assert bench.subscribes("S", G) == [3]
    assert bench.table == {(F, 3), (G, "S")}
    assert bench.holds(2) == {F}
    assert bench.holds(3) == {G}


@pytest.mark.spec("03/X-03.6", "R-03.19")
def test_a_larger_filter_takes_the_place_of_the_one_it_covers() -> None:
    bench = Bench("covering", 2, 3, "S")
    bench.hears("S", add=[G])
    assert bench.hears("S", add=[F], remove=[G]) == [2, 3]
    assert bench.table == {(F, "S")}
    assert bench.holds(2) == bench.holds(3) == {F}


@pytest.mark.spec("03/X-03.7", "R-03.19")
def test_a_withdrawal_is_passed_on() -> None:
    bench = Bench("covering", 2, 3, "S")
    bench.hears("S", add=[F])
    assert bench.hears("S", remove=[F]) == [2, 3]
    assert bench.table == set()
    assert bench.holds(2) == bench.holds(3) == set()


@pytest.mark.spec("03/X-03.8", "R-03.19")
def test_a_withdrawal_goes_only_where_the_filter_was_announced() -> None:
    bench = Bench("covering", 2, 3)
    bench.subscribes("S", G)
    bench.hears(3, add=[F])
    assert bench.unsubscribes("S") == [3]
    assert bench.table == {(F, 3)}
    assert bench.holds(2) == {F}
    assert bench.holds(3) == set()


@pytest.mark.spec("03/X-03.9", "R-03.19", "03/8.3", "03/P8")
def test_what_a_withdrawal_uncovers_goes_along_but_not_back() -> None:
    bench = Bench("covering", 2, 3)
    bench.subscribes("S", F)
    bench.hears(2, add=[G])
    assert bench.unsubscribes("S") == [2, 3]
    assert bench.holds(2) == set()
    assert bench.holds(3) == {G}


@pytest.mark.spec("03/X-03.10", "R-03.19", "03/8.3")
def test_equal_uncovered_filters_of_two_destinations_reach_both() -> None:
    bench = Bench("covering", 2, 3, "S")
    bench.hears("S", add=[F])
    bench.hears(2, add=[G])
    twin = Filter("x is int and x >= 2 and x <= 5")
    told = bench.hears("S", add=[twin], remove=[F])
    assert bench.table == {(G, "S"), (G, 2)}
    # The sheet counts messages to 2 and 3; S, which asks for no more than 2 does, is told of 2.
    assert {2, 3} <= set(told)
    assert bench.holds(2) == bench.holds(3) == bench.holds("S") == {G}


# -- the line of four (03/§5.2)

LINE = [(1, 2), (2, 3), (3, 4)]
PLACES = {"a": (1, 0, 10), "b": (2, 2, 5), "c": (4, 0, 10), "d": (3, 5, 20), "e": (1, 11, 20)}


class Line:
    """The five clients of the example, with what their subscriptions cost one after the other."""

    def __init__(self, routing: str) -> None:
        self.net = Network.tree(LINE, routing)
        self.clients = {name: self.net.client(at=at, id=name) for name, (at, *_) in PLACES.items()}
        self.ids: dict[str, FilterId] = {}
        self.sub_costs = cost_of(
            self.net, *(lambda name=name: self._subscribe(name) for name in PLACES)
        )

    def _subscribe(self, name: str) -> None:
        _, low, high = PLACES[name]
        self.ids[name] = self.clients[name].subscribe(within(low, high))

    def unsubscribe(self, name: str) -> None:
        self.clients[name].unsubscribe(self.ids[name])


@pytest.mark.spec("03/5.2", "R-03.17", "R-03.18", "R-03.19", "R-03.20", "R-03.23")
@pytest.mark.parametrize(
    ("routing", "subs", "entry_counts", "unsubs", "total"),
    [
        ("simple", [3, 3, 3, 3, 3], (20, 15), [3, 3, 3, 3, 3], 30),
        ("identity", [3, 3, 3, 3, 3], (20, 15), [3, 3, 3, 3, 3], 30),
        ("covering", [3, 1, 3, 3, 2], (16, 11), [3, 3, 2, 3, 3], 26),
        ("merging", [3, 1, 3, 3, 3], (11, 6), [3, 3, 2, 3, 3], 27),
    ],
)
def test_the_line_costs_what_the_sheet_says(
    routing: str, subs: list[int], entry_counts: tuple[int, int], unsubs: list[int], total: int
) -> None:
    line = Line(routing)
    assert line.sub_costs == subs
    assert (all_entries(line.net), remote_entries(line.net)) == entry_counts
    assert cost_of(line.net, *(lambda n=n: line.unsubscribe(n) for n in "acedb")) == unsubs
    assert line.net.counters.subscriptions == total
    assert all_entries(line.net) == 0


@pytest.mark.spec("03/5.2", "R-03.19")
def test_the_covering_tables_of_the_line() -> None:
    net = Line("covering").net
    a, e, b, d = within(0, 10), within(11, 20), within(2, 5), within(5, 20)
    assert entries(net, 1) == {"a": {a}, "e": {e}, "2": {a, d}}
    assert entries(net, 2) == {"b": {b}, "1": {a, e}, "3": {a, d}}
    assert entries(net, 3) == {"d": {d}, "2": {a, e}, "4": {a}}
    assert entries(net, 4) == {"c": {a}, "3": {a, d}}


@pytest.mark.spec("03/5.2", "R-03.20")
def test_the_merging_tables_of_the_line() -> None:
    net = Line("merging").net
    a, e, b, d, merged = within(0, 10), within(11, 20), within(2, 5), within(5, 20), within(0, 20)
    assert entries(net, 1) == {"a": {a}, "e": {e}, "2": {merged}}
    assert entries(net, 2) == {"b": {b}, "1": {merged}, "3": {merged}}
    assert entries(net, 3) == {"d": {d}, "2": {merged}, "4": {a}}
    assert entries(net, 4) == {"c": {a}, "3": {merged}}


@pytest.mark.spec("03/5.2", "R-03.19", "03/P8")
@pytest.mark.parametrize(
    ("routing", "messages"),
    [
        (
            "covering",
            {
                (1, 2): (set(), {within(0, 10)}),
                (2, 3): ({within(2, 5)}, {within(0, 10)}),
                (3, 4): ({within(2, 5)}, {within(0, 10)}),
            },
        ),
        (
            "merging",
            {
                (1, 2): (set(), {within(0, 10)}),
                (2, 3): ({within(2, 5), within(11, 20)}, {within(0, 20)}),
                (3, 4): ({within(2, 5), within(5, 20)}, {within(0, 20)}),
            },
        ),
    ],
)
def test_the_messages_when_a_unsubscribes(
    routing: str, messages: dict[tuple[int, int], tuple[set[Filter], set[Filter]]]
) -> None:
    line = Line(routing)
    before = {b: announced(line.net, b) for b in line.net.brokers}
    line.unsubscribe("a")
    line.net.settle()
    seen = {}
    for broker in line.net.brokers:
        for neighbor, now in announced(line.net, broker).items():
            then = before[broker][neighbor]
            if now != then:
                seen[broker, neighbor] = (now - then, then - now)
    assert seen == messages


def announced(net: Network, broker: BrokerId) -> dict[BrokerId, set[Filter]]:
    """What a broker has told each neighbor."""
    router = net.router(broker)
    assert isinstance(router, TreeRouter)
    layer = router.plane.subscriptions
    return {n: set(layer.announced(n).values()) for n in layer.neighbors}


@pytest.mark.spec("03/5.2", "03/P5", "03/P11", "R-03.16")
@pytest.mark.parametrize("routing", ["flooding", *EXACT])
@pytest.mark.parametrize(
    ("at", "x", "receivers", "forwards"),
    [(1, 3, "abc", 3), (1, 7, "acd", 3), (1, 11, "de", 2), (4, 11, "de", 3), (1, 21, "", 0)],
)
def test_publications_on_the_line(
    routing: str, at: int, x: int, receivers: str, forwards: int
) -> None:
    line = Line(routing)
    sent = forwards_of(line.net, line.net.client(at=at), x=x)
    assert sent == (3 if routing == "flooding" else forwards)
    assert "".join(name for name, client in line.clients.items() if client.received) == receivers


@pytest.mark.spec("03/5.2", "R-03.18")
@pytest.mark.parametrize(
    ("routing", "costs"),
    [
        ("simple", [3, 3, 3, 3, 3, 3]),
        ("identity", [3, 0, 3, 0, 3, 3]),
        ("covering", [3, 0, 3, 0, 3, 3]),
    ],
)
def test_twins_on_the_line(routing: str, costs: list[int]) -> None:
    net = Network.tree(LINE, routing)
    clients = [net.client(at=1), net.client(at=1), net.client(at=4)]
    ids: list[FilterId] = []
    steps = [lambda c=c: ids.append(c.subscribe(within(0, 10))) for c in clients]
    steps += [lambda n=n, c=c: c.unsubscribe(ids[n]) for n, c in enumerate(clients)]
    assert cost_of(net, *steps) == costs


# -- the tree of seven (03/§5.3)

SEVEN = [(number // 2, number) for number in range(2, 8)]


def seven(routing: str, shape: str) -> Network:
    return (Network.tree if shape == "peer" else Network.hierarchy)(SEVEN, routing)


@pytest.mark.spec("03/5.3", "R-03.32")
@pytest.mark.parametrize(
    ("routing", "shape", "one", "same", "distinct"),
    [
        ("simple", "peer", (6, 7), (42, 42), 42),
        ("simple", "hierarchical", (2, 3), (10, 10), 10),
        ("identity", "peer", (6, 7), (12, 12), 42),
        ("covering", "peer", (6, 7), (12, 12), 42),
        ("identity", "hierarchical", (2, 3), (6, 6), 10),
        ("covering", "hierarchical", (2, 3), (6, 6), 10),
    ],
)
def test_the_tree_of_seven_costs_what_the_sheet_says(
    routing: str, shape: str, one: tuple[int, int], same: tuple[int, int], distinct: int
) -> None:
    net = seven(routing, shape)
    net.client(at=4).subscribe("x = 1")
    net.settle()
    holding = sum(size.total > 0 for size in net.table_sizes().values())
    assert (net.counters.subscriptions, holding) == one

    net = seven(routing, shape)
    for broker in net.brokers:
        net.client(at=broker).subscribe("x = 1")
        net.settle()
    assert (net.counters.subscriptions, remote_entries(net)) == same

    net = seven(routing, shape)
    for broker in net.brokers:
        net.client(at=broker).subscribe(f"x = {broker}")
    net.settle()
    assert remote_entries(net) == distinct


@pytest.mark.spec("03/5.3", "R-03.31", "R-03.16")
def test_an_unwanted_notification_on_the_tree_of_seven() -> None:
    net = seven("covering", "hierarchical")
    assert forwards_of(net, net.client(at=5), x=1) == 2
    assert set(net.counters.links["notification"]) == {(5, 2), (2, 1)}
    for routing, forwards in (("covering", 0), ("flooding", 6)):
        net = seven(routing, "peer")
        assert forwards_of(net, net.client(at=5), x=1) == forwards


# -- formulas (03/§5.4)


def random_tree(random: Random, size: int) -> list[tuple[int, int]]:
    return [(random.randrange(1, number), number) for number in range(2, size + 1)]


@pytest.mark.spec("03/5.4", "07/P-04", "R-03.16")
@pytest.mark.parametrize("seed", range(5))
def test_flooding_uses_every_link_once_and_sends_no_filters(seed: int) -> None:
    random = Random(seed)
    size = random.randint(3, 15)
    net = Network.tree(random_tree(random, size), "flooding", seed=seed)
    subscriber = net.client(at=random.choice(net.brokers))
    id = subscriber.subscribe("x > 0")
    publisher = net.client(at=random.choice(net.brokers))
    assert forwards_of(net, publisher, x=1) == size - 1
    assert len(subscriber.received) == 1  # a subscription acts at once, anywhere
    subscriber.unsubscribe(id)
    assert forwards_of(net, publisher, x=1) == size - 1
    assert net.counters.subscriptions == 0


@pytest.mark.spec("03/5.4", "R-03.17")
@pytest.mark.parametrize("seed", range(5))
def test_simple_routing_costs_a_message_per_link_and_an_entry_per_broker(seed: int) -> None:
    random = Random(seed)
    size = random.randint(3, 15)
    net = Network.tree(random_tree(random, size), "simple", seed=seed)
    clients = [net.client(at=random.choice(net.brokers)) for _ in range(6)]
    ids: list[FilterId] = []
    steps = [lambda client=client: ids.append(client.subscribe("x > 1")) for client in clients]
    assert cost_of(net, *steps) == [size - 1] * 6
    assert all_entries(net) == size * 6
    assert cost_of(net, lambda: clients[0].unsubscribe(ids[0])) == [size - 1]
    assert all_entries(net) == size * 5


@pytest.mark.spec("03/5.4", "R-03.18")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("shape", "per_link"), [("tree", 2), ("hierarchy", 1)])
def test_identity_routing_holds_each_distinct_filter_once_per_direction(
    seed: int, shape: str, per_link: int
) -> None:
    random = Random(seed)
    edges = random_tree(random, 10)
    net = getattr(Network, shape)(edges, "identity", seed=seed)
    distinct = 3
    for _ in range(60):
        net.client(at=random.choice(net.brokers)).subscribe(f"x = {random.randrange(distinct)}")
    net.settle()
    assert 0 < remote_entries(net) <= per_link * len(edges) * distinct


# -- the reference benchmark (03/§5.5)

FIFTEEN = [(number // 2, number) for number in range(2, 16)]


def measure(
    routing: str,
    *,
    seed: int,
    clients: int,
    publications: int,
    classes: bool = False,
    looseness: float = 0.0,
) -> dict[str, Any]:
    """Subscribe one after the other, publish, then let every second client unsubscribe."""
    random = Random(seed)
    sample = [{"x": x} for x in range(100)] if looseness else None
    net = Network.tree(FIFTEEN, routing, looseness=looseness, sample=sample)
    subscribed = []
    for _ in range(clients):
        at = random.randint(1, 15)
        if classes:
            low = random.randrange(10) * 10
            high = low + 4
        else:
            low = random.randint(0, 99)
            high = min(99, low + random.randint(1, 20) - 1)
        client = net.client(at=at)
        subscribed.append((client, client.subscribe(within(low, high))))
        net.settle()
    remote, subs = remote_entries(net), net.counters.subscriptions
    publishers = {broker: net.client(at=broker) for broker in net.brokers}
    for _ in range(publications):
        publishers[random.randint(1, 15)].publish({"x": random.randint(0, 99)})
    net.settle()
    forwards = net.counters.notifications
    for client, id in subscribed[::2]:
        client.unsubscribe(id)
        net.settle()
    return {
        "remote": remote,
        "subs": subs,
        "unsubs": net.counters.subscriptions - subs,
        "forwards": forwards,
        # In which order those of different publishers come is not promised.
        "deliveries": [sorted(n["x"] for n in client.received) for client, _ in subscribed],
    }


@pytest.mark.spec("03/5.5", "R-03.23")
@pytest.mark.parametrize(
    ("routing", "remote", "subs", "unsubs"),
    [("simple", 2100, 2100, 1050), ("identity", 1983, 1983, 978), ("covering", 493, 836, 362)],
)
def test_the_reference_benchmark(routing: str, remote: int, subs: int, unsubs: int) -> None:
    run = measure(routing, seed=1, clients=150, publications=0)
    assert (run["remote"], run["subs"], run["unsubs"]) == (remote, subs, unsubs)


@pytest.mark.spec("03/5.5", "R-03.21", "R-03.24", "03/P11")
@pytest.mark.parametrize("seed", [7, 8])
def test_orderings_that_hold_on_any_seed(seed: int) -> None:
    loose = (0.1, 0.3, 1.0)
    size = {"seed": seed, "clients": 30, "publications": 30}
    runs = {name: measure(name, **size) for name in ("flooding", *EXACT)}
    loosely = {share: measure("merging", looseness=share, **size) for share in loose}

    deliveries = runs["flooding"]["deliveries"]
    assert any(deliveries)
    assert all(run["deliveries"] == deliveries for run in (*runs.values(), *loosely.values()))

    exact = {runs[name]["forwards"] for name in EXACT}
    assert len(exact) == 1
    assert runs["flooding"]["forwards"] == 30 * 14
    least = exact.pop()
    assert all(least <= run["forwards"] <= 30 * 14 for run in loosely.values())

    sizes = [runs[name]["remote"] for name in EXACT]
    assert sizes == sorted(sizes, reverse=True)
    assert loosely[1.0]["remote"] <= loosely[0.1]["remote"] <= runs["merging"]["remote"]
    assert runs["covering"]["subs"] <= runs["identity"]["subs"] <= runs["simple"]["subs"]


@pytest.mark.spec("03/5.5", "R-03.24")
@pytest.mark.parametrize("seed", [7, 8])
def test_where_nothing_strictly_covers_covering_is_identity(seed: int) -> None:
    size: dict[str, Any] = {"seed": seed, "clients": 50, "publications": 20, "classes": True}
    identity, covering, merging = (
        measure(name, **size) for name in ("identity", "covering", "merging")
    )
    assert identity == covering
    assert merging["remote"] < covering["remote"]  # at the price of more messages, perhaps
    assert merging["forwards"] == covering["forwards"]
    assert merging["deliveries"] == covering["deliveries"]


# -- the six routers (07/E-11)

SIX = [(1, 2), (1, 3), (3, 4), (4, 5), (4, 6)]


@pytest.mark.spec("07/E-11", "07/P-03", "07/4.1", "07/4.2", "07/4.3", "07/T-05")
@pytest.mark.parametrize(
    ("routing", "subscription_costs", "remote", "events"),
    [
        ("flooding", [0, 0], 0, (5, 5)),
        ("simple", [5, 5], 10, (4, 0)),
        ("identity", [5, 2], 7, (4, 0)),
        ("covering", [5, 2], 7, (4, 0)),
        ("merging", [5, 2], 7, (4, 0)),
        ("mesh", [5, 5], 10, (2, 0)),
    ],
)
def test_six_routers(
    routing: str, subscription_costs: list[int], remote: int, events: tuple[int, int]
) -> None:
    net = Network.mesh(6, "simple") if routing == "mesh" else Network.tree(SIX, routing)
    a, b, c = net.client(at=1), net.client(at=5), net.client(at=6)
    assert cost_of(net, lambda: b.subscribe("x = 'X'"), lambda: c.subscribe("x = 'X'")) == (
        subscription_costs
    )
    assert remote_entries(net) == remote
    assert (forwards_of(net, a, x="X"), forwards_of(net, a, x="Y")) == events
    assert len(b.received) == len(c.received) == 1
    if routing not in ("flooding", "mesh"):
        assert set(net.counters.links["notification"]) == {(1, 3), (3, 4), (4, 5), (4, 6)}


# -- the tree of the thesis (08/§5.3)


@pytest.mark.spec("08/5.3", "08/8.5", "R-08.50", "R-08.52", "R-08.54")
def test_the_six_steps_of_the_thesis() -> None:
    net = Network.tree([(1, 3), (2, 3), (3, 4), (4, 5), (4, 6)], "covering")
    p5, p6a, p6b, publisher = (net.client(at=at) for at in (5, 6, 6, 1))
    f, g = within(0, 10), within(2, 5)
    ids: dict[str, FilterId] = {}

    def subscribe(name: str, client: Client, filter: Filter) -> None:
        ids[name] = client.subscribe(filter)

    def links_of(step: Any) -> dict[tuple[BrokerId, BrokerId], int]:
        before = net.counters.copy()
        step()
        net.settle()
        return dict((net.counters - before).links["subscription"])

    everywhere = {(5, 4), (4, 6), (4, 3), (3, 1), (3, 2)}
    assert set(links_of(lambda: subscribe("p5", p5, f))) == everywhere
    assert links_of(lambda: subscribe("p6a", p6a, f)) == {(6, 4): 1, (4, 5): 1}
    assert links_of(lambda: subscribe("p6b", p6b, g)) == {}

    before = net.counters.copy()
    publisher.publish({"x": 3})
    net.settle()
    spent = net.counters - before
    assert dict(spent.links["notification"]) == {(1, 3): 1, (3, 4): 1, (4, 5): 1, (4, 6): 1}
    assert spent.delivered == 3

    assert links_of(lambda: p5.unsubscribe(ids["p5"])) == {(5, 4): 1, (4, 6): 1}
    p6a.unsubscribe(ids["p6a"])
    assert net.pending == [(6, 4)]
    last = links_of(net.settle)
    assert set(last) | {(6, 4)} == {(6, 4), (4, 5), (4, 3), (3, 1), (3, 2)}
    for broker, towards in ((1, "3"), (2, "3"), (3, "4"), (4, "6"), (5, "4")):
        assert entries(net, broker) == {towards: {g}}
    assert entries(net, 6) == {p6b.id: {g}}
    publisher.publish({"x": 4})
    publisher.publish({"x": 9})
    net.settle()
    assert [n["x"] for n in p6b.received] == [3, 4]


@pytest.mark.spec("08/5.2", "R-07.64")
@pytest.mark.parametrize("routing", EXACT)
def test_unsubscribing_takes_away_one_subscription_and_nothing_else(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    client, publisher = net.client(at=1), net.client(at=2)
    large, small, other = (client.subscribe(text) for text in ("x > 0", "x > 10", "y = 1"))
    client.unsubscribe(small)
    net.settle()
    publisher.publish({"x": 20})
    net.settle()
    assert [n["x"] for n in client.received] == [20]
    client.unsubscribe(FilterId(client.id, 99))  # not held: nothing happens
    for id in (large, other):
        client.unsubscribe(id)
    net.settle()
    publisher.publish({"x": 30, "y": 1})
    net.settle()
    assert len(client.received) == 1
    assert all_entries(net) == 0


# -- regression cases of the repairs that need a network (03/§5.6)


@pytest.mark.spec("03/X-03.23", "R-03.20")
def test_a_part_under_a_dissolved_merger_is_not_forgotten() -> None:
    net = Network.tree([(1, 2)], "merging")
    a, b, publisher = net.client(at=1), net.client(at=1), net.client(at=2)
    b.subscribe("x = 2 and y between 0 and 3")
    p2 = b.subscribe("x between 0 and 3 and y = 1")
    b.subscribe("x between 0 and 2 and y = 1")
    p4 = a.subscribe("x between 0 and 1 and y between 0 and 3")
    net.settle()
    b.unsubscribe(p2)
    net.settle()
    a.unsubscribe(p4)
    net.settle()
    for x in (0, 1, 2, 3):
        publisher.publish({"x": x, "y": 1})
    net.settle()
    assert [n["x"] for n in b.received] == [0, 1, 2]
    assert net.check().ok


@pytest.mark.spec("03/X-03.24", "R-03.21", "03/8.10", "07/T-15")
def test_an_imperfect_merger_lets_some_pass_in_vain() -> None:
    low, high, both = (Filter(f"x between {e}") for e in ("0 and 3", "6 and 9", "0 and 9"))
    sample = [{"x": x} for x in range(10)]
    net = Network.tree([(1, 2), (2, 3)], "merging", looseness=0.25, sample=sample)
    c, publisher = net.client(at=1), net.client(at=3)
    c.subscribe(low)
    last = c.subscribe(high)
    net.settle()
    assert entries(net, 2)["1"] == {both}
    assert forwards_of(net, publisher, x=4) == 2  # to 1, where it is found to be in vain
    assert c.received == []
    assert cost_of(net, lambda: c.unsubscribe(last)) == [2]
    assert entries(net, 2)["1"] == entries(net, 3)["2"] == {low}

    strict = Network.tree([(1, 2), (2, 3)], "merging", looseness=0.1, sample=sample)
    c = strict.client(at=1)
    for filter in (low, high):
        c.subscribe(filter)
    strict.settle()
    assert entries(strict, 2)["1"] == {low, high}


@pytest.mark.spec("03/X-03.28", "R-03.38", "R-03.39")
@pytest.mark.parametrize("routing", EXACT)
@pytest.mark.parametrize("journaled", [True, False])
def test_a_subtree_moves_while_the_old_withdrawal_still_travels(
    routing: str, journaled: bool
) -> None:
    """By journals nothing is lost; nor by the router alone, which takes what comes any way."""
    net = Network.tree([(1, 2), (2, 3), (3, 4), (4, 5)], routing, planned=not journaled)
    subscriber, publisher = (net.client(at=at, journaled=journaled) for at in (1, 5))
    subscriber.subscribe(within(0, 10))
    net.settle()
    net.disconnect(1, 2)  # 2 tells 3, and that message stays on its way
    net.connect(1, 4)
    while (1, 4) in net.pending:
        net.step((1, 4))
    while (4, 5) in net.pending:
        net.step((4, 5))
    publisher.publish({"x": 1})
    net.settle()
    publisher.publish({"x": 2})
    net.settle()
    assert [n["x"] for n in subscriber.received] == [1, 2]
    assert net.check().ok


@pytest.mark.spec("03/X-03.29", "03/8.15", "R-03.41")
@pytest.mark.parametrize("routing", EXACT)
def test_leaving_brings_nothing_back(routing: str) -> None:
    net = Network.tree(LINE, routing)
    client = net.client(at=2)
    client.subscribe(within(0, 10))
    client.subscribe(within(2, 5))
    net.settle()
    client.leave()
    net.settle()
    assert all_entries(net) == 0
    for broker in net.brokers:
        router = net.router(broker)
        assert isinstance(router, TreeRouter)
        assert router.plane.is_empty


@pytest.mark.spec("03/X-03.20", "R-03.20")
def test_a_client_under_merging_keeps_each_of_its_filters() -> None:
    net = Network.tree([(1, 2)], "merging")
    client, publisher = net.client(at=1), net.client(at=2)
    first, second, _ = (client.subscribe(within(*ends)) for ends in ((0, 1), (2, 3), (1, 1)))
    net.settle()
    assert entries(net, 2)["1"] == {within(0, 3)}
    client.unsubscribe(second)
    client.unsubscribe(first)
    net.settle()
    for x in (0, 1, 2):
        publisher.publish({"x": x})
    net.settle()
    assert [n["x"] for n in client.received] == [1]


@pytest.mark.spec("03/X-03.21", "R-03.20")
def test_a_neighbors_parts_outlive_their_merger() -> None:
    bench = Bench("merging", 2, 3)
    bench.hears(2, add=[within(0, 5)])
    bench.hears(2, add=[within(5, 10)])
    assert bench.table == {(within(0, 10), 2)}
    bench.hears(2, remove=[within(0, 5)])
    assert bench.table == {(within(5, 10), 2)}
    assert bench.holds(3) == {within(5, 10)}
