"""What steps know of event tables: attributes and reserved columns, order, and watermarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, DoubleType, FloatType, StructType, TimestampType

from stentor.errors import PipelineError
from stentor.notation.document import near
from stentor.pipeline.filters.sql import quoted
from stentor.pipeline.steps.durations import Duration, interval, microseconds
from stentor.pipeline.steps.names import is_reserved

#: Spark notes in a column's metadata that the column has a watermark, under this key.
WATERMARK: Final = "spark.watermarkDelayMs"

#: Rows that have lost their time or id are ordered before all others, as one producer.
_NO_NUMBER: Final = -1
FLOATS: Final = (DoubleType, FloatType)
_ID: Final = r"^(.*):(\d+):(\d+)$"


def column(name: str) -> Column:
    """The top-level column of exactly this name."""
    return F.col(quoted(name))


def attribute(schema: StructType, name: str) -> Column:
    """An attribute of an event table: `a.b` is a column of that name, or a field of `a`.

    `PipelineError` if there is none.
    """
    return find(schema, name)[0]


def present(schema: StructType, name: str) -> Column:
    """An attribute that is null where it is absent: NaN says absent, too."""
    value, kind = find(schema, name)
    return without_nan(value) if isinstance(kind, FLOATS) else value


def without_nan(number: Column) -> Column:
    """A floating-point number, or null for NaN."""
    return F.nullif(number, F.lit(float("nan")))


def find(schema: StructType, name: str) -> tuple[Column, DataType]:
    """An attribute and its type."""
    if name in schema.fieldNames():
        return column(name), schema[name].dataType
    head, *fields = name.split(".")
    if head not in schema.fieldNames():
        raise no_column(schema, name)
    value, kind = column(head), schema[head].dataType
    for field in fields:
        if not isinstance(kind, StructType) or field not in kind.fieldNames():
            raise no_column(schema, name)
        value, kind = value.getField(field), kind[field].dataType
    return value, kind


class NoColumn(PipelineError):
    """A table does not have this column, but the others."""

    name = ""
    known: Sequence[str] = ()


def no_column(schema: StructType, name: str) -> NoColumn:
    """What to say of a column that a table does not have."""
    known = schema.fieldNames()
    error = NoColumn(f"there is no column {name!r}{near(name, known)} known: {', '.join(known)}")
    error.name, error.known = name, known
    return error


def attributes(events: DataFrame) -> list[str]:
    """The columns that are attributes."""
    return [name for name in events.columns if not is_reserved(name)]


def require(events: DataFrame, *names: str) -> None:
    """`PipelineError` unless the table has these columns."""
    for name in names:
        if name in events.columns:
            continue
        if is_reserved(name):
            raise PipelineError(
                f"this is not an event table: it has no column {name}, only "
                f"{', '.join(events.columns)}"
            )
        raise no_column(events.schema, name)


# -- order


def producer(id: Column) -> Column:
    """Who published it. The name may itself hold colons."""
    return F.coalesce(F.nullif(F.regexp_extract(id, _ID, 1), F.lit("")), F.lit(""))


def epoch(id: Column) -> Column:
    """In which life of the producer."""
    return F.coalesce(F.regexp_extract(id, _ID, 2).try_cast("long"), F.lit(_NO_NUMBER))


def sequence(id: Column) -> Column:
    """As which one in that life."""
    return F.coalesce(F.regexp_extract(id, _ID, 3).try_cast("long"), F.lit(_NO_NUMBER))


def moment(events: DataFrame) -> Column:
    """A value that orders events in time, ties by id, the same in every run and every session."""
    parts: list[Column] = []
    if "_time" in events.columns:
        parts.append(column("_time"))
    if "_id" in events.columns:
        id = column("_id")
        parts += [producer(id), epoch(id), sequence(id)]
    if not parts:
        require(events, "_time")
    return F.struct(*parts)


# -- watermarks


def has_watermark(events: DataFrame, name: str = "_time") -> bool:
    """Whether the column has a watermark already: Spark allows no second one.

    It is dropped from a column that is computed anew.
    """
    return WATERMARK in events.schema[name].metadata


def watermark(events: DataFrame, delay: Duration = "1 minute") -> DataFrame:
    """Say how late events may come: one whose `_time` is that far behind the newest is too late.

    Steps that keep state forget it when the watermark has passed. For a batch it means nothing. A
    table that has a watermark keeps the one it has.

        bars = collapse(watermark(quotes, "10 seconds"), key=["symbol"], window="1 minute", ...)
    """
    require(events, "_time")
    text = interval(delay)
    if not isinstance(events.schema["_time"].dataType, TimestampType):
        kind = events.schema["_time"].dataType.simpleString()
        raise PipelineError(f"_time is a {kind}; a watermark needs a timestamp")
    return events if has_watermark(events) else events.withWatermark("_time", text)


def unmarked(value: Column, name: str, metadata: Mapping[str, Any]) -> Column:
    """A column that has this metadata, under a name, and without the mark of a watermark.

    Most of Spark's stateful operators refuse a table in which two columns bear it.
    """
    if WATERMARK not in metadata:
        return value.alias(name)
    left = {key: what for key, what in metadata.items() if key != WATERMARK}
    # PySpark takes an empty mapping for none at all, and would leave the mark where it is.
    return value.alias(name, metadata=left or {"stentor.watermark": "taken off"})


def remembering(events: DataFrame, within: Duration) -> DataFrame:
    """A stream with a watermark of at least that length, for a step that needs it so long."""
    if has_watermark(events):
        delay = int(events.schema["_time"].metadata[WATERMARK])
        if delay * 1_000 < microseconds(within):
            raise PipelineError(
                f"the events have a watermark of {delay / 1_000:g} seconds already, and this step "
                f"needs one of {interval(within)}; give a longer one, or put this step first"
            )
        return events
    return watermark(events, within)
