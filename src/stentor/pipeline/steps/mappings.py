"""Transform: from one schema to another, each event by itself.

These are the stateless mappings: what a mapping does to an event depends on nothing but the event,
and for `enrich` on a table that stands still. Reserved columns go along, so that the result is
again an event table and every event can be traced to its origin by `_id`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, DataType, StructType

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.pipeline.steps.events import attributes, column, require
from stentor.pipeline.steps.names import check_names, is_reserved


def transform(
    events: DataFrame, set: Mapping[str, str], keep: str | Sequence[str] = "all"
) -> DataFrame:
    """Compute attributes by expressions in SQL; all of them see the event as it was.

    `keep` says which of the old attributes stay: "all", "none" or a list of names.

        transform(trades, {"value": "price * volume", "_type": "'trade.valued'"}, keep=["symbol"])
    """
    check_names(set)
    kept = _kept(events, keep)
    computed = {name: F.expr(text).alias(name) for name, text in set.items()}
    order = [*kept, *(name for name in computed if name not in kept and not is_reserved(name))]
    order += [name for name in events.columns if is_reserved(name)]
    order += [name for name in computed if name not in order]
    return events.select(*(computed.get(name, column(name)) for name in order))


def _kept(events: DataFrame, keep: str | Sequence[str]) -> list[str]:
    if keep == "all":
        return attributes(events)
    if keep == "none":
        return []
    if isinstance(keep, str):
        raise PipelineDefinitionError(
            f'keep is "all", "none" or a list of attributes, not {keep!r}; '
            f"for one attribute write [{keep!r}]"
        )
    require(events, *keep)
    return [name for name in keep if not is_reserved(name)]


def rename(events: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Give attributes other names; swapping two is possible.

    rename(quotes, {"sym": "symbol", "px": "price"})
    """
    check_names(names.values())
    require(events, *names)
    result = [names.get(name, name) for name in events.columns]
    twice = sorted({name for name in result if result.count(name) > 1})
    if twice:
        raise PipelineError(f"after renaming there would be two columns {twice[0]!r}")
    return events.select(*(column(name).alias(names.get(name, name)) for name in events.columns))


def convert(events: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Give attributes other types. What cannot be converted becomes null, and goes to `_corrupt`.

    So does an array of which an element cannot be converted: it is converted as a whole, or not.

        convert(quotes, {"price": "decimal(12, 4)", "volume": "long"})
    """
    require(events, *types)
    check_names(types)
    converted = {name: column(name).try_cast(kind) for name, kind in types.items()}
    target = events.select(*(value.alias(name) for name, value in converted.items())).schema
    lost = {
        name: _lost(column(name), value, events.schema[name].dataType, target[name].dataType)
        for name, value in converted.items()
    }
    misfits = F.to_json(
        F.struct(*(F.when(lost[name], column(name)).alias(name) for name in converted))
    )
    for name, value in converted.items():
        if isinstance(target[name].dataType, ArrayType):
            converted[name] = F.when(~lost[name], value)
    result = events.select(
        *(converted.get(name, column(name)).alias(name) for name in events.columns),
        misfits.alias("__misfits"),
    )
    noted = F.nullif(column("__misfits"), F.lit("{}"))
    if "_corrupt" in events.columns:
        noted = _both(column("_corrupt"), noted)
    return result.withColumn("_corrupt", noted).drop("__misfits")


def _lost(before: Column, after: Column, old: DataType, new: DataType) -> Column:
    """Whether something of a value, or in it, has become null; never null itself."""
    lost = before.isNotNull() & after.isNull()
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        was, now = old.elementType, new.elementType
        elements = F.zip_with(before, after, lambda b, a: _lost(b, a, was, now))
        return lost | F.coalesce(F.exists(elements, lambda one: one), F.lit(False))
    if isinstance(old, StructType) and isinstance(new, StructType):
        for was, now in zip(old.fields, new.fields, strict=True):
            parts = before.getField(was.name), after.getField(now.name)
            lost |= _lost(*parts, was.dataType, now.dataType)
    return lost


def _both(one: Column, other: Column) -> Column:
    """Two JSON objects as one; either may be null."""
    inside = F.left(one, F.length(one) - 1)  # without the last brace, and only that
    merged = F.concat(inside, F.lit(","), F.substr(other, F.lit(2)))
    return F.coalesce(merged, one, other)


def enrich(
    events: DataFrame,
    table: DataFrame,
    on: Sequence[str],
    columns: Sequence[str] | None = None,
    prefix: str = "",
) -> DataFrame:
    """Add to each event what a table knows of it; an event of which it knows nothing stays as is.

    The table stands still while a query runs. If it has several rows for a key, the one that is
    greatest, column by column, is taken, so that every run takes the same.

        enrich(quotes, companies, on=["symbol"], columns=["sector", "country"])
    """
    if table.isStreaming:
        raise PipelineError("the table changes all the time; use join to pair events with events")
    require(events, *on)
    require(table, *on)
    added = [name for name in table.columns if name not in on] if columns is None else columns
    require(table, *added)
    names = {name: prefix + name for name in added}
    check_names(names.values())
    clash = sorted(set(names.values()) & set(events.columns))
    if clash:
        raise PipelineError(
            f"both the events and the table have {clash[0]!r}; choose other columns or a prefix"
        )
    known = table.groupBy(*(column(name).alias(f"__{name}") for name in on)).agg(
        F.max(F.struct(*(column(name) for name in added))).alias("__known")
    )
    same = [column(name) == column(f"__{name}") for name in on]
    joined = events.join(known, same, "left")
    return joined.select(
        *(column(name) for name in attributes(events)),
        *(column("__known").getField(name).alias(names[name]) for name in added),
        *(column(name) for name in events.columns if is_reserved(name)),
    )
