"""Sweeps (02/5.12): the share of equality tests, and how many filters share a test."""

from __future__ import annotations

from typing import Any, Final

from measure.shapes import race_index
from profiles import Profile
from progress import progress
from workloads import blend

EQUALITY: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
SHARING: Final = (0.0, 0.5, 0.95)
#: What the other sweep keeps fixed.
SOME_EQUALITY: Final = 0.5


def mixes() -> list[tuple[float, float]]:
    """Shares of equality and of sharing, each mix once."""
    along = [(equality, 0.0) for equality in EQUALITY]
    return along + [(SOME_EQUALITY, sharing) for sharing in SHARING if sharing]


def measure_sweep(profile: Profile) -> list[dict[str, Any]]:
    """The whole table."""
    rows = []
    for equality, sharing in mixes():
        progress(f"sweep: {equality:.0%} equality tests, {sharing:.0%} shared")
        rows.append(measure_mix(equality, sharing, profile))
    return rows


def measure_mix(equality: float, sharing: float, profile: Profile) -> dict[str, Any]:
    """One row of the table."""
    filters = profile.sweep_filters
    workload = blend(filters, profile.sweep_events, equality=equality, sharing=sharing)
    return {
        "equality": equality,
        "sharing": sharing,
        "filters": filters,
        **race_index(workload, profile, ("BruteForce", "Counting")),
    }
