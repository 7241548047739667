"""Causal order: who comes after something that it happened before.

What a component knows depends on what others knew when they published, so causality has to be
followed in the order of the run. It is followed in one pass over the history, with vector clocks. A
publication is stamped with what its publisher knew; a component that is notified learns the stamp
and the publication; and for each component the largest clock among those of what it was notified of
is kept: a notification that lies below it comes too late.

The pass is split by consumers. Deliveries to components that never publish teach nobody
anything, so they are needed only where they are judged; publications, and the deliveries to those
who publish, go to every shard, which then computes the clocks again. That is cheaper than
sending clocks, which are as long as there are publishers, along with each delivery. A stamp is held
until its notification was delivered for the last time, so the memory of a shard follows from what
is under way at a time, not from the length of the run. In runs that were recorded with clocks, the
stamps are there, and nothing has to be learned.

The order as printed in Eq 2.4 builds chains of deliveries alone. There clocks count deliveries
instead of publications, and a notification lies in the past if one of its receivers had received it
by then.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F

from stentor.pipeline.auditing.clocks import Clock, Frontier, VectorClocks
from stentor.pipeline.auditing.words import sentence, told, violations
from stentor.semantics import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Publications and deliveries of the largest run, for each shard of consumers.
SHARD: Final = 1_000_000

_SCHEMA: Final = pa.schema(
    [
        ("trace", pa.string()),
        ("pos", pa.int64()),
        ("comp", pa.string()),
        ("nid", pa.string()),
        ("overtaker", pa.int64()),
    ]
)
#: What the pass reads, in this order.
_SCANNED: Final = (
    *("trace", "pos", "op", "comp", "nid", "at", "publisher", "last", "clock", "learns"),
    *("home", "shard"),
)
#: A clock as it was recorded, or none.
_Recorded: TypeAlias = list[tuple[str, int]] | None
_FOUND: Final = "trace string, pos bigint, comp string, nid string, overtaker bigint"
#: Violations in a batch of the result.
_ROWS: Final = 10_000


def causal(happened: DataFrame, runs: DataFrame, *, largest: int) -> DataFrame:
    """Nothing is delivered after what it happened before."""
    clocked = runs.select("trace", "clocked")
    return _judged(Condition.CAUSAL, happened.join(F.broadcast(clocked), "trace"), largest)


def causal_printed(happened: DataFrame, *, largest: int) -> DataFrame:
    """The same, with a past that holds only what was delivered to its publishers (Eq 2.4)."""
    unclocked = happened.withColumn("clocked", F.lit(False))
    return _judged(Condition.CAUSAL_PRINTED, unclocked, largest)


def _judged(condition: Condition, happened: DataFrame, largest: int) -> DataFrame:
    shards = max(1, math.ceil(largest / SHARD))
    home = F.pmod(F.xxhash64("comp"), F.lit(shards)).cast("int")
    everywhere = (F.col("op") == "pub") | (F.col("publishes") & ~F.col("clocked"))
    found = (
        happened.select(
            *("trace", "pos", "op", "comp", "nid", "at", "publisher", "last"),
            F.when(F.col("clocked"), F.col("clock")).alias("clock"),
            (F.col("publishes") & ~F.col("clocked")).alias("learns"),
            home.alias("home"),
            F.explode(
                F.when(everywhere, F.sequence(F.lit(0), F.lit(shards - 1))).otherwise(F.array(home))
            ).alias("shard"),
        )
        .repartition("trace", "shard")
        .sortWithinPartitions("trace", "shard", "pos")
        .mapInArrow(partial(_scan, printed=condition is Condition.CAUSAL_PRINTED), _FOUND)
    )
    overtakers = happened.where("op = 'pub'").select(
        "trace", F.col("at").alias("overtaker"), F.col("nid").alias("earlier")
    )
    why = sentence(
        *(told(), ", after ", F.col("earlier"), ", but ", F.col("nid"), " happened before "),
        F.col("earlier"),
    )
    return violations(found.join(overtakers, ["trace", "overtaker"]), condition, why)


def _scan(batches: Iterable[pa.RecordBatch], *, printed: bool) -> Iterator[pa.RecordBatch]:
    """Shards of runs one after the other, each in its order: runs in a worker."""
    found: list[tuple[str, int, str, str, int]] = []
    current: tuple[str, int] | None = None
    order: _Order = _HappenedBefore()
    #: When what is under way will have been delivered everywhere.
    over: list[tuple[int, int]] = []
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in _SCANNED)
        for trace, pos, op, comp, nid, at, publisher, last, clock, learns, home, shard in zip(
            *columns, strict=True
        ):
            if (trace, shard) != current:
                current = trace, shard
                order = _Printed() if printed else _HappenedBefore()
                over = []
            while over and over[0][0] < pos:
                order.forget(heappop(over)[1])
            if op == "pub":
                if last > at:
                    heappush(over, (last, at))
                order.publish(comp, at, clock, delivered=last > at)
                continue
            overtaker = order.deliver(comp, at, publisher, learns=learns, judged=home == shard)
            if overtaker is not None:
                found.append((trace, pos, comp, nid, overtaker))
                if len(found) >= _ROWS:
                    yield _batch(found)
                    found = []
    if found:
        yield _batch(found)


def _batch(found: list[tuple[str, int, str, str, int]]) -> pa.RecordBatch:
    columns = zip(*found, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


class _Order(Protocol):
    """One shard of one run. Notifications are known by where they were published."""

    def publish(self, publisher: str, at: int, clock: _Recorded, *, delivered: bool) -> None:
        """Stamp it, if it will be delivered."""

    def deliver(
        self, component: str, at: int, publisher: str, *, learns: bool, judged: bool
    ) -> int | None:
        """Judge it, if that is due here. The notification that overtook it, if one did."""

    def forget(self, at: int) -> None:
        """It will not be delivered any more."""


class _HappenedBefore:
    """A publication's past: all that its publisher had published or been notified of."""

    def __init__(self) -> None:
        self._clocks = VectorClocks()
        self._published: dict[str, int] = {}
        self._stamps: dict[int, tuple[int, int, Clock]] = {}
        self._frontiers: defaultdict[str, Frontier] = defaultdict(Frontier)

    def publish(self, publisher: str, at: int, clock: _Recorded, *, delivered: bool) -> None:
        serial = self._published[publisher] = self._published.get(publisher, 0) + 1
        if delivered:
            clocks = self._clocks
            stamp = clocks.of(publisher) if clock is None else clocks.clock(dict(clock))
            self._stamps[at] = clocks.number(publisher), serial, stamp

    def deliver(
        self, component: str, at: int, publisher: str, *, learns: bool, judged: bool
    ) -> int | None:
        number, serial, stamp = self._stamps[at]
        overtaker = None
        if judged:
            frontier = self._frontiers[component]
            if frontier.level(number) >= serial:
                overtaker = frontier.whose(number)
            frontier.advance(stamp, at)
            frontier.raise_to(serial - 1, number, at)
        if learns:
            self._clocks.learn(component, stamp, publisher, serial)
        return overtaker

    def forget(self, at: int) -> None:
        del self._stamps[at]


