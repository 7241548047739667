"""Flooding of events and of subscriptions, on any graph and under any legal schedule."""

import random
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import (
    InvalidConfiguration,
    InvalidTopology,
    RepeatedPublication,
    UnknownStrategy,
)
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.model.seen import SeenIds
from stentor.research.flooding import (
    Addressed,
    AgeWindow,
    Announcement,
    Direct,
    Flooded,
    FloodingRouter,
    History,
    Interest,
    MatchEarlyRouter,
    Rounds,
    Sequences,
    SubscriptionFloodingRouter,
    Summary,
    Tick,
    Watermarks,
)
from stentor.research.flooding.medym import next_hops
from stentor.routing.protocol import BrokerId, Deliver, FilterId, Router, Send
from stentor.simulation import Network

Links = list[tuple[int, int]]

#: Six routers, the publisher at 1, the subscribers at 5 and 6.
E_11: Links = [(1, 2), (1, 3), (3, 4), (4, 5), (4, 6)]
RING: Links = [(1, 2), (2, 3), (3, 1)]
TREE_OF_4: Links = [(1, 2), (2, 3), (2, 4)]


def brokers_of(links: Links) -> list[int]:
    return sorted({broker for link in links for broker in link})


def network(
    links: Links, make: Callable[[int], Router], *, seed: int | None = None, mesh: bool = False
) -> Network:
    routers: dict[BrokerId, Router] = {broker: make(broker) for broker in brokers_of(links)}
    return Network(routers, None if mesh else links, seed=seed)


@st.composite
def graphs(draw: st.DrawFn, cycles: bool = True) -> Links:
    """Connected graphs: a random tree, and some links more."""
    n = draw(st.integers(2, 6))
    links = [(draw(st.integers(1, b - 1)), b) for b in range(2, n + 1)]
    if cycles:
        others = [pair for pair in combinations(range(1, n + 1), 2) if pair not in links]
        if others:
            links += draw(st.lists(st.sampled_from(others), unique=True, max_size=5))
    return links


def note(x: int, sequence: int = 0, producer: str = "p") -> Notification:
    return Notification({"x": x}, id=NotificationId(producer, 0, sequence))


def kept(net: Network) -> list[int]:
    """How many ids each flooding router keeps."""
    return [len(router.history) for router in routers(net, FloodingRouter)]


def routers(net: Network, kind: type) -> list[Any]:
    found = [net.router(broker) for broker in net.brokers]
    assert all(isinstance(router, kind) for router in found)
    return found


class ByTime:
    """The histories that need a clock, on the clock of a network that is made later."""

    def __init__(self, kind: Callable[[Callable[[], float]], History]) -> None:
        self.net: Network | None = None
        self._kind = kind

    def __call__(self, broker: int) -> FloodingRouter:
        return FloodingRouter(broker, self._kind(self.now))

    def now(self) -> float:
        return self.net.now if self.net is not None else 0.0


def timed_network(
    links: Links, kind: Callable[[Callable[[], float]], History], seed: int | None = None
) -> Network:
    make = ByTime(kind)
    make.net = network(links, make, seed=seed)
    return make.net


#: One for each way to clean up, given the links and a seed.
FLOODED: dict[str, Callable[[Links, int], Network]] = {
    "sequences": lambda links, seed: network(links, FloodingRouter, seed=seed),
    "window": lambda links, seed: timed_network(links, AgeWindow, seed),
    "rounds": lambda links, seed: network(
        links, lambda b: FloodingRouter(b, Rounds(len(brokers_of(links)))), seed=seed
    ),
}
#: Every router of this package that works on any graph.
ON_ANY_GRAPH: dict[str, Callable[[Links, int], Network]] = {
    **FLOODED,
    "match early": lambda links, seed: network(
        links, lambda b: MatchEarlyRouter(b, links), seed=seed
    ),
    "simple on a mesh": lambda links, seed: network(
        links, SubscriptionFloodingRouter, seed=seed, mesh=True
    ),
    "identity on a mesh": lambda links, seed: network(
        links, lambda b: SubscriptionFloodingRouter(b, "identity"), seed=seed, mesh=True
    ),
    "match early on a mesh": lambda links, seed: network(
        links, MatchEarlyRouter, seed=seed, mesh=True
    ),
}


