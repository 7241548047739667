"""Runs the routing measurements one after the other and gathers what they give."""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any

from network.changes import measure_changes
from network.configurations import FILTERING
from network.locality import measure_locality
from network.profiles import Profile
from network.replacement import measure_replacement
from network.scale import measure_scale
from network.survey import measure_survey
from network.traffic import measure_traffic
from progress import progress
from suite import apart, machine


def run_routing(profile: Profile, parts: tuple[str, ...]) -> dict[str, Any]:
    """Everything that the profile asks for."""
    started = perf_counter()
    results: dict[str, Any] = {"profile": profile.name, "machine": machine()}
    if "traffic" in parts:
        results["traffic"] = apart(measure_traffic, profile)
    if "locality" in parts:
        results["locality"] = apart(measure_locality, profile)
    if "changes" in parts:
        results["changes"] = []
        for routing in FILTERING:
            for size in profile.sizes:
                progress(f"single changes, {routing}, {size:,} filters held")
                row = apart(measure_changes, routing, size, profile.changes)
                results["changes"].append(row)
    if "survey" in parts:
        results["survey"] = apart(measure_survey, profile)
    if "replacement" in parts:
        results["replacement"] = apart(measure_replacement, profile)
    if "scale" in parts:
        results["scale"] = []
        for network in profile.scale:
            progress("simulating {:,} brokers, {:,} clients, {:,} publications".format(*network))
            results["scale"].append(apart(measure_scale, *network))
    results["seconds"] = perf_counter() - started
    results["load_average"] = os.getloadavg()[2]
    return results
