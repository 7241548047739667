"""Expand: a state becomes some history whose collapse is that state.

Many histories have the same state. Expansion finds a short one: `collapse` of it, by the same key,
rule and window, gives the state again, value by value. So a subscriber who wants events can be
served from a state, after the history itself is gone or was never sent.

How, for one key. Each attribute of the history is a short list of values, and event `i` has the
`i`-th of each list; where a list has ended, the attribute is absent, which no rule minds.

    first, last, min, max   the first; then the smallest and largest, unless they are the first or
                            last; then the last, unless one event can be both. A state that came of
                            a history of n events never needs more than n.
    count x                 as many values: copies of one that is in the list, behind the first
    sum                     the sum, then zeros if there is a count
    mean                    the mean, once
    count                   as many events

A sum or mean cannot be combined with the others on the same attribute: to find numbers that have a
given sum, least, greatest and count is possible in whole numbers, but not in rounded ones. Windows
that overlap or depend on gaps cannot be expanded, since an event in one would change the others.

What is expanded must be a state, not the updates of one: two updates of a sum are two histories,
which together have another sum. With rules made of `first`, `last`, `min` and `max` alone that does
not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from stentor.pipeline.steps.durations import Duration
from stentor.pipeline.steps.events import column, require
from stentor.pipeline.steps.rules import ORDERED, check_expansion, read_rule, read_window

_INDEX: Final = "__index"
_EVERY: Final = ("first", "last", "min", "max")


def expand(
    states: DataFrame, key: Sequence[str], rule: Mapping[str, str], window: Duration | None = None
) -> DataFrame:
    """A history whose collapse, by the same key, rule and window, is that state.

    latest = collapse(quotes, ["symbol"], {"price": "last"})
    collapse(expand(latest, ["symbol"], {"price": "last"}), ["symbol"], {"price": "last"})
    """
    aggregates = read_rule(rule, key)
    parts = check_expansion(aggregates, None if window is None else read_window(window))
    require(states, *key, *(each.output for each in aggregates))
    lists = [_List(states, attribute, outputs) for attribute, outputs in parts.items()]
    counted = [column(each.output) for each in aggregates if each.attribute is None]
    total = counted[0] if counted else F.greatest(F.lit(1), F.lit(1), *(x.length for x in lists))
    numbered = states.where(total > 0).withColumn(
        _INDEX, F.explode(F.sequence(F.lit(0), total.cast("int") - 1))
    )
    index = column(_INDEX)
    columns = [column(name) for name in key]
    columns += [each.value_at(index).alias(each.attribute) for each in lists]
    columns += _identity(states, key, window, index)
    return numbered.select(*columns)


def _identity(
    states: DataFrame, key: Sequence[str], window: Duration | None, index: Column
) -> list[Column]:
    """The id and time of an event: the same whenever the same state is expanded."""
    named = [column(name) for name in key]
    if window is not None:
        named.append(F.unix_micros(column("window_start")))
    producer = F.concat(F.lit("expand-"), F.md5(F.to_json(F.struct(F.lit(0), *named))))
    epoch: Column = F.lit(0)
    if "_time" in states.columns:
        epoch = F.coalesce(F.greatest(F.lit(0), F.unix_micros(column("_time"))), F.lit(0))
    id = F.concat_ws(":", producer, epoch.cast("string"), index.cast("string"))
    times = [column("_time")] if "_time" in states.columns else []
    return [id.alias("_id"), *times]


class _List:
    """The values of one attribute, in the order of the events.

    `values` are those that there must be, at most four; `pads` copies of `pad` come behind the
    first `fixed` of them.
    """

    def __init__(self, states: DataFrame, attribute: str, outputs: Mapping[str, str]) -> None:
        self.attribute = attribute
        given = {function: column(output) for function, output in outputs.items()}
        if ORDERED.issuperset(given):
            self._values = _ordered(given)
            # What is only counted may have any value; else it must be one of the right type.
            known = [given[name] for name in _EVERY if name in given]
            self._pad = F.coalesce(*(known or [F.lit(0)]))
            first = given.get("first")
        else:
            (name,) = {"sum", "mean"} & set(given)
            first = given[name]
            self._values = F.array_compact(F.array(first))
            self._pad = F.lit(0).cast(states.schema[outputs[name]].dataType)
        self._fixed = F.lit(0) if first is None else first.isNotNull().cast("int")
        self._pads: Column = F.lit(0)
        if "count" in given:
            self._pads = F.greatest(F.lit(0), given["count"].cast("int") - F.size(self._values))
        self.length = F.size(self._values) + self._pads

    def value_at(self, index: Column) -> Column:
        """The value of the event with this number, null if it has none."""
        beyond = F.get(self._values, F.greatest(F.lit(0), index - self._pads))
        return (
            F.when(index < self._fixed, F.get(self._values, index))
            .when(index < self._fixed + self._pads, self._pad)
            .otherwise(beyond)
        )


def _ordered(given: Mapping[str, Column]) -> Column:
    """First, largest, smallest, last: those that are given, none more often than needed."""
    ends = {name: given[name] for name in ("first", "last") if name in given}
    inner = [given[name] for name in ("max", "min") if name in given]
    parts: list[Column] = [F.array(end) for name, end in ends.items() if name == "first"]
    between: Column | None = None
    if inner:
        between = F.array_distinct(F.array(*inner))
        for end in ends.values():
            between = F.array_remove(between, end)
        parts.append(between)
    if "last" in ends:
        needed: Column = F.lit(True)
        if "first" in ends:
            needed = ~ends["last"].eqNullSafe(ends["first"])
            if between is not None:
                needed = needed | (F.size(between) > 0)
        parts.append(F.array(F.when(needed, ends["last"])))
    if not parts:
        return F.array().cast("array<bigint>")
    return F.array_compact(F.concat(*parts))
