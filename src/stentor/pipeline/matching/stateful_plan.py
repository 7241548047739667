"""Subscriptions that are a stream of changes, held against a stream of events.

Both streams become parcels (`parcels`), which are put together by shard; Spark's
`transformWithState` keeps the subscriptions of each shard (`shard_state`) and holds the events
against them. The state is in the checkpoint of the query: after a restart matching goes on with the
subscriptions that it had, and every pair is reported exactly once to a sink that can do that.

The number of shards cannot be changed for a checkpoint, because ids are assigned to them.
A watermark of the events does not pass: whoever needs one says `withWatermark` on the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stentor.errors import PipelineDefinitionError, UnsupportedColumn
from stentor.pipeline.matching.filter_columns import attribute_names, input_of
from stentor.pipeline.matching.parcels import (
    CONTENTS,
    PARCELS,
    changes_parcels,
    events_parcels,
    opened_parcels,
)
from stentor.pipeline.matching.shard_index import BUCKETS, Layout
from stentor.pipeline.matching.shard_state import Keeper
from stentor.pipeline.matching.subscriptions import subscription_columns
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.spark_features import check_state, to_arrow_type_in_utc

#: In how many parts subscriptions are kept, unless the user decides.
SHARDS: Final = 4

ON_ERROR: Final = ("fail", "skip")


def match_changing(
    events: DataFrame,
    subscriptions: DataFrame,
    id: str,
    filter: str,
    *,
    shards: int | None,
    order: str | None,
    on_error: str,
) -> DataFrame:
    """Match by what the changes so far have made of the subscriptions."""
    if not events.isStreaming:
        raise PipelineDefinitionError(
            "the subscriptions are a stream, but the events are not; hold a table of events "
            "against a table of subscriptions"
        )
    if on_error not in ON_ERROR:
        raise PipelineDefinitionError(f"on_error={on_error!r}; choose from {', '.join(ON_ERROR)}")
    parts = SHARDS if shards is None else shards
    columns = subscription_columns(subscriptions, id, filter, also=order)
    check_state(events.sparkSession, "subscriptions that change")
    id_type = columns.schema["id"].dataType
    result = T.StructType([T.StructField(id, id_type), *events.schema.fields])
    looked_at, layout = _laid_out(events, id_type)
    names = result.names

    def stentor_wrap_changes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return changes_parcels(batches)

    def stentor_wrap_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return events_parcels(batches, parts)

    def stentor_match_changing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return opened_parcels(batches, names)

    hashed = F.xxhash64("id")
    keeper = Keeper(layout, parts, on_error, Vocabulary.of_this_process())
    changes = columns.where(F.col("id").isNotNull()).select(
        "*",
        F.pmod(hashed, F.lit(parts)).cast("int").alias("shard"),
        F.pmod(F.shiftright(hashed, 32), F.lit(BUCKETS)).cast("int").alias("bucket"),
    )
    return (
        changes.mapInArrow(stentor_wrap_changes, PARCELS)
        .unionAll(looked_at.mapInArrow(stentor_wrap_events, PARCELS))
        .groupBy("shard")
        .transformWithState(keeper, CONTENTS, "Append", "None")
        .mapInArrow(stentor_match_changing, result)
    )


def _laid_out(events: DataFrame, id_type: T.DataType) -> tuple[DataFrame, Layout]:
    """Events and, after their own columns, all attributes that are not simply one of these."""
    schema = events.schema
    columns_of: dict[str, tuple[int, ...]] = {}
    unsupported: dict[str, str] = {}
    further: list[Column] = []
    for name in attribute_names(schema):
        try:
            found = input_of(schema, name)
        except UnsupportedColumn as error:
            unsupported[name] = str(error)
            continue
        if found is None:
            continue
        if found.is_plain:
            columns_of[name] = (schema.names.index(name),)
        else:
            first = len(schema) + len(further)
            columns_of[name] = tuple(range(first, first + len(found.columns)))
            further += found.columns
    layout = Layout(to_arrow_type_in_utc(id_type), len(schema), columns_of, unsupported)
    named = [column.alias(f"_stentor_{number}") for number, column in enumerate(further)]
    return events.select("*", *named), layout
