"""Clusters: cells of brokers that stand in for each other, in a tree."""

import random
from collections.abc import Iterable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import DuplicateBroker, InvalidTopology, UnknownBroker
from stentor.filters import Filter
from stentor.model import Notification
from stentor.research.clusters import CellId, CellRouter, Cells
from stentor.research.clusters.router import Join, Leave, Start
from stentor.research.trees import CarryingRouter
from stentor.research.trees.change import Forward
from stentor.routing import STRATEGIES
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import BrokerId, Deliver, FilterId, Router, Send
from stentor.simulation import Client, topology
from stentor.simulation.host import Host

F = Filter("x = 1")


def cells_of(links: Iterable[tuple[CellId, CellId]], replicas: int) -> Cells:
    """Cells with names, whose members are called a1, a2, ..."""
    links = list(links)
    names = dict.fromkeys(name for link in links for name in link)
    return Cells({n: [f"{n}{i}" for i in range(1, replicas + 1)] for n in names}, links)


def network(
    cells: Cells, routing: str = "covering", offers: str | None = None, seed: int | None = None
) -> Host:
    def make(id: BrokerId) -> Router:
        return CellRouter(CarryingRouter(id, routing, offers), cells)

    return Host(
        {id: make(id) for id in cells.brokers},
        cells.links,
        seed=seed,
        advertisements=offers is not None,
        make=make,
    )


def tree_of(net: Host) -> set[frozenset[BrokerId]]:
    """The links that both ends use now."""
    uses = {b: cast(CellRouter, net.router(b)).tree_neighbors for b in net.brokers}
    return {frozenset((a, b)) for a in uses for b in uses[a] if a in uses.get(b, ())}


def check_settled(net: Host, cells: Cells) -> None:
    """Both ends of every link agree, and what is used is the tree of those alive."""
    alive = set(net.brokers)
    for broker in alive:
        expected = cells.tree_neighbors(broker, alive - {broker})
        assert cast(CellRouter, net.router(broker)).tree_neighbors == frozenset(expected)
    links = [cast("tuple[BrokerId, BrokerId]", tuple(link)) for link in tree_of(net)]
    topology.check_tree(sorted(alive, key=str), links)


def check_forest(net: Host) -> None:
    joined = {broker: broker for broker in net.brokers}

    def top(broker: BrokerId) -> BrokerId:
        while joined[broker] != broker:
            broker = joined[broker]
        return broker

    for link in tree_of(net):
        a, b = (top(broker) for broker in link)
        assert a != b, "the links in use close a cycle"
        joined[a] = b


# -- cells


@pytest.mark.spec("07/O6")
def test_one_member_of_each_cell_forwards() -> None:
    cells = cells_of([("a", "b"), ("b", "c")], 3)
    alive = set(cells.brokers)
    assert cells.tree_neighbors("b1", alive - {"b1"}) == ["b2", "b3", "a1", "c1"]
    assert cells.tree_neighbors("b2", alive - {"b2"}) == ["b1"]
    assert cells.tree_neighbors("b2", alive - {"b1", "b2", "c1"}) == ["b3", "a1", "c2"]
    assert cells.tree_neighbors("b3", {"a3"}) == ["a3"]
    assert cells.tree_neighbors("b3", set()) == []


@pytest.mark.spec("07/O6")
def test_cells_are_complete_and_so_are_the_bundles_between_them() -> None:
    cells = cells_of([("a", "b"), ("b", "c")], 2)
    assert cells.brokers == ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert len(list(cells.links)) == 3 * 1 + 2 * 4
    assert ("a1", "c1") not in cells.links


