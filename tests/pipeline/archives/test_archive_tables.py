"""The Delta table of an archive: one winner of each race, nothing twice, and clear words."""

import errno
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archive_events import SCHEMA, append, at, event, table_of
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from stentor.errors import ArchiveError, InvalidConfiguration
from stentor.filters import Filter
from stentor.pipeline.archives import archive, compact, history, past, tables
from stentor.pipeline.archives.data_files import write_piece
from stentor.pipeline.archives.merge import in_order
from stentor.pipeline.archives.moments import ALWAYS
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.replayer import Events
from stentor.pipeline.archives.tables import Archive, Batch, Step, Table


def offsets(table: Table) -> list[int]:
    """Of all events, in order."""
    portions = in_order(table.place, list(table.files.values()), table.columns)
    return [row["_offset"] for portion in portions for row in portion.events.to_pylist()]


@pytest.mark.spec("R-07.60")
def test_of_several_writers_each_gets_in_exactly_once(tmp_path: Path) -> None:
    at(tmp_path).columns(table_of([]).schema)

    def write(writer: int) -> None:
        archive = at(tmp_path)
        for number in range(6):
            batch = Batch(f"q{writer}", number)
            files = write_piece(archive.place, table_of([event(number, 1, broker=f"b{writer}")]))
            for _ in range(2):  # Spark runs a batch again if it does not know how it ended

                def make(table: Table, batch: Batch = batch, files: Any = files) -> Step | None:
                    if table.has(batch):
                        return None
                    adds = [file.action() for file in files]
                    return Step(add=adds, transactions={batch.query: batch.number})

                archive.commit(make)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    table = at(tmp_path).table()
    assert table.version == 18
    found = Counter((file.journal, file.offsets) for file in table.files.values())
    assert found == Counter((f"b{w}", (n, n)) for w in range(3) for n in range(6))
    assert [table.has(Batch("q1", n)) for n in (5, 6)] == [True, False]
    assert not table.has(Batch("q9", 0))


def test_of_several_writers_that_begin_at_once_one_makes_the_table(tmp_path: Path) -> None:
    for attempt in range(20):
        together = Barrier(4)

        def begin(writer: int, path: Path = tmp_path / str(attempt), t: Barrier = together) -> None:
            t.wait()
            at(path).columns(pa.schema({f"own{writer}": pa.int64(), "_type": pa.string()}))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(begin, range(4)))
        columns = at(tmp_path / str(attempt)).table().columns.names
        assert {f"own{writer}" for writer in range(4)} < {*columns}


def test_a_commit_that_succeeds_although_it_is_said_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, said = tables._write, []

    def unsure(step: Step, delta: DeltaTable) -> None:
        real(step, delta)
        if not said:
            said.append(step)
            raise CommitFailedError("time out")

    monkeypatch.setattr(tables, "_write", unsure)
    found = append(at(tmp_path), [event(1, 1)])
    assert (found.version, found.rows, len(said)) == (1, 1, 1)


def test_columns_grow_under_several_writers(tmp_path: Path) -> None:
    """One has a column as a long, the other as a double; whoever is first has the plain name."""
    kinds = [pa.int64(), pa.float64()]

    def grow(number: int) -> list[str]:
        schema = pa.schema({"x": kinds[number % 2], f"y{number}": pa.string()})
        return list(at(tmp_path).columns(schema).names)

    at(tmp_path).columns(pa.schema({"z": pa.string()}))
    with ThreadPoolExecutor(4) as pool:
        own = list(pool.map(grow, range(4)))
    table = at(tmp_path).table()
    assert {name for names in own for name in names} <= set(table.columns.names)
    assert own[0][0] == own[2][0] != own[1][0] == own[3][0]
    assert {own[0][0], own[1][0]} in ({"x", "x@double"}, {"x", "x@bigint"})
    with pytest.raises(ArchiveError, match=r"'x' is a \w+ in the archive and a string in the"):
        at(tmp_path).columns(pa.schema({"x": pa.string()}))
    assert at(tmp_path).table().version == table.version


