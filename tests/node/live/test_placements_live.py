"""Patterns that are placed in simulated networks: generated histories, rights, bounds, losses."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from overlay import Overlay
from placement_histories import check

from stentor.composite import Pattern
from stentor.composite.intervals import moment
from stentor.errors import (
    InvalidConfiguration,
    NotPermitted,
    Overloaded,
    UnknownStrategy,
)
from stentor.filters import Filter
from stentor.model import Notification
from stentor.node import detection
from stentor.node.agenda import ToClient, ToLink
from stentor.node.border import Rights
from stentor.node.core import Core
from stentor.node.detection import text_of
from stentor.node.parts import placements
from stentor.protocol import messages as m
from stentor.simulation.client import Client

ROW = Pattern(
    "(A ; B ; C) partition by host", events={"A": "n = 'a'", "B": "n = 'b'", "C": "n = 'c'"}
)
LINE = [("b0", "b1"), ("b1", "b2")]


def said(pattern: Pattern, placement: str = "minimum_load", **options: str) -> m.Detection:
    return m.Detection(text_of(pattern), placement=placement, **options)


def publish(sim: Overlay, client: Client, names: str) -> None:
    for name in names:
        sim.tick(0.2)
        happened = moment(int(sim.time * 1e6))
        client.send([Notification({"n": name, "host": "h"}, time=happened)])
        sim.advance()


def pass_time(sim: Overlay, seconds: int) -> None:
    for _ in range(seconds):
        sim.tick(1.0)
        sim.advance()


def cores(sim: Overlay) -> dict[str, Core]:
    return {name: host.core for name, host in sim.hosts.items()}


def where(sim: Overlay, at: str = "b0") -> list[tuple[str, str]]:
    """The parts of the only pattern that a broker has placed, and who hosts them."""
    [status] = sim.hosts[at].core.placements.status()
    return [(part["pattern"].split(" part")[0], part["broker"]) for part in status["parts"]]


@pytest.mark.spec("R-06.26", "R-06.27", "R-06.28", "R-06.30", "06/A3")
@pytest.mark.parametrize("first", range(0, 15, 5))
def test_what_is_placed_finds_what_the_reference_finds(first: int) -> None:
    for seed in range(first, first + 5):
        check(seed, faults=seed % 2 == 1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
def test_what_is_placed_finds_what_the_reference_finds_in_many_histories(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed, faults=seed % 2 == 1)


@pytest.mark.spec("R-06.26")
def test_parts_are_shared_by_patterns_and_end_with_the_last() -> None:
    sim = Overlay(LINE, seed=1)
    client, other = sim.client(at="b0"), sim.client(at="b2")
    inbox = client.open("true", detect=said(ROW))
    sim.settle()
    assert where(sim) == [("A ; B", "b0"), ("C1 ; C", "b1")]
    half = Pattern("(A ; B) partition by host", events={"A": "n = 'a'", "B": "n = 'b'"})
    reused = other.open("true", detect=said(half, "minimum_impact"))
    sim.settle()
    assert where(sim, "b2") == [("A ; B", "b0")]
    [status] = [h.status() for h in cores(sim)["b0"].detectors.held.values()]
    assert status["tenants"] == sorted(cores(sim)[name].stream for name in ("b0", "b2"))
    publish(sim, other, "abc")
    assert [n["A.n"] + n["B.n"] + n["C.n"] for n in client.received] == ["abc"]
    assert [n["B.count"] for n in other.received] == [1]
    client.close(inbox)
    sim.advance()
    held = {name: len(core.detectors.held) for name, core in cores(sim).items()}
    assert held == {"b0": 1, "b1": 0, "b2": 0}, "what another needs goes on"
    publish(sim, other, "ab")
    assert len(other.received) == 2
    other.close(reused)
    sim.advance()
    assert not any(core.detectors.held for core in cores(sim).values())


@pytest.mark.spec("R-06.28")
def test_a_host_that_is_lost_is_replaced_and_one_that_asked_no_longer_served() -> None:
    sim = Overlay(LINE, seed=1)
    client = sim.client(at="b0")
    client.open("true", detect=said(ROW))
    sim.settle()
    assert where(sim) == [("A ; B", "b0"), ("C1 ; C", "b1")]
    sim.crash("b1")
    pass_time(sim, 5)
    assert where(sim) == [("A ; B", "b0"), ("C1 ; C", "b0")], "no other can be reached"
    publish(sim, client, "abc")
    assert len(client.received) == 1
    sim.settle()
    other = sim.client(at="b2")
    other.open("true", detect=said(ROW, "maximum_reliability"))
    sim.settle()
    assert len(where(sim, "b2")) == 2
    sim.crash("b2")
    pass_time(sim, 25)
    assert {h.detection.pattern for h in cores(sim)["b1"].detectors.held.values()} == set()


def test_two_copies_are_told_of_once() -> None:
    sim = Overlay(LINE, seed=1)
    client = sim.client(at="b0")
    client.open("true", detect=said(ROW, "maximum_reliability"))
    sim.settle()
    [(one, first), (same, second)] = where(sim)
    assert one == same == "A ; B ; C"
    assert first != second
    publish(sim, client, "abc")
    assert sum(core.counters["detected"] for core in cores(sim).values()) == 2
    assert len(client.received) == 1
    sim.crash(second if first == "b0" else first)
    publish(sim, client, "abc")
    assert len(client.received) == 2, "the other one has lost nothing"


@pytest.mark.spec("R-08.58", "08/A8", "08/8.8")
def test_a_sequence_that_one_broker_provides_is_delegated_to_it() -> None:
    row = Pattern("sequence(A, B)", events={"A": "n = 'a'", "B": "n = 'b'"})
    sim = Overlay(LINE, seed=1)
    client, provider, other = sim.client(at="b0"), sim.client(at="b2"), sim.client(at="b1")
    sim.settle()
    for number, name in enumerate("ab"):
        cores(sim)["b2"].heard(provider.session, m.Advertise(number, f"n = '{name}'"))
    inbox = client.open("true", detect=said(row, "delegation"))
    sim.settle()
    assert where(sim) == [("sequence(A, B)", "b2")]
    publish(sim, provider, "ab")
    publish(sim, other, "a")
    publish(sim, provider, "bab")
    assert len(client.received) == 3, "what somebody else publishes takes part as well"
    client.close(inbox)
    sim.advance()
    cores(sim)["b1"].heard(other.session, m.Advertise(1, "n in ('b', 'c')"))
    client.open("true", detect=said(row, "delegation"))
    sim.settle()
    assert where(sim) == [("sequence(A, B)", "b0")], "two brokers provide something of it"
    publish(sim, provider, "ab")
    assert len(client.received) == 4


def test_whose_offers_are_too_many_to_compare_is_taken_to_offer_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placements, "OFFERS", 3)
    row = Pattern("sequence(A, B)", events={"A": "n = 'a'", "B": "n = 'b'"})
    sim = Overlay(LINE, seed=1)
    client, provider, other = sim.client(at="b0"), sim.client(at="b2"), sim.client(at="b1")
    sim.settle()
    cores(sim)["b2"].heard(provider.session, m.Advertise(1, "n in ('a', 'b')"))
    for number in range(4):
        cores(sim)["b1"].heard(other.session, m.Advertise(number, f"n = '{number}'"))
    client.open("true", detect=said(row, "delegation"))
    sim.settle()
    assert where(sim) == [("sequence(A, B)", "b0")]


def test_a_host_that_may_not_detect_it_is_passed_over() -> None:
    sim = Overlay(LINE, seed=1)
    sim.settle()
    for name in ("b1", "b2"):
        cores(sim)[name].detectors.rules = lambda owner: None
    client = sim.client(at="b0")
    client.open("true", detect=said(ROW))
    sim.settle()
    assert where(sim) == [("A ; B", "b0"), ("C1 ; C", "b0")]
    publish(sim, client, "abc")
    assert len(client.received) == 1


def test_brokers_that_are_full_are_passed_over_as_long_as_one_is_not() -> None:
    sim = Overlay(LINE, seed=1)
    sim.settle()
    client = sim.client(at="b0")
    first = client.open("true", detect=said(ROW))
    sim.settle()
    assert where(sim) == [("A ; B", "b0"), ("C1 ; C", "b1")]
    client.close(first)
    sim.settle()
    cores(sim)["b0"].detectors.shares.resize(1, ())
    cores(sim)["b1"].detectors.shares.resize(0, ())
    inbox = client.open("true", detect=said(ROW))
    sim.settle()
    assert sorted(broker for _, broker in where(sim)) == ["b0", "b2"]
    sim.crash("b2")
    pass_time(sim, 10)
    assert inbox.ended == Overloaded.code, "nobody is left"
    assert not cores(sim)["b0"].placements.held
    assert not cores(sim)["b0"].detectors.held


def test_what_cannot_be_detected_anywhere_ends_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detection, "HELD", 3)
    monkeypatch.setattr(detection, "LOOKED_AFTER", 1)
    sim = Overlay(LINE, seed=1)
    client = sim.client(at="b0")
    inbox = client.open("true", detect=said(ROW))
    sim.settle()
    publish(sim, client, "aaaaaaaa")
    assert inbox.ended is not None
    assert not cores(sim)["b0"].placements.held
    assert not any(core.detectors.held for core in cores(sim).values())


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (m.Subscribe(9, "", 9, "d", detect=said(ROW)), InvalidConfiguration),
        (m.Subscribe(9, "", 9, detect=said(ROW, policy="guaranteed")), InvalidConfiguration),
        (m.Subscribe(9, "", 9, detect=said(ROW, mode="one_shot")), InvalidConfiguration),
        (m.Subscribe(9, "", 9, detect=said(ROW, "nearby")), UnknownStrategy),
    ],
)
def test_what_cannot_be_placed_is_refused(message: m.Subscribe, error: type) -> None:
    sim = Overlay(LINE, seed=1)
    client = sim.client(at="b0")
    sim.settle()
    core = cores(sim)["b0"]
    core.heard(client.session, message)
    [failure] = [a.message for a in core.take() if isinstance(a, ToClient)]
    assert isinstance(failure, m.Failure)
    assert failure.code == error.code  # type: ignore[attr-defined]
    assert not core.placements.held


def test_no_client_has_more_placed_than_is_allowed() -> None:
    sim = Overlay(LINE, seed=1)
    client = sim.client(at="b0")
    sim.settle()
    core = cores(sim)["b0"]
    core.detectors.shares.resize(3, ())
    for n in range(100):
        pattern = Pattern("A ; B", events={"A": f"n = {n}", "B": "n = 100"})
        core.heard(client.session, m.Subscribe(100 + n, "", 10, detect=said(pattern)))
    actions = core.take()
    messages = [action.message for action in actions if isinstance(action, ToClient)]
    assert [each.code for each in messages if isinstance(each, m.Failure)] == [Overloaded.code] * 97
    assert len(core.placements.held) == 3


def test_histories_tell_if_hosts_are_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control."""
    monkeypatch.setattr(placements, "EVERY", 1e6)
    monkeypatch.setattr(placements, "SILENT", 1e6)
    with pytest.raises((AssertionError, KeyError)):
        list(map(partial(check, faults=False), range(20)))


