"""Null as a value, for whoever needs to tell it from an attribute that is not there.

None leaves an attribute out. `NULL` is a value of a type of its own: it equals nothing but itself,
has no order, and only `x is null` asks for it.
"""

from __future__ import annotations

from typing import Final, final


@final
class Null:
    """The type of `NULL`, which is its only value."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "NULL"

    def __reduce__(self) -> str:
        return "NULL"

    def __copy__(self) -> Null:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Null:
        return self


NULL: Final = Null()
