"""The SQLite database that holds a journal: its tables, its state, its errors.

`block` has one row per block, under the offset of its first entry. `state` is one row that every
commit rewrites: what the first and last offset are, and the checksum of the last block, so that a
block missing at either end is noticed too. `producer`, `durable` and `last_value` are what their
names say, and `scheduled` has publications that are not yet due; it is there as soon as there was
one. Every row of every table carries a checksum over its contents.
"""

from __future__ import annotations

import secrets
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from stentor.broker.storage.blocks import BlockHeader
from stentor.broker.storage.directory import advice
from stentor.errors import InvalidConfiguration, JournalDamaged, JournalUnavailable, StentorError
from stentor.node.schedule import Delayed

#: The format of the file.
VERSION: Final = 1
#: "Sten", in the header of the file.
APPLICATION: Final = 0x5374656E

_SCHEMA: Final = (
    "CREATE TABLE state (one INTEGER PRIMARY KEY, stream TEXT, name TEXT, commits INTEGER,"
    " low INTEGER, head INTEGER, tail INTEGER, bytes INTEGER, time REAL, crc INTEGER)",
    "CREATE TABLE block (first INTEGER PRIMARY KEY, length INTEGER, time REAL, size INTEGER,"
    " previous INTEGER, crc INTEGER, data BLOB)",
    "CREATE TABLE producer (name TEXT PRIMARY KEY, epoch INTEGER, sequence INTEGER, seen REAL,"
    " crc INTEGER) WITHOUT ROWID",
    "CREATE TABLE durable (name TEXT PRIMARY KEY, crc INTEGER, data BLOB)",
    "CREATE TABLE last_value (key TEXT PRIMARY KEY, place INTEGER, time REAL, crc INTEGER,"
    " data BLOB)",
)
_SCHEDULED: Final = (
    "CREATE TABLE IF NOT EXISTS scheduled (id TEXT PRIMARY KEY, due REAL, owner TEXT, key TEXT,"
    " crc INTEGER, data BLOB)"
)
#: The tables beside the blocks that are always there; all of them are small.
SMALL_TABLES: Final = ("state", "producer", "durable", "last_value")
#: What their checksums go over.
COLUMNS: Final = {
    "producer": "name, epoch, sequence, seen",
    "durable": "name, data",
    "last_value": "key, place, time, data",
    "scheduled": "id, due, owner, key, data",
}
HEADERS: Final = "SELECT first, length, time, size, previous, crc FROM block"


@dataclass(slots=True)
class JournalState:
    """The row that every commit rewrites."""

    stream: str
    name: str
    #: How many commits there were.
    commits: int = 0
    #: The first offset that is still there, and the last one.
    low: int = 1
    head: int = 0
    #: The checksum of the last block.
    tail: int = 0
    #: The weight of all blocks.
    bytes: int = 0
    #: The time of the last block.
    time: float = 0.0

    @classmethod
    def new(cls, name: str) -> JournalState:
        """That of an empty journal, with an id of its own."""
        return cls(f"{name}#{secrets.token_hex(4)}", name)


def checksum(*fields: Any) -> int:
    """Of a row. The fields are written so that no two different rows look the same."""
    crc = 0
    for field in fields:
        if isinstance(field, str):
            field = field.encode("utf-8", "surrogatepass")
        data = field if isinstance(field, bytes) else repr(field).encode("ascii")
        crc = crc32(data, crc32(struct.pack(">Q", len(data)), crc))
    return crc


# -- connections


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection that writes durably. Without a path, a database in memory."""
    db = _connection(":memory:" if path is None else str(path))
    if is_new(db):
        # These two hold only if they are said before there is any table. Where there are some, the
        # second would write, for which there may be no room.
        db.execute("PRAGMA page_size = 4096")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if path is not None and mode != "wal":
        db.close()
        raise JournalUnavailable(
            f"the file system of {path.parent} cannot hold a write-ahead log "
            f"(SQLite chose {mode!r}); use a local disk"
        )
    db.execute("PRAGMA synchronous = FULL")
    # The writer does it itself, after those who wait have been told.
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute(f"PRAGMA journal_size_limit = {64 * 2**20}")
    db.execute(f"PRAGMA cache_size = {-8 * 1024}")
    return db


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing."""
    return _connection(path.absolute().as_uri() + "?mode=ro", uri=True)


def _connection(address: str, *, uri: bool = False) -> sqlite3.Connection:
    db = sqlite3.connect(
        address, uri=uri, isolation_level=None, check_same_thread=False, timeout=10.0
    )
    db.execute("PRAGMA cell_size_check = ON")
    db.execute("PRAGMA trusted_schema = OFF")
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


