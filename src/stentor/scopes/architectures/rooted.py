"""Scopes over a simple service that knows none: notifications carry their roots (04/A3).

Where no interface is closed, two components see each other if and only if a root is above both. So
a publisher's notification is wrapped with the roots above the publisher, and whoever receives it
compares them with its own. No process stands for a scope, and everybody gets one copy, whatever the
number of paths.

Nesting hides nothing here, since only roots count. A graph that has interfaces, mappings or
policies is refused. A scope with members must not join another: the roots of all its members would
silently be out of date (04/T20); `ScopeGraph(leaf_only=True)` sees to that.
"""

from __future__ import annotations

from msgspec import Struct

from stentor.errors import InvalidScopeGraph
from stentor.model import Notification
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import EVERYTHING, Half


class Wrapped(Struct, frozen=True):
    """What the simple service carries: a notification, and who could see it."""

    notification: Notification
    publisher: str
    roots: frozenset[str]


class RootedScopes:
    """The local brokers of all clients: they wrap, and unwrap what is visible.

    >>> g = ScopeGraph(open_by_default=True)
    >>> for scope, member in [("s", "x"), ("s", "y"), ("t", "z")]:
    ...     if scope not in g:
    ...         g.create_scope(scope)
    ...     g.add_component(member)
    ...     g.join(member, scope)
    >>> RootedScopes(g).publish("x", Notification({"price": 1}))
    ['x', 'y']
    """

    def __init__(self, graph: ScopeGraph) -> None:
        if not graph.is_plain or not all(map(_is_open, _halves(graph))):
            raise InvalidScopeGraph(
                "roots say who sees whom only where every interface is open and nothing is mapped"
            )
        self._graph = graph
        #: Fixed when a client attaches: scopes change at their leaves only.
        self._roots = {
            id: frozenset(graph.roots(id)) for id, node in graph.nodes.items() if not node.is_scope
        }

    def attach(self, component: str) -> None:
        """A component that has joined its scopes by now."""
        self._roots[component] = frozenset(self._graph.roots(component))

    def publish(self, publisher: str, n: Notification) -> list[str]:
        """Who is notified, sorted by name."""
        wrapped = Wrapped(n, publisher, self._roots[publisher])
        return sorted(each for each in self._roots if self._unwraps(each, wrapped))

    def _unwraps(self, consumer: str, wrapped: Wrapped) -> bool:
        if consumer == wrapped.publisher and not self._graph.self_delivery:
            return False
        wants = self._graph.node(consumer).interface.input
        matches = wants is None or any(each.matches(wrapped.notification) for each in wants)
        return matches and not wrapped.roots.isdisjoint(self._roots[consumer])


def _halves(graph: ScopeGraph) -> list[Half]:
    found: list[Half] = []
    for node in graph.nodes.values():
        found += [node.everyone.input, node.everyone.output]
        for edge in node.parents.values():
            for interface in (edge.selective, edge.imposed):
                found += [interface.input, interface.output]
        if node.is_scope:
            base = node.interface
            omitted: Half = None if graph.open_by_default else ()
            found += [each if each is not None else omitted for each in (base.input, base.output)]
        else:
            found.append(node.interface.output)
    return found


def _is_open(half: Half) -> bool:
    return half is None or half == EVERYTHING
