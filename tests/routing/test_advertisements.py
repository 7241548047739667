"""Advertisements: subscriptions go only where something can come from (R-03.25 to R-03.30)."""

from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_configurations import EXACT, GRID, besides, random_filter, random_tree, tree_overlay

from stentor.errors import NotAdvertised
from stentor.filters import Filter
from stentor.routing import FilterId, Send, Strategy, TreeRouter
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate
from stentor.routing.protocol import BrokerId
from stentor.routing.table import Neighbor
from stentor.simulation import Network

SIX = [(1, 2), (1, 3), (3, 4), (4, 5), (4, 6)]
X = Filter("kind = 'X'")


def remote_entries(net: Network) -> int:
    return sum(size.remote for size in net.table_sizes().values())


def holding(net: Network) -> list[BrokerId]:
    """The brokers with a subscription entry of any kind."""
    return [broker for broker, size in net.table_sizes().items() if size.total]


def spent(net: Network, step: Any) -> tuple[int, int]:
    """Subscription and advertisement messages that a step causes."""
    before = net.counters.copy()
    step()
    net.settle()
    cost = net.counters - before
    return cost.subscriptions, cost.advertisements


# -- worked examples


@pytest.mark.spec("07/E-11", "07/P-08", "R-03.25")
@pytest.mark.parametrize(
    ("routing", "costs", "remote"),
    [("simple", (3, 3), 6), ("identity", (3, 1), 4), ("covering", (3, 1), 4)],
)
@pytest.mark.parametrize("advertisements", EXACT)
def test_six_routers(
    routing: str, costs: tuple[int, int], remote: int, advertisements: str
) -> None:
    net = Network.tree(SIX, routing, advertisements)
    a, b, c = net.client(at=1), net.client(at=5), net.client(at=6)
    assert spent(net, lambda: a.advertise(X)) == (0, 5)
    assert spent(net, lambda: b.subscribe(X)) == (costs[0], 0)
    assert spent(net, lambda: c.subscribe(X)) == (costs[1], 0)
    assert remote_entries(net) == remote
    before = net.counters.copy()
    a.publish({"kind": "X"})
    net.settle()
    assert (net.counters - before).notifications == 4
    a.publish({"kind": "Y"})
    net.settle()
    assert (net.counters - before).notifications == 4
    assert len(b.received) == len(c.received) == 1
    assert 2 not in holding(net)


@pytest.mark.spec("07/E-12", "R-03.27", "R-03.28", "R-08.51")
@pytest.mark.parametrize(("routing", "advertisements"), list(product(EXACT, EXACT)))
def test_a_subscription_waits_for_an_advertisement(routing: str, advertisements: str) -> None:
    net = Network.tree(SIX, routing, advertisements)
    a, b = net.client(at=1), net.client(at=5)
    b.subscribe(X)
    net.settle()
    assert holding(net) == [5]
    assert net.counters.subscriptions == 0

    offer = "exists kind"
    before = net.counters.copy()
    id = a.advertise(offer)
    net.settle()
    assert set((net.counters - before).links["subscription"]) == {(5, 4), (4, 3), (3, 1)}
    assert holding(net) == [1, 3, 4, 5]
    assert remote_entries(net) == 3

    a.unadvertise(id)
    net.settle()
    assert holding(net) == [5]
    assert net.table_sizes()[5].local == 1

    a.advertise(offer)
    net.settle()
    assert holding(net) == [1, 3, 4, 5]
    a.publish({"kind": "X"})
    net.settle()
    assert len(b.received) == 1
    assert net.check().ok


@pytest.mark.spec("03/X-03.27", "03/8.11", "R-03.28")
@pytest.mark.parametrize("routing", EXACT)
def test_no_entry_survives_a_withdrawal_that_was_not_sent(routing: str) -> None:
    net = Network.tree([(1, 2)], routing, "covering")
    x, y = net.client(at=1), net.client(at=2)
    wanted = y.subscribe("x > 1")
    offer = x.advertise("x > 0")
    net.settle()
    x.unadvertise(offer)
    y.unsubscribe(wanted)
    net.settle()
    x.advertise("x > 0")
    net.settle()
    before = net.counters.copy()
    x.publish({"x": 5})
    net.settle()
    assert (net.counters - before).notifications == 0
    assert remote_entries(net) == 0


@pytest.mark.spec("03/X-03.27", "03/A9")
@pytest.mark.parametrize("routing", EXACT)
def test_messages_that_cross_leave_nothing_behind(routing: str) -> None:
    """The end of an advertisement and the end of a subscription meet on the wire, in any order."""
    for steps in range(6):
        net = Network.tree([(1, 2), (2, 3)], routing, "simple")
        x, y = net.client(at=1), net.client(at=3)
        offer = x.advertise("x > 0")
        net.settle()
        wanted = y.subscribe("x > 1")
        for _ in range(steps):
            net.step()
        x.unadvertise(offer)
        y.unsubscribe(wanted)
        net.settle()
        for broker in net.brokers:
            router = net.router(broker)
            assert isinstance(router, TreeRouter)
            assert router.plane.is_empty


