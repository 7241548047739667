"""What becomes of filters that are reduced as brokers reduce them: runs in workers.

The reducers are those of routing, fed with filters in the order of their texts, so that the result
does not depend on the order in which Spark has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from stentor.filters import Filter
from stentor.filters.ranges import Ranges
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.routing.reducers import MergingStage, Reduction, Sample

COVERING: Final = "covering"
MERGING: Final = "merging"
IMPERFECT: Final = "imperfect merging"

#: (strategy, filter): what is left of a shard.
LEFT: Final = "strategy string, filter string"
#: How many are left in the end, and how sure that is.
COUNTED: Final = "strategy string, filters bigint, certainty string"

EXACT: Final = "exact"
#: What a number is if the last step could be taken.
_CERTAINTY: Final = {COVERING: EXACT, MERGING: "reachable", IMPERFECT: "estimate"}


def reduce_by(strategy: str, filters: Iterable[Filter]) -> list[Filter]:
    """What a broker would announce of these, under one strategy.

    >>> narrow, wide = Filter("x > 5"), Filter("x > 1")
    >>> reduce_by("covering", [narrow, wide])
    [Filter('x > 1')]
    """
    reduction = Reduction(strategy)
    for filter in filters:
        reduction.add(filter, filter)
    return list(reduction.announced.values())


def merge_loosely(
    filters: Iterable[Filter], budget: float, sample: Sequence[Mapping[str, Any]]
) -> list[Filter]:
    """Merge further, as long as mergers match no more than that share in vain, on the sample."""
    stage = MergingStage(budget, Sample(sample))
    for filter in filters:
        stage.add(filter)
    return stage.mergers


def deal(
    batches: Iterable[pa.RecordBatch], *, shards: int, vocabulary: Vocabulary
) -> Iterator[pa.RecordBatch]:
    """Filters with their shards: those that are fixed to the same value are together.

    By the first attribute that they are fixed on; all others are spread evenly.
    """
    vocabulary.install()
    for batch in batches:
        texts = batch.column("filter").to_pylist()
        keys = [str(min(_pinned(Filter(text)).items(), default=text)) for text in texts]
        found = [crc32(key.encode()) % shards for key in keys]
        yield pa.record_batch({"shard": pa.array(found, pa.int32()), "filter": texts})


def reduce_shard(table: pa.Table, vocabulary: Vocabulary) -> pa.Table:
    """What covering, and what perfect merging, leave of one shard."""
    vocabulary.install()
    filters = [Filter(text) for text in sorted(table["filter"].to_pylist())]
    left = [
        (strategy, str(filter))
        for strategy in (COVERING, MERGING)
        for filter in reduce_by(strategy, filters)
    ]
    return pa.table(
        {
            "strategy": pa.array([strategy for strategy, _ in left], pa.string()),
            "filter": pa.array([text for _, text in left], pa.string()),
        }
    )


class Last(NamedTuple):
    """What the last step does."""

    #: There were several shards.
    again: bool
    #: Filters that it takes; more are only counted, which may be too many.
    limit: int
    #: Of imperfect merging; 0 for none.
    budget: float
    sample: Sequence[Mapping[str, Any]]


def reduce_rest(table: pa.Table, last: Last, vocabulary: Vocabulary) -> pa.Table:
    """Count what all shards together leave, after it was reduced once more."""
    vocabulary.install()
    strategy = table["strategy"][0].as_py()
    counts: list[tuple[str, int, str]] = []
    if table.num_rows > last.limit:
        counts.append((strategy, table.num_rows, "upper bound"))
    else:
        filters = [Filter(text) for text in sorted(table["filter"].to_pylist())]
        if last.again:
            filters = reduce_by(strategy, filters)
        counts.append((strategy, len(filters), _CERTAINTY[strategy]))
        if strategy == MERGING and last.budget:
            loose = merge_loosely(filters, last.budget, last.sample)
            counts.append((IMPERFECT, len(loose), _CERTAINTY[IMPERFECT]))
    strategies, sizes, certainty = zip(*counts, strict=True)
    return pa.table(
        {
            "strategy": pa.array(strategies, pa.string()),
            "filters": pa.array(sizes, pa.int64()),
            "certainty": pa.array(certainty, pa.string()),
        }
    )


def _pinned(filter: Filter) -> dict[str, str]:
    """The attributes that the whole filter fixes to one value, with the value."""
    if len(filter.conjuncts) != 1:
        return {}
    return {
        name: repr(part.values)
        for name, constraint in filter.conjuncts[0].constraints.items()
        if constraint.is_single and isinstance(part := constraint.parts[0][1], Ranges)
    }
