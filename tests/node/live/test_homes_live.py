"""Homes: each durable subscription lives at one broker, whoever asks for it where."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import judge
from overlay import Overlay

from stentor.errors import DurableElsewhere, JournalUnavailable, StentorError
from stentor.filters import Filter
from stentor.node.agenda import Persist
from stentor.node.durable import Durable
from stentor.node.homes import DELETED, Registry, prevails
from stentor.node.interest import Interest
from stentor.node.parts import homes as homes_part
from stentor.node.parts.wanted import EVERY as WANTED_EVERY
from stentor.protocol import messages as m
from stentor.simulation.client import Client, SimulatedInbox
from stentor.simulation.journal import MemoryLog


def at(stream: str) -> m.Origin:
    return m.Origin(stream, stream.rstrip("#"))


words = st.builds(
    m.Home,
    name=st.just("desk"),
    term=st.integers(1, 3),
    broker=st.none() | st.sampled_from(["a#", "b#", "c#"]).map(at),
    since=st.sampled_from([0.0, 5.0]),
    giver=st.sampled_from(["", "a#"]),
)


@given(st.lists(words, max_size=8), st.randoms())
def test_all_brokers_come_to_the_same_word_in_whatever_order_they_hear(
    heard: list[m.Home], rng: object
) -> None:
    other = list(heard)
    rng.shuffle(other)  # type: ignore[attr-defined]
    one, two = Registry(), Registry()
    for home in heard:
        one.learn(home)
    for home in other:
        two.learn(home)
    assert list(one) == list(two)
    for home in heard:
        assert home in list(one) or prevails(next(iter(one)), home)


def test_what_was_deleted_is_forgotten_some_day() -> None:
    registry = Registry()
    for number in range(DELETED + 5):
        registry.learn(m.Home(f"d{number}", 1, None))
    assert registry.forget_some() == [f"d{number}" for number in range(5)]
    assert len(registry) == DELETED


# -- in an overlay


def homes(sim: Overlay) -> list[str]:
    """The brokers that keep the durable subscription."""
    return [name for name, host in sim.hosts.items() if host.up and "desk" in host.core.durables]


def got(*inboxes: SimulatedInbox) -> Counter[object]:
    return Counter(id for inbox in inboxes for _, _, id in inbox.given)


def line(count: int) -> Overlay:
    return Overlay([(f"b{i}", f"b{i + 1}") for i in range(count - 1)])


def reader(sim: Overlay, where: str, **options: object) -> tuple[Client, SimulatedInbox]:
    client = sim.client(at=where)
    return client, client.open("true", durable="desk", **options)


def test_who_asks_elsewhere_is_sent_to_the_home() -> None:
    sim = line(3)
    first, inbox = reader(sim, "b0")
    publisher = sim.client(at="b1")
    sim.settle()
    publisher.send([{"x": 1}])
    sim.settle()
    first.confirm(inbox, request=True)
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    publisher.send([{"x": 2}])
    second, more = reader(sim, "b2")
    sim.settle()
    assert second.broker is sim.hosts["b0"]
    assert homes(sim) == ["b0"]
    assert len(more.given) == 1
    assert max(got(inbox, more).values()) == 1


def test_one_that_cannot_be_followed_moves_and_goes_on_exactly() -> None:
    sim = line(3)
    first, inbox = reader(sim, "b0")
    publisher = sim.client(at="b1")
    sim.settle()
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    first.confirm(inbox, request=True)
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    second, more = reader(sim, "b2")
    second.open("false")  # so that it does not follow
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    assert homes(sim) == ["b2"]
    assert not set(got(inbox)) & set(got(more))
    assert len(got(inbox, more)) == 10
    words = {str(host.core.homes.registry.get("desk")) for host in sim.hosts.values()}
    assert len(words) == 1


@pytest.mark.parametrize("dies", ["b0", "b1", "b2"])
@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_a_move_survives_whoever_dies_in_between(dies: str, steps: int) -> None:
    sim = line(3)
    first, inbox = reader(sim, "b0")
    publisher = sim.client(at="b1")
    sim.settle()
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    first.confirm(inbox, request=True)
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    second, more = reader(sim, "b2")
    second.open("false")
    for _ in range(12):
        sim.step()
    second.ask_again()
    for _ in range(steps):
        sim.step()
    sim.crash(dies)
    sim.settle()
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    assert len(homes(sim)) == 1
    assert not set(got(inbox)) & set(got(more))
    assert len(got(inbox, more)) == 10


def test_made_on_both_sides_of_a_partition_it_becomes_one() -> None:
    sim = line(2)
    publishers = [sim.client(at=name) for name in sim.hosts]
    sim.settle()
    sim.disconnect("b0", "b1")
    sim.tick(3.0)
    one, left = reader(sim, "b0")
    sim.advance()
    sim.tick(1.0)
    two, right = reader(sim, "b1")
    sim.advance()
    for publisher in publishers:
        publisher.send([{"x": x} for x in range(3)])
    sim.advance()
    for client, inbox in ((one, left), (two, right)):
        client.confirm(inbox, request=True)
    sim.advance()
    assert homes(sim) == ["b0", "b1"]
    sim.clients.remove(two)  # the other one will be its only reader
    two.disconnect()
    sim.settle()
    assert homes(sim) == ["b0"]
    counts = got(left, right)
    assert len(counts) == 6
    assert max(counts.values()) == 1


def test_a_home_out_of_reach_is_waited_for_or_taken_over() -> None:
    sim = line(3)
    first, inbox = reader(sim, "b0")
    publisher = sim.client(at="b2")
    sim.settle()
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    first.confirm(inbox, request=True)
    sim.settle()
    sim.tick(homes_part.COPY_EVERY)  # its neighbor has a copy
    sim.advance()
    first.disconnect()
    sim.clients.remove(first)
    sim.crash("b0")
    sim.advance()
    patient, waiting = reader(sim, "b2")
    sim.advance()
    ended = [a for a in patient.answers if isinstance(a, m.Ended)]
    assert [(e.code, e.cut_off) for e in ended] == [(DurableElsewhere.code, True)]
    sim.clients.remove(patient)
    patient.disconnect()
    publisher.send([{"x": x} for x in range(5)])
    hasty, more = reader(sim, "b2", takeover=2.0)
    hasty.open("false")
    for _ in range(5):
        sim.tick(1.0)
        sim.advance()
        hasty.ask_again()
    sim.advance()
    assert homes(sim) == ["b2"]
    assert len(got(inbox, more)) == 10
    assert max(got(inbox, more).values()) == 1
    sim.restart("b0")  # the old home hears that it is one no longer
    sim.settle()
    assert homes(sim) == ["b2"]
    assert not waiting.given


def test_what_is_known_of_a_home_outlives_a_restart() -> None:
    """Otherwise a second one would be made while the first cannot be reached."""
    sim = line(2)
    first, _ = reader(sim, "b0")
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    sim.crash("b0")
    sim.crash("b1")
    sim.restart("b1")
    second, _ = reader(sim, "b1")
    sim.advance()
    [ended] = [a for a in second.answers if isinstance(a, m.Ended)]
    assert (ended.code, ended.cut_off) == (DurableElsewhere.code, True)
    assert homes(sim) == []


def test_a_home_that_comes_back_with_nothing_is_replaced_by_what_was_copied() -> None:
    sim = line(2)
    first, inbox = reader(sim, "b0")
    publisher = sim.client(at="b1")
    sim.settle()
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    first.confirm(inbox, request=True)
    sim.settle()
    sim.tick(homes_part.COPY_EVERY)
    sim.advance()
    first.disconnect()
    sim.crash("b0")
    sim.hosts["b0"].durables.clear()
    sim.restart("b0")
    sim.settle()
    assert homes(sim) == ["b0"]
    publisher.send([{"x": 9}])
    sim.settle()
    assert len(inbox.given) == 6


def test_nobody_moves_what_belongs_to_another_grant() -> None:
    sim = line(2)
    owner, stranger = sim.hosts["b0"].core, sim.hosts["b1"].core
    owner.join(901, "owner", owner="ours")
    owner.heard(901, m.Subscribe(1, "true", 10, durable="desk"))
    sim.hosts["b0"].flush()
    sim.settle()
    stranger.join(902, "stranger", owner="theirs")
    stranger.heard(902, m.Subscribe(1, "true", 10, durable="desk", here=True, takeover=0.0))
    sim.hosts["b1"].flush()
    sim.settle()
    kept = [[d.owner for d in core.durables.values()] for core in (owner, stranger)]
    assert kept == [["ours"], ["theirs"]]  # each under its own name
    claim = m.Claim(next(iter(owner.durables)), "b0#", "b1#", "theirs")
    owner.receive("b1", claim)
    assert [d.owner for d in owner.durables.values()] == ["ours"]


def test_what_is_deleted_is_deleted_everywhere() -> None:
    sim = line(2)
    client, inbox = reader(sim, "b0")
    sim.settle()
    client.close(inbox, forget=True)
    sim.settle()
    assert [host.core.homes.registry.get("desk") for host in sim.hosts.values()] == [None, None]
    again, fresh = reader(sim, "b1")
    sim.settle()
    assert homes(sim) == ["b1"]
    assert again.broker is sim.hosts["b1"]
    assert fresh.in_force is not None


def test_takeover_waits_for_as_long_as_was_said() -> None:
    sim = line(2)
    first, _ = reader(sim, "b0")
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    sim.crash("b0")
    patient, _ = reader(sim, "b1", takeover=30.0)
    patient.open("false")
    for passed in range(40):
        sim.tick(1.0)
        sim.advance()
        patient.ask_again()
        sim.advance()
        assert passed >= 28 or homes(sim) == [], f"taken over after {passed} s"
    assert homes(sim) == ["b1"]


def test_in_a_cycle_a_search_comes_to_an_end() -> None:
    names = [f"b{i}" for i in range(5)]
    sim = Overlay([(a, b) for i, a in enumerate(names) for b in names[:i]], graph=True)
    first, _ = reader(sim, "b0")
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    sim.crash("b0")
    sim.advance()
    hasty, _ = reader(sim, "b4", takeover=0.0)
    hasty.open("false")
    assert any(not sim.step() for _ in range(1_000)), "they ask each other again and again"
    for _ in range(3):
        sim.tick(1.0)
        sim.advance()
        hasty.ask_again()
        sim.advance()
    assert homes(sim) == ["b4"]


def test_nobody_is_told_of_a_move_that_is_not_on_disk() -> None:
    """Otherwise the old home, back from a crash, would serve what lives elsewhere."""
    sim = line(2)
    first, _ = reader(sim, "b0")
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    sim.settle()
    sim.hosts["b1"].core.homes.fetch("desk")
    sim.hosts["b1"].flush()

    def happen(*kinds: str) -> None:
        while found := [each for each in sim.choices() if each[0] in kinds]:
            sim.happen(*found[0])

    happen("link", "work")
    for _ in ("what was kept of it", "that it lives elsewhere"):
        assert homes(sim) == []
        happen("disk")
        happen("written", "link", "work")
    assert homes(sim) == ["b1"]


@pytest.mark.spec("R-07.60")
def test_one_that_comes_back_before_it_was_given_away_on_disk_stays() -> None:
    """The disk was full, and who was to have it was drained since: its heir is who gives it."""
    sim = line(2)
    first, _ = reader(sim, "b0")
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    sim.disks_fail = True
    sim.hosts["b1"].core.homes.fetch("desk")
    sim.hosts["b1"].flush()
    sim.advance()
    assert homes(sim) == []
    sim.disks_fail = False
    sim.drain("b1", "b0")
    sim.settle()
    assert homes(sim) == ["b0"]
    sim.crash("b0")
    sim.restart("b0")
    sim.settle()
    assert homes(sim) == ["b0"]


@pytest.mark.parametrize("attached", [True, False])
def test_an_inbox_that_was_made_twice_asks_for_what_both_asked_for(attached: bool) -> None:
    """A process that comes back where its inbox is not known makes another, without filters."""
    sim = line(3)
    publisher, client = sim.client(at="b2"), sim.client(at="b2")
    sim.settle()
    sim.disconnect("b1", "b2")
    inbox = client.open_inbox("x = 1", "x = 2", durable="desk")
    sim.advance()
    assert inbox.in_force is not None
    before = publisher.send([{"x": 1}])
    sim.advance()
    client.restart()
    meanwhile = publisher.send([{"x": 1}, {"x": 2}, {"x": 3}])
    client.connect(sim.hosts["b0"])
    sim.advance()
    assert not inbox.filters
    if not attached:
        client.disconnect()
        sim.connect("b1", "b2")
        sim.advance()
        sim.tick(1.1)
        sim.advance()
    sim.settle()
    judge(sim)
    assert len(homes(sim)) == 1
    after = publisher.send([{"x": 2}, {"x": 3}])
    sim.settle()
    judge(sim)
    assert {str(f) for f in inbox.filters.values()} == {"x = 1", "x = 2"}
    assert set(got(inbox)) == {*before, *meanwhile[:2], after[0]}


def test_what_two_copies_of_an_inbox_are_done_with() -> None:
    """Only what was looked at for all filters is done; the rest is known by its ids."""

    def copy(floor: int, *filters: str) -> Durable:
        return Durable("desk", Interest(map(Filter, filters)), since=0.0, positions={"b#": floor})

    for ours, theirs, floor in (
        (copy(9, "x = 1"), copy(4, "x = 1", "x = 2"), 4),
        (copy(4, "x = 1", "x = 2"), copy(9, "x = 1"), 4),
        (copy(9, "x = 1", "x = 2"), copy(4), 9),
        (copy(9, "x = 1"), copy(4, "x = 2"), 4),
        (copy(9, "x = 1"), copy(4, "x = 1"), 9),
    ):
        wanted = {*ours.interest, *theirs.interest}
        ours.merge(Durable.from_data("desk", theirs.to_data()))
        stored = Durable.from_data("desk", ours.to_data())
        assert stored.positions == {"b#": floor}
        assert set(stored.interest) == wanted
        assert stored.united == (len(wanted) > 1)


def test_what_is_being_handed_over_is_given_to_nobody_else() -> None:
    """A copy of it is on its way to the heir; a second one would begin with other counts."""
    sim = line(3)
    reader(sim, "b2")
    sim.settle()
    sim.hosts["b2"].core.pause(True)
    sim.hosts["b0"].core.homes.fetch("desk")
    sim.hosts["b0"].flush()
    sim.advance()
    assert homes(sim) == ["b2"]
    sim.hosts["b2"].core.pause(False)
    sim.hosts["b0"].core.homes.fetch("desk")
    sim.hosts["b0"].flush()
    sim.advance()
    assert homes(sim) == ["b0"]


def test_an_heir_does_not_take_in_what_was_given_away_before() -> None:
    sim = line(3)
    reader(sim, "b2")
    sim.settle()
    left = dict(sim.hosts["b2"].durables)
    sim.hosts["b0"].core.homes.fetch("desk")
    sim.hosts["b0"].flush()
    sim.advance()
    stored = sim.hosts["b2"].durables | {"desk": left["desk"]}  # its end is not on disk yet
    sim.hosts["b1"].core.import_durables("b2#", stored)
    assert homes(sim) == ["b0"]  # which may know less, and is told
    assert sim.hosts["b1"].core.import_durables("b2#", left)
    assert sorted(homes(sim)) == ["b0", "b1"]


def test_what_was_dealt_with_before_a_crash_is_told_to_who_took_it_over() -> None:
    """The old home has heard of its successor, and died before it has told what it knows."""
    sim = line(2)
    client, _ = reader(sim, "b1")
    sim.clients.remove(client)
    sim.settle()
    client.disconnect()
    sim.client(at="b1").send([{"x": x} for x in range(3)])
    sim.settle()
    old = Durable.from_data("desk", sim.hosts["b1"].durables["desk"])
    old.confirm({"b1#": 2})
    sim.crash("b0")
    sim.hosts["b0"].durables["desk"] = old.to_data()
    sim.settle()
    assert homes(sim) == ["b1"]
    assert sim.hosts["b1"].core.durables["desk"].positions["b1#"] == 2


def moved_but_not_there(sim: Overlay, to: str, publisher: Client) -> dict[str, int]:
    """Its home has given it away, to a broker that died before it came; how far it had come."""
    [home] = homes(sim)
    client, inbox = reader(sim, home)
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    client.confirm(inbox, request=True)
    sim.settle()
    client.disconnect()
    sim.clients.remove(client)
    sim.settle()
    sim.hosts[to].core.homes.fetch("desk")
    sim.hosts[to].flush()
    while homes(sim):
        sim.step()
    positions = Durable.from_data("desk", sim.hosts[home].durables["desk"]).positions
    sim.crash(to)
    sim.advance()
    return positions


def test_who_gave_it_away_long_ago_does_not_answer_for_who_gave_it_last() -> None:
    """It would begin again with what was kept then: what was confirmed since, and attempts."""
    sim = line(4)
    first, _ = reader(sim, "b1")
    publisher = sim.client(at="b1")
    sim.settle()
    first.disconnect()
    sim.clients.remove(first)
    sim.hosts["b3"].core.homes.fetch("desk")
    sim.hosts["b3"].flush()
    sim.settle()
    assert homes(sim) == ["b3"]
    positions = moved_but_not_there(sim, "b0", publisher)
    assert positions["b1#"] == 5
    sim.disconnect("b2", "b3")  # who gave it last cannot answer yet
    sim.hosts["b0"].start()
    sim.connect("b0", "b1")
    for _ in range(5):
        sim.advance()
        sim.tick(1.0)
    assert homes(sim) == []
    sim.connect("b2", "b3")
    while not homes(sim):
        sim.advance()
        sim.tick(1.0)
    assert sim.hosts["b0"].core.durables["desk"].positions == positions


def test_an_heir_has_what_was_given_away_and_never_came() -> None:
    """The home gave it away, could not send it, and was drained."""
    sim = line(3)
    publisher = sim.client(at="b1")
    reader(sim, "b2")
    sim.settle()
    sim.clients[-1].disconnect()
    sim.clients.pop()
    positions = moved_but_not_there(sim, "b0", publisher)
    sim.crash("b2")
    sim.hosts["b1"].core.import_durables("b2#", dict(sim.hosts["b2"].durables))
    sim.hosts["b1"].flush()
    sim.advance()
    sim.crash("b1")  # and knows it from then on
    sim.hosts["b1"].start()
    sim.hosts["b0"].start()
    sim.connect("b0", "b1")
    for _ in range(5):
        sim.tick(1.0)
        sim.advance()
    assert homes(sim) == ["b0"]
    assert sim.hosts["b0"].core.durables["desk"].positions == positions


def test_what_was_deleted_stays_deleted_after_a_crash() -> None:
    """The word that it is no more was on disk before it was gone from there."""
    sim = line(2)
    client, inbox = reader(sim, "b0")
    sim.settle()
    host = sim.hosts["b0"]
    left = host.durables["desk"]
    client.close(inbox, forget=True)
    sim.settle()
    assert "desk" not in host.durables
    sim.crash("b0")
    host.durables["desk"] = left
    sim.settle()
    assert homes(sim) == []
    assert "desk" not in host.durables


def test_what_began_again_is_told_of_what_retention_has_taken() -> None:
    """Nothing is left of it but when it began, and from then on it is owed everything."""
    sim = line(2)
    client, _ = reader(sim, "b0")
    publisher = sim.client(at="b1")
    sim.settle()
    client.disconnect()
    sim.clients.remove(client)
    publisher.send([{"x": x} for x in range(5)])
    sim.advance()
    sim.crash("b0")
    del sim.hosts["b0"].durables["desk"]
    for host in sim.hosts.values():
        host.durables.pop("\x00copy desk", None)
    sim.crash("b1")
    sim.hosts["b1"].log.trim(4)
    sim.restart("b1")
    sim.restart("b0")
    _, inbox = reader(sim, "b0")
    sim.settle()
    assert [(gap.stream, gap.first, gap.last) for gap in inbox.gaps] == [("b1#", 1, 3)]
    assert [offset for _, offset, _ in inbox.given] == [4, 5]


@pytest.mark.spec("R-07.40")
def test_what_is_on_its_way_is_kept_for() -> None:
    """Its new home dies before it comes, and nobody else says what it needs."""
    sim = line(3)
    client, _ = reader(sim, "b2")
    publisher = sim.client(at="b1")
    sim.settle()
    client.disconnect()
    sim.clients.remove(client)
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    wanted = sim.hosts["b1"].core.wanted

    def time_passes() -> None:
        for _ in range(3):
            sim.tick(WANTED_EVERY)
            sim.advance()
            assert wanted.low("b1#") == 1

    time_passes()
    sim.hosts["b0"].core.homes.fetch("desk")
    sim.hosts["b0"].flush()
    while homes(sim):
        sim.step()
    sim.crash("b0")
    time_passes()
    sim.settle()
    assert homes(sim) == ["b0"]
    time_passes()
    sim.hosts["b0"].core.homes.remove(sim.hosts["b0"].core.durables["desk"], lambda error: None)
    for _ in range(3):
        sim.tick(WANTED_EVERY)
        sim.advance()
    assert wanted.low("b1#") is None


@pytest.mark.parametrize("heir", ["b0", "b1"])
@pytest.mark.parametrize("hears", [True, False])
def test_what_is_given_to_a_broker_that_is_leaving_lives_at_its_heir(
    heir: str, hears: bool
) -> None:
    """It comes behind the copy that the heir has got, and would live nowhere."""
    sim = Overlay(
        [("b0", "b1"), ("b0", "b2"), ("b1", "b2")][: 2 if heir == "b0" else 3], graph=True
    )
    client, inbox = reader(sim, "b0")
    publisher = sim.client(at="b1")
    sim.settle()
    publisher.send([{"x": x} for x in range(5)])
    sim.settle()
    client.confirm(inbox, request=True)
    sim.settle()
    client.disconnect()
    sim.clients.remove(client)
    sim.settle()
    positions = sim.hosts["b0"].core.durables["desk"].positions
    stored = dict(sim.hosts["b2"].durables)
    sim.hosts["b2"].core.homes.fetch("desk")
    sim.hosts["b2"].core.pause(True)
    sim.hosts["b2"].flush()
    if hears:
        sim.advance()
    while "b0" in homes(sim):
        sim.step()
    sim.crash("b2")
    host = sim.hosts[heir]
    host.core.import_durables("b2#", stored)
    host.core.adopt(sim.hosts["b2"].log)
    host.flush()
    for _ in range(5):
        sim.advance()
        sim.tick(1.0)
    assert homes(sim) == [heir]
    assert host.core.durables["desk"].positions == positions
    assert len({str(sim.hosts[name].core.homes.registry.get("desk")) for name in ("b0", "b1")}) == 1


def test_what_nobody_has_kept_begins_again_at_the_heir() -> None:
    """A broker that was started on an older copy of its directory, say, which did not have it."""
    sim = line(2)
    publisher = sim.client(at="b1")
    publisher.send([{"x": 1}])
    sim.settle()
    for host in sim.hosts.values():
        host.core.receive(host.core.neighbors[0], m.Homes([m.Home("desk", 3, at("gone#"))]))
    sim.hosts["b0"].core.adopt(MemoryLog("gone#"))
    sim.hosts["b0"].flush()
    sim.advance()
    client, inbox = reader(sim, "b1")
    for _ in range(int(homes_part.LATE) + 5):
        sim.tick(1.0)
        sim.advance()
        client.ask_again()
    sim.settle()
    assert homes(sim) == ["b0"]
    assert inbox.in_force is not None
    assert [(stream, offset) for stream, offset, _ in inbox.given] == [("b1#", 1)]


@pytest.mark.parametrize("who", ["client", "operator"])
def test_a_deletion_that_was_answered_outlives_a_crash(who: str) -> None:
    outcomes = set()
    for steps in range(8):
        sim = Overlay([], brokers=["b0"], seed=steps)
        client, inbox = reader(sim, "b0")
        sim.settle()
        core, heard = sim.hosts["b0"].core, list[object]()
        if who == "client":
            client.close(inbox, forget=True)
        else:
            core.homes.remove(core.durables["desk"], heard.append)
            sim.hosts["b0"].flush()
        for _ in range(steps):
            sim.step()
        heard += [said for said in client.answers if who == "client" and isinstance(said, m.Ended)]
        client.disconnect()
        sim.crash("b0")
        sim.restart("b0")
        assert not heard or homes(sim) == []
        outcomes.add(bool(heard))
    assert outcomes == {True, False}


def test_what_could_not_be_stored_is_stored_when_there_is_room() -> None:
    """Who waited for it has been told that it was not."""
    sim = Overlay([], brokers=["b0"])
    reader(sim, "b0")
    sim.settle()
    host = sim.hosts["b0"]
    heard: list[StentorError | None] = []
    host.core.homes.remove(host.core.durables["desk"], heard.append)
    full = JournalUnavailable("the disk is full")
    for action in host.core.take():
        if isinstance(action, Persist):
            host.core.stored(action.context, full)
    assert heard == [full]
    assert "desk" in host.durables
    sim.tick(0.1)
    sim.settle()
    assert heard == [full, None]
    assert "desk" not in host.durables
    sim.crash("b0")
    sim.restart("b0")
    assert homes(sim) == []


def taken_over() -> tuple[Overlay, Client, SimulatedInbox]:
    """Three brokers, of which the last has taken over from the first, which it cannot reach.

    Its client there had five notifications and has confirmed three of them since. The other client
    is at the new home.
    """
    sim = line(3)
    old, inbox = reader(sim, "b0")
    sim.settle()
    sim.client(at="b1").send([{"x": x} for x in range(5)])
    sim.tick(homes_part.COPY_EVERY)
    sim.advance()
    assert len(inbox.given) == 5
    sim.disconnect("b0", "b1")
    sim.advance()
    inbox.positions["b1#"] = 3
    old.confirm(inbox, request=True)
    sim.advance()
    old.disconnect()
    sim.clients.remove(old)
    new, mine = reader(sim, "b2", takeover=0.0)
    new.open("false")  # so that it stays
    while homes(sim) != ["b0", "b2"]:
        sim.advance()
        sim.tick(1.0)
        new.ask_again()
    return sim, new, mine


@pytest.mark.parametrize("lost", ["nothing", "link", "b0", "b1", "b2"])
def test_a_home_that_was_fenced_says_what_it_has_dealt_with_until_that_is_kept(lost: str) -> None:
    sim, new, _ = taken_over()
    new.disconnect()
    assert sim.hosts["b2"].core.durables["desk"].positions["b1#"] == 0
    old = sim.hosts["b0"]
    sim.connect("b0", "b1")
    while "desk" not in old.core.homes._told:
        assert sim.step()
    if lost == "link":
        sim.disconnect("b0", "b1")
    elif lost != "nothing":
        sim.crash(lost)
    sim.clients.remove(new)
    for _ in range(3):
        sim.settle()
        sim.tick(homes_part.TELL_EVERY)
    assert homes(sim) == ["b2"]
    assert sim.hosts["b2"].core.durables["desk"].positions["b1#"] == 3
    assert not old.core.homes._told
    assert "desk" not in old.durables


def test_what_a_fenced_home_has_dealt_with_counts_if_it_is_the_heir() -> None:
    """The broker that took over is drained into it before it was told."""
    sim, new, _ = taken_over()
    new.disconnect()
    sim.clients.remove(new)
    old = sim.hosts["b0"]
    sim.connect("b0", "b1")
    while "desk" not in old.core._durables.parted:
        assert sim.step()
    sim.disconnect("b0", "b1")
    stored = dict(sim.hosts["b2"].durables)
    kept = old.core.import_durables("b2#", stored)["desk"]
    assert kept is not None
    assert Durable.from_data("desk", kept).positions["b1#"] == 3
    assert old.core.durables["desk"].positions["b1#"] == 3
    assert not old.core._durables.parted


@pytest.mark.parametrize("how", ["made again", "reset"])
def test_what_is_made_again_under_a_name_has_nothing_of_what_was_deleted(how: str) -> None:
    """A broker comes back that had not heard of it, with what it has kept of the first."""
    sim, new, mine = taken_over()
    sim.advance()
    publisher = sim.client(at="b1")
    sim.advance()
    core = sim.hosts["b2"].core
    new.confirm(mine, request=True)
    sim.advance()
    if how == "reset":
        core.homes.reset(core.durables["desk"], 0.0, lambda error: None)
        sim.hosts["b2"].flush()
        expected = 6
    else:
        new.close(mine, forget=True)
        sim.advance()
        expected = 1
    sim.advance()
    new.disconnect()
    sim.clients.remove(new)
    _, fresh = reader(sim, "b2")
    sim.advance()
    assert fresh.in_force is not None
    publisher.send([{"x": 9}])
    sim.advance()
    sim.connect("b0", "b1")
    sim.settle()
    assert len(fresh.given) == expected
    durable = sim.hosts["b2"].core.durables["desk"]
    assert durable.positions["b1#"] == 6 - expected
    fresh.client.disconnect()
    sim.clients.remove(fresh.client)
    sim.settle()
    _, last = reader(sim, "b2")
    sim.settle()
    assert len(last.given) == expected