def test_bad_cells_are_refused() -> None:
    with pytest.raises(InvalidTopology, match="no brokers"):
        Cells({"a": ()})
    with pytest.raises(DuplicateBroker, match="twice"):
        Cells({"a": (1, 2), "b": (2, 3)}, [("a", "b")])
    with pytest.raises(InvalidTopology, match="no cell"):
        Cells({"a": (1,)}, [("a", "z")])
    with pytest.raises(InvalidTopology, match="one tree"):
        Cells({"a": (1,), "b": (2,)})
    with pytest.raises(InvalidTopology, match="one tree"):
        Cells({"a": (1,), "b": (2,)}, [("a", "b"), ("b", "a")])
    cells = Cells({"a": (1, 2)})
    with pytest.raises(UnknownBroker, match="in no cell"):
        CellRouter(CarryingRouter(3), cells)
    with pytest.raises(UnknownBroker, match="in no cell"):
        CellRouter(CarryingRouter(1), cells).link_up(3)


# -- the two ends of a link agree


def pair() -> CellRouter:
    """The second of a cell of three, which has heard that the first is gone."""
    router = CellRouter(CarryingRouter("a2"), cells_of([("a", "b")], 3))
    router.link_up("a1")
    router.link_up("a3")
    router.link_down("a1")
    return router


def test_nothing_is_said_before_the_other_end_wants_the_link() -> None:
    router = pair()
    router.subscribe(FilterId("ann", 1), F)
    assert router.tree_neighbors == frozenset()
    assert router.neighbors == {"a3"}
    start, update = router.receive("a3", Join(1))
    assert start == Send("a3", Start(1))
    assert update == Send("a3", SubscriptionUpdate(((F, F),), ()))
    assert router.tree_neighbors == {"a3"}


def test_what_was_said_to_an_earlier_self_is_not_heard() -> None:
    """It left the link and joined it again; what the other end said in between is void."""
    router = pair()
    router.receive("a3", Join(1))
    # The old head is back, and gone again, before a3 hears of it.
    assert Send("a3", Leave()) in router.link_up("a1")
    outputs = router.link_down("a1")
    assert outputs == [Send("a3", Join(2)), Send("a3", Start(1))]
    router.receive("a3", Start(1))
    router.receive("a3", SubscriptionUpdate(((F, F),), ()))
    assert router.table_size().remote == 0
    assert router.unheard == 1
    router.receive("a3", Start(2))
    router.receive("a3", SubscriptionUpdate(((F, F),), ()))
    assert router.table_size().remote == 1


def test_what_the_other_end_asked_for_goes_when_it_leaves() -> None:
    router = pair()
    for message in (Join(1), Start(1), SubscriptionUpdate(((F, F),), ())):
        router.receive("a3", message)
    assert router.table_size().remote == 1
    assert router.receive("a3", Leave()) == []
    assert router.table_size().remote == 0
    router.receive("a3", SubscriptionUpdate(((F, F),), ()))
    assert router.table_size().remote == 0
    assert router.unheard == 1


def test_after_leaving_nothing_is_heard() -> None:
    router = pair()
    router.subscribe(FilterId("ann", 1), F)
    router.receive("a3", Join(1))
    router.receive("a3", Start(1))
    forward = Forward(Notification({"x": 1}))
    assert router.receive("a3", forward) == [Deliver("ann", forward.notification)]
    router.link_up("a1")
    assert router.receive("a3", forward) == []
    assert router.unheard == 1


def test_a_message_over_a_link_that_is_gone_is_not_heard() -> None:
    router = pair()
    assert router.receive("a1", Join(1)) == []
    assert router.tree_neighbors == frozenset()


# -- Gryphon's figure


def gryphon(seed: int | None = None) -> tuple[Host, Cells]:
    """A publisher's cell, two in the middle, four with subscribers; two replicas of each."""
    links: list[tuple[CellId, CellId]] = [("phb", "ib1"), ("phb", "ib2")]
    links += [("ib1", "shb1"), ("ib1", "shb2"), ("ib2", "shb3"), ("ib2", "shb4")]
    cells = cells_of(links, 2)
    return network(cells, seed=seed), cells


