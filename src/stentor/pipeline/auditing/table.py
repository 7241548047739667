"""The trace table: recorded runs as rows, one row for each action.

    trace     string               which run, so that many can be checked at once
    pos       long                 the place of the action in its run
    op        string               sub, unsub, adv, unadv, pub, notify, quiescent or internal
    comp      string               the component that acts, or that is notified
    nid       string               the notification, as producer:epoch:sequence
    fid       string               the subscription or advertisement
    filter    string               its filter, in the subscription language
    producer  string               the producer and the sequence number within the id, for queries
    seq       long                 of your own; the audit goes by `nid`
    body      binary               the notification, encoded as on the wire

Positions need not be consecutive: any whole number will do that rises along a run and is used once
in it, such as a time in nanoseconds. What an action does not have is null. `pub` and `notify` have
a body each, because a delivery may differ from what was published.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from stentor.errors import PipelineError
from stentor.model import encode_batch
from stentor.notation.counts import counted
from stentor.semantics import Action, Adv, Internal, Notify, Pub, Quiescent, Sub, Unadv, Unsub

#: The table for Spark.
SCHEMA: Final = (
    "trace string, pos long, op string, comp string, nid string, fid string, filter string, "
    "producer string, seq long, body binary"
)
_TYPES: Final = {"string": pa.string(), "long": pa.int64(), "binary": pa.binary()}


def arrow_columns(schema: str) -> pa.Schema:
    """The same for Arrow."""
    parts = (part.split() for part in schema.split(", "))
    return pa.schema([(name, _TYPES[kind]) for name, kind in parts])


ARROW_SCHEMA: Final = arrow_columns(SCHEMA)
#: The name of a run that was given none.
RUN: Final = "run"

_KINDS: Final = (Sub, Unsub, Adv, Unadv, Pub, Notify, Quiescent, Internal)
_OPS: Final[dict[type, str]] = {kind: kind.__name__.lower() for kind in _KINDS}
#: All that `op` may be.
OPS: Final = tuple(_OPS.values())

_ROWS: Final = 16_384


def record_batches(actions: Iterable[Action], run: str = RUN) -> Iterator[pa.RecordBatch]:
    """The actions of a run as rows, in batches; beside that, only the ids of filters are held."""
    ids = _FilterIds()
    numbered = enumerate(actions)
    while portion := list(islice(numbered, _ROWS)):
        rows = [_row(run, pos, action, ids) for pos, action in portion]
        about = [
            (row, action.notification)
            for row, (_, action) in zip(rows, portion, strict=True)
            if isinstance(action, Pub | Notify)
        ]
        for (row, _), body in zip(about, encode_batch(n for _, n in about), strict=True):
            row["body"] = body
        yield pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)


def trace_frame(
    spark: SparkSession, traces: Iterable[Action] | Mapping[str, Iterable[Action]]
) -> DataFrame:
    """A trace, or several by name, as a trace table.

    frame = trace_frame(spark, {"monday": trace, "tuesday": another})
    audit(frame).report()
    """
    runs = traces if isinstance(traces, Mapping) else {RUN: traces}
    batches = [batch for run, trace in runs.items() for batch in record_batches(trace, run)]
    return spark.createDataFrame(pa.Table.from_batches(batches, ARROW_SCHEMA))


class _FilterIds:
    """Filter ids as texts. Different ids of a component have different texts, also `1` and "1"."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[Hashable, str]] = {}
        self._taken: dict[str, set[str]] = {}

    def text(self, component: str, id: Hashable) -> str:
        texts = self._texts.setdefault(component, {})
        found = texts.get(id)
        if found is None:
            taken = self._taken.setdefault(component, set())
            found = str(id)
            while found in taken:
                found += "'"
            taken.add(found)
            texts[id] = found
        return found


def _row(run: str, pos: int, action: Action, ids: _FilterIds) -> dict[str, Any]:
    row: dict[str, Any] = {"trace": run, "pos": pos, "op": _OPS[type(action)]}
    match action:
        case Sub(component, id, filter) | Adv(component, id, filter):
            row |= {"comp": component, "fid": ids.text(component, id), "filter": str(filter)}
        case Unsub(component, id) | Unadv(component, id):
            row |= {"comp": component, "fid": ids.text(component, id)}
        case Pub() | Notify():
            id = action.id
            row |= {"comp": action.component, "nid": str(id)}
            row |= {"producer": id.producer, "seq": id.sequence}
    return row


# -- is it a trace table at all?

# What comes after trusts it, and would take a row that makes no sense for one that is not there.

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
