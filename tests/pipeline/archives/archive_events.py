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

from stentor.pipeline.archives.log import Log
from stentor.pipeline.archives.manifests import Commit, File, Progress, State
from stentor.pipeline.archives.ordering import FOREVER, floors
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.stores import LocalStore
from stentor.pipeline.archives.writing import write_piece
from stentor.pipeline.columns.layout import arrow_schema
from stentor.pipeline.columns.types import as_json

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


def log_at(directory: Path) -> Log:
    return Log(LocalStore(Place(str(directory))))


def append(
    log: Log,
    *pieces: Sequence[dict[str, Any]],
    schema: StructType = SCHEMA,
    writer: str = "w",
    believed: int = FOREVER,
) -> State:
    """Commit events as one batch of several pieces of work, as `archive` does."""
    place = log.store.place
    tables = [table_of(piece, schema) for piece in pieces if piece]
    written = [write_piece(place, table, believed) for table in tables]

    def make(state: State) -> Commit:
        known = state.progress.get(writer, Progress())
        found = floors([p.spans for p in written], known.next, known.latest)
        add: list[File] = []
        progress = Progress({}, {})
        for piece, each in zip(written, found, strict=True):
            for file in piece.files:
                mine = {j: f for j, f in each.items() if j in file.offsets}
                add.append(msgspec.structs.replace(file, floors=mine))
            for journal, span in piece.spans.items():
                progress.next[journal] = max(progress.next.get(journal, 0), span.last + 1)
                progress.latest[journal] = max(
                    progress.latest.get(journal, span.latest), span.latest
                )
        return Commit(
            at=0.0,
            operation="append",
            writer=writer,
            progress=progress,
            schemas=[as_json(arrow_schema(schema))],
            add=add,
        )

    return log.commit(make)
