"""Moments as users write them: times, and durations that mean so long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from stentor.client.times import since_seconds
from stentor.errors import InvalidConfiguration, InvalidValue, PipelineDefinitionError
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
        said = str(error).replace("since=", f"{name}=", 1)
        hint = ", or for how long, as in '2 hours'" if said.endswith("'earliest'") else ""
        raise InvalidValue(said + hint) from None


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


class Between(NamedTuple):
    """Times in microseconds: from the first on, before the second; None is no bound."""

    since: int | None = None
    until: int | None = None

    @staticmethod
    def of(since: Moment | None, until: Moment | None = None) -> Between:
        """The times that arguments of these names mean; `InvalidConfiguration` if there are none.

        >>> print(Between.of("2026-01-01T00:00:00Z").filter)
        _time >= time '2026-01-01T00:00:00Z'
        """
        first, behind = moment("since", since), moment("until", until)
        if first is not None and behind is not None and first >= behind:
            raise InvalidConfiguration(f"since={since!r} is not before until={until!r}")
        return Between(*(None if when is None else micros(when) for when in (first, behind)))

    def meets(self, low: int, high: int) -> bool:
        """Whether some time from low to high is wanted."""
        return (self.since is None or high >= self.since) and (
            self.until is None or low < self.until
        )

    @property
    def filter(self) -> Filter:
        """The filter for events of these times."""
        bounds = [(">=", self.since), ("<", self.until)]
        return Filter(
            " and ".join(
                f"_time {operator} time '{from_micros(at).isoformat().replace('+00:00', 'Z')}'"
                for operator, at in bounds
                if at is not None
            )
        )


ALWAYS: Final = Between()
