"""The recorder: what a client does and is given, written down for the checker (R-01.15, R-01.17).

A recorder appends a line to a file for each action at the interface of the service, at the moment
at which it happens: a publication before it is sent, a delivery before the application has it.
Nothing is buffered, so the file is true up to the instruction at which a process is killed, and
no memory is used up. A line that was torn by that is cut off when the file is written on.

One subscription is served independently of the others, so each is a component of its own, and so is
an inbox with all its subscriptions: the first of a client has the client's name, like its
publications, and the others are "desk#2" and so on. What is durable is the component
"durable NAME", whoever reads it, and a group is the component "group NAME".

Of what is durable, and of groups, it is recorded as well what became of each notification: that its
reader has dealt with it or refused it, that the broker has this on disk, and what was taken back or
may be another's since the connection was lost. Therefore a client that records asks for an answer
to each of its confirmations.

What is recorded is what went to the broker and what came from there, after the application's hooks
on what is published and before those on what is delivered.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from stentor.errors import DecodeError, InvalidConfiguration
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.model.codec import decode_headers
from stentor.semantics.actions import ReadingTerms
from stentor.semantics.lines import (
    ACKNOWLEDGED,
    ATTACHED,
    BEGIN,
    CONFIRMED,
    CUT_OFF,
    DEALT,
    IN_FORCE,
    LEFT,
    NOTED,
    REFUSED,
    TAKEN,
    WITHDRAWN,
    Line,
    decoded,
)

if TYPE_CHECKING:
    from stentor.client.terms import Terms
    from stentor.protocol.messages import StreamId, Withdrawn

#: Bytes that are read at once when the end of a file is looked for.
_BLOCK: Final = 64 * 1024
#: Notifications that were taken back and may yet be settled, late, that are remembered.
_TAKEN_BACK: Final = 100_000


class Recorder:
    """A file to which clients of this process record what they do and are given.

    Give one to several clients as `connect(..., record=recorder)` and they share a file, or give
    each the name of its own: `connect(..., record="desk-7.jsonl")`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory, Recorder(f"{directory}/run.jsonl") as recorder:
    ...     recorder.quiescent()
    ...     print(recorder.path.read_text().partition(",")[2])
    "op":"quiescent"}
    <BLANKLINE>
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.suffix not in (".jsonl", ".json"):
            raise InvalidConfiguration(
                f"a recording is a file of JSON lines, and {self.path.name!r} is not named "
                "like one; end the name with .jsonl"
            )
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise InvalidConfiguration(
                f"{str(self.path)!r} cannot be written: {error.strerror}"
            ) from None
        self._pos = _end(self._file, self.path)
        self._closed = False

    def __repr__(self) -> str:
        return f"<Recorder to {str(self.path)!r}>"

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def quiescent(self) -> None:
        """Record that nothing is in flight, as only the application can know.

        What is published between two such points, and matches, must have arrived by the last.
        """
        self.write([Line(pos=self.pos(), op="quiescent")])

    def pos(self) -> int:
        """The place of the next action: the time in nanoseconds, rising whatever the clock does."""
        self._pos = max(self._pos + 1, time.time_ns())
        return self._pos

    def write(self, lines: Iterable[Line]) -> None:
        """Append; what the operating system has survives this process."""
        if self._closed:
            return
        data = memoryview(b"".join(line.encoded() for line in lines))
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Record no more."""
        if not self._closed:
            self._closed = True
            os.close(self._file)


def _end(file: int, path: Path) -> int:
    """Cut off a torn last line; the position of the last whole one, or 0."""
    size = end = os.fstat(file).st_size
    tail = b""
    while end and tail.count(b"\n") < 2:
        start = max(0, end - _BLOCK)
        tail = os.pread(file, end - start, start) + tail
        end = start
    whole = tail[: tail.rfind(b"\n") + 1]
    last = whole.splitlines()[-1] if whole else b""
    try:
        pos = decoded(last).pos if last else 0
    except DecodeError as error:
        raise InvalidConfiguration(
            f"{str(path)!r} is not a recording that can be continued: {error}; give another name"
        ) from None
    os.ftruncate(file, size - len(tail) + len(whole))
    return pos


class Recording:
    """What one client does, on its way to the recorder."""

    def __init__(self, recorder: Recorder, name: str, *, own: bool) -> None:
        self._recorder = recorder
        self._name = name
        #: Whether the recorder ends with the client.
        self._own = own
        self._numbers = count(1)
        #: Ids of subscriptions must not come again in another life.
        self._life = recorder.pos()
        recorder.write([Line(pos=self._life, op="internal", step=BEGIN, comp=name)])

    @classmethod
    def to(cls, record: Recorder | str | os.PathLike[str], name: str) -> Recording:
        """A recording to a recorder, or to a file."""
        if isinstance(record, Recorder):
            return cls(record, name, own=False)
        return cls(Recorder(record), name, own=True)

    def published(self, items: Sequence[bytes], first: NotificationId) -> None:
        """Encoded publications with ids from this one on are about to be sent."""
        recorder, prefix = self._recorder, str(first).rpartition(":")[0]
        recorder.write(
            Line(
                pos=recorder.pos(),
                op="pub",
                comp=self._name,
                nid=f"{prefix}:{sequence}",
                producer=first.producer,
                seq=sequence,
                body=item,
            )
            for sequence, item in enumerate(items, first.sequence)
        )

    def acknowledged(self, items: Sequence[bytes]) -> None:
        """Publications are in the journal."""
        ids = [envelope.id for envelope in decode_headers(list(items)) if envelope.id is not None]
        runs = groupby(enumerate(ids), lambda each: (each[1].epoch, each[1].sequence - each[0]))
        for _, run in runs:
            found = [id for _, id in run]
            self._note(ACKNOWLEDGED, nid=str(found[0]), seq=found[-1].sequence)

    def component(self, terms: Terms) -> RecordedComponent:
        """A subscription, or an inbox, is about to be made."""
        number = next(self._numbers)
        if terms.durable is not None:
            component = f"durable {terms.durable}"
        elif terms.group is not None:
            component = f"group {terms.group}"
        else:
            component = self._name if number == 1 else f"{self._name}#{number}"
        id = f"{self._name}/{self._life}/{number}"
        recorded = RecordedComponent(self._recorder, component, id)
        if terms.durable is not None or terms.group is not None:
            recorded.attached(_reading(terms))
        return recorded

    def advertised(self, number: int, filter: Filter | None) -> None:
        """An advertisement is about to be made; without a filter, it is withdrawn."""
        recorder = self._recorder
        fid = f"{self._name}/{self._life}/{number}"
        op, text = ("unadv", None) if filter is None else ("adv", str(filter))
        line = Line(pos=recorder.pos(), op=op, comp=self._name, fid=fid, filter=text)
        recorder.write([line])

    def _note(self, step: str, *, nid: str, seq: int) -> None:
        recorder = self._recorder
        pos = recorder.pos()
        line = Line(pos=pos, op="internal", step=step, comp=self._name, nid=nid, seq=seq)
        recorder.write([line])

    def close(self) -> None:
        """The client is closed."""
        if self._own:
            self._recorder.close()


def _reading(terms: Terms) -> ReadingTerms:
    settlement = terms.settlement
    return ReadingTerms(
        durable=terms.durable is not None,
        shared=terms.group is not None,
        one_by_one=settlement is not None,
        overtake=settlement is not None and (settlement.overtake or settlement.ranked),
        attempts=0 if settlement is None else settlement.attempts,
        dead_letter=settlement is not None and settlement.dead_letter,
        exact=terms.takeover is None,
    )


class Asking(Protocol):
    """A subscription, alone or in an inbox."""

    @property
    def filter(self) -> Filter:
        """What it asks for."""


class RecordedComponent:
    """What a component asks for and is given, on its way to the recorder.

    Whoever reads it has an id, and so has each subscription that he makes.
    """

    def __init__(self, recorder: Recorder, name: str, id: str) -> None:
        self._recorder = recorder
        self.name = name
        self._id = id
        self._numbers = count(1)
        #: The ids of its subscriptions, and which of these are in force.
        self._ids: dict[Asking, str] = {}
        self._in_force: set[Asking] = set()
        #: Notifications that were given.
        self.given = 0
        self._terms: ReadingTerms | None = None
        #: How often the connection was lost.
        self._cuts = 0
        #: Where notifications are settled one by one: those that are with the reader, those that
        #: it had and was relieved of, and those of which it has just said that it refuses them.
        self._held: dict[str, tuple[StreamId, int]] = {}
        self._places: dict[tuple[StreamId, int], str] = {}
        self._gone: dict[str, None] = {}
        self._refused: dict[tuple[StreamId, int], str] = {}
        #: Refusals that the broker has heard, and taken for such.
        self._counted: set[tuple[StreamId, int]] = set()

    def _write(self, op: str, id: str, **more: Any) -> None:
        line = Line(pos=self._recorder.pos(), op=op, comp=self.name, fid=id)
        for name, value in more.items():
            setattr(line, name, value)
        self._recorder.write([line])

    def _note(self, step: str, **more: Any) -> None:
        self._write("internal", self._id, step=step, **more)

    def has(self, subscriptions: Collection[Asking], in_force: Iterable[Asking]) -> None:
        """It has these from now on, and no others. Some of them are in force, says the broker."""
        for gone in self._ids.keys() - set(subscriptions):
            self._write("unsub", self._ids.pop(gone))
            self._in_force.discard(gone)
            if all(each.filter != gone.filter for each in subscriptions):
                self._write("internal", self._id, step=WITHDRAWN, filter=str(gone.filter))
        for each in subscriptions:
            if each not in self._ids:
                self._ids[each] = f"{self._id}/{next(self._numbers)}"
                self._write("sub", self._ids[each], filter=str(each.filter))
        for each in in_force:
            if each not in self._in_force:
                self._in_force.add(each)
                self._write("internal", self._ids[each], step=IN_FORCE)

    def notified(self, notifications: Sequence[Notification]) -> None:
        """The application is about to be given these."""
        recorder = self._recorder
        self.given += len(notifications)
        lines = []
        for notification in notifications:
            id = notification.id
            assert id is not None  # it has come from a broker
            if notification.delivery is not None:
                self._held[str(id)] = notification.place
                self._places[notification.place] = str(id)
            lines.append(
                Line(
                    pos=recorder.pos(),
                    op="notify",
                    comp=self.name,
                    nid=str(id),
                    fid=self._id,
                    producer=id.producer,
                    seq=id.sequence,
                    body=encode(notification),
                    attempt=notification.attempt,
                )
            )
        recorder.write(lines)

    # -- readers of durable subscriptions and groups

    def attached(self, terms: ReadingTerms) -> None:
        """It is about to be consumed."""
        self._terms = terms
        self._note(ATTACHED, terms=terms)

    def cut_off(self) -> None:
        """Its connection is lost."""
        if self._terms is not None:
            self._cuts += 1
            self._note(CUT_OFF)
            self._refused.clear()
            self._counted.clear()
            if self._terms.shared:
                self._let_go(list(self._held))

    def dealt(self, count: int) -> None:
        """The reader has dealt with the first so many that it was given."""
        self._note(DEALT, seq=count)

    def confirmed(self, count: int) -> None:
        """These will not be given again."""
        self._note(CONFIRMED, seq=count)

    def refused(self, id: NotificationId, place: tuple[StreamId, int]) -> None:
        """The reader could not deal with one that it has."""
        self._let_go([str(id)])
        self._refused[place] = str(id)
        self._note(REFUSED, nids=[str(id)])

    def taken(self, message: Withdrawn) -> None:
        """The broker has taken some back, which the reader has, or has settled meanwhile."""
        if message.refused in message.offsets:  # else it was somebody else's when that was heard
            self._counted.add((message.stream, message.refused))
        places = [(message.stream, offset) for offset in message.offsets]
        nids = [self._places[place] for place in places if place in self._places]
        self._let_go(nids)
        if nids:
            self._note(TAKEN, nids=nids)

    def _let_go(self, nids: Iterable[str]) -> None:
        for nid in nids:
            self._release(nid)
            self._gone[nid] = None
        for nid in list(islice(self._gone, max(0, len(self._gone) - _TAKEN_BACK))):
            del self._gone[nid]

    def _release(self, nid: str) -> None:
        place = self._held.pop(nid, None)
        if place is not None and self._places.get(place) == nid:
            del self._places[place]

    def told(self, done: Iterable[NotificationId]) -> Callable[[], None]:
        """The broker is about to be told that these are dealt with, and what was refused.

        What is returned is to be called when that is on its disk.
        """
        nids = self._dealt_with(done)
        refused, self._refused = self._refused, {}
        cuts = self._cuts

        def stored() -> None:
            # What was taken back meanwhile, or told again over another connection, may be
            # another's; the broker answers, and takes no notice.
            if cuts != self._cuts:
                return
            self._confirmed(nids)
            noted = [nid for place, nid in refused.items() if place in self._counted]
            self._counted.difference_update(refused)
            if noted:
                self._note(NOTED, nids=noted)

        return stored

    def committed(self, done: Iterable[NotificationId]) -> None:
        """These were dealt with by a transaction, which is on the broker's disk."""
        self._confirmed(self._dealt_with(done))

    def _dealt_with(self, done: Iterable[NotificationId]) -> list[str]:
        nids = list(dict.fromkeys(str(id) for id in done))
        known = [nid for nid in nids if nid in self._held or nid in self._gone]
        for nid in known:
            self._gone.pop(nid, None)
        if known:
            self._note(DEALT, nids=known)
        return nids

    def _confirmed(self, nids: Iterable[str]) -> None:
        sure = [nid for nid in nids if nid in self._held]
        for nid in sure:
            self._release(nid)
        if sure:
            self._note(CONFIRMED, nids=sure)

    def ended(self) -> None:
        """Nothing more is given to this reader."""
        for id in self._ids.values():
            self._write("unsub", id)
        self._ids.clear()
        if self._terms is not None:
            self._terms = None
            self._note(LEFT)
