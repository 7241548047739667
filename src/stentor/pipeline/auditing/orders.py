"""The orders that look back: FIFO and causal, as windows over each component's deliveries.

All three have one form. Every delivery brings *levels*, each for some key: how far, in terms of
that key, the past of what was delivered reaches. And every delivery has a *place* of its own among
those of a key. It comes too late if something delivered before reaches its place:

    order            key                    place                     level
    fifo             its publisher          where it was published    where it was published
    causal           its publisher          where it was published    the last publication of the
                                                                      key that is in its past
    causal_printed   a component that had   where that component      the last delivery to the key
                     received it            was notified              that is in its past

The levels of the last two are vector clocks, an entry for each key (`causality`). Levels and places
are the rows of one window for each component and key, in which a running maximum tells what reached
furthest before. In recorded clocks levels are counts of publications, and so are the places then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from stentor.pipeline.auditing.causality import stamps
from stentor.pipeline.auditing.words import sentence, together, told, violations
from stentor.semantics import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DELIVERY = ("trace", "pos", "comp", "nid", "at")


def fifo(happened: DataFrame) -> DataFrame:
    """One producer's notifications come in the order in which it published them."""
    before = (
        Window.partitionBy("trace", "comp", "publisher")
        .orderBy("pos")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    found = (
        happened.where("op = 'notify'")
        .select(*_DELIVERY, "publisher")
        .withColumn("newest", F.max(F.struct("at", "nid")).over(before))
        .where(F.col("newest.at") > F.col("at"))
    )
    why = sentence(
        *(told(), ", after ", F.col("newest.nid"), ", but ", F.col("publisher"), " published "),
        *(F.col("nid"), " at action ", F.col("at"), " and ", F.col("newest.nid")),
        *(" at action ", F.col("newest.at")),
    )
    return violations(found, Condition.FIFO, why)


def causal(happened: DataFrame) -> DataFrame:
    """Nothing is delivered after what it happened before."""
    # A stamp may have an entry for the publisher itself as well, but none that goes beyond.
    earlier = happened.where("op = 'pub' and own is not null").select(
        "trace", "at", F.col("comp").alias("key"), F.col("own").alias("level")
    )
    came = happened.where("op = 'notify'").select(*_DELIVERY, "publisher")
    places = came.select(*_DELIVERY, F.col("publisher").alias("key"), F.col("at").alias("place"))
    levels = earlier.unionByName(stamps(happened, "publisher", "at"))
    return _overtaken(Condition.CAUSAL, _too_late(came, levels, places))


def causal_recorded(happened: DataFrame) -> DataFrame:
    """The same for runs whose publications have clocks."""
    own = Window.partitionBy("trace", "comp").orderBy("pos")
    published = happened.where("op = 'pub'").select(
        "trace", "at", "clock", F.row_number().over(own).cast("bigint").alias("place")
    )
    came = happened.where("op = 'notify'").select(*_DELIVERY, F.col("publisher").alias("key"))
    places = came.join(published.drop("clock"), ["trace", "at"])
    levels = published.select("trace", "at", F.explode("clock").alias("key", "level"))
    return _overtaken(Condition.CAUSAL, _too_late(came, levels, places))


def causal_printed(happened: DataFrame) -> DataFrame:
    """The same, with a past that holds only what was delivered to its publishers (Eq 2.4)."""
    came = happened.where("op = 'notify'").select(*_DELIVERY)
    received = happened.where("op = 'notify' and publishes").select(
        "trace", "at", F.col("comp").alias("key"), F.col("pos").alias("place")
    )
    places = came.join(received, ["trace", "at"]).where("place < pos")
    # Of several components that had received it in the past of others, the first is told.
    found = (
        _too_late(came, stamps(happened, "comp", "pos"), places)
        .groupBy("trace", "pos", "comp", "nid")
        .agg(F.min(F.struct("place", "overtaker")).alias("first"))
        .select("trace", "pos", "comp", "nid", "first.overtaker")
    )
    return _overtaken(Condition.CAUSAL_PRINTED, found)


def _too_late(came: DataFrame, levels: DataFrame, places: DataFrame) -> DataFrame:
    """Deliveries whose place was reached by something delivered before, the `overtaker`."""
    reached = came.select(*_DELIVERY).join(levels, ["trace", "at"])
    rows = together(
        [
            reached.withColumn("place", F.lit(None).cast("bigint")),
            places.select(*reached.drop("level").columns, "place").withColumn(
                "level", F.lit(None).cast("bigint")
            ),
        ]
    )
    before = (
        Window.partitionBy("trace", "comp", "key")
        .orderBy("pos")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    # What reached furthest, and of several that reached as far, the first.
    furthest = F.max(
        F.when(F.col("level").isNotNull(), F.struct("level", (-F.col("pos")).alias("back"), "nid"))
    )
    return (
        rows.withColumn("furthest", furthest.over(before))
        .where(F.col("furthest.level") >= F.col("place"))
        .withColumn("overtaker", F.col("furthest.nid"))
    )


def _overtaken(condition: Condition, found: DataFrame) -> DataFrame:
    why = sentence(
        *(told(), ", after ", F.col("overtaker"), ", but ", F.col("nid"), " happened before "),
        F.col("overtaker"),
    )
    return violations(found, condition, why)
