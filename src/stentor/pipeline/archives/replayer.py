"""`replay`: publish archived events again, in order, at any speed. It starts no Spark.

The events come in the order of the archive (`order`), so those of each journal, and with them
those of each producer, are in the order in which they were published (T-9). They are published by
one producer, one batch after another, each acknowledged before the next.

The producer numbers them from the first on. So the id of an event in a replay depends only on its
place in the order, and a broker takes nothing twice under one id. That is what makes an
interrupted replay safe to resume: it goes on at the last place that was written down, under the
same name and with the same version of the archive, and what was published behind that place already
is not published again.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from stentor.client.connecting import Tls
from stentor.client.direct import Direct
from stentor.errors import ArchiveError, InvalidConfiguration, Unreachable
from stentor.filters import Filter
from stentor.model.identity import IdSource
from stentor.pipeline.archives.columns import typed
from stentor.pipeline.archives.facts import RowFilter, publishable
from stentor.pipeline.archives.merge import Portion, in_order
from stentor.pipeline.archives.moments import Between, Moment, from_micros
from stentor.pipeline.archives.order import AHEAD, Ints
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.statistics import Pruner
from stentor.pipeline.archives.tables import NEVER, Archive, File, Table
from stentor.pipeline.columns import RowEncoder, numbered
from stentor.transport import Address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Events that are published at a time.
BATCH: Final = 5_000
#: Seconds between two notes of where the replay is.
NOTING: Final = 1.0


@dataclass(frozen=True)
class Progressed:
    """How far a replay is."""

    #: Events that are published; how many of them by earlier attempts; as many as there may be.
    events: int
    resumed: int
    most: int
    #: The time of the last one, and between which times all are; None if they have no times.
    time: datetime | None
    span: tuple[datetime, datetime] | None
    #: Events without an attribute that did not fit the archive's schema (`_corrupt` says which).
    incomplete: int


def replay(
    spark: SparkSession | None,
    path: str | os.PathLike[str],
    brokers: str,
    *,
    filter: str | Filter = "",
    since: Moment | None = None,
    until: Moment | None = None,
    speed: float | None = 1.0,
    keep_time: bool = False,
    resume: bool = False,
    note: str | os.PathLike[str] | None = None,
    progress: Callable[[Progressed], object] | None = None,
    token: str | None = None,
    tls: Tls | None = None,
    timeout: float = 10.0,
    pacer: Pacer | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Publish archived events again, in the order of their time; how many.

        replay(None, "/data/events", "127.0.0.1:7411", since="1 day", speed=10)

    They are new notifications with the old attributes, types, subjects and payloads. Their time is
    that of the replay, or with `keep_time` the old one. `speed` is relative to the original times;
    None is as fast as possible. `filter`, `since` and `until` choose as in `history`. Several
    brokers, separated by commas, serve equally well: the first that can be reached is used.

    An interrupted replay goes on with `resume` and otherwise the same arguments, and nothing is
    published twice. Where it is, is kept in the archive, or in the file `note`. `progress` is
    called after each batch. Spark is not needed; a session just tells where paths are.
    """
    place = place_of(path, spark, storage_options)
    archive = Archive(place)
    newest = archive.table()
    pace = Pacer(speed) if pacer is None else pacer
    notes = _notes(place, note, (brokers, str(filter), since, until, keep_time))
    addresses = [str(Address.parse(part.strip())) for part in brokers.split(",")]
    if resume:
        where = notes.resumed()
        table = archive.at(where.version)
        addresses = [where.address]
    else:
        between = Between.of(since, until)
        wanted = filter if isinstance(filter, Filter) else Filter(filter)
        where = new_note(newest.version, wanted, between, "", keep_time=keep_time)
        table = newest
    events = Events(table, Filter(where.filter), where.between)
    with _connected(addresses, where, token, tls, timeout) as broker:
        before = where.reached.published
        work = _Replay(events, where, notes, broker, pace, progress)
        work.run()
    notes.forget()
    return where.reached.published - before


