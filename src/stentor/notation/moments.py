"""Moments as people write them on a command line.

    10m, 2h 30m, 7d              so long ago, or from now on
    now, today, yesterday        also with a time of day: yesterday 14:00
    14:00                        the last time it was that late, or the next
    2026-01-31                   the beginning of that day
    2026-01-31T14:00, 2026-01-31 14:00:00Z

What has no time zone is meant where the command runs.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from stentor.errors import InvalidConfiguration
from stentor.notation.units import exact_duration

_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
FORM: Final = (
    "write it as in 10m, yesterday 14:00, 2026-01-31 or 2026-01-31T14:00:00Z; without a zone it "
    "is local time"
)


def moment(text: str, *, ahead: bool = False, now: datetime | None = None) -> datetime:
    """The moment that is meant, in UTC. Durations and times of day lie in the past, or `ahead`.

    >>> noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    >>> for text in ("90m", "yesterday 14:00", "2026-01-01", "13:00"):
    ...     print(moment(text, now=noon).isoformat(" "))
    2026-01-02 10:30:00+00:00
    2026-01-01 14:00:00+00:00
    2026-01-01 00:00:00+00:00
    2026-01-01 13:00:00+00:00
    >>> moment("13:00", ahead=True, now=noon).isoformat(" ")
    '2026-01-02 13:00:00+00:00'
    """
    now = now or datetime.now().astimezone()
    found = _moment(text.strip(), ahead, now)
    try:
        # Local time may change its offset between then and now.
        found = found.astimezone() if found.tzinfo is None else found
        return found.astimezone(UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidConfiguration(f"{text!r} is too far away") from None


def _moment(text: str, ahead: bool, now: datetime) -> datetime:
    zone = now.tzinfo if now.tzinfo is UTC else None
    if text.lower() == "now":
        return now
    duration = exact_duration(text)
    if duration is not None:
        try:
            span = timedelta(seconds=float(duration))
            return now + span if ahead else now - span
        except OverflowError:
            raise InvalidConfiguration(f"{text!r} is too far away") from None
    day, _, clock = text.partition(" ")
    if day.lower() in _DAYS:
        date = now.date() + timedelta(days=_DAYS[day.lower()])
        return datetime.combine(date, _time(clock) if clock else time(), zone)
    if _CLOCK.fullmatch(text):
        found = datetime.combine(now.date(), _time(text), zone)
        local = now if zone is not None else now.replace(tzinfo=None)
        if ahead and found <= local:
            return found + timedelta(days=1)
        if not ahead and found > local:
            return found - timedelta(days=1)
        return found
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidConfiguration(f"{text!r} is not a time; {FORM}") from None
    return found.replace(tzinfo=zone) if found.tzinfo is None and zone is not None else found


def _time(clock: str) -> time:
    found = _CLOCK.fullmatch(clock.strip())
    if found is None:
        raise InvalidConfiguration(f"{clock!r} is not a time of day; write it as in 14:00")
    return time(int(found[1]), int(found[2]), int(found[3] or 0))
