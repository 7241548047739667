"""`match`, and which plan it chooses.

    native     few filters: column expressions, entirely in the JVM
    index      up to millions: the production index, broadcast, in an Arrow function
    sharded    more: filters are spread over the workers, and events sent to all of their parts
    changing   subscriptions that are a stream themselves: kept in Spark's state

All give the answer of brute force: one row for each pair of an event and a subscription whose
filter matches it. `explain()` shows the plan by its name: `stentor_match_native`,
`stentor_match_index`, `stentor_match_shard`; for a stream of subscriptions, `TransformWithState`.

Subscriptions that are not a stream are read once, when `match` is called: a query that is running
does not see later changes of the table. In either case results are as of the subscriptions of a
micro-batch, and the subscription may have been removed by the time somebody acts on them (01/T-10).
A pipeline that delivers to consumers publishes through brokers, whose delivery gates decide at the
last moment who still wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from stentor.errors import PipelineDefinitionError
from stentor.pipeline.event_table import Events, table_of
from stentor.pipeline.filters import are_native
from stentor.pipeline.matching.index_plan import match_indexed
from stentor.pipeline.matching.native_plan import CONDITIONS, FILTERS, match_native
from stentor.pipeline.matching.sharded_plan import match_sharded
from stentor.pipeline.matching.stateful_plan import match_changing
from stentor.pipeline.matching.subscriptions import (
    Subscriptions,
    from_pairs,
    from_table,
    subscription_columns,
)

if TYPE_CHECKING:
    from stentor.filters import Filter

PLANS: Final = ("auto", "native", "index", "sharded")
#: So many filters are compiled on the driver and held by each worker.
INDEX_LIMIT: Final = 2_000_000


def match(
    events: DataFrame | Events,
    subscriptions: (
        DataFrame | Events | Mapping[Any, str | Filter] | Iterable[tuple[Any, str | Filter]]
    ),
    *,
    id: str = "subscription_id",
    filter: str = "filter",
    plan: str = "auto",
    shards: int | None = None,
    order: str | None = None,
    on_error: str = "fail",
) -> DataFrame:
    """Which subscriptions match which events: the id of the subscription, then the event.

        match(events, {"ibm": "symbol = 'IBM'", "dear": "price > 100"})
        match(events, spark.table("subscriptions"), id="customer", filter="wants")

    Events are a table or a stream with one column per attribute. Subscriptions are a mapping or
    pairs of ids and filters, or a DataFrame with the columns named by `id` and `filter`. The
    result begins with a column `id` of the type that ids have.

    `plan` forces one of the plans; `shards` says in how many parts filters are spread.

    Subscriptions may be a stream of changes: a row adds or replaces the filter of a subscription,
    or removes it if the filter is null. The changes of a micro-batch take effect before its events.
    If it changes a subscription several times, the row with the greatest value in the column
    `order` counts, else the one that the stream has last. A change that does not parse ends the
    query, or is left out with a warning in the worker's log if `on_error="skip"`. Such matching
    needs Spark's state store RocksDB, and the package protobuf.
    """
    if plan not in PLANS:
        raise PipelineDefinitionError(f"there is no plan {plan!r}; choose from {', '.join(PLANS)}")
    if shards is not None and (type(shards) is not int or shards < 1):
        raise PipelineDefinitionError(f"shards={shards!r}: filters are spread over 1 part or more")
    events = table_of(events)
    _check_output(events, id)
    if isinstance(subscriptions, Events):
        subscriptions = subscriptions.table()
    if isinstance(subscriptions, DataFrame):
        if subscriptions.isStreaming:
            if plan != "auto":
                raise PipelineDefinitionError(
                    f"subscriptions that are a stream have a plan of their own, not {plan!r}"
                )
            return match_changing(
                events, subscriptions, id, filter, shards=shards, order=order, on_error=on_error
            )
        _refuse_options(order, on_error)
        if plan != "sharded":
            most = INDEX_LIMIT if plan == "auto" else 2**31 - 2
            found = from_table(subscriptions, id, filter, most)
            if found is not None:
                return _match_known(events, found, id, plan, shards)
        table = subscription_columns(subscriptions, id, filter)
        return match_sharded(events, table, id, shards)
    _refuse_options(order, on_error)
    return _match_known(events, from_pairs(subscriptions), id, plan, shards)


def _match_known(
    events: DataFrame, subscriptions: Subscriptions, id: str, plan: str, shards: int | None
) -> DataFrame:
    if plan == "auto":
        plan = "sharded" if shards is not None or len(subscriptions) > INDEX_LIMIT else "index"
        few = len(subscriptions) <= FILTERS and shards is None
        if few and are_native(subscriptions.parsed(), events.schema, CONDITIONS):
            plan = "native"
    if plan == "native":
        return match_native(events, subscriptions, id)
    if plan == "index":
        return match_indexed(events, subscriptions, id)
    return match_sharded(events, subscriptions.table(events.sparkSession), id, shards)


def _check_output(events: DataFrame, id: str) -> None:
    if id.lower() in [name.lower() for name in events.columns]:
        raise PipelineDefinitionError(
            f"the events have a column {id!r} already; rename it, or the subscriptions' column "
            "and say id="
        )


def _refuse_options(order: str | None, on_error: str) -> None:
    if order is not None or on_error != "fail":
        raise PipelineDefinitionError(
            "order= and on_error= are about subscriptions that are a stream"
        )
