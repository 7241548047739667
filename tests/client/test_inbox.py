"""The delivery gate of a subscription: in order, each once, and how far the application is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.client.inbox import Inbox
from stentor.errors import ProtocolError
from stentor.model import Notification, NotificationId, encode


def item(k: int, producer: str = "p") -> bytes:
    return encode(Notification({"k": k}, id=NotificationId(producer, 0, k)))


def taken(inbox: Inbox) -> list[int]:
    return [n["k"] for n in iter(inbox.next, None)]


def test_what_came_before_is_dropped_by_its_offset() -> None:
    inbox = Inbox()
    assert inbox.deliver("a", [1, 2], [item(1), item(2)]) == 2
    assert inbox.deliver("a", [1, 2, 4], [item(1), item(2), item(4)]) == 1
    assert taken(inbox) == [1, 2, 4]
    assert (inbox.repeats, inbox.arrived) == (2, {"a": 4})


@pytest.mark.spec("01/A-7", "R-01.20")
def test_what_came_by_another_stream_is_dropped_by_its_id() -> None:
    inbox = Inbox()
    inbox.deliver("a", [1, 2], [item(1), item(2)])
    inbox.deliver("b", [7, 8], [item(2), item(3)])
    assert taken(inbox) == [1, 2, 3]
    assert inbox.dealt() == {"a": 2, "b": 8}


def test_last_values_are_not_repeated_by_their_stream() -> None:
    inbox = Inbox()
    inbox.deliver("", [], [item(5)], retained=True)
    inbox.deliver("a", [5, 6], [item(5), item(6)])
    assert taken(inbox) == [5, 6]
    assert inbox.dealt() == {"a": 6}


def test_dealt_with_is_what_came_before_the_one_in_hand() -> None:
    inbox = Inbox()
    inbox.deliver("a", [3, 5, 9], [item(3), item(5), item(9)])
    assert inbox.dealt() == {}
    inbox.next()
    assert (inbox.dealt(), inbox.dealt(handed_out=True)) == ({}, {"a": 3})
    inbox.next()
    assert (inbox.dealt(), inbox.dealt(handed_out=True)) == ({"a": 3}, {"a": 5})
    inbox.deal()
    assert inbox.dealt() == {"a": 5}
    inbox.next()
    inbox.next()
    assert inbox.dealt() == {"a": 9}


def test_a_batch_is_dealt_with_as_a_whole() -> None:
    inbox = Inbox()
    inbox.deliver("a", [1, 2, 3], [item(1), item(2), item(3)])
    assert [n["k"] for n in inbox.some(2)] == [1, 2]
    assert (inbox.dealt(), inbox.dealt(handed_out=True)) == ({}, {"a": 2})
    assert [n["k"] for n in inbox.some(2)] == [3]
    assert inbox.dealt() == {"a": 2}


def test_progress_holds_only_behind_what_came_before_it() -> None:
    inbox = Inbox()
    inbox.progress({"b": 4})
    assert inbox.dealt() == {"b": 4}
    inbox.deliver("a", [1], [item(1)])
    inbox.progress({"a": 9, "b": 7})
    assert inbox.arrived == {"a": 9, "b": 7}
    inbox.next()
    assert inbox.dealt() == {"b": 4}
    inbox.progress({"a": 12})
    inbox.next()
    assert inbox.dealt() == {"a": 12, "b": 7}
    inbox.progress({"a": 3})
    assert inbox.dealt() == {"a": 12, "b": 7}


def test_what_was_cleared_was_not_dealt_with() -> None:
    inbox = Inbox()
    inbox.deliver("a", [1, 2, 3], [item(1), item(2), item(3)])
    inbox.deliver("b", [1], [item(4)])
    inbox.next()
    inbox.clear()
    assert len(inbox) == 0
    assert inbox.dealt(handed_out=True) == {"a": 1}
    assert inbox.next() is None
    assert inbox.dealt() == {"a": 1}


def test_one_bad_notification_does_not_cost_the_others() -> None:
    inbox = Inbox()
    assert inbox.deliver("a", [1, 2, 3], [item(1), b"?", item(3)]) == 2
    assert (taken(inbox), inbox.unreadable, inbox.dealt()) == ([1, 3], 1, {"a": 3})


@pytest.mark.parametrize(
    "delivery",
    [([1, 2], [item(1)]), ([1], [encode(Notification({"k": 1}))])],
    ids=["offsets", "no id"],
)
def test_a_broker_that_breaks_the_protocol_is_refused(delivery: Any) -> None:
    offsets, items = delivery
    with pytest.raises(ProtocolError):
        Inbox().deliver("a", offsets, items)


class TestGroups:
    def test_what_another_member_left_behind_may_have_a_low_offset(self) -> None:
        inbox = Inbox(shared=True)
        inbox.deliver("a", [6], [item(6)])
        inbox.deliver("a", [5], [item(5)])
        assert taken(inbox) == [6, 5]
        assert inbox.dealt() == {"a": 5}

    def test_confirmed_is_what_was_dealt_with_last_in_the_order_of_giving(self) -> None:
        inbox = Inbox(shared=True)
        inbox.deliver("a", [6, 7], [item(6), item(7)])
        inbox.deliver("a", [4, 5], [item(4), item(5)])
        confirmed = []
        while inbox.next() is not None:
            confirmed.append(inbox.dealt().get("a"))
        assert [*confirmed, inbox.dealt()["a"]] == [None, 6, 7, 4, 5]

    def test_what_was_not_handed_out_can_come_again(self) -> None:
        inbox = Inbox(shared=True)
        inbox.deliver("a", [1, 2, 3], [item(1), item(2), item(3)])
        inbox.next()
        inbox.deliver("b", [9, 10], [item(9), item(10)])
        inbox.deliver("b", [7], [item(7)])
        inbox.deliver("", [], [item(20)])
        assert inbox.forget_waiting() == {"a": 1, "b": 6}
        assert inbox.next() is None
        inbox.deliver("a", [1, 2, 3], [item(1), item(2), item(3)])
        assert taken(inbox) == [2, 3]

    def test_volatile_ones_are_confirmed_too(self) -> None:
        inbox = Inbox(shared=True)
        inbox.deliver("", [], [item(1)])
        assert inbox.dealt() == {}
        assert taken(inbox) == [1]
        assert inbox.dealt() == {"": 0}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.sampled_from("ab"), st.integers(1, 4)),
        st.tuples(st.just("again"), st.sampled_from("ab"), st.integers(1, 6)),
        st.tuples(st.just("progress"), st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.just("next"), st.just(""), st.integers(1, 3)),
        st.tuples(st.just("some"), st.just(""), st.integers(1, 3)),
    ),
    max_size=40,
)


@given(STEPS)
@pytest.mark.spec("01/A-7", "R-01.20")
def test_in_order_once_and_never_more_dealt_with_than_handed_out(steps: list[Any]) -> None:
    """Streams of which every second offset is for us, against plain lists."""
    inbox = Inbox()
    heads = {"a": 0, "b": 0}
    due: list[tuple[str, int]] = []
    got: list[tuple[str, int]] = []

    def items(stream: str, offsets: list[int]) -> list[bytes]:
        return [item(offset, producer=stream) for offset in offsets]

    for act, stream, n in steps:
        if act == "deliver":
            offsets = [heads[stream] + 2 * i for i in range(1, n + 1)]
            heads[stream] = offsets[-1]
            due += [(stream, offset) for offset in offsets]
            assert inbox.deliver(stream, offsets, items(stream, offsets)) == n
        elif act == "again":
            offsets = list(range(max(1, heads[stream] - n), heads[stream] + 1))
            if offsets:
                assert inbox.deliver(stream, offsets, items(stream, offsets)) == 0
        elif act == "progress":
            heads[stream] += n
            inbox.progress({stream: heads[stream]})
        elif act == "next":
            for _ in range(n):
                found = inbox.next()
                got += [(found.id.producer, found["k"])] if found is not None else []
        else:
            got += [(found.id.producer, found["k"]) for found in inbox.some(n)]
        assert got == due[: len(got)]
        assert len(inbox) == len(due) - len(got)
        for position in (inbox.dealt(), inbox.dealt(handed_out=True)):
            for name, at in position.items():
                open_ = [offset for s, offset in due[len(got) :] if s == name]
                assert at <= inbox.arrived[name]
                assert not open_ or at < min(open_)
    while inbox.next() is not None:
        pass
    assert inbox.dealt() == inbox.arrived
