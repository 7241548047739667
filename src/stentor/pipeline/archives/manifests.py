"""What an archive says about itself: commits, and the state that they add up to.

A commit is a step: files that belong to the archive from now on, files that no longer do, and how
far its writer has come. The state is what all commits together amount to. Readers take the state at
some version and look at the files that it lists, no others; so a file that is not mentioned (its
writer died, or has not yet committed) does not exist, and one that is replaced disappears in the
same instant in which its replacement appears.

The state also remembers what was removed, until the files themselves are deleted, so that readers
who began before have time to finish.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from stentor.errors import ArchiveError
from stentor.pipeline.archives.schemas import joined
from stentor.pipeline.columns.types import as_json, from_json

#: Raised when a change of these structures cannot be read by older versions.
FORMAT: Final = 1


class Bounds(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is known about a column of a file: the least value and the greatest, if it says so.

    Times are microseconds since 1970. A bound that is None is unknown, or there is no value.
    """

    low: bool | int | float | str | None
    high: bool | int | float | str | None
    #: Rows without a value.
    absent: int


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """A data file."""

    #: Relative to the archive.
    path: str
    #: The event type, and the day in UTC, of all its events; None for those without.
    type: str | None
    day: str | None
    rows: int
    bytes: int
    #: Number of its schema among those of the commit, or of the state.
    schema: int
    #: By the dotted name of the column.
    columns: dict[str, Bounds] = {}
    #: By journal (or broker, where the events do not say which journal): first and last offset.
    offsets: dict[str, tuple[int, int]] = {}
    #: Rows that are in no journal.
    outside: int = 0
    #: By journal: events of this file have their turn in a replay no earlier than this; see
    #: `ordering`. Nearly always empty.
    floors: dict[str, int] = {}
    #: Whether the turns of some events are in a column of their own.
    late: bool = False
    #: The least turn, if some events have theirs before their times.
    early: int | None = None

    @property
    def partition(self) -> tuple[str | None, str | None]:
        return self.type, self.day

    @property
    def low(self) -> int:
        """The least time of its events, in microseconds; the beginning of time if not known."""
        found = self.columns.get("_time")
        return found.low if found is not None and isinstance(found.low, int) else -(2**63)

    @property
    def begins(self) -> int:
        """No event of it has its turn before this."""
        return self.low if self.early is None else min(self.low, self.early)


class Progress(msgspec.Struct, omit_defaults=True):
    """How far a writer has come in the journals that it archives."""

    #: By journal: the offset that comes next.
    next: dict[str, int] = {}
    #: By journal: the latest turn of an event so far, in microseconds.
    latest: dict[str, int] = {}
    #: Whether it holds events back, as sorting does. Then it has read more than it has archived,
    #: and nobody knows which events of the journals are missing.
    holds: bool = False


class Batch(msgspec.Struct, array_like=True, frozen=True):
    """A micro-batch: the id of the streaming query, and its number there."""

    query: str
    number: int


class Commit(msgspec.Struct, omit_defaults=True):
    """One step."""

    #: Seconds since 1970.
    at: float
    operation: str
    format: int = FORMAT
    batch: Batch | None = None
    writer: str | None = None
    progress: Progress | None = None
    #: Writers that are no more, and whose progress no longer counts.
    retired: list[str] = []
    schemas: list[list[dict[str, Any]]] = []
    add: list[File] = []
    remove: list[str] = []
    #: Removed long ago, and deleted by now.
    deleted: list[str] = []