class _Printed:
    """A publication's past: all that its publisher had been notified of, and the pasts of these."""

    def __init__(self) -> None:
        self._clocks = VectorClocks()
        self._received: dict[str, int] = {}
        #: Each with who had received it, in turn, and as which of its deliveries.
        self._stamps: dict[int, tuple[Clock, dict[int, int]]] = {}
        self._frontiers: defaultdict[str, Frontier] = defaultdict(Frontier)

    def publish(self, publisher: str, at: int, clock: _Recorded, *, delivered: bool) -> None:
        if delivered:
            self._stamps[at] = self._clocks.of(publisher), {}

    def deliver(
        self, component: str, at: int, publisher: str, *, learns: bool, judged: bool
    ) -> int | None:
        stamp, receivers = self._stamps[at]
        overtaker = None
        if judged:
            frontier = self._frontiers[component]
            for receiver, rank in receivers.items():
                if rank <= frontier.level(receiver):
                    overtaker = frontier.whose(receiver)
                    break
            frontier.advance(stamp, at)
        if learns:
            rank = self._received[component] = self._received.get(component, 0) + 1
            receivers[self._clocks.number(component)] = rank
            self._clocks.learn(component, stamp, component, rank)
        return overtaker

    def forget(self, at: int) -> None:
        del self._stamps[at]
