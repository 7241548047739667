"""Runs the measurements of the pipeline one after the other and gathers what they give."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter
from typing import Any, Final

from pipeline.archive import measure_archive
from pipeline.journal import measure_journal
from pipeline.match import measure_match
from pipeline.profiles import Profile
from suite import machine

_MEASURES: Final[dict[str, Callable[[Profile], Any]]] = {
    "match": measure_match,
    "journal": measure_journal,
    "archive": measure_archive,
}


def run_pipeline(profile: Profile, parts: tuple[str, ...]) -> dict[str, Any]:
    """Everything that the profile asks for."""
    if not sys.platform.startswith("linux"):
        raise SystemExit("the pipeline is measured on Linux only: it needs affinity")
    started = perf_counter()
    results: dict[str, Any] = {
        "profile": profile.name,
        "machine": machine(),
        "notes": [
            f"Spark {version('pyspark')}, local mode; best of {profile.repeats} turns. "
            f"The load average before the run was {os.getloadavg()[0]:.1f}."
        ],
    }
    for part in parts:
        results[part] = _MEASURES[part](profile)
    results["seconds"] = perf_counter() - started
    return results
