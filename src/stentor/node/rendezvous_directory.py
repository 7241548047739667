"""Which brokers there are on a rendezvous overlay (see `streams` for trees).

All that concerns a stream goes directly between its broker and who wants it: notifications, how far
it is, probes and their answers, requests to read its journal. There is a way to a stream if there
is a link with its broker, and nobody passes anything on. So a link is all that can be interrupted,
and when it is made the stream begins afresh. Who is linked with whom follows from what is asked for
and what there is (`stentor.routing.rendezvous.router`). A subscription is in force when all brokers
have answered that are known to have something for it.

Brokers may be found late. A place may have changed hands, and not all may have told the new one
what they have; a partition may have ended; a broker that has started again may still be looking
through its journal. Nothing is lost by that:

1. A feed knows a position for every stream, and not only for those that come. Where a stream does
   not come, the position is what was last heard of how far it is, when the feed began. Brokers tell
   each other how far streams are, about once a second, over the links that stand. That is hearsay:
   it says nothing of what lies below. But the stream was no shorter when the subscription was in
   force. So all that is owed lies behind the position, and no clock has a part in it.
2. Such a position stays where it is. Only what comes over the link with the stream's broker moves
   it, and what that says of itself: which types its journal holds, up to which offset it holds
   nothing of a type, and up to where it holds nothing of others (`holdings`).
3. A broker names a type to its neighbors, and to the place of the type, before it writes the first
   notification of it. A neighbor that asks for the type hears so before anything that hides the
   notification, takes the stream as begun afresh, and tells its filters. Who is no neighbor is told
   by the place, at the latest when all have told the place what they have and what they watch; it
   links, and the stream begins afresh.

So everybody who has asked for a type reads the stream of everybody who has it, sooner or later from
the first notification on that is owed. What was found late may bring the last moments before the
subscription was in force as well: those between the last word on the stream and then.

All brokers have to be able to connect to each other, in one direction at least. With one that
cannot be reached, although others say that it is there, subscriptions are in force after a while
without it, and what is published there comes when it can be reached.
"""

from __future__ import annotations

from stentor.node.streams import Sends, check_addresses
from stentor.protocol.messages import Origin, StreamId, Streams
from stentor.routing.protocol import BrokerId
from stentor.routing.rendezvous.router import RendezvousRouter


class RendezvousDirectory:
    """The streams of all members, and those that come, each over the link with its broker."""

    def __init__(self, own: Origin, router: RendezvousRouter) -> None:
        self._router = router
        self.own = own
        self._adopted: dict[StreamId, Origin] = {}
        #: Neighbors that know what is asked for, and the streams that come from each.
        self._links: dict[str, dict[StreamId, Origin]] = {}
        #: The streams of brokers that can be reached, or are linked.
        self._origins: dict[StreamId, Origin] = {}
        self._ways: dict[StreamId, str] = {}
        #: The members that state each stream.
        self._members: dict[StreamId, BrokerId] = {}
        router.describe((own,))

    def announce_as(self, own: Origin) -> None:
        """By what others know this broker; to be said before the first link is made."""
        self.own = own
        self._router.describe(self.entering)

    @property
    def entering(self) -> tuple[Origin, ...]:
        """The streams that enter at this broker."""
        return (self.own, *self._adopted.values())

    @property
    def others(self) -> list[Origin]:
        """All other brokers that can be reached."""
        return list(self._origins.values())

    def origin(self, stream: StreamId) -> Origin | None:
        if stream == self.own.stream:
            return self.own
        return self._adopted.get(stream) or self._origins.get(stream)

    def root(self, stream: StreamId) -> BrokerId:
        """Nobody asks: what comes from a neighbor goes no further."""
        return self._router.id

    def towards(self, stream: StreamId) -> str | None:
        """The neighbor that has the stream."""
        return self._ways.get(stream)

    def relay(self, stream: StreamId) -> str | None:
        """The neighbor that passes on what is for the broker of a stream.

        Words about durable subscriptions are few, and need no link of their own.
        """
        way = self._ways.get(stream)
        if way is None and stream in self._members:
            hop = self._router.hop(self._members[stream])
            way = None if hop is None or str(hop) not in self._links else str(hop)
        return way

    def leads(self, stream: StreamId, neighbor: str) -> bool:
        """Whether the neighbor has the stream from here."""
        return stream == self.own.stream or stream in self._adopted

    def children(self, stream: StreamId) -> list[str]:
        """All neighbors, if the stream is here."""
        return sorted(self._links) if self.leads(stream, "") else []

    def behind(self, neighbor: str, origin: StreamId | None = None) -> list[Origin]:
        """The streams that come from the neighbor."""
        return list(self._links.get(neighbor, {}).values())

    @property
    def reserve(self) -> set[str]:
        return set()

    @property
    def allows_cycles(self) -> bool:
        return True

    @property
    def is_settled(self) -> bool:
        return self._router.is_settled

    @property
    def spreads_marks(self) -> bool:
        return True

    def hearers(self, stream: StreamId) -> list[str]:
        """All neighbors hear of what is here, those whose links stand of all other streams."""
        standing = [n for n in map(str, self._router.standing) if n in self._links]
        return self.children(stream) or standing

    def reaches(self, stream: StreamId) -> bool:
        return self.origin(stream) is not None

    # -- changes

    def adopt(self, stream: StreamId) -> tuple[Origin, Sends]:
        """Answer for the stream of a broker that is gone from now on."""
        origin = self._adopted[stream] = Origin(stream, self.own.broker, self.own.addresses)
        self._origins.pop(stream, None)
        way = self._ways.pop(stream, None)
        if way is not None:
            self._links[way].pop(stream, None)
        return origin, [(neighbor, Streams([origin], [])) for neighbor in sorted(self._links)]

    def link_up(self, neighbor: str) -> Streams | None:
        """A new link: what there is here begins afresh for the neighbor."""
        self._links[neighbor] = {}
        return Streams(list(self.entering), [])

    def link_down(self, neighbor: str) -> tuple[list[Origin], list[StreamId], Sends]:
        """A link is gone: no other streams begin afresh; those that are gone."""
        for stream in self._links.pop(neighbor, {}):
            if self._ways.get(stream) == neighbor:
                del self._ways[stream]
        return self.changed()

    def changed(self) -> tuple[list[Origin], list[StreamId], Sends]:
        """Members may have come or gone: those that are gone."""
        router, before = self._router, self._origins
        members = (r for r in router.reachable() if r != router.id)
        stated = [(origin, member) for member in members for origin in router.about(member)]
        self._members = {origin.stream: member for origin, member in stated}
        linked = (origin for origins in self._links.values() for origin in origins.values())
        known = {origin.stream: origin for origin in (*(o for o, _ in stated), *linked)}
        self._origins = {s: origin for s, origin in known.items() if not self.leads(s, "")}
        return [], [stream for stream in before if stream not in self._origins], []

    def heard(self, neighbor: str, message: Streams) -> tuple[list[Origin], Sends, bool]:
        """The neighbor's streams begin afresh: these."""
        fresh: list[Origin] = []
        for origin in message.up:
            check_addresses(origin)
            if neighbor in self._links and not self.leads(origin.stream, ""):
                self._links[neighbor][origin.stream] = self._origins[origin.stream] = origin
                self._ways[origin.stream] = neighbor
                fresh.append(origin)
        return fresh, [], False
