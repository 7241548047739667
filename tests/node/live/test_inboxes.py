"""Inboxes at their broker: what several filters ask for comes once, whatever changes meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import judge
from live_histories import small
from overlay import Overlay

from stentor.errors import (
    FilterTooComplex,
    InvalidConfiguration,
    JournalUnavailable,
    LeaseExpired,
    NotPermitted,
)
from stentor.filters import Filter
from stentor.node.interest import Interest
from stentor.protocol import messages as m
from stentor.simulation.broker import SideChannel
from stentor.simulation.client import Client, SimulatedInbox

FILTERS = [Filter(text) for text in ("x = 1", "x > 2", "y = 1", "x = 1 and y > 0", "true")]


def line_of(*names: str) -> Overlay:
    """Brokers one behind the other."""
    return Overlay(list(pairwise(names)))


def given_of(sub: SimulatedInbox) -> list[int]:
    return [offset for _, offset, _ in sub.given]


def told(client: Client, *kinds: type) -> list[Any]:
    return [answer for answer in client.answers if isinstance(answer, kinds)]


# -- the interest of one


@given(st.lists(st.tuples(st.sets(st.sampled_from(FILTERS)), st.sets(st.sampled_from(FILTERS)))))
def test_an_amendment_is_what_has_changed(steps: list[tuple[set[Filter], set[Filter]]]) -> None:
    interest, expected = Interest([]), set[Filter]()
    for added, removed in steps:
        after = expected - removed | added
        new, gone = interest.amend(added, removed)
        assert (set(new), set(gone)) == (after - expected, expected - after)
        assert set(interest) == after
        union = Filter(str(interest))
        for event in ({"x": x, "y": y} for x in range(4) for y in range(2)):
            assert union.matches(event) == any(filter.matches(event) for filter in after)
        expected = after


def test_what_is_too_much_changes_nothing() -> None:
    many = [Filter(f"x = {i}") for i in range(m.MAX_INBOX)]
    interest = Interest(many)
    with pytest.raises(FilterTooComplex, match="another inbox"):
        interest.amend([Filter("y = 1")], [])
    assert list(interest) == many
    assert interest.amend([Filter("y = 1")], many[:1]) == ([Filter("y = 1")], many[:1])


# -- in an overlay


@pytest.mark.spec("R-01.20")
def test_what_several_filters_match_comes_once_from_near_and_far() -> None:
    sim = line_of("a", "b")
    near, far = sim.client(at="a"), sim.client(at="b")
    inbox = near.open_inbox("x = 1", "y = 1")
    sim.settle()
    for publisher in (near, far):
        publisher.send([{"x": 1, "y": 1}, {"x": 1, "y": 0}, {"x": 0, "y": 1}, {"x": 0, "y": 0}])
    sim.settle()
    assert sorted(inbox.given) == sorted(set(inbox.given))
    assert given_of(inbox) == [1, 2, 3] * 2
    judge(sim)


@pytest.mark.spec("R-01.21")
def test_a_filter_is_in_force_everywhere_when_that_is_answered() -> None:
    sim = line_of("a", "b", "c")
    near, far = sim.client(at="a"), sim.client(at="c")
    inbox = near.open_inbox()
    sim.settle()
    want = near.add(inbox, "x = 1")
    while want not in inbox.settled:
        sim.happen(*sim.choices()[0])
    assert sim.hosts["c"].core.routing.interests() == [Filter("x = 1")]
    far.send([{"x": 1}])
    sim.settle()
    assert given_of(inbox) == [1]


@pytest.mark.spec("R-01.21")
def test_a_stretch_that_was_asked_for_by_less_is_asked_for_again() -> None:
    """The journal is read for the old filters after the new one is in force."""
    sim = line_of("a", "b")
    near, far = sim.client(at="a"), sim.client(at="b")
    far.send([{"x": 0}] * 3)
    sim.settle()
    serving = sim.hosts["b"].core.catching_up
    with small(1_000, 32):
        inbox = near.open_inbox("x = 0", since=0.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(serving, "work", lambda: None)
            while not serving.has_work:
                sim.step()
            want = near.add(inbox, "x = 1")
            while want not in inbox.settled:
                sim.step()
            [id] = far.send([{"x": 1}])
            while not sim.publications[id].acknowledged or sim.pending:
                sim.step()
            assert serving.has_work  # still the request of before
        sim.settle()
    assert given_of(inbox) == [1, 2, 3, 4]
    judge(sim)


def test_nothing_is_unasked_for_while_one_filter_takes_the_place_of_another() -> None:
    sim = line_of("a", "b")
    near = sim.client(at="a")
    inbox = near.open_inbox("x = 1")
    sim.settle()
    near._say(m.Amend(900, inbox.number, ["x >= 1"], ["x = 1"]))
    sim.happen("up", near)
    asked = {"x = 1"}
    for update in map(m.decoder.decode, sim.schedule.waiting(("a", "b"))):
        if isinstance(update, m.Subscriptions):
            asked = asked.difference(update.removed).union(text for _, text in update.added)
            assert asked
    sim.settle()
    assert sim.hosts["b"].core.routing.interests() == [Filter("x >= 1")]


def test_a_removal_is_answered_at_once_and_an_unknown_filter_is_none() -> None:
    sim = line_of("a", "b")
    near = sim.client(at="a")
    inbox = near.open_inbox("x = 1", "y = 1")
    sim.settle()
    near.drop(inbox, next(iter(inbox.filters)))
    near._say(m.Amend(900, inbox.number, [], ["z = 9"]))
    for _ in range(2):
        sim.happen("up", near)
    sim.hosts["a"].flush()
    while sim.schedule.waiting(SideChannel("down", near)):
        sim.happen("down", near)
    assert [done.number for done in told(near, m.Done)][-1] == 900
    assert told(near, m.Amended) == [m.Amended(inbox.number, [], ["x = 1"])]


def test_what_was_removed_is_asked_of_nobody_and_nothing_is_brought_for_it() -> None:
    """The client would leave it out; so only its broker and those behind can show it."""
    sim = line_of("a", "b")
    near, far = sim.client(at="a"), sim.client(at="b")
    inbox = near.open_inbox("x = 1", "y = 1")
    sim.settle()
    near.drop(inbox, next(iter(inbox.filters)))
    sim.settle()
    assert sim.hosts["a"].core.routing.interests() == [Filter("y = 1")]
    assert sim.hosts["b"].core.routing.interests() == [Filter("y = 1")]
    brought = sim.said[m.Forward]
    far.send([{"x": 1}])
    sim.settle()
    assert sim.said[m.Forward] == brought
    far.send([{"y": 1}])
    sim.settle()
    assert sim.said[m.Forward] > brought
    assert given_of(inbox) == [2]
    judge(sim)


def test_the_members_of_a_group_are_told_before_anything_comes_of_it() -> None:
    sim = line_of("a", "b")
    one, two, far = sim.client(at="a"), sim.client(at="a"), sim.client(at="b")
    inbox = one.open_inbox("x = 1", group="g")
    sim.settle()
    joined = two.open_inbox("z = 1", group="g")
    sim.settle()
    assert told(two, m.Amended) == [m.Amended(joined.number, ["x = 1"], ["z = 1"])]
    one.add(inbox, "y = 1")
    sim.settle()
    far.send([{"x": 0, "y": 1}] * 4)
    sim.settle()
    assert len(inbox.given) + len(joined.given) == 4
    kinds = [type(answer) for answer in two.answers if isinstance(answer, m.Amended | m.Deliver)]
    assert kinds[:2] == [m.Amended, m.Amended]
    assert m.Deliver in kinds


# -- what is refused


def refusal(client: Client, message: Any) -> m.Failure:
    """What a broker answers; the number is that of the request, so the inbox goes on."""
    assert client.broker is not None
    core = client.broker.core
    core.heard(client.session, message)
    [failure] = [a.message for a in core.take() if isinstance(a.message, m.Failure)]
    return failure


def test_a_filter_that_is_not_permitted_is_refused_and_the_inbox_goes_on() -> None:
    sim = line_of("a", "b")
    near = sim.client(at="a")
    inbox = near.open_inbox("x = 1", durable="d")
    sim.settle()
    session = sim.hosts["a"].core.sessions[near.session]
    session.may_subscribe = Filter("x > 0").covers
    failure = refusal(near, m.Amend(900, inbox.number, ["x = 2", "y = 1"]))
    assert (failure.code, failure.number) == (NotPermitted.code, 900)
    assert str(sim.hosts["a"].core.durables["d"].interest) == "x = 1"
    # What is kept has to be permitted as well.
    session.may_subscribe = Filter("x > 1").covers
    failure = refusal(near, m.Subscribe(901, [], 1, durable="d"))
    assert (failure.code, failure.number) == (NotPermitted.code, 901)


def test_what_is_no_inbox_stays_as_it_is() -> None:
    sim = line_of("a", "b")
    near, other = sim.client(at="a"), sim.client(at="a")
    plain = near.open("x = 1", group="g")
    sim.settle()
    failure = refusal(near, m.Amend(900, plain.number, ["y = 1"]))
    assert (failure.code, failure.number) == (InvalidConfiguration.code, 900)
    failure = refusal(other, m.Subscribe(901, ["x = 1"], 1, group="g"))
    assert failure.code == InvalidConfiguration.code
    failure = refusal(near, m.Amend(902, 77, ["y = 1"]))
    assert (failure.code, failure.number) == (LeaseExpired.code, 902)


def test_an_amendment_is_not_answered_by_an_inbox_that_has_ended() -> None:
    """Or a durable one would be stored again after it was deleted."""
    sim = line_of("a", "b")
    near = sim.client(at="a")
    inbox = near.open_inbox("x = 1", durable="d")
    sim.settle()
    for message in (m.Amend(900, inbox.number, ["y = 1"]), m.Unsubscribe(inbox.number, True)):
        sim.hosts["a"].core.heard(near.session, message)
    del near.inboxes[inbox.number]
    sim.ended(inbox)
    sim.hosts["a"].flush()
    sim.settle()
    [failure] = told(near, m.Failure)
    assert (failure.code, failure.number) == (LeaseExpired.code, 900)
    assert "d" not in sim.hosts["a"].durables


def test_what_could_not_be_stored_is_said_again() -> None:
    """Its application was told so, and asks once more when the disk has room."""
    sim = line_of("b0", "b1")
    publisher, subscriber = sim.client(at="b0"), sim.client(at="b1")
    inbox = subscriber.open_inbox("x = 1", durable="d")
    sim.settle()
    sim.disks_fail = True
    more = subscriber.add(inbox, "x = 2")
    sim.advance()
    assert [answer.code for answer in told(subscriber, m.Failure)] == [JournalUnavailable.code]
    assert more not in inbox.settled
    sim.settle()
    assert more in inbox.settled
    publisher.send([{"x": 2}])
    sim.settle()
    assert len(inbox.given) == 1
    judge(sim)
