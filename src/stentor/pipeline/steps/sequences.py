"""Order: events come out in the order in which they were published.

Partitions of a Spark job run side by side, and brokers are read side by side: what a producer has
published in order arrives in any order. This step restores it, as a subscriber of a broker has it:
each producer's events by epoch and sequence number, and among producers by time.

*Which order.* A producer's clock may be set back, so that a later event has an earlier time. The
producer's own order always wins: the *effective time* of an event is the latest time of it and all
its predecessors that are at hand. Events are ordered by effective time, producer, epoch, sequence.
Nobody waits for a missing sequence number: it may belong to an event that a filter has left out.

*A stream.* Each group of events (by default those of one producer) has a buffer. When the watermark
has passed the effective time of an event, it leaves the buffer, behind everything that comes before
it. The last one to leave is remembered as the group's mark.

*Late events.* An event is late if it comes before the mark: the order cannot be restored any more.
Being old is not enough. A broker that was away for an hour sends old events, but those of its
producers are in order all the same. Spark itself would drop every event that is behind the
watermark, before any state is looked at; so it is not shown the time of the events, but a column of
nulls that bears the watermark's mark, and the buffers decide.

*Bounds.* A buffer that would exceed `limit` lets its first events go early; what then comes before
them is late. The mark of a group with an empty buffer is forgotten after `within`.

The watermark moves only when newer events come, so the latest ones stay in the buffers until then.
An event that leaves is older than the watermark by definition: a further step that keeps state
would take it for late, so order goes last. What follows must work on each event by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql.streaming.state import GroupState

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.pipeline.steps.buffers import NO_TIME, Buffer, Event
from stentor.pipeline.steps.durations import Duration, microseconds
from stentor.pipeline.steps.events import (
    WATERMARK,
    attribute,
    column,
    epoch,
    producer,
    remembering,
    require,
    sequence,
)

if TYPE_CHECKING:
    import pandas as pd

#: What a group of ordered events can be, unless it is given by attributes.
GROUPS: Final = ("producer", "all")
#: Events that a buffer holds at most.
LIMIT: Final = 100_000

# Nothing of an event must be lost on its way through JSON.
_FORMAT: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_numbers: Final = itertools.count(1)


def order(
    events: DataFrame,
    within: Duration = "10 seconds",
    by: str | Sequence[str] = "producer",
    late: str | None = None,
    limit: int = LIMIT,
) -> DataFrame:
    """The events in the order in which they were published.

    A stream holds each event back until the watermark is `within` past it. `by` says among which
    events there is an order: those of each "producer", "all" (then one task does the work), or
    those that agree in a list of attributes. Late events are left out and counted, as the observed
    metric `late`; with late="name" they come at once, and a column of that name says which they
    are. A batch is sorted as a whole and has no late events.

        order(quotes, within="10 seconds")
        order(quotes, within="1 minute", by=["symbol"], late="is_late")
    """
    length = microseconds(within)
    require(events, "_id", "_time")
    if isinstance(by, str) and by not in GROUPS:
        raise PipelineDefinitionError(
            f"by is {' or '.join(GROUPS)} or a list of attributes, not {by!r}"
        )
    if limit < 1:
        raise PipelineDefinitionError("a buffer must have room for one event; limit is too small")
    if late is not None and late in events.columns:
        raise PipelineError(f"the events have a column {late!r} already; name another for late")
    if not events.isStreaming:
        return _sorted(events, late)
    return _buffered(events, within, length, by, late, limit)


def _sorted(events: DataFrame, late: str | None) -> DataFrame:
    names = [column(name) for name in events.columns]
    id = column("_id")
    keyed = events.select(
        *names,
        _micros().alias("__micros"),
        producer(id).alias("__producer"),
        epoch(id).alias("__epoch"),
        sequence(id).alias("__sequence"),
    )
    own = Window.partitionBy("__producer").orderBy("__epoch", "__sequence")
    so_far = own.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    effective = keyed.withColumn("__effective", F.max("__micros").over(so_far))
    ordered = effective.orderBy("__effective", "__producer", "__epoch", "__sequence")
    flags = [] if late is None else [F.lit(False).alias(late)]
    return ordered.select(*names, *flags)


def _micros() -> Column:
    return F.coalesce(F.unix_micros(column("_time")), F.lit(NO_TIME))


def _buffered(
    events: DataFrame,
    within: Duration,
    length: int,
    by: str | Sequence[str],
    late: str | None,
    limit: int,
) -> DataFrame:
    from pyspark.sql.streaming.state import GroupStateTimeout

    timed = remembering(events, within)
    id = column("_id")
    delay = timed.schema["_time"].metadata[WATERMARK]
    groups = [group.alias(f"group{i}") for i, group in enumerate(_groups(timed, by))]
    packed = timed.select(
        *groups,
        _micros().alias("micros"),
        producer(id).alias("producer"),
        epoch(id).alias("epoch"),
        sequence(id).alias("sequence"),
        F.to_json(F.struct(*(column(name) for name in events.columns)), _FORMAT).alias("event"),
        F.lit(None).cast("timestamp").alias("clock", metadata={WATERMARK: delay}),
    )

    def release(
        key: tuple[Any, ...], arrived: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        yield _release(arrived, state, length, limit)

    released = packed.groupBy(*(f"group{i}" for i in range(len(groups)))).applyInPandasWithState(
        release,
        outputStructType="event string, late boolean",
        stateStructType="buffer binary",
        outputMode="append",
        timeoutConf=GroupStateTimeout.EventTimeTimeout,
    )
    # Observed by a name of its own, as every metric of a query must be.
    counted = released.observe(
        f"order{next(_numbers)}", F.count(F.when(column("late"), 1)).alias("late")
    )
    event = F.from_json(column("event"), events.schema, _FORMAT)
    if late is None:
        return counted.where(~column("late")).select(event.alias("event")).select("event.*")
    flagged = counted.select(event.alias("event"), column("late").alias("late"))
    return flagged.select("event.*", column("late").alias(late))


def _groups(events: DataFrame, by: str | Sequence[str]) -> list[Column]:
    if by == "producer":
        return [producer(column("_id"))]
    if by == "all":
        return [F.lit(0)]
    return [attribute(events.schema, name) for name in by]


def _release(
    arrived: Iterator[pd.DataFrame], state: GroupState, within: int, limit: int
) -> pd.DataFrame:
    """What may leave the buffer of a group now. Runs in the executors."""
    import pandas as pd

    now = state.getCurrentWatermarkMs() * 1_000
    buffer = Buffer.load(state.get[0]) if state.exists else Buffer()
    late = buffer.take(chain.from_iterable(_events(frame) for frame in arrived))
    released = buffer.release(now, limit)
    wake = buffer.first_time
    if wake is None and state.hasTimedOut and not released:
        state.remove()
    else:
        state.update((buffer.dump(),))
        moment = now + within if wake is None else wake
        # The state is woken when the watermark is past this millisecond, so past the event.
        state.setTimeoutTimestamp(max(moment // 1_000, now // 1_000, 1))
    flags = [True] * len(late) + [False] * len(released)
    return pd.DataFrame(
        {"event": pd.Series([*late, *released], dtype=object), "late": pd.Series(flags, dtype=bool)}
    )


def _events(frame: pd.DataFrame) -> Iterator[Event]:
    columns = ("micros", "producer", "epoch", "sequence", "event")
    return zip(*(frame[name].tolist() for name in columns), strict=True)
