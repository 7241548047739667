"""From the archive into the journals, and on: one source for past, present and future.

A DataFrame that is read once cannot be joined with a stream, and two streams that are joined run
side by side: the present would be mixed into the past. So this is one source with two phases, and
its offset says in which it is:

    {"version": 17, "next": 3}               the archive at version 17; its first 3 files are done
    {"live": {...}, "positions": {...}}      the journals; the offset of the source "stentor"

The files of a version are taken in the order of their first turns; those that cannot matter to the
filter are counted, too, but not read: which these are may differ when the query is started again,
as with `since="2 hours"`, and the count must mean the same. When all are done, the journals
go on exactly behind what this version of the archive holds: its manifests say for each journal up
to which offset everything is in it. If several queries write into the archive, one is behind the
others, and its position counts; events beyond it are left out of the archive's part, since the
journals bring them. Journals that the archive does not know begin at their beginning.

Version and positions are in the offset, so in the checkpoint: a query that is started again goes on
with the same files and the same positions, whatever was archived or compacted meanwhile. As long as
it is in the first phase, it needs the files of its version; these stay for the grace time of
compactions.

What the brokers send they have filtered. What comes from the archive is filtered by the tasks that
read it, before its values get the types that they have in the archive as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from stentor.errors import ArchiveError, HistoryGone, InvalidConfiguration
from stentor.filters import Filter
from stentor.pipeline.archives.frames import Part, part_of, spark_schema, tasks_of
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import fitted
from stentor.pipeline.archives.statistics import Pruner
from stentor.pipeline.archives.tables import Archive, File, Table
from stentor.pipeline.columns.layout import arrow_schema
from stentor.pipeline.registration import register_source

NAME: Final = "stentor_history"
#: Rows of a micro-batch if nobody says how many.
ROWS_PER_BATCH: Final = 1_000_000

_PATH: Final = "historyPath"
_VERSION: Final = "historyVersion"
_DECIDED: Final = frozenset({"startingoffsets", "startingtimestamp", "eventtype", "filter"})
_STORAGE: Final = "historyStorage"
_OWN: Final = frozenset({_PATH.lower(), _VERSION.lower(), _STORAGE.lower(), "path"})


def continued(
    spark: SparkSession, table: Table, filter: Filter, options: Mapping[str, str]
) -> DataFrame:
    """The archive at this state, and then what the brokers have."""
    from stentor.pipeline.columns import with_reserved

    given = {name.lower() for name in options}
    if given & _DECIDED:
        raise InvalidConfiguration(
            f"the option {min(given & _DECIDED)!r} follows from the archive; use since and filter"
        )
    table.check_complete()
    if table.files and not table.positions():
        raise ArchiveError(
            f"the archive at {table.place.root} does not say which events of which journal it "
            "holds; archive `_broker` (or better `_stream`) and `_offset`, as the source "
            "'stentor' gives them"
        )
    register_source(spark, HistorySource)
    schema = with_reserved(spark_schema(table.schema))
    all_options = {
        **options,
        "filter": str(filter),
        _PATH: table.place.root,
        _VERSION: str(table.version),
        _STORAGE: json.dumps(table.place.options),
    }
    return spark.readStream.format(NAME).schema(schema).options(**all_options).load()


@dataclass(frozen=True)
class ArchivePart(InputPartition):
    """Some files, for one task."""

    part: Part


class _Known:
    """The files of a version of the archive.

    Which these are, and their order, depends on nothing but the version.
    """

    def __init__(self, table: Table, filter: Filter) -> None:
        self.table = table
        self.positions = table.positions()
        files = [f for f in table.files.values() if not f.is_left_to(self.positions)]
        self.files = sorted(files, key=lambda file: (file.begins, file.path))
        pruner = Pruner(filter, table.columns)
        self._matter = {file.path for file in files if pruner.may_match(file)}

    def matters(self, file: File) -> bool:
        """Whether some event in it may match the filter."""
        return file.path in self._matter


class HistorySource(DataSource):
    """What Spark is given."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return HistoryReader(schema, dict(self.options))


class HistoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads an archive, and then the journals."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        lower = {name.lower(): value for name, value in options.items()}
        storage = json.loads(lower.get(_STORAGE.lower(), "[]"))
        self._place = Place(lower[_PATH.lower()], tuple((name, value) for name, value in storage))
        self._version = int(lower[_VERSION.lower()])
        self._options = {name: v for name, v in options.items() if name.lower() not in _OWN}
        self._filter = lower.get("filter", "")
        rows = lower.get("maxrowsperbatch")
        self._rows = ROWS_PER_BATCH if rows is None else int(rows)
        self._schema = schema
        self._known: _Known | None = None
        self._reader: Any = None
        self._available_now = False

    # -- offsets, in the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"version": self._version, "next": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if "live" in start:
            positions = start["positions"]
            try:
                found = self._live(positions).latestOffset(start["live"], limit)
            except HistoryGone as error:
                raise self._gone(error, start["live"]["streams"]) from error
            return start if found == start["live"] else {"live": found, "positions": positions}
        known = self._files(start["version"])
        if start["next"] == len(known.files):
            positions = known.positions
            return {"live": self._live(positions).initialOffset(), "positions": positions}
        end, rows = start["next"], 0
        most = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", None)
        for file in known.files[end:]:
            more = file.rows if known.matters(file) else 0
            if rows and most is not None and rows + more > most:
                break
            end, rows = end + 1, rows + more
        return {"version": start["version"], "next": end}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True
        if self._reader is not None:
            self._reader.prepareForTriggerAvailableNow()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if "live" in start:
            found: Sequence[InputPartition] = self._live(start["positions"]).partitions(
                start["live"], end["live"]
            )
            return found
        if "live" in end:
            return []  # the step from one phase to the next brings nothing
        known = self._files(end["version"])
        # Spark asks anew where the first batch begins, and the archive may have grown since then.
        begin = start["next"] if start["version"] == end["version"] else 0
        files = [file for file in known.files[begin : end["next"]] if known.matters(file)]
        found = []
        for some in tasks_of(files):
            journals = {name for file in some for name in known.table.offsets(file)}
            left = {j: p for j, p in known.positions.items() if j in journals}
            found.append(ArchivePart(part_of(known.table, some, self._filter, left)))
        return found

    def commit(self, end: dict[str, Any]) -> None:
        if "live" in end:
            self._live(end["positions"]).commit(end["live"])

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()

    def _files(self, version: int) -> _Known:
        if self._known is None or self._known.table.version != version:
            self._known = _Known(Archive(self._place).at(version), Filter(self._filter))
        return self._known

    def _gone(self, error: HistoryGone, streams: Mapping[str, int]) -> HistoryGone:
        """The error, and whose fault it is, if a query is far behind the others."""
        table = Archive(self._place).table()
        behind = {table.slowest(stream, position) for stream, position in streams.items()}
        names = sorted(name for name in behind if name is not None)
        if not names:
            return error
        return HistoryGone(
            f"{error}. The archive at {self._place.root} ends there because of the query "
            f"{names[0]!r}, and others are further on: let it catch up; or if it is no more, call "
            f"compact(spark, path, retire={names!r}), and start anew"
        )

    def _live(self, positions: Mapping[str, int]) -> Any:
        """The reader of the journals, which begins behind these positions."""
        if self._reader is None:
            self._reader = journal_reader(self._options, self._schema, positions)
            if self._available_now:
                self._reader.prepareForTriggerAvailableNow()
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": None, "_reader": None}

    # -- reading, in the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ArchivePart):
            return self._read_archive(partition.part)
        return self._read_live(partition)

    def _read_archive(self, part: Part) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        for events in part.read():
            for batch in events.combine_chunks().to_batches():
                yield fitted(batch, schema)

    def _read_live(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from stentor.pipeline.datasource import StentorSource

        reader = StentorSource(self._options).streamReader(self._schema)
        yield from reader.read(partition)


def journal_reader(
    options: Mapping[str, str], schema: StructType, positions: Mapping[str, int]
) -> Any:
    """The reader of the source "stentor", to begin at these positions."""
    from stentor.pipeline.datasource import StentorSource
    from stentor.pipeline.source.journals import Journals
    from stentor.pipeline.source.offsets import broker_of
    from stentor.pipeline.source.options import reading

    # Where journals are known by their ids, the names of their brokers would mean other ones.
    named = {broker_of(name) for name in positions if broker_of(name) != name}
    positions = {name: offset for name, offset in positions.items() if name not in named}
    connecting = reading(options, streaming=True).connecting
    with Journals(connecting) as journals:
        seen = journals.all_seen(at_least=1)
    if not seen.silent:
        # The archive may know brokers that are no more; the source would take them for mistakes.
        known = {name for j in seen.journals.values() for name in (j.stream, j.broker)}
        positions = {name: offset for name, offset in positions.items() if name in known}
    starting = json.dumps(positions) if positions else "earliest"
    source = StentorSource({**options, "startingOffsets": starting})
    return source.streamReader(schema)
