"""Reads data files in the order of the archive, in bounded memory.

This is a merge on two levels. The files of one journal are each in the order of their offsets; they
are merged by offset, and the turn of each event is the latest time so far. Then journals are merged
by turn. What is in no journal comes file by file, as if each were a journal.

On both levels the next events are at the heads: of each open file a batch of rows is in memory, and
whatever is not behind the last row of any of these batches can be given out, sorted. Then the batch
that was used up is replaced by the next of its file. Rows are never compared one by one: each step
sorts columns.

A file is opened when the order reaches its first row and closed when it is used up, so that only
files are open that overlap. There may be many of these, as when there are many event types. So many
as may be open at once stay open; each of the others is opened whenever its next batch is due, read
from where it was, and closed again. That is slower, as rows of its row group that were read are
passed over once more, but it takes neither memory nor handles. Row groups and files that lie
outside of the wanted times are not read at all.

A file that another program has written, such as one that compacts Delta tables, may have events of
several journals in any order. It is read for each journal by itself, as a whole, and sorted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stentor.errors import ArchiveError
from stentor.pipeline.archives.moments import ALWAYS, Between
from stentor.pipeline.archives.order import (
    AHEAD,
    Ints,
    believed,
    in_file_order,
    journal_code,
    journals_of,
    offsets_of,
    times_of,
)
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import aligned
from stentor.pipeline.archives.tables import NEVER, File, offsets_in

#: Rows in memory, of all open files together; and of one at least, and at most.
ROWS: Final = 262_144
LEAST_ROWS: Final = 64
MOST_ROWS: Final = 65_536
#: Files that may stay open at once.
OPEN_FILES: Final = 512


class Portion(NamedTuple):
    """The next events in order, under the columns of the table, and when their turns are."""

    events: pa.Table
    turn: Ints


class _Part(NamedTuple):
    """The events of a file that are of one journal, or of none."""

    file: File
    journal: str | None
    first: int


class _Rows(NamedTuple):
    """Some rows, and what they are ordered by."""

    events: pa.Table
    key: Ints
    time: Ints

    def cut(self, start: int, end: int) -> _Rows:
        rows = slice(start, end)
        return _Rows(self.events.slice(start, end - start), self.key[rows], self.time[rows])


def in_order(
    place: Place, files: Sequence[File], columns: pa.Schema, between: Between = ALWAYS
) -> Iterator[Portion]:
    """The events of files, in the order of the archive: these columns of the table."""
    merge = _Merge(_journals(files, _Reading(place, columns, between)))
    try:
        while (rows := merge.next()) is not None:
            yield Portion(rows.events, rows.key)
    finally:
        merge.close()


def _journals(files: Sequence[File], reading: _Reading) -> Iterator[_Journal]:
    journals: dict[str, list[_Part]] = defaultdict(list)
    ordered = sorted(files, key=lambda file: file.path)
    for number, file in enumerate(ordered):
        if file.times is not None and not reading.between.meets(*file.times):
            continue
        for part in _parts(reading.place, file):
            if part.journal is None:
                yield _Journal([part], number - len(ordered), reading)
            else:
                journals[part.journal].append(part)
    for journal, parts in journals.items():
        yield _Journal(parts, journal_code(journal), reading)


def _begins(file: File) -> int:
    """No event of it has its turn before this."""
    if file.times is None or file.times[1] > file.modified + AHEAD:
        return NEVER
    return file.times[0]


def _parts(place: Place, file: File) -> Iterator[_Part]:
    if file.is_own and file.journal is not None:
        yield _Part(file, file.journal, file.offsets[0])
    elif file.is_own:
        yield _Part(file, None, 0)
    else:
        for journal, (first, _) in offsets_in(place, file).items():
            yield _Part(file, journal, first)
        yield _Part(file, None, 0)


def _sorted(taken: Sequence[_Rows]) -> _Rows | None:
    """Rows that are each in order, together; of equal keys, the first ones come first."""
    if len(taken) < 2:
        return taken[0] if taken else None
    key = np.concatenate([rows.key for rows in taken])
    order = np.argsort(key, kind="stable")
    events = pa.concat_tables([rows.events for rows in taken]).take(pa.array(order))
    return _Rows(events, key[order], np.concatenate([rows.time for rows in taken])[order])


class _Reading:
    """What all parts of one merge have in common, and how many more files may stay open."""

    def __init__(self, place: Place, columns: pa.Schema, between: Between) -> None:
        self.place = place
        self.columns = columns
        self.between = between
        self.heads = 0
        self.free = OPEN_FILES

    @property
    def rows_of_each(self) -> int:
        return max(LEAST_ROWS, min(MOST_ROWS, ROWS // max(self.heads, 1)))


class _Head(ABC):
    """Rows that come in order of their keys; those in memory are given out from the first on."""

    def __init__(self, begins: int, code: int = 0) -> None:
        #: No key is less.
        self.begins = begins
        #: Decides between equal keys.
        self.code = code
        self._rows: _Rows | None = None
        self._at = 0

    @property
    def last(self) -> tuple[int, int]:
        """The key of the last row in memory, and what decides between equal ones."""
        assert self._rows is not None
        return int(self._rows.key[-1]), self.code

    def take(self, frontier: tuple[int, int]) -> _Rows | None:
        """The rows that are not behind this place."""
        assert self._rows is not None
        key, code = frontier
        start, side = self._at, "right" if self.code <= code else "left"
        self._at = max(start, int(np.searchsorted(self._rows.key, key, side)))  # type: ignore[call-overload]
        return self._rows.cut(start, self._at) if start < self._at else None

    def refill(self) -> bool:
        """Have rows in memory; False if there are no more."""
        if self._rows is None or self._at == len(self._rows.key):
            self._rows, self._at = self._next(), 0
        return self._rows is not None

    @abstractmethod
    def _next(self) -> _Rows | None:
        """Some more rows; None behind the last."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open."""


