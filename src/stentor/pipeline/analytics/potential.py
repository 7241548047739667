"""How much smaller would routing tables be? The potential of covering and merging.

A subscription base is reduced as a broker would reduce it if all subscriptions came from one
neighbor: equal filters become one (identity), covered ones go (covering), several are replaced by
one that matches exactly what they match (perfect merging), or a little more (imperfect merging).

Filters are dealt into shards so that those fixed to the same value (`symbol = 'IBM'`) meet, since
these are the ones that cover and merge. Each shard is reduced, and what all of them leave is
reduced once more, by one task. What the numbers mean:

identity
    Exact.

covering
    Exact, however the filters are dealt: what is covered by a filter is covered by whatever covers
    that one, so dropping it early changes nothing. `Filter.covers` says no where it cannot decide;
    such a filter stays, as it does in a broker.

merging
    A size that can be reached: every merger matches exactly what its parts match. Merging is
    greedy, and the order in which filters meet matters, so that other shards may give a number that
    is a little higher or lower; the smallest possible is unknown. With one shard it is what
    `Reduction("merging")` makes of the filters in the order of their texts.

imperfect merging
    The same, merged further within the budget, measured on a sample of the events: an estimate.

If more is left than one task should take, the last step is left out, and the number is an upper
bound of what it would have been. The column `certainty` says which of these a number is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stentor.errors import InvalidValue, PipelineDefinitionError
from stentor.filters import Filter
from stentor.filters.ranges import Ranges
from stentor.model.event_types import event_types
from stentor.model.names import RESERVED
from stentor.model.values import normal
from stentor.pipeline.analytics.filters import arrow_rows, distinct_filters
from stentor.pipeline.filters.sql import quoted
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.routing.reducers import MergingStage, Reduction, Sample

#: Filters in a shard, if the number of shards is not given.
SHARD: Final = 50_000
#: Filters that the last step takes.
LIMIT: Final = 500_000
#: Events on which looseness is measured.
SAMPLE: Final = 256

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

_MEANING: Final = {
    "simple": "one entry for each subscription",
    "identity": "equal filters are one",
    COVERING: "filters that another one covers are left out",
    MERGING: "several filters become one that matches the same",
    IMPERFECT: "mergers may match a share of {budget:.3g} in vain",
}


def covering_potential(
    subscriptions: DataFrame,
    events: DataFrame | None = None,
    *,
    budget: float = 0.0,
    shards: int | None = None,
    limit: int = LIMIT,
    filter: str = "filter",
) -> DataFrame:
    """The size of a routing table for all these subscriptions, strategy by strategy.

        covering_potential(subscriptions, events, budget=0.05).show()

    Columns: strategy, filters (left in the table), share (of the subscriptions), certainty (exact,
    reachable, estimate or upper bound: see above), meaning.
    With a `budget` above 0, imperfect merging is tried, too, and needs events to measure it on.
    Filters that do not parse count nowhere; those that nothing can match count as simple only.
    """
    check_budget(budget, events)
    filters = distinct_filters(subscriptions, filter=filter).cache()
    try:
        return potential_of(filters, events, budget=budget, shards=shards, limit=limit)
    finally:
        filters.unpersist()


def check_budget(budget: float, events: DataFrame | None) -> None:
    """`PipelineDefinitionError` if filters cannot be merged imperfectly within this budget."""
    if not 0.0 <= budget <= 1.0:
        raise PipelineDefinitionError(f"budget={budget!r}: it is a share from 0 to 1")
    if budget and events is None:
        raise PipelineDefinitionError(
            "imperfect merging is measured on events: pass some, or leave the budget at 0"
        )


def potential_of(
    distinct: DataFrame,
    events: DataFrame | None,
    *,
    budget: float = 0.0,
    shards: int | None = None,
    limit: int = LIMIT,
) -> DataFrame:
    """The same, of the filters that `distinct_filters` gives."""
    spark = distinct.sparkSession
    distinct = distinct.where("problem is null")
    total = distinct.agg(
        F.coalesce(F.sum("subscriptions"), F.lit(0)).alias("simple"),
        F.count_if(F.col("filter") != "false").alias("identity"),
    ).collect()[0]
    shards = shards or max(1, math.ceil(total["identity"] / SHARD))
    filters = distinct.where("filter != 'false'").select("filter")
    vocabulary = Vocabulary.of_this_process()
    dealt = _dealt(filters, shards, vocabulary)
    sample = _sample(events) if budget and events is not None else []
    left = dealt.groupBy("shard").applyInArrow(lambda table: reduce_shard(table, vocabulary), LEFT)
    last = Last(again=shards > 1, limit=limit, budget=budget, sample=sample)
    counted = (
        left.groupBy("strategy")
        .applyInArrow(lambda table: reduce_rest(table, last, vocabulary), COUNTED)
        .collect()
    )
    counts = {row["strategy"]: (row["filters"], row["certainty"]) for row in counted}
    counts |= {name: (total[name], EXACT) for name in ("simple", "identity")}
    wanted = [name for name in _MEANING if name != IMPERFECT or (budget and IMPERFECT in counts)]
    rows = []
    for name in wanted:
        size, certainty = counts.get(name, (0, EXACT))
        share = size / total["simple"] if total["simple"] else None
        rows.append((name, size, share, certainty, _MEANING[name].format(budget=budget)))
    return spark.createDataFrame(
        rows, "strategy string, filters bigint, share double, certainty string, meaning string"
    )


def _dealt(filters: DataFrame, shards: int, vocabulary: Vocabulary) -> DataFrame:
    """(shard, filter)"""
    if shards == 1:
        return filters.select(F.lit(0).alias("shard"), "filter")
    return filters.mapInArrow(
        partial(deal, shards=shards, vocabulary=vocabulary), "shard int, filter string"
    )


def _sample(events: DataFrame) -> list[dict[str, Any]]:
    """Some events as filters see them; the same ones each time."""
    kept = [n for n in events.columns if not n.startswith("_") or n in RESERVED or n == "_id"]
    chosen = events.select(*map(quoted, kept)).orderBy(F.rand(7)).limit(SAMPLE)
    return [_facts(row) for row in chosen.toArrow().to_pylist()]


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = _plain(row)
    if facts.get("_type") is not None:
        facts["_types"] = event_types.ancestors(facts["_type"])
    id = facts.pop("_id", None)
    if id is not None:
        facts["_producer"] = id.rsplit(":", 2)[0]
    return facts


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is no value of an attribute, such as NaN."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            found[name] = _plain(value)
        elif value is not None:
            try:
                found[name] = normal(value)
            except InvalidValue:
                continue
    return found


# -- in the workers

# The reducers are those of routing, fed with filters in the order of their texts, so that the
# result does not depend on the order in which Spark has them.


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
    return pa.Table.from_batches([arrow_rows(left, LEFT)])


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
    return pa.Table.from_batches([arrow_rows(counts, COUNTED)])


def _pinned(filter: Filter) -> dict[str, str]:
    """The attributes that the whole filter fixes to one value, with the value."""
    if len(filter.conjuncts) != 1:
        return {}
    return {
        name: repr(part.values)
        for name, constraint in filter.conjuncts[0].constraints.items()
        if constraint.is_single and isinstance(part := constraint.parts[0][1], Ranges)
    }
