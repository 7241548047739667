"""Comparisons and arithmetic over terms, brought to their simplest node.

What can be computed from constants alone is computed here. A comparison of an attribute with a
constant is an `Atom`, with the attribute on the left; only what is left over is a `Compare`.
"""

from __future__ import annotations

import operator as _operators
from collections.abc import Callable
from typing import Any, Final

from stentor.errors import InvalidValue
from stentor.filters.expression import (
    And,
    Arithmetic,
    Atom,
    Attribute,
    Compare,
    Constant,
    Expression,
    Or,
    Term,
    Truth,
)
from stentor.filters.language.mistakes import TextError
from stentor.model.values import normal, value_type_of

#: `c < x` is `x > c`.
MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

#: `not (x < c)`, for a value that can be compared with c, is `x >= c`.
COMPLEMENT: Final = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_COMPUTE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": _operators.add,
    "-": _operators.sub,
    "*": _operators.mul,
    "/": _operators.truediv,
    "=": _operators.eq,
    "!=": _operators.ne,
    "<": _operators.lt,
    "<=": _operators.le,
    ">": _operators.gt,
    ">=": _operators.ge,
}


def arithmetic(operator: str, left: Term, right: Term) -> Term:
    """
    >>> arithmetic("*", Constant(6), Constant(7))
    Constant(value=42)
    """
    _require_number(left)
    _require_number(right)
    if not (isinstance(left, Constant) and isinstance(right, Constant)):
        return Arithmetic(operator, left, right)
    try:
        return Constant(normal(_COMPUTE[operator](left.value, right.value)))
    except (ArithmeticError, InvalidValue):
        raise TextError(
            f"{left.value} {operator} {right.value} has no value that an attribute could hold"
        ) from None


def negative(term: Term) -> Term:
    """
    >>> negative(Attribute("x"))
    Arithmetic(operator='-', left=Constant(value=0), right=Attribute(name='x'))
    """
    if isinstance(term, Constant) and isinstance(term.value, float):
        return Constant(-term.value)  # 0 - 0.0 would lose the sign
    return arithmetic("-", Constant(0), term)


def _require_number(term: Term) -> None:
    if isinstance(term, Constant) and value_type_of(term.value) != "number":
        raise TextError(f"arithmetic needs numbers, but this is a {value_type_of(term.value)}")


def compare(operator: str, left: Term, right: Term) -> Expression:
    """
    >>> compare("<", Constant(1), Attribute("x"))
    Atom(name='x', operator='>', constants=(1,))
    """
    if isinstance(right, Constant):
        if isinstance(left, Attribute):
            return Atom(left.name, operator, (right.value,))
        if isinstance(left, Constant):
            return Truth(compare_values(operator, left.value, right.value))
    elif isinstance(left, Constant) and isinstance(right, Attribute):
        return Atom(right.name, MIRRORED[operator], (left.value,))
    if isinstance(left, Arithmetic) or isinstance(right, Arithmetic):
        _require_number(left)
        _require_number(right)
    return Compare(operator, left, right)


def compare_values(operator: str, left: Any, right: Any) -> bool:
    """A comparison of two values; false if their types differ, whatever the operator.

    >>> compare_values("!=", 1, "1")
    False
    """
    if value_type_of(left) != value_type_of(right):
        return False
    try:
        return bool(_COMPUTE[operator](left, right))
    except TypeError:
        raise TextError(f"values of type {value_type_of(left)} have no order") from None


def between(term: Term, low: Term, high: Term, inside: bool = True) -> Expression:
    """
    >>> between(Attribute("x"), Constant(1), Constant(5), inside=False)
    Atom(name='x', operator='not between', constants=(1, 5))
    """
    if isinstance(term, Attribute) and isinstance(low, Constant) and isinstance(high, Constant):
        operator = "between" if inside else "not between"
        return Atom(term.name, operator, (low.value, high.value))
    if inside:
        return And((compare(">=", term, low), compare("<=", term, high)))
    return Or((compare("<", term, low), compare(">", term, high)))
