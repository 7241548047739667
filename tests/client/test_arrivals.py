"""The delivery gate of a subscription: in order, each once, and how far the application is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.client.arrivals import Arrivals
from stentor.errors import ProtocolError
from stentor.model import Notification, NotificationId, encode


def item(k: int, producer: str = "p") -> bytes:
    return encode(Notification({"k": k}, id=NotificationId(producer, 0, k)))


def taken(arrivals: Arrivals) -> list[int]:
    return [n["k"] for n in iter(arrivals.next, None)]


def test_what_came_before_is_dropped_by_its_offset() -> None:
    arrivals = Arrivals()
    assert arrivals.deliver("a", [1, 2], [item(1), item(2)]) == 2
    assert arrivals.deliver("a", [1, 2, 4], [item(1), item(2), item(4)]) == 1
    assert taken(arrivals) == [1, 2, 4]
    assert (arrivals.repeats, arrivals.arrived) == (2, {"a": 4})


@pytest.mark.spec("01/A-7", "R-01.20")
def test_what_came_by_another_stream_is_dropped_by_its_id() -> None:
    arrivals = Arrivals()
    arrivals.deliver("a", [1, 2], [item(1), item(2)])
    arrivals.deliver("b", [7, 8], [item(2), item(3)])
    assert taken(arrivals) == [1, 2, 3]
    assert arrivals.dealt() == {"a": 2, "b": 8}


def test_last_values_are_not_repeated_by_their_stream() -> None:
    arrivals = Arrivals()
    arrivals.deliver("", [], [item(5)], retained=True)
    arrivals.deliver("a", [5, 6], [item(5), item(6)])
    assert taken(arrivals) == [5, 6]
    assert arrivals.dealt() == {"a": 6}


def test_dealt_with_is_what_came_before_the_one_in_hand() -> None:
    arrivals = Arrivals()
    arrivals.deliver("a", [3, 5, 9], [item(3), item(5), item(9)])
    assert arrivals.dealt() == {}
    arrivals.next()
    assert (arrivals.dealt(), arrivals.dealt(handed_out=True)) == ({}, {"a": 3})
    arrivals.next()
    assert (arrivals.dealt(), arrivals.dealt(handed_out=True)) == ({"a": 3}, {"a": 5})
    arrivals.deal()
    assert arrivals.dealt() == {"a": 5}
    arrivals.next()
    arrivals.next()
    assert arrivals.dealt() == {"a": 9}


def test_a_batch_is_dealt_with_as_a_whole() -> None:
    arrivals = Arrivals()
    arrivals.deliver("a", [1, 2, 3], [item(1), item(2), item(3)])
    assert [n["k"] for n in arrivals.some(2)] == [1, 2]
    assert (arrivals.dealt(), arrivals.dealt(handed_out=True)) == ({}, {"a": 2})
    assert [n["k"] for n in arrivals.some(2)] == [3]
    assert arrivals.dealt() == {"a": 2}


def test_progress_holds_only_behind_what_came_before_it() -> None:
    arrivals = Arrivals()
    arrivals.progress({"b": 4})
    assert arrivals.dealt() == {"b": 4}
    arrivals.deliver("a", [1], [item(1)])
    arrivals.progress({"a": 9, "b": 7})
    assert arrivals.arrived == {"a": 9, "b": 7}
    arrivals.next()
    assert arrivals.dealt() == {"b": 4}
    arrivals.progress({"a": 12})
    arrivals.next()
    assert arrivals.dealt() == {"a": 12, "b": 7}
    arrivals.progress({"a": 3})
    assert arrivals.dealt() == {"a": 12, "b": 7}


def test_what_was_cleared_was_not_dealt_with() -> None:
    arrivals = Arrivals()
    arrivals.deliver("a", [1, 2, 3], [item(1), item(2), item(3)])
    arrivals.deliver("b", [1], [item(4)])
    arrivals.next()
    arrivals.clear()
    assert len(arrivals) == 0
    assert arrivals.dealt(handed_out=True) == {"a": 1}
    assert arrivals.next() is None
    assert arrivals.dealt() == {"a": 1}


def test_one_bad_notification_does_not_cost_the_others() -> None:
    arrivals = Arrivals()
    assert arrivals.deliver("a", [1, 2, 3], [item(1), b"?", item(3)]) == 2
    assert (taken(arrivals), arrivals.unreadable, arrivals.dealt()) == ([1, 3], 1, {"a": 3})


@pytest.mark.parametrize(
    "delivery",
    [([1, 2], [item(1)]), ([1], [encode(Notification({"k": 1}))])],
    ids=["offsets", "no id"],
)
def test_a_broker_that_breaks_the_protocol_is_refused(delivery: Any) -> None:
    offsets, items = delivery
    with pytest.raises(ProtocolError):
        Arrivals().deliver("a", offsets, items)


class TestGroups:
    def test_what_another_member_left_behind_may_have_a_low_offset(self) -> None:
        arrivals = Arrivals(shared=True)
        arrivals.deliver("a", [6], [item(6)])
        arrivals.deliver("a", [5], [item(5)])
        assert taken(arrivals) == [6, 5]
        assert arrivals.dealt() == {"a": 5}

    def test_confirmed_is_what_was_dealt_with_last_in_the_order_of_giving(self) -> None:
        arrivals = Arrivals(shared=True)
        arrivals.deliver("a", [6, 7], [item(6), item(7)])
        arrivals.deliver("a", [4, 5], [item(4), item(5)])
        confirmed = []
        while arrivals.next() is not None:
            confirmed.append(arrivals.dealt().get("a"))
        assert [*confirmed, arrivals.dealt()["a"]] == [None, 6, 7, 4, 5]

    def test_what_was_not_handed_out_can_come_again(self) -> None:
        arrivals = Arrivals(shared=True)
        arrivals.deliver("a", [1, 2, 3], [item(1), item(2), item(3)])
        arrivals.next()
        arrivals.deliver("b", [9, 10], [item(9), item(10)])
        arrivals.deliver("b", [7], [item(7)])
        arrivals.deliver("", [], [item(20)])
        assert arrivals.forget_waiting() == {"a": 1, "b": 6}
        assert arrivals.next() is None
        arrivals.deliver("a", [1, 2, 3], [item(1), item(2), item(3)])
        assert taken(arrivals) == [2, 3]

    def test_volatile_ones_are_confirmed_too(self) -> None:
        arrivals = Arrivals(shared=True)
        arrivals.deliver("", [], [item(1)])
        assert arrivals.dealt() == {}
        assert taken(arrivals) == [1]
        assert arrivals.dealt() == {"": 0}


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
    arrivals = Arrivals()
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
            assert arrivals.deliver(stream, offsets, items(stream, offsets)) == n
        elif act == "again":
            offsets = list(range(max(1, heads[stream] - n), heads[stream] + 1))
            if offsets:
                assert arrivals.deliver(stream, offsets, items(stream, offsets)) == 0
        elif act == "progress":
            heads[stream] += n
            arrivals.progress({stream: heads[stream]})
        elif act == "next":
            for _ in range(n):
                found = arrivals.next()
                got += [(found.id.producer, found["k"])] if found is not None else []
        else:
            got += [(found.id.producer, found["k"]) for found in arrivals.some(n)]
        assert got == due[: len(got)]
        assert len(arrivals) == len(due) - len(got)
        for position in (arrivals.dealt(), arrivals.dealt(handed_out=True)):
            for name, at in position.items():
                open_ = [offset for s, offset in due[len(got) :] if s == name]
                assert at <= arrivals.arrived[name]
                assert not open_ or at < min(open_)
    while arrivals.next() is not None:
        pass
    assert arrivals.dealt() == arrivals.arrived
