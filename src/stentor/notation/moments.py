"""Moments as people write them on a command line.

    10m, 2h 30m, 7d              so long ago, or from now on
    2 hours ago, in 5 minutes    the same, whichever was asked for
    now, today, yesterday        also with a time of day: yesterday 14:00
    14:00, monday 14:00          the last one, or the next
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
_WEEK: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
FORM: Final = (
    "write it as in 10m, yesterday 14:00, 2026-01-31 or 2026-01-31T14:00:00Z; without a zone it "
    "is local time"
)


def moment(text: str, *, ahead: bool = False, now: datetime | None = None) -> datetime:
    """The moment that is meant, in UTC. Durations and times of day lie in the past, or `ahead`.

    >>> noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    >>> for text in ("90m", "2 hours ago", "yesterday 14:00", "2026-01-01", "13:00"):
    ...     print(moment(text, now=noon).isoformat(" "))
    2026-01-02 10:30:00+00:00
    2026-01-02 10:00:00+00:00
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
    if text.lower().endswith(" ago"):
        text, ahead = text[:-4], False
    elif text.lower().startswith("in "):
        text, ahead = text[3:], True
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
    if day.lower() in _WEEK:
        date = now.date() + timedelta(days=_WEEK.index(day.lower()) - now.weekday())
        found = datetime.combine(date, _time(clock) if clock else time(), zone)
        return _on_the_side(found, now, ahead, timedelta(days=7))
    if _CLOCK.fullmatch(text):
        found = datetime.combine(now.date(), _time(text), zone)
        return _on_the_side(found, now, ahead, timedelta(days=1))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidConfiguration(f"{text!r} is not a time; {FORM}") from None
    return found.replace(tzinfo=zone) if found.tzinfo is None and zone is not None else found


def _on_the_side(found: datetime, now: datetime, ahead: bool, period: timedelta) -> datetime:
    """The next of the moments that recur at this one, or the last."""
    local = now if found.tzinfo is not None else now.replace(tzinfo=None)
    if ahead and found <= local:
        return found + period
    return found - period if not ahead and found > local else found


def _time(clock: str) -> time:
    found = _CLOCK.fullmatch(clock.strip())
    if found is None:
        raise InvalidConfiguration(f"{clock!r} is not a time of day; write it as in 14:00")
    return time(int(found[1]), int(found[2]), int(found[3] or 0))
