"""What SQLite itself can do: rows of the same bytes, as many to a commit as the broker had."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from live.events import events
from stentor.client.encoding import EventEncoder


class Inserts:
    """One table in a file, with a write-ahead log that is on disk when a commit returns."""

    def __init__(self) -> None:
        self._items: list[bytes] = []
        self._place = 0

    async def open(self, path: Path, count: int) -> None:
        self._items = EventEncoder("inserts", 1).many(events(count), 0, datetime.now(UTC))
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE entry (place INTEGER PRIMARY KEY, data BLOB NOT NULL)")

    async def insert(self, count: int, rows_per_commit: int) -> float:
        """Insert so many: the seconds it took."""
        began = monotonic()
        for start in range(0, count, rows_per_commit):
            items = self._items[start : min(start + rows_per_commit, count)]
            places = range(self._place, self._place + len(items))
            self._place += len(items)
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT INTO entry VALUES (?, ?)", list(zip(places, items, strict=True))
            )
            self._db.execute("COMMIT")
        return monotonic() - began