# -- what all of them promise

ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("sub"), st.integers(0, 5), st.sampled_from(["x > 1", "x < 3", "x = 2"])),
        st.tuples(st.just("unsub"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("pub"), st.integers(0, 5), st.integers(0, 4)),
        st.tuples(st.just("step"), st.integers(1, 6), st.just(0)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", ON_ANY_GRAPH)
@pytest.mark.spec("R-03.44", "R-01.18", "R-01.20", "R-01.21", "03/P5", "03/P10", "07/P-01")
def test_everything_wanted_is_delivered_once(kind: str) -> None:
    @given(graphs(), ACTS, st.integers(0, 2**16))
    @settings(max_examples=25)
    def check(links: Links, acts: list[tuple[str, int, int | str]], seed: int) -> None:
        net = ON_ANY_GRAPH[kind](links, seed)
        clients = [net.client(at=broker) for broker in net.brokers]
        held: list[list[tuple[FilterId, Filter]]] = [[] for _ in clients]
        for act, number, what in acts:
            at = number % len(clients)
            if act == "sub":
                held[at].append((clients[at].subscribe(str(what)), Filter(str(what))))
            elif act == "unsub" and held[at]:
                clients[at].unsubscribe(held[at].pop(int(what) % len(held[at]))[0])
            elif act == "pub":
                clients[at].publish({"x": what})
            elif act == "step":
                for _ in range(number):
                    net.step()
        net.settle()
        before = [len(client.received) for client in clients]
        for publisher in clients:
            for x in range(5):
                publisher.publish({"x": x})
        net.settle()
        for client, filters, first in zip(clients, held, before, strict=True):
            expected = sorted(
                x for x in range(5) if any(f.matches({"x": x}) for _, f in filters)
            ) * len(clients)
            assert sorted(n["x"] for n in client.received[first:]) == sorted(expected)
            ids = [n.id for n in client.received]
            assert len(set(ids)) == len(ids)

    check()


@pytest.mark.parametrize("kind", ON_ANY_GRAPH)
@pytest.mark.spec("R-03.07", "03/P12", "01/T-5")
def test_repeated_and_unknown_submissions_change_nothing(kind: str) -> None:
    net = ON_ANY_GRAPH[kind](RING, 0)
    router = net.router(1)
    id = FilterId("ann", 1)
    router.subscribe(id, Filter("x > 1"))
    assert router.subscribe(id, Filter("x > 1")) == []
    assert router.table_size().local == 1
    router.unsubscribe(id)
    assert router.unsubscribe(id) == []
    assert router.table_size().local == 0


@pytest.mark.parametrize("kind", ON_ANY_GRAPH)
@pytest.mark.spec("01/T-6", "01/S10")
def test_the_publisher_gets_its_own(kind: str) -> None:
    net = ON_ANY_GRAPH[kind](RING, 0)
    client = net.client(at=1)
    client.subscribe("x > 1")
    net.settle()
    client.publish({"x": 2})
    net.settle()
    assert [n["x"] for n in client.received] == [2]


@pytest.mark.parametrize("kind", ON_ANY_GRAPH)
def test_advertisements_stay_local(kind: str) -> None:
    net = ON_ANY_GRAPH[kind](RING, 0)
    a, b = net.client(at=1), net.client(at=2)
    sent = net.counters.messages
    first, _ = a.advertise("x > 1"), a.advertise("x > 1")
    net.settle()
    assert net.counters.messages == sent
    assert a.offers() == [Filter("x > 1")]
    assert b.offers() == []
    assert net.router(1).table_size().advertisements == 2
    a.unadvertise(first)
    a.unadvertise(first)
    assert net.router(1).table_size().advertisements == 1


@pytest.mark.parametrize("make", [FloodingRouter, SubscriptionFloodingRouter, MatchEarlyRouter])
def test_a_message_of_another_routing_is_refused(make: Callable[[int], Router]) -> None:
    router = make(1)
    router.link_up(2)
    assert isinstance(router, Router)
    with pytest.raises(InvalidConfiguration, match="got a Tick from 2"):
        router.receive(2, Tick(1))


# -- event flooding


@given(graphs(cycles=False))
@pytest.mark.spec("07/P-04", "03/A2", "R-01.56")
def test_on_a_tree_flooding_costs_one_message_per_link(links: Links) -> None:
    net = network(links, FloodingRouter)
    net.client(at=1).subscribe("x > 1")
    assert net.counters.messages == 0
    net.client(at=2).publish({"x": 0})
    net.settle()
    assert net.counters.notifications == len(links)


@pytest.mark.spec("R-01.56")
def test_subscriptions_take_effect_at_once() -> None:
    net = network(E_11, FloodingRouter)
    far, publisher = net.client(at=6), net.client(at=1)
    publisher.publish({"x": 2})
    far.subscribe("x > 1")
    net.settle()
    assert len(far.received) == 1


@pytest.mark.parametrize("kind", FLOODED)
@pytest.mark.spec("03/A15", "R-03.42", "R-03.44")
def test_in_a_cycle_each_broker_passes_a_notification_on_once(kind: str) -> None:
    @given(graphs(), st.integers(0, 2**16))
    @settings(max_examples=25)
    def check(links: Links, seed: int) -> None:
        net = FLOODED[kind](links, seed)
        net.client(at=1).publish({"x": 1})
        net.settle()
        copies = 2 * len(links) - (len(net.brokers) - 1)
        assert net.counters.notifications == copies
        repeats = sum(router.repeats for router in routers(net, FloodingRouter))
        assert repeats == copies - (len(net.brokers) - 1)
        assert all(router.history.refused == 0 for router in routers(net, FloodingRouter))

    check()


@given(graphs(), st.integers(0, 2**16))
@pytest.mark.spec("R-01.26", "R-03.12")
def test_flooding_keeps_the_order_of_each_producer_even_in_cycles(links: Links, seed: int) -> None:
    net = network(links, FloodingRouter, seed=seed)
    consumers = [net.client(at=broker) for broker in net.brokers]
    for consumer in consumers:
        consumer.subscribe("")
    producers = [net.client(at=1), net.client(at=2)]
    for x in range(4):
        for producer in producers:
            producer.publish({"x": x})
        net.step()
    net.settle()
    for consumer in consumers:
        for producer in producers:
            mine = [n["x"] for n in consumer.received if n.id and n.id.producer == producer.id]
            assert mine == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", FLOODED)
@pytest.mark.spec("01/S9", "R-01.13")
def test_an_id_is_published_once(kind: str) -> None:
    router = FLOODED[kind](RING, 0).router(1)
    router.publish("p", note(1))
    with pytest.raises(RepeatedPublication, match="p:0:0"):
        router.publish("p", note(1))


@pytest.mark.spec("03/A2", "R-03.38", "R-03.39")
def test_links_come_and_go() -> None:
    net = network(RING, FloodingRouter, seed=1)
    consumer, producer = net.client(at=3), net.client(at=1)
    consumer.subscribe("")
    net.disconnect(1, 3)
    producer.publish({"x": 1})
    net.settle()
    net.disconnect(2, 3)
    producer.publish({"x": 2})
    net.settle()
    net.connect(1, 3)
    producer.publish({"x": 3})
    net.settle()
    assert [n["x"] for n in consumer.received] == [1, 3]
    assert net.router(3).neighbors == {1}


# -- cleaning up


@pytest.mark.spec("R-03.43", "07/T-06")
def test_sequences_keep_one_interval_per_producer() -> None:
    seen = SeenIds()
    router = FloodingRouter(1, Sequences(seen))
    router.link_up(2)
    for sequence in range(200):
        message = Flooded(note(0, sequence), 0.0)
        assert len(router.receive(2, message)) == 0
    assert len(router.history) == 1
    assert seen.to_data()["recent"] == [["p", [[0, 0], [0, 0], [0, 200]]]]


def test_sequences_refuse_what_they_can_no_longer_tell() -> None:
    history = Sequences(SeenIds(max_intervals=1))
    assert history.admit(NotificationId("p", 0, 4), 0.0)
    assert history.admit(NotificationId("p", 0, 8), 0.0)
    assert not history.admit(NotificationId("p", 0, 2), 0.0)
    assert history.refused == 1


@pytest.mark.parametrize("links", [RING, TREE_OF_4], ids=["ring", "tree"])
@pytest.mark.spec("03/X-03.26", "03/A17")
def test_the_age_window_cleans_ring_and_tree(links: Links) -> None:
    now = [0.0]
    net = network(links, lambda b: FloodingRouter(b, AgeWindow(lambda: now[0], age=10.0)))
    client = net.client(at=1)
    for _ in range(5):
        client.publish({"x": 1})
    net.settle()
    assert kept(net) == [5] * len(net.brokers)
    now[0] = 11.0
    client.publish({"x": 1})
    net.settle()
    assert kept(net) == [1] * len(net.brokers)


@pytest.mark.parametrize("links", [RING, TREE_OF_4], ids=["ring", "tree"])
@pytest.mark.spec("03/X-03.26", "03/A17", "R-03.43")
def test_rounds_clean_ring_and_tree(links: Links) -> None:
    net = FLOODED["rounds"](links, 3)
    for broker in net.brokers:
        net.client(at=broker).publish({"x": 1})
    while net.step():
        pass
    assert kept(net) == [len(net.brokers)] * len(net.brokers)
    net.settle()
    assert kept(net) == [0] * len(net.brokers)
    assert net.counters.control > 0


@pytest.mark.spec("03/X-03.26", "03/A17", "R-03.43")
def test_watermarks_as_printed_clean_a_tree_and_are_stuck_on_a_ring() -> None:
    left = {}
    for name, links in (("tree", TREE_OF_4), ("ring", RING)):
        net = timed_network(links, Watermarks, seed=3)
        for _ in range(3):
            for broker in net.brokers:
                net.client(at=broker).publish({"x": 1})
            net.settle()
        left[name] = kept(net)
        assert all(router.history.refused == 0 for router in routers(net, FloodingRouter))
    assert left == {"tree": [0, 0, 0, 0], "ring": [9, 9, 9]}


@given(graphs(cycles=False), st.integers(0, 2**16), st.lists(st.integers(0, 20), max_size=8))
@settings(max_examples=40)
@pytest.mark.spec("03/P15", "03/A17")
def test_watermarks_on_a_tree_lose_nothing(links: Links, seed: int, steps: list[int]) -> None:
    net = timed_network(links, Watermarks, seed)
    consumers = [net.client(at=broker) for broker in net.brokers]
    for consumer in consumers:
        consumer.subscribe("")
    for number in steps:
        consumers[number % len(consumers)].publish({"x": 1})
        for _ in range(number):
            net.step()
    net.settle()
    assert all(len(consumer.received) == len(steps) for consumer in consumers)
    assert kept(net) == [0] * len(net.brokers)


@given(
    graphs(),
    st.integers(0, 2**16),
    st.lists(st.tuples(st.sampled_from(["pub", "tick"]), st.integers(0, 12)), max_size=25),
)
@pytest.mark.spec("03/P15", "03/A17", "R-03.43")
def test_rounds_lose_nothing_and_repeat_nothing(
    links: Links, seed: int, acts: list[tuple[str, int]]
) -> None:
    """Series begin in the middle of traffic, and links are as slow as they like."""
    handled = Handled()
    net = network(
        links, lambda b: handled.by(FloodingRouter(b, Rounds(len(brokers_of(links))))), seed=seed
    )
    clients = [net.client(at=broker) for broker in net.brokers]
    published = 0
    for act, number in acts:
        if act == "pub":
            clients[number % len(clients)].publish({"x": 1})
            published += 1
        else:
            begin_series(net, net.brokers[number % len(net.brokers)])
        for _ in range(number):
            net.step()
    net.settle()
    assert kept(net) == [0] * len(net.brokers)
    for broker in net.brokers:
        assert len(handled.ids[broker]) == len(set(handled.ids[broker])) == published


@pytest.mark.parametrize(("ticks", "loses"), [(2, True), (4, False)])
@pytest.mark.spec("03/A17")
def test_a_series_must_be_as_long_as_the_longest_way(ticks: int, loses: bool) -> None:
    """With fewer ticks than brokers, ids go while copies are on their way."""
    refused = 0
    for seed in range(60):
        net = network(
            [(1, 2), (2, 3), (3, 4)], lambda b: FloodingRouter(b, Rounds(ticks)), seed=seed
        )
        clients = [net.client(at=broker) for broker in net.brokers]
        chance = random.Random(seed)
        for _ in range(3):
            chance.choice(clients).publish({"x": 1})
            begin_series(net, chance.choice(net.brokers))
            for _ in range(chance.randrange(12)):
                net.step()
        net.settle()
        refused += sum(router.history.refused for router in routers(net, FloodingRouter))
    assert (refused > 0) is loses


def begin_series(net: Network, broker: BrokerId) -> None:
    """As if the broker's timer had run out in the middle of traffic."""
    net.apply(broker, net.router(broker).expired("rounds"))


class Handled:
    """Writes down which notifications each router admits, in order."""

    def __init__(self) -> None:
        self.ids: dict[BrokerId, list[NotificationId]] = {}

    def by(self, router: FloodingRouter) -> FloodingRouter:
        ids = self.ids[router.id] = []
        admit = router.history.admit

        def admit_and_note(id: NotificationId, stamp: float) -> bool:
            new = admit(id, stamp)
            if new:
                ids.append(id)
            return new

        router.history.admit = admit_and_note  # type: ignore[method-assign]
        return router


@pytest.mark.parametrize("kind", ["sequences", "window", "rounds"])
@pytest.mark.spec("03/P15", "07/T-06")
def test_nothing_is_handled_twice_while_links_come_and_go(kind: str) -> None:
    @given(
        graphs(),
        st.integers(0, 2**16),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=25),
    )
    @settings(max_examples=30)
    def check(links: Links, seed: int, acts: list[tuple[int, int]]) -> None:
        now = [0.0]
        handled = Handled()
        histories: dict[str, Callable[[], History]] = {
            "sequences": lambda: Sequences(SeenIds(max_intervals=2)),
            "window": lambda: AgeWindow(lambda: now[0], age=5.0, limit=4),
            "rounds": lambda: Rounds(len(brokers_of(links))),
        }
        net = network(links, lambda b: handled.by(FloodingRouter(b, histories[kind]())), seed=seed)
        clients = [net.client(at=broker) for broker in net.brokers]
        for act, number in acts:
            if act == 0:
                clients[number % len(clients)].publish({"x": 1})
            elif act == 1:
                now[0] += number / 10
                begin_series(net, net.brokers[number % len(net.brokers)])
            elif act == 2:
                a, b = links[number % len(links)]
                if (a, b) in net.links:
                    net.disconnect(a, b)
                else:
                    net.connect(a, b)
            else:
                for _ in range(number):
                    net.step()
        net.settle()
        for ids in handled.ids.values():
            assert len(set(ids)) == len(ids)

    check()


def test_rounds_catch_up_with_a_network_that_has_long_been_running() -> None:
    def make(broker: BrokerId) -> Router:
        return FloodingRouter(broker, Rounds(4))

    net = Network({broker: make(broker) for broker in (1, 2, 3)}, [(1, 2), (2, 3)], make=make)
    client = net.client(at=1)
    for _ in range(50):
        client.publish({"x": 1})
        net.settle()
    control = net.counters.control
    net.add_broker(4, links=[1, 3])
    net.settle()
    late = net.client(at=4)
    late.subscribe("")
    client.publish({"x": 2})
    net.settle()
    assert [n["x"] for n in late.received] == [2]
    assert kept(net) == [0, 0, 0, 0]
    assert net.counters.control - control < 100


@pytest.mark.spec("R-03.43", "03/P15")
def test_the_window_is_bounded_under_load_and_refuses_rather_than_repeats() -> None:
    window = AgeWindow(lambda: 0.0, limit=10)
    stamps = [window.stamp() for _ in range(30)]
    assert stamps == sorted(set(stamps))
    assert all(window.admit(NotificationId("p", 0, i), s) for i, s in enumerate(stamps))
    assert len(window) == 10
    assert not any(window.admit(NotificationId("p", 0, i), s) for i, s in enumerate(stamps))
    assert window.refused == 20
    assert window.admit(NotificationId("q", 0, 0), window.stamp())


def test_the_window_refuses_stamps_from_a_clock_that_is_far_ahead() -> None:
    window = AgeWindow(lambda: 0.0, age=10.0)
    assert window.admit(NotificationId("p", 0, 0), 9.0)
    assert not window.admit(NotificationId("p", 0, 1), 11.0)
    assert window.refused == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: AgeWindow(lambda: 0.0, age=0.0),
        lambda: AgeWindow(lambda: 0.0, limit=0),
        lambda: Rounds(0),
        lambda: Rounds(3, period=0.0),
    ],
)
def test_histories_that_keep_nothing_are_refused(make: Callable[[], History]) -> None:
    with pytest.raises(InvalidConfiguration):
        make()