def test_versions_and_copies(tmp_path: Path, spark: SparkSession) -> None:
    """Time travel, as long as the files are there; a copy is an archive."""
    path, copy = tmp_path / "a", tmp_path / "b"
    for n in range(4):
        append(at(path), [event(n, n)])
    os.rename(path, copy)
    assert offsets(at(copy).at(2)) == [0, 1]
    assert history(spark, copy, version=3).count() == 3
    compact(None, copy)
    append(at(copy), [event(9, 9)])
    assert offsets(at(copy).at(2)) == [0, 1]
    assert offsets(at(copy).table()) == [0, 1, 2, 3, 9]
    assert at(copy).table().positions() == {"b1": 10}
    compact(None, copy, grace=timedelta(0))
    with pytest.raises(ArchiveError, match="is missing from the archive"):
        offsets(at(copy).at(2))
    with pytest.raises(ArchiveError, match=r"version 99 .* no longer known, or not yet"):
        at(copy).at(99)


def test_a_long_log_is_kept_in_checkpoints(tmp_path: Path) -> None:
    """What a checkpoint of the format must keep: files, statistics, transactions, positions."""
    archive = at(tmp_path)
    append(archive, [event(1, 1), event(5, 2, price=float("inf"))])
    before = archive.table()
    known = before.files, before.progress
    for n in range(105):
        archive.commit(lambda _, n=n: Step(transactions={"q": n}))  # type: ignore[misc]
    for log in (tmp_path / "_delta_log").glob("*.json"):
        if int(log.stem) < 100:
            log.unlink()
    after = at(tmp_path).table()
    assert list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert after.has(Batch("q", 104))
    assert (after.files, after.progress) == known
    assert after.columns == before.columns


def test_positions_are_those_of_the_slowest_writer(tmp_path: Path) -> None:
    archive = at(tmp_path)
    append(archive, [event(5, 1), event(9, 2)], writer="quotes")
    append(archive, [event(7, 1)], writer="trades")
    append(archive, [event(20, 1, broker="b2")], writer="quotes")
    append(archive, writer="trades", next={"b3": 40})
    assert archive.table().positions() == {"b1": 8, "b2": 21, "b3": 40}
    compact(None, tmp_path, retire=["trades"])
    assert archive.table().positions() == {"b1": 10, "b2": 21}
    with pytest.raises(
        InvalidConfiguration, match=r"no query 'trades' .* those that have: 'quotes'"
    ):
        compact(None, tmp_path, retire=["trades"])


def test_what_is_no_archive_is_said(tmp_path: Path, spark: SparkSession) -> None:
    events = spark.createDataFrame([(1,)], "x long")
    with pytest.raises(ArchiveError, match="there is no archive at"):
        at(tmp_path / "nowhere").table()
    other = tmp_path / "other"
    write_deltalake(other, pa.table({"x": [1]}))
    for attempt in (
        lambda: history(spark, other),
        lambda: archive(events, other),
        lambda: compact(None, other),
        lambda: past(other).recall(Filter("")),
    ):
        with pytest.raises(ArchiveError, match="a Delta table that is not an archive of Stentor's"):
            attempt()
    assert DeltaTable(other).version() == 0
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(ArchiveError, match=r"is not an archive, and holds .mine\.txt."):
        archive(events, tmp_path / "full")
    with pytest.raises(ArchiveError, match="cannot be written"):
        archive(events, "/proc/archive")  # where nobody can write
    (tmp_path / "old" / "_stentor" / "log").mkdir(parents=True)
    for path in (tmp_path / "old", f"file:{tmp_path}/old"):
        with pytest.raises(ArchiveError, match=r"stentor archive convert .*old`"):
            history(spark, path)
    with pytest.raises(ArchiveError, match="stentor archive convert"):
        archive(events, tmp_path / "old")


