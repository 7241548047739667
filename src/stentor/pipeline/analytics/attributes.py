"""Which attributes are asked for, with which constants, and which ones events carry.

An attribute that many filters pin to a value is a good one to place brokers or shards by; one
that events carry and nobody asks for could be moved to the payload; one that is asked for and
never carried is a mistake in somebody's filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stentor.errors import PipelineDefinitionError, StentorError, UnsupportedColumn
from stentor.filters import Filter
from stentor.filters.expression import And, Atom, Expression, Not, Or
from stentor.filters.language.printer import format_literal
from stentor.model.names import RESERVED
from stentor.pipeline.analytics.filters import arrow_rows, distinct_filters
from stentor.pipeline.filters.attributes import places
from stentor.pipeline.filters.sql import Sql, literal_sql, quoted
from stentor.pipeline.matching.vocabulary import Vocabulary

_ASKED: Final = "attribute string, operator string, constant string, subscriptions bigint"


def hot_attributes(
    subscriptions: DataFrame | None = None,
    events: DataFrame | None = None,
    *,
    filter: str = "filter",
) -> DataFrame:
    """What is asked for and what there is, attribute by attribute; the most wanted first.

        hot_attributes(subscriptions, events).where("subscriptions = 0").show()   # nobody asks

    Of subscriptions: subscriptions, filters (distinct ones), asked (share of subscriptions), pinned
    (subscriptions that list the values they want). Of events: events (that carry it), carried
    (share of events), absent (share of those that do not), distinct_values (an estimate, within
    about 5 %). Without one of the two its columns are left out. Reserved names such as _type are
    listed if a subscription asks for them. Of no events every share is unknown.
    """
    if subscriptions is None and events is None:
        raise PipelineDefinitionError("give subscriptions, events, or both")
    found: DataFrame | None = None
    if subscriptions is not None:
        found = _asked_for(distinct_filters(subscriptions, filter=filter))
    if events is not None:
        found = _carried(events) if found is None else _both(found, events)
    assert found is not None
    order = [F.desc(n) for n in ("subscriptions", "events") if n in found.columns]
    return found.orderBy(*order, "attribute")


def _both(asked: DataFrame, events: DataFrame) -> DataFrame:
    """What is asked for, and what events carry, or would have to."""
    total = events.agg(F.count("*").alias("total"))
    joined = asked.join(_carried(events, reserved=True), "attribute", "full")
    wanted = F.col("subscriptions").isNotNull() | ~F.startswith("attribute", F.lit("_"))
    found = joined.where(wanted).crossJoin(F.broadcast(total))
    # What is asked for and nowhere to be found is absent from all events, if there are any.
    missing = {"carried": F.try_divide(F.lit(0), "total"), "absent": F.try_divide("total", "total")}
    for name, share in missing.items():
        found = found.withColumn(
            name, F.when(F.col("events").isNull(), share).otherwise(F.col(name))
        )
    return found.drop("total").na.fill(0, ["subscriptions", "filters", "asked", "pinned", "events"])


def hot_constants(subscriptions: DataFrame, *, filter: str = "filter") -> DataFrame:
    """Which constants are asked for, the most wanted first.

    Columns: attribute, operator (`=` for each value of a list, too), constant as the language
    writes it, subscriptions, filters.
    """
    return (
        _asked(distinct_filters(subscriptions, filter=filter))
        .where("constant is not null")
        .groupBy("attribute", "operator", "constant")
        .agg(F.sum("subscriptions").alias("subscriptions"), F.count("*").alias("filters"))
        .orderBy(F.desc("subscriptions"), "attribute", "operator", "constant")
    )


# -- subscriptions


def _asked_for(filters: DataFrame) -> DataFrame:
    good = filters.where("problem is null")
    total = good.agg(F.sum("subscriptions").alias("total"))
    return (
        _asked(good)
        .where("constant is null")
        .groupBy("attribute")
        .agg(
            F.sum("subscriptions").alias("subscriptions"),
            F.count("*").alias("filters"),
            F.coalesce(F.sum(F.when(F.col("operator") == "=", F.col("subscriptions"))), F.lit(0))
            .cast("bigint")
            .alias("pinned"),
        )
        .crossJoin(F.broadcast(total))
        .select(
            *("attribute", "subscriptions", "filters"),
            (F.col("subscriptions") / F.col("total")).alias("asked"),
            "pinned",
        )
    )


def _asked(filters: DataFrame) -> DataFrame:
    """For each filter and attribute a row without a constant, and one for each constant."""
    good = filters.where("problem is null").select("filter", "subscriptions")
    function = partial(_terms, vocabulary=Vocabulary.of_this_process())
    return good.mapInArrow(function, _ASKED)


def _terms(
    batches: Iterable[pa.RecordBatch], *, vocabulary: Vocabulary
) -> Iterator[pa.RecordBatch]:
    vocabulary.install()
    for batch in batches:
        rows: list[tuple[str, str | None, str | None, int]] = []
        for text, count in zip(
            batch.column("filter").to_pylist(),
            batch.column("subscriptions").to_pylist(),
            strict=True,
        ):
            filter = Filter(text)
            asked = {term: None for atom in _atoms(filter.expression) for term in _said(atom)}
            # Pinned: in each conjunct, the values that are wanted are listed.
            pinned = _pinned(filter)
            rows += [(name, "=" if name in pinned else None, None, count) for name in filter.names]
            rows += [(*term, count) for term in asked]
        yield arrow_rows(rows, _ASKED)


def _atoms(expression: Expression) -> Iterator[Atom]:
    match expression:
        case Atom():
            yield expression
        case And(parts) | Or(parts):
            for part in parts:
                yield from _atoms(part)
        case Not(part):
            yield from _atoms(part)


def _said(atom: Atom) -> Iterator[tuple[str, str, str]]:
    """The constants of an atom, each with what is asked of it."""
    operator = {"in": "=", "not in": "!="}.get(atom.operator, atom.operator)
    for constant in atom.constants:
        yield atom.name, operator, _written(constant)


def _written(constant: Any) -> str:
    try:
        return format_literal(constant)
    except StentorError:  # a constant of an operator that has no literal, such as a pattern
        return str(constant)


def _pinned(filter: Filter) -> set[str]:
    """The attributes of which every conjunct lists the values it accepts."""
    found: set[str] | None = None
    for conjunct in filter.conjuncts:
        listed = {
            name
            for name, constraint in conjunct.constraints.items()
            if not constraint.rest
            and not constraint.absent
            and all(getattr(part, "values", None) is not None for _, part in constraint.parts)
        }
        found = listed if found is None else found & listed
    return found or set()


# -- events


def _carried(events: DataFrame, *, reserved: bool = False) -> DataFrame:
    """One row for each attribute that events have a column for."""
    leaves = dict(_leaves(events.schema))
    if reserved:
        leaves.update(_reserved(events.schema))
    rows = [
        F.struct(
            F.lit(name).alias("attribute"),
            F.count_if(present).alias("events"),
            F.try_divide(F.count_if(present), F.count("*")).alias("carried"),
            (1 - F.try_divide(F.count_if(present), F.count("*"))).alias("absent"),
            (F.approx_count_distinct(F.when(present, column)) if countable else F.lit(None))
            .cast("bigint")
            .alias("distinct_values"),
        )
        for name, (column, present, countable) in leaves.items()
    ]
    if not rows:
        raise PipelineDefinitionError("the events have no columns that are attributes")
    return events.agg(F.array(*rows).alias("rows")).select(F.inline("rows"))


def _leaves(schema: T.StructType) -> Iterator[tuple[str, tuple[Column, Column, bool]]]:
    """Attributes by dotted names: their column, whether a value is there, and what is countable."""

    def inside(struct: T.StructType, prefix: str, above: str) -> Iterator[tuple[str, Any]]:
        for field in struct.fields:
            name, sql = prefix + field.name, above + quoted(field.name)
            if isinstance(field.dataType, T.StructType):
                yield from inside(field.dataType, name + ".", sql + ".")
            elif not isinstance(field.dataType, T.NullType | T.MapType):
                column = F.expr(sql)
                yield name, (column, _present(column, field.dataType), _countable(field.dataType))

    for field in schema.fields:
        if not field.name.startswith("_"):
            yield from inside(T.StructType([field]), "", "")


def _reserved(schema: T.StructType) -> Iterator[tuple[str, tuple[Column, Column, bool]]]:
    """The same of what filters see under reserved names, where it is a single column."""
    for name in RESERVED:
        try:
            found = places(schema, name)
        except UnsupportedColumn:
            continue
        if len(found) == 1 and found[0].kind is not None:
            yield name, (F.expr(found[0].sql), _condition(found[0].present), True)


def _condition(sql: Sql) -> Column:
    return F.expr(sql if isinstance(sql, str) else literal_sql(sql, "boolean"))


def _present(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.DoubleType | T.FloatType):
        return column.isNotNull() & ~F.isnan(column)
    return column.isNotNull()


def _countable(kind: T.DataType) -> bool:
    return not isinstance(kind, T.ArrayType) or _countable(kind.elementType)
