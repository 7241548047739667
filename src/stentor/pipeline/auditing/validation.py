"""Is this a trace table at all?

Everything after trusts it, and would take a row that makes no sense for one that is not there. So
the table is read once before, and rows that cannot be judged are an error that names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from stentor.errors import PipelineError
from stentor.notation.counts import counted
from stentor.pipeline.auditing.table import OPS, RUN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

#: What the judgment reads, with the types that Spark has to find there.
_NEEDED: Final = {
    "pos": ("bigint", "int"),
    "op": ("string",),
    "comp": ("string",),
    "nid": ("string",),
    "fid": ("string",),
    "filter": ("string",),
    "body": ("binary",),
}


def trace_table(given: DataFrame) -> DataFrame:
    """The columns that the audit reads; what may be left out is filled in."""
    found = dict(given.dtypes)
    lacking = [name for name in _NEEDED if name not in found]
    if lacking:
        raise PipelineError(
            f"a trace table needs the columns {', '.join(_NEEDED)}; "
            f"there is no {', '.join(lacking)}, only {', '.join(found) or 'none at all'}"
        )
    for name, types in _NEEDED.items():
        if found[name] not in types:
            raise PipelineError(
                f"the column {name} of a trace table is a {types[0]}, not a {found[name]}"
            )
    return given.select(
        F.col("trace").cast("string") if "trace" in found else F.lit(RUN).alias("trace"),
        F.col("pos").cast("bigint"),
        *(name for name in _NEEDED if name != "pos"),
    )


def summary(rows: DataFrame) -> DataFrame:
    """For each run: its size, between which positions it is, and its flaws.

    One row for each run, so this is small, however large the runs are.
    """
    return rows.groupBy("trace").agg(
        F.count("*").alias("actions"),
        F.count_if(F.col("op").isin("pub", "notify")).alias("acts"),
        F.count_if(F.col("op") == "notify").alias("deliveries"),
        F.countDistinct(F.when(F.col("op") == "pub", F.col("nid"))).alias("publications"),
        F.min("pos").alias("start"),
        F.max("pos").alias("end"),
        F.countDistinct("pos").alias("positions"),
        F.min(F.when(_malformed(), F.struct("pos", "op"))).alias("malformed"),
    )


def check_rows(runs: DataFrame) -> None:
    """`PipelineError` if some run, by its summary, cannot be judged."""
    flawed = (
        F.col("trace").isNull()
        | F.col("malformed").isNotNull()
        | (F.col("positions") < F.col("actions"))
    )
    flaw = F.struct("trace", "actions", "positions", "malformed")
    found = runs.agg(F.min(F.when(flawed, flaw)).alias("flaw")).collect()[0]
    if found["flaw"] is not None:
        raise PipelineError(_problem(*found["flaw"]))


def _problem(run: str | None, actions: int, positions: int, malformed: Row | None) -> str:
    if run is None:
        rows = counted(actions, "row does", "rows do")
        return f"{rows} not say to which trace: fill the column trace"
    if malformed is not None:
        return (
            f"the row at position {malformed['pos']} of trace {run!r} makes no sense as "
            f"{malformed['op']!r}: op is one of {', '.join(OPS)}; sub and adv need comp, fid and "
            "filter, unsub and unadv comp and fid, pub and notify comp, nid and body, and all of "
            "them pos"
        )
    return (
        f"{actions - positions} actions of trace {run!r} have a position that another one has; "
        "number them so that all positions of a run differ"
    )


def _malformed() -> Column:
    op = F.col("op")

    def lacks(*names: str) -> Column:
        lacking = F.lit(False)
        for name in names:
            lacking = lacking | F.col(name).isNull()
        return lacking

    makes_sense = (
        F.when(op.isin("sub", "adv"), ~lacks("comp", "fid", "filter"))
        .when(op.isin("unsub", "unadv"), ~lacks("comp", "fid"))
        .when(op.isin("pub", "notify"), ~lacks("comp", "nid", "body"))
        .otherwise(op.isin("quiescent", "internal"))
    )
    return ~F.coalesce(makes_sense, F.lit(False)) | F.col("pos").isNull()
