"""Moments from which on history is wanted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from stentor.errors import InvalidValue


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
        return max(0.0, (datetime.now(UTC) - since).timestamp())
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
            f"since={since!r} is no time; write it as in '2026-01-01T00:00:00Z', or 'earliest'"
        ) from None
    if moment.utcoffset() is None:
        raise InvalidValue(
            f"since={since!r} has no time zone; append Z for UTC, or an offset such as +01:00"
        )
    return max(0.0, moment.timestamp())