def test_what_is_damaged_or_too_new_is_said(tmp_path: Path) -> None:
    append(at(tmp_path), [event(1, 1)])
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    good = log.read_text()
    log.write_text(good.replace('\\"stentor.archive\\":\\"1\\"', "").replace(
        '"stentor.archive":"1"', '"stentor.archive":"2"'
    ))  # fmt: skip
    with pytest.raises(ArchiveError, match="newer version of Stentor"):
        at(tmp_path).table()
    log.write_text(good[: len(good) // 2])
    with pytest.raises(ArchiveError, match="cannot be read"):
        at(tmp_path).table()


def test_a_disk_that_takes_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    append(at(tmp_path), [event(1, 1)])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArchiveError, match="cannot be written: no space left on device"):
        at(tmp_path).place.write("_stentor/writers/w.json", b"{}")
    with pytest.raises(OSError, match="No space left"):
        append(at(tmp_path), [event(2, 2)])
    assert at(tmp_path).table().rows == 1
    assert len(list(tmp_path.glob("data/**/*.parquet"))) == 1


def test_files_that_nobody_names_are_not_read(tmp_path: Path) -> None:
    """A writer died between its files and the commit."""
    archive = at(tmp_path)
    append(archive, [event(1, 1)])
    write_piece(archive.place, table_of([event(2, 2)]))
    assert offsets(archive.table()) == [1]
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 1
    assert compact(None, tmp_path).deleted == 0  # it may be about to be committed
    assert compact(None, tmp_path, grace=timedelta(0)).deleted == 1
    assert len(list(tmp_path.glob("data/**/*.parquet"))) == 1


def test_others_may_compact_and_append(tmp_path: Path, spark: SparkSession) -> None:
    """An engine that knows the format and nothing of Stentor; order and exact numbers stay."""
    archive = at(tmp_path)
    longs = StructType().add("x", LongType()).add("_type", StringType())
    doubles = StructType().add("x", DoubleType()).add("_type", StringType())
    for field in SCHEMA.fields[-3:]:
        longs, doubles = longs.add(field), doubles.add(field)
    large = 2**53 + 1
    for n in range(6):
        values: list[Any] = [large, 0.5]
        schema = [longs, doubles][n % 2]
        events = [event(n, 100 - n, x=values[n % 2]), event(n, n, broker="b2", x=values[n % 2])]
        append(archive, events, schema=schema)
    before = archive.table()
    wanted = [
        (row["_broker"], row["_offset"])
        for portion in in_order(before.place, list(before.files.values()), before.columns, ALWAYS)
        for row in portion.events.to_pylist()
    ]
    DeltaTable(tmp_path).optimize.compact()
    after = archive.table()
    assert [file.is_own for file in after.files.values()] == [False]
    assert after.positions() == before.positions() == {"b1": 6, "b2": 6}

    def check(table: Table) -> None:
        found = [
            (row["_broker"], row["_offset"], row["x"], row["_type"])
            for portion in Events(table, Filter(f"x >= {large} or x < 1"), ALWAYS).behind()
            for row in portion.events.to_pylist()
        ]
        assert [each[:2] for each in found] == wanted
        assert {repr(each[2]) for each in found} == {str(large), "0.5"}
        assert {each[3] for each in found} == {"quote"}
        rows = history(spark, tmp_path, f"x = {large} and _type = 'quote'").collect()
        assert [(row.x, json.loads(row["_corrupt"])["x"]) for row in rows] == [(None, large)] * 6
        assert history(spark, tmp_path, "x = 0.5 and isa quote").count() == 6

    check(after)
    # The next compaction puts what is together with other files in order again.
    append(archive, [event(6, 50, x=large)], schema=longs)
    wanted.append(("b1", 6))
    assert sorted(offsets(archive.table())) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]


def test_names_of_files_tell_what_is_in_them(tmp_path: Path) -> None:
    append(at(tmp_path), [event(1, 1, _type="a/b"), event(2, None, _type=None)])
    found = sorted(str(p.parent.relative_to(tmp_path)) for p in tmp_path.glob("data/**/*.parquet"))
    assert found == ["data/a~2fb/2026-01-01", "data/none/none"]
    for file in at(tmp_path).table().files.values():
        assert pq.read_metadata(tmp_path / file.path).num_rows == file.rows == 1


def test_paths_as_users_write_them(tmp_path: Path, spark: SparkSession) -> None:
    for written in (
        str(tmp_path),
        f"{tmp_path}/",
        f"file:{tmp_path}",
        f"file://{tmp_path}",
        tmp_path,
    ):
        assert place_of(written, spark) == Place(str(tmp_path))
    assert place_of("hdfs://nn:8020/x/", spark) == Place("hdfs://nn:8020/x")
    options = {"AWS_REGION": "x", "AWS_ENDPOINT_URL": "y"}
    assert place_of("s3a://b/x", None, options).storage_options == options
    with pytest.raises(ArchiveError, match="not a path"):
        place_of(" ")


def test_an_object_store_is_read_and_written_by_one_layer(tmp_path: Path) -> None:
    """`memory:` and the like have no local path; a file URI given as such takes the same way."""
    place = Place(f"file://{tmp_path}")
    assert not place.is_local
    archive = Archive(place)
    append(archive, [event(n, n) for n in range(3)])
    append(archive, [event(n, n) for n in range(3, 5)])
    assert offsets(Archive(place).table()) == [0, 1, 2, 3, 4]
    assert Archive(place).table().positions() == {"b1": 5}
    assert place.read("nothing") is None
    place.delete(["nothing"])
