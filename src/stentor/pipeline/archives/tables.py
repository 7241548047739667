"""An archive is a Delta table: theory of operation.

    _delta_log/00000000000000000017.json                      commit number 17, of the format
    data/quote.stock/2026-01-01/events-….parquet              events
    _stentor/writers/….json                                   which journals a query archives
    _stentor/checkpoints/…                                    of streaming queries that write here

Whoever reads Delta tables reads it: Spark, DuckDB, Polars, Trino, pandas. The log is written and
read by `deltalake`; what is here is only which actions a commit holds. Its rules:

1. Data files are written first, under names that nobody else uses. They mean nothing yet.
2. One commit adds them. It is tried on the newest version, once; whoever is too late looks at what
   the other has done, asks again whether its own step still makes sense, and tries anew.
3. The commit of a micro-batch holds the format's application transaction: the id of the query, and
   the number of the batch. A batch that is there already is not committed again. Spark runs a batch
   until it has heard that it succeeded, and always with the same rows. So each is in the archive
   exactly once, wherever a driver dies, and also if a second driver runs by mistake.
4. It also says, by further application transactions, how far the query has come in each journal:
   `["query","journal"]` is at the offset that comes next. The format looks these up by name, so the
   names are in a small file for each query. That file is written before the commit, and what it
   names beyond the commits has no transaction, so it need not be in step with them.
5. Columns are only ever added (`columns`), before files that have them are written.
6. Readers take the newest version and keep it. A compaction adds and removes files in one commit,
   and a vacuum deletes the removed files themselves only after a grace time.

All that is known of a file without reading it is in its add action: the partition values, that is
event type and day, and the statistics.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from stentor.errors import ArchiveError
from stentor.pipeline.archives.columns import DAY, grown, logical
from stentor.pipeline.archives.places import Place, in_words, unreachable

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

PARTITIONS: Final = ["_type", DAY]
WRITERS: Final = "_stentor/writers"
#: Data files that were written here, which are in order, have names that begin so.
OWN: Final = "events-"
#: The time before all others, in microseconds.
NEVER: Final = -(2**63)
#: Each lost race means that somebody else has won one; so many in a row mean that something else is
#: wrong.
ATTEMPTS: Final = 1_000

_OLD: Final = "_stentor/log"
_MARK: Final = "stentor.archive"
_FORMAT: Final = 1
#: All columns have statistics, not only the first 32.
_PROPERTIES: Final = {_MARK: str(_FORMAT), "delta.dataSkippingNumIndexedCols": "-1"}


class Bounds(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is known about a column of a file: the least value and the greatest, if it says so.

    Times are microseconds since 1970. A bound that is None is unknown, or there is no value.
    """

    low: Any
    high: Any
    #: Rows without a value; None if that is not known.
    absent: int | None


