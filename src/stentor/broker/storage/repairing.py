"""Checks a journal from end to end, and saves what is good of a damaged one.

`check` changes nothing, and a broker may use the journal at the same time.

`repair` writes a new journal with everything that is good and then puts it into the place of the
damaged one, which is kept beside it. Offsets are counted anew, so the new journal has a new stream
id: a position in the old stream means nothing in it, and no subscriber mistakes one for the other.
It is complete, on disk, before the old one is touched; if the repair is interrupted, running it
again goes on from there.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from stentor.broker.settings import Retention
from stentor.broker.storage import database
from stentor.broker.storage.batch import JournalBatch
from stentor.broker.storage.blocks import intact, unpack
from stentor.broker.storage.database import HEADERS, JournalState, header, transaction, when
from stentor.broker.storage.directory import (
    COMPANIONS,
    DATABASE,
    MARK,
    REPAIRED,
    Lock,
    MarkFile,
    Witnessed,
    make_private,
    read_mark,
    sync,
)
from stentor.broker.storage.opening import fault_of_commits, fault_of_emptiness, fault_of_files
from stentor.broker.storage.scan import Rows, Scan, Unreadable, bounds, rows, scan
from stentor.broker.storage.writer import Writer
from stentor.errors import InvalidConfiguration, JournalDamaged
from stentor.node.schedule import Delayed
from stentor.notation.counts import counted

_PART = "journal.part.db"


@dataclass
class JournalReport:
    """What a journal holds, and what is wrong with it. `str` makes it readable."""

    path: Path
    #: None if it cannot be read.
    stream: str | None = None
    name: str | None = None
    low: int = 1
    head: int = 0
    blocks: int = 0
    #: Bytes of the file.
    size: int = 0
    earliest: float | None = None
    latest: float | None = None
    producers: int = 0
    durables: int = 0
    last_values: int = 0
    scheduled: int = 0
    #: One sentence for each.
    problems: list[str] = field(default_factory=list)
    #: After a repair: the new stream's id, the number of its entries, and the old file.
    repaired: str | None = None
    saved: int = 0
    kept: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"{self.path}, {self.size:,} bytes"]
        if self.stream is not None:
            lines.append(f"  stream {self.stream} of the broker {self.name}")
        if self.low <= self.head:
            lines.append(
                f"  offsets {self.low}..{self.head} in {counted(self.blocks, 'block')}, journaled "
                f"between {when(self.earliest)} and {when(self.latest)}"
            )
        else:
            lines.append(f"  no notifications; the next offset is {self.head + 1}")
        lines.append(
            f"  {counted(self.producers, 'producer')}, "
            f"{counted(self.durables, 'durable subscription')}, "
            f"{counted(self.last_values, 'last value')}"
            + (f", {self.scheduled:,} to be delivered later" if self.scheduled else "")
        )
        lines += [f"  damaged: {problem}" for problem in self.problems]
        if self.ok:
            lines.append("  everything is in order")
        if self.repaired is not None:
            lines.append(
                f"  repaired: {counted(self.saved, 'notification is', 'notifications are')} in "
                f"the stream {self.repaired}"
            )
        if self.kept is not None:
            lines.append(f"  the old journal was kept as {self.kept}")
        return "\n".join(lines)


@dataclass
class _Findings:
    """What a check found, for the report and for the repair."""

    report: JournalReport
    witnessed: Witnessed | None = None
    scan: Scan = field(default_factory=Scan)
    tables: dict[str, Rows] = field(default_factory=dict)


def check(directory: Path) -> JournalReport:
    """Verify a journal as a whole. It reads everything, so it takes its time."""
    findings, db = _check(directory)
    if db is not None:
        db.close()
    return findings.report


def repair(directory: Path, *, force: bool = False) -> JournalReport:
    """Save what is intact in a damaged journal in a new one, and keep the old file.

    The broker must not run. A journal that is in order is left alone; with `force` it becomes a
    new stream as well, which is right for one that was restored from a backup.
    """
    _exists(directory)
    lock = Lock(directory)
    try:
        if (directory / REPAIRED).exists():
            kept = _put_in_place(directory)
            findings, db = _check(directory)
            if db is not None:
                db.close()
            report = findings.report
            report.repaired, report.saved, report.kept = report.stream, report.head, kept
            return report
        findings, db = _check(directory)
        report = findings.report
        try:
            if report.ok and not force:
                return report
            state = _salvage(directory, findings, db)
        finally:
            if db is not None:
                db.close()
        report.kept = _put_in_place(directory)
        report.repaired, report.saved = state.stream, state.head
        return report
    finally:
        lock.release()


# -- checking


def _exists(directory: Path) -> None:
    if not any((directory / name).exists() for name in (DATABASE, MARK, REPAIRED)):
        raise InvalidConfiguration(f"there is no journal in {directory}")


def _check(directory: Path) -> tuple[_Findings, sqlite3.Connection | None]:
    """Everything there is to know, and the connection to read more, if there can be one."""
    _exists(directory)
    path = directory / DATABASE
    findings = _Findings(JournalReport(path))
    report = findings.report
    try:
        findings.witnessed = read_mark(directory)
        mark_reads = True
    except JournalDamaged:
        report.problems.append(
            f"{MARK} is damaged, so it is not certain that the newest commits are there"
        )
        mark_reads = False
    fault = fault_of_files(directory, findings.witnessed)
    if fault is not None:
        report.problems.append(fault)
    if not path.exists() or path.stat().st_size == 0:
        return findings, None
    report.size = path.stat().st_size
    db = database.connect_to_read(path)
    try:
        if not database.is_new(db):
            fault = database.fault_of_format(db, path)
            if fault is not None:
                report.problems.append(fault)
            _check_contents(db, findings, mark_reads=mark_reads)
        elif findings.witnessed is not None and findings.witnessed.commits > 0:
            report.problems.append(fault_of_emptiness(findings.witnessed))
            db.close()
            return findings, None
    except Unreadable as error:
        if isinstance(error, InvalidConfiguration):
            db.close()
            raise
        report.problems.append(f"SQLite cannot read it ({error}); affected is everything in it")
        db.close()
        return findings, None
    return findings, db


def _check_contents(db: sqlite3.Connection, findings: _Findings, *, mark_reads: bool) -> None:
    report = findings.report
    state = _state(db)
    if state is None:
        report.problems.append("the row that says what is in it is missing or altered")
    else:
        report.stream, report.name = state.stream, state.name
        fault = fault_of_commits(state, findings.witnessed)
        if fault is not None and mark_reads:
            report.problems.append(fault)
    report.low, report.head = bounds(db, state)
    findings.scan = scan(db, report.low, report.head, None if state is None else state.tail)
    # A broker may be running, and its retention may have deleted something in the meantime.
    now = _state(db)
    low = report.low if now is None else now.low
    report.problems += [
        f"{stretch} are lost: {stretch.why}"
        for stretch in findings.scan.lost
        if stretch.last >= low
    ]
    report.problems += _surplus(db)
    good = findings.scan.good
    report.blocks = findings.scan.blocks
    report.earliest = good[0].earliest if good else None
    report.latest = good[-1].latest if good else None
    findings.tables = {table: rows(db, table) for table in database.COLUMNS}
    for table in findings.tables.values():
        report.problems += table.problems
    report.producers = len(findings.tables["producer"].rows)
    report.durables = sum(database.is_durable(name) for name, _ in findings.tables["durable"].rows)
    report.last_values = len(findings.tables["last_value"].rows)
    report.scheduled = len(findings.tables["scheduled"].rows)
    try:
        results = [result for (result,) in db.execute("PRAGMA integrity_check(10)").fetchall()]
    except sqlite3.Error as error:
        results = [str(error)]
    report.problems += [
        f"SQLite finds it malformed ({' '.join(result.split())})"
        for result in results
        if result != "ok"
    ]


def _surplus(db: sqlite3.Connection) -> list[str]:
    """Blocks where there should be none. One query, so that a running broker cannot interfere."""
    try:
        row = db.execute(
            "SELECT (SELECT min(first) FROM block) < low, (SELECT max(first) FROM block) > head"
            " FROM state"
        ).fetchone()
    except sqlite3.Error:
        return []  # it was found otherwise
    if row is None or not any(row):
        return []
    return ["there are blocks outside the offsets that it should have"]


def _state(db: sqlite3.Connection) -> JournalState | None:
    try:
        return database.load(db)
    except Unreadable:
        return None


# -- repairing


def _salvage(directory: Path, findings: _Findings, old: sqlite3.Connection | None) -> JournalState:
    """Write the new journal, as a whole, under its temporary name."""
    name = findings.report.name
    if name is None and findings.witnessed is not None:
        name = findings.witnessed.stream.rpartition("#")[0]
    if name is None:
        raise JournalDamaged(
            f"{directory / DATABASE}: nothing of it can be read, not even whose journal it is. "
            f"Keep the files for inspection elsewhere, and start the broker with an empty directory"
        )
    path = directory / _PART
    for leftover in (path, *_beside(path)):
        leftover.unlink(missing_ok=True)
    make_private(path)
    state = JournalState.new(name)
    with closing(database.connect(path)) as db:
        # Nobody relies on it before it is complete, so one sync at the end will do.
        db.execute("PRAGMA synchronous = OFF")
        database.create(db, state)
        if old is not None:
            state = _copy(old, db, state, findings)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    path.rename(directory / REPAIRED)
    sync(directory)
    return state


def _copy(
    old: sqlite3.Connection, new: sqlite3.Connection, state: JournalState, findings: _Findings
) -> JournalState:
    time = 0.0
    writer = Writer(new, state, Retention(None, None), lambda: time)
    for stretch in findings.scan.good:
        offset = stretch.first
        while offset <= stretch.last:
            block = header(old.execute(HEADERS + " WHERE first = ?", (offset,)).fetchone())
            (data,) = old.execute("SELECT data FROM block WHERE first = ?", (offset,)).fetchone()
            if not intact(block, data):
                raise JournalDamaged(
                    f"{findings.report.path}: the block at offset {offset} was good and no longer "
                    "is. The disk is failing: copy the directory to another one and repair it there"
                )
            time = block.time
            writer.commit([JournalBatch(unpack(block, data))])
            offset = block.last + 1
    with transaction(new):
        for row in findings.tables["producer"].rows:
            database.put_producer(new, *row)
        for row in findings.tables["durable"].rows:
            database.put_durable(new, *row)
        for key, _, kept_since, value in findings.tables["last_value"].rows:
            database.put_last_value(new, key, 0, kept_since, value)
        for row in findings.tables["scheduled"].rows:
            database.put_scheduled(new, Delayed(*row))
    return writer.state


def _put_in_place(directory: Path) -> Path | None:
    """Put the new journal into the place of the old one, and say where that now is.

    Every step may be the last one before a crash; doing it all again then completes it.
    """
    number = 1
    while (directory / f"journal.damaged-{number}.db").exists():
        number += 1
    path = directory / DATABASE
    kept: Path | None = None
    if path.exists():
        kept = directory / f"journal.damaged-{number}.db"
        # The log first: a log without its database is harmless, the reverse is not.
        for old, aside in zip(_beside(path), _beside(kept), strict=True):
            if old.exists():
                old.rename(aside)
        path.rename(kept)
    elif number > 1:
        kept = directory / f"journal.damaged-{number - 1}.db"
    for leftover in _beside(path):
        leftover.unlink(missing_ok=True)
    with closing(database.connect_to_read(directory / REPAIRED)) as db:
        state = database.load(db)
    if state is None:
        raise JournalDamaged(
            f"{directory / REPAIRED} is damaged itself; delete it and repair again"
        )
    for companion in _beside(directory / REPAIRED):
        companion.unlink(missing_ok=True)
    (directory / MARK).unlink(missing_ok=True)
    MarkFile(directory, state.stream, state.commits, state.head).close()
    (directory / REPAIRED).rename(path)
    sync(directory)
    return kept


def _beside(path: Path) -> list[Path]:
    """What SQLite keeps beside a database."""
    return [path.with_name(path.name + suffix) for suffix in COMPANIONS]
