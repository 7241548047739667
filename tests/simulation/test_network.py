"""Simulated networks: brokers, links and clients that come, go and fail; and the same run twice."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stentor.errors import (
    DuplicateBroker,
    FilterTooComplex,
    InvalidConfiguration,
    InvalidTopology,
    NotAdvertised,
    StentorError,
    UnknownBroker,
    UnknownClient,
    UnknownStrategy,
    Unsettled,
)
from stentor.filters import Filter
from stentor.model import NotificationId
from stentor.protocol import messages as m
from stentor.routing import FilterId, TreeRouter, tree_router
from stentor.routing.protocol import BrokerId
from stentor.simulation import Client, Network, host
from stentor.simulation.host import Host
from stentor.simulation.links import together
from stentor.simulation.schedule import Schedule
from stentor.simulation.topology import reachable

EXACT = ("simple", "identity", "covering", "merging")
ALL = ("flooding", *EXACT)
SIX = [(1, 2), (1, 3), (3, 4), (4, 5), (4, 6)]


def interval(random: Random) -> str:
    low, high = sorted(random.choices(range(6), k=2))
    return f"x between {low} and {high}"


def received(client: Client) -> list[Any]:
    return [n["x"] for n in client.received]


# -- first steps


@pytest.mark.spec("R-07.68", "R-03.24", "07/E-11")
@pytest.mark.parametrize("routing", ALL)
def test_a_first_network(routing: str) -> None:
    net = Network.tree(SIX, routing=routing)
    a, b, c = net.client(at=1), net.client(at=5), net.client(at=6)
    wanted = b.subscribe("price > 100 and name = 'Telco'")
    c.subscribe("price > 50")
    net.settle()
    a.publish({"name": "Telco", "price": 120})
    a.publish({"name": "Telco", "price": 90})
    net.settle()
    assert [n["price"] for n in b.received] == [120]
    assert [n["price"] for n in c.received] == [120, 90]
    b.unsubscribe(wanted)
    net.settle()
    a.publish({"name": "Telco", "price": 130})
    net.settle()
    assert len(b.received) == 1
    assert net.check(order=("fifo", "causal")).ok
    assert net.links == SIX
    assert net.brokers == [1, 2, 3, 4, 5, 6]


@pytest.mark.spec("R-03.02")
def test_messages_arrive_when_they_are_let() -> None:
    net = Network.tree([(1, 2), (2, 3)])
    net.client(at=1).subscribe("x > 0")
    net.client(at=3).subscribe("x > 1")
    assert net.pending == [(1, 2), (3, 2)]
    assert net.step((3, 2))
    assert net.pending == [(1, 2), (2, 1)]
    net.settle()
    assert net.pending == []
    assert not net.step()


@pytest.mark.spec("R-03.02")
@pytest.mark.parametrize("seed", [None, 1])
def test_nothing_arrives_on_a_link_where_nothing_is_on_its_way(seed: int | None) -> None:
    net = Network.tree([(1, 2)], seed=seed)
    net.client(at=1).subscribe("x > 0")
    assert not net.step((2, 1))
    assert net.pending == [(1, 2)]


@pytest.mark.spec("R-03.02")
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_links_keep_the_order(seed: int | None) -> None:
    net = Network.tree([(1, 2), (2, 3)], seed=seed)
    publisher, subscriber = net.client(at=1), net.client(at=3)
    subscriber.subscribe("")
    net.settle()
    for x in range(20):
        publisher.publish({"x": x})
    net.settle()
    assert received(subscriber) == list(range(20))


@pytest.mark.spec("R-03.23")
def test_counters_tell_what_happened_between_two_moments() -> None:
    net = Network.tree([(1, 2), (2, 3)], "simple", "simple")
    a, b = net.client(at=1), net.client(at=3)
    a.advertise("")
    net.settle()
    before = net.counters.copy()
    b.subscribe("x > 0")
    net.settle()
    a.publish({"x": 1})
    net.settle()
    spent = net.counters - before
    assert str(spent) == (
        "2 notifications, 2 subscriptions, 0 advertisements, 0 control, 1 delivered, 0 lost"
    )
    assert before.advertisements == 2
    assert (spent.messages, net.counters.messages) == (4, 6)
    assert dict(spent.links["subscription"]) == {(3, 2): 1, (2, 1): 1}


@pytest.mark.spec("03/P10")
def test_a_network_that_does_not_come_to_rest_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PATIENCE", 0.3)
    net = Network.tree([(1, 2), (2, 3), (3, 4), (4, 5)])
    net.client(at=1).subscribe("x > 0")
    with pytest.raises(Unsettled, match=r"after 3 steps there are still messages .*\(4, 5\)"):
        net.settle()


@pytest.mark.spec("R-03.01")
def test_any_routers_can_be_hosted() -> None:
    net = Host({name: tree_router(name, "merging") for name in "abc"}, [("a", "b"), ("b", "c")])
    subscriber, publisher = net.client(at="a"), net.client(at="c")
    subscriber.subscribe("x > 0")
    net.settle()
    publisher.publish({"x": 1})
    net.settle()
    assert received(subscriber) == [1]
    with pytest.raises(InvalidConfiguration, match="does not know how to make routers"):
        net.add_broker("d", ["a"])


def test_a_run_can_do_without_its_trace() -> None:
    net = Host({1: tree_router(1)}, [], record=False)
    client = net.client(at=1)
    client.subscribe("x > 0")
    client.publish({"x": 1})
    net.settle()
    client.leave()
    assert received(client) == [1]
    assert len(net.trace) == 0
    with pytest.raises(InvalidConfiguration, match="was not recorded"):
        net.check()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=40))
def test_a_channel_keeps_its_order_however_much_is_taken_at_a_time(
    steps: list[tuple[str, int]],
) -> None:
    schedule, waiting = Schedule(), dict[str, list[int]]()
    for number, (channel, how) in enumerate(steps):
        held = waiting.setdefault(channel, [])
        if how < 2:
            schedule.put(channel, number)
            held.append(number)
        elif how == 2:
            found = schedule.next(channel)
            assert found == ((channel, held.pop(0)) if held else None)
        elif (taken := schedule.next_all()) is not None:
            assert taken[1] == waiting.pop(taken[0])
    while (found := schedule.next()) is not None:
        assert found[1] == waiting[found[0]].pop(0)
    assert not any(waiting.values())


def test_only_what_means_the_same_travels_together() -> None:
    def forward(stream: str, *numbers: int, volatile: bool = False) -> m.Forward:
        return m.Forward(stream, list(numbers), [b"%d" % n for n in numbers], volatile)

    def asked(*texts: str, gone: Sequence[str] = ()) -> m.Subscriptions:
        return m.Subscriptions([(text, text) for text in texts], list(gone))

    one, two = forward("a#", 1), forward("a#", 2, 3)
    assert list(together([one, two])) == [forward("a#", 1, 2, 3)]
    assert list(together([one, forward("b#", 1), two])) == [one, forward("b#", 1), two]
    volatile = forward("a#", 2, volatile=True)
    assert list(together([one, volatile])) == [one, volatile]
    assert list(together([asked("x > 1"), asked("x > 2")])) == [asked("x > 1", "x > 2")]
    # What goes and comes again must not go after it has come.
    goes = asked("x > 3", gone=["x > 1"])
    assert list(together([asked("x > 1"), goes, asked("x > 1")])) == [
        asked("x > 1"),
        goes,
        asked("x > 1"),
    ]


# -- brokers come and go


@pytest.mark.spec("R-03.38", "R-08.46")
@pytest.mark.parametrize("routing", ALL)
@pytest.mark.parametrize("advertisements", [None, "covering"])
def test_a_broker_joins(routing: str, advertisements: str | None) -> None:
    net = Network.tree([(1, 2)], routing, advertisements)
    old = net.client(at=1)
    old.subscribe("x > 0")
    old.advertise("")
    net.settle()
    net.add_broker(3, [2])
    new = net.client(at=3)
    new.advertise("")
    new.subscribe("x > 5")
    net.settle()
    new.publish({"x": 1})
    old.publish({"x": 6})
    net.settle()
    assert sorted(received(old)) == [1, 6]
    assert received(new) == [6]
    assert net.links == [(1, 2), (2, 3)]


@pytest.mark.spec("R-03.38")
def test_two_trees_grow_together() -> None:
    """A broker without links gets some later; both sides bring what they have."""
    net = Network.tree([(1, 2)])
    net.add_broker(3)
    net.add_broker(4, [3])
    a, b = net.client(at=1), net.client(at=4)
    for client in (a, b):
        client.subscribe("x > 0")
    net.settle()
    a.publish({"x": 1})
    net.settle()
    assert b.received == []
    net.connect(2, 3)
    net.settle()
    for client in (a, b):
        client.publish({"x": 2})
    net.settle()
    assert received(a) == [1, 2, 2]
    assert received(b) == [2, 2]


@pytest.mark.spec("R-03.39", "R-03.41")
@pytest.mark.parametrize("routing", EXACT)
def test_a_broker_leaves_with_its_clients(routing: str) -> None:
    net = Network.tree([(1, 2), (2, 3)], routing)
    stays, goes = net.client(at=1), net.client(at=3)
    goes.subscribe("x > 0")
    stays.subscribe("x > 0")
    net.settle()
    goes.publish({"x": 1})
    assert net.remove_broker(3) == [2]
    assert received(stays) == [1]  # what was on its way has arrived
    net.settle()
    assert net.counters.lost == 0
    assert net.brokers == [1, 2]
    assert {b: s.total for b, s in net.table_sizes().items()} == {1: 1, 2: 1}
    with pytest.raises(UnknownClient, match="has left; make a new client"):
        goes.publish({"x": 2})
    assert net.check().ok


@pytest.mark.spec("R-03.39")
@pytest.mark.parametrize("routing", EXACT)
def test_a_broker_fails_and_its_neighbors_are_linked_anew(routing: str) -> None:
    net = Network.tree([(1, 2), (2, 3), (2, 4)], routing)
    clients = {broker: net.client(at=broker) for broker in net.brokers}
    for client in clients.values():
        client.subscribe("x > 0")
    net.settle()
    clients[1].publish({"x": 1})
    neighbors = net.fail_broker(2)
    assert neighbors == [1, 3, 4]
    assert net.counters.lost == 1
    for other in neighbors[1:]:
        net.connect(1, other)
    net.settle()
    assert sum(size.remote for size in net.table_sizes().values()) == (
        6 if routing == "simple" else 4
    )
    clients[3].publish({"x": 2})
    net.settle()
    assert [received(clients[b]) for b in (1, 3, 4)] == [[1, 2], [2], [2]]
    with pytest.raises(UnknownBroker, match="there is no broker 2 here; there are 1, 3, 4"):
        net.client(at=2)


@pytest.mark.spec("R-03.39")
def test_a_failed_broker_comes_back_knowing_nothing() -> None:
    net = Network.tree([(1, 2), (2, 3)])
    a, b = net.client(at=1), net.client(at=3)
    a.subscribe("x > 0")
    net.client(at=2).subscribe("y > 0")
    net.settle()
    net.fail_broker(2)
    net.add_broker(2, [1, 3])
    net.settle()
    assert net.table_sizes()[2].local == 0
    b.publish({"x": 1})
    net.settle()
    assert received(a) == [1]


@pytest.mark.spec("R-03.01")
def test_a_broker_that_cannot_be_linked_is_not_added() -> None:
    net = Network.tree([(1, 2)])
    with pytest.raises(InvalidTopology, match="would close a cycle"):
        net.add_broker(3, [1, 2])
    assert net.brokers == [1, 2]
    assert net.links == [(1, 2)]


# -- links fail and come back


@pytest.mark.spec("R-03.38", "R-03.39", "R-03.40", "03/8.14")
@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(ALL), st.sampled_from((None, "simple", "covering")))
def test_links_fail_and_come_back_at_any_time(
    seed: int, routing: str, advertisements: str | None
) -> None:
    random = Random(seed)
    edges = [(random.randrange(1, number), number) for number in range(2, 7)]
    net = Network.tree(edges, routing, advertisements, seed=seed)
    clients = [net.client(at=broker) for broker in net.brokers]
    held: dict[FilterId, Client] = {}
    for client in clients:
        client.advertise("")
    down: list[tuple[BrokerId, BrokerId]] = []
    for _ in range(40):
        what, client = random.random(), random.choice(clients)
        if what < 0.25:
            held[client.subscribe(interval(random))] = client
        elif what < 0.4 and held:
            id = random.choice(list(held))
            held.pop(id).unsubscribe(id)
        elif what < 0.6:
            client.publish({"x": random.randrange(6)})
        elif what < 0.7 and net.links:
            link = random.choice(net.links)
            net.disconnect(*link)
            down.append(link)
        elif what < 0.85 and down:
            net.connect(*down.pop(random.randrange(len(down))))
        for _ in range(random.randrange(4)):
            net.step()
    net.settle()
    for x in range(6):  # exact within each part
        publisher = random.choice(clients)
        before = [len(client.received) for client in clients]
        publisher.publish({"x": x})
        net.settle()
        near = reachable(publisher.at, net.links)
        for client, count in zip(clients, before, strict=True):
            filters = client.subscriptions.values()
            wanted = client.at in near and any(f.matches({"x": x}) for f in filters)
            assert len(client.received) - count == wanted
    assert net.check(settling=False).ok
    for client in clients:
        client.leave()
    net.settle()
    for broker in net.brokers:
        router = net.router(broker)
        assert isinstance(router, TreeRouter)
        assert router.plane.is_empty


@pytest.mark.spec("03/8.14", "R-03.39")
def test_messages_of_a_link_that_failed_are_lost_with_it() -> None:
    net = Network.tree([(1, 2)])
    a, b = net.client(at=1), net.client(at=2)
    a.subscribe("x > 0")
    net.settle()
    b.publish({"x": 1})
    net.disconnect(1, 2)
    assert net.counters.lost == 1
    net.connect(1, 2)
    net.settle()
    assert a.received == []
    b.publish({"x": 2})
    net.settle()
    assert received(a) == [2]


# -- clients come and go


@pytest.mark.spec("R-03.41", "R-03.07")
def test_a_client_that_comes_back_under_its_name_uses_no_id_again() -> None:
    net = Network.tree([(1, 2)])
    observer = net.client(at=2)
    observer.subscribe("x > 0")
    ids: list[tuple[FilterId, NotificationId]] = []
    for at in (1, 2, 1):
        ann = net.client(at=at, id="ann")
        id = ann.subscribe("x > 5")
        net.settle()
        ids.append((id, ann.publish({"x": 6})))
        net.settle()
        assert received(ann) == [6]
        ann.leave()
        net.settle()
    assert len({id for id, _ in ids}) == len({id for _, id in ids}) == 3
    assert received(observer) == [6, 6, 6]
    assert net.check().ok


@pytest.mark.spec("R-03.41")
def test_clients_without_a_name_get_one_that_is_free() -> None:
    net = Network.tree([], brokers=["only"])
    net.client(at="only", id="c2")
    assert [net.client(at="only").id for _ in range(2)] == ["c1", "c3"]
    with pytest.raises(InvalidConfiguration, match="there is a client 'c1' already"):
        net.client(at="only", id="c1")


@pytest.mark.spec("R-03.41")
def test_a_client_that_left_can_do_nothing() -> None:
    net = Network.tree([(1, 2)])
    client = net.client(at=1, id="ann")
    id = client.subscribe("x > 0")
    client.leave()
    calls: list[Callable[[], Any]] = [
        lambda: client.subscribe("x > 0"),
        lambda: client.unsubscribe(id),
        lambda: client.advertise("x > 0"),
        lambda: client.publish({"x": 1}),
        lambda: client.offers(),
        client.leave,
    ]
    for call in calls:
        with pytest.raises(UnknownClient, match=r"Client\('ann', at=1\) has left"):
            call()


# -- what cannot be


@pytest.mark.spec("R-03.01", "R-03.24")
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Network.tree([(1, 2)], "coverin"),
            UnknownStrategy,
            "no routing strategy 'coverin'; choose one of flooding, simple, identity, covering",
        ),
        (
            lambda: Network.tree([(1, 2)], "covering", "sometimes"),
            UnknownStrategy,
            "no routing strategy 'sometimes'",
        ),
        (lambda: Network.tree([(1, 2)], brokers=[2]), DuplicateBroker, "broker 2 is given twice"),
        (lambda: Network.mesh(["a", "a"]), DuplicateBroker, "broker 'a' is given twice"),
        (
            lambda: Network.tree([(1, 2), (2, 3), (3, 1)]),
            InvalidTopology,
            "the link 3-1 closes a cycle; take one of its links away, or use Network.graph",
        ),
        (
            lambda: Network.tree([(1, 2), (3, 4)]),
            InvalidTopology,
            "there is no way from 1 to 3, 4; add links",
        ),
        (lambda: Network.tree([(1, 1)]), InvalidTopology, "1-1 leads from a broker to itself"),
        (lambda: Network.tree([(1, 2), (2, 1)]), InvalidTopology, "the link 2-1 is given twice"),
        (lambda: Network.tree([]), InvalidTopology, "a network needs at least one broker"),
        (lambda: Network.mesh(0), InvalidTopology, "a network needs at least one broker"),
        (lambda: Network.tree([(1, 2.5)]), InvalidTopology, "2.5 is not a broker id"),  # type: ignore[list-item]
        (lambda: Network.tree([(1, True)]), InvalidTopology, "True is not a broker id"),
        (lambda: Network.tree([(1, 2, 3)]), InvalidTopology, "is not a link; a link is a pair"),  # type: ignore[list-item]
        (
            lambda: Network.tree([(1, 2)], "covering", looseness=0.2),
            InvalidConfiguration,
            "looseness is for merging, not for covering; leave it out",
        ),
        (
            lambda: Network.tree([(1, 2)], "merging", looseness=1.5),
            InvalidConfiguration,
            "looseness is a share from 0 to 1, not 1.5",
        ),
        (
            lambda: Network.hierarchy([(1, 2), (3, 2)]),
            InvalidTopology,
            "do not lead to one root; give root=",
        ),
        (
            lambda: Network.hierarchy([(1, 2)], root=7),
            InvalidTopology,
            "the root 7 is not among the brokers",
        ),
        (
            lambda: Network.graph([(1, 2)], "first-arrival", "covering"),
            InvalidConfiguration,
            "with routing='first-arrival' advertisements go nowhere",
        ),
        (
            lambda: Network.rendezvous(3, "topics", "merging"),
            InvalidConfiguration,
            "filters of the mapping 'topics' travel one by one; leave routing out",
        ),
        (
            lambda: Network.hybrid([(1, 2)], {2: 1}),
            InvalidTopology,
            "2 has a parent, 1, and so no peers",
        ),
    ],
)
def test_configurations_that_make_no_sense(
    make: Callable[[], Network], error: type[StentorError], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.spec("R-03.01")
@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda net: net.client(at=9), UnknownBroker, "there is no broker 9 here; there are 1, 2"),
        (lambda net: net.connect(1, 9), UnknownBroker, "no broker 9"),
        (lambda net: net.connect(1, 2), InvalidTopology, "already"),
        (lambda net: net.connect(1, 3), InvalidTopology, "1-3 would close a cycle"),
        (lambda net: net.disconnect(1, 3), InvalidTopology, "there is no link between 1 and 3"),
        (lambda net: net.disconnect(9, 1), UnknownBroker, "no broker 9"),
        (lambda net: net.add_broker(2), DuplicateBroker, "there is a broker 2 already"),
        (lambda net: net.add_broker(4, [9]), UnknownBroker, "no broker 9"),
        (lambda net: net.fail_broker(9), UnknownBroker, "no broker 9"),
        (lambda net: net.remove_broker(9), UnknownBroker, "no broker 9"),
    ],
)
def test_changes_that_make_no_sense(
    act: Callable[[Network], Any], error: type[StentorError], message: str
) -> None:
    net = Network.tree([(1, 2), (2, 3)])
    with pytest.raises(error, match=message):
        act(net)
    assert net.brokers == [1, 2, 3]
    assert net.links == [(1, 2), (2, 3)]


@pytest.mark.spec("R-03.01")
def test_a_broker_is_not_linked_to_itself() -> None:
    net = Network.tree([(1, 2)])
    with pytest.raises(InvalidTopology, match="itself"):
        net.connect(1, 1)


@pytest.mark.spec("R-03.01")
def test_links_of_a_host_are_between_its_brokers() -> None:
    with pytest.raises(UnknownBroker, match="no broker 2"):
        Host({1: tree_router(1)}, [(1, 2)])


# -- the same run twice


def run_of(routing: str, seed: int | None) -> Network:
    """A busy run with broker names whose hashes differ from process to process."""
    names = ["oslo", "rome", "bern", "kiev", "riga", "cork"]
    random = Random(5)
    edges = [(names[random.randrange(n)], names[n]) for n in range(1, len(names))]
    net = Network.tree(edges, routing, "covering", seed=seed)
    clients = [net.client(at=name) for name in names]
    held: list[tuple[Client, FilterId]] = []
    for client in clients:
        client.advertise("")
    for _ in range(30):
        client = random.choice(clients)
        held.append((client, client.subscribe(interval(random) + f" or s = '{random.random()}'")))
        client.publish({"x": random.randrange(6)})
        if len(held) > 12:
            owner, id = held.pop(random.randrange(len(held)))
            owner.unsubscribe(id)
        for _ in range(random.randrange(5)):
            net.step()
    net.settle()
    return net


@pytest.mark.spec("08/6.14", "07/4.0")
@pytest.mark.parametrize("routing", ["simple", "covering", "merging"])
def test_the_same_seed_gives_the_same_run(routing: str) -> None:
    first, again, other = run_of(routing, 1), run_of(routing, 1), run_of(routing, 2)
    assert list(first.trace) == list(again.trace)
    assert first.counters == again.counters
    assert list(first.trace) != list(other.trace)


def summary() -> str:
    lines = []
    for routing in ("simple", "covering", "merging"):
        net = run_of(routing, 1)
        lines.append(f"{net.counters} {sorted(net.counters.links['subscription'].items())}")
        lines += [str(action) for action in net.trace][-40:]
    return "\n".join(lines)


@pytest.mark.spec("08/6.14", "07/4.0")
def test_the_same_seed_gives_the_same_run_in_another_process() -> None:
    """Texts have other hashes there, so sets of them have another order."""
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    env = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": path}
    command = [sys.executable, "-c", "import test_network as t; print(t.summary())"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == summary()


def test_filters_may_be_given_as_text_or_parsed() -> None:
    net = Network.tree([], brokers=[1])
    client = net.client(at=1)
    client.subscribe(Filter("x > 0"))
    client.subscribe("y > 0")
    client.publish({"y": 1})
    client.publish({"x": 1})
    assert len(client.received) == 2


# -- found by attacks


@pytest.mark.spec("R-03.31")
@pytest.mark.slow
def test_a_hierarchy_may_be_deep() -> None:
    net = Network.hierarchy([(i, i + 1) for i in range(1, 1200)])
    assert len(net.brokers) == 1200


@pytest.mark.spec("R-01.20", "01/A-7")
def test_a_burst_in_any_order_reaches_everybody_who_is_owed() -> None:
    """Ways through different meeting places differ in length, so events come far out of order."""
    net = Network.rendezvous(12, "attribute-split", axes=[("x", 0, 100)], seed=1)
    reader, writer = net.client(at=1), net.client(at=7)
    reader.subscribe("x < 50")
    net.settle()
    for i in range(1500):
        writer.publish({"x": (i * 37) % 100})
    net.settle()
    assert len(reader.received) == 750
    assert net.check().ok


def test_a_client_that_left_does_not_act_for_its_namesake() -> None:
    net = Network.tree([(1, 2)])
    old = net.client(at=1, id="ann")
    old.leave()
    net.client(at=1, id="ann")
    with pytest.raises(UnknownClient):
        old.publish({"x": 1})


@pytest.mark.spec("R-03.23")
def test_many_nested_filters_of_one_client_are_withdrawn_at_the_cost_of_one() -> None:
    net = Network.tree([(1, 2), (2, 3)])
    client = net.client(at=1)
    for i in range(500):
        client.subscribe(f"x > {i}")
    net.settle()
    before = net.counters.copy()
    client.leave()
    net.settle()
    assert (net.counters - before).subscriptions == 2
    assert sum(net.table_sizes().values()) == 0


@pytest.mark.spec("R-03.27", "R-03.28")
def test_advertisements_that_others_make_up_for_come_and_go_without_a_word() -> None:
    net = Network.tree([(1, 2), (2, 3)], "covering", "simple")
    producer, consumer = net.client(at=1), net.client(at=3)
    offers = [producer.advertise(f"x > {i}") for i in range(20)]
    consumer.subscribe("x > 5 and y > 1")
    net.settle()
    before = net.counters.copy()
    for offer in offers[:-1]:
        producer.unadvertise(offer)
    net.settle()
    assert (net.counters - before).subscriptions == 0
    producer.unadvertise(offers[-1])
    net.settle()
    assert net.table_sizes()[1].remote == 0
    producer.advertise("x > 3")
    net.settle()
    assert net.table_sizes()[1].remote == 1


# -- crashes and partitions


@pytest.mark.spec("R-07.60", "R-07.73")
@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from((None, "merging")))
def test_a_durable_client_misses_nothing_and_gets_nothing_twice(
    seed: int, advertisements: str | None
) -> None:
    random = Random(seed)
    net = Network.tree([(1, 2), (2, 3), (3, 4), (4, 5)], "covering", advertisements, seed=seed)
    desk, other = net.client(at=5, durable="desk-7"), net.client(at=3, journaled=True)
    publisher = net.client(at=1, journaled=True)
    publisher.advertise("")
    desk.subscribe("x >= 0")
    other.subscribe("x < 5")
    net.settle()
    down: list[BrokerId] = []
    for x in range(25):
        publisher.publish({"x": x})
        what = random.random()
        up = [broker for broker in net.brokers if broker not in down]
        if what < 0.15 and up:
            down.append(random.choice(up))
            net.crash(down[-1])
        elif what < 0.3 and down:
            net.restart(down.pop(random.randrange(len(down))))
        elif what < 0.35:
            net.partition({1, 2}, {3, 4, 5})
        elif what < 0.4:
            net.heal()
            down = []
        for _ in range(random.randrange(8)):
            net.step()
    net.heal()
    net.settle()
    assert received(desk) == list(range(25))
    assert received(other) == list(range(5))
    report = net.check(order=("fifo",))
    assert report.ok, report


def test_a_volatile_client_waits_for_its_broker_and_loses_what_comes_meanwhile() -> None:
    net = Network.tree([(1, 2), (2, 3)])
    a, b = net.client(at=1), net.client(at=3)
    b.subscribe("x > 0")
    net.settle()
    net.crash(3)
    a.publish({"x": 1})
    with pytest.raises(InvalidConfiguration, match="its broker is down"):
        b.publish({"x": 9})
    net.settle()
    net.restart(3)
    net.settle()
    a.publish({"x": 2})
    net.settle()
    assert received(b) == [2]
    with pytest.raises(InvalidConfiguration, match="has not crashed"):
        net.restart(3)


def test_a_partition_heals() -> None:
    net = Network.tree([(1, 2), (2, 3), (3, 4)])
    clients = [net.client(at=broker) for broker in net.brokers]
    for client in clients:
        client.subscribe("x > 0")
    net.settle()
    net.partition({1, 2}, {3, 4})
    clients[0].publish({"x": 1})
    net.settle()
    assert net.links == [(1, 2), (3, 4)]
    net.heal()
    net.settle()
    clients[0].publish({"x": 2})
    net.settle()
    assert [received(client) for client in clients] == [[1, 2], [1, 2], [2], [2]]


@pytest.mark.spec("R-08.43", "R-07.60")
@pytest.mark.parametrize("seed", [None, *range(4)])
@pytest.mark.parametrize("routing", ["flooding", "covering", "merging"])
def test_a_durable_client_on_a_graph_misses_nothing(routing: str, seed: int | None) -> None:
    edges = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 1), (2, 4)]
    net = Network.graph(edges, routing=routing, advertisements="merging", seed=seed)
    ticker = net.client(at=1, journaled=True)
    ticker.advertise("exists x")
    desk = net.client(at=5, durable="desk-7")
    desk.subscribe("x > 1")
    net.settle()
    for change in (
        lambda: net.crash(3),
        lambda: net.restart(3),
        lambda: net.partition({1, 2}, {3, 4, 5}),
        lambda: net.heal(),
    ):
        for x in range(4):
            ticker.publish({"x": x})
        change()
    net.settle()
    assert received(desk) == 4 * [2, 3]
    assert net.check(order=("fifo",)).ok


@pytest.mark.parametrize("routing", EXACT)
def test_plain_filters_travel_without_being_printed(
    routing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Filter, "__str__", lambda filter: pytest.fail("it was printed"))
    net = Network.tree([(1, 2), (2, 3)], routing=routing)
    near, far = net.client(at=1), net.client(at=3)
    wanted = [near.subscribe(text) for text in ("x > 1", "x > 1 and y = 2", "x <= 0")]
    net.settle()
    for x in range(3):
        far.publish({"x": x})
    net.settle()
    assert [dict(n) for n in near.received] == [{"x": 0}, {"x": 2}]
    for id in wanted:
        near.unsubscribe(id)
    net.settle()
    assert all(size.local == size.remote == 0 for size in net.table_sizes().values())
    assert net.check().ok


def test_what_takes_too_much_to_read_is_refused() -> None:
    net = Network.tree([(1, 2)])
    client = net.client(at=1)
    with pytest.raises(FilterTooComplex):
        client.subscribe(" or ".join(f"{'x' * 200}{i} = {i}" for i in range(350)))
    assert not client.subscriptions


# -- many who speak at the same time


def test_brokers_deal_together_with_what_clients_say_together() -> None:
    runs = []
    for at_once in (False, True):
        net = Network.tree([(1, 2), (2, 3)])
        readers = [net.client(at=1 + n % 3) for n in range(6)]
        writers = [net.client(at=1 + n % 3) for n in range(3)]
        with net.together() if at_once else nullcontext():
            for n, reader in enumerate(readers):
                reader.subscribe(f"x > {n}")
        net.settle()
        with net.together() if at_once else nullcontext():
            for x in range(30):
                writers[x % 3].publish({"x": x % 7})
        net.settle()
        assert net.check(order=("fifo",)).ok
        runs.append([sorted(str(each.id) for each in reader.received) for reader in readers])
    assert runs[0] == runs[1]


def test_nobody_misses_anything_of_very_much_that_is_on_its_way_at_a_time() -> None:
    net = Network.tree([(1, 2)])
    here, there, writer = (net.client(at=at) for at in (1, 2, 1))
    for reader in (here, there):
        reader.subscribe("x >= 0")
    net.settle()
    for x in range(12_000):
        writer.publish({"x": x})
    net.settle()
    with net.together():
        for x in range(12_000):
            writer.publish({"x": x})
    net.settle()
    assert received(here) == received(there) == [*range(12_000), *range(12_000)]


def test_a_refusal_among_what_is_said_together_is_an_error_at_the_end() -> None:
    net = Network.tree([(1, 2)], advertisements="covering")
    client = net.client(at=1)
    said = []
    with pytest.raises(NotAdvertised), net.together():
        said.append(client.publish({"x": 1}))
    assert said
