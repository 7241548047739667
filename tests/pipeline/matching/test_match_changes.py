"""Subscriptions that change while events come: state, copies in workers, restarts.

Most of it is tried without Spark, with a state that lives in dictionaries and can be set back as
Spark does when a micro-batch is repeated; and with several workers, of which any may be next.
"""

import random
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import TimestampType

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.filters import Filter
from stentor.pipeline.matching import shard_index, shard_state
from stentor.pipeline.matching.parcels import (
    CHANGES,
    EVENTS,
    changes_parcels,
    events_parcels,
    opened_parcels,
    unwrapped,
)
from stentor.pipeline.matching.shard_index import BUCKETS, Change, Held, Layout
from stentor.pipeline.matching.shard_state import Keeper
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.matching.worker import Memory

LAYOUT = Layout(pa.string(), 2, {"n": (0,), "x": (1,)}, {"day": "column 'day' has the type date"})


class MapState:
    def __init__(self, entries: dict[Any, Any]) -> None:
        self.entries = entries
        self.reads = 0

    def getValue(self, key: tuple[Any]) -> Any:  # noqa: N802 (Spark's names)
        return self.entries.get(key)

    def updateValue(self, key: tuple[Any], value: tuple[Any]) -> None:  # noqa: N802
        self.entries[key] = value

    def removeKey(self, key: tuple[Any]) -> None:  # noqa: N802
        self.entries.pop(key, None)

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        self.reads += 1
        return iter(list(self.entries.items()))


class ValueState:
    def __init__(self, entries: dict[Any, Any]) -> None:
        self._entries = entries

    def get(self) -> Any:
        return self._entries.get("value")

    def update(self, value: tuple[Any, ...]) -> None:
        self._entries["value"] = value


class Shard:
    """The state of a shard, and workers that process its micro-batches."""

    def __init__(self, workers: int = 1, shards: int = 1, on_error: str = "fail") -> None:
        self.state: dict[str, dict[Any, Any]] = {}
        self.memories: list[Memory[Held]] = [Memory() for _ in range(workers)]
        self.shards = shards
        self.on_error = on_error
        self.layout = LAYOUT
        #: How often all subscriptions were read.
        self.reads = 0

    def getValueState(self, name: str, schema: str) -> ValueState:  # noqa: N802
        return ValueState(self.state.setdefault(name, {}))

    def getMapState(self, name: str, key: str, value: str) -> MapState:  # noqa: N802
        return MapState(self.state.setdefault(name, {}))

    def process(
        self,
        changes: list[tuple[Any, ...]],
        events: list[tuple[int, int | None]],
        worker: int = 0,
        names: tuple[str, ...] = ("id", "filter"),
    ) -> list[tuple[str, int]]:
        """A micro-batch: pairs of the ids of subscriptions and numbers of events."""
        keeper = Keeper(self.layout, self.shards, self.on_error, Vocabulary(b"", b""))
        keeper.init(self)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shard_state, "_copies", self.memories[worker])
            patch.setattr(shard_state, "claim_kernel_cache", lambda: None)
            rows = [*_rows(_events(events)), *_rows(_changes(changes, names))]
            found = [row.content for row in keeper.handleInputRows((0,), iter(rows), None)]
        self.reads += keeper._buckets.reads
        results = opened_parcels(
            [pa.record_batch({"content": pa.array(map(bytes, found), pa.binary())})],
            ["id", "n", "x"],
        )
        return [(r["id"], r["n"]) for batch in results for r in batch.to_pylist()]


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield Row(**row)


def _events(events: list[tuple[int, int | None]]) -> Iterator[pa.RecordBatch]:
    batch = pa.record_batch(
        {
            "n": pa.array([n for n, _ in events], pa.int64()),
            "x": pa.array([x for _, x in events], pa.int64()),
        }
    )
    return events_parcels([batch], 1)