# -- rules


@pytest.mark.spec("R-03.27", "03/8.11")
@pytest.mark.parametrize("routing", EXACT)
def test_newly_served_subscriptions_go_to_the_advertiser_only(routing: str) -> None:
    router = TreeRouter(1, Strategy(routing), Strategy("simple"))
    for neighbor in (2, 3):
        router.link_up(neighbor)
    assert router.subscribe(FilterId("a", 1), Filter("x > 1")) == []
    offer = AdvertisementUpdate(((FilterId("p", 1), Filter("x > 5")),), ())
    sent = router.receive(2, offer)
    assert [(s.to, type(s.message)) for s in sent if isinstance(s, Send)] == [
        (3, AdvertisementUpdate),
        (2, SubscriptionUpdate),
    ]


@pytest.mark.spec("03/8.11")
@pytest.mark.parametrize("routing", EXACT)
def test_a_served_coverer_hides_newly_served_filters_where_the_strategy_hides(
    routing: str,
) -> None:
    """Under simple and identity-based routing both are announced, else a withdrawal would lose."""
    net = Network.tree([(1, 2)], routing, "covering")
    a, b, publisher = net.client(at=1), net.client(at=1), net.client(at=2)
    large = a.subscribe("x > 0")
    b.subscribe("x > 10")
    publisher.advertise("x between 1 and 5")
    net.settle()
    publisher.advertise("x between 4 and 20")  # now the smaller one is served as well
    net.settle()
    a.unsubscribe(large)
    net.settle()
    publisher.publish({"x": 15})
    net.settle()
    assert [n["x"] for n in b.received] == [15]


@pytest.mark.spec("R-03.28", "07/T-02", "03/8.11")
@pytest.mark.parametrize("routing", EXACT)
def test_entries_of_clients_are_never_dropped(routing: str) -> None:
    net = Network.tree([(1, 2)], routing, "covering")
    a, b = net.client(at=1), net.client(at=1)
    b.subscribe("x > 0")
    offer = a.advertise("x > 0")
    net.settle()
    a.unadvertise(offer)
    net.settle()
    assert net.table_sizes()[1].local == 1
    a.advertise("x > 0")
    a.publish({"x": 1})
    assert [n["x"] for n in b.received] == [1]


@pytest.mark.spec("07/T-02")
def test_a_second_advertisement_adds_to_the_first() -> None:
    net = Network.tree([(1, 2)], "covering", "simple")
    a, b = net.client(at=1), net.client(at=2)
    b.subscribe("x = 1")
    b.subscribe("x = 2")
    for x in (1, 2):
        a.advertise(f"x = {x}")
    net.settle()
    for x in (1, 2):
        a.publish({"x": x})
    net.settle()
    assert [n["x"] for n in b.received] == [1, 2]


@pytest.mark.spec("R-03.29")
@pytest.mark.parametrize("routing", EXACT)
def test_filters_do_not_go_where_nothing_overlaps_them(routing: str) -> None:
    net = Network.tree([(1, 2), (1, 3)], routing, "simple")
    low, high, subscriber = net.client(at=2), net.client(at=3), net.client(at=1)
    low.advertise("x between 0 and 5")
    high.advertise("x between 5 and 9")
    net.settle()
    for text, links in (("x = 1", {(1, 2)}), ("x = 5", {(1, 2), (1, 3)}), ("x = 20", set())):
        before = net.counters.copy()
        id = subscriber.subscribe(text)
        net.settle()
        assert set((net.counters - before).links["subscription"]) == links
        subscriber.unsubscribe(id)
        net.settle()
        assert remote_entries(net) == 0


@pytest.mark.spec("R-03.26", "R-03.30", "03/P14", "R-01.33", "R-01.35", "01/T-12", "08/8.4")
@pytest.mark.parametrize("routing", ["flooding", *EXACT])
def test_the_gate_asks_for_the_publishers_own_advertisement_when_it_publishes(
    routing: str,
) -> None:
    net = Network.tree([(1, 2)], routing, "covering")
    a, other, b = net.client(at=1), net.client(at=1), net.client(at=2)
    b.subscribe("")
    other.advertise("x > 0")  # somebody else's advertisement does not count
    net.settle()
    a.publish({"x": 1})
    offer = a.advertise("x > 5")
    net.settle()
    a.publish({"x": 2})
    a.publish({"x": 6})
    a.unadvertise(offer)  # does not take back what was published under it
    net.settle()
    a.publish({"x": 7})
    net.settle()
    assert [n["x"] for n in b.received] == [6]
    assert net.core(1).counters["refused"] == 3
    with pytest.raises(NotAdvertised, match="has advertised nothing that matches"):
        a.publish({"x": 8}, strict=True)
    assert net.core(1).counters["refused"] == 4
    assert net.check().ok


