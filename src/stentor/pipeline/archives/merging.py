"""Reads data files in the order of the archive, in bounded memory.

Each file is in order. So the next events are always at the heads of the files: of each open file a
batch of rows is in memory, and whatever is not behind the last row of any of these batches can be
given out, sorted. Then the batch that was used up is replaced by the next of its file. Rows are
never compared one by one: each step sorts columns.

A file is opened when the order reaches its first time and closed when it is used up, so that only
files are open that overlap in time. Row groups and files that lie outside of the wanted times are
not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
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
    Ints,
    Ranks,
    journals_of,
    numbered,
    ranks_of,
    times_of,
)
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import aligned

#: Rows in memory, of all open files together; and of one at least, and at most.
ROWS: Final = 262_144
LEAST_ROWS: Final = 256
MOST_ROWS: Final = 65_536
#: Files that may be open at once.
OPEN_FILES: Final = 512


class Portion(NamedTuple):
    """The next events in order, and when their turns are."""

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
    """The events of files, as columns of this schema, in the order of the archive."""
    journals = numbered({journal for file in files for journal in file.offsets})
    waiting = sorted(_parts(files, between), key=lambda part: (-part.file.low, part.file.path))
    heads: list[_Head] = []
    try:
        while waiting or heads:
            frontier = min((head.last for head in heads), default=None)
            while waiting and (frontier is None or waiting[-1].file.low <= frontier[0]):
                _open(waiting.pop(), heads, place, journals, between)
                frontier = min((head.last for head in heads), default=None)
            if frontier is None:
                return
            taken = [rows for head in heads if (rows := head.take(frontier)) is not None]
            size = _rows_of_each(len(heads))
            heads = [head for head in heads if head.refill(size)]
            yield _sorted(taken, schema)
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


def _open(
    part: _Part,
    heads: list[_Head],
    place: Place,
    journals: Mapping[str, int],
    between: Between,
) -> None:
    if len(heads) >= OPEN_FILES:
        raise ArchiveError(
            f"more than {OPEN_FILES} files of the archive at {place.root} overlap in time; join "
            "them first with compact(spark, path)"
        )
    head = _Head(part, place, journals, between)
    if head.refill(_rows_of_each(len(heads) + 1)):
        heads.append(head)


def _rows_of_each(files: int) -> int:
    return max(LEAST_ROWS, min(MOST_ROWS, ROWS // files))


def _sorted(taken: Sequence[tuple[pa.RecordBatch, Ranks]], schema: pa.Schema) -> Portion:
    table = pa.Table.from_batches([aligned(batch, schema) for batch, _ in taken], schema)
    if len(taken) == 1:
        return Portion(table, taken[0][1].turn)
    ranks = Ranks.joined([ranks for _, ranks in taken])
    order = ranks.order()
    return Portion(table.take(pa.array(order)), ranks.turn[order])


class _Head:
    """The next rows of a file."""

    def __init__(
        self, part: _Part, place: Place, journals: Mapping[str, int], between: Between
    ) -> None:
        self._part = part
        self._journals = journals
        self._between = between
        try:
            self._source = place.open(part.file.path)
            self._file = pq.ParquetFile(self._source)
        except FileNotFoundError as error:
            raise ArchiveError(
                f"{part.file.path} is missing from the archive at {place.root}; it was compacted "
                "away long ago, or somebody deleted it: begin anew, or restore it"
            ) from error
        except pa.ArrowException as error:
            raise ArchiveError(
                f"{part.file.path} in the archive at {place.root} is damaged: {error}; restore it "
                "from a backup"
            ) from error
        self._groups = iter(self._row_groups())
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None
        self._ranks: Ranks | None = None
        self._at = 0

    def _row_groups(self) -> list[int]:
        metadata = self._file.metadata
        index = self._file.schema_arrow.get_field_index("_time")
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

    @property
    def last(self) -> tuple[int, int, int, int]:
        """The rank of the last row in memory."""
        assert self._ranks is not None
        return self._ranks.at(-1)

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
        while self._batch is None or self._at == self._batch.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                group = next(self._groups, None)
                if group is None:
                    self.close()
                    return False
                self._batches = self._file.iter_batches(rows, row_groups=[group])
                continue
            batch = self._wanted(batch)
            ranks = ranks_of(batch, self._journals)
            if self._part.only is not None:
                floor = self._part.file.floors[self._part.only]
                ranks.turn = np.maximum(ranks.turn, floor)
            self._batch, self._ranks, self._at = batch, ranks, 0
        return True

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
        self._file.close()
        self._source.close()
