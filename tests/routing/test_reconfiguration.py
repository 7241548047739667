"""Replacing a link of a tree while everything goes on (R-07.67)."""

from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_configurations import EXACT, GRID, random_filter, random_tree

from stentor.errors import InvalidConfiguration, InvalidTopology, UnknownStrategy
from stentor.research.trees import CarryingRouter
from stentor.routing import FilterId
from stentor.routing.protocol import BrokerId
from stentor.routing.table import Neighbor
from stentor.simulation import Client, Network
from stentor.simulation.topology import path, reachable
from stentor.simulation.trees import REPLACEMENTS

Edge = tuple[BrokerId, BrokerId]
PLANNED = ("path", "lossless")


def planned_tree(*args: Any, **options: Any) -> Network:
    """A tree whose links can be replaced in every way."""
    return Network.tree(*args, planned=True, **options)


def tree_router(net: Network, broker: BrokerId) -> CarryingRouter:
    router = net.router(broker)
    assert isinstance(router, CarryingRouter)
    return router


def random_replacement(net: Network, random: Random) -> tuple[Edge, Edge]:
    """A link, and another that joins the two parts again."""
    old = random.choice(net.links)
    left = [edge for edge in net.links if edge != old]
    here = sorted(reachable(old[0], left), key=str)
    there = [broker for broker in net.brokers if broker not in here]
    new = old
    while set(new) == set(old) and len(net.brokers) > 2:
        new = (random.choice(here), random.choice(there))
    return old, (new if random.random() < 0.5 else new[::-1])


class Traffic:
    """Clients that stay, with subscriptions that stay; others that come and go meanwhile."""

    def __init__(self, net: Network, random: Random, *, advertised: bool) -> None:
        self.net = net
        self.random = random
        self.clients = [net.client(at=broker) for broker in net.brokers]
        self.live: dict[FilterId, Client] = {}
        self.passing: dict[FilterId, Client] = {}
        for client in self.clients:
            if advertised:
                client.advertise("")
            self.live[client.subscribe(random_filter(random))] = client
        net.settle()

    def run(self, acts: int) -> None:
        for _ in range(acts):
            what = self.random.random()
            client = self.random.choice(self.clients)
            if what < 0.45:
                client.publish(self.random.choice(GRID))
            elif what < 0.55:
                self.passing[client.subscribe(random_filter(self.random))] = client
            elif what < 0.65 and self.passing:
                id = self.random.choice(list(self.passing))
                self.passing.pop(id).unsubscribe(id)
            for _ in range(self.random.randrange(5)):
                self.net.step()

    def check_at_rest(self) -> None:
        """Whatever happened, from now on everything reaches exactly those who want it."""
        self.net.settle()
        assert len(self.net.links) == len(self.net.brokers) - 1
        for broker in self.net.brokers:
            assert not tree_router(self.net, broker).is_changing
        for publisher in self.clients:
            before = [len(client.received) for client in self.clients]
            values = self.random.choice(GRID)
            publisher.publish(values)
            self.net.settle()
            for client, count in zip(self.clients, before, strict=True):
                wanted = client.subscriptions.values()
                expected = any(filter.matches(values) for filter in wanted)
                assert len(client.received) - count == expected, (publisher, client, values)

    def leave(self) -> None:
        for client in self.clients:
            client.leave()
            for _ in range(self.random.randrange(3)):
                self.net.step()
        self.net.settle()
        for broker in self.net.brokers:
            assert tree_router(self.net, broker).plane.is_empty

    @property
    def duplicates(self) -> int:
        """Copies that a client's gate had to hold back."""
        return sum(self.net.core(b).counters["repeated"] for b in self.net.brokers)


def reconfigured(
    how: str, routing: str, advertisements: str | None, seed: int, *, changes: int = 1
) -> Traffic:
    random = Random(seed)
    size = random.randint(3, 8)
    net = planned_tree(random_tree(random, size), routing, advertisements, seed=seed)
    traffic = Traffic(net, random, advertised=advertisements is not None)
    for _ in range(changes):
        traffic.run(random.randrange(8))
        old, new = random_replacement(net, random)
        net.replace_link(old, new, how)
        traffic.run(random.randrange(25))
        net.settle()
        assert set(new) in [set(link) for link in net.links]
    return traffic


