"""Which brokers there are in a graph with cycles, and in which direction (see `streams` for trees).

The router knows the graph, and in it the tree of each broker (`stentor.routing.graph`). What enters
at a broker travels its tree: it comes through one neighbor (`towards`) and goes on to the
`children`. All that concerns a stream goes the same way in the same order: its notifications, how
far it is, and the answers of probes. Every broker states its streams together with its links.

Brokers may see different graphs for a while. A notification could then be left out on its way, and
those behind it would hide that. So whenever a tree changes at a broker, whatever the reason, its
streams begin afresh there, and nothing more of them is passed on before that word:

- if they now come from another neighbor, for this broker and for all children;
- if other brokers than before lie behind a child, for this child. Somebody there may have missed
  what was sent another way, or not at all.

A broker that hears from the neighbor towards a stream that it begins afresh says so to the children
of its tree. From others it believes nothing.

Nothing is lost. Take a subscriber's broker B and a broker P where something enters, and the brokers
on the way between them. An answer to a probe of B that speaks of P has come along the tree of P;
at each broker on its way it was passed on only to a child of that tree, and taken only from the
neighbor towards P. So at that moment each pair of neighbors on the way agreed on it, and had
the filters of B: the probe had come this way behind them, and paths are the same in both
directions. If any of them sees it differently later, it gives the word that P's stream begins
afresh, in the same order, before anything that hides a gap. Then B asks anew, and reads the journal
up to what the next answer says.
"""

from __future__ import annotations

from stentor.node.streams import Sends
from stentor.protocol.messages import Origin, StreamId, Streams
from stentor.routing.graph import GraphRouter


class GraphDirectory:
    """The streams that can be reached in a graph, and through which neighbor."""

    def __init__(self, own: Origin, router: GraphRouter) -> None:
        self._router = router
        self.own = own
        self._adopted: dict[StreamId, Origin] = {}
        #: What other brokers state: their streams, and for each stream its broker.
        self._stated: dict[StreamId, tuple[Origin, ...]] = {}
        self._origins: dict[StreamId, Origin] = {}
        self._roots: dict[StreamId, StreamId] = {}
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

    def root(self, stream: StreamId) -> StreamId:
        """The broker at which the stream enters the graph."""
        return self._roots.get(stream, self.own.stream)

    def towards(self, stream: StreamId) -> str | None:
        """The neighbor through which the stream comes."""
        root = self._roots.get(stream)
        way = None if root is None else self._router.towards(root)
        return None if way is None else str(way)

    def leads(self, stream: StreamId, neighbor: str) -> bool:
        """Whether what comes of the stream goes on to this neighbor."""
        return self.reaches(stream) and neighbor in self._router.children(self.root(stream))

    def children(self, stream: StreamId) -> list[str]:
        """The neighbors to which all goes on that comes of the stream."""
        if not self.reaches(stream):
            return []
        return sorted(map(str, self._router.children(self.root(stream))))

    def behind(self, neighbor: str) -> list[Origin]:
        """The brokers that are reached through this neighbor."""
        return [o for s, o in self._origins.items() if self.towards(s) == neighbor]

    @property
    def reserve(self) -> set[str]:
        """All links of a graph are in use."""
        return set()

    @property
    def allows_cycles(self) -> bool:
        return True

    def reaches(self, stream: StreamId) -> bool:
        return stream == self.own.stream or stream in self._adopted or stream in self._origins

    # -- changes

    def adopt(self, stream: StreamId) -> tuple[Origin, Sends]:
        """Answer for the stream of a broker that is gone from now on."""
        origin = self._adopted[stream] = Origin(stream, self.own.broker, self.own.addresses)
        self._origins.pop(stream, None)
        self._roots.pop(stream, None)
        return origin, [(child, Streams([origin], [])) for child in self.children(stream)]

    def link_up(self, neighbor: str) -> Streams | None:
        """A new link: there is nothing to say that the router does not."""
        return None

    def link_down(self, neighbor: str) -> tuple[list[Origin], list[StreamId], Sends]:
        """A link is gone: streams that begin afresh, those that are gone, and messages."""
        return self.changed()

    def changed(self) -> tuple[list[Origin], list[StreamId], Sends]:
        """The graph may have changed: streams that begin afresh, those that are gone, messages."""
        router, own = self._router, self.own.stream
        changes = router.take_changes()
        reachable = router.reachable()
        fresh: dict[StreamId, Origin] = {}
        gone: list[StreamId] = []
        words: dict[str, list[Origin]] = {}
        stated = {str(r): router.about(r) for r in reachable if r != own}
        for root in self._stated.keys() - stated.keys():
            gone += self._forget(root, ())
        for root, origins in stated.items():
            new = [o for o in origins if self._origins.get(o.stream) != o]
            gone += self._forget(root, origins)
            self._stated[root] = origins
            for origin in new:
                if origin.stream != own and origin.stream not in self._adopted:
                    self._origins[origin.stream] = fresh[origin.stream] = origin
                    self._roots[origin.stream] = root
        for changed, change in changes.items():
            streams = self._streams(str(changed))
            if change.way:
                fresh.update((o.stream, o) for o in streams)
            for child in change.children & router.children(changed):
                words.setdefault(str(child), []).extend(streams)
        for stream, origin in fresh.items():
            for child in self.children(stream):
                words.setdefault(child, []).append(origin)
        gone = [stream for stream in gone if not self.reaches(stream)]
        sends: Sends = [
            (child, Streams(list({o.stream: o for o in origins}.values()), []))
            for child, origins in sorted(words.items())
        ]
        return list(fresh.values()), gone, sends

    def _streams(self, root: StreamId) -> list[Origin]:
        if root == self.own.stream:
            return list(self.entering)
        return [o for o in self._stated.get(root, ()) if self._roots.get(o.stream) == root]

    def _forget(self, root: StreamId, but: tuple[Origin, ...]) -> list[StreamId]:
        """The broker states other streams than before: those that are no longer its."""
        kept = {origin.stream for origin in but}
        lost = [
            origin.stream
            for origin in self._stated.pop(root, ())
            if origin.stream not in kept and self._roots.get(origin.stream) == root
        ]
        for stream in lost:
            del self._origins[stream], self._roots[stream]
        return lost

    def heard(self, neighbor: str, message: Streams) -> tuple[list[Origin], Sends, bool]:
        """A neighbor says that streams begin afresh: those for which it leads there, messages."""
        fresh = [
            self._origins[origin.stream]
            for origin in message.up
            if self.towards(origin.stream) == neighbor
        ]
        words: dict[str, list[Origin]] = {}
        for origin in fresh:
            for child in self.children(origin.stream):
                words.setdefault(child, []).append(origin)
        return fresh, [(child, Streams(o, [])) for child, o in sorted(words.items())], False
