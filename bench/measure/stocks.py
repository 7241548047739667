"""Everything that is measured on the stock workload with one number of filters.

It runs in a process of its own, so that the growth of the process's memory is that of the engines
and not of what was measured before. The engines that make the least garbage are loaded first.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pyarrow as pa

from engines import SLOW, Engine, parsed, warm_up
from measure.clock import each, resident_bytes, spread
from measure.fresh import time_fresh
from measure.loading import load
from measure.throughput import race_arrow, time_slow
from measure.updates import Updates, fresh_filters, time_pauses, time_updates
from profiles import Profile
from stentor.matching.index import Index
from workloads import stock
from yardstick import Yardstick

#: BruteForce takes this many events in the latency test when the filters are many.
FEW_EVENTS = 20


def measure_stock(filters: int, profile: Profile) -> dict[str, Any]:
    """One row of each table of the stock workload."""
    pa.set_cpu_count(1)
    small = stock(5_000, 256)
    warm_up(small, parsed(small))
    workload = stock(filters)
    _ = workload.batch
    loads: dict[str, Any] = {}
    slow: dict[str, Engine] = {}
    if filters <= profile.slow_engines_up_to:
        for name in SLOW:
            slow[name], loads[name] = load(name, workload.texts())
    index, loads["Index"] = load("Index", workload.texts())
    assert isinstance(index, Index)
    before, start = resident_bytes(), perf_counter()
    yardstick = Yardstick(workload.constraints)
    took = perf_counter() - start
    loads["Yardstick"] = {
        "filters": filters,
        "compile_s": took,
        "total_s": took,
        "rss_growth": resident_bytes() - before,
    }
    found, engines = race_arrow(index, yardstick, workload, profile.race_budget)
    engines |= time_slow(slow, workload, found, profile.slow_budget)
    latency = {}
    for name, engine in {**slow, "Index": index}.items():
        rate = engines[name]["events_per_s"]
        count = profile.latency_events
        if name in SLOW:
            count = max(FEW_EVENTS, min(count, int(rate * profile.slow_budget)))
        latency[name] = spread(each(engine.match, workload.events[:count]))
    result = {
        "filters": filters,
        "events": len(workload.events),
        "matches": len(found[0]),
        "engines": engines,
        "ratio": engines["Index"]["events_per_s"] / engines["Yardstick"]["events_per_s"],
        "load": loads,
        "latency": latency,
    }
    del slow, yardstick, found
    result["fresh"] = time_fresh(workload, parsed(workload))
    updates = Updates(index, filters)
    result["updates"] = time_updates(updates, fresh_filters(profile.updates // 2))
    result["pauses"] = time_pauses(updates, workload, fresh_filters(profile.updates // 2, seed=10))
    return result