# -- subscription flooding

MESHES: dict[str, Callable[[int], Router]] = {
    "simple": SubscriptionFloodingRouter,
    "identity": lambda b: SubscriptionFloodingRouter(b, "identity"),
    "match early": MatchEarlyRouter,
}


def e_11(net: Network) -> tuple[list[int], list[int]]:
    """Messages for the subscriptions of B and C, and for n_X and n_Y."""
    a, b, c = net.client(at=1), net.client(at=5), net.client(at=6)
    subscriptions, events = [], []
    for client in (b, c):
        before = net.counters.subscriptions
        client.subscribe("x = 1")
        net.settle()
        subscriptions.append(net.counters.subscriptions - before)
    for x in (1, 2):
        before = net.counters.notifications
        a.publish({"x": x})
        net.settle()
        events.append(net.counters.notifications - before)
    assert [n["x"] for n in b.received] == [n["x"] for n in c.received] == [1]
    return subscriptions, events


@pytest.mark.parametrize("kind", MESHES)
@pytest.mark.spec("07/E-11", "07/P-04")
def test_six_routers_on_a_full_mesh(kind: str) -> None:
    net = network(E_11, MESHES[kind], mesh=True)
    assert e_11(net) == ([5, 5], [2, 0])
    assert [net.router(b).table_size().total for b in net.brokers] == [2] * 6  # replication N


