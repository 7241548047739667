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

Hierarchies may hang below a broker of the graph. What enters in one of them enters the graph at
this broker, which states the streams of its subtrees as it does its own. For its children the rest
of the overlay lies behind their parent, as in a tree.

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

from stentor.node.streams import Sends, check_addresses
from stentor.protocol.messages import Origin, StreamId, Streams
from stentor.routing.graph import GraphRouter
from stentor.routing.protocol import BrokerId


class GraphDirectory:
    """The streams that can be reached in a graph, and through which neighbor."""

    def __init__(self, own: Origin, router: GraphRouter) -> None:
        self._router = router
        self.own = own
        self._adopted: dict[StreamId, Origin] = {}
        #: The children that are linked. The router may not yet have forgotten others.
        self._subtrees: set[str] = set()
        #: Streams in hierarchies below, with the children that lead there.
        self._below: dict[StreamId, tuple[str, Origin]] = {}
        #: What other brokers state: their streams, and for each stream its broker.
        self._stated: dict[BrokerId, tuple[Origin, ...]] = {}
        self._origins: dict[StreamId, Origin] = {}
        self._roots: dict[StreamId, BrokerId] = {}
        router.describe((own,))

    def announce_as(self, own: Origin) -> None:
        """By what others know this broker; to be said before the first link is made."""
        self.own = own
        self._router.describe(self.entering)

    @property
    def entering(self) -> tuple[Origin, ...]:
        """The streams that enter the graph at this broker."""
        below = (origin for _, origin in self._below.values())
        return (self.own, *self._adopted.values(), *below)

    @property
    def others(self) -> list[Origin]:
        """All other brokers that can be reached."""
        return [*self._origins.values(), *(origin for _, origin in self._below.values())]

    def origin(self, stream: StreamId) -> Origin | None:
        if stream == self.own.stream:
            return self.own
        if stream in self._below:
            return self._below[stream][1]
        return self._adopted.get(stream) or self._origins.get(stream)

    def root(self, stream: StreamId) -> BrokerId:
        """The broker at which the stream enters the graph."""
        return self._roots.get(stream, self._router.id)

    def towards(self, stream: StreamId) -> str | None:
        """The neighbor through which the stream comes."""
        if stream in self._below:
            return self._below[stream][0]
        root = self._roots.get(stream)
        way = None if root is None else self._router.towards(root)
        return None if way is None else str(way)

    def relay(self, stream: StreamId) -> str | None:
        """The neighbor that passes on what is for the broker of a stream."""
        return self.towards(stream)

    def leads(self, stream: StreamId, neighbor: str) -> bool:
        """Whether what comes of the stream goes on to this neighbor."""
        if not self.reaches(stream):
            return False
        if neighbor in self._subtrees:
            return self.towards(stream) != neighbor
        return neighbor in map(str, self._router.children(self.root(stream)))

    def children(self, stream: StreamId) -> list[str]:
        """The neighbors to which all goes on that comes of the stream."""
        if not self.reaches(stream):
            return []
        way = self.towards(stream)
        children = {*map(str, self._router.children(self.root(stream))), *self._subtrees}
        return sorted(children - {way})

    def behind(self, neighbor: str, origin: StreamId | None = None) -> list[Origin]:
        """The brokers that are reached through this neighbor; by what comes of `origin`, too."""
        found = [other for other in self.others if self.towards(other.stream) == neighbor]
        if origin is None or neighbor in self._subtrees:
            return found
        way, root = self._router.way, self.root(origin)
        return [other for other in found if str(way(root, self.root(other.stream))) == neighbor]

    @property
    def reserve(self) -> set[str]:
        """All links of a graph are in use."""
        return set()

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
        return True

    def reaches(self, stream: StreamId) -> bool:
        known = (self._adopted, self._below, self._origins)
        return stream == self.own.stream or any(stream in streams for streams in known)

    # -- changes

    def adopt(self, stream: StreamId) -> tuple[Origin, Sends]:
        """Answer for the stream of a broker that is gone from now on."""
        origin = self._adopted[stream] = Origin(stream, self.own.broker, self.own.addresses)
        self._claimed(stream)
        self._below.pop(stream, None)
        return origin, [(child, Streams([origin], [])) for child in self.children(stream)]

    def _claimed(self, stream: StreamId) -> None:
        """The stream enters here, whatever others state."""
        self._origins.pop(stream, None)
        self._roots.pop(stream, None)

    def link_up(self, neighbor: str) -> Streams | None:
        """A new link: a child is told what there is, a peer nothing that the router does not."""
        if neighbor not in map(str, self._router.subtrees):
            return None
        self._subtrees.add(neighbor)
        return Streams([*self.entering, *self._origins.values()], [])

    def link_down(self, neighbor: str) -> tuple[list[Origin], list[StreamId], Sends]:
        """A link is gone: streams that begin afresh, those that are gone, and messages."""
        self._subtrees.discard(neighbor)
        lost = [stream for stream, (child, _) in self._below.items() if child == neighbor]
        for stream in lost:
            del self._below[stream]
        return self._changed(lost)

    def changed(self) -> tuple[list[Origin], list[StreamId], Sends]:
        """The graph may have changed: streams that begin afresh, those that are gone, messages."""
        return self._changed([])

    def _changed(self, gone: list[StreamId]) -> tuple[list[Origin], list[StreamId], Sends]:
        router = self._router
        changes = router.take_changes()
        fresh: dict[StreamId, Origin] = {}
        concerned: dict[StreamId, set[str]] = {}
        stated = {r: router.about(r) for r in router.reachable() if r != router.id}
        for root in [root for root in self._stated if root not in stated]:
            gone += self._forget(root, ())
        for root, origins in stated.items():
            new = [o for o in origins if self._origins.get(o.stream) != o]
            gone += self._forget(root, origins)
            self._stated[root] = origins
            for origin in new:
                if origin.stream in self._origins or not self.reaches(origin.stream):
                    self._origins[origin.stream] = fresh[origin.stream] = origin
                    self._roots[origin.stream] = root
        for changed, change in changes.items():
            for origin in self._streams(changed):
                if change.way:
                    fresh[origin.stream] = origin
                concerned[origin.stream] = {str(child) for child in change.children}
        up: dict[str, list[Origin]] = {}
        for stream in {**fresh, **concerned}:
            known = self.origin(stream)
            for child in self.children(stream) if known is not None else ():
                if known is not None and (stream in fresh or child in concerned[stream]):
                    up.setdefault(child, []).append(known)
        gone = [stream for stream in gone if not self.reaches(stream)]
        return list(fresh.values()), gone, self._words(up, gone)

    def _words(self, up: dict[str, list[Origin]], gone: list[StreamId]) -> Sends:
        """What neighbors are told; only children, who do not see the graph, of what is gone."""
        down = self._subtrees if gone else set()
        return [
            (to, Streams(up.get(to, []), gone if to in down else []))
            for to in sorted(up.keys() | down)
        ]

    def _streams(self, root: BrokerId) -> list[Origin]:
        if root == self._router.id:
            return list(self.entering)
        return [o for o in self._stated.get(root, ()) if self._roots.get(o.stream) == root]

    def _forget(self, root: BrokerId, but: tuple[Origin, ...]) -> list[StreamId]:
        """The broker states other streams than before: those that are no longer its."""
        kept = {origin.stream for origin in but}
        lost = [
            origin.stream
            for origin in self._stated.pop(root, ())
            if origin.stream not in kept and self._roots.get(origin.stream) == root
        ]
        for stream in lost:
            self._claimed(stream)
        return lost

    def heard(self, neighbor: str, message: Streams) -> tuple[list[Origin], Sends, bool]:
        """News from a neighbor: streams that begin afresh, messages, whether there is a cycle."""
        cycle = False
        gone: list[StreamId] = []
        if neighbor in self._subtrees:
            for origin in message.up:
                check_addresses(origin)
                stream = origin.stream
                if stream == self.own.stream or stream in self._adopted:
                    cycle = True
                elif stream not in self._below or self._below[stream][0] == neighbor:
                    self._claimed(stream)
                    self._below[stream] = neighbor, origin
            for stream in message.down:
                if stream in self._below and self._below[stream][0] == neighbor:
                    del self._below[stream]
                    gone.append(stream)
        fresh = [o for o in message.up if self.towards(o.stream) == neighbor]
        up: dict[str, list[Origin]] = {}
        for origin in fresh:
            for child in self.children(origin.stream):
                up.setdefault(child, []).append(origin)
        return fresh, self._words(up, gone), cycle
