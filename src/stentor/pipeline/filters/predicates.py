"""From the predicates that Spark pushes down to a filter that brokers evaluate.

The filter must match *at least* every event whose row would satisfy the predicates; Spark looks at
all of them again. So a predicate that cannot be expressed is left out, and one that can only be
expressed roughly is made wider. What decides is how events become rows:

  - A column takes only values of its type; whatever does not fit is null in the row. A row's value
    is therefore the attribute's value, or null although the event has the attribute. Null satisfies
    no comparison, so comparisons carry over, and so do their negations. `IS NULL` does not, nor
    does anything else that null satisfies: an event may have the attribute, as another type.
  - Integer columns also take floats without a fraction, double columns also integers that have an
    exact double. Both compare as the number they are.
  - A float column rounds to 32 bits. Rounding keeps the order, but may move a value onto the
    constant: `x >= c` is true of a row whose event has slightly less. Such a predicate is widened
    to the next float of 32 bits. So are those on decimal columns to the next double, since an event
    has the double nearest to the decimal in its row.
  - The columns of the event table itself are no attributes, apart from those that filters see.

Constants come from Spark as Python values: instants in UTC, null as None. An instant before 1900
passes through an older calendar on its way, and is not relied on; nor is a timestamp without time
zone or a date, which attributes cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nextafter
from typing import Any, Final

import numpy as np
from pyspark.sql import datasource as pushed
from pyspark.sql import types as spark

from stentor.filters import Filter
from stentor.filters.expression import And, Atom, Expression, Or, Truth
from stentor.model.names import name_problem

#: The columns of an event table that filters see.
VISIBLE: Final = frozenset(("_type", "_time", "_subject", "_channel"))
#: A longer list of values is pushed down as the interval around it.
MAX_LISTED: Final = 1_000

_CERTAIN: Final = datetime(1900, 1, 1, tzinfo=UTC)
_INTEGERS: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_FALSE: Final = Truth(False)

_OPERATORS: Final[dict[type[pushed.Filter], str]] = {
    pushed.EqualTo: "=",
    pushed.EqualNullSafe: "=",
    pushed.GreaterThan: ">",
    pushed.GreaterThanOrEqual: ">=",
    pushed.LessThan: "<",
    pushed.LessThanOrEqual: "<=",
    pushed.StringStartsWith: "prefix",
    pushed.StringEndsWith: "suffix",
    pushed.StringContains: "contains",
}
#: What a negation says of the values that are there.
_OPPOSITE: Final = {
    "=": "!=",
    ">": "<=",
    ">=": "<",
    "<": ">=",
    "<=": ">",
    "prefix": "not prefix",
    "suffix": "not suffix",
    "contains": "not contains",
}


class _NotExpressible(Exception):
    """No filter says it, not even roughly."""


def from_predicates(
    predicates: Sequence[pushed.Filter], schema: spark.StructType
) -> tuple[Filter, list[pushed.Filter]]:
    """A filter that matches whatever satisfies all predicates, and those that it was made from.

    >>> schema = spark.StructType().add("price", "double").add("note", "date")
    >>> pushed_down = [pushed.GreaterThan(("price",), 100.0), pushed.IsNull(("note",))]
    >>> filter, used = from_predicates(pushed_down, schema)
    >>> print(filter, used)
    price > 100 [GreaterThan(attribute=('price',), value=100.0)]
    """
    expressions: list[Expression] = []
    used: list[pushed.Filter] = []
    for predicate in predicates:
        try:
            expressions.append(_expression(predicate, schema))
        except _NotExpressible:
            continue
        used.append(predicate)
    return Filter.of_expression(And(tuple(expressions))), used


def _expression(predicate: pushed.Filter, schema: spark.StructType) -> Expression:
    negated = isinstance(predicate, pushed.Not)
    inner = predicate.child if isinstance(predicate, pushed.Not) else predicate
    name, data_type = _column(getattr(inner, "attribute", ()), schema)
    match inner:
        case pushed.IsNotNull():
            return _presence(name, not negated)
        case pushed.IsNull() | pushed.EqualNullSafe(_, None):
            return _presence(name, negated)
        case pushed.EqualNullSafe() if negated:
            raise _NotExpressible  # null satisfies it
        case pushed.In(_, values):
            return _in(name, data_type, values, negated)
    operator = _OPERATORS.get(type(inner))
    if operator is None:
        raise _NotExpressible
    value = getattr(inner, "value", None)
    if value is None:
        return _FALSE  # a comparison with null is never true, and neither is its negation
    operator = _OPPOSITE[operator] if negated else operator
    return _comparison(name, data_type, operator, _constant(value, data_type))


def _presence(name: str, wanted: bool) -> Expression:
    if not wanted:
        raise _NotExpressible  # null in the row, but perhaps not in the event
    return Atom(name, "exists")


def _in(name: str, data_type: spark.DataType, values: Sequence[Any], negated: bool) -> Expression:
    constants = [_constant(value, data_type) for value in values if value is not None]
    if negated:
        if not values:
            raise _NotExpressible  # true, even of null
        if len(constants) < len(values):
            return _FALSE  # `x NOT IN (1, null)`: x might be what null stands for
        if len(constants) > MAX_LISTED or isinstance(data_type, spark.DecimalType):
            return Atom(name, "exists")
        return Atom(name, "not in", tuple(constants))
    if not constants:
        return _FALSE
    if len(constants) > MAX_LISTED:
        low, high = min(constants), max(constants)
        bounds = ((">=", low), ("<=", high))
        return And(tuple([_comparison(name, data_type, *bound) for bound in bounds]))
    if isinstance(data_type, spark.FloatType | spark.DecimalType):
        return Or(tuple([_comparison(name, data_type, "=", value) for value in constants]))
    return Atom(name, "in", tuple(constants))


def _comparison(name: str, data_type: spark.DataType, operator: str, value: Any) -> Expression:
    if isinstance(data_type, spark.FloatType):
        return _rounded(name, operator, value)
    if isinstance(data_type, spark.DecimalType):
        return _widened(name, operator, float(value))
    return Atom(name, operator, (value,))


def _rounded(name: str, operator: str, value: float) -> Expression:
    """A comparison with what 32 bits keep of the attribute.

    Less than c stays less than c or becomes c, and c itself stays c: so `<`, `>` and `!=` carry
    over.
    """
    with np.errstate(over="ignore"):
        constant = np.float32(value)
        below, above = np.nextafter(constant, -np.inf), np.nextafter(constant, np.inf)
    if operator in ("<", ">", "!="):
        return Atom(name, operator, (value,))
    return _within(name, operator, float(below), float(above))


def _widened(name: str, operator: str, value: float) -> Expression:
    """A comparison with a constant that lies between the doubles around the given one."""
    if operator == "!=":
        return Atom(name, "exists")
    return _within(name, operator, nextafter(value, -inf), nextafter(value, inf))


def _within(name: str, operator: str, below: float, above: float) -> Expression:
    match operator:
        case "=":
            return Atom(name, "between", (below, above))
        case ">" | ">=":
            return Atom(name, ">=", (below,))
        case _:
            return Atom(name, "<=", (above,))


def _column(path: Sequence[str], schema: spark.StructType) -> tuple[str, spark.DataType]:
    """The attribute of a column, and the column's type."""
    name = ".".join(path)
    if not path or name_problem(name) or (name.startswith("_") and name not in VISIBLE):
        raise _NotExpressible
    data_type: spark.DataType = schema
    for part in path:
        fields = data_type.fields if isinstance(data_type, spark.StructType) else []
        found = [field.dataType for field in fields if field.name == part]
        if len(found) != 1:
            raise _NotExpressible
        data_type = found[0]
    if not _holds_values(data_type):
        raise _NotExpressible
    return name, data_type


