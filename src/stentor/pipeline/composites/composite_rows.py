"""Composite events as rows: which columns they have, and how the rows are made.

A row is the notification that `CompositeEvent.notification` makes, as an event table has it, so it
can be published, archived or looked at by another pattern. Its columns follow from the patterns and
from the columns of their events:

    host                 what the patterns are parted by
    A, B                 structs: the attributes of the last event of that name, and how many of
                         that name there are (`count`)
    composite            struct: start, end, events (how many) and pattern (its name); `producer`
                         and the like as well, where patterns are parted by what is no attribute
    _id, _type, _time    as of every event; `_time` is the end of the interval
    _payload, ...        the events themselves, as a composite event carries them
    _events              the same for Spark: an array of structs, `names` and `event`. Where an
                         event is composite itself, there are those that it was made of, as `X.A`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from stentor.composite import CompositeEvent, Pattern
from stentor.composite.events import CONTENT_TYPE, TYPE, packed, packed_events, shown_as
from stentor.errors import PipelineError
from stentor.model import Notification, decode
from stentor.model.codec import encode_batch
from stentor.pipeline.columns import RESERVED, BatchMaker, with_reserved
from stentor.pipeline.spark_features import to_arrow_schema_in_utc
from stentor.pipeline.steps.events import find
from stentor.pipeline.steps.names import is_reserved

#: What composite events have themselves, and what those of a pattern have in common.
_OWN: Final = [
    T.StructField("start", T.TimestampType()),
    T.StructField("end", T.TimestampType()),
    T.StructField("events", T.LongType()),
]
_SAID: Final = [T.StructField("pattern", T.StringType())]
_HEADERS: Final = ("_id", "_type", "_time")
_KEPT: Final = (*_HEADERS, "_content_type", "_payload", "_corrupt")
EVENTS: Final = "_events"
_COUNT: Final = T.StructField("count", T.LongType())


def composite_schema(patterns: Sequence[Pattern], source: T.StructType) -> T.StructType:
    """The columns of composite events of these patterns over a table with these columns."""
    plain = _plain(source)
    found: dict[str, T.StructField] = {}
    for pattern in patterns:
        for field in _attributes(pattern, source, plain):
            other = found.setdefault(field.name, field)
            if other != field:
                found[field.name] = T.StructField(field.name, _both(other, field))
    reserved = [T.StructField(name, RESERVED[name]) for name in _KEPT]
    headers = sorted({name for each in patterns for name in each.partition if is_reserved(name)})
    parting = [T.StructField(name[1:], RESERVED.get(name, T.StringType())) for name in headers]
    composite = T.StructField(TYPE, T.StructType([*_OWN, *_SAID, *parting]))
    fields = [*found.values(), composite, *reserved, T.StructField(EVENTS, _events_type(plain))]
    _check_case([field.name for field in fields])
    return T.StructType(fields)


def _plain(source: T.StructType) -> list[T.StructField]:
    """The attributes of events."""
    attributes = T.StructType([f for f in source.fields if not is_reserved(f.name)])
    return [f for f in with_reserved(attributes).fields if not is_reserved(f.name)]


def _attributes(
    pattern: Pattern, source: T.StructType, plain: list[T.StructField]
) -> Iterator[T.StructField]:
    """The columns by which a pattern is parted, and one for each name."""
    taken = {TYPE}
    for whole in _parting(pattern, source):
        taken.add(whole.partition(".")[0])
        yield T.StructField(whole, find(source, whole)[1])
    told = [field for field in plain if field.name.partition(".")[0] != TYPE]
    for name, meaning in pattern.events.items():
        if name in taken:
            continue
        own = list(_attributes(meaning, source, plain)) if isinstance(meaning, Pattern) else told
        known = {field.name for field in own}
        yield T.StructField(name, T.StructType([*own, *([] if "count" in known else [_COUNT])]))


def _parting(pattern: Pattern, source: T.StructType) -> Iterator[str]:
    """The columns by which a pattern is parted."""
    taken = {TYPE}
    for name in pattern.partition:
        head = name.partition(".")[0]
        if not is_reserved(name) and head not in taken:
            taken.add(head)
            yield name if name in source.fieldNames() else head


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
    """Makes record batches of composite events, column by column.

    Each event is encoded once, and made a row once. The columns of a name are taken from the rows
    of its events; what is the same for all composite events of a partition is made once for it.
    """

    def __init__(
        self, patterns: Sequence[Pattern], source: T.StructType, schema: T.StructType
    ) -> None:
        """`schema` is that of `composite_schema`."""
        self.arrow: pa.Schema = to_arrow_schema_in_utc(schema)
        kind = schema[EVENTS].dataType
        assert isinstance(kind, T.ArrayType)
        assert isinstance(kind.elementType, T.StructType)
        event = kind.elementType["event"].dataType
        composite = schema[TYPE].dataType
        assert isinstance(event, T.StructType)
        assert isinstance(composite, T.StructType)
        self._events = BatchMaker(event)
        parting = {name for pattern in patterns for name in _parting(pattern, source)}
        said = T.StructType(composite.fields[len(_OWN) :])
        heads = [field for field in schema.fields if field.name in parting]
        self._heads = BatchMaker(T.StructType([*heads, T.StructField(TYPE, said)]))
        self._names = {
            name: _Named(self.arrow.field(name).type, schema[name].dataType, event)
            for name in schema.fieldNames()
            if name not in parting and name != TYPE and not is_reserved(name)
        }

    def batch(self, found: Sequence[CompositeEvent]) -> pa.RecordBatch:
        encoded = encode_batch([each.event for one in found for each in one.events])
        rows = self._events.batch(encoded, [0] * len(encoded), stream="", broker="")
        for named in self._names.values():
            named.begin(len(found))
        ends = [0]
        payloads = []
        for row, one in enumerate(found):
            place = ends[-1]
            for names, _ in one.events:
                for name in names:
                    if name in self._names:
                        self._names[name].take(row, place)
                place += 1
            payloads.append(packed(one.events, encoded[ends[-1] : place]))
            ends.append(place)
        columns = self._heads_of(found)
        columns |= {name: named.column(encoded, rows) for name, named in self._names.items()}
        columns["_id"] = pa.array([str(one.id) for one in found], pa.string())
        columns["_type"] = pa.array([one.pattern.type for one in found], pa.string())
        columns["_time"] = _times([one.interval.high for one in found])
        columns["_content_type"] = pa.repeat(CONTENT_TYPE, len(found))
        columns["_payload"] = pa.array(payloads, pa.binary())
        columns["_corrupt"] = pa.nulls(len(found), pa.string())
        columns[EVENTS] = self._leaves(found, encoded, rows, ends)
        arrays = [columns[name] for name in self.arrow.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _heads_of(self, found: Sequence[CompositeEvent]) -> dict[str, pa.Array]:
        """By what the patterns are parted, and what they say of themselves."""
        numbers: dict[Any, int] = {}
        heads: list[Notification] = []
        places = []
        for one in found:
            known = one.pattern.type, one.key
            place = numbers.setdefault(known, len(heads))
            places.append(place)
            if place == len(heads):
                said = dict(zip(map(shown_as, one.pattern.partition), one.key, strict=True))
                heads.append(Notification(said | {f"{TYPE}.pattern": one.pattern.label}))
        made = self._heads.batch(encode_batch(heads), [0] * len(heads), stream="", broker="")
        made = made.take(pa.array(places, pa.int64()))
        columns = dict(zip(made.schema.names, made.columns, strict=True))
        own = [
            _times([one.interval.low for one in found]),
            _times([one.interval.high for one in found]),
            pa.array([len(one.events) for one in found], pa.int64()),
        ]
        kind = self.arrow.field(TYPE).type
        columns[TYPE] = pa.StructArray.from_arrays(
            [*own, *columns[TYPE].flatten()], fields=list(kind)
        )
        return columns

    def _leaves(
        self,
        found: Sequence[CompositeEvent],
        encoded: list[bytes],
        rows: pa.RecordBatch,
        ends: list[int],
    ) -> pa.Array:
        """The primitive events of each, with the names under which they count."""
        names = [each.names for one in found for each in one.events]
        if any(_MARK in data for data in encoded):
            places, leaves = ends, list(zip(names, encoded, strict=True))
            ends, names, encoded = [0], [], []
            for first, last in pairwise(places):
                for path, leaf in leaves[first:last]:
                    for below, data in _below(path, leaf):
                        names.append(below)
                        encoded.append(data)
                ends.append(len(encoded))
            rows = self._events.batch(encoded, [0] * len(encoded), stream="", broker="")
        kind = self.arrow.field(EVENTS).type
        fields = kind.value_type
        values = pa.StructArray.from_arrays(
            [
                pa.array(names, fields.field("names").type),
                rows.to_struct_array().cast(fields.field("event").type),
            ],
            fields=list(fields),
        )
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=kind)


class _Named:
    """The column of a name: the attributes of the last event that got it, and how many did."""

    def __init__(self, kind: pa.StructType, schema: T.DataType, event: T.StructType) -> None:
        assert isinstance(schema, T.StructType)
        self._kind = kind
        own = [field for field in schema.fields if field != _COUNT or field in event.fields]
        #: What makes its rows of its events; none if they are in the rows of all events.
        self._maker: BatchMaker | None = None
        if not all(field in event.fields for field in own):
            self._maker = BatchMaker(T.StructType(own))
        self._own = {field.name for field in own}
        self._places: list[int | None] = []
        self._counts: list[int] = []

    def begin(self, rows: int) -> None:
        self._places = [None] * rows
        self._counts = [0] * rows

    def take(self, row: int, place: int) -> None:
        """An event of a row has the name."""
        self._places[row] = place
        self._counts[row] += 1

    def column(self, encoded: list[bytes], rows: pa.RecordBatch) -> pa.Array:
        """The events, encoded and as rows."""
        places = pa.array(self._places, pa.int64())
        if self._maker is not None:
            given = [encoded[place] for place in self._places if place is not None]
            rows = self._maker.batch(given, [0] * len(given), stream="", broker="")
            numbers = count()
            places = pa.array([None if p is None else next(numbers) for p in self._places])
            places = places.cast(pa.int64())
        counts = pa.array(self._counts, pa.int64())
        columns = []
        for field in self._kind:
            if field.name not in self._own:
                columns.append(counts)
                continue
            taken = rows.column(field.name).take(places)
            # An event that has an attribute `count` keeps it.
            is_count = field.name == _COUNT.name and field.type == pa.int64()
            columns.append(pc.coalesce(taken, counts) if is_count else taken)
        return pa.StructArray.from_arrays(columns, fields=list(self._kind), mask=places.is_null())


def _times(micros: list[int]) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))


#: What the encoding of a composite event holds.
_MARK: Final = CONTENT_TYPE.encode()


def _below(names: tuple[str, ...], data: bytes) -> Iterator[tuple[tuple[str, ...], bytes]]:
    inner = packed_events(decode(data))
    if not inner:
        yield names, data
    for own, each in inner:
        yield from _below(tuple(f"{outer}.{name}" for outer in names for name in own), each)
