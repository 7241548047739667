"""Composite events in streams: the same as in tables, once the watermark has passed."""

from pathlib import Path
from typing import Any

import pytest
from keyed_histories import SCHEMA, Histories, row
from pyspark.sql import SparkSession
from spark_histories import ending, in_stream, ran, write

from stentor.composite import Pattern
from stentor.composite.intervals import moment
from stentor.errors import PipelineError
from stentor.pipeline import detect


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    return spark


@pytest.mark.spec("06/P3", "R-06.32")
def test_a_stream_is_what_its_table_is_and_goes_on_after_a_restart(
    session: SparkSession, tmp_path: Path
) -> None:
    histories = Histories(range(300, 325))
    in_stream(session, histories, 33, tmp_path)  # two files, and a restart between them
    found, folder = histories.ids, tmp_path / "in"
    events = histories.events
    # What comes now comes too late, and is told.
    write(folder, 9, [row(e) for e in events[:5]])
    late = sum(any(m.matches(e) for m in _filters(histories.patterns)) for e in events[:5])
    again, figures = ran(session, folder, histories.patterns, tmp_path, 4)
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
