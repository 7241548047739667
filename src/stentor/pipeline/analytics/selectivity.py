"""What filters match of the events that there are."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stentor.model.names import RESERVED
from stentor.pipeline.analytics.filters import distinct_filters
from stentor.pipeline.matching import match

#: A name that events have no column of.
_KEY: Final = "_filter"


def selectivity(
    events: DataFrame, subscriptions: DataFrame, *, filter: str = "filter"
) -> DataFrame:
    """How many events each distinct filter matches, and which share; the least selective first.

        selectivity(events, subscriptions).where("matches = 0").show()    # never match anything

    Columns: filter, subscriptions (that have it), matches, share (of all events), deliveries (one
    for each match and subscription), problem. Matches of a filter that does not parse are null.
    """
    filters = distinct_filters(subscriptions, filter=filter)
    good = filters.where("problem is null").select(F.col("filter").alias(_KEY), "filter")
    seen = _visible(events)
    counts = match(seen, good, id=_KEY).groupBy(_KEY).agg(F.count("*").alias("matched"))
    total = seen.agg(F.count("*").alias("total"))
    matches = F.when(F.col("problem").isNull(), F.coalesce("matched", F.lit(0)))
    return (
        filters.join(counts.withColumnRenamed(_KEY, "filter"), "filter", "left")
        .crossJoin(F.broadcast(total))
        .withColumn("matches", matches)
        .select(
            *("filter", "subscriptions", "matches"),
            # Of no events every share is unknown.
            F.try_divide("matches", "total").alias("share"),
            (F.col("matches") * F.col("subscriptions")).alias("deliveries"),
            "problem",
        )
        .orderBy(F.desc_nulls_last("matches"), F.desc("subscriptions"), "filter")
    )


def _visible(events: DataFrame) -> DataFrame:
    """Without the columns that no filter can see, payloads above all."""
    needed = {*RESERVED, "_id"}
    unseen = [name for name in events.columns if name.startswith("_") and name not in needed]
    return events.drop(*unseen)
