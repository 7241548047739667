"""Between Spark's schemas and those of archives: which tables can be archived, and as what."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from stentor.errors import UnsupportedColumn
from stentor.pipeline.archives.columns import DAY
from stentor.pipeline.columns.layout import arrow_schema
from stentor.pipeline.columns.reserved import RESERVED
from stentor.pipeline.columns.types import is_instant, is_list, list_of, no_value, sql_name


def spark_schema(schema: pa.Schema) -> StructType:
    """The same for Spark."""
    return from_arrow_schema(schema)


def archived(schema: StructType) -> pa.Schema:
    """The columns in which the archive keeps events of this schema; `UnsupportedColumn`.

    >>> archived(StructType().add("n", "integer").add("text", "string"))
    n: int64
    text: string
    """
    names = [name.lower() for name in schema.fieldNames()]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UnsupportedColumn(
            f"there are several columns named {min(twice)!r}, and Spark does not tell apart names "
            "that differ in case only; rename one"
        )
    if DAY in names:
        raise UnsupportedColumn(f"the archive has a column {DAY!r} itself; rename yours")
    given = [field for field in arrow_schema(schema) if not pa.types.is_null(field.type)]
    fields = [pa.field(field.name, _kept(field.name, field.type)) for field in given]
    for field in fields:
        wanted = RESERVED.get(field.name)
        if wanted is not None and sql_name(field.type) != wanted.simpleString():
            raise UnsupportedColumn(
                f"column {field.name} is a {wanted.simpleString()}, not a {sql_name(field.type)}; "
                "cast or rename it"
            )
    if not fields:
        raise UnsupportedColumn("there is no column to archive")
    return pa.schema(fields)


def _kept(name: str, kind: pa.DataType) -> pa.DataType:
    """Integers and floats of all sizes are long and double."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or is_instant(kind):
        return kind
    if sql_name(kind) in ("string", "binary"):
        return kind
    if is_list(kind):
        return list_of(_kept(name, kind.value_type))
    # A variant is a struct in Arrow, and told by metadata.
    if pa.types.is_struct(kind) and kind.num_fields and not any(map(_is_variant, kind)):
        return pa.struct([(f.name, _kept(f"{name}.{f.name}", f.type)) for f in kind])
    raise no_value(name, kind)


def _is_variant(field: pa.Field) -> bool:
    return b"variant" in (field.metadata or {})
