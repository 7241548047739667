"""FIFO order: a window over what each component was notified of by each producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from stentor.pipeline.auditing.words import sentence, told, violations
from stentor.semantics import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fifo(happened: DataFrame) -> DataFrame:
    """One producer's notifications come in the order in which it published them."""
    before = (
        Window.partitionBy("trace", "comp", "publisher")
        .orderBy("pos")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    found = (
        happened.where("op = 'notify'")
        .select("trace", "pos", "comp", "nid", "at", "publisher")
        .withColumn("newest", F.max(F.struct("at", "nid")).over(before))
        .where(F.col("newest.at") > F.col("at"))
    )
    why = sentence(
        *(told(), ", after ", F.col("newest.nid"), ", but ", F.col("publisher"), " published "),
        *(F.col("nid"), " at action ", F.col("at"), " and ", F.col("newest.nid")),
        *(" at action ", F.col("newest.at")),
    )
    return violations(found, Condition.FIFO, why)
