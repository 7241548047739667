"""Runs the measurements one after the other and gathers what they give.

Each size of the stock workload, and each other part, has a process of its own: memory is then that
of what is measured, and nothing inherits a heap that others have worn out.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from measure.lists import measure_lists
from measure.shapes import measure_shapes
from measure.stocks import measure_stock
from measure.sweep import measure_sweep
from measure.tuples import measure_tuples
from profiles import Profile
from progress import progress


def run_suite(profile: Profile, parts: tuple[str, ...]) -> dict[str, Any]:
    """Everything that the profile asks for."""
    started = perf_counter()
    results: dict[str, Any] = {"profile": profile.name, "machine": machine()}
    if "stock" in parts:
        results["stock"] = []
        for size in profile.sizes:
            progress(f"stock quotes, {size:,} filters")
            results["stock"].append(apart(measure_stock, size, profile))
    if "shapes" in parts:
        results["shapes"] = apart(measure_shapes, profile)
    if "sweep" in parts:
        results["sweep"] = apart(measure_sweep, profile)
    if "tuples" in parts:
        progress("tuples and records")
        results["tuples"] = apart(measure_tuples, profile)
    if "lists" in parts:
        progress("lists of records")
        results["lists"] = apart(measure_lists, profile)
    results["seconds"] = perf_counter() - started
    return results


def machine() -> dict[str, Any]:
    """What the numbers were measured with."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("numba", "numpy", "pyarrow")},
    }


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def apart(measure: Callable[..., Any], *arguments: Any) -> Any:
    """The measurement's result, from a fresh process."""
    sys.stdout.flush()
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        return pool.submit(measure, *arguments).result()
