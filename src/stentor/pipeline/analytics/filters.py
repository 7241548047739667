"""A subscription base as a table of distinct filters.

Many subscriptions have the same filter, in the same words or in others. Equal texts are one row
before anything is parsed. Parsing gives the canonical form, and a filter that is one conjunction
has exactly one text in that form. A union may have several, depending on the order in which it was
written; those that look at the same attributes are brought together and compared as filters.

A filter that does not parse is a row, too, with the problem: one mistake in a table of thousands is
what an operator wants to see, not the end of the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from stentor.errors import PipelineDefinitionError, StentorError
from stentor.filters import Filter
from stentor.pipeline.matching.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARSED: Final = "filter string, alike string, subscriptions bigint, problem string"
_EQUAL: Final = "filter string, subscriptions bigint"
_MISSING: Final = "there is no filter"


def distinct_filters(subscriptions: DataFrame, *, filter: str = "filter") -> DataFrame:
    """One row for each distinct filter: filter, subscriptions, problem.

    `filter` is the canonical text, or the text as given if there is a `problem` with it;
    `subscriptions` says how many have it.
    """
    if filter not in subscriptions.columns:
        raise PipelineDefinitionError(
            f"subscriptions have no column {filter!r}, only {', '.join(subscriptions.columns)}; "
            "name the column of the filters with filter=..."
        )
    vocabulary = Vocabulary.of_this_process()
    texts = subscriptions.select(F.col(f"`{filter}`").cast("string").alias("filter"))
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
    columns = ("filter", "subscriptions", "problem")
    return simple.select(*columns).unionByName(unions.select(*columns))


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
        filters, alike, problems = [], [], []
        for text in batch.column("filter").to_pylist():
            canonical, group, problem = text, None, None
            try:
                if text is None:
                    problem = _MISSING
                else:
                    filter = Filter(text)
                    canonical = str(filter)
                    if len(filter.conjuncts) > 1:
                        group = "\0".join(sorted(filter.names))
            except StentorError as error:
                problem = str(error)
            filters.append(canonical)
            alike.append(group)
            problems.append(problem)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(filters, pa.string()),
                pa.array(alike, pa.string()),
                batch.column("subscriptions"),
                pa.array(problems, pa.string()),
            ],
            names=["filter", "alike", "subscriptions", "problem"],
        )


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
    return pa.table(
        {
            "filter": pa.array(texts.values(), pa.string()),
            "subscriptions": pa.array((counts[filter] for filter in texts), pa.int64()),
        }
    )
