"""The directory of a journal: who may use it, and a witness of what was committed.

`lock` is held by the process that uses the directory (flock). The kernel lets go of it when the
process ends, however that happens.

`journal.mark` says how many commits there were. It is overwritten in place after each commit and
before anybody hears of it, without waiting for the disk: that costs microseconds. It survives the
end of the process; after a power failure it may be older than the journal, never newer. So when
the journal is opened and has fewer commits than the mark, something that was acknowledged is gone:
the write-ahead log was deleted, cut off or altered (SQLite stops reading it at the first frame that
does not fit, and says nothing), or an older copy was put in place of the journal.

A file that is open can be written after somebody has deleted it, or put another in its place, and
nothing of that is there at the next start. So before each commit the writer looks whether its files
are still where they were (`Places`).

`reserve` takes up a little room, which SQLite needs to open a journal and may not find on a disk
that is full. It is given up for that, and made again as soon as there is room.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from stentor.errors import DataInUse, InvalidConfiguration, JournalDamaged, JournalUnavailable

DATABASE: Final = "journal.db"
#: What a repair has finished writing but not yet put into place.
REPAIRED: Final = "journal.repaired.db"
MARK: Final = "journal.mark"
LOCK: Final = "lock"
RESERVE: Final = "reserve"
#: Bytes of it: what SQLite needs for the index of a write-ahead log, twice.
RESERVE_BYTES: Final = 64 * 1024
#: Below a data directory: the journals of brokers that were removed.
ADOPTED: Final = "adopted"
#: What SQLite keeps beside a database.
COMPANIONS: Final = ("-wal", "-shm")

_MAGIC: Final = b"STNMARK1"
_NUMBERS: Final = struct.Struct(">QQH")
_CRC: Final = struct.Struct(">I")


def advice(directory: Path) -> str:
    """What to do about a damaged journal."""
    return (
        f"Stop the broker and run 'stentor journal check {directory}' to see what is affected, "
        f"then 'stentor journal repair {directory}' to keep all that is intact"
    )


def prepare(directory: Path) -> None:
    """Make the directory, for its owner alone."""
    if directory.is_dir():
        return
    try:
        directory.mkdir(mode=0o700, parents=True)
        sync(directory.parent)
    except FileExistsError:
        raise InvalidConfiguration(
            f"{directory} is a file; the journal needs a directory of its own"
        ) from None
    except OSError as error:
        raise JournalUnavailable(f"{directory} cannot be created: {error.strerror}") from error


def make_private(path: Path) -> None:
    """Make a file for its owner alone. What SQLite puts beside it will be so, too."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError as error:
        raise JournalUnavailable(f"{path} cannot be made: {error.strerror}") from error


def sync(directory: Path) -> None:
    """Wait until the names in the directory are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """The right to use a directory, until it is released or the process ends."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalUnavailable(f"{path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            by = f" with process id {holder}" if holder.isdigit() else ""
            raise DataInUse(
                f"{directory} is in use by another process{by}; "
                "stop it, or give this one another directory"
            ) from None
        # Only the message above needs it: no reason to fail, not even on a full disk.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Reserve:
    """Room on the disk that is kept for opening the journal."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / RESERVE
        self._is_kept = False

    def keep(self) -> None:
        """Take up the room, unless the disk is full."""
        if self._is_kept:
            return
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                # Noise, since some file systems need no room for zeros.
                self._is_kept = os.pwrite(descriptor, os.urandom(RESERVE_BYTES), 0) == RESERVE_BYTES
            finally:
                os.close(descriptor)
        except OSError:
            return

    def give_up(self) -> bool:
        """Make room; whether there was any to be made."""
        self._is_kept = False
        try:
            had = self._path.stat().st_size > 0
            os.truncate(self._path, 0)
        except OSError:
            return False
        return had


class Places:
    """Whether files are still where they were."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        #: Device and inode of each that was there.
        self._known: dict[Path, tuple[int, int]] = {}
        self.check()

    def check(self) -> None:
        """`JournalUnavailable` if one was removed or replaced."""
        for path in self._paths:
            try:
                found = os.stat(path)
            except OSError:
                now = None
            else:
                now = found.st_dev, found.st_ino
            before = self._known.get(path)
            if before is None and now is not None:
                self._known[path] = now
            elif now != before:
                was = "removed" if now is None else "replaced"
                raise JournalUnavailable(
                    f"{path} was {was} while the broker used it: nothing more is stored or "
                    "acknowledged; put back what was there, or stop the broker and see what is left"
                )


class Witnessed(NamedTuple):
    """What a mark says."""

    stream: str
    commits: int
    head: int


def read_mark(directory: Path) -> Witnessed | None:
    """What the mark says; None if there is none. `JournalDamaged` if it cannot be read."""
    path = directory / MARK
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalUnavailable(f"{path} cannot be read: {error.strerror}") from error
    start = len(_MAGIC)
    try:
        commits, head, length = _NUMBERS.unpack_from(data, start)
        end = start + _NUMBERS.size + length
        (crc,) = _CRC.unpack_from(data, end)
        if data[:start] == _MAGIC and crc32(data[:end]) == crc:
            return Witnessed(data[start + _NUMBERS.size : end].decode(), commits, head)
    except (struct.error, UnicodeDecodeError):
        pass
    raise JournalDamaged(
        f"{path} is damaged, so it is not certain that the journal is complete. {advice(directory)}"
    )


class MarkFile:
    """Writes the mark of one journal."""

    def __init__(self, directory: Path, stream: str, commits: int, head: int) -> None:
        """Make it, or take over the one that is there. It is on disk when this returns."""
        path = directory / MARK
        was_there = path.exists()
        self._stream = stream.encode()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            self.write(commits, head)
            self.sync()
            sync(directory)
        except OSError:
            # One that is there and cannot be written witnesses less, and nothing wrong.
            if not was_there:
                os.close(self._descriptor)
                raise

    def write(self, commits: int, head: int) -> None:
        """Say so, without waiting for the disk."""
        record = _MAGIC + _NUMBERS.pack(commits, head, len(self._stream)) + self._stream
        os.pwrite(self._descriptor, record + _CRC.pack(crc32(record)), 0)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
