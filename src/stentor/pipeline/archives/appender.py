"""`archive`: batches of events, once or for as long as they come; see `tables` for how."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from stentor.errors import ArchiveError, InvalidConfiguration
from stentor.pipeline.archives.compaction import GRACE, TARGET_BYTES, grace_seconds, join_small
from stentor.pipeline.archives.data_files import (
    ONE_DAY,
    REPORT,
    Written,
    reported,
    safe_name,
    write_partition,
)
from stentor.pipeline.archives.frames import archived, as_schema, load
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.tables import (
    WRITERS,
    Archive,
    Batch,
    File,
    Progress,
    Step,
    Table,
    Writer,
    position,
)
from stentor.pipeline.filters.sql import quoted

if TYPE_CHECKING:
    from stentor.pipeline.event_table import Events

#: Times that a batch without duplicates is made anew because others have archived meanwhile.
ATTEMPTS: Final = 20
#: Batches of a query between two looks for what can be joined.
PACE: Final = 16
#: Seconds, at least, between two looks of a query for what can be deleted.
CLEANING: Final = 3_600.0
#: Operators of Spark that have a state, but hand on each event in the batch that brings it.
_PROMPT: Final = frozenset({"dedupe", "dedupeWithinWatermark"})

#: A column that exists only while events are brought together.
_CLUSTER: Final = "_cluster"

CHECKPOINTS: Final = "_stentor/checkpoints"
#: The name of a query that is given none.
DEFAULT_NAME: Final = "archive"


class Appended(msgspec.Struct, frozen=True):
    """What was archived."""

    version: int
    rows: int
    files: int
    bytes: int


@dataclass
class Appender:
    """Appends batches; lives in the driver."""

    archive: Archive
    name: str
    deduplicate: bool
    cluster: bool
    #: Size of the files that small ones are joined to; 0 for not at all.
    target: int
    checkpoint: Place | None = None
    #: Seconds that replaced files stay.
    grace: float = GRACE.total_seconds()
    _query: str | None = None
    _holds: bool | None = None
    _known: Writer | None = None
    _cleaned: float | None = None

    def batch(self, events: DataFrame, number: int) -> None:
        """One micro-batch, for `foreachBatch`."""
        spark = events.sparkSession
        batch = Batch(self._query_id(), number)
        if self.archive.exists() and self.archive.table().has(batch):
            return  # it was committed, but Spark did not get to know
        self.append(spark, events, batch)
        if self.target and number % PACE == PACE - 1:
            self._compact(spark)

    def _query_id(self) -> str:
        """The id that the query keeps as long as its checkpoint exists."""
        if self._query is None:
            assert self.checkpoint is not None
            data = self.checkpoint.read("metadata")
            if data is None:
                raise ArchiveError(
                    f"there is no query behind the checkpoint {self.checkpoint.root}; was it "
                    "deleted while the query runs?"
                )
            self._query = str(msgspec.json.decode(data)["id"])
        return self._query

    def _compact(self, spark: SparkSession) -> None:
        join_small(spark, self.archive, self.target, at_least=PACE)
        # Looking through all files takes a while, and what was replaced stays for long anyway.
        if self._cleaned is None or time.monotonic() - self._cleaned >= CLEANING:
            self.archive.vacuum(self.grace)
            self._cleaned = time.monotonic()

    # -- appending

    def append(self, spark: SparkSession, events: DataFrame, batch: Batch | None) -> Appended:
        """Write and commit, whatever others do meanwhile."""
        if self.deduplicate:
            events = events.persist()
            try:
                return self._append_new(spark, events, batch)
            finally:
                events.unpersist()
        done = self._append(events, batch, None)
        assert done is not None
        return done

    def _append_new(self, spark: SparkSession, events: DataFrame, batch: Batch | None) -> Appended:
        self.archive.columns(archived(events.schema))
        for _ in range(ATTEMPTS):
            table = self.archive.table()
            done = self._append(self._unknown(spark, events, table), batch, table.version)
            if done is not None:
                return done
        raise ArchiveError(
            f"others write into the archive at {self.archive.place.root} so often that duplicates "
            "cannot be told; let one query at a time archive with deduplicate"
        )

    def _unknown(self, spark: SparkSession, events: DataFrame, table: Table) -> DataFrame:
        """Of each event one, and none that the archive has. Equal ids have equal times."""
        anonymous = events.where(F.col("_id").isNull())
        named = events.where(F.col("_id").isNotNull()).dropDuplicates(["_id"])
        files = list(table.files.values())
        if "_time" in events.columns and files:
            ends = events.agg(
                F.min(F.unix_micros("_time")).alias("low"),
                F.max(F.unix_micros("_time")).alias("high"),
                F.count_if(F.col("_time").isNull()).alias("absent"),
            ).head()
            assert ends is not None
            files = [f for f in files if _may_share(f, ends.low, ends.high, ends.absent)]
        if files and "_id" in table.schema.names:
            ids = load(spark, table, files, pa.schema([table.schema.field("_id")]))
            named = named.join(ids, "_id", "left_anti").select(events.columns)
        return named.unionAll(anonymous)

    def _append(
        self, events: DataFrame, batch: Batch | None, version: int | None
    ) -> Appended | None:
        """Write files and commit them; None if the archive is no longer at the given version."""
        own = self.archive.columns(archived(events.schema))
        place = self.archive.place
        work = partial(write_partition, place, own)
        files = reported(self._prepared(events, own).mapInArrow(work, REPORT).collect())
        self._check_visible(files)
        progress = self._progress(files, batch, "_stream" in own.names) if batch else Progress()
        if batch is not None:
            self._note(progress)
        moved = again = False

        def make(table: Table) -> Step | None:
            nonlocal moved, again
            moved = version is not None and table.version != version
            again = table.has(batch)
            if moved or again:
                return None
            return self._step(table, batch, files, progress)

        table = self.archive.commit(make)
        if moved or again:
            place.delete([file.path for file in files])
        if moved:
            return None
        return Appended(
            version=table.version,
            rows=sum(file.rows for file in files),
            files=len(files),
            bytes=sum(file.bytes for file in files),
        )

    def _prepared(self, events: DataFrame, own: pa.Schema) -> DataFrame:
        kept = [n for n in events.columns if n in set(archived(events.schema).names)]
        found = as_schema(events.select(list(map(quoted, kept))), own)
        if not self.cluster:
            return found
        by = ["_type"] if "_type" in own.names else []
        if "_time" in own.names:
            days = F.floor(F.unix_micros("_time") / F.lit(ONE_DAY))
            found, by = found.withColumn(_CLUSTER, days), [*by, _CLUSTER]
        # Unlike a repartitioning, this lets Spark divide what is large and join what is small.
        return found.hint("rebalance", *map(F.col, by)).drop(_CLUSTER) if by else found

    def _check_visible(self, files: Sequence[Written]) -> None:
        """What executors have written must be where everybody finds it."""
        place = self.archive.place
        for file in files:
            if place.size(file.path) != file.bytes:
                raise ArchiveError(
                    f"an executor has written {file.path}, but the driver does not see it below "
                    f"{place.root}; archive to a path that all machines of the cluster share"
                )

    def _step(
        self, table: Table, batch: Batch | None, files: Sequence[Written], progress: Progress
    ) -> Step | None:
        known = table.progress.get(self.name, Progress()) if batch else Progress()
        further = {j: n for j, n in progress.next.items() if n > known.next.get(j, -1)}
        if not files and not further:
            return None  # nothing has happened
        transactions = {position(self.name, j): n for j, n in further.items()}
        if batch is not None:
            transactions[batch.query] = batch.number
        return Step(add=[file.action() for file in files], transactions=transactions)

    def _note(self, progress: Progress) -> None:
        """Write down which journals this query archives, so that readers can ask how far it is."""
        name = f"{WRITERS}/{safe_name(self.name)}.json"
        place = self.archive.place
        if self._known is None:
            data = place.read(name)
            empty = Writer(self.name, [])
            self._known = empty if data is None else msgspec.json.decode(data, type=Writer)
        journals = sorted({*self._known.journals, *progress.next})
        found = Writer(self.name, journals, self._known.holds or progress.holds)
        if found != self._known:
            place.write(name, msgspec.json.encode(found))
            self._known = found

    def _progress(self, files: Sequence[Written], batch: Batch, by_stream: bool) -> Progress:
        """How far the query is: behind the events that it has, and behind those it passed over.

        If it holds events back, only the former is known.
        """
        holds = self._holds_back()
        following: dict[str, int] = {}
        if not holds:
            following = self._source_positions(batch, by_stream)
        for file in files:
            if file.journal is not None:
                following[file.journal] = max(following.get(file.journal, 0), file.last + 1)
        return Progress(following, holds)

    def _holds_back(self) -> bool:
        """Whether events may wait in the query's state, such as to be sorted, before they come.

        Spark numbers the operators that have a state, and notes in the checkpoint what each is
        before it runs the first batch. They stay the same as long as the checkpoint does.
        """
        if self._holds is None:
            assert self.checkpoint is not None
            number = 0
            while data := self.checkpoint.read(f"state/{number}/_metadata/metadata"):
                # A line with the version comes first.
                found = msgspec.json.decode(data.partition(b"\n")[2])
                if found["operatorInfo"]["operatorName"] not in _PROMPT:
                    break
                number += 1
            # What is noted otherwise, or not at all, may do anything.
            self._holds = bool(self.checkpoint.names(f"state/{number}"))
        return self._holds

    def _source_positions(self, batch: Batch, by_stream: bool) -> dict[str, int]:
        """Where the query's sources are behind this batch, as far as they are of brokers.

        Spark writes it to the checkpoint before it runs a batch: a line for each source. If events
        were filtered, this is further on than the last event.
        """
        from stentor.pipeline.source.offsets import Offset, broker_of

        assert self.checkpoint is not None
        data = self.checkpoint.read(f"offsets/{batch.number}")
        streams: dict[str, int] = {}
        for line in (data or b"").decode().splitlines():
            try:
                streams |= Offset.of(msgspec.json.decode(line)).streams
            except (msgspec.DecodeError, KeyError, TypeError, ValueError):
                continue  # another source's
        if by_stream:
            return streams
        # The rows say only of which broker they are; one whose journal was replaced has two.
        brokers = [broker_of(stream) for stream in streams]
        alone = {s: n for s, n in streams.items() if brokers.count(broker_of(s)) == 1}
        return streams | {broker_of(s): n for s, n in alone.items()}


def _may_share(file: File, low: int | None, high: int | None, absent: int) -> bool:
    """Whether a file may hold events of these times."""
    time = file.known("_time")
    if time is None or time.absent is None or (time.absent and absent):
        return True
    if low is None or high is None:
        return bool(time.absent)
    if time.low is None or time.high is None:
        return time.absent < file.rows
    return bool(time.low <= high and low <= time.high)


def archive(
    events: DataFrame | Events,
    path: str | os.PathLike[str],
    *,
    query_name: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    trigger: str | Mapping[str, Any] | None = None,
    deduplicate: bool = False,
    cluster: bool | None = None,
    compaction: bool = True,
    target_bytes: int = TARGET_BYTES,
    grace: timedelta | str = GRACE,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Keep events as a Delta table, partitioned by event type and day, each exactly once.

        query = archive(events, "/data/events", trigger="10 seconds")     # a stream: runs on
        written = archive(events, "/data/events")                         # a batch: appended once

    A streaming DataFrame starts a query, which is returned. Its checkpoint is in the archive, under
    `query_name`, unless another place is given: a query that is started again under its name goes
    on where it was. Several queries may write into one archive under different names. `trigger` is
    an interval, "availableNow", or what `DataStreamWriter.trigger` takes by name.

    A batch DataFrame is appended in one step, and `Appended` says what was. It is appended as often
    as it is archived; `deduplicate` leaves out events whose `_id` the archive has, for both.

    New columns may come at any time, and numbers may change their type: each event keeps the type
    that it came with. A column that changes its type otherwise is an `ArchiveError`. `cluster` says
    whether events of one type and day are brought together before they are written, which costs a
    shuffle and saves small files: by default only of a batch. `compaction` lets a query join its
    small files up to `target_bytes` when there are many, and delete what it has replaced after
    `grace`, which must be longer than the longest query on the archive and the longest replay;
    `compact` does the rest. `storage_options` say how to get to an object store, as `deltalake`
    takes them; without them, the environment does.

    Archive events before they are ordered or aggregated: a query that holds events back cannot say
    which events of the journals are in the archive, so no live `history` and no `past` can follow.
    """
    from stentor.pipeline.event_table import table_of

    events = table_of(events)
    spark = events.sparkSession
    place = place_of(path, spark, storage_options)
    schema = archived(events.schema)
    appender = Appender(
        archive=Archive(place),
        name=query_name or (DEFAULT_NAME if checkpoint is None else os.fspath(checkpoint)),
        deduplicate=deduplicate,
        cluster=cluster if cluster is not None else not events.isStreaming,
        target=target_bytes if compaction else 0,
        grace=grace_seconds(grace),
    )
    if deduplicate and "_id" not in schema.names:
        raise InvalidConfiguration("deduplicate compares `_id`, and the events have no such column")
    if not events.isStreaming and (query_name or checkpoint or trigger):
        raise InvalidConfiguration(
            "query_name, checkpoint and trigger are for streams, and these events are a batch"
        )
    if events.isStreaming:
        appender.checkpoint = _checkpoint(place, appender.name, checkpoint, spark)
    # To say now rather than later what contradicts, or that nothing can be written there.
    appender.archive.columns(schema)
    if appender.checkpoint is None:
        return appender.append(spark, events, None)
    stream = events.writeStream.foreachBatch(appender.batch).option(
        "checkpointLocation", appender.checkpoint.for_spark("")
    )
    if trigger is not None:
        stream = stream.trigger(**_trigger(trigger))
    query: StreamingQuery = stream.queryName(query_name).start() if query_name else stream.start()
    return query


def _trigger(trigger: str | Mapping[str, Any]) -> dict[str, Any]:
    if trigger == "availableNow":
        return {"availableNow": True}
    return {"processingTime": trigger} if isinstance(trigger, str) else dict(trigger)


def _checkpoint(
    place: Place, name: str, given: str | os.PathLike[str] | None, spark: SparkSession
) -> Place:
    if given is not None:
        return place_of(given, spark, dict(place.options))
    if "/" in name or name.startswith("."):
        raise InvalidConfiguration(
            f"query_name={name!r} names a directory of the archive; leave out slashes and a dot at "
            "the beginning, or give a checkpoint"
        )
    return place.below(f"{CHECKPOINTS}/{name}")
