"""Appends batches of events to an archive: files first, then one commit. The theory is in `log`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

from stentor.errors import ArchiveError
from stentor.pipeline.archives.compacting import GRACE, run_groups
from stentor.pipeline.archives.compaction import clean, replace_files, tiered_plan
from stentor.pipeline.archives.log import Log
from stentor.pipeline.archives.manifests import Batch, Commit, File, Progress, State
from stentor.pipeline.archives.ordering import AHEAD, NEVER, Span, floors
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.reading import load
from stentor.pipeline.archives.schemas import joined
from stentor.pipeline.archives.spark_schemas import archived
from stentor.pipeline.archives.stores import Store, store_of
from stentor.pipeline.archives.writing import DAY, REPORT, Piece, Task, reported, write_partition
from stentor.pipeline.columns.layout import arrow_schema
from stentor.pipeline.columns.types import as_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Times that a batch without duplicates is made anew because others have archived meanwhile.
ATTEMPTS: Final = 20
#: Seconds, at least, between two looks of a query for what can be deleted.
CLEANING: Final = 3_600.0
#: Operators of Spark that have a state, but hand on each event in the batch that brings it.
_PROMPT: Final = frozenset({"dedupe", "dedupeWithinWatermark"})

#: A column that exists only while events are brought together.
_CLUSTER: Final = "_cluster"


class Written(msgspec.Struct, frozen=True):
    """What was archived."""

    version: int
    rows: int
    files: int
    bytes: int
    #: Event types and days.
    partitions: frozenset[tuple[str | None, str | None]]


@dataclass
class Writer:
    """Appends batches; lives in the driver."""

    place: Place
    name: str
    deduplicate: bool
    cluster: bool
    #: Size of the files that small ones are joined to; 0 for not at all.
    target: int
    checkpoint: Place | None = None
    #: Seconds that replaced files stay.
    grace: float = GRACE.total_seconds()
    _log: Log | None = field(default=None, repr=False)
    _checkpoints: Store | None = field(default=None, repr=False)
    _query: str | None = None
    _holds: bool | None = None
    _cleaned: float | None = None

    def log(self, spark: SparkSession) -> Log:
        if self._log is None:
            self._log = Log(store_of(self.place, spark))
        return self._log

    def batch(self, events: DataFrame, number: int) -> None:
        """One micro-batch, for `foreachBatch`."""
        spark = events.sparkSession
        batch = Batch(self._query_id(spark), number)
        if self.log(spark).state().has(batch):
            return  # it was committed, but Spark did not get to know
        written = self.append(spark, events, batch)
        if self.target:
            self._compact(spark, written)

    def _query_id(self, spark: SparkSession) -> str:
        """The id that the query keeps as long as its checkpoint exists."""
        if self._query is None:
            assert self.checkpoint is not None
            self._checkpoints = store_of(self.checkpoint, spark)
            data = self._checkpoints.read("metadata")
            if data is None:
                raise ArchiveError(
                    f"there is no query behind the checkpoint {self.checkpoint.root}; was it "
                    "deleted while the query runs?"
                )
            self._query = str(msgspec.json.decode(data)["id"])
        return self._query

    def _compact(self, spark: SparkSession, written: Written) -> None:
        log = self.log(spark)
        groups = tiered_plan(log.state(), self.place.root, self.target, written.partitions)
        if not groups:
            return
        replace_files(log, run_groups(spark, groups))
        # Looking through all files takes a while, and what was replaced stays for long anyway.
        if self._cleaned is None or time.monotonic() - self._cleaned >= CLEANING:
            clean(log, self.grace)
            self._cleaned = time.monotonic()

    # -- appending

    def append(self, spark: SparkSession, events: DataFrame, batch: Batch | None) -> Written:
        """Write and commit, whatever others do meanwhile."""
        if self.deduplicate:
            events = events.persist()
            try:
                return self._append_new(spark, events, batch)
            finally:
                events.unpersist()
        done = self._append(spark, events, batch, None)
        assert done is not None
        return done

    def _append_new(self, spark: SparkSession, events: DataFrame, batch: Batch | None) -> Written:
        for _ in range(ATTEMPTS):
            state = self.log(spark).state()
            done = self._append(spark, self._unknown(spark, events, state), batch, state.version)
            if done is not None:
                return done
        raise ArchiveError(
            f"others write into the archive at {self.place.root} so often that duplicates cannot "
            "be told; let one query at a time archive with deduplicate"
        )

    def _unknown(self, spark: SparkSession, events: DataFrame, state: State) -> DataFrame:
        """Of each event one, and none that the archive has. Equal ids have equal times."""
        anonymous = events.where(F.col("_id").isNull())
        named = events.where(F.col("_id").isNotNull()).dropDuplicates(["_id"])
        files = list(state.files.values())
        if "_time" in events.columns and files:
            ends = events.agg(
                F.min(F.unix_micros("_time")).alias("low"),
                F.max(F.unix_micros("_time")).alias("high"),
                F.count_if(F.col("_time").isNull()).alias("absent"),
            ).head()
            assert ends is not None
            files = [f for f in files if _may_share(f, ends.low, ends.high, ends.absent)]
        if files and "_id" in state.schema.names:
            ids = load(spark, self.place, state, files, pa.schema([state.schema.field("_id")]))
            named = named.join(ids, "_id", "left_anti").select(events.columns)
        return named.unionAll(anonymous)

    def _append(
        self, spark: SparkSession, events: DataFrame, batch: Batch | None, version: int | None
    ) -> Written | None:
        """Write files and commit them; None if the archive is no longer at the given version."""
        kept = archived(events.schema)
        schema = arrow_schema(kept)
        # A batch that is run again may get another bound; its files are all written anew, too.
        believed = int(time.time() * 1e6) + AHEAD
        task = Task(self.place.root, as_json(schema), believed)
        rows = (
            self._prepared(events, kept)
            .mapInArrow(partial(write_partition, task), REPORT)
            .collect()
        )
        pieces = reported(rows)
        files = [file for piece in pieces for file in piece.files]
        written = {file.path for file in files}
        log = self.log(spark)
        moved = False

        def make(state: State) -> Commit | None:
            nonlocal moved
            moved = version is not None and state.version != version
            if moved or state.has(batch):
                return None
            try:
                joined(state.schema, schema)
            except ArchiveError:
                log.discard(written)
                raise
            return self._commit(state, batch, schema, pieces)

        self._check_visible(files)
        state = log.commit(make)
        if moved or not written <= state.files.keys() | state.removed.keys():
            log.discard(written)  # another driver was faster
        if moved:
            return None
        return Written(
            version=state.version,
            rows=sum(file.rows for file in files),
            files=len(files),
            bytes=sum(file.bytes for file in files),
            partitions=frozenset(file.partition for file in files),
        )

    def _prepared(self, events: DataFrame, schema: StructType) -> DataFrame:
        columns = [F.col(_quoted(f.name)).cast(f.dataType).alias(f.name) for f in schema.fields]
        found = events.select(columns)
        if not self.cluster:
            return found
        by = ["_type"] if "_type" in schema.fieldNames() else []
        if "_time" in schema.fieldNames():
            days = F.floor(F.unix_micros("_time") / F.lit(DAY))
            found, by = found.withColumn(_CLUSTER, days), [*by, _CLUSTER]
        # Unlike a repartitioning, this lets Spark divide what is large and join what is small.
        return found.hint("rebalance", *map(F.col, by)).drop(_CLUSTER) if by else found

    def _check_visible(self, files: Sequence[File]) -> None:
        """What executors have written must be where everybody finds it."""
        for file in files:
            if self.place.size(file.path) != file.bytes:
                raise ArchiveError(
                    f"an executor has written {file.path}, but the driver does not see it below "
                    f"{self.place.root}; archive to a path that all machines of the cluster share"
                )

    def _commit(
        self, state: State, batch: Batch | None, schema: pa.Schema, pieces: Sequence[Piece]
    ) -> Commit | None:
        known = state.progress.get(self.name, Progress()) if batch else Progress()
        spans = [piece.spans for piece in pieces]
        add = [
            msgspec.structs.replace(
                file, floors={j: f for j, f in each.items() if j in file.offsets}
            )
            for piece, each in zip(pieces, floors(spans, known.next, known.latest), strict=True)
            for file in piece.files
        ]
        progress = self._progress(spans, batch, schema) if batch else Progress()
        same = progress.next.items() <= known.next.items() and progress.holds <= known.holds
        if not add and same:
            return None  # nothing has happened
        return Commit(
            at=time.time(),
            operation="append",
            batch=batch,
            writer=self.name if batch else None,
            progress=progress,
            schemas=[as_json(schema)],
            add=add,
        )

    def _progress(
        self, pieces: Sequence[Mapping[str, Span]], batch: Batch, schema: pa.Schema
    ) -> Progress:
        """How far the query is: behind the events that it has, and behind those it passed over.

        If it holds events back, only the former is known.
        """
        found = Progress(next={}, holds=self._holds_back())
        if not found.holds:
            found.next = self._source_positions(batch, "_stream" in schema.names)
        for spans in pieces:
            for journal, span in spans.items():
                found.next[journal] = max(found.next.get(journal, 0), span.last + 1)
                if span.latest != NEVER:
                    found.latest[journal] = max(found.latest.get(journal, NEVER), span.latest)
        return found

    def _holds_back(self) -> bool:
        """Whether events may wait in the query's state, such as to be sorted, before they come.

        Spark numbers the operators that have a state, and notes in the checkpoint what each is
        before it runs the first batch. They stay the same as long as the checkpoint does.
        """
        if self._holds is None:
            assert self._checkpoints is not None
            number = 0
            while data := self._checkpoints.read(f"state/{number}/_metadata/metadata"):
                # A line with the version comes first.
                found = msgspec.json.decode(data.partition(b"\n")[2])
                if found["operatorInfo"]["operatorName"] not in _PROMPT:
                    break
                number += 1
            # What is noted otherwise, or not at all, may do anything.
            self._holds = bool(self._checkpoints.entries(f"state/{number}"))
        return self._holds

    def _source_positions(self, batch: Batch, by_stream: bool) -> dict[str, int]:
        """Where the query's sources are behind this batch, as far as they are of brokers.

        Spark writes it to the checkpoint before it runs a batch: a line for each source. If events
        were filtered, this is further on than the last event.
        """
        from stentor.pipeline.source.offsets import Offset, broker_of

        assert self._checkpoints is not None
        data = self._checkpoints.read(f"offsets/{batch.number}")
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
    time = file.columns.get("_time")
    if time is None or time.low is None or (time.absent and absent):
        return True
    if low is None or high is None:
        return bool(time.absent)
    assert isinstance(time.low, int)
    assert isinstance(time.high, int)
    return time.low <= high and low <= time.high


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
