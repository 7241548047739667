"""Statements on a graph that stands already, as brokers have it.

A `Deployment` knows what was said of each scope that it has made, selection by selection. Brokers
keep only what has come of it: scopes, edges and rules. So DEFINE and DEPLOY add to such a graph as
to any other, and ALTER and DROP of a scope that stands work on what is there. Interfaces are
compared by what they let pass, however that was written; members by WHERE are a rule, since clients
come and go. What needs to know more, such as a label, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stentor.errors import InvalidScopeGraph, UnknownScope
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import EVERYTHING, Half, Interface
from stentor.scopes.language import syntax as s
from stentor.scopes.language.automation import automate
from stentor.scopes.language.checks import check_for_brokers
from stentor.scopes.language.composition import compose
from stentor.scopes.language.deployment import Deployment
from stentor.scopes.language.description import Description, label_of
from stentor.scopes.language.placement import Instance
from stentor.scopes.language.printer import format_clause
from stentor.scopes.language.selection import DEFINITIONS, Names
from stentor.scopes.language.translation import (
    MODEL,
    facts_filter,
    halves_of,
    interface_of,
    notification_mapping,
    policy,
)
from stentor.scopes.mappings import EdgeMapping
from stentor.scopes.nodes import NO_MAPPING, Node
from stentor.scopes.policies import Kind

_AGAIN: Final = "change its file, and deploy that"


def alter(graph: ScopeGraph, text: str) -> None:
    """Carry out statements on a graph that stands.

    >>> g = ScopeGraph.loads("DEFINE SCOPE market AS ALL FROM ticker; DEPLOY market")
    >>> alter(g, "ALTER SCOPE market ADD ALL FROM desk; ALTER SCOPE market INTERFACES OUTPUT(1)")
    >>> g.members("market")
    ('ticker', 'desk')
    """
    found, standing = compose("", text), Standing(graph)
    found.deploy(standing)
    check_for_brokers(found, standing)
    automate(standing)


class Standing(Deployment):
    """A deployment to a graph with scopes that it has not made."""

    def __init__(self, graph: ScopeGraph, *, assume: bool = True) -> None:
        super().__init__(graph, assume=assume)
        #: Scopes that were there before, of definitions that are known.
        self._adopted: set[str] = set()

    def adopt(self) -> None:
        """Count scopes that stand as instances of the definitions that they were made from."""
        for id, node in self.graph.nodes.items():
            description = self.definitions.get(node.definition or "")
            if description is not None and id not in self.instances:
                self.instances[id] = Instance(id, node.definition or "", description, None)
                self._adopted.add(id)

    def _standing(self, reference: s.Reference, given: Mapping[str, str] | None) -> Node | None:
        """The scope that is meant, if it was there before."""
        if reference.path[0] == DEFINITIONS or reference.members:
            return None
        try:
            (id,) = self.names(given).resolve(reference)
        except UnknownScope:
            if reference.path[-1] in self.definitions:
                return None
            raise
        is_new = id in self.instances and id not in self._adopted
        return None if is_new else self.graph.scope(id)

    def _drop(self, target: s.Reference, given: Mapping[str, str] | None) -> None:
        if target.path[0] == DEFINITIONS and target.path[-1] not in self.definitions:
            if self.graph.automation.pop(f"update {target.path[-1]}", None) is None:
                raise UnknownScope(f"brokers know no rules of a definition {target.path[-1]!r}")
            return
        node = self._standing(target, given)
        if node is None:
            super()._drop(target, given)
        else:
            self.graph.destroy_scope(node.id, force=True)

    def _alter(self, statement: s.Alter, given: Mapping[str, str] | None) -> None:
        node = self._standing(statement.target, given)
        if node is None:
            super()._alter(statement, given)
            return
        maps: dict[str, s.Map] = {}
        for clause in statement.clauses:
            if isinstance(clause, s.Map):
                maps[clause.direction] = clause
            else:
                self._change(node, statement.mode, clause)
        if maps:
            self._remap_standing(node, statement.mode, maps)
        for edge in [*node.parents.values(), *node.children.values()]:
            self._edits.complete(edge)

    def _change(self, node: Node, mode: str, clause: s.Clause) -> None:
        graph, id, gone = self.graph, node.id, mode == "del"
        match clause:
            case s.Selection():
                self._select(node, mode, clause)
            case s.Interfaces():
                graph.set_interface(id, self._interface(node, node.interface, mode, clause))
            case s.Labelled("*", s.Properties(interfaces, ())) if interfaces is not None:
                found = self._interface(node, node.everyone, mode, interfaces, imposed=True)
                graph.set_everyone(id, found)
            case s.Labelled(label):
                raise InvalidScopeGraph(
                    f"brokers do not know which members of {id!r} the label {label!r} stands for; "
                    f"{_AGAIN}"
                )
            case s.Roles(names):
                roles = node.roles - set(names) if gone else {*names}
                roles = node.roles | roles if mode == "add" else roles
                graph.set_attributes(id, node.attributes, roles=roles)
            case s.Set(assignments):
                attributes = {**node.attributes, **({} if gone else dict(assignments))}
                for name, _ in assignments if gone else ():
                    attributes.pop(name, None)
                graph.set_attributes(id, attributes)
            case s.Admit(where):
                admits = None if gone else facts_filter(where)
                if admits is None and not gone:
                    raise InvalidScopeGraph("ADMIT asks for attributes and roles, and no more")
                node.admits = admits
            case s.Duplicates():
                graph.set_once(id, not gone)
            case s.Policy(kind, code):
                graph.set_policy(id, Kind(kind), None if gone else policy(code))
            case _:
                raise InvalidScopeGraph(f"brokers do not carry out {format_clause(clause)}")

    def _interface(
        self,
        node: Node,
        before: Interface,
        mode: str,
        clause: s.Interfaces,
        *,
        imposed: bool = False,
    ) -> Interface:
        """An interface with filters more or less, or with others in place of those it had."""
        given = interface_of(halves_of(clause), str(node.attributes.get(MODEL, "types")))

        def changed(old: Half, new: Half, direction: str) -> Half:
            if new is None or mode not in ("add", "del"):
                return old if new is None else new
            if mode == "add":
                if EVERYTHING in (old, new):
                    return EVERYTHING
                return tuple(dict.fromkeys((*(old or ()), *new)))
            missing = [each for each in new if each not in (old or ())]
            if missing:
                there = ", ".join(map(str, old)) if old else "nothing"
                there = "everything" if old == EVERYTHING else there
                raise InvalidScopeGraph(
                    f"the {direction} interface of {node.id!r} does not have {missing[0]}: it lets "
                    f"{there} pass"
                )
            left = tuple(each for each in old or () if each not in new)
            # The last filter of an imposed half leaves it open.
            return None if imposed and not left else left

        return Interface(
            changed(before.input, given.input, "input"),
            changed(before.output, given.output, "output"),
        )

    def _select(self, node: Node, mode: str, selection: s.Selection) -> None:
        if mode not in ("add", "del"):
            raise InvalidScopeGraph("write ADD or DEL before a selection; brokers know no labels")
        if not isinstance(selection.qualifier, s.All):
            raise InvalidScopeGraph(
                f"who is chosen by {format_clause(selection)} is decided when a file is deployed; "
                "name the members, or deploy the file again"
            )
        names, supers = self.names({s.SELF: node.id}), list(node.parents)
        if mode == "del":
            self._deselected(node, selection, names)
            return
        there = node.parents if selection.superscopes else node.children
        at = (node.id,)
        known = () if selection.properties else selection.base or ()
        for id in (id for reference in known for id in self._found(reference, names, at)):
            if id in there and self._adopted:
                return  # a rule has seen it twice before the first was carried out
            if id in there:
                raise InvalidScopeGraph(f"{_edge_words(node, id, selection)} already")
        by_rule = selection.where is not None or selection.base is None
        said = Description(
            attributes=dict(node.attributes),
            selections={label_of(selection): selection},
            maintain=s.Maintain("change" if by_rule and not selection.superscopes else "once"),
        )
        instance = Instance(node.id, node.definition or "", said, None)
        label = label_of(selection)
        if selection.superscopes:
            found = self._placement.base(selection, node.id, (), names)
            for scope in found:
                self._placement.join(instance, label, node.id, scope)
        else:
            self._placement.select(instance, label, selection, names, supers)

    def _found(self, reference: s.Reference, names: Names, at: tuple[str, ...]) -> list[str]:
        try:
            return names.resolve(reference, at)
        except UnknownScope:
            return []

    def _deselected(self, node: Node, selection: s.Selection, names: Names) -> None:
        there = node.parents if selection.superscopes else node.children
        before = len(there) + len(self.graph.rules.of_scope(node.id))
        where = None if selection.where is None else facts_filter(selection.where)
        for rule in self.graph.rules.of_scope(node.id) if not selection.superscopes else ():
            if rule.label.rstrip() == label_of(selection) or (
                selection.base is None and where is not None and rule.where == where
            ):
                self._edits.remove_rule(rule)
        said = Description(selections={label_of(selection): selection})
        self._deselect(Instance(node.id, "", said, None), selection, names)
        if len(there) + len(self.graph.rules.of_scope(node.id)) == before:
            raise InvalidScopeGraph(f"{node.id!r} has nothing like {format_clause(selection)}")

    def _remap_standing(self, node: Node, mode: str, maps: Mapping[str, s.Map]) -> None:
        up, down = (
            notification_mapping(maps[each].by) if each in maps else None
            for each in ("outward", "inward")
        )
        if not node.parents:
            raise InvalidScopeGraph(f"{node.id!r} is in no scope, so nothing crosses its boundary")
        for edge in list(node.parents.values()):
            self._edits.set_mapping(edge, NO_MAPPING if mode == "del" else EdgeMapping(up, down))


def _edge_words(node: Node, other: str, selection: s.Selection) -> str:
    child, parent = (node.id, other) if selection.superscopes else (other, node.id)
    return f"{child!r} is a member of {parent!r}"
