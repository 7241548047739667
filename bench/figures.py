"""Numbers as people read them."""

from __future__ import annotations


def rate(value: float) -> str:
    """
    >>> rate(1_153_000), rate(120_400), rate(97.3), rate(2.345)
    ('1.15 M', '120 k', '97.3', '2.35')
    """
    for unit, size in ((" M", 1e6), (" k", 1e3)):
        if value >= size:
            return f"{_three(value / size)}{unit}"
    return _three(value)


def times(value: float) -> str:
    """A ratio.

    >>> times(3.14159), times(1234.5)
    ('3.14×', '1,234×')
    """
    return f"{_three(value)}×"


def duration(microseconds: float) -> str:
    """
    >>> duration(8.25), duration(4_211), duration(2_500_000)
    ('8.25 µs', '4.21 ms', '2.50 s')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{_three(microseconds / size)} {unit}"
    return f"{_three(microseconds)} µs"


def seconds(value: float | None) -> str:
    return "–" if value is None else duration(1e6 * value)


def size(value: float | None) -> str:
    """
    >>> size(52_428_800), size(1_500), size(None)
    ('50.0 MB', '1.46 kB', '–')
    """
    if value is None:
        return "–"
    for unit, scale in (("GB", 2**30), ("MB", 2**20)):
        if value >= scale:
            return f"{_three(value / scale)} {unit}"
    return f"{_three(value / 2**10)} kB"


def _three(value: float) -> str:
    """Three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
