"""Events and changes of subscriptions, wrapped for the way through Spark's state operator.

The operator hands rows to Python one by one, as Python objects. Events would lose both time and
exactness there. So they pass it as parcels: rows with the bytes of whole Arrow batches, which only
the matching code opens. Every column comes out with the type and value that it had.

A parcel goes to one shard. Changes go to the shard that a hash of the id says; events to all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import types as T

#: What parcels hold.
CHANGES: Final = 0
EVENTS: Final = 1
#: About how many bytes of events go into a parcel.
PARCEL_BYTES: Final = 4 * 2**20

PARCELS: Final = T.StructType(
    [
        T.StructField("shard", T.IntegerType()),
        T.StructField("kind", T.IntegerType()),
        T.StructField("content", T.BinaryType()),
    ]
)
CONTENTS: Final = T.StructType([T.StructField("content", T.BinaryType())])

#: Numbers of rows within a partition stay below this.
_ROWS: Final = 2**40


def events_parcels(batches: Iterable[pa.RecordBatch], shards: int) -> Iterator[pa.RecordBatch]:
    """Batches of events, each for every shard."""
    for batch in batches:
        for portion in portions(batch):
            content = wrapped(portion)
            yield _parcels(list(range(shards)), EVENTS, [content] * shards)


def changes_parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of changes by their column `shard`; each change is given its place in the stream."""
    context = TaskContext.get()
    first = 0 if context is None else context.partitionId() * _ROWS
    for batch in batches:
        places = pa.array(range(first, first + batch.num_rows), pa.int64())
        first += batch.num_rows
        batch = batch.append_column("place", places)
        shards = batch.column("shard").unique().to_pylist()
        contents = [wrapped(batch.filter(pc.equal(batch.column("shard"), s))) for s in shards]
        yield _parcels(shards, CHANGES, contents)


def opened_parcels(batches: Iterable[pa.RecordBatch], names: list[str]) -> Iterator[pa.RecordBatch]:
    """What the parcels hold, as a table again."""
    for batch in batches:
        for content in batch.column("content"):
            yield unwrapped(content.as_buffer()).rename_columns(names)


def portions(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about the size of a parcel."""
    rows = max(1, batch.num_rows * PARCEL_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def wrapped(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unwrapped(content: bytes | pa.Buffer) -> pa.RecordBatch:
    """The batch that was wrapped."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()


def _parcels(shards: list[int], kind: int, contents: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "shard": pa.array(shards, pa.int32()),
            "kind": pa.array([kind] * len(shards), pa.int32()),
            "content": pa.array(contents, pa.binary()),
        }
    )
