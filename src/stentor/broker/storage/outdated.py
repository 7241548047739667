"""A journal that turned out to be an older copy: offsets behind its end were used before.

What is journaled under them again would be taken for what they stood for, by everybody who has had
that. So the broker begins a new journal, with a new stream, and serves the old one as it serves
those of brokers that were removed. The old stream then has three parts:

    1 .. kept            what the copy has
    kept + 1 .. head     what it does not have, and others know to have existed: a gap
    kept + 1 ..          in the file, what was journaled before the broker knew; nobody is shown it
                         under these offsets, and it goes into the new journal, with the same ids

Whoever was given some of the last part under its old offsets recognizes it by the ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from stentor.broker.storage.database import BlocksDamaged
from stentor.broker.storage.directory import COMPANIONS, DATABASE, MARK, Lock, sync
from stentor.broker.storage.journal import Journal
from stentor.errors import JournalUnavailable
from stentor.node.log import LastValue
from stentor.protocol.messages import StreamId

#: Beside the journal: what of it counts.
ENDS: Final = "outdated"


class Ends(msgspec.Struct, frozen=True):
    """How far a copy of a stream goes, and how far it is known to have come."""

    stream: StreamId
    kept: int
    head: int


class Outdated:
    """The journal of a stream that has lost its end. Implements `stentor.node.log.Log`."""

    def __init__(self, journal: Journal, directory: Path, ends: Ends) -> None:
        self._journal = journal
        self._directory = directory
        self._ends = ends

    @property
    def stream(self) -> StreamId:
        return self._journal.stream

    @property
    def head(self) -> int:
        return self._ends.head

    @property
    def low(self) -> int:
        return min(self._journal.low, self._ends.kept + 1)

    def read(self, first: int, limit: int) -> list[bytes]:
        kept, head = self._ends.kept, self._ends.head
        if first > kept:
            raise BlocksDamaged(f"the offsets {first}..{head} were lost", first, head)
        return self._journal.read(first, min(limit, kept - first + 1))

    def offset_at(self, since: float) -> int:
        return min(self._journal.offset_at(since), self._ends.kept + 1)

    def last_values(self, after: str, limit: int) -> list[LastValue]:
        return self._journal.last_values(after, limit)

    def delayed(self, ids: Sequence[str]) -> dict[str, bytes]:
        return self._journal.delayed(ids)

    def not_shown(self) -> list[bytes]:
        """What was journaled before the broker knew."""
        journal, found = self._journal, list[bytes]()
        at = max(self._ends.kept + 1, journal.low)
        while at <= journal.head:
            found += journal.read(at, 4096)
            at = max(self._ends.kept + 1, journal.low) + len(found)
        return found

    def extend(self, head: int) -> None:
        """The stream is known to have come still further."""
        self._ends = Ends(self.stream, self._ends.kept, head)
        with suppress(JournalUnavailable):  # somebody will say so again
            declare_outdated(self._directory, self._ends)


def outdated(journal: Journal, directory: Path) -> Outdated | None:
    """The journal as it is served, if it was set aside as an older copy."""
    try:
        ends = msgspec.json.decode((directory / ENDS).read_bytes(), type=Ends)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise JournalUnavailable(f"{directory / ENDS} cannot be read: {error}") from error
    return Outdated(journal, directory, ends)


def declare_outdated(directory: Path, ends: Ends) -> None:
    """The journal here is an older copy from now on; the next start sets it aside."""
    path = directory / ENDS
    try:
        draft = path.with_name(f"{ENDS}.draft")
        _write(draft, ends)
        draft.rename(path)
        sync(directory)
    except OSError as error:
        raise JournalUnavailable(
            f"{path} cannot be written: {error.strerror}; stop the broker and run "
            f"'stentor journal repair --force {directory}'"
        ) from error


def set_aside_outdated(directory: Path, place: Callable[[StreamId], Path]) -> None:
    """If the journal was declared an older copy, put it where those of other brokers are.

    It can be interrupted anywhere, and goes on from there the next time.
    """
    if not (directory / ENDS).exists():
        return
    lock = Lock(directory)
    try:
        ends = msgspec.json.decode((directory / ENDS).read_bytes(), type=Ends)
        to = place(ends.stream)
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (DATABASE, *(DATABASE + companion for companion in COMPANIONS), MARK):
            with suppress(FileNotFoundError):
                (directory / name).rename(to / name)
        sync(to)
        (directory / ENDS).rename(to / ENDS)
        sync(to)
        sync(directory)
    except (OSError, msgspec.MsgspecError) as error:
        raise JournalUnavailable(
            f"the journal in {directory} is an older copy and cannot be set aside: {error}"
        ) from error
    finally:
        lock.release()


def _write(path: Path, ends: Ends) -> None:
    with path.open("wb") as file:
        file.write(msgspec.json.encode(ends))
        file.flush()
        os.fsync(file.fileno())
