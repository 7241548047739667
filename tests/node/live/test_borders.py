"""Neighbors that may not do everything, and neighbors that lie about everything they can."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import judge
from live_histories import EVENTS, FILTERS
from overlay import Overlay

from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.node.border import Rights
from stentor.protocol import messages as m
from stentor.simulation.client import Client, SimulatedInbox

FAR = 10**9


def trees(rng: random.Random, size: int) -> tuple[list[str], list[tuple[str, str]]]:
    names = [f"b{i}" for i in range(size)]
    return names, [(names[rng.randrange(i)], names[i]) for i in range(1, size)]


# -- lies


class Liar:
    """A neighbor that is honest, apart from what it says in between."""

    def __init__(self, sim: Overlay, victim: str, rng: random.Random) -> None:
        self.sim, self.victim, self.rng = sim, victim, rng
        self.core = sim.hosts[victim].core
        self.streams = [f"{name}#" for name in sim.hosts if name != "evil"]
        self.number = 0

    def lie(self) -> None:
        lies = [self.echo, self.probe, self.fetch, self.chunk, self.mark, self.forward, self.groups]
        self.say(self.rng.choice(lies)())

    def say(self, message: Any) -> None:
        self.core.receive("evil", m.decoder.decode(m.encoder.encode(message)))
        self.sim.hosts[self.victim].flush()

    def stream(self) -> str:
        return self.rng.choice(self.streams)

    def echo(self) -> m.Echo:
        """The answer to a probe that it has heard, if there is one."""
        heads = {stream: FAR for stream in self.streams if self.rng.random() < 0.7}
        waves = [(o, w.number) for o, w in self.core.probing.probes._waves.items()]
        asked = waves or [(self.stream(), self.core.probing.probes.number + 1)]
        return m.Echo(*self.rng.choice(asked), heads)

    def probe(self) -> m.Probe:
        return m.Probe(self.stream(), self.rng.choice([1, 5, 2**60]))

    def fetch(self) -> m.Fetch:
        return m.Fetch(self.stream(), self.stream(), self.rng.getrandbits(62), "false", 1)

    def chunk(self) -> m.Chunk:
        number = self.rng.getrandbits(62)
        offsets, items = ([], []) if self.rng.random() < 0.5 else ([FAR - 1], [self.item()])
        return m.Chunk(self.stream(), number, self.stream(), offsets, items, FAR, FAR)

    def mark(self) -> m.Mark:
        return m.Mark(self.stream(), FAR)

    def forward(self) -> m.Forward:
        return m.Forward(self.stream(), [FAR], [self.item()], self.rng.random() < 0.3)

    def groups(self) -> m.Groups:
        return m.Groups(self.stream(), ["g"], self.rng.random() < 0.5)

    def item(self) -> bytes:
        self.number += 1
        event = self.rng.choice(EVENTS)
        return encode(Notification(event, id=NotificationId("eve", 0, self.number)))


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_what_is_not_behind_a_neighbor_is_not_its_business(seed: int) -> None:
    """Whatever it says of other streams, nobody misses or gets anything by it."""
    rng = random.Random(seed)
    names, links = trees(rng, rng.randint(1, 4))
    victim = rng.choice(names)
    sim = Overlay(
        [*links, (victim, "evil")],
        brokers=[*names, "evil"],
        queue=rng.choice([1, 4, 1_000]),
        link_limit=rng.choice([2, 10_000]),
        seed=seed,
    )
    liar = Liar(sim, victim, rng)
    if rng.random() < 0.7:  # its honest self is slower
        sim.schedule.lazy = {("evil", victim)}
    clients = [sim.client(at=rng.choice(names)) for _ in range(3)]
    for number in range(rng.randint(10, 50)):
        kind = rng.random()
        if kind < 0.4:
            liar.lie()
        elif kind < 0.7:
            rng.choice(clients).send([dict(rng.choice(EVENTS))])
        elif kind < 0.8:
            options = rng.choice([{}, {"since": 0.0}, {"durable": f"d{number}"}])
            rng.choice(clients).open(rng.choice(FILTERS), **options)
            sim.advance(rng.choice([8, 40]))
            if rng.random() < 0.5:
                liar.say(liar.echo())
        elif kind < 0.85 and links:
            sim.disconnect(*rng.choice(links))
        sim.advance(20)
    sim.settle()
    assert not [n for sub in sim.subs for _, _, n in sub.given if n.producer == "eve"]
    judge(sim)


# -- rights


class Crossing:
    """A tree of which one link is a border, seen from one side of it."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        names, links = trees(rng, rng.randint(2, 5))
        self.border = rng.choice(links)
        _, there = self.border
        self.admits, self.shows = (
            rng.choice([None, *map(Filter, (*FILTERS, "false"))]) for _ in range(2)
        )
        rights = {self.border: Rights("partner", self.admits, self.shows)}
        self.sim = Overlay(
            links,
            brokers=names,
            queue=rng.choice([1, 4, 1_000]),
            link_limit=rng.choice([2, 10_000]),
            seed=seed,
            rights=rights,
        )
        beyond = {there}
        while more := {b for a, b in links if a in beyond} - beyond:
            beyond |= more
        self.links = links
        self.beyond = beyond
        self.clients = {name: self.sim.client(at=name) for name in names}
        self.events: list[tuple[str, NotificationId, dict[str, Any]]] = []
        self.subs: list[tuple[str, SimulatedInbox, int]] = []

    def client(self) -> tuple[str, Client]:
        name = self.rng.choice(sorted(self.clients))
        return name, self.clients[name]

    def publish(self) -> None:
        at, client = self.client()
        event = dict(self.rng.choice(EVENTS))
        key = {0: str(event["x"])} if self.rng.random() < 0.3 else None
        [id] = client.send([event], **({"retain": key} if key else {}))
        self.events.append((at, id, event))

    def subscribe(self) -> None:
        at, client = self.client()
        options = self.rng.choice([{}, {"since": 0.0}, {"durable": f"d{len(self.subs)}"}])
        first = 0 if "since" in options else len(self.events)
        self.subs.append((at, client.open(self.rng.choice(FILTERS), **options), first))

    def may_cross(self, source: str, target: str, event: dict[str, Any]) -> bool:
        if (source in self.beyond) == (target in self.beyond):
            return True
        allowed = self.admits if source in self.beyond else self.shows
        return allowed is None or allowed.matches(event)

    def check(self) -> None:
        for at, sub, first in self.subs:
            got = [id for _, _, id in sub.given]
            assert len(set(got)) == len(got)
            wanted = [
                (id, sub.wants(event) and self.may_cross(source, at, event))
                for source, id, event in self.events[first:]
            ]
            assert set(got) == {id for id, due in wanted if due}


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_exactly_what_a_grant_allows_crosses_the_link(seed: int) -> None:
    run = Crossing(seed)
    rng, sim = run.rng, run.sim
    for _ in range(rng.randint(0, 6)):
        run.publish()
    sim.settle()
    for _ in range(3):
        for _ in range(rng.randint(1, 3)):
            run.subscribe()
        sim.settle()
        for _ in range(rng.randint(1, 12)):
            run.publish()
            if rng.random() < 0.2:
                sim.disconnect(*rng.choice(run.links))
            sim.advance(20)
        sim.settle()
    run.check()


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_filters_that_are_narrowed_come_and_go(seed: int) -> None:
    """When nobody asks for anything any more, nothing is left of it on either side."""
    run = Crossing(seed)
    rng, sim = run.rng, run.sim
    for _ in range(rng.randint(1, 8)):
        run.subscribe()
        sim.advance(rng.choice([5, 200]))
    sim.settle()
    here, there = run.border
    for at, other, allowed in ((here, there, run.shows), (there, here, run.admits)):
        asked = sim.hosts[at].core.router.plane.subscriptions.asked
        from stentor.routing.table import Neighbor

        for _, filter in asked(Neighbor(other)):
            assert allowed is None or allowed.covers(filter)
    for _, sub, _ in run.subs:
        sub.client.close(sub, forget=True)
        sim.advance(rng.choice([5, 200]))
    sim.settle()
    for host in sim.hosts.values():
        assert host.core.router.plane.subscriptions.is_empty
        for border in host.core.borders._borders.values():
            assert not border.asked._became
            assert not border.asks._became


