"""Composite events in streams: the same as in tables, once the watermark has passed."""

import json
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from keyed_histories import SCHEMA, Histories, row
from pyspark.sql import DataFrame, SparkSession

from stentor.composite import Pattern
from stentor.composite.intervals import moment
from stentor.errors import PipelineError
from stentor.pipeline import detect
from stentor.pipeline.runs.figures import Figures

END = 100_000_000  # after everything, in microseconds


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    return spark


def write(folder: Path, number: int, rows: list[tuple[Any, ...]]) -> None:
    """A file of the stream."""
    names = ("history", "n", "x", "host", "composite", "_id", "_time")
    lines = []
    for each in rows:
        content = dict(zip(names, each, strict=True))
        start, end = content["composite"]
        content["composite"] = {"start": start.isoformat(), "end": end.isoformat()}
        content["_time"] = content["_time"].isoformat()
        lines.append(json.dumps(content))
    (folder / f"{number:03}.json").write_text("\n".join(lines) + "\n")


def ending(time: int = END) -> tuple[Any, ...]:
    """An event that nobody looks at; the watermark follows it."""
    at = moment(time)
    return (-1, "z", 0, "z", (at, at), f"end:1:{time}", at)


def ran(
    session: SparkSession, folder: Path, patterns: list[Pattern], home: Path
) -> tuple[list[str], Figures]:
    """Whatever there is now goes through; the ids of all that was ever found, and the figures."""
    stream: DataFrame = (
        session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))
    )
    query = (
        detect(stream, patterns, watermark="4 seconds", shards=4)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(home / "found"))
    )
    query.awaitTermination()
    figures = Figures("detect")
    for progress in query.recentProgress:
        figures.add(json.loads(progress.json))
    return sorted(r["_id"] for r in session.read.parquet(str(home / "found")).collect()), figures


@pytest.mark.spec("06/P3", "R-06.32")
def test_a_stream_is_what_its_table_is_and_goes_on_after_a_restart(
    session: SparkSession, tmp_path: Path
) -> None:
    histories = Histories(range(300, 325))
    r = Random(1)
    # Nobody is more than four seconds behind; else they arrive in any order.
    events = sorted(histories.events, key=lambda e: e.time + timedelta(seconds=r.random() * 3.9))
    folder = tmp_path / "in"
    folder.mkdir()
    third = len(events) // 3 + 1
    write(folder, 0, [row(e) for e in events[:third]])
    write(folder, 1, [row(e) for e in events[third : 2 * third]])
    found, _ = ran(session, folder, histories.patterns, tmp_path)
    assert set(found) < set(histories.ids)
    write(folder, 2, [row(e) for e in events[2 * third :]])
    write(folder, 3, [ending()])
    found, figures = ran(session, folder, histories.patterns, tmp_path)
    assert found == histories.ids
    assert figures.late == 0
    # What comes now comes too late, and is told.
    write(folder, 4, [row(e) for e in events[:5]])
    late = sum(any(m.matches(e) for m in _filters(histories.patterns)) for e in events[:5])
    again, figures = ran(session, folder, histories.patterns, tmp_path)
    assert (again, figures.late) == (found, late)


def _filters(patterns: list[Pattern]) -> list[Any]:
    return [each.filters() for each in patterns]


def test_time_passes_with_events_that_do_not_matter(session: SparkSession, tmp_path: Path) -> None:
    alone = Pattern("A not followed by B within 5s partition by host",
                    events={"A": "n = 'a'", "B": "n = 'b'"})  # fmt: skip
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, 0, [(0, "a", 0, "h", (moment(0), moment(0)), "p:1:0", moment(0))])
    write(folder, 1, [(*ending()[:3], None, *ending()[4:])])
    found, _ = ran(session, folder, [alone], tmp_path)
    assert len(found) == 1


def test_mistakes_are_told(session: SparkSession, tmp_path: Path) -> None:
    stream = session.readStream.schema(SCHEMA).json(str(tmp_path))
    pattern = Pattern("A ; B partition by host", events={"A": "n = 'a'", "B": "n = 'b'"})
    with pytest.raises(PipelineError, match="need a watermark"):
        detect(stream, pattern)
    session.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    )
    with pytest.raises(PipelineError, match="kept in RocksDB"):
        detect(stream, pattern, watermark="1 second")