def outlook(
    path: str | os.PathLike[str],
    *,
    filter: str | Filter = "",
    since: Moment | None = None,
    until: Moment | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Progressed:
    """What a replay would have before it, as far as that can be told without reading events."""
    table = Archive(place_of(path, None, storage_options)).table()
    between = Between.of(since, until)
    wanted = filter if isinstance(filter, Filter) else Filter(filter)
    events = Events(table, wanted, between)
    return Progressed(0, 0, events.most, None, _times(events), 0)


def _times(events: Events) -> tuple[datetime, datetime] | None:
    span = events.span()
    return None if span is None else (from_micros(span[0]), from_micros(span[1]))


def _notes(place: Place, given: str | os.PathLike[str] | None, asked: tuple[object, ...]) -> Notes:
    if given is None:
        return Notes(place, Notes.name_of(*asked))
    file = Path(given).absolute()
    return Notes(Place(str(file.parent)), file.name)


@contextmanager
def _connected(
    addresses: list[str], note: Note, token: str | None, tls: Tls | None, timeout: float
) -> Iterator[Direct]:
    """The first broker that can be reached, noted."""
    failure: Unreachable | None = None
    for address in addresses:
        try:
            with Direct(
                address, name=note.producer, token=token, tls=tls, timeout=timeout, patience=0.0
            ):
                pass
        except Unreachable as error:
            failure = failure or error
            continue
        note.address = address
        with Direct(address, name=note.producer, token=token, tls=tls, timeout=timeout) as broker:
            yield broker
        return
    assert failure is not None
    raise failure


class _Replay:
    """One run."""

    def __init__(
        self,
        events: Events,
        note: Note,
        notes: Notes,
        broker: Direct,
        pacer: Pacer,
        progress: Callable[[Progressed], object] | None,
    ) -> None:
        self._events = events
        self._note = note
        self._notes = notes
        self._broker = broker
        self._pacer = pacer
        self._progress = progress
        self._span = _times(events)
        # Without its time, an event gets that of now; when it was due, or expired, is long ago.
        left = {"_deliver_at", "_expires"} | (set() if note.keep_time else {"_time"})
        self._columns = [name for name in events.schema.names if name not in left]
        self._encoders = Encoders()
        self._ids = IdSource(broker.producer, note.epoch, note.reached.published)
        self._before = note.reached.published
        self._incomplete = 0
        self._noted = 0.0

    def run(self) -> None:
        self._notes.write(self._note)
        try:
            for portion in self._events.behind(self._note.reached):
                self._publish(portion)
        finally:
            self._notes.write(self._note)

    def _publish(self, portion: Portion) -> None:
        """All of it, each event when it is due."""
        start, count = 0, len(portion.turn)
        while start < count:
            due = self._pacer.due(int(portion.turn[start]))
            end = count if due is None else int(np.searchsorted(portion.turn, due, "right"))
            end = min(max(end, start + 1), start + BATCH)
            self._publish_now(Portion(portion.events[start:end], portion.turn[start:end]))
            start = end

    def _publish_now(self, portion: Portion) -> None:
        now = datetime.now(UTC)
        table = portion.events.combine_chunks()
        for batch in table.select(self._columns).to_batches():
            drafts = self._encoders.of(batch.schema).drafts(batch)
            self._broker.publish(numbered(drafts, self._ids, now))
        self._note.advance(portion.turn)
        if "_corrupt" in table.schema.names:
            self._incomplete += len(table) - table.column("_corrupt").null_count
        if time.monotonic() - self._noted >= NOTING:
            self._notes.write(self._note)
            self._noted = time.monotonic()
        self._report(int(portion.turn[-1]))

    def _report(self, turn: int) -> None:
        if self._progress is not None:
            self._progress(
                Progressed(
                    events=self._note.reached.published,
                    resumed=self._before,
                    most=self._events.most,
                    time=None if turn == NEVER else from_micros(turn),
                    span=self._span,
                    incomplete=self._incomplete,
                )
            )


#: Seconds within which events that are due soon go together: a steady flow to the eye.
TICK: Final = 0.05


class Pacer:
    """Keeps the distances in time between events, divided by the speed.

    Who falls behind, because a broker is slow, catches up: the events are due when they are due.
    Events without a time are due at once.
    """

    def __init__(
        self,
        speed: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Without a speed, everything is due at once."""
        if speed is not None and not (speed > 0 and math.isfinite(speed)):
            raise InvalidConfiguration(
                f"speed={speed} is none; give a positive number, such as 10 for ten times as fast "
                "as it was, or None for as fast as possible"
            )
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._first: int | None = None
        self._began = 0.0

    def due(self, turn: int) -> int | None:
        """Wait until an event at this time (in microseconds) is due; the time up to which others
        are due with it, None for all."""
        if self._speed is None:
            return None
        if turn == NEVER:
            return NEVER
        if self._first is None:
            self._first, self._began = turn, self._clock()
        at = self._began + (turn - self._first) / 1e6 / self._speed
        while (left := at - self._clock()) > 0:
            self._sleep(min(left, 1.0))
        passed = self._clock() - self._began + TICK
        return max(turn, self._first + int(passed * self._speed * 1e6))


# -- which events, and where it is

# All that a replay depends on is fixed when it begins and written down: the version of the archive,
# the filter and the times, the producer that publishes, and the broker. Its place is the number of
# events that are published, together with the turn of the last one and how many of that turn are:
# enough to find it again without reading what lies before.

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


class Notes(NamedTuple):
    """Where the note of a replay is kept: in the archive, or in a file of the user's choice."""

    place: Place
    name: str

    @staticmethod
    def name_of(*asked: object) -> str:
        """A name for what was asked for, so that the same replay finds its note again."""
        digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
        return f"{REPLAYS}/{digest}.json"

    def resumed(self) -> Note:
        """The note of a replay that was interrupted."""
        data = self.place.read(self.name)
        if data is None:
            raise InvalidConfiguration(
                "there is no interrupted replay of these events to these brokers: it was never "
                "begun, or is complete; replay without resume to publish them all again"
            )
        try:
            return msgspec.json.decode(data, type=Note)
        except msgspec.DecodeError as error:
            raise ArchiveError(
                f"{self.place.path(self.name)} does not say where a replay is: {error}; "
                "delete it, and begin anew"
            ) from error

    def write(self, note: Note) -> None:
        self.place.write(self.name, msgspec.json.encode(note))

    def forget(self) -> None:
        self.place.delete([self.name])


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
        self, table: Table, filter: Filter, between: Between, files: Iterable[File] | None = None
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
