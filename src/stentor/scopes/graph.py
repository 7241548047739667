"""The scope graph: components, scopes, memberships, and every change to them.

The graph is acyclic, only scopes have members, and a change that would break this raises
`InvalidScopeGraph` and changes nothing (04/P19). Nothing is computed ahead: visibility and
dissemination follow edges when they are asked, so a change costs what its own edge takes, plus, for
a new edge, a look at the scopes above it for a cycle. Rules are tested for the one component that
appeared or changed.

Components that belong to no scope see only themselves (04/A2). With `default_scope`, they are
members of that scope as long as they are in no other: the flat service of today (R-05.105).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from stentor.errors import InvalidScopeGraph, UnknownScope
from stentor.filters import Filter
from stentor.model import Notification
from stentor.notation.document import near
from stentor.scopes.crossing import Interests
from stentor.scopes.dissemination import Delivery, Dissemination, Outcome, Postponed
from stentor.scopes.expressions import Table
from stentor.scopes.interfaces import OMITTED, OPEN, Interface
from stentor.scopes.mappings import EdgeMapping
from stentor.scopes.membership import MembershipRule, MembershipRules
from stentor.scopes.nodes import FEATURES, NO_MAPPING, Edge, Node
from stentor.scopes.policies import Custom, Delay, Hold, Kind, Policy, looked_at

MODES: Final = ("version", "origin", "per_path")
#: How many notifications policies may hold back at once.
MAX_POSTPONED: Final = 100_000
#: What ids of nodes that stand for others begin with, and no name has in it.
RESERVED: Final = "\0"
#: The label of an edge that was made by hand, and of one to the default scope.
BY_HAND: Final = ""
BY_DEFAULT: Final = "default scope"


class ScopeGraph:
    """Scopes and components: who is visible to whom, and who gets what.

    >>> from stentor.scopes.interfaces import typed
    >>> g = ScopeGraph()
    >>> g.create_scope("market", interface=Interface.of(output=typed("Quote")))
    >>> g.create_scope("world")
    >>> g.join("market", "world")
    >>> for name, scope in [("ticker", "market"), ("desk", "market"), ("reader", "world")]:
    ...     g.add_component(name)
    ...     g.join(name, scope)
    >>> g.visible("ticker", "reader")
    True
    >>> [d.consumer for d in g.deliveries({"type": "Quote", "price": 5}, publisher="ticker")]
    ['ticker', 'desk', 'reader']
    >>> [d.consumer for d in g.deliveries({"type": "Draft"}, publisher="ticker")]
    ['ticker', 'desk']

    `open_by_default` makes omitted base interfaces of scopes open, which is the plain model of
    Def 6.3. `leaf_only` allows only nodes without members to join and leave (R-04.24).
    """

    def __init__(
        self,
        *,
        open_by_default: bool = False,
        default_scope: str | None = None,
        duplicates: str = "version",
        self_delivery: bool = True,
        leaf_only: bool = False,
    ) -> None:
        if duplicates not in MODES:
            raise InvalidScopeGraph(f"duplicates={duplicates!r}: choose from {', '.join(MODES)}")
        self.nodes: dict[str, Node] = {}
        self._ids: dict[str, dict[str, None]] = {}
        self.open_by_default = open_by_default
        self.duplicates = duplicates
        self.self_delivery = self_delivery
        self.leaf_only = leaf_only
        self.tables: dict[str, Table] = {}
        self.rules = MembershipRules()
        #: Records of definitions that brokers automate; the graph itself does nothing with them.
        self.automation: dict[str, Any] = {}
        #: What stateful policies remember, by scope and kind of policy.
        self.policy_states: dict[tuple[str, Kind], Any] = {}
        #: What policies hold back; `advance` and released holds take it from here.
        self.postponed: list[Postponed] = []
        #: Rises with every change of structure, interfaces, mappings or policies.
        self.epoch = 0
        #: Called with "join" or "leave", the member and the scope, after an edge came or went.
        self.watchers: list[Callable[[str, str, str], None]] = []
        #: Nodes with a policy, and the ids of ports.
        self.policed: dict[str, None] = {}
        self.ports: set[str] = set()
        #: As of which epoch it is known what policies ask about the way.
        self._looked_at: tuple[int, frozenset[str] | None] | None = None
        self._mapped: dict[str, dict[str, None]] = {}
        self._special = self._translated = self._delaying = 0
        self.default_scope = default_scope
        if default_scope is not None:
            self.create_scope(default_scope, interface=OPEN)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> ScopeGraph:
        """The graph that a file of the scope graph language deploys, with the components it names.

        `options` are those of the constructor. See docs/scopes.md for the language.
        """
        from stentor.scopes.language import Deployment, load

        return load(path, deployment=Deployment(cls(**options), assume=True)).graph

    @classmethod
    def loads(cls, text: str, **options: Any) -> ScopeGraph:
        """The same for a text.

        >>> g = ScopeGraph.loads("DEFINE SCOPE market AS ALL FROM ticker; DEPLOY market")
        >>> g.members("market")
        ('ticker',)
        """
        from stentor.scopes.language import Deployment, compose

        deployment = Deployment(cls(**options), assume=True)
        compose("", text).deploy(deployment)
        return deployment.graph

    # -- as a value that can be copied and sent

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the watchers; nodes and edges in lists, so that depth does not matter."""
        state = self.__dict__ | {"watchers": []}
        nodes = state.pop("nodes").values()
        state["_nodes"] = [{each: getattr(node, each) for each in FEATURES} for node in nodes]
        state["_edges"] = [
            (edge.child.id, edge.parent.id, edge.selective, edge.imposed, edge.mapping, edge.labels)
            for node in nodes
            for edge in (*node.parents.values(), *node.groups.values())
        ]
        # The order of members counts as well, where a policy chooses or a path is as long.
        state["_members"] = {n.id: (*n.children, *n.group_members) for n in nodes if n.is_scope}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        nodes, edges, members = (state.pop(each) for each in ("_nodes", "_edges", "_members"))
        epoch, special, translated = (state[each] for each in ("epoch", "_special", "_translated"))
        self.__dict__.update(state)
        self.nodes = {}
        for features in nodes:
            node = Node(features["id"], is_scope=features["is_scope"])
            for name, value in features.items():
                setattr(node, name, value)
            self.nodes[node.id] = node
        for child, parent, *terms in edges:
            self._link(Edge(self.nodes[child], self.nodes[parent], *terms))
        for scope, order in members.items():
            node = self.nodes[scope]
            for table in (node.children, node.subscopes, node.group_members):
                for member in order:
                    if member in table:
                        table[member] = table.pop(member)
        self.epoch, self._special, self._translated = epoch, special, translated

    # -- questions about structure

    def __contains__(self, id: object) -> bool:
        return id in self.nodes

    def node(self, id: str) -> Node:
        """The node, or `UnknownScope`."""
        found = self.nodes.get(id)
        if found is None:
            # To look for a name that is alike takes long among very many.
            hint = near(id, self.nodes) if len(self.nodes) < 2_000 else ""
            raise UnknownScope(f"there is no scope or component {id!r}{hint.rstrip(';')}")
        return found

    def named(self, name: str) -> Iterable[str]:
        """All nodes that have this name."""
        return self._ids.get(name, ())

    def scope(self, id: str) -> Node:
        """The scope, or an error if it is none."""
        found = self.node(id)
        if not found.is_scope:
            raise InvalidScopeGraph(f"{id!r} is a simple component and can have no members")
        return found

    def edge(self, child: str, parent: str) -> Edge:
        """The edge of a membership, or an error."""
        node = self.node(child)
        found = node.parents.get(parent) or node.groups.get(parent)
        if found is None:
            raise UnknownScope(f"{child!r} is not a member of {parent!r}")
        return found

    def parents(self, id: str) -> tuple[str, ...]:
        """The scopes that it is a direct member of, abstract ones included."""
        node = self.node(id)
        return (*node.parents, *node.groups)

    def members(self, id: str) -> tuple[str, ...]:
        """The direct members, in the order in which they joined."""
        node = self.scope(id)
        return (*node.children, *node.group_members)

    def siblings(self, id: str) -> set[str]:
        """Those that share a superscope with it."""
        node = self.node(id)
        return {m for edge in node.parents.values() for m in edge.parent.children} - {id}

    def ancestors(self, id: str) -> set[str]:
        """Itself and all scopes above it along which notifications travel."""
        found = {id: self.node(id)}
        ahead = [found[id]]
        while ahead:
            for edge in ahead.pop().parents.values():
                if edge.parent.id not in found:
                    found[edge.parent.id] = edge.parent
                    ahead.append(edge.parent)
        return set(found)

    def is_below(self, id: str, scope: str) -> bool:
        """Whether it is a member of the scope, directly or not (`◁*`)."""
        return id != scope and self._reaches_up(self.node(id), scope)

    def roots(self, id: str) -> set[str]:
        """The visibility roots: the topmost of its ancestors."""
        return {each for each in self.ancestors(id) if not self.nodes[each].parents}

    def visible(self, one: str, other: str) -> bool:
        """Whether two components, or scopes, have a common superscope (Def 6.2).

        Interfaces, mappings and policies may still keep everything apart; `deliveries` tells.
        """
        return not self.ancestors(one).isdisjoint(self.ancestors(other))

    def minimal(self) -> set[str]:
        """Nodes without members."""
        return {id for id, node in self.nodes.items() if not node.children}

    def maximal(self) -> set[str]:
        """Nodes that are in no scope: the roots."""
        return {id for id, node in self.nodes.items() if not node.parents and not node.abstract}

    def mapped_members(self, scope: str) -> Iterable[str]:
        """The simple members of a scope on whose edge something is translated."""
        return self._mapped.get(scope, ())

    @property
    def is_plain(self) -> bool:
        """Whether there are neither mappings nor policies anywhere."""
        return not self._special

    @property
    def has_mappings(self) -> bool:
        """Whether something is translated on any edge."""
        return self._translated > 0

    @property
    def has_delays(self) -> bool:
        """Whether a policy may put something off."""
        return self._delaying > 0

    @property
    def has_policies(self) -> bool:
        """Whether anything chooses among those that interfaces let something pass to."""
        return bool(self.policed)

    @property
    def looked_at(self) -> frozenset[str] | None:
        """The scopes of which policies ask whether something has passed them; None for any."""
        if self._looked_at is None or self._looked_at[0] != self.epoch:
            policies = (p for id in self.policed for p in self.nodes[id].policies.values())
            self._looked_at = self.epoch, looked_at(policies)
        return self._looked_at[1]

    @property
    def has_once(self) -> bool:
        """Whether a scope lets only the first version of a notification in."""
        return any(node.once for node in self.nodes.values())

    # -- questions about notifications

    def deliveries(
        self,
        notification: Notification | Mapping[str, Any],
        publisher: str,
        *,
        interests: Interests | None = None,
        now: float = 0.0,
        **options: Any,
    ) -> list[Delivery]:
        """Who gets it, in which version, over which way, if it is published now.

        Stateful policies take it as published: round robin goes on to the next. What they hold
        back is in `postponed` afterwards; see `advance`. Subscriptions are the declared inputs of
        components, where an omitted one wants everything, or what `interests` says. `outcome` asks
        the same without leaving a trace.
        """
        found = self.outcome(notification, publisher, interests=interests, now=now, **options)
        return self.settle(found, interests=interests, now=now)

    def outcome(
        self,
        notification: Notification | Mapping[str, Any],
        publisher: str,
        *,
        interests: Interests | None = None,
        now: float = 0.0,
        explain: bool = False,
        echo: bool = False,
        duplicates: str | None = None,
    ) -> Outcome:
        """All that would become of a publication; changes nothing. Make it so with `commit`."""
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        return Dissemination(
            self, interests=interests, now=now, explain=explain, echo=echo, duplicates=duplicates
        ).publish(publisher, notification)

    def commit(self, outcome: Outcome) -> None:
        """Policies remember what they decided in `outcome`, and hold back what they put off."""
        self.policy_states.update(outcome.states)
        if len(self.postponed) + len(outcome.postponed) > MAX_POSTPONED:
            raise InvalidScopeGraph(
                f"policies hold back {MAX_POSTPONED:,} notifications already; release some first"
            )
        self.postponed += outcome.postponed

    def advance(self, now: float, *, interests: Interests | None = None) -> list[Delivery]:
        """What was delayed and is due by now, as far as it may still be delivered."""
        due = sorted(
            (each for each in self.postponed if each.until is not None and each.until <= now),
            key=lambda each: each.until or 0.0,
        )
        self.postponed = [each for each in self.postponed if each not in due]
        return [d for each in due for d in self._resumed(each, interests, now)]

    def settle(
        self, found: Outcome, *, interests: Interests | None = None, now: float = 0.0
    ) -> list[Delivery]:
        """Commit an outcome; what it delivers, with what it sets free of what was held."""
        self.commit(found)
        deliveries = list(found.deliveries)
        for key, go_on in found.released:
            free = [each for each in self.postponed if each.key == key]
            self.postponed = [each for each in self.postponed if each.key != key]
            if go_on:
                for each in free:
                    deliveries += self._resumed(each, interests, now)
        return deliveries

    def _resumed(
        self, waiting: Postponed, interests: Interests | None, now: float
    ) -> list[Delivery]:
        found = Dissemination(self, interests=interests, now=now).resume(waiting)
        return self.settle(found, interests=interests, now=now)

    # -- changes of structure

    def create_scope(
        self,
        id: str,
        *,
        name: str = "",
        interface: Interface = OMITTED,
        everyone: Interface = OMITTED,
        attributes: Mapping[str, Any] | None = None,
        roles: Iterable[str] = (),
        abstract: bool = False,
        policies: Mapping[Kind, Policy | Custom] | None = None,
        once: bool = False,
        admits: Filter | None = None,
    ) -> None:
        """`cscope`: a scope of its own, closed to the outside unless `interface` opens it."""
        node = self._new(id, is_scope=True, name=name, abstract=abstract)
        node.interface, node.everyone, node.admits = interface, everyone, admits
        node.attributes.update(attributes or {})
        node.roles = frozenset(roles)
        self.nodes[id] = node
        self._ids.setdefault(node.name, {})[id] = None
        self.epoch += 1
        self.set_once(id, once)
        for kind, policy in (policies or {}).items():
            self.set_policy(id, kind, policy)

    def add_component(
        self,
        id: str,
        *,
        name: str = "",
        interface: Interface = OMITTED,
        attributes: Mapping[str, Any] | None = None,
        roles: Iterable[str] = (),
    ) -> None:
        """A simple component appears; rules decide which scopes it becomes a member of."""
        node = self._new(id, is_scope=False, name=name)
        node.interface = interface
        node.attributes.update(attributes or {})
        node.roles = frozenset(roles)
        self.nodes[id] = node
        self._ids.setdefault(node.name, {})[id] = None
        self.epoch += 1
        self._follow_rules(node, appears=True)

    def remove_component(self, id: str) -> None:
        """A simple component is gone, and with it its memberships."""
        node = self.node(id)
        if node.is_scope:
            raise InvalidScopeGraph(f"{id!r} is a scope; destroy it")
        for edge in [*node.parents.values(), *node.groups.values()]:
            self._unlink(edge)
        self._forget(node)

    def add_port(
        self, id: str, rule: MembershipRule, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Something that stands for all whom a rule takes in, and is given what they are given.

        It is no component: rules do not look at it, and it has no name in the graph. Policies see
        these attributes of it.
        """
        scope = self.scope(rule.scope)
        port = Node(id, is_scope=False)
        port.attributes.update(attributes or {})
        edge = Edge(port, scope, rule.selective, rule.imposed, rule.mapping)
        if edge.carries:
            self.ports.add(id)
            scope.children[id] = edge
            self._count_mapping(edge, 1)

    def remove_port(self, id: str, scope: str) -> None:
        """Nothing stands for them any longer."""
        edge = self.scope(scope).children.pop(id, None)
        self.ports.discard(id)
        if edge is not None:
            self._count_mapping(edge, -1)

    def destroy_scope(self, id: str, *, force: bool = False) -> None:
        """`dscope`: an empty scope goes; with `force`, its members leave it first."""
        node = self.scope(id)
        if id == self.default_scope:
            raise InvalidScopeGraph(f"{id!r} is the default scope and cannot be destroyed")
        below = [*node.children.values(), *node.group_members.values()]
        if below and not force:
            raise InvalidScopeGraph(f"{id!r} has members; let them leave first, or use force")
        for rule in self.rules.of_scope(id):
            self.rules.remove(rule.key)
        for edge in [*below, *node.parents.values(), *node.groups.values()]:
            self._unlink(edge)
        self._forget(node)
        for edge in below:
            self._default(edge.child)

    def join(
        self,
        child: str,
        parent: str,
        *,
        selective: Interface | None = None,
        imposed: Interface | None = None,
        mapping: EdgeMapping | None = None,
        label: str = BY_HAND,
    ) -> None:
        """`jscope`: the child becomes a member; if it is one, what is given replaces what was."""
        member, scope = self.node(child), self.scope(parent)
        known = member.parents.get(parent) or member.groups.get(parent)
        if known is None:
            self._check_join(member, scope)
            known = Edge(member, scope)
            self._link(known)
        known.labels.add(label)
        self.set_edge(child, parent, selective=selective, imposed=imposed, mapping=mapping)
        self._follow_members(member, parent)
        if scope.id != self.default_scope:
            self._default(member)

    def leave(self, child: str, parent: str, *, label: str | None = None) -> None:
        """`lscope`: the child is a member no longer; with a label, unless others keep it there."""
        edge = self.edge(child, parent)
        if self.leaf_only and edge.child.children:
            raise InvalidScopeGraph(f"{child!r} has members; only leaves may leave a scope here")
        if label is not None:
            edge.labels.discard(label)
            if edge.labels:
                return
        self._unlink(edge)
        self._follow_members(edge.child, parent)
        self._default(edge.child)

    def set_edge(
        self,
        child: str,
        parent: str,
        *,
        selective: Interface | None = None,
        imposed: Interface | None = None,
        mapping: EdgeMapping | None = None,
    ) -> None:
        """Replace what the two ends have put on an edge; None leaves it as it is."""
        edge = self.edge(child, parent)
        if selective is not None:
            edge.selective = selective
        if imposed is not None:
            edge.imposed = imposed
        if mapping is not None:
            self._count_mapping(edge, -1)
            edge.mapping = mapping
            self._count_mapping(edge, 1)
        self.epoch += 1

    # -- changes of features

    def set_interface(self, id: str, interface: Interface) -> None:
        """Replace the base interface."""
        self.node(id).interface = interface
        self.epoch += 1

    def set_everyone(self, id: str, interface: Interface) -> None:
        """Replace what a scope imposes on every member."""
        self.scope(id).everyone = interface
        self.epoch += 1

    def set_policy(self, id: str, kind: Kind, policy: Policy | Custom | None) -> None:
        """Put a policy on a scope, or on a component for publishing; None takes it off."""
        node = self.node(id)
        if not node.is_scope and kind is not Kind.PUBLISHING:
            raise InvalidScopeGraph(f"{id!r} is not a scope and can only have a publishing policy")
        self._special += (policy is not None) - (kind in node.policies)
        before = node.policies.pop(kind, None)
        self._delaying += _may_delay(policy) - _may_delay(before)
        self.policy_states.pop((id, kind), None)
        if policy is not None:
            node.policies[kind] = policy
        if node.policies:
            self.policed[id] = None
        else:
            self.policed.pop(id, None)
        self.epoch += 1

    def set_once(self, id: str, once: bool) -> None:
        """Whether only the first version of a notification that arrives enters the scope."""
        node = self.scope(id)
        self._special += once - node.once
        node.once = once

    def set_attributes(
        self, id: str, attributes: Mapping[str, Any], *, roles: Iterable[str] | None = None
    ) -> None:
        """Replace the attributes, and the roles if given; a component follows its rules again."""
        node = self.node(id)
        node.attributes = dict(attributes)
        if roles is not None:
            node.roles = frozenset(roles)
        self.epoch += 1
        if not node.is_scope:
            self._follow_rules(node)

    # -- membership by rule

    def add_rule(self, rule: MembershipRule) -> None:
        """From now on, and at once, all components that match are members of the rule's scope."""
        self.scope(rule.scope)
        self.rules.add(rule)
        ids = self.rules.ids_of(rule)
        nodes = (
            self.nodes if ids is None else {id: self.nodes[id] for id in ids if id in self.nodes}
        )
        for node in list(nodes.values()):
            if not node.is_scope:
                self._follow_rule(node, rule, rule.where.matches(node.facts))
        self.epoch += 1

    def remove_rule(self, scope: str, label: str) -> None:
        """The rule, and the memberships that it alone has brought about, go."""
        self.rules.remove((scope, label))
        node = self.scope(scope)
        for edge in [*node.children.values(), *node.group_members.values()]:
            if label in edge.labels:
                self.leave(edge.child.id, scope, label=label)
        self.epoch += 1

    def _follow_rules(self, node: Node, *, appears: bool = False) -> None:
        wanted = {rule.key: rule for rule in self.rules.matching(node.facts)}
        for edge in [*node.parents.values(), *node.groups.values()]:
            for rule in self.rules.of_scope(edge.parent.id) if edge.labels - {BY_HAND} else ():
                if rule.maintained and rule.label in edge.labels and rule.key not in wanted:
                    self._follow_rule(node, rule, False)
        # Rules that look at other memberships come after those that make them.
        for rule in sorted(wanted.values(), key=lambda each: bool(each.among)):
            if rule.maintained or appears:
                self._follow_rule(node, rule, True)
        self._default(node)

    def _follow_members(self, node: Node, scope: str) -> None:
        """A component has come to a scope, or gone: rules that take in its members follow."""
        if not node.is_scope:
            for rule in self.rules.among(scope):
                if rule.maintained:
                    self._follow_rule(node, rule, rule.where.matches(node.facts))

    def _follow_rule(self, node: Node, rule: MembershipRule, matches: bool) -> None:
        edge = node.parents.get(rule.scope) or node.groups.get(rule.scope)
        if matches and rule.among:
            matches = any(each in node.parents for each in rule.among)
        if matches and (edge is None or rule.label not in edge.labels):
            admits = self.nodes[rule.scope].admits
            if admits is None or admits.matches(node.facts):
                # What others have put on the edge stays, unless the rule says something else.
                new = edge is None
                self.join(
                    node.id,
                    rule.scope,
                    selective=rule.selective if new or not rule.selective.is_omitted else None,
                    imposed=rule.imposed if new or not rule.imposed.is_omitted else None,
                    mapping=rule.mapping if new or rule.mapping != NO_MAPPING else None,
                    label=rule.label,
                )
        elif not matches and edge is not None and rule.label in edge.labels:
            self.leave(node.id, rule.scope, label=rule.label)

    def _default(self, node: Node) -> None:
        """A simple component that is in no scope is in the default one, and else it is not."""
        default = self.default_scope
        if default is None or node.is_scope or node.id not in self.nodes:
            return
        edge = node.parents.get(default)
        others = len(node.parents) - (edge is not None)
        if not others and edge is None:
            self.join(node.id, default, label=BY_DEFAULT)
        elif others and edge is not None and edge.labels == {BY_DEFAULT}:
            self._unlink(edge)

    # -- inside

    def _new(self, id: str, *, is_scope: bool, name: str, abstract: bool = False) -> Node:
        if not id or id in self.nodes:
            raise InvalidScopeGraph(f"{id!r} is taken" if id else "a name cannot be empty")
        if RESERVED in id:
            raise InvalidScopeGraph(f"{id!r} has a NUL in it, which names cannot have")
        return Node(id, is_scope=is_scope, name=name, abstract=abstract)

    def _check_join(self, member: Node, scope: Node) -> None:
        if member is scope:
            raise InvalidScopeGraph(f"{scope.id!r} cannot be a member of itself")
        if self.leaf_only and member.children:
            raise InvalidScopeGraph(f"{member.id!r} has members; only leaves may join a scope here")
        if (member.children or member.group_members) and self._reaches_up(scope, member.id):
            raise InvalidScopeGraph(
                f"{member.id!r} cannot be a member of {scope.id!r}, which is below it already: the "
                "scope graph has no cycles"
            )
        if scope.admits is not None and not scope.admits.matches(member.facts):
            raise InvalidScopeGraph(
                f"{scope.id!r} does not admit {member.id!r}: it wants {scope.admits}"
            )

    def _reaches_up(self, node: Node, id: str) -> bool:
        seen, ahead = {node.id}, [node]
        while ahead:
            each = ahead.pop()
            for edge in (*each.parents.values(), *each.groups.values()):
                if edge.parent.id == id:
                    return True
                if edge.parent.id not in seen:
                    seen.add(edge.parent.id)
                    ahead.append(edge.parent)
        return False

    def _link(self, edge: Edge) -> None:
        child, parent = edge.child, edge.parent
        if edge.carries:
            child.parents[parent.id] = parent.children[child.id] = edge
            if child.is_scope:
                parent.subscopes[child.id] = edge
        else:
            child.groups[parent.id] = parent.group_members[child.id] = edge
        self._count_mapping(edge, 1)
        self.epoch += 1
        for watcher in self.watchers:
            watcher("join", child.id, parent.id)

    def _unlink(self, edge: Edge) -> None:
        child, parent = edge.child, edge.parent
        for table, key in (
            (child.parents, parent.id),
            (child.groups, parent.id),
            (parent.children, child.id),
            (parent.subscopes, child.id),
            (parent.group_members, child.id),
        ):
            table.pop(key, None)
        self._count_mapping(edge, -1)
        self.epoch += 1
        for watcher in self.watchers:
            watcher("leave", child.id, parent.id)

    def _count_mapping(self, edge: Edge, sign: int) -> None:
        if not edge.is_mapped:
            return
        self._special += sign
        self._translated += sign
        if not edge.child.is_scope:
            mapped = self._mapped.setdefault(edge.parent.id, {})
            if sign > 0:
                mapped[edge.child.id] = None
            else:
                mapped.pop(edge.child.id, None)

    def _forget(self, node: Node) -> None:
        for kind in list(node.policies):
            self.set_policy(node.id, kind, None)
        self._special -= node.once
        del self.nodes[node.id]
        del self._ids[node.name][node.id]
        if not self._ids[node.name]:
            del self._ids[node.name]
        self._mapped.pop(node.id, None)
        self.epoch += 1


def _may_delay(policy: Policy | Custom | None) -> bool:
    return isinstance(policy, Delay | Hold | Custom)
