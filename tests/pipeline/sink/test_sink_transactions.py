"""A batch that is written again under the same name and version is there once, or is refused."""

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
from pyspark.sql.types import StructType

from stentor.client.direct import Direct
from stentor.errors import InvalidConfiguration, PipelineError
from stentor.model import Notification, decode
from stentor.pipeline import publish, register
from stentor.pipeline.sink import BatchWriter, StreamWriter
from stentor.pipeline.sink.transactions import SLOT, by_slot
from stentor.pipeline.source.options import WriteIdentity, transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def started(overlay: Overlay, *names: str) -> list[BrokerProcess]:
    found = [overlay.broker(name, limits=LIMITS) for name in names]
    for broker in found:
        broker.start()
    return found


def events(*brokers: BrokerProcess) -> list[Notification]:
    found = []
    for broker in brokers:
        with Direct(broker.address) as direct:
            (state,) = direct.streams()
            for stretch in direct.read(state.stream, 1, state.head):
                found += [decode(item) for item in stretch.items]
    return found


def write(frame: DataFrame, *brokers: BrokerProcess, **options: Any) -> None:
    publish(frame, brokers=[broker.address for broker in brokers], **options)


@pytest.mark.slow
def test_a_batch_of_foreach_batch_that_is_run_again_is_there_once(
    spark: SparkSession, overlay: Overlay, tmp_path: Path
) -> None:
    """The driver fails behind the write, then in the middle of one; partitions differ each time."""
    register(spark)
    source, b1, b2 = started(overlay, "source", "b1", "b2")
    fill(source, range(3_000))
    attempts: list[int] = []
    marks = tmp_path / "marks"

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 2_500 in batch.column("n").to_pylist() and not marks.exists():
                marks.touch()
                raise RuntimeError("in the middle")
            yield batch

    def send(batch: DataFrame, number: int) -> None:
        attempts.append(number)
        # Every row twice: equal rows are counted, not taken for one.
        rows = batch.select("n").union(batch.select("n")).repartition(len(attempts))
        if number == 1:
            rows = rows.mapInArrow(fails_once, "n long")
        write(rows, b1, b2, txnAppId="doubled", txnVersion=number)
        if len(attempts) == 1:
            raise RuntimeError("behind the write")

    def run() -> None:
        query = (
            spark.readStream.format("stentor")
            .option("brokers", source.address)
            .option("maxRowsPerBatch", 2_000)
            .schema("n long")
            .load()
            .writeStream.foreachBatch(send)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(300)

    with pytest.raises(PySparkException, match="behind the write"):
        run()
    assert len(events(b1, b2)) == 4_000
    with pytest.raises(PySparkException, match="in the middle"):
        run()
    run()
    assert attempts == [0, 0, 1, 1]
    assert Counter(event["n"] for event in events(b1, b2)) == Counter([*range(3_000)] * 2)


def test_what_cannot_be_the_same_batch_is_refused(spark: SparkSession, overlay: Overlay) -> None:
    register(spark)
    (broker,) = started(overlay, "b1")
    frame = spark.range(40, numPartitions=2).selectExpr("id as n", "'a' as side")
    write(frame, broker, txnAppId="x", txnVersion=3)
    # In other partitions, and another order, it is the same.
    write(frame.orderBy("n", ascending=False), broker, txnAppId="x", txnVersion=3)
    assert len(events(broker)) == 40
    others = (
        frame.withColumn("n", frame.n + 1000),  # as many, but others
        frame.where("n < 39"),
        frame.selectExpr("n", "if(n = 7, 'b', side) as side"),
    )
    for other in others:
        with pytest.raises((PipelineError, PySparkException), match=r"did not come again.*txnKey"):
            write(other, broker, txnAppId="x", txnVersion=3)
    assert len(events(broker)) == 40  # it was noticed before anything was published
    # With a key, what else a row says may differ: what was published first counts.
    keyed = {"txnAppId": "keyed", "txnVersion": 1, "txnKey": "n"}
    write(frame.where("n < 20"), broker, **keyed)
    write(frame.selectExpr("n", "uuid() as side"), broker, **keyed)
    found = Counter(event["n"] for event in events(broker))
    assert found == Counter([*range(40)] * 2)
    with pytest.raises(PipelineError, match=r"version 3 of 'x' was written.*another txnAppId"):
        write(frame, broker, txnAppId="x", txnVersion=2)
    with pytest.raises(PipelineError, match=r"txnKey names 'm'.*there are n, side"):
        write(frame, broker, txnAppId="x", txnVersion=4, txnKey="m")
    with pytest.raises(InvalidConfiguration, match="needs both txnAppId"):
        write(frame, broker, txnVersion=4)
    # The next version is new, and so is every write that is no transaction.
    write(frame, broker, txnAppId="x", txnVersion=4)
    write(frame, broker)
    write(frame, broker)
    assert len(events(broker)) == 80 + 3 * 40


def test_who_does_not_know_of_slots_is_told() -> None:
    options = {"brokers": "127.0.0.1:7411", "txnAppId": "x", "txnVersion": "1"}
    schema = StructType().add("n", "long")
    with pytest.raises(PipelineError, match=r"write stentor\.pipeline\.publish"):
        BatchWriter(schema, options, False)
    with pytest.raises(PipelineError, match="leave out txnAppId"):
        StreamWriter(schema, options, False)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"txnAppId": "x"}, "needs both"),
        ({"txnAppId": " ", "txnVersion": "1"}, "needs both"),
        ({"txnKey": "n"}, "txnKey is given"),
        ({"txnAppId": "x", "txnVersion": "one"}, "txnVersion=one: give a number"),
        ({"txnAppId": "x", "txnVersion": "-1"}, "txnVersion=-1: give a number"),
    ],
)
def test_mistakes_in_the_options_are_told(options: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidConfiguration, match=error):
        transaction(options)


def test_options_are_read() -> None:
    assert transaction({"brokers": "b:1"}) is None
    found = transaction({"TXNAPPID": "x", "txnversion": "7", "txnKey": "a,b"})
    assert found == WriteIdentity("x", 7, ("a", "b"))


def test_rows_are_taken_apart_by_slot() -> None:
    batches = [
        pa.record_batch({"n": [1, 2, 3], SLOT: [0, 0, 2]}),
        pa.record_batch({"n": [4, 5], SLOT: [2, 5]}),
    ]
    found = [
        (slot, [n for piece in pieces for n in piece.column("n").to_pylist()])
        for slot, pieces in by_slot(iter(batches))
    ]
    assert found == [(0, [1, 2]), (2, [3, 4]), (5, [5])]
    with pytest.raises(PipelineError, match="slot 0 do not come together"):
        list(by_slot(iter([*batches, batches[0]])))
