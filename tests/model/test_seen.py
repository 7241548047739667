"""The memory of seen ids, held against a plain set."""

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidConfiguration, InvalidValue
from stentor.model import INT_MAX, NotificationId
from stentor.model.seen import SeenIds

IDS = st.builds(NotificationId, st.sampled_from(["p", "q"]), st.integers(0, 2), st.integers(0, 12))
ACTS = st.lists(st.tuples(st.sampled_from(["add", "discard"]), IDS), max_size=60)


def id_of(sequence: int, *, producer: str = "p", epoch: int = 0) -> NotificationId:
    return NotificationId(producer, epoch, sequence)


def intervals(seen: SeenIds) -> int:
    return sum(len(bounds) // 2 for _, bounds in seen.to_data()["recent"])


@given(ACTS)
@pytest.mark.spec("01/A-7")
def test_it_is_a_set_of_ids(acts: list[tuple[str, NotificationId]]) -> None:
    seen, oracle = SeenIds(), set[NotificationId]()
    for act, id in acts:
        if act == "add":
            assert seen.add(id) is (id not in oracle)
            oracle.add(id)
        else:
            assert seen.discard(id) is (id in oracle)
            oracle.discard(id)
        assert (id in seen) is (id in oracle)
    for producer in "pq":
        for epoch in range(3):
            for sequence in range(14):
                id = NotificationId(producer, epoch, sequence)
                assert (id in seen) is (id in oracle)
                assert not seen.too_old(id)


@given(ACTS, st.integers(1, 3), st.integers(1, 2))
@pytest.mark.spec("R-01.20", "03/P15")
def test_with_little_memory_an_id_is_still_never_new_twice(
    acts: list[tuple[str, NotificationId]], max_intervals: int, max_recent: int
) -> None:
    seen = SeenIds(max_intervals=max_intervals, max_recent=max_recent)
    accepted = set[NotificationId]()
    for act, id in acts:
        if act == "add":
            new = seen.add(id)
            assert not (new and id in accepted)
            assert id in seen
            if not new and id not in accepted:
                assert seen.too_old(id)
            accepted.add(id)
        elif seen.discard(id):
            accepted.remove(id)
        assert all(id in seen for id in accepted)
        assert intervals(seen) <= max_intervals * max_recent


@given(ACTS, st.integers(1, 3), st.integers(1, 2))
@pytest.mark.spec("01/A-7", "01/Q5")
def test_it_survives_as_plain_data_and_as_a_pickle(
    acts: list[tuple[str, NotificationId]], max_intervals: int, max_recent: int
) -> None:
    seen = SeenIds(max_intervals=max_intervals, max_recent=max_recent)
    for act, id in acts:
        (seen.add if act == "add" else seen.discard)(id)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(seen.to_data()))
    restored = SeenIds.from_data(stored, max_intervals=max_intervals, max_recent=max_recent)
    for other in (restored, seen.copy(), pickle.loads(pickle.dumps(seen))):
        assert other.to_data() == seen.to_data()
    restored.add(id_of(99, epoch=9))
    assert id_of(99, epoch=9) not in seen


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "discard", "update", "pack"]), st.lists(IDS, max_size=9)),
        max_size=30,
    ),
    *(st.integers(1, 3), st.integers(1, 2), st.integers(1, 8)),
)
def test_what_is_packed_is_up_to_date(
    acts: list[tuple[str, list[NotificationId]]],
    max_intervals: int,
    max_recent: int,
    max_total: int,
) -> None:
    """Whatever has changed since it was packed before."""
    seen = SeenIds(max_intervals=max_intervals, max_recent=max_recent, max_total=max_total)
    for act, ids in acts:
        if act == "add":
            seen.add_all(ids)
        elif act == "update":
            other = SeenIds()
            other.add_all(ids)
            seen.update(other)
        elif act == "discard":
            for id in ids:
                seen.discard(id)
        packed = msgspec.msgpack.decode(msgspec.msgpack.encode(seen.packed()))
        assert packed == seen.to_data()


def test_in_order_arrivals_take_one_interval() -> None:
    seen = SeenIds()
    for sequence in range(1000):
        assert seen.add(id_of(sequence))
    assert seen.to_data()["recent"] == [["p", [[0, 0], [0, 0], [0, 1000]]]]


@pytest.mark.spec("01/T-4")
def test_only_the_id_counts() -> None:
    seen = SeenIds()
    assert all(seen.add(id) for id in (id_of(1), id_of(2), id_of(1, producer="q")))
    assert seen.add(id_of(1, epoch=1))
    assert not seen.add(id_of(1))


def test_too_many_gaps_close_from_below() -> None:
    seen = SeenIds(max_intervals=2)
    for sequence in (10, 20, 30):
        seen.add(id_of(sequence))
    assert id_of(5) in seen
    assert seen.too_old(id_of(5))
    assert not seen.discard(id_of(10))
    assert id_of(11) not in seen
    assert id_of(25) not in seen
    assert seen.closed == 1


