"""Statements carried out on a scope graph: definitions, instances, and what becomes of them.

Two graphs meet here. Definitions are the descriptive one: nothing runs because of them. DEPLOY
makes an instance in the scope graph, ALTER changes definitions or instances, DROP removes them. A
statement that fails changes nothing.

How components become members. A component that is named in a selection may not be there yet: it is
a client that connects some day. So a selection of named components is a membership rule that waits
for these names, and a selection that is maintained on change (`MAINTAIN ON CHANGE`) is one that
waits for attributes; brokers keep both. All else is evaluated when it is deployed, and again when
`MAINTAIN` says so: see `Maintenance`. With `assume`, components that are named and defined nowhere
are taken to exist, so that a graph can be tried out without a network.

The superscopes of an instance are found first, because `*` among its members means the members of
these. Without any superscope it means all components there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from stentor.errors import InvalidScopeGraph, UnknownScope
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.language import syntax as s
from stentor.scopes.language.description import Description, describe
from stentor.scopes.language.edits import Edits
from stentor.scopes.language.placement import Ends, Instance, Placement
from stentor.scopes.language.selection import DEFINITIONS, Names, chosen
from stentor.scopes.language.translation import (
    MODEL,
    facts_filter,
    halves_of,
    interface_of,
    policy,
)
from stentor.scopes.policies import Kind

#: What the architecture clause may name; others are added with `register_architecture`.
ARCHITECTURES: Final = {"integrated", "brokerscope"}


def register_architecture(name: str) -> None:
    """Make another implementation of scopes known to `DEPLOY … ARCHITECTURE name(…)`."""
    ARCHITECTURES.add(name)


class Deployment:
    """A scope graph, the definitions behind it, and the statements that change both.

    >>> from stentor.scopes.language.parser import parse
    >>> d = Deployment(assume=True)
    >>> d.run(parse("DEFINE SCOPE market AS ALL FROM ticker, desk; DEPLOY market"))
    >>> d.graph.members("market")
    ('desk', 'ticker')
    """

    def __init__(
        self, graph: ScopeGraph | None = None, *, assume: bool = False, reflect: bool = False
    ) -> None:
        self.graph = ScopeGraph() if graph is None else graph
        self.definitions: dict[str, Description] = {}
        #: The statements that have made each definition what it is.
        self.said: dict[str, tuple[s.Statement, ...]] = {}
        self.instances: dict[str, Instance] = {}
        #: Whether definitions are abstract scopes of the graph, with their instances as members.
        self.reflect = reflect
        self._edits = Edits(self.graph)
        self._placement = Placement(self.graph, self._edits, self.instances, assume=assume)

    def whole(self) -> AbstractContextManager[None]:
        """What is done within is undone if it fails."""
        return self._edits.whole()

    # -- statements

    def run(self, script: s.Script, *, given: Mapping[str, str] | None = None) -> None:
        """Carry out all statements, or none; `given` has what SELF and TRIGGER mean."""
        with self._edits.whole():
            for statement in script.statements:
                self.carry_out(statement, given=given)

    def carry_out(self, statement: s.Statement, *, given: Mapping[str, str] | None = None) -> None:
        """One statement. If it fails, nothing has changed."""
        with self._edits.whole():
            match statement:
                case s.DefineScope():
                    self._define(statement)
                case s.DefineComponent():
                    self._define_components(statement)
                case s.DefineTable(name, columns, rows):
                    self._set_table(
                        name, {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
                    )
                case s.Deploy():
                    self.deploy(statement, given=given)
                case s.Alter():
                    self._alter(statement, given)
                case s.Drop(target):
                    self._drop(target, given)
                case s.Import(file):
                    raise InvalidScopeGraph(f"{file} was not read; load the file that imports it")

    def names(self, given: Mapping[str, str] | None = None) -> Names:
        return Names(self.graph, self.instances_of, given)

    def instances_of(self, definition: str) -> list[str]:
        return [id for id, each in self.instances.items() if each.definition == definition]

    # -- definitions

    def _define(self, statement: s.DefineScope) -> None:
        name = statement.name
        if name in self.definitions:
            raise InvalidScopeGraph(f"{name!r} is defined already; ALTER SCOPE changes it")
        if name == DEFINITIONS:
            raise InvalidScopeGraph(f"{name!r} is where definitions are found, and no name")
        self._replace_definition(name, describe(statement), (statement,))
        if self.reflect:
            id = f"{DEFINITIONS}::{name}"
            self._edits.create_scope(id, abstract=True)

    def _replace_definition(
        self, name: str, description: Description | None, said: tuple[s.Statement, ...] = ()
    ) -> None:
        before = self.definitions.get(name), self.said.get(name)
        _put_back(self.definitions, name, description)
        _put_back(self.said, name, said or None)

        def back() -> None:
            _put_back(self.definitions, name, before[0])
            _put_back(self.said, name, before[1])

        self._edits.undoing(back)

    def _define_components(self, statement: s.DefineComponent) -> None:
        halves: dict[str, tuple[s.WrittenFilter, ...]] = {}
        attributes: dict[str, Any] = {}
        roles: list[str] = []
        policies = []
        for clause in statement.clauses:
            match clause:
                case s.Interfaces():
                    halves |= halves_of(clause)
                case s.Roles(names):
                    roles += names
                case s.Set(assignments):
                    attributes |= dict(_constants(assignments))
                case s.Policy(kind, code):
                    policies.append((Kind(kind), policy(code)))
        interface = interface_of(halves, str(attributes.get(MODEL, "types")))
        for name in statement.names:
            self._edits.add_component(name, interface, attributes, roles)
            for kind, each in policies:
                self._edits.set_policy(name, kind, each)

    def _set_table(self, name: str, table: Mapping[Any, Mapping[str, Any]]) -> None:
        if name in self.graph.tables:
            raise InvalidScopeGraph(f"there is a table {name!r} already")
        self.graph.tables[name] = table
        self._edits.undoing(lambda: _put_back(self.graph.tables, name, None))

    # -- instances

    def deploy(self, statement: s.Deploy, *, given: Mapping[str, str] | None = None) -> str:
        """An instance of a definition; its id."""
        reference = statement.definition
        name = reference.path[-1]
        if reference.members or name not in self.definitions:
            hint = _near(name, self.definitions)
            raise UnknownScope(f"{reference.name!r} is not defined{hint}; write DEFINE SCOPE first")
        description = self.definitions[name].copy()
        description.add(statement.clauses)
        architecture = statement.architecture
        if architecture is not None and architecture.name not in ARCHITECTURES:
            raise InvalidScopeGraph(
                f"there is no architecture {architecture.name!r}; there are "
                f"{', '.join(sorted(ARCHITECTURES))}"
            )
        with self._edits.whole():
            return self._instantiate(
                name, statement.name or name, bool(statement.name), description, architecture, given
            )

    def _instantiate(
        self,
        definition: str,
        name: str,
        named: bool,
        description: Description,
        architecture: s.Architecture | None,
        given: Mapping[str, str] | None,
    ) -> str:
        names = self.names(given)
        above: dict[str, list[str]] = {}
        for label, selection in description.selections.items():
            if selection.superscopes:
                above[label] = chosen(
                    selection, self._placement.base(selection, "", (), names), self.graph.nodes
                )
        supers = list(dict.fromkeys(id for found in above.values() for id in found))
        id = self._free_id(name, named, supers)
        graph = self.graph
        self._edits.create_scope(id, name=name, abstract=description.abstract)
        graph.node(id).definition = definition
        instance = self.instances[id] = Instance(id, definition, description, architecture)
        self._edits.undoing(lambda: _put_back(self.instances, id, None))
        self._set_features(instance)
        for label, found in above.items():
            for scope in found:
                self._placement.join(instance, label, id, scope)
        if self.reflect:
            self._edits.join(id, f"{DEFINITIONS}::{definition}")
        for label, selection in description.selections.items():
            if not selection.superscopes:
                self._placement.select(instance, label, selection, names, supers)
        self._placement.check_mappings(id)
        return id

    def _free_id(self, name: str, named: bool, supers: list[str]) -> str:
        nodes = self.graph.nodes
        if name not in nodes:
            return name
        if named:
            beside = {child for each in supers for child in nodes[each].children}
            for each in supers:
                if f"{each}::{name}" not in nodes and name not in {nodes[c].name for c in beside}:
                    return f"{each}::{name}"
            raise InvalidScopeGraph(f"{name!r} is taken")
        number = 2
        while f"{name}#{number}" in nodes:
            number += 1
        return f"{name}#{number}"

    # -- features

    def _set_features(self, instance: Instance) -> None:
        graph, id, said = self.graph, instance.id, instance.description
        node = graph.scope(id)
        model = self._placement.model(instance)
        self._edits.keep_features(id)
        graph.set_interface(id, interface_of(said.halves, model))
        everyone = said.properties.get("*")
        graph.set_everyone(id, interface_of(everyone.halves if everyone else {}, model))
        graph.set_attributes(id, said.attributes, roles=said.roles)
        node.admits = None
        if said.admit is not None:
            node.admits = facts_filter(said.admit)
            if node.admits is None:
                raise InvalidScopeGraph("ADMIT asks for attributes and roles, not for interfaces")
        graph.set_once(id, said.once)
        for kind in Kind:
            code = said.policies.get(str(kind))
            self._edits.set_policy(id, kind, None if code is None else policy(code))

    # -- questions

    def base(self, selection: s.Selection) -> list[str]:
        """What a selection of superscopes chooses from."""
        return self._placement.base(selection, "", (), self.names())

    def agreement(self, instance: Instance) -> tuple[set[Ends], set[Ends]]:
        """The edges that the selections of an instance have made, and those they would make now."""
        return self._placement.agreement(instance, self.names({s.SELF: instance.id}))

    # -- changes

    def evaluate(self, instance: Instance) -> None:
        """All selections once more: members and superscopes are what they choose now."""
        with self._edits.whole():
            names = self.names({s.SELF: instance.id})
            for label in instance.description.selections:
                self._reselect(instance, label, names)

    def _alter(self, statement: s.Alter, given: Mapping[str, str] | None) -> None:
        reference = statement.target
        instance = self._instance(reference, given)
        if instance is None:
            name = reference.path[-1]
            description = self.definitions[name].copy()
            foreign = _changed(description, statement)
            if foreign:
                raise InvalidScopeGraph(f"the definition of {name!r} has no such selection")
            self._replace_definition(name, description, (*self.said[name], statement))
            return
        self.alter(instance, statement, given)

    def alter(
        self, instance: Instance, statement: s.Alter, given: Mapping[str, str] | None = None
    ) -> None:
        """Change an instance: features at once, new edges first, then those that are stale."""
        with self._edits.whole():
            before = instance.description
            said = before.copy()
            foreign = _changed(said, statement)
            instance.description = said
            self._edits.undoing(lambda: setattr(instance, "description", before))
            self._set_features(instance)
            names = self.names({s.SELF: instance.id, **(given or {})})
            for label in dict.fromkeys((*said.selections, *before.selections)):
                if not _same(label, before, said):
                    self._reselect(instance, label, names)
            for selection in foreign:
                self._deselect(instance, selection, names)
            if before.maps != said.maps:
                self._remap(instance)
            self._placement.check_mappings(instance.id)
            for edge in list(self.graph.node(instance.id).parents.values()):
                self._edits.complete(edge)

    def _remap(self, instance: Instance) -> None:
        for edge in list(self.graph.node(instance.id).parents.values()):
            # Whoever drew the edge says what is put on it; a subscope brings its own mapping along.
            for drawer in (instance, self.instances.get(edge.parent.id, instance)):
                labels = [e for e in edge.labels if e in drawer.description.selections]
                if labels or drawer is not instance:
                    label = labels[0] if labels else ""
                    _, mapping = self._placement.terms(drawer, label, instance.id)
                    self._edits.set_mapping(edge, mapping)
                    break

    def _reselect(self, instance: Instance, label: str, names: Names) -> None:
        """A selection that is new, changed or gone."""
        graph, id = self.graph, instance.id
        selection = instance.description.selections.get(label)
        stale = {(e.child.id, e.parent.id): e for e in self._placement.selected(instance, label)}
        for rule in graph.rules.of_scope(id):
            if rule.label.rstrip() == label:
                self._edits.remove_rule(rule)
        if selection is not None and selection.superscopes:
            for scope in chosen(
                selection, self._placement.base(selection, id, (), names), self.graph.nodes
            ):
                self._placement.join(instance, label, id, scope)
                stale.pop((id, scope), None)
        elif selection is not None:
            supers = list(graph.node(id).parents)
            kept = set(
                chosen(
                    selection, self._placement.base(selection, id, supers, names), self.graph.nodes
                )
            )
            self._placement.select(instance, label, selection, names, supers)
            stale = {ends: edge for ends, edge in stale.items() if ends[0] not in kept}
        for edge in stale.values():
            if label in edge.labels:
                self._edits.leave(edge, label)

    def _deselect(self, instance: Instance, selection: s.Selection, names: Names) -> None:
        """DEL of a selection that is no part of it: those neighbors go, whatever brought them."""
        id = instance.id
        base = self._placement.base(selection, id, list(self.graph.node(id).parents), names)
        node = self.graph.node(id)
        edges = node.parents if selection.superscopes else node.children
        for other in chosen(selection, [each for each in base if each in edges], self.graph.nodes):
            self._edits.leave(edges[other])

    def _drop(self, target: s.Reference, given: Mapping[str, str] | None) -> None:
        instance = self._instance(target, given)
        if instance is None:
            name = target.path[-1]
            if self.instances_of(name):
                raise InvalidScopeGraph(f"{name!r} has instances; DROP these first")
            self._replace_definition(name, None)
            return
        # A scope that goes takes its edges with it; each of them comes back if this fails.
        node = self.graph.node(instance.id)
        for edge in (*node.children.values(), *node.group_members.values()):
            self._edits.leave(edge)
        rules = self.graph.rules.of_scope(instance.id)
        for edge in (*node.parents.values(), *node.groups.values()):
            self._edits.leave(edge)
        self.graph.destroy_scope(instance.id)
        del self.instances[instance.id]

        def back() -> None:
            self.graph.create_scope(instance.id, name=node.name, abstract=node.abstract)
            self.graph.node(instance.id).definition = instance.definition
            self.instances[instance.id] = instance
            self._set_features(instance)
            for rule in rules:
                self.graph.add_rule(rule)

        self._edits.undoing(back)

    def _instance(self, reference: s.Reference, given: Mapping[str, str] | None) -> Instance | None:
        """The instance that is meant, or None for a definition."""
        if reference.path[0] != DEFINITIONS:
            try:
                (found,) = self.names(given).resolve(reference)
            except UnknownScope:
                if reference.members or reference.path[-1] not in self.definitions:
                    raise
                return None
            except ValueError:
                raise InvalidScopeGraph(f"MEMBERS({reference.name}) is not one scope") from None
            if found not in self.instances:
                raise InvalidScopeGraph(f"{found!r} was not made by DEPLOY")
            return self.instances[found]
        if reference.path[-1] not in self.definitions:
            raise UnknownScope(f"{reference.path[-1]!r} is not defined")
        return None


def _changed(description: Description, statement: s.Alter) -> list[s.Selection]:
    match statement.mode:
        case "add":
            description.add(statement.clauses, extend=True)
        case "del":
            return description.remove(statement.clauses)
        case _:
            description.replace(statement.clauses)
    return []


def _same(label: str, before: Description, after: Description) -> bool:
    return (
        before.selections.get(label) == after.selections.get(label)
        and before.edges(label) == after.edges(label)
        and before.maintain == after.maintain
    )


def _constants(assignments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in assignments:
        if isinstance(value, s.Name):
            raise InvalidScopeGraph(f"{value.name} is bound to nothing here; set a constant")
        yield name, value


def _near(name: str, known: Iterable[str]) -> str:
    from stentor.notation.document import near

    return near(name, known).rstrip(";")


def _put_back(table: dict[Any, Any], key: Any, before: Any) -> None:
    if before is None:
        table.pop(key, None)
    else:
        table[key] = before
