"""Indexed attributes as axes: values become cells, constraints become ranges of cells.

A rendezvous mapping looks at a few attributes whose domains are declared beforehand. `Axis` lays
the declared domain of one attribute on a line and divides it into equal cells. Everything that the
mappings rely on is one property, *monotony*: a greater value never lies in a lower cell. It makes
every interval of values an interval of cells, so a constraint can be carried as ranges of cells
such that each value it accepts lies in one of them. The other direction is not needed: filters are
tested exactly wherever notifications meet them, so cells may be as coarse as one likes (07/T-15).

How each kind of value and constraint is laid on the line:

  - Numbers, and times as microseconds, lie where they lie; the arithmetic is exact.
  - A string lies where its first bytes put it, read as the digits of a fraction. That is the order
    of strings, so comparisons and `prefix` are ranges.
  - What lies outside of the declared domain is moved to its nearer end.
  - A constraint without the form of a range (`suffix`, `contains`, most regular expressions) is
    widened to a range around it, at worst to the whole axis.
  - A value of another type lies in cell 0. A constraint that accepts any such value is widened to
    the whole axis, so the two meet.

Absence is not on the line. `Constraint.absent` tells who accepts it, and a mapping has to decide.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isinf
from typing import Any, Final

from stentor.errors import InvalidConfiguration
from stentor.filters.collection import CollectionSet
from stentor.filters.constraint import Constraint
from stentor.filters.domains import Cut
from stentor.filters.ranges import Ranges
from stentor.filters.records import Records
from stentor.model.values import normal, value_type_of

#: First and last cell of a range.
Span = tuple[int, int]

#: Bytes of a string that decide where it lies.
_DIGITS: Final = 8
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Axis:
    """An indexed attribute and its declared domain, from low to high: numbers, strings or times.

    >>> from stentor.filters import Filter
    >>> price = Axis("price", 0, 100)
    >>> price.cell(50, cells=4), price.cell(1_000, cells=4)
    (2, 3)
    >>> constraint = Filter("price < 50 or price = 80").conjuncts[0].constraints["price"]
    >>> price.spans(constraint, cells=4)
    [(0, 1), (3, 3)]
    """

    __slots__ = ("_base", "_extent", "high", "low", "name", "type")

    def __init__(self, name: str, low: Any, high: Any) -> None:
        self.name = name
        self.low, self.high = normal(low), normal(high)
        #: The value type of the domain.
        self.type = value_type_of(self.low)
        if self.type not in ("number", "string", "time") or value_type_of(self.high) != self.type:
            raise InvalidConfiguration(
                f"the domain of {name!r} goes from {low!r} to {high!r}; "
                "give two numbers, two strings or two times"
            )
        if _is_infinite(self.low) or _is_infinite(self.high):
            raise InvalidConfiguration(f"the domain of {name!r} is infinite; give finite ends")
        n, d = _ratio(self.low)
        m, e = _ratio(self.high)
        #: The fractions low and high - low.
        self._base = (n, d)
        self._extent = (m * d - n * e, d * e)
        if self._extent[0] <= 0:
            raise InvalidConfiguration(
                f"the domain of {name!r} goes from {low!r} to {high!r}; "
                f"the first must be less than the second"
                + (f", within {_DIGITS} bytes" if self.type == "string" else "")
            )

    def cell(self, value: Any, cells: int) -> int:
        """The cell of a value, out of so many on the axis."""
        if value_type_of(value) != self.type:
            return 0
        return self._clamped(value, cells)

    def spans(self, constraint: Constraint, cells: int) -> list[Span]:
        """The cells of each interval of values that the constraint accepts, in order.

        Two intervals with a gap that is smaller than a cell have a cell in common.
        """
        if constraint.rest or any(name != self.type for name, _ in constraint.parts):
            return [(0, cells - 1)]
        spans: list[Span] = []
        for _, part in constraint.parts:
            assert not isinstance(part, CollectionSet | Records)  # that would be another type
            for low, high in (part if isinstance(part, Ranges) else part.bounds).pieces:
                first = 0 if low is None else self._clamped(low[0], cells)
                spans.append((first, cells - 1 if high is None else self._last(high, cells)))
        return spans

    def _last(self, cut: Cut, cells: int) -> int:
        """The last cell with a value below the cut."""
        value, side = cut
        # Strings that differ only behind the digits that count lie in one place, so not even
        # those below a long string lie below its place.
        exact = self.type != "string" or len(value.encode()) <= _DIGITS
        return self._clamped(value, cells, before=exact and side == 0)

    def _clamped(self, value: Any, cells: int, *, before: bool = False) -> int:
        """The cell where the value lies, or the last one that begins before it."""
        if _is_infinite(value):
            return cells - 1 if value > 0 else 0
        n, d = _ratio(value)
        base, base_d = self._base
        extent, extent_d = self._extent
        numerator = (n * base_d - base * d) * extent_d * cells
        denominator = d * base_d * extent
        cell = -(-numerator // denominator) - 1 if before else numerator // denominator
        return min(max(cell, 0), cells - 1)

    def __repr__(self) -> str:
        return f"Axis({self.name!r}, {self.low!r}, {self.high!r})"


def _is_infinite(value: Any) -> bool:
    return type(value) is float and isinf(value)


def _ratio(value: Any) -> tuple[int, int]:
    """Where a finite value lies, as an exact fraction with a positive denominator."""
    if isinstance(value, str):
        digits = value.encode()[:_DIGITS]
        return int.from_bytes(digits), 1 << 8 * len(digits)
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND, 1
    ratio: tuple[int, int] = value.as_integer_ratio()
    return ratio
