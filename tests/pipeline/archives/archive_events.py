"""What the tests of archives share: events as tables, and files made of them without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from stentor.pipeline.archives.columns import as_columns
from stentor.pipeline.archives.data_files import write_piece
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.tables import (
    WRITERS,
    Archive,
    Progress,
    Step,
    Table,
    Writer,
    position,
)
from stentor.pipeline.columns.layout import arrow_schema

#: Midnight of a day in UTC, in microseconds.
DAWN = 1_767_225_600_000_000

SCHEMA = (
    StructType()
    .add("symbol", StringType())
    .add("price", DoubleType())
    .add("_id", StringType())
    .add("_type", StringType())
    .add("_time", TimestampType())
    .add("_broker", StringType())
    .add("_offset", LongType())
)


def event(
    offset: int, time: int | None, *, broker: str | None = "b1", **more: Any
) -> dict[str, Any]:
    """An event so many microseconds after dawn."""
    return {
        "symbol": f"s{offset % 3}",
        "price": float(offset),
        "_id": f"p-{broker}:1:{offset}",
        "_type": "quote",
        "_time": None if time is None else DAWN + time,
        "_broker": broker,
        "_offset": offset,
    } | more


def table_of(events: Sequence[dict[str, Any]], schema: StructType = SCHEMA) -> pa.Table:
    columns = {}
    for field in arrow_schema(schema):
        values = [each.get(field.name) for each in events]
        if pa.types.is_timestamp(field.type):
            columns[field.name] = pa.array(values, pa.int64()).cast(field.type)
        else:
            columns[field.name] = pa.array(values, field.type)
    return pa.table(columns)


def at(directory: Path) -> Archive:
    return Archive(Place(str(directory)))


def append(
    archive: Archive,
    *pieces: Sequence[dict[str, Any]],
    schema: StructType = SCHEMA,
    writer: str | None = "w",
    next: dict[str, int] | None = None,
) -> Table:
    """Commit events as one batch of several pieces of work, as `archive` does."""
    events = arrow_schema(schema)
    own = archive.columns(events)
    written = []
    for piece in pieces:
        for batch in table_of(piece, schema).combine_chunks().to_batches():
            if batch.num_rows:
                table = pa.Table.from_batches([as_columns(batch, own)])
                written += write_piece(archive.place, table)
    following = dict(next or {})
    for file in written:
        if file.journal is not None:
            following[file.journal] = max(following.get(file.journal, 0), file.last + 1)

    def make(table: Table) -> Step:
        transactions = {}
        if writer is not None:
            known = table.progress.get(writer, Progress()).next
            archive.place.write(
                f"{WRITERS}/{writer}.json",
                msgspec.json.encode(Writer(writer, sorted({*known, *following}))),
            )
            transactions = {
                position(writer, journal): max(offset, known.get(journal, 0))
                for journal, offset in following.items()
            }
        return Step(add=[file.action() for file in written], transactions=transactions)

    return archive.commit(make)
