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

What the brokers send they have filtered. What comes from the archive is filtered by Spark; except
for files in which a column has another type than in the archive as a whole, which are filtered
before they get that type. A column tells the two apart, and nobody sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BooleanType, StructType

from stentor.errors import ArchiveError, HistoryGone, InvalidConfiguration
from stentor.filters import Filter
from stentor.model.event_types import event_types
from stentor.pipeline.archives.facts import RowFilter
from stentor.pipeline.archives.frontier import before, check_complete, left_to_brokers
from stentor.pipeline.archives.log import Log
from stentor.pipeline.archives.manifests import File, State
from stentor.pipeline.archives.merging import in_order
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import as_in, fitted
from stentor.pipeline.archives.spark_schemas import spark_schema
from stentor.pipeline.archives.statistics import Pruner
from stentor.pipeline.archives.stores import store_of
from stentor.pipeline.columns.layout import arrow_schema
from stentor.pipeline.columns.types import from_json
from stentor.pipeline.registration import register_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "stentor_history"
#: Tells the events that match for certain from those that Spark has to ask the filter about.
DECIDED: Final = "_decided"
#: Rows of a micro-batch if nobody says how many, and of one task.
ROWS_PER_BATCH: Final = 1_000_000
ROWS_PER_TASK: Final = 250_000

_PATH: Final = "historyPath"
_VERSION: Final = "historyVersion"
_DECIDED: Final = frozenset({"startingoffsets", "startingtimestamp", "eventtype", "filter"})
_LINEAGE: Final = "historyLineage"
_OWN: Final = frozenset({_PATH.lower(), _VERSION.lower(), _LINEAGE.lower(), "path"})


def continued(
    spark: SparkSession, place: Place, state: State, filter: Filter, options: Mapping[str, str]
) -> DataFrame:
    """The archive at this state, and then what the brokers have."""
    from stentor.pipeline.columns import with_reserved
    from stentor.pipeline.filters import to_column

    given = {name.lower() for name in options}
    if given & _DECIDED:
        raise InvalidConfiguration(
            f"the option {min(given & _DECIDED)!r} follows from the archive; use since and filter"
        )
    check_complete(place.root, state)
    if state.files and not state.positions():
        raise ArchiveError(
            f"the archive at {place.root} does not say which events of which journal it holds; "
            "archive `_broker` (or better `_stream`) and `_offset`, as the source 'stentor' gives "
            "them"
        )
    register_source(spark, HistorySource)
    schema = with_reserved(spark_schema(state.schema)).add(DECIDED, BooleanType())
    all_options = {
        **options,
        "filter": str(filter),
        _PATH: place.root,
        _VERSION: str(state.version),
        _LINEAGE: json.dumps(_lineage(state)),
    }
    events = spark.readStream.format(NAME).schema(schema).options(**all_options).load()
    matches = to_column(filter, events.drop(DECIDED).schema)
    return events.where(F.col(DECIDED) | matches).drop(DECIDED)


def _lineage(state: State) -> dict[str, list[str]]:
    """What this program knows of event types, as far as tasks may have to know it."""
    schema = state.schema
    if all(as_in(schema, from_json(fields)) == schema for fields in state.schemas):
        return {}
    kinds = {file.type for file in state.files.values() if file.type is not None}
    return {kind: sorted(event_types.ancestors(kind)) for kind in kinds}


@dataclass(frozen=True)
class ArchivePart(InputPartition):
    """Some files, for one task."""

    files: tuple[File, ...]
    #: By journal: what is left to the brokers.
    positions: Mapping[str, int]


class _Known:
    """The files of a version of the archive.

    Which these are, and their order, depends on nothing but the version.
    """

    def __init__(self, state: State, filter: Filter) -> None:
        self.state = state
        positions = state.positions()
        files = [file for file in state.files.values() if not left_to_brokers(file, positions)]
        self.files = sorted(files, key=lambda file: (file.begins, file.path))
        schemas = [from_json(fields) for fields in state.schemas]
        pruner = Pruner(filter, schemas, lineage=False)
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
        self._place = Place(lower[_PATH.lower()])
        self._version = int(lower[_VERSION.lower()])
        self._options = {name: v for name, v in options.items() if name.lower() not in _OWN}
        self._filter = lower.get("filter", "")
        self._lineage: dict[str, list[str]] = json.loads(lower.get(_LINEAGE.lower(), "{}"))
        rows = lower.get("maxrowsperbatch")
        self._rows = ROWS_PER_BATCH if rows is None else int(rows)
        self._schema = StructType([f for f in schema.fields if f.name != DECIDED])
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
            positions = known.state.positions()
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
        positions = known.state.positions()
        # Spark asks anew where the first batch begins, and the archive may have grown since then.
        begin = start["next"] if start["version"] == end["version"] else 0
        files = [file for file in known.files[begin : end["next"]] if known.matters(file)]
        found = []
        for some in _tasks(files):
            journals = {journal for file in some for journal in file.offsets}
            left = {j: p for j, p in positions.items() if j in journals}
            found.append(ArchivePart(tuple(some), left))
        return found

    def commit(self, end: dict[str, Any]) -> None:
        if "live" in end:
            self._live(end["positions"]).commit(end["live"])

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()

    def _files(self, version: int) -> _Known:
        if self._known is None or self._known.state.version != version:
            state = Log(store_of(self._place)).at(version)
            self._known = _Known(state, Filter(self._filter))
        return self._known

    def _gone(self, error: HistoryGone, streams: Mapping[str, int]) -> HistoryGone:
        """The error, and whose fault it is, if a query is far behind the others."""
        state = Log(store_of(self._place)).state()
        behind = {state.slowest(stream, position) for stream, position in streams.items()}
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
            return self._read_archive(partition)
        return self._read_live(partition)

    def _read_archive(self, part: ArchivePart) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        for portion in in_order(self._place, part.files, schema):
            events = portion.events
            keep = before(events, part.positions)
            if keep is not None:
                events = events.filter(keep)
            same = events.schema == schema
            if not same:
                # The filter is asked about the values themselves, before they get other types.
                wanted = RowFilter(Filter(self._filter), self._ancestors)
                events = events.filter(pa.array(wanted.matches(events)))
            for batch in events.to_batches():
                if batch.num_rows:
                    yield _marked(batch if same else fitted(batch, schema), decided=not same)

    def _ancestors(self, kind: str) -> frozenset[str]:
        told = self._lineage.get(kind)
        return event_types.ancestors(kind) if told is None else frozenset(told)

    def _read_live(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from stentor.pipeline.datasource import StentorSource

        reader = StentorSource(self._options).streamReader(self._schema)
        for batch in reader.read(partition):
            yield _marked(batch, decided=True)


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


def _tasks(files: Sequence[File]) -> Iterator[list[File]]:
    """Neighbours together, as many as one task should read."""
    some: list[File] = []
    for file in files:
        if some and sum(each.rows for each in some) + file.rows > ROWS_PER_TASK:
            yield some
            some = []
        some.append(file)
    if some:
        yield some


def _marked(batch: pa.RecordBatch, *, decided: bool) -> pa.RecordBatch:
    return batch.append_column(DECIDED, pa.repeat(decided, batch.num_rows))
