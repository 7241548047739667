"""Types of columns without Spark: Arrow has them, and Spark's names for them are written here.

An archive says in its manifests, in Spark's own notation, what its columns are, and messages call a
type what users of SQL call it. Both must do where no Spark is installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

TIME: Final = pa.timestamp("us", "UTC")

#: Arrow's type, the name in Spark's JSON, and the name in SQL.
_NAMES: Final = (
    (pa.null(), "void", "void"),
    (pa.bool_(), "boolean", "boolean"),
    (pa.int8(), "byte", "tinyint"),
    (pa.int16(), "short", "smallint"),
    (pa.int32(), "integer", "int"),
    (pa.int64(), "long", "bigint"),
    (pa.float32(), "float", "float"),
    (pa.float64(), "double", "double"),
    (pa.string(), "string", "string"),
    (pa.large_string(), "string", "string"),
    (pa.binary(), "binary", "binary"),
    (pa.large_binary(), "binary", "binary"),
    (pa.date32(), "date", "date"),
)
_JSON: Final = {arrow: json for arrow, json, _ in _NAMES}
_SQL: Final = {arrow: sql for arrow, _, sql in _NAMES}
_ARROW: Final = {json: arrow for arrow, json, _ in reversed(_NAMES)} | {"timestamp": TIME}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


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


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def list_of(kind: pa.DataType) -> pa.DataType:
    """An array of this type, named inside as Spark names it."""
    return pa.list_(pa.field("element", kind))


def as_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """The fields of a schema in Spark's notation; every column may be null.

    >>> as_json(pa.schema({"x": pa.int64()}))
    [{'name': 'x', 'type': 'long', 'nullable': True, 'metadata': {}}]
    """
    return [_field_as_json(field) for field in schema]


def _field_as_json(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _as_json(field.type), "nullable": True, "metadata": {}}


def _as_json(kind: pa.DataType) -> Any:
    if is_list(kind):
        element = _as_json(kind.value_type)
        return {"type": "array", "elementType": element, "containsNull": True}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field_as_json(field) for field in kind]}
    return _JSON.get(kind) or sql_name(kind)


def from_json(fields: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The schema that is written in Spark's notation."""
    return pa.schema([_field(field) for field in fields])


def _field(field: Mapping[str, Any]) -> pa.Field:
    return pa.field(field["name"], _from_json(field["type"]))


def _from_json(written: Any) -> pa.DataType:
    if isinstance(written, str):
        decimal = _DECIMAL.fullmatch(written)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW[written]
    if written["type"] == "array":
        return list_of(_from_json(written["elementType"]))
    return pa.struct([_field(field) for field in written["fields"]])
