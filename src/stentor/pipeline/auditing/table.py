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
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from stentor.model import encode_batch
from stentor.semantics import (
    Action,
    Adv,
    Internal,
    Notify,
    Pub,
    Quiescent,
    Sub,
    Unadv,
    Unsub,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The table for Spark.
SCHEMA: Final = (
    "trace string, pos long, op string, comp string, nid string, fid string, filter string, "
    "producer string, seq long, body binary"
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
