"""Writes that are one: a batch that is written again under the same name and version is there once.

Inside of `foreachBatch`, a write does not know which micro-batch it is for. A query that is started
anew runs the last one again, and its rows would be other events. So the user says which batch it
is: `txnAppId` names the writer and `txnVersion` is the number of the batch, as in Delta.

*Identity.* A sink tells rows apart by who publishes them. Partitions cannot be that here: how rows
are spread over them depends on settings, on sizes, and on the cluster. So a row belongs to one of
a few *slots* by a hash of what it says, or of the columns that `txnKey` names. Each slot is a
producer, and the version its epoch. A shuffle brings the rows of a slot together, wherever they
were. Equal rows are in the same slot, so they can be counted.

*Again.* If anything is there under this name and version, an earlier attempt has begun. Then there
are two jobs. The first publishes nothing: it reads back what is there, slot by slot, and raises if
some of it does not come again, as from a query that gives other rows each time. Only then the
second publishes what is missing. A version below one that was written is an error: brokers would
take none of it.

Spark gives sinks in Python no way to ask for a shuffle, so `df.write` cannot begin a transaction by
itself: `publish` puts the rows into their slots and then writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from stentor.errors import PipelineError
from stentor.model.identity import check_producer
from stentor.pipeline.columns import RowEncoder
from stentor.pipeline.filters.sql import quoted
from stentor.pipeline.sink.large_partitions import other_rows
from stentor.pipeline.sink.partitions import published
from stentor.pipeline.sink.tasks import Task
from stentor.pipeline.source.options import VERIFY, WriteIdentity, connecting, transaction

#: How many slots there are. It is part of what rows are known by, so it never changes.
SLOTS: Final = 8
SLOT: Final = "__slot"


def slot_task(transaction: WriteIdentity, slot: int) -> Task:
    """Who publishes the rows of a slot."""
    return Task(f"txn/{transaction.app}", transaction.version, slot, True, transaction.key)


def by_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """The rows of a partition, slot by slot."""
    seen: set[int] = set()
    for slot, some in groupby(_pieces(batches), key=itemgetter(0)):
        if slot in seen:
            raise PipelineError(f"the rows of slot {slot} do not come together")
        seen.add(slot)
        yield slot, (piece for _, piece in some)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        slots = batch.column(SLOT).to_pylist()
        rest = batch.drop_columns([SLOT])
        at = 0
        for slot, same in groupby(slots):
            count = sum(1 for _ in same)
            yield int(slot), rest.slice(at, count)
            at += count


def without_slot(schema: StructType) -> StructType:
    """The columns that are published; `PipelineError` if rows were not put into slots."""
    if SLOT not in schema.fieldNames():
        raise PipelineError(
            "txnAppId needs the rows in an order that df.write does not give them: write "
            "stentor.pipeline.publish(df, brokers=..., txnAppId=..., txnVersion=...) instead"
        )
    return StructType([field for field in schema.fields if field.name != SLOT])


def slotted(frame: DataFrame, key: tuple[str, ...] = ()) -> DataFrame:
    """The rows with their slots, those of each slot together."""
    missing = [name for name in key if name not in frame.columns]
    if missing:
        raise PipelineError(
            f"txnKey names {missing[0]!r}, which is not a column; there are "
            f"{', '.join(frame.columns)}"
        )
    columns = [F.col(quoted(name)) for name in key or frame.columns]
    slot = F.pmod(F.xxhash64(*columns), F.lit(SLOTS)).cast("int")
    return frame.withColumn(SLOT, slot).repartition(SLOT).sortWithinPartitions(SLOT)


def publish(frame: DataFrame, *, brokers: str | Iterable[str], **options: Any) -> None:
    """Publish the rows of a table; once for each `txnAppId` and `txnVersion`, if they are given.

        def send(batch, number):
            publish(batch, brokers="127.0.0.1:7411", txnAppId="bars", txnVersion=number)

        bars.writeStream.foreachBatch(send).option("checkpointLocation", "bars").start()

    So results go out in any output mode: what is new, what has changed, or all of it anew.

    brokers       addresses, separated by commas or as a list
    txnAppId      who writes: one name for each query and each table that it writes
    txnVersion    which batch; a lower one than was written before is refused
    txnKey        columns that tell the rows of a batch apart; all by default
    deadLetters   where rows go that cannot be published; without it they are an error
    options       the others of `format("stentor")`, such as token and trust
    """
    if frame.isStreaming:
        raise PipelineError(
            'a stream is published by frame.writeStream.format("stentor"), or batch by batch by '
            "publish in foreachBatch"
        )
    addresses = brokers if isinstance(brokers, str) else ",".join(brokers)
    given = {k: str(v) for k, v in options.items() if v is not None} | {"brokers": addresses}
    found = transaction(given)
    if found is None:
        _write(frame, given)
    else:
        _write_once(frame, found, given)


def _write_once(frame: DataFrame, transaction: WriteIdentity, options: dict[str, str]) -> None:
    """Write a transaction: first compare, if an earlier attempt has begun; then publish."""
    RowEncoder(frame.schema)
    check_producer(slot_task(transaction, 0).producer)
    connected = connecting(options)
    tasks = [slot_task(transaction, slot) for slot in range(SLOTS)]
    found = {task.partition: published(task, connected) for task in tasks}
    newest = max(version for version, _ in found.values())
    if newest > transaction.version:
        raise PipelineError(
            f"version {newest} of {transaction.app!r} was written, so {transaction.version} cannot "
            "be any more. If it is another query, or the same with a new checkpoint, give it "
            "another txnAppId"
        )
    there = {slot: n for slot, (version, n) in found.items() if version == transaction.version}
    rows = slotted(frame, transaction.key)
    if there:
        counts = {row[SLOT]: row["count"] for row in rows.groupBy(SLOT).count().collect()}
        for slot, count in there.items():
            if counts.get(slot, 0) < count:
                gone = count - counts.get(slot, 0)
                raise other_rows(slot_task(transaction, slot), gone)
        _write(rows, options | {VERIFY: "true"})
    _write(rows, options)


def _write(rows: DataFrame, options: dict[str, str]) -> None:
    rows.write.format("stentor").options(**options).mode("append").save()
