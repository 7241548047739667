"""Kafka and databases by Spark's own connectors.

Spark reads and writes Kafka with a connector that it does not bring along: if its jar is not there,
that is told, with what to add. Databases need a driver in the same way. Which records make which
events is the same as in a bridge (see `stentor.pipeline.bridges.records`), but for headers, which
Spark gives as a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyspark.sql.functions as F
from pyspark import __version__ as spark_version
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from stentor.errors import PipelineError
from stentor.filters import Filter
from stentor.pipeline.filters.attributes import places
from stentor.pipeline.filters.sql import quoted
from stentor.pipeline.runs.definition import Sink, Source
from stentor.pipeline.steps.events import no_column
from stentor.pipeline.steps.options import secret

#: The columns that Spark gives for records.
KAFKA_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
)
#: Columns that say where an event comes from, and are not written.
_ORIGIN: Final = ("_id", "_type", "_time", "_broker", "_offset", "_stream", "_corrupt")


@contextmanager
def found_connector() -> Iterator[None]:
    """If Spark has no connector to Kafka inside of this, that is told, with what to do."""
    try:
        yield
    except PySparkException as error:
        said = str(error)
        if "Failed to find data source: kafka" in said or "DATA_SOURCE_NOT_FOUND" in said:
            package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"
            raise PipelineError(
                "Spark has no connector to Kafka. Add it under [spark]: "
                f'config = {{ "spark.jars.packages" = "{package}" }}, which is fetched from Maven, '
                'or "spark.jars" = the jars themselves. A pipeline that only carries events '
                "between Kafka and brokers, without schema and steps, needs none"
            ) from error
        raise


def kafka_options(options: Mapping[str, Any]) -> dict[str, str]:
    """What Spark's connector is told.

    >>> kafka_options({"servers": ["k1:9092", "k2:9092"], "settings": {"client.id": "x"}})
    {'kafka.bootstrap.servers': 'k1:9092,k2:9092', 'kafka.client.id': 'x'}
    """
    settings = options.get("settings", {}).items()
    return {
        "kafka.bootstrap.servers": ",".join(options["servers"]),
        **{f"kafka.{key}": secret(value) for key, value in settings},
    }


def kafka_source_options(options: Mapping[str, Any], *, stream: bool) -> dict[str, str]:
    """The same for a source."""
    found = {**kafka_options(options), "subscribe": ",".join(options["kafka"])}
    if stream or "starting_offsets" in options:
        found["startingOffsets"] = options.get("starting_offsets", "earliest")
    if stream and "max_rows_per_batch" in options:
        found["maxOffsetsPerTrigger"] = str(options["max_rows_per_batch"])
    if "fail_on_data_loss" in options:
        found["failOnDataLoss"] = str(options["fail_on_data_loss"]).lower()
    return found


def kafka_table(spark: SparkSession, source: Source) -> DataFrame:
    """The records of topics, as events."""
    reader: Any = spark.readStream if source.stream else spark.read
    options = kafka_source_options(source.options, stream=source.stream)
    with found_connector():
        return kafka_events(reader.format("kafka").options(**options).load(), source.options)


def kafka_events(records: DataFrame, options: Mapping[str, Any]) -> DataFrame:
    """Events of records as Spark gives them."""
    about = F.struct("topic", "partition", "offset", F.col("key").cast("string").alias("key"))
    origin = [
        F.concat_ws(
            ":", F.concat_ws("/", F.lit("kafka"), "topic", "partition"), F.lit("0"), "offset"
        ).alias("_id"),
        (F.lit(options["type"]) if "type" in options else F.col("topic")).alias("_type"),
        F.col("timestamp").alias("_time"),
        about.alias("kafka"),
    ]
    if options.get("format", "json") == "raw":
        table = records.select(F.col("value").alias("_payload"), *origin)
    else:
        value = F.from_json(F.col("value").cast("string"), options["schema"])
        table = records.select(value.alias("value"), *origin)
        table = table.select("value.*", "_id", "_type", "_time", "kafka")
    if "filter" in options:
        from stentor.pipeline.steps import select

        check_filter(table, options["filter"])
        return select(table, options["filter"])
    return table


def check_filter(events: DataFrame, text: str) -> None:
    """`PipelineError` if a filter asks for an attribute that no event of the table can have."""
    for name in sorted(Filter(text).names):
        if not name.startswith("_") and not places(events.schema, name):
            raise no_column(events.schema, name)


def kafka_records(events: DataFrame, options: Mapping[str, Any]) -> DataFrame:
    """Events as records for Spark to write."""
    columns = [F.lit(options["topic"]).alias("topic")]
    if "key" in options:
        if options["key"].split(".")[0] not in events.columns:
            raise no_column(events.schema, options["key"])
        columns.append(F.col(options["key"]).cast("string").alias("key"))
    if options.get("format", "json") == "raw":
        value = F.col("_payload")
    else:
        names = [name for name in events.columns if name not in _ORIGIN]
        value = F.to_json(F.struct(*map(quoted, names)))
    return events.select(*columns, value.alias("value"))


def jdbc_options(options: Mapping[str, Any], url: str) -> dict[str, str]:
    """What Spark's JDBC source and sink are told."""
    names = {"table": "dbtable", "query": "query", "user": "user", "driver": "driver"}
    found = {"url": url, **options.get("settings", {})}
    found |= {names[key]: str(options[key]) for key in names if key in options}
    if "password" in options:
        found["password"] = secret(options["password"])
    return found


def write_jdbc(events: DataFrame, sink: Sink, mode: str) -> None:
    """Write a table to a database; in one transaction for each partition."""
    options = jdbc_options(sink.options, sink.options["url"])
    events.write.format("jdbc").options(**options).mode(mode).save()
