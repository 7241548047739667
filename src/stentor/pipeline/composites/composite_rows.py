"""Composite events as rows: which columns they have, and how the rows are made.

A row is the notification that `CompositeEvent.notification` makes, as an event table has it, so it
can be published, archived or looked at by another pattern. Its columns follow from the patterns and
from the columns of their events:

    host                 what the patterns are parted by
    A, B                 structs: the attributes of the last event of that name, and how many of
                         that name there are (`count`)
    composite            struct: start, end, events (how many) and pattern (its name)
    _id, _type, _time    as of every event; `_time` is the end of the interval
    _payload, ...        the events themselves, as a composite event carries them
    _events              the same for Spark: an array of structs, `names` and `event`. Where an
                         event is composite itself, there are those that it was made of, as `X.A`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import types as T

from stentor.composite import CompositeEvent, Pattern
from stentor.composite.events import TYPE, named_events
from stentor.errors import PipelineError
from stentor.model import Notification, encode
from stentor.pipeline.columns import RESERVED, BatchMaker, with_reserved
from stentor.pipeline.spark_features import to_arrow_type_in_utc
from stentor.pipeline.steps.events import find
from stentor.pipeline.steps.names import is_reserved

_COMPOSITE: Final = T.StructType(
    [
        T.StructField("start", T.TimestampType()),
        T.StructField("end", T.TimestampType()),
        T.StructField("events", T.LongType()),
        T.StructField("pattern", T.StringType()),
    ]
)
_HEADERS: Final = ("_id", "_type", "_time")
_KEPT: Final = (*_HEADERS, "_content_type", "_payload", "_corrupt")
EVENTS: Final = "_events"
_COUNT: Final = T.StructField("count", T.LongType())


def composite_schema(patterns: Sequence[Pattern], source: T.StructType) -> T.StructType:
    """The columns of composite events of these patterns over a table with these columns."""
    attributes = T.StructType([f for f in source.fields if not is_reserved(f.name)])
    plain = [f for f in with_reserved(attributes).fields if not is_reserved(f.name)]
    found: dict[str, T.StructField] = {}
    for pattern in patterns:
        for field in _attributes(pattern, source, plain):
            other = found.setdefault(field.name, field)
            if other != field:
                found[field.name] = T.StructField(field.name, _both(other, field))
    reserved = [T.StructField(name, RESERVED[name]) for name in _KEPT]
    composite = T.StructField(TYPE, _COMPOSITE)
    fields = [*found.values(), composite, *reserved, T.StructField(EVENTS, _events_type(plain))]
    _check_case([field.name for field in fields])
    return T.StructType(fields)


def _attributes(
    pattern: Pattern, source: T.StructType, plain: list[T.StructField]
) -> Iterator[T.StructField]:
    """The columns by which a pattern is parted, and one for each name."""
    taken = {TYPE}
    for name in pattern.partition:
        if not is_reserved(name):
            head = name.partition(".")[0]
            if head not in taken:
                taken.add(head)
                whole = name if name in source.fieldNames() else head
                yield T.StructField(whole, find(source, whole)[1])
    for name, meaning in pattern.events.items():
        if name in taken:
            continue
        own = list(_attributes(meaning, source, plain)) if isinstance(meaning, Pattern) else plain
        known = {field.name for field in own}
        yield T.StructField(name, T.StructType([*own, *([] if "count" in known else [_COUNT])]))


def _both(one: T.StructField, other: T.StructField) -> T.DataType:
    """One column for what two patterns have under one name."""
    if isinstance(one.dataType, T.StructType) and isinstance(other.dataType, T.StructType):
        fields = {field.name: field for field in one.dataType.fields}
        for field in other.dataType.fields:
            known = fields.setdefault(field.name, field)
            if known != field:
                fields[field.name] = T.StructField(field.name, _both(known, field))
        return T.StructType(list(fields.values()))
    if one.dataType != other.dataType:
        raise PipelineError(
            f"{one.name!r} is a name of events in one of the patterns and an attribute in another; "
            "rename one of them, or detect them apart"
        )
    return one.dataType


def _events_type(plain: list[T.StructField]) -> T.ArrayType:
    headers = [T.StructField(name, RESERVED[name]) for name in _HEADERS]
    event = T.StructType([*plain, *headers])
    return T.ArrayType(
        T.StructType(
            [T.StructField("names", T.ArrayType(T.StringType())), T.StructField("event", event)]
        )
    )


def _check_case(names: Iterable[str]) -> None:
    """Spark does not tell names apart that differ in case only."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise PipelineError(
                f"{other!r} and {name!r} would both be columns of the result, and Spark does not "
                "tell them apart; give the events of the pattern other names"
            )


class CompositeRows:
    """Makes record batches of composite events."""

    def __init__(self, schema: T.StructType) -> None:
        self._maker = BatchMaker(T.StructType(schema.fields[:-1]))
        kind = schema.fields[-1].dataType
        assert isinstance(kind, T.ArrayType)
        assert isinstance(kind.elementType, T.StructType)
        event = kind.elementType["event"].dataType
        assert isinstance(event, T.StructType)
        self._events = BatchMaker(event)
        self._kind: pa.DataType = to_arrow_type_in_utc(kind)
        self.arrow: pa.Schema = self._maker.layout.arrow.append(pa.field(EVENTS, self._kind))

    def batch(self, found: Sequence[CompositeEvent]) -> pa.RecordBatch:
        made = self._maker.batch(
            [encode(each.notification()) for each in found], [0] * len(found), stream="", broker=""
        )
        ends, names, events = [0], [], []
        for each in found:
            for part in each.events:
                for path, event in _below(list(part.names), part.event):
                    names.append(path)
                    events.append(encode(event))
            ends.append(len(events))
        inner = self._events.batch(events, [0] * len(events), stream="", broker="")
        values = pa.StructArray.from_arrays(
            [
                pa.array(names, self._kind.value_type.field("names").type),
                inner.to_struct_array().cast(self._kind.value_type.field("event").type),
            ],
            fields=list(self._kind.value_type),
        )
        column = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=self._kind)
        return pa.RecordBatch.from_arrays([*made.columns, column], schema=self.arrow)


def _below(names: list[str], event: Notification) -> Iterator[tuple[list[str], Notification]]:
    """The primitive events in an event, each with the names under which it counts."""
    inner = named_events(event)
    if not inner:
        yield names, event
    for own, each in inner:
        yield from _below([f"{outer}.{name}" for outer in names for name in own], each)
