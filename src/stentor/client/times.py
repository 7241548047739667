"""Moments that applications name: from which on history is wanted, when something is due."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from stentor.client.encoding import utc_now
from stentor.errors import InvalidConfiguration, InvalidValue
from stentor.notation.units import seconds_of


def since_seconds(since: str | datetime | timedelta) -> float:
    """Seconds since 1970 in UTC; 0 for "earliest".

    A text in ISO 8601 or a datetime, both with their time zone; or a timedelta, for so long ago.

    >>> since_seconds("1970-01-01T00:01:00Z"), since_seconds("earliest")
    (60.0, 0.0)
    >>> since_seconds("2026-01-01T00:00:00")
    Traceback (most recent call last):
    ...
    stentor.errors.InvalidValue: since='2026-01-01T00:00:00' has no time zone; append Z for UTC, ...
    """
    if isinstance(since, timedelta):
        if since < timedelta(0):
            raise InvalidValue(f"since={since!r} lies in the future; give a positive duration")
        return max(0.0, (utc_now() - since).timestamp())
    if isinstance(since, datetime):
        if since.utcoffset() is None:
            raise InvalidValue(f"since={since!r} has no time zone; give it one, such as UTC")
        return max(0.0, since.timestamp())
    if not isinstance(since, str):
        kind = type(since).__name__  # type: ignore[unreachable]
        raise InvalidValue(
            f"since={since!r} is a {kind}; give an ISO time such as '2026-01-01T00:00:00Z', "
            "a datetime with a time zone, a timedelta for so long ago, or 'earliest'"
        )
    if since == "earliest":
        return 0.0
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise InvalidValue(
            f"since={since!r} is not a time; write it as in '2026-01-01T00:00:00Z', or 'earliest'"
        ) from None
    if moment.utcoffset() is None:
        raise InvalidValue(
            f"since={since!r} has no time zone; append Z for UTC, or an offset such as +01:00"
        )
    return max(0.0, moment.timestamp())


def moment_of(value: str | float | timedelta | datetime, what: str, now: datetime) -> datetime:
    """A moment: a datetime or a text in ISO 8601, with a time zone; or so long after `now`.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> moment_of("1h", "expires", noon).hour, moment_of("2026-01-02T00:00:00Z", "x", noon).day
    (13, 2)
    """
    if isinstance(value, str):
        with suppress(ValueError):  # then it is a duration, or nothing
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        try:
            return now + timedelta(seconds=seconds_of(value, what))
        except (InvalidConfiguration, OverflowError, TypeError, ValueError) as error:
            raise InvalidValue(
                f"{what}={value!r} is not a moment; give a duration such as '10m', a datetime, or "
                "a text such as '2026-01-01T00:00:00Z'"
            ) from error
    if value.utcoffset() is None:
        raise InvalidValue(f"{what}={value!r} has no time zone; give it one, such as UTC")
    return value.astimezone(UTC)


def resolve(parts: dict[str, Any], now: datetime) -> None:
    """Make moments of what an application has said about when to deliver, and until when.

    A duration until it expires begins when it may be delivered.
    """
    deliver_at, expires = parts.get("deliver_at"), parts.get("expires")
    if deliver_at is not None:
        parts["deliver_at"] = moment_of(deliver_at, "deliver_at", now)
        now = max(now, parts["deliver_at"])
    if expires is not None:
        parts["expires"] = moment_of(expires, "expires", now)
