"""Expressions of mappings: what an attribute becomes, computed from one notification.

Terms are those of filters (attributes, constants, arithmetic) and calls of a few functions. What
cannot be computed is absent: an attribute that is missing or of another type, a division by zero,
an integer beyond 64 bits, NaN. So every expression is total, and `stentor.pipeline` can say the
same in SQL: integers stay integers under + - *, a division always gives a float, and `round` goes
away from zero at one half and gives an integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final, TypeAlias

from stentor.errors import InvalidScopeGraph
from stentor.filters.expression import Arithmetic, Attribute, Constant
from stentor.model.values import INT_MAX, INT_MIN

#: What is known of keys: rows by key, each with its columns.
Table: TypeAlias = Mapping[Any, Mapping[str, Any]]
Tables: TypeAlias = Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `FUNCTIONS`, with its arguments."""

    function: str
    arguments: tuple[Expression, ...]

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise InvalidScopeGraph(
                f"there is no function {self.function!r}; there are {', '.join(FUNCTIONS)}"
            )
        least, most = FUNCTIONS[self.function]
        if not least <= len(self.arguments) <= most:
            raise InvalidScopeGraph(
                f"{self.function} takes {least if least == most else f'{least} to {most}'} "
                f"arguments, not {len(self.arguments)}"
            )
        constant = (0, 2) if self.function == "lookup" else ()
        for place in constant:
            argument = self.arguments[place]
            if not (isinstance(argument, Constant) and isinstance(argument.value, str)):
                raise InvalidScopeGraph(
                    'lookup is written lookup("table", key, "column"): the names are constants'
                )


Expression: TypeAlias = Attribute | Constant | Arithmetic | Call

#: The functions, and how many arguments each takes at least and at most.
FUNCTIONS: Final = {
    "round": (1, 1),
    "floor": (1, 1),
    "ceil": (1, 1),
    "abs": (1, 1),
    "concat": (1, 16),
    "coalesce": (1, 16),
    "lookup": (3, 3),
}


def names_in(expression: Expression) -> Iterator[str]:
    """The attributes that an expression reads."""
    match expression:
        case Attribute(name):
            yield name
        case Arithmetic(_, left, right):
            yield from names_in(left)
            yield from names_in(right)
        case Call(_, arguments):
            for argument in arguments:
                yield from names_in(argument)


def evaluate(expression: Expression, facts: Mapping[str, Any], tables: Tables) -> Any:
    """The value of an expression; None if it has none.

    >>> half = Arithmetic("/", Attribute("x"), Constant(2))
    >>> evaluate(half, {"x": 3}, {}), evaluate(half, {"x": "three"}, {})
    (1.5, None)
    """
    match expression:
        case Constant(value):
            return value
        case Attribute(name):
            return facts.get(name)
        case Arithmetic(operator, left, right):
            return _computed(
                operator, evaluate(left, facts, tables), evaluate(right, facts, tables)
            )
        case Call("lookup", (Constant(table), key, Constant(column))):
            found = tables.get(table, {}).get(evaluate(key, facts, tables))
            return None if found is None else found.get(column)
        case Call("coalesce", arguments):
            values = (evaluate(each, facts, tables) for each in arguments)
            return next((value for value in values if value is not None), None)
        case Call("concat", arguments):
            parts = [evaluate(each, facts, tables) for each in arguments]
            return "".join(parts) if all(type(part) is str for part in parts) else None
        case Call(function, (argument,)):
            value = evaluate(argument, facts, tables)
            return _bounded(_ONE_NUMBER[function](value)) if _is_finite(value) else None
    raise AssertionError(expression)


def _computed(operator: str, left: Any, right: Any) -> Any:
    if not (_is_number(left) and _is_number(right)):
        return None
    match operator:
        case "+":
            return _bounded(left + right)
        case "-":
            return _bounded(left - right)
        case "*":
            return _bounded(left * right)
    return _bounded(float(left) / float(right)) if right else None


def _bounded(value: int | float) -> int | float | None:
    if type(value) is int:
        return value if INT_MIN <= value <= INT_MAX else None
    return None if math.isnan(value) else value


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _is_finite(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value)


def _rounded(value: int | float) -> int:
    """To the nearest integer, halves away from zero, by the shortest decimal form of a float."""
    return int(Decimal(repr(value)).to_integral_value(ROUND_HALF_UP))


_ONE_NUMBER: Final[dict[str, Callable[[Any], Any]]] = {
    "round": _rounded,
    "floor": math.floor,
    "ceil": math.ceil,
    "abs": abs,
}
