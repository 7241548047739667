"""How the rows of one partition are published exactly once, however often Spark tries.

Each partition of each query is a producer of its own, and the number of the micro-batch is its
epoch. A broker takes nothing of a producer that is not newer than what it has (epoch, then sequence
number), so publishing a partition again does no harm, as long as it goes to the same broker and the
rows have the same numbers. The broker is chosen by a hash of the producer's name; it is waited for
if it is down.

Rows have the same numbers only if they come in the same order, and behind a shuffle they may not.
So nothing must remain of an attempt that was broken off: a partition that fits into one transaction
is published as one. All of it is there, or nothing. Larger ones are the matter of
`large_partitions`, and so are those of which another number of rows is there than came now: the
query has changed meanwhile. What `transactions` puts into partitions by its contents is compared
with what is there in any case.

Two attempts at the same time: the second connects under the name of the first, and the broker shuts
the first one out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from stentor.client.direct import broker_for
from stentor.errors import InvalidNotification, NameTaken, PipelineError
from stentor.model.identity import IdSource
from stentor.pipeline.columns import Draft, RowEncoder, numbered, row_of
from stentor.pipeline.sink.dead_letters import DeadLetters
from stentor.pipeline.sink.large_partitions import LargePartition, other_rows
from stentor.pipeline.sink.tasks import Task
from stentor.pipeline.source.journals import opened
from stentor.pipeline.source.options import Connecting

#: The most that one transaction takes; a broker's own limits may be lower.
TRANSACTION_ROWS: Final = 50_000
TRANSACTION_BYTES: Final = 8 * 2**20
#: Rows that are encoded, and beyond a transaction published, at a time.
CHUNK_ROWS: Final = 5_000
#: What a frame takes besides its items, and an item besides its contents, generously.
_OVERHEAD: Final = 1_024
_ITEM_OVERHEAD: Final = 8


def publish_rows(
    batches: Iterable[pa.RecordBatch],
    schema: StructType,
    task: Task,
    options: Connecting,
    aside: str | None = None,
) -> int:
    """Publish the rows of a partition; how many they are.

    Those that cannot be published are put aside (see `dead_letters`), if it is said where.
    """
    dead = None if aside is None else DeadLetters(aside, task)
    rows = _Rows(batches, schema, task, dead)
    address = broker_for(task.producer, options.brokers)
    try:
        chunks = iter(rows)
        held = _published_as_one(chunks, rows, task, options, address)
        if held:
            with LargePartition(address, options, task) as large:
                large.begin(held[0])
                while held:
                    large.publish(held[:CHUNK_ROWS])
                    del held[:CHUNK_ROWS]
                for chunk in chunks:
                    try:
                        large.publish(chunk)
                    except InvalidNotification:
                        rows.encoded(chunk, IdSource(task.producer, task.epoch), datetime.now(UTC))
                        raise
                large.end()
    except NameTaken as error:
        raise PipelineError(
            f"another attempt of the same task ({task.producer}) has taken over, so this one "
            "ends. If that was speculation, switch it off for this query: spark.speculation"
        ) from error
    if dead is not None:
        dead.write()
    return rows.count


def verify_rows(
    batches: Iterable[pa.RecordBatch],
    schema: StructType,
    task: Task,
    options: Connecting,
    aside: str | None = None,
) -> int:
    """Raise if an earlier attempt has published rows that do not come again; how many come."""
    rows = _Rows(batches, schema, task, None if aside is None else DeadLetters(aside, task))
    address = broker_for(task.producer, options.brokers)
    if published(task, options)[0] != task.epoch:
        return sum(len(chunk) for chunk in rows)
    with LargePartition(address, options, task) as earlier:
        for chunk in rows:
            if rows.count == len(chunk):
                earlier.begin(chunk[0])
            earlier.unknown(chunk)
        earlier.end()
    return rows.count


def published(task: Task, options: Connecting) -> tuple[int, int]:
    """The newest epoch that a producer has published in, -1 for none, and how many rows."""
    address = broker_for(task.producer, options.brokers)
    with opened(address, options, name=task.producer, patience=options.patience) as direct:
        epoch, newest = direct.welcome.published or (-1, -1)
    return epoch, newest + 1


def _published_as_one(
    chunks: Iterator[list[Draft]], rows: _Rows, task: Task, options: Connecting, address: str
) -> list[Draft]:
    """Publish all as one transaction; or return what was taken, if that is too much for one."""
    with opened(address, options, name=task.producer, patience=options.patience) as direct:
        most_rows = min(TRANSACTION_ROWS, direct.welcome.window)
        most_bytes = min(TRANSACTION_BYTES, direct.welcome.max_frame - _OVERHEAD)
        there = direct.welcome.published
        ids, now = IdSource(direct.producer, task.epoch), datetime.now(UTC)
        held: list[Draft] = []
        items: list[bytes] = []
        size = 0
        for chunk in chunks:
            held += chunk
            encoded = rows.encoded(chunk, ids, now)
            items += encoded
            size += sum(map(len, encoded)) + _ITEM_OVERHEAD * len(encoded)
            if len(items) > most_rows or size > most_bytes:
                return held
        begun = there is not None and there[0] == task.epoch
        if there is not None and begun and (task.compared or there[1] != len(items) - 1):
            if not held:
                raise other_rows(task, there[1] + 1)
            return held
        direct.publish(items, atomic=True)
    return []


class _Rows:
    """The rows of a partition, chunk by chunk; errors say which row it is."""

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: StructType,
        task: Task,
        dead: DeadLetters | None = None,
    ) -> None:
        self._batches = batches
        self._dead = dead
        self._encoder = RowEncoder(schema)
        self._task = task
        #: Rows so far, without the chunk that was handed out last.
        self._before = 0
        self.count = 0

    def __iter__(self) -> Iterator[list[Draft]]:
        for batch in self._batches:
            for at in range(0, batch.num_rows, CHUNK_ROWS):
                self._before = self.count
                chunk = batch.slice(at, CHUNK_ROWS)
                if self._dead is not None:
                    drafts = self._sound(chunk, self._dead)
                else:
                    try:
                        drafts = self._encoder.drafts(chunk)
                    except InvalidNotification as error:
                        raise self._placed(error) from None
                self.count += len(drafts)
                if drafts:
                    yield drafts

    def _sound(self, rows: pa.RecordBatch, dead: DeadLetters) -> list[Draft]:
        """Those rows that can be published; the others are found by halving."""
        try:
            drafts = self._encoder.drafts(rows)
            # Some of what can be wrong shows only then, such as too many bytes in all.
            numbered(drafts, IdSource(self._task.producer, self._task.epoch), datetime.now(UTC))
            return drafts
        except InvalidNotification as error:
            if rows.num_rows == 1:
                dead.add(rows, error)
                return []
        half = rows.num_rows // 2
        return self._sound(rows.slice(0, half), dead) + self._sound(rows.slice(half), dead)

    def encoded(self, drafts: Sequence[Draft], ids: IdSource, now: datetime) -> list[bytes]:
        """The chunk that was handed out last, encoded; the error says which row is wrong."""
        try:
            return numbered(drafts, ids, now)
        except InvalidNotification as error:
            raise self._placed(error) from None

    def _placed(self, error: InvalidNotification) -> InvalidNotification:
        row = row_of(error)
        if row is None:
            return error
        return InvalidNotification(
            f"row {self._before + row} of partition {self._task.partition} in batch "
            f"{self._task.epoch} cannot be published: {error}"
        )
