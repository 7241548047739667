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
    clock     map<string, long>    what a publication's publisher knew of, if that was recorded

Positions need not be consecutive: any whole number will do that rises along a run and is used once
in it, such as a time in nanoseconds. What an action does not have is null. `pub` and `notify` have
a body each, because a delivery may differ from what was published.

A clock says for each component how many of its publications lie in the past of this one: those
that its publisher had published, or been notified of, before, and the pasts of those. Only
first publications count, and only first deliveries after them. If every publication of a run has a
clock, causal order is judged by them; otherwise they are computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from stentor.errors import PipelineError
from stentor.filters import Filter
from stentor.model import decode_many, encode_batch
from stentor.pipeline.auditing.clocks import Clocks
from stentor.semantics import (
    Action,
    Adv,
    Internal,
    Notify,
    Pub,
    Quiescent,
    Sub,
    Trace,
    Unadv,
    Unsub,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The table for Spark.
SCHEMA: Final = (
    "trace string, pos long, op string, comp string, nid string, fid string, filter string, "
    "producer string, seq long, body binary, clock map<string, bigint>"
)
#: The same for Arrow.
ARROW_SCHEMA: Final = pa.schema(
    [
        ("trace", pa.string()),
        ("pos", pa.int64()),
        ("op", pa.string()),
        ("comp", pa.string()),
        ("nid", pa.string()),
        ("fid", pa.string()),
        ("filter", pa.string()),
        ("producer", pa.string()),
        ("seq", pa.int64()),
        ("body", pa.binary()),
        ("clock", pa.map_(pa.string(), pa.int64())),
    ]
)
#: The name of a run that was given none.
RUN: Final = "run"

_OPS: Final[dict[type, str]] = {
    Sub: "sub",
    Unsub: "unsub",
    Adv: "adv",
    Unadv: "unadv",
    Pub: "pub",
    Notify: "notify",
    Quiescent: "quiescent",
    Internal: "internal",
}
#: All that `op` may be.
OPS: Final = tuple(_OPS.values())

_ROWS: Final = 16_384


def record_batches(
    actions: Iterable[Action], run: str = RUN, *, clocks: bool = False
) -> Iterator[pa.RecordBatch]:
    """The actions of a run as rows, in batches; nothing more of the run is held in memory.

    That is but for the ids of its filters and, if clocks are to be recorded, of its notifications.
    """
    ids = _FilterIds()
    clock = Clocks() if clocks else None
    numbered = enumerate(actions)
    while portion := list(islice(numbered, _ROWS)):
        rows = [_row(run, pos, action, ids, clock) for pos, action in portion]
        about = [
            (row, action.notification)
            for row, (_, action) in zip(rows, portion, strict=True)
            if isinstance(action, Pub | Notify)
        ]
        for (row, _), body in zip(about, encode_batch(n for _, n in about), strict=True):
            row["body"] = body
        yield pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)


def trace_frame(
    spark: SparkSession,
    traces: Iterable[Action] | Mapping[str, Iterable[Action]],
    *,
    clocks: bool = False,
) -> DataFrame:
    """A trace, or several by name, as a trace table.

        frame = trace_frame(spark, {"monday": trace, "tuesday": another})
        audit(frame).report()

    With `clocks`, publications are stamped as a recorder would do it.
    """
    runs = traces if isinstance(traces, Mapping) else {RUN: traces}
    batches = [
        batch for run, trace in runs.items() for batch in record_batches(trace, run, clocks=clocks)
    ]
    return spark.createDataFrame(pa.Table.from_batches(batches, ARROW_SCHEMA))


def collect_trace(frame: DataFrame, run: str | None = None) -> Trace:
    """One run of a trace table as a trace, to look at it or to hold it against `check`.

    All of it comes to the driver. Filters have their ids as texts, and steps inside the service
    come without their names.
    """
    if "trace" in frame.columns:
        if run is not None:
            frame = frame.where(frame["trace"] == run)
        elif len(runs := frame.select("trace").distinct().limit(2).collect()) > 1:
            raise PipelineError(
                f"the table holds several runs, {runs[0][0]!r} and {runs[1][0]!r} among them; "
                "say which one with run=..."
            )
    columns = ("op", "comp", "fid", "filter", "body")
    rows = frame.orderBy("pos").select(*columns).toArrow().to_pylist()
    notifications = iter(decode_many([row["body"] for row in rows if row["body"] is not None]))
    return Trace(_action(row, notifications) for row in rows)


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


def _row(
    run: str, pos: int, action: Action, ids: _FilterIds, clocks: Clocks | None
) -> dict[str, Any]:
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
            if clocks is not None and isinstance(action, Pub):
                row["clock"] = clocks.publish(action.component, id)
            elif clocks is not None:
                clocks.deliver(action.component, id)
    return row


def _action(row: dict[str, Any], notifications: Iterator[Any]) -> Action:
    match row["op"]:
        case "sub":
            return Sub(row["comp"], row["fid"], Filter(row["filter"]))
        case "unsub":
            return Unsub(row["comp"], row["fid"])
        case "adv":
            return Adv(row["comp"], row["fid"], Filter(row["filter"]))
        case "unadv":
            return Unadv(row["comp"], row["fid"])
        case "pub":
            return Pub(row["comp"], next(notifications))
        case "notify":
            return Notify(row["comp"], next(notifications))
        case "quiescent":
            return Quiescent()
        case "internal":
            return Internal()
        case unknown:
            raise PipelineError(f"there is no action {unknown!r}; choose from {', '.join(OPS)}")
