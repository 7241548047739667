"""`detect`: the composite events in a table or a stream of events.

The answer is that of `stentor.composite.detect_local`. There are three parts to it:

*Which events matter* Spark works out itself, as long as the filters of the patterns are few and
plain enough to be expressions: each row gets a mask of the filters that match, and rows that none
matches go no further. Otherwise the detector's index does it, in the workers.

*Where they go.* Events with the same values of the attributes that all patterns (and those that
they are defined by) are parted by belong together and go to the same place. Without such attributes
everything has to go through one detector, which is told as a warning: one core does all the work.

*How they are consumed.* A table is sorted by time within each partition, and one detector reads it
from end to end (`worker`). A stream is kept in Spark's state until the watermark has passed
(`detector_state`). Both run the production detector, and results are the same, ids included.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stentor.composite import Limits, Pattern
from stentor.composite.intervals import END, START
from stentor.composite.reference import Mode
from stentor.composite.runs import DEFAULTS
from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.pipeline.composites.composite_rows import composite_schema
from stentor.pipeline.composites.waiting_rows import HIGH
from stentor.pipeline.composites.worker import (
    MASK,
    Plan,
    detected,
    keep_what_is_loaded,
    parcels_by_shard,
)
from stentor.pipeline.filters import are_native, to_column
from stentor.pipeline.matching.parcels import unwrapped
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.spark_features import check_state
from stentor.pipeline.steps.durations import Duration
from stentor.pipeline.steps.events import (
    WATERMARK,
    NoColumn,
    column,
    find,
    has_watermark,
    no_column,
    present,
    producer,
    require,
)
from stentor.pipeline.steps.events import watermark as with_watermark
from stentor.pipeline.steps.functions import noticeable
from stentor.pipeline.steps.names import is_reserved
from stentor.pipeline.steps.options import written_pattern

_log: Final = logging.getLogger("stentor.pipeline")

#: How many filters, and conditions in them, are expressions.
FILTERS: Final = 62
CONDITIONS: Final = 200
#: In how many parts the values of a key are kept, unless the user decides.
SHARDS: Final = 16
_MOST_SHARDS: Final = 4_096

_CONTENTS: Final = T.StructType(
    [
        T.StructField("content", T.BinaryType()),
        *(T.StructField(name, T.LongType()) for name in ("late", "dropped", "forced")),
    ]
)
_PARCELS: Final = T.StructType(
    [T.StructField("shard", T.IntegerType()), T.StructField("content", T.BinaryType())]
)
#: Columns that are no part of a notification.
_LEFT_OUT: Final = ("_broker", "_offset", "_stream", "_corrupt", "_events")
#: Names of observations have to differ within a query.
_numbers: Final = count(1)


def detect(
    events: DataFrame,
    patterns: Pattern | Iterable[Pattern],
    *,
    watermark: Duration | None = None,
    limits: Limits = DEFAULTS,
    mode: Mode = "standing",
    uncertainty: int = 0,
    shards: int = SHARDS,
) -> DataFrame:
    """The composite events of a pattern, or of several, as an event table.

        detect(quotes, Pattern("(A ; B) within 10s partition by host", events={...}))

    On a stream, events wait until a watermark has passed them, given here or before. `shards` says
    in how many parts the state of a stream is kept; `limits` are for each of them, and for each
    partition of a table. `uncertainty` is by how many microseconds clocks may be wrong.
    """
    wanted = (patterns,) if isinstance(patterns, Pattern) else tuple(patterns)
    if not wanted or not all(isinstance(each, Pattern) for each in wanted):
        raise PipelineDefinitionError("there is no pattern to detect; give a Pattern, or several")
    require(events, "_id", "_time")
    if type(shards) is not int or not 1 <= shards <= _MOST_SHARDS:
        raise PipelineDefinitionError(f"shards={shards!r} must lie in 1..{_MOST_SHARDS}")
    if watermark is not None:
        events = with_watermark(events, watermark)
    if events.isStreaming and not has_watermark(events):
        raise PipelineError(
            "patterns over a stream need a watermark, or no event would ever be known to be the "
            'next; say how late events may come: watermark="1 minute"'
        )
    names = [name for name in events.columns if name not in _LEFT_OUT]
    source = T.StructType([events.schema[name] for name in names])
    plan = Plan(
        wanted,
        source,
        composite_schema(wanted, source),
        limits,
        mode,
        uncertainty,
        is_masked=False,
        vocabulary=Vocabulary.of_this_process(),
    )
    filters = list(plan.detector().filters.values())
    for name in sorted({name for each in filters for name in each.names}):
        if not is_reserved(name):
            find(events.schema, name)  # `NoColumn`, which nothing could match
    keys = _keys(wanted, events)
    high = _high(source, uncertainty)
    kept = noticeable(events)
    for key in keys:
        kept = kept.where(_seen(key.isNotNull().cast("long"), high))
    columns = [*map(column, names), high.alias(HIGH)]
    if len(filters) <= FILTERS and are_native(filters, events.schema, CONDITIONS):
        plan = plan._replace(is_masked=True)
        bits = [
            F.when(to_column(each, events.schema), F.lit(1 << number)).otherwise(F.lit(0))
            for number, each in enumerate(filters)
        ]
        mask = reduce(lambda one, other: one.bitwiseOR(other), bits).cast("long")
        kept = kept.select(*columns, mask.alias(MASK)).where(_seen(column(MASK), column(HIGH)))
    else:
        kept = kept.select(*columns)
    if not keys:
        _log.warning(
            "no attribute parts the events of %s, so one core has to look at all of them; write "
            "`partition by` if events belong together by an attribute",
            ", ".join(each.label for each in wanted),
        )
    if events.isStreaming:
        return _of_stream(kept.withColumns(_shard(keys, shards)), plan, shards, events)
    return _of_table(kept, plan, keys)


def detect_as_written(
    table: DataFrame,
    /,
    *,
    pattern: str,
    events: Mapping[str, Any],
    name: str | None = None,
    watermark: Duration | None = None,
    shards: int = SHARDS,
    partitions: int = DEFAULTS.partitions,
    runs: int = DEFAULTS.runs,
    waiting: int = DEFAULTS.waiting,
    when_full: str = DEFAULTS.when_full,
) -> DataFrame:
    """The same for a pattern as a pipeline in TOML writes it."""
    limits = DEFAULTS._replace(
        partitions=partitions, runs=runs, waiting=waiting, when_full=when_full
    )
    wanted = written_pattern(pattern, events, name)
    return detect(table, wanted, watermark=watermark, limits=limits, shards=shards)


# -- which events, and where


def _keys(patterns: tuple[Pattern, ...], events: DataFrame) -> list[Column]:
    """What all patterns are parted by: events that belong together have it in common."""
    every: list[Pattern] = list(patterns)
    for each in every:
        every += [inner for inner in each.events.values() if isinstance(inner, Pattern)]
    found: list[Column] = []
    for pattern in every:
        for name in pattern.partition:
            if name.startswith("_"):
                if name != "_producer" and name not in events.columns:
                    raise no_column(events.schema, name)
            else:
                find(events.schema, name)  # a mistake is told here, not by a worker
    is_flat = len(every) == len(patterns)
    for name in every[0].partition:
        if is_reserved(name) and not is_flat:
            continue  # composite events have their own, not that of their events
        if all(name in each.partition for each in every):
            if name == "_producer":
                found.append(producer(column("_id")))
            elif not isinstance(find(events.schema, name)[1], T.ArrayType):
                found.append(present(events.schema, name))
    return found


def _high(source: T.StructType, uncertainty: int) -> Column:
    """When an event was over at the latest, in microseconds since 1970."""
    high = F.unix_micros(column("_time")) + F.lit(uncertainty)
    try:
        (start, one), (end, other) = find(source, START), find(source, END)
    except NoColumn:
        return high
    if not isinstance(one, T.TimestampType) or not isinstance(other, T.TimestampType):
        return high  # an event that has them cannot take part, and says so
    return F.when(start.isNull(), high).otherwise(F.unix_micros(end))


def _seen(mask: Column, high: Column) -> Column:
    """Whether a mask is not 0, for rows that the watermark has seen.

    What does not speak of time Spark would move to before the watermark. Then time would stand
    still as long as no event matters, and what waits for its end would never be found.
    """
    return mask.bitwiseOR(F.coalesce(high, F.lit(0)).bitwiseAND(F.lit(0))) != 0


def _shard(keys: list[Column], shards: int) -> dict[str, Column]:
    number = F.pmod(F.xxhash64(*keys), F.lit(shards)) if keys else F.lit(0)
    return {"_stentor_shard": number.cast("int")}


# -- a table


def _of_table(kept: DataFrame, plan: Plan, keys: list[Column]) -> DataFrame:
    parted = kept.repartition(*keys) if keys else kept.repartition(1)

    def stentor_detect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return detected(batches, plan)

    return parted.sortWithinPartitions(column(HIGH)).mapInArrow(stentor_detect, plan.result)


# -- a stream


def _of_stream(kept: DataFrame, plan: Plan, shards: int, events: DataFrame) -> DataFrame:
    from stentor.pipeline.composites.detector_state import DetectorKeeper

    check_state(events.sparkSession, "patterns over a stream")
    delay = events.schema["_time"].metadata[WATERMARK]
    schema = plan.result

    def stentor_wrap(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return parcels_by_shard(batches)

    def stentor_detect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_what_is_loaded()
        for batch in batches:
            for content in batch.column("content"):
                yield unwrapped(content.as_buffer())

    # Spark would drop what is late by a watermark's column; so it is shown one that says nothing.
    clock = F.lit(None).cast("timestamp").alias("clock", metadata={WATERMARK: delay})
    found = (
        kept.mapInArrow(stentor_wrap, _PARCELS)
        .select("shard", "content", clock)
        .groupBy("shard")
        .transformWithState(DetectorKeeper(plan, shards), _CONTENTS, "Append", "EventTime")
    )
    figures = [
        F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("late", "dropped", "forced")
    ]
    told = found.observe(f"detect{next(_numbers)}", *figures)
    return told.where("content is not null").select("content").mapInArrow(stentor_detect, schema)