class _Merge:
    """The rows of several heads as one, in the order of their keys."""

    def __init__(self, heads: Iterable[_Head]) -> None:
        """Of equal beginnings, the first ones come first."""
        self._waiting = sorted(heads, key=lambda head: head.begins)[::-1]
        self._heads: list[_Head] = []

    def next(self) -> _Rows | None:
        """The next rows; None behind the last."""
        while self._waiting or self._heads:
            frontier = min((head.last for head in self._heads), default=None)
            while self._waiting and (frontier is None or self._waiting[-1].begins <= frontier[0]):
                head = self._waiting.pop()
                if head.refill():
                    self._heads.append(head)
                    frontier = head.last if frontier is None else min(frontier, head.last)
            if frontier is None:
                return None
            self._heads.sort(key=lambda head: head.code)
            taken = [rows for head in self._heads if (rows := head.take(frontier)) is not None]
            self._heads = [head for head in self._heads if head.refill()]
            merged = _sorted(taken)
            if merged is not None:
                return merged
        return None

    def close(self) -> None:
        for head in self._heads:
            head.close()


class _Journal(_Head):
    """The events of a journal in the order of their turns."""

    def __init__(self, parts: Sequence[_Part], code: int, reading: _Reading) -> None:
        super().__init__(min(_begins(part.file) for part in parts), code)
        ordered = sorted(parts, key=lambda part: (part.first, part.file.path))
        self._merge = _Merge(_FileHead(part, reading) for part in ordered)
        self._latest = NEVER

    def _next(self) -> _Rows | None:
        rows = self._merge.next()
        if rows is None:
            return None
        turn = np.maximum(np.maximum.accumulate(rows.time), self._latest)
        self._latest = int(turn[-1])
        return _Rows(rows.events, turn, rows.time)

    def close(self) -> None:
        self._merge.close()


class _Open:
    """A file that is open, and from where on its rows are read."""

    def __init__(self, place: Place, path: str) -> None:
        try:
            self._source = place.open(path)
            self.parquet = pq.ParquetFile(self._source)
        except FileNotFoundError as error:
            raise ArchiveError(
                f"{path} is missing from the archive at {place.root}; it was compacted away long "
                "ago, or somebody deleted it: begin anew, or restore it"
            ) from error
        except pa.ArrowException as error:
            self._source.close()
            raise ArchiveError(
                f"{path} in the archive at {place.root} is damaged: {error}; restore it from a "
                "backup"
            ) from error
        self.batches: Iterator[pa.RecordBatch] = iter(())

    def begin(self, group: int, row: int, size: int, columns: Sequence[str]) -> None:
        """Read a row group from a row on, in batches of this size."""
        found = self.parquet.iter_batches(size, row_groups=[group], columns=columns)
        self.batches = _from_row(found, row)

    def names(self, columns: pa.Schema) -> list[str]:
        """Those columns that it has."""
        return [name for name in columns.names if name in self.parquet.schema_arrow.names]

    def close(self) -> None:
        self.batches = iter(())
        self.parquet.close()
        self._source.close()


