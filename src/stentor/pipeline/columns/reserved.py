"""The columns of an event table that are not attributes: what each holds, and its Spark type."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    "_deliver_at": TimestampType(),  # before that it was delivered to nobody
    "_expires": TimestampType(),  # and from then on
    "_priority": LongType(),  # from 0 to 9; null for the usual one, 4
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


def completed(columns: str) -> str:
    """The same for columns that are written as DDL, where nobody is there who parses it.

    >>> completed("price long, `_id` string")
    'price long, `_id` string, _type string, _time timestamp, _broker string, _offset bigint, \
_corrupt string'
    """
    named = {_name(part) for part in _parts(columns)}
    added = [
        f"{name} {kind.simpleString()}" for name, kind in STANDARD.items() if name not in named
    ]
    return ", ".join([columns] * bool(named) + added)


#: A comma that separates columns, or something in which a comma would not.
_TOKEN: Final = re.compile(
    r"""`(?:[^`]|``)*` | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | [<(] | [>)] | ,""", re.X | re.S
)
_NAME: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^\s:]+))")


def _parts(columns: str) -> Iterator[str]:
    """What stands between the commas that separate columns."""
    depth = begin = 0
    for found in _TOKEN.finditer(columns):
        token = found[0]
        depth += (token in "<(") - (token in ">)")
        if token == "," and not depth:
            yield columns[begin : found.start()]
            begin = found.end()
    if columns[begin:].strip():
        yield columns[begin:]


def _name(part: str) -> str:
    found = _NAME.match(part)
    if found is None:
        return ""
    return found[2] if found[1] is None else found[1].replace("``", "`")


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
