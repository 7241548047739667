"""What journals have to keep for durable subscriptions, wherever these live (R-07.40).

The broker that holds a journal does not know who reads it. So every broker where durable
subscriptions live tells the brokers of all streams, when one begins and now and then, from where on
the slowest of them still needs each: from an offset on, and those that have no place in a stream
yet, from a time on. What is needed at the other end of the overlay is thereby kept, until the
bounds that operators have set for it win.

Durable subscriptions move. Who has given one away goes on asking for what it needs until its new
home is known to have it. And what is no longer needed is said one round later than it was found:
by then the new home has said that it needs it.

What was said counts until the same broker says something else, also if it is gone for a while, and
across restarts. Who has nothing left to ask for says so. A broker that never comes back is
forgotten when retention has taken what it needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

import msgspec

from stentor.errors import ProtocolError
from stentor.node.agenda import Agenda, Persist
from stentor.node.border import Borders
from stentor.node.clock import Clock
from stentor.node.durable import Durable
from stentor.node.journals import Journals
from stentor.node.parts.durables import Durables
from stentor.node.parts.homes import Homes
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: Under this name it is stored what was said, beside the durable subscriptions.
STORED: Final = "\x00wanted"
#: Seconds between two words on what is needed; and between two that say the same.
EVERY: Final = 5.0
ANYWAY: Final = 60.0
#: Brokers of which it is known what they need of a stream.
MAX_HOMES: Final = 10_000

#: Pairs of a durable subscription and a stream that are looked at in one step.
LOOKED_AT_ONCE: Final = 10_000
#: No stream is called so: what this broker has said is stored under it.
_TOLD: Final = ""

#: The first offset and the first time that are needed.
_Needs = tuple[float, float]
_NOTHING: Final[_Needs] = (math.inf, math.inf)
_decoder: Final = msgspec.msgpack.Decoder(dict[str, dict[str, tuple[float, float]]])


class WantedHistory:
    """Knows from where on each journal is still needed."""

    def __init__(
        self,
        durables: Durables,
        *,
        homes: Homes,
        journals: Journals,
        directory: Ways,
        borders: Borders,
        clock: Clock,
        agenda: Agenda,
    ) -> None:
        self._durables = durables
        self._homes = homes
        self._journals = journals
        self._directory = directory
        self._borders = borders
        self._clock = clock
        self._agenda = agenda
        homes.at_begin = self._begins
        #: Called with a journal here of which more is needed than before.
        self.at_need: Callable[[m.StreamId], None] = lambda stream: None
        #: Of each journal here, what the brokers need where durable subscriptions live.
        self._wanted: dict[m.StreamId, dict[m.StreamId, _Needs]] = {}
        self._changed = False
        #: What this broker has said it needs.
        self._told: dict[m.StreamId, _Needs] = {}
        #: What it has found in the last round that it needs.
        self._found: dict[m.StreamId, _Needs] = {}
        self._steps: Iterator[None] | None = None
        self._next = clock.now
        self._anyway = clock.now

    def restore(self, data: bytes | None) -> None:
        """Take up what was said before a restart."""
        if data is not None:
            self._wanted = _decoder.decode(data)
            self._told = self._wanted.pop(_TOLD, {})
            self._found = dict(self._told)

    def low(self, stream: m.StreamId) -> int | None:
        """The first offset of a journal here that somebody needs; None if nobody needs any."""
        homes = self._wanted.get(stream, {}).values()
        found = min((first for first, _ in homes), default=math.inf)
        earliest = min((since for _, since in homes), default=math.inf)
        if earliest < math.inf:
            found = min(found, self._journals[stream].offset_at(earliest))
        return None if found == math.inf else int(found)

    # -- what is needed here

    def tick(self) -> None:
        """From time to time, find out what is needed; in steps, as there may be very many."""
        if self._clock.now >= self._next and self._steps is None:
            self._next = self._clock.now + EVERY
            self._steps = self._say()
            self.work()

    @property
    def has_work(self) -> bool:
        """Whether it is being found out."""
        return self._steps is not None

    def work(self) -> None:
        """Do one step."""
        if self._steps is not None and next(self._steps, True):
            self._steps = None

    def _say(self) -> Iterator[None]:
        """Say what is needed, as far as that has changed."""
        others = [origin.stream for origin in self._directory.others]
        heads = self._journals.heads()
        first = dict.fromkeys([*others, *heads], math.inf)
        since = dict(first)
        looked = 0
        for durable in chain(list(self._durables.held.values()), self._homes.on_their_way()):
            positions = {} if durable is None else durable.positions
            for stream in first if durable is not None else ():
                position = positions.get(stream)
                if position is not None:
                    first[stream] = min(first[stream], position + 1.0)
                elif durable is not None:
                    since[stream] = min(since[stream], durable.since)
            looked += len(first)
            if looked >= LOOKED_AT_ONCE:
                looked = 0
                yield
        needed = {stream: (first[stream], since[stream]) for stream in first}
        before, self._found = self._found, {s: n for s, n in needed.items() if n != _NOTHING}
        for stream, (offset, time) in before.items():
            if stream in first:
                first[stream] = min(first[stream], offset)
                since[stream] = min(since[stream], time)
        anyway = self._clock.now >= self._anyway
        if anyway:
            self._anyway = self._clock.now + ANYWAY
        for stream in first:
            self._tell(stream, (first[stream], since[stream]), anyway)
        self._store()

    def _begins(self, durable: Durable) -> None:
        """One begins here: who waited for the next round might remove what it needs."""
        for stream in [*(o.stream for o in self._directory.others), *self._journals.heads()]:
            if stream in durable.positions:
                continue
            offset, since = self._found.get(stream, _NOTHING)
            self._found[stream] = offset, min(since, durable.since)
            offset, since = self._said(stream)
            self._tell(stream, (offset, min(since, durable.since)))
        self._store()

    def _said(self, stream: m.StreamId) -> _Needs:
        """What is needed here of a journal, by the last word on it."""
        if stream in self._journals:
            return self._wanted.get(stream, {}).get(self._journals.stream, _NOTHING)
        return self._told.get(stream, _NOTHING)

    def _tell(self, stream: m.StreamId, needs: _Needs, anyway: bool = False) -> None:
        """Let whoever holds a journal know what is needed of it here, if that has changed."""
        own = self._journals.stream
        if stream in self._journals:
            self._needs(stream, own, needs)
            return
        told, way = self._said(stream), self._directory.towards(stream)
        if way is None or (needs == told and (needs == _NOTHING or not anyway)):
            return
        self._changed |= needs != told
        self._told[stream] = needs
        if needs == _NOTHING:
            del self._told[stream]
        self._agenda.to_link(way, m.Wanted(stream, own, *needs))

    def _store(self) -> None:
        if self._changed:
            self._changed = False
            known = self._wanted | ({_TOLD: self._told} if self._told else {})
            data = msgspec.msgpack.encode(known) if known else None
            self._agenda.add(Persist(STORED, data, None))

    # -- what is needed elsewhere

    def wanted_heard(self, neighbor: str, message: m.Wanted) -> None:
        """Somebody says what it needs, of us or of others."""
        if self._borders.with_(neighbor) is not None:
            return
        if not message.first >= 0 or math.isnan(message.since):
            raise ProtocolError(f"nobody needs offset {message.first} since {message.since}")
        stream = message.stream
        if stream in self._journals:
            self._needs(stream, message.home, (message.first, message.since))
            return
        way = self._directory.towards(stream)
        if way is not None and way != neighbor:
            self._agenda.to_link(way, message)

    def _needs(self, stream: m.StreamId, home: m.StreamId, needs: _Needs) -> None:
        homes = self._wanted.setdefault(stream, {})
        before = homes.get(home, _NOTHING)
        if before != needs:
            self._changed = True
            if needs == _NOTHING:
                del homes[home]
            elif home in homes or len(homes) < MAX_HOMES:
                homes[home] = needs
        if not homes:
            del self._wanted[stream]
        elif needs[0] < before[0] or needs[1] < before[1]:
            self.at_need(stream)
