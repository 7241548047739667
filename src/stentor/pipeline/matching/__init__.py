"""Who gets which event: subscriptions against tables and streams of events.

    match(events, subscriptions)      one row for each pair of an event and a filter that matches it

`plans` says how a plan is chosen; each plan has a file: `native_plan`, `index_plan`,
`sharded_plan`, and `stateful_plan` for subscriptions that come as a stream. `filter_columns` finds
the columns that filters look at, and `broadcasts` brings compiled filters to the workers. What runs
in Spark's Python workers is in `worker`, `packed_index` and `event_batches`, and for changing
subscriptions in `parcels`, `shard_state` and `shard_index`; a worker loads just what it needs of
these.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stentor.pipeline.matching.plans import match

__all__ = ["match"]


def __getattr__(name: str) -> Any:
    if name != "match":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stentor.pipeline.matching.plans import match

    globals()[name] = match
    return match