@pytest.mark.spec("07/E-11")
def test_six_routers_flooding_events() -> None:
    assert e_11(network(E_11, FloodingRouter)) == ([0, 0], [5, 5])


@pytest.mark.spec("07/E-11", "07/4.2")
def test_six_routers_matching_early_on_a_tree() -> None:
    net = network(E_11, lambda b: MatchEarlyRouter(b, E_11))
    assert e_11(net) == ([5, 5], [4, 0])
    assert net.counters.links["notification"][1, 2] == 0


@pytest.mark.parametrize(
    ("strategy", "messages", "entries"), [("simple", 3 * 2, 3), ("identity", 2 * 2, 2)]
)
def test_identity_announces_equal_filters_once(strategy: str, messages: int, entries: int) -> None:
    net = network(RING, lambda b: SubscriptionFloodingRouter(b, strategy), mesh=True)  # type: ignore[arg-type]
    a, b = net.client(at=1), net.client(at=1)
    first = a.subscribe("x > 1")
    b.subscribe("1 < x")
    b.subscribe("x > 5")
    net.settle()
    assert net.counters.subscriptions == messages
    assert net.router(2).table_size().remote == entries
    a.unsubscribe(first)
    net.settle()
    c = net.client(at=2)
    c.publish({"x": 3})
    net.settle()
    assert len(b.received) == 1
    b.leave()
    net.settle()
    assert net.router(2).table_size().remote == 0


