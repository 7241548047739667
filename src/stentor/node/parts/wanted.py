"""What journals have to keep for durable subscriptions, wherever these live (R-07.40).

The broker that holds a journal does not know who reads it. So every broker where durable
subscriptions live tells the brokers of all streams, now and then, from where on the slowest of them
still needs each: from an offset on, and those that have no place in a stream yet, from a time on.
What is needed at the other end of the overlay is thereby kept, until the bounds that operators have
set for it win.

What was said counts until the same broker says something else, also if it is gone for a while, and
across restarts. Who has nothing left to ask for says so. A broker that never comes back is
forgotten when retention has taken what it needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from stentor.node.agenda import Agenda, Persist
from stentor.node.border import Borders
from stentor.node.clock import Clock
from stentor.node.durable import Durable
from stentor.node.journals import Journals
from stentor.node.parts.durables import Durables
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: Under this name it is stored what was said, beside the durable subscriptions.
STORED: Final = "\x00wanted"
#: Seconds between two words on what is needed; and between two that say the same.
EVERY: Final = 5.0
ANYWAY: Final = 60.0
#: Brokers of which it is known what they need of a stream.
MAX_HOMES: Final = 10_000

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
        journals: Journals,
        directory: Ways,
        borders: Borders,
        clock: Clock,
        agenda: Agenda,
    ) -> None:
        self._durables = durables
        self._journals = journals
        self._directory = directory
        self._borders = borders
        self._clock = clock
        self._agenda = agenda
        #: Of each journal here, what the brokers need where durable subscriptions live.
        self._wanted: dict[m.StreamId, dict[m.StreamId, _Needs]] = {}
        self._changed = False
        #: What this broker has said it needs.
        self._told: dict[m.StreamId, _Needs] = {}
        self._next = clock.now
        self._anyway = clock.now

    def restore(self, data: bytes | None) -> None:
        """Take up what was said before a restart."""
        if data is not None:
            self._wanted = _decoder.decode(data)

    def low(self, stream: m.StreamId) -> int | None:
        """The first offset of a journal here that somebody needs; None if nobody needs any."""
        log = self._journals[stream]
        found = math.inf
        for first, since in self._wanted.get(stream, {}).values():
            if since < math.inf:
                found = min(found, log.offset_at(since))
            found = min(found, first)
        return None if found == math.inf else int(found)

    # -- what is needed here

    def tick(self) -> None:
        """Say what is needed, as far as that has changed."""
        now = self._clock.now
        if now < self._next:
            return
        self._next = now + EVERY
        if now >= self._anyway:
            self._anyway = now + ANYWAY
            self._told.clear()
        own = self._journals.stream
        held = list(self._durables.held.values())
        for stream in self._journals.heads():
            self._needs(stream, own, _needed(stream, held))
        for origin in self._directory.others:
            needs = _needed(origin.stream, held)
            way = self._directory.towards(origin.stream)
            if way is not None and self._told.get(origin.stream) != needs:
                self._told[origin.stream] = needs
                self._agenda.to_link(way, m.Wanted(origin.stream, own, *needs))
        if self._changed:
            self._changed = False
            data = msgspec.msgpack.encode(self._wanted) if self._wanted else None
            self._agenda.add(Persist(STORED, data, None))

    # -- what is needed elsewhere

    def wanted_heard(self, neighbor: str, message: m.Wanted) -> None:
        """Somebody says what it needs, of us or of others."""
        if self._borders.with_(neighbor) is not None:
            return
        stream = message.stream
        if stream in self._journals:
            self._needs(stream, message.home, (message.first, message.since))
            return
        way = self._directory.towards(stream)
        if way is not None and way != neighbor:
            self._agenda.to_link(way, message)

    def _needs(self, stream: m.StreamId, home: m.StreamId, needs: _Needs) -> None:
        homes = self._wanted.setdefault(stream, {})
        if homes.get(home, _NOTHING) != needs:
            self._changed = True
            if needs == _NOTHING:
                del homes[home]
            elif home in homes or len(homes) < MAX_HOMES:
                homes[home] = needs
        if not homes:
            del self._wanted[stream]


def _needed(stream: m.StreamId, durables: Iterable[Durable]) -> _Needs:
    """From where on these need a stream.

    >>> _needed("b1#0", [])
    (inf, inf)
    """
    first = since = math.inf
    for durable in durables:
        position = durable.positions.get(stream)
        if position is None:
            since = min(since, durable.since)
        else:
            first = min(first, position + 1.0)
    return first, since
