"""Pulses: how far streams have come by which time, for detectors that wait for the whole past.

A detector that guarantees its answers consumes an event when nothing older can still be on its way
(06/A2). The sources are streams, and what tells that a source has nothing older is a *pulse*: the
broker of the stream says, in the order of the stream itself, that all that entered before such a
time lies up to such an offset. An idle broker says it, too.

That is said where somebody wants it. A broker that hosts such a detector asks every second, towards
each stream, and a broker that was asked lately says it every second to all. So overlays without
such detectors carry nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Final

from stentor.errors import ProtocolError
from stentor.node.agenda import Agenda
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: Seconds between two pulses, and for how long one who has asked is taken to listen.
EVERY: Final = 0.5
LISTENS: Final = 5.0

Hear = Callable[[m.StreamId, int, float], None]


class Pulses:
    """Asks for pulses, says them and passes them on."""

    def __init__(
        self, directory: Ways, *, journals: Journals, clock: Clock, agenda: Agenda
    ) -> None:
        self._directory = directory
        self._journals = journals
        self._clock = clock
        self._agenda = agenda
        #: Whether somebody here wants to hear them, and who is then told.
        self.wanted = False
        self.hear: Hear = lambda stream, head, time: None
        self._asked_until = -1.0
        self._next = clock.now

    @property
    def streams(self) -> list[m.StreamId]:
        """All streams that something may come of."""
        return [*self._journals.heads(), *(each.stream for each in self._directory.others)]

    def pulse_heard(self, neighbor: str, message: m.Pulse) -> None:
        way = self._directory.towards(message.stream)
        if message.head < 0:
            if message.stream in self._journals:
                self._asked_until = self._clock.now + LISTENS
            elif way is not None and way != neighbor:
                self._agenda.to_link(way, message)
        elif way == neighbor:
            if not isfinite(message.time):
                raise ProtocolError(f"a pulse at {message.time} says nothing")
            self._pass_on(message, but=neighbor)
            if self.wanted:
                self.hear(message.stream, message.head, message.time)

    def tick(self) -> None:
        """Ask, and say."""
        now = self._clock.now
        if now < self._next or not (self.wanted or now < self._asked_until):
            return
        self._next = now + EVERY
        if self.wanted:
            for origin in self._directory.others:
                way = self._directory.towards(origin.stream)
                if way is not None:
                    self._agenda.to_link(way, m.Pulse(origin.stream, -1))
        for stream, head in self._journals.heads().items():
            pulse = m.Pulse(stream, head, self._clock.time)
            if now < self._asked_until:
                self._pass_on(pulse)
            if self.wanted:
                self.hear(stream, head, self._clock.time)

    def _pass_on(self, message: m.Pulse, but: str | None = None) -> None:
        hearers = self._directory.hearers(message.stream)
        self._agenda.to_links((n, message) for n in hearers if n != but)
