"""Operators that users register: what one is, and what its uses can say about each other.

A use of a registered operator is a test on a value, a leaf of a `Tested` set. Operators travel
between processes by name, so they must be registered wherever their filters go. `operators` decides
which names may be registered and puts them beside those of the language.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stentor.errors import FilterTypeError

Constants = tuple[Any, ...]


@dataclass(frozen=True)
class Operator:
    """A registered operator: `holds(value, *constants)`, for values of one type.

    What it can say about two of its own uses is optional: `covers(mine, theirs)` and
    `overlaps(mine, theirs)` compare two tuples of constants, `merge(mine, theirs)` gives the
    constants of an exact merger or None. Without `merge` filters are never merged on it, without
    `covers` only equal ones cover each other, without `overlaps` any two overlap, and constants
    that cannot be hashed are equal only to themselves (R-07.22). `constants` gets the constants of
    a filter and gives them in the form that the others are to see, one for each meaning; it raises
    `FilterTypeError` where they make no sense.
    """

    name: str
    value_type: str
    holds: Callable[..., bool]
    covers: Callable[[Constants, Constants], bool] | None = None
    overlaps: Callable[[Constants, Constants], bool] | None = None
    merge: Callable[[Constants, Constants], Constants | None] | None = None
    constants: Callable[..., Constants] | None = None


#: By name; filled by `operators.register_operator`.
registered: dict[str, Operator] = {}


class CustomTest:
    """A use of a registered operator: a leaf of a `Tested` set."""

    __slots__ = ("constants", "operator")

    def __init__(self, operator: Operator, constants: Constants) -> None:
        self.operator = operator
        self.constants = constants

    def matches(self, value: Any) -> bool:
        return bool(self.operator.holds(value, *self.constants))

    def covers(self, other: CustomTest) -> bool | None:
        return self._ask(self.operator.covers, other)

    def overlaps(self, other: CustomTest) -> bool | None:
        return self._ask(self.operator.overlaps, other)

    def merged(self, other: CustomTest) -> CustomTest | None:
        merge = self.operator.merge
        if merge is None or self.operator != other.operator:
            return None
        constants = merge(self.constants, other.constants)
        return None if constants is None else CustomTest(self.operator, constants)

    def _ask(
        self, question: Callable[[Constants, Constants], bool] | None, other: CustomTest
    ) -> bool | None:
        if question is None or self.operator != other.operator:
            return None
        return question(self.constants, other.constants)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CustomTest):
            return NotImplemented
        if self is other:
            return True
        return (
            self._hashable
            and self.operator == other.operator
            and (self.constants == other.constants)
        )

    def __hash__(self) -> int:
        return hash((self.operator.name, self.constants)) if self._hashable else id(self)

    def __repr__(self) -> str:
        return f"{self.operator.name}{self.constants!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _custom_test, (self.operator.name, self.constants)

    @property
    def _hashable(self) -> bool:
        try:
            hash(self.constants)
        except TypeError:
            return False
        return True


def _custom_test(name: str, constants: Constants) -> CustomTest:
    """Operators travel by name: they must be registered wherever their filters go."""
    return CustomTest(registered_operator(name), constants)


def registered_operator(name: str) -> Operator:
    found = registered.get(name)
    if found is None:
        raise FilterTypeError(
            f"there is no operator {name!r}; see `register_operator` for adding one"
        )
    return found