@pytest.mark.spec("07/E-20", "07/O6")
@pytest.mark.parametrize("victim", ["1", "2"])
def test_e20_one_replica_of_each_cell_is_killed(victim: str) -> None:
    """After repair nothing is lost, and nothing comes twice."""
    net, cells = gryphon(seed=20)
    spare = "2" if victim == "1" else "1"
    publisher = net.client(at=f"phb{spare}")
    subscribers = [net.client(at=f"shb{n}{spare}") for n in (1, 2, 3, 4)]
    for subscriber in subscribers:
        subscriber.subscribe("x > 0")
    net.settle()
    for broker in list(net.brokers):
        if str(broker).endswith(victim):
            net.fail_broker(broker)
    net.settle()
    check_settled(net, cells)
    for x in range(1, 11):
        publisher.publish({"x": x})
    net.settle()
    for subscriber in subscribers:
        assert [n["x"] for n in subscriber.received] == list(range(1, 11))
    assert net.check(order=("fifo", "causal")).ok


@pytest.mark.spec("07/O6")
def test_a_notification_crosses_each_pair_of_cells_once() -> None:
    """One send between cells that matter, one to each member with subscribers that is no head."""
    net, _ = gryphon()
    for n in (1, 2, 3):
        net.client(at=f"shb{n}2").subscribe("x > 0")
    net.settle()
    before = net.counters.copy()
    net.client(at="phb2").publish({"x": 1})
    net.settle()
    sent = (net.counters - before).links["notification"]
    assert set(sent) == {
        ("phb2", "phb1"),
        ("phb1", "ib11"),
        ("phb1", "ib21"),
        *(("ib11", f"shb{n}1") for n in (1, 2)),
        ("ib21", "shb31"),
        *((f"shb{n}1", f"shb{n}2") for n in (1, 2, 3)),
    }
    assert set(sent.values()) == {1}


@pytest.mark.spec("07/O6")
def test_a_broker_that_comes_back_is_head_again() -> None:
    net, cells = gryphon(seed=3)
    subscriber = net.client(at="shb42")
    subscriber.subscribe("x > 0")
    net.settle()
    for broker in ("phb1", "ib21"):
        net.fail_broker(broker)
    net.settle()
    for broker in ("phb1", "ib21"):
        near = [a if b == broker else b for a, b in cells.links if broker in (a, b)]
        net.add_broker(broker, [other for other in near if other in net.brokers])
    net.settle()
    check_settled(net, cells)
    net.client(at="phb1").publish({"x": 1})
    net.settle()
    assert len(subscriber.received) == 1
    assert net.check().ok


# -- any failures at any time

TREES: tuple[list[tuple[CellId, CellId]], ...] = (
    [("a", "b")],
    [("a", "b"), ("b", "c")],
    [("a", "b"), ("b", "c"), ("b", "d")],
)
TEXTS = ("x > 0", "x > 2", "x = 3", "x in (1, 3)", "true")


def fail_slowly(net: Host, victim: BrokerId, rng: random.Random) -> None:
    """Its neighbors notice one after the other, and meanwhile everybody goes on."""
    neighbors = [b for b in net.brokers if victim in cast(CellRouter, net.router(b)).neighbors]
    rng.shuffle(neighbors)
    for neighbor in neighbors:
        net.disconnect(victim, neighbor)
        for _ in range(rng.randrange(6)):
            net.step()
            check_forest(net)
    net.fail_broker(victim)


def expected(net: Host, clients: list[Client], publisher: Client, x: int) -> dict[str, int]:
    """How often each client should get what is published when all is quiet."""

    def matched(filters: Iterable[Filter]) -> bool:
        return any(filter.matches({"x": x}) for filter in filters)

    offers = publisher.advertisements.values()
    offered = not offers or matched(offers)
    return {c.id: int(offered and matched(c.subscriptions.values())) for c in clients}


