"""Writes that are one: a batch that is written again under the same name and version is there once.

Inside of `foreachBatch`, `df.write` does not know which micro-batch it is for. A query that is
started anew runs the last one again, and its rows would be other events. So the user says which
batch it is: `txnAppId` names the writer and `txnVersion` is the number of the batch, as in Delta.

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

Spark gives sinks in Python no way to ask for a shuffle, so `save` of its writer is wrapped: for the
format "stentor" with a transaction it puts rows into their slots, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.types import StructType
from pyspark.sql.utils import to_str

from stentor.errors import PipelineError
from stentor.model.identity import check_producer
from stentor.pipeline.columns import RowEncoder
from stentor.pipeline.sink.large import other_rows
from stentor.pipeline.sink.publishing import published
from stentor.pipeline.sink.tasks import Task
from stentor.pipeline.source.options import VERIFY, Transaction, connecting, transaction

#: How many slots there are. It is part of what rows are known by, so it never changes.
SLOTS: Final = 8
SLOT: Final = "__slot"
_MARK: Final = "_stentor_taught"


def slot_task(transaction: Transaction, slot: int) -> Task:
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
            "txnAppId needs the rows in an order that only the program itself can give them: call "
            "stentor.pipeline.register(spark) in the program that writes. Over Spark Connect there "
            "are no transactions"
        )
    return StructType([field for field in schema.fields if field.name != SLOT])


def slotted(frame: DataFrame, key: tuple[str, ...] = ()) -> DataFrame:
    """The rows with their slots, those of each slot together."""
    missing = [name for name in key if name not in frame.columns]
    if missing:
        raise PipelineError(
            f"txnKey names {missing[0]!r}, which is no column; there are {', '.join(frame.columns)}"
        )
    columns = [F.col(f"`{name.replace('`', '``')}`") for name in key or frame.columns]
    slot = F.pmod(F.xxhash64(*columns), F.lit(SLOTS)).cast("int")
    return frame.withColumn(SLOT, slot).repartition(SLOT).sortWithinPartitions(SLOT)


def teach_writer() -> None:
    """Once is enough; more does no harm."""
    if hasattr(DataFrameWriter, _MARK):
        return
    setattr(DataFrameWriter, _MARK, True)
    writer: Any = DataFrameWriter
    given_format, given_option, given_options = writer.format, writer.option, writer.options
    given_mode, given_save = writer.mode, writer.save

    @wraps(given_format)
    def format(self: Any, source: str) -> Any:
        self._stentor_format = source
        return given_format(self, source)

    @wraps(given_option)
    def option(self: Any, key: str, value: Any) -> Any:
        _note(self, {key: value})
        return given_option(self, key, value)

    @wraps(given_options)
    def options(self: Any, **options: Any) -> Any:
        _note(self, options)
        return given_options(self, **options)

    @wraps(given_mode)
    def mode(self: Any, saveMode: str | None) -> Any:  # noqa: N803
        self._stentor_mode = saveMode or getattr(self, "_stentor_mode", None)
        return given_mode(self, saveMode)

    @wraps(given_save)
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,  # noqa: N803
        **options: Any,
    ) -> None:
        if format is not None:
            self.format(format)
        self.mode(mode).options(**options)
        if str(getattr(self, "_stentor_format", "")).lower() == "stentor":
            noted = dict(getattr(self, "_stentor_options", {}))
            if path is not None:
                noted["path"] = path
            found = transaction(noted)
            if found is not None:
                _save(self._df, found, noted, getattr(self, "_stentor_mode", None), given_save)
                return
        given_save(self, path, partitionBy=partitionBy)

    writer.format, writer.option, writer.options = format, option, options
    writer.mode, writer.save = mode, save


def _note(writer: Any, options: dict[str, Any]) -> None:
    noted = {key: to_str(value) for key, value in options.items() if value is not None}
    writer._stentor_options = getattr(writer, "_stentor_options", {}) | noted


def _save(
    frame: DataFrame, transaction: Transaction, options: dict[str, str], mode: Any, save: Any
) -> None:
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
        save(_writer(rows, options | {VERIFY: "true"}, mode))
    save(_writer(rows, options, mode))


def _writer(rows: DataFrame, options: dict[str, str], mode: Any) -> Any:
    return rows.write.format("stentor").options(**options).mode(mode)
