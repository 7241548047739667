"""Comparisons between several attributes: evaluated, but outside the algebra (R-02.13).

`bid < ask` or `x + y = 5` relates terms over attributes. Such a comparison is identical only to
itself, covers nothing else, and may overlap anything. It is true only if both sides have a value
and the values are of one type: a missing attribute, a string in arithmetic, or a division by zero
leaves a side without a value. The negation swaps the operator, so it asks for the values too.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stentor.filters.expression import Arithmetic, Attribute, Compare, Constant, Term
from stentor.model.values import value_type, value_type_of

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}
#: Numbers of these classes need no closer look.
_NUMBERS: Final = frozenset({int, float})
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": op.add,
    "-": op.sub,
    "*": op.mul,
    "/": op.truediv,
}
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Residual:
    """A comparison that is tested on the notification itself."""

    compare: Compare

    def holds(self, facts: Mapping[str, Any]) -> bool:
        left = _value(self.compare.left, facts)
        right = _value(self.compare.right, facts)
        return compared(self.compare.operator, left, right)

    def negated(self) -> Residual:
        opposite = _OPPOSITE[self.compare.operator]
        return Residual(Compare(opposite, self.compare.left, self.compare.right))

    @property
    def names(self) -> frozenset[str]:
        """The attributes it needs."""
        return frozenset((*_names(self.compare.left), *_names(self.compare.right)))

    @property
    def arithmetic_names(self) -> frozenset[str]:
        """Those of them that must be numbers."""
        sides = (self.compare.left, self.compare.right)
        return frozenset(n for side in sides if isinstance(side, Arithmetic) for n in _names(side))


def compared(operator: str, left: Any, right: Any) -> bool:
    """`left operator right` for two values; false if one is missing, or they do not compare."""
    if left.__class__ in _NUMBERS and right.__class__ in _NUMBERS:
        return bool(_COMPARE[operator](left, right))
    if left is None or right is None:
        return False
    kind = value_type_of(left)
    if kind != value_type_of(right):
        return False
    if operator not in ("=", "!=") and not _ordered(kind):
        return False
    return bool(_COMPARE[operator](left, right))


def evaluate(operator: str, left: Any, right: Any) -> float | None:
    """`left operator right` for two numbers; None if it has no value."""
    if not (left.__class__ in _NUMBERS and right.__class__ in _NUMBERS) and not (
        value_type_of(left) == value_type_of(right) == "number"
    ):
        return None
    try:
        result = _ARITHMETIC[operator](left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    return None if result != result else result


def _value(term: Term, facts: Mapping[str, Any]) -> Any:
    if isinstance(term, Attribute):
        return facts.get(term.name)
    if isinstance(term, Constant):
        return term.value
    left = _value(term.left, facts)
    right = _value(term.right, facts)
    if left is None or right is None:
        return None
    return evaluate(term.operator, left, right)


def _names(term: Term) -> Iterator[str]:
    if isinstance(term, Attribute):
        yield term.name
    elif isinstance(term, Arithmetic):
        yield from _names(term.left)
        yield from _names(term.right)


def _ordered(kind: str) -> bool:
    return kind != "collection" and value_type(kind).ordered
