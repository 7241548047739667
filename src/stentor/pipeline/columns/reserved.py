"""The columns of an event table that are not attributes: what each holds, and its Spark type."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

#: What every event table has, in this order, behind the attributes.
STANDARD: Final[dict[str, DataType]] = {
    "_id": StringType(),  # "producer:epoch:sequence"
    "_type": StringType(),  # the event type
    "_time": TimestampType(),  # when it was published
    "_broker": StringType(),  # the broker where it entered
    "_offset": LongType(),  # its offset in that broker's journal
    "_corrupt": StringType(),  # as JSON, the attributes that do not fit their columns
}

#: What it has if the schema names it.
ON_REQUEST: Final[dict[str, DataType]] = {
    "_stream": StringType(),  # the id of the journal
    "_subject": StringType(),
    "_channel": StringType(),
    "_payload": BinaryType(),
    "_content_type": StringType(),
}

RESERVED: Final[dict[str, DataType]] = STANDARD | ON_REQUEST


def with_reserved(schema: StructType) -> StructType:
    """The schema with the standard columns that it does not name itself, everything nullable.

    Any attribute may be absent from an event, so NOT NULL has no meaning here. Spark relaxes the
    schemas of its own sources in the same way.

    >>> with_reserved(StructType().add("price", LongType()).add("_id", StringType())).fieldNames()
    ['price', '_id', '_type', '_time', '_broker', '_offset', '_corrupt']
    """
    named = set(schema.fieldNames())
    relaxed = _nullable(schema)
    assert isinstance(relaxed, StructType)
    added = [StructField(name, kind) for name, kind in STANDARD.items() if name not in named]
    return StructType([*relaxed.fields, *added])


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType(
            [StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType), True)
    return kind