def held(net: Network) -> dict[BrokerId, dict[str, list[str]]]:
    """Which filters each broker has, by the clients and neighbors that asked for them."""
    found = {}
    for broker in net.brokers:
        table = tree_router(net, broker).plane.subscriptions.table
        found[broker] = {
            str(d.id).partition("@")[0]: sorted(map(str, table.at(d).values()))
            for d in table.destinations
        }
    return found


# -- all four ways


@pytest.mark.spec("R-07.67", "07/4.9", "07/P-10", "07/T-18", "R-03.38", "R-03.39")
@pytest.mark.parametrize(("how", "routing"), list(product(REPLACEMENTS, EXACT)))
@pytest.mark.parametrize("seed", range(4))
def test_after_a_change_all_is_as_it_should_be(how: str, routing: str, seed: int) -> None:
    traffic = reconfigured(how, routing, None, seed, changes=3)
    traffic.check_at_rest()
    assert traffic.net.check(settling=False).ok
    traffic.leave()


@pytest.mark.spec("R-07.67", "R-03.40", "07/P-10")
@pytest.mark.parametrize(("how", "routing"), list(product(REPLACEMENTS, EXACT)))
@pytest.mark.parametrize(("advertisements", "seed"), [("covering", 0), ("simple", 1)])
def test_after_a_change_with_advertisements(
    how: str, routing: str, advertisements: str, seed: int
) -> None:
    traffic = reconfigured(how, routing, advertisements, seed, changes=2)
    traffic.check_at_rest()
    assert traffic.net.check(settling=False).ok
    traffic.leave()


@pytest.mark.spec("R-07.67", "08/6.6")
@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(REPLACEMENTS), st.sampled_from(EXACT[:3]))
def test_the_tables_are_those_of_a_network_built_that_way(
    seed: int, how: str, routing: str
) -> None:
    traffic = reconfigured(how, routing, None, seed)
    traffic.net.settle()
    fresh = planned_tree(traffic.net.links, routing)
    for client in traffic.clients:
        namesake = fresh.client(at=client.at, id=client.id)
        for filter in client.subscriptions.values():
            namesake.subscribe(filter)
    fresh.settle()
    assert held(traffic.net) == held(fresh)


# -- lossless


@pytest.mark.spec("R-07.67", "07/T-18", "07/P-01")
@settings(max_examples=50)
@given(st.integers(0, 2**32), st.sampled_from(("flooding", *EXACT)))
def test_a_lossless_change_loses_and_doubles_nothing(seed: int, routing: str) -> None:
    traffic = reconfigured("lossless", routing, None, seed, changes=2)
    report = traffic.net.check()
    assert report.ok, report
    assert traffic.duplicates == 0


@pytest.mark.spec("R-07.67", "R-03.40")
@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(EXACT), st.sampled_from(EXACT))
def test_a_lossless_change_with_advertisements(
    seed: int, routing: str, advertisements: str
) -> None:
    traffic = reconfigured("lossless", routing, advertisements, seed, changes=2)
    report = traffic.net.check()
    assert report.ok, report
    assert traffic.duplicates == 0


def one_notification_under_way(how: str) -> Client:
    """It is between 1 and 2 when the link 2-3, which it would use, is replaced."""
    net = planned_tree([(1, 2), (2, 3)], "covering")
    publisher, subscriber = net.client(at=1), net.client(at=3)
    subscriber.subscribe("x > 0")
    net.settle()
    publisher.publish({"x": 1})
    assert net.pending == [(1, 2)]
    net.replace_link((2, 3), (1, 3), how)
    net.settle()
    return subscriber


@pytest.mark.spec("R-07.67", "07/T-18")
def test_what_the_strawman_loses_a_lossless_change_delivers() -> None:
    assert one_notification_under_way("strawman").received == []
    assert [n["x"] for n in one_notification_under_way("lossless").received] == [1]


@pytest.mark.spec("R-07.67")
def test_nothing_stands_still_during_a_lossless_change() -> None:
    """After each single message of the change, a publication from everywhere arrives everywhere."""
    for steps in range(40):
        net = planned_tree([(1, 2), (2, 3), (3, 4), (4, 5), (3, 6)], "covering")
        clients = [net.client(at=broker) for broker in net.brokers]
        for client in clients:
            client.subscribe("x > 0")
        net.settle()
        net.replace_link((3, 4), (1, 5), "lossless")
        for _ in range(steps):
            net.step()
        for client in clients:
            client.publish({"x": 1})
        net.settle()
        assert [len(client.received) for client in clients] == [6] * 6
        assert net.check().ok


