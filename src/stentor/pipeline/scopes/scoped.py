"""`scoped`: an event table seen through a scope graph, one row for each delivery.

There are two plans with one answer, which is that of `ScopeGraph.deliveries`:

*native*  Where a graph has no mappings, what a consumer gets from a publisher is a filter
          (`stentor.scopes.collapsed`). Publishers with equal filters are taken together, and each
          such group is a condition and an array of consumers; an event's arrays are joined and
          exploded. All of it is one projection that Spark compiles; with `to`, it is little more
          than a `where`.
*python*  Otherwise, or where that would be too large an expression, the graph itself answers, in
          Spark's Python workers over Arrow batches. Rows that no mapping has changed are taken as
          they are; the others are made anew, with the columns that `mapped_columns` has found.

Policies that choose by what is said, or by who is there, choose here as anywhere. Those that take
turns, count or wait do so in the order in which notifications come. A table has no such order, so
a graph with one of these is refused.

Who published an event is known by its id. Publishers that the graph does not know are in no scope,
or in its default scope if it has one; none of their events is delivered to themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from stentor.errors import PipelineDefinitionError, PipelineError, StentorError
from stentor.filters import Filter
from stentor.model import encode
from stentor.pipeline.columns import BatchMaker, RowEncoder
from stentor.pipeline.filters import are_native, to_column
from stentor.pipeline.scopes.mapped_columns import mapped_schema
from stentor.pipeline.steps.events import column, producer, require
from stentor.pipeline.steps.functions import from_same, noticeable
from stentor.scopes import ScopeGraph
from stentor.scopes.collapsed import collapsed
from stentor.scopes.policies import remembers

PLANS: Final = ("auto", "native", "python")
#: How many publishers, groups of consumers, conditions and names an expression may hold.
PUBLISHERS: Final = 1_000
GROUPS: Final = 32
CONDITIONS: Final = 100
CONSUMERS: Final = 1_000
#: Stands for every publisher that the graph does not know.
_ANYBODY: Final = "\N{REPLACEMENT CHARACTER}"

#: What a group of consumers is given: the filter, and who they are; None is the publisher itself.
Groups = dict[tuple[Filter, tuple[str, ...] | None], list[str]]


def scoped(
    events: DataFrame,
    graph: ScopeGraph | str | Path,
    *,
    to: str | Iterable[str] | None = None,
    consumer: str = "consumer",
    schema: str | StructType | None = None,
    plan: str = "auto",
) -> DataFrame:
    """The events of a table as components receive them: a row for each, in its version.

    `graph` is a graph, or the path of a file in the scope graph language. The first column,
    `consumer`, says who; with `to`, only what these components receive. Mappings may bring in
    attributes: `schema` names the attributes of the result and their types, if they are not to be
    worked out from the mappings, or cannot be, because one is a function.

        scoped(trades, "market.scopes", to="desk")
    """
    if not isinstance(graph, ScopeGraph):
        graph = ScopeGraph.load(graph)
    if plan not in PLANS:
        raise PipelineDefinitionError(f"plan={plan!r}: choose from {', '.join(PLANS)}")
    require(events, "_id")
    if consumer in events.columns:
        raise PipelineError(
            f"the events have a column {consumer!r} already; name another with consumer="
        )
    for node in graph.nodes.values():
        for kind, policy in node.policies.items():
            if remembers(policy):
                raise PipelineError(
                    f"the {kind} policy of {node.id!r} decides in the order in which notifications "
                    "come, or by the time, and a table has no such order; choose by key_affine or "
                    "top_k, leave it out, or let the brokers deliver"
                )
    chosen = None if to is None else [to] if isinstance(to, str) else list(dict.fromkeys(to))
    for each in chosen or ():
        if graph.node(each).is_scope:
            raise PipelineDefinitionError(f"{each!r} is a scope; name the components in it")
    groups = _groups(graph, chosen) if plan != "python" and schema is None else None
    if groups is not None and (plan == "native" or _is_small(groups, events.schema)):
        return _by_expressions(events, groups, graph, consumer)
    if plan == "native":
        raise PipelineDefinitionError(
            "the scope graph has mappings or policies, or too many publishers, for expressions "
            "alone; leave the plan out"
        )
    return _by_graph(events, graph, chosen, consumer, schema)


# -- by expressions


def _groups(graph: ScopeGraph, chosen: list[str] | None) -> Groups | None:
    """Who gets what from whom; None if filters cannot say it, or there are too many publishers."""
    components = [id for id, node in graph.nodes.items() if not node.is_scope]
    if not graph.is_plain or graph.duplicates == "per_path" or len(components) > PUBLISHERS:
        return None
    if graph.default_scope is not None:
        graph = deepcopy(graph)
        graph.add_component(_ANYBODY)
        components.append(_ANYBODY)
    groups: Groups = {}
    for publisher in components:
        gets: dict[Filter, list[str]] = {}
        try:
            filters = collapsed(graph, publisher)
        except StentorError:  # more than a filter can be
            return None
        for id, filter in filters.items():
            if id == publisher:
                if id != _ANYBODY and (chosen is None or id in chosen):
                    groups.setdefault((filter, None), []).append(publisher)
            elif chosen is None or id in chosen:
                gets.setdefault(filter, []).append(id)
        for filter, consumers in gets.items():
            groups.setdefault((filter, tuple(consumers)), []).append(publisher)
    return groups


def _is_small(groups: Groups, schema: StructType) -> bool:
    return (
        len(groups) <= GROUPS
        and sum(len(consumers or ()) for _, consumers in groups) <= CONSUMERS
        and are_native([filter for filter, _ in groups], schema, CONDITIONS)
    )


def _by_expressions(
    events: DataFrame, groups: Groups, graph: ScopeGraph, consumer: str
) -> DataFrame:
    publisher = producer(column("_id"))
    known = [id for id, node in graph.nodes.items() if not node.is_scope]
    nobody = F.array().cast("array<string>")
    arrays: list[Column] = []
    for (filter, consumers), publishers in groups.items():
        given = F.array(publisher) if consumers is None else F.array(*map(F.lit, consumers))
        told = [each for each in publishers if each != _ANYBODY]
        condition = publisher.isin(told)
        if len(told) < len(publishers):
            condition |= ~publisher.isin(known)
        if not filter.is_always:
            condition &= to_column(filter, events.schema)
        arrays.append(F.when(condition, given).otherwise(nobody))
    everybody = F.concat(*arrays) if arrays else nobody
    return events.select(F.explode(everybody).alias(consumer), *map(column, events.columns))


# -- by the graph itself


def _by_graph(
    events: DataFrame,
    graph: ScopeGraph,
    chosen: list[str] | None,
    consumer: str,
    schema: str | StructType | None,
) -> DataFrame:
    source = events.schema
    is_same = not graph.has_mappings and schema is None
    wanted = source if is_same else mapped_schema(graph, source, schema)
    result = StructType([StructField(consumer, StringType()), *wanted.fields])

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _delivered(batches, graph, chosen, consumer, source, wanted)

    return noticeable(events).mapInArrow(work, result)


def _delivered(
    batches: Iterator[pa.RecordBatch],
    graph: ScopeGraph,
    chosen: list[str] | None,
    consumer: str,
    source: StructType,
    wanted: StructType,
) -> Iterator[pa.RecordBatch]:
    encoder = RowEncoder(source)
    maker = None if wanted == source else BatchMaker(wanted)
    receivers = None if chosen is None else frozenset(chosen)
    for batch in batches:
        rows: list[int] = []
        names: list[str] = []
        items: list[bytes] = []
        for row, event in enumerate(encoder.notifications(batch)):
            publisher = "" if event.id is None else event.id.producer
            stranger = publisher not in graph
            if stranger:
                if graph.default_scope is None:
                    continue
                publisher = _ANYBODY
                graph.add_component(publisher)
            for delivery in graph.outcome(event, publisher).deliveries:
                name = delivery.consumer
                if name == _ANYBODY or (receivers is not None and name not in receivers):
                    continue
                rows.append(row)
                names.append(name)
                if maker is not None:
                    items.append(encode(delivery.notification.replace(id=event.id)))
            if stranger:
                graph.remove_component(publisher)
        if not rows:
            continue
        places = pa.array(rows, pa.int64())
        if maker is None:
            made = batch.take(places)
        else:
            made = maker.batch(items, [0] * len(items), stream="", broker="")
            made = from_same(made, batch, places)
        yield pa.RecordBatch.from_arrays(
            [pa.array(names, pa.string()), *made.columns], [consumer, *made.schema.names]
        )
