"""Where an instance stands in the graph: what its selections mean, as edges and as rules.

A selection of named components is a membership rule that waits for them, unless they are assumed to
exist; one that is maintained on change is a rule as well, which the graph follows. All else is
evaluated now. Superscopes are found first, because `*` among the members means the members of
these; without any superscope it means all components there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from stentor.errors import UnknownScope
from stentor.filters import Filter
from stentor.filters.expression import Atom
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import Interface
from stentor.scopes.language import syntax as s
from stentor.scopes.language.description import Description
from stentor.scopes.language.edits import Edits
from stentor.scopes.language.selection import Names, chosen
from stentor.scopes.language.translation import (
    MODEL,
    facts_filter,
    interface_of,
    notification_mapping,
    policy,
)
from stentor.scopes.mappings import EdgeMapping
from stentor.scopes.membership import MembershipRule
from stentor.scopes.nodes import NO_MAPPING, Edge, Node
from stentor.scopes.policies import Kind


class Instance:
    """A deployed scope: what it was made from, and what is said of it now."""

    __slots__ = ("architecture", "definition", "description", "evaluated", "id", "open")

    def __init__(
        self,
        id: str,
        definition: str,
        description: Description,
        architecture: s.Architecture | None,
    ) -> None:
        self.id = id
        self.definition = definition
        self.description = description
        self.architecture = architecture
        #: Names of components that its selections wait for.
        self.open: set[str] = set()
        #: Attributes as they were when its selections were last evaluated, by node.
        self.evaluated: dict[str, Mapping[str, Any]] = {}


#: What the labels of rules end with, beside that of their selection: an edge that is there because
#: of a rule is told from one that was drawn when the selection was evaluated.
NAMED: Final = " "
FOUND: Final = "  "
#: A member and its scope.
Ends: TypeAlias = tuple[str, str]


class Placement:
    """The edges and rules of instances in one graph.

    With `assume`, components that are named and not there are taken to exist.
    """

    def __init__(
        self, graph: ScopeGraph, edits: Edits, instances: Mapping[str, Instance], *, assume: bool
    ) -> None:
        self.graph = graph
        self._edits = edits
        self._instances = instances
        self._assume = assume

    @property
    def _nodes(self) -> Mapping[str, Node]:
        return self.graph.nodes

    def base(
        self, selection: s.Selection, id: str, supers: Iterable[str], names: Names
    ) -> list[str]:
        """The set that WHERE is asked of; names that nothing has are left out."""
        nodes = self.graph.nodes
        if selection.base is None:
            if selection.superscopes:
                return [e for e, n in nodes.items() if n.is_scope and not n.abstract and e != id]
            if not supers:
                return [each for each, node in nodes.items() if not node.is_scope]
            above = self._above(id) if id else set()
            members = (child for each in supers for child in nodes[each].children)
            return [each for each in dict.fromkeys(members) if each not in above]
        found: list[str] = []
        at = (id,) if id else ()
        for reference in selection.base:
            try:
                found += names.resolve(reference, at)
            except UnknownScope:
                if selection.superscopes or not self._is_open(reference, names, at):
                    raise
        if selection.superscopes:
            for each in found:
                self.graph.scope(each)
        return list(dict.fromkeys(found))

    def _is_open(self, reference: s.Reference, names: Names, at: Iterable[str]) -> bool:
        """Whether it is a name that some component may have one day."""
        if reference.members or len(reference.path) > 1 or reference.path[0] in (s.SELF, s.TRIGGER):
            return False
        return not self.graph.named(reference.path[0])

    def _above(self, id: str) -> set[str]:
        found = {id}
        ahead = [id]
        while ahead:
            for parent in self.graph.parents(ahead.pop()):
                if parent not in found:
                    found.add(parent)
                    ahead.append(parent)
        return found

    def select(
        self,
        instance: Instance,
        label: str,
        selection: s.Selection,
        names: Names,
        supers: list[str],
    ) -> None:
        """Members by a selection: those that are there now, and rules for those that will be."""
        open_names = self._open_names(selection, names, instance.id)
        if open_names and self._assume:
            for name in open_names:
                self._edits.add_component(name)
        instance.open |= set(open_names)
        base = self.base(selection, instance.id, supers, names)
        ruled: set[str] = set()
        for rule in self._rules(instance, label, selection, names, supers, open_names):
            self._edits.add_rule(rule)
            ids = self.graph.rules.ids_of(rule)
            ruled |= set(base if ids is None else ids)
        ruled = {id for id in ruled if id in self._nodes and not self._nodes[id].is_scope}
        for id in chosen(selection, base, self._nodes):
            if id not in ruled:
                self.join(instance, label, id, instance.id)
        instance.evaluated |= {id: dict(self._nodes[id].attributes) for id in base}

    def _open_names(self, selection: s.Selection, names: Names, id: str) -> list[str]:
        return [
            reference.path[0]
            for reference in selection.base or ()
            if self._is_open(reference, names, (id,))
        ]

    def _rules(
        self,
        instance: Instance,
        label: str,
        selection: s.Selection,
        names: Names,
        supers: list[str],
        open_names: list[str],
    ) -> list[MembershipRule]:
        """The rules that stand for a selection, as far as it can be said by rules."""
        if not isinstance(selection.qualifier, s.All):
            return []
        where = Filter() if selection.where is None else facts_filter(selection.where)
        if where is None:
            return []
        maintained = instance.description.maintain.when == "change"
        found = []
        named = {
            id
            for reference in selection.base or ()
            if not reference.members and reference.path[0] != s.TRIGGER
            for id in self._resolved(reference, names, instance.id)
            if not self._nodes[id].is_scope
        } | set(open_names)
        # Components that are known, or assumed to exist, need no rule that waits for them.
        if named and (not self._assume or (maintained and selection.where is not None)):
            who = Filter.of_expression(Atom("_id", "in", tuple(sorted(named))))
            found.append(self._rule(instance, label + NAMED, who & where, maintained))
        if maintained:
            among: tuple[str, ...] | None = tuple(supers) if selection.base is None else None
            scopes = [
                id
                for reference in selection.base or ()
                if reference.members == 1
                for id in names.resolve(s.Reference(reference.path), (instance.id,))
            ]
            if scopes:
                among = tuple(scopes)
            if among is not None:
                found.append(self._rule(instance, label + FOUND, where, True, among))
        return found

    def _resolved(self, reference: s.Reference, names: Names, at: str) -> list[str]:
        try:
            return names.resolve(reference, (at,))
        except UnknownScope:
            return []

    def _rule(
        self,
        instance: Instance,
        label: str,
        where: Filter,
        maintained: bool,
        among: tuple[str, ...] = (),
    ) -> MembershipRule:
        interface, mapping = self.terms(instance, label.rstrip(), None)
        return MembershipRule(
            instance.id,
            where,
            label,
            imposed=interface,
            mapping=mapping,
            among=among,
            maintained=maintained,
        )

    def terms(
        self, instance: Instance, label: str, child: str | None
    ) -> tuple[Interface, EdgeMapping]:
        """What a selection puts on its edges; a subscope brings the mapping of its own along."""
        edges = instance.description.edges(label)
        interface = interface_of(edges.halves, self.model(instance))
        maps = edges.maps
        if not maps and child in self._instances:
            maps = self._instances[str(child)].description.maps
        if not maps:
            return interface, NO_MAPPING
        up, down = (
            notification_mapping(maps[each]) if each in maps else None
            for each in ("outward", "inward")
        )
        return interface, EdgeMapping(up, down)

    def model(self, instance: Instance) -> str:
        return str(instance.description.attributes.get(MODEL, "types"))

    def join(self, instance: Instance, label: str, child: str, parent: str) -> None:
        upward = child == instance.id
        interface, mapping = self.terms(instance, label, child)
        self._edits.join(
            child,
            parent,
            selective=interface if upward else None,
            imposed=None if upward else interface,
            mapping=mapping,
            label=label,
        )
        publishing = instance.description.edges(label).policies.get("publishing")
        if publishing is not None and not upward:
            self._edits.set_policy(child, Kind.PUBLISHING, policy(publishing))

    def check_mappings(self, id: str) -> None:
        """Edges of rules are made by the graph, which derives nothing."""
        for edge in list(self.graph.scope(id).children.values()):
            self._edits.complete(edge)

    def selected(self, instance: Instance, label: str) -> list[Edge]:
        node = self.graph.node(instance.id)
        edges = (*node.parents.values(), *node.children.values(), *node.groups.values())
        return [each for each in edges if label in each.labels]

    def agreement(self, instance: Instance, names: Names) -> tuple[set[Ends], set[Ends]]:
        """The edges that the selections of an instance have made, and those they would make now."""
        there: set[Ends] = set()
        wanted: set[Ends] = set()
        supers = list(self._nodes[instance.id].parents)
        for label, selection in instance.description.selections.items():
            for each in (label, label + NAMED, label + FOUND):
                there |= {(e.child.id, e.parent.id) for e in self.selected(instance, each)}
            base = self.base(selection, instance.id, supers, names)
            for id in chosen(selection, base, self._nodes):
                ends = (instance.id, id) if selection.superscopes else (id, instance.id)
                wanted.add(ends)
        return there, wanted
