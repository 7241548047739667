"""Collapsed filters: interfaces along every path between two components, as one filter (05/§4.7).

Without mappings and policies, whether a consumer gets what a publisher says depends on nothing but
the notification. On one path it has to pass every interface, and one path is enough; so the
answer is a filter. `collapsed` works it out for one publisher and everybody: scopes first upwards,
each after its members, then downwards, each after its superscopes. A scope is looked at once for
each direction, so diamonds cost nothing, and the filters that meet in a scope are united there.

    up(S)    what is internal to S: up(C) and the edge's output, for each member C
    down(S)  what comes into S: up(T) or down(T), and the edge's input, for each superscope T

What comes in never climbs (R-04.18), which is why the two are kept apart. Echoes make no
difference where only filters are met (04/P4), and are left out.

A medium that knows filters only, such as a table, needs no scopes any more: the publisher's name
leads to the filters, and these to the consumers. What a change of the graph costs is the whole
answer for the publishers above whom it happens, so this is for graphs that stand still for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from stentor.errors import InvalidScopeGraph
from stentor.filters import Filter
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import Half
from stentor.scopes.nodes import Edge, Node

_EVERYTHING = Filter()


def collapsed(graph: ScopeGraph, publisher: str) -> dict[str, Filter]:
    """Who could get something from a publisher, and a filter that matches just what each gets.

    >>> from stentor.scopes import Interface
    >>> g = ScopeGraph()
    >>> g.create_scope("market", interface=Interface.of(output="kind = 'trade'"))
    >>> g.create_scope("world")
    >>> g.join("market", "world")
    >>> for name, scope in [("ticker", "market"), ("desk", "market"), ("reader", "world")]:
    ...     g.add_component(name)
    ...     g.join(name, scope)
    >>> g.set_interface("reader", Interface.of(input="price > 100"))
    >>> {name: str(filter) for name, filter in sorted(collapsed(g, "ticker").items())}
    {'desk': 'true', 'reader': "kind = 'trade' and price > 100", 'ticker': 'true'}
    """
    if not graph.is_plain:
        raise InvalidScopeGraph(
            "the graph has mappings or policies, which filters cannot say; ask for its deliveries"
        )
    start = graph.node(publisher)
    up = _upwards(graph, start)
    found: dict[str, Filter] = {}
    if graph.self_delivery and not start.is_scope:
        found[publisher] = _filter(start.interface.input, omitted=True)
    for node, filter in _downwards(graph, up):
        if node is not start:
            found[node.id] = filter
    return {id: filter for id, filter in found.items() if filter.conjuncts}


def _upwards(graph: ScopeGraph, start: Node) -> dict[str, Filter]:
    """What becomes internal to each scope above."""
    above = {id: graph.nodes[id] for id in graph.ancestors(start.id)}
    up: dict[str, Filter] = {start.id: _EVERYTHING}
    for node in _sorted(above, lambda each: (e.child for e in each.children.values())):
        if node is start:
            continue
        up[node.id] = _any(
            up[edge.child.id] & _outwards(graph, edge)
            for edge in node.children.values()
            if edge.child.id in up
        )
    if not start.is_scope:
        del up[start.id]  # nothing is internal to a simple component
    return {id: filter for id, filter in up.items() if filter.conjuncts}


def _downwards(graph: ScopeGraph, up: dict[str, Filter]) -> Iterator[tuple[Node, Filter]]:
    """Each simple component that something comes down to, and what."""
    below: dict[str, Node] = {}
    ahead = [graph.nodes[id] for id in up]
    while ahead:
        node = ahead.pop()
        if node.id not in below:
            below[node.id] = node
            ahead += [edge.child for edge in node.children.values()]
    visible: dict[str, Filter] = {}
    for node in _sorted(below, lambda each: (e.parent for e in each.parents.values())):
        incoming = _any(
            visible[edge.parent.id] & _inwards(graph, edge)
            for edge in node.parents.values()
            if edge.parent.id in visible
        )
        if not node.is_scope:
            yield node, incoming
            continue
        visible[node.id] = incoming if node.id not in up else up[node.id] | incoming


def _outwards(graph: ScopeGraph, edge: Edge) -> Filter:
    child = edge.child
    return _all(
        _filter(child.interface.output, omitted=graph.open_by_default or not child.is_scope),
        _filter(edge.selective.output, omitted=True),
        _filter(edge.imposed.output, omitted=True),
        _filter(edge.parent.everyone.output, omitted=True),
    )


def _inwards(graph: ScopeGraph, edge: Edge) -> Filter:
    child = edge.child
    return _all(
        _filter(edge.parent.everyone.input, omitted=True),
        _filter(edge.imposed.input, omitted=True),
        _filter(edge.selective.input, omitted=True),
        _filter(child.interface.input, omitted=graph.open_by_default or not child.is_scope),
    )


def _filter(half: Half, *, omitted: bool) -> Filter:
    if half is None:
        return _EVERYTHING if omitted else Filter.of_conjuncts(())
    return _any(half)


def _any(filters: Iterable[Filter]) -> Filter:
    conjuncts = [conjunct for each in filters for conjunct in each.conjuncts]
    return Filter.of_conjuncts(conjuncts)


def _all(*filters: Filter) -> Filter:
    found = _EVERYTHING
    for each in filters:
        if not each.is_always:
            found = each if found.is_always else found & each
    return found


def _sorted(nodes: dict[str, Node], before: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """The nodes, each after those that come before it and are among them."""
    found: dict[str, Node] = {}
    ahead = [(node, False) for node in reversed(nodes.values())]
    while ahead:
        node, ready = ahead.pop()
        if node.id in found or node.id not in nodes:
            continue
        if ready:
            found[node.id] = node
        else:
            ahead.append((node, True))
            ahead += [(each, False) for each in before(node) if each.id in nodes]
    return list(found.values())
