"""The columns of an event table that are not attributes: what each holds, and its Spark type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pyspark.sql import types as T

#: What every event table has, in this order, behind the attributes.
STANDARD: Final[dict[str, T.DataType]] = {
    "_id": T.StringType(),  # "producer:epoch:sequence"
    "_type": T.StringType(),  # the event type
    "_time": T.TimestampType(),  # when it was published
    "_broker": T.StringType(),  # the broker where it entered
    "_offset": T.LongType(),  # its offset in that broker's journal
    "_corrupt": T.StringType(),  # as JSON, the attributes that do not fit their columns
}

#: What it has if the schema names it.
ON_REQUEST: Final[dict[str, T.DataType]] = {
    "_stream": T.StringType(),  # the id of the journal
    "_subject": T.StringType(),
    "_channel": T.StringType(),
    "_payload": T.BinaryType(),
    "_content_type": T.StringType(),
    "_deliver_at": T.TimestampType(),  # before that it was delivered to nobody
    "_expires": T.TimestampType(),  # and from then on
    "_priority": T.LongType(),  # from 0 to 9; null for the usual one, 4
}

RESERVED: Final[dict[str, T.DataType]] = STANDARD | ON_REQUEST


def with_reserved(schema: T.StructType) -> T.StructType:
    """The schema with the standard columns that it does not name itself, everything nullable.

    Any attribute may be absent from an event, so NOT NULL has no meaning here. Spark relaxes the
    schemas of its own sources in the same way.

    >>> with_reserved(T.StructType().add("price", "long").add("_id", "string")).fieldNames()
    ['price', '_id', '_type', '_time', '_broker', '_offset', '_corrupt']
    """
    named = set(schema.fieldNames())
    relaxed = _nullable(schema)
    assert isinstance(relaxed, T.StructType)
    added = [T.StructField(name, kind) for name, kind in STANDARD.items() if name not in named]
    return T.StructType([*relaxed.fields, *added])


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


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType(
            [T.StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind.fields]
        )
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, _nullable(kind.valueType), True)
    return kind
