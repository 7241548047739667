"""Moments as users write them: times, and durations that mean so long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from stentor.client.times import since_seconds
from stentor.errors import InvalidValue, PipelineDefinitionError
from stentor.filters import Filter
from stentor.pipeline.steps.durations import microseconds

#: A time with its zone, as a datetime or in ISO 8601; or for how long before now: a timedelta, or a
#: text such as "2 hours", "1h 30m".
Moment: TypeAlias = str | datetime | timedelta

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(name: str, value: Moment | None) -> datetime | None:
    """The time that an argument of this name means, in UTC; None if it sets no bound.

    >>> moment("since", "2026-01-01T01:00:00+01:00")
    datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    >>> moment("since", "earliest") is None
    True
    """
    if value is None or value == "earliest":
        return None
    if isinstance(value, str):
        ago = duration(value)
        value = value if ago is None else ago
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return value.astimezone(UTC)
    try:
        return EPOCH + timedelta(seconds=since_seconds(value))
    except InvalidValue as error:
        raise InvalidValue(str(error).replace("since=", f"{name}=", 1)) from None


def duration(text: str) -> timedelta | None:
    """A duration in words; None if it is none.

    >>> duration("2 hours"), duration("1h 30m"), duration("soon")
    (datetime.timedelta(seconds=7200), datetime.timedelta(seconds=5400), None)
    """
    try:
        return timedelta(microseconds=microseconds(text))
    except PipelineDefinitionError:
        return None


def micros(when: datetime) -> int:
    """Microseconds since 1970."""
    return (when - EPOCH) // timedelta(microseconds=1)


def from_micros(value: int) -> datetime:
    """The time so many microseconds after 1970."""
    return EPOCH + timedelta(microseconds=value)


def during(since: datetime | None, until: datetime | None) -> Filter:
    """The filter for events of these times.

    >>> print(during(datetime.fromisoformat("2026-01-01T00:00:00Z"), None))
    _time >= time '2026-01-01T00:00:00Z'
    """
    conditions = []
    if since is not None:
        conditions.append(f"_time >= time {_quoted(since)}")
    if until is not None:
        conditions.append(f"_time < time {_quoted(until)}")
    return Filter(" and ".join(conditions))


def _quoted(when: datetime) -> str:
    return f"'{when.isoformat().replace('+00:00', 'Z')}'"