@pytest.mark.spec("R-07.67")
def test_a_subscription_made_during_a_lossless_change_counts() -> None:
    for steps in range(30):
        net = planned_tree([(1, 2), (2, 3), (3, 4)], "covering")
        publisher, subscriber = net.client(at=1), net.client(at=4)
        net.replace_link((2, 3), (1, 4), "lossless")
        for _ in range(steps):
            net.step()
        id = subscriber.subscribe("x > 0")
        net.settle()
        publisher.publish({"x": 1})
        net.settle()
        assert len(subscriber.received) == 1
        net.replace_link((1, 4), (2, 3), "lossless")
        for _ in range(steps):
            net.step()
        subscriber.unsubscribe(id)
        net.settle()
        assert all(tree_router(net, broker).plane.is_empty for broker in net.brokers)


# -- what it costs


def with_a_tail(how: str) -> Network:
    """The tail 1-7-8-9 sees the same before and after 2-3 is replaced by 1-3."""
    net = planned_tree([(9, 8), (8, 7), (7, 1), (1, 2), (2, 3)], "identity")
    for number in range(5):
        net.client(at=3).subscribe(f"x = {number}")
        net.client(at=2).subscribe(f"x = {10 + number}")
    net.settle()
    net.counters = type(net.counters)()
    net.replace_link((2, 3), (1, 3), how)
    net.settle()
    return net


@pytest.mark.spec("R-07.67", "07/4.9")
def test_deferring_withdrawals_saves_messages() -> None:
    strawman, deferred = with_a_tail("strawman"), with_a_tail("deferred")
    assert deferred.counters.subscriptions < strawman.counters.subscriptions
    tail = {(1, 7), (7, 8), (8, 9)}
    assert not tail & set(deferred.counters.links["subscription"])
    assert tail <= set(strawman.counters.links["subscription"])


@pytest.mark.spec("R-07.67", "07/4.9")
def test_patience_that_is_too_short_makes_a_strawman_of_it() -> None:
    """Nothing is announced over a new link that comes too late."""
    net = planned_tree([(9, 1), (1, 2), (2, 3)], "identity")
    net.client(at=3).subscribe("x = 1")
    net.settle()
    before = net.counters.copy()
    net.replace_link((2, 3), (1, 3), "deferred", patience=0.0)
    net.settle()
    assert (net.counters - before).lost == 0
    assert tree_router(net, 2).plane.subscriptions.announced(1) == {}


@pytest.mark.spec("R-07.67", "07/4.9")
@pytest.mark.parametrize("how", PLANNED)
@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from(EXACT[:3]))
def test_a_planned_change_touches_only_the_brokers_of_the_cycle(
    how: str, seed: int, routing: str
) -> None:
    random = Random(seed)
    net = planned_tree(random_tree(random, 9), routing, seed=seed)
    for broker in net.brokers:
        net.client(at=broker).subscribe(random_filter(random))
    net.settle()
    old, new = random_replacement(net, random)
    line = set(path(*new, net.links))
    before = net.counters.copy()
    net.replace_link(old, new, how)
    net.settle()
    spent = net.counters - before
    for kind in ("subscription", "control"):
        assert all(set(link) <= line for link in spent.links[kind])  # type: ignore[index]
    assert spent.control > 0


