"""Matching as functions in SQL.

    stentor_match('price > 100', struct(*))     whether a filter matches a row
    stentor_matches(struct(q.*))                the ids of the subscriptions that match a row, of a
                                                set that was made known under that name

Both are Arrow functions: a batch at a time, by the engine of the brokers. Spark knows nothing of
what a function makes of its arguments, and hands a constant over as a column in which every row is
the same; a worker compiles each text once and keeps it, so that a constant filter costs one
comparison of the column with itself for each batch. A text that comes from a table is compiled
once, too, and asked about the rows that it came with.

Workers know the operators and event types that the program had registered when the functions were
made known; `register` makes them known again if there are more by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from stentor.errors import PipelineDefinitionError
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model.names import shown
from stentor.pipeline.matching.event_batches import records_batch
from stentor.pipeline.matching.index_plan import part_of
from stentor.pipeline.matching.kernel_cache import claim_kernel_cache
from stentor.pipeline.matching.plans import INDEX_LIMIT
from stentor.pipeline.matching.subscriptions import Subscriptions, from_pairs, from_table
from stentor.pipeline.matching.vocabulary import Vocabulary
from stentor.pipeline.matching.worker import Part, gathered, packed
from stentor.pipeline.spark_features import arrow_function

MATCH: Final = "stentor_match"
MATCHES: Final = "stentor_matches"
#: Compiled filters that a worker keeps.
KEPT: Final = 1_024

#: The vocabulary with which the functions were made known to each session.
_known: Final[WeakKeyDictionary[SparkSession, Vocabulary]] = WeakKeyDictionary()


def register_functions(spark: SparkSession) -> None:
    """Make `stentor_match` known to a session; again, if the vocabulary has grown."""
    vocabulary = Vocabulary.of_this_process()
    if _known.get(spark) == vocabulary:
        return

    def stentor_match(filters: pa.Array, records: pa.Array) -> pa.Array:
        return answers(vocabulary, filters, records)

    _register(spark, MATCH, stentor_match, T.BooleanType())
    _known[spark] = vocabulary


def register_subscriptions(
    spark: SparkSession,
    subscriptions: DataFrame | Mapping[Any, str | Filter] | Iterable[tuple[Any, str | Filter]],
    name: str = MATCHES,
    *,
    id: str = "subscription_id",
    filter: str = "filter",
) -> None:
    """Make a set of subscriptions known to a session as a function in SQL.

        register_subscriptions(spark, {"desk-1": "symbol = 'IBM'", "desk-2": "price > 100"})
        spark.sql("select explode(stentor_matches(struct(*))) as subscription_id, * from quotes")

    The function takes a record and gives the ids of all subscriptions that match it, as an array.
    Subscriptions are what `match` takes, apart from streams; they are read now, and a query sees
    them as they are now. To register a name again replaces the set for queries that are made later.
    """
    if not name.isidentifier():
        raise PipelineDefinitionError(f"{shown(name)} is not a name for a function in SQL")
    found = _subscriptions(subscriptions, id, filter)
    part, names = part_of(spark, found)

    def stentor_matches(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return id_lists_of(part, names, batches)

    _register(spark, name, stentor_matches, T.ArrayType(found.id_type, False))


def _subscriptions(
    given: DataFrame | Mapping[Any, str | Filter] | Iterable[tuple[Any, str | Filter]],
    id: str,
    filter: str,
) -> Subscriptions:
    if not isinstance(given, DataFrame):
        return from_pairs(given)
    if given.isStreaming:
        raise PipelineDefinitionError(
            "subscriptions that are a stream change while a query runs, and a function in SQL "
            "cannot; use match(events, subscriptions)"
        )
    found = from_table(given, id, filter, INDEX_LIMIT)
    if found is None:
        raise PipelineDefinitionError(
            f"a function in SQL holds up to {INDEX_LIMIT:,} subscriptions, and these are more; use "
            "match(events, subscriptions), which spreads them over the workers"
        )
    return found


def _register(spark: SparkSession, name: str, function: Any, kind: T.DataType) -> None:
    register: Any = spark.udf.register
    register(name, arrow_function(function, kind))


# -- in the workers


@lru_cache(maxsize=KEPT)
def _compiled(text: str) -> tuple[Index[int], frozenset[str]]:
    claim_kernel_cache()
    filter_ = Filter(text)
    index: Index[int] = Index([(0, filter_)], background=False)
    index.compact()
    return index, filter_.names


def answers(vocabulary: Vocabulary, filters: pa.Array, records: pa.Array) -> pa.Array:
    """Whether each filter matches the record beside it; null where there is no filter."""
    _install(vocabulary)
    if pa.types.is_struct(filters.type):
        raise PipelineDefinitionError(f"first the filter, then the record: {MATCH}('…', struct(*))")
    _refuse_others([records], MATCH)
    coded = filters.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    if len(texts) == 1 and not coded.null_count:
        return pa.array(_matching(texts[0], records))
    found = np.zeros(len(records), bool)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes, np.arange(len(texts) + 1), sorter=order)
    for text, start, end in zip(texts, starts[:-1], starts[1:], strict=True):
        rows = order[start:end]
        found[rows] = _matching(text, records.take(pa.array(rows)))
    return pa.array(found, mask=codes < 0)


def _matching(text: str, records: pa.StructArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    index, names = _compiled(text)
    found = np.zeros(len(records), bool)
    found[index.match_batch(records_batch(records, names))[0]] = True
    return found


def id_lists_of(
    part: Part, names: Iterable[str], batches: Iterable[pa.Array]
) -> Iterator[pa.Array]:
    """For each record the ids of the subscriptions that match it, as lists."""
    for records, *others in gathered(batches):
        _refuse_others([records, *others], MATCHES)
        yield from packed(part).id_lists(records_batch(records, names))


def _refuse_others(given: Sequence[pa.Array], function: str) -> None:
    """`PipelineDefinitionError` unless it is one record."""
    if len(given) > 1 or not pa.types.is_struct(given[0].type):
        kind = ", ".join(str(each.type) for each in given)
        raise PipelineDefinitionError(
            f"{function} takes the columns that a filter looks at as one record, not {kind}: write "
            "struct(*), or struct(q.*) of a table q, or struct(symbol, price)"
        )


_installed: Vocabulary | None = None


def _install(vocabulary: Vocabulary) -> None:
    global _installed
    if vocabulary != _installed:
        vocabulary.install()
        _compiled.cache_clear()  # what an operator or a type means may be another now
        _installed = vocabulary
