"""Scopes that only mapping components connect: a pair on every edge between scopes (04/A6).

Each scope is a flat service of its own, in which everybody hears everybody. On an edge from K to S
stand two components with a private link, one a member of K and one of S: what the inner one hears
it maps and has the outer one publish in S, and the other way round. Nothing else knows about the
graph.

Taken literally the construction leaks and goes round in circles (04/T2), so what is published
carries two things that only mapping components see. Its *phase*: what came down into a scope never
climbs out of it again. And the scopes that it has *climbed* through: it never comes down into one
of these, be it over the edge that it took or around a diamond.

A simple component whose own edge is mapped, or carries interfaces, is behind a pair as well, as if
it were a scope with one member.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from stentor.errors import InvalidScopeGraph
from stentor.model import Notification
from stentor.scopes.crossing import Crossing
from stentor.scopes.dissemination import Delivery
from stentor.scopes.graph import ScopeGraph


class Heard(Struct, frozen=True):
    """What members of a scope hear, with what is for mapping components only."""

    scope: str
    notification: Notification
    #: Whether it came from a superscope.
    incoming: bool
    climbed: frozenset[str]
    path: tuple[str, ...]


class MappingComponents:
    """A scope graph without policies, rewritten to flat scopes and pairs of components.

    >>> from stentor.scopes import OPEN
    >>> g = ScopeGraph()
    >>> g.create_scope("s", interface=OPEN)
    >>> for member in "xy":
    ...     g.add_component(member)
    ...     g.join(member, "s")
    >>> [d.consumer for d in MappingComponents(g).publish("x", Notification({"a": 1}))]
    ['x', 'y']
    """

    def __init__(self, graph: ScopeGraph) -> None:
        if graph.has_policies or graph.has_once:
            raise InvalidScopeGraph(
                "mapping components carry out mappings, but no policies, and do not know what "
                "entered before"
            )
        self._graph = graph
        self._cross = Crossing(open_by_default=graph.open_by_default, tables=graph.tables)

    def publish(self, publisher: str, n: Notification) -> list[Delivery]:
        """All deliveries, each version once for a consumer."""
        node = self._graph.node(publisher)
        found: dict[tuple[str, Notification], Delivery] = {}
        wants = node.interface.input
        if self._graph.self_delivery and (wants is None or any(f.matches(n) for f in wants)):
            found[publisher, n] = Delivery(publisher, n, (publisher,))
        said: deque[Heard] = deque()
        for edge in node.parents.values():
            arrived = self._cross.up(edge, n)
            if arrived is not None:
                climbed = frozenset((publisher, edge.parent.id))
                path = (publisher, edge.parent.id)
                said.append(Heard(edge.parent.id, arrived, False, climbed, path))
        heard: set[tuple[str, Notification, bool, frozenset[str]]] = set()
        while said:
            each = said.popleft()
            key = (each.scope, each.notification, each.incoming, each.climbed)
            if key not in heard:
                heard.add(key)
                self._hear(each, said, found)
        return list(found.values())

    def _hear(
        self,
        each: Heard,
        said: deque[Heard],
        found: dict[tuple[str, Notification], Delivery],
    ) -> None:
        scope, n = self._graph.nodes[each.scope], each.notification
        for edge in scope.children.values():  # the outer components of the pairs below
            id = edge.child.id
            arrived = None if id in each.climbed else self._cross.down(edge, n)
            if arrived is None:
                continue
            if edge.child.is_scope:
                said.append(Heard(id, arrived, True, each.climbed, (*each.path, id)))
            else:
                found.setdefault((id, arrived), Delivery(id, arrived, (*each.path, id)))
        if each.incoming:
            return  # the inner components of the pairs above ignore it
        for edge in scope.parents.values():
            arrived = self._cross.up(edge, n)
            if arrived is not None:
                id = edge.parent.id
                climbed = each.climbed | {id}
                said.append(Heard(id, arrived, False, climbed, (*each.path, id)))