def _holds_values(data_type: spark.DataType) -> bool:
    """Whether a column of that type is one attribute, rather than a record of several."""
    if isinstance(data_type, spark.ArrayType):
        return _holds_values(data_type.elementType)
    return isinstance(data_type, spark.AtomicType) and not isinstance(data_type, spark.VariantType)


def _constant(value: Any, data_type: spark.DataType) -> Any:
    """A constant of the column's type, as filters have it."""
    if isinstance(data_type, spark.StringType) and not data_type.isUTF8BinaryCollation():
        raise _NotExpressible  # texts that are equal there may be different
    convert = _CONSTANTS.get(type(data_type))
    found = None if convert is None else convert(value)
    if found is None:
        raise _NotExpressible
    return found


def _number(value: Any) -> float | None:
    """NaN is not relied on: Spark has an order for it, filters have not."""
    if type(value) is int:
        return value
    if type(value) is not float or value != value:
        return None
    return int(value) if value.is_integer() and abs(value) <= 2**53 else value


def _time(value: Any) -> datetime | None:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        return None
    return value if value >= _CERTAIN else None


def _exactly(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is kind else None


_CONSTANTS: Final[dict[type[spark.DataType], Callable[[Any], Any]]] = {
    spark.BooleanType: _exactly(bool),
    **dict.fromkeys(_INTEGERS, _exactly(int)),
    spark.FloatType: _number,
    spark.DoubleType: _number,
    spark.DecimalType: _exactly(Decimal),
    spark.StringType: _exactly(str),
    spark.BinaryType: lambda value: bytes(value) if isinstance(value, bytes | bytearray) else None,
    spark.TimestampType: _time,
}
