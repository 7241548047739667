"""What filters match of the events that there are: each by itself, and two together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from stentor.errors import PipelineDefinitionError
from stentor.model.names import RESERVED
from stentor.pipeline.analytics.filters import distinct_filters
from stentor.pipeline.matching import match

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Names that events have no columns of.
_KEY: Final = "_filter"
_ROW: Final = "_row"
#: Pairs grow with the square of the filters that are compared.
MOST: Final = 200


def selectivity(
    events: DataFrame, subscriptions: DataFrame, *, filter: str = "filter"
) -> DataFrame:
    """How many events each distinct filter matches, and which share; the least selective first.

        selectivity(events, subscriptions).where("matches = 0").show()    # never match anything

    Columns: filter, subscriptions (that have it), matches, share (of all events), deliveries (one
    for each match and subscription), problem. Matches of a filter that does not parse are null.
    """
    return selectivity_of(distinct_filters(subscriptions, filter=filter), events)


def selectivity_of(filters: DataFrame, events: DataFrame) -> DataFrame:
    """The same, of the filters that `distinct_filters` gives."""
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


def overlap(
    events: DataFrame, subscriptions: DataFrame, *, most: int = 30, filter: str = "filter"
) -> DataFrame:
    """Which filters match the same events: pairs of those that match most, the closest first.

    Columns: filter, other, both (events that both match), jaccard (of those that one of the two
    matches), share (of those that the first matches), share_of_other. Only the `most` least
    selective filters are compared; pairs that share no event are left out.
    """
    return overlap_of(distinct_filters(subscriptions, filter=filter), events, most=most)


def overlap_of(filters: DataFrame, events: DataFrame, *, most: int) -> DataFrame:
    """The same, of the filters that `distinct_filters` gives."""
    if not 2 <= most <= MOST:
        raise PipelineDefinitionError(f"most={most!r}: between 2 and {MOST} filters are compared")
    seen = selectivity_of(filters, events)
    chosen = seen.where("matches > 0").limit(most).select("filter", "matches").collect()
    counts = events.sparkSession.createDataFrame(
        [(row["filter"], row["matches"]) for row in chosen], "filter string, matches bigint"
    )
    numbered = _visible(events).withColumn(_ROW, F.monotonically_increasing_id())
    matched = match(numbered, [(row["filter"], row["filter"]) for row in chosen], id=_KEY)
    sets = matched.groupBy(_ROW).agg(F.sort_array(F.collect_set(_KEY)).alias("all"))
    pairs = (
        sets.select(F.posexplode("all").alias("at", "filter"), "all")
        .select("filter", F.explode(F.expr("slice(all, at + 2, size(all))")).alias("other"))
        .groupBy("filter", "other")
        .agg(F.count("*").alias("both"))
    )
    of_other = counts.toDF("other", "other_matches")
    return (
        pairs.join(F.broadcast(counts), "filter")
        .join(F.broadcast(of_other), "other")
        .select(
            *("filter", "other", "both"),
            F.expr("both / (matches + other_matches - both)").alias("jaccard"),
            F.expr("both / matches").alias("share"),
            F.expr("both / other_matches").alias("share_of_other"),
        )
        .orderBy(F.desc("jaccard"), F.desc("both"), "filter", "other")
    )


def _visible(events: DataFrame) -> DataFrame:
    """Without the columns that no filter can see, payloads above all."""
    needed = {*RESERVED, "_id"}
    unseen = [name for name in events.columns if name.startswith("_") and name not in needed]
    return events.drop(*unseen)
