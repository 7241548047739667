"""Reads the database: entries by offset, offsets by time, and the small tables.

What it returns was verified. A block is looked at as a whole: its checksum, and that of the block
before it. One that does not fit raises `JournalDamaged`, every time. Blocks that were verified stay
in memory, decoded, up to a number of bytes; the least recently used goes first.

A block is written once and never changed, so the cache cannot be out of date. Every query ends
before its method returns: no snapshot is held that would keep the write-ahead log from being used
again.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from stentor.broker.storage.blocks import BlockHeader, intact, unpack
from stentor.broker.storage.database import (
    COLUMNS,
    HEADERS,
    BlocksDamaged,
    checksum,
    damaged,
    has_schedule,
    header,
    when,
)
from stentor.errors import JournalDamaged
from stentor.node.log import LastValue
from stentor.node.schedule import Delayed, Scheduled

#: Bytes of decoded blocks that are kept.
CACHE_BYTES: Final = 16 * 2**20
#: What Python adds to the bytes of an entry.
_ENTRY_OVERHEAD: Final = 48

_BLOCK_AT: Final = (
    "SELECT first, length, time, size, previous, crc, data,"
    " (SELECT crc FROM block AS p WHERE p.first < b.first ORDER BY p.first DESC LIMIT 1)"
    " FROM block AS b WHERE first <= ? ORDER BY first DESC LIMIT 1"
)


class _Cached(NamedTuple):
    first: int
    entries: list[bytes]
    cost: int


class Reader:
    """Reads for one thread."""

    def __init__(
        self, db: sqlite3.Connection, path: Path | None, *, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._db = db
        self._path = path
        self._cache: OrderedDict[int, _Cached] = OrderedDict()
        self._cache_bytes = 0
        self._limit = cache_bytes
        self._latest: _Cached | None = None

    def entries(self, offset: int, limit: int, low: int, head: int) -> list[bytes]:
        """Entries from this offset on, of one block. It must lie between `low` and `head`."""
        block = self._latest
        if block is None or not 0 <= offset - block.first < len(block.entries):
            block = self._latest = self._block(offset, low, head)
        start = offset - block.first
        return block.entries[start : start + limit]

    def _block(self, offset: int, low: int, head: int) -> _Cached:
        first = self._first_of(offset)
        if first is not None and first in self._cache:
            block = self._cache[first]
            if offset - first < len(block.entries):
                self._cache.move_to_end(first)
                return block
        with self._guarded(offset, low, head):
            row = self._db.execute(_BLOCK_AT, (offset,)).fetchone()
        if row is None:
            raise self._broken("a block is missing", offset, low, head)
        found, data, before = header(row), row[6], row[7]
        if not intact(found, data):
            raise self._broken("a block was altered", offset, low, head)
        if offset > found.last:
            raise self._broken("a block is missing", offset, low, head)
        if before is not None and before != found.previous:
            raise self._broken("a block does not follow the one before it", offset, low, head)
        if before is None and found.first != low:
            raise self._broken("a block is missing before this one", offset, low, head)
        return self._remember(found, unpack(found, data))

    def _first_of(self, offset: int) -> int | None:
        """Where the block with this offset begins, if that can be read."""
        try:
            row = self._db.execute(
                "SELECT first FROM block WHERE first <= ? ORDER BY first DESC LIMIT 1", (offset,)
            ).fetchone()
        except sqlite3.Error:
            return None
        return None if row is None else row[0]

    def _remember(self, found: BlockHeader, entries: list[bytes]) -> _Cached:
        block = _Cached(found.first, entries, found.size + _ENTRY_OVERHEAD * len(entries))
        if block.cost <= self._limit // 4:
            self._cache[block.first] = block
            self._cache_bytes += block.cost
            while self._cache_bytes > self._limit:
                _, oldest = self._cache.popitem(last=False)
                self._cache_bytes -= oldest.cost
        return block

    def offset_at(self, since: float, low: int, head: int) -> int:
        """The first offset of the first block whose time is this or later; else `head + 1`.

        Times never decrease from block to block, so a search by halves finds it without an index.
        The answer is certain if the two blocks at its sides are intact, whatever led there.
        """
        below, above = low - 1, head + 1  # the answer lies above the one and up to the other
        while above - below > 1:
            middle = (below + above) // 2
            with self._guarded(middle, low, head):
                row = self._db.execute(
                    HEADERS + " WHERE first <= ? ORDER BY first DESC LIMIT 1", (middle,)
                ).fetchone()
                if row is None or not header(row).first <= middle <= header(row).last:
                    raise self._broken("a block is missing", middle, low, head)
                block = header(row)
                if block.time >= since:
                    above = max(block.first, low)
                else:
                    below = min(block.last, head)
        for beside in (below, above):
            if low <= beside <= head:
                self._block(beside, low, head)
        return above

    # -- the small tables

    def durables(self) -> dict[str, bytes]:
        return dict(self._rows("durable"))

    def durable(self, name: str) -> bytes | None:
        found = list(self._rows("durable", " WHERE name = ?", (name,)))
        return found[0][1] if found else None

    def last_values(self, after: str = "", limit: int = -1) -> list[LastValue]:
        rows = self._rows("last_value", " WHERE key > ? ORDER BY key LIMIT ?", (after, limit))
        return [LastValue(key, time, data) for key, _, time, data in rows]

    def scheduled(self) -> list[Scheduled]:
        """What is not yet due, in the order of its times."""
        return [each.entry for each in self.schedule()]

    def schedule(self) -> list[Delayed]:
        """The same with its content."""
        if not has_schedule(self._db):
            return []
        return [Delayed(*row) for row in self._rows("scheduled", " ORDER BY due, rowid")]

    def delayed(self, ids: Sequence[str]) -> list[Delayed]:
        """The same by ids."""
        if not has_schedule(self._db):
            return []
        found = [self._rows("scheduled", " WHERE id = ?", (id,)) for id in ids]
        return [Delayed(*row) for rows in found for row in rows]

    def producers(self) -> dict[str, tuple[int, int]]:
        rows = self._rows("producer")
        return {name: (epoch, sequence) for name, epoch, sequence, _ in rows}

    def _rows(self, table: str, where: str = "", parameters: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Rows of a table, each verified."""
        try:
            rows = self._db.execute(
                f"SELECT {COLUMNS[table]}, crc FROM {table}{where}", parameters
            ).fetchall()
        except sqlite3.Error as error:
            raise damaged(self._path, f"the table {table!r} cannot be read ({error})") from error
        for row in rows:
            if checksum(*row[:-1]) != row[-1]:
                raise damaged(self._path, f"in the table {table!r}, the row {row[0]!r} was altered")
            yield row[:-1]

    # -- verifying

    def verify_ends(self, low: int, head: int) -> None:
        """Verify that the blocks begin where they should and none lies behind the last."""
        with self._guarded(low, low, head):
            least, most = self._db.execute("SELECT min(first), max(first) FROM block").fetchone()
        if least is None and low <= head:
            raise self._broken("all blocks are missing", low, low, head)
        if least is not None and (least != low or most > head):
            raise self._broken("blocks begin or end at the wrong place", low, low, head)

    def verify_chain(
        self, low: Callable[[], int], head: int, tail: int, budget: int | None = None
    ) -> None:
        """Verify blocks from the newest down, all or about `budget` bytes of them.

        Retention may raise `low` at the same time; what is below is left alone.
        """
        expected, below, lowest = tail, head + 1, low()
        while below > low() and (budget is None or budget > 0):
            try:
                found = self._verified(below - 1, expected, lowest, head)
            except JournalDamaged:
                if below <= low():
                    return
                raise
            expected, below = found.previous, found.first
            if budget is not None:
                budget -= found.weight

    def _verified(self, offset: int, expected: int, low: int, head: int) -> BlockHeader:
        """The intact block that ends at this offset and has the expected checksum."""
        with self._guarded(offset, low, head):
            row = self._db.execute(_BLOCK_AT, (offset,)).fetchone()
        if row is None:
            raise self._broken("a block is missing", offset, low, head)
        found = header(row)
        if not intact(found, row[6]):
            raise self._broken("a block was altered", offset, low, head)
        if found.last != offset or found.first < low:
            raise self._broken("a block is missing", offset, low, head)
        if found.crc != expected:
            raise self._broken("a block is not the one that was written", offset, low, head)
        return found

    @contextmanager
    def _guarded(self, offset: int, low: int, head: int) -> Iterator[None]:
        try:
            yield
        except JournalDamaged:
            raise
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise self._broken(f"a block cannot be read ({error})", offset, low, head) from error

    def _broken(self, what: str, offset: int, low: int, head: int) -> JournalDamaged:
        """The error for a block, with everything that cannot be served because of it."""
        first, last, before, after = extent(self._db, offset, low, head)
        what = (
            f"{what}; affected are the offsets {first}..{last}, "
            f"journaled between {when(before)} and {when(after)}; nothing of them is served"
        )
        return BlocksDamaged(str(damaged(self._path, what)), first, last)


def extent(
    db: sqlite3.Connection, offset: int, low: int, head: int
) -> tuple[int, int, object, object]:
    """What lies between the neighbors of a place: offsets and times, as far as known."""
    first, last = low, head
    times: list[object] = []
    try:
        rows = db.execute(HEADERS + " WHERE first <= ? ORDER BY first DESC LIMIT 2", (offset,))
        for block in map(header, rows.fetchall()):
            times.append(block.time)
            if block.last < offset:
                first = block.last + 1
                break
        row = db.execute(HEADERS + " WHERE first > ? ORDER BY first LIMIT 1", (offset,)).fetchone()
        if row is not None:
            last = header(row).first - 1
            times.append(header(row).time)
    except (sqlite3.Error, TypeError):
        pass  # the bounds that are known without it
    known = [time for time in times if isinstance(time, float)]
    return first, last, min(known, default=None), max(known, default=None)
