"""Type-based rendezvous with advertisements: subscriptions follow them, and roots are relieved."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.filters import Filter
from stentor.filters.addressing import type_path
from stentor.model.event_types import event_types
from stentor.model.notification import Notification
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate
from stentor.routing.protocol import BrokerId, FilterId, Router
from stentor.routing.rendezvous import Pastry, TypeRendezvousRouter, key_of
from stentor.routing.rendezvous.advertised import AdvertisedTree
from stentor.routing.rendezvous.ring_messages import Announce, Ask, Heard, Offer
from stentor.routing.strategy import Strategy
from stentor.simulation.client import Client
from stentor.simulation.network import Network

STRATEGIES = ("simple", "identity", "covering", "merging")
STORES = ("path", "root")

event_types.declare("offered.halt", parents=["offered.quote", "offered.alert"])
TYPES = ["offered", "offered.quote", "offered.quote.stock", "offered.alert", "offered.halt"]


def network(
    brokers: int = 12, *, seed: int | None = None, enforced: bool = True, **options: object
) -> Network:
    """A ring that is as deep as it can be: with few leaves, most keys take several hops."""

    def make(id: BrokerId) -> Router:
        ring = Pastry(id, digit_bits=1, leaves=2)
        return TypeRendezvousRouter(ring, **{"advertisements": True} | options)  # type: ignore[arg-type]

    made: dict[BrokerId, Router] = {id: make(id) for id in range(brokers)}
    return Network(made, None, seed=seed, make=make, advertisements=enforced)


class Fixed:
    """A ring whose next hops are given."""

    def __init__(self, id: BrokerId, hop: BrokerId | None) -> None:
        self.id = id
        self.hop = hop

    def add(self, broker: BrokerId) -> None:
        """All are known."""

    def remove(self, broker: BrokerId) -> bool:
        return False

    def refill(self, brokers: Iterable[BrokerId]) -> None:
        raise AssertionError("not asked for")

    def next_hop(self, key: int) -> BrokerId | None:
        return self.hop

    @property
    def leaf_set(self) -> list[BrokerId]:
        return []


#: Two branches below the root: P and Q below M, S below N.
BRANCHES: Mapping[BrokerId, BrokerId | None] = {
    "R": None,
    "M": "R",
    "N": "R",
    "P": "M",
    "Q": "M",
    "S": "N",
}


def branches(**options: object) -> Network:
    options = {"advertisements": "simple", "strategy": "simple"} | options
    routers = {
        id: TypeRendezvousRouter(Fixed(id, hop), **options)  # type: ignore[arg-type]
        for id, hop in BRANCHES.items()
    }
    return Network(routers, None, advertisements=True)


def routers(net: Network) -> list[TypeRendezvousRouter]:
    found = [net.router(broker) for broker in net.brokers]
    return [router for router in found if isinstance(router, TypeRendezvousRouter)]


def held(net: Network) -> int:
    """All that is kept anywhere, whatever it is."""
    sizes = net.table_sizes().values()
    return sum(size.total + size.advertisements for size in sizes) + sum(
        len(router._trees) for router in routers(net)
    )


def root_of(net: Network, name: str) -> BrokerId:
    return next(r.id for r in routers(net) if r._ring.next_hop(key_of(name)) is None)


def quote(x: int = 1) -> Notification:
    return Notification({"x": x}, type="quote")


# -- what goes where


@pytest.mark.spec("R-03.36", "03/A12")
def test_advertisements_leave_state_on_their_way_and_subscriptions_follow_it_back() -> None:
    net = branches()
    net.client("P").advertise("isa quote and x > 5")
    net.settle()
    sizes = net.table_sizes()
    assert {b: s.advertisements for b, s in sizes.items() if s.advertisements} == {
        "P": 1,
        "M": 1,
        "R": 1,
    }
    s, q = net.client("S"), net.client("Q")
    s.subscribe("isa quote and x > 7")
    q.subscribe("isa quote and x < 3")
    net.settle()
    # The first meets the advertisement at the root and comes down; the second meets none.
    remote = {b: size.remote for b, size in net.table_sizes().items()}
    assert remote == {"N": 1, "R": 2, "M": 2, "P": 1, "Q": 0, "S": 0}


@pytest.mark.spec("R-03.36")
def test_notifications_meet_subscriptions_before_the_root_and_do_not_pass_it() -> None:
    net = branches()
    p, q, s = net.client("P"), net.client("Q"), net.client("S")
    p.advertise("isa quote")
    q.subscribe("isa quote and x = 1")
    s.subscribe("isa quote and x = 2")
    net.settle()
    before = net.counters.copy()
    p.publish(quote(0))
    p.publish(quote(1))
    net.settle()
    assert dict((net.counters - before).links["notification"]) == {("P", "M"): 1, ("M", "Q"): 1}
    p.publish(quote(2))
    net.settle()
    assert [n["x"] for n in q.received] == [1]
    assert [n["x"] for n in s.received] == [2]


@pytest.mark.spec("R-03.36", "R-03.34")
def test_a_subscription_that_comes_before_the_advertisement_meets_it_too() -> None:
    net = branches()
    q, s = net.client("Q"), net.client("S")
    wanted = [q.subscribe("isa quote"), s.subscribe("isa quote")]
    net.settle()
    p = net.client("P")
    offer = p.advertise("isa quote")
    net.settle()
    p.publish(quote())
    net.settle()
    assert len(q.received) == len(s.received) == 1
    p.unadvertise(offer)
    net.settle()
    assert all(size.remote == 0 for b, size in net.table_sizes().items() if b in ("P", "Q", "S"))
    q.unsubscribe(wanted[0])
    s.unsubscribe(wanted[1])
    net.settle()
    assert held(net) == 0


@pytest.mark.spec("R-03.36")
def test_what_is_published_before_the_subscriptions_have_come_back_rises_to_the_root() -> None:
    net = branches()
    s, p = net.client("S"), net.client("P")
    s.subscribe("isa quote")
    net.settle()
    p.advertise("isa quote")
    p.publish(quote())  # nobody else has heard of the advertisement
    net.settle()
    assert len(s.received) == 1


@pytest.mark.spec("R-03.36")
def test_a_new_advertisement_takes_nothing_from_an_old_wider_one() -> None:
    """Y's advertisement is of the very type, but has no effect before it is known everywhere."""
    net = branches()
    s, x, y = net.client("S"), net.client("P"), net.client("P")
    s.subscribe("isa quote.stock and x < 5")
    x.advertise("isa quote")
    net.client("P").advertise("isa quote.stock and x > 5")
    net.settle()
    y.advertise("isa quote.stock")
    x.publish(Notification({"x": 1}, type="quote.stock"))
    net.settle()
    x.publish(Notification({"x": 2}, type="quote.stock"))
    net.settle()
    assert [n["x"] for n in s.received] == [1, 2]
    assert net.check().ok