def asked(number: int, **changes: object) -> m.Host:
    """A broker asks another one to host."""
    events = f'{{"A": "n = {number}", "B": "n = 100"}}'
    detection = m.Detection(f'{{"pattern": "A ; B", "events": {events}}}')
    message = m.Host("", "", m.Assignment(detection), 20.0)
    return msgspec.structs.replace(message, **changes)


def test_ten_thousand_requests_to_host_cost_no_more_than_is_allowed() -> None:
    sim = Overlay(LINE, seed=1)
    sim.settle()
    core, origin = cores(sim)["b1"], cores(sim)["b0"].stream
    core.detectors.shares.resize(5, ())
    codes: set[str | None] = set()
    for number in range(10_000):
        core.receive("b0", asked(number, stream=core.stream, origin=origin))
        answers = [a.message for a in core.take() if isinstance(a, ToLink)]
        codes |= {a.code for a in answers if isinstance(a, m.Hosting)}
    assert codes == {None, Overloaded.code}
    assert len(core.detectors.held) == 5
    sim.settle()
    core.receive("b0", asked(1, stream=core.stream, origin="a broker that there is not"))
    assert len(core.detectors.held) == 5
    pass_time(sim, 21)
    assert not core.detectors.held, "nobody has renewed them"
    assert not core.subscriptions


