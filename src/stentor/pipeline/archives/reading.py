"""Data files as a DataFrame: exactly those that a manifest lists, under one schema.

The schema comes from the manifest, so Spark looks at no file before it reads it. Columns that a
file does not have are null. Spark can't read a column of whole numbers as fractions, though, so
files that differ in the type of a column are read apart, each under its own type, and joined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from stentor.pipeline.archives.manifests import File, State
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(
    spark: SparkSession,
    place: Place,
    state: State,
    files: Sequence[File],
    schema: StructType | None = None,
) -> DataFrame:
    """The rows of files; all columns, or those of a part of the archive's schema."""
    schema = state.schema if schema is None else schema
    physical = [_as_in(schema, from_json(fields)) for fields in state.schemas]
    groups: dict[str, list[File]] = defaultdict(list)
    for file in files:
        groups[physical[file.schema].json()].append(file)
    if not groups:
        return spark.createDataFrame([], schema)
    parts = [
        _cast(_read(spark, place, physical[group[0].schema], group), schema)
        for group in groups.values()
    ]
    return reduce(lambda a, b: a.unionAll(b), parts)


def _read(spark: SparkSession, place: Place, schema: StructType, files: list[File]) -> DataFrame:
    # Names of files are no patterns, even if the archive's own path has brackets in it.
    reader = spark.read.schema(schema).option("__globPaths__", "false")
    return reader.parquet(*[place.for_spark(file.path) for file in files])


def _cast(events: DataFrame, schema: StructType) -> DataFrame:
    if events.schema == schema:
        return events
    names = [f"`{name.replace('`', '``')}`" for name in schema.fieldNames()]
    kinds = [field.dataType for field in schema.fields]
    return events.select(
        [F.col(n).cast(kind).alias(f.name) for n, kind, f in zip(names, kinds, schema, strict=True)]
    )


def _as_in(schema: StructType, physical: StructType) -> StructType:
    """The schema, but with the types that some files have for its columns."""
    theirs = {field.name: field.dataType for field in physical.fields}
    return StructType(
        [StructField(f.name, _type_as_in(f.dataType, theirs.get(f.name))) for f in schema.fields]
    )


def _type_as_in(wanted: DataType, physical: DataType | None) -> DataType:
    if isinstance(wanted, StructType) and isinstance(physical, StructType):
        return _as_in(wanted, physical)
    if isinstance(wanted, ArrayType) and isinstance(physical, ArrayType):
        return ArrayType(_type_as_in(wanted.elementType, physical.elementType))
    return wanted if physical is None else physical
