"""Total order: do the orders in which components were notified fit together?

Deliveries form a graph: an edge from each delivery to the next one of the same component. One order
fits all exactly if there is no cycle, and two components can contradict each other only inside of a
cycle. Looking for cycles in the graph of a whole run would be hard to spread, and is not
needed: a run that is in order in most places can have cycles only where it is not.

Lay the notifications out in the order of their publication. Most edges lead forward. A cycle has to
come back, so everywhere between its first and its last notification some edge leads back across. So
cycles lie within the stretches that backward edges cover, overlapping ones taken together: the
*islands*. Deliveries outside of islands break no total order. Islands are independent of each
other, and each is as large as the disorder is there, not as the run.

*Pairwise.* Within an island, for each two components, go through what both were notified of, in the
order in which that came to be. The later of the two deliveries is at fault if the other component
had already been notified of the same notification before something that this one got before.

*Global.* An island is one call of the local check, which finds the delivery that closes the first
cycle. An edge to the next delivery within the island stands for the path in between.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from stentor.model import Notification, NotificationId
from stentor.pipeline.auditing.words import sentence, told, violations
from stentor.semantics import Condition, Notify
from stentor.semantics.history import History
from stentor.semantics.orders import total_global as first_cycle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A run is cut into so many equal stretches, to find the island of a delivery without comparing it
#: with all islands of the run.
STRETCHES: Final = 65_536


def on_islands(
    happened: DataFrame, runs: DataFrame, group: Collection[str] | None = None
) -> DataFrame:
    """The deliveries, of a group or of all components, that may be part of a cycle.

    Each has the `island` that it is on.
    """
    came = happened.where("op = 'notify'").select("trace", "pos", "comp", "nid", "at", "before")
    if group is not None:
        came = came.where(F.col("comp").isin(*group))
    backward = came.where("before > at").selectExpr("trace", "at as low", "before as high")
    by_low = Window.partitionBy("trace").orderBy("low", "high")
    earlier = by_low.rowsBetween(Window.unboundedPreceding, -1)
    islands = (
        backward.withColumn("reached", F.max("high").over(earlier))
        .withColumn("begins", F.col("reached").isNull() | (F.col("reached") < F.col("low")))
        .withColumn("island", F.sum(F.col("begins").cast("bigint")).over(by_low))
        .groupBy("trace", "island")
        .agg(F.min("low").alias("low"), F.max("high").alias("high"))
    )
    stretches = F.broadcast(
        runs.selectExpr("trace", "start", f"(end - start) div {STRETCHES} + 1 as width")
    )

    def stretch(position: str) -> str:
        return f"({position} - start) div width"

    spread = islands.join(stretches, "trace").selectExpr(
        *("trace", "island", "low", "high"),
        f"explode(sequence({stretch('low')}, {stretch('high')})) as stretch",
    )
    return (
        came.join(stretches, "trace")
        .withColumn("stretch", F.expr(stretch("at")))
        .join(spread, ["trace", "stretch"])
        .where("at between low and high")
        .select("trace", "island", "pos", "comp", "nid", "at")
    )


def total_pairwise(suspects: DataFrame) -> DataFrame:
    """No two components are notified of two notifications in opposite orders (Eq 2.5)."""

    def of(side: str) -> DataFrame:
        return suspects.select(
            *("trace", "island", "at", "nid"),
            F.col("comp").alias(f"comp_{side}"),
            F.col("pos").alias(f"pos_{side}"),
        )

    both = of("a").join(of("b"), ["trace", "island", "at", "nid"]).where("comp_a < comp_b")
    both = both.withColumn("since", F.greatest("pos_a", "pos_b"))
    before = (
        Window.partitionBy("trace", "island", "comp_a", "comp_b")
        .orderBy("since")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    both = both.withColumn("newest_a", F.max(F.struct("pos_a", "nid")).over(before)).withColumn(
        "newest_b", F.max(F.struct("pos_b", "nid")).over(before)
    )

    def at_fault(mine: str, other: str) -> DataFrame:
        """Deliveries to one side that came later than the same to the other side."""
        newest, there = F.col(f"newest_{other}"), F.col(f"pos_{other}")
        return both.where((F.col(f"pos_{mine}") > there) & (newest[f"pos_{other}"] > there)).select(
            "trace",
            F.col(f"pos_{mine}").alias("pos"),
            F.col(f"comp_{mine}").alias("comp"),
            "nid",
            F.struct(
                there.alias("there"), F.col(f"comp_{other}").alias("other"), newest["nid"]
            ).alias("why"),
        )

    # Of several components that contradict, the one that was notified first is told.
    found = (
        at_fault("a", "b")
        .unionByName(at_fault("b", "a"))
        .groupBy("trace", "pos", "comp", "nid")
        .agg(F.min("why").alias("why"))
        .select("trace", "pos", "comp", "nid", "why.other", F.col("why.nid").alias("earlier"))
    )
    why = sentence(
        *(told(), ", after ", F.col("earlier"), ", but ", F.col("other"), " of ", F.col("nid")),
        *(" before ", F.col("earlier")),
    )
    return violations(found, Condition.TOTAL_PAIRWISE, why)


def total_global(suspects: DataFrame) -> DataFrame:
    """One order of all notifications fits what every component was notified of."""
    cycles = (
        suspects.select("trace", "island", "pos", "comp", "nid")
        .groupBy("trace", "island")
        .applyInArrow(_closing, "trace string, pos bigint, comp string, nid string, reason string")
    )
    first = cycles.groupBy("trace").agg(F.min(F.struct("pos", "comp", "nid", "reason")).alias("f"))
    return violations(first.select("trace", "f.*"), Condition.TOTAL_GLOBAL, F.col("reason"))


def _closing(table: pa.Table) -> pa.Table:
    """The delivery that closes the first cycle of an island, if any: runs in a worker."""
    ordered = table.sort_by("pos")
    history: History = [
        (pos, Notify(comp, Notification({"n": 0}, id=NotificationId.parse(nid))))
        for pos, comp, nid in zip(
            *(ordered[name].to_pylist() for name in ("pos", "comp", "nid")), strict=True
        )
    ]
    rows = [
        {
            "trace": ordered["trace"][0].as_py(),
            "pos": found.position,
            "comp": found.action.component,
            "nid": str(found.action.id),
            "reason": found.why,
        }
        for found in first_cycle(history)
        if isinstance(found.action, Notify)
    ]
    kinds = [("trace", pa.string()), ("pos", pa.int64()), ("comp", pa.string())]
    return pa.Table.from_pylist(
        rows, pa.schema([*kinds, ("nid", pa.string()), ("reason", pa.string())])
    )
