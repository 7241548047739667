"""Violations as rows, in the words of the local checker.

trace         string    the run
condition     string    which condition broke (`stentor.semantics.Condition`)
position      long      the action that broke it; for LOST, the publication
component     string    who was notified, or should have been; for a repeated publication, who
                        published
notification  string    of what
subscription  string    the subscription that matters: the one that something was owed to, or
                        that was withdrawn too early for a delivery; else null
explanation   string    the reason, in a sentence
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from stentor.semantics import Condition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def sentence(*parts: str | Column) -> Column:
    """Texts and columns, one behind the other."""
    return F.concat(
        *(F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts)
    )


def told() -> Column:
    """That somebody was notified."""
    return sentence(F.col("comp"), " was notified of ", F.col("nid"), " at action ", F.col("pos"))


def violations(
    found: DataFrame,
    condition: Condition | Column,
    explanation: Column,
    *,
    position: str = "pos",
    subscription: str | None = None,
) -> DataFrame:
    """Rows that break a condition. They have `trace`, `comp`, `nid` and a position."""
    return found.select(
        "trace",
        (F.lit(condition.value) if isinstance(condition, Condition) else condition).alias(
            "condition"
        ),
        F.col(position).alias("position"),
        F.col("comp").alias("component"),
        F.col("nid").alias("notification"),
        (F.col(subscription) if subscription else F.lit(None).cast("string")).alias("subscription"),
        explanation.alias("explanation"),
    )


def together(parts: list[DataFrame]) -> DataFrame:
    return reduce(lambda a, b: a.unionByName(b), parts)
