"""What happens in Python workers: what they remember, where they compile, how they cut batches."""

import pickle
import subprocess
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stentor.filters import Filter, Operator, register_operator
from stentor.model.event_types import event_types
from stentor.pipeline.matching import index_plan, kernel_cache, packed_index, worker
from stentor.pipeline.matching.event_batches import events_batch
from stentor.pipeline.matching.packed_index import Packed
from stentor.pipeline.matching.subscriptions import from_pairs
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.matching.worker import Memory

EMPTY = Vocabulary(b"", b"")


class Thing:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class Broadcast:
    """Counts how often its value is fetched."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.fetched = 0

    @property
    def value(self) -> Any:
        self.fetched += 1
        return self._value


def small(*texts: str) -> Packed:
    ids = pa.array([f"s{number}" for number in range(len(texts))])
    return Packed.of(ids, [Filter(text) for text in texts], EMPTY)


def test_the_least_recently_used_is_forgotten_first() -> None:
    memory: Memory[Thing] = Memory(most=2, most_bytes=100)
    for name in "ab":
        memory.put(name, Thing(10))
    assert memory.get("a") is not None
    memory.put("c", Thing(10))
    assert memory.get("b") is None
    assert memory.get("a") is not None
    memory.put("large", Thing(1_000))
    assert len(memory) == 1
    assert memory.take("large") is not None
    assert memory.get("large") is None


def test_filters_are_fetched_once_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_known", Memory())
    monkeypatch.setattr(worker, "claim_kernel_cache", lambda: None)
    broadcasts = [Broadcast(small("x > 1")), Broadcast(small("x > 2"))]
    parts: list[Any] = [worker.Part(str(n), one) for n, one in enumerate(broadcasts)]
    batch = pa.array([1, 2, 3])
    for _ in range(3):
        for part, rows in zip(parts, ([[], ["s0"], ["s0"]], [[], [], ["s0"]]), strict=True):
            (found,) = worker.matched(part, ["x"], [batch])
            assert found.to_pylist() == rows
    assert [one.fetched for one in broadcasts] == [1, 1]


def test_a_batch_may_have_events_for_several_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_known", Memory())
    monkeypatch.setattr(worker, "claim_kernel_cache", lambda: None)
    parts: list[Any] = [
        worker.Part("first", Broadcast(small("x > 1"))),
        worker.Part("second", Broadcast(small("", "x < 2"))),
    ]
    batch = (pa.array([1, 2, 1, 2, 3]), pa.array([0, 0, 1, 1, 0]))
    found = pa.concat_arrays(list(worker.matched_in_shards(parts, ["x"], [batch])))
    assert [sorted(ids) for ids in found.to_pylist()] == [[], ["s0"], ["s0", "s1"], ["s0"], ["s0"]]


def test_many_matches_are_reported_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_index, "PAIRS_AT_A_TIME", 100)
    filters = small(*["" for _ in range(10)])
    batch = pa.record_batch({"x": pa.array(range(1_000))})
    portions = list(filters.id_lists(batch))
    assert [len(portion) for portion in portions] == 100 * [10]
    assert sum(len(portion.flatten()) for portion in portions) == 10_000


def test_portions_stay_small_where_many_matches_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wants the first events, and everybody those that come behind them in the batch."""
    monkeypatch.setattr(packed_index, "PAIRS_AT_A_TIME", 2_000)
    searched: list[int] = []
    filters = small(*[f"kind = 'hot' and x >= {n}" for n in range(100)])
    search = filters.index.match_batch

    def counted(batch: pa.RecordBatch) -> Any:
        found = search(batch)
        searched.append(len(found[0]))
        return found

    monkeypatch.setattr(filters.index, "match_batch", counted)
    mixed = events_batch(
        ["kind", "x", "x"],
        [
            pa.array(["cold"] * 30_000 + ["hot"] * 2_000 + ["cold"] * 8_000),
            pa.array(range(40_000)),
            pa.nulls(40_000, pa.string()),
        ],
    )
    portions = list(filters.id_lists(mixed))
    assert sum(len(portion) for portion in portions) == 40_000
    lengths = [len(ids) for portion in portions for ids in portion.to_pylist()]
    assert lengths == [0] * 30_000 + [100] * 2_000 + [0] * 8_000
    # What one row that is tried stands for may begin late, or end early.
    assert max(searched) <= 2_000 + 2 * 100 * packed_index._APART
    assert len(searched) < 150


def test_however_many_ids_there_are_they_fit_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_index, "MOST_IDS", 30)
    filters = small(*["" for _ in range(10)])
    portions = list(filters.id_lists(pa.record_batch({"x": pa.array(range(100))})))
    assert [len(portion) for portion in portions] == 33 * [3] + [1]
    assert all(len(ids) == 10 for portion in portions for ids in portion.to_pylist())


