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

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from stentor.client.connecting import Tls
from stentor.client.direct import Direct
from stentor.errors import InvalidConfiguration, Unreachable
from stentor.filters import Filter
from stentor.model.identity import IdSource
from stentor.pipeline.archives.merge import Portion
from stentor.pipeline.archives.moments import Between, Moment, from_micros
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.replays import Encoders, Events, Note, Notes, new_note
from stentor.pipeline.archives.tables import NEVER, Archive
from stentor.pipeline.columns import numbered
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