# -- what cannot be


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize(
    ("old", "new", "how", "error", "message"),
    [
        ((1, 2), (1, 3), "magic", UnknownStrategy, "no way to replace a link 'magic'; choose one"),
        ((1, 3), (1, 2), "lossless", InvalidTopology, "there is no link between 1 and 3"),
        ((2, 3), (1, 2), "lossless", InvalidTopology, "1-2 does not join the two parts"),
        ((1, 2), (3, 3), "strawman", InvalidTopology, "3-3 does not join the two parts"),
        ((1, 2), (1, 9), "path", KeyError, "there is no broker 9 here; there are 1, 2, 3"),
    ],
)
def test_impossible_replacements(
    old: Edge, new: Edge, how: str, error: type[Exception], message: str
) -> None:
    net = planned_tree([(1, 2), (2, 3)])
    with pytest.raises(error, match=message):
        net.replace_link(old, new, how)
    assert net.links == [(1, 2), (2, 3)]
    assert net.counters.messages == 0


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize("how", PLANNED)
def test_one_planned_change_at_a_time(how: str) -> None:
    net = planned_tree([(1, 2), (2, 3), (3, 4)])
    net.replace_link((2, 3), (1, 3), how)
    with pytest.raises(InvalidConfiguration, match="takes part in another change"):
        net.replace_link((3, 4), (1, 4), how)
    net.settle()
    net.replace_link((3, 4), (2, 4), how)
    net.settle()
    assert {frozenset(link) for link in net.links} == {
        frozenset(link) for link in ((1, 2), (1, 3), (2, 4))
    }


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize("how", PLANNED)
def test_a_change_is_under_way_also_for_brokers_that_have_not_heard_of_it_yet(how: str) -> None:
    net = planned_tree([(1, 2), (2, 3), (3, 4)])
    net.replace_link((2, 3), (1, 3), how)
    with pytest.raises(InvalidConfiguration, match="takes part in another change"):
        net.replace_link((3, 4), (2, 4), how)


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize("how", REPLACEMENTS)
def test_links_of_a_hierarchy_cannot_be_replaced(how: str) -> None:
    """A child that gets another parent has another place; its role would have to change."""
    net = Network.hierarchy([(1, 2), (2, 3)])
    with pytest.raises(InvalidConfiguration, match="only links between the peers of a tree"):
        net.replace_link((2, 3), (1, 3), how)
    assert net.links == [(1, 2), (2, 3)]


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize("how", PLANNED)
@pytest.mark.parametrize("steps", range(0, 16, 3))
def test_a_link_that_fails_during_a_planned_change(how: str, steps: int) -> None:
    """The change comes to nothing or to an end; in either case the parts go on working."""
    net = planned_tree([(1, 2), (2, 3), (3, 4)], "covering")
    clients = {broker: net.client(at=broker) for broker in net.brokers}
    for client in clients.values():
        client.subscribe("x > 0")
    net.settle()
    net.replace_link((2, 3), (1, 4), how)
    for _ in range(steps):
        net.step()
    net.disconnect(1, 2)
    net.settle()
    for broker in net.brokers:
        assert not tree_router(net, broker).is_changing
    for broker, client in clients.items():
        before = {b: len(c.received) for b, c in clients.items()}
        client.publish({"x": 1})
        net.settle()
        near = reachable(broker, net.links)
        got = {b for b, c in clients.items() if len(c.received) > before[b]}
        assert got == near


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize("how", REPLACEMENTS)
def test_no_change_begins_while_another_one_is_given_up(how: str) -> None:
    net = planned_tree([(1, 2), (1, 3)])
    for broker in net.brokers:
        net.client(at=broker).subscribe("x > 0")
    net.settle()
    net.replace_link((1, 3), (2, 3))
    net.disconnect(2, 3)
    with pytest.raises(InvalidConfiguration, match="takes part in another change"):
        net.replace_link((1, 3), (2, 3), how)
    net.settle()
    net.replace_link((1, 3), (2, 3), how)
    net.settle()
    assert sorted(net.links) == [(1, 2), (2, 3)]


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize("how", REPLACEMENTS)
def test_a_link_is_not_replaced_by_itself(how: str) -> None:
    net = planned_tree([(1, 2)])
    with pytest.raises(InvalidTopology, match="are the same link"):
        net.replace_link((1, 2), (2, 1), how)


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize("how", PLANNED)
def test_who_is_off_the_line_is_told_what_is_announced_in_the_new_tree(how: str) -> None:
    """What came from two sides comes from one, so 2 announces a merger to 4 and not its parts."""
    net = planned_tree([(1, 2), (2, 3), (2, 4)], "merging")
    clients = [net.client(at=1), net.client(at=3)]

    def asked_at_4() -> list[str]:
        return [str(f) for _, f in tree_router(net, 4).plane.subscriptions.asked(Neighbor(2))]

    for client, span in zip(clients, ("x between 3 and 5", "x = 0"), strict=True):
        client.subscribe(f"x is int and {span}")
    net.settle()
    assert len(asked_at_4()) == 2
    net.replace_link((1, 2), (1, 3), how)
    net.settle()
    assert asked_at_4() == ["x is int and (x = 0 or x between 3 and 5)"]
    for client in clients:
        client.leave()
    net.settle()
    assert sum(net.table_sizes().values()) == 0
