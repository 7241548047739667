"""Sinks: a stream becomes a query that runs on, a batch a job that is done once."""

from __future__ import annotations

from typing import Any, cast

import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stentor.errors import PipelineError
from stentor.pipeline.runs.connectors import (
    found_connector,
    kafka_options,
    kafka_records,
    write_jdbc,
)
from stentor.pipeline.runs.definition import Sink
from stentor.pipeline.runs.kinds import EXISTING
from stentor.pipeline.runs.tables import spark_options


def start(events: DataFrame, sink: Sink, name: str, *, once: bool) -> StreamingQuery:
    """Start the query of a sink under a name, from its checkpoint on.

    With `once` it ends when it has dealt with everything that is there now.
    """
    if sink.kind == "archive":
        trigger = {"availableNow": True} if once else sink.trigger
        return cast("StreamingQuery", _archive(events, sink, name, trigger))
    writer = _prepared(events, sink).writeStream.outputMode(sink.mode)
    if sink.kind == "jdbc":
        # A batch that is done again after a crash is written again: databases know of no batches.
        writer = writer.foreachBatch(lambda batch, number: write_jdbc(batch, sink, "append"))
    else:
        writer = writer.format(sink.kind).options(**_written(sink))
    if sink.checkpoint is not None:
        writer = writer.option("checkpointLocation", sink.checkpoint)
    if "partition_by" in sink.options:
        writer = writer.partitionBy(*sink.options["partition_by"])
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=sink.trigger)
    with found_connector():
        return writer.queryName(query_name(sink, name)).start()


def query_name(sink: Sink, name: str) -> str:
    """What the query is called: that of a table in memory has the table's name."""
    return str(sink.options["table"]) if sink.kind == "memory" else name


def write(events: DataFrame, sink: Sink, name: str) -> None:
    """Write a table that is no stream."""
    table, mode = _prepared(events, sink), EXISTING[sink.existing]
    if sink.kind == "archive":
        _archive(events, sink, name, None)
    elif sink.kind == "console":
        table.show(sink.options.get("rows", 20), truncate=False)
    elif sink.kind == "memory":
        table.createOrReplaceTempView(sink.options["table"])
    elif sink.kind == "jdbc":
        write_jdbc(table, sink, mode)
    else:
        writer = table.write.format(sink.kind).mode(mode).options(**_written(sink))
        if "partition_by" in sink.options:
            writer = writer.partitionBy(*sink.options["partition_by"])
        with found_connector():
            writer.save()


def _prepared(events: DataFrame, sink: Sink) -> DataFrame:
    if sink.kind == "kafka":
        return kafka_records(events, sink.options)
    kind = sink.options.get("type")
    return events if kind is None else events.withColumn("_type", F.lit(kind))


def _written(sink: Sink) -> dict[str, str]:
    if sink.kind == "kafka":
        return kafka_options(sink.options)
    own = ("type", "table", "rows", "partition_by")
    options = spark_options({k: v for k, v in sink.options.items() if k not in own})
    if sink.kind == "csv":
        options.setdefault("header", "true")
    if sink.kind == "console":
        options |= {"numRows": str(sink.options.get("rows", 20)), "truncate": "false"}
    return options


def _archive(events: DataFrame, sink: Sink, name: str, trigger: Any) -> Any:
    from stentor.pipeline import archive

    options = {key: value for key, value in sink.options.items() if key != "path"}
    path = sink.options["path"]
    if not events.isStreaming:
        if sink.existing == "fail":
            _check_new(path, events.sparkSession)
        return archive(events, path, **options)
    return archive(
        events, path, query_name=name, checkpoint=sink.checkpoint, trigger=trigger, **options
    )


def _check_new(path: str, spark: SparkSession) -> None:
    """`PipelineError` if there is an archive that has events."""
    from stentor.pipeline.archives.places import place_of
    from stentor.pipeline.archives.tables import Archive

    archive = Archive(place_of(path, spark))
    if archive.exists() and archive.table().files:
        raise PipelineError(
            f'there is an archive at {path} already; with existing = "add" the events are added to '
            "it, and with deduplicate = true those that it has are left out"
        )