@pytest.mark.parametrize("kind", MESHES)
@pytest.mark.spec("07/4.2", "03/P9")
def test_what_a_broker_wanted_goes_with_its_link_and_comes_back_with_it(kind: str) -> None:
    net = network(RING, MESHES[kind], mesh=True)
    a, b = net.client(at=1), net.client(at=2)
    b.subscribe("x > 1")
    net.settle()
    net.disconnect(1, 2)
    assert net.router(1).table_size().remote == 0
    assert net.router(3).table_size().remote == 1
    a.publish({"x": 2})
    net.settle()
    assert b.received == []
    net.connect(1, 2)
    net.settle()
    a.publish({"x": 3})
    net.settle()
    assert [n["x"] for n in b.received] == [3]
    net.fail_broker(2)
    assert [net.router(broker).table_size().remote for broker in net.brokers] == [0, 0]


@pytest.mark.parametrize("kind", MESHES)
@given(acts=ACTS, seed=st.integers(0, 2**16))
@settings(max_examples=25)
@pytest.mark.spec("07/P-10", "03/P9")
def test_unsubscribing_everything_empties_all_tables(
    kind: str, acts: list[tuple[str, int, int | str]], seed: int
) -> None:
    net = network(E_11[:3], MESHES[kind], seed=seed, mesh=True)
    clients = [net.client(at=broker) for broker in net.brokers]
    for act, number, what in acts:
        if act == "sub":
            clients[number % len(clients)].subscribe(str(what))
        elif act == "step":
            net.step()
    for client in clients:
        client.leave()
    net.settle()
    assert all(size.total == 0 for size in net.table_sizes().values())


