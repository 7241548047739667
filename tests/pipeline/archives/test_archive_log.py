"""The log of an archive: one winner for each number, whole files, nothing twice."""

import errno
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from archive_events import append, event, log_at
from pyspark.sql import SparkSession

from stentor.errors import ArchiveError, InvalidConfiguration
from stentor.pipeline.archives import compact
from stentor.pipeline.archives.compacting import run_groups
from stentor.pipeline.archives.compaction import plan, replace_files
from stentor.pipeline.archives.log import INTERVAL, LOG, SNAPSHOTS, Log
from stentor.pipeline.archives.manifests import Batch, Commit, File, Progress, State
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.stores import ArrowStore, HadoopStore, LocalStore, Store
from stentor.pipeline.columns.types import as_json

FIELDS = as_json(pa.schema({"x": pa.int64()}))


def commit(path: str, **more: Any) -> Commit:
    file = File(path, None, None, 1, 10, 0)
    return Commit(at=0.0, operation="append", schemas=[FIELDS], add=[file], **more)


def appending(number: int) -> Callable[[State], Commit]:
    return lambda _: commit(f"data/{number}")


@pytest.mark.spec("R-07.60")
def test_of_several_writers_each_gets_in_exactly_once(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        log = log_at(tmp_path)
        for number in range(25):
            batch = Batch(f"q{writer}", number)
            for _ in range(2):  # Spark runs a batch again if it does not know how it ended

                def make(state: State, number: int = number, batch: Batch = batch) -> Commit | None:
                    path = f"data/{writer}-{number}"
                    return None if state.has(batch) else commit(path, batch=batch)

                log.commit(make)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    state = log_at(tmp_path).state()
    assert state.version == 100
    assert sorted(state.files) == sorted(f"data/{w}-{n}" for w in range(4) for n in range(25))
    assert state.batches == {f"q{w}": 24 for w in range(4)}


def test_a_log_that_was_left_behind_catches_up(tmp_path: Path) -> None:
    old, busy = log_at(tmp_path), log_at(tmp_path)
    assert old.state().version == 0
    for number in range(INTERVAL + 5):
        busy.commit(appending(number))
        if number == 3:
            assert old.state().version == 4
    # The commits that it would have read next are tidied up; a snapshot has them.
    for entry in busy.store.entries(LOG):
        if int(entry.name[-25:-5]) <= INTERVAL:
            busy.store.delete([entry.name])
    assert old.state() == busy.state() == log_at(tmp_path).state()
    assert len(old.state().files) == INTERVAL + 5


def test_every_version_can_be_told_until_it_is_tidied_up(tmp_path: Path) -> None:
    log = log_at(tmp_path)
    for number in range(2 * INTERVAL + 3):
        log.commit(appending(number))
    for version in (1, INTERVAL - 1, INTERVAL, INTERVAL + 1, 2 * INTERVAL + 3):
        assert len(log_at(tmp_path).at(version).files) == version
    gone = log.tidy(before=float("inf"))
    assert f"{SNAPSHOTS}/{INTERVAL:020}.json.zst" in gone
    with pytest.raises(ArchiveError, match=r"version 5 .* no longer known"):
        log_at(tmp_path).at(5)
    assert log_at(tmp_path).at(2 * INTERVAL + 3) == log.state()
    assert log.tidy(before=0.0) == []


def test_what_is_damaged_or_too_new_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no archive at"):
        log_at(tmp_path).existing()
    log = log_at(tmp_path)
    log.commit(lambda _: commit("data/a"))
    file = tmp_path / LOG / f"{1:020}.json"
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2])
    with pytest.raises(ArchiveError, match=r"1\.json is damaged"):
        log_at(tmp_path).state()
    file.write_bytes(b'{"at": "a new kind of time", "operation": "append", "format": 99}')
    with pytest.raises(ArchiveError, match="newer version of Stentor"):
        log_at(tmp_path).state()
    file.write_bytes(b'{"at": 0.0, "operation": "append", "format": 99}')
    with pytest.raises(ArchiveError, match="newer version of Stentor"):
        log_at(tmp_path).state()


def test_two_writers_that_contradict_each_other(tmp_path: Path) -> None:
    log = log_at(tmp_path)

    def of(kind: Any) -> Callable[[State], Commit]:
        schema = as_json(pa.schema({"x": kind}))
        file = File(str(kind), None, None, 1, 10, 0)
        return lambda _: Commit(at=0.0, operation="append", schemas=[schema], add=[file])

    log.commit(of(pa.int64()))
    log.commit(of(pa.float64()))
    assert log.state().schema == pa.schema({"x": pa.float64()})
    with pytest.raises(ArchiveError, match=r"'x' is a double in the archive and a string in the"):
        log.commit(of(pa.string()))
    assert log.state().version == 2


