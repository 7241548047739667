"""Which values fit which column, strictly.

A column holds what its type says and nothing else: no string is read as a number, no number is
written as a string. What does not fit is a *misfit*: the row keeps null in that column, and says in
`_corrupt` what was there.

    string            strings
    boolean           Booleans
    timestamp         times
    binary            byte strings
    long int short byte  integers in range, and floats that are such
    double            numbers; not an integer that no double is equal to
    float             numbers in range, rounded
    decimal(p, s)     numbers whose shortest decimal form has at most s digits behind the point, and
                      p in all
    array<T>          collections whose elements all fit T; sets come sorted

Most columns of most batches hold one type of value only. So a column first looks at the set of
types that occur: if each of them is right as it is, Arrow takes the whole list. Otherwise, or if
Arrow objects, every value is looked at by itself.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal, localcontext
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T

from stentor.errors import UnsupportedColumn
from stentor.pipeline.columns.headers import plain
from stentor.pipeline.spark_features import to_arrow_type_in_utc

#: Called with the row and the value of each misfit.
Misfits = Callable[[int, Any], object]

_NONE: Final = type(None)


class Misfit(Exception):
    """A value that does not fit."""


class Fit(ABC):
    """How values become a column of one type."""

    def __init__(self, spark: T.DataType, direct: frozenset[type]) -> None:
        self.spark = spark
        self.arrow: pa.DataType = to_arrow_type_in_utc(spark)
        #: Types of which Arrow may take the values as they are.
        self.direct = direct
        self._with_none = direct | {_NONE}

    def column(self, values: Sequence[Any], misfit: Misfits) -> pa.Array:
        """The column of values as MessagePack has them; None where there is none, or a misfit."""
        if self.taken_as_is(values):
            try:
                return pa.array(values, self.arrow)
            except (pa.ArrowException, OverflowError, ValueError):
                pass  # some value is out of range
        found = []
        for row, value in enumerate(values):
            if value is not None:
                value = plain(value)
                try:
                    value = self.one(value)
                except Misfit:
                    misfit(row, value)
                    value = None
            found.append(value)
        return pa.array(found, self.arrow)

    def taken_as_is(self, values: Sequence[Any]) -> bool:
        """Whether Arrow may try the values as they are."""
        return self._with_none.issuperset(map(type, values))

    @abstractmethod
    def one(self, value: Any) -> Any:
        """The value as the column holds it; `Misfit` if it does not fit."""


class _Same(Fit):
    """Values of one type, unchanged."""

    def one(self, value: Any) -> Any:
        if type(value) not in self.direct:
            raise Misfit
        return value


class _Integer(Fit):
    def __init__(self, spark: T.DataType, bits: int) -> None:
        super().__init__(spark, frozenset({int}))
        self._low, self._high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def one(self, value: Any) -> Any:
        kind = type(value)
        if kind is float:
            if not value.is_integer():
                raise Misfit
            value = int(value)
        elif kind is not int:
            raise Misfit
        if not self._low <= value <= self._high:
            raise Misfit
        return value


class _Double(Fit):
    def one(self, value: Any) -> Any:
        if type(value) is int:
            found = float(value)  # 64 bits: never too large
            if int(found) != value:
                raise Misfit
            return found
        if type(value) is not float:
            raise Misfit
        return value


class _Float(Fit):
    def one(self, value: Any) -> Any:
        if type(value) not in (int, float):
            raise Misfit
        try:
            return struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            raise Misfit from None


class _Decimal(Fit):
    def __init__(self, spark: T.DecimalType) -> None:
        super().__init__(spark, frozenset())
        self._scale = Decimal(1).scaleb(-spark.scale)
        self._precision = spark.precision

    def one(self, value: Any) -> Any:
        if type(value) not in (int, float) or value in (float("inf"), float("-inf")):
            raise Misfit
        exact = Decimal(repr(value))
        with localcontext() as context:
            context.prec = 400  # enough for every double
            found = exact.quantize(self._scale)
        if found != exact or len(found.as_tuple().digits) > self._precision:
            raise Misfit
        return found


class _Array(Fit):
    def __init__(self, spark: T.ArrayType, element: Fit) -> None:
        super().__init__(spark, frozenset({list}))
        self._element = element

    def taken_as_is(self, values: Sequence[Any]) -> bool:
        return super().taken_as_is(values) and self._element.direct.issuperset(
            map(type, chain.from_iterable(filter(None, values)))
        )

    def one(self, value: Any) -> Any:
        if type(value) is list:
            return [self._element.one(element) for element in value]
        if type(value) is frozenset:
            return sorted(self._element.one(element) for element in value)
        raise Misfit


_BITS: Final = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_SAME: Final = {
    T.StringType: str,
    T.BooleanType: bool,
    T.BinaryType: bytes,
    T.TimestampType: datetime,
}
_INSTEAD: Final = {
    T.DateType: "a time is an instant; use timestamp, and to_date on it",
    T.TimestampNTZType: "a time is an instant; use timestamp",
    T.MapType: "name the attributes, as in a struct, whose fields are dotted names",
}


def fit_of(name: str, kind: T.DataType) -> Fit:
    """How the attribute of this name becomes a column of this type; `UnsupportedColumn`.

    >>> fit_of("price", T.DoubleType()).column([1, 2.5, None, "high"], lambda *found: print(found))
    (3, 'high')
    <pyarrow.lib.DoubleArray object at ...>
    [
      1,
      2.5,
      null,
      null
    ]
    """
    cls = type(kind)
    if cls in _BITS:
        return _Integer(kind, _BITS[cls])
    if cls in _SAME:
        return _Same(kind, frozenset({_SAME[cls]}))
    if cls is T.DoubleType:
        return _Double(kind, frozenset({float}))
    if cls is T.FloatType:
        return _Float(kind, frozenset())
    if isinstance(kind, T.DecimalType):
        return _Decimal(kind)
    if isinstance(kind, T.ArrayType):
        return _Array(kind, _element_of(name, kind.elementType))
    instead = _INSTEAD.get(cls, "use a number, string, boolean, binary, timestamp, array or struct")
    raise UnsupportedColumn(
        f"column {name!r} is a {kind.simpleString()}, which no attribute value is: {instead}"
    )


def _element_of(name: str, kind: T.DataType) -> Fit:
    if type(kind) in _BITS or type(kind) in _SAME or isinstance(kind, (T.DoubleType, T.FloatType)):
        return fit_of(name, kind)
    if isinstance(kind, T.DecimalType):
        return fit_of(name, kind)
    raise UnsupportedColumn(
        f"column {name!r} is an array of {kind.simpleString()}; a collection has plain elements"
    )
