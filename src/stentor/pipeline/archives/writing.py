"""Writes events into data files. Runs in executors, in compactions, and wherever Arrow is.

What a task has is cut into pieces that fit into memory. Of each piece the events of one type and
one day become one file, in the order of the archive (`ordering`). Files get fresh names, so a task
that is run again leaves nothing behind but files that nobody mentions. The task reports what it has
written, with statistics that it takes while the data is at hand; only the report of the attempt
that succeeded reaches the driver, and with it goes exactly one copy of the rows.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stentor.pipeline.archives.manifests import Bounds, File
from stentor.pipeline.archives.ordering import (
    FOREVER,
    NEVER,
    NOWHERE,
    Ints,
    Ranks,
    Span,
    ranked,
    times_of,
)
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import TURN, aligned
from stentor.pipeline.archives.statistics import measured
from stentor.pipeline.columns.types import from_json

#: Rows and bytes of a piece; several times as much is in memory while it is written.
PIECE_ROWS: Final = 1_000_000
PIECE_BYTES: Final = 64 * 2**20
#: Rows between which Parquet's own statistics distinguish.
ROW_GROUP: Final = 65_536
COMPRESSION: Final = "zstd"

#: Microseconds.
DAY: Final = 86_400_000_000

DATA: Final = "data"
#: The partition of events without a type, or without a time. No type begins with an underscore.
NONE: Final = "_none"

_TIME: Final = pa.timestamp("us", "UTC")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME: Final = 120


class Task(msgspec.Struct, frozen=True):
    """What executors have to know: where to write, the schema, and which times are too late."""

    root: str
    fields: list[dict[str, Any]]
    #: See `ordering`. One for all tasks of a batch, so that they agree.
    believed: int = FOREVER


class Piece(msgspec.Struct):
    """What was written of one piece."""

    files: list[File]
    #: By journal.
    spans: dict[str, Span]


#: The columns of a report, for Spark.
REPORT: Final = "report binary"


def write_partition(task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all events of a partition, and report on each piece; for `mapInArrow`."""
    place, schema = Place(task.root), from_json(task.fields)
    for table in _pieces(batches, schema):
        found = msgspec.json.encode(write_piece(place, table, task.believed))
        yield pa.record_batch({"report": pa.array([found], pa.binary())})


def reported(rows: list[Any]) -> list[Piece]:
    """The reports that Spark has collected."""
    return [msgspec.json.decode(bytes(row.report), type=Piece) for row in rows]


