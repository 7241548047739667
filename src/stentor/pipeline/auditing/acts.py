"""Publications and deliveries, each with what the run had said about its notification before.

All actions on one notification come together once, and then every row knows:

    at, publisher   where its notification was first published, and by whom; null if never
    last            the last action on it
    first           where this component was first notified of it
    in_history      it counts for liveness and the orders: the first publication, or the first
                    delivery to a component that came after it
    subject         the action whose content decides what matches: the publication, or for a
                    delivery of what had not been published the delivery itself; null for a
                    repeated publication, which nothing depends on
    body            the content, if this row is such a subject or looks altered
    published       the content as published, if it looks altered

So the rows are light, and the safety conditions that need no filters can be read off each by
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def acts(rows: DataFrame) -> DataFrame:
    """The publications and deliveries of a trace table."""
    publishes, notifies = F.col("op") == "pub", F.col("op") == "notify"
    pos, at = F.col("pos"), F.col("at")
    of_notification = Window.partitionBy("trace", "nid")
    # The same partitioning will do, so this costs no further exchange.
    to_component = Window.partitionBy("trace", "nid", "comp")
    origin = F.min(F.when(publishes, F.struct("pos", "comp", "body")))
    joined = (
        rows.where(F.col("op").isin("pub", "notify"))
        .withColumn("origin", origin.over(of_notification))
        .withColumn("last", F.max("pos").over(of_notification))
        .withColumn("at", F.col("origin.pos"))
        .withColumn("first", F.min(F.when(notifies, pos)).over(to_component))
        .withColumn("counted", F.min(F.when(notifies & (pos > at), pos)).over(to_component))
    )
    follows = F.coalesce(at < pos, F.lit(False))
    is_first = F.coalesce(at == pos, F.lit(False))
    altered = notifies & follows & (F.col("body") != F.col("origin.body"))
    return (
        joined.withColumn("altered", altered)
        .withColumn("subject", F.when(is_first | (notifies & follows), at).when(notifies, pos))
        .select(
            *("trace", "pos", "op", "comp", "nid", "at"),
            F.col("origin.comp").alias("publisher"),
            *("last", "first", "subject"),
            (is_first | (notifies & F.coalesce(F.col("counted") == pos, F.lit(False)))).alias(
                "in_history"
            ),
            F.when((F.col("subject") == pos) | F.col("altered"), F.col("body")).alias("body"),
            F.when(F.col("altered"), F.col("origin.body")).alias("published"),
            F.when(is_first, F.col("clock")).alias("clock"),
        )
    )