@pytest.mark.spec("R-03.36")
def test_an_advertisement_has_an_effect_only_when_the_root_has_heard_of_it() -> None:
    net = branches()
    s, p = net.client("S"), net.client("P")
    s.subscribe("isa quote")
    net.settle()
    p.advertise("isa quote")
    while near := [link for link in net.pending if set(link) == {"P", "M"}]:
        net.step(near[0])
    p.publish(quote())
    net.settle()
    assert len(s.received) == 1


@pytest.mark.spec("R-03.36", "03/8.17")
def test_behind_a_parent_that_is_new_notifications_rise() -> None:
    net = branches()
    s, p = net.client("S"), net.client("P")
    s.subscribe("isa quote")
    p.advertise("isa quote")
    net.settle()
    ring = next(r for r in routers(net) if r.id == "M")._ring
    assert isinstance(ring, Fixed)
    ring.hop = "N"
    net.disconnect("M", "R")
    p.publish(quote())  # the new parent has not heard of the advertisement yet
    net.settle()
    p.publish(quote())
    net.settle()
    assert len(s.received) == 2
    assert net.table_sizes()["R"].advertisements == 1


@pytest.mark.spec("R-03.36")
def test_what_was_asked_before_a_broker_left_and_came_back_is_ignored() -> None:
    net = branches()
    p = net.client("P")
    old = p.advertise("isa quote and x < 5")
    net.settle()
    net.client("Q").subscribe("isa quote and x = 1")
    net.step(("Q", "M"))
    assert ("M", "P") in net.pending
    p.unadvertise(old)
    p.advertise("isa quote and x > 5")
    net.settle()
    assert net.table_sizes()["P"].remote == 0


