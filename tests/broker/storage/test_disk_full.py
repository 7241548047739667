"""A disk that is full, or fails, costs the batches that it could not take and nothing else."""

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from journal_harness import Host

from stentor.broker.settings import Retention
from stentor.broker.storage import JournalBatch, check, database
from stentor.broker.storage.directory import RESERVE, RESERVE_BYTES
from stentor.errors import JournalUnavailable


def limit(host: Host, pages: int) -> None:
    """Let SQLite take the disk for full at this size."""
    host.journal._writer._db.execute(f"PRAGMA max_page_count = {pages}")


@pytest.mark.spec("R-07.39")
def test_a_full_disk_fails_what_it_cannot_take(tmp_path):
    with Host(tmp_path) as host:
        host.publish(b"before", producers={"ann": (0, 1)})
        limit(host, 60)
        refused = JournalBatch(
            [bytes(300_000)],
            producers={"ann": (0, 2)},
            retain=[("key", 0)],
            durables={"desk": b"new"},
        )
        host.journal.append(refused)
        host.settle()
        assert isinstance(refused.error, JournalUnavailable)
        assert "full" in str(refused.error)
        # Nothing of it was stored.
        assert host.journal.head == 1
        assert host.journal.published("ann") == (0, 1)
        assert host.journal.durables() == {}
        assert host.journal.last_values() == []
        assert host.committed[-1] == [(refused, 0)]
        # What still fits is taken, and everything once there is room again.
        assert host.publish(b"small") == 2
        with pytest.raises(JournalUnavailable):
            host.publish(bytes(300_000))
        limit(host, 100_000)
        assert host.publish(bytes(300_000), producers={"ann": (0, 2)}) == 3
        assert host.journal.status()["failed_commits"] == 2
    with Host(tmp_path) as host:
        assert host.entries() == [b"before", b"small", bytes(300_000)]
        assert host.journal.published("ann") == (0, 2)
    assert check(tmp_path).ok


def test_exactly_the_batches_of_the_failed_commit_fail(tmp_path):
    with Host(tmp_path, start=False) as host:
        limit(host, 60)
        together = [JournalBatch([data]) for data in (b"small", bytes(300_000), b"small")]
        for batch in together:
            host.journal.append(batch)
        host.journal.start(host.call, host.committed.append)
        host.settle()
        assert all(isinstance(batch.error, JournalUnavailable) for batch in together)
        assert host.publish(b"later") == 1
        assert host.entries() == [b"later"]


#: Runs in a process of its own, where no file may grow beyond a limit: writing then fails in the
#: middle of a commit, as on a disk that is full or broken.
LIMITED = """
import resource, sys
from pathlib import Path
from journal_harness import Host
from stentor.errors import JournalUnavailable

with Host(Path(sys.argv[1])) as host:
    host.publish(b"before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    taken = refused = 0
    for number in range(200):
        try:
            host.publish(b"%d" % number * 2000)
            taken += 1
        except JournalUnavailable:
            refused += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = host.publish(b"after")
    assert after == taken + 2, (after, taken)
    assert len(host.entries()) == taken + 2
    assert host.entries()[-1] == b"after"
    print(taken, refused)
"""


@pytest.mark.spec("R-07.39")
def test_a_write_that_fails_half_way(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    taken, refused = map(int, result.stdout.split())
    assert taken > 0
    assert refused > 0
    with Host(tmp_path) as host:
        assert host.journal.head == taken + 2
        assert host.entries()[-1] == b"after"
    assert check(tmp_path).ok


def test_retention_that_fails_is_tried_again(tmp_path, monkeypatch):
    """Entries may then stay longer, but none that is promised is missing."""
    with Host(tmp_path, retention=Retention(None, 10_000)) as host:
        expire = host.journal._writer.expire
        failures = []

        def failing():
            if len(failures) < 3:
                failures.append(host.journal._writer._planned)
                host.journal._writer._planned = 0
                raise OSError("no space left")
            expire()

        monkeypatch.setattr(host.journal._writer, "expire", failing)
        for number in range(100):
            host.publish(b"%d" % number * 200)
            assert len(host.entries()) == host.journal.head - host.journal.low + 1
        assert len(failures) == 3
        assert host.journal.status()["bytes"] < 13_000


def test_opening_a_journal_takes_no_room(tmp_path):
    """So it opens on a disk that is full, as a process left it that was killed."""
    with Host(tmp_path / "b1") as host:
        host.publish(b"one")
        shutil.copytree(tmp_path / "b1", tmp_path / "killed")
    log = tmp_path / "killed" / "journal.db-wal"
    before = log.read_bytes()
    with Host(tmp_path / "killed") as host:
        assert log.read_bytes() == before
        assert host.entries() == [b"one"]


def test_what_is_kept_in_reserve_is_given_up_to_open_a_journal(tmp_path, monkeypatch):
    """SQLite makes an index beside a journal that was closed, for which there may be no room."""
    with Host(tmp_path) as host:
        host.publish(b"one")
    reserve = tmp_path / RESERVE
    assert reserve.stat().st_size == RESERVE_BYTES
    connect = database.connect_to_read

    def full(path):
        if reserve.exists() and reserve.stat().st_size:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return connect(path)

    monkeypatch.setattr(database, "connect_to_read", full)
    for _ in range(3):
        with Host(tmp_path) as host:
            assert host.entries() == [b"one"]
        assert reserve.stat().st_size == RESERVE_BYTES
    reserve.unlink()
    with Host(tmp_path) as host:
        assert host.entries() == [b"one"]
        assert reserve.stat().st_size == RESERVE_BYTES


@pytest.mark.parametrize("what", [".", "journal.db", "journal.db-wal", "journal.mark"])
def test_nothing_is_stored_in_files_that_are_gone(tmp_path, what, caplog):
    data, away = tmp_path / "b1", tmp_path / "away"
    with Host(data) as host:
        host.publish(b"before")
        (data / what).rename(away)
        refused = JournalBatch([b"lost"]), JournalBatch([b"lost, too"])
        for batch in refused:
            host.journal.append(batch)
        host.settle()
        for batch in refused:
            assert isinstance(batch.error, JournalUnavailable)
            assert "was removed" in str(batch.error)
        assert host.journal.failing
        assert caplog.text.count("nothing more is stored or acknowledged") == 1
        if what != ".":
            shutil.copy(away, data / what)
            with pytest.raises(JournalUnavailable, match="was replaced"):
                host.publish(b"lost")
        away.replace(data if what == "." else data / what)
        assert host.publish(b"after") == 2
        assert not host.journal.failing
    with Host(data) as host:
        assert host.entries() == [b"before", b"after"]
