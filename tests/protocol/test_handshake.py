"""Both sides of a handshake, held against the table of its theory and against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration, LinkRefused, ProtocolError, StentorError
from stentor.protocol import handshake
from stentor.protocol.handshake import DEFAULT_TERMS, Handshake, Left, hello
from stentor.protocol.messages import (
    Done,
    Failure,
    Goodbye,
    Hello,
    Ping,
    Pong,
    Welcome,
)
from stentor.routing.strategy import Strategy
from stentor.routing.tree import TreeRouter

WELCOME = Welcome(1, "b1", "b1#0")
HELLO = hello("client", "ann")


def calling() -> Handshake:
    return Handshake("b1", HELLO)


def called() -> Handshake:
    return Handshake("ann")


def opened() -> Handshake:
    side = called()
    side.hear(HELLO)
    return side


def over() -> Handshake:
    side = calling()
    side.hear(Goodbye())
    return side


MESSAGES = (
    HELLO,
    WELCOME,
    Failure("STN-614", "no"),
    Goodbye("no", ["b2"]),
    Ping(),
    Pong(),
    Done(1),
)
MISTAKE, LEFT, SAME, NOTHING, PONG = "mistake", "left", "the same", "nothing", "pong"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (calling, (MISTAKE, SAME, LEFT, LEFT, PONG, NOTHING, MISTAKE)),
        (called, (SAME, MISTAKE, MISTAKE, MISTAKE, MISTAKE, MISTAKE, MISTAKE)),
        (opened, (MISTAKE, MISTAKE, LEFT, LEFT, PONG, NOTHING, SAME)),
        (over, (NOTHING,) * 7),
    ],
    ids=["calling", "called", "open", "over"],
)
def test_what_follows_is_what_the_table_says(
    state: Callable[[], Handshake], expected: tuple[str, ...]
) -> None:
    def outcome(message: Any) -> str:
        try:
            found = state().hear(message)
        except ProtocolError:
            return MISTAKE
        if found is message and not isinstance(message, Ping | Pong):
            return SAME
        return {Left: LEFT, Pong: PONG, type(None): NOTHING}[type(found)]

    assert tuple(map(outcome, MESSAGES)) == expected


def test_an_answer_to_a_request_is_no_end() -> None:
    side = opened()
    refusal = Failure("STN-604", "no", 7)
    assert side.hear(refusal) is refusal
    assert side.hear(Done(1)) == Done(1)


def test_who_leaves_says_why_and_where_to_go() -> None:
    side = calling()
    assert side.hear(WELCOME) is WELCOME
    left = side.hear(Goodbye("the disk is full", ["b2", "b3"]))
    assert isinstance(left, Left)
    assert str(left.reason) == "b1 says goodbye: the disk is full"
    assert left.instead == ["b2", "b3"]
    refused = calling().hear(Failure("STN-614", "a cycle"))
    assert isinstance(refused, Left)
    assert type(refused.reason) is LinkRefused
    assert refused.instead is None


def test_a_role_that_there_is_not_is_a_mistake() -> None:
    with pytest.raises(ProtocolError, match="'king'"):
        called().hear(hello("king", "ann"))


def test_a_broker_that_says_nothing_of_its_terms_routes_by_covering() -> None:
    assert TreeRouter("", Strategy("covering")).terms == DEFAULT_TERMS


VERSIONS = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)
TERMS = st.sampled_from(["", DEFAULT_TERMS, "a tree that announces nothing"])


@given(VERSIONS, VERSIONS, TERMS, TERMS)
def test_both_sides_agree_whether_they_go_together(
    ours: list[int], theirs: list[int], own: str, other: str
) -> None:
    caller = Handshake("b1", Hello(ours, "broker", "b2", None, "b2#0", ["b2:1"], own))
    host = Handshake("b2")

    def told(side: Handshake, terms: str, address: str | None = None) -> Any:
        try:
            return side.neighbor(terms or DEFAULT_TERMS, address)
        except InvalidConfiguration as error:
            return side.refuse(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handshake, "VERSIONS", tuple(theirs))
        shared = [version for version in theirs if version in ours]
        if not shared:
            with pytest.raises(ProtocolError, match="speaks versions"):
                host.hear(caller.hello)
            return
        host.hear(caller.hello)
        welcome = Welcome(host.version, "b1", "b1#0", terms=other)
    assert caller.hear(welcome) is welcome
    assert caller.version == host.version == shared[0]
    near, far = told(host, other), told(caller, own, "b1:1")
    if (own or DEFAULT_TERMS) == (other or DEFAULT_TERMS):
        assert (near.stream, near.broker, near.addresses) == ("b2#0", "b2", ("b2:1",))
        assert (far.stream, far.broker, far.addresses) == ("b1#0", "b1", ("b1:1",))
    else:
        assert isinstance(near, Failure)
        assert isinstance(far, Goodbye)


@given(st.lists(st.integers(5, 9), max_size=2), st.integers(1, 9))
def test_a_welcome_in_a_version_that_was_not_offered_is_a_mistake(
    offered: list[int], version: int
) -> None:
    caller = Handshake("b1", Hello(offered, "client", "ann"))
    welcome = Welcome(version, "b1", "b1#0")
    if version in offered:
        assert caller.hear(welcome) is welcome
    else:
        with pytest.raises(ProtocolError, match=f"version {version}"):
            caller.hear(welcome)


@pytest.mark.parametrize(("name", "stream"), [("b\n2", "b2#0"), ("b2", ""), ("", "b2#0")])
def test_a_neighbor_needs_a_name_and_a_stream_that_can_be_printed(name: str, stream: str) -> None:
    host = Handshake("b2")
    host.hear(hello("broker", name, stream=stream))
    with pytest.raises(StentorError):
        host.neighbor(DEFAULT_TERMS)
