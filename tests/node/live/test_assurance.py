"""What a subscription costs where advertisements steer, and that nothing is missed for it.

A probe goes where the subscription has gone. So brokers that offer nothing for it have no part in
it; they come into it when they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from live_histories import small
from overlay import Overlay

from stentor.filters import Filter
from stentor.node import assurance
from stentor.node.assurance import Assurance
from stentor.node.marks import Marks
from stentor.protocol import messages as m
from stentor.simulation import Client, Network
from stentor.simulation.broker import SideChannel

Edges = list[tuple[int, int]]
PROMISES = pytest.mark.spec("R-07.60", "R-07.73")


def chain(brokers: int) -> Edges:
    return [(i, i + 1) for i in range(1, brokers)]


def tree(brokers: int) -> Edges:
    """1, 2, 3 and 4 are a chain; from 4 on it branches."""
    return [(1, 2), (2, 3), (3, 4)] + [(max(4, i // 2), i) for i in range(5, brokers + 1)]


def ring(brokers: int) -> Edges:
    return [*chain(brokers), (1, brokers)]


def cycles(brokers: int) -> Edges:
    """A chain beside which there is another way from each to the next but one."""
    return chain(brokers) + [(i, i + 2) for i in range(4, brokers - 1)]


def network(edges: Edges, *, graph: bool) -> Network:
    """With somebody at 3 who offers something, and elsewhere who offer something else."""
    make = Network.graph if graph else Network.tree
    net = make(edges, "covering", "covering")
    brokers = sorted({end for edge in edges for end in edge})
    for broker in {3, *brokers[4 :: len(brokers) // 5]}:
        net.client(at=broker, journaled=True).advertise(f"kind = {broker}")
    net.settle()
    net.client(at=1, journaled=True).subscribe("kind = 5 and x > 5")
    net.settle()
    return net


def cost(net: Network, filter: str) -> tuple[int, int]:
    """Updates of filters, and other messages, for a subscription of somebody at 1."""
    counters = net.counters.copy()
    net.client(at=1, journaled=True).subscribe(filter)
    net.settle()
    spent = net.counters - counters
    return spent.subscriptions, spent.control


@pytest.mark.parametrize(
    ("edges", "graph", "brokers"),
    [
        *((edges, False, brokers) for edges in (chain, tree) for brokers in (10, 30, 100)),
        *((edges, True, brokers) for edges in (chain, ring, cycles) for brokers in (9, 20)),
    ],
)
def test_a_subscription_costs_its_way_to_what_is_offered(
    edges: Callable[[int], Edges], graph: bool, brokers: int
) -> None:
    net = network(edges(brokers), graph=graph)
    assert cost(net, "kind = 3 and x > 5") == (2, 4)  # there and back, over two links
    assert cost(net, "kind = 3 and x > 7") == (0, 0)
    assert cost(net, "kind = 3 and x < 3") == (2, 4)
    assert cost(net, "kind = 0") == (0, 0)


@pytest.mark.parametrize("graph", [False, True])
def test_what_is_no_longer_offered_is_asked_about_once(graph: bool) -> None:
    net = network(chain(10), graph=graph)
    fleeting = net.client(at=8, journaled=True)
    fleeting.unadvertise(fleeting.advertise("kind = 0"))
    net.settle()
    assert cost(net, "kind = 3 and x > 5") == (2, 14)  # seven links
    assert cost(net, "kind = 3 and x < 3") == (2, 4)


def test_what_is_counted_for_each_tree_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers come and go while a link stands; of those that are forgotten nothing is sure."""
    monkeypatch.setattr(assurance, "KEPT", 3)
    directory = SimpleNamespace(
        allows_cycles=True, root=lambda stream: stream, behind=lambda *_: [m.Origin("n", "n")]
    )
    sure = Assurance(cast(Any, directory), Marks())
    for tree in "abcdefgh":
        for _ in range(5):
            sure.say("n", tree)
        sure.answered("n", tree, sure.said("n", tree), {"n": 7})
        assert sure.heads("n", tree) == {"n": 7}
    assert max(len(sure._said["n"]), len(sure._sure["n"])) <= 4
    before = {tree: sure.said("n", tree) for tree in "abcdefgh"}
    for other in "ijklm":
        sure.say("n", other)
    for tree, said in before.items():
        assert sure.said("n", tree) > said
        assert sure.heads("n", tree) is None


# -- nothing is missed


def overlay(links: list[str], *, graph: bool = False) -> Overlay:
    return Overlay(
        [(link[0], link[1]) for link in links],
        advertisements="covering",
        graph=graph,
    )


def go_on(sim: Overlay, *, but: Iterable[Any] = ()) -> None:
    """Let everything happen that can, but on these links, or channels."""
    held = {tuple(link) for link in but}
    while free := [each for each in sim.schedule.pending if each not in held]:
        sim.step(free[0])


def received(client: Client) -> list[Any]:
    return [event["n"] for event in client.received]


