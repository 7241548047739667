"""Composite events in tables: what Spark finds is what the reference finds."""

import logging
from functools import reduce
from pathlib import Path

import pytest
from keyed_histories import SCHEMA, Histories, row, shared
from pyspark.sql import DataFrame, SparkSession

from stentor.composite import Limits, Pattern, sub_events
from stentor.composite.intervals import END, START, moment
from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.model import Notification, NotificationId
from stentor.pipeline import detect
from stentor.pipeline.columns import RowEncoder

BY_HOST = Pattern(
    "(A ; B) within 10s partition by host",
    events={"A": "type = 'cpu' and load > 0.9", "B": "type = 'disk' and free < 0.05"},
)
HOSTS = "type string, load double, free double, host string, _id string, _time timestamp"


def table(spark: SparkSession, events: list[Notification]) -> DataFrame:
    return spark.createDataFrame([row(each) for each in events], SCHEMA)


def hosts(spark: SparkSession) -> DataFrame:
    from datetime import UTC, datetime, timedelta

    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        (kind, 0.95, 0.01, host, f"p:1:{i}", start + timedelta(seconds=i))
        for i, (kind, host) in enumerate([("cpu", "a"), ("cpu", "b"), ("disk", "a"), ("x", "b")])
    ]
    return spark.createDataFrame(rows[::-1], HOSTS)


def agree(spark: SparkSession, seeds: range) -> int:
    """Each history with its own pattern, all of them in one job; how many detections there are."""
    histories = Histories(seeds)
    found = detect(table(spark, histories.events), histories.patterns)
    rows = found.select("_id", "composite.events", "_events").collect()
    assert sorted(each["_id"] for each in rows) == histories.ids
    return len(rows)


@pytest.mark.spec("06/P3")
def test_generated_histories(spark: SparkSession) -> None:
    assert agree(spark, range(60)) > 20


@pytest.mark.slow
@pytest.mark.spec("06/P3")
def test_many_generated_histories(spark: SparkSession) -> None:
    assert sum(agree(spark, range(first, first + 100)) for first in range(1_000, 1_500, 100)) > 200


def test_one_pattern_over_many_histories(spark: SparkSession) -> None:
    cases = shared(range(200, 204), 15)
    found = [detect(table(spark, events), pattern).select("_id") for pattern, events, _ in cases]
    ids = sorted(each["_id"] for each in reduce(DataFrame.union, found).collect())
    assert ids == sorted(id for _, _, expected in cases for id in expected)
    assert len(ids) > 10


@pytest.mark.spec("R-06.02")
def test_a_row_is_the_composite_event(spark: SparkSession) -> None:
    found = detect(hosts(spark), BY_HOST)
    (one,) = found.collect()
    assert (one.host, one.A.load, one.B["count"], one.composite.events) == ("a", 0.95, 1, 2)
    assert [(each.names, each.event["_id"]) for each in one["_events"]] == [
        (["A"], "p:1:0"),
        (["B"], "p:1:2"),
    ]
    (event,) = RowEncoder(found.schema).notifications(found.toArrow().to_batches()[0])
    assert [str(each.id) for each in sub_events(event)] == ["p:1:0", "p:1:2"]
    assert event.id == NotificationId.parse(one["_id"])
    outer = Pattern("X partition by host", events={"X": f"_type = '{BY_HOST.type}'"})
    assert detect(found, outer).count() == 1  # it is an event table itself


def test_each_producer_by_itself(spark: SparkSession) -> None:
    events = [
        Notification(
            {"history": 0, "n": name, "x": 0, "host": "h", START: moment(i), END: moment(i)},
            id=NotificationId(source, 1, i),
            time=moment(i),
        )
        for i, (source, name) in enumerate([("p", "a"), ("q", "b"), ("p", "b")])
    ]
    inner = Pattern("A ; B partition by _producer", {"A": "n = 'a'", "B": "n = 'b'"})
    outer = Pattern("X partition by _producer", {"X": inner})
    rows = detect(table(spark, events), [inner, outer]).collect()
    assert sorted(each.composite.producer for each in rows) == [inner.type, "p"]


def test_the_example_of_the_page(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "composite.md").read_text("utf-8")
    section = page.partition("\n## On Spark\n")[2].partition("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    assert len(lines) >= 4
    exec("\n".join(lines), {"events": hosts(spark), "p": BY_HOST})
    assert "p:1:2" in capsys.readouterr().out


def test_mistakes_are_told(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    events = hosts(spark)
    with pytest.raises(PipelineError, match=r"'hos' — did you mean 'host'|no column 'hos'"):
        detect(events, BY_HOST.replace(partition=("hos",)))
    with pytest.raises(PipelineDefinitionError, match="no pattern"):
        detect(events, [])
    with pytest.raises(PipelineError, match="other names"):
        detect(events, Pattern("Host partition by host", events={"Host": "exists host"}))
    with caplog.at_level(logging.WARNING, "stentor.pipeline"):
        unparted = detect(events, BY_HOST.replace(partition=()), limits=Limits(runs=1))
    assert "one core" in caplog.text
    assert [each.A.host for each in unparted.collect()] == ["b"]  # the older run was given up


def test_a_moment_is_one_whatever_its_size(spark: SparkSession) -> None:
    """Rows of one time are consumed together, or it is refused; none of them is late."""
    start = moment(1_000_000)
    rows = [("cpu", 1.0, 1.0, f"h{i % 4}", f"p:1:{i}", start) for i in range(40)]
    rows += [("disk", 1.0, 0.0, f"h{i}", f"p:1:{40 + i}", moment(2_000_000)) for i in range(4)]
    events = spark.createDataFrame(rows, HOSTS)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10)
    try:
        found = detect(events, BY_HOST, limits=Limits(waiting=50))
        assert found.count() == detect(events, BY_HOST).count() > 0
        with pytest.raises(Exception, match=r"more than 5 events .* have the same time"):
            detect(events, BY_HOST, limits=Limits(waiting=5)).count()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_an_event_without_a_time_is_refused(spark: SparkSession) -> None:
    rows = [("cpu", 1.0, 1.0, "a", "p:1:0", None), ("disk", 1.0, 0.0, "a", "p:1:1", None)]
    with pytest.raises(Exception, match="a notification without a time cannot take part"):
        detect(spark.createDataFrame(rows, HOSTS), BY_HOST).count()
