"""Moments as people write them on a command line."""

from datetime import UTC, datetime

import pytest

from stentor.errors import InvalidConfiguration
from stentor.notation.moments import moment

#: A Thursday.
NOW = datetime(2026, 11, 19, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "behind", "ahead"),
    [
        ("10m", "11-19 14:50", "11-19 15:10"),
        ("2 hours ago", "11-19 13:00", "11-19 13:00"),
        ("in 5 minutes", "11-19 15:05", "11-19 15:05"),
        ("now", "11-19 15:00", "11-19 15:00"),
        ("today", "11-19 00:00", "11-19 00:00"),
        ("yesterday 14:00", "11-18 14:00", "11-18 14:00"),
        ("14:00", "11-19 14:00", "11-20 14:00"),
        ("Monday", "11-16 00:00", "11-23 00:00"),
        ("thursday 14:00", "11-19 14:00", "11-26 14:00"),
        ("thursday 16:00", "11-12 16:00", "11-19 16:00"),
        ("2026-11-17", "11-17 00:00", "11-17 00:00"),
    ],
)
def test_what_is_meant(text: str, behind: str, ahead: str) -> None:
    for expected, is_ahead in ((behind, False), (ahead, True)):
        found = moment(text, ahead=is_ahead, now=NOW)
        assert found.strftime("%m-%d %H:%M") == expected


@pytest.mark.parametrize("text", ["ago", "2 ago", "in", "monday x", "soonish", ""])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match="not a time"):
        moment(text, now=NOW)