def _changes(changes: list[tuple[Any, ...]], names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    columns: dict[str, Any] = {
        name: [change[i] for change in changes] for i, name in enumerate(names)
    }
    columns["id"] = pa.array(columns["id"], pa.string())
    columns["filter"] = pa.array(columns["filter"], pa.string())
    columns["shard"] = pa.array([0] * len(changes), pa.int32())
    columns["bucket"] = pa.array([hash(c[0]) % BUCKETS for c in changes], pa.int32())
    return changes_parcels([pa.record_batch(columns)]) if changes else iter(())


def brute_force(subscriptions: dict[str, str], events: list[tuple[int, int | None]]) -> set[Any]:
    parsed = [(id, Filter(text)) for id, text in subscriptions.items()]
    return {(id, n) for id, f in parsed for n, x in events if f.matches({"n": n, "x": x})}


@pytest.mark.parametrize("seed", range(4))
def test_any_history_gives_the_answer_of_brute_force(seed: int) -> None:
    """Workers take turns at random; some micro-batches fail at the end and are repeated."""
    choose = random.Random(seed)
    shard = Shard(workers=3)
    current: dict[str, str] = {}
    number = 0
    for _ in range(60):
        changes: list[tuple[str, str | None]] = []
        for _ in range(choose.choice((0, 0, 1, 3, 20))):
            text = choose.choice((None, "", "x = {}", "x > {}", "x < {} or x is missing"))
            changes.append((f"s{choose.randrange(40)}", text and text.format(choose.randrange(10))))
        events = [(number + i, choose.choice((None, *range(10)))) for i in range(5)]
        number += 5
        before = deepcopy(shard.state)
        for id, text in changes:
            current.pop(id, None)
            if text is not None:
                current[id] = text
        found = shard.process(changes, events, choose.randrange(3))
        if choose.random() < 0.3:
            shard.state = before
            found = shard.process(changes, events, choose.randrange(3))
        assert len(found) == len(set(found))
        assert set(found) == brute_force(current, events)


def test_a_micro_batch_without_changes_reads_no_subscriptions() -> None:
    shard = Shard()
    shard.process([("a", "x > 1"), ("b", "x > 2")], [])
    for _ in range(3):
        assert shard.process([], [(1, 2)]) == [("a", 1)]
    assert shard.reads == 0


def test_a_worker_that_has_missed_changes_catches_up() -> None:
    shard = Shard(workers=2)
    shard.process([(f"s{n}", f"x = {n}") for n in range(20)], [(1, 3)])
    assert shard.process([], [(2, 3)], worker=1) == [("s3", 2)]
    assert shard.reads == 1  # it had never seen any
    shard.process([("s3", None), ("late", "x = 3")], [])
    for n in range(5):
        shard.process([("s4", f"x = {100 + n}")], [])
    found = shard.process([("s5", "x = 103")], [(3, 104), (4, 103), (5, 3)], worker=1)
    assert sorted(found) == [("late", 5), ("s4", 3), ("s5", 4)]
    assert shard.reads == 1


def test_beyond_the_log_all_subscriptions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_state, "LOGGED", 3)
    shard = Shard(workers=2)
    for n in range(10):
        shard.process([(f"s{n}", f"x = {n}")], [])
    assert len(shard.state["log"]) == 3
    assert shard.process([], [(1, 0), (2, 9)], worker=1) == [("s0", 1), ("s9", 2)]
    assert shard.reads == 1


def test_many_changes_at_once_are_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_state, "LOGGED_CHANGES", 5)
    shard = Shard(workers=2)
    shard.process([(f"s{n}", f"x = {n}") for n in range(10)], [])
    assert all(len(changes) < 20 for (changes,) in shard.state["log"].values())
    assert shard.process([], [(1, 7)], worker=1) == [("s7", 1)]


def test_removed_subscriptions_leave_nothing_behind() -> None:
    shard = Shard()
    for _ in range(40):
        shard.process([(f"s{n}", f"x = {n}") for n in range(30)], [])
        shard.process([(f"s{n}", None) for n in range(30)], [])
    assert shard.state["buckets"] == {}
    assert len(shard.state["log"]) <= shard_state.LOGGED
    (held,) = shard.memories[0]._known.values()
    assert len(held) == 0
    assert len(held._ids) <= 30


def test_after_a_restart_events_may_have_other_columns() -> None:
    shard = Shard()
    shard.process([("a", "x = 1"), ("b", "n = 1")], [])
    shard.layout = Layout(pa.string(), 2, {"x": (0,), "n": (1,)}, {})  # the names are exchanged
    assert shard.process([], [(1, 2)]) == [("a", 1)]
    shard.layout = Layout(pa.string(), 2, {"n": (0,)}, {"x": "column 'x' has the type date"})
    with pytest.raises(PipelineDefinitionError, match="'a': column 'x' has the type date"):
        shard.process([], [(1, 1)])
    shard.on_error = "skip"
    assert shard.process([], [(1, 1)]) == [("b", 1)]