def test_a_child_that_attaches_anew_is_known_by_what_it_says_then() -> None:
    tree = AdvertisedTree("quote", Strategy("simple"), Strategy("simple"), count(1))
    tree.is_root = True
    a, b, key = Filter("x = 1"), Filter("x = 2"), FilterId("c", 1)
    tree.asked("P", Offer("quote", AdvertisementUpdate(((key, a),), ()), 7))
    assert tree.take() == [("P", Heard("quote", 7))]
    tree.asked("P", Ask("quote", SubscriptionUpdate(((key, b),), ()), fresh=True))
    assert [row.filter for row in tree.offered.rows()] == []
    assert [row.filter for row in tree.table.rows()] == [b]
    tree.asked("P", Announce("quote", ()))
    assert tree.children == ["P"]
    tree.forget("P")
    assert tree.is_empty


@pytest.mark.spec("R-03.36")
@pytest.mark.parametrize("store", STORES)
def test_the_root_is_relieved(store: str) -> None:
    """Twelve brokers publish what one wants, and what nobody wants."""
    passed = {}
    for advertisements in (False, True):
        net = network(store=store, advertisements=advertisements, enforced=False)
        root = root_of(net, "quote")
        others = [broker for broker in net.brokers if broker != root]
        subscriber = net.client(others[0])
        subscriber.subscribe("isa quote and x = 1")
        producers = [net.client(broker) for broker in others]
        for producer in producers:
            producer.advertise("isa quote")
        net.settle()
        before = net.counters.copy()
        for producer in producers:
            producer.publish(quote(1))
            producer.publish(quote(2))
        net.settle()
        assert len(subscriber.received) == len(producers)
        cost = (net.counters - before).links["notification"]
        passed[advertisements] = sum(n for (_, to), n in cost.items() if to == root)
    assert passed[False] >= len(producers)
    assert passed[True] <= passed[False] // 2


@pytest.mark.spec("R-03.34", "R-03.36")
def test_nothing_goes_back_to_where_it_came_from() -> None:
    net = branches()
    everyone = [net.client(broker) for broker in net.brokers]
    for client in everyone:
        client.subscribe("isa quote")
        client.advertise("isa quote")
    net.settle()
    before = net.counters.copy()
    publisher = next(client for client in everyone if client.at == "P")
    publisher.publish(quote())
    net.settle()
    assert all(len(client.received) == 1 for client in everyone)
    cost = (net.counters - before).links["notification"]
    assert sorted(cost) == [("M", "Q"), ("M", "R"), ("N", "S"), ("P", "M"), ("R", "N")]
    assert set(cost.values()) == {1}


@pytest.mark.spec("R-03.36", "07/T-10")
def test_an_advertisement_of_a_type_is_one_of_its_supertypes() -> None:
    net = branches()
    p, q, s = net.client("P"), net.client("Q"), net.client("S")
    p.advertise("isa sensor.heat")
    s.subscribe("isa sensor and t > 30")
    q.subscribe("isa sensor.heat")
    net.settle()
    before = net.counters.copy()
    p.publish(Notification({"t": 1}, type="sensor.heat"))
    net.settle()
    spent = (net.counters - before).links["notification"]
    assert dict(spent) == {("P", "M"): 1, ("M", "Q"): 1}
    p.publish(Notification({"t": 31}, type="sensor.heat"))
    net.settle()
    assert [n["t"] for n in s.received] == [31]
    assert [n["t"] for n in q.received] == [1, 31]


