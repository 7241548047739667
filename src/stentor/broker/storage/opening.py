"""Whether a journal is what it was: the questions that are asked before it is used.

The files are looked at first, since SQLite tidies up as it opens them. Then the number of commits
is compared with the mark, which shows whether the newest are missing. Then the contents: SQLite's
own check and all checksums of a small journal; of a large one, the small tables and the newest
blocks. Its older blocks are verified whenever they are read.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from stentor.broker.storage import database
from stentor.broker.storage.database import SMALL_TABLES, JournalState, damaged, when
from stentor.broker.storage.directory import DATABASE, MARK, REPAIRED, Witnessed, read_mark
from stentor.broker.storage.reader import Reader
from stentor.errors import JournalUnavailable, StentorError

#: How much of the newest part is verified; a smaller file is verified as a whole.
VERIFY_BYTES: Final = 64 * 2**20

#: Errors that do not come from what is in the file.
_OUTSIDE: Final = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_BUSY,
)


def look(directory: Path) -> Witnessed | None:
    """Look at the files before SQLite does. What the mark says, if it counts."""
    witnessed = read_mark(directory)
    fault = fault_of_files(directory, witnessed)
    if fault is not None:
        raise damaged(directory / DATABASE, fault)
    return witnessed


def fault_of_files(directory: Path, witnessed: Witnessed | None) -> str | None:
    """What is wrong with the files, without reading them."""
    path = directory / DATABASE
    if (directory / REPAIRED).exists():
        return f"a repair was interrupted; it goes on from {REPAIRED} when it is run again"
    if witnessed is None or witnessed.commits == 0 or (path.exists() and path.stat().st_size > 0):
        return None
    return fault_of_emptiness(witnessed)


def fault_of_emptiness(witnessed: Witnessed) -> str:
    """What is wrong if nothing is there at all."""
    return f"it is empty or missing; affected are all offsets up to {witnessed.head}, and all state"


def fault_of_commits(state: JournalState, witnessed: Witnessed | None) -> str | None:
    """What is missing of all that was ever acknowledged."""
    if witnessed is None:
        if state.commits == 0:
            return None
        return (
            f"{MARK} is missing, so this may be a copy that ends too early; what was journaled "
            f"behind offset {state.head} may be lost"
        )
    if witnessed.commits == 0 and state.commits == 0:
        return None
    if witnessed.stream != state.stream:
        return f"{MARK} belongs to the journal {witnessed.stream}, but this is {state.stream}"
    if witnessed.commits <= state.commits:
        return None
    what = (
        f"affected are the offsets {state.head + 1}..{witnessed.head}, "
        f"journaled after {when(state.time)}"
        if witnessed.head > state.head
        else "no notification is affected, but durable subscriptions and last values may be"
    )
    return f"the newest {witnessed.commits - state.commits} commits are missing; {what}"


def examine(db: sqlite3.Connection, path: Path, witnessed: Witnessed | None) -> JournalState | None:
    """The state of a journal that is in order; None if nothing was ever written."""
    if database.is_new(db):
        if witnessed is not None and witnessed.commits > 0:
            raise damaged(path, fault_of_emptiness(witnessed))
        return None
    fault = database.fault_of_format(db, path)
    if fault is not None:
        raise damaged(path, fault)
    state = database.load(db)
    if state is None:
        raise damaged(path, "the row that says what is in it is missing or altered")
    fault = fault_of_commits(state, witnessed)
    if fault is not None:
        raise damaged(path, fault)
    if path.stat().st_size <= VERIFY_BYTES:
        checks = ["PRAGMA quick_check(1)"]
    else:
        checks = [f"PRAGMA quick_check({table})" for table in SMALL_TABLES]
    for check in checks:
        (result,) = db.execute(check).fetchone()
        if result != "ok":
            raise damaged(path, f"SQLite finds it malformed ({' '.join(result.split())})")
    reader = Reader(db, path)
    reader.producers()
    reader.durables()
    (size,) = db.execute("SELECT coalesce(sum(length(data)), 0) FROM last_value").fetchone()
    if size <= VERIFY_BYTES:
        reader.last_values()
    reader.scheduled()
    reader.verify_ends(state.low, state.head)
    reader.verify_chain(lambda: state.low, state.head, state.tail, VERIFY_BYTES)
    return state


def unusable(path: Path, error: Exception) -> StentorError:
    """What an error means that came when a journal was opened."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _OUTSIDE or isinstance(error, OSError):
        return JournalUnavailable(
            f"{path} cannot be opened ({error}); see that the directory may be written "
            "and that its disk is not full"
        )
    return damaged(path, f"SQLite cannot read it ({error})")
