"""How much to measure: about one minute, five to ten, or as long as a million filters take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What a run consists of.
PARTS: Final = ("stock", "shapes", "sweep", "tuples", "lists")


@dataclass(frozen=True)
class Profile:
    """Sizes are numbers of filters, budgets are seconds."""

    name: str
    #: The stock workload.
    sizes: tuple[int, ...]
    #: Largest number of filters that BruteForce and Counting are given.
    slow_engines_up_to: int
    race_budget: float
    slow_budget: float
    latency_events: int
    updates: int
    #: The other workloads, and the sweeps.
    shape_filters: int
    shape_events: int
    sweep_filters: int
    sweep_events: int


QUICK: Final = Profile(
    name="quick",
    sizes=(1_000, 10_000),
    slow_engines_up_to=10_000,
    race_budget=1.5,
    slow_budget=0.4,
    latency_events=500,
    updates=2_000,
    shape_filters=1_000,
    shape_events=1_000,
    sweep_filters=500,
    sweep_events=500,
)
DEFAULT: Final = Profile(
    name="default",
    sizes=(1_000, 10_000, 100_000),
    slow_engines_up_to=100_000,
    race_budget=8.0,
    slow_budget=2.0,
    latency_events=2_000,
    updates=20_000,
    shape_filters=10_000,
    shape_events=5_000,
    sweep_filters=5_000,
    sweep_events=2_000,
)
FULL: Final = Profile(
    name="full",
    sizes=(1_000, 10_000, 100_000, 1_000_000),
    slow_engines_up_to=100_000,
    race_budget=20.0,
    slow_budget=3.0,
    latency_events=5_000,
    updates=20_000,
    shape_filters=10_000,
    shape_events=5_000,
    sweep_filters=10_000,
    sweep_events=2_000,
)
PROFILES: Final = {profile.name: profile for profile in (QUICK, DEFAULT, FULL)}
