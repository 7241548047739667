"""Scopes in the routing of a broker network: a table for each broker and scope (05/§4.10).

Brokers form a tree. The *overlay* of a scope is the part of the tree that its members' brokers
span, widened so that a scope and its superscope have a broker in common. Within an overlay a
notification travels as in a flat service, on tables of that scope alone. From one scope into the
next it goes inside a broker that belongs to both overlays, from table to table:

    gateway      at one broker for each edge, to which the others point
    once         at the first broker on its way that belongs to both
    everywhere   at every broker that belongs to both: as printed, and a copy too many for each

*Once* needs to know whether the broker before has crossed already. It has, if the notification came
over a link, in this very scope, from a broker that belongs to the other overlay too. Overlays are
subtrees, and so is what two of them share; a notification enters that at exactly one broker. To
ask instead whether the link has an entry in the other table goes wrong when nobody there has
subscribed (05/E3.a), and to ask for the link that it came over in an earlier scope loses chained
crossings (05/E3.e).

A notification carries, unseen by applications, its scope, whether it is on its way down, and the
scopes that it has been in: it enters none of these twice, neither back over an edge nor around a
diamond.

A table sends over a link only if somebody behind it wants the notification, or if an edge behind it
lets it cross into another scope; without the latter it would never get to a crossing (05/T7).
A policy would need to see all hops, where a broker sees only its own (05/T6), so graphs with
policies are refused.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from stentor.errors import InvalidConfiguration, InvalidScopeGraph, InvalidTopology
from stentor.model import Notification
from stentor.scopes.crossing import Crossing
from stentor.scopes.dissemination import Delivery
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.nodes import Edge, Node

MODES: Final = ("gateway", "once", "everywhere")
Broker = Hashable


class Routed(Struct, frozen=True):
    """A notification in one scope at one broker."""

    at: Broker
    scope: str
    notification: Notification
    down: bool
    trail: frozenset[str]
    path: tuple[str, ...]
    #: The broker that it came from in this scope; None if it was published or has crossed here.
    via: Broker | None
    hops: int


class IntegratedRouting:
    """A scope graph on a tree of brokers.

    `homes` says at which broker each simple component is, and may place scopes without members;
    `gateways` which broker an edge (subscope, superscope) is crossed at in the mode of that name.

    >>> from stentor.scopes import OPEN
    >>> g = ScopeGraph()
    >>> g.create_scope("s", interface=OPEN)
    >>> for member in "xy":
    ...     g.add_component(member)
    ...     g.join(member, "s")
    >>> net = IntegratedRouting(g, [(1, 2), (2, 3)], {"x": 1, "y": 3})
    >>> [d.consumer for d in net.publish("x", Notification({"a": 1}))], net.messages
    (['x', 'y'], 2)
    """

    def __init__(
        self,
        graph: ScopeGraph,
        links: Iterable[tuple[Broker, Broker]],
        homes: Mapping[str, Broker],
        *,
        mode: str = "once",
        gateways: Mapping[tuple[str, str], Broker] | None = None,
    ) -> None:
        if mode not in MODES:
            raise InvalidConfiguration(f"mode={mode!r}: choose from {', '.join(MODES)}")
        if graph.has_policies or graph.has_once:
            raise InvalidScopeGraph(
                "a broker sees only its own hops, so it can apply no policy, and does not know "
                "what entered elsewhere"
            )
        self._graph = graph
        self._homes = homes
        self._mode = mode
        self._gateways = dict(gateways or {})
        self._cross = Crossing(open_by_default=graph.open_by_default, tables=graph.tables)
        self.topology = _Tree(links, homes.values())
        self.overlays = self._overlays()
        #: Messages over links, and with those that go over a link together counted as one.
        self.messages = 0
        self.combined = 0
        #: How many copies consumers were sent, and over how many links the first one came.
        self.copies: Counter[str] = Counter()
        self.hops: dict[str, int] = {}

    # -- overlays

    def _overlays(self) -> dict[str, set[Broker]]:
        scopes = [node for node in self._graph.nodes.values() if node.is_scope]
        spanned = {}
        for scope in scopes:
            ends = [self._homes[id] for id in scope.children if id not in scope.subscopes]
            if scope.id in self._homes:
                ends.append(self._homes[scope.id])
            spanned[scope.id] = self.topology.span(ends)
        edges = [edge for scope in scopes for edge in scope.subscopes.values()]
        changed = True
        while changed:
            changed = False
            for edge in edges:
                below, above = spanned[edge.child.id], spanned[edge.parent.id]
                if not below and not above:
                    below.add(self.topology.first)
                meet = self._gateways.get((edge.child.id, edge.parent.id))
                if meet is None and below and above and below.isdisjoint(above):
                    meet = self.topology.nearest(below, above)
                if meet is None:
                    meet = next(iter(below & above or below or above))
                for side in (below, above):
                    if meet not in side:
                        side |= self.topology.span([meet, *side])
                        changed = True
        return spanned

    def _crossings(self, edge: Edge) -> set[Broker]:
        """The brokers at which an edge between scopes may be crossed."""
        common = self.overlays[edge.child.id] & self.overlays[edge.parent.id]
        if self._mode != "gateway":
            return common
        chosen = self._gateways.get((edge.child.id, edge.parent.id))
        return {min(common, key=self.topology.rank) if chosen is None else chosen}

    # -- notifications

    def publish(self, publisher: str, n: Notification) -> list[Delivery]:
        """What consumers are given, each version once."""
        node, home = self._graph.node(publisher), self._homes[publisher]
        found: dict[tuple[str, Notification], Delivery] = {}
        wants = node.interface.input
        if self._graph.self_delivery and (wants is None or any(f.matches(n) for f in wants)):
            found[publisher, n] = Delivery(publisher, n, (publisher,))
        ahead: deque[Routed] = deque()
        for edge in node.parents.values():
            arrived = self._cross.up(edge, n)
            if arrived is not None:
                scope = edge.parent.id
                trail = frozenset((publisher, scope))
                path = (publisher, scope)
                ahead.append(Routed(home, scope, arrived, False, trail, path, None, 0))
        sent: Counter[tuple[int, Broker, Broker, Notification]] = Counter()
        while ahead:
            each = ahead.popleft()
            self._deliver(each, found)
            for link in self._links(each):
                self.messages += 1
                sent[each.hops, each.at, link, each.notification] += 1
                ahead.append(_moved(each, link))
            ahead.extend(self._crossed(each))
        self.combined += len(sent)
        return list(found.values())

    def _deliver(self, each: Routed, found: dict[tuple[str, Notification], Delivery]) -> None:
        for edge in self._members(self._graph.nodes[each.scope], {each.at}):
            id = edge.child.id
            arrived = None if id in each.trail else self._cross.down(edge, each.notification)
            if arrived is not None:
                self.copies[id] += 1
                self.hops.setdefault(id, each.hops)
                found.setdefault((id, arrived), Delivery(id, arrived, (*each.path, id)))

    def _links(self, each: Routed) -> Iterator[Broker]:
        """Links of the overlay behind which somebody, or an edge, waits for it."""
        overlay = self.overlays[each.scope]
        scope = self._graph.nodes[each.scope]
        for link in self.topology.links[each.at]:
            if link in overlay and link != each.via:
                behind = self.topology.behind(each.at, link) & overlay
                wanted = any(
                    edge.child.id not in each.trail
                    and self._cross.down(edge, each.notification) is not None
                    for edge in self._members(scope, behind)
                )
                if wanted or self._crosses_behind(each, behind):
                    yield link

    def _crosses_behind(self, each: Routed, behind: set[Broker]) -> bool:
        """Whether it has to go there to cross; where it crosses here, it need not."""
        for edge, _, _ in self._ways(each):
            crossings = self._crossings(edge)
            if each.at not in crossings and not crossings.isdisjoint(behind):
                return True
        return False

    def _crossed(self, each: Routed) -> Iterator[Routed]:
        """From this broker's table of one scope into its tables of others."""
        for edge, other, arrived in self._ways(each):
            if each.at not in self._crossings(edge):
                continue
            if self._mode == "once" and each.via is not None and each.via in self.overlays[other]:
                continue  # the broker before has crossed
            yield Routed(
                each.at,
                other,
                arrived,
                each.down or other == edge.child.id,
                each.trail | {other},
                (*each.path, other),
                None,
                each.hops,
            )

    def _ways(self, each: Routed) -> Iterator[tuple[Edge, str, Notification]]:
        """Edges between scopes that let it pass: downwards, and upwards unless it has come down."""
        scope, n = self._graph.nodes[each.scope], each.notification
        for edge in scope.subscopes.values():
            arrived = None if edge.child.id in each.trail else self._cross.down(edge, n)
            if arrived is not None:
                yield edge, edge.child.id, arrived
        for edge in () if each.down else scope.parents.values():
            arrived = None if edge.parent.id in each.trail else self._cross.up(edge, n)
            if arrived is not None:
                yield edge, edge.parent.id, arrived

    def _members(self, scope: Node, brokers: set[Broker]) -> Iterator[Edge]:
        for id, edge in scope.children.items():
            if id not in scope.subscopes and self._homes[id] in brokers:
                yield edge


