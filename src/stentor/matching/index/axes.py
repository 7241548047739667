"""Axes: how values become coordinates.

The index sees a notification as a point and a filter as a box. An *axis* is one coordinate of that
space: an attribute seen as one type of value. `price` as a number and `price` as a string are
different axes, so values of different types never meet. On an axis where a notification has no
value its coordinate is NaN, and no box contains NaN: a missing attribute satisfies nothing.

*Measured* axes (numbers, times, Booleans) use the value itself as a double. An integer beyond 2**53
shares a double with its neighbors, so no bound out there may lie on such an axis: it would take
some of them for others. Beyond 2**63 attributes hold no integers, and all is exact again.

*Ranked* axes (strings, byte strings, registered types) know only order. With the distinct constants
c0 < c1 < … of all filters on the axis, the constant ci has the coordinate 2i+1, and everything
between c(i-1) and ci has the coordinate 2i. Filters never tell such values apart. The ranks belong
to one segment of the index and are worked out when it is compiled; before that a bound is a cut.

    far        a number or a time, ranked: for bounds where doubles are too coarse to measure
    other      a value of a registered type
    head       the first letters of a string, so that a prefix of that length is an equality
    tail       the last letters, likewise for suffixes
    reverse    the string read backwards, so that a suffix is an interval, too
    present    1 if the attribute is there at all
    missing    1 if it is not
    typed      1 if it is there with one particular type (for tests that no box can express)
    token      elements of a collection, by equality
    part       texts that a string contains, for `contains`; see `substrings`
    element    conditions that an element of a list satisfies; see `elements`

The last three are different: a notification has several of them on one axis. They only lead to
boxes and never bound one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf, nextafter
from typing import Any, Final, NamedTuple

from stentor.filters.ranges import Piece

MEASURED: Final = frozenset(("number", "time", "bool"))
MULTIPLE: Final = frozenset(("token", "part", "element"))
#: Ways to see a string that differ from its own order.
OF_STRINGS: Final = frozenset(("head", "tail", "reverse"))
#: Ranked axes whose constants have an order that cannot fail, or need none.
PLAIN_ORDER: Final = MULTIPLE | OF_STRINGS | {"string", "bytes", "far"}
FLAGS: Final = frozenset(("present", "missing", "typed"))

#: Integers closer to zero than the first are exact as doubles, and so are their neighbors; there
#: are none further from it than the second.
NEAR: Final = 2**53
FAR: Final = 2**63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Axis(NamedTuple):
    """An attribute seen in one way.

    `detail` is the value type for `typed`, `far` and `other`, the number of letters for `head` and
    `tail`, else empty.
    """

    name: str
    kind: str
    detail: str = ""

    @property
    def ranked(self) -> bool:
        return self.kind not in MEASURED and self.kind not in FLAGS

    @property
    def value_type(self) -> str:
        """The type of the values that have a place on it; for all axes but `present`, `missing`."""
        return "string" if self.kind in OF_STRINGS else self.detail or self.kind


class Bound(NamedTuple):
    """A box on one axis: inside [low, high], or outside of it if `hole`.

    On measured axes the ends are doubles, both inclusive. On ranked axes they are cuts, and None
    stands for an open end; a point is given as the value twice, with `point` set.
    """

    axis: Axis
    low: Any
    high: Any
    hole: bool = False
    point: bool = False


def measured_ends(piece: Piece) -> tuple[float, float] | None:
    """An interval of numbers in doubles, both ends inclusive; None if these are too coarse."""
    low, high = -inf, inf
    if piece[0] is not None:
        value, side = piece[0]
        if NEAR <= value <= FAR or NEAR <= -value <= FAR:
            return None
        low = nextafter(value, inf) if side else float(value)
    if piece[1] is not None:
        value, side = piece[1]
        if NEAR <= value <= FAR or NEAR <= -value <= FAR:
            return None
        high = float(value) if side else nextafter(value, -inf)
    return low, high


def numeric_piece(kind: str, piece: Piece) -> Piece:
    """An interval on a measured axis between numbers."""
    if kind == "number":
        return piece
    low, high = piece
    return (
        low and (numeric(kind, low[0]), low[1]),
        high and (numeric(kind, high[0]) - (not high[1]), 1),  # these types have a value before
    )


def measure(kind: str, value: Any) -> float:
    """The coordinate of a value on a measured axis."""
    return float(numeric(kind, value))


def numeric(kind: str, value: Any) -> Any:
    """A value with a measured axis as a number, without loss: a time in microseconds."""
    if kind == "time":
        delta: timedelta = value - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return int(value) if kind == "bool" else value


def seen_on(axis: Axis, text: str) -> str | None:
    """What a string looks like on an axis of strings; None if it has no place there."""
    return all_seen_on(axis, [text])[0]


def all_seen_on(axis: Axis, texts: list[str | None]) -> list[str | None]:
    if axis.kind == "reverse":
        return [None if t is None else t[::-1] for t in texts]
    n = int(axis.detail)
    if axis.kind == "tail":
        return [None if t is None or len(t) < n else t[-n:] for t in texts]
    return [None if t is None or len(t) < n else t[:n] for t in texts]
