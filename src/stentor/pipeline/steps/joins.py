"""Join: pairs of events from two tables that belong together and are close in time.

The time bound is what makes it a step for streams: an event has to be remembered only until the
watermark says that no partner can come any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.pipeline.filters.sql import quoted
from stentor.pipeline.steps.durations import Duration, interval
from stentor.pipeline.steps.events import attributes, require, unmarked
from stentor.pipeline.steps.events import watermark as with_watermark
from stentor.pipeline.steps.names import is_reserved

#: Where in time the right event may be, seen from the left one.
SIDES: Final = ("around", "before", "after")
HOW: Final = ("inner", "left")


def join(
    left: DataFrame,
    right: DataFrame,
    on: Sequence[str] = (),
    within: Duration = "10 minutes",
    side: str = "around",
    where: str | None = None,
    how: str = "inner",
    prefix: str = "right_",
    watermark: Duration | None = None,
) -> DataFrame:
    """Pair events with equal attributes `on` that are at most `within` apart.

    With side="before" the right one is not after the left one, with "after" not before it. `where`
    is a condition in SQL that sees both as `left` and `right`. With how="left", a left event
    without a partner appears alone, as soon as none can come any more.

    The result has the left event as it is, with its id and time, and the attributes of the right
    one; those that clash get the prefix, and so do the right one's id and time, as attributes.

        join(trades, news, on=["symbol"], within="10 minutes", side="before",
             where="right.urgency > 3")

    A stream without a watermark gets one, by default as long as `within`.
    """
    if side not in SIDES:
        raise PipelineDefinitionError(f"side is one of {', '.join(SIDES)}, not {side!r}")
    if how not in HOW:
        raise PipelineDefinitionError(f"how is one of {', '.join(HOW)}, not {how!r}")
    if is_reserved(prefix):
        raise PipelineDefinitionError(f"{prefix!r} would make names that are reserved")
    distance = F.expr(f"INTERVAL {interval(within)}")
    for table in (left, right):
        require(table, "_time", *on)
    delay = within if watermark is None else watermark
    one = _bounded(left, delay).alias("left")
    other = _bounded(right, delay).alias("right")
    mine, theirs = _of("left", "_time"), _of("right", "_time")
    condition = F.lit(True)
    for name in on:
        condition &= _of("left", name) == _of("right", name)
    earliest = mine if side == "after" else mine - distance
    latest = mine if side == "before" else mine + distance
    condition &= (theirs >= earliest) & (theirs <= latest)
    if where is not None:
        condition &= F.expr(where)
    return one.join(other, condition, how).select(*_columns(left, other, on, prefix))


def _bounded(events: DataFrame, delay: Duration) -> DataFrame:
    return with_watermark(events, delay) if events.isStreaming else events


def _of(side: str, name: str) -> Column:
    return F.col(f"{side}.{quoted(name)}")


def _columns(left: DataFrame, right: DataFrame, on: Sequence[str], prefix: str) -> list[Column]:
    taken = set(attributes(left))
    added = {name: name for name in attributes(right) if name not in on}
    added = {name: prefix + name if name in taken else name for name in added}
    added["_time"] = f"{prefix}time"
    if "_id" in right.columns:
        added["_id"] = f"{prefix}id"
    names = [*taken, *added.values()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PipelineError(f"there would be two columns {twice[0]!r}; choose another prefix")
    return [
        *(_of("left", name) for name in attributes(left)),
        # The pair has one watermark, which is that of the left event.
        *(
            unmarked(_of("right", name), alias, right.schema[name].metadata)
            for name, alias in added.items()
        ),
        *(_of("left", name) for name in left.columns if is_reserved(name)),
    ]
