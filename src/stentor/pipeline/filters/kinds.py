"""Which attribute values the types of Spark hold.

    boolean                          bool
    tinyint, smallint, int, bigint   number, and `is int`
    float, double                    number, and `is float`; NaN is no value
    decimal                          number: the one that is published for it, an integer if it
                                     has no digits behind the point, else the nearest double
    string                           string, by code point, whatever collation the column has
    binary                           bytes
    timestamp                        time
    timestamp_ntz                    time, read as UTC, as Arrow columns without a zone are
    array of these                   collection, null and NaN elements left out

A struct is a record of attributes and no value itself. Other types hold no attribute values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import types as spark

from stentor.errors import UnsupportedColumn
from stentor.model.values import COLLECTION, RECORD
from stentor.pipeline.filters.sql import Sql, all_of, any_of, negation

#: Decimals without a fraction and with no more digits than this are 64-bit integers.
_LONG_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Kind:
    """How a column holds the values of one value type."""

    value_type: str
    #: The Spark type in which values are compared.
    form: str
    #: What turns a stored value into that type.
    reading: str = "{}"
    #: What the elements of a collection are.
    element: Kind | None = None

    @property
    def is_integer(self) -> bool:
        return self.form in BITS

    @property
    def is_float(self) -> bool:
        return self.form in ("float", "double")

    def read(self, stored: str) -> str:
        """The SQL of a value, from that of the stored value."""
        if self.element is not None and self.element.reading != "{}":
            return f"transform({stored}, e -> {self.element.read('e')})"
        return self.reading.format(stored)

    def present(self, sql: str) -> Sql:
        """Whether there is a value: neither null nor NaN. Never null itself."""
        return all_of([f"{sql} IS NOT NULL", negation(f"isnan({sql})") if self.is_float else True])

    def absent(self, sql: str) -> Sql:
        return any_of([f"{sql} IS NULL", f"isnan({sql})" if self.is_float else False])


#: The integer types and their widths.
BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_KINDS: Final[dict[type[spark.DataType], Kind]] = {
    spark.BooleanType: Kind("bool", "boolean"),
    spark.ByteType: Kind("number", "tinyint"),
    spark.ShortType: Kind("number", "smallint"),
    spark.IntegerType: Kind("number", "int"),
    spark.LongType: Kind("number", "bigint"),
    spark.FloatType: Kind("number", "float"),
    spark.DoubleType: Kind("number", "double"),
    spark.StringType: Kind("string", "string"),
    spark.CharType: Kind("string", "string"),
    spark.VarcharType: Kind("string", "string"),
    spark.BinaryType: Kind("bytes", "binary"),
    spark.TimestampType: Kind("time", "timestamp"),
    spark.TimestampNTZType: Kind("time", "timestamp_ntz"),
}
_COLLATED: Final = Kind("string", "string", "({} COLLATE UTF8_BINARY)")
_INTEGRAL: Final = Kind("number", "bigint", "CAST({} AS BIGINT)")
_FRACTIONAL: Final = Kind("number", "double", "CAST({} AS DOUBLE)")
#: Elements of a collection that are integers or floats, each by itself (see `fallback`).
WIDE: Final = Kind("number", "wide")
LONG: Final = Kind("number", "bigint", "try_cast({} AS BIGINT)")
DOUBLE: Final = _FRACTIONAL


def kind_of(data_type: spark.DataType, name: str) -> Kind:
    """The kind of a column of that type; `name` is for the error if it has none."""
    if isinstance(data_type, spark.ArrayType):
        element = _element_kind(data_type.elementType)
        if element is not None:
            return Kind(COLLECTION, "array", element=element)
    found = _scalar_kind(data_type)
    if found is None:
        raise UnsupportedColumn(
            f"column {name!r} has the type {data_type.simpleString()}, which holds no attribute "
            "values; cast it to a number, string, binary, boolean, timestamp, or an array of these"
        )
    return found


def _element_kind(data_type: spark.DataType) -> Kind | None:
    if isinstance(data_type, spark.StructType):
        return Kind(RECORD, "struct")
    if isinstance(data_type, spark.DecimalType) and data_type.scale == 0:
        return _INTEGRAL if data_type.precision <= _LONG_DIGITS else WIDE
    return _scalar_kind(data_type)


def _scalar_kind(data_type: spark.DataType) -> Kind | None:
    if isinstance(data_type, spark.DecimalType):
        whole = data_type.scale == 0 and data_type.precision <= _LONG_DIGITS
        return _INTEGRAL if whole else _FRACTIONAL
    if isinstance(data_type, spark.StringType) and not data_type.isUTF8BinaryCollation():
        return _COLLATED
    return _KINDS.get(type(data_type))
