"""How runs are cut, so that the local checker can judge each slice by itself.

There is one judge, `stentor.semantics`, and Spark only brings together what it has to see. What a
condition depends on says how a run can be cut:

    safety, liveness     each notification by itself: all actions on it, and all subscriptions,
                         advertisements and settling points of the run
    fifo                 each publisher by itself: what it has published, wherever that went
    causal               each consumer by itself: what came to it, all publications, and what came
                         to those who publish, for what they knew is part of the past
    total                each *island* of disorder by itself

*Islands.* Deliveries form a graph: an edge from each delivery to the next one of the same
component. One order fits all exactly if there is no cycle, and two components can contradict each
other only inside of a cycle. Lay the notifications out in the order of their publication. Most
edges lead forward. A cycle has to come back, so everywhere between its first and its last
notification some edge leads back across. So cycles lie within the stretches that backward edges
cover, overlapping ones taken together: the islands. Deliveries outside of islands break no total
order, and each island is as large as the disorder is there, not as the run.

A slice is held by one worker at a time. Of all but the causal ones the size follows from `SHARD`;
those hold the ids of all publications of a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stentor.errors import DecodeError, PipelineError
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model import Notification, NotificationId, decode_many
from stentor.pipeline.auditing.table import arrow_columns
from stentor.pipeline.matching.kernel_cache import claim_kernel_cache
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.semantics import Action, Notify, Oracle, Pub, Violation
from stentor.semantics.candidates import Candidates
from stentor.semantics.history import History, numbered_history
from stentor.semantics.lines import Line
from stentor.semantics.liveness import Finder, liveness
from stentor.semantics.orders import ORDERS

#: Publications and deliveries in a slice, about.
SHARD: Final = 100_000
#: A run is cut into so many equal stretches, to find the island of a delivery without comparing it
#: with all islands of the run.
STRETCHES: Final = 65_536
#: As few filters are not worth an index.
INDEXED: Final = 500
#: Sets of filters that a worker keeps compiled.
_COMPILED: Final = 4

#: Violations as rows. The component is who was notified, or should have been, or who published; the
#: subscription is the one that something was owed to, or that was withdrawn before a delivery. A
#: row without a condition says at `position` how many deliveries were owed in a slice.
FOUND: Final = (
    "trace string, condition string, position long, component string, notification string, "
    "subscription string, explanation string"
)
_FOUND: Final = arrow_columns(FOUND)


# -- cutting


def by_notification(
    rows: DataFrame, runs: DataFrame, *, advertisements: bool, settling: bool
) -> DataFrame:
    """What breaks safety or liveness, and how much was owed."""
    shards = _shards(runs)
    acts = rows.where("op in ('pub', 'notify')").join(shards, "trace")
    marks = rows.where("op not in ('pub', 'notify', 'internal')").join(shards, "trace")
    sliced = acts.withColumn("shard", _shard("nid")).unionByName(
        marks.withColumn("shard", F.explode(F.sequence(F.lit(0), F.col("shards") - 1)))
    )
    judge = partial(_safe_and_live, advertisements=advertisements, settling=settling)
    return _judged(sliced, judge)


def by_publisher(rows: DataFrame, runs: DataFrame) -> DataFrame:
    """What breaks FIFO order."""
    first = F.min(F.when(F.col("op") == "pub", F.struct("pos", "comp")))
    sliced = (
        rows.where("op in ('pub', 'notify')")
        .withColumn("publisher", first.over(Window.partitionBy("trace", "nid"))["comp"])
        .where("publisher is not null")
        .withColumn("body", F.when(F.col("op") == "pub", F.col("body")))
        .join(_shards(runs), "trace")
        .withColumn("shard", _shard("publisher"))
    )
    return _judged(sliced, partial(_ordered, order="fifo"))


def by_consumer(rows: DataFrame, runs: DataFrame, order: str) -> DataFrame:
    """What breaks one of the causal orders."""
    publishes = F.max(F.col("op") == "pub").over(Window.partitionBy("trace", "comp"))
    everywhere = F.sequence(F.lit(0), F.col("shards") - 1)
    sliced = (
        _without_bodies(rows.where("op in ('pub', 'notify')"))
        .withColumn("publishes", publishes)
        .join(_shards(runs), "trace")
        .withColumn("home", _shard("comp"))
        .withColumn("shard", F.when(F.col("publishes"), everywhere).otherwise(F.array("home")))
        .withColumn("shard", F.explode("shard"))
    )
    return _judged(sliced, partial(_ordered, order=order))


def by_island(
    rows: DataFrame, runs: DataFrame, order: str, group: Collection[str] | None
) -> DataFrame:
    """What breaks one of the total orders, among the components of a group or among all."""
    published = rows.where("op = 'pub'").groupBy("trace", "nid").agg(F.min("pos").alias("at"))
    notified = rows.where("op = 'notify'")
    if group is not None:
        notified = notified.where(F.col("comp").isin(*group))
    came = (
        notified.join(published, ["trace", "nid"])
        .where("pos > at")
        .groupBy("trace", "nid", "comp", "at")
        .agg(F.min("pos").alias("pos"))
    )
    before = F.lag("at").over(Window.partitionBy("trace", "comp").orderBy("pos"))
    backward = (
        came.withColumn("before", before)
        .where("before > at")
        .selectExpr("trace", "at as low", "before as high")
    )
    by_low = Window.partitionBy("trace").orderBy("low", "high")
    reached = F.max("high").over(by_low.rowsBetween(Window.unboundedPreceding, -1))
    islands = (
        backward.withColumn("begins", F.coalesce(reached < F.col("low"), F.lit(True)))
        .withColumn("shard", F.sum(F.col("begins").cast("bigint")).over(by_low))
        .groupBy("trace", "shard")
        .agg(F.min("low").alias("low"), F.max("high").alias("high"))
    )
    widths = F.broadcast(
        runs.selectExpr("trace", "start", f"(end - start) div {STRETCHES} + 1 as width")
    )
    spread = islands.join(widths, "trace").selectExpr(
        *("trace", "shard", "low", "high"),
        "explode(sequence((low - start) div width, (high - start) div width)) as stretch",
    )
    on_islands = (
        came.join(widths, "trace")
        .withColumn("stretch", F.expr("(at - start) div width"))
        .join(spread, ["trace", "stretch"])
        .where("at between low and high")
        .withColumn("op", F.lit("notify"))
    )
    found = _judged(_without_bodies(on_islands, "shard"), partial(_ordered, order=order))
    if order != "total_global":
        return found
    # Of all islands of a run, the delivery is told after which there is no order any more.
    names = [name for name in found.columns if name != "trace"]
    first = F.min(F.struct("position", *(name for name in names if name != "position")))
    return (
        found.groupBy("trace")
        .agg(first.alias("first"))
        .select("trace", *(F.col(f"first.{name}") for name in names))
    )


def _shards(runs: DataFrame) -> DataFrame:
    """For each run, into how many slices it is cut."""
    return F.broadcast(
        runs.select(
            "trace", F.expr(f"greatest(1, ceil(acts / {SHARD}))").cast("int").alias("shards")
        )
    )


def _shard(column: str) -> Any:
    return F.pmod(F.xxhash64(column), F.col("shards")).cast("int")


def _without_bodies(acts: DataFrame, *also: str) -> DataFrame:
    nothing = F.lit(None).cast("binary").alias("body")
    return acts.select("trace", "pos", "op", "comp", "nid", nothing, *also)


def _judged(sliced: DataFrame, judge: Any) -> DataFrame:
    vocabulary = Vocabulary.of_this_process()

    def slice_judged(table: pa.Table) -> pa.Table:
        claim_kernel_cache()
        vocabulary.install()
        rows = table.sort_by("pos")
        found = [*judge(rows)]
        return pa.Table.from_pylist(
            [{"trace": rows["trace"][0].as_py(), **each} for each in found], _FOUND
        )

    return sliced.groupBy("trace", "shard").applyInArrow(slice_judged, FOUND)


# -- judging, in the workers


def _safe_and_live(
    rows: pa.Table, *, advertisements: bool, settling: bool
) -> Iterator[dict[str, Any]]:
    actions = list(_actions(rows))
    oracle = Oracle(advertisements=advertisements)
    for position, action in actions:
        yield from map(_told, oracle.step(action, position))
    if settling:
        judgment = liveness(numbered_history(actions), oracle, finder)
        yield from map(_told, judgment.violations)
        yield {"position": judgment.owed}


def _ordered(rows: pa.Table, *, order: str) -> Iterator[dict[str, Any]]:
    actions: Iterable[tuple[int, Action]] = _actions(rows)
    if order.startswith("total"):
        history: History = [(at, each) for at, each in actions if isinstance(each, Notify)]
    else:
        history = numbered_history(actions)
    told = map(_told, ORDERS[order](history))
    if "home" not in rows.column_names:
        yield from told
        return
    # What came to those who publish is in every slice, and judged in one.
    here = rows["shard"][0].as_py()
    homes = dict(zip(rows["comp"].to_pylist(), rows["home"].to_pylist(), strict=True))
    yield from (each for each in told if homes[each["component"]] == here)


def _actions(rows: pa.Table) -> Iterator[tuple[int, Action]]:
    """The actions with their positions; of a body that is left out, only the id counts."""
    names = [
        n for n in ("pos", "op", "comp", "nid", "fid", "filter", "body") if n in rows.column_names
    ]
    held = rows.filter(rows["body"].is_valid())
    bodies = iter(_decoded(held))
    for values in zip(*(rows[name].to_pylist() for name in names), strict=True):
        row = dict(zip(names, values, strict=True))
        if row["op"] in ("pub", "notify"):
            kind = Pub if row["op"] == "pub" else Notify
            yield (
                row["pos"],
                kind(row["comp"], _stub(row["nid"]) if row["body"] is None else next(bodies)),
            )
        else:
            yield row["pos"], _mark(row["op"], row["comp"], row["fid"], row["filter"])


def _stub(nid: str) -> Notification:
    return Notification.from_checked(
        {}, None, None, None, b"", None, NotificationId.parse(nid), None
    )


@lru_cache(maxsize=65_536)
def _mark(op: str, comp: str | None, fid: str | None, filter: str | None) -> Action:
    """What is no publication or delivery; the same few filters are parsed over and over."""
    return Line(pos=0, op=op, comp=comp, fid=fid, filter=filter).action()


def _decoded(rows: pa.Table) -> list[Notification]:
    """`PipelineError` names a notification that cannot be read, or that is another one."""
    runs, ids = (rows[name].to_pylist() for name in ("trace", "nid"))
    try:
        found = decode_many(rows["body"].to_pylist())
    except DecodeError as error:
        raise PipelineError(
            f"the body of {ids[error.index]} in trace {runs[error.index]!r} is unreadable: {error}"
        ) from error
    for run, nid, notification in zip(runs, ids, found, strict=True):
        if str(notification.id) != nid:
            raise PipelineError(
                f"trace {run!r} has a notification {nid} whose body says {notification.id}"
            )
    return found


def _told(violation: Violation) -> dict[str, Any]:
    action: Any = violation.action
    subscription = violation.subscription
    return {
        "condition": violation.condition.value,
        "position": violation.position,
        "component": violation.whom or action.component,
        "notification": str(action.id),
        "subscription": None if subscription is None else str(subscription),
        "explanation": violation.why,
    }


def finder(filters: Iterable[Filter]) -> Finder:
    """What finds filters that match: by the index of the brokers, where there are many."""
    known = tuple(filters)
    return Candidates(known) if len(known) < INDEXED else _Indexed(known)


class _Indexed:
    def __init__(self, filters: tuple[Filter, ...]) -> None:
        self._index = _compiled(filters)

    def of(self, notification: Notification) -> list[int]:
        return sorted(self._index.match(notification))


@lru_cache(maxsize=_COMPILED)
def _compiled(filters: tuple[Filter, ...]) -> Index[int]:
    return Index(enumerate(filters), background=False)
