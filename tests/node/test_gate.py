"""The delivery gate, against the vectors of the model and against an oracle."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration, InvalidNotification, UnknownStrategy
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.model.seen import SeenIds
from stentor.node.gate import Gate
from stentor.routing.protocol import FilterId

F, G = Filter("n in (1, 2)"), Filter("n in (2, 3)")
SUB_F, SUB_G = FilterId("Y", 1), FilterId("Y", 2)


def note(n: int, *, producer: str = "A", sequence: int | None = None) -> Notification:
    return Notification(
        {"n": n}, id=NotificationId(producer, 0, n if sequence is None else sequence)
    )


def taken(gate: Gate) -> list[int]:
    found = []
    while (notification := gate.take()) is not None:
        found.append(notification["n"])
    return found


def run(*acts: tuple[str, Any]) -> list[int]:
    """What is delivered when these things happen to a gate, one after the other."""
    gate, delivered = Gate(), []
    for act, what in acts:
        if act == "sub":
            gate.subscribe(*what)
        elif act == "unsub":
            gate.unsubscribe(what)
        elif act == "offer":
            gate.offer(note(what))
        else:
            delivered += taken(gate)
    return delivered


SUBSCRIBE_F, SUBSCRIBE_G = ("sub", (SUB_F, F)), ("sub", (SUB_G, G))
UNSUBSCRIBE_F, TAKE = ("unsub", SUB_F), ("take", None)


@pytest.mark.parametrize(
    ("acts", "delivered"),
    [
        pytest.param(
            [SUBSCRIBE_F, ("offer", 1), TAKE],
            [1],
            marks=pytest.mark.spec("01/S1"),
            id="S1",
        ),
        pytest.param(
            [SUBSCRIBE_F, ("offer", 1), UNSUBSCRIBE_F, TAKE],
            [],
            marks=pytest.mark.spec("01/S2", "R-01.18", "01/T-2"),
            id="S2 unsubscribed while it waits",
        ),
        pytest.param(
            [SUBSCRIBE_F, UNSUBSCRIBE_F, ("offer", 1), TAKE],
            [],
            marks=pytest.mark.spec("01/S2", "01/T-2"),
            id="S2 unsubscribed while it is on its way",
        ),
        pytest.param(
            [SUBSCRIBE_F, SUBSCRIBE_G, ("offer", 2), UNSUBSCRIBE_F, TAKE],
            [2],
            marks=pytest.mark.spec("01/S3", "R-01.18"),
            id="S3",
        ),
        pytest.param(
            [SUBSCRIBE_F, SUBSCRIBE_G, ("offer", 2), TAKE, ("offer", 2), TAKE],
            [2],
            marks=pytest.mark.spec("01/S4", "01/T-1", "R-01.20"),
            id="S4",
        ),
        pytest.param(
            [SUBSCRIBE_F, ("offer", 1), TAKE, UNSUBSCRIBE_F, SUBSCRIBE_F, ("offer", 1), TAKE],
            [1],
            marks=pytest.mark.spec("01/S5", "01/T-3", "R-01.20"),
            id="S5",
        ),
        pytest.param(
            [SUBSCRIBE_F, SUBSCRIBE_F, UNSUBSCRIBE_F, ("offer", 1), TAKE],
            [],
            marks=pytest.mark.spec("01/S6", "01/T-5"),
            id="S6",
        ),
        pytest.param(
            [("offer", 1), SUBSCRIBE_F, ("offer", 1), TAKE],
            [1],
            marks=pytest.mark.spec("01/S7", "R-01.23"),
            id="S7 history after the subscription",
        ),
        pytest.param(
            [SUBSCRIBE_F, TAKE],
            [],
            marks=pytest.mark.spec("01/S8", "R-01.19"),
            id="S8 nothing comes of nothing",
        ),
        pytest.param(
            [SUBSCRIBE_F, UNSUBSCRIBE_F, SUBSCRIBE_F, ("offer", 1), TAKE],
            [1],
            marks=pytest.mark.spec("01/S11"),
            id="S11",
        ),
    ],
)
def test_safety_vectors(acts: list[tuple[str, Any]], delivered: list[int]) -> None:
    assert run(*acts) == delivered


@pytest.mark.spec("01/S10", "01/T-6")
def test_a_client_gets_its_own_notifications() -> None:
    gate = Gate()
    gate.subscribe(FilterId("A", 1), F)
    gate.offer(note(1, producer="A"))
    assert taken(gate) == [1]


@pytest.mark.spec("R-01.19")
def test_what_is_taken_is_what_was_offered() -> None:
    gate, given_ = Gate(), note(1)
    gate.subscribe(SUB_F, F)
    gate.offer(given_)
    assert gate.take() is given_


@pytest.mark.spec("01/T-1")
def test_one_delivery_serves_all_matching_subscriptions() -> None:
    gate = Gate()
    gate.subscribe(SUB_G, G)
    gate.subscribe(SUB_F, F)
    gate.offer(note(2))
    first = gate.take()
    assert first is not None
    assert gate.matching(first) == [SUB_F, SUB_G]
    gate.unsubscribe(SUB_F)
    assert gate.matching(first) == [SUB_G]
    assert gate.take() is None


@pytest.mark.spec("01/T-4")
def test_equal_readings_are_two_notifications() -> None:
    gate = Gate()
    gate.subscribe(SUB_F, F)
    assert gate.offer(note(1, sequence=0))
    assert gate.offer(note(1, sequence=1))
    assert taken(gate) == [1, 1]


@pytest.mark.spec("01/T-5")
def test_equal_filters_are_two_subscriptions() -> None:
    gate = Gate()
    gate.subscribe(SUB_F, F)
    gate.subscribe(SUB_G, F)
    gate.unsubscribe(SUB_F)
    assert gate.offer(note(1))
    gate.unsubscribe(SUB_F)
    assert taken(gate) == [1]


@pytest.mark.spec("01/A-7")
def test_what_was_dropped_at_the_end_of_the_queue_may_come_again() -> None:
    gate = Gate()
    gate.subscribe(SUB_F, F)
    gate.offer(note(1))
    gate.unsubscribe(SUB_F)
    assert gate.take() is None
    assert gate.dropped["no_longer_wanted"] == 1
    gate.subscribe(SUB_F, F)
    assert gate.offer(note(1))
    assert taken(gate) == [1]


@pytest.mark.spec("01/T-10")
def test_a_batch_matched_with_an_old_snapshot_and_replayed() -> None:
    gate = Gate()
    gate.subscribe(SUB_F, F)
    gate.subscribe(SUB_G, G)
    batch = [note(1), note(2), note(3)]
    gate.unsubscribe(SUB_F)  # while the batch was being matched
    for notification in batch * 2:
        gate.offer(notification)
    assert taken(gate) == [2, 3]
    for notification in batch:
        gate.offer(notification)
    assert taken(gate) == []


@pytest.mark.spec("R-01.20", "01/A-7", "01/Q5")
def test_a_restart_neither_repeats_what_was_delivered_nor_loses_what_waited() -> None:
    gate = Gate()
    gate.subscribe(SUB_F, F)
    gate.offer(note(1))
    assert taken(gate) == [1]
    gate.offer(note(2))
    stored = msgspec.json.encode(gate.to_data())
    assert taken(gate) == [2]  # storing changes nothing

    restarted = Gate.from_data(msgspec.json.decode(stored))
    restarted.subscribe(SUB_F, F)
    assert not restarted.offer(note(1))
    assert restarted.offer(note(2))
    assert taken(restarted) == [2]


def full_gate(policy: Any) -> Gate:
    gate = Gate(limit=2, policy=policy)
    gate.subscribe(SUB_F, Filter("n > 0"))
    assert gate.offer(note(1))
    assert not gate.full
    assert gate.offer(note(2))
    assert gate.full
    assert len(gate) == 2
    return gate


def test_a_full_queue_drops_the_oldest() -> None:
    gate = full_gate("drop_oldest")
    assert gate.offer(note(3))
    assert taken(gate) == [2, 3]
    assert gate.dropped["overflow"] == 1
    assert gate.offer(note(1))  # it was never delivered, so history may bring it


def test_a_full_queue_drops_the_newest() -> None:
    gate = full_gate("drop_newest")
    assert not gate.offer(note(3))
    assert taken(gate) == [1, 2]
    assert gate.dropped["overflow"] == 1
    assert gate.offer(note(3))


def test_a_full_queue_leaves_the_notification_with_the_host() -> None:
    gate = full_gate("refuse")
    assert not gate.offer(note(3))
    assert gate.dropped["refused"] == 1
    assert gate.dropped["overflow"] == 0
    gate.take()
    assert not gate.full
    assert gate.offer(note(3))
    assert taken(gate) == [2, 3]


def test_every_drop_is_counted_by_reason() -> None:
    gate = Gate(seen=SeenIds(max_intervals=1))
    gate.subscribe(SUB_F, Filter("n > 0"))
    assert not gate.offer(note(0))
    for n in (3, 7):
        assert gate.offer(note(n))
    assert not gate.offer(note(7))
    assert not gate.offer(note(2))  # below the floor: whether it was seen can no longer be told
    assert {reason: n for reason, n in gate.dropped.items() if n} == {
        "unwanted": 1,
        "duplicate": 1,
        "too_old": 1,
    }


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidConfiguration):
        Gate(limit=0)
    with pytest.raises(UnknownStrategy, match="drop_oldest"):
        Gate(policy="block")  # type: ignore[arg-type]
    with pytest.raises(InvalidNotification, match="without an id"):
        Gate().offer(Notification({"n": 1}))


def test_many_subscriptions_of_one_client() -> None:
    gate = Gate()
    for number in range(5_000):
        gate.subscribe(FilterId("Y", number), Filter(f"n = {number}"))
    assert gate.offer(note(4_321))
    notification = gate.take()
    assert notification is not None
    assert gate.matching(notification) == [FilterId("Y", 4_321)]


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["sub", "unsub"]), st.sampled_from([1, 2])),
        st.tuples(st.sampled_from(["take", "restart"]), st.just(0)),
    ),
    max_size=40,
)


@given(ACTS)
@pytest.mark.spec("R-01.18", "R-01.20", "01/A-7", "01/Q5")
def test_only_what_is_wanted_and_nothing_twice(acts: list[tuple[str, int]]) -> None:
    gate = Gate()
    wanted: dict[int, Filter] = {}
    waiting: list[int] = []
    delivered: list[int] = []
    for act, n in acts:
        if act == "sub":
            wanted[n] = F if n == 1 else G
            gate.subscribe(FilterId("Y", n), wanted[n])
        elif act == "unsub":
            wanted.pop(n, None)
            gate.unsubscribe(FilterId("Y", n))
        elif act == "offer":
            matches = any(f.matches({"n": n}) for f in wanted.values())
            expected = matches and n not in waiting and n not in delivered
            assert gate.offer(note(n)) is expected
            if expected:
                waiting.append(n)
        elif act == "take":
            waiting = [n for n in waiting if any(f.matches({"n": n}) for f in wanted.values())]
            first = waiting.pop(0) if waiting else None
            got = gate.take()
            assert (got and got["n"]) == first
            if first is None:
                assert len(gate) == 0
            else:
                delivered.append(first)
        else:
            gate = Gate.from_data(gate.to_data())
            waiting = []
            for number, filter in wanted.items():
                gate.subscribe(FilterId("Y", number), filter)
    assert len(set(delivered)) == len(delivered)
