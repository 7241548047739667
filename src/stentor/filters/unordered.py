"""Values as the sets of their type store them.

Sets of values are kept sorted. Values of a registered type without an order are given one here
that means nothing and serves only to find them: by hash, and by representation where hashes
collide. Equality stays that of the values. Hashes differ from process to process, so a set that
comes from another process is sorted again (see `Ranges`).
"""

from __future__ import annotations

from typing import Any

from stentor.model import values
from stentor.model.values import COLLECTION, RECORD

BUILT_IN = frozenset(("bool", "number", "string", "bytes", "time", COLLECTION, RECORD))


class Unordered:
    """A value of an unordered type."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Unordered) -> bool:
        mine, theirs = hash(self.value), hash(other.value)
        if mine != theirs:
            return mine < theirs
        return self.value != other.value and repr(self.value) < repr(other.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unordered) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __reduce__(self) -> tuple[type[Unordered], tuple[Any]]:
        return Unordered, (self.value,)


def comparable(type_name: str, value: Any) -> Any:
    """The value as the sets of its type store it."""
    if type_name in BUILT_IN or values.value_type(type_name).ordered:
        return value
    return Unordered(value)


def plain(stored: Any) -> Any:
    """The value behind what `comparable` gave."""
    return stored.value if type(stored) is Unordered else stored
