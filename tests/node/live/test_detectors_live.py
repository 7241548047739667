"""Detectors in simulated networks: generated histories, and what takes a certain schedule."""

from __future__ import annotations

import msgspec
import pytest
from detector_histories import check
from overlay import Overlay

from stentor.composite import Pattern, sub_events
from stentor.composite.intervals import moment
from stentor.model import Notification
from stentor.node import detection
from stentor.node.agenda import ToClient
from stentor.node.parts.detectors import NUMBER
from stentor.protocol import messages as m

PAIR = Pattern("A ; B", events={"A": "n = 'a'", "B": "n = 'b'"})


def said(pattern: Pattern, policy: str = "best_effort", **options: float) -> m.Detection:
    return m.Detection(msgspec.json.encode(pattern.dump()).decode(), policy, **options)


@pytest.mark.spec("R-06.32", "06/A2", "R-06.27")
@pytest.mark.parametrize("first", range(0, 60, 15))
def test_what_is_detected_is_what_the_reference_detects(first: int) -> None:
    for seed in range(first, first + 15):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 14_000, 100))
def test_what_is_detected_is_what_the_reference_detects_in_many_histories(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def test_a_state_that_is_stored_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control: what was fed counts as done before the state knows of it."""
    to_memo = detection.Hosted.to_memo
    memos: dict[str, bytes] = {}

    def outdated(self: detection.Hosted) -> bytes:
        memo, memos[self.key] = memos.get(self.key), to_memo(self)
        return memo or memos[self.key]

    monkeypatch.setattr(detection.Hosted, "to_memo", outdated)

    def check_all() -> None:
        for seed in range(100):
            memos.clear()
            check(seed)

    with pytest.raises(AssertionError, match="detections"):
        check_all()


@pytest.mark.spec("06/A2", "R-06.27")
def test_one_that_has_found_nothing_yet_waits_after_a_crash_for_who_cannot_be_reached() -> None:
    sim = Overlay([("b0", "b1")], seed=1)
    client, source = sim.client(at="b0"), sim.client(at="b1")
    detect = said(PAIR, "guaranteed", lateness=1.0)
    inbox = client.open("true", durable="pairs", detect=detect)
    while inbox.in_force is None:
        assert sim.step()
    sim.disconnect("b0", "b1")
    sim.crash("b0")
    for name in "ab":
        source.send([Notification({"n": name}, time=moment(int(sim.time * 1e6)))])
        sim.advance()
    sim.restart("b0")
    sim.advance()
    for _ in range(5):  # much longer than anything may be late
        sim.tick(2.0)
        sim.advance()
    sim.heal()
    for _ in range(5):
        sim.tick(2.0)
        sim.settle()
    [hosted] = sim.hosts["b0"].core.detectors.held.values()
    assert (hosted.status()["late"], hosted.found) == (0, 1), repr(hosted.status())


@pytest.mark.parametrize("durable", [None, "pairs"])
def test_on_a_rendezvous_overlay_nothing_is_guaranteed(durable: str | None) -> None:
    """Brokers without a link between them say nothing of each other, so it would wait for ever."""
    sim = Overlay([("b0", "b1"), ("b1", "b2")], seed=1, rendezvous=True)
    client = sim.client(at="b0")
    client.open("true", durable=durable, detect=said(PAIR, "guaranteed"))
    with pytest.raises(AssertionError, match="nothing can be guaranteed"):
        sim.settle()
    inbox = sim.client(at="b0").open("true", durable=durable, detect=said(PAIR))
    sim.settle()
    assert inbox.in_force is not None


def test_each_producer_by_itself() -> None:
    sim = Overlay([("b0", "b1")], seed=1)
    client, sources = sim.client(at="b0"), [sim.client(at="b1") for _ in range(2)]
    client.open("true", detect=said(PAIR.replace(partition=["_producer"])))
    sim.settle()
    ids = []
    for source, name in zip((*sources, sources[0]), "abb", strict=True):
        sim.tick(0.1)
        ids += source.send([Notification({"n": name}, time=moment(int(sim.time * 1e6)))])
        sim.settle()
    [found] = client.received
    assert [each.id for each in sub_events(found)] == [ids[0], ids[2]]
    assert found["composite.producer"] == ids[0].producer


@pytest.mark.spec("R-06.32")
def test_a_state_that_is_stored_when_its_subscription_has_ended_holds_up_nothing() -> None:
    sim = Overlay([("b0", "b1")], seed=1)
    client, source = sim.client(at="b0"), sim.client(at="b1")
    client.open("true", durable="pairs", detect=said(PAIR, "guaranteed", lateness=1.0))
    sim.settle()
    source.send([Notification({"n": "a"}, time=moment(int(sim.time * 1e6)))])
    core = sim.hosts["b0"].core
    [key] = core.detectors.held
    sim.tick(2.0)  # when its state is stored, though nothing was found
    while not core._durables.is_on_hold(key):
        assert sim.step()
    session = core.detectors.held[key].session
    # Its place was united with another of the name, and it has to subscribe again.
    core._subscriptions.leave(session, NUMBER)
    core.agenda.to_client(session.id, m.Ended(NUMBER, "STN-000", "again", [], True))
    sim.settle()
    assert not core._durables.is_on_hold(key)


def test_who_asked_is_asked_to_wait_while_the_disk_is_full() -> None:
    """It is no end: a client tries again by itself."""
    sim = Overlay([("b0", "b1")], seed=1)
    sim.disks_fail = True
    client, source = sim.client(at="b0"), sim.client(at="b1")
    inbox = client.open("true", durable="pairs", detect=said(PAIR, "guaranteed", lateness=1.0))
    sim.advance()
    assert (inbox.in_force, inbox.waits, inbox.ended) == (None, True, None)
    sim.disks_fail = False
    client.ask_again()
    sim.settle()
    for name in "ab":
        sim.tick(0.1)
        source.send([Notification({"n": name}, time=moment(int(sim.time * 1e6)))])
        sim.settle()
    for _ in range(5):
        sim.tick(2.0)
        sim.settle()
    assert len(client.received) == 1
    assert not sim.hosts["b0"].core.detectors.idle


def test_a_subscriber_that_leaves_before_it_is_in_force_leaves_nothing() -> None:
    sim = Overlay([("b0", "b1")], seed=1)
    client = sim.client(at="b0")
    inbox = client.open("true", detect=said(PAIR))
    while not sim.hosts["b0"].core.detectors.held:
        assert sim.step()
    assert inbox.in_force is None
    client.close(inbox)
    sim.settle()
    core = sim.hosts["b0"].core
    assert not core.detectors.held
    assert not core.sessions.keys() - {client.session}
    assert not core.subscriptions


def test_there_are_no_more_than_allowed() -> None:
    sim = Overlay([("b0", "b1")], seed=1)
    client = sim.client(at="b0")
    sim.settle()
    core = sim.hosts["b0"].core
    core.detectors.shares.resize(2, ())
    for n in range(4):
        pattern = Pattern("A ; B", events={"A": f"n = {n}", "B": "n = 100"})
        core.heard(client.session, m.Subscribe(100 + n, "", 10, detect=said(pattern)))
    refused = [
        action.message.number
        for action in core.take()
        if isinstance(action, ToClient) and isinstance(action.message, m.Failure)
    ]
    assert refused == [102, 103]
    assert len(core.detectors.held) == 2


def test_a_detector_whose_state_grows_too_large_ends_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detection, "HELD_DURABLY", 50)
    sim = Overlay([("b0", "b1")], seed=1)
    client, source = sim.client(at="b0"), sim.client(at="b1")
    pattern = Pattern("(A ; B) partition by k", events={"A": "n = 'a'", "B": "n = 'b'"})
    inbox = client.open("true", durable="large", detect=said(pattern))
    sim.settle()
    happened = moment(int(sim.time * 1e6))
    source.send([Notification({"n": "a", "k": k}, time=happened) for k in range(100)])
    sim.advance()
    sim.tick(2.0)
    sim.advance()
    assert inbox.ended is not None
    assert "within" in next(iter(sim.hosts["b0"].core.detectors.idle.values()))