def test_nobody_is_asked_to_host_what_is_not_detected_for_others() -> None:
    sim = Overlay(LINE, seed=1)
    sim.settle()
    core, origin = cores(sim)["b1"], cores(sim)["b0"].stream
    plain = asked(1).assignment.detection
    refused = [
        m.Assignment(msgspec.structs.replace(plain, policy="guaranteed")),
        m.Assignment(msgspec.structs.replace(plain, mode="one_shot")),
        m.Assignment(msgspec.structs.replace(plain, pattern="{}")),
        m.Assignment(plain, "a grant that there is not"),
        m.Assignment(plain, parts=["{}"]),
    ]
    for assignment in refused:
        core.receive("b0", asked(1, stream=core.stream, origin=origin, assignment=assignment))
        [answer] = [a.message for a in core.take() if isinstance(a, ToLink)]
        assert isinstance(answer, m.Hosting)
        assert answer.code is not None
    assert answer.code != NotPermitted.code
    assert not core.detectors.held
    assert not core.subscriptions
    assert not [id for id in core.sessions if id < 0]


def test_a_neighbor_without_rights_neither_hosts_nor_is_hosted_for() -> None:
    everything = Filter("")
    rights = {("b1", "b0"): Rights("partner", everything, Filter("n = 'a'"))}
    sim = Overlay(LINE, seed=1, rights=rights)
    sim.settle()
    b0, b1, b2 = (cores(sim)[name] for name in ("b0", "b1", "b2"))
    for core in (b1, b2):  # itself, and somebody behind it
        b1.receive("b0", m.Census(core.stream, b0.stream, 1, []))
        b1.receive("b0", asked(1, stream=core.stream, origin=b0.stream))
        assert not b1.take()
        sim.advance()
        assert not core.detectors.held
    outside, inside = sim.client(at="b0"), sim.client(at="b2")
    inside.open("true", detect=said(ROW))
    outside.open("true", detect=said(ROW, "minimum_bandwidth"))
    sim.settle()
    assert where(sim, "b0") == [("A ; B ; C", "b0")]
    assert {broker for _, broker in where(sim, "b2")} == {"b1", "b2"}
