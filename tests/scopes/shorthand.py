"""How tests write scope graphs: edges as text, deliveries as names."""

from collections.abc import Iterable
from typing import Any

from stentor.model import Notification
from stentor.scopes import OPEN, Interface, ScopeGraph


def graph_of(edges: str, scopes: str = "", **options: Any) -> ScopeGraph:
    """A graph from edges such as "X>S Y>S S>T"; whatever has members is a scope, and open."""
    pairs = [tuple(each.split(">")) for each in edges.split()]
    g = ScopeGraph(**options)
    for scope in dict.fromkeys([*(parent for _, parent in pairs), *scopes.split()]):
        g.create_scope(scope, interface=OPEN)
    for child, parent in pairs:
        if child not in g:
            g.add_component(child)
        g.join(child, parent)
    return g


def event(kind: str = "", **attributes: Any) -> Notification:
    return Notification({"kind": kind, **attributes} if kind else attributes)


def kinds(*names: str) -> list[str]:
    """The filters of an interface that lets these kinds pass."""
    return [f"kind = '{name}'" for name in names]


def receivers(g: ScopeGraph, publisher: str, n: Notification, **options: Any) -> list[str]:
    """Who gets it, the publisher itself left out, sorted; as often as it is delivered."""
    found = g.deliveries(n, publisher, **options)
    return sorted(each.consumer for each in found if each.consumer != publisher)


def got(g: ScopeGraph, publisher: str, n: Notification, consumer: str) -> list[dict[str, Any]]:
    """The versions that one consumer gets."""
    found = g.deliveries(n, publisher)
    return [dict(each.notification) for each in found if each.consumer == consumer]


def wants(g: ScopeGraph, **subscriptions: str | bool | Iterable[str]) -> None:
    """Declare the subscriptions of components."""
    for name, filters in subscriptions.items():
        output = g.node(name).interface.output
        g.set_interface(name, Interface(Interface.of(filters).input, output))
