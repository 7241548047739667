"""A scope graph as text: each scope with its members below it, and what is put on the edges.

A node that belongs to several scopes stands below each of them; what is inside of it is drawn once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from stentor.filters import Filter
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import Half, Interface, typed
from stentor.scopes.mappings import ContentMapping, NotificationMapping
from stentor.scopes.nodes import Edge, Node

#: How many members of a scope are drawn, and how long a filter may be.
MAX_MEMBERS: Final = 40
_LONGEST: Final = 48
_TYPE: Final = re.compile(r"\btype = '((?:[^']|'')+)'")


def draw(graph: ScopeGraph) -> str:
    """The whole graph.

    >>> g = ScopeGraph()
    >>> g.create_scope("market", interface=Interface.of(output=typed("Quote")))
    >>> g.add_component("ticker"); g.join("ticker", "market")
    >>> print(draw(g))
    [market]  out: Quote
    └── ticker
    """
    drawn: set[str] = set()
    lines: list[str] = []
    roots = [node for node in graph.nodes.values() if not node.parents and not node.groups]
    for node in sorted(roots, key=lambda each: (not each.is_scope, each.id)):
        if node.is_scope:
            lines.append(_node_line(graph, node))
            lines += _below(graph, node, "", drawn)
    return "\n".join(lines)


def _below(graph: ScopeGraph, node: Node, indent: str, drawn: set[str]) -> Iterator[str]:
    if node.id in drawn:
        return
    drawn.add(node.id)
    edges = sorted(
        (*node.children.values(), *node.group_members.values()),
        key=lambda edge: (edge.child.is_scope, edge.child.id),
    )
    shown = edges[:MAX_MEMBERS]
    for number, edge in enumerate(shown):
        last = number == len(edges) - 1
        again = " …" if edge.child.id in drawn and edge.child.children else ""
        terms = "".join(f"  {each}" for each in edge_words(edge))
        yield f"{indent}{'└── ' if last else '├── '}{_node_line(graph, edge.child)}{terms}{again}"
        yield from _below(graph, edge.child, indent + ("    " if last else "│   "), drawn)
    if len(edges) > len(shown):
        yield f"{indent}└── and {len(edges) - len(shown):,} more"


def _node_line(graph: ScopeGraph, node: Node) -> str:
    name = f"[{node.id}]" if node.is_scope else node.id
    words = (*node_words(node), *rule_words(graph, node.id))
    return "  ".join([f"({node.id})" if node.abstract else name, *words])


def rule_words(graph: ScopeGraph, id: str) -> list[str]:
    """Who becomes a member by what they say of themselves; named members are drawn when present."""
    return [
        f"members: {filter_words(rule.where)}"
        for rule in graph.rules.of_scope(id)
        if "_id" not in rule.where.names
    ]


def node_words(node: Node) -> list[str]:
    """What is to be known of a node: its interface, policies and roles."""
    words = _interface_words(node.interface)
    words += [f"everyone {each}" for each in _interface_words(node.everyone)]
    words += [f"{kind}: {policy_words(policy)}" for kind, policy in node.policies.items()]
    if node.once:
        words.append("duplicates: once")
    if node.admits is not None:
        words.append(f"admits: {filter_words(node.admits)}")
    if node.roles:
        words.append("roles: " + ", ".join(sorted(node.roles)))
    return words


def policy_words(policy: object) -> str:
    """A policy and what it was given, as short as it can be said.

    >>> from stentor.scopes import policy_of
    >>> policy_words(policy_of("delay", ("15m",)))
    'delay(900.0)'
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(policy).__name__).lower()
    values = [getattr(policy, each) for each in getattr(policy, "__struct_fields__", ())]
    shown = [str(value) for value in values if value not in ("", (), False, None, 0)]
    return f"{name}({', '.join(shown)})" if shown else name


def edge_words(edge: Edge) -> list[str]:
    """What the two ends have put on an edge."""
    words = [f"selective {each}" for each in _interface_words(edge.selective)]
    words += [f"imposed {each}" for each in _interface_words(edge.imposed)]
    for arrow, mapping in (("↑", edge.mapping.up), ("↓", edge.mapping.down)):
        if mapping is not None:
            words.append(f"map {arrow} {mapping_words(mapping)}")
    return words


def mapping_words(mapping: NotificationMapping) -> str:
    """The attributes that a mapping changes, or the name of its function."""
    if not isinstance(mapping, ContentMapping):
        given = mapping.function
        return given if isinstance(given, str) else getattr(given, "__name__", "a function")
    words = [name for name, _ in mapping.set] + [f"-{name}" for name in mapping.drop]
    if mapping.keep is not None:
        words.append("only " + ", ".join(mapping.keep))
    return ", ".join(words) or "nothing"


def _interface_words(interface: Interface) -> list[str]:
    return [
        f"{word}: {half_words(half)}"
        for word, half in (("in", interface.input), ("out", interface.output))
        if half is not None
    ]


def half_words(half: Half) -> str:
    """One half of an interface as it would be written."""
    if not half:
        return "1" if half is None else "0"
    return ", ".join("1" if each.is_always else filter_words(each) for each in half)


def filter_words(filter: Filter) -> str:
    """A filter, or the event type that it stands for."""
    text = str(filter)
    name = type_name(filter)
    if name is not None:
        return name
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def type_name(filter: Filter) -> str | None:
    """The event type that a filter stands for, if it was made of one.

    >>> type_name(typed("Quote")), type_name(Filter("x > 1"))
    ('Quote', None)
    """
    text = str(filter)
    found = _TYPE.search(text) if len(text) < 200 else None
    name = found[1].replace("''", "'") if found is not None else ""
    try:
        return name if name and typed(name) == filter else None
    except ValueError:  # not the name of a type after all
        return None
