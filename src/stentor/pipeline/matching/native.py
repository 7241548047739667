"""The plan for few filters: column expressions, entirely in the JVM.

Each filter is a condition, `stentor.pipeline.filters.to_column`. An event becomes an array with the
ids of the filters whose conditions hold, null in place of the others; the array is exploded, and
nulls are dropped. All of that is compiled by Spark: a function that drops nulls from arrays would
not be, and with it none of the conditions. `explain()` shows the array as `stentor_match_native`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from stentor.errors import PipelineDefinitionError
from stentor.filters import Filter
from stentor.pipeline.filters import is_native, to_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from stentor.pipeline.matching.subscriptions import Subscriptions

_NAME: Final = "stentor_match_native"


def all_native(filters: Iterable[Filter], schema: T.StructType) -> bool:
    """Whether Spark's own expressions can say what these filters say."""
    return all(is_native(filter_, schema) for filter_ in filters)


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
    matching = F.array(*found) if found else F.array().cast(T.ArrayType(kind))
    named = events.select("*", matching.alias(_NAME))
    exploded = named.select(F.explode(_NAME).alias(id), "*").drop(_NAME)
    return exploded.where(exploded[id].isNotNull())
