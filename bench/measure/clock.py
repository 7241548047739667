"""Measuring on a machine that others use, too.

Contestants take turns, so that a slow spell hits all of them, and each is judged by its best turn:
noise only ever adds time. Ratios of bests are therefore far steadier than the times themselves.
"""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, perf_counter_ns
from typing import Any

#: Turns that each contestant gets at least, and at most.
LEAST_TURNS = 3
MOST_TURNS = 50


def race(contestants: Mapping[str, Callable[[], object]], budget: float) -> dict[str, float]:
    """The best time of each, in seconds."""
    for run in contestants.values():
        run()
    gc.collect()
    best = dict.fromkeys(contestants, float("inf"))
    started = perf_counter()
    for turn in range(MOST_TURNS):
        if turn >= LEAST_TURNS and perf_counter() - started > budget:
            break
        for name, run in contestants.items():
            before = perf_counter()
            run()
            best[name] = min(best[name], perf_counter() - before)
    return best


def within(
    run: Callable[[int], Any], most: int, budget: float, tries: int = 3
) -> tuple[int, float, Any]:
    """Doubles the number of events until the time is used up: number, seconds, last result.

    The last number is tried again while the budget lasts, and the best try counts.
    """
    started = perf_counter()
    count = 1
    while True:
        before = perf_counter()
        result = run(count)
        best = perf_counter() - before
        if count >= most or best > budget / 3:
            break
        count = min(2 * count, most)
    for _ in range(tries - 1):
        if perf_counter() - started + best > budget:
            break
        before = perf_counter()
        run(count)
        best = min(best, perf_counter() - before)
    return count, best, result


def each(run: Callable[[Any], object], items: Sequence[Any]) -> list[int]:
    """Nanoseconds of each call."""
    times = []
    for item in items:
        before = perf_counter_ns()
        run(item)
        times.append(perf_counter_ns() - before)
    return times


def spread(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Mean, median, 99th percentile and maximum in microseconds."""
    ordered = sorted(nanoseconds)
    return {
        "count": len(ordered),
        "mean_us": statistics.fmean(ordered) / 1e3,
        "median_us": statistics.median(ordered) / 1e3,
        "p99_us": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))] / 1e3,
        "max_us": ordered[-1] / 1e3,
    }


def resident_bytes() -> int:
    """The memory of this process, after everything that is free was given back."""
    gc.collect()
    if not sys.platform.startswith("linux"):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # a peak, and the best there is
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
