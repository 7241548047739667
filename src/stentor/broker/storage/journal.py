"""The journal of a broker: what was published here, in order, on disk before anybody hears of it.

Three parts work together. The host appends batches from its event loop; that only queues them. A
thread takes whatever has been queued, commits it as one transaction (group commit: while the disk
works, the next transaction gathers), and calls back into the event loop once per commit. Reading
happens in the event loop over a connection of its own; SQLite's write-ahead log lets it go on while
a commit runs. `head` moves in the event loop, just before the callback, so what is read and what
was announced never differ.

    event loop    append ── queue ─┐                 ┌─ head moves, callback ── acknowledge, route
    writer thread                  └ commit, fsync ──┘

Nobody waits to fill a batch, and a batch waits for one running commit at most, then for its own.

Without a path the database is in memory. Nothing can be gained there by a thread, so commits run
in the event loop, at its next turn; what takes long in steps, one in each turn, and others are
served in between. Everything else is the same.

What may wait is bounded. The host looks at `full` and stops reading from those who publish; should
it not, `append` refuses at four times that.
"""

from __future__ import annotations

import enum
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from stentor.broker.settings import Retention
from stentor.broker.storage import database
from stentor.broker.storage.batch import JournalBatch
from stentor.broker.storage.database import JournalState, unwritable
from stentor.broker.storage.directory import (
    COMPANIONS,
    DATABASE,
    MARK,
    Lock,
    MarkFile,
    Places,
    Reserve,
    make_private,
    prepare,
)
from stentor.broker.storage.opening import examine, look, unusable
from stentor.broker.storage.reader import Reader
from stentor.broker.storage.writer import Writer
from stentor.errors import (
    HistoryGone,
    InvalidConfiguration,
    JournalUnavailable,
    Overloaded,
    ShuttingDown,
    StentorError,
)
from stentor.node.log import LastValue
from stentor.node.schedule import Delayed, Scheduled
from stentor.protocol.messages import StreamId

#: Batches that were dealt with, each with the offset of its first item. `JournalBatch.error` tells
#: failed ones; they have no offset (0).
Committed: TypeAlias = list[tuple[JournalBatch, int]]
#: Runs a function in the event loop, such as `loop.call_soon_threadsafe`.
Caller: TypeAlias = Callable[..., object]
#: What the writer does, in steps: after each, the seconds for which nothing has to be done.
_Steps: TypeAlias = Generator[float, None, None]

#: What may wait to be committed before the journal is `full`.
MAX_PENDING: Final = 200_000
MAX_PENDING_BYTES: Final = 64 * 2**20
#: What one transaction takes at most, if more is waiting.
_COMMIT_WEIGHT: Final = 65_536
_COMMIT_BYTES: Final = 16 * 2**20
#: Seconds between looks at clock and files, and until a chore that failed is tried again.
_IDLE: Final = 1.0
_RETRY: Final = 1.0
#: Seconds between two lines on what retention takes from durable subscriptions.
_TOLD_EVERY: Final = 600.0

_log: Final = logging.getLogger("stentor.journal")