@pytest.mark.spec("R-01.36")
@pytest.mark.parametrize("routing", EXACT)
def test_without_advertisements_everything_may_be_published(routing: str) -> None:
    net = Network.tree([(1, 2)], routing)
    a, b = net.client(at=1), net.client(at=2)
    b.subscribe("x > 0")
    net.settle()
    id = a.advertise("x > 100")  # means nothing here, and costs nothing
    a.publish({"x": 1}, strict=True)
    a.unadvertise(id)
    net.settle()
    assert [n["x"] for n in b.received] == [1]
    assert net.counters.advertisements == 0


@pytest.mark.spec("08/6.9", "R-08.21")
@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(EXACT), st.sampled_from(EXACT))
def test_the_order_of_subscribing_and_advertising_does_not_matter(
    seed: int, routing: str, advertisements: str
) -> None:
    random = Random(seed)
    edges = random_tree(random, 5)
    wanted = [(random.randint(1, 5), random_filter(random)) for _ in range(5)]
    offered = [(random.randint(1, 5), random_filter(random)) for _ in range(4)]
    received = []
    for subscribers_first in (True, False):
        net = Network.tree(edges, routing, advertisements, seed=seed)
        subscribers = [net.client(at=at) for at, _ in wanted]
        publishers = [net.client(at=at) for at, _ in offered]
        acts = [
            [(s.subscribe, filter) for s, (_, filter) in zip(subscribers, wanted, strict=True)],
            [(p.advertise, filter) for p, (_, filter) in zip(publishers, offered, strict=True)],
        ]
        for half in acts if subscribers_first else reversed(acts):
            for act, filter in half:
                act(filter)
            net.settle()
        for publisher in publishers:
            for values in GRID:
                publisher.publish(values)
        net.settle()
        assert net.check(order=("fifo", "causal")).ok
        received.append([sorted(str(n.id) for n in client.received) for client in subscribers])
    assert received[0] == received[1]


@pytest.mark.spec("07/P-08", "08/6.9", "R-03.28", "R-03.29", "03/P7")
@settings(max_examples=50)
@given(st.integers(0, 2**32), st.sampled_from(EXACT), st.sampled_from(EXACT))
def test_remote_entries_lead_only_to_overlapping_advertisers(
    seed: int, routing: str, advertisements: str
) -> None:
    random = Random(seed)
    overlay = tree_overlay(routing, random, advertisements=advertisements)
    brokers = list(overlay.routers)
    for _ in range(30):
        what = random.random()
        if what < 0.35:
            overlay.subscribe(random.choice(brokers), random_filter(random))
        elif what < 0.6:
            overlay.advertise(random.choice(brokers), random_filter(random))
        elif what < 0.8 and overlay.subscriptions:
            overlay.unsubscribe(random.choice(list(overlay.subscriptions)))
        elif overlay.advertisements:
            overlay.unadvertise(random.choice(list(overlay.advertisements)))
        overlay.run(random.randrange(5))
    overlay.settle()
    for router in overlay.routers.values():
        plane = router.plane
        assert plane.advertisements is not None
        for destination in plane.subscriptions.table.destinations:
            if isinstance(destination, Neighbor):
                offers = besides(plane.advertisements.table, destination)
                here = plane.subscriptions.table.at(destination).values()
                if routing == "merging":
                    here = [f for _, f in plane.subscriptions.asked(destination)]
                assert all(any(o.overlaps(f) for o in offers) for f in here)
                if routing != "simple":
                    assert len(set(here)) == len(list(here))
                if routing == "covering":
                    assert not any(f is not g and f.covers(g) for f in here for g in here)
    for _ in range(3):  # what is advertised reaches exactly those who want it
        for at, filter in list(overlay.advertisements.values())[:2]:
            for values in random.sample(GRID, 3):
                if filter.matches(values):
                    overlay.check_delivery(at, values)


# -- discovery


@pytest.mark.spec("R-01.37")
@pytest.mark.parametrize("advertisements", EXACT)
def test_clients_can_ask_what_may_be_published(advertisements: str) -> None:
    net = Network.tree([(1, 2), (2, 3)], "covering", advertisements)
    a, b = net.client(at=1), net.client(at=3)
    assert b.offers() == []
    id = a.advertise("kind = 'quote' and price > 0")
    net.settle()
    (offer,) = b.offers()
    assert offer.matches({"kind": "quote", "price": 5})
    assert b.offers("kind = 'quote'") == [offer]
    assert b.offers("kind = 'news'") == []
    a.unadvertise(id)
    net.settle()
    assert b.offers() == []
