"""Groups: each notification is for one member, and none is lost with a member that dies."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_histories import EVENTS
from overlay import Overlay, said

from stentor.errors import GroupElsewhere
from stentor.node.parts.groups import AT_ONCE as GROUPS_AT_ONCE
from stentor.node.parts.groups import EVERY as GROUPS_EVERY
from stentor.protocol import messages as m
from stentor.simulation.client import Client, SimulatedInbox


class Sharing:
    """A run with a group whose first member stays, and others that come and go."""

    def __init__(self, seed: int, *, durable: bool) -> None:
        rng = self.rng = random.Random(seed)
        size = rng.randint(1, 3)
        names = [f"b{i}" for i in range(size)]
        links = [(names[rng.randrange(i)], names[i]) for i in range(1, size)]
        self.sim = Overlay(links, brokers=names, queue=rng.choice([1, 4, 1_000]), seed=seed)
        self.durable = durable
        #: Whether the group lived at two brokers at a time, which a partition can bring about.
        self.split = False
        self.options: dict[str, Any] = {
            "group": "g",
            "choice": rng.choice(["round_robin", "least_loaded", "key:x"]),
        }
        if durable:
            self.options["durable"] = "kept"
        self.anchor = self.sim.client(at="b0")
        self.subs = [self.anchor.open("true", **self.options)]
        self.sim.settle()
        self.members = [self.anchor]
        for _ in range(rng.randint(1, 3)):
            client = self.sim.client(at=rng.choice(names))
            client.window = rng.choice([1, 3, 100])
            self.members.append(client)
            self.subs.append(client.open("true", **self.options))
        self.publisher = self.sim.client(at=rng.choice(names))
        self.deaths = 0

    def run(self, *, faults: bool) -> None:
        rng, sim = self.rng, self.sim
        for _ in range(rng.randint(10, 60)):
            kind = rng.random()
            if kind < 0.5:
                events = [dict(rng.choice(EVENTS)) for _ in range(rng.choice([1, 3]))]
                self.publisher.send(events)
            elif kind < 0.7:
                client = rng.choice(self.members)
                for sub in client.inboxes.values():
                    if client.broker is not None and sub.in_force is not None:
                        client.confirm(sub)
            elif faults and kind < 0.8:
                client = rng.choice(self.members[1:])
                if client.broker is not None:
                    self.deaths += 1
                    client.disconnect()
            elif faults and kind < 0.85 and sim.queues:
                sim.disconnect(*rng.choice(list(sim.queues)))
            elif faults and kind < 0.9 and self.durable:
                sim.crash("b0")
                sim.restart("b0")
                self.deaths += 1
            else:
                self.return_()
            for _ in range(rng.choice([1, 10, 40])):
                sim.advance(1)
                self.look()
        sim.heal()
        self.return_()
        for _ in range(200):
            sim.advance(1)
            self.look()
        sim.settle()

    def look(self) -> None:
        """Brokers that cannot reach each other may begin the same group twice."""
        homes = [h for h in self.sim.hosts.values() if "group g" in h.core.subscriptions]
        self.split = self.split or len(homes) > 1

    def return_(self) -> None:
        """All that are away come back, and find the group where it lives."""
        sim = self.sim
        for a, b in sim.wires:
            sim.connect(a, b)
        for client in self.members:
            if client.broker is None:
                client.connect(self.rng.choice(list(sim.hosts.values())))
        if self.publisher.broker is None:
            self.publisher.connect(sim.hosts[self.publisher.homes[-1]])

    def judge(self) -> None:
        given = Counter((stream, offset) for sub in self.subs for stream, offset, _ in sub.given)
        in_force = self.subs[0].in_force
        assert in_force is not None
        got = {id for sub in self.subs for _, _, id in sub.given}
        owed = {id for id, known in self.sim.publications.items() if known.acknowledged}
        assert owed <= got, owed - got
        if not self.deaths and not self.split:
            assert set(given.values()) <= {1}, given


@pytest.mark.spec("01/A-18", "R-07.60")
@settings(max_examples=30)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_each_notification_is_for_one_member(seed: int, durable: bool, faults: bool) -> None:
    sharing = Sharing(seed, durable=durable)
    sharing.run(faults=faults)
    sharing.judge()


def group(sim: Overlay, *clients: Client, **options: Any) -> list[SimulatedInbox]:
    subs = [client.open("true", group="g", **options) for client in clients]
    sim.settle()
    return subs


@pytest.mark.spec("01/A-18")
def test_the_same_key_goes_to_the_same_member() -> None:
    sim = Overlay([("a", "b")])
    publisher = sim.client(at="b")
    subs = group(sim, *(sim.client(at="a") for _ in range(3)), choice="key:x")
    for _ in range(3):
        publisher.send([{"x": x} for x in range(10)])
        sim.settle()
    taken = [{sim.publications[id].notification["x"] for _, _, id in sub.given} for sub in subs]
    assert sum(len(xs) for xs in taken) == 10
    assert sum(len(sub.given) for sub in subs) == 30


@pytest.mark.spec("01/A-18")
def test_round_robin_takes_turns_and_the_least_loaded_gets_more() -> None:
    for choice, expected in (("round_robin", [5, 5]), ("least_loaded", [2, 8])):
        sim = Overlay([], brokers=["a"])
        busy, free = sim.client(at="a"), sim.client(at="a")
        subs = group(sim, busy, free, choice=choice)
        for _ in range(5):
            free.send([{"x": 1}, {"x": 2}])
            sim.settle()
            free.confirm(subs[1])  # the other one confirms nothing
            sim.settle()
        found = [len(sub.given) for sub in subs]
        assert found == expected or (choice == "least_loaded" and found[1] > found[0]), found


@pytest.mark.spec("01/A-18")
def test_an_offset_given_late_goes_on_when_its_member_dies_too() -> None:
    sim = Overlay([], brokers=["a"])
    members = [sim.client(at="a") for _ in range(3)]
    subs = group(sim, *members)
    publisher = sim.client(at="a")
    for x in range(3):
        publisher.send([{"x": x}])
    sim.settle()
    by_offset = {sub.given[0][1]: i for i, sub in enumerate(subs)}
    one, two, three = (by_offset[offset] for offset in (1, 2, 3))
    for i in (two, three):
        members[i].confirm(subs[i])
    members[one].disconnect()  # before the confirmations have arrived
    while any(said(client) for client in members):
        sim.happen("up", next(client for client in members if said(client)))
    sim.advance()
    [heir] = [i for i in (two, three) if len(subs[i].given) == 2]
    [other] = {two, three} - {heir}
    members[heir].disconnect()
    sim.advance()
    assert [offset for _, offset, _ in subs[other].given][-1] == 1


def test_volatile_ones_are_given_to_one_member_and_never_again() -> None:
    sim = Overlay([], brokers=["a"])
    members = [sim.client(at="a") for _ in range(2)]
    subs = group(sim, *members)
    publisher = sim.client(at="a")
    publisher.send([{"x": 1}], volatile=True)
    sim.settle()
    [i] = [i for i, sub in enumerate(subs) if sub.volatile]
    members[i].disconnect()
    sim.advance()
    assert sum(len(sub.volatile) for sub in subs) == 1


def test_a_group_that_is_gone_begins_again_where_its_member_says() -> None:
    sim = Overlay([("a", "b")])
    publishers = [sim.client(at=at) for at in ("a", "b")]
    for publisher in publishers:
        publisher.send([{"x": x} for x in range(3)])
    sim.settle()
    lost_at = sim.time
    sim.now += 1
    publishers[1].send([{"x": 3}])
    sim.settle()
    member, late = sim.client(at="a"), sim.client(at="a")
    [one] = group(sim, member, since=lost_at, positions={"a#": 1})
    [two] = group(sim, late, since=0.0, positions={})
    assert [(stream, offset) for stream, offset, _ in one.given if stream == "a#"] == [
        ("a#", 2),
        ("a#", 3),
    ]
    assert [offset for stream, offset, _ in one.given if stream == "b#"] == [4]
    assert two.given == []


def test_members_find_the_group_where_it_lives() -> None:
    sim = Overlay([("a", "b"), ("b", "c")])
    first, second = sim.client(at="c"), sim.client(at="a")
    [one] = group(sim, first)
    [two] = group(sim, second)
    assert second.broker is sim.hosts["c"]
    assert two.in_force is not None
    assert [a.code for a in second.answers if isinstance(a, m.Ended)] == [GroupElsewhere.code]
    sim.client(at="b").send([{"x": 1}, {"x": 2}])
    sim.settle()
    assert len(one.given) + len(two.given) == 2


def test_two_that_began_the_same_group_become_one() -> None:
    sim = Overlay([("a", "b")])
    sim.disconnect("a", "b")
    left, right = sim.client(at="a"), sim.client(at="b")
    subs = [client.open("true", group="g") for client in (left, right)]
    sim.advance()
    assert all(sub.in_force is not None for sub in subs)
    sim.settle()
    assert left.broker is right.broker is sim.hosts["a"]
    sim.client(at="b").send([{"x": 1}, {"x": 2}, {"x": 3}])
    sim.settle()
    assert sum(len(sub.given) for sub in subs) == 3


class TestTelling:
    """What brokers tell each other of the groups that live with them."""

    def heard(self, sim: Overlay) -> list[m.Groups]:
        """What is on its way from a to b."""
        messages = [m.decoder.decode(data) for data in sim.schedule.waiting(("a", "b"))]
        return [message for message in messages if isinstance(message, m.Groups)]

    def settled(self) -> tuple[Overlay, Client]:
        sim = Overlay([("a", "b")])
        client = sim.client(at="a")
        sim.settle()
        return sim, client

    def test_each_group_that_begins_is_told_once_and_alone(self) -> None:
        sim, client = self.settled()
        core = sim.hosts["a"].core
        for i in range(50):
            core.heard(client.session, m.Subscribe(i + 1, "true", 0, group=f"g{i:03}"))
            sim.hosts["a"].flush()
        assert [message.names for message in self.heard(sim)] == [[f"g{i:03}"] for i in range(50)]
        sim.settle()
        assert sim.hosts["b"].core.groups.elsewhere == {"a#": {f"g{i:03}" for i in range(50)}}

    def test_groups_that_end_together_are_told_together(self) -> None:
        sim, client = self.settled()
        staying = sim.client(at="a")
        for i in range(50):
            client.open("true", group=f"g{i}")
        staying.open("true", group="stays")
        sim.settle()
        client.disconnect()
        assert [(message.names, message.more) for message in self.heard(sim)] == [
            (["stays"], False)
        ]

    def test_what_does_not_change_is_not_told(self) -> None:
        sim, client = self.settled()
        core = sim.hosts["a"].core
        core.heard(client.session, m.Subscribe(1, "true", 0, group="g"))
        core.heard(client.session, m.Unsubscribe(1))
        sim.hosts["a"].flush()
        assert self.heard(sim) == []
        client.open("true", group="g")
        sim.settle()
        other = sim.client(at="a")
        other.open("true", group="g")
        while said(other):
            sim.happen("up", other)
        client.disconnect()
        assert self.heard(sim) == []

    def test_lists_of_those_that_are_left_come_once_in_a_while(self) -> None:
        sim, client = self.settled()
        core = sim.hosts["a"].core
        numbers = range(1, 11)
        for i in numbers:
            core.heard(client.session, m.Subscribe(i, "true", 0, group=f"g{i}"))
        sim.hosts["a"].flush()
        sim.settle()
        core.tick(sim.time, sim.time)
        for i in numbers:
            core.heard(client.session, m.Unsubscribe(i))
            sim.hosts["a"].flush()
        assert len(self.heard(sim)) == 1
        core.tick(sim.time + GROUPS_EVERY, sim.time + GROUPS_EVERY)
        sim.hosts["a"].flush()
        assert [message.names for message in self.heard(sim)][1:] == [[]]

    def test_a_long_list_comes_in_pieces(self) -> None:
        sim, client = self.settled()
        sim.disconnect("a", "b")
        core = sim.hosts["a"].core
        names = {f"g{i}" for i in range(2 * GROUPS_AT_ONCE + 1)}
        for i, name in enumerate(sorted(names)):
            core.heard(client.session, m.Subscribe(i + 1, "true", 0, group=name))
        sim.hosts["a"].flush()
        sim.connect("a", "b")
        pieces = self.heard(sim)
        assert [len(piece.names) for piece in pieces] == [GROUPS_AT_ONCE, GROUPS_AT_ONCE, 1]
        assert [piece.more for piece in pieces] == [False, True, True]
        sim.settle()
        assert sim.hosts["b"].core.groups.elsewhere == {"a#": names}


@pytest.mark.spec("01/A-18", "R-07.60")
def test_what_members_confirmed_out_of_order_stays_done_when_their_broker_dies() -> None:
    """One member holds the first one and stays silent; the other confirms all that it gets."""
    sim = Overlay([], brokers=["b0"])
    slow, quick, publisher = (sim.client(at="b0") for _ in range(3))
    subs = [c.open("true", group="g", durable="kept") for c in (slow, quick)]
    sim.settle()
    slow.slow, slow.window = True, 1
    publisher.send([{"x": 0}] * 10)
    sim.settle()
    held = {offset for _, offset, _ in subs[0].given}
    quick.confirm(subs[1], request=True)
    sim.settle()
    sim.crash("b0")
    sim.restart("b0")
    before = len(subs[1].given)
    quick.connect(sim.hosts["b0"])
    sim.advance()
    again = {offset for _, offset, _ in subs[1].given[before:]}
    assert again == held


def test_a_broker_that_comes_later_knows_where_groups_live() -> None:
    sim = Overlay([("a", "b"), ("b", "c")])
    sim.disconnect("b", "c")
    group(sim, sim.client(at="a"))
    sim.disconnect("b", "c")
    sim.connect("b", "c")
    sim.settle()
    late = sim.client(at="c")
    group(sim, late)
    assert late.broker is sim.hosts["a"]


def test_an_old_list_of_groups_does_not_take_the_place_of_a_new_one() -> None:
    """In a cycle it may come a long way round, behind what was said after it."""
    sim = Overlay([("a", "b"), ("b", "c"), ("c", "a")], graph=True)
    sim.settle()
    core = sim.hosts["c"].core
    core.receive("a", m.Groups("a#", ["new"], False, 8))
    core.receive("b", m.Groups("a#", ["old"], False, 7))
    assert core.groups.elsewhere["a#"] == {"new"}
    core.receive("b", m.Groups("a#", ["more"], True, 9))
    assert core.groups.elsewhere["a#"] == {"new", "more"}
