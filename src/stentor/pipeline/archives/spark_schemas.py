"""Between Spark's schemas and those of archives: which tables can be archived, and as what."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from stentor.errors import UnsupportedColumn
from stentor.pipeline.archives.columns import DAY

_WIDER: Final[dict[type[DataType], DataType]] = {
    ByteType: LongType(),
    ShortType: LongType(),
    IntegerType: LongType(),
    FloatType: DoubleType(),
}
_KEPT: Final = (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampType,
)
_INSTEAD: Final[dict[type[DataType], str]] = {
    DateType: "a time is an instant; cast it to timestamp, or to string",
    TimestampNTZType: "a time is an instant; cast it to timestamp",
    MapType: "make a struct of the keys that are wanted, as attributes have names",
}
#: What the columns of that name are, whoever wrote them.
_RESERVED: Final[dict[str, DataType]] = {
    "_id": StringType(),
    "_type": StringType(),
    "_time": TimestampType(),
    "_broker": StringType(),
    "_stream": StringType(),
    "_offset": LongType(),
    "_corrupt": StringType(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The same for Spark."""
    return from_arrow_schema(schema)


def archived(schema: StructType) -> StructType:
    """The schema in which the archive keeps events of this schema; `UnsupportedColumn`.

    >>> archived(StructType().add("n", IntegerType()).add("x", NullType())).simpleString()
    'struct<n:bigint>'
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
    fields = [
        StructField(f.name, _kept(f.name, f.dataType))
        for f in schema.fields
        if not isinstance(f.dataType, NullType)
    ]
    for field in fields:
        wanted = _RESERVED.get(field.name)
        if wanted is not None and field.dataType != wanted:
            raise UnsupportedColumn(
                f"column {field.name} is a {wanted.simpleString()}, not a "
                f"{field.dataType.simpleString()}; cast or rename it"
            )
    if not fields:
        raise UnsupportedColumn("there is no column to archive")
    return StructType(fields)


def _kept(name: str, kind: DataType) -> DataType:
    if type(kind) in _WIDER:
        return _WIDER[type(kind)]
    if isinstance(kind, StringType):
        return StringType()  # without its collation or length
    if isinstance(kind, _KEPT):
        return kind
    if isinstance(kind, ArrayType):
        return ArrayType(_kept(name, kind.elementType))
    if isinstance(kind, StructType):
        inner = [StructField(f.name, _kept(f"{name}.{f.name}", f.dataType)) for f in kind.fields]
        if inner:
            return StructType(inner)
    instead = _INSTEAD.get(type(kind), "leave it out, or cast it")
    raise UnsupportedColumn(
        f"column {name!r} is a {kind.simpleString()}, which no attribute value is: {instead}"
    )
