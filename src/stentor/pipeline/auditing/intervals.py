"""When which filter was active: the sets S and A of the model, as a table of intervals.

    trace, advertised, comp, fid, filter    whose filter it is; advertised or subscribed to
    since, until                            the actions that began and ended it; until is null if
                                            it was kept to the end
    settled                                 the first settling point after it began, or null
    number                                  a name for the interval within its run

Beginning a filter that is active and ending one that is not change nothing. So of the actions on
one filter, those are of interest that differ from the one before: they alternate, and an interval
reaches from each beginning to the next row.

The numbers are in the order in which the local checker looks for a reason why something was owed:
it takes the filters that are kept one after the other, in the order in which components first
subscribed, and then all holders of each. Where several subscriptions of a component say the same,
the one with the lowest number is named.

The subscriptions and settling points of one run pass through one task. They are few beside
publications and deliveries, which never do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def intervals(rows: DataFrame) -> DataFrame:
    """All intervals of a trace table."""
    # Every window is within a run, so this is the only exchange.
    marks = (
        rows.where(F.col("op").isin("sub", "unsub", "adv", "unadv", "quiescent"))
        .select("trace", "pos", "op", "comp", "fid", "filter")
        .repartition("trace")
    )
    return _numbered(_alternating(_settled(marks)))


def _settled(marks: DataFrame) -> DataFrame:
    """The actions on filters, each with the first settling point after it."""
    onward = (
        Window.partitionBy("trace")
        .orderBy(F.col("pos").desc())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    point = F.when(F.col("op") == "quiescent", F.col("pos"))
    return marks.withColumn("settled", F.min(point).over(onward)).where("op != 'quiescent'")


def _alternating(marks: DataFrame) -> DataFrame:
    """From each beginning to the next end."""
    of_filter = Window.partitionBy("trace", "advertised", "comp", "fid").orderBy("pos")
    return (
        marks.withColumn("advertised", F.col("op").isin("adv", "unadv"))
        .withColumn("begins", F.col("op").isin("sub", "adv"))
        .withColumn("active", F.coalesce(F.lag("begins").over(of_filter), F.lit(False)))
        .where(F.col("begins") != F.col("active"))
        .withColumn("until", F.lead("pos").over(of_filter))
        .where("begins")
        .withColumnRenamed("pos", "since")
        .drop("op", "begins", "active")
    )


def _numbered(found: DataFrame) -> DataFrame:
    of_component = Window.partitionBy("trace", "advertised", "comp")
    of_text = Window.partitionBy("trace", "advertised", "filter")
    kept = F.col("until").isNull()
    order = Window.partitionBy("trace").orderBy(
        "advertised",
        F.when(F.col("advertised"), F.col("since")),
        F.col("leader").asc_nulls_last(),
        "arrival",
        "since",
    )
    return (
        found.withColumn("arrival", F.min("since").over(of_component))
        .withColumn("leader", F.min(F.when(kept, F.struct("arrival", "since"))).over(of_text))
        .withColumn("number", F.row_number().over(order))
        .drop("arrival", "leader")
    )