def test_old_epochs_collapse_first() -> None:
    seen = SeenIds(max_intervals=3)
    for epoch in range(6):
        seen.add(id_of(7, epoch=epoch))
    assert all(seen.too_old(id_of(8, epoch=epoch)) for epoch in range(2))
    assert seen.too_old(id_of(7, epoch=2))
    assert id_of(8, epoch=2) not in seen
    assert id_of(8, epoch=3) not in seen


def test_a_producer_at_rest_is_known_by_its_newest_id() -> None:
    seen = SeenIds(max_recent=1)
    for sequence in (0, 5):
        seen.add(id_of(sequence))
    seen.add(id_of(0, producer="q"))
    assert seen.too_old(id_of(3))
    assert id_of(6) not in seen
    assert seen.add(id_of(6))
    assert not seen.add(id_of(5))
    assert seen.producers == 2


def test_beyond_all_limits_the_longest_silent_producer_is_forgotten_and_counted() -> None:
    seen = SeenIds(max_recent=2, max_resting=3)
    for number in range(10):
        seen.add(id_of(0, producer=f"p{number}"))
    assert seen.producers == 5
    assert seen.forgotten == 5
    assert all(id_of(0, producer=f"p{number}") in seen for number in range(5, 10))


def test_a_producer_whose_only_id_was_discarded_leaves_nothing() -> None:
    seen = SeenIds(max_recent=1)
    seen.add(id_of(0))
    seen.discard(id_of(0))
    seen.add(id_of(0, producer="q"))
    assert seen.producers == 1
    assert seen.add(id_of(0))


def test_the_largest_ids() -> None:
    seen = SeenIds()
    for epoch in (0, INT_MAX):
        assert seen.add(id_of(INT_MAX, epoch=epoch))
        assert not seen.add(id_of(INT_MAX, epoch=epoch))
    assert id_of(0, epoch=1) not in seen
    assert SeenIds.from_data(seen.to_data()).to_data() == seen.to_data()
    msgspec.msgpack.encode(seen.to_data())


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"recent": 5, "resting": [], "closed": 0, "forgotten": 0},
        {"recent": [["p", [[0, 0], [0, 3]]]], "resting": [], "closed": 0, "forgotten": 0},
        {"recent": [["p", [[0, 9], [0, 3], [0, 4]]]], "resting": [], "closed": 0, "forgotten": 0},
        {"recent": [[7, [[0, 0]]]], "resting": [], "closed": 0, "forgotten": 0},
        {"recent": [], "resting": [["p", [0, -1]]], "closed": 0, "forgotten": 0},
        {"recent": [], "resting": [["p", ["x", 1]]], "closed": 0, "forgotten": 0},
    ],
)
def test_other_data_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="not a stored memory"):
        SeenIds.from_data(data)


@pytest.mark.parametrize("limits", [{"max_intervals": 0}, {"max_recent": 0}, {"max_resting": -1}])
def test_limits_that_leave_no_room_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(InvalidConfiguration):
        SeenIds(**limits)


@given(ACTS, st.integers(1, 9), st.integers(1, 2))
def test_when_forgetting_makes_new_an_unseen_id_never_counts_as_seen(
    acts: list[tuple[str, NotificationId]], max_intervals: int, max_recent: int
) -> None:
    seen = SeenIds(max_intervals=max_intervals, max_recent=max_recent, forget_as_new=True)
    ever = set[NotificationId]()
    for act, id in acts:
        if act == "add":
            assert seen.add(id) or id in ever
            ever.add(id)
            assert id in seen or id != max(i for i in ever if i.producer == id.producer)
        elif seen.discard(id):
            assert id in ever
            ever.remove(id)
        assert not seen.too_old(id)
        assert intervals(seen) <= max_intervals * max_recent
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(seen.to_data()))
    restored = SeenIds.from_data(
        stored, max_intervals=max_intervals, max_recent=max_recent, forget_as_new=True
    )
    assert restored.to_data() == seen.to_data() == seen.copy().to_data()


def test_when_forgetting_makes_new_the_newest_ids_are_still_known() -> None:
    seen = SeenIds(max_intervals=16, forget_as_new=True)
    for sequence in range(0, 200, 2):
        assert seen.add(id_of(sequence))
    assert not any(seen.add(id_of(sequence)) for sequence in range(172, 200, 2))
    assert seen.add(id_of(0)), "long forgotten, so taken for new"
    assert seen.closed > 0


def test_a_stored_floor_means_nothing_when_forgetting_makes_new() -> None:
    precise = SeenIds(max_intervals=1)
    for sequence in (1, 3, 5):
        precise.add(id_of(sequence))
    assert id_of(2) in precise
    forgetful = SeenIds.from_data(precise.to_data(), forget_as_new=True)
    assert id_of(2) not in forgetful
    assert id_of(5) in forgetful


@given(st.lists(st.lists(IDS, max_size=8), max_size=8), st.integers(1, 20), st.booleans())
def test_adding_many_is_adding_each(
    batches: list[list[NotificationId]], max_intervals: int, forget_as_new: bool
) -> None:
    one = SeenIds(max_intervals=max_intervals, max_total=8, forget_as_new=forget_as_new)
    all_ = one.copy()
    for ids in batches:
        assert all_.add_all(ids) == [i for i, id in enumerate(ids) if not one.add(id)]
        assert all_.to_data() == one.to_data()
