"""`df.write` and `df.writeStream` with `format("stentor")`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stentor.errors import PipelineError
from stentor.pipeline.columns import RowEncoder
from stentor.pipeline.sink.partitions import publish_rows, verify_rows
from stentor.pipeline.sink.tasks import Task
from stentor.pipeline.sink.transactions import by_slot, slot_task, without_slot
from stentor.pipeline.source.options import VERIFY, connecting, dead_letters, transaction

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0, where a stream is refused before this is used
    DataSourceStreamArrowWriter = object  # type: ignore[assignment,misc]

#: Where Spark tells a task which query and which micro-batch it works for.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class Published(WriterCommitMessage):
    """What a task has done."""

    partition: int
    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Publishes a DataFrame. Spark's retries of a task publish once; a new write is new events.

    Unless it is a transaction: then a new write under the same name and version is the same events.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        if overwrite:
            raise PipelineError(
                'what was published cannot be overwritten; use .mode("append"), which adds to it'
            )
        self._transaction = transaction(options)
        self._verify = VERIFY in {name.lower() for name in options}
        if self._transaction is not None:
            schema = without_slot(schema)
        RowEncoder(schema)  # what cannot be published is refused before anything starts
        self._schema = schema
        self._options = connecting(options)
        self._aside = dead_letters(options)
        self._write = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        context = _context()
        if self._transaction is None:
            task = Task(self._write, 0, context.partitionId())
            rows = publish_rows(iterator, self._schema, task, self._options, self._aside)
            return Published(task.partition, rows)
        act = verify_rows if self._verify else publish_rows
        rows = 0
        for slot, batches in by_slot(iterator):
            task = slot_task(self._transaction, slot)
            rows += act(batches, self._schema, task, self._options, self._aside)
        return Published(context.partitionId(), rows)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes the micro-batches of a query, each once."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        if overwrite:
            raise PipelineError('what was published cannot be replaced; use outputMode("append")')
        if transaction(options) is not None:
            raise PipelineError(
                "a streaming query is itself what a transaction is for; leave out txnAppId, "
                "txnVersion and txnKey"
            )
        RowEncoder(schema)
        self._schema = schema
        self._options = connecting(options)
        self._aside = dead_letters(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        context = _context()
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise PipelineError("this task belongs to no streaming query; use df.write instead")
        task = Task(query, int(batch), context.partitionId())
        rows = publish_rows(iterator, self._schema, task, self._options, self._aside)
        return Published(task.partition, rows)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise PipelineError("rows are published by the tasks of a Spark job only")
    return context
