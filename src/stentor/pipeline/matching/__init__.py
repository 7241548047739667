"""Who gets which event: subscriptions against tables and streams of events.

    match(events, subscriptions)      one row for each pair of an event and a filter that matches it
    register_subscriptions(spark, s)  the same as a function in SQL

`plans` says how a plan is chosen; each plan has a file: `native_plan`, `index_plan`,
`sharded_plan`, and `stateful_plan` for subscriptions that come as a stream. `filter_columns` finds
the columns that filters look at, and `broadcasts` brings compiled filters to the workers. What runs
in Spark's Python workers is in `worker`, `packed_index` and `event_batches`, and for changing
subscriptions in `parcels`, `shard_state` and `shard_index`; a worker loads just what it needs of
these. `sql_functions` offers the same in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.pipeline.lazy_names import lazily

if TYPE_CHECKING:
    from stentor.pipeline.matching.plans import match
    from stentor.pipeline.matching.sql_functions import register_subscriptions

__all__ = ["match", "register_subscriptions"]

__getattr__ = lazily(__name__, plans="match", sql_functions="register_subscriptions")
