"""The plan for few filters: column expressions, entirely in the JVM.

Each filter is a condition, `stentor.pipeline.filters.to_column`. An event becomes an array with the
ids of the filters whose conditions hold, which is exploded. `explain()` shows the result as
`stentor_match_native`.

Few means few indeed. Spark makes one Java method of all conditions, and the JVM does not compile
methods of more than 8,000 bytes of code: it interprets them, about ten times as slowly. Twenty
filters with two or three conditions each are just below that; the index takes twice as long for
them, and hardly longer for a hundred times as many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stentor.errors import PipelineDefinitionError
from stentor.pipeline.filters import is_native, to_column

if TYPE_CHECKING:
    from stentor.pipeline.matching.subscriptions import Subscriptions

#: Filters, and conditions on attributes in all of them, that are expressions.
FILTERS: Final = 16
CONDITIONS: Final = 40


def match_native(events: DataFrame, subscriptions: Subscriptions, id: str) -> DataFrame:
    """Match by expressions."""
    schema = events.schema
    filters = subscriptions.parsed()
    ids = subscriptions.ids.to_pylist()
    for given, filter_ in zip(ids, filters, strict=True):
        if not is_native(filter_, schema):
            raise PipelineDefinitionError(
                f"the filter of subscription {given!r} cannot be said in Spark's expressions: "
                f"{filter_}; choose plan='index'"
            )
    kind = subscriptions.id_type
    found = [
        F.when(to_column(filter_, schema), F.lit(given).cast(kind))
        for given, filter_ in zip(ids, filters, strict=True)
    ]
    matching = F.array_compact(F.array(*found)) if found else F.array().cast(T.ArrayType(kind))
    # The array must not be a column of its own: Spark would compute it twice, the first time to
    # drop events for which it is empty.
    exploded = events.select(F.explode(matching).alias("stentor_match_native"), "*")
    return exploded.withColumnRenamed("stentor_match_native", id)
