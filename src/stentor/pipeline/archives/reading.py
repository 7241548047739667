"""Data files as a DataFrame: exactly those that a manifest lists, under one schema.

The schema comes from the manifest, so Spark looks at no file before it reads it. Columns that a
file does not have are null. Files that differ in the type of a column are read apart, each under
its own type, and joined. Conditions are asked before that, of what the files hold. Where a value
may not fit the type that its column has in the whole archive, which statistics tell, the rows go
through `fitted`; elsewhere Spark's own cast will do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from stentor.pipeline.archives.manifests import File, State
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import CORRUPT, as_in, fitted
from stentor.pipeline.archives.spark_schemas import spark_schema
from stentor.pipeline.archives.statistics import may_lose
from stentor.pipeline.columns.types import as_json, from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(
    spark: SparkSession,
    place: Place,
    state: State,
    files: Sequence[File],
    schema: pa.Schema | None = None,
    where: Callable[[DataFrame], DataFrame] = lambda events: events,
) -> DataFrame:
    """The rows of files for which a condition holds; all columns, or a part of the schema."""
    schema = table_schema(state) if schema is None else schema
    own = [from_json(fields) for fields in state.schemas]
    physical = [as_in(schema, one) for one in own]
    groups: dict[tuple[str, bool], list[File]] = defaultdict(list)
    for file in files:
        kind = physical[file.schema]
        loses = kind != schema and may_lose(file, own[file.schema], schema)
        groups[str(as_json(kind)), loses].append(file)
    if not groups:
        return where(spark.createDataFrame([], spark_schema(schema)))
    parts = []
    for (_, loses), group in groups.items():
        events = where(_read(spark, place, physical[group[0].schema], group))
        parts.append(_fit(events, schema) if loses else _cast(events, schema))
    return reduce(lambda a, b: a.unionAll(b), parts)


def table_schema(state: State) -> pa.Schema:
    """The schema of all events as a table; with `_corrupt` if some value may not fit it."""
    schema = state.schema
    if CORRUPT.name in schema.names:
        return schema
    own = [from_json(fields) for fields in state.schemas]
    differ = [as_in(schema, one) != schema for one in own]
    loses = any(
        differ[file.schema] and may_lose(file, own[file.schema], schema)
        for file in state.files.values()
    )
    return schema.append(CORRUPT) if loses else schema


def _read(spark: SparkSession, place: Place, schema: pa.Schema, files: list[File]) -> DataFrame:
    # Names of files are no patterns, even if the archive's own path has brackets in it.
    reader = spark.read.schema(spark_schema(schema)).option("__globPaths__", "false")
    return reader.parquet(*[place.for_spark(file.path) for file in files])


def _cast(events: DataFrame, schema: pa.Schema) -> DataFrame:
    wanted = spark_schema(schema)
    if events.schema == wanted:
        return events
    names = [f"`{name.replace('`', '``')}`" for name in wanted.fieldNames()]
    kinds = [field.dataType for field in wanted.fields]
    return events.select(
        [F.col(n).cast(kind).alias(f.name) for n, kind, f in zip(names, kinds, wanted, strict=True)]
    )


def _fit(events: DataFrame, schema: pa.Schema) -> DataFrame:
    return events.mapInArrow(partial(_fitted, as_json(schema)), spark_schema(schema))


def _fitted(
    fields: list[dict[str, Any]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    schema = from_json(fields)
    for batch in batches:
        yield fitted(batch, schema)
