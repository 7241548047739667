"""Topic trees: joined on the way to the root, pruned when nobody is left, repaired after faults."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import UnsupportedMapping
from stentor.filters import Filter
from stentor.filters.addressing import channel, topic
from stentor.model.notification import Notification
from stentor.research.rendezvous import TopicRouter
from stentor.routing.protocol import BrokerId, FilterId, Router
from stentor.routing.rendezvous import Pastry, key_of
from stentor.routing.rendezvous.addresses import written
from stentor.simulation.client import Client
from stentor.simulation.network import Network


def network(brokers: int = 12, *, seed: int | None = None, attribute: str = "topic") -> Network:
    def make(id: BrokerId) -> Router:
        return TopicRouter(Pastry(id, digit_bits=1, leaves=2), attribute=attribute)

    return Network({id: make(id) for id in range(brokers)}, None, seed=seed, make=make)


def ring_of(net: Network, broker: BrokerId) -> Pastry:
    router = net.router(broker)
    assert isinstance(router, TopicRouter)
    ring = router._ring
    assert isinstance(ring, Pastry)
    return ring


def way(net: Network, start: BrokerId, value: object) -> list[BrokerId]:
    """The brokers from here to the root of a topic."""
    name = written(value)
    assert name is not None
    found = [start]
    while (hop := ring_of(net, found[-1]).next_hop(key_of(name))) is not None:
        found.append(hop)
    return found


def entries(net: Network) -> int:
    return sum(size.total for size in net.table_sizes().values())


@pytest.mark.spec("07/4.4", "R-07.70")
def test_subscribing_joins_the_tree_and_stops_where_it_is_joined() -> None:
    net = network(30)
    joined: set[BrokerId] = set()
    for broker in net.brokers:
        expected = 0
        for hop in way(net, broker, "news")[:-1]:
            if hop in joined:
                break
            joined.add(hop)
            expected += 1
        before = net.counters.copy()
        net.client(broker).subscribe(topic("news", f"x = {broker}"))
        net.settle()
        assert (net.counters - before).subscriptions == expected


@pytest.mark.spec("07/4.4")
def test_a_broker_holds_one_entry_for_each_child_whatever_it_asks_for() -> None:
    net = network(20)
    for broker in net.brokers:
        for x in range(5):
            net.client(broker).subscribe(topic("news", f"x = {x}"))
    net.settle()
    assert sum(size.remote for size in net.table_sizes().values()) == 19
    assert sum(size.local for size in net.table_sizes().values()) == 100


@pytest.mark.spec("07/4.4")
def test_an_event_goes_to_the_root_and_then_down_the_tree() -> None:
    net = network(20)
    subscribers = [net.client(broker) for broker in (3, 8, 15)]
    for subscriber in subscribers:
        subscriber.subscribe(topic("news"))
    net.settle()
    ways = [way(net, subscriber.at, "news") for subscriber in subscribers]
    links = {(above, below) for path in ways for below, above in pairwise(path)}
    rise = way(net, 11, "news")
    before = net.counters.copy()
    net.client(11).publish({"topic": "news"})
    net.settle()
    cost = (net.counters - before).links["notification"]
    expected = dict.fromkeys(links, 1)
    for link in pairwise(rise):
        expected[link] = expected.get(link, 0) + 1
    assert dict(cost) == expected
    assert all(len(subscriber.received) == 1 for subscriber in subscribers)


@pytest.mark.spec("07/4.4")
def test_leaving_prunes_the_tree_as_far_as_nobody_needs_it() -> None:
    net = network(30)
    long = max(net.brokers, key=lambda broker: len(way(net, broker, "news")))
    path = way(net, long, "news")
    assert len(path) > 3
    leaf, middle = net.client(path[0]), net.client(path[2])
    gone, kept = leaf.subscribe(topic("news")), middle.subscribe(topic("news"))
    net.settle()
    leaf.unsubscribe(gone)
    net.settle()
    holding = [broker for broker, size in net.table_sizes().items() if size.total]
    assert sorted(map(str, holding)) == sorted(map(str, path[2:]))
    middle.unsubscribe(kept)
    net.settle()
    assert entries(net) == 0


@pytest.mark.spec("07/4.4", "07/T-15")
def test_what_goes_beyond_the_topic_is_tested_at_the_edge() -> None:
    net = network()
    a, b = net.client(1), net.client(1)
    a.subscribe("topic = 'news' and x > 1")
    b.subscribe("topic in ('news', 'sport') and x > 5 or topic = 7")
    net.settle()
    producer = net.client(4)
    for value, x in (("news", 2), ("sport", 6), ("news", 7), (7.0, 0), ("else", 9), ("news", 1)):
        producer.publish({"topic": value, "x": x})
    producer.publish({"x": 9})
    producer.publish({"topic": ["news"], "x": 9})
    net.settle()
    assert sorted(n["x"] for n in a.received) == [2, 7]
    assert sorted(n["x"] for n in b.received) == [0, 6, 7]


def test_a_channel_is_a_topic_outside_of_the_content() -> None:
    net = network(attribute="_channel")
    a = net.client(1)
    a.subscribe(channel("trades", "x > 1"))
    net.settle()
    net.client(2).publish(Notification({"x": 2}, channel="trades"))
    net.client(3).publish(Notification({"x": 2}, channel="quotes"))
    net.settle()
    assert len(a.received) == 1


@pytest.mark.spec("07/4.4")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 1",
        "topic prefix 'a'",
        "topic != 'a'",
        "topic > 3",
        "topic = 'a' or x = 1",
        "not exists topic",
        "topic has 'a'",
    ],
)
def test_a_filter_must_say_which_topics_it_is_about(text: str) -> None:
    router = TopicRouter(Pastry("b"))
    with pytest.raises(UnsupportedMapping, match=r"add topic = '...' or topic in"):
        router.subscribe(FilterId("c", 1), Filter(text))
    assert router.table_size().total == 0


@pytest.mark.spec("07/4.4")
def test_equal_values_are_one_topic_and_different_ones_are_not() -> None:
    names = [written(value) for value in (1, 1.0, "1", True, b"1", 1.5, float("inf"))]
    assert names[0] == names[1]
    assert len(set(names)) == len(names) - 1
    assert written(["a"]) is None
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    net = network()
    a = net.client(1)
    for value in (noon, b"raw", True, 2**60, 0.25):
        a.subscribe(topic(value))  # type: ignore[arg-type]
    net.settle()
    elsewhere = noon.astimezone(timezone(timedelta(hours=2)))
    for value in (elsewhere, b"raw", True, 2**60, 0.25, 1, "raw"):
        net.client(3).publish({"topic": value})
    net.settle()
    assert len(a.received) == 5


@pytest.mark.spec("07/4.4", "R-07.70")
def test_a_parent_fails_and_the_tree_is_repaired() -> None:
    net = network(30)
    long = max(net.brokers, key=lambda broker: len(way(net, broker, "news")))
    path = way(net, long, "news")
    a = net.client(long)
    a.subscribe(topic("news"))
    net.settle()
    for number, broker in enumerate(path[1:]):
        net.fail_broker(broker)
        net.settle()
        net.client(next(b for b in net.brokers if b != long)).publish({"topic": "news"})
        net.settle()
        assert len(a.received) == number + 1


values = st.sampled_from(["news", "sport", 7])
filters = st.one_of(
    st.builds(lambda t, x: Filter(f"topic = {t!r} and x > {x}"), values, st.integers(0, 4)),
    st.builds(lambda s, t: Filter(f"topic in ({s!r}, {t!r})"), values, values),
    st.builds(lambda s, t: Filter(f"topic = {s!r} and x = 1 or topic = {t!r}"), values, values),
)
events = st.builds(lambda t, x: Notification({"topic": t, "x": x}), values, st.integers(0, 5))


@pytest.mark.slow
@pytest.mark.spec("07/P-02", "07/P-06", "07/P-10", "03/8.17")
@settings(max_examples=25)
@given(
    st.integers(0, 2**32),
    st.lists(filters, min_size=1, max_size=8),
    st.lists(events, min_size=1, max_size=6),
)
def test_exactly_what_was_asked_for_is_delivered_whoever_comes_and_goes(
    seed: int, wanted: list[Filter], published: list[Notification]
) -> None:
    chance = random.Random(seed)
    net = network(10, seed=seed)
    held: dict[Client, dict[FilterId, Filter]] = {}

    def stir() -> None:
        for _ in range(chance.randrange(5)):
            net.step()

    for newcomer in range(100, 103):
        for filter in wanted:
            client = net.client(chance.choice(net.brokers))
            held[client] = {client.subscribe(filter): filter}
            stir()
        if newcomer > 100:
            victim = chance.choice(net.brokers)
            net.fail_broker(victim)
            held = {client: own for client, own in held.items() if client.at != victim}
            stir()
            net.add_broker(newcomer)
            stir()
        for client in chance.sample(list(held), len(held) // 3):
            for id in list(held[client]):
                client.unsubscribe(id)
                del held[client][id]
            stir()
        net.settle()
        before = {client: len(client.received) for client in held}
        ids: dict[Client, list[str]] = {client: [] for client in held}
        for notification in published:
            id = net.client(chance.choice(net.brokers)).publish(notification)
            for client, own in held.items():
                if any(filter.matches(notification) for filter in own.values()):
                    ids[client].append(str(id))
            stir()
        net.settle()
        for client, expected in ids.items():
            got = [str(n.id) for n in client.received[before[client] :]]
            assert sorted(got) == sorted(expected)
    for client, own in held.items():
        for id in own:
            client.unsubscribe(id)
    net.settle()
    assert entries(net) == 0
