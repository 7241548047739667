"""What flows: events by broker, by type, by time."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stentor.errors import PipelineDefinitionError


def traffic(
    events: DataFrame, every: str = "1 minute", *, by: Sequence[str] = ("_broker", "_type")
) -> DataFrame:
    """Events in each span of time, by broker and event type.

        traffic(events, "1 hour", by=["_broker"]).show()

    Columns: start (of the span, whole spans since 1970 in UTC), those of `by` that the events have,
    events, per_second (over the whole span), and bytes, if the events have `_payload`: those
    of payloads. Events without a time are in a row without start and rate. `every` is an interval
    as Spark writes it, such as "1 minute" or "1 hour"; months and years have no fixed length.
    """
    if "_time" not in events.columns:
        raise PipelineDefinitionError(
            "events have no column _time, so there is no rate; "
            "read them with it, or add the time that counts under that name"
        )
    wanted = [by] if isinstance(by, str) else list(by)
    groups = [name for name in wanted if name in events.columns]
    span = F.window("_time", every).alias("span")
    seconds = F.expr("(unix_micros(span.end) - unix_micros(span.start)) / 1000000")
    timed = (
        events.where("_time is not null")
        .groupBy(span, *groups)
        .agg(*_sizes(events))
        .withColumn("per_second", F.col("events") / seconds)
        .withColumn("start", F.col("span.start"))
        .drop("span")
    )
    untimed = (
        events.where("_time is null")
        .groupBy(*groups)
        .agg(*_sizes(events))
        .where("events > 0")
        .withColumn("start", F.lit(None).cast("timestamp"))
        .withColumn("per_second", F.lit(None).cast("double"))
    )
    sizes = ["bytes"] if "_payload" in events.columns else []
    return (
        timed.unionByName(untimed)
        .select("start", *groups, "events", "per_second", *sizes)
        .orderBy("start", *groups)
    )


def _sizes(events: DataFrame) -> list[Column]:
    sizes = [F.count("*").alias("events")]
    if "_payload" in events.columns:
        sizes.append(F.coalesce(F.sum(F.octet_length("_payload")), F.lit(0)).alias("bytes"))
    return sizes