@pytest.mark.spec("07/T-10")
@pytest.mark.parametrize("store", STORES)
def test_a_subtype_of_the_advertised_type_reaches_its_subscribers(store: str) -> None:
    net = network(store=store)
    p, a, b = net.client(1), net.client(2), net.client(3)
    p.advertise("isa sensor")
    a.subscribe("isa sensor.heat")
    b.subscribe("isa sensor")
    net.settle()
    p.publish(Notification({"t": 1}, type="sensor.heat.indoor"))
    net.settle()
    assert len(a.received) == len(b.received) == 1


@pytest.mark.spec("R-01.37", "R-03.36")
def test_offers_are_known_on_the_way_to_the_root() -> None:
    net = branches()
    p, m = net.client("P"), net.client("M")
    offer = p.advertise("isa quote and x > 1")
    p.advertise("x > 1")  # of no type, so known here only
    net.settle()
    assert net.client("R").offers() == m.offers() == [Filter("isa quote and x > 1")]
    assert p.offers() == [Filter("isa quote and x > 1"), Filter("x > 1")]
    assert net.client("N").offers() == []
    p.unadvertise(offer)
    net.settle()
    assert m.offers() == []


@pytest.mark.spec("R-03.26", "R-03.36")
def test_what_is_not_advertised_is_stopped_by_the_node() -> None:
    net = network()
    p, a = net.client(1), net.client(2)
    p.advertise("isa quote and x < 5")
    a.subscribe("isa quote")
    net.settle()
    p.publish(quote(7))
    net.settle()
    assert a.received == []
    assert net.core(1).counters["refused"] == 1


@pytest.mark.spec("R-03.36")
def test_an_advertisement_without_a_type_is_none_for_a_rendezvous_but_loses_nothing() -> None:
    for catch_all in (False, True):
        net = network(catch_all=catch_all)
        p, a = net.client(1), net.client(2)
        p.advertise("x > 0")
        a.subscribe("isa quote")
        net.settle()
        p.publish(quote())
        net.settle()
        assert len(a.received) == 1


def test_with_a_catch_all_what_names_no_type_meets_what_is_advertised() -> None:
    net = network(catch_all=True)
    p, a = net.client(1), net.client(2)
    p.advertise("isa quote or x > 5")
    a.subscribe("x > 1")
    net.settle()
    p.publish(quote(2))
    p.publish({"x": 6})
    net.settle()
    assert sorted(n["x"] for n in a.received) == [2, 6]


@pytest.mark.spec("R-03.07")
def test_repeated_and_unknown_advertisements_change_nothing() -> None:
    router = TypeRendezvousRouter(Pastry(1), advertisements=True)
    router.advertise(FilterId("c", 1), Filter("isa a"))
    assert router.advertise(FilterId("c", 1), Filter("isa b")) == []
    assert router.offers() == [Filter("isa a")]
    assert router.unadvertise(FilterId("c", 2)) == []
    router.unadvertise(FilterId("c", 1))
    assert router.offers() == []
    assert router._trees == {}


@pytest.mark.spec("R-03.37", "R-03.25")
def test_strategies_reduce_advertisements_on_their_way() -> None:
    sizes = {}
    for strategy in STRATEGIES:
        net = network(20, advertisements=strategy)
        for broker in net.brokers:
            client = net.client(broker)
            for text in ("x > 5", "x > 5 and y = 1", "x <= 5", "x > 5"):
                client.advertise(f"isa quote and {text}")
        net.settle()
        sizes[strategy] = sum(size.advertisements for size in net.table_sizes().values()) - 80
    assert sizes["simple"] > sizes["identity"] > sizes["covering"] > sizes["merging"]


