"""Writes events into data files. Runs in executors, in compactions, and wherever Arrow is.

What a task has is cut into pieces that fit into memory. Of each piece the events of one type, one
day and one journal become one file, in the order of the archive (`order`). Files get fresh
names, so a task that is run again leaves nothing behind but files that nobody mentions. The task
reports what it has written, with statistics that it takes while the data is at hand; only the
report of the attempt that succeeded reaches the driver, and with it goes exactly one copy of the
rows.

Event types and days are in the files as well as in the commits: some readers of Delta tables, such
as Polars, look for them there, or in the names of directories, where not every type can stand.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stentor.pipeline.archives.columns import DAY
from stentor.pipeline.archives.order import Ints, in_file_order, journals_of, times_of
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import aligned
from stentor.pipeline.archives.statistics import Statistics, leaf_names
from stentor.pipeline.archives.tables import NEVER, OWN

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

#: Rows and bytes of a piece; several times as much is in memory while it is written.
PIECE_ROWS: Final = 1_000_000
PIECE_BYTES: Final = 64 * 2**20
#: Rows between which Parquet's own statistics distinguish.
ROW_GROUP: Final = 65_536
COMPRESSION: Final = "zstd"

#: Microseconds.
ONE_DAY: Final = 86_400_000_000
#: Where data files are, and the directory there of events without a type, or without a time. Names
#: of directories mean nothing; they help those who look at them.
DATA: Final = "data"
NONE: Final = "none"

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME: Final = 120


class Written(msgspec.Struct, frozen=True):
    """A new data file."""

    path: str
    type: str | None
    day: str | None
    journal: str | None
    first: int
    last: int
    rows: int
    bytes: int
    #: When it was written, in milliseconds since 1970.
    modified: int
    statistics: str

    def action(self, *, moved: bool = False) -> AddAction:
        """What a commit says of it; `moved` if its events were there already."""
        from deltalake.transaction import AddAction

        partition = {"_type": self.type, DAY: self.day}
        return AddAction(
            self.path, self.bytes, partition, self.modified, not moved, self.statistics
        )


#: The columns of a report, for Spark.
REPORT: Final = "report binary"


def write_partition(
    place: Place, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write all events of a partition, and report on each file; for `mapInArrow`."""
    for table in pieces(batches, schema):
        found = [msgspec.json.encode(file) for file in write_piece(place, table)]
        yield pa.record_batch({"report": pa.array(found, pa.binary())})


def reported(rows: list[Any]) -> list[Written]:
    """The reports that Spark has collected."""
    return [msgspec.json.decode(bytes(row.report), type=Written) for row in rows]


def pieces(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches as tables that fit into memory."""
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


def write_piece(place: Place, table: pa.Table) -> list[Written]:
    """Write a table, a file for each type, day and journal."""
    modified = int(time.time() * 1_000)
    journal_codes, journals = _coded(journals_of(table))
    order = in_file_order(table, journal_codes, modified * 1_000)
    kind_codes, kinds = _coded(_kinds(table))
    moments = times_of(table)
    days = np.where(moments == NEVER, NEVER, moments // ONE_DAY)
    groups = [codes[order] for codes in (journal_codes, days, kind_codes)]
    if any(bool(np.any(codes[1:] != codes[:-1])) for codes in groups):
        regrouped = np.lexsort((np.arange(len(order)), *groups))
        order, groups = order[regrouped], [codes[regrouped] for codes in groups]
    if not bool(np.all(np.diff(order) == 1)):
        table = table.take(pa.array(order))
    changes = np.zeros(max(len(order) - 1, 0), bool)
    for codes in groups:
        changes |= codes[1:] != codes[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    found = []
    for start, end in pairwise(edges):
        journal, day, kind = (int(codes[start]) for codes in groups)
        part = table.slice(start, end - start)
        statistics = Statistics(table.schema)
        statistics.add(part)
        name = None if journal < 0 else journals[journal]
        writer = FileWriter(
            place, table.schema, None if kind < 0 else kinds[kind], day_name(day), name
        )
        with writer.open(statistics.doubtful()):
            writer.write(part)
        found.append(writer.written(modified, statistics))
    return found


def _kinds(table: pa.Table) -> pa.Array:
    if "_type" not in table.schema.names:
        return pa.nulls(table.num_rows, pa.string())
    return table.column("_type").combine_chunks()


def _coded(names: pa.Array) -> tuple[Ints, list[str]]:
    """By row a number, -1 for null, and the names."""
    found = names.dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), found.dictionary.to_pylist()


def day_name(day: int) -> str | None:
    """A day as in the name of its directory; None beyond the years that have four digits.

    >>> day_name(0), day_name(-1)
    ('1970-01-01', '1969-12-31')
    """
    if day == NEVER:
        return None
    try:
        return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
    except OverflowError:
        return None


def safe_name(name: str) -> str:
    """A text as the name of a directory or file: short, and readable where that is possible.

    >>> safe_name("quote.stock"), safe_name("a/b")
    ('quote.stock', 'a~2fb')
    """
    safe = _UNSAFE.sub(lambda match: "".join(f"~{byte:02x}" for byte in match[0].encode()), name)
    if len(safe) > _MAX_NAME or not safe.strip("."):
        digest = hashlib.sha256(name.encode()).hexdigest()[:20]
        safe = f"{safe[: _MAX_NAME - 21].strip('.')}~{digest}"
    return safe


class FileWriter:
    """One data file while it is written, table by table, in the order of the archive."""

    def __init__(
        self,
        place: Place,
        schema: pa.Schema,
        kind: str | None,
        day: str | None,
        journal: str | None,
    ) -> None:
        self._place = place
        self._schema = schema.append(pa.field(DAY, pa.date32()))
        self._kind, self._day, self._journal = kind, day, journal
        directory = NONE if kind is None else safe_name(kind)
        self.path = f"{DATA}/{directory}/{day or NONE}/{OWN}{uuid.uuid4().hex}.parquet"
        self._parquet: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._rows, self._first, self._last = 0, 2**63 - 1, -1

    @contextmanager
    def open(self, doubtful: set[str]) -> Iterator[FileWriter]:
        """The file is complete when this ends.

        Of doubtful columns Parquet keeps no statistics: its own would leave out NaN, which readers
        in SQL take for the greatest number.
        """
        measured: Any = True
        if doubtful:
            measured = [name for name in leaf_names(self._schema) if name not in doubtful]
        with (
            self._place.create(self.path) as stream,
            pq.ParquetWriter(
                stream, self._schema, compression=COMPRESSION, write_statistics=measured
            ) as self._parquet,
        ):
            yield self
            self._flush()

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._rows += table.num_rows
        if self._journal is not None:
            ends = pc.min_max(table.column("_offset"))
            self._first = min(self._first, ends["min"].as_py())
            self._last = max(self._last, ends["max"].as_py())
        if self._waiting_rows >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        assert self._parquet is not None
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            day = None if self._day is None else date.fromisoformat(self._day)
            days = pa.repeat(pa.scalar(day, pa.date32()), table.num_rows)
            table = table.append_column(self._schema.field(DAY), days)
            self._parquet.write_table(table, row_group_size=ROW_GROUP)
        self._waiting, self._waiting_rows = [], 0

    def written(self, modified: int, statistics: Statistics) -> Written:
        """What is reported of it, after it is complete."""
        size = self._place.size(self.path)
        assert size is not None
        return Written(
            path=self.path,
            type=self._kind,
            day=self._day,
            journal=self._journal,
            first=self._first,
            last=self._last,
            rows=self._rows,
            bytes=size,
            modified=modified,
            statistics=statistics.json(),
        )
