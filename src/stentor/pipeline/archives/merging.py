"""Reads data files in the order of the archive, in bounded memory.

Each file is in order. So the next events are always at the heads of the files: of each open file a
batch of rows is in memory, and whatever is not behind the last row of any of these batches can be
given out, sorted. Then the batch that was used up is replaced by the next of its file. Rows are
never compared one by one: each step sorts columns.

A file is opened when the order reaches its first turn and closed when it is used up, so that only
files are open that overlap in time. There may be many of these, as when there are many event types.
So many as may be open at once stay open; each of the others is opened whenever its next batch is
due, read from where it was, and closed again. That is slower, as rows of its row group that were
read are passed over once more, but it takes neither memory nor handles. Row groups and files that
lie outside of the wanted times are not read at all.

Files may differ in the types of their numbers, which nobody changes here. So a portion has events
of one kind of file only: where the order goes from one kind to another, a new portion begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stentor.errors import ArchiveError
from stentor.pipeline.archives.manifests import File
from stentor.pipeline.archives.moments import micros
from stentor.pipeline.archives.ordering import (
    NEVER,
    NOWHERE,
    Ints,
    Ranks,
    journals_of,
    numbered,
    ranks_of,
    times_of,
)
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import aligned, as_in

#: Rows in memory, of all open files together; and of one at least, and at most.
ROWS: Final = 262_144
LEAST_ROWS: Final = 64
MOST_ROWS: Final = 65_536
#: Files that may stay open at once.
OPEN_FILES: Final = 512


class Portion(NamedTuple):
    """The next events in order, with the types that their file has, and when their turns are."""

    events: pa.Table
    turn: Ints


class Between(NamedTuple):
    """Times in microseconds: from the first on, before the second; None is no bound."""

    since: int | None = None
    until: int | None = None

    @staticmethod
    def of(since: datetime | None, until: datetime | None) -> Between:
        return Between(*(None if when is None else micros(when) for when in (since, until)))

    def meets(self, low: int, high: int) -> bool:
        """Whether some time from low to high is wanted."""
        return (self.since is None or high >= self.since) and (
            self.until is None or low < self.until
        )


ALWAYS: Final = Between()


class _Part(NamedTuple):
    """A file, or the events in it of one journal, or all others."""

    file: File
    only: str | None
    without: frozenset[str]


def in_order(
    place: Place,
    files: Sequence[File],
    schema: pa.Schema,
    between: Between = ALWAYS,
) -> Iterator[Portion]:
    """The events of files, in the order of the archive: the columns of this schema."""
    journals = numbered({journal for file in files for journal in file.offsets})
    waiting = sorted(_parts(files, between), key=lambda part: (-part.file.begins, part.file.path))
    slots = _Slots()
    heads: list[_Head] = []
    try:
        while waiting or heads:
            frontier = min((head.last for head in heads), default=None)
            while waiting and (frontier is None or waiting[-1].file.begins <= frontier[0]):
                head = _Head(waiting.pop(), place, journals, between, slots)
                if head.refill(_rows_of_each(len(heads) + 1)):
                    heads.append(head)
                    frontier = head.last if frontier is None else min(frontier, head.last)
            if frontier is None:
                return
            taken = [rows for head in heads if (rows := head.take(frontier)) is not None]
            size = _rows_of_each(len(heads))
            heads = [head for head in heads if head.refill(size)]
            yield from _sorted(taken, schema)
    finally:
        for head in heads:
            head.close()


def _parts(files: Sequence[File], between: Between) -> Iterator[_Part]:
    for file in files:
        time = file.columns.get("_time")
        if (
            time is not None
            and isinstance(time.low, int)
            and isinstance(time.high, int)
            and not time.absent
            and not between.meets(time.low, time.high)
        ):
            continue
        # A floor moves the events of one journal, and no others, so these are read by themselves.
        for journal in file.floors:
            yield _Part(file, journal, frozenset())
        yield _Part(file, None, frozenset(file.floors))


def _rows_of_each(files: int) -> int:
    return max(LEAST_ROWS, min(MOST_ROWS, ROWS // files))


def _sorted(taken: Sequence[tuple[pa.RecordBatch, Ranks]], schema: pa.Schema) -> Iterator[Portion]:
    kinds: list[pa.Schema] = []
    parts: list[list[tuple[pa.RecordBatch, Ranks]]] = []
    for batch, ranks in taken:
        kind = as_in(schema, batch.schema)
        if kind not in kinds:
            kinds.append(kind)
            parts.append([])
        number = kinds.index(kind)
        parts[number].append((aligned(batch, kind), ranks))
    tables, sorted_ranks = [], []
    for part, kind in zip(parts, kinds, strict=True):
        table, ranks = pa.Table.from_batches([batch for batch, _ in part], kind), part[0][1]
        if len(part) > 1:
            ranks = Ranks.joined([ranks for _, ranks in part])
            order = ranks.order()
            table, ranks = table.take(pa.array(order)), ranks.take(order)
        tables.append(table)
        sorted_ranks.append(ranks)
    if len(tables) == 1:
        yield Portion(tables[0], sorted_ranks[0].turn)
        return
    # What is in order stays in order among the others, so each kind is given out in runs.
    order = Ranks.joined(sorted_ranks).order()
    ends = np.cumsum([len(table) for table in tables])
    number_of = np.searchsorted(ends, order, "right")
    edges = [0, *(np.flatnonzero(np.diff(number_of)) + 1).tolist(), len(order)]
    at = [0] * len(tables)
    for start, end in pairwise(edges):
        number = int(number_of[start])
        first, at[number] = at[number], at[number] + end - start
        rows = slice(first, at[number])
        yield Portion(tables[number][rows], sorted_ranks[number].turn[rows])


class _Slots:
    """Counts how many more files may stay open."""

    def __init__(self) -> None:
        self._free = OPEN_FILES

    def take(self) -> bool:
        if not self._free:
            return False
        self._free -= 1
        return True

    def give(self) -> None:
        self._free += 1


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

    def begin(self, group: int, row: int, size: int) -> None:
        """Read a row group from a row on, in batches of this size."""
        self.batches = _from_row(self.parquet.iter_batches(size, row_groups=[group]), row)

    def close(self) -> None:
        self.batches = iter(())
        self.parquet.close()
        self._source.close()


def _from_row(batches: Iterator[pa.RecordBatch], row: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if row < batch.num_rows:
            yield batch.slice(row)
        row = max(0, row - batch.num_rows)


class _Head:
    """The next rows of a file."""

    def __init__(
        self,
        part: _Part,
        place: Place,
        journals: Mapping[str, int],
        between: Between,
        slots: _Slots,
    ) -> None:
        self._part = part
        self._place = place
        self._journals = journals
        self._between = between
        self._slots = slots
        self._open: _Open | None = None
        self._stays = False
        #: Row groups that are still to be read, and how many rows of the first one are.
        self._groups: deque[int] | None = None
        self._row = 0
        self._batch: pa.RecordBatch | None = None
        self._ranks: Ranks | None = None
        self._at = 0
        #: The rank of the last row in memory.
        self.last = (NEVER, NOWHERE, 0, 0)

    def _row_groups(self, file: pq.ParquetFile) -> list[int]:
        metadata = file.metadata
        index = file.schema_arrow.get_field_index("_time")
        if index < 0 or self._between == ALWAYS:
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
                or self._between.meets(statistics.min_raw, statistics.max_raw)
            ):
                found.append(number)
        return found

    def take(self, frontier: tuple[int, int, int, int]) -> tuple[pa.RecordBatch, Ranks] | None:
        """The rows that are not behind this rank."""
        assert self._ranks is not None
        assert self._batch is not None
        end = self._ranks.up_to(frontier)
        start, self._at = self._at, end
        if start == end:
            return None
        return self._batch.slice(start, end - start), self._ranks.take(slice(start, end))

    def refill(self, rows: int) -> bool:
        """Have rows in memory; False if there are no more."""
        if self._batch is not None and self._at < self._batch.num_rows:
            return True
        batch = self._next(rows)
        while batch is not None and not (wanted := self._wanted(batch)).num_rows:
            batch = self._next(rows)
        if batch is not None:
            self._keep(wanted)
        if batch is None or not self._stays:
            self.close()
        return batch is not None

    def _next(self, rows: int) -> pa.RecordBatch | None:
        """The next rows of the file, wanted or not."""
        if self._open is None:
            self._open = _Open(self._place, self._part.file.path)
            self._stays = self._slots.take()
            if self._groups is None:
                self._groups = deque(self._row_groups(self._open.parquet))
            if self._groups:
                self._open.begin(self._groups[0], self._row, rows)
        assert self._groups is not None
        while self._groups:
            batch = next(self._open.batches, None)
            if batch is not None:
                self._row += batch.num_rows
                return batch
            self._groups.popleft()
            self._row = 0
            if self._groups:
                self._open.begin(self._groups[0], 0, rows)
        return None

    def _keep(self, batch: pa.RecordBatch) -> None:
        ranks = ranks_of(batch, self._journals)
        if self._part.only is not None:
            floor = self._part.file.floors[self._part.only]
            ranks.turn = np.maximum(ranks.turn, floor)
        self._batch, self._ranks, self._at = batch, ranks, 0
        self.last = ranks.at(-1)

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        since, until = self._between
        if since is not None or until is not None:
            time = times_of(batch)
            keep = time != NEVER
            if since is not None:
                keep &= time >= since
            if until is not None:
                keep &= time < until
            if not keep.all():
                batch = batch.filter(pa.array(keep))
        if self._part.only is not None:
            batch = batch.filter(pc.fill_null(pc.equal(journals_of(batch), self._part.only), False))
        elif self._part.without:
            others = pc.is_in(journals_of(batch), pa.array(sorted(self._part.without)))
            batch = batch.filter(pc.invert(others))
        return batch

    def close(self) -> None:
        """Close the file. What is in memory stays; for what follows, it is opened again."""
        if self._open is not None:
            self._open.close()
            self._open = None
            if self._stays:
                self._slots.give()
                self._stays = False