def test_brokers_that_disagree_about_the_option_ignore_each_other() -> None:
    odd = TypeRendezvousRouter(Fixed("R", None))
    even = TypeRendezvousRouter(Fixed("P", "R"), advertisements=True)
    odd.link_up("P")
    even.link_up("R")
    (ask,) = even.subscribe(FilterId("c", 1), Filter("isa a"))
    assert odd.receive("P", ask.message) == []  # type: ignore[union-attr]
    assert odd.table_size().total == 0


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
modes = st.tuples(st.sampled_from(STRATEGIES), st.sampled_from(STRATEGIES), st.sampled_from(STORES))


class World:
    """A network with clients that come and go; the oracle is the filters themselves."""

    def __init__(self, mode: tuple[str, str, str], seed: int, brokers: int = 9) -> None:
        strategy, advertisements, store = mode
        self.net = network(
            brokers, seed=seed, strategy=strategy, advertisements=advertisements, store=store
        )
        self.chance = random.Random(seed)
        self.wanted: dict[Client, dict[FilterId, Filter]] = {}
        self.offered: dict[Client, dict[FilterId, Filter]] = {}

    def stir(self) -> None:
        """Let some messages arrive, so that what follows meets others on their way."""
        for _ in range(self.chance.randrange(6)):
            self.net.step()

    def someone(self) -> Client:
        if self.wanted and self.chance.random() < 0.4:
            return self.chance.choice(list(self.wanted))
        client = self.net.client(self.chance.choice(self.net.brokers))
        self.wanted[client], self.offered[client] = {}, {}
        return client

    def subscribe(self, filter: Filter) -> None:
        client = self.someone()
        self.wanted[client][client.subscribe(filter)] = filter
        self.stir()

    def advertise(self, filter: Filter) -> None:
        client = self.someone()
        self.offered[client][client.advertise(filter)] = filter
        self.stir()

    def withdraw(self, share: float) -> None:
        for client in self.wanted:
            for id in [id for id in self.wanted[client] if self.chance.random() < share]:
                client.unsubscribe(id)
                del self.wanted[client][id]
                self.stir()
            for id in [id for id in self.offered[client] if self.chance.random() < share]:
                client.unadvertise(id)
                del self.offered[client][id]
                self.stir()

    def fail(self, broker: BrokerId) -> None:
        self.net.fail_broker(broker)
        self.wanted = {c: held for c, held in self.wanted.items() if c.at != broker}
        self.offered = {c: held for c, held in self.offered.items() if c.at != broker}
        self.stir()

    def publish(self, notification: Notification) -> list[tuple[Client, str]]:
        """By everyone who may; the answer is who is to get it, and as what."""
        owed = []
        for producer, offers in list(self.offered.items()):
            if any(filter.matches(notification) for filter in offers.values()):
                id = producer.publish(notification)
                owed += [
                    (client, str(id))
                    for client, held in self.wanted.items()
                    if any(filter.matches(notification) for filter in held.values())
                ]
                self.stir()
        return owed

    def check(self, published: Iterable[Notification]) -> None:
        """Each gets what it wants, once."""
        self.net.settle()
        before = {client: len(client.received) for client in self.wanted}
        owed = [one for notification in published for one in self.publish(notification)]
        self.net.settle()
        got = [(c, str(n.id)) for c, seen in before.items() for n in c.received[seen:]]
        assert sorted(map(str, got)) == sorted(map(str, owed))


