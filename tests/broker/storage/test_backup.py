"""Copies of a data directory: one moment, verified, and never taken for the journal itself."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from stentor.broker.settings import Retention
from stentor.broker.storage import Journal, JournalBatch, check
from stentor.broker.storage.backup import backup, restore
from stentor.errors import (
    DataInUse,
    InvalidConfiguration,
    JournalDamaged,
    JournalUnavailable,
)


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    found = Journal.open(tmp_path / "b1", name="b1", retention=Retention())
    found.start(lambda function, *args: function(*args), lambda done: None)
    yield found
    found.close()


def write(journal: Journal, *items: bytes) -> None:
    """Wait until these are on disk."""
    head = journal.head + len(items)
    journal.append(JournalBatch(list(items)))
    while journal.head < head:
        threading.Event().wait(0.001)


def test_what_is_committed_meanwhile_is_not_in_it(journal: Journal, tmp_path: Path) -> None:
    """Also if that happens between any two steps of the copying."""
    for _ in range(200):
        write(journal, *(os.urandom(10_000) for _ in range(5)))
    told: list[int] = []

    def progress(done: int, of: int) -> None:
        told.append(done)
        if done < of:
            write(journal, b"later")

    report = backup(tmp_path / "b1", tmp_path / "copy", progress)
    assert (report.low, report.head) == (1, 1000)
    assert len(told) > 1
    assert journal.head == 1000 + len(told) - 1
    found = check(tmp_path / "copy")
    assert found.ok
    assert (found.head, found.stream) == (1000, journal.stream)


def test_a_copy_says_that_it_is_one(journal: Journal, tmp_path: Path) -> None:
    write(journal, b"one", b"two")
    backup(tmp_path / "b1", tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / "outdated").read_bytes()) == {
        "stream": journal.stream,
        "kept": 2,
        "head": 2,
    }
    # A copy of a copy says the same.
    restore(tmp_path / "copy", tmp_path / "b2")
    backup(tmp_path / "b2", tmp_path / "again")
    assert (tmp_path / "again" / "outdated").read_bytes() == (
        tmp_path / "copy" / "outdated"
    ).read_bytes()


def test_nothing_is_overwritten_and_nobody_is_disturbed(journal: Journal, tmp_path: Path) -> None:
    write(journal, b"one")
    copy = tmp_path / "copy"
    backup(tmp_path / "b1", copy)
    with pytest.raises(InvalidConfiguration, match="already exists"):
        backup(tmp_path / "b1", copy)
    with pytest.raises(InvalidConfiguration, match="no journal"):
        backup(tmp_path / "nowhere", tmp_path / "other")
    with pytest.raises(DataInUse):
        restore(copy, tmp_path / "b1", replace=True)
    write(journal, b"two")
    journal.close()
    with pytest.raises(InvalidConfiguration, match="--replace"):
        restore(copy, tmp_path / "b1")
    report = restore(copy, tmp_path / "b1", replace=True)
    assert report.before == str(tmp_path / "b1" / "before-restore-1")
    assert check(Path(report.before)).head == 2
    assert check(tmp_path / "b1").head == 1
    assert not (tmp_path / "b1" / "restore.part").exists()
    with pytest.raises(InvalidConfiguration, match="not a backup"):
        restore(Path(report.before), tmp_path / "b3")


def test_a_damaged_journal_is_not_copied_and_a_damaged_copy_not_restored(
    journal: Journal, tmp_path: Path
) -> None:
    write(journal, b"one" * 1000)
    journal.close()
    backup(tmp_path / "b1", tmp_path / "copy")
    for directory, act in (
        ("copy", lambda: restore(tmp_path / "copy", tmp_path / "b2")),
        ("b1", lambda: backup(tmp_path / "b1", tmp_path / "other")),
    ):
        with sqlite3.connect(tmp_path / directory / "journal.db") as db:
            db.execute("UPDATE block SET data = zeroblob(length(data))")
        db.close()
        with pytest.raises(JournalDamaged, match="damaged"):
            act()
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "other.part").exists()
    assert not (tmp_path / "b2" / "journal.db").exists()


@pytest.mark.parametrize("step", ["room", "fsync", "rename"])
def test_a_disk_that_fails_leaves_nothing(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    write(journal, b"one")
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(*_: Any, **__: Any) -> Any:
        raise full

    if step == "room":
        real = os.statvfs(tmp_path)
        none = os.statvfs_result([*real[:4], 0, *real[5:]])
        monkeypatch.setattr(os, "statvfs", lambda path: none)
    else:
        monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "rename")), fail)
    with pytest.raises(JournalUnavailable, match=r"make room|No space left"):
        backup(tmp_path / "b1", tmp_path / "copy")
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b1"]
    backup(tmp_path / "b1", tmp_path / "copy")
    assert check(tmp_path / "copy").ok


def test_a_restore_that_was_interrupted_can_be_done_again(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(journal, b"one", b"two")
    backup(tmp_path / "b1", tmp_path / "copy")
    journal.close()
    shutil.copytree(tmp_path / "b1", tmp_path / "old")
    rename = Path.rename
    for stop in range(1, 12):
        to = tmp_path / f"to{stop}"
        shutil.copytree(tmp_path / "old", to)
        left = stop

        def dies(path: Path, target: Path) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", dies)
        try:
            restore(tmp_path / "copy", to, replace=True)
        except KeyboardInterrupt:
            monkeypatch.undo()
            restore(tmp_path / "copy", to, replace=True)
        else:
            monkeypatch.undo()
            break
        assert check(to).ok
        assert (to / "outdated").exists()
    else:
        raise AssertionError("it never came to an end")