@pytest.mark.parametrize("kind", MESHES)
@pytest.mark.spec("R-01.22", "R-01.21")
def test_a_subscription_takes_effect_when_it_has_arrived(kind: str) -> None:
    net = network(RING, MESHES[kind], mesh=True)
    publisher, consumer = net.client(at=1), net.client(at=2)
    consumer.subscribe("x > 0")
    publisher.publish({"x": 1})  # the subscription is still on its way
    net.settle()
    publisher.publish({"x": 2})
    net.settle()
    assert [n["x"] for n in consumer.received] == [2]


def test_interest_repeated_or_unknown_changes_nothing() -> None:
    router = SubscriptionFloodingRouter(1)
    router.link_up(2)
    wanted = Interest(added=(("a", Filter("x > 1")),))
    for _ in range(2):
        router.receive(2, wanted)
    assert router.table_size().remote == 1
    for _ in range(2):
        router.receive(2, Interest(removed=("a",)))
    assert router.table_size().remote == 0


@pytest.mark.spec("R-01.18")
def test_a_notification_is_matched_again_where_it_arrives() -> None:
    router = SubscriptionFloodingRouter(1)
    router.link_up(2)
    id = FilterId("ann", 1)
    router.subscribe(id, Filter("x > 1"))
    assert router.receive(2, Direct(note(2))) == [Deliver("ann", note(2))]
    assert router.receive(2, Direct(note(0))) == []
    router.unsubscribe(id)
    assert router.receive(2, Direct(note(2))) == []


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(UnknownStrategy, match="simple, identity"):
        SubscriptionFloodingRouter(1, "covering")  # type: ignore[arg-type]


# -- summaries


