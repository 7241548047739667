"""Comparisons between attributes, as SQL.

Stentor compares numbers by their mathematical value and calculates with integers without limit;
Spark compares a bigint with a double by rounding the bigint, and its integers overflow. So each
term has the type in which Spark gets it right:

    integers        bigint, as long as the result cannot leave 64 bits; then decimal(38, 0), as long
                    as it cannot have more digits. `limit` is how far from zero it can be
    with a float    double. A single integer is rounded to it just as Python does
    `/`             double, of integers only if both are exact in it

A bigint and a double that meet in a comparison are compared as doubles first. If these differ, so
do the numbers, in the same direction; if not, the double is a whole number and can be compared as
one, unless it is 2**63, which no bigint reaches.

A term that has no value (a division by zero, the difference of two infinities) is null, and the
comparison then false. Whatever is beyond this has no native form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stentor.filters.expression import Arithmetic, Attribute, Constant, Term
from stentor.filters.residual import Residual
from stentor.model.values import COLLECTION, value_type_of
from stentor.pipeline.filters.attributes import Place
from stentor.pipeline.filters.kinds import BITS
from stentor.pipeline.filters.sql import NAN, Sql, all_of, literal_sql

_LONG: Final = 2**63 - 1
_EXACT: Final = 2**53
_DIGITS: Final = 10**38 - 1
_CONSTANT_FORMS: Final = {"string": "string", "bytes": "binary", "bool": "boolean"}


@dataclass(frozen=True, slots=True)
class _Value:
    """A term, in the Spark type that `form` names; numbers are bigint, decimal or double."""

    value_type: str
    form: str
    sql: str
    #: The greatest absolute value of an integer.
    limit: int = 0

    @property
    def as_double(self) -> str:
        return self.sql if self.form == "double" else f"CAST({self.sql} AS DOUBLE)"


class _NoValue(Exception):
    """The term never has a value."""


class _NotNative(Exception):
    """Spark would not get it right."""


def residual_sql(residual: Residual, find: Callable[[str], tuple[Place, ...]]) -> Sql | None:
    """Whether the comparison holds, never null; None if it has no native form."""
    compare = residual.compare
    try:
        guards = [_only_place(name, find).present for name in sorted(residual.names)]
        left, right = _term(compare.left, find), _term(compare.right, find)
        if left.value_type != right.value_type:
            return False
        test = _comparison(compare.operator, left, right)
    except _NoValue:
        return False
    except _NotNative:
        return None
    if isinstance(compare.left, Arithmetic) or isinstance(compare.right, Arithmetic):
        test = f"coalesce({test}, false)"
    return all_of([*guards, test])


def _only_place(name: str, find: Callable[[str], tuple[Place, ...]]) -> Place:
    places = find(name)
    if all(place.kind is None for place in places):
        raise _NoValue
    if len(places) > 1:
        raise _NotNative
    return places[0]


def _term(term: Term, find: Callable[[str], tuple[Place, ...]]) -> _Value:
    if isinstance(term, Attribute):
        return _attribute(_only_place(term.name, find))
    if isinstance(term, Constant):
        return _constant(term.value)
    return _arithmetic(term.operator, _term(term.left, find), _term(term.right, find))


def _attribute(place: Place) -> _Value:
    kind = place.kind
    assert kind is not None
    if kind.is_float:
        sql = place.sql if kind.form == "double" else f"CAST({place.sql} AS DOUBLE)"
        return _Value("number", "double", sql)
    if kind.is_integer:
        sql = place.sql if kind.form == "bigint" else f"CAST({place.sql} AS BIGINT)"
        return _Value("number", "bigint", sql, 2 ** (BITS[kind.form] - 1))
    return _Value(kind.value_type, kind.form, place.sql)


def _constant(value: object) -> _Value:
    value_type = value_type_of(value)
    if isinstance(value, int) and value_type == "number":
        return _Value("number", "bigint", literal_sql(value, "bigint"), abs(value))
    if value_type == "number":
        return _Value("number", "double", literal_sql(value, "double"))
    form = _CONSTANT_FORMS.get(value_type)
    if form is None:
        raise _NotNative
    return _Value(value_type, form, literal_sql(value, form))


def _arithmetic(operator: str, left: _Value, right: _Value) -> _Value:
    if left.value_type != "number" or right.value_type != "number":
        raise _NoValue
    if left.form != "double" and right.form != "double":
        if operator != "/":
            return _integer(operator, left, right)
        if max(left.limit, right.limit) > _EXACT:
            raise _NotNative
    if "decimal" in (left.form, right.form):
        raise _NotNative
    if operator == "/":
        result = f"try_divide({left.as_double}, {right.as_double})"
    else:
        result = f"({left.as_double} {operator} {right.as_double})"
    return _Value("number", "double", f"nullif({result}, {NAN})")


def _integer(operator: str, left: _Value, right: _Value) -> _Value:
    limit = left.limit * right.limit if operator == "*" else left.limit + right.limit
    if limit <= _LONG:
        return _Value("number", "bigint", f"({left.sql} {operator} {right.sql})", limit)
    if limit > _DIGITS:
        raise _NotNative
    a, b = (f"CAST({side.sql} AS DECIMAL(38, 0))" for side in (left, right))
    result = f"CAST(({a} {operator} {b}) AS DECIMAL(38, 0))"
    return _Value("number", "decimal", result, limit)


def _comparison(operator: str, left: _Value, right: _Value) -> str:
    if left.value_type == COLLECTION:
        raise _NotNative
    if left.form == right.form or "double" not in (left.form, right.form):
        if left.value_type == "time" and left.form != right.form:
            raise _NotNative
        return f"{left.sql} {operator} {right.sql}"
    if right.form != "double":
        return _comparison(_MIRRORED[operator], right=left, left=right)
    if left.limit <= _EXACT:
        return f"{left.as_double} {operator} {right.sql}"
    if left.form == "decimal":
        raise _NotNative
    return _long_with_double(operator, left, right)


_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _long_with_double(operator: str, left: _Value, right: _Value) -> str:
    rounded, double = left.as_double, right.sql
    whole, beyond = f"try_cast({double} AS BIGINT)", literal_sql(2.0**63, "double")
    same = f"{rounded} = {double}"
    within = f"{double} < {beyond} AND {left.sql}"
    match operator:
        case "=" | "!=":
            test = f"({same} AND {within} = {whole})"
        case "<" | ">=":
            less = f"({double} >= {beyond} OR {left.sql} < {whole})"
            test = f"({rounded} < {double} OR ({same} AND {less}))"
        case _:
            test = f"({rounded} > {double} OR ({same} AND {within} > {whole}))"
    return test if operator in ("=", "<", ">") else f"NOT {test}"