class File(msgspec.Struct, frozen=True):
    """A data file, by its add action."""

    #: Relative to the archive.
    path: str
    #: The event type, and the day in UTC, of all its events; None for those without.
    type: str | None
    day: str | None
    rows: int
    bytes: int
    #: When it was written, in microseconds since 1970.
    modified: int
    #: By the dotted name of the column.
    bounds: dict[str, Bounds] = {}

    @property
    def is_own(self) -> bool:
        """Whether it was written by an archive, rather than by another program."""
        return self.path.rpartition("/")[2].startswith(OWN)

    def known(self, column: str) -> Bounds | None:
        """What is known about a column; None if nothing is."""
        found = self.bounds.get(column)
        if found is None and self.is_own:
            return Bounds(None, None, self.rows)  # all columns that it has are measured
        return found

    def lacks(self, column: str) -> bool:
        """Whether no row has a value there."""
        found = self.known(column)
        return found is not None and found.absent == self.rows

    def only(self, column: str) -> str | None:
        """The value that all rows have there, if they do."""
        found = self.known(column)
        alike = found is not None and found.absent == 0 and found.low == found.high
        return found.low if found is not None and alike else None

    @property
    def times(self) -> tuple[int, int] | None:
        """The least and the greatest time of its events, if all have one."""
        found = self.known("_time")
        if found is None or found.absent != 0 or found.low is None or found.high is None:
            return None
        return found.low, found.high

    @property
    def begins(self) -> int:
        """No event of it has a time before this."""
        return NEVER if self.times is None else self.times[0]

    @property
    def journal(self) -> str | None:
        """The journal that all its events are of, by its id, or else by the broker's name."""
        found = self.known("_offset")
        if found is None or found.absent != 0 or found.low is None:
            return None
        return self.only("_broker" if self.lacks("_stream") else "_stream")

    def is_left_to(self, positions: Mapping[str, int]) -> bool:
        """Whether journals that are read from these positions on bring all of its events."""
        return self.journal is not None and self.offsets[0] >= positions[self.journal]

    @property
    def is_outside(self) -> bool:
        """Whether none of its events is of a journal."""
        return self.lacks("_offset") or (self.lacks("_stream") and self.lacks("_broker"))

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and the last offset, if all are of one journal."""
        found = self.bounds["_offset"]
        return found.low, found.high


class Progress(msgspec.Struct, frozen=True):
    """How far a query has come in the journals that it archives."""

    #: By journal: the offset that comes next.
    next: dict[str, int] = {}
    #: Whether it holds events back, as sorting does. Then it has read more than it has archived,
    #: and nobody knows which events of the journals are missing.
    holds: bool = False


class Writer(msgspec.Struct, frozen=True):
    """A query that archives journals."""

    name: str
    journals: list[str]
    holds: bool = False


class Batch(msgspec.Struct, frozen=True):
    """A micro-batch: the id of the streaming query, and its number there."""

    query: str
    number: int


class Step(msgspec.Struct):
    """What a commit does."""

    add: Sequence[AddAction] = ()
    remove: Sequence[RemoveAction] = ()
    #: Application transactions: a version for each name.
    transactions: Mapping[str, int] = {}


class Table:
    """An archive at one version."""

    def __init__(self, place: Place, delta: DeltaTable) -> None:
        self.place = place
        self.version: int = delta.version()
        #: The columns of the data files, except the day ...
        columns = pa.schema(delta.schema())
        self.columns: pa.Schema = pa.schema([f for f in columns if f.name != DAY])
        #: ... and those of the events.
        self.schema: pa.Schema = logical(self.columns)
        self._delta = delta

    def __repr__(self) -> str:
        return f"<version {self.version} of the archive at {self.place.root}>"

    @cached_property
    def files(self) -> dict[str, File]:
        """All data files, by their names."""
        self._current()
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        found = {file.path: file for file in _files(actions)}
        return {
            path: file if file.rows >= 0 else _counted(self.place, file)
            for path, file in found.items()
        }

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @cached_property
    def progress(self) -> dict[str, Progress]:
        """How far each query has come, by its name."""
        self._current()
        found = {}
        for name in self.place.names(WRITERS):
            data = self.place.read(name)
            if data is None or not name.endswith(".json"):
                continue
            writer = msgspec.json.decode(data, type=Writer)
            at = {
                j: self._delta.transaction_version(position(writer.name, j))
                for j in writer.journals
            }
            known = {journal: offset for journal, offset in at.items() if offset is not None}
            if known or writer.holds:
                found[writer.name] = Progress(known, writer.holds)
        return found

    def has(self, batch: Batch | None) -> bool:
        """Whether a micro-batch is in the archive."""
        self._current()
        last = None if batch is None else self._delta.transaction_version(batch.query)
        return batch is not None and last is not None and last >= batch.number

    def positions(self) -> dict[str, int]:
        """By journal: everything before this offset that was to be archived is in the archive.

        Who reads the archive first and the journals behind it has each event once, if events of the
        archive beyond that are left out. There may be some where several queries write.

        Of several writers, the slowest counts. What was archived without a streaming query counts
        where no query reads the journal: by its last offset. It means nothing if a writer holds
        events back.
        """
        found: dict[str, int] = {}
        for progress in self.progress.values():
            for journal, offset in progress.next.items():
                found[journal] = min(found.get(journal, offset), offset)
        written: dict[str, int] = {}
        for file in self.files.values():
            for journal, (_, last) in self.offsets(file).items():
                written[journal] = max(written.get(journal, 0), last + 1)
        return written | found

    def check_complete(self) -> None:
        """`ArchiveError` if the archive cannot say which events of the journals it has.

        A query that holds events back in its state, as one does that sorts them, has read further
        than it has archived.
        """
        holding = sorted(name for name, progress in self.progress.items() if progress.holds)
        if holding:
            raise ArchiveError(
                f"the query {holding[0]!r}, which writes the archive at {self.place.root}, holds "
                "events back, so nobody can say where the journals go on; archive the events "
                "before they are ordered or aggregated, into another archive"
            )

    def offsets(self, file: File) -> dict[str, tuple[int, int]]:
        """By journal: the first and the last offset of its events."""
        return offsets_in(self.place, file)

    def slowest(self, journal: str, position: int) -> str | None:
        """The writer that is at this position of a journal while another is further on."""
        at = {name: p.next[journal] for name, p in self.progress.items() if journal in p.next}
        behind = sorted(name for name, offset in at.items() if offset == position)
        return behind[0] if behind and max(at.values()) > position else None

    def _current(self) -> None:
        """What is asked for later must be of this version."""
        if self._delta.version() != self.version:
            self._delta = _delta(self.place, self.version)


def offsets_in(place: Place, file: File) -> dict[str, tuple[int, int]]:
    """By journal: the first and the last offset of the events in a file."""
    if file.journal is not None:
        return {file.journal: file.offsets}
    if file.is_outside:
        return {}
    from stentor.pipeline.archives.order import journals_of

    # Another program has written it, and may have brought together what was apart.
    with place.open(file.path) as source:
        parquet = pq.ParquetFile(source)
        names = [n for n in ("_stream", "_broker", "_offset") if n in parquet.schema_arrow.names]
        table = parquet.read(columns=names)
    if "_offset" not in names:
        return {}
    rows = pa.table({"journal": journals_of(table), "offset": table.column("_offset")})
    ends = rows.group_by("journal").aggregate([("offset", "min"), ("offset", "max")])
    return {
        each["journal"]: (each["offset_min"], each["offset_max"])
        for each in ends.to_pylist()
        if each["journal"] is not None
    }


def position(writer: str, journal: str) -> str:
    """The name of the transaction that says how far a query is in a journal."""
    return msgspec.json.encode([writer, journal]).decode()


class Archive:
    """The Delta table at a place, to commit to."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._delta: DeltaTable | None = None

    def table(self) -> Table:
        """The newest version; `ArchiveError` if there is no archive."""
        if self._delta is None:
            self._delta = _delta(self.place)
        else:
            self._delta.update_incremental()
        return Table(self.place, self._delta)

    def at(self, version: Any) -> Table:
        """An earlier version, by its number or its time, as long as it can be told."""
        return Table(self.place, _delta(self.place, version))

    def exists(self) -> bool:
        """Whether there is an archive; `ArchiveError` if there is something else."""
        return self._delta is not None or _is_delta(self.place)

    def columns(self, schema: pa.Schema) -> pa.Schema:
        """The columns for events of this schema, which the table has from now on."""
        for _ in range(ATTEMPTS):
            if not self.exists():
                self._create(schema)
            table = self.table()
            wanted, own = grown(table.columns, schema)
            if wanted == table.columns:
                return own
            self._try(partial(_add_columns, wanted))
        raise self._too_many()

    def commit(self, make: Callable[[Table], Step | None]) -> Table:
        """Commit what `make` makes of the newest version, which it is given, maybe several times.

        It may raise, or return None: then there is nothing to commit. Returns the newest version.
        """
        for _ in range(ATTEMPTS):
            table = self.table()
            step = make(table)
            if step is None:
                return table
            if self._try(partial(_write, step)):
                return self.table()
            # A store may report a failure although it has done what it was asked.
            if step.add and step.add[0].path in self.table().files:
                return self.table()
        raise self._too_many()

    def vacuum(self, grace: float) -> list[str]:
        """Delete what nobody needs who began less than so many seconds ago; which files."""
        hours = -int(-grace // 3_600)
        self.table()
        assert self._delta is not None
        found = self._delta.vacuum(hours, False, False, full=True)
        return sorted(set(found))

    def _create(self, schema: pa.Schema) -> None:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import CommitFailedError, DeltaError

        columns, _ = grown(pa.schema([]), schema)
        day = pa.field(DAY, pa.date32())
        if "_type" not in columns.names:
            columns = columns.append(pa.field("_type", pa.string()))
        _check_free(self.place)
        try:
            DeltaTable.create(
                _uri(self.place),
                Schema.from_arrow(columns.append(day)),
                mode="ignore",
                partition_by=PARTITIONS,
                configuration=_PROPERTIES,
                storage_options=self.place.storage_options,
                commit_properties=_once({}),  # another try would replace the columns of a winner
                raise_if_key_not_exists=False,
            )
        except CommitFailedError:
            pass  # another has made it at this moment
        except (DeltaError, OSError, ValueError) as error:
            raise _unwritable(self.place, error) from error

    def _try(self, step: Callable[[DeltaTable], None]) -> bool:
        """Whether a commit on the version that was seen succeeds."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        assert self._delta is not None
        try:
            step(self._delta)
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as error:
            raise _unwritable(self.place, error) from error
        return True

    def _too_many(self) -> ArchiveError:
        return ArchiveError(
            f"the archive at {self.place.root} takes no commit: {ATTEMPTS} times another writer "
            "was faster; are there that many?"
        )


def _once(transactions: Mapping[str, int]) -> Any:
    from deltalake import CommitProperties, Transaction

    now = int(time.time() * 1_000)
    found = [Transaction(name, version, now) for name, version in transactions.items()]
    return CommitProperties(max_commit_retries=0, app_transactions=found)


def _write(step: Step, delta: DeltaTable) -> None:
    delta.create_write_transaction(
        [*step.add, *step.remove],
        "append",
        delta.schema(),
        partition_by=PARTITIONS,
        commit_properties=_once(step.transactions),
    )


def _add_columns(wanted: pa.Schema, delta: DeltaTable) -> None:
    from deltalake import Schema

    old = pa.schema(delta.schema())
    new = [f for f in wanted if f.name not in old.names or old.field(f.name).type != f.type]
    delta.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields, commit_properties=_once({}))


# -- opening


def _uri(place: Place) -> str:
    return f"file://{quote(place.root)}" if place.is_local else place.root


def _delta(place: Place, version: Any = None) -> DeltaTable:
    """The Delta table there; `ArchiveError` if it is none, or not an archive."""
    if not _is_delta(place):
        raise ArchiveError(
            f"there is no archive at {place.root}; is the path right? An archive is made by "
            "archive(events, path)"
        )
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        delta = DeltaTable(_uri(place), storage_options=place.storage_options)
        if version is not None:
            delta.load_as_version(version)
    except (DeltaError, OSError, ValueError) as error:
        if version is None:
            raise ArchiveError(
                f"the archive at {place.root} cannot be read: {in_words(error)}; restore it from a "
                "backup"
            ) from error
        raise ArchiveError(
            f"version {version} of the archive at {place.root} is no longer known, or not yet; "
            "begin anew with the newest, and keep more with a longer grace time"
        ) from error
    _check_own(place, delta)
    return delta


def _is_delta(place: Place) -> bool:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError:
        raise ArchiveError(
            "archives are Delta tables, and deltalake is not installed; pip install "
            "'stentor[archive]', or 'stentor[spark]'"
        ) from None

    if place.is_local and not os.path.isdir(place.path("_delta_log")):
        if os.path.isdir(place.path(_OLD)):
            raise ArchiveError(
                f"the archive at {place.root} was written by an older version of Stentor; make a "
                f"Delta table of it with `stentor archive convert {place.root}`"
            )
        return False
    try:
        return bool(DeltaTable.is_deltatable(_uri(place), place.storage_options))
    except (DeltaError, OSError, ValueError) as error:
        raise unreachable(place, error) from error


def _check_own(place: Place, delta: DeltaTable) -> None:
    metadata = delta.metadata()
    mark = metadata.configuration.get(_MARK)
    if mark is None or list(metadata.partition_columns) != PARTITIONS:
        raise ArchiveError(
            f"{place.root} is a Delta table that is not an archive of Stentor's; read it with "
            "spark.read.format('delta') or deltalake, and archive to another directory"
        )
    if not mark.isdigit() or int(mark) > _FORMAT:
        raise ArchiveError(
            f"the archive at {place.root} was written by a newer version of Stentor (format "
            f"{mark}, known is {_FORMAT}); update Stentor"
        )
    features = delta.protocol().reader_features or []
    if delta.protocol().min_reader_version > 1 and set(features) - {"timestampNtz"}:
        raise ArchiveError(
            f"the archive at {place.root} has got features of Delta that Stentor does not read "
            f"({', '.join(sorted(features))}); drop them with ALTER TABLE ... DROP FEATURE"
        )


def _check_free(place: Place) -> None:
    """A vacuum deletes what no commit names, so nothing else may lie there."""
    if not place.is_local or not os.path.isdir(place.root):
        return
    others = sorted(n for n in os.listdir(place.root) if not n.startswith((".", "_")))
    if others:
        raise ArchiveError(
            f"{place.root} is not an archive, and holds {others[0]!r}; give a directory that is "
            "empty or does not exist"
        )


def _unwritable(place: Place, error: Exception) -> ArchiveError:
    return ArchiveError(
        f"{place.root} cannot be written: {in_words(error)}; nothing is changed. Make room, or see "
        "to the path and the permissions, and try again"
    )


# -- files


def _files(actions: pa.Table) -> Iterator[File]:
    kinds = dict(zip(actions.schema.names, actions.schema.types, strict=True))
    values = {
        name: (
            column.cast(pa.int64()) if pa.types.is_timestamp(kinds[name]) else column
        ).to_pylist()
        for name, column in zip(actions.schema.names, actions.columns, strict=True)
    }
    nothing = [None] * actions.num_rows
    measured = [
        (name, nulls, *(values.get(f"{end}.{name}", nothing) for end in ("min", "max")))
        for name, nulls in (
            (key.removeprefix("null_count."), column)
            for key, column in values.items()
            if key.startswith("null_count.")
        )
    ]
    types, days = (values[f"partition.{name}"] if actions.num_rows else [] for name in PARTITIONS)
    for row, path in enumerate(values["path"]):
        file = File(
            path=path,
            type=types[row],
            day=None if days[row] is None else days[row].isoformat(),
            rows=-1 if values["num_records"][row] is None else values["num_records"][row],
            bytes=values["size_bytes"][row],
            modified=values["modification_time"][row] * 1_000,
        )
        for name, nulls, low, high in measured:
            if nulls[row] is not None:
                # Others cut times to milliseconds.
                cut = not file.is_own and pa.types.is_timestamp(kinds.get(f"max.{name}", pa.null()))
                top = high[row] + 999 if cut and high[row] is not None else high[row]
                file.bounds[name] = Bounds(low[row], top, nulls[row])
        yield file


def _counted(place: Place, file: File) -> File:
    """A file without statistics, of another program."""
    with place.open(file.path) as source:
        return msgspec.structs.replace(file, rows=pq.read_metadata(source).num_rows)
