"""Simple routing in cycles: each subscription's first arrivals are its tree."""

from collections import Counter
from itertools import combinations
from random import Random
from typing import Any

import pytest
from graph_overlay import Link, Overlay, random_links
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration, InvalidTopology, UnknownBroker
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.research.first_arrival import FirstArrivalRouter, Passed, Statement
from stentor.routing.graph.messages import Topology
from stentor.routing.protocol import BrokerId, FilterId, Router, Send, TableSize

seeds = st.integers(0, 2**32)
RING: list[Link] = [(0, 1), (1, 2), (2, 0)]
FILTERS = ("x = 1", "x > 1", "x < 3", "x between 1 and 2", "")
EVENTS: list[dict[str, Any]] = [{"x": x} for x in range(4)]


def connected(seed: int, size: int = 6) -> tuple[Random, Overlay]:
    random = Random(seed)
    brokers: list[BrokerId] = list(range(size))
    links = random_links(random, brokers, 0.4)
    return random, Overlay(FirstArrivalRouter, brokers, links, random)


# -- the sheet's cases


def one_way_first(overlay: Overlay, way: int) -> None:
    """Messages arrive in one direction round the ring until there are none left in it."""
    channels = [(n, (n + way) % 3) for n in range(3)]
    for _ in range(100):
        busy = [channel for channel in channels if overlay.channels[channel]]
        if not busy:
            return
        overlay.step(*busy[0])
    pytest.fail("it goes round and round")


@pytest.mark.spec("03/X-03.25", "03/A16", "03/P10", "03/8.16")
@pytest.mark.parametrize("way", [1, -1])
def test_a_ring_comes_to_rest_when_all_goes_one_way_first(way: int) -> None:
    overlay = Overlay(FirstArrivalRouter, range(3), RING)
    overlay.settle()
    overlay.unsubscribe(overlay.subscribe(0, "x = 1"))
    one_way_first(overlay, way)
    overlay.settle()
    assert [r.table_size() for r in overlay.routers.values()] == [TableSize()] * 3


@pytest.mark.spec("03/8.16", "03/A16")
@given(seeds)
@settings(max_examples=40)
def test_a_withdrawn_subscription_never_comes_back(seed: int) -> None:
    random, overlay = connected(seed)
    held: list[FilterId] = []
    for _ in range(12):
        held.append(overlay.subscribe(random.randrange(6), random.choice(FILTERS)))
        overlay.run(random.randrange(6))
        overlay.unsubscribe(held.pop(random.randrange(len(held))))
        overlay.run(random.randrange(6))
    overlay.settle()
    assert overlay.entries() == 0


@pytest.mark.spec("R-03.45", "07/P-09")
@given(seeds)
@settings(max_examples=40)
def test_first_arrivals_form_a_spanning_tree_of_each_subscription(seed: int) -> None:
    random, overlay = connected(seed)
    overlay.settle()
    ids = {overlay.subscribe(random.randrange(6), random.choice(FILTERS)) for _ in range(4)}
    overlay.settle()
    for id in ids:
        home, _ = overlay.subscriptions[id]
        for broker in range(6):
            steps = 0
            while broker != home:
                broker = overlay.routers[broker].sources()[id]
                steps += 1
                assert steps < 6


@pytest.mark.spec("R-03.45")
def test_the_tree_depends_on_which_copy_is_first() -> None:
    trees = []
    for first in (1, 3):
        overlay = Overlay(FirstArrivalRouter, range(4), [(0, 1), (1, 2), (2, 3), (3, 0)])
        overlay.settle()
        id = overlay.subscribe(0, "x = 1")
        overlay.step(0, first)
        overlay.step(first, 2)
        overlay.settle()
        trees.append(overlay.routers[2].sources()[id])
    assert trees == [1, 3]


