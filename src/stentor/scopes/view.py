"""What a scope graph lets components see at one moment, whether they want it or not.

The formal model asks for it: `stentor.semantics.check_scoped` holds recorded runs against the views
that were in force.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy

from stentor.model import Notification
from stentor.scopes.graph import ScopeGraph


class _Everybody:
    """Interests of components that want everything."""

    def matching(self, notification: Notification) -> Collection[str] | None:
        return None

    def subscribed(self, component: str, notification: Notification) -> bool:
        return True


class ScopeView:
    """The relation `(n, X) ⇝ (n', Y)` of a graph as it is now; later changes do not matter.

    >>> g = ScopeGraph(default_scope="all")
    >>> for name in "xy":
    ...     g.add_component(name)
    >>> view = ScopeView(g)
    >>> g.remove_component("y")
    >>> [consumer for consumer, _ in view.seen("x", Notification({"a": 1}))]
    ['x', 'y']
    """

    def __init__(self, graph: ScopeGraph) -> None:
        self._graph = deepcopy(graph)

    def seen(self, publisher: str, notification: Notification) -> list[tuple[str, Notification]]:
        if publisher not in self._graph:
            return []
        found = self._graph.outcome(notification, publisher, interests=_Everybody())
        return [(each.consumer, each.notification) for each in found.deliveries]