def test_what_cannot_be_used_now_stays_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its bucket is written anew, and if a worker learns of it by the log alone."""
    monkeypatch.setattr("test_match_changes.BUCKETS", 1)
    shard = Shard(workers=2, on_error="skip")
    shard.process([("a", "x = 1"), ("b", "n = 1"), ("gone", "x = 1")], [])
    usable = shard.layout
    shard.layout = Layout(pa.string(), 2, {"n": (0,)}, {"x": "column 'x' has the type date"})
    found = shard.process([("c", "n = 1"), ("gone", None)], [(1, 1)])
    assert sorted(found) == [("b", 1), ("c", 1)]
    found = shard.process([("d", "n = 1")], [(1, 1)], worker=1)
    assert sorted(found) == [("b", 1), ("c", 1), ("d", 1)]
    assert ("b", 1) in shard.process([("a", "x = 1"), ("e", "x = 1")], [(1, 1)])
    shard.layout = usable
    found = shard.process([], [(1, 1)], worker=1)
    assert sorted(found) == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]


def test_ids_may_be_times() -> None:
    kind = to_arrow_type(TimestampType(), timezone="UTC")
    moment = datetime(2024, 7, 1, 12, 30, 0, 250, tzinfo=UTC)
    held = Held(LAYOUT._replace(id_type=kind))
    held.apply([Change(moment, "x = 1", 3)])
    content = held.bucket(3)
    assert content is not None
    again = Held(LAYOUT._replace(id_type=kind))
    again.load(3, content)
    (matched,) = again.matches(pa.record_batch({"n": [7, 8], "x": [1, 2]}))
    assert matched.column(0).to_pylist() == [moment]


def test_matches_are_put_together_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_index, "_MATCHED_BYTES", 1_000)
    held = Held(LAYOUT)
    held.apply([Change(f"s{n}", f"x >= {n}", 0) for n in range(50)])
    events = pa.record_batch({"n": pa.array(range(300)), "x": pa.array([10] * 300)})
    found = list(held.matches(events))
    assert max(one.num_rows for one in found) == 1_000 // 16
    pairs = [(row["0"], row["1"]) for one in found for row in one.to_pylist()]
    assert sorted(pairs) == sorted((f"s{n}", event) for n in range(11) for event in range(300))


def test_the_last_change_of_a_micro_batch_counts() -> None:
    shard = Shard()
    changes = [("a", "x = 1"), ("a", None), ("a", "x = 2"), ("b", "x = 2"), ("b", None)]
    assert shard.process(changes, [(1, 1), (2, 2)]) == [("a", 2)]


def test_the_change_of_highest_order_counts() -> None:
    shard = Shard()
    changes = [("a", "x = 1", 9), ("a", "x = 2", 3), ("b", "x = 2", 1), ("b", "x = 1", None)]
    names = ("id", "filter", "order")
    assert sorted(shard.process(changes, [(1, 1), (2, 2)], names=names)) == [("a", 1), ("b", 2)]


def test_a_change_that_does_not_parse_ends_the_query_or_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes: list[tuple[Any, ...]] = [("a", "x >> 1"), ("b", "x = 1"), ("c", "day = 1")]
    strict = Shard()
    with pytest.raises(PipelineDefinitionError, match="2 subscriptions cannot be used") as caught:
        strict.process(changes, [])
    assert "'a'" in str(caught.value)
    assert "'c': column 'day' has the type date" in str(caught.value)
    lenient = Shard(on_error="skip")
    lenient.process([("a", "x = 1")], [])
    assert sorted(lenient.process(changes, [(1, 1)])) == [("a", 1), ("b", 1)]
    assert "the change of subscription 'a' is left out" in caplog.text
    assert lenient.process([("a", None)], [(2, 1)], 0) == [("b", 2)]


def test_the_number_of_shards_belongs_to_the_checkpoint() -> None:
    shard = Shard(shards=4)
    shard.process([("a", "x = 1")], [])
    shard.shards = 5
    with pytest.raises(PipelineError, match="say shards=4"):
        shard.process([], [(1, 1)])


def test_a_change_to_what_already_is_changes_nothing() -> None:
    held = Held(LAYOUT)
    assert held.apply([Change("a", "x = 1", 0)]) == [Change("a", "x = 1", 0)]
    assert held.apply([Change("a", "x = 1", 0), Change("b", None, 0)]) == []


def test_large_batches_go_in_several_parcels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stentor.pipeline.matching.parcels.PARCEL_BYTES", 800)
    batch = pa.record_batch({"n": pa.array(range(250))})
    parcels = pa.Table.from_batches(list(events_parcels([batch], 2)))
    assert parcels.column("shard").to_pylist() == [0, 1] * 3
    assert set(parcels.column("kind").to_pylist()) == {EVENTS} != {CHANGES}
    contents = [unwrapped(content) for content in parcels.column("content").to_pylist()]
    assert [one.num_rows for one in contents] == [100, 100, 100, 100, 50, 50]
    assert [n for one in contents[::2] for n in one.column(0).to_pylist()] == list(range(250))
