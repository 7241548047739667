"""Type-based rendezvous: the tree of each type, its supertypes, and a ring that changes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import InvalidNotification, UnknownStrategy, UnsupportedMapping
from stentor.filters import Filter
from stentor.filters.addressing import event_type, type_path
from stentor.model.event_types import EventTypes, event_types
from stentor.model.names import name_problem
from stentor.model.notification import Notification
from stentor.routing.protocol import BrokerId, FilterId, Router
from stentor.routing.rendezvous import Pastry, TypeRendezvousRouter, key_of
from stentor.routing.rendezvous import types as type_routing
from stentor.routing.rendezvous.types import EVERYTHING
from stentor.simulation.client import Client
from stentor.simulation.network import Network

STRATEGIES = ("simple", "identity", "covering", "merging")
STORES = ("path", "root")

event_types.declare("rendezvous.halt", parents=["rendezvous.quote", "rendezvous.alert"])
TYPES = [
    "rendezvous",
    "rendezvous.quote",
    "rendezvous.quote.stock",
    "rendezvous.alert",
    "rendezvous.halt",
]


def network(
    brokers: int = 12, *, seed: int | None = None, leaves: int = 2, **options: object
) -> Network:
    """A ring that is as deep as it can be: with few leaves, most keys take several hops."""

    def make(id: BrokerId) -> Router:
        ring = Pastry(id, digit_bits=1, leaves=leaves)
        return TypeRendezvousRouter(ring, **options)  # type: ignore[arg-type]

    return Network({id: make(id) for id in range(brokers)}, None, seed=seed, make=make)


def root_of(net: Network, name: str) -> BrokerId:
    """Where the rendezvous of a type is now."""
    return next(b for b in net.brokers if ring_of(net, b).next_hop(key_of(name)) is None)


def ring_of(net: Network, broker: BrokerId) -> Pastry:
    router = net.router(broker)
    assert isinstance(router, TypeRendezvousRouter)
    ring = router._ring
    assert isinstance(ring, Pastry)
    return ring


def entries(net: Network) -> int:
    return sum(size.total for size in net.table_sizes().values())


class Fixed:
    """A ring whose next hops are given."""

    def __init__(self, id: BrokerId, hop: BrokerId | None) -> None:
        self.id = id
        self._hop = hop
        self._up: dict[BrokerId, None] = {}

    def add(self, broker: BrokerId) -> None:
        self._up[broker] = None

    def remove(self, broker: BrokerId) -> bool:
        del self._up[broker]
        return False

    def refill(self, brokers: Iterable[BrokerId]) -> None:
        raise AssertionError("not asked for")

    def next_hop(self, key: int) -> BrokerId | None:
        return self._hop

    @property
    def leaf_set(self) -> list[BrokerId]:
        return []


# -- the figures


@pytest.mark.spec("03/X-03.11", "R-03.34", "03/A12")
def test_figure_4_32() -> None:
    hops: dict[BrokerId, BrokerId | None] = {
        "R": None,
        "B1": "B3",
        "B2": "B3",
        "B3": "R",
        "B4": "R",
        "B5": "R",
    }
    routers = {
        id: TypeRendezvousRouter(Fixed(id, hop), strategy="simple") for id, hop in hops.items()
    }
    net = Network(routers, None)
    s1, s2, p = net.client("B1"), net.client("B5"), net.client("B2")
    s1.subscribe("isa fig and x = 1")
    s2.subscribe("isa fig")
    net.settle()
    held = {id: size.total for id, size in net.table_sizes().items()}
    assert held == {"B1": 1, "B3": 1, "B5": 1, "R": 2, "B2": 0, "B4": 0}
    p.publish(Notification({"x": 1}, type="fig"))
    net.settle()
    assert len(s1.received) == len(s2.received) == 1
    # From B2 by B3 to the root; at B3 back to B1, at the root to B5, and nowhere twice.
    assert dict(net.counters.links["notification"]) == {
        ("B2", "B3"): 1,
        ("B3", "B1"): 1,
        ("B3", "R"): 1,
        ("R", "B5"): 1,
    }
    p.publish(Notification({"x": 2}, type="fig"))
    net.settle()
    assert len(s1.received) == 1
    assert len(s2.received) == 2


@pytest.mark.spec("07/E-13")
@pytest.mark.parametrize("store", STORES)
def test_figure_3d_every_event_meets_its_subscriber_at_the_rendezvous(store: str) -> None:
    net = network(store=store)
    subscriber = net.client(4)
    subscriber.subscribe("isa point and x < 1")
    net.settle()
    for broker in net.brokers:
        net.client(broker).publish(Notification({"x": 0}, type="point"))
        net.client(broker).publish(Notification({"x": 1}, type="point"))
    net.settle()
    assert len(subscriber.received) == len(net.brokers)
    assert all(n["x"] == 0 for n in subscriber.received)


@pytest.mark.spec("07/T-01")
@pytest.mark.parametrize("store", STORES)
def test_a_broker_that_is_one_of_several_rendezvous_still_asks_the_others(store: str) -> None:
    net = network(store=store)
    here, there = root_of(net, "left"), root_of(net, "right")
    assert here != there
    subscriber = net.client(here)
    subscriber.subscribe("isa left and x = 1 or isa right and x = 2")
    net.settle()
    net.client(here).publish(Notification({"x": 1}, type="left"))
    net.client(there).publish(Notification({"x": 2}, type="right"))
    net.settle()
    assert sorted(n["x"] for n in subscriber.received) == [1, 2]


# -- where subscriptions are stored


@pytest.mark.spec("R-03.34", "R-07.70", "07/4.4")
def test_a_path_holds_state_where_a_root_store_holds_one_copy() -> None:
    sizes = {}
    for store in STORES:
        net = network(20, store=store)
        for broker in net.brokers:
            net.client(broker).subscribe(f"isa quote and x = {broker}")
        net.settle()
        sizes[store] = {b: size.remote for b, size in net.table_sizes().items()}
        root = root_of(net, "quote")
        assert sizes[store][root] == 19
    assert sum(sizes["root"].values()) == 19
    assert sum(sizes["path"].values()) > 19


@pytest.mark.spec("R-03.37")
def test_strategies_reduce_what_is_asked_for_on_the_way() -> None:
    held = {}
    for strategy in STRATEGIES:
        net = network(20, strategy=strategy)
        for broker in net.brokers:
            client = net.client(broker)
            for text in ("x > 5", "x > 5 and y = 1", "x <= 5", "x > 5"):
                client.subscribe(f"isa quote and {text}")
        net.settle()
        held[strategy] = sum(size.remote for size in net.table_sizes().values())
    assert held["simple"] > held["identity"] > held["covering"] > held["merging"]


@pytest.mark.spec("R-03.37")
def test_only_brokers_between_clients_and_the_root_hold_state() -> None:
    net = network(20)
    net.client(7).subscribe("isa quote")
    net.settle()
    way, at = [7], ring_of(net, 7).next_hop(key_of("quote"))
    while at is not None:
        assert isinstance(at, int)
        way.append(at)
        at = ring_of(net, at).next_hop(key_of("quote"))
    assert sorted(b for b, size in net.table_sizes().items() if size.total) == sorted(way)


@pytest.mark.spec("R-03.34")
def test_a_notification_takes_no_detour_by_the_root_to_a_subscriber_on_its_way() -> None:
    hops: dict[BrokerId, BrokerId | None] = {"R": None, "M": "R", "A": "M", "B": "M"}
    net = Network({id: TypeRendezvousRouter(Fixed(id, hop)) for id, hop in hops.items()}, None)
    b = net.client("B")
    b.subscribe("isa t")
    net.settle()
    net.client("A").publish(Notification({"x": 1}, type="t"))
    net.step(("A", "M"))
    net.step(("M", "B"))
    assert len(b.received) == 1
    net.settle()
    assert len(b.received) == 1


# -- types


@pytest.mark.spec("R-01.41", "01/A-10", "07/T-10")
@pytest.mark.parametrize("store", STORES)
def test_a_supertype_subscription_gets_the_very_first_event_of_a_later_subtype(store: str) -> None:
    net = network(store=store)
    a, b, c = net.client(1), net.client(2), net.client(3)
    a.subscribe("isa sensor")
    b.subscribe("isa sensor.heat and t > 30")
    net.settle()
    c.publish(Notification({"t": 40}, type="sensor.heat.indoor"))
    net.settle()
    assert len(a.received) == len(b.received) == 1


@pytest.mark.spec("07/T-10", "R-03.35")
def test_a_root_learns_what_its_supertypes_want_and_stops_sending_in_vain() -> None:
    net = network()
    a = net.client(1)
    a.subscribe("isa sensor and t > 30")
    net.settle()
    producer = net.client(root_of(net, "sensor.heat"))
    producer.publish(Notification({"t": 1}, type="sensor.heat"))
    net.settle()
    before = net.counters.copy()
    producer.publish(Notification({"t": 2}, type="sensor.heat"))
    net.settle()
    assert (net.counters - before).messages == 0
    producer.publish(Notification({"t": 31}, type="sensor.heat"))
    net.settle()
    assert [n["t"] for n in a.received] == [31]


@pytest.mark.spec("07/T-10")
def test_interest_follows_subscriptions_that_come_and_go() -> None:
    net = network()
    a, producer = net.client(1), net.client(2)
    producer.publish(Notification({"t": 1}, type="sensor.heat"))
    net.settle()
    wanted = a.subscribe("isa sensor")
    net.settle()
    producer.publish(Notification({"t": 2}, type="sensor.heat"))
    net.settle()
    a.unsubscribe(wanted)
    net.settle()
    assert entries(net) == 0
    producer.publish(Notification({"t": 3}, type="sensor.heat"))
    net.settle()
    assert [n["t"] for n in a.received] == [2]


def test_a_root_that_remembers_little_delivers_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type_routing, "REMEMBERED", 1)
    net = network(2)
    a, producer = net.client(0), net.client(1)
    wanted = a.subscribe("isa sensor and t > 4")
    net.settle()
    for t in range(8):
        producer.publish(Notification({"t": t}, type=f"sensor.kind{t % 3}"))
        net.settle()
    assert [n["t"] for n in a.received] == [5, 6, 7]
    a.unsubscribe(wanted)
    net.settle()
    assert entries(net) == 0


@pytest.mark.spec("R-01.41", "01/A-10")
def test_declared_parents_count_and_each_event_comes_once() -> None:
    net = network()
    clients = [net.client(i) for i in range(5)]
    for client, name in zip(clients, TYPES, strict=True):
        client.subscribe(event_type(name))
    both = net.client(9)
    both.subscribe(event_type("rendezvous.quote") | event_type("rendezvous.alert"))
    both.subscribe(event_type("rendezvous"))
    net.settle()
    net.client(11).publish(Notification({"x": 1}, type="rendezvous.halt"))
    net.settle()
    assert [len(client.received) for client in clients] == [1, 1, 0, 1, 1]
    assert len(both.received) == 1


@pytest.mark.spec("R-02.23")
@pytest.mark.parametrize(
    ("filter", "types"),
    [
        (event_type("rendezvous.quote"), ["rendezvous.quote"]),
        (type_path("rendezvous.quote"), ["rendezvous.quote"]),
        (Filter("_type in ('a', 'b.c')"), ["a", "b.c"]),
        (Filter("_type prefix 'a.b'"), ["a"]),
        (event_type("a") & Filter("_type = 'a.b'"), ["a.b"]),
        (Filter("_types overlaps ('a', 'b')"), ["a", "b"]),
        (event_type("a") | event_type("b"), ["a", "b"]),
        (event_type("a", "x = 1") | event_type("b", "x = 2"), ["a", "b"]),
    ],
)
def test_which_rendezvous_a_filter_is_for(filter: Filter, types: list[str]) -> None:
    router = TypeRendezvousRouter(Pastry("b"))
    router.subscribe(FilterId("c", 1), filter)
    assert sorted(router._trees) == types


@pytest.mark.spec("07/4.4")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x > 1",
        "isa a or x > 1",
        "not isa a",
        "_type prefix 'a'",
        "_type suffix '.a'",
        "_type > 'a.b'",
        "_type != 'a'",
        "_type > 5.5",
        "not exists _type",
    ],
)
def test_a_filter_without_a_type_is_refused(text: str) -> None:
    router = TypeRendezvousRouter(Pastry("b"))
    with pytest.raises(UnsupportedMapping, match="add isa"):
        router.subscribe(FilterId("c", 1), Filter(text))
    assert router.table_size().total == 0
    assert router.unsubscribe(FilterId("c", 1)) == []


@pytest.mark.spec("07/4.4")
def test_a_catch_all_takes_what_names_no_type_and_what_has_none() -> None:
    net = network(catch_all=True)
    a, b, producer = net.client(1), net.client(2), net.client(3)
    a.subscribe("x > 1")
    b.subscribe("isa quote")
    net.settle()
    producer.publish(Notification({"x": 2}, type="quote.stock"))
    producer.publish({"x": 3})
    producer.publish({"x": 0})
    net.settle()
    assert sorted(n["x"] for n in a.received) == [2, 3]
    assert [n["x"] for n in b.received] == [2]
    assert name_problem(EVERYTHING) is not None


@pytest.mark.spec("07/4.4")
def test_the_price_of_a_catch_all_is_that_wanted_events_pass_its_root() -> None:
    cost = {}
    for catch_all in (False, True):
        net = network(catch_all=catch_all)
        subscriber = net.client(5)
        subscriber.subscribe("x = 1" if catch_all else "isa quote and x = 1")
        net.settle()
        for broker in net.brokers:
            client = net.client(broker)
            for x in (0, 1):
                client.publish(Notification({"x": x}, type="quote"))
                net.settle()
        assert len(subscriber.received) == len(net.brokers)
        cost[catch_all] = net.counters.notifications
    assert cost[True] > cost[False]


def test_without_a_catch_all_an_event_without_a_type_goes_nowhere() -> None:
    net = network()
    net.client(1).subscribe("isa quote")
    net.settle()
    before = net.counters.copy()
    net.client(2).publish({"x": 1})
    net.settle()
    assert (net.counters - before).messages == 0


@pytest.mark.spec("R-03.35", "R-07.70")
def test_publications_can_be_checked_against_the_schema() -> None:
    types = EventTypes()
    types.declare("quote", attributes={"price": "number"})
    net = network(types=types)
    client = net.client(1)
    with pytest.raises(InvalidNotification, match="declared as number"):
        client.publish(Notification({"price": "high"}, type="quote"))
    client.publish(Notification({"price": 1}, type="quote"))


def test_options_must_exist() -> None:
    with pytest.raises(UnknownStrategy, match="choose path or root"):
        TypeRendezvousRouter(Pastry(1), store="leaf")  # type: ignore[arg-type]
    for options in (
        {"strategy": "magic"},
        {"strategy": "presence"},
        {"advertisements": "flooding"},
    ):
        with pytest.raises(UnknownStrategy, match=r"one of simple, identity, covering, merging$"):
            TypeRendezvousRouter(Pastry(1), **options)  # type: ignore[arg-type]


@pytest.mark.spec("R-03.07")
def test_repeated_and_unknown_ids_change_nothing() -> None:
    router = TypeRendezvousRouter(Pastry(1))
    router.subscribe(FilterId("c", 1), Filter("isa a"))
    assert router.subscribe(FilterId("c", 1), Filter("isa b")) == []
    assert router.table_size().local == 1
    assert router.unsubscribe(FilterId("c", 2)) == []
    assert router.link_down("stranger") == []
    router.subscribe(FilterId("c", 2), Filter("isa a and x = 1 and x = 2"))
    assert router.table_size().local == 1, "what nothing matches is asked of nobody"
    router.unsubscribe(FilterId("c", 2))
    router.unsubscribe(FilterId("c", 1))
    assert router.table_size().total == 0


def test_advertisements_are_known_where_they_are_made() -> None:
    router = TypeRendezvousRouter(Pastry(1))
    router.advertise(FilterId("c", 1), Filter("isa a"))
    assert router.offers() == [Filter("isa a")]
    assert router.table_size().advertisements == 1
    router.unadvertise(FilterId("c", 1))
    assert router.offers() == []


# -- against the oracle

contents = ["", " and x > 2", " and x > 4", " and x <= 4", " and x = 3", " and y = 1"]
filters = st.one_of(
    st.builds(
        lambda t, c: Filter(f"isa {t}{c}"), st.sampled_from(TYPES), st.sampled_from(contents)
    ),
    st.builds(
        lambda s, t, c: Filter(f"isa {s} and x = 1 or isa {t}{c}"),
        st.sampled_from(TYPES),
        st.sampled_from(TYPES),
        st.sampled_from(contents),
    ),
    st.sampled_from(TYPES).map(type_path),
)
events = st.builds(
    lambda t, x, y: Notification({"x": x, "y": y}, type=t),
    st.sampled_from(TYPES),
    st.integers(0, 6),
    st.integers(0, 1),
)
modes = st.tuples(st.sampled_from(STRATEGIES), st.sampled_from(STORES))


class World:
    """A network, and what each client has asked for: the oracle is the filters themselves."""

    def __init__(self, net: Network, seed: int) -> None:
        self.net = net
        self.chance = random.Random(seed)
        self.held: dict[Client, dict[FilterId, Filter]] = {}

    def stir(self) -> None:
        """Let some messages arrive, so that what follows meets others on their way."""
        for _ in range(self.chance.randrange(6)):
            self.net.step()

    def subscriber(self, filter: Filter) -> None:
        if self.held and self.chance.random() < 0.3:
            client = self.chance.choice(list(self.held))
        else:
            client = self.net.client(self.chance.choice(self.net.brokers))
        self.held.setdefault(client, {})[client.subscribe(filter)] = filter
        self.stir()

    def unsubscribe(self, share: float) -> None:
        for client, held in self.held.items():
            for id in list(held):
                if self.chance.random() < share:
                    client.unsubscribe(id)
                    del held[id]
                    self.stir()

    def fail(self, broker: BrokerId) -> None:
        self.net.fail_broker(broker)
        self.held = {client: held for client, held in self.held.items() if client.at != broker}
        self.stir()

    def check(self, published: Iterable[Notification]) -> None:
        """Publish, all at once, from anywhere, and see that each gets what it wants, once."""
        self.net.settle()
        before = {client: len(client.received) for client in self.held}
        producers = [self.net.client(broker) for broker in self.net.brokers]
        wanted: Mapping[Client, list[object]] = {client: [] for client in self.held}
        for notification in published:
            id = self.chance.choice(producers).publish(notification)
            for client, held in self.held.items():
                if any(filter.matches(notification) for filter in held.values()):
                    wanted[client].append(id)
            self.stir()
        self.net.settle()
        for client, ids in wanted.items():
            got = [n.id for n in client.received[before[client] :]]
            assert sorted(map(str, got)) == sorted(map(str, ids))
        for producer in producers:
            producer.leave()


@pytest.mark.spec("07/P-02", "07/P-06", "07/P-10", "R-03.34", "R-03.37")
@settings(max_examples=25)
@given(
    modes,
    st.integers(0, 2**32),
    st.lists(filters, max_size=12),
    st.lists(events, min_size=1, max_size=8),
)
def test_exactly_what_was_asked_for_is_delivered(
    mode: tuple[str, str], seed: int, wanted: list[Filter], published: list[Notification]
) -> None:
    strategy, store = mode
    world = World(network(10, seed=seed, strategy=strategy, store=store), seed)
    for filter in wanted:
        world.subscriber(filter)
    world.check(published)
    world.unsubscribe(0.5)
    world.check(published)
    world.unsubscribe(1.0)
    world.net.settle()
    assert entries(world.net) == 0


@pytest.mark.spec("07/P-07", "R-03.19")
@settings(max_examples=25)
@given(
    modes,
    st.integers(0, 2**32),
    st.lists(filters, min_size=1, max_size=6),
    st.lists(filters, min_size=1, max_size=8),
    st.lists(events, min_size=1, max_size=8),
)
def test_others_who_come_and_go_disturb_nobody(
    mode: tuple[str, str],
    seed: int,
    lasting: list[Filter],
    passing: list[Filter],
    published: list[Notification],
) -> None:
    strategy, store = mode
    net = network(10, seed=seed, strategy=strategy, store=store)
    world = World(net, seed)
    for filter in lasting:
        world.subscriber(filter)
    restless = World(net, seed + 1)
    for filter in passing:
        restless.subscriber(filter)
    net.settle()
    producer = net.client(0)
    wanted: dict[Client, list[object]] = {client: [] for client in world.held}
    for notification in published:
        restless.unsubscribe(0.3)
        restless.subscriber(restless.chance.choice(passing))
        id = producer.publish(notification)
        for client, held in world.held.items():
            if any(filter.matches(notification) for filter in held.values()):
                wanted[client].append(id)
        restless.stir()
    net.settle()
    for client, ids in wanted.items():
        assert sorted(str(n.id) for n in client.received) == sorted(map(str, ids))


@pytest.mark.spec("03/8.17", "R-03.35", "07/P-10", "07/P-06", "R-07.70")
@settings(max_examples=25)
@given(
    modes,
    st.integers(0, 2**32),
    st.lists(filters, min_size=1, max_size=8),
    st.lists(events, min_size=1, max_size=6),
)
def test_nothing_is_lost_for_good_when_brokers_come_and_go(
    mode: tuple[str, str], seed: int, wanted: list[Filter], published: list[Notification]
) -> None:
    strategy, store = mode
    world = World(network(9, seed=seed, strategy=strategy, store=store), seed)
    for newcomer in range(100, 103):
        for filter in wanted:
            world.subscriber(filter)
        for notification in published:  # types become known, roots learn of interests
            world.net.client(world.chance.choice(world.net.brokers)).publish(notification)
            world.stir()
        world.fail(world.chance.choice(world.net.brokers))
        world.unsubscribe(0.3)
        world.net.add_broker(newcomer)
        world.stir()
        if world.chance.random() < 0.5:
            world.check(published)
    world.check(published)
    world.unsubscribe(1.0)
    world.net.settle()
    assert entries(world.net) == 0


@pytest.mark.spec("03/8.17", "R-03.35")
@pytest.mark.parametrize("store", STORES)
def test_the_rendezvous_itself_fails(store: str) -> None:
    net = network(store=store)
    root, parent = root_of(net, "sensor.heat"), root_of(net, "sensor")
    a, b, c = [net.client(i) for i in net.brokers if i not in (root, parent)][:3]
    a.subscribe("isa sensor")
    b.subscribe("isa sensor.heat")
    net.settle()
    c.publish(Notification({"t": 1}, type="sensor.heat"))
    net.settle()
    for broker in {root, parent}:
        net.fail_broker(broker)
    net.settle()
    c.publish(Notification({"t": 2}, type="sensor.heat"))
    net.settle()
    assert [n["t"] for n in a.received] == [n["t"] for n in b.received] == [1, 2]


@pytest.mark.spec("03/8.17")
@pytest.mark.parametrize("store", STORES)
def test_a_newcomer_becomes_the_rendezvous(store: str) -> None:
    net = network(6, store=store)
    a, c = net.client(0), net.client(1)
    wanted = a.subscribe("isa sensor")
    c.publish(Notification({"t": 0}, type="sensor.heat"))
    net.settle()
    numbers = iter(range(100, 400))
    for name in ("sensor", "sensor.heat"):
        old = root_of(net, name)
        while root_of(net, name) == old:
            net.add_broker(next(numbers))
        net.settle()
        c.publish(Notification({"t": 1}, type="sensor.heat"))
        net.settle()
    assert [n["t"] for n in a.received if n["t"]] == [1, 1]
    a.unsubscribe(wanted)
    net.settle()
    assert entries(net) == 0