def test_positions_are_those_of_the_slowest_writer(tmp_path: Path) -> None:
    log = log_at(tmp_path)
    append(log, [event(5, 1), event(9, 2)], writer="quotes")
    append(log, [event(7, 1)], writer="trades")
    append(log, [event(20, 1, broker="b2")], writer="quotes")
    progress = Progress(next={"b3": 40})
    log.commit(lambda _: Commit(at=0.0, operation="append", writer="trades", progress=progress))
    assert log.state().positions() == {"b1": 8, "b2": 21, "b3": 40}
    compact(None, tmp_path, retire=["trades"])
    assert log.state().positions() == {"b1": 10, "b2": 21}
    with pytest.raises(
        InvalidConfiguration, match=r"no query 'trades' .* those that have: 'quotes'"
    ):
        compact(None, tmp_path, retire=["trades"])


def test_a_disk_that_takes_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ArchiveError("full")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = log_at(tmp_path)
    log.commit(appending(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ArchiveError, match="cannot be written: no space left on device"):
            log.commit(appending(2))
    assert log_at(tmp_path).state().version == 1
    for number in range(2, INTERVAL):
        log.commit(appending(number))
    # The commit stands although there is no room for the snapshot that would follow it.
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put", refuse)
        log.commit(appending(INTERVAL))
    assert log_at(tmp_path).state().version == INTERVAL
    assert not (tmp_path / SNAPSHOTS).exists()
    log.commit(appending(INTERVAL + 1))
    assert (tmp_path / SNAPSHOTS).exists()


class Unsure(LocalStore):
    """Does what it is told, but says the first time that somebody else was faster."""

    said = False

    def put_new(self, name: str, data: bytes) -> bool:
        done = super().put_new(name, data)
        self.said, first = True, not self.said
        return done and not first


def test_a_commit_that_succeeds_although_it_is_said_to_fail(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    log = Log(Unsure(place))
    log.commit(appending(1))
    assert log.state() == log_at(tmp_path).state()
    assert log.state().version == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_compaction_never_deletes_what_the_log_names(
    tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        append(log_at(tmp_path), [event(n, n)])
    store = Unsure(Place(str(tmp_path)))
    log = Log(store)
    results = run_groups(None, plan(log.state(), str(tmp_path), 2**20))
    if not known:  # what was written cannot be read at once
        real, tried = LocalStore.read, Counter[str]()

        def read(self: LocalStore, name: str) -> bytes | None:
            tried[name] += 1
            return None if name.endswith("4.json") and tried[name] <= 2 else real(self, name)

        monkeypatch.setattr(Unsure, "read", read)
    replace_files(log, results)
    (file,) = log_at(tmp_path).state().files
    assert (tmp_path / file).exists()
    assert log_at(tmp_path).state().version == 4


def names(store: Store) -> set[str]:
    """The files in `a`, without the checksums that Hadoop keeps."""
    return {entry.name for entry in store.entries("a") if not entry.name.endswith(".crc")}


def stores(directory: Path, spark: SparkSession) -> list[Store]:
    local = Place(str(directory / "local"))
    return [LocalStore(local), HadoopStore(Place(str(directory / "hadoop")), spark)]


def test_all_stores_keep_the_same_promises(tmp_path: Path, spark: SparkSession) -> None:
    for store in stores(tmp_path, spark):
        assert store.read("a/b") is None
        assert store.entries("a") == []
        assert store.put_new("a/b", b"first")
        assert not store.put_new("a/b", b"second")
        assert store.read("a/b") == b"first"
        store.put("a/b", b"third")
        store.put("a/c/d", bytes(range(256)))
        assert store.read("a/b") == b"third"
        assert store.read("a/c/d") == bytes(range(256))
        assert names(store) == {"a/b", "a/c/d"}
        reader = ArrowStore(store.place)
        assert reader.read("a/b") == b"third"
        assert reader.read("a/x") is None
        assert names(reader) == names(store)
        with pytest.raises(ArchiveError, match="only be read without Spark"):
            reader.put_new("a/e", b"")
        store.delete(["a/b", "a/x"])
        assert store.read("a/b") is None


def test_the_same_log_through_hadoop(tmp_path: Path, spark: SparkSession) -> None:
    log = Log(HadoopStore(Place(str(tmp_path)), spark))
    for number in range(3):
        log.commit(appending(number))
    assert log_at(tmp_path).state() == log.state()
    assert log.state().version == 3


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
    with pytest.raises(ArchiveError, match="no path"):
        place_of(" ")