@pytest.mark.spec("R-03.42", "R-03.45", "07/P-02", "03/P5", "07/T-06")
@given(seeds)
@settings(max_examples=40)
def test_delivery_is_exact_and_once(seed: int) -> None:
    random, overlay = connected(seed)
    for number in range(10):
        overlay.subscribe(random.randrange(6), random.choice(FILTERS), f"c{number % 4}")
        overlay.run(random.randrange(10))
        if random.random() < 0.3:
            overlay.unsubscribe(random.choice(list(overlay.subscriptions)))
    overlay.settle()
    for at in range(6):
        used = overlay.check_delivery(at, random.choice(EVENTS))
        # Two neighbors may send it to each other at the same time, never more.
        assert all(times <= 2 for times in used.values())


@pytest.mark.spec("08/8.6")
def test_concurrent_subscriptions_in_a_triangle() -> None:
    overlay = Overlay(FirstArrivalRouter, range(3), RING)
    for broker in (1, 2, 0):
        overlay.subscribe(broker, "x = 1")
    overlay.settle()
    for broker in range(3):
        overlay.check_delivery(broker, {"x": 1})


@pytest.mark.spec("03/A16")
def test_what_is_remembered_of_withdrawn_ids_does_not_grow() -> None:
    overlay = Overlay(FirstArrivalRouter, range(3), RING)
    overlay.settle()
    for _ in range(50):
        overlay.unsubscribe(overlay.subscribe(0, "x = 1"))
        overlay.settle()
    for router in overlay.routers.values():
        assert router._heard.keys() == {0, 1, 2}
        assert router._table.keys() <= {router.id}
        assert router._remote.filters == []


# -- links and brokers come and go


def change_links(overlay: Overlay, random: Random, size: int) -> None:
    pairs = list(combinations(range(size), 2))
    a, b = random.choice(pairs)
    if frozenset((a, b)) not in overlay.links:
        overlay.connect(a, b)
    elif random.random() < 0.2:
        overlay.crash(a)
    else:
        overlay.disconnect(a, b)


@pytest.mark.spec("08/6.11", "07/P-10", "03/8.14")
@given(seeds)
@settings(max_examples=36)
def test_after_any_faults_delivery_is_exact_again(seed: int) -> None:
    random, overlay = connected(seed, size=5)
    for _ in range(30):
        act = random.randrange(4)
        if act == 0:
            overlay.subscribe(
                random.randrange(5), random.choice(FILTERS), f"c{random.randrange(3)}"
            )
        elif act == 1 and overlay.subscriptions:
            overlay.unsubscribe(random.choice(list(overlay.subscriptions)))
        elif act == 2:
            change_links(overlay, random, 5)
        else:
            overlay.publish(random.randrange(5), **random.choice(EVENTS))
        overlay.run(random.choice((0, 1, 5, 30)))
    overlay.settle()
    assert all(times == 1 for times in Counter(overlay.delivered).values())
    for at in range(5):
        overlay.check_delivery(at, random.choice(EVENTS))
    for id in list(overlay.subscriptions):
        overlay.unsubscribe(id)
    overlay.settle()
    assert overlay.entries() == 0


def test_subscriptions_of_a_lost_broker_are_forgotten_everywhere() -> None:
    overlay = Overlay(FirstArrivalRouter, range(4), [(0, 1), (1, 2), (2, 3), (3, 0)])
    overlay.subscribe(0, "x = 1")
    overlay.subscribe(2, "x = 2")
    overlay.settle()
    overlay.crash(0)
    overlay.settle()
    assert [overlay.routers[n].table_size().total for n in (1, 2, 3)] == [1, 1, 1]


def test_a_new_link_may_be_faster_than_a_withdrawal() -> None:
    overlay = Overlay(FirstArrivalRouter, range(3), [(0, 1), (0, 2)])
    id = overlay.subscribe(0, "x = 1")
    overlay.settle()
    overlay.unsubscribe(id)
    overlay.step(0, 2)
    overlay.connect(2, 1)
    while overlay.channels[2, 1]:
        overlay.step(2, 1)
    overlay.settle()
    assert overlay.entries() == 0


