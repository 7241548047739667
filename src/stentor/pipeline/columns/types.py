"""Types of columns without Spark: Arrow has them, and Spark's names for them are written here.

Messages call a type what users of SQL call it, also where no Spark is installed.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from stentor.errors import UnsupportedColumn

TIME: Final = pa.timestamp("us", "UTC")

_SQL: Final = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}
_INSTEAD: Final = {
    "date": "a time is an instant; cast it to timestamp, or to string",
    "timestamp_ntz": "a time is an instant; cast it to timestamp",
    "map": "make a struct of the keys that are wanted, as attributes have names",
}


def sql_name(kind: pa.DataType) -> str:
    """What SQL calls a type.

    >>> sql_name(pa.list_(pa.int64())), sql_name(pa.struct({"x": pa.decimal128(9, 2)}))
    ('array<bigint>', 'struct<x:decimal(9,2)>')
    """
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if is_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{sql_name(f.type)}' for f in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{sql_name(kind.key_type)},{sql_name(kind.item_type)}>"
    return _SQL.get(kind) or str(kind)


def no_value(name: str, kind: pa.DataType) -> UnsupportedColumn:
    """What to say of a column whose type no attribute value has, and what to do with it."""
    said = sql_name(kind)
    other = "leave it out, or cast it to a number, string, binary or timestamp"
    instead = _INSTEAD.get(said.partition("<")[0], other)
    return UnsupportedColumn(f"column {name!r} is a {said}, which no attribute value is: {instead}")


def is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def list_of(kind: pa.DataType) -> pa.DataType:
    """An array of this type, named inside as Spark names it."""
    return pa.list_(pa.field("element", kind))
