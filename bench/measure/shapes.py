"""The other workloads: how many times faster than testing every filter.

Each is measured with a number of filters and with a tenth of it. If cost follows the matches and
not the filters held, then ten times the filters cost about ten times as much only where
there are ten times the matches.
"""

from __future__ import annotations

from typing import Any, Final

from engines import Engine, filled, parsed
from measure.clock import race
from measure.throughput import rates, time_slow
from profiles import Profile
from progress import progress
from workloads import SHAPES, Workload

#: Filters at most where making one takes long: a regular expression becomes an automaton.
FILTERS_AT_MOST: Final = {"regexes": 2_000}


def measure_shapes(profile: Profile) -> list[dict[str, Any]]:
    """The whole table."""
    rows = []
    for name in SHAPES:
        progress(f"workload: {name}")
        rows.append(measure_shape(name, profile))
    return rows


def measure_shape(name: str, profile: Profile) -> dict[str, Any]:
    """One row of the table."""
    filters = min(profile.shape_filters, FILTERS_AT_MOST.get(name, profile.shape_filters))
    workload = SHAPES[name](filters, profile.shape_events)
    fewer = SHAPES[name](filters // 10, profile.shape_events)
    few = race_index(fewer, profile, ())
    many = race_index(workload, profile, ("BruteForce", "Counting"))
    index, brute = many["engines"]["Index"], many["engines"]["BruteForce"]
    return {
        "name": name,
        "about": workload.about,
        "filters": filters,
        **many,
        "speedup": index["events_per_s"] / brute["events_per_s"],
        "tenth": few["engines"]["Index"],
    }


def race_index(workload: Workload, profile: Profile, others: tuple[str, ...]) -> dict[str, Any]:
    """The index, and slower engines on as many events as they finish."""
    filters = parsed(workload)
    index = filled("Index", filters)
    found = index.match_batch(workload.batch)
    best = race({"Index": lambda: index.match_batch(workload.batch)}, profile.slow_budget / 2)
    engines = {"Index": rates(len(workload.events), len(found[0]), best["Index"])}
    slow: dict[str, Engine] = {name: filled(name, filters) for name in others}
    engines |= time_slow(slow, workload, found, profile.slow_budget)
    result: dict[str, Any] = {
        "matches_per_event": len(found[0]) / len(workload.events),
        "engines": engines,
    }
    for engine in slow.values():
        if hasattr(engine, "predicate_count"):
            result["predicates"] = engine.predicate_count
    return result
