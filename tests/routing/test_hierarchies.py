"""Hierarchies and hybrids: filters go up, notifications always go up, and down where wanted."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_configurations import EXACT, GRID, random_filter, random_tree

from stentor.errors import InvalidTopology, StentorError
from stentor.filters import Filter
from stentor.routing import FilterId, Role, Strategy, TreeRouter
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import BrokerId
from stentor.routing.table import Local, Neighbor
from stentor.simulation import Network

SEVEN = [(number // 2, number) for number in range(2, 8)]


def links_used(net: Network, step: Any, kind: str) -> dict[tuple[BrokerId, BrokerId], int]:
    before = net.counters.copy()
    step()
    net.settle()
    return dict((net.counters - before).links[kind])  # type: ignore[index]


def table(net: Network, broker: BrokerId) -> dict[Any, set[Filter]]:
    router = net.router(broker)
    assert isinstance(router, TreeRouter)
    held = router.plane.subscriptions.table
    return {
        d.id.partition("@")[0] if isinstance(d, Local) else d.id: set(held.at(d).values())
        for d in held.destinations
    }


@pytest.mark.spec("R-03.31", "03/A10", "R-08.41")
@pytest.mark.parametrize("routing", EXACT)
def test_filters_go_to_the_parent_only(routing: str) -> None:
    net = Network.hierarchy(SEVEN, routing)
    client = net.client(at=4)
    id = client.subscribe("x > 1")
    used = links_used(net, net.settle, "subscription")
    assert set(net.counters.links["subscription"]) == {(4, 2), (2, 1)}
    assert used == {(2, 1): 1}
    assert [b for b, size in net.table_sizes().items() if size.total] == [1, 2, 4]
    client.unsubscribe(id)
    net.settle()
    assert not any(size.total for size in net.table_sizes().values())


@pytest.mark.spec("R-03.31", "R-03.32", "03/A10")
@pytest.mark.parametrize("routing", EXACT)
def test_notifications_always_go_to_the_root_and_down_where_wanted(routing: str) -> None:
    net = Network.hierarchy(SEVEN, routing)
    near, far, publisher = net.client(at=4), net.client(at=7), net.client(at=5)
    near.subscribe("x > 1")
    far.subscribe("x > 5")
    net.settle()
    assert links_used(net, lambda: publisher.publish({"x": 0}), "notification") == {
        (5, 2): 1,
        (2, 1): 1,
    }
    assert set(links_used(net, lambda: publisher.publish({"x": 9}), "notification")) == {
        (5, 2),
        (2, 1),
        (2, 4),
        (1, 3),
        (3, 7),
    }
    assert len(near.received) == len(far.received) == 1


@pytest.mark.spec("R-03.31")
def test_a_brokers_table_holds_the_filters_of_its_subtree_only() -> None:
    net = Network.hierarchy(SEVEN, "covering")
    for broker in net.brokers:
        net.client(at=broker, id=f"c{broker}").subscribe(f"x = {broker}")
    net.settle()

    def equal(*values: int) -> set[Filter]:
        return {Filter(f"x = {value}") for value in values}

    assert table(net, 1) == {"c1": equal(1), 2: equal(2, 4, 5), 3: equal(3, 6, 7)}
    assert table(net, 2) == {"c2": equal(2), 4: equal(4), 5: equal(5)}
    assert table(net, 4) == {"c4": equal(4)}


@pytest.mark.spec("03/8.13", "03/A10")
@pytest.mark.parametrize("routing", EXACT)
def test_trap_03_13_the_root_sends_nothing_to_itself(routing: str) -> None:
    root = TreeRouter("root", Strategy(routing), role=Role(None, frozenset({"a", "b"})))
    for child in ("a", "b"):
        assert root.link_up(child) == []
    assert root.subscribe(FilterId("c", 1), Filter("x > 1")) == []
    key = FilterId("d", 1) if routing == "simple" else Filter("x > 5")
    assert root.receive("a", SubscriptionUpdate(((key, Filter("x > 5")),), ())) == []
    held = root.plane.subscriptions.table
    assert set(held.destinations) == {Local("c"), Neighbor("a")}
    assert root.unsubscribe(FilterId("c", 1)) == []


@pytest.mark.spec("R-03.31", "08/8.2")
@pytest.mark.parametrize("routing", ["covering", "merging"])
def test_a_parent_learns_what_a_withdrawal_uncovers(routing: str) -> None:
    net = Network.hierarchy([(1, 2), (2, 3)], routing)
    u1, u2, publisher = net.client(at=3), net.client(at=3), net.client(at=1)
    u1.subscribe("x > 10")
    broad = u2.subscribe("x > 0")
    net.settle()
    assert links_used(net, lambda: u2.unsubscribe(broad), "subscription") == {(3, 2): 1, (2, 1): 1}
    publisher.publish({"x": 20})
    publisher.publish({"x": 5})
    net.settle()
    assert [n["x"] for n in u1.received] == [20]


@pytest.mark.spec("R-03.32")
def test_a_single_subscription_costs_the_depth_of_the_tree_not_its_size() -> None:
    for depth in (3, 5):
        size = 2**depth - 1
        net = Network.hierarchy([(n // 2, n) for n in range(2, size + 1)], "covering")
        net.client(at=size).subscribe("x > 1")
        net.settle()
        assert sum(s.total for s in net.table_sizes().values()) == depth


@pytest.mark.spec("R-03.31")
def test_a_named_root_may_be_any_broker() -> None:
    net = Network.hierarchy([(1, 2), (2, 3)], "covering", root=3)
    net.client(at=1).subscribe("x > 1")
    net.settle()
    assert set(net.counters.links["subscription"]) == {(1, 2), (2, 3)}


@pytest.mark.spec("R-03.31", "R-08.40")
def test_a_root_alone_is_a_hierarchy() -> None:
    net = Network.hierarchy([], root=1)
    assert net.brokers == [1]
    a, b = net.client(at=1), net.client(at=1)
    b.subscribe("x > 1")
    a.publish({"x": 2})
    assert len(b.received) == 1


@pytest.mark.spec("R-03.31", "R-08.46")
@pytest.mark.parametrize("routing", EXACT)
def test_a_broker_that_joins_a_hierarchy_takes_part(routing: str) -> None:
    net = Network.hierarchy([(1, 2)], routing)
    net.add_broker(3, [2])
    a, b = net.client(at=1), net.client(at=3)
    for client in (a, b):
        client.subscribe("x > 1")
    net.settle()
    b.publish({"x": 2})
    net.settle()
    a.publish({"x": 3})
    net.settle()
    assert [n["x"] for n in a.received] == [n["x"] for n in b.received] == [2, 3]


# -- hybrids

PEERS = [("north", "south")]
SUBTREES: dict[BrokerId, BrokerId] = {"n1": "north", "n2": "n1", "s1": "south", "s2": "south"}


@pytest.mark.spec("R-03.33", "03/A11", "R-08.44")
@pytest.mark.parametrize("routing", EXACT)
def test_peers_are_told_what_a_whole_subtree_wants_and_children_are_told_nothing(
    routing: str,
) -> None:
    net = Network.hybrid(PEERS, SUBTREES, routing)
    subscriber, publisher = net.client(at="n2"), net.client(at="s1")
    subscriber.subscribe("x > 1")
    net.settle()
    used = net.counters.links["subscription"]
    assert set(used) == {("n2", "n1"), ("n1", "north"), ("north", "south")}
    wanted = links_used(net, lambda: publisher.publish({"x": 2}), "notification")
    assert set(wanted) == {("s1", "south"), ("south", "north"), ("north", "n1"), ("n1", "n2")}
    unwanted = links_used(net, lambda: publisher.publish({"x": 0}), "notification")
    assert set(unwanted) == {("s1", "south")}  # up always, sideways by table
    assert len(subscriber.received) == 1


@pytest.mark.spec("R-03.33")
@pytest.mark.parametrize("routing", EXACT)
def test_advertisements_go_up_and_choose_peers_but_not_parents(routing: str) -> None:
    net = Network.hybrid(
        [("north", "south"), ("north", "east")], SUBTREES, routing, advertisements="covering"
    )
    subscriber, publisher = net.client(at="n2"), net.client(at="s1")
    subscriber.subscribe("x > 1")
    net.settle()
    # Up to the root of the subtree without any advertisement, and no farther.
    assert set(net.counters.links["subscription"]) == {("n2", "n1"), ("n1", "north")}
    publisher.advertise("x > 0")
    net.settle()
    assert set(net.counters.links["advertisement"]) == {
        ("s1", "south"),
        ("south", "north"),
        ("north", "east"),
    }
    assert set(net.counters.links["subscription"]) == {
        ("n2", "n1"),
        ("n1", "north"),
        ("north", "south"),
    }
    publisher.publish({"x": 2})
    net.settle()
    assert len(subscriber.received) == 1
    assert net.check().ok


@pytest.mark.spec("R-03.33", "R-07.68")
@pytest.mark.parametrize("routing", EXACT)
def test_a_flooded_subtree_sees_everything_and_asks_at_its_root(routing: str) -> None:
    net = Network.hybrid(PEERS, SUBTREES, routing, flooded=["north"])
    subscriber, publisher = net.client(at="n2"), net.client(at="n1")
    outside, far = net.client(at="s2"), net.client(at="s1")
    subscriber.subscribe("x > 1")
    net.settle()
    used = links_used(net, lambda: publisher.publish({"x": 0}), "notification")
    assert set(used) == {("n1", "north"), ("n1", "n2")}  # flooded within, not beyond
    used = links_used(net, lambda: outside.publish({"x": 0}), "notification")
    assert set(used) == {("s2", "south")}
    used = links_used(net, lambda: outside.publish({"x": 2}), "notification")
    assert set(used) == {("s2", "south"), ("south", "north"), ("north", "n1"), ("n1", "n2")}
    far.subscribe("x = 9")
    net.settle()
    used = links_used(net, lambda: publisher.publish({"x": 9}), "notification")
    assert ("north", "south") in used
    assert ("south", "s1") in used
    assert [n["x"] for n in subscriber.received] == [2, 9]


@pytest.mark.spec("R-03.33")
def test_a_flooded_subtree_needs_a_root_that_exists() -> None:
    with pytest.raises(StentorError, match="nowhere"):
        Network.hybrid(PEERS, SUBTREES, flooded=["nowhere"])


@pytest.mark.slow
@pytest.mark.spec("R-03.33", "R-03.31")
@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(EXACT))
def test_a_hierarchy_is_peers_whose_root_wants_everything(seed: int, routing: str) -> None:
    """Pure hierarchies with advertisements equal peers where the root advertises all (R-03.33)."""
    random = Random(seed)
    edges = random_tree(random, 6)
    hierarchy = Network.hierarchy(edges, routing, seed=seed)
    peers = Network.tree(edges, routing, seed=seed)
    watcher = peers.client(at=1, id="watcher")
    watcher.subscribe("")
    peers.settle()
    wants = [(random.randint(1, 6), random_filter(random)) for _ in range(6)]
    received, sent = [], []
    for net in (hierarchy, peers):
        subscribers = [net.client(at=at) for at, _ in wants]
        for client, (_, filter) in zip(subscribers, wants, strict=True):
            client.subscribe(filter)
        net.settle()
        before = net.counters.copy()
        for broker in net.brokers:
            publisher = net.client(at=broker)
            for values in GRID:
                publisher.publish(values)
        net.settle()
        sent.append((net.counters - before).links["notification"])
        received.append([sorted(str(n) for n in c.received) for c in subscribers])
        assert net.check().ok
    assert received[0] == received[1]
    assert sent[0] == sent[1]


@pytest.mark.spec("R-03.31", "R-03.39")
def test_a_failed_root_comes_back_above_its_children() -> None:
    net = Network.hierarchy([(1, 2), (1, 3), (3, 4)], root=1)
    left, right = net.client(at=2), net.client(at=4)
    right.subscribe("x > 0")
    net.settle()
    net.fail_broker(1)
    with pytest.raises(InvalidTopology, match="1 cannot be below 4, which is below it"):
        net.add_broker(1, [4])
    net.add_broker(1, [2])
    net.connect(1, 3)
    net.settle()
    left.publish({"x": 1})
    net.settle()
    assert [n["x"] for n in right.received] == [1]
    net.fail_broker(3)
    net.add_broker(3, [1, 4])
    net.settle()
    left.publish({"x": 2})
    net.settle()
    assert [n["x"] for n in right.received] == [1, 2]
