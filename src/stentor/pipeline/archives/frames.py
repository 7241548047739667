"""Data files as a DataFrame: exactly those that a version of the archive lists, under one schema.

The schema comes from the log, so Spark looks at no file before it reads it. Columns that a file
does not have are null. Files whose attributes came in other types are read apart, each under its
own types, and joined. Conditions are asked before that, of what the files hold. Where a value may
not fit the type that its column has in the whole archive, which statistics tell, the rows go
through `fitted`; elsewhere Spark's own cast will do.

Spark's own reader of Parquet is used where it can be: on file systems that every Spark has. Files
in object stores are read in Python, by the same layer and with the same credentials as everything
else; and so are files in which another program has brought rows of several types together.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from stentor.errors import UnsupportedColumn
from stentor.filters import Filter
from stentor.model.event_types import event_types
from stentor.pipeline.archives.columns import DAY, chosen, logical, typed, variants
from stentor.pipeline.archives.facts import RowFilter
from stentor.pipeline.archives.merge import in_order
from stentor.pipeline.archives.order import before
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import fitted, leaves
from stentor.pipeline.archives.statistics import kind_of, may_lose, table_schema
from stentor.pipeline.archives.tables import File, Table
from stentor.pipeline.columns.layout import arrow_schema
from stentor.pipeline.columns.reserved import RESERVED
from stentor.pipeline.columns.types import is_instant, is_list, list_of, no_value, sql_name
from stentor.pipeline.filters.sql import quoted

#: What every Spark reads by itself.
_HADOOP: Final = ("/", "hdfs:", "viewfs:")
#: Rows that one task reads in Python.
ROWS_PER_TASK: Final = 250_000


def load(
    spark: SparkSession,
    table: Table,
    files: Sequence[File],
    schema: pa.Schema | None = None,
    filter: Filter | None = None,
    where: Callable[[DataFrame], DataFrame] = lambda events: events,
) -> DataFrame:
    """The rows of files that match a filter; all columns, or a part of the schema.

    `where` is the filter for Spark.
    """
    schema = table_schema(table) if schema is None else schema
    kinds = variants(table.columns)
    wanted = dict(leaves(schema))
    groups: dict[tuple[Any, ...], list[File]] = defaultdict(list)
    for file in files:
        kind = kind_of(file, kinds) if table.place.root.startswith(_HADOOP) else None
        loses = any(
            may_lose(file, path, each, wanted[name])
            for name, columns in kinds.items()
            for path, each in columns.items()
            if len(columns) > 1 and name in wanted
        )
        groups[kind, loses, not file.is_own, None if file.is_own else file.type].append(file)
    if not groups:
        return where(spark.createDataFrame([], spark_schema(schema)))
    parts = []
    for (kind, loses, others, type), group in groups.items():
        if kind is None:
            parts.append(_in_python(spark, table, group, schema, filter or Filter("")))
            continue
        events = _read(spark, table, kind, group)
        if others and "_type" in table.columns.names:
            events = events.withColumn("_type", F.lit(type).cast("string"))
        events = where(events)
        if loses:
            # Spark takes a dot in the name of a column for a field when it hands columns to Python.
            plain = events.toDF(*[f"c{number}" for number in range(len(events.columns))])
            work = partial(_fitted, events.columns, schema)
            parts.append(plain.mapInArrow(work, spark_schema(schema)))
        else:
            parts.append(_cast(events, schema))
    return reduce(lambda a, b: a.unionAll(b), parts)


def _read(
    spark: SparkSession, table: Table, kind: frozenset[str], files: Sequence[File]
) -> DataFrame:
    fields = pa.schema(chosen(table.columns, kind))
    # Names of files are no patterns, even if the archive's own path has brackets in it.
    reader = spark.read.schema(spark_schema(fields)).option("__globPaths__", "false")
    events = reader.parquet(*[table.place.for_spark(file.path) for file in files])
    own = logical(fields)
    return events if own == fields else as_schema(events, own)


def as_schema(events: DataFrame, schema: pa.Schema) -> DataFrame:
    """The same columns under other names and types, inside of structs, too."""
    columns = zip(events.columns, spark_schema(schema).fields, strict=True)
    return events.select([F.col(quoted(c)).cast(f.dataType).alias(f.name) for c, f in columns])


def _cast(events: DataFrame, schema: pa.Schema) -> DataFrame:
    wanted = spark_schema(schema)
    if events.schema == wanted:
        return events
    having = set(events.columns)
    return events.select(
        [
            (F.col(quoted(f.name)) if f.name in having else F.lit(None))
            .cast(f.dataType)
            .alias(f.name)
            for f in wanted.fields
        ]
    )


def _fitted(
    names: list[str], schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield fitted(batch.rename_columns(names), schema)


# -- in Python


class Part(NamedTuple):
    """Some files, for one task, and what is to be read of them."""

    place: Place
    columns: pa.Schema
    files: tuple[File, ...]
    filter: str
    #: What this program knows of event types.
    lineage: dict[str, frozenset[str]]
    #: By journal: what is left to the brokers.
    positions: Mapping[str, int] = {}

    def read(self) -> Iterator[pa.Table]:
        """The events that match, with the types that they came in."""
        wanted = RowFilter(Filter(self.filter), self._ancestors)
        for portion in in_order(self.place, self.files, self.columns):
            rows = portion.events
            keep = before(rows, self.positions)
            for _, _, events in typed(rows if keep is None else rows.filter(keep)):
                found = events.filter(pa.array(wanted.matches(events)))
                if found.num_rows:
                    yield found

    def _ancestors(self, kind: str) -> frozenset[str]:
        return self.lineage.get(kind) or event_types.ancestors(kind)


def part_of(
    table: Table, files: Sequence[File], filter: str, positions: Mapping[str, int] | None = None
) -> Part:
    """What a task has to know to read these files."""
    kinds = {file.type for file in files if file.type is not None}
    lineage = {kind: event_types.ancestors(kind) for kind in kinds}
    return Part(table.place, table.columns, tuple(files), filter, lineage, positions or {})


def tasks_of(files: Sequence[File]) -> Iterator[list[File]]:
    """Neighbours together, as many as one task should read."""
    some: list[File] = []
    for file in files:
        if some and sum(each.rows for each in some) + file.rows > ROWS_PER_TASK:
            yield some
            some = []
        some.append(file)
    if some:
        yield some


def _in_python(
    spark: SparkSession, table: Table, files: Sequence[File], schema: pa.Schema, filter: Filter
) -> DataFrame:
    some = tasks_of(sorted(files, key=lambda file: (file.begins, file.path)))
    parts = [part_of(table, each, str(filter)) for each in some]
    return in_tasks(spark, parts, partial(_read_part, schema), spark_schema(schema))


def _read_part(schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
    for events in part.read():
        for found in events.combine_chunks().to_batches():
            yield fitted(found, schema)


def in_tasks(
    spark: SparkSession,
    items: Sequence[Any],
    work: Callable[[Any], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """What a function makes of these, of each in a task of its own."""

    def worked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column("item").to_pylist():
                yield from work(pickle.loads(data))

    tasks = spark.createDataFrame([(pickle.dumps(item),) for item in items], "item binary")
    return tasks.repartition(len(items)).mapInArrow(worked, schema)


# -- between Spark's schemas and those of archives


def spark_schema(schema: pa.Schema) -> StructType:
    """The same for Spark."""
    return from_arrow_schema(schema)


def archived(schema: StructType) -> pa.Schema:
    """The columns in which the archive keeps events of this schema; `UnsupportedColumn`.

    >>> archived(StructType().add("n", "integer").add("text", "string"))
    n: int64
    text: string
    """
    names = [name.lower() for name in schema.fieldNames()]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UnsupportedColumn(
            f"there are several columns named {min(twice)!r}, and Spark does not tell apart names "
            "that differ in case only; rename one"
        )
    if DAY in names:
        raise UnsupportedColumn(f"the archive has a column {DAY!r} itself; rename yours")
    given = [field for field in arrow_schema(schema) if not pa.types.is_null(field.type)]
    fields = [pa.field(field.name, _kept(field.name, field.type)) for field in given]
    for field in fields:
        wanted = RESERVED.get(field.name)
        if wanted is not None and sql_name(field.type) != wanted.simpleString():
            raise UnsupportedColumn(
                f"column {field.name} is a {wanted.simpleString()}, not a {sql_name(field.type)}; "
                "cast or rename it"
            )
    if not fields:
        raise UnsupportedColumn("there is no column to archive")
    return pa.schema(fields)


def _kept(name: str, kind: pa.DataType) -> pa.DataType:
    """Integers and floats of all sizes are long and double."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or is_instant(kind):
        return kind
    if sql_name(kind) in ("string", "binary"):
        return kind
    if is_list(kind):
        return list_of(_kept(name, kind.value_type))
    # A variant is a struct in Arrow, and told by metadata.
    if pa.types.is_struct(kind) and kind.num_fields and not any(map(_is_variant, kind)):
        return pa.struct([(f.name, _kept(f"{name}.{f.name}", f.type)) for f in kind])
    raise no_value(name, kind)


def _is_variant(field: pa.Field) -> bool:
    return b"variant" in (field.metadata or {})
