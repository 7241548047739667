"""Matching while filters come and go, against the same index with everything joined.

First the very state that loading leaves: nothing waits for the index to settle before the first
batch. Then rounds: some filters are replaced, and a batch is matched. What counts is the processor
time of the thread that matches. Other programs still have a say in it, through the caches, so the
joined index takes turns with the other: each share is of the batches that it matched meanwhile. It
is also the first to match, because memory that the process has never used before, here that of the
matches themselves, costs whoever gets it as much again as finding them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import thread_time
from typing import Any, Final

import pyarrow as pa

from measure.updates import Updates, fresh_filters
from stentor.filters import Filter
from stentor.matching.index import Index
from workloads import Workload

#: How often it is loaded, batches right after that, and rounds with changes.
LOADED: Final = 3
FIRST: Final = 5
ROUNDS: Final = 8
#: Filters that are replaced before each batch.
REPLACED: Final = (1, 100, 1_000)


def time_fresh(workload: Workload, filters: list[Filter]) -> dict[str, Any]:
    """Events per second of processor time when all is joined, and the share of it in each state."""
    batch = workload.batch
    settled: Index[int] = Index(enumerate(filters))
    settled.compact()
    settled.match_batch(batch)
    alone = [_time(settled, batch) for _ in range(ROUNDS)]
    firsts: list[float] = []
    for _ in range(LOADED):
        index: Index[int] = Index(enumerate(filters))
        firsts.append(_share(index, settled, batch, 1))
    after = _share(index, settled, batch, FIRST - 1)
    updates = Updates(index, len(filters))
    fresh = iter(fresh_filters(ROUNDS * sum(REPLACED), seed=12))

    def change(count: int) -> None:
        for _ in range(count):
            updates.replace(next(fresh))

    return {
        "settled": ROUNDS * batch.num_rows / sum(alone),
        "first": median(firsts),
        "after": after,
        "changing": {
            str(count): _share(index, settled, batch, ROUNDS, partial(change, count))
            for count in REPLACED
        },
    }


def _share(
    index: Index[int],
    settled: Index[int],
    batch: pa.RecordBatch,
    rounds: int,
    change: Callable[[], object] = lambda: None,
) -> float:
    """The speed of an index that changes before each batch, as a share of the settled one's."""
    took = took_settled = 0.0
    for _ in range(rounds):
        change()
        took += _time(index, batch)
        took_settled += _time(settled, batch)
    return took_settled / took


def _time(index: Index[int], batch: pa.RecordBatch) -> float:
    before = thread_time()
    index.match_batch(batch)
    return thread_time() - before