@pytest.mark.spec("07/4.2")
def test_a_summary_is_announced_only_when_the_union_changes() -> None:
    net = network(E_11, MatchEarlyRouter, mesh=True)
    client = net.client(at=1)

    def announced(change: Callable[[], object]) -> int:
        before = net.counters.subscriptions
        change()
        net.settle()
        return net.counters.subscriptions - before

    assert announced(lambda: client.subscribe("x between 0 and 5")) == 5
    assert announced(lambda: client.subscribe("x between 1 and 2")) == 0
    assert announced(lambda: client.subscribe("x between 5 and 9")) == 5
    inner = []
    assert announced(lambda: inner.append(client.subscribe("x between 3 and 7"))) == 0
    assert announced(lambda: client.unsubscribe(inner[0])) == 0
    assert announced(client.leave) > 0


FILTERS = st.builds(
    lambda x, width, y: Filter(f"x between {x} and {x + width}" + (f" and y = {y}" if y else "")),
    st.integers(0, 9),
    st.integers(0, 4),
    st.integers(0, 2),
)


@given(
    st.lists(st.tuples(st.booleans(), FILTERS), max_size=40), st.sampled_from([1, 2, 8]), st.data()
)
@pytest.mark.spec("07/4.2", "07/T-15")
def test_a_summary_covers_everything_and_stays_small(
    acts: list[tuple[bool, Filter]], size: int, data: st.DataObject
) -> None:
    summary = Summary(size)
    held: list[Filter] = []
    for add, filter in acts:
        before = summary.filter
        if add or not held:
            held.append(filter)
            changed = summary.add(filter)
        else:
            changed = summary.remove(held.pop(data.draw(st.integers(0, len(held) - 1))))
        assert changed is (summary.filter != before)
        assert len(summary.filter.conjuncts) <= size
        assert len(summary) == len(set(held))
        for f in held:
            assert summary.filter.covers(f)
    for filter in held:
        summary.remove(filter)
    assert summary.filter.is_never


@given(st.lists(FILTERS, max_size=8), st.data())
@settings(max_examples=50)
@pytest.mark.spec("07/4.2")
def test_a_summary_of_few_filters_is_their_union(
    filters: list[Filter], data: st.DataObject
) -> None:
    summary = Summary(8)
    for filter in filters:
        summary.add(filter)
    while filters:
        for x in range(15):
            for y in range(3):
                event = {"x": x, "y": y}
                assert summary.filter.matches(event) is any(f.matches(event) for f in filters)
        summary.remove(filters.pop(data.draw(st.integers(0, len(filters) - 1))))


def test_a_summary_of_very_many_values_is_short() -> None:
    summary = Summary()
    filters = [Filter(f"symbol = 's{number:03}'") for number in range(300)]
    for filter in filters:
        summary.add(filter)
    assert all(summary.filter.matches({"symbol": f"s{number:03}"}) for number in range(300))
    assert not summary.filter.matches({"symbol": "t"})
    assert len(str(summary.filter)) < 1_000


# -- matching early on a graph


@given(graphs())
@pytest.mark.spec("07/4.2")
def test_next_hops_shorten_the_way(links: Links) -> None:
    brokers = brokers_of(links)
    hops: dict[BrokerId, dict[BrokerId, BrokerId]] = {b: next_hops(b, links) for b in brokers}
    for start in brokers:
        assert set(hops[start]) == set(brokers) - {start}
        for goal in hops[start]:
            at: BrokerId = start
            steps = 0
            while at != goal:
                at, steps = hops[at][goal], steps + 1
                assert steps < len(brokers)


def test_the_list_of_destinations_is_split_and_not_matched_on_the_way() -> None:
    router = MatchEarlyRouter(4, E_11)
    for neighbor in (3, 5, 6):
        router.link_up(neighbor)
    outputs = router.receive(3, Addressed(note(1), (5, 6)))
    assert outputs == [Send(5, Addressed(note(1), (5,))), Send(6, Addressed(note(1), (6,)))]


@pytest.mark.spec("07/P-04", "07/4.2")
def test_a_message_is_copied_where_the_ways_part() -> None:
    ring: Links = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 1)]
    net = network(ring, lambda b: MatchEarlyRouter(b, ring))
    clients = [net.client(at=broker) for broker in net.brokers]
    for client in clients:
        client.subscribe("x = 1")
    net.settle()
    clients[0].publish({"x": 1})
    net.settle()
    assert net.counters.notifications == 4
    assert all(len(client.received) == 1 for client in clients)


