"""Where an easy version of routing on trees goes wrong: one regression test for each trap.

Named after the sheet and the number of the trap. Traps of advertisements are in
`test_advertisements`, that of the root in `test_hierarchies`, those of cycles and of key-based
overlays with the routers that can fall into them.
"""

from itertools import permutations
from typing import Any

import pytest

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.model import Notification
from stentor.routing import FilterId, Send, Strategy, TreeRouter
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import BrokerId
from stentor.routing.table import Local, Neighbor
from stentor.simulation import Network

EXACT = ("simple", "identity", "covering", "merging")
ALL = ("flooding", *EXACT)


def router_with(routing: str, *neighbors: BrokerId) -> TreeRouter:
    router = TreeRouter(1, Strategy(routing))
    for neighbor in neighbors:
        router.link_up(neighbor)
    return router


def announced(router: Any, neighbor: BrokerId) -> set[Filter]:
    return set(router.plane.subscriptions.announced(neighbor).values())


def hears(router: TreeRouter, sender: BrokerId, *filters: str) -> None:
    added = tuple((Filter(text), Filter(text)) for text in filters)
    router.receive(sender, SubscriptionUpdate(added, ()))


def entries(net: Network) -> int:
    return sum(size.total for size in net.table_sizes().values())


# -- 03: distributed routing


@pytest.mark.spec("03/8.1", "07/T-05")
@pytest.mark.parametrize("routing", ["covering", "merging"])
def test_trap_03_01_a_neighbors_own_filters_hide_nothing_from_it(routing: str) -> None:
    router = router_with(routing, 2, 3)
    hears(router, 2, "x > 0")
    router.subscribe(FilterId("a", 1), Filter("x > 5"))
    assert announced(router, 2) == {Filter("x > 5")}
    assert announced(router, 3) == {Filter("x > 0")}


@pytest.mark.spec("03/8.2", "07/T-04", "07/P-07", "01/T-13", "R-03.19")
@pytest.mark.parametrize("routing", EXACT)
@pytest.mark.parametrize("steps", range(7))
def test_trap_03_02_no_gap_when_a_coverer_is_withdrawn(routing: str, steps: int) -> None:
    net = Network.tree([(1, 2), (2, 3), (3, 4)], routing)
    hidden, coverer, publisher = net.client(at=1), net.client(at=1), net.client(at=4)
    hidden.subscribe("x between 2 and 5")
    id = coverer.subscribe("x between 0 and 10")
    net.settle()
    coverer.unsubscribe(id)
    for _ in range(steps):
        publisher.publish({"x": 3})
        net.step()
    publisher.publish({"x": 3})
    net.settle()
    assert len(hidden.received) == steps + 1
    assert net.check(order=("fifo", "causal")).ok


@pytest.mark.spec("03/8.2", "07/T-04")
def test_trap_03_02_withdrawal_and_uncovered_filters_are_one_message() -> None:
    router = router_with("covering", 2)
    router.subscribe(FilterId("a", 1), Filter("x > 5"))
    router.subscribe(FilterId("b", 1), Filter("x > 0"))
    (send,) = router.unsubscribe(FilterId("b", 1))
    assert isinstance(send, Send)
    assert isinstance(send.message, SubscriptionUpdate)
    assert [filter for _, filter in send.message.added] == [Filter("x > 5")]
    assert list(send.message.removed) == [Filter("x > 0")]


@pytest.mark.spec("03/8.3")
@pytest.mark.parametrize("routing", ["covering", "merging"])
def test_trap_03_03_equal_uncovered_filters_reach_each_others_owners(routing: str) -> None:
    router = router_with(routing, 2, 3, 4)
    router.subscribe(FilterId("a", 1), Filter("x > 0"))
    hears(router, 2, "x > 5")
    hears(router, 3, "x > 5")
    router.unsubscribe(FilterId("a", 1))
    assert [announced(router, n) for n in (2, 3, 4)] == [{Filter("x > 5")}] * 3
    router.receive(3, SubscriptionUpdate((), (Filter("x > 5"),)))
    assert [announced(router, n) for n in (2, 3, 4)] == [
        set(),
        {Filter("x > 5")},
        {Filter("x > 5")},
    ]


