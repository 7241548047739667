"""Notification identity (R-01.13)."""

import copy
import doctest
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.errors import InvalidValue
from stentor.model import identity
from stentor.model.identity import IdSource, NotificationId
from stentor.model.values import INT_MAX

numbers = st.integers(0, INT_MAX)
producers = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=60)
ids = st.builds(NotificationId, producers, numbers, numbers)


def test_doctests():
    result = doctest.testmod(identity)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.spec("R-01.13")
@given(ids)
def test_written_form_reads_back(n_id):
    assert NotificationId.parse(str(n_id)) == n_id


@pytest.mark.spec("R-01.13")
@given(ids, ids)
def test_one_written_form_per_id(a, b):
    assert (str(a) == str(b)) == (a == b)
    assert (hash(a) == hash(b)) or a != b


@pytest.mark.spec("R-01.13")
@given(producers, numbers, numbers, numbers, numbers)
def test_ids_of_a_producer_sort_by_epoch_then_sequence(producer, e1, s1, e2, s2):
    a, b = NotificationId(producer, e1, s1), NotificationId(producer, e2, s2)
    assert (a < b) == ((e1, s1) < (e2, s2))


def test_a_producer_may_hold_colons():
    n_id = NotificationId("host:80:1", 2, 3)
    assert NotificationId.parse("host:80:1:2:3") == n_id


@pytest.mark.parametrize(
    "text",
    [
        *("", "p", "p:1", ":1:2", "p:1:", "p::2", "p:-1:2", "p:1:02", "p:+1:2", "p:1:2 "),
        *("p:1_0:2", "p:1:\u0663", "p\n:1:2", "p:1:2\n"),
        *(f"p:1:{INT_MAX + 1}", "p:1:99999999999999999999"),
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(InvalidValue):
        NotificationId.parse(text)


@pytest.mark.parametrize(
    ("producer", "epoch", "sequence"),
    [
        ("", 0, 0),
        ("a\n", 0, 0),
        ("a\ud800", 0, 0),
        ("x" * 256, 0, 0),
        (b"p", 0, 0),
        ("p", -1, 0),
        ("p", 0, -1),
        ("p", INT_MAX + 1, 0),
        ("p", 0, INT_MAX + 1),
        ("p", True, 0),
        ("p", 0, 1.0),
        ("p", None, 0),
    ],
)
def test_impossible_ids_are_refused(producer, epoch, sequence):
    with pytest.raises(InvalidValue):
        NotificationId(producer, epoch, sequence)


def test_immutable_and_copyable():
    n_id = NotificationId("p", 1, 2)
    with pytest.raises(AttributeError):
        n_id.sequence = 3
    assert pickle.loads(pickle.dumps(n_id)) == n_id == copy.deepcopy(n_id)
    assert n_id != ("p", 1, 2)


@pytest.mark.spec("R-01.13")
def test_a_source_counts_within_its_epoch():
    source = IdSource("p", 7)
    assert (source.producer, source.epoch) == ("p", 7)
    assert [i.sequence for i in islice(source, 4)] == [0, 1, 2, 3]
    assert next(source) == NotificationId("p", 7, 4)
    assert next(IdSource("p", 7, start=5)) == NotificationId("p", 7, 5)


@pytest.mark.spec("R-01.13")
def test_a_new_epoch_never_repeats_an_id():
    first = set(islice(IdSource("p", 1), 100))
    second = set(islice(IdSource("p", 2), 100))
    assert not first & second
    assert max(first) < min(second)


@pytest.mark.spec("R-01.13")
def test_threads_never_get_the_same_id():
    source = IdSource("p", 0)
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: [next(source) for _ in range(500)], range(8)))
    assert len({n_id for part in taken for n_id in part}) == 4000


def test_a_source_checks_its_arguments_and_ends_at_the_last_number():
    with pytest.raises(InvalidValue, match="producer"):
        IdSource("", 0)
    with pytest.raises(InvalidValue, match="epoch"):
        IdSource("p", -1)
    source = IdSource("p", 0, start=INT_MAX)
    assert next(source).sequence == INT_MAX
    with pytest.raises(InvalidValue, match="sequence"):
        next(source)


def test_parts_may_be_given_by_name():
    assert NotificationId(sequence=2, epoch=1, producer="p") == NotificationId("p", 1, 2)


@pytest.mark.parametrize(
    "parts",
    [["p", -1, 2], ["p", 1, INT_MAX + 1], ["p", True, 2], ["p", 1.0, 2], ["p", 1], [5, 1, 2]],
)
def test_a_decoder_holds_the_numbers_to_their_bounds(parts):
    data = msgspec.msgpack.encode(parts)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=NotificationId)


def test_the_memory_of_producers_is_bounded():
    for i in range(5_000):
        NotificationId(f"producer-{i}", 0, 0)
    assert len(identity.good_producers) <= 4_096
    with pytest.raises(InvalidValue):
        NotificationId("", 0, 0)