def test_a_neighbor_without_rights_sends_and_sees_nothing() -> None:
    sim = Overlay(
        [("a", "b")], rights={("a", "b"): Rights("none", Filter("false"), Filter("false"))}
    )
    near, far = sim.client(at="a"), sim.client(at="b")
    near.send([{"x": 1}], retain={0: "k"})
    far.send([{"x": 2}], retain={0: "k"})
    sim.settle()
    subs = [
        client.open("true", since=0.0, retained=retained)
        for client in (near, far)
        for retained in (True, False)
    ]
    sim.settle()
    near.send([{"x": 3}])
    far.send([{"x": 4}])
    near.send([{"x": 5}], volatile=True)
    far.send([{"x": 6}], volatile=True)
    far.offer(Filter("x = 6"))
    near.offer(Filter("x = 5"))
    sim.settle()
    for sub in subs:
        producers = {id.producer for _, _, id in sub.given} | {i.producer for i in sub.volatile}
        producers |= {n.id.producer for n in sub.retained if n.id is not None}
        assert producers == {sub.client.id}
    assert [str(f) for f in sim.hosts["a"].core.offers()] == ["x = 5"]
    assert [str(f) for f in sim.hosts["b"].core.offers()] == ["x = 6"]


def test_what_is_kept_out_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    sim = Overlay([("a", "b")], rights={("a", "b"): Rights("partner", Filter("x = 1"), None)})
    sim.settle()
    core = sim.hosts["a"].core
    # The neighbor is not even asked for more; so it has to be told by somebody.
    items = [encode(Notification({"x": x}, id=NotificationId("eve", 0, x))) for x in (1, 2, 3)]
    core.receive("b", m.Forward("b#", [1, 2, 3], items))
    assert core.counters["kept_out"] == 2
    assert "sends more than its grant 'partner' allows" in caplog.text


def test_groups_stay_on_their_side_of_a_border() -> None:
    rights = {("a", "b"): Rights("partner", None, Filter("x = 1"))}
    sim = Overlay([("a", "b")], rights=rights)
    near = sim.client(at="a").open("x = 1", group="g")
    sim.settle()
    far = sim.client(at="b").open("x = 1", group="g")
    sim.settle()
    assert near.in_force is not None
    assert far.in_force is not None
    sim.client(at="a").send([{"x": 1}])
    sim.settle()
    assert len(near.given) == len(far.given) == 1


def test_a_last_value_from_beyond_a_border_hides_no_other() -> None:
    rights = {("a", "b"): Rights("partner", Filter("junk = 1"), None)}
    sim = Overlay([("a", "b")], rights=rights)
    sim.client(at="a").send([{"symbol": "IBM"}], retain={0: "IBM"})
    sim.settle()
    sim.tick(1.0)
    sim.client(at="b").send([{"junk": 1}], retain={0: "IBM"})
    sim.settle()
    sub = sim.client(at="a").open("true", retained=True)
    sim.settle()
    assert [dict(n) for n in sub.retained] == [{"symbol": "IBM"}, {"junk": 1}]