@pytest.mark.spec("07/T-06", "03/X-03.25")
def test_announcements_do_not_go_round_in_cycles() -> None:
    net = network(RING, lambda b: MatchEarlyRouter(b, RING))
    client = net.client(at=1)
    id = client.subscribe("x = 1")
    client.unsubscribe(id)
    for channel in ((1, 2), (1, 2), (2, 3), (2, 3)):  # all messages one way round first
        net.step(channel)
    net.settle()
    assert net.counters.subscriptions <= 2 * 4
    assert all(size.total == 0 for size in net.table_sizes().values())


@pytest.mark.parametrize("kind", FLOODED)
@pytest.mark.spec("03/X-03.25")
def test_flooding_leaves_empty_tables_on_a_ring(kind: str) -> None:
    net = FLOODED[kind](RING, 0)
    client = net.client(at=1)
    client.unsubscribe(client.subscribe("x = 1"))
    net.settle()
    assert net.counters.messages == 0
    assert all(size.total == 0 for size in net.table_sizes().values())


def test_a_restarted_broker_overrides_its_former_self() -> None:
    net = Network(
        {b: MatchEarlyRouter(b, RING) for b in (1, 2, 3)},
        RING,
        make=lambda b: MatchEarlyRouter(b, RING),
    )
    old = net.client(at=3)
    for x in range(4):
        old.subscribe(f"x = {x}")
    net.settle()
    net.fail_broker(3)
    net.add_broker(3, links=[1, 2])
    new = net.client(at=3)
    new.subscribe("x = 9")
    net.settle()
    publisher = net.client(at=1)
    before = net.counters.notifications
    for x in (0, 9):
        publisher.publish({"x": x})
    net.settle()
    assert [n["x"] for n in new.received] == [9]
    assert net.counters.notifications - before == 1


def test_what_finds_no_link_is_counted() -> None:
    net = network(E_11, lambda b: MatchEarlyRouter(b, E_11))
    for broker in (5, 6):
        net.client(at=broker).subscribe("x = 1")
    net.settle()
    net.disconnect(3, 4)
    net.client(at=1).publish({"x": 1})
    net.settle()
    assert [r.undeliverable for r in routers(net, MatchEarlyRouter)] == [0, 0, 2, 0, 0, 0]
    stray = MatchEarlyRouter(1, [(1, 2)])
    stray.link_up(2)
    assert stray.receive(2, Addressed(note(1), (99,))) == []
    assert stray.undeliverable == 1


def test_an_announcement_that_is_not_newer_is_ignored() -> None:
    router = MatchEarlyRouter(1, RING)
    for neighbor in (2, 3):
        router.link_up(neighbor)
    news = Announcement(2, 2, Filter("x > 1"))
    assert router.receive(2, news) == [Send(3, news)]
    assert router.receive(3, news) == []
    assert router.receive(3, Announcement(2, 1, Filter("x > 9"))) == []
    assert router.table_size().remote == 1


def test_links_that_do_not_connect_are_refused() -> None:
    with pytest.raises(InvalidTopology, match="3 cannot be reached"):
        MatchEarlyRouter(1, [(1, 2), (3, 4)])


@given(graphs(), st.integers(0, 2**16), st.randoms(use_true_random=False))
@settings(max_examples=30)
@pytest.mark.spec("07/4.2", "07/T-06")
def test_announcements_agree_after_links_came_and_went(
    links: Links, seed: int, chance: random.Random
) -> None:
    net = network(links, lambda b: MatchEarlyRouter(b, links), seed=seed)
    clients = [net.client(at=broker) for broker in net.brokers]
    wanted: dict[str, set[int]] = {client.id: set() for client in clients}
    for x in range(15):
        a, b = chance.choice(links)
        if (a, b) in net.links:
            net.disconnect(a, b)
        else:
            net.connect(a, b)
        client = chance.choice(clients)
        client.subscribe(f"x = {x}")
        wanted[client.id].add(x)
        net.step()
    for a, b in links:
        if (a, b) not in net.links:
            net.connect(a, b)
    net.settle()
    for x in range(15):
        chance.choice(clients).publish({"x": x})
    net.settle()
    for client in clients:
        assert {n["x"] for n in client.received} == wanted[client.id]
        client.leave()
    net.settle()
    assert all(size.total == 0 for size in net.table_sizes().values())


def test_the_same_run_twice_is_the_same() -> None:
    def trace(kind: str) -> Iterable[object]:
        net = ON_ANY_GRAPH[kind]([*RING, (3, 4)], 5)
        for broker in net.brokers:
            net.client(at=broker).subscribe(f"x > {broker}")
        net.settle()
        net.client(at=4).publish({"x": 3})
        while net.pending:
            yield net.pending
            net.step()

    for kind in ON_ANY_GRAPH:
        assert list(trace(kind)) == list(trace(kind))
