"""How much to measure: about a minute, a few minutes, or as long as 100,000 filters take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What a run consists of.
PARTS: Final = ("traffic", "locality", "changes", "survey", "replacement", "scale")


@dataclass(frozen=True)
class Profile:
    """Numbers of filters, notifications, brokers and runs."""

    name: str
    #: Subscriptions of the stock quotes' 150 clients, and publications of each population.
    stock_filters: int
    publications: int
    #: Filters held while single ones come and go, and how many of each do.
    sizes: tuple[int, ...]
    changes: int
    #: The networks of the survey.
    survey_brokers: int
    survey_events: int
    #: Seeds for each way to replace a link.
    replacements: int
    #: Brokers, clients and publications of whole networks.
    scale: tuple[tuple[int, int, int], ...]


QUICK: Final = Profile(
    name="quick",
    stock_filters=150,
    publications=100,
    sizes=(300, 1_000),
    changes=300,
    survey_brokers=24,
    survey_events=100,
    replacements=5,
    scale=((50, 500, 500),),
)
DEFAULT: Final = Profile(
    name="default",
    stock_filters=300,
    publications=300,
    sizes=(1_000, 10_000),
    changes=1_000,
    survey_brokers=48,
    survey_events=200,
    replacements=20,
    scale=((100, 1_000, 1_000),),
)
FULL: Final = Profile(
    name="full",
    stock_filters=450,
    publications=300,
    sizes=(1_000, 10_000, 100_000),
    changes=2_000,
    survey_brokers=48,
    survey_events=300,
    replacements=50,
    scale=((100, 1_000, 1_000), (400, 8_000, 10_000)),
)
PROFILES: Final = {profile.name: profile for profile in (QUICK, DEFAULT, FULL)}
