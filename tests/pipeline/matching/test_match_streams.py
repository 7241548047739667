"""`match` on streams: micro-batches on every plan, and subscriptions that are a stream, too."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.filters import Filter
from stentor.pipeline.matching import match

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

EVENTS = pa.schema(
    [
        ("n", pa.int64()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("pos", pa.struct([("x", pa.int64())])),
        ("tags", pa.list_(pa.string())),
    ]
)
CHANGES = pa.schema([("subscription_id", pa.string()), ("filter", pa.string())])


class Folder:
    """Files that become a stream, one micro-batch for each."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.mkdir()
        self._path = path
        self._schema = schema
        self._count = 0

    def add(self, rows: list[dict[str, Any]]) -> None:
        self._count += 1
        hidden = self._path / f"_{self._count}"
        pq.write_table(pa.Table.from_pylist(rows, self._schema), hidden)
        hidden.rename(self._path / f"{self._count:03}.parquet")

    def stream(self, spark: SparkSession) -> DataFrame:
        example = spark.createDataFrame(self._schema.empty_table())
        reader = spark.readStream.schema(example.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._path))


def event(n: int) -> dict[str, Any]:
    return {
        "n": n,
        "price": n % 10 + 0.5 if n % 7 else None,
        "pos": {"x": n % 3} if n % 2 else None,
        "tags": ["a", "b"][: n % 3],
    }


def brute_force(subscriptions: dict[str, str], numbers: range) -> set[tuple[str, int]]:
    parsed = [(id, Filter(text)) for id, text in subscriptions.items()]
    return {(id, n) for n in numbers for id, f in parsed if f.matches(event(n))}


def run(matches: DataFrame, folder: Path) -> None:
    """Process what there is, and end."""
    query = (
        matches.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def written(spark: SparkSession, folder: Path) -> list[tuple[str, int]]:
    rows = spark.read.parquet(str(folder / "out")).collect()
    for row in rows:  # the whole event is there
        assert event(row.n)["price"] == row.price
        assert event(row.n)["tags"] == row.tags
        assert (event(row.n)["pos"] or {}).get("x") == (row.pos and row.pos.x)
    return [(row.subscription_id, row.n) for row in rows]


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    yield
    spark.conf.set(PROVIDER, str(before))


def test_a_stream_of_events_is_matched_on_every_plan(spark: SparkSession, tmp_path: Path) -> None:
    subscriptions = {"dear": "price > 5", "there": "pos.x = 1", "tagged": "tags has 'b'", "all": ""}
    events = Folder(tmp_path / "events", EVENTS)
    for start in (0, 20):
        events.add([event(n) for n in range(start, start + 20)])
    stream = events.stream(spark)
    plans = ("native", "index", "sharded")
    matches = [
        match(stream, {f"{plan} {id}": text for id, text in subscriptions.items()}, plan=plan)
        for plan in plans
    ]
    assert all(one.isStreaming for one in matches)
    run(matches[0].union(matches[1]).union(matches[2]), tmp_path)
    found = written(spark, tmp_path)
    assert len(found) == len(set(found))
    expected = brute_force(subscriptions, range(40))
    assert set(found) == {(f"{plan} {id}", n) for plan in plans for id, n in expected}


@pytest.mark.slow
def test_subscriptions_may_change_and_queries_be_restarted(
    spark: SparkSession, rocksdb: None, tmp_path: Path
) -> None:
    events = Folder(tmp_path / "events", EVENTS)
    changes = Folder(tmp_path / "changes", CHANGES)
    matches = match(events.stream(spark), changes.stream(spark), shards=2)
    current: dict[str, str] = {}
    expected: set[tuple[str, int]] = set()
    steps: list[dict[str, str | None]] = [
        {**{f"s{n}": f"price > {n % 10}" for n in range(30)}, "x": "pos.x = 1 and tags has 'a'"},
        {**{f"s{n}": None for n in range(25)}, "s27": "pos.x = 2", "new": "price is missing"},
    ]
    for number, step in enumerate(steps):
        changes.add([{"subscription_id": id, "filter": text} for id, text in step.items()])
        current.update({id: text for id, text in step.items() if text is not None})
        for id in [id for id, text in step.items() if text is None]:
            del current[id]
        numbers = range(100 * number, 100 * number + 60)
        events.add([event(n) for n in numbers])
        expected |= brute_force(current, numbers)
        run(matches, tmp_path)
    found = written(spark, tmp_path)
    assert len(found) == len(set(found))
    assert set(found) == expected


@pytest.mark.slow
def test_ids_of_changing_subscriptions_may_be_times(
    spark: SparkSession, rocksdb: None, tmp_path: Path
) -> None:
    times = [datetime(2024, 7, 1, 12, 30, n, 250, tzinfo=UTC) for n in range(3)]
    schema = pa.schema([("subscription_id", pa.timestamp("us", "UTC")), ("filter", pa.string())])
    events = Folder(tmp_path / "events", EVENTS)
    changes = Folder(tmp_path / "changes", schema)
    matches = match(events.stream(spark), changes.stream(spark), shards=2)
    for number, moment in enumerate(times):
        changes.add([{"subscription_id": moment, "filter": f"n >= {number}"}])
        events.add([event(number)])
        run(matches, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()
    found = {(row["subscription_id"], row["n"]) for row in rows}
    assert found == {(times[a], b) for a in range(3) for b in range(a, 3)}


def test_what_a_stream_of_subscriptions_needs_is_said(spark: SparkSession, tmp_path: Path) -> None:
    events = Folder(tmp_path / "events", EVENTS).stream(spark)
    changes = Folder(tmp_path / "changes", CHANGES).stream(spark)
    with pytest.raises(PipelineError, match="kept in RocksDB"):
        match(events, changes)
    with pytest.raises(PipelineDefinitionError, match="but the events are not"):
        match(spark.range(1), changes)
    with pytest.raises(PipelineDefinitionError, match="have a plan of their own"):
        match(events, changes, plan="index")
    with pytest.raises(PipelineDefinitionError, match="on_error='maybe'"):
        match(events, changes, on_error="maybe")
    with pytest.raises(PipelineDefinitionError, match="no column 'version'"):
        match(events, changes, order="version")
