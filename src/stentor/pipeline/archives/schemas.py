"""The schema of an archive: how it grows, and what contradicts it.

An attribute has one type in the whole archive, but events change over the years. What can be joined
without losing anything is joined: a new attribute is a new column, null where it was unknown; a new
field of a struct likewise; integers beside doubles are doubles. A column that was a number and is
a string now is no growth but a contradiction, and is refused when the events come, while whoever
sends them can still do something about it.

Integers and floats of all sizes are archived as long and double, so that only real differences
count. Times, booleans, strings, binary data and decimals stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
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

from stentor.errors import ArchiveError, UnsupportedColumn

#: When the turn of an event comes in a replay, where that is not its time; see `ordering`. It is a
#: column of some data files, and of no schema.
TURN: Final = "_turn"

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
_NUMBERS: Final = (LongType, DoubleType, DecimalType)
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
}


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
    if TURN in names:
        raise UnsupportedColumn(f"the archive uses a column {TURN!r} itself; rename yours")
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


def joined(old: StructType, new: StructType) -> StructType:
    """One schema for the files of both; `ArchiveError` if they contradict each other.

    >>> old = StructType().add("x", LongType())
    >>> joined(old, StructType().add("x", DoubleType()).add("y", StringType())).simpleString()
    'struct<x:double,y:string>'
    """
    return _joined_structs("", old, new)


def _joined_structs(within: str, old: StructType, new: StructType) -> StructType:
    theirs = {f.name.lower(): f for f in new.fields}
    fields = []
    for field in old.fields:
        other = theirs.pop(field.name.lower(), None)
        kind = field.dataType
        if other is not None:
            if other.name != field.name:
                raise ArchiveError(
                    f"the archive has a column {within}{field.name}, and the events have "
                    f"{within}{other.name}; Spark does not tell these apart, so rename one"
                )
            kind = _joined_types(within + field.name, kind, other.dataType)
        fields.append(StructField(field.name, kind))
    return StructType([*fields, *theirs.values()])


def _joined_types(name: str, old: DataType, new: DataType) -> DataType:
    if old == new:
        return old
    if isinstance(old, _NUMBERS) and isinstance(new, _NUMBERS):
        return DoubleType()
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_joined_types(name, old.elementType, new.elementType))
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _joined_structs(f"{name}.", old, new)
    raise ArchiveError(
        f"column {name!r} is a {old.simpleString()} in the archive and a {new.simpleString()} in "
        f"the events; cast it (.withColumn({name!r}, col({name!r}).cast({old.simpleString()!r}))), "
        "give it another name, or archive these events elsewhere"
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The same for Arrow; times are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns: null where it has none, numbers as wide as they are."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            # A long that no double is equal to becomes the nearest: that is what `joined` said.
            array = batch.column(index)
            arrays.append(array if array.type == field.type else array.cast(field.type, safe=False))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def leaves(schema: StructType, within: str = "") -> Iterator[tuple[str, DataType]]:
    """All columns that are no structs, by their dotted names."""
    for field in schema.fields:
        if isinstance(field.dataType, StructType):
            yield from leaves(field.dataType, f"{within}{field.name}.")
        else:
            yield within + field.name, field.dataType


def as_json(schema: StructType) -> list[dict[str, Any]]:
    """The schema as a manifest holds it: the fields in Spark's own notation."""
    fields: list[dict[str, Any]] = schema.jsonValue()["fields"]
    return fields


def from_json(fields: Sequence[dict[str, Any]]) -> StructType:
    """The schema that a manifest holds."""
    return StructType.fromJson({"type": "struct", "fields": list(fields)})
