"""Copies of a journal for another broker, and a journal that is no longer in use."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from stentor.broker.storage.directory import COMPANIONS, DATABASE, MARK, Mark, sync
from stentor.broker.storage.journal import Journal
from stentor.errors import JournalUnavailable

#: What a journal is called that another broker answers for.
_ASIDE: Final = "handed-over"


def copy_journal(journal: Journal, directory: Path) -> None:
    """A copy of everything that is committed, as a journal in another directory.

    The journal may be in use; nothing may be appended to it meanwhile.
    """
    try:
        copy = sqlite3.connect(directory / DATABASE)
        try:
            journal.backup_to(copy)
        finally:
            copy.close()
        status = journal.status()
        mark = Mark(directory, journal.stream, status["commits"], status["head"])
        mark.write(status["commits"], status["head"])
        mark.sync()
        mark.close()
    except (sqlite3.Error, OSError) as error:
        raise JournalUnavailable(f"the journal cannot be copied: {error}") from error


def set_aside(directory: Path) -> None:
    """Keep the journal under another name; the next one here is a new one."""
    for name in (DATABASE, MARK, *(DATABASE + companion for companion in COMPANIONS)):
        path = directory / name
        if path.exists():
            path.rename(directory / f"{_ASIDE}.{name}")
    sync(directory)