def random_life(seed: int, routing: str, offers: str | None) -> None:
    rng = random.Random(seed)
    cells = cells_of(rng.choice(TREES), replicas := rng.choice((2, 3)))
    net = network(cells, routing, offers, seed=seed)
    check_forest(net)
    clients: list[Client] = []
    held: list[tuple[Client, FilterId]] = []
    failed: dict[str, int] = {}
    for broker in net.brokers:
        client = net.client(at=broker)
        clients.append(client)
        if offers is not None:
            client.advertise(rng.choice(("true", "x < 3")))
    for _ in range(30):
        client = rng.choice(clients)
        match rng.choice(("subscribe", "unsubscribe", "publish", "fail", "steps")):
            case "subscribe":
                held.append((client, client.subscribe(rng.choice(TEXTS))))
            case "unsubscribe" if held:
                owner, id = held.pop(rng.randrange(len(held)))
                owner.unsubscribe(id)
            case "publish":
                client.publish({"x": rng.randrange(5)})
            case "fail":
                victim = str(rng.choice(net.brokers))
                if failed.get(victim[0], 0) < replicas - 1 and rng.random() < 0.7:
                    failed[victim[0]] = failed.get(victim[0], 0) + 1
                    fail_slowly(net, victim, rng)
                    clients = [c for c in clients if c.at != victim]
                    held = [(c, id) for c, id in held if c.at != victim]
            case "steps":
                for _ in range(rng.randrange(12)):
                    net.step()
                    check_forest(net)
    net.settle()
    check_settled(net, cells)
    # Nothing was delivered that should not have been, and from now on nothing is missing.
    assert net.check(settling=False).ok
    for client in clients:
        for x in range(5):
            before = {c.id: len(c.received) for c in clients}
            client.publish({"x": x})
            net.settle()
            got = {c.id: len(c.received) - before[c.id] for c in clients}
            assert got == expected(net, clients, client, x)
    for client, id in held:
        client.unsubscribe(id)
    net.settle()
    assert all(size.total == 0 for size in net.table_sizes().values())


@pytest.mark.slow
@pytest.mark.spec("07/O6", "07/E-20", "07/P-01", "07/P-02", "07/P-10")
@settings(max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from(STRATEGIES),
    st.sampled_from((None, "simple", "covering")),
)
def test_all_but_one_of_each_cell_may_fail(seed: int, routing: str, offers: str | None) -> None:
    random_life(seed, routing, offers)


@pytest.mark.spec("07/O6", "07/P-02")
@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(STRATEGIES))
def test_deliveries_are_exact_while_nothing_fails(seed: int, routing: str) -> None:
    rng = random.Random(seed)
    cells = cells_of(rng.choice(TREES), 2)
    net = network(cells, routing, seed=seed)
    net.settle()
    check_settled(net, cells)
    clients = [net.client(at=broker) for broker in net.brokers]
    held: list[tuple[Client, FilterId]] = []
    for _ in range(25):
        client = rng.choice(clients)
        match rng.choice(("subscribe", "unsubscribe", "publish", "steps", "settle")):
            case "subscribe":
                held.append((client, client.subscribe(rng.choice(TEXTS))))
            case "unsubscribe" if held:
                owner, id = held.pop(rng.randrange(len(held)))
                owner.unsubscribe(id)
            case "publish":
                client.publish({"x": rng.randrange(5)})
            case "steps":
                for _ in range(rng.randrange(6)):
                    net.step()
            case "settle":
                net.settle()
    net.settle()
    report = net.check(order=("fifo", "causal"))
    assert report.ok, report


def test_clients_of_one_cell_reach_each_other() -> None:
    cells = Cells({"only": (1, 2, 3)})
    net = network(cells)
    subscriber, publisher = net.client(at=2), net.client(at=3)
    subscriber.subscribe("x > 0")
    net.settle()
    net.fail_broker(1)
    net.settle()
    publisher.publish({"x": 1})
    net.settle()
    assert len(subscriber.received) == 1


def test_the_wrapped_router_does_the_routing() -> None:
    router = pair()
    router.subscribe(FilterId("ann", 1), F)
    for message in (Join(1), Start(1), SubscriptionUpdate(((F, F),), ())):
        router.receive("a3", message)
    assert router.table_size().total == 2
    notification = Notification({"x": 1})
    assert router.publish("bob", notification) == [
        Send("a3", Forward(notification)),
        Deliver("ann", notification),
    ]
