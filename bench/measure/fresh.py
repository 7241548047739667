"""Matching while filters come and go, against the same index with everything joined.

First the very state that loading leaves: nothing waits for the index to settle before the first
batch. Then rounds: some filters are replaced, and a batch is matched. What counts is the processor
time of the thread that matches, so that neither other threads nor other programs have a say.
"""

from __future__ import annotations

from time import thread_time
from typing import Any, Final

from measure.updates import Updates, fresh_filters
from stentor.filters import Filter
from stentor.matching.index import Index
from workloads import Workload

#: Batches right after loading, rounds with changes, and batches when all is joined.
FIRST: Final = 5
ROUNDS: Final = 8
SETTLED: Final = 8
#: Filters that are replaced before each batch.
REPLACED: Final = (1, 100, 1_000)


def time_fresh(workload: Workload, filters: list[Filter]) -> dict[str, Any]:
    """Events per second of processor time in each state."""
    index: Index[int] = Index(enumerate(filters))
    batch, count = workload.batch, int(workload.batch.num_rows)

    def rate(batches: int, replaced: int = 0) -> float:
        took = 0.0
        for _ in range(batches):
            for _ in range(replaced):
                updates.replace(next(fresh))
            before = thread_time()
            index.match_batch(batch)
            took += thread_time() - before
        return batches * count / took

    updates = Updates(index, len(filters))
    fresh = iter(fresh_filters(ROUNDS * sum(REPLACED), seed=12))
    first = rate(1)
    after = rate(FIRST - 1)
    index.settle()
    index.compact()
    index.match_batch(batch)
    settled = rate(SETTLED)
    return {
        "first": first,
        "after": after,
        "settled": settled,
        "changing": {str(replaced): rate(ROUNDS, replaced) for replaced in REPLACED},
    }
