"""Runs the measurements of the live service one after the other and gathers what they give."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter
from typing import Any, Final

from live import mosquitto, nats
from live.durability import measure_durability
from live.latencies import measure_latency
from live.lines import measure_lines
from live.populations import measure_populations
from live.processes import cores
from live.profiles import Profile
from live.throughput import measure_throughput
from suite import machine

_MEASURES: Final[dict[str, Callable[[Profile], Any]]] = {
    "throughput": measure_throughput,
    "durability": measure_durability,
    "latency": measure_latency,
    "overlay": measure_lines,
    "clients": measure_populations,
}


def run_live(profile: Profile, parts: tuple[str, ...]) -> dict[str, Any]:
    """Everything that the profile asks for."""
    if not sys.platform.startswith("linux"):
        raise SystemExit("the live service is measured on Linux only: it needs /proc and affinity")
    started = perf_counter()
    results: dict[str, Any] = {
        "profile": profile.name,
        "machine": machine(),
        "notes": _notes(profile),
    }
    for part in parts:
        results[part] = _MEASURES[part](profile)
    results["seconds"] = perf_counter() - started
    return results


def _notes(profile: Profile) -> list[str]:
    where = cores()
    placed = f"Brokers run on core {where.broker}, everybody else on core {where.load}."
    if where.broker == where.load:
        placed = "There is only one core, so brokers and their load take turns on it."
    other = mosquitto.version() if mosquitto.installed() else "no Mosquitto"
    other += f", {nats.version()}" if nats.installed() else ", no NATS"
    return [
        f"{placed} uvloop {version('uvloop')}, msgspec {version('msgspec')}; beside it {other}. "
        f"Medians of {profile.repeats} repeats in turns. "
        f"The load average before the run was {os.getloadavg()[0]:.1f}."
    ]