# -- the state


def is_new(db: sqlite3.Connection) -> bool:
    """Whether nothing was ever written."""
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return tables == 0 and _identity(db) == (0, 0)


def fault_of_format(db: sqlite3.Connection, path: Path) -> str | None:
    """What is wrong with the file's header; an error if this is no journal, or a newer one."""
    application, version = _identity(db)
    if application != APPLICATION:
        try:
            ours = load(db) is not None
        except sqlite3.Error:
            ours = False
        if ours:
            return "its header was altered"
        raise InvalidConfiguration(f"{path} is an SQLite database, but not a journal")
    if version != VERSION:
        raise InvalidConfiguration(
            f"{path} is a journal of format {version}; this release reads {VERSION}. "
            "Use the release that wrote it, or a newer one"
        )
    return None


def _identity(db: sqlite3.Connection) -> tuple[int, int]:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return application, version


def create(db: sqlite3.Connection, state: JournalState) -> None:
    with transaction(db):
        for statement in _SCHEMA:
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        save(db, state)


def save(db: sqlite3.Connection, state: JournalState) -> None:
    fields = astuple(state)
    db.execute(
        "INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*fields, checksum(*fields)),
    )


def load(db: sqlite3.Connection) -> JournalState | None:
    """The state; None if it is missing or altered."""
    row = db.execute(
        "SELECT stream, name, commits, low, head, tail, bytes, time, crc FROM state"
    ).fetchone()
    if row is None or checksum(*row[:-1]) != row[-1]:
        return None
    return JournalState(*row[:-1])


def header(row: tuple[Any, ...]) -> BlockHeader:
    return BlockHeader(*row[:6])


# -- the small tables: every row ends with, or holds, the checksum of the rest


def put_producer(db: sqlite3.Connection, name: str, epoch: int, sequence: int, seen: float) -> None:
    db.execute(
        "INSERT OR REPLACE INTO producer VALUES (?, ?, ?, ?, ?)",
        (name, epoch, sequence, seen, checksum(name, epoch, sequence, seen)),
    )


def put_durable(db: sqlite3.Connection, name: str, data: bytes) -> None:
    db.execute(
        "INSERT OR REPLACE INTO durable VALUES (?, ?, ?)", (name, checksum(name, data), data)
    )


def is_durable(name: str) -> bool:
    """Whether a row is a durable subscription, and not what the core keeps beside them."""
    return not name.startswith("\0")


def put_last_value(db: sqlite3.Connection, key: str, place: int, time: float, data: bytes) -> None:
    """`place` is the offset, 0 if it is no longer known."""
    db.execute(
        "INSERT OR REPLACE INTO last_value VALUES (?, ?, ?, ?, ?)",
        (key, place, time, checksum(key, place, time, data), data),
    )


def has_schedule(db: sqlite3.Connection) -> bool:
    """Whether anything was ever to be delivered later."""
    found = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'scheduled'").fetchone()
    return bool(found[0])


def put_scheduled(db: sqlite3.Connection, each: Delayed) -> None:
    db.execute(_SCHEDULED)
    id, due, owner, key, data = each
    db.execute(
        "INSERT OR REPLACE INTO scheduled VALUES (?, ?, ?, ?, ?, ?)",
        (id, due, owner, key, checksum(*each), data),
    )


# -- errors


def when(time: object) -> str:
    """A time that may be damaged, for people.

    >>> when(0.0), when(float("inf"))
    ('1970-01-01T00:00:00Z', 'an unknown time')
    """
    try:
        moment = datetime.fromtimestamp(time, UTC)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):
        return "an unknown time"
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


class BlocksDamaged(JournalDamaged):
    """Damage that is known to affect certain offsets only: what lies behind may be read."""

    def __init__(self, message: str, first: int, last: int) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


def damaged(path: Path | None, what: str) -> JournalDamaged:
    """What is wrong, where, and what to do."""
    if path is None:
        return JournalDamaged(f"the journal in memory: {what}. Restart the broker")
    return JournalDamaged(f"{path}: {what}. {advice(path.parent)}")


def unwritable(path: Path | None, error: Exception) -> StentorError:
    """Why a commit failed."""
    if isinstance(error, JournalUnavailable):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, f"it can no longer be written ({error}); nothing of this was stored")
    where = "the journal in memory" if path is None else str(path)
    remedy = (
        "free space on its disk, then publish again"
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
        else "publish again; if this goes on, look into the broker's log"
    )
    return JournalUnavailable(
        f"{where} cannot be written ({error}): nothing of this was stored; {remedy}"
    )
