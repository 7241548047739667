"""Adding and removing among many filters, and whether matching stalls meanwhile.

Adds and removals alternate, so that the number of filters stays; the index joins and cleans its
segments in the background all the time, and the settled mean includes waiting for the end of that.
For the pauses a second thread matches small batches without end: first while nothing happens, then
while filters come and go, then while the whole index is compiled anew. The threads share one
interpreter, so a batch may also have to wait for its turn.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from time import perf_counter, perf_counter_ns, sleep
from typing import Any

import pyarrow as pa

from measure.clock import spread
from stentor.filters import Filter
from stentor.matching.index import Index
from workloads import Workload, stock

SMALL_BATCH = 256
#: Seconds with nothing but matching, and at most as many with updates besides.
PHASE_SECONDS = 1.0


class Updates:
    """Changes an index that holds the keys 0, 1, ... without changing how many it holds."""

    def __init__(self, index: Index[int], filters: int) -> None:
        self.index = index
        self._live = list(range(filters))
        self._next = filters
        self._random = random.Random(9)
        self.adding: list[int] = []
        self.removing: list[int] = []

    def replace(self, filter_: Filter) -> None:
        """Add one filter and remove another, chosen at random among all older ones."""
        live, place = self._live, self._random.randrange(len(self._live))
        victim, live[place] = live[place], self._next
        before = perf_counter_ns()
        self.index.add(self._next, filter_)
        middle = perf_counter_ns()
        self.index.remove(victim)
        self.removing.append(perf_counter_ns() - middle)
        self.adding.append(middle - before)
        self._next += 1


def fresh_filters(count: int, seed: int = 8) -> list[Filter]:
    """Filters of the same kind that the index does not hold yet."""
    return [Filter(text) for text in stock(count, 0, seed=seed).texts()]


def time_updates(updates: Updates, filters: Iterable[Filter]) -> dict[str, Any]:
    """What one change costs by itself, and on average when all that follows from it is done."""
    started = perf_counter()
    for filter_ in filters:
        updates.replace(filter_)
    updates.index.settle()
    total = perf_counter() - started
    return {
        "add": spread(updates.adding),
        "remove": spread(updates.removing),
        "settled_mean_us": 1e6 * total / (len(updates.adding) + len(updates.removing)),
        "segments_after": updates.index.segment_count,
    }


def time_pauses(updates: Updates, workload: Workload, filters: Iterable[Filter]) -> dict[str, Any]:
    """How long one small batch takes: alone, beside updates, beside a full rebuild."""
    rows = range(0, workload.batch.num_rows - SMALL_BATCH + 1, SMALL_BATCH)
    reader = _Reader(updates.index, [workload.batch.slice(row, SMALL_BATCH) for row in rows])
    reader.start()
    sleep(PHASE_SECONDS)
    quiet = perf_counter_ns()
    for filter_ in filters:
        updates.replace(filter_)
        if perf_counter_ns() - quiet > PHASE_SECONDS * 1e9:
            break
    changed = perf_counter_ns()
    updates.index.compact()
    rebuilt = perf_counter_ns()
    reader.finish()
    return {
        "batch": SMALL_BATCH,
        "rebuild_s": (rebuilt - changed) / 1e9,
        "idle": spread(reader.during(0, quiet)),
        "updates": spread(reader.during(quiet, changed)),
        "rebuild": spread(reader.during(changed, rebuilt)),
    }


class _Reader(threading.Thread):
    """Matches batches in a circle until told to finish."""

    def __init__(self, index: Index[int], batches: list[pa.RecordBatch]) -> None:
        super().__init__(name="bench-reader")
        self._index = index
        self._batches = batches
        self._finish = threading.Event()
        self._times: list[tuple[int, int]] = []

    def run(self) -> None:
        turn = 0
        while not self._finish.is_set():
            batch = self._batches[turn % len(self._batches)]
            before = perf_counter_ns()
            self._index.match_batch(batch)
            self._times.append((before, perf_counter_ns() - before))
            turn += 1

    def during(self, since: int, until: int) -> list[int]:
        """Times of the batches under way at some moment of the interval."""
        return [took for start, took in self._times if start + took > since and start < until]

    def finish(self) -> None:
        self._finish.set()
        self.join()
