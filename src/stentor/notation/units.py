"""Durations and sizes as people write them: "30s", "1h 30m", "2 hours"; "512 KiB", "10 GB".

A duration is a number with a unit, or several from the largest to the smallest; a plain number is
seconds. A size is a number with a unit, where KiB, MiB, ... are powers of 1024 and kB, MB, ...
powers of 1000; a plain number is bytes. Both are written back in a form that reads as the same.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

from stentor.errors import InvalidConfiguration

_NAMES: Final = {
    Fraction(604_800): ("w", "week", "weeks"),
    Fraction(86_400): ("d", "day", "days"),
    Fraction(3_600): ("h", "hour", "hours"),
    Fraction(60): ("m", "min", "mins", "minute", "minutes"),
    Fraction(1): ("s", "sec", "secs", "second", "seconds"),
    Fraction(1, 1_000): ("ms", "millisecond", "milliseconds"),
    Fraction(1, 1_000_000): ("us", "microsecond", "microseconds"),
}
_SECONDS: Final = {name: seconds for seconds, names in _NAMES.items() for name in names}
_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
_NUMBER: Final = r"(?:\d+(?:\.\d*)?|\.\d+)"
_PART: Final = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)\s*(,?)", re.ASCII | re.IGNORECASE)
_SIZE: Final = re.compile(rf"\s*({_NUMBER})\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)
_PLAIN: Final = re.compile(rf"\s*{_NUMBER}(?:e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)

#: For messages and help.
DURATION_FORM: Final = 'a duration such as "500ms", "30s", "1h 30m" or "7d"; a number is seconds'
SIZE_FORM: Final = 'a size such as "512 KiB", "16 MiB" or "10 GB"; a number is bytes'


def parse_duration(text: str) -> float:
    """Seconds.

    >>> parse_duration("30s"), parse_duration("1h 30m"), parse_duration("2 days")
    (30.0, 5400.0, 172800.0)
    >>> parse_duration("2.5")
    2.5
    """
    if _PLAIN.fullmatch(text):
        return _finite(float(text), text)
    seconds = exact_duration(text)
    if seconds is None:
        raise InvalidConfiguration(f"{text!r} is not {DURATION_FORM}")
    try:
        return float(seconds)
    except OverflowError:
        return _finite(math.inf, text)


def seconds_of(duration: str | float | timedelta, what: str) -> float:
    """Seconds, of what an application calls a duration.

    >>> seconds_of("1m 30s", "delay"), seconds_of(2, "delay"), seconds_of(timedelta(hours=1), "x")
    (90.0, 2.0, 3600.0)
    """
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        seconds = parse_duration(duration)
    else:
        seconds = float(duration)
    if not 0 <= seconds < float("inf"):
        raise InvalidConfiguration(f"{what}={duration!r} is not a time to wait; give a duration")
    return seconds


def exact_duration(text: str) -> Fraction | None:
    """Seconds, of numbers with units; None if it is something else.

    >>> exact_duration("1 hour, 30 minutes"), exact_duration("250 us"), exact_duration("soon")
    (Fraction(5400, 1), Fraction(1, 4000), None)
    """
    seconds, last = Fraction(0), None
    position = 0
    more = True
    while more or position < len(text):
        match = _PART.match(text, position)
        unit = None if match is None else _SECONDS.get(match[2].lower())
        if match is None or unit is None or (last is not None and unit >= last):
            return None
        seconds += Fraction(match[1]) * unit
        last = unit
        position = match.end()
        more = bool(match[3])
    return seconds


def _finite(value: float, text: str) -> float:
    if not math.isfinite(value):
        raise InvalidConfiguration(f"{text!r} is too large")
    return value


def format_duration(seconds: float) -> str:
    """The shortest exact form of whole seconds, else seconds with a fraction.

    >>> format_duration(604800.0), format_duration(5400.0), format_duration(0.5)
    ('7d', '1h 30m', '0.5s')
    """
    if seconds < 0 or seconds != int(seconds) or seconds == 0 or seconds >= 2**53:
        # 17 digits at most, and no exponent: the parts of a duration have none.
        text = format(seconds, "f") if float(format(seconds, "f")) == seconds else repr(seconds)
        text = text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
        return text if "e" in text else f"{text}s"
    parts = []
    rest = int(seconds)
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_SECONDS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)


def parse_size(text: str) -> int:
    """Bytes.

    >>> parse_size("10 GiB") == 10 * 2**30, parse_size("1.5kB"), parse_size("4096")
    (True, 1500, 4096)
    """
    match = _SIZE.fullmatch(text)
    factor = None if match is None else _BYTES.get(match[2].lower())
    if match is None or factor is None:
        raise InvalidConfiguration(f"{text!r} is not {SIZE_FORM}")
    number = match[1]
    size = int(number) * factor if number.isdigit() else _finite(float(number) * factor, text)
    if size != int(size):
        raise InvalidConfiguration(f"{text!r} is not a whole number of bytes")
    return int(size)


def format_size(size: int) -> str:
    """The largest binary unit in which the size is whole.

    >>> format_size(10 * 2**30), format_size(1500)
    ('10 GiB', '1500 B')
    """
    for letter in "TGMK":
        factor = _BYTES[f"{letter.lower()}ib"]
        if size and size % factor == 0:
            return f"{size // factor} {letter}iB"
    return f"{size} B"


def short_size(size: float) -> str:
    """For reading, in three digits.

    >>> short_size(812), short_size(1_300_000), short_size(10 * 2**30)
    ('812 B', '1.24 MiB', '10.0 GiB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 999.5 or unit == "TiB":
            break
        value /= 1024
    if unit == "B" or abs(value) >= 99.95:
        return f"{value:.0f} {unit}"
    return f"{value:.1f} {unit}" if abs(value) >= 9.995 else f"{value:.2f} {unit}"
