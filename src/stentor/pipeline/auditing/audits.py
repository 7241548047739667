"""`audit`: all conditions, on recorded runs of any size.

The tables that several conditions read are computed one after the other and kept: publications and
deliveries (`acts`), intervals of activity (`intervals`), what matched (`relevance`), what was owed
(`liveness`), the history of each component (`history`). Each condition is then a query over
them, and the union of all is the table of violations.

A table that is kept forgets how it was made. Otherwise every query would carry the plans of all
tables before it, and planning would take longer than running. They are kept by the executors, in
memory or on their disks; a session with a checkpoint directory keeps them there instead, and then
an audit outlives the loss of an executor. Nobody has to release them: Spark does, when nothing
refers to them any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from stentor.errors import InvalidConfiguration, PipelineError
from stentor.pipeline.auditing.acts import acts
from stentor.pipeline.auditing.causality import causal, causal_printed
from stentor.pipeline.auditing.fifo import fifo
from stentor.pipeline.auditing.files import read_traces
from stentor.pipeline.auditing.history import history
from stentor.pipeline.auditing.intervals import intervals
from stentor.pipeline.auditing.liveness import lost, owed
from stentor.pipeline.auditing.relevance import relevance
from stentor.pipeline.auditing.report import SHOWN, AuditReport, Fault
from stentor.pipeline.auditing.safety import safety
from stentor.pipeline.auditing.table import trace_frame
from stentor.pipeline.auditing.totals import on_islands, total_global, total_pairwise
from stentor.pipeline.auditing.validation import check_rows, summary, trace_table
from stentor.pipeline.auditing.words import together
from stentor.pipeline.registration import require_own
from stentor.semantics import Action, Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Traces = DataFrame | str | Path | Iterable[Action] | Mapping[str, Iterable[Action]]

#: The orders that can be asked for.
ORDERS: Final = ("fifo", "causal", "causal_printed", "total_pairwise", "total_global")
TOTAL: Final = {"total_pairwise": total_pairwise, "total_global": total_global}

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
    rows = trace_table(given)
    runs = _kept(summary(rows))
    largest = check_rows(runs)
    actions, active = _kept(acts(rows)), _kept(intervals(rows))
    relevant = _kept(relevance(actions, active, runs, largest=largest))
    parts = safety(actions, active, relevant, advertisements=advertisements)
    due = owed(relevant, runs, advertisements=advertisements)
    due = _kept(due if settling else due.limit(0))
    parts.append(lost(due, actions, active))
    if names:
        happened = _kept(history(actions))
        parts += _disorder(happened, runs, names, largest)
        if TOTAL.keys() & set(names):
            suspects = _kept(on_islands(happened, runs, group))
            parts += [TOTAL[name](suspects) for name in names if name in TOTAL]
    violations = _kept(together(parts))
    return Audit(violations, _kept(_counted(runs, actions, due, violations)))


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


def _disorder(
    happened: DataFrame, runs: DataFrame, names: list[str], largest: int
) -> list[DataFrame]:
    """What breaks FIFO and causal order."""
    parts: list[DataFrame] = []
    if "fifo" in names:
        parts.append(fifo(happened))
    if "causal" in names:
        parts.append(causal(happened, runs, largest=largest))
    if "causal_printed" in names:
        parts.append(causal_printed(happened, largest=largest))
    return parts


def _counted(
    runs: DataFrame, actions: DataFrame, due: DataFrame, violations: DataFrame
) -> DataFrame:
    """One row for each run."""
    sizes = actions.groupBy("trace").agg(
        F.count_if(F.expr("op = 'pub' and in_history")).alias("publications"),
        F.count_if(F.col("op") == "notify").alias("deliveries"),
    )
    found = runs.select("trace", "actions").join(sizes, "trace", "left")
    for name, table in (("owed", due), ("violations", violations)):
        count = table.groupBy("trace").agg(F.count("*").alias(name))
        found = found.join(count, "trace", "left")
    return found.na.fill(0)
