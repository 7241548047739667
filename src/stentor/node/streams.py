"""Which brokers there are, in which direction, and how far their streams have come.

Every broker has a stream. A `Directory` learns from its neighbors which streams lie behind each of
them, and tells the others. A stream that is announced *begins afresh*: the way to it was just made,
or something on the way was dropped, so what was forwarded before may be incomplete.

In a tree each stream is announced by one neighbor only. For a short while there may be two, when a
broker has moved and the news of its departure comes later than that of its arrival; the second is
kept in reserve. Notifications are accepted from the first only (reverse path), so that even in
a cycle none goes around. A broker that hears its own stream from a neighbor knows that its links
form a cycle; the link has to be closed. If several links close a cycle at the same time, everybody
hears of everybody from both sides before, and nobody hears of itself; then reserves do not go away,
and a link that stays in reserve has to be closed, too.

`Probes` are waves (propagation of information with feedback). A probe goes to every broker, over
each link behind everything that was sent there before. A broker answers its predecessor when all
others have answered it, and adds the head of its own stream (and of streams it has adopted). So
when the echo is complete, every filter that the origin had announced before is in force everywhere;
and every notification up to the head of its stream that goes to the origin has arrived there, since
the echo came behind it. Links that fail meanwhile are left out: their streams begin afresh when
they are back.

A broker may hang, and the link with it does not fail for a long time. Nobody shall wait for it who
does not need it. So a broker that has a probe and still waits for others says so to its predecessor
every now and then (`Echo` that `waits`). A neighbor that says nothing of a probe for `PATIENCE` is
*mute*: it is left out of this wave and of those that follow, which still go there, until it is
heard of again. The streams behind it are then missing in the answer, as are those behind a link
that has failed, and the origin takes them for such: for them nothing is proved, and it asks again.
This can only leave out what would have been proved. What counts of an answer is what is in it, and
that came over each link behind everything that was sent there before, as ever; an echo that comes
after its wave has gone on without it says nothing any more. Patience is for one link at a time,
however long the way, and does not depend on clocks of others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from stentor.errors import ProtocolError
from stentor.protocol.messages import Echo, Origin, Positions, Probe, StreamId, Streams

Sends = list[tuple[str, object]]

#: Seconds after which a neighbor is left out that says nothing of a probe; and between two words of
#: a broker that waits for others.
PATIENCE: Final = 1.5
WAITS_EVERY: Final = 0.4

#: Addresses that one broker may have, and the characters of each.
MAX_ADDRESSES: Final = 16
MAX_ADDRESS: Final = 512


class Directory:
    """The streams that can be reached, and through which neighbor.

    >>> directory = Directory(Origin("b1#0", "b1"))
    >>> directory.link_up("b2")
    Streams(up=[Origin(stream='b1#0', broker='b1', addresses=())], down=[])
    >>> fresh, sends, cycle = directory.heard("b2", Streams([Origin("b2#0", "b2")], []))
    >>> [origin.broker for origin in fresh], directory.towards("b2#0")
    (['b2'], 'b2')
    """

    def __init__(self, own: Origin) -> None:
        self.own = own
        #: Streams of brokers that were removed, for which this one answers.
        self._adopted: dict[StreamId, Origin] = {}
        self._neighbors: set[str] = set()
        self._origins: dict[StreamId, Origin] = {}
        #: Neighbors that announced each stream; the first one counts.
        self._ways: dict[StreamId, list[str]] = {}

    @property
    def others(self) -> list[Origin]:
        """All other brokers that can be reached."""
        return list(self._origins.values())

    def origin(self, stream: StreamId) -> Origin | None:
        if stream == self.own.stream:
            return self.own
        return self._adopted.get(stream) or self._origins.get(stream)

    def announce_as(self, own: Origin) -> None:
        """By what others know this broker; to be said before the first link is made."""
        self.own = own

    @property
    def entering(self) -> tuple[Origin, ...]:
        """The streams that enter at this broker."""
        return (self.own, *self._adopted.values())

    def adopt(self, stream: StreamId) -> tuple[Origin, Sends]:
        """Answer for the stream of a broker that is gone from now on."""
        origin = Origin(stream, self.own.broker, self.own.addresses)
        self._adopted[stream] = origin
        return origin, [(n, Streams([origin], [])) for n in sorted(self._neighbors)]

    def root(self, stream: StreamId) -> StreamId:
        """The broker at which the stream enters; in a tree nobody asks."""
        return stream

    def towards(self, stream: StreamId) -> str | None:
        """The neighbor through which the stream comes."""
        ways = self._ways.get(stream)
        return ways[0] if ways else None

    def relay(self, stream: StreamId) -> str | None:
        """The neighbor that passes on what is for the broker of a stream."""
        return self.towards(stream)

    def leads(self, stream: StreamId, neighbor: str) -> bool:
        """Whether what comes of the stream goes on to this neighbor."""
        return self.towards(stream) != neighbor

    def children(self, stream: StreamId) -> list[str]:
        """The neighbors to which all goes on that comes of the stream."""
        return sorted(self._neighbors - {self.towards(stream)})

    def behind(self, neighbor: str, origin: StreamId | None = None) -> list[Origin]:
        """The brokers that are reached through this neighbor."""
        return [o for s, o in self._origins.items() if self._ways[s][0] == neighbor]

    @property
    def reserve(self) -> set[str]:
        """Neighbors through which a stream comes that comes through another one as well."""
        return {other for ways in self._ways.values() for other in ways[1:]}

    @property
    def is_settled(self) -> bool:
        """Links are not made when they are needed."""
        return True

    @property
    def spreads_marks(self) -> bool:
        return False

    def hearers(self, stream: StreamId) -> list[str]:
        return self.children(stream)

    @property
    def allows_cycles(self) -> bool:
        return False

    def changed(self) -> tuple[list[Origin], list[StreamId], Sends]:
        """What follows from what the router has heard: nothing, in a tree."""
        return [], [], []

    def reaches(self, stream: StreamId) -> bool:
        return stream == self.own.stream or stream in self._adopted or stream in self._origins

    def link_up(self, neighbor: str) -> Streams | None:
        """A new link: what the neighbor is to be told."""
        self._neighbors.add(neighbor)
        return Streams([*self.entering, *self._others_for(neighbor)], [])

    def _others_for(self, neighbor: str) -> list[Origin]:
        return [o for s, o in self._origins.items() if self._ways[s][0] != neighbor]

    def link_down(self, neighbor: str) -> tuple[list[Origin], list[StreamId], Sends]:
        """A link is gone: streams that now come another way, those that are gone, and messages."""
        self._neighbors.discard(neighbor)
        return self._lost(neighbor, [s for s, ways in self._ways.items() if neighbor in ways])

    def heard(self, neighbor: str, message: Streams) -> tuple[list[Origin], Sends, bool]:
        """News from a neighbor: streams that begin afresh, messages, whether there is a cycle."""
        fresh: list[Origin] = []
        cycle = False
        for origin in message.up:
            check_addresses(origin)
            if origin.stream == self.own.stream or origin.stream in self._adopted:
                cycle = True
                continue
            ways = self._ways.setdefault(origin.stream, [])
            if neighbor not in ways:
                ways.append(neighbor)
            if ways[0] == neighbor:
                self._origins[origin.stream] = origin
                fresh.append(origin)
        renewed, _, sends = self._lost(
            neighbor, [s for s in dict.fromkeys(message.down) if neighbor in self._ways.get(s, ())]
        )
        sends = self._tell(neighbor, Streams(fresh, [])) + sends if fresh else sends
        return fresh + renewed, sends, cycle

    def _lost(
        self, neighbor: str, streams: Iterable[StreamId]
    ) -> tuple[list[Origin], list[StreamId], Sends]:
        renewed: list[Origin] = []
        gone: list[StreamId] = []
        for stream in streams:
            ways = self._ways[stream]
            was_first = ways[0] == neighbor
            ways.remove(neighbor)
            if not ways:
                del self._ways[stream], self._origins[stream]
                gone.append(stream)
            elif was_first:
                renewed.append(self._origins[stream])
        sends: Sends = []
        for other in sorted(self._neighbors):
            # What now comes through a neighbor is no longer to be had from here for that one; and
            # who has just lost it may have it from here.
            up = [o for o in renewed if self._ways[o.stream][0] != other]
            down = [o.stream for o in renewed if self._ways[o.stream][0] == other]
            down += gone if other != neighbor else []
            if up or down:
                sends.append((other, Streams(up, down)))
        return renewed, gone, sends

    def _tell(self, neighbor: str, message: Streams) -> Sends:
        return [(other, message) for other in sorted(self._neighbors - {neighbor})]


def check_addresses(origin: Origin) -> None:
    """Raise if a broker claims more addresses than anybody needs."""
    if len(origin.addresses) > MAX_ADDRESSES or any(len(a) > MAX_ADDRESS for a in origin.addresses):
        raise ProtocolError(
            f"{origin.broker[:100]!r} has {len(origin.addresses)} addresses, too many or too long"
        )


@dataclass(slots=True)
class _Wave:
    """A probe that has not been answered by all."""

    number: int
    parent: str | None
    waiting: set[str]
    heads: Positions = field(default_factory=dict)
    #: How much each neighbor had been told when it was asked.
    said: dict[str, int] = field(default_factory=dict)
    #: When something was heard of each; at first, when it was asked.
    heard: dict[str, float] = field(default_factory=dict)
    #: When the predecessor heard something.
    told: float = 0.0


class Probes:
    """Waves that pass this broker, and its own.

    >>> probes = Probes("b1#0")
    >>> probes.begin({"b2": 0})
    [('b2', Probe(origin='b1#0', number=1))]
    >>> probes.echoed("b2", Echo("b1#0", 1, {"b2#0": 7}), {"b1#0": 3})
    ([], (1, {'b2#0': 7, 'b1#0': 3}))
    """

    def __init__(self, own: StreamId, number: int = 0) -> None:
        """Probes are numbered from behind `number` on.

        After a restart no number may come again: an echo of a probe from before may still be under
        way between other brokers.
        """
        self._own = own
        #: The newest of each origin. It begins a probe when the one before is over for it; so when
        #: a broker has moved and two of its waves pass at a time, nobody needs the older one.
        self._waves: dict[StreamId, _Wave] = {}
        #: The newest probe of this broker.
        self.number = number
        #: Neighbors that say nothing of probes.
        self.mute: set[str] = set()
        #: Seconds that have passed for this broker.
        self._now = 0.0

    @property
    def waiting(self) -> bool:
        """Whether the own probe is under way."""
        return self._own in self._waves

    def begin(self, said: dict[str, int], heads: Positions | None = None) -> Sends:
        """Send a probe of our own. Without neighbors, `finish_own` completes it at once.

        `said` are the neighbors to ask, with how much each has been told; `heads` are known for
        those that need not be asked.
        """
        self.number += 1
        self._waves[self._own] = self._wave(self.number, None, said, dict(heads or {}))
        return [(n, Probe(self._own, self.number)) for n in sorted(said)]

    def _wave(
        self, number: int, parent: str | None, said: dict[str, int], heads: Positions
    ) -> _Wave:
        waiting = set(said) - self.mute
        heard = dict.fromkeys(waiting, self._now)
        return _Wave(number, parent, waiting, heads, said, heard, self._now)

    def said(self, neighbor: str, echo: Echo) -> int | None:
        """How much a neighbor had been told when it was asked what this answers."""
        wave = self._waves.get(echo.origin)
        if wave is None or wave.number != echo.number or neighbor not in wave.waiting:
            return None
        return wave.said.get(neighbor, 0)

    def passed(self, neighbor: str, probe: Probe, said: dict[str, int], heads: Positions) -> Sends:
        """A probe of another broker comes by, to be passed on to those in `said`.

        `heads` are the own ones, and those of neighbors that need not be asked.
        """
        newest = self._waves.get(probe.origin)
        if probe.origin == self._own or (newest is not None and newest.number >= probe.number):
            # In a cycle it comes from both sides; neither need wait for the other.
            return [(neighbor, Echo(probe.origin, probe.number, {}))]
        self._waves.pop(probe.origin, None)
        said.pop(neighbor, None)
        wave = self._wave(probe.number, neighbor, said, dict(heads))
        sends: Sends = [(n, probe) for n in sorted(said)]
        if not wave.waiting:
            return [*sends, (neighbor, Echo(probe.origin, probe.number, dict(heads)))]
        self._waves[probe.origin] = wave
        return sends

    def echoed(
        self, neighbor: str, echo: Echo, heads: Positions
    ) -> tuple[Sends, tuple[int, Positions] | None]:
        """An answer: messages, and the number and heads of the own probe if it is complete."""
        self.mute.discard(neighbor)
        wave = self._waves.get(echo.origin)
        if wave is None or wave.number != echo.number or neighbor not in wave.waiting:
            return [], None
        if echo.waits:
            wave.heard[neighbor] = self._now
            return [], None
        wave.waiting.discard(neighbor)
        wave.heads.update(echo.heads)
        return self._finish(echo.origin, heads)

    def link_down(
        self, neighbor: str, heads: Positions
    ) -> tuple[Sends, tuple[int, Positions] | None]:
        """Nobody waits for this neighbor any more."""
        self.mute.discard(neighbor)
        for origin, wave in list(self._waves.items()):
            if wave.parent == neighbor:
                del self._waves[origin]
        return self._without(neighbor, heads)

    def _without(
        self, neighbor: str, heads: Positions
    ) -> tuple[Sends, tuple[int, Positions] | None]:
        """All waves go on without this neighbor."""
        sends: Sends = []
        complete = None
        for origin, wave in list(self._waves.items()):
            if neighbor in wave.waiting:
                wave.waiting.discard(neighbor)
                more, own = self._finish(origin, heads)
                sends += more
                complete = complete or own
        return sends, complete

    def passes(
        self, seconds: float, heads: Positions
    ) -> tuple[Sends, tuple[int, Positions] | None]:
        """Time has passed: leave out who is mute, and tell predecessors that others are."""
        self._now += seconds
        sends: Sends = []
        complete = None
        late = {
            neighbor
            for wave in self._waves.values()
            for neighbor in wave.waiting
            if self._now - wave.heard[neighbor] >= PATIENCE
        }
        for neighbor in sorted(late):
            self.mute.add(neighbor)
            more, own = self._without(neighbor, heads)
            sends += more
            complete = complete or own
        for origin, wave in self._waves.items():
            if wave.parent is not None and self._now - wave.told >= WAITS_EVERY:
                wave.told = self._now
                sends.append((wave.parent, Echo(origin, wave.number, {}, waits=True)))
        return sends, complete

    def finish_own(self, heads: Positions) -> tuple[int, Positions] | None:
        """The own probe, if nobody is left to answer it."""
        return self._finish(self._own, heads)[1] if self.waiting else None

    def _finish(
        self, origin: StreamId, own: Positions
    ) -> tuple[Sends, tuple[int, Positions] | None]:
        wave = self._waves[origin]
        if wave.waiting:
            return [], None
        del self._waves[origin]
        heads = {**wave.heads, **own}
        if wave.parent is None:
            return [], (wave.number, heads)
        return [(wave.parent, Echo(origin, wave.number, heads))], None