@pytest.mark.spec("R-03.36", "07/P-02", "07/P-06", "07/P-10")
@settings(max_examples=25)
@given(
    modes,
    st.integers(0, 2**32),
    st.lists(filters, max_size=8),
    st.lists(filters, min_size=1, max_size=6),
    st.lists(events, min_size=1, max_size=6),
)
def test_exactly_what_was_asked_for_and_advertised_is_delivered(
    mode: tuple[str, str, str],
    seed: int,
    wanted: list[Filter],
    offered: list[Filter],
    published: list[Notification],
) -> None:
    world = World(mode, seed)
    plan = [(world.subscribe, f) for f in wanted] + [(world.advertise, f) for f in offered]
    world.chance.shuffle(plan)
    for act, filter in plan:
        act(filter)
    world.check(published)
    world.withdraw(0.5)
    world.check(published)
    world.withdraw(1.0)
    world.net.settle()
    assert held(world.net) == 0
    assert world.net.check().ok


@pytest.mark.spec("R-03.36", "07/P-07", "R-03.19", "R-01.34")
@settings(max_examples=25)
@given(
    modes,
    st.integers(0, 2**32),
    st.lists(filters, min_size=1, max_size=5),
    st.lists(filters, min_size=1, max_size=3),
    st.lists(filters, min_size=1, max_size=8),
    st.lists(events, min_size=1, max_size=6),
)
def test_others_who_come_and_go_disturb_nobody(
    mode: tuple[str, str, str],
    seed: int,
    wanted: list[Filter],
    offered: list[Filter],
    passing: list[Filter],
    published: list[Notification],
) -> None:
    """At no moment do the subscriptions and advertisements of others take anything away."""
    world = World(mode, seed, brokers=5)
    for filter in wanted:
        world.subscribe(filter)
    for filter in offered:
        world.advertise(filter)
    world.net.settle()
    restless = World(mode, seed + 1)
    restless.net = world.net
    owed: list[tuple[Client, str]] = []
    for notification in published:
        restless.withdraw(0.3)
        restless.subscribe(restless.chance.choice(passing))
        restless.advertise(restless.chance.choice(passing))
        owed += world.publish(notification)
    world.net.settle()
    got = [(client, str(n.id)) for client in world.wanted for n in client.received]
    assert sorted(map(str, got)) == sorted(map(str, owed))
    assert world.net.check().ok


@pytest.mark.slow
@pytest.mark.spec("R-03.36", "03/8.17", "R-03.35", "07/P-10")
@settings(max_examples=25)
@given(
    modes,
    st.integers(0, 2**32),
    st.lists(filters, min_size=1, max_size=6),
    st.lists(filters, min_size=1, max_size=4),
    st.lists(events, min_size=1, max_size=5),
)
def test_nothing_is_lost_for_good_when_brokers_come_and_go(
    mode: tuple[str, str, str],
    seed: int,
    wanted: list[Filter],
    offered: list[Filter],
    published: list[Notification],
) -> None:
    world = World(mode, seed)
    for newcomer in range(100, 103):
        for filter in wanted:
            world.subscribe(filter)
        for filter in offered:
            world.advertise(filter)
        for notification in published:
            world.publish(notification)
        name = world.chance.choice(TYPES)
        gone = world.chance.choice([*world.net.brokers, root_of(world.net, name)])
        world.fail(gone)
        world.withdraw(0.3)
        world.net.add_broker(newcomer)
        world.stir()
        if world.chance.random() < 0.5:
            world.check(published)
    world.check(published)
    world.withdraw(1.0)
    world.net.settle()
    assert held(world.net) == 0


@pytest.mark.spec("R-03.36", "03/8.17")
@pytest.mark.parametrize("store", STORES)
def test_the_rendezvous_fails_and_all_is_as_before(store: str) -> None:
    net = network(store=store)
    root = root_of(net, "quote")
    p, a, b = [net.client(broker) for broker in net.brokers if broker != root][:3]
    p.advertise("isa quote")
    a.subscribe("isa quote and x > 1")
    net.settle()
    net.fail_broker(root)
    b.subscribe("isa quote")
    p.publish(quote(2))
    net.settle()
    before = net.counters.copy()
    p.publish(quote(3))
    net.settle()
    assert a.received[-1]["x"] == b.received[-1]["x"] == 3
    assert net.counters.notifications > before.notifications
