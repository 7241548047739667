"""Collapse: a history becomes a state, by a rule.

An information space is either a *history*, everything that happened in order, or a *state*, what
can be said by now. A rule takes the one to the other: the latest price of each symbol, the volume
of each minute. As a stream, a state is told as updates: whenever events have changed the state of a
key, its new row. With a window and a watermark a row can also be told once, when it is final; which
of the two it is, Spark calls the output mode of the query, `update` or `append`.

The result does not depend on the order in which events arrive. What was last is decided by `_time`,
and between equal times by the id, never by arrival. An event that lacks an attribute of the key
belongs to no state.

A state has the columns of the key and the rule and `_time`: the time of the latest event, or, with
windows, the last instant of the window. The latter still has the watermark, so that a state can be
collapsed further, minutes into hours.

Of a stream it is observed how many events belong to which window, so that those that come too late
can be counted (see `stentor.pipeline.runs.lateness`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from stentor.errors import PipelineError
from stentor.pipeline.steps.durations import Duration, microseconds
from stentor.pipeline.steps.events import (
    FLOATS,
    attribute,
    column,
    find,
    has_watermark,
    moment,
    present,
    require,
    without_nan,
)
from stentor.pipeline.steps.events import watermark as with_watermark
from stentor.pipeline.steps.names import WINDOWS
from stentor.pipeline.steps.rules import WINDOW_COLUMNS, Aggregate, Window, read_rule, read_window

_PLAIN: Final = {"min": F.min, "max": F.max, "sum": F.try_sum, "mean": F.try_avg, "count": F.count}
_ADDING: Final = frozenset({"sum", "mean"})
_WINDOW: Final = "__window"
#: Windows of one micro-batch that are told apart; with more, neighbors are counted together.
_MOST_WINDOWS: Final = 10_000
#: Names of observations have to differ within a query.
_numbers: Final = count(1)


def collapse(
    events: DataFrame,
    key: Sequence[str],
    rule: Mapping[str, str],
    window: Duration | None = None,
    watermark: Duration | None = None,
) -> DataFrame:
    """The state of each key, by a rule (see `stentor.pipeline.steps.rules`).

        collapse(quotes, ["symbol"], {"price": "last", "volume": "sum"})
        collapse(quotes, ["symbol"], {"open": "first price", "high": "max price",
                 "low": "min price", "close": "last price", "trades": "count"},
                 window="1 minute", watermark="10 seconds")

    On a stream, windows need a watermark, given here or before; else no window would ever end.
    """
    aggregates = read_rule(rule, key)
    cut = None if window is None else read_window(window)
    if watermark is not None:
        events = with_watermark(events, watermark)
    if cut is not None:
        require(events, "_time")
        if events.isStreaming and not has_watermark(events):
            raise PipelineError(
                "windows over a stream need a watermark, or none would ever end; "
                'say how late events may come: watermark="1 minute"'
            )
    schema = events.schema
    keys = [attribute(schema, name).alias(name) for name in key]
    kept = events
    for name in key:
        kept = kept.where(present(schema, name).isNotNull())
    if cut is not None and events.isStreaming and not cut.session:
        ends = F.histogram_numeric(_first_end(cut), F.lit(_MOST_WINDOWS))
        kept = kept.observe(f"{WINDOWS}{next(_numbers)}", ends.alias("ends"))
    groups = [*keys] if cut is None else [*keys, _cut(cut).alias(_WINDOW)]
    # With no group at all, Spark would make a state of no events.
    state = kept.groupBy(*(groups or [F.lit(0).alias(_WINDOW)])).agg(
        *(_aggregate(events, each).alias(each.output) for each in aggregates),
        *([F.max("_time").alias("_time")] if cut is None and "_time" in events.columns else []),
    )
    columns = [column(name) for name in (*key, *(each.output for each in aggregates))]
    if cut is not None:
        start, end = WINDOW_COLUMNS
        columns += [
            column(_WINDOW).getField("start").alias(start),
            column(_WINDOW).getField("end").alias(end),
            F.window_time(column(_WINDOW)).alias("_time"),
        ]
    elif "_time" in events.columns:
        columns.append(column("_time"))
    return state.select(*columns)


def _cut(window: Window) -> Column:
    if window.session:
        return F.session_window(column("_time"), window.length)
    return F.window(column("_time"), window.length, window.every)


def _first_end(window: Window) -> Column:
    """The end of the first window that an event belongs to, in microseconds since 1970."""
    length = microseconds(window.length)
    step = microseconds(window.every or window.length)
    before = F.unix_micros(column("_time")) - F.lit(length)
    return before - F.pmod(before, F.lit(step)) + F.lit(step + length)


def _aggregate(events: DataFrame, aggregate: Aggregate) -> Column:
    if aggregate.attribute is None:
        return F.count(F.lit(1))
    value = present(events.schema, aggregate.attribute)
    if aggregate.function in _PLAIN:
        result: Column = _PLAIN[aggregate.function](value)
        is_float = isinstance(find(events.schema, aggregate.attribute)[1], FLOATS)
        # Infinities may add up to NaN, which would read as absent.
        return without_nan(result) if is_float and aggregate.function in _ADDING else result
    # A null in the order leaves the row out.
    order = F.when(value.isNotNull(), moment(events))
    return (F.max_by if aggregate.function == "last" else F.min_by)(value, order)