def _moved(each: Routed, link: Broker) -> Routed:
    return Routed(
        link,
        each.scope,
        each.notification,
        each.down,
        each.trail,
        each.path,
        each.at,
        each.hops + 1,
    )


class _Tree:
    """The links between brokers: no cycles, and everything connected."""

    def __init__(self, links: Iterable[tuple[Broker, Broker]], more: Iterable[Broker]) -> None:
        self.links: dict[Broker, list[Broker]] = {}
        count = 0
        for one, other in links:
            self.links.setdefault(one, []).append(other)
            self.links.setdefault(other, []).append(one)
            count += 1
        for each in more:
            self.links.setdefault(each, [])
        if count != len(self.links) - 1 or len(self._around(self.first, None)) != len(self.links):
            raise InvalidTopology("brokers must form a tree: all connected, without a cycle")
        self._order = {each: number for number, each in enumerate(self.links)}
        self._behind: dict[tuple[Broker, Broker], set[Broker]] = {}

    @property
    def first(self) -> Broker:
        return next(iter(self.links))

    def rank(self, broker: Broker) -> int:
        return self._order[broker]

    def behind(self, broker: Broker, link: Broker) -> set[Broker]:
        """All brokers on the other side of a link."""
        key = broker, link
        if key not in self._behind:
            self._behind[key] = self._around(link, broker)
        return self._behind[key]

    def span(self, brokers: Iterable[Broker]) -> set[Broker]:
        """The smallest part of the tree that has all of these."""
        ends = list(dict.fromkeys(brokers))
        found = set(ends)
        for end in ends[1:]:
            found.update(self._path(ends[0], end))
        return found

    def nearest(self, some: set[Broker], others: set[Broker]) -> Broker:
        """The broker of the first set from which it is the shortest way to the second."""
        ways = [self._path(a, b) for a in some for b in others]
        return min(ways, key=lambda way: (len(way), self.rank(way[0]), self.rank(way[-1])))[0]

    def _path(self, start: Broker, end: Broker) -> list[Broker]:
        came: dict[Broker, Broker] = {start: start}
        ahead = deque([start])
        while ahead:
            here = ahead.popleft()
            for link in self.links[here]:
                if link not in came:
                    came[link] = here
                    ahead.append(link)
        way = [end]
        while way[-1] != start:
            way.append(came[way[-1]])
        return way[::-1]

    def _around(self, start: Broker, without: Broker | None) -> set[Broker]:
        found, ahead = {start}, [start]
        while ahead:
            for link in self.links[ahead.pop()]:
                if link != without and link not in found:
                    found.add(link)
                    ahead.append(link)
        return found