class State(msgspec.Struct):
    """An archive at one version. Not to be changed; `after` makes a new one."""

    version: int = 0
    format: int = FORMAT
    files: dict[str, File] = {}
    #: Under this schema all events are a table ...
    fields: list[dict[str, Any]] = []
    #: ... and each file has one of these.
    schemas: list[list[dict[str, Any]]] = []
    #: By query: its last micro-batch.
    batches: dict[str, int] = {}
    #: By the name of a writer.
    progress: dict[str, Progress] = {}
    #: Files that were replaced, and when.
    removed: dict[str, float] = {}

    @property
    def schema(self) -> pa.Schema:
        return from_json(self.fields)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    def has(self, batch: Batch | None) -> bool:
        """Whether a micro-batch is in the archive."""
        return batch is not None and self.batches.get(batch.query, -1) >= batch.number

    def after(self, commit: Commit) -> State:
        """The state behind one more commit."""
        schema, schemas = self.schema, list(self.schemas)
        place: dict[int, int] = {}
        for number, fields in enumerate(commit.schemas):
            if fields not in schemas:
                schemas.append(fields)
                schema = joined(schema, from_json(fields))
            place[number] = schemas.index(fields)
        files, removed = dict(self.files), dict(self.removed)
        for path in commit.remove:
            del files[path]
            removed[path] = commit.at
        for path in commit.deleted:
            removed.pop(path, None)
        for file in commit.add:
            files[file.path] = msgspec.structs.replace(file, schema=place[file.schema])
        batches, progress = dict(self.batches), dict(self.progress)
        if commit.batch is not None:
            batches[commit.batch.query] = commit.batch.number
        if commit.writer is not None and commit.progress is not None:
            known = progress.get(commit.writer, Progress())
            progress[commit.writer] = Progress(
                _larger(known.next, commit.progress.next),
                _larger(known.latest, commit.progress.latest),
                known.holds or commit.progress.holds,
            )
        for writer in commit.retired:
            progress.pop(writer, None)
        return State(
            version=self.version + 1,
            files=files,
            fields=as_json(schema),
            schemas=schemas,
            batches=batches,
            progress=progress,
            removed=removed,
        )

    def positions(self) -> dict[str, int]:
        """By journal: everything before this offset that was to be archived is in the archive.

        Of several writers, the slowest counts. What was archived without a streaming query counts
        where no query reads the journal: by its last offset. It means nothing if a writer holds
        events back.
        """
        found: dict[str, int] = {}
        for progress in self.progress.values():
            for stream, position in progress.next.items():
                found[stream] = min(found.get(stream, position), position)
        written: dict[str, int] = {}
        for file in self.files.values():
            for stream, (_, last) in file.offsets.items():
                written[stream] = max(written.get(stream, 0), last + 1)
        return written | found

    def slowest(self, journal: str, position: int) -> str | None:
        """The writer that is at this position of a journal while another is further on."""
        at = {name: p.next[journal] for name, p in self.progress.items() if journal in p.next}
        behind = sorted(name for name, offset in at.items() if offset == position)
        return behind[0] if behind and max(at.values()) > position else None


def _larger(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {stream: max(a.get(stream, low), low) for stream, low in {**a, **b}.items()}


_commits: Final = msgspec.json.Decoder(Commit)
_states: Final = msgspec.json.Decoder(State)


def encoded(found: Commit | State) -> bytes:
    return msgspec.json.encode(found)


def decoded_commit(data: bytes, name: str) -> Commit:
    return _checked(_commits, data, name)  # type: ignore[no-any-return]


def decoded_state(data: bytes, name: str) -> State:
    return _checked(_states, data, name)  # type: ignore[no-any-return]


def _checked(decoder: Any, data: bytes, name: str) -> Any:
    try:
        found = decoder.decode(data)
    except msgspec.DecodeError as error:
        newer = _newer(data)
        if newer is not None:
            raise _too_new(name, newer) from None
        raise ArchiveError(
            f"{name} is damaged: {error}; restore it from a backup, the archive cannot be read "
            "without it"
        ) from error
    if found.format > FORMAT:
        raise _too_new(name, found.format)
    return found


def _newer(data: bytes) -> int | None:
    """The format that some JSON says it is in, if that is not one of ours."""
    try:
        number = msgspec.json.decode(data).get("format")
    except (msgspec.DecodeError, AttributeError):
        return None
    return number if isinstance(number, int) and number > FORMAT else None


def _too_new(name: str, number: int) -> ArchiveError:
    return ArchiveError(
        f"{name} was written by a newer version of Stentor (format {number}, known is {FORMAT}); "
        "update Stentor"
    )
