"""How much of the pipeline to measure: two minutes, five, or ten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What a run consists of.
PARTS: Final = ("match", "journal", "archive")


@dataclass(frozen=True)
class Profile:
    """Numbers of repeats, rows and filters."""

    name: str
    #: Every way is run so often, in turns with the others.
    repeats: int
    rows: int
    filters: int


QUICK: Final = Profile(name="quick", repeats=3, rows=200_000, filters=10_000)
DEFAULT: Final = Profile(name="default", repeats=5, rows=500_000, filters=10_000)
FULL: Final = Profile(name="full", repeats=5, rows=1_000_000, filters=100_000)
PROFILES: Final = {profile.name: profile for profile in (QUICK, DEFAULT, FULL)}
