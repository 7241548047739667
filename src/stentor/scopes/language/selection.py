"""Which nodes a name means, and which nodes a selection takes.

A name is looked for in the scope where it is used, then in its superscopes, level by level; the
nearest wins, and two at the same distance are an error (05/4.3). What is not found there is looked
for in the whole graph, by its id first. `a::b` is the member `b` of `a`, and `definitions::x` the
definition, whose members are its instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from stentor.errors import InvalidScopeGraph, UnknownScope
from stentor.notation.document import near
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.language import syntax as s
from stentor.scopes.language.translation import called, condition
from stentor.scopes.nodes import Node

DEFINITIONS: Final = "definitions"


class Names:
    """The names of a graph, as they are seen from one of its scopes.

    `given` has what SELF and TRIGGER mean, and `instances` the instances of each definition.
    """

    def __init__(
        self,
        graph: ScopeGraph,
        instances: Callable[[str], Iterable[str]] = lambda _: (),
        given: Mapping[str, str] | None = None,
    ) -> None:
        self._graph = graph
        self._instances = instances
        self._given = dict(given or {})

    def resolve(self, reference: s.Reference, at: Iterable[str] = ()) -> list[str]:
        """The nodes that a reference means, seen from some scopes; without MEMBERS it is one."""
        path = reference.path
        if path[0] == DEFINITIONS and len(path) == 2 and reference.members:
            found = list(self._instances(path[1]))
            return self._members(found, reference.members - 1)
        first = self._given.get(path[0]) or self.find(path[0], at)
        for step in path[1:]:
            first = self._step(first, step)
        return self._members([first], reference.members)

    def find(self, name: str, at: Iterable[str] = ()) -> str:
        """The node of a name, seen from some scopes."""
        nodes = self._graph.nodes
        if name in (s.SELF, s.TRIGGER):
            raise UnknownScope(f"{name} means something only within UPDATE")
        found: set[str] = {*self._graph.named(name), *([name] if name in nodes else ())}
        if len(found) == 1:  # it is that one, wherever it is
            return found.pop()
        frontier = {id: nodes[id] for id in at if found and id in nodes}
        seen: set[str] = set()
        while frontier:
            hits = {
                each.id
                for scope in frontier.values()
                for each in (scope, *_below(scope))
                if each.name == name
            }
            if hits:
                return self._one(name, hits)
            seen |= frontier.keys()
            frontier = {
                edge.parent.id: edge.parent
                for scope in frontier.values()
                for edge in (*scope.parents.values(), *scope.groups.values())
                if edge.parent.id not in seen
            }
        if name in nodes:
            return name
        if not found:
            hint = near(name, nodes) if len(nodes) < 2_000 else ""
            raise UnknownScope(f"there is no scope or component {name!r}{hint.rstrip(';')}")
        return self._one(name, found)

    def _one(self, name: str, hits: set[str]) -> str:
        if len(hits) > 1:
            some = ", ".join(sorted(hits)[:5])
            raise UnknownScope(
                f"{name!r} is ambiguous: {some}; write the path, such as scope::{name}"
            )
        return next(iter(hits))

    def _step(self, scope: str, name: str) -> str:
        hits = {each.id for each in _below(self._graph.scope(scope)) if each.name == name}
        if not hits:
            raise UnknownScope(f"{scope!r} has no member {name!r}")
        return self._one(name, hits)

    def _members(self, found: list[str], times: int) -> list[str]:
        for _ in range(times):
            below = (
                child.id for id in found for child in _below(self._graph.nodes[id])
            )  # simple ones have none
            found = list(dict.fromkeys(below))
        return found


def _below(scope: Node) -> list[Node]:
    return [edge.child for edge in (*scope.children.values(), *scope.group_members.values())]


def chosen(selection: s.Selection, base: Iterable[str], nodes: Mapping[str, Node]) -> list[str]:
    """What a selection takes of its base set: WHERE for each, then the qualifier.

    Fewer than the least number is an error; of more than the most, the first by id are taken.
    """
    holds = condition(selection.where)
    found = sorted(id for id in set(base) if holds(nodes[id]))
    match selection.qualifier:
        case s.Top(rank, k, descending):
            return sorted(found, key=_rank(rank, descending, nodes))[:k]
        case s.Range(least, most):
            if least is not None and len(found) < least:
                raise InvalidScopeGraph(
                    f"the selection {selection.label or 'of ' + _what(selection)} needs at least "
                    f"{least} and finds {len(found)}"
                )
            return found[:most]
    return found


def _rank(
    rank: str | s.Call, descending: bool, nodes: Mapping[str, Node]
) -> Callable[[str], tuple[float, str]]:
    """Those without the attribute come last, ties are by id."""
    value = called(rank) if isinstance(rank, s.Call) else lambda facts: facts.get(rank)

    def place(id: str) -> tuple[float, str]:
        found = value(nodes[id].facts)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return float("inf"), id
        return (-found if descending else found), id

    return place


def _what(selection: s.Selection) -> str:
    return "superscopes" if selection.superscopes else "members"
