"""Which events a replay publishes, and where it is.

All that a replay depends on is fixed when it begins and written down: the version of the archive,
the filter and the times, the producer that publishes, and the broker. Its place is the number of
events that are published, together with the turn of the last one and how many of that turn are:
enough to find it again without reading what lies before.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from stentor.errors import ArchiveError, InvalidConfiguration
from stentor.filters import Filter
from stentor.pipeline.archives.columns import typed
from stentor.pipeline.archives.facts import RowFilter, publishable
from stentor.pipeline.archives.merge import Portion, in_order
from stentor.pipeline.archives.moments import Between
from stentor.pipeline.archives.order import AHEAD, Ints
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.statistics import Pruner
from stentor.pipeline.archives.tables import File, Table
from stentor.pipeline.columns import RowEncoder

REPLAYS: Final = "_stentor/replays"


class Reached(msgspec.Struct, frozen=True):
    """A place in the order of the archive."""

    #: Events that are published; the next one has this number.
    published: int = 0
    #: The turn of the last one, and how many of the same turn are published.
    turn: int | None = None
    of_turn: int = 0

    def beyond(self, turns: Ints) -> Reached:
        """The place behind events of these turns, which are the next."""
        if not len(turns):
            return self
        last = int(turns[-1])
        same = int(np.count_nonzero(turns == last))
        before = self.of_turn if self.turn == last else 0
        return Reached(self.published + len(turns), last, same + before)


START: Final = Reached()


class Note(msgspec.Struct):
    """A replay: what it publishes, and where it is."""

    version: int
    filter: str
    since: int | None
    until: int | None
    keep_time: bool
    address: str
    producer: str
    epoch: int
    #: One value, so that an interruption finds the old one or the new one.
    reached: Reached = START

    @property
    def between(self) -> Between:
        """The times that it is about."""
        return Between(self.since, self.until)

    def advance(self, turns: Ints) -> None:
        """Events of these turns are published."""
        self.reached = self.reached.beyond(turns)


def new_note(
    version: int, filter: Filter, between: Between, address: str, *, keep_time: bool
) -> Note:
    """A replay that is about to begin, under a name that nobody else has."""
    return Note(
        version=version,
        filter=str(filter),
        since=between.since,
        until=between.until,
        keep_time=keep_time,
        address=address,
        producer=f"replay-{secrets.token_hex(8)}",
        epoch=int(time.time()),
    )


class Notes:
    """Where the note of a replay is kept: in the archive, or in a file of the user's choice."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name

    @staticmethod
    def name_of(*asked: object) -> str:
        """A name for what was asked for, so that the same replay finds its note again."""
        digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
        return f"{REPLAYS}/{digest}.json"

    def read(self) -> Note | None:
        data = self._place.read(self._name)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=Note)
        except msgspec.DecodeError as error:
            raise ArchiveError(
                f"{self._place.path(self._name)} does not say where a replay is: {error}; "
                "delete it, and begin anew"
            ) from error

    def resumed(self) -> Note:
        """The note of a replay that was interrupted."""
        found = self.read()
        if found is None:
            raise InvalidConfiguration(
                "there is no interrupted replay of these events to these brokers: it was never "
                "begun, or is complete; replay without resume to publish them all again"
            )
        return found

    def write(self, note: Note) -> None:
        self._place.write(self._name, msgspec.json.encode(note))

    def forget(self) -> None:
        self._place.delete([self._name])


class Encoders:
    """What makes notifications of events; files of several schemas may be read in turns."""

    def __init__(self) -> None:
        self._known: list[tuple[pa.Schema, RowEncoder]] = []

    def of(self, schema: pa.Schema) -> RowEncoder:
        """The one for events of this schema."""
        for known, encoder in self._known:
            if known == schema:
                return encoder
        encoder = RowEncoder(schema)
        self._known.append((schema, encoder))
        return encoder


class Events:
    """Events of an archive that a filter matches, between two times, in order."""

    def __init__(
        self,
        table: Table,
        filter: Filter,
        between: Between,
        files: Iterable[File] | None = None,
    ) -> None:
        """Of all files, or of those given."""
        self._table = table
        self.schema = table.schema
        self._filter = filter
        self._between = between
        pruner = Pruner(filter & between.filter, table.columns)
        known = table.files.values() if files is None else files
        self.files: Sequence[File] = [file for file in known if pruner.may_match(file)]

    @property
    def most(self) -> int:
        """As many events as there may be."""
        return sum(file.rows for file in self.files)

    def span(self) -> tuple[int, int] | None:
        """The first and the last time that there may be, in microseconds."""
        known = [(file.known("_time"), file.modified) for file in self.files]
        # Times that nobody believes do not count.
        ends = [
            (b.low, b.high)
            for b, modified in known
            if b is not None and b.low is not None and b.high is not None
            if b.high <= modified + AHEAD
        ]
        if not ends:
            return None
        since, until = self._between
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        low = low if since is None else max(low, since)
        high = high if until is None else min(high, until)
        return (low, high) if low <= high else None

    def behind(self, reached: Reached = START) -> Iterator[Portion]:
        """Those behind a place; the events of a portion have each attribute in one type."""
        wanted = RowFilter(self._filter)
        place, columns = self._table.place, self._table.columns
        files = _not_before(self.files, reached.turn)
        skip = reached.of_turn
        for portion in in_order(place, files, columns, self._between):
            start = 0
            if reached.turn is not None:
                start = int(np.searchsorted(portion.turn, reached.turn, "left"))
            turns = portion.turn[start:]
            for first, end, events in typed(portion.events.slice(start)):
                turn = turns[first:end]
                keep = publishable(events)
                keep &= wanted.matches(events)
                rows = np.flatnonzero(keep)
                if skip:
                    again = rows[turn[rows] == reached.turn][:skip]
                    skip -= len(again)
                    rows = rows[len(again) :]
                if len(rows):
                    yield Portion(events.take(rows), turn[rows])


def _not_before(files: Sequence[File], turn: int | None) -> list[File]:
    """The files without those of which the turns of all events are before this one.

    A turn is no later than the latest time in a file of the journal that begins before it ends.
    """
    if turn is None:
        return list(files)
    found = []
    by_journal: dict[str, list[File]] = defaultdict(list)
    for file in files:
        if file.times is None:
            found.append(file)
        elif file.journal is not None:
            by_journal[file.journal].append(file)
        elif file.times[1] >= turn:
            found.append(file)
    for each in by_journal.values():
        each.sort(key=lambda file: file.offsets[0])
        latest = list(accumulate((file.times[1] for file in each if file.times), max))
        firsts = [file.offsets[0] for file in each]
        found += [f for f in each if latest[bisect_right(firsts, f.offsets[1]) - 1] >= turn]
    return found
