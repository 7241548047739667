"""A subscription base as a table of distinct filters.

Many subscriptions have the same filter, in the same words or in others. Equal texts are one row
before anything is parsed. Parsing gives the canonical form, and a filter that is one conjunction
has exactly one text in that form. A union may have several, depending on the order in which it was
written; those that look at the same attributes are brought together and compared as filters.

A filter that does not parse is a row, too, with the problem: one mistake in a table of thousands is
what an operator wants to see, not the end of the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stentor.errors import PipelineDefinitionError, StentorError
from stentor.filters import Filter
from stentor.pipeline.filters.sql import quoted
from stentor.pipeline.matching.vocabulary import Vocabulary

_PARSED: Final = "filter string, alike string, subscriptions bigint, problem string"
_EQUAL: Final = "filter string, subscriptions bigint"
_DISTINCT: Final = ("filter", "subscriptions", "problem")
_MISSING: Final = "there is no filter"


def distinct_filters(subscriptions: DataFrame, *, filter: str = "filter") -> DataFrame:
    """One row for each distinct filter: filter, subscriptions, problem.

    `filter` is the canonical text, or the text as given if there is a `problem` with it;
    `subscriptions` says how many have it. A table of these stays as it is.
    """
    if subscriptions.columns == [*_DISTINCT]:
        return subscriptions
    if filter not in subscriptions.columns:
        raise PipelineDefinitionError(
            f"subscriptions have no column {filter!r}, only {', '.join(subscriptions.columns)}; "
            "name the column of the filters with filter=..."
        )
    vocabulary = Vocabulary.of_this_process()
    texts = subscriptions.select(F.col(quoted(filter)).cast("string").alias("filter"))
    parsed = (
        texts.groupBy("filter")
        .agg(F.count("*").alias("subscriptions"))
        .mapInArrow(partial(_parsed, vocabulary=vocabulary), _PARSED)
    )
    total = F.sum("subscriptions").alias("subscriptions")
    simple = parsed.where("alike is null").groupBy("filter", "problem").agg(total)
    unions = (
        parsed.where("alike is not null")
        .groupBy("alike")
        .applyInArrow(lambda table: _equal(table, vocabulary=vocabulary), _EQUAL)
        .withColumn("problem", F.lit(None).cast("string"))
    )
    return simple.select(*_DISTINCT).unionByName(unions.select(*_DISTINCT))


def popularity(subscriptions: DataFrame, *, filter: str = "filter") -> DataFrame:
    """How many subscriptions have which filter, the most popular first.

        popularity(spark.table("subscriptions")).show()

    Columns: filter, subscriptions, share (of all subscriptions), problem. Filters that match the
    same in other words are one.
    """
    found = distinct_filters(subscriptions, filter=filter)
    total = subscriptions.agg(F.count("*").alias("total"))
    return (
        found.crossJoin(F.broadcast(total))
        .select(
            "filter",
            "subscriptions",
            (F.col("subscriptions") / F.col("total")).alias("share"),
            "problem",
        )
        .orderBy(F.desc("subscriptions"), "filter")
    )


def _parsed(
    batches: Iterable[pa.RecordBatch], *, vocabulary: Vocabulary
) -> Iterator[pa.RecordBatch]:
    vocabulary.install()
    for batch in batches:
        rows = []
        counts = batch.column("subscriptions").to_pylist()
        for text, count in zip(batch.column("filter").to_pylist(), counts, strict=True):
            canonical, group, problem = text, None, None if text is not None else _MISSING
            try:
                if text is not None:
                    filter = Filter(text)
                    canonical = str(filter)
                    if len(filter.conjuncts) > 1:
                        group = "\0".join(sorted(filter.names))
            except StentorError as error:
                problem = str(error)
            rows.append((canonical, group, count, problem))
        yield arrow_rows(rows, _PARSED)


def _equal(table: pa.Table, *, vocabulary: Vocabulary) -> pa.Table:
    """Unions over the same attributes: equal ones become one, under the least of their texts."""
    vocabulary.install()
    texts: dict[Filter, str] = {}
    counts: dict[Filter, int] = {}
    for text, count in zip(
        table["filter"].to_pylist(), table["subscriptions"].to_pylist(), strict=True
    ):
        filter = Filter(text)
        texts[filter] = min(text, texts.get(filter, text))
        counts[filter] = counts.get(filter, 0) + count
    found = [(texts[filter], counts[filter]) for filter in texts]
    return pa.Table.from_batches([arrow_rows(found, _EQUAL)])


_TYPES: Final = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}


def arrow_rows(rows: Sequence[Sequence[Any]], schema: str) -> pa.RecordBatch:
    """Rows for Spark, under a schema as Spark writes it."""
    names, kinds = zip(*(part.split() for part in schema.split(", ")), strict=True)
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(c, _TYPES[kind]) for c, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)
