"""The order of events is restored, in batches and in streams."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from event_files import Event, batch, drained, event, stream

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.model import NotificationId
from stentor.pipeline.steps import deduplicate, order, watermark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "big long, ratio double, tags array<string>, pos struct<x: int, at: timestamp>, raw binary, "
    "symbol string, _id string, _time timestamp"
)


def published(seed: int, count: int) -> list[tuple[float, Event]]:
    """Events of three producers with the times at which they arrive, some much too late."""
    rng = random.Random(seed)
    found = []
    for producer in ("a", "b:c", "d"):
        time = 0.0
        for number in range(count):
            time += rng.random()
            each = event(
                f"{producer}:{number // 20}:{number % 20}",
                time - (3 if rng.random() < 0.05 else 0),  # the clock was set back
                symbol=rng.choice("xyz"),
                big=rng.choice([None, 2**60 + number]),
                ratio=rng.choice([None, 0.1 * number, float("inf")]),
                tags=rng.choice([None, [], ["ü", 'a"b']]),
                pos=rng.choice([None, {"x": number, "at": "2026-11-01T05:30:00.123456Z"}]),
                raw=rng.choice([None, "AAH/"]),
            )
            late = 20 if rng.random() < 0.06 else 4 * rng.random()
            found.append((time + late, each))
    return sorted(found, key=lambda pair: pair[0])


def in_order(ids: list[str]) -> bool:
    """Whether each producer's ids ascend."""
    parsed = [NotificationId.parse(id) for id in ids]
    for producer in {id.producer for id in parsed}:
        own = [id for id in parsed if id.producer == producer]
        if own != sorted(own):
            return False
    return True


@pytest.mark.slow
@pytest.mark.spec("01/T-9")
def test_a_stream_comes_out_in_the_order_of_its_producers(
    spark: "SparkSession", tmp_path: Path
) -> None:
    arrivals = [each for _, each in published(1, 60)]
    end = event("end:0:0", 500, symbol="x")
    batches = [arrivals[i : i + 45] for i in range(0, len(arrivals), 45)]
    events = stream(spark, tmp_path / "in", [*batches, [end]], SCHEMA)
    rows = [row for rows in drained(order(events, "5 seconds", late="was_late")) for row in rows]
    timely = [row["_id"] for row in rows if not row["was_late"]]
    assert in_order(timely)
    # Nothing is lost: the last one, which nothing has pushed out, is still in its buffer.
    assert sorted(row["_id"] for row in rows) == sorted(each["_id"] for each in arrivals)
    late = [row["_id"] for row in rows if row["was_late"]]
    assert 0 < len(late) < 15
    # And nothing has changed on the way.
    arrived = {
        row["_id"]: row for row in spark.read.schema(SCHEMA).json(str(tmp_path / "in")).collect()
    }
    for row in rows:
        assert row[:-1] == arrived[row["_id"]]


@pytest.mark.slow
def test_late_events_are_left_out_and_counted(spark: "SparkSession", tmp_path: Path) -> None:
    batches = [
        [event("p:0:0", 0), event("p:0:2", 20)],
        [event("p:0:4", 100)],
        [event("p:0:3", 80)],  # lets the first two go
        [event("p:0:1", 10), event("p:0:5", 200), event("slow:0:0", 1)],
        [event("p:0:6", 300)],
    ]
    events = stream(spark, tmp_path / "in", batches, SCHEMA)
    found: list[str] = []

    def collect(rows: object, number: int) -> None:
        found.extend(row["_id"] for row in rows.collect())  # type: ignore[attr-defined]

    writer = order(events, "30 seconds", by="all").writeStream.foreachBatch(collect)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    # By the time of all, what a slow broker brings is late, too.
    assert found == ["p:0:0", "p:0:2", "p:0:3", "p:0:4", "p:0:5"]
    counted = [
        row["late"]
        for progress in query.recentProgress
        for row in progress.observedMetrics.values()
    ]
    assert sum(counted) == 2


def test_a_batch_is_sorted_as_a_whole(spark: "SparkSession") -> None:
    arrivals = [each for _, each in published(5, 40)]
    rows = order(batch(spark, arrivals, "symbol string, _id string, _time timestamp")).collect()
    assert len(rows) == len(arrivals)
    assert in_order([row["_id"] for row in rows])
    # Time decides, as far as the producers' own order lets it.
    effective: dict[str, float] = {}
    sorted_by = []
    for row in rows:
        producer = NotificationId.parse(row["_id"]).producer
        latest = max(effective.get(producer, 0.0), row["_time"].timestamp())
        effective[producer] = latest
        sorted_by.append(latest)
    assert sorted_by == sorted(sorted_by)


def test_mistakes_are_told(spark: "SparkSession", tmp_path: Path) -> None:
    short = watermark(stream(spark, tmp_path / "none", [], SCHEMA), "1 second")
    for step in (order, deduplicate):
        with pytest.raises(PipelineError, match="needs one of 60 seconds"):
            step(short, "1 minute")
    table = batch(spark, [], "symbol string, _id string, _time timestamp")
    with pytest.raises(PipelineDefinitionError, match="producer or all"):
        order(table, by="symbol")
    with pytest.raises(PipelineError, match="'symbol' already"):
        order(table, late="symbol")
    with pytest.raises(PipelineError, match="_id"):
        order(table.drop("_id"))
    with pytest.raises(PipelineDefinitionError, match="limit"):
        order(table, limit=0)