class Journal:
    """A broker's journal. Implements `stentor.node.log.Log`; made by `open`.

    >>> journal = Journal.open(None, name="b1", retention=Retention())
    >>> journal.start(lambda f, *args: f(*args), lambda done: print(done[0][1]))
    >>> journal.append(JournalBatch([b"one", b"two"], producers={"ann": (0, 1)}))
    1
    >>> journal.head, journal.read(2, limit=10), journal.published("ann")
    (2, [b'two'], (0, 1))
    >>> journal.close()
    """

    # Only the writer's thread touches `_writer`, except for looking up producers; only the event
    # loop's touches the rest. The queue is between them.

    def __init__(
        self,
        path: Path | None,
        db: sqlite3.Connection,
        reader: Reader,
        writer: Writer,
        lock: Lock | None,
        reserve: Reserve | None = None,
    ) -> None:
        """Use `Journal.open`."""
        self._path = path
        self._db = db
        self._reader = reader
        self._writer = writer
        self._lock = lock
        self._reserve = reserve
        self._stream = writer.state.stream
        self._name = writer.state.name
        self._head = writer.state.head
        self._low = writer.state.low
        self._pending = 0
        self._pending_bytes = 0
        self._failed = 0
        self._queue: SimpleQueue[JournalBatch | _Signal] = SimpleQueue()
        #: The writer's: taken from the queue, not committed.
        self._waiting: deque[JournalBatch] = deque()
        self._steps = self._work()
        self._stopping = False  # this and the next ones: the writer's
        self._may_expire = False
        self._commit_seconds = 0.0
        self._commits_fail = False
        self._displaced = False
        self._tell_again = 0.0
        #: Whether it was made just now.
        self.is_new = writer.state.commits == 0
        self._upkeep_fails = False
        self._closed = False
        self._scheduled = False  # in memory: a turn of the writer is under way
        self._thread: threading.Thread | None = None
        self._call: Caller = _not_started
        self._callback: Callable[[Committed], object] = _not_started

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        name: str | None,
        retention: Retention,
        clock: Callable[[], float] = time.time,
    ) -> Journal:
        """Open the journal in a directory, or make it. None keeps it in memory.

        `DataInUse` if another process has it; `JournalDamaged` if something is missing or altered;
        `InvalidConfiguration` if it belongs to a broker of another name.
        """
        if path is None:
            db = database.connect(None)
            state = JournalState.new(_new_name(path, name))
            database.create(db, state)
            return cls(None, db, Reader(db, None), Writer(db, state, retention, clock), None)
        prepare(path)
        lock = Lock(path)
        reserve = Reserve(path)
        try:
            try:
                return cls._open(path, name, retention, clock, lock, reserve)
            except JournalUnavailable as error:
                if not reserve.give_up():
                    raise
                _log.warning("%s; what is kept in reserve is given up for it", error)
                return cls._open(path, name, retention, clock, lock, reserve)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open(
        cls,
        directory: Path,
        name: str | None,
        retention: Retention,
        clock: Callable[[], float],
        lock: Lock,
        reserve: Reserve,
    ) -> Journal:
        opened: list[Any] = []
        try:
            return cls._opened(directory, name, retention, clock, lock, reserve, opened)
        except BaseException as error:
            for resource in reversed(opened):
                resource.close()
            if isinstance(error, StentorError) or not isinstance(error, Exception):
                raise
            raise unusable(directory / DATABASE, error) from error

    @classmethod
    def _opened(
        cls,
        directory: Path,
        name: str | None,
        retention: Retention,
        clock: Callable[[], float],
        lock: Lock,
        reserve: Reserve,
        opened: list[Any],
    ) -> Journal:
        path = directory / DATABASE
        witnessed = look(directory)
        state = None
        if path.exists() and path.stat().st_size > 0:
            # With a connection that cannot write, so that nothing is lost if it is damaged.
            read_db = database.connect_to_read(path)
            opened.append(read_db)
            state = examine(read_db, path, witnessed)
        if state is None:
            make_private(path)
        elif name is not None and state.name != name:
            raise InvalidConfiguration(
                f"{path} is the journal of the broker {state.name!r}, not of {name!r}; "
                "use the old name, or another directory"
            )
        db = database.connect(path)
        opened.append(db)
        if state is None:
            state = JournalState.new(_new_name(path, name))
            database.create(db, state)
            read_db = database.connect_to_read(path)
            opened.append(read_db)
        mark = MarkFile(directory, state.stream, state.commits, state.head)
        opened.append(mark)
        log = path.with_name(path.name + COMPANIONS[0])
        places = Places(path, log, directory / MARK)
        writer = Writer(db, state, retention, clock, path=path, mark=mark, places=places)
        reserve.keep()
        return cls(path, read_db, Reader(read_db, path), writer, lock, reserve)

    # -- life

    def start(self, call: Caller, callback: Callable[[Committed], object]) -> None:
        """Begin to commit. `callback` is run by `call`, once per commit.

        `call` must be safe to use from another thread, such as `loop.call_soon_threadsafe`.
        """
        self._call = call
        self._callback = callback
        if self._path is not None:
            self._thread = threading.Thread(
                target=self._run, name=f"journal of {self._name}", daemon=True
            )
            self._thread.start()
        elif not self._queue.empty():
            self._schedule()

    def close(self) -> None:
        """Commit what waits, write everything back into the database, and let go of it.

        It takes as long as the disk does. Callbacks of the last commits may still come after it.
        """
        if self._closed:
            return
        self._closed = True
        self._queue.put(_STOP)
        if self._thread is not None:
            self._thread.join()
        else:
            self._run()
        if self._path is not None:
            self._db.close()
        self._writer.close()
        if self._reserve is not None:
            self._reserve.keep()
        if self._lock is not None:
            self._lock.release()

    # -- appending

    def append(self, batch: JournalBatch) -> None:
        """Store the batch. It comes back through the callback, stored or with its error."""
        if self._closed:
            raise ShuttingDown("the journal is closed; the broker is shutting down")
        if (
            self._pending > 4 * MAX_PENDING or self._pending_bytes > 4 * MAX_PENDING_BYTES
        ) and batch.items:
            raise Overloaded(
                f"{self._pending} notifications wait to be journaled; publish more slowly"
            )
        self._pending += batch.weight
        self._pending_bytes += batch.size
        self._queue.put(batch)
        if self._path is None:
            self._schedule()

    @property
    def pending(self) -> int:
        """How many notifications wait to be committed. A change of state alone counts as one."""
        return self._pending

    def keep_from(self, offset: int | None) -> None:
        """From here on it is needed by a durable subscription; None if nothing is."""
        self._writer.wanted = offset

    @property
    def failing(self) -> bool:
        """Whether what was appended last could not be stored, or the files are gone."""
        return self._commits_fail or self._displaced

    @property
    def full(self) -> bool:
        """Whether so much waits that the host should take no more for now."""
        return self._pending >= MAX_PENDING or self._pending_bytes >= MAX_PENDING_BYTES

    # -- reading

    @property
    def stream(self) -> StreamId:
        """The id of this journal, for ever."""
        return self._stream

    @property
    def name(self) -> str:
        return self._name

    @property
    def path(self) -> Path | None:
        """The database file; None in memory."""
        return self._path

    @property
    def head(self) -> int:
        """The last offset that is committed and announced; 0 if there is none."""
        return self._head

    @property
    def low(self) -> int:
        """The first offset that is kept; `head + 1` if none is. All from here on can be read."""
        return self._low

    @property
    def time(self) -> float:
        """The time of the last commit. It never goes back, whatever the clock does."""
        return self._writer.state.time

    def read(self, first: int, limit: int) -> list[bytes]:
        """Up to `limit` entries from offset `first` on; none if it lies behind `head`.

        They are of one block, so there may be fewer. `HistoryGone` below `low`; `JournalDamaged`
        if the block is not what was written.
        """
        if first > self._head:
            return []
        if first < self._low:
            raise HistoryGone(
                f"offset {first} of {self._stream} is gone by retention; "
                f"the first that is kept is {self._low}"
            )
        return self._reader.entries(first, max(limit, 1), self._low, self._head)

    def offset_at(self, since: float) -> int:
        """The first offset that was journaled at this time or later; `head + 1` if none was.

        All entries of a commit have its time.
        """
        return self._reader.offset_at(since, self._low, self._head)

    def last_values(self, after: str = "", limit: int = -1) -> list[LastValue]:
        """What is kept under keys, in their order, behind one of them; all, or so many."""
        return self._reader.last_values(after, limit)

    def scheduled(self) -> list[Scheduled]:
        """What is kept until it is due."""
        return self._reader.scheduled()

    def schedule(self) -> list[Delayed]:
        """The same with its content."""
        return self._reader.schedule()

    def delayed(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The content by ids."""
        return {each.id: each.data for each in self._reader.delayed(ids)}

    def published(self, name: str) -> tuple[int, int] | None:
        """The newest epoch and sequence number of a producer that is journaled."""
        seen = self._writer.producers.get(name)
        return None if seen is None else (seen.epoch, seen.sequence)

    def producers(self) -> dict[str, tuple[int, int]]:
        """The same for all producers that are remembered."""
        return {name: (s.epoch, s.sequence) for name, s in self._writer.producers.copy().items()}

    def durables(self) -> dict[str, bytes]:
        """The state of all durable subscriptions."""
        return self._reader.durables()

    def durable(self, name: str) -> bytes | None:
        """The state of one, if there is such."""
        return self._reader.durable(name)

    def retain(self, retention: Retention) -> None:
        """Keep so much from now on; what is beyond goes with the next upkeep."""
        self._writer.retain(retention)

    def backup_to(self, copy: sqlite3.Connection) -> None:
        """Copy the whole database into another one."""
        while self._path is None and self._db.in_transaction:
            next(self._steps)
        source = self._db if self._path is None else database.connect_to_read(self._path)
        try:
            source.backup(copy)
        finally:
            if source is not self._db:
                source.close()

    def verify(self) -> None:
        """Verify all blocks; `JournalDamaged` for the newest damaged one.

        It reads everything, so it takes its time. On disk, it may be called in another thread.
        """
        state = self._writer.state
        if self._path is None:
            self._reader.verify_chain(lambda: self._low, state.head, state.tail)
            return
        db = database.connect_to_read(self._path)
        try:
            Reader(db, self._path).verify_chain(lambda: self._low, state.head, state.tail)
        finally:
            db.close()

    def status(self) -> dict[str, Any]:
        """Numbers for operators."""
        writer = self._writer
        return {
            "stream": self._stream,
            "path": None if self._path is None else str(self._path),
            "low": self._low,
            "head": self._head,
            "bytes": writer.state.bytes,
            "commits": writer.state.commits,
            "commit_seconds": self._commit_seconds,
            "failed_commits": self._failed,
            "pending": self._pending,
            "producers": len(writer.producers),
            "last_values": len(writer.values),
            "last_values_dropped": writer.dropped_values,
            "wanted": writer.wanted,
            "wanted_removed": writer.removed_wanted,
        }

    # -- in the event loop

    def _schedule(self) -> None:
        if not self._scheduled and self._call is not _not_started:
            self._scheduled = True
            self._call(self._work_in_memory)

    def _work_in_memory(self) -> None:
        """A step. The next one is for another turn of the loop."""
        self._scheduled = False
        if not self._closed:
            idle = next(self._steps)
            if idle == 0.0 or self._waiting or not self._queue.empty():
                self._schedule()

    def _announce(self, done: Committed, head: int) -> None:
        self._head = head
        for batch, _ in done:
            self._pending -= batch.weight
            self._pending_bytes -= batch.size
        if self._callback is not _not_started:
            self._callback(done)

    def _retire(self, low: int) -> None:
        """Retention: from now on nobody reads below `low`, so it may be deleted."""
        self._low = max(self._low, low)
        self._queue.put(_EXPIRE)

    # -- in the writer's thread; in memory, in the event loop

    def _run(self) -> None:
        for _ in self._steps:
            pass

    def _work(self) -> _Steps:
        """Commit what is queued, then do a chore, and so on."""
        patience = 0.0
        while not self._stopping or self._waiting:
            self._gather(0.0 if self._path is None else patience)
            commits = bool(self._waiting)
            if commits:
                yield from self._commit_waiting()
            patience = 0.0 if self._stopping else self._upkeep(idle=not commits)
            yield patience

    def _gather(self, patience: float) -> None:
        """Take all that is queued; if there is nothing, wait for it."""
        if self._waiting or self._stopping:
            patience = 0.0
        try:
            found = self._queue.get(timeout=patience)
            while True:
                if isinstance(found, JournalBatch):
                    self._waiting.append(found)
                elif found is _STOP:
                    self._stopping = True
                else:
                    self._may_expire = True
                found = self._queue.get_nowait()
        except Empty:
            pass

    def _commit_waiting(self) -> _Steps:
        batches: list[JournalBatch] = []
        weight = size = 0
        while self._waiting and weight < _COMMIT_WEIGHT and size < _COMMIT_BYTES:
            batch = self._waiting.popleft()
            batches.append(batch)
            weight += batch.weight
            size += batch.size
        firsts = yield from self._commit(batches)
        self._post(self._announce, list(zip(batches, firsts, strict=True)), self._writer.state.head)

    def _commit(self, batches: list[JournalBatch]) -> Generator[float, None, list[int]]:
        cut_off = [batch for batch in batches if batch.line is not None and batch.line.failed]
        if cut_off:
            for batch in cut_off:
                batch.error = JournalUnavailable(
                    "what came before could not be stored; publish both again, in order"
                )
            rest = yield from self._commit([batch for batch in batches if batch.error is None])
            firsts = iter(rest)
            return [0 if batch.error is not None else next(firsts) for batch in batches]
        try:
            began = time.perf_counter()
            offsets = yield from self._writer.storing(batches)
            self._commit_seconds += time.perf_counter() - began
        except Exception as error:
            outside = isinstance(error, sqlite3.OperationalError | JournalUnavailable)
            if len(batches) > 1 and not outside:
                # Not the disk's fault but that of some batch: the others shall not suffer.
                found = []
                for batch in batches:
                    found += yield from self._commit([batch])
                return found
            failure = unwritable(self._path, error)
            if not self.failing:
                _log.error("%s", failure)
            self._commits_fail = True
            self._failed += 1
            for batch in batches:
                batch.error = failure
                if batch.line is not None:
                    batch.line.failed = True
            return [0] * len(batches)
        if self.failing:
            _log.warning("%s can be written again", self._path or "the journal in memory")
        self._commits_fail = self._displaced = False
        return offsets

    def _upkeep(self, *, idle: bool) -> float:
        """Keep within bounds. How long that can now wait; `idle` if there was nothing to commit."""
        try:
            if self._may_expire:
                self._may_expire = False
                self._writer.expire()
                return 0.0
            removed = self._writer.removed_wanted
            low = self._writer.planned()
            if low is not None:
                self._tell_removed(self._writer.removed_wanted - removed, low)
                self._post(self._retire, low)
            if self._writer.chore():
                return 0.0
            if idle:  # a commit has looked itself; each look lets go of the interpreter thrice
                self._writer.look_around()
                self._displaced = False
            if self._reserve is not None:
                self._reserve.keep()
        except JournalUnavailable as error:
            if not self.failing:
                _log.error("%s", error)
            self._displaced = True
            return _RETRY
        except Exception as error:
            if not self._upkeep_fails:
                _log.warning(
                    "%s: retention and maintenance fail (%s); tried again until they succeed",
                    self._path or "the journal in memory",
                    error,
                )
            self._upkeep_fails = True
            return _RETRY
        self._upkeep_fails = False
        return _IDLE

    def _tell_removed(self, count: int, low: int) -> None:
        """Retention took what a durable subscription needs; the log says so now and then."""
        now = time.monotonic()
        if count and now >= self._tell_again:
            self._tell_again = now + _TOLD_EVERY
            _log.warning(
                "%s: retention removes what durable subscriptions have not confirmed, from offset "
                "%d on; they are told of a gap. Raise retention.durable_seconds and durable_bytes, "
                "or delete those that nobody needs",
                self._path or "the journal in memory",
                low - count,
                extra={"event": "unconfirmed_removed"},
            )

    def _post(self, function: Callable[..., object], *args: Any) -> None:
        """Run it in the event loop."""
        if self._path is None or self._call is _not_started:
            function(*args)
            return
        try:
            self._call(function, *args)
        except RuntimeError:
            _log.debug("the event loop is closed; nobody is told of a commit")


class _Signal(enum.Enum):
    STOP = enum.auto()
    EXPIRE = enum.auto()


_STOP: Final = _Signal.STOP
_EXPIRE: Final = _Signal.EXPIRE


def _not_started(*_: object) -> None:
    """Stands for what `start` brings."""


def _new_name(path: Path | None, name: str | None) -> str:
    if name is None:
        raise InvalidConfiguration(f"there is no journal in {path}; to make one, give it a name")
    return name
