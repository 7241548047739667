"""Event tables for tests of steps: from Python values, as batches and as streams of files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = datetime(2026, 3, 8, 6, 30, tzinfo=UTC)  # half an hour before New York skips one

Event = dict[str, Any]


def at(seconds: float) -> datetime:
    """A time so many seconds after the beginning of all tests."""
    return EPOCH + timedelta(seconds=seconds)


def event(id: str, seconds: float, **attributes: Any) -> Event:
    return {**attributes, "_id": id, "_time": at(seconds).isoformat()}


def batch(spark: SparkSession, events: Iterable[Event], schema: str) -> DataFrame:
    """A table, with times that no session's zone has touched."""
    fields = spark.createDataFrame([], schema).columns
    rows = []
    for each in events:
        row = dict(each)
        if isinstance(row.get("_time"), str):
            row["_time"] = datetime.fromisoformat(row["_time"])
        rows.append(tuple(row.get(name) for name in fields))
    return spark.createDataFrame(rows, schema)


def stream(
    spark: SparkSession, directory: Path, batches: Sequence[Sequence[Event]], schema: str
) -> DataFrame:
    """A stream whose micro-batches are these."""
    directory.mkdir(exist_ok=True)
    for number, events in enumerate(batches):
        write(directory, number, events)
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.json(str(directory))


def write(directory: Path, number: int, events: Iterable[Event]) -> None:
    """One more file; it is there at once and complete, and after those before it."""
    hidden = directory / f".{number:04}"
    hidden.write_text("".join(json.dumps(each) + "\n" for each in events))
    os.utime(hidden, (1_700_000_000 + number,) * 2)
    hidden.rename(directory / f"{number:04}.json")


def drained(table: DataFrame, mode: str = "append") -> list[list[Any]]:
    """The rows of each micro-batch, until there are no more."""
    found: list[list[Any]] = []

    def collect(rows: DataFrame, number: int) -> None:
        found.append(rows.collect())

    query = (
        table.writeStream.foreachBatch(collect).outputMode(mode).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    return found
