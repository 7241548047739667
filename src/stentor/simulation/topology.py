"""Shapes of overlays: reading them, and refusing those that cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stentor.errors import DuplicateBroker, InvalidTopology
from stentor.routing.graph.paths import Edge
from stentor.routing.protocol import BrokerId


def brokers_of(edges: Iterable[Edge], more: Iterable[BrokerId] = ()) -> list[BrokerId]:
    """All brokers that are mentioned, in that order; those given alone must be new.

    >>> brokers_of([(1, 2), (2, 3)])
    [1, 2, 3]
    """
    found: dict[BrokerId, None] = {}
    for edge in edges:
        for broker in _ends(edge):
            check_id(broker)
            found[broker] = None
    for broker in more:
        check_id(broker)
        if broker in found:
            raise DuplicateBroker(f"the broker {broker!r} is given twice; ids must differ")
        found[broker] = None
    return list(found)


def check_id(broker: object) -> None:
    if type(broker) not in (int, str):
        raise InvalidTopology(f"{broker!r} is not a broker id; ids are integers or strings")


def _ends(edge: object) -> tuple[Any, ...]:
    if not isinstance(edge, tuple | list) or len(edge) != 2:
        raise InvalidTopology(f"{edge!r} is not a link; a link is a pair of broker ids")
    return tuple(edge)


def check_edges(edges: Sequence[Edge]) -> None:
    """No link from a broker to itself, none twice."""
    seen: set[frozenset[BrokerId]] = set()
    for a, b in edges:
        if a == b:
            raise InvalidTopology(f"the link {a!r}-{b!r} leads from a broker to itself")
        if frozenset((a, b)) in seen:
            raise InvalidTopology(f"the link {a!r}-{b!r} is given twice")
        seen.add(frozenset((a, b)))


def check_connected(brokers: Sequence[BrokerId], edges: Sequence[Edge]) -> None:
    if not brokers:
        raise InvalidTopology("a network needs at least one broker")
    reached = reachable(brokers[0], edges)
    if len(reached) < len(brokers):
        cut_off = [broker for broker in brokers if broker not in reached]
        raise InvalidTopology(
            f"there is no way from {brokers[0]!r} to {', '.join(map(repr, cut_off))}; add links"
        )


def check_tree(brokers: Sequence[BrokerId], edges: Sequence[Edge]) -> None:
    """Connected and without cycles."""
    check_edges(edges)
    joined = {broker: broker for broker in brokers}

    def top(broker: BrokerId) -> BrokerId:
        while joined[broker] != broker:
            joined[broker] = joined[joined[broker]]
            broker = joined[broker]
        return broker

    for a, b in edges:
        if top(a) == top(b):
            raise InvalidTopology(
                f"the link {a!r}-{b!r} closes a cycle; take one of its links away, "
                "or use Network.graph, which routes on cycles"
            )
        joined[top(a)] = top(b)
    check_connected(brokers, edges)


def reachable(start: BrokerId, edges: Iterable[Edge]) -> set[BrokerId]:
    beside = adjacent(edges)
    found, todo = {start}, [start]
    while todo:
        for broker in beside.get(todo.pop(), ()):
            if broker not in found:
                found.add(broker)
                todo.append(broker)
    return found


def behind(
    broker: BrokerId, seen_from: BrokerId, beside: Mapping[BrokerId, Sequence[BrokerId]]
) -> list[BrokerId]:
    """The brokers of a tree that lie in the direction of this neighbor."""
    found, todo = [], [(broker, seen_from)]
    while todo:
        at, came_from = todo.pop()
        found.append(at)
        todo.extend((other, at) for other in beside[at] if other != came_from)
    return found


def adjacent(edges: Iterable[Edge]) -> dict[BrokerId, list[BrokerId]]:
    beside: dict[BrokerId, list[BrokerId]] = {}
    for a, b in edges:
        beside.setdefault(a, []).append(b)
        beside.setdefault(b, []).append(a)
    return beside


def parents(edges: Sequence[Edge], root: BrokerId | None) -> dict[BrokerId, BrokerId]:
    """Each broker's parent, in the tree of these links.

    Without a root, links are read as (parent, child); if they do not agree on one root that way,
    it has to be named.

    >>> parents([(1, 2), (1, 3), (3, 4)], None)
    {2: 1, 3: 1, 4: 3}
    """
    if root is None:
        children = [child for _, child in edges]
        tops = [b for b in dict.fromkeys(parent for parent, _ in edges) if b not in children]
        if len(tops) != 1 or len(set(children)) < len(children):
            raise InvalidTopology(
                "the links, read as (parent, child), do not lead to one root; give root=..."
            )
        (root,) = tops
    beside = adjacent(edges)
    if edges and root not in beside:
        raise InvalidTopology(f"the root {root!r} is not among the brokers")
    found: dict[BrokerId, BrokerId] = {}
    todo = [root]
    while todo:
        parent = todo.pop(0)
        for child in beside.get(parent, ()):
            if child != found.get(parent):
                found[child] = parent
                todo.append(child)
    return found


def path(start: BrokerId, end: BrokerId, edges: Iterable[Edge]) -> list[BrokerId]:
    """The way from one broker to another in a tree; empty if there is none."""
    beside = adjacent(edges)
    came_from: dict[BrokerId, BrokerId | None] = {start: None}
    todo = [start]
    while todo:
        broker = todo.pop()
        for other in beside.get(broker, ()):
            if other not in came_from:
                came_from[other] = broker
                todo.append(other)
    if end not in came_from:
        return []
    way: list[BrokerId] = []
    at: BrokerId | None = end
    while at is not None:
        way.append(at)
        at = came_from[at]
    return way[::-1]


def children_of(parents: Mapping[BrokerId, BrokerId], broker: BrokerId) -> frozenset[BrokerId]:
    return frozenset(child for child, parent in parents.items() if parent == broker)
