"""Archives of streams: every event exactly once, wherever the driver fails."""

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from archive_events import DAWN, append, at
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from stentor.errors import ArchiveError, InvalidConfiguration
from stentor.filters import Filter
from stentor.pipeline.archives import appender, archive, compact, history, past, tables
from stentor.pipeline.archives.appender import Appender
from stentor.pipeline.archives.moments import from_micros
from stentor.pipeline.archives.places import place_of
from stentor.pipeline.archives.tables import Archive, Batch, Table
from stentor.pipeline.steps import order

SCHEMA = "n long, _id string, _type string, _time timestamp, _broker string, _offset long"
NOW = "availableNow"


class Source:
    """A stream of files; each is a micro-batch."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        directory.mkdir()
        self.published = 0

    def publish(self, batches: int, rows: int = 6) -> None:
        for _ in range(batches):
            lines = []
            for _ in range(rows):
                n = self.published = self.published + 1
                time = f"2026-01-0{1 + n % 2}T00:00:{n % 60:02}Z"
                kind = "quote" if n % 3 else "trade"
                lines.append(
                    f'{{"n":{n},"_id":"p:1:{n}","_type":"{kind}","_time":"{time}",'
                    f'"_broker":"b1","_offset":{n}}}'
                )
            name = self.directory / f"{self.published:06}.json"
            hidden = name.with_name(f".{name.name}")
            hidden.write_text("\n".join(lines))
            hidden.rename(name)

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.directory))


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "source")


def state(path: Path) -> Table:
    return Archive(place_of(path)).table()


def on_disk(path: Path) -> int:
    return len(list(path.glob("data/**/*.parquet")))


def run(events: DataFrame, path: Path, **options: Any) -> None:
    query = archive(events, path, trigger=NOW, **options)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def numbers(spark: SparkSession, path: Path) -> Counter[int]:
    return Counter(row.n for row in history(spark, path).select("n").collect())


class Crash(Exception):
    pass


def crashing(step: str, patch: pytest.MonkeyPatch) -> None:
    """Let the next batch fail at one step, once."""
    done = threading.Event()

    def once() -> None:
        if not done.is_set():
            done.set()
            raise Crash(step)

    def before(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def fails(*arguments: Any, **named: Any) -> Any:
            once()
            return real(*arguments, **named)

        patch.setattr(owner, name, fails)

    def after(owner: Any, name: str, when: Callable[[Any], bool] = bool) -> None:
        real = getattr(owner, name)

        def fails(*arguments: Any, **named: Any) -> Any:
            found = real(*arguments, **named)
            if when(found):
                once()
            return found

        patch.setattr(owner, name, fails)

    {
        "before anything": lambda: before(Appender, "append"),
        "after the files": lambda: after(appender, "reported"),
        "before the names of journals": lambda: before(Appender, "_note"),
        "before the commit": lambda: before(tables, "_write"),
        "right after the commit": lambda: after(tables, "_write", lambda _: True),
        "before Spark knows": lambda: after(Appender, "append"),
    }[step]()


STEPS = (
    "before anything",
    "after the files",
    "before the names of journals",
    "before the commit",
    "right after the commit",
    "before Spark knows",
)


@pytest.mark.spec("R-07.60")
def test_every_event_once_wherever_it_fails(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    for step in STEPS:
        source.publish(1)
        with pytest.MonkeyPatch.context() as patch:
            crashing(step, patch)
            with pytest.raises(StreamingQueryException, match=f"Crash: {step}"):
                run(source.stream(), path)
    source.publish(1)
    run(source.stream(), path)
    wanted = Counter(range(1, source.published + 1))
    assert numbers(spark, path) == wanted
    found = state(path)
    assert found.positions() == {"b1": source.published + 1}
    # What failed attempts have left behind is there, and goes with a vacuum.
    before = on_disk(path)
    assert before > len(found.files)
    done = compact(spark, path, grace="1 day")
    assert done.deleted == 0
    done = compact(spark, path, grace=timedelta(0))
    assert done.deleted == before
    assert numbers(spark, path) == wanted
    assert on_disk(path) == len(state(path).files) == 4


def test_a_batch_that_is_there_is_not_written_again(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """Also if two drivers have it at the same time, and one is slow."""
    path = tmp_path / "archive"
    writer, slow = (Appender(at(path), "q", False, False, 0) for _ in range(2))
    for each in (writer, slow):
        each._query, each.checkpoint = "id", place_of(tmp_path)
    source.publish(1)
    events = spark.read.schema(SCHEMA).json(str(source.directory))
    with pytest.MonkeyPatch.context() as patch:
        real = Archive.commit

        def commit(archive: Archive, make: Any) -> Table:
            if archive is slow.archive:
                writer.batch(events, 0)
            return real(archive, make)

        patch.setattr(Archive, "commit", commit)
        slow.batch(events, 0)
    writer.batch(events, 0)
    assert numbers(spark, path) == Counter(range(1, 7))
    found = state(path)
    assert found.version == 1
    assert found.has(Batch("id", 0))
    assert not found.has(Batch("id", 1))
    assert on_disk(path) == len(found.files)


@pytest.mark.slow
def test_many_small_batches_are_joined_on_the_way(
    spark: SparkSession, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "PACE", 3)
    monkeypatch.setattr(appender, "CLEANING", 0.0)
    path, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    source.publish(7, rows=2)
    run(source.stream(), path, query_name="small", checkpoint=checkpoint, grace=timedelta(0))
    assert numbers(spark, path) == Counter(range(1, 15))
    assert len(state(path).files) <= 8
    assert not (path / "_stentor/checkpoints").exists()
    assert state(path).progress["small"].next == {"b1": 15}
    # What they were joined from is gone.
    assert on_disk(path) == len(state(path).files)


def test_events_that_are_held_back_are_not_taken_for_archived(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.publish(1)
    path = tmp_path / "archive"
    run(source.stream().dropDuplicates(["_id"]), path, query_name="prompt")
    assert not state(path).progress["prompt"].holds
    run(order(source.stream(), "1 hour"), path, query_name="sorted")
    found = state(path)
    assert found.progress["sorted"].holds
    assert not found.progress["prompt"].holds
    assert found.rows < 2 * source.published  # the rest waits for what may come earlier
    text = r"query 'sorted'.* holds events back.* archive the events before they are ordered"
    with pytest.raises(ArchiveError, match=text):
        past(path).recall(Filter(""))
    with pytest.raises(ArchiveError, match=text):
        history(spark, path, brokers="127.0.0.1:1", live=True)
    with pytest.raises(InvalidConfiguration, match="'sorted' held events back"):
        compact(spark, path, retire=["sorted"])
    assert history(spark, path).count() == found.rows


def test_a_stream_that_changes_its_types_says_so(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    archive(spark.createDataFrame([("x",)], "n string"), path)
    with pytest.raises(ArchiveError, match="'n' is a string in the archive and a bigint"):
        archive(source.stream(), path)
    with pytest.raises(Exception, match="leave out slashes"):
        archive(source.stream(), tmp_path / "other", query_name="a/b")


def test_readers_see_either_what_was_or_what_is(spark: SparkSession, tmp_path: Path) -> None:
    """Compactions and appends go on while a reader looks; every look is whole."""
    path = tmp_path / "archive"
    columns = "n long, _time timestamp, _broker string, _offset long"
    rows = [(n, _time(n), "b1", n) for n in range(40)]
    for start in range(0, 40, 10):
        part = rows[start : start + 10]
        archive(spark.createDataFrame(part, columns).coalesce(1), path, cluster=False)
    planned = history(spark, path)  # its files are replaced before it is read
    failures: list[BaseException] = []
    looks: list[int] = []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                found = state(path)
                looks.append(found.rows)
                for file in found.files.values():
                    assert (path / file.path).stat().st_size == file.bytes
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for turn in range(6):
            compact(None, path)
            more = [(100 + turn, _time(turn), "b1", 100 + turn)]
            _append_locally(path, more)
    finally:
        stop.set()
        reader.join()
    assert not failures, failures
    assert looks == sorted(looks)
    assert set(looks) <= set(range(40, 47))
    assert sorted(row.n for row in planned.collect()) == list(range(40))
    assert numbers(spark, path) == Counter([*range(40), *range(100, 106)])


def _time(n: int) -> Any:
    return from_micros(DAWN + n)


def _append_locally(path: Path, rows: list[Any]) -> None:
    schema = (
        StructType()
        .add("n", LongType())
        .add("_time", TimestampType())
        .add("_broker", StringType())
        .add("_offset", LongType())
    )
    names = schema.fieldNames()
    events = [dict(zip(names, row, strict=True)) for row in rows]
    for event in events:
        event["_time"] = DAWN + event["n"]
    append(at(path), events, schema=schema)
