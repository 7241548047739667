"""The only one who changes the database: commits, and chores between them.

A commit takes any number of batches in one transaction. Their entries go into as few blocks as
possible; marks of producers, durable subscriptions and last values go into the same transaction.
If it fails, the database is as before, and so is the writer.

Chores keep the journal in bounds: retention, giving back space, writing the write-ahead log back
into the database. Each call of `chore` does one of them for a few milliseconds, so that a commit
never waits long behind it. Retention takes whole blocks from the low end, never the newest. It has
two steps: the writer says which offset is to be the first (`planned`), those who read are told,
and only then does `expire` delete what is below. So nobody who keeps to `low` reads into a hole.
It also has some slack: once a bound is passed it deletes a little more than it must, because each
deletion is a commit, and one per append would be one too many.

A writer is used by one thread at a time. `producers` and `values` are changed by that thread after
a commit; others may look a key up.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from stentor.broker.settings import Retention
from stentor.broker.storage.batch import JournalBatch
from stentor.broker.storage.blocks import ROW_OVERHEAD, pack, split
from stentor.broker.storage.database import (
    HEADERS,
    JournalState,
    header,
    put_durable,
    put_last_value,
    put_producer,
    put_scheduled,
    save,
    transaction,
)
from stentor.broker.storage.directory import MarkFile, Places
from stentor.broker.storage.kept_values import KeptValues

Bound = TypeVar("Bound", int, float)

#: Producers whose newest publication is remembered, and last values that are kept.
MAX_PRODUCERS: Final = 100_000
MAX_LAST_VALUES: Final = 100_000
#: Bytes of all last values.
MAX_LAST_VALUE_BYTES: Final = 2**30
#: Without a path: bytes of the journal and, apart from it, of the last values.
MEMORY_BYTES: Final = 64 * 2**20

#: How much one chore does at most.
_STEP_BYTES: Final = 8 * 2**20
_STEP_ROWS: Final = 512
_STEP_PAGES: Final = 512
#: Bytes of the write-ahead log after which it is written back.
_CHECKPOINT_BYTES: Final = 8 * 2**20
#: A commit of one entry changes about so many bytes of pages.
_COMMIT_BYTES: Final = 3 * 4096


class Seen(NamedTuple):
    """The newest publication of a producer, and when it was journaled."""

    epoch: int
    sequence: int
    time: float


class Writer:
    """Stores batches."""

    def __init__(
        self,
        db: sqlite3.Connection,
        state: JournalState,
        retention: Retention,
        clock: Callable[[], float] = time.time,
        *,
        path: Path | None = None,
        mark: MarkFile | None = None,
        places: Places | None = None,
    ) -> None:
        self.state = state
        #: Longest silent first.
        self.producers: dict[str, Seen] = {}
        #: Bytes of each last value; longest unchanged first.
        self.values = KeptValues()
        #: Last values that were dropped because there were too many.
        self.dropped_values = 0
        self._max_value_bytes = MEMORY_BYTES if path is None else MAX_LAST_VALUE_BYTES
        self._db = db
        self._mark = mark
        self._places = places
        self._clock = clock
        self._path = path
        self.retain(retention)
        #: The first offset that a durable subscription needs, if there is such. Others set it.
        self.wanted: int | None = None
        #: Offsets that were removed although one needed them.
        self.removed_wanted = 0
        self._expiring = False
        self._planned = 0
        self._newest = 0
        self._oldest_time: float | None = None
        self._oldest_last = 0
        self._vacuuming = True
        self._written = 0
        self._load()

    def retain(self, retention: Retention) -> None:
        """Keep so much from now on."""
        self._seconds = retention.seconds
        self._bytes = retention.bytes
        self._durable_seconds = _larger(retention.durable_seconds, retention.seconds)
        self._durable_bytes = _larger(retention.durable_bytes, retention.bytes)
        if self._path is None and retention.bytes in (None, Retention().bytes):
            self._bytes = MEMORY_BYTES  # the default is meant for disks
        if self._path is None:
            self._durable_bytes = self._bytes

    def _load(self) -> None:
        rows = self._db.execute("SELECT name, epoch, sequence, seen FROM producer ORDER BY seen")
        self.producers = {name: Seen(*mark) for name, *mark in rows}
        rows = self._db.execute("SELECT key, length(data) FROM last_value ORDER BY time, place")
        self.values = KeptValues(rows)
        (newest,) = self._db.execute("SELECT max(first) FROM block").fetchone()
        self._newest = newest or 0
        self._look_at_oldest()

    # -- commits

    def commit(self, batches: Sequence[JournalBatch]) -> list[int]:
        """Store the batches, and return the first offset of each. If it raises, nothing is stored.

        A batch without items gets the offset that the next item will have.
        """
        steps = self.storing(batches)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                firsts: list[int] = done.value
                return firsts

    def storing(self, batches: Sequence[JournalBatch]) -> Generator[float, None, list[int]]:
        """The same in steps, between which others may use the processor, but not the writer."""
        if all(batch.empty for batch in batches):
            return [self.state.head + 1] * len(batches)
        state = replace(self.state)
        now = max(state.time, self._clock())
        items: list[bytes] = []
        firsts: list[int] = []
        producers: dict[str, tuple[int, int]] = {}
        durables: dict[str, bytes | None] = {}
        values: dict[str, tuple[int, bytes] | None] = {}
        # An id comes to the schedule at most once in a transaction, and leaves it after that.
        scheduled = [each for batch in batches for each in batch.schedule]
        unscheduled = [id for batch in batches for id in batch.unschedule]
        for batch in batches:
            first = state.head + 1 + len(items)
            firsts.append(first)
            items.extend(batch.items)
            for name, mark in batch.producers.items():
                known = producers.get(name) or self.producers.get(name, mark)[:2]
                producers[name] = max(known, mark)
            durables.update(batch.durables)
            values.update(dict.fromkeys(batch.forget))
            for key, index in batch.retain:
                values[key] = first + index, batch.items[index]
        newest = self._newest
        with transaction(self._db):
            for number, part in enumerate(split(items)):
                if number:
                    yield 0.0
                block, data = pack(state.head + 1, now, state.tail, part)
                self._db.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?)", (*block, data))
                newest = block.first
                state.head, state.tail, state.time = block.last, block.crc, now
                state.bytes += block.weight
            for name, (epoch, sequence) in producers.items():
                put_producer(self._db, name, epoch, sequence, now)
            for name, durable in durables.items():
                if durable is None:
                    self._db.execute("DELETE FROM durable WHERE name = ?", (name,))
                else:
                    put_durable(self._db, name, durable)
            for number, each in enumerate(scheduled, 1):
                if not number % _STEP_ROWS:
                    yield 0.0
                put_scheduled(self._db, each)
            if unscheduled:
                self._db.executemany(
                    "DELETE FROM scheduled WHERE id = ?", [(id,) for id in unscheduled]
                )
            for number, (key, value) in enumerate(values.items(), 1):
                if not number % _STEP_ROWS:
                    yield 0.0
                if value is None:
                    self._db.execute("DELETE FROM last_value WHERE key = ?", (key,))
                else:
                    put_last_value(self._db, key, value[0], now, value[1])
            state.commits += 1
            save(self._db, state)
            self.look_around()
        self.state = state
        self._newest = newest
        self._finished(sum(batch.size for batch in batches))
        if self._oldest_time is None and items:
            self._oldest_time, self._oldest_last = now, state.head
        for name, mark in producers.items():
            self.producers.pop(name, None)
            self.producers[name] = Seen(*mark, now)
        for key, value in values.items():
            if value is None:
                self.values.drop(key)
            else:
                self.values.put(key, len(value[1]))
        return firsts

    def look_around(self) -> None:
        """`JournalUnavailable` if the files are no longer where others will look for them."""
        if self._places is not None:
            self._places.check()

    def _finished(self, size: int) -> None:
        """A commit is on disk."""
        self._written += size + _COMMIT_BYTES
        if self._mark is not None:
            # A mark that cannot be written witnesses less, and nothing wrong.
            with suppress(OSError):
                self._mark.write(self.state.commits, self.state.head)

    # -- chores

    def chore(self) -> bool:
        """Do a little of what has to be done. Whether there was something; an error if it failed.

        Retention is not among it: see `planned` and `expire`.
        """
        return self._checkpoint() or self._forget() or self._vacuum()

    def _checkpoint(self) -> bool:
        if self._path is None or self._written < _CHECKPOINT_BYTES:
            return False
        self._written = 0
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        if self._mark is not None:
            self._mark.sync()
        return True

    def _forget(self) -> bool:
        """Forget producers and last values beyond the limits."""
        producers = self._surplus_producers()
        values = self.values.surplus(MAX_LAST_VALUES, self._max_value_bytes, _STEP_ROWS)
        if not producers and not values:
            return False
        state = replace(self.state, commits=self.state.commits + 1)
        with transaction(self._db):
            self._db.executemany("DELETE FROM producer WHERE name = ?", [(n,) for n in producers])
            self._db.executemany("DELETE FROM last_value WHERE key = ?", [(k,) for k in values])
            save(self._db, state)
        self.state = state
        self._finished(0)
        for name in producers:
            del self.producers[name]
        for key in values:
            self.values.drop(key)
        self.dropped_values += len(values)
        return True

    def _surplus_producers(self) -> list[str]:
        surplus = len(self.producers) - MAX_PRODUCERS
        before = 0.0
        if self._seconds is not None:
            before = max(self.state.time, self._clock()) - self._seconds
        found: list[str] = []
        for name, seen in islice(self.producers.items(), _STEP_ROWS):
            if len(found) >= surplus and seen.time >= before:
                break
            found.append(name)
        return found

    def _vacuum(self) -> bool:
        """Give unused pages back to the file system, except an eighth: they will be used again."""
        if not self._vacuuming:
            return False
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        if free * 8 <= pages or free < _STEP_PAGES // 2:
            self._vacuuming = False
            return False
        self._db.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
        self._written += _STEP_PAGES * 4096
        return True

    # -- retention

    def planned(self) -> int | None:
        """The offset that shall be the first one; None if nothing is to be deleted now.

        A plan stands until `expire` has carried it out.
        """
        if self._planned:
            return None
        now = max(self.state.time, self._clock())
        if not self._expiring:
            self._expiring = self._beyond(now)
            if not self._expiring:
                return None
        low, weight, step = self.state.low, self.state.bytes, 0
        rows = self._db.execute(HEADERS + " ORDER BY first LIMIT ?", (_STEP_ROWS,)).fetchall()
        for block, following in pairwise(map(header, rows)):
            seconds, most = self._bounds(following.first - 1)
            old = seconds is not None and block.time < now - seconds
            large = most is not None and weight > most - min(most // 16, 64 * 2**20)
            if step >= _STEP_BYTES or not (old or large):
                break
            low = following.first
            weight -= block.weight
            step += block.weight
        if low == self.state.low:
            self._expiring = False
            return None
        self._planned = low
        # From here on nobody finds it any more, nor that it was needed.
        wanted = low if self.wanted is None else max(self.wanted, self.state.low)
        self.removed_wanted += max(0, low - wanted)
        return low

    def _bounds(self, last: int) -> tuple[float | None, int | None]:
        """How old a block may be that ends with this offset, and how large all may be for it."""
        if self.wanted is not None and last >= self.wanted:
            return self._durable_seconds, self._durable_bytes
        return self._seconds, self._bytes

    def _beyond(self, now: float) -> bool:
        """Whether a bound is passed."""
        if self.state.low >= self._newest:
            return False
        seconds, most = self._bounds(self._oldest_last)
        if most is not None and self.state.bytes > most:
            return True
        if seconds is None or self._oldest_time is None:
            return False
        return self._oldest_time < now - seconds - min(seconds / 64, 60.0)

    def expire(self) -> None:
        """Delete what is below the planned offset."""
        low, self._planned = self._planned, 0
        state = replace(self.state, low=low, commits=self.state.commits + 1)
        with transaction(self._db):
            (weight,) = self._db.execute(
                "SELECT coalesce(sum(size + ?), 0) FROM block WHERE first < ?", (ROW_OVERHEAD, low)
            ).fetchone()
            state.bytes -= weight
            self._db.execute("DELETE FROM block WHERE first < ?", (low,))
            save(self._db, state)
        self.state = state
        self._finished(0)
        self._look_at_oldest()
        self._vacuuming = True

    def _look_at_oldest(self) -> None:
        row = self._db.execute(
            "SELECT time, first + length - 1 FROM block ORDER BY first LIMIT 1"
        ).fetchone()
        self._oldest_time, self._oldest_last = (None, 0) if row is None else row

    def close(self) -> None:
        """Write everything back into the database."""
        if self._path is not None:
            # It stays in the write-ahead log if the disk is full.
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if self._mark is not None:
            with suppress(OSError):
                self._mark.sync()
            self._mark.close()
        self._db.close()


def _larger(bound: Bound | None, other: Bound | None) -> Bound | None:
    """The larger of two bounds, of which None is none."""
    return None if bound is None or other is None else max(bound, other)
