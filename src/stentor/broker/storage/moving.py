"""A journal that passes to another broker: the copy for it, and what stays behind.

The moment in which a journal changes hands is when `handed-over` is on disk in the old directory:
one small file, written as a whole or not at all. Whoever finds it there puts the journal aside and
begins a new one, so nobody answers for the stream twice. The same goes for journals that the broker
had adopted itself. The file then lives on as `handed-over.unconfirmed` until the new owner has said
that it knows (`confirmed`).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from stentor.broker.storage import database
from stentor.broker.storage.directory import (
    ADOPTED,
    COMPANIONS,
    DATABASE,
    MARK,
    Lock,
    MarkFile,
    sync,
)
from stentor.broker.storage.journal import Journal
from stentor.errors import JournalDamaged, JournalUnavailable

#: What a journal is called that another broker answers for, and the file that says so.
_ASIDE: Final = "handed-over"
_UNCONFIRMED: Final = "handed-over.unconfirmed"


class Moved(msgspec.Struct, frozen=True):
    """That a stream belongs to another broker."""

    stream: str
    #: The stream and the name of the broker that has it.
    to: str
    broker: str


def copy_journal(journal: Journal, directory: Path) -> int:
    """Copy everything that is committed into another directory, as a journal. Its head.

    The journal may be in use. What is committed meanwhile, such as retention, is in the copy or
    not; the mark is that of the copy.
    """
    try:
        with closing(sqlite3.connect(directory / DATABASE)) as copy:
            journal.backup_to(copy)
            state = database.load(copy)
        if state is not None:
            MarkFile(directory, state.stream, state.commits, state.head).close()
    except (sqlite3.Error, OSError) as error:
        raise JournalUnavailable(f"the journal cannot be copied: {error}") from error
    if state is None:
        raise JournalDamaged("the row that says what is in the journal is missing or altered")
    return state.head


def hand_over(directory: Path, handed: Moved) -> None:
    """The journal here belongs to another broker when this returns; if it raises, it does not."""
    path = directory / _ASIDE
    draft = directory / f"{_ASIDE}.draft"
    try:
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(handed))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        sync(directory)
    except OSError as error:
        for leftover in (draft, path):
            with suppress(OSError):
                leftover.unlink()
        raise JournalUnavailable(f"{path} cannot be written: {error.strerror}") from error


def set_aside(directory: Path) -> Moved | None:
    """If the journal was handed over, keep it under another name: the next one here is a new one.

    What was handed over and not confirmed yet, now or earlier. It can be interrupted anywhere, and
    goes on from there the next time.
    """
    if not any((directory / name).exists() for name in (_ASIDE, _UNCONFIRMED)):
        return None
    lock = Lock(directory)
    try:
        if (directory / _ASIDE).exists():
            for name in (DATABASE, MARK, *(DATABASE + companion for companion in COMPANIONS)):
                path = directory / name
                if path.exists():
                    path.rename(directory / f"{_ASIDE}.{name}")
            if (directory / ADOPTED).exists():
                aside = directory / f"{_ASIDE}.{ADOPTED}"
                shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
                (directory / ADOPTED).rename(aside)
            sync(directory)
            (directory / _ASIDE).rename(directory / _UNCONFIRMED)
            sync(directory)
        return msgspec.json.decode((directory / _UNCONFIRMED).read_bytes(), type=Moved)
    except (OSError, msgspec.MsgspecError) as error:
        raise JournalUnavailable(
            f"the journal in {directory} was handed over and cannot be set aside: {error}"
        ) from error
    finally:
        lock.release()


def confirmed(directory: Path) -> None:
    """The new owner knows; nobody has to be told any more."""
    with suppress(OSError):
        (directory / _UNCONFIRMED).unlink(missing_ok=True)
