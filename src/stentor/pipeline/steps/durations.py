"""Lengths of time as people write them in pipelines: "10 seconds", "1 hour 30 minutes", "90s".

Spark has its own text form of intervals, which also knows months, signs and more that have no
meaning for a delay or a window. A length of time here is positive and has no calendar in it, and it
is checked before Spark is started.
"""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Final, TypeAlias

from stentor.errors import PipelineDefinitionError
from stentor.notation.units import exact_duration

#: What steps take for a length of time.
Duration: TypeAlias = str | timedelta

#: Longer than anybody waits, and far from what overflows.
_MOST: Final = 36_525 * 86_400_000_000

#: For messages and help.
DURATION_FORM: Final = 'a length of time such as "10 seconds", "5m" or "1 hour 30 minutes"'


def microseconds(duration: Duration) -> int:
    """How long that is; `PipelineDefinitionError` if it is no length of time.

    >>> microseconds("1 hour 30 minutes") == microseconds("90m") == 5_400_000_000
    True
    """
    seconds: Fraction | None = None
    if isinstance(duration, timedelta):
        seconds = Fraction(duration // timedelta(microseconds=1), 1_000_000)
    elif isinstance(duration, str):
        seconds = exact_duration(duration)
    if seconds is None:
        raise PipelineDefinitionError(f"{duration!r} is not {DURATION_FORM}")
    total = seconds * 1_000_000
    if not 0 < total <= _MOST:
        raise PipelineDefinitionError(
            f"{str(duration)!r} is not a length of time to work with; it must be more than nothing "
            "and at most 100 years"
        )
    if total.denominator != 1:
        raise PipelineDefinitionError(f"{duration!r} is finer than a microsecond")
    return int(total)


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