def offering(sim: Overlay, at: str, *filters: str) -> Client:
    client = sim.client(at=at)
    for filter in filters:
        client.offer(Filter(filter))
    go_on(sim)
    return client


@PROMISES
def test_what_was_offered_before_is_read_by_who_comes_back() -> None:
    """Nobody asked for it when it was published, and nobody offers it now."""
    sim = overlay(["ab", "bc"])
    desk, quotes = sim.client(at="a"), offering(sim, "c", "x = 1")
    desk.open("x = 1", durable="desk")
    go_on(sim)
    desk.disconnect()
    go_on(sim)
    quotes.send([{"x": 1, "n": n} for n in range(5)])
    go_on(sim)
    quotes.withdraw(next(iter(quotes.offered)))
    go_on(sim)
    with small(1, 1):  # what is read of a journal at a time is less than that
        desk.connect(sim.hosts["a"])
        go_on(sim)
    assert received(desk) == [0, 1, 2, 3, 4]


@PROMISES
def test_who_comes_to_lie_behind_a_neighbor_in_a_graph_is_not_answered_for() -> None:
    """Whoever lies there may not know it, and not pass on what is asked for.

    c has been answered by d, and e comes to lie behind that for what a asks for. Neither knows it.
    Meanwhile a hears how far the stream of e is, but not of what it asks for.
    """
    sim = overlay(["ab", "bc", "cd", "de", "ef", "fg", "ga"], graph=True)
    desk, quotes = sim.client(at="a"), offering(sim, "e", "x = 1")
    offering(sim, "d", "x = 1")  # so d knows of the subscription, but not for e
    sim.client(at="c").open("x = 2")  # so c knows how far all streams are
    desk.open("x = 1")
    go_on(sim)
    quotes.send([{"x": 1, "n": 1}])
    go_on(sim)
    sim.tick(1.1)
    go_on(sim)
    sim.disconnect("f", "g")
    go_on(sim, but=("cd", "fe"))
    quotes.send([{"x": 1, "n": 2}])
    go_on(sim, but=("cd", "fe"))
    sim.tick(1.1)
    go_on(sim, but=("cd", "fe"))
    go_on(sim)
    assert received(desk) == [1, 2]


@PROMISES
@pytest.mark.parametrize("graph", [False, True])
def test_who_offers_something_later_is_heard_by_all_who_asked_before(graph: bool) -> None:
    """They were in force without a word to there; offers come, go, come back, and are cut off."""
    sim = overlay(["ab", "bc", "cd"] + ["da"] * graph, graph=graph)
    desk = sim.client(at="a")
    desk.open("x = 2")  # nothing is known of any stream before
    go_on(sim)
    sim.said.clear()
    inbox = desk.open("x = 1")
    go_on(sim)
    assert inbox.in_force is not None
    assert sim.said[m.Probe] == sim.said[m.Subscriptions] == 0

    quotes = sim.client(at="d")
    quotes.offer(Filter("x = 1"))
    quotes.send([{"x": 1, "n": 1}])
    go_on(sim, but=("ba", "da"))
    assert quotes.unanswered  # until who asks has heard of it
    go_on(sim)
    assert received(desk) == [1]

    quotes.withdraw(next(iter(quotes.offered)))
    go_on(sim)
    sim.partition({"a", "b"}, {"c", "d"})
    quotes.offer(Filter("x = 1"))
    quotes.send([{"x": 1, "n": 2}])
    go_on(sim)
    assert not quotes.unanswered
    sim.heal()
    go_on(sim)
    assert received(desk) == [1, 2]

    sim.crash("d")
    go_on(sim)
    sim.restart("d")
    sim.heal()
    quotes.connect(sim.hosts["d"])
    quotes.send([{"x": 1, "n": 3}])
    go_on(sim)
    assert received(desk) == [1, 2, 3]


@PROMISES
@pytest.mark.parametrize("leaves", [False, True], ids=["withdraws", "leaves"])
def test_what_a_transaction_publishes_outlives_its_advertisement(leaves: bool) -> None:
    """It is on its way to the disk when whoever has said it no longer offers such things."""
    sim = overlay(["ab", "bc"])
    desk, orders = sim.client(at="c"), offering(sim, "a", "x = 1")
    service = offering(sim, "a", "x = 2")
    inbox = service.open("x = 1", durable="orders", settlement=m.Settlement())
    desk.open("x = 2")
    go_on(sim)
    orders.send([{"x": 1, "n": 7}])
    go_on(sim)
    inbox.hand_out()
    service.commit(inbox, list(inbox.hands), [{"x": 2, "n": 7}])
    while not (disk := [each for each in sim.schedule.pending if _is_disk(each)]):
        sim.step(sim.schedule.pending[0])
    if leaves:
        service.disconnect()
    else:
        service.withdraw(next(iter(service.offered)))
    go_on(sim, but=disk)
    go_on(sim)
    assert received(desk) == [7]
    assert not any(f.matches({"x": 2}) for f in sim.hosts["c"].core.offers())


def _is_disk(channel: Any) -> bool:
    return isinstance(channel, SideChannel) and channel.kind == "disk"