def _from_row(batches: Iterator[pa.RecordBatch], row: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if row < batch.num_rows:
            yield batch.slice(row)
        row = max(0, row - batch.num_rows)


class _FileHead(_Head):
    """The next rows of a file, in the order of their offsets; or as they are, without a journal."""

    def __init__(self, part: _Part, reading: _Reading) -> None:
        super().__init__(part.first)
        self._part = part
        self._reading = reading
        self._open: _Open | None = None
        self._stays = False
        #: Row groups that are still to be read, and how many rows of the first one are.
        self._groups: deque[int] | None = None
        self._row = 0
        self._count = 0

    def _next(self) -> _Rows | None:
        if self._groups is None:
            self._reading.heads += 1
        batch = self._read()
        while batch is not None and not (wanted := self._wanted(batch)).num_rows:
            batch = self._read()
        if batch is None:
            self._reading.heads -= 1
        if batch is None or not self._stays:
            self.close()
        return None if batch is None else self._keyed(wanted)

    def _read(self) -> pa.Table | None:
        """The next rows of the file, wanted or not."""
        if not self._part.file.is_own:
            return self._whole()
        columns, rows = self._reading.columns, self._reading.rows_of_each
        if self._open is None:
            self._open = _Open(self._reading.place, self._part.file.path)
            self._stays = self._reading.free > 0
            self._reading.free -= self._stays
            if self._groups is None:
                self._groups = deque(self._row_groups(self._open.parquet))
            if self._groups:
                names = self._open.names(columns)
                self._open.begin(self._groups[0], self._row, rows, names)
        assert self._groups is not None
        while self._groups:
            batch = next(self._open.batches, None)
            if batch is not None:
                self._row += batch.num_rows
                return pa.Table.from_batches([aligned(batch, columns)])
            self._groups.popleft()
            self._row = 0
            if self._groups:
                self._open.begin(self._groups[0], 0, rows, self._open.names(columns))
        return None

    def _whole(self) -> pa.Table | None:
        """All rows of another program's file, once."""
        if self._groups is not None:
            return None
        self._groups = deque()
        file, columns = self._part.file, self._reading.columns
        self._open = _Open(self._reading.place, file.path)
        names = self._open.names(columns)
        table = self._open.parquet.read(columns=names).combine_chunks()
        if "_type" in columns.names and "_type" not in names:
            table = table.append_column("_type", pa.repeat(file.type, table.num_rows))
        batches = [aligned(batch, columns) for batch in table.to_batches()]
        table = pa.Table.from_batches(batches, columns)
        journals = journals_of(table)
        mine = pc.is_null(journals)
        if self._part.journal is not None:
            mine = pc.fill_null(pc.equal(journals, self._part.journal), False)
        table = table.filter(mine)
        code = -1 if self._part.journal is None else 0
        codes = np.full(table.num_rows, code, np.int64)
        return table.take(pa.array(in_file_order(table, codes, file.modified)))

    def _row_groups(self, file: pq.ParquetFile) -> list[int]:
        metadata, between = file.metadata, self._reading.between
        index = file.schema_arrow.get_field_index("_time")
        if index < 0 or between == ALWAYS:
            return list(range(metadata.num_row_groups))
        column = next(
            i for i in range(metadata.num_columns) if metadata.schema.column(i).path == "_time"
        )
        found = []
        for number in range(metadata.num_row_groups):
            statistics = metadata.row_group(number).column(column).statistics
            if (
                statistics is None
                or not statistics.has_min_max
                or statistics.null_count
                or between.meets(statistics.min_raw, statistics.max_raw)
            ):
                found.append(number)
        return found

    def _keyed(self, rows: pa.Table) -> _Rows:
        time = believed(times_of(rows), self._part.file.modified)
        if self._part.journal is not None:
            return _Rows(rows, offsets_of(rows), time)
        first, self._count = self._count, self._count + rows.num_rows
        return _Rows(rows, np.arange(first, self._count), time)

    def _wanted(self, rows: pa.Table) -> pa.Table:
        since, until = self._reading.between
        if since is None and until is None:
            return rows
        time = times_of(rows)
        keep = time != NEVER
        if since is not None:
            keep &= time >= since
        if until is not None:
            keep &= time < until
        return rows if keep.all() else rows.filter(pa.array(keep))

    def close(self) -> None:
        """Close the file. What is in memory stays; for what follows, it is opened again."""
        if self._open is not None:
            self._open.close()
            self._open = None
            self._reading.free += self._stays
            self._stays = False
