"""Interval timestamps and their two orders (R-06.03).

Clocks are uncertain, so an event happens somewhere within [low; high]. A composite event spans all
events that contributed to it. Two orders are defined on intervals. In the *strong* order one is
before another if they are disjoint; that is a partial order. The *weak* order compares the upper
ends, then the lower ones; it is total on intervals that differ. Strong order implies weak order.

Bounds are whole microseconds since 1970, so that sums and comparisons are exact everywhere.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final, NamedTuple

from stentor.errors import InvalidPattern, InvalidValue
from stentor.model import Notification
from stentor.notation.units import exact_duration

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
#: Later than every time that a notification can have.
END_OF_TIME: Final = 2**62

#: Attributes of a notification that say when it was more exactly than its time does.
START: Final = "composite.start"
END: Final = "composite.end"


class Interval(NamedTuple):
    """When something happened: between `low` and `high`, both included.

    >>> Interval(1, 2).strongly_before(Interval(3, 4)), Interval(1, 3).strongly_before((2, 4))
    (True, False)
    >>> Interval(1, 3).weakly_before(Interval(2, 4)), Interval(1, 2).weakly_before((1, 2))
    (True, False)
    """

    low: int
    high: int

    def strongly_before(self, other: tuple[int, int]) -> bool:
        """t1 < t2: the intervals are disjoint, and this one is the earlier."""
        return self.high < other[0]

    def weakly_before(self, other: tuple[int, int]) -> bool:
        """t1 ≺ t2: by the upper ends; where these are equal, by the lower ones."""
        return (self.high, self.low) < (other[1], other[0])

    def hull(self, other: tuple[int, int]) -> Interval:
        """The smallest interval that holds both."""
        return Interval(min(self.low, other[0]), max(self.high, other[1]))

    @property
    def start(self) -> datetime:
        return moment(self.low)

    @property
    def end(self) -> datetime:
        return moment(self.high)

    def __str__(self) -> str:
        first = self.start.isoformat()
        return f"[{first}]" if self.low == self.high else f"[{first}; {self.end.isoformat()}]"


def microseconds(time: datetime) -> int:
    """
    >>> microseconds(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return (time - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """The time that many microseconds after the beginning of 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def micros_of(duration: str | float | timedelta) -> int:
    """A positive duration in microseconds.

    >>> micros_of("1.5s"), micros_of(2), micros_of(timedelta(milliseconds=3))
    (1500000, 2000000, 3000)
    """
    try:
        if isinstance(duration, timedelta):
            exact: Fraction | None = Fraction(duration // _MICROSECOND, 1_000_000)
        elif isinstance(duration, str):
            exact = exact_duration(duration)
            exact = Fraction(duration.strip()) if exact is None else exact
        else:
            exact = Fraction(duration)
    except (ValueError, OverflowError, ZeroDivisionError):
        exact = None
    if exact is None or not 0 < round(exact * 1_000_000) < END_OF_TIME // 2:
        raise InvalidPattern(
            f"{duration!r} is not a duration that can be waited for; write 500ms, 30s, 1h 30m or 7d"
        )
    return round(exact * 1_000_000)


def interval_of(notification: Notification, uncertainty: int = 0) -> Interval:
    """When it happened, if its clock is wrong by at most so many microseconds.

    A notification that has the attributes `composite.start` and `composite.end`, as composite
    events have, says it itself.

    >>> n = Notification({"x": 1}, time=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    >>> interval_of(n, 5)
    Interval(low=999995, high=1000005)
    """
    return Interval(*bounds_of(notification, uncertainty))


def bounds_of(notification: Notification, uncertainty: int = 0) -> tuple[int, int]:
    """The same as a plain pair, which is quicker to make."""
    facts = notification.facts
    time = facts.get("_time")
    if time is not None and START not in facts:
        since = time - _EPOCH
        point = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return (point - uncertainty, point + uncertainty) if uncertainty else (point, point)
    if START not in facts:
        raise InvalidValue(
            "a notification without a time cannot take part in a pattern; give it one with "
            "Notification(..., time=...)"
        )
    start, end = facts[START], facts.get(END)
    if not (isinstance(start, datetime) and isinstance(end, datetime) and start <= end):
        raise InvalidValue(f"{START} and {END} of a notification are times, in this order")
    return microseconds(start), microseconds(end)
