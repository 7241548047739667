"""Lengths of time as people write them in pipelines: "10 seconds", "1 hour 30 minutes", "90s".

Spark has its own text form of intervals, which also knows months, signs and more that have no
meaning for a delay or a window. A length of time here is positive and has no calendar in it, and it
is checked before Spark is started.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import Final, TypeAlias

from stentor.errors import PipelineDefinitionError

#: What steps take for a length of time.
Duration: TypeAlias = str | timedelta

_NAMES: Final = {
    1: ("us", "microsecond", "microseconds"),
    1_000: ("ms", "millisecond", "milliseconds"),
    1_000_000: ("s", "sec", "secs", "second", "seconds"),
    60_000_000: ("m", "min", "mins", "minute", "minutes"),
    3_600_000_000: ("h", "hour", "hours"),
    86_400_000_000: ("d", "day", "days"),
    604_800_000_000: ("w", "week", "weeks"),
}
_MICROSECONDS: Final = {name: size for size, names in _NAMES.items() for name in names}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.ASCII | re.IGNORECASE)
#: Longer than anybody waits, and far from what overflows.
_MOST: Final = 36_525 * 86_400_000_000

#: For messages and help.
DURATION_FORM: Final = 'a length of time such as "10 seconds", "5m" or "1 hour 30 minutes"'


def microseconds(duration: Duration) -> int:
    """How long that is; `PipelineDefinitionError` if it is no length of time.

    >>> microseconds("1 hour 30 minutes") == microseconds("90m") == 5_400_000_000
    True
    """
    if isinstance(duration, timedelta):
        total = Fraction(duration // timedelta(microseconds=1))
    elif isinstance(duration, str):
        total = _parsed(duration)
    else:
        raise PipelineDefinitionError(f"{duration!r} is not {DURATION_FORM}")
    if not 0 < total <= _MOST:
        raise PipelineDefinitionError(
            f"{str(duration)!r} is no length of time to work with; it must be more than nothing "
            "and at most 100 years"
        )
    if total.denominator != 1:
        raise PipelineDefinitionError(f"{duration!r} is finer than a microsecond")
    return int(total)


def _parsed(text: str) -> Fraction:
    total = Fraction(0)
    position = 0
    while match := _PART.match(text, position):
        unit = _MICROSECONDS.get(match[2].lower())
        if unit is None:
            break
        total += Fraction(match[1]) * unit
        position = match.end()
    if position == 0 or position != len(text) or text.rstrip().endswith(","):
        raise PipelineDefinitionError(f"{text!r} is not {DURATION_FORM}")
    return total


def interval(duration: Duration) -> str:
    """The same as Spark writes it.

    >>> interval("1h 30m"), interval("250ms")
    ('5400 seconds', '250 milliseconds')
    """
    length = microseconds(duration)
    for size, name in ((1_000_000, "seconds"), (1_000, "milliseconds")):
        if length % size == 0:
            return f"{length // size} {name}"
    return f"{length} microseconds"