@pytest.mark.spec("03/8.4", "R-03.07")
@pytest.mark.parametrize("routing", EXACT)
def test_trap_03_04_a_clients_covered_filters_are_kept(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    client, publisher = net.client(at=1), net.client(at=2)
    small = client.subscribe("x > 5")
    large = client.subscribe("x > 0")
    net.settle()
    assert net.table_sizes()[1].local == 2
    client.unsubscribe(large)
    net.settle()
    publisher.publish({"x": 6})
    publisher.publish({"x": 1})
    net.settle()
    assert [n["x"] for n in client.received] == [6]
    client.unsubscribe(small)
    net.settle()
    assert entries(net) == 0


@pytest.mark.spec("03/8.5", "01/T-5", "R-03.07")
@pytest.mark.parametrize("routing", ALL)
def test_trap_03_05_equal_filters_are_two_subscriptions(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    a, b, publisher = net.client(at=1), net.client(at=1), net.client(at=2)
    first, _ = a.subscribe("x > 0"), a.subscribe("x > 0")
    other = b.subscribe("x > 0")
    net.settle()
    a.unsubscribe(first)  # a has another one of the same content
    b.unsubscribe(other)
    net.settle()
    publisher.publish({"x": 1})
    net.settle()
    assert len(a.received) == 1
    assert b.received == []


@pytest.mark.spec("03/8.6", "R-03.22", "R-03.38")
@pytest.mark.parametrize("routing", ["identity", "covering", "merging"])
def test_trap_03_06_a_new_neighbor_is_told_one_of_two_twins(routing: str) -> None:
    router = router_with(routing, 2)
    router.subscribe(FilterId("a", 1), Filter("x > 0"))
    router.subscribe(FilterId("b", 1), Filter("x > 0"))
    hears(router, 2, "x > 0")
    (send,) = router.link_up(3)
    assert isinstance(send, Send)
    assert isinstance(send.message, SubscriptionUpdate)
    assert [filter for _, filter in send.message.added] == [Filter("x > 0")]


@pytest.mark.spec("03/8.7", "01/T-6", "R-03.09", "08/8.1")
@pytest.mark.parametrize("routing", ALL)
def test_trap_03_07_the_publisher_gets_its_own_and_the_sender_gets_nothing_back(
    routing: str,
) -> None:
    net = Network.tree([(1, 2)], routing)
    a, b = net.client(at=1), net.client(at=2)
    for client in (a, b):
        client.subscribe("x > 0")
    net.settle()
    a.publish({"x": 1})
    net.settle()
    assert len(a.received) == len(b.received) == 1
    assert dict(net.counters.links["notification"]) == {(1, 2): 1}


@pytest.mark.spec("03/8.8", "R-03.08", "01/T-8", "R-01.31")
@pytest.mark.parametrize("routing", ALL)
def test_trap_03_08_all_targets_are_known_before_any_client_can_answer(routing: str) -> None:
    """A reaction to a notification then follows it on every link, which keeps causal order."""
    router = router_with(routing, 2, 3)
    router.subscribe(FilterId("a", 1), Filter("x > 0"))
    for neighbor in (2, 3):
        key = FilterId(f"c{neighbor}", 1) if routing == "simple" else Filter("x > 0")
        router.receive(neighbor, SubscriptionUpdate(((key, Filter("x > 0")),), ()))
    found = router.route([Notification({"x": 1})], None)
    assert found == {Neighbor(2): [0], Neighbor(3): [0], Local("a"): [0]}


@pytest.mark.spec("03/8.9", "R-03.15", "R-03.20")
def test_trap_03_09_filters_of_two_destinations_are_not_merged_in_the_table() -> None:
    router = router_with("merging", 2, 3, 4)
    hears(router, 2, "x between 0 and 5")
    hears(router, 3, "x between 5 and 9")
    table = router.plane.subscriptions.table
    assert set(table.at(Neighbor(2)).values()) == {Filter("x between 0 and 5")}
    assert set(table.at(Neighbor(3)).values()) == {Filter("x between 5 and 9")}
    assert announced(router, 4) == {Filter("x between 0 and 5"), Filter("x between 5 and 9")}


@pytest.mark.spec("03/8.10", "R-03.21", "R-08.61")
def test_trap_03_10_what_goes_to_a_client_matches_exactly() -> None:
    sample = [{"x": x} for x in range(10)]
    net = Network.tree([(1, 2)], "merging", looseness=1.0, sample=sample)
    client, here, there = net.client(at=1), net.client(at=1), net.client(at=2)
    client.subscribe("x between 0 and 3")
    client.subscribe("x between 6 and 9")
    net.settle()
    for publisher in (here, there):
        publisher.publish({"x": 4})
        publisher.publish({"x": 7})
    net.settle()
    assert [n["x"] for n in client.received] == [7, 7]
    router = net.router(1)
    assert isinstance(router, TreeRouter)
    assert router.plane.subscriptions.table.targets({"x": 4}) == set()


@pytest.mark.spec("03/8.12", "08/8.14")
@pytest.mark.parametrize("routing", EXACT)
@pytest.mark.parametrize("last", ["subscribed", "unsubscribed"])
def test_trap_03_12_the_last_of_several_changes_counts(routing: str, last: str) -> None:
    net = Network.tree([(1, 2), (2, 3)], routing)
    client, publisher = net.client(at=1), net.client(at=3)
    id = client.subscribe("x > 0")
    client.unsubscribe(id)
    if last == "subscribed":
        client.subscribe("x > 0")
    net.settle()
    publisher.publish({"x": 1})
    net.settle()
    assert len(client.received) == (last == "subscribed")
    assert entries(net) == (3 if last == "subscribed" else 0)


@pytest.mark.spec("03/8.14", "R-03.38", "R-03.39")
@pytest.mark.parametrize("routing", EXACT)
def test_trap_03_14_messages_of_a_former_link_are_not_applied(routing: str) -> None:
    net = Network.tree([(1, 2), (2, 3)], routing)
    client, publisher = net.client(at=1), net.client(at=3)
    id = client.subscribe("x > 0")
    net.disconnect(1, 2)  # takes the announcement along
    assert net.counters.lost == 1
    client.unsubscribe(id)
    net.connect(1, 2)
    net.settle()
    assert entries(net) == 0
    client.subscribe("x > 5")
    net.settle()
    publisher.publish({"x": 1})
    publisher.publish({"x": 6})
    net.settle()
    assert [n["x"] for n in client.received] == [6]
    assert net.counters.notifications == 2


@pytest.mark.spec("03/8.15", "03/A14", "R-03.41")
@pytest.mark.parametrize("routing", EXACT)
def test_trap_03_15_leaving_announces_nothing(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    client = net.client(at=1)
    for text in ("x > 0", "x > 5", "x > 3", "x > 9"):
        client.subscribe(text)
    net.settle()
    before = net.counters.copy()
    client.leave()
    cost = net.counters - before
    net.settle()
    assert cost.subscriptions == 1  # all of it in one step
    assert entries(net) == 0


# -- 07: survey


@pytest.mark.spec("07/T-03")
@pytest.mark.parametrize("routing", EXACT)
def test_trap_07_03_what_goes_a_way_in_vain_is_not_lost(routing: str) -> None:
    net = Network.tree([(1, 2), (2, 3)], routing)
    client, publisher = net.client(at=1), net.client(at=3)
    id = client.subscribe("x > 0")
    net.settle()
    publisher.publish({"x": 1})
    net.step((3, 2))
    client.unsubscribe(id)
    net.settle()
    assert client.received == []
    assert net.counters.lost == 0
    assert net.counters.notifications == 2
    assert net.check().ok


@pytest.mark.spec("07/T-05", "08/8.5", "07/E-11")
@pytest.mark.parametrize("routing", EXACT)
def test_trap_07_05_the_first_subscriber_is_told_of_the_second(routing: str) -> None:
    """Else what is published at 5 would never reach the second subscriber, at 6."""
    net = Network.tree([(1, 2), (1, 3), (3, 4), (4, 5), (4, 6)], routing)
    b, c = net.client(at=5), net.client(at=6)
    b.subscribe("x = 'X'")
    net.settle()
    before = net.counters.copy()
    c.subscribe("x = 'X'")
    net.settle()
    assert (4, 5) in (net.counters - before).links["subscription"]
    b.publish({"x": "X"})
    net.settle()
    assert len(c.received) == 1


# -- 08: the thesis


@pytest.mark.spec("08/8.2", "R-08.23")
@pytest.mark.parametrize("routing", EXACT)
@pytest.mark.parametrize("order", list(permutations(("narrow", "broad"))))
@pytest.mark.parametrize("same_broker", [True, False])
def test_trap_08_02_withdrawing_a_broad_filter_leaves_narrow_ones_alive(
    routing: str, order: tuple[str, str], same_broker: bool
) -> None:
    net = Network.tree([(1, 2), (2, 3)], routing)
    u1 = net.client(at=1)
    u2 = net.client(at=1 if same_broker else 2)
    publisher = net.client(at=3)
    ids = {}
    for name in order:
        client, text = (u1, "x > 10") if name == "narrow" else (u2, "x > 0")
        ids[name] = client.subscribe(text)
        net.settle()
    u2.unsubscribe(ids["broad"])
    net.settle()
    publisher.publish({"x": 20})
    net.settle()
    assert len(u1.received) == 1
    assert u2.received == []


@pytest.mark.spec("08/8.12", "R-03.21")
def test_trap_08_12_a_merger_shrinks_when_its_parts_go() -> None:
    sample = [{"x": x} for x in range(20)]
    net = Network.tree([(1, 2), (2, 3)], "merging", looseness=0.4, sample=sample)
    client, publisher = net.client(at=1), net.client(at=3)
    kept = client.subscribe("x between 0 and 3")
    others = [client.subscribe(f"x between {low} and {low + 3}") for low in (5, 10, 15)]
    net.settle()
    for id in others:
        client.unsubscribe(id)
        net.settle()
    before = net.counters.copy()
    for x in (4, 6, 12, 17):
        publisher.publish({"x": x})
    net.settle()
    assert (net.counters - before).notifications == 0
    client.unsubscribe(kept)
    net.settle()
    assert entries(net) == 0


@pytest.mark.spec("08/8.13")
def test_trap_08_13_a_subscription_is_withdrawn_by_who_holds_it_and_lives_in_one_place() -> None:
    net = Network.tree([(1, 2)])
    a, b = net.client(at=1, id="ann"), net.client(at=2)
    id = a.subscribe("x > 0")
    net.settle()
    b.unsubscribe(id)
    net.settle()
    b.publish({"x": 1})
    net.settle()
    assert len(a.received) == 1
    with pytest.raises(InvalidConfiguration, match="there is a client 'ann' already"):
        net.client(at=2, id="ann")


@pytest.mark.spec("08/8.15")
@pytest.mark.parametrize("routing", EXACT)
def test_trap_08_15_what_nothing_matches_is_accepted_and_gets_nothing(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    client, publisher = net.client(at=1), net.client(at=2)
    never = client.subscribe("x = 1 and x = 2")
    net.settle()
    if routing in ("covering", "merging"):
        assert net.counters.subscriptions == 0  # everything covers it
    publisher.publish({"x": 1})
    net.settle()
    assert client.received == []
    client.unsubscribe(never)
    net.settle()
    assert entries(net) == 0


# -- 01: the model, through a whole network


@pytest.mark.spec("01/T-1")
@pytest.mark.parametrize("routing", ALL)
def test_trap_01_01_one_delivery_for_several_matching_subscriptions(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    client, publisher = net.client(at=1), net.client(at=2)
    for text in ("x > 0", "x < 9", "exists x"):
        client.subscribe(text)
    net.settle()
    publisher.publish({"x": 5})
    net.settle()
    assert len(client.received) == 1


@pytest.mark.spec("01/T-2", "R-08.30")
@pytest.mark.parametrize("routing", ALL)
def test_trap_01_02_nothing_is_delivered_after_unsubscribing(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    client, publisher = net.client(at=1), net.client(at=2)
    id = client.subscribe("x > 0")
    net.settle()
    publisher.publish({"x": 1})
    client.unsubscribe(id)
    net.settle()
    assert client.received == []


@pytest.mark.spec("01/T-4")
@pytest.mark.parametrize("routing", ALL)
def test_trap_01_04_equal_readings_are_two_notifications(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    client, publisher = net.client(at=1), net.client(at=2)
    client.subscribe("x > 0")
    net.settle()
    assert publisher.publish({"x": 1}) != publisher.publish({"x": 1})
    net.settle()
    assert len(client.received) == 2


@pytest.mark.spec("01/T-5", "R-03.07")
def test_trap_01_05_withdrawing_twice_is_withdrawing_once() -> None:
    net = Network.tree([(1, 2)])
    client, publisher = net.client(at=1), net.client(at=2)
    first = client.subscribe("x > 0")
    client.subscribe("x > 0")
    for _ in range(2):
        client.unsubscribe(first)
    net.settle()
    publisher.publish({"x": 1})
    net.settle()
    assert len(client.received) == 1


@pytest.mark.spec("01/T-8", "R-01.31", "R-03.12")
@pytest.mark.parametrize("routing", ALL)
def test_trap_01_08_an_answer_never_overtakes_the_question(routing: str) -> None:
    """A client at 2 answers as soon as it can; whatever the schedule, 3 sees the question first."""
    for seed in range(10):
        net = Network.tree([(1, 2), (1, 3), (1, 4)], routing, seed=seed)
        asker, answerer, observer = net.client(at=1), net.client(at=2), net.client(at=3)
        answerer.subscribe("kind = 'question'")
        observer.subscribe("exists kind")
        net.settle()
        asker.publish({"kind": "question"})
        while not answerer.received:
            net.step()
        answerer.publish({"kind": "answer"})
        net.settle()
        assert [n["kind"] for n in observer.received] == ["question", "answer"]
        assert net.check(order=("fifo", "causal")).ok


@pytest.mark.spec("R-03.09")
def test_a_client_and_a_neighbor_of_the_same_name_are_two_destinations() -> None:
    router = router_with("covering", "x")
    router.subscribe(FilterId("x", 1), Filter("a > 0"))
    hears(router, "x", "a > 5")
    assert router.plane.subscriptions.table.targets({"a": 6}) == {Local("x"), Neighbor("x")}


@pytest.mark.spec("R-03.27")
@pytest.mark.parametrize("strategy", ["simple", "identity", "covering", "merging"])
def test_a_link_that_fails_takes_the_filters_of_the_neighbor_with_it(strategy: str) -> None:
    router, other = TreeRouter(1, Strategy(strategy)), TreeRouter(2, Strategy(strategy))
    router.link_up(2)
    other.link_up(1)
    for send in other.subscribe(FilterId("ann", 1), Filter("x > 1")):
        router.receive(2, send.message)  # type: ignore[union-attr]
    assert not router.is_empty
    router.link_down(2)
    assert router.is_empty
