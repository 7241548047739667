"""Changes of a scope graph that are made together or not at all.

Each change notes how to take it back. If one of them fails, all are taken back in reverse order, so
a statement that goes wrong in its middle leaves the graph as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from stentor.errors import InvalidScopeGraph
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import OMITTED, Interface
from stentor.scopes.mappings import EdgeMapping, undo
from stentor.scopes.membership import MembershipRule
from stentor.scopes.nodes import NO_MAPPING, Edge
from stentor.scopes.policies import Custom, Kind, Policy


class Edits:
    """The changes of one graph.

    >>> graph = ScopeGraph()
    >>> edits = Edits(graph)
    >>> try:
    ...     with edits.whole():
    ...         edits.create_scope("market")
    ...         edits.join("market", "world")
    ... except KeyError as error:
    ...     print(error)
    there is no scope or component 'world'
    >>> "market" in graph
    False
    """

    def __init__(self, graph: ScopeGraph) -> None:
        self.graph = graph
        self._undo: list[Callable[[], object]] | None = None

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What happens within is undone if it fails. The outermost one decides."""
        if self._undo is not None:
            yield
            return
        steps = self._undo = []
        try:
            yield
        except BaseException:
            self._undo = None
            for step in reversed(steps):
                step()
            raise
        finally:
            self._undo = None

    def undoing(self, step: Callable[[], object]) -> None:
        """How to take back what was just done."""
        if self._undo is not None:
            self._undo.append(step)

    # -- nodes

    def create_scope(self, id: str, *, name: str = "", abstract: bool = False) -> None:
        self.graph.create_scope(id, name=name, abstract=abstract)
        self.undoing(lambda: self.graph.destroy_scope(id, force=True))

    def add_component(
        self,
        name: str,
        interface: Interface = OMITTED,
        attributes: Mapping[str, Any] | None = None,
        roles: Iterable[str] = (),
    ) -> None:
        self.graph.add_component(name, interface=interface, attributes=attributes, roles=roles)
        self.undoing(lambda: self.graph.remove_component(name))

    def set_policy(self, id: str, kind: Kind, policy: Policy | Custom | None) -> None:
        before = self.graph.node(id).policies.get(kind)
        if policy != before:
            self.graph.set_policy(id, kind, policy)
            self.undoing(lambda: self.graph.set_policy(id, kind, before))

    def keep_features(self, id: str) -> None:
        """From here on, the features of a scope may be changed."""
        graph, node = self.graph, self.graph.scope(id)
        before = (node.interface, node.everyone, dict(node.attributes), node.roles, node.admits)
        once = node.once

        def back() -> None:
            graph.set_interface(id, before[0])
            graph.set_everyone(id, before[1])
            graph.set_attributes(id, before[2], roles=before[3])
            node.admits = before[4]
            graph.set_once(id, once)

        self.undoing(back)

    # -- edges

    def join(
        self,
        child: str,
        parent: str,
        *,
        selective: Interface | None = None,
        imposed: Interface | None = None,
        mapping: EdgeMapping = NO_MAPPING,
        label: str = "",
    ) -> None:
        """An edge, on these terms. What others have put on it stays where nothing else is said."""
        node = self.graph.node(child)
        known = node.parents.get(parent) or node.groups.get(parent)
        self._remember(known, child, parent)
        if known is not None and known.labels - {label}:
            selective = None if selective == OMITTED else selective
            imposed = None if imposed == OMITTED else imposed
        self.graph.join(
            child,
            parent,
            selective=selective,
            imposed=imposed,
            mapping=mapping if mapping != NO_MAPPING or known is None else None,
            label=label,
        )
        self.complete(self.graph.edge(child, parent))

    def leave(self, edge: Edge, label: str | None = None) -> None:
        """An edge goes, or one of the reasons for it."""
        self._remember(edge, edge.child.id, edge.parent.id)
        self.graph.leave(edge.child.id, edge.parent.id, label=label)

    def set_mapping(self, edge: Edge, mapping: EdgeMapping) -> None:
        self._remember(edge, edge.child.id, edge.parent.id)
        self.graph.set_edge(edge.child.id, edge.parent.id, mapping=mapping)
        self.complete(edge)

    def _remember(self, edge: Edge | None, child: str, parent: str) -> None:
        """How to make an edge again what it is now."""
        graph = self.graph
        was = None
        if edge is not None:
            was = (edge.selective, edge.imposed, edge.mapping, set(edge.labels))

        def back() -> None:
            if child not in graph or parent not in graph:
                return
            if parent in graph.parents(child):
                graph.leave(child, parent)
            if was is not None:
                selective, imposed, mapping, labels = was
                graph.join(child, parent, selective=selective, imposed=imposed, mapping=mapping)
                graph.edge(child, parent).labels = labels

        self.undoing(back)

    def complete(self, edge: Edge) -> None:
        """A mapping of one direction: the other is derived, or nothing goes there (R-05.33)."""
        up, down = edge.mapping.up, edge.mapping.down
        if (up is None) == (down is None):
            return
        known = up or down
        assert known is not None
        other = undo(known)
        if other is None and self._passes(edge, upward=up is None):
            there, back = ("OUTWARD", "INWARD") if down is None else ("INWARD", "OUTWARD")
            raise InvalidScopeGraph(
                f"{edge.child.id} → {edge.parent.id} is mapped {there} and the way back cannot be "
                f"derived: write MAP {back} too, or close it with an interface"
            )
        mapping = EdgeMapping(up or other, down or other)
        self.graph.set_edge(edge.child.id, edge.parent.id, mapping=mapping)

    def _passes(self, edge: Edge, *, upward: bool) -> bool:
        """Whether anything could cross the edge in that direction."""
        base = edge.child.interface
        halves = (base, edge.selective, edge.imposed, edge.parent.everyone)
        found = [each.output if upward else each.input for each in halves]
        closed_base = found[0] is None and edge.child.is_scope and not self.graph.open_by_default
        return not closed_base and () not in found

    # -- rules

    def add_rule(self, rule: MembershipRule) -> None:
        """A rule; of a mapping in one direction the other is derived."""
        up, down = rule.mapping.up, rule.mapping.down
        if (up is None) != (down is None):
            rule = _completed(rule)
        graph, key = self.graph, rule.key
        for edge in self._found(rule):
            self._remember(edge, edge.child.id, rule.scope)
        graph.add_rule(rule)
        self.undoing(lambda: graph.remove_rule(*key))

    def _found(self, rule: MembershipRule) -> list[Edge]:
        """The edges that a rule finds, and on which it may put something else."""
        scope = self.graph.scope(rule.scope)
        edges = (*scope.children.values(), *scope.group_members.values())
        return [each for each in edges if rule.where.matches(each.child.facts)]

    def remove_rule(self, rule: MembershipRule) -> None:
        self.graph.remove_rule(*rule.key)
        self.undoing(lambda: self.graph.add_rule(rule))


def _completed(rule: MembershipRule) -> MembershipRule:
    up, down = rule.mapping.up, rule.mapping.down
    known = up or down
    assert known is not None
    other = undo(known)
    closed = rule.imposed.output if up is None else rule.imposed.input
    if other is None and closed != ():
        raise InvalidScopeGraph(
            f"members of {rule.scope} are mapped in one direction, and the other cannot be derived:"
            " write both, or close it with an interface"
        )
    return replace(rule, mapping=EdgeMapping(up or other, down or other))