def test_two_sides_that_subscribed_apart_find_together() -> None:
    overlay = Overlay(FirstArrivalRouter, range(4), [(0, 1), (2, 3)])
    for broker in range(4):
        overlay.subscribe(broker, "x = 1")
    overlay.settle()
    overlay.connect(1, 2)
    overlay.settle()
    overlay.check_delivery(0, {"x": 1})
    overlay.check_delivery(3, {"x": 1})


def test_a_statement_of_an_older_epoch_is_ignored() -> None:
    router = FirstArrivalRouter("a")
    router.link_up("b")
    router.link_up("c")
    [renewed] = router.link_down("c")
    assert isinstance(renewed, Send)
    assert isinstance(renewed.message, Statement)
    assert renewed.message.epoch == (1, "a")
    late = Statement((0, 0), "b", 5, add=((FilterId("b", 1), Filter("x = 1")),))
    assert router.receive("b", late) == []
    assert router.table_size() == TableSize()


def test_a_broker_that_lived_twice_under_the_same_numbers_is_heard() -> None:
    overlay = Overlay(FirstArrivalRouter, range(3), [(0, 1)])
    overlay.subscribe(0, "x = 1")
    overlay.settle()
    overlay.crash(0)
    overlay.subscribe(0, "x = 2")
    overlay.connect(0, 2)
    overlay.settle()
    overlay.connect(2, 1)
    overlay.settle()
    for event in EVENTS:
        overlay.check_delivery(1, event)


# -- the rest of what a router does


@pytest.mark.spec("R-03.07", "03/P12")
def test_repeated_and_unknown_ids_change_nothing() -> None:
    router = FirstArrivalRouter("a")
    router.link_up("b")
    id = FilterId("ann", 1)
    assert len(router.subscribe(id, Filter("x = 1"))) == 1
    assert router.subscribe(id, Filter("x = 2")) == []
    assert router.unsubscribe(FilterId("ann", 2)) == []
    assert router.table_size() == TableSize(local=1)


def test_a_notification_does_not_return_to_its_sender_or_pass_twice() -> None:
    router = FirstArrivalRouter("a")
    for neighbor in "bc":
        router.link_up(neighbor)
        filters = ((FilterId(neighbor, 1), Filter("x = 1")),)
        router.receive(neighbor, Statement((0, 0), neighbor, 1, add=filters))
    passed = Passed(Notification({"x": 1}, id=NotificationId("p", 0, 0)))
    assert router.receive("b", passed) == [Send("c", passed)]
    assert router.receive("c", passed) == []


def test_offers_are_the_brokers_own() -> None:
    overlay = Overlay(FirstArrivalRouter, "ab", [("a", "b")])
    id = overlay.advertise("a", "x > 1")
    overlay.settle()
    assert overlay.routers["a"].offers() == [Filter("x > 1")]
    assert overlay.routers["a"].table_size() == TableSize(advertisements=1)
    assert overlay.routers["b"].offers() == []
    overlay.unadvertise(id)
    assert overlay.routers["a"].offers() == []


def test_mistakes_of_the_host_are_named() -> None:
    router = FirstArrivalRouter("a")
    assert isinstance(router, Router)
    with pytest.raises(UnknownBroker, match="'b' is not a neighbor of 'a'"):
        router.receive("b", Topology(()))
    with pytest.raises(UnknownBroker, match="no link to 'b'"):
        router.link_down("b")
    router.link_up("b")
    with pytest.raises(InvalidTopology, match="second link to 'b'"):
        router.link_up("b")
    with pytest.raises(InvalidConfiguration, match="Topology"):
        router.receive("b", Topology(()))
    assert router.expired("timer") == []
    assert (router.id, router.neighbors) == ("a", frozenset({"b"}))
