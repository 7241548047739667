"""A copy of a data directory, taken while its broker runs and commits, and put back later.

SQLite copies the database page by page. Every page is as it was when the copy began, because the
connection that reads holds a transaction open all the while; the broker goes on committing to its
write-ahead log, which is written back when the copy is done. So a copy is what was committed at one
moment, as a whole. It is verified from end to end before it gets its name.

A copy is older than what others have seen as soon as the broker has acknowledged something more,
and its next publications would stand under offsets that were used. So each copy says of itself that
it is one (see `outdated`): a broker that is started with it, restored by this module or by hand,
serves it as far as it goes and publishes under a new stream.

The journals of others that the broker has taken over are copied first and its own last. What it has
taken from them by then is in its own.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stentor.broker.storage import database
from stentor.broker.storage.directory import (
    ADOPTED,
    COMPANIONS,
    DATABASE,
    LOCK,
    MARK,
    RESERVE,
    Lock,
    MarkFile,
    make_private,
    prepare,
    sync,
)
from stentor.broker.storage.outdated import ENDS, Ends, declare_outdated
from stentor.broker.storage.repairing import check
from stentor.errors import (
    InvalidConfiguration,
    JournalDamaged,
    JournalUnavailable,
    StentorError,
)
from stentor.notation.counts import counted
from stentor.notation.units import short_size

#: Told how much is done, of how much.
Progress = Callable[[int, int], object]

#: Pages that are copied between two looks at how far it is.
_PAGES: Final = 2_048
#: What a restore is made of until it is complete, and what was there before.
_PART: Final = "restore.part"
_BEFORE: Final = "before-restore"
_MINE: Final = (DATABASE, *(DATABASE + each for each in COMPANIONS), MARK, ENDS, ADOPTED)


@dataclass(frozen=True)
class BackupReport:
    """What was copied."""

    path: str
    broker: str
    stream: str
    low: int
    head: int
    #: When the newest notification in it was journaled, or None.
    latest: str | None
    bytes: int
    #: Journals of brokers that were removed, which this one has.
    adopted: int
    #: Where what was there before is now, after a restore.
    before: str | None = None

    def __str__(self) -> str:
        rows = [
            ("copied", f"{self.path}, {short_size(self.bytes)}, verified"),
            ("broker", self.broker),
            ("stream", self.stream),
            ("offsets", f"{self.low:,} to {self.head:,}" if self.low <= self.head else "none"),
            ("newest", self.latest or "never"),
        ]
        if self.adopted:
            rows.append(
                (
                    "taken over",
                    counted(self.adopted, "journal of another broker", "journals of other brokers"),
                )
            )
        if self.before is not None:
            rows.append(("before", self.before))
        return "\n".join(f"{name:<10} {value}" for name, value in rows)


def backup(source: Path, to: Path, progress: Progress = lambda done, of: None) -> BackupReport:
    """Copy the data directory of a broker, which may be running, to a directory that is new."""
    if not (source / DATABASE).exists():
        raise InvalidConfiguration(f"there is no journal in {source}; name a data directory")
    if to.exists():
        raise InvalidConfiguration(
            f"{to} already exists; name a directory that does not exist, so that no older copy "
            "is lost"
        )
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a backup that was interrupted
    with _cleared_up(part, to.parent):
        prepare(part)
        _copy_tree(source, part, progress)
        report = _verified(part, to)
        part.rename(to)
        sync(to.parent)
    return report


def restore(
    copy: Path, to: Path, *, replace: bool = False, progress: Progress = lambda done, of: None
) -> BackupReport:
    """Put a copy into a data directory. What is there is kept aside, if it may be replaced."""
    if not (copy / ENDS).exists():
        raise InvalidConfiguration(
            f"{copy} is not a backup; name a directory that `backup` has made"
        )
    prepare(to)
    lock = Lock(to)
    try:
        old = [to / name for name in _MINE if (to / name).exists()]
        if (to / DATABASE).exists() and not replace:
            raise InvalidConfiguration(
                f"{to} holds a journal; restore to another directory, or with --replace, which "
                "keeps what is there below it"
            )
        part = to / _PART
        shutil.rmtree(part, ignore_errors=True)
        with _cleared_up(part, to):
            prepare(part)
            _copy_tree(copy, part, progress)
            report = _verified(part, to)
            before = _aside(to, old)
            # The database last: without it there is no journal, and nothing that could be used.
            for path in sorted(part.iterdir(), key=lambda path: path.name == DATABASE):
                path.rename(to / path.name)
            sync(to)
            part.rmdir()
    finally:
        lock.release()
    return BackupReport(**{**vars(report), "before": before})


def _aside(directory: Path, old: list[Path]) -> str | None:
    """Move what was there to a directory below; where that is."""
    if not old:
        return None
    number = 1
    while (aside := directory / f"{_BEFORE}-{number}").exists():
        number += 1
    prepare(aside)
    for path in old:
        path.rename(aside / path.name)
    sync(directory)
    return str(aside)


@contextmanager
def _cleared_up(part: Path, on: Path) -> Iterator[None]:
    """Leave nothing behind that is not complete, and say what was wrong."""
    try:
        yield
    except StentorError:
        shutil.rmtree(part, ignore_errors=True)
        raise
    except (sqlite3.Error, OSError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise JournalUnavailable(
            f"the copy could not be written to {on}: {error}; nothing of it is left"
        ) from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _copy_tree(source: Path, to: Path, progress: Progress) -> None:
    _check_room(source, to)
    if (source / ADOPTED).is_dir():
        for path in sorted((source / ADOPTED).rglob(DATABASE)):
            if not any(each.suffix for each in path.relative_to(source).parents):
                _copy(path.parent, to / path.parent.relative_to(source), lambda done, of: None)
    _copy(source, to, progress)
    if not (to / ENDS).exists():
        with closing(database.connect_to_read(to / DATABASE)) as db:
            state = database.load(db)
        if state is None:
            raise JournalDamaged(f"{source / DATABASE}: what is in it cannot be read")
        declare_outdated(to, Ends(state.stream, state.head, state.head))


def _check_room(source: Path, to: Path) -> None:
    """Raise if there is not even room for what is there now."""
    needed = sum(path.stat().st_size for path in source.rglob(DATABASE))
    found = os.statvfs(to)
    free = found.f_bavail * found.f_frsize
    if free < needed:
        raise JournalUnavailable(
            f"the copy needs {short_size(needed)}, and on the disk of {to.parent} there are "
            f"{short_size(free)}; make room, or name another place"
        )


def _copy(source: Path, to: Path, progress: Progress) -> None:
    """One directory with a journal, but not those below it."""
    prepare(to)
    for path in source.iterdir():
        small = path.name not in (LOCK, RESERVE, MARK) and not path.name.startswith("journal.")
        if path.is_file() and small and path.suffix not in (".db", ".draft"):
            shutil.copyfile(path, to / path.name)
    make_private(to / DATABASE)

    def copied(status: int, left: int, pages: int) -> None:
        progress(pages - left, pages)

    with (
        closing(database.connect_to_read(source / DATABASE)) as old,
        closing(sqlite3.connect(to / DATABASE, isolation_level=None)) as new,
    ):
        old.execute("BEGIN")
        old.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on, one moment
        old.backup(new, pages=_PAGES, progress=copied, sleep=0.0)
        state = database.load(new)
    for companion in COMPANIONS:
        (to / (DATABASE + companion)).unlink(missing_ok=True)
    if state is not None:
        MarkFile(to, state.stream, state.commits, state.head).close()
    for path in to.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync(to)


def _verified(part: Path, name: Path) -> BackupReport:
    """What was copied; raises if anything of it is not as it was written."""
    paths = sorted(path.parent for path in part.rglob(DATABASE))
    for path in paths:
        found = check(path)
        if not found.ok:
            raise JournalDamaged(
                f"the copy of {found.stream} is damaged: {'; '.join(found.problems)}; run "
                "'stentor journal check' on what was copied"
            )
        with suppress(OSError):
            for companion in COMPANIONS:
                (path / (DATABASE + companion)).unlink(missing_ok=True)
    report = check(part)
    if report.stream is None or report.name is None:
        raise StentorError(f"{part} cannot be read")
    return BackupReport(
        path=str(name),
        broker=report.name,
        stream=report.stream,
        low=report.low,
        head=report.head,
        latest=None if report.latest is None else database.when(report.latest),
        bytes=sum(path.stat().st_size for path in part.rglob(DATABASE)),
        adopted=len(paths) - 1,
    )