def _pieces(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(aligned(batch, schema))
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def write_piece(place: Place, table: pa.Table, believed: int = FOREVER) -> Piece:
    """Write a table, a file for each type and day."""
    ranks, journals, spans = ranked(table, believed)
    kinds, days = _partitions(table)
    order = ranks.order(kinds.codes, days)
    table, ranks = table.take(pa.array(order)), ranks.take(order)
    kind_codes, days = kinds.codes[order], days[order]
    changes = (kind_codes[1:] != kind_codes[:-1]) | (days[1:] != days[:-1])
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    files = []
    for start, end in pairwise(edges):
        rows = slice(start, end)
        part, part_ranks = table.slice(start, end - start), ranks.take(rows)
        kind, day = kinds.names[kind_codes[start]], day_name(int(days[start]))
        turn, time = part_ranks.turn, times_of(part)
        writer = FileWriter(place, table.schema, kind, day, late=bool((turn != time).any()))
        with writer.open():
            writer.write(part, turn)
        early = int(turn.min()) if (turn < time).any() else None
        outside = int(np.count_nonzero(part_ranks.journal == NOWHERE))
        offsets = offsets_of(part_ranks, journals)
        files.append(writer.file(measured(part), offsets, outside, early))
    return Piece(files, spans)


class _Kinds(msgspec.Struct):
    """Event types of rows: a code for each row, and the names."""

    codes: Ints
    names: list[str | None]


def _partitions(table: pa.Table) -> tuple[_Kinds, Ints]:
    """The type of each row, and its day: since 1970 in UTC, `NEVER` without a time."""
    if "_type" in table.schema.names:
        found = table.column("_type").combine_chunks().dictionary_encode()
        names = [*found.dictionary.to_pylist(), None]
        codes = found.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
        kinds = _Kinds(codes.astype(np.int64), names)
    else:
        kinds = _Kinds(np.zeros(table.num_rows, np.int64), [None])
    time = times_of(table)
    return kinds, np.where(time == NEVER, NEVER, time // DAY)


def day_name(day: int) -> str | None:
    """A day as in the name of its directory.

    >>> day_name(0), day_name(-1)
    ('1970-01-01', '1969-12-31')
    """
    if day == NEVER:
        return None
    try:
        return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
    except OverflowError:  # beyond the years that have four digits
        return f"{day:+}d"


def safe_name(name: str) -> str:
    """An event type as the name of a directory: short, and readable where that is possible.

    >>> safe_name("quote.stock"), safe_name("a/b")
    ('quote.stock', 'a~2fb')
    """
    safe = _UNSAFE.sub(lambda match: "".join(f"~{byte:02x}" for byte in match[0].encode()), name)
    if len(safe) > _MAX_NAME or not safe.strip("."):
        digest = hashlib.sha256(name.encode()).hexdigest()[:20]
        safe = f"{safe[: _MAX_NAME - 21].strip('.')}~{digest}"
    return safe


def offsets_of(ranks: Ranks, journals: list[str]) -> dict[str, tuple[int, int]]:
    """By journal: the first and the last offset among some rows."""
    found = {}
    for place in np.unique(ranks.journal).tolist():
        if place != NOWHERE:
            numbers = ranks.number[ranks.journal == place]
            found[journals[place]] = int(numbers.min()), int(numbers.max())
    return found


class FileWriter:
    """One data file while it is written, table by table, in the order of the archive."""

    def __init__(
        self, place: Place, schema: pa.Schema, kind: str | None, day: str | None, *, late: bool
    ) -> None:
        """`late` says that some turns may differ from the times."""
        self._place = place
        self._arrow = schema
        self._kind, self._day, self._late = kind, day, late
        if late:
            self._arrow = self._arrow.append(pa.field(TURN, _TIME))
        type_directory = NONE if kind is None else safe_name(kind)
        directory = f"{DATA}/type={type_directory}/day={NONE if day is None else day}"
        self._path = f"{directory}/{uuid.uuid4().hex}.parquet"
        self._parquet: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._rows = self._waiting_rows = 0

    @contextmanager
    def open(self) -> Iterator[FileWriter]:
        """The file is complete when this ends."""
        with (
            self._place.create(self._path) as stream,
            pq.ParquetWriter(stream, self._arrow, compression=COMPRESSION) as self._parquet,
        ):
            yield self
            self._flush()

    def write(self, table: pa.Table, turn: Ints) -> None:
        """Write rows, and the turn of each."""
        if self._late:
            same = turn == times_of(table)
            table = table.append_column(TURN, pa.array(turn, mask=same).cast(_TIME))
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._rows += table.num_rows
        if self._waiting_rows >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        assert self._parquet is not None
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._parquet.write_table(table, row_group_size=ROW_GROUP)
        self._waiting, self._waiting_rows = [], 0

    def file(
        self,
        columns: dict[str, Bounds],
        offsets: dict[str, tuple[int, int]],
        outside: int,
        early: int | None,
    ) -> File:
        """What a manifest says about it, after it is complete."""
        size = self._place.size(self._path)
        assert size is not None
        return File(
            path=self._path,
            type=self._kind,
            day=self._day,
            rows=self._rows,
            bytes=size,
            schema=0,
            columns=columns,
            offsets=offsets,
            outside=outside,
            late=self._late,
            early=early,
        )
