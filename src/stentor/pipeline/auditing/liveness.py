"""Liveness on finite runs: what was owed, and did not come (algorithm A-3).

A subscription that is kept to the end has settled at the first settling point after it. What is
published later, up to the last settling point, and matches, is owed to its component once, whatever
number of its subscriptions match; with advertisements, only if one of the publisher's has settled
too. Owed deliveries, anti-joined with those that came by the last settling point, are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from stentor.pipeline.auditing.words import sentence, violations
from stentor.semantics import Condition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def owed(relevant: DataFrame, runs: DataFrame, *, advertisements: bool) -> DataFrame:
    """Publications and components: trace, subject, comp, and the intervals that say so.

    `number` is the subscription and `announced` the advertisement; `final` is the last settling
    point of the run.
    """
    final = runs.where("final is not null").select("trace", "final")
    settled = relevant.where("is_published and until is null and settled < subject")
    due = (
        settled.where("not advertised")
        .groupBy("trace", "subject", "comp")
        .agg(F.min("number").alias("number"))
        .join(F.broadcast(final), "trace")
        .where("subject < final")
    )
    if not advertisements:
        return due.withColumn("announced", F.lit(None).cast("int"))
    announced = (
        settled.where("advertised")
        .groupBy("trace", "subject")
        .agg(F.min("number").alias("announced"))
    )
    return due.join(announced, ["trace", "subject"])


def lost(due: DataFrame, actions: DataFrame, intervals: DataFrame) -> DataFrame:
    """What was owed and had not been delivered by the last settling point."""
    o = due.alias("o")
    came = actions.where("op = 'notify' and in_history").select("trace", "at", "comp", "pos")
    c = came.alias("c")
    missing = o.join(
        c,
        (F.col("o.trace") == F.col("c.trace"))
        & (F.col("o.subject") == F.col("c.at"))
        & (F.col("o.comp") == F.col("c.comp"))
        & (F.col("c.pos") < F.col("o.final")),
        "left_anti",
    )
    published = actions.where("op = 'pub' and in_history").select(
        "trace", "subject", "publisher", "nid"
    )
    named = intervals.select("trace", "number", F.struct("fid", "filter", "settled").alias("name"))
    found = (
        missing.join(published, ["trace", "subject"])
        .join(named.withColumnRenamed("name", "wanted"), ["trace", "number"])
        .join(named.toDF("trace", "announced", "by"), ["trace", "announced"], "left")
        .withColumn("fid", F.col("wanted.fid"))
    )
    why = sentence(
        *(F.col("publisher"), " published ", F.col("nid"), " at action ", F.col("subject")),
        *(", but ", F.col("comp"), " was not notified of it by the last settling point, action "),
        *(F.col("final"), ", although its subscription ", _settled(F.col("wanted"))),
        F.when(F.col("by").isNull(), "").otherwise(
            sentence(" and the advertisement ", _settled(F.col("by")))
        ),
    )
    return violations(found, Condition.LOST, why, position="subject", subscription="fid")


def _settled(interval: Column) -> Column:
    return sentence(
        *(interval["fid"], " (", interval["filter"], ") had settled at action "),
        interval["settled"],
    )
