"""Offsets that were dealt with, and what is kept of a durable subscription."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidValue, JournalDamaged
from stentor.filters import Filter
from stentor.model import NotificationId
from stentor.node.durable import Durable, Refusal
from stentor.node.interest import Interest
from stentor.node.offsets import Offsets

TOP = 20
offsets = st.integers(0, TOP)
steps = st.lists(
    st.tuples(st.sampled_from(["add", "add_range", "discard", "cut"]), offsets, offsets),
    max_size=12,
)


def built(done: list[tuple[str, int, int]]) -> tuple[Offsets, set[int]]:
    """The same steps with a set of offsets and with a set of numbers."""
    found, numbers = Offsets(), set[int]()
    for kind, a, b in done:
        match kind:
            case "add":
                found.add(a)
                numbers.add(a)
            case "add_range":
                found.add_range(a, b)
                numbers.update(range(a, b + 1))
            case "discard":
                found.discard(a)
                numbers.discard(a)
            case "cut":
                found.cut(a)
                numbers = {n for n in numbers if n <= a}
    return found, numbers


def members(found: Offsets) -> set[int]:
    return {n for n in range(TOP + 5) if n in found}


@given(steps)
def test_offsets_are_a_set_of_numbers(done: list[tuple[str, int, int]]) -> None:
    found, numbers = built(done)
    assert members(found) == numbers
    assert found.floor == min(set(range(TOP + 5)) - numbers) - 1
    assert Offsets.from_data(found.floor, found.to_data()) == found


@given(steps, steps, offsets)
def test_united_and_cut_off_below(
    one: list[tuple[str, int, int]], two: list[tuple[str, int, int]], floor: int
) -> None:
    found, numbers = built(one)
    assert members(found.without(floor)) == {n for n in numbers if n > floor}
    other, more = built(two)
    found.update(other)
    assert members(found) == numbers | more


@pytest.mark.parametrize("lengths", [[1], [0, 1], [2, -1]])
def test_other_data_is_refused(lengths: list[int]) -> None:
    with pytest.raises(InvalidValue):
        Offsets.from_data(3, lengths)


# -- durable subscriptions


def durable(since: float = 0.0) -> Durable:
    return Durable("desk", Interest([Filter("x > 1")]), since=since)


def test_what_is_settled_out_of_order_is_kept() -> None:
    kept = durable()
    kept.begin("b1#", 3)
    for offset in (7, 5):
        kept.settle("b1#", offset, NotificationId("p", 0, offset))
    kept.refused["b1#"] = {4: Refusal(2, 17.0, "no such account")}
    again = Durable.from_data("desk", kept.to_data())
    assert again.positions == {"b1#": 3}
    assert [again.is_done("b1#", n) for n in range(3, 9)] == [True, False, True, False, True, False]
    assert again.refused["b1#"][4].cause == "no such account"
    again.settle("b1#", 4)
    assert again.positions == {"b1#": 5}
    assert not again.refused["b1#"]


def test_what_was_refused_rests_no_longer_by_another_clock() -> None:
    """It was set back by an hour, or is that of another broker."""
    kept = durable()
    kept.begin("b1#", 3)
    kept.refused["b1#"] = {4: Refusal(1, 4_010.0, wait=10.0), 5: Refusal(1, 4_002.0, wait=2.0)}
    again = Durable.from_data("desk", kept.to_data())
    assert [again.rests_for(time) for time in (4_005.0, 4_020.0, 400.0)] == [5.0, 0.0, 10.0]


def test_what_an_older_release_has_stored_is_read() -> None:
    recent = durable().recent.to_data()
    stored = msgspec.msgpack.encode(["x > 1", 5.0, {"b1#": 7}, recent, True, "ann"])
    kept = Durable.from_data("desk", stored)
    assert (kept.positions, kept.group, kept.owner) == ({"b1#": 7}, True, "ann")
    with pytest.raises(JournalDamaged):
        Durable.from_data("desk", b"nonsense")


def test_two_copies_are_united_from_the_earlier_beginning_on() -> None:
    """A copy that was made later knows nothing of what it had not been asked to deliver."""
    first, second = durable(since=1.0), durable(since=2.0)
    first.begin("b1#", 0)
    first.confirm({"b1#": 100})
    second.begin("b1#", 500)
    second.confirm({"b1#": 600})
    second.begin("b2#", 40)  # where the first has never been
    second.settle("b2#", 42)
    for one, other in ((first, second), (second, first)):
        united = Durable.from_data("desk", one.to_data())
        united.merge(other)
        assert united.since == 1.0
        assert united.positions == {"b1#": 100}  # the other stream is read from the time on
        done = [n for n in (100, 101, 500, 501, 600, 601) if united.is_done("b1#", n)]
        assert done == [100, 501, 600]
        assert [n for n in (39, 40, 41, 42, 43) if united.is_done("b2#", n)] == [42]


@given(st.data())
def test_nothing_is_done_by_uniting_that_neither_copy_has_done(data: st.DataObject) -> None:
    copies = []
    for since in (1.0, 2.0):
        each = durable(since)
        begin = data.draw(offsets)
        each.begin("b1#", begin)
        for offset in data.draw(st.lists(offsets.filter(lambda n, begin=begin: n > begin))):
            each.settle("b1#", offset)
        copies.append((each, begin))
    (one, begin), (other, later) = copies
    expected = {
        n
        for n in range(TOP + 5)
        if n <= min(begin, later)
        or (n > begin and one.is_done("b1#", n))
        or (n > later and other.is_done("b1#", n))
    }
    one.merge(other)
    assert members(one.done["b1#"]) == expected
