"""Rosters: the members whom rules take in, one by one, where somebody has to choose among them.

A port stands for all members by a rule, wherever they are. That is enough for a policy that lets
all of them have something, or none. A policy that takes turns, compares, counts or looks for where
somebody is to be found has to know them. So brokers tell each other of such members, with what they
say of themselves and what they have subscribed to, and the port is *opened* into them: each is a
hop under its own name, as in the model, and eligible if what arrives matches a subscription.

Whoever is at a broker that cannot be reached is chosen only where there is nobody else: what is
published for it is journaled, and waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from stentor.filters import Filter
from stentor.model import Notification
from stentor.scopes.graph import RESERVED, ScopeGraph
from stentor.scopes.interfaces import Interface, passes
from stentor.scopes.nodes import Edge, Node
from stentor.scopes.places import is_personal, personal, place_of_rule
from stentor.scopes.policies import Kind, OneOfN, Traverse, compares

#: Brokers that cannot be reached and whose members are remembered.
MAX_AWAY: Final = 100


class Member(NamedTuple):
    """A client that is a member by a rule."""

    name: str
    attributes: dict[str, Any]
    #: What it has subscribed to, as texts.
    filters: list[str]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What rules look at."""
        return facts_of(self.name, self.attributes)


def facts_of(name: str, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """What rules look at in a client that no graph names; who it is it cannot claim."""
    return {**attributes, "name": name, "_id": name, "roles": ()}


class Roster:
    """Members by rules at all brokers, and the ports that they stand behind."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, Member]] = {}
        #: Brokers that cannot be reached; the longest away comes first.
        self._away: dict[str, None] = {}
        self._graph = ScopeGraph()
        #: By the id of a port: the members behind it, by name, at brokers that can be reached or
        #: not. Found when it is asked for.
        self._behind: dict[str, dict[bool, dict[str, Edge]]] | None = None

    def of(self, broker: str) -> Mapping[str, Member]:
        """The members at one broker, by name."""
        return self._members.get(broker, {})

    @property
    def brokers(self) -> list[str]:
        """All whose members are known."""
        return list(self._members)

    def put(self, broker: str, put: Iterable[Member], drop: Iterable[str] = ()) -> bool:
        """Members come, or have changed, and others go; whether that is news."""
        known = self._members.setdefault(broker, {})
        new = [each for each in put if known.get(each.name) != each]
        gone = [name for name in drop if known.pop(name, None) is not None]
        known |= {each.name: each for each in new}
        is_back = broker in self._away
        self._away.pop(broker, None)
        if new or gone or is_back:
            self._behind = None
        return bool(new or gone)

    def away(self, broker: str) -> None:
        """A broker cannot be reached any longer; `put` says that it can."""
        if broker in self._members:
            self._away[broker] = None
            if len(self._away) > MAX_AWAY:
                first = next(iter(self._away))
                del self._away[first], self._members[first]
            self._behind = None

    def changed(self, graph: ScopeGraph) -> None:
        """Rules or members that are named have changed."""
        self._graph, self._behind = graph, None

    def opened(self, port: str, *, away: bool = False) -> Mapping[str, Edge]:
        """The members behind a port, by name, in the order of their names; none behind others."""
        if self._behind is None:
            self._behind = self._found()
        return self._behind.get(port, {}).get(away, {})

    def edge(self, member: str) -> Edge | None:
        """The edge of a member that stands behind a port, by the id that it has there."""
        port, _, name = member.partition("\0=")
        return self.opened(port).get(name) or self.opened(port, away=True).get(name)

    def consumers(self, id: str, n: Notification) -> list[tuple[str, dict[str, Any]]]:
        """Who has subscribed to what arrives at a component, or at a port: names and attributes."""
        if id in self._graph.ports:
            behind = {**self.opened(id, away=True), **self.opened(id)}
        elif is_personal(id):
            edge = self.edge(id)
            behind = {} if edge is None else {edge.child.name: edge}
        else:
            of_all = (members.get(id) for members in self._members.values())
            wanting = (m for m in of_all if m and any(Filter(f).matches(n) for f in m.filters))
            return [(each.name, each.attributes) for each in wanting][:1]
        return [
            (name, edge.child.attributes)
            for name, edge in behind.items()
            if passes(edge.child.interface.input, n, omitted=False)
        ]

    def _found(self) -> dict[str, dict[bool, dict[str, Edge]]]:
        """All members behind their ports."""
        graph, found = self._graph, dict[str, dict[bool, dict[str, Edge]]]()
        known: dict[tuple[bool, str], list[Member]] = {}
        for broker, members in self._members.items():
            for member in members.values():
                if member.name not in graph:  # else it is what the graph says of it
                    known.setdefault((broker in self._away, member.name), []).append(member)
        for away, name in sorted(known):
            if away and (False, name) in known:
                continue
            for member in known[away, name]:
                rules = graph.rules.matching(member.facts)
                plain = {rule.scope for rule in rules if not rule.among}
                for rule in rules:
                    admits = graph.scope(rule.scope).admits
                    if (rule.among and plain.isdisjoint(rule.among)) or (
                        admits is not None and not admits.matches(member.facts)
                    ):
                        continue
                    place = place_of_rule(rule.scope, rule.label)
                    port = graph.scope(rule.scope).children.get(RESERVED + place)
                    if port is None:  # the scope is abstract
                        continue
                    behind = found.setdefault(port.child.id, {}).setdefault(away, {})
                    filters = [Filter(text) for text in member.filters]
                    if name in behind:  # connected twice
                        filters += behind[name].child.interface.input or ()
                    node = Node(RESERVED + personal(place, name), is_scope=False, name=name)
                    node.attributes = dict(member.attributes)
                    node.interface = Interface(tuple(dict.fromkeys(filters)), None)
                    behind[name] = Edge(
                        node, port.parent, port.selective, port.imposed, port.mapping
                    )
        return found


def watched(graph: ScopeGraph) -> frozenset[str]:
    """The scopes whose members by rules somebody has to know."""
    found: set[str] = set()
    below: list[Node] = []
    for node in map(graph.node, graph.policed):
        for kind, policy in node.policies.items():
            looks_deep = isinstance(policy, OneOfN) and policy.deep
            if isinstance(policy, Traverse) or looks_deep:
                below += (
                    [node] if node.is_scope else [edge.parent for edge in node.parents.values()]
                )
            if kind is not Kind.PUBLISHING and compares(policy):
                found.add(node.id)
    seen: set[str] = set()
    while below:
        node = below.pop()
        if node.id not in seen:
            seen.add(node.id)
            below += [edge.child for edge in node.subscopes.values()]
    return frozenset(id for id in found | seen if graph.rules.of_scope(id))
