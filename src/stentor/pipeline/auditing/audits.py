"""`audit`: all conditions, on recorded runs of any size.

A table that several slices are cut from is computed once and kept, and so is what was found. It is
kept by the executors, in memory or on their disks; a session with a checkpoint directory keeps it
there instead, and then an audit outlives the loss of an executor. Nobody has to release them: Spark
does, when nothing refers to them any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stentor.errors import InvalidConfiguration, PipelineError
from stentor.notation.counts import counted
from stentor.pipeline.auditing.files import read_traces
from stentor.pipeline.auditing.slices import by_consumer, by_island, by_notification, by_publisher
from stentor.pipeline.auditing.table import check_rows, summary, trace_frame, trace_table
from stentor.pipeline.registration import require_own
from stentor.semantics import Action, Condition
from stentor.semantics.orders import ORDERS

if TYPE_CHECKING:
    Traces = DataFrame | str | Path | Iterable[Action] | Mapping[str, Iterable[Action]]

#: The order in which violations of one action are told.
_RANK: Final = {condition.value: rank for rank, condition in enumerate(Condition)}


class Audit:
    """The judgment of one or many runs.

    found = audit(frame, orders=["fifo"])
    print(found.report())
    found.violations.groupBy("trace", "condition").count().show()
    """

    def __init__(self, violations: DataFrame, traces: DataFrame) -> None:
        #: trace, condition, position, component, notification, subscription, explanation.
        self.violations = violations
        #: One row for each run: trace, actions, publications, deliveries, owed, violations.
        self.traces = traces

    @property
    def ok(self) -> bool:
        """Nothing is wrong with any of the runs."""
        return not self.traces.where("violations > 0").limit(1).collect()

    def report(self) -> AuditReport:
        """The outcome in short; it prints as the local checker's does."""
        counted = ("actions", "publications", "deliveries", "owed")
        total: dict[str, Any] = (
            self.traces.agg(
                F.count("*").alias("traces"),
                F.count_if(F.col("violations") > 0).alias("flawed"),
                *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counted),
            )
            .collect()[0]
            .asDict()
        )
        if not total["flawed"]:
            return AuditReport(**total, faults={}, first=())
        counts = {
            row["condition"]: row["count"]
            for row in self.violations.groupBy("condition").count().collect()
        }
        rank = F.create_map(*(F.lit(part) for item in _RANK.items() for part in item))
        first = (
            self.violations.orderBy("trace", "position", rank[F.col("condition")], "component")
            .limit(SHOWN)
            .collect()
        )
        return AuditReport(
            **total,
            faults={each: counts[each.value] for each in Condition if each.value in counts},
            first=tuple(
                Fault(**{**row.asDict(), "condition": Condition(row["condition"])}) for row in first
            ),
        )


def audit(
    trace: Traces,
    spark: SparkSession | None = None,
    *,
    orders: Iterable[str] = (),
    advertisements: bool = False,
    settling: bool = True,
    group: Collection[str] | None = None,
) -> Audit:
    """Hold recorded runs against the specification, as Spark jobs.

    The verdict is that of `stentor.semantics.check` on each run. `trace` is a trace table (see
    `stentor.pipeline.auditing.table`), the path of one (see `read_traces`), a `Trace`, or several
    of these by name; anything but a table needs a Spark session, the active one if none is given.

    `orders` names the orders to hold: `fifo`, `causal`, `causal_printed`, `total_pairwise`,
    `total_global`; a total order is asked of the components in `group`, or of all.
    `advertisements` turns on their stronger safety and weaker liveness. Without `settling` nothing
    is owed.

        audit("runs.parquet", spark, orders=["fifo", "causal"]).report()
    """
    names = [orders] if isinstance(orders, str) else list(dict.fromkeys(orders))
    for name in names:
        if name not in ORDERS:
            raise InvalidConfiguration(
                f"there is no order {name!r}; choose from {', '.join(ORDERS)}"
            )
    given = _frame(trace, spark)
    require_own(given.sparkSession, "audit")
    rows = _kept(trace_table(given))
    runs = _kept(summary(rows))
    check_rows(runs)
    parts = [by_notification(rows, runs, advertisements=advertisements, settling=settling)]
    for name in names:
        if name == "fifo":
            parts.append(by_publisher(rows, runs))
        elif name.startswith("causal"):
            parts.append(by_consumer(rows, runs, name))
        else:
            parts.append(by_island(rows, runs, name, group))
    found = _kept(reduce(lambda one, other: one.unionByName(other), parts))
    counts = found.groupBy("trace").agg(
        F.sum(F.when(F.col("condition").isNull(), F.col("position"))).alias("owed"),
        F.count("condition").alias("violations"),
    )
    sizes = runs.select("trace", "actions", "publications", "deliveries")
    traces = sizes.join(counts, "trace", "left").na.fill(0)
    return Audit(found.where("condition is not null"), _kept(traces))


def _kept(table: DataFrame) -> DataFrame:
    """The table, computed now."""
    if table.sparkSession.sparkContext.getCheckpointDir() is not None:
        return table.checkpoint()
    return table.localCheckpoint()


def _frame(given: Traces, spark: SparkSession | None) -> DataFrame:
    from pyspark.sql import DataFrame, SparkSession

    if isinstance(given, DataFrame):
        return given
    spark = spark or SparkSession.getActiveSession()
    if spark is None:
        raise PipelineError("there is no Spark session; start one and pass it as spark=...")
    if isinstance(given, str | Path):
        return read_traces(spark, given)
    return trace_frame(spark, given)


#: Violations that a report tells.
SHOWN: Final = 20


@dataclass(frozen=True)
class Fault:
    """One violation, as the audit's table has it."""

    trace: str
    condition: Condition
    position: int
    component: str
    notification: str
    subscription: str | None
    explanation: str

    def __str__(self) -> str:
        return f"{self.condition} at action {self.position}: {self.explanation}"


@dataclass(frozen=True)
class AuditReport:
    """The outcome in short, as `stentor.semantics.Report` has it for one small trace.

    `owed` counts the deliveries that liveness asked for: runs that owed nothing have not tested
    liveness at all. `first` are the first violations by run and position, and `faults` counts all.
    """

    traces: int
    flawed: int
    actions: int
    publications: int
    deliveries: int
    owed: int
    faults: Mapping[Condition, int]
    first: tuple[Fault, ...]

    @property
    def ok(self) -> bool:
        return not self.faults

    @property
    def violations(self) -> int:
        """How many there are."""
        return sum(self.faults.values())

    @property
    def conditions(self) -> frozenset[Condition]:
        """Which conditions broke."""
        return frozenset(self.faults)

    def __str__(self) -> str:
        size = (
            f"{counted(self.actions, 'action')}, {counted(self.publications, 'publication')}, "
            f"{counted(self.deliveries, 'delivery', 'deliveries')}, {self.owed:,} owed"
        )
        several = self.traces != 1
        if several:
            size = f"{counted(self.traces, 'trace')}, {size}"
        if self.ok:
            return f"conforms ({size})"
        found = self.violations
        head = f"{counted(found, 'violation')} ({size})"
        if several:
            head = (
                f"{counted(found, 'violation')} "
                f"in {self.flawed} of {self.traces} traces ({size.partition(', ')[2]})"
            )
        lines = [head]
        lines += [f"  {f'{fault.trace}: ' if several else ''}{fault}" for fault in self.first]
        if found > len(self.first):
            lines.append(f"  and {found - len(self.first)} more")
        return "\n".join(lines)
