"""The sink inside of Spark: batches, and a stream whose batch is run again after it has failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from journal_filling_for_sinks import fill
from overlay_processes import LIMITS, BrokerProcess, Overlay
from pyspark.errors import PySparkException

from stentor.client.direct import Direct
from stentor.model import Notification, decode
from stentor.model.notification import MAX_VALUE_BYTES
from stentor.pipeline import publish, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def started(overlay: Overlay, *names: str) -> list[BrokerProcess]:
    found = [overlay.broker(name, limits=LIMITS) for name in names]
    for broker in found:
        broker.start()
    return found


def published(brokers: list[BrokerProcess]) -> list[Notification]:
    found = []
    for broker in brokers:
        with Direct(broker.address) as direct:
            (state,) = direct.streams()
            for stretch in direct.read(state.stream, 1, state.head):
                found += [decode(item) for item in stretch.items]
    return found


def test_a_table_is_published(spark: SparkSession, overlay: Overlay) -> None:
    brokers = started(overlay, "b1", "b2")
    addresses = ",".join(b.address for b in brokers)
    frame = spark.range(0, 1000, numPartitions=4).selectExpr(
        "id as n",
        "if(id % 2 = 0, 'even', null) as kind",
        "named_struct('x', id, 'y', cast(null as long)) as pos",
        "array(id, id + 1) as near",
        "timestamp_seconds(id) as _time",
        "if(id < 500, 'low', 'high') as _type",
        "'ignored' as _id",
    )
    frame.write.format("stentor").option("brokers", addresses).mode("append").save()
    found = published(brokers)
    assert sorted(n["n"] for n in found) == list(range(1000))
    for n in found:
        number = n["n"]
        kind = {"kind": "even"} if number % 2 == 0 else {}
        assert dict(n) == {"n": number, "pos.x": number, "near": (number, number + 1)} | kind
        assert n.type == ("low" if number < 500 else "high")
        assert n.time is not None
        assert n.time.timestamp() == number
    assert len({n.id.producer for n in found if n.id is not None}) == 4
    # What was published can be read, and published again, as it is.
    again = spark.read.format("stentor").load(addresses).where("_type = 'low'")
    again.write.format("stentor").option("brokers", addresses).mode("append").save()
    counts = Counter(n["n"] for n in published(brokers))
    assert counts == Counter([*range(1000), *range(500)])


def test_what_cannot_be_published_is_told(spark: SparkSession, overlay: Overlay) -> None:
    (broker,) = started(overlay, "b1")
    numbers = spark.range(10).selectExpr("id as n", "nullif(id, 7) as m", "current_date() as day")

    def write(frame: Any, mode: str = "append") -> None:
        frame.write.format("stentor").option("brokers", broker.address).mode(mode).save()

    with pytest.raises(PySparkException, match="cast it to timestamp, or to string"):
        write(numbers)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        write(numbers.select("n"), "overwrite")
    with pytest.raises(PySparkException, match=r"row 7 of partition 0.*all attributes are null"):
        write(numbers.select("m").coalesce(1))
    assert published([broker]) == []


def test_a_stream_that_fails_halfway_publishes_once(
    spark: SparkSession, overlay: Overlay, tmp_path: Path
) -> None:
    """The first run of each batch fails in one of its tasks, when others have published."""
    source, sink = started(overlay, "b1", "b2")
    marks = tmp_path / "marks"
    marks.mkdir()
    fill(source, range(3000))

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        mark = marks / str(context.getLocalProperty("streaming.sql.batchId"))
        yield from batches
        if context.partitionId() == 1 and not mark.exists():
            mark.touch()
            raise RuntimeError("the first time")

    def run() -> Any:
        events = (
            spark.readStream.format("stentor")
            .option("brokers", source.address)
            .option("maxRowsPerBatch", 1500)
            .schema("n long")
            .load()
        )
        shuffled = events.select("n").repartition(2, "n")
        query = (
            shuffled.mapInArrow(fails_once, "n long")
            .writeStream.format("stentor")
            .option("brokers", sink.address)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return query

    for _ in range(2):  # batches
        with pytest.raises(PySparkException, match="the first time"):
            run()
    query = run()
    found = published([sink])
    assert sorted(n["n"] for n in found) == list(range(3000))
    producers = {n.id.producer for n in found if n.id is not None}
    assert producers == {f"spark/{query.id}/{p}" for p in (0, 1)}
    # Another checkpoint is another query: its events are new ones.
    assert {n.id.epoch for n in found if n.id is not None} == {0, 1}


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_results_in_other_modes_are_published_batch_by_batch(
    spark: SparkSession, overlay: Overlay, tmp_path: Path, mode: str
) -> None:
    (broker,) = started(overlay, "b1")
    tables = tmp_path / "in"
    for number, ids in enumerate([(0, 4), (4, 6)]):
        frame = spark.range(*ids).selectExpr("id % 3 as key", "id as n")
        frame.coalesce(1).write.parquet(str(tables / f"{number}"))
    stream = (
        spark.readStream.schema("key long, n long")
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(str(tables))
    )
    refused = tmp_path / "refused"

    def send(batch: DataFrame, number: int) -> None:
        # A text that is too long for an attribute.
        text = f"repeat('x', if(key = 2, {MAX_VALUE_BYTES + 1}, 1)) as text"
        rows = batch.selectExpr("key", "count", text)
        publish(
            rows,
            brokers=broker.address,
            txnAppId=mode,
            txnVersion=number,
            deadLetters=refused,
        )

    query = (
        stream.groupBy("key")
        .count()
        .writeStream.foreachBatch(send)
        .outputMode(mode)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    found = Counter((n["key"], n["count"]) for n in published([broker]))
    first, second = (
        {(0, 2): 1, (1, 1): 1},
        {(1, 2): 1} | ({(0, 2): 1} if mode == "complete" else {}),
    )
    assert found == Counter(first) + Counter(second)
    dead = spark.read.parquet(str(refused))
    assert sorted((row._batch, row.key, row["count"]) for row in dead.collect()) == [
        (0, 2, 1),
        (1, 2, 2),
    ]