def test_the_more_filters_the_fewer_rows_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_index, "_TRIED_PAIRS", 400)
    index = small(*["" for _ in range(20)]).index
    batch = pa.record_batch({"x": pa.array(range(4_000))})
    assert list(packed_index.portions(index, batch)) == [(0, 2_560), (2_560, 4_000)]  # 20 rows each


def test_threads_may_match_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """More sets of filters than are remembered, so that all of them forget and make."""
    monkeypatch.setattr(index_plan, "_made", OrderedDict())
    context = SimpleNamespace(applicationId="app", broadcast=Broadcast)
    session: Any = SimpleNamespace(sparkContext=context)
    sets = [from_pairs({f"s{n}": f"x = {n}"}) for n in range(index_plan.REMEMBERED + 3)]

    def work(seed: int) -> None:
        for n in range(200):
            chosen = (seed * 7 + n) % len(sets)
            _, names = index_plan.part_of(session, sets[chosen])
            assert names == {"x"}

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert len(index_plan._made) == index_plan.REMEMBERED
    first, _ = index_plan.part_of(session, sets[0])
    assert index_plan.part_of(session, sets[0])[0] is first


def test_a_batch_without_rows_gives_nothing() -> None:
    batch = pa.record_batch({"x": pa.array([], pa.int64())})
    assert list(small("x > 1").id_lists(batch)) == []


def test_an_attribute_may_have_different_types_in_different_rows() -> None:
    columns = [pa.array([1, None, None]), pa.array([None, "1", None])]
    batch = events_batch(["x", "x"], columns)
    (found,) = small("x = 1", "x = '1'", "x is missing").id_lists(batch)
    assert found.to_pylist() == [["s0"], ["s1"], ["s2"]]


def test_wide_decimals_in_collections_are_the_numbers_that_are_published() -> None:
    kind = pa.list_(pa.decimal128(38))
    rows = [[Decimal(2**53 + 1), None], None, [Decimal(2**64)], [], [Decimal(1)] * 2]
    found = small(
        "x has 9007199254740993", "x has 9007199254740992", "x has 18446744073709551616.0"
    )
    column = pa.array(rows, kind)
    for batch in (
        events_batch(["x"], [column]),
        events_batch(["x", "x"], [column, pa.nulls(5, pa.string())]),
        events_batch(["x"], [pa.array([[Decimal(7)], *rows], kind).slice(1)]),
    ):
        (lists,) = found.id_lists(batch)
        assert lists.to_pylist() == [["s0"], [], ["s2"], [], []]
    many = events_batch(["x"], [pa.array(rows * 300, kind)])
    lists = pa.concat_arrays(list(found.id_lists(many)))
    assert lists.to_pylist() == [["s0"], [], ["s2"], [], []] * 300


def test_event_types_bring_their_supertypes() -> None:
    event_types.declare("quote.halt", parents=["matching_alert"])
    types = pa.array(["quote.halt", None, "quote", "no..type", "quote.halt"])
    (found,) = small("isa matching_alert", "isa quote").id_lists(events_batch(["_types"], [types]))
    assert [sorted(ids) for ids in found.to_pylist()] == [
        ["s0", "s1"],
        [],
        ["s1"],
        [],
        ["s0", "s1"],
    ]


def test_each_worker_compiles_into_a_directory_of_its_own(tmp_path: Path) -> None:
    first, its_folder = kernel_cache._claimed(tmp_path)
    its_folder.mkdir()
    (its_folder / "code").write_text("compiled")
    second, other_folder = kernel_cache._claimed(tmp_path)
    assert its_folder != other_folder
    assert (other_folder / "code").read_text() == "compiled"
    first.close()
    third, again = kernel_cache._claimed(tmp_path)
    assert again == its_folder
    second.close()
    third.close()


@pytest.mark.slow
def test_what_was_registered_is_registered_where_filters_arrive(tmp_path: Path) -> None:
    """In a process that has never run this program."""
    event_types.declare("quote.halt", parents=["matching_alert"])
    register_operator(Operator("even_above", "number", lambda v, least: v > least and v % 2 == 0))
    made = Packed.of(
        pa.array([1, 2]),
        [Filter("x even_above 1"), Filter("isa matching_alert")],
        Vocabulary.of_this_process(),
    )
    stored = tmp_path / "packed"
    stored.write_bytes(pickle.dumps(made))
    program = """
import pickle, sys, pyarrow as pa
from stentor.pipeline.matching.event_batches import events_batch
packed = pickle.load(open(sys.argv[1], "rb"))
batch = events_batch(["x", "_types"], [pa.array([4, 5]), pa.array(["quote", "quote.halt"])])
print([ids for part in packed.id_lists(batch) for ids in part.to_pylist()])
"""
    found = subprocess.run(
        [sys.executable, "-c", program, str(stored)], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[[1], [2]]"


def test_memory_is_counted() -> None:
    assert small("x > 1").nbytes < small(*[f"x > {n}" for n in range(1_000)]).nbytes
    assert np.iinfo(np.int64).max > small().nbytes >= 0
