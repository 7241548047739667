"""The definitions of sheet 04 read literally: every path, every edge, one after the other.

Nothing here is shared with the router but the graph itself. A delivery path goes up some edges and
then down some, and passes no node twice (R-04.18, 04/T3). On each edge the parts of the effective
interface are asked in their order (R-04.43), and whatever arrives as ε ends the path.
"""

from collections.abc import Iterator
from itertools import pairwise

from stentor.model import Notification
from stentor.scopes import ScopeGraph


def paths(g: ScopeGraph, x: str) -> Iterator[tuple[str, ...]]:
    """All ways from x: up* down*, no node twice, along edges that carry notifications."""

    def down(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for child in g.node(path[-1]).children:
            if child not in path:
                yield (*path, child)
                yield from down((*path, child))

    def up(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        if len(path) > 1:
            yield from down(path)
        for parent in g.node(path[-1]).parents:
            yield from up((*path, parent))

    return up((x,))


def _passes(half, n: Notification, omitted: bool) -> bool:
    return omitted if half is None else any(each.matches(n) for each in half)


def _mapped(mapping, n: Notification, g: ScopeGraph) -> Notification | None:
    return n if mapping is None else mapping.apply(n, g.tables)


def travel(g: ScopeGraph, path: tuple[str, ...], n: Notification) -> Notification | None:
    """What arrives at the end of a path, or None."""
    for here, there in pairwise(path):
        upward = there in g.node(here).parents
        child, parent = (here, there) if upward else (there, here)
        node, edge = g.node(child), g.edge(child, parent)
        base = g.open_by_default or not node.is_scope
        own = [(node.interface, base), (edge.selective, True)]
        of_parent = [(edge.imposed, True), (g.node(parent).everyone, True)]
        if upward:
            if not all(_passes(i.output, n, omitted) for i, omitted in own):
                return None
            mapped = _mapped(edge.mapping.up, n, g)
            if mapped is None or not all(_passes(i.output, mapped, o) for i, o in of_parent):
                return None
        else:
            if not all(_passes(i.input, n, omitted) for i, omitted in of_parent):
                return None
            mapped = _mapped(edge.mapping.down, n, g)
            if mapped is None or not all(_passes(i.input, mapped, o) for i, o in own):
                return None
        n = mapped
    return n


def deliveries(g: ScopeGraph, x: str, n: Notification) -> list[tuple[str, Notification, tuple]]:
    """For each path that ends at a component and lets it pass: who gets what, and by which way."""
    found = []
    if g.self_delivery and _passes(g.node(x).interface.input, n, True):
        found.append((x, n, (x,)))
    for path in paths(g, x):
        if len(path) > 1 and not g.node(path[-1]).is_scope:
            arrived = travel(g, path, n)
            if arrived is not None:
                found.append((path[-1], arrived, path))
    return found


def related(g: ScopeGraph, x: str, n: Notification) -> set[tuple[Notification, str]]:
    """All (n', Y) with (n, x) ⇝ (n', Y), as Def 6.5 has it, without echoes."""
    found = {(n, x)}
    for path in paths(g, x):
        arrived = travel(g, path, n)
        if arrived is not None:
            found.add((arrived, path[-1]))
    return found
