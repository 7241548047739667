"""An administrator for each scope, over a medium that may differ from scope to scope (05/§3.5).

The administrator of a scope knows its members and its superscopes. What reaches it from a member is
internal, and goes to the other members and, after interfaces and mappings, to the superscopes; what
comes from a superscope goes to the members only. How it reaches members is a matter of the medium:

    direct      the administrator sends to each member: it can apply any policy, and every edge of
                a path is one access of the medium ("broker scopes", full control: n - 1)
    addressed   whoever publishes addresses the scope, and the members test for themselves what
                is for them; only the way into the next scope is the administrator's ("addressing
                scopes", control between scopes: n - 2)

Administrators talk to each other in the same way whatever their media are, so that a graph may have
both: that is all that bridging takes (R-05.100 to R-05.103). A policy that chooses among members
needs a medium that lets the administrator choose, and is refused on an addressed one.

A notification goes along every simple path, so that a consumer behind a diamond is sent several
copies (05/E5). `copies` counts them; the consumer's local broker lets each version pass once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from stentor.errors import InvalidScopeGraph
from stentor.model import Notification
from stentor.scopes.crossing import Crossing
from stentor.scopes.dissemination import Delivery
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.nodes import Edge, Node
from stentor.scopes.policies import Answer, Kind, Question, Traverse, is_selecting

MEDIA: Final = ("direct", "addressed")


class Arrival(Struct, frozen=True):
    """A notification at the administrator of a scope."""

    scope: str
    notification: Notification
    #: From a member, not from a superscope.
    internal: bool
    source: str
    path: tuple[str, ...]


class ScopeMedia:
    """A scope graph as administrators that send each other notifications.

    >>> from stentor.scopes import OPEN
    >>> g = ScopeGraph()
    >>> for scope in "st":
    ...     g.create_scope(scope, interface=OPEN)
    >>> g.join("s", "t")
    >>> for member, scope in [("p", "s"), ("c", "t")]:
    ...     g.add_component(member)
    ...     g.join(member, scope)
    >>> system = ScopeMedia(g)
    >>> [d.path for d in system.publish("p", Notification({"a": 1}))]
    [('p',), ('p', 's', 't', 'c')]
    >>> system.accesses
    3
    """

    def __init__(
        self, graph: ScopeGraph, media: Mapping[str, str] | None = None, *, medium: str = "direct"
    ) -> None:
        self._graph = graph
        self._media = {id: medium for id, node in graph.nodes.items() if node.is_scope}
        self._media |= media or {}
        for id, each in self._media.items():
            if each not in MEDIA:
                raise InvalidScopeGraph(f"there is no medium {each!r}; there are {MEDIA}")
            self._check(graph.node(id), each)
        self._cross = Crossing(open_by_default=graph.open_by_default, tables=graph.tables)
        self._states: dict[tuple[str, Kind], Any] = {}
        #: How often media were used so far, and how many copies each consumer was sent.
        self.accesses = 0
        self.copies: Counter[str] = Counter()

    def publish(self, publisher: str, n: Notification) -> list[Delivery]:
        """What consumers are given, each version once."""
        node = self._graph.node(publisher)
        found: dict[tuple[str, Notification], Delivery] = {}
        wants = node.interface.input
        if self._graph.self_delivery and (wants is None or any(f.matches(n) for f in wants)):
            found[publisher, n] = Delivery(publisher, n, (publisher,))
        ahead: deque[Arrival] = deque()
        decided: dict[tuple[str, Kind, Notification], Answer] = {}
        start = Arrival(publisher, n, True, publisher, (publisher,))
        self._climb(node, start, ahead, decided)
        while ahead:
            arrival = ahead.popleft()
            scope = self._graph.nodes[arrival.scope]
            self._descend(scope, arrival, ahead, decided, found)
            if arrival.internal:
                self._climb(scope, arrival, ahead, decided)
        return list(found.values())

    def _climb(
        self,
        node: Node,
        at: Arrival,
        ahead: deque[Arrival],
        decided: dict[tuple[str, Kind, Notification], Answer],
    ) -> None:
        hops = {}
        for edge in node.parents.values():
            arrived = self._cross.up(edge, at.notification)
            if arrived is not None:
                hops[edge.parent.id] = arrived
        for id in self._chosen(Kind.PUBLISHING, node, at, hops, decided):
            self.accesses += 1
            ahead.append(Arrival(id, hops[id], True, node.id, (*at.path, id)))

    def _descend(
        self,
        scope: Node,
        at: Arrival,
        ahead: deque[Arrival],
        decided: dict[tuple[str, Kind, Notification], Answer],
        found: dict[tuple[str, Notification], Delivery],
    ) -> None:
        hops: dict[str, tuple[Edge, Notification]] = {}
        for edge in scope.children.values():
            arrived = self._cross.down(edge, at.notification)
            if arrived is not None and edge.child.id not in at.path:
                hops[edge.child.id] = edge, arrived
        kind = Kind.INTERNAL if at.internal else Kind.DELIVERY
        direct = self._media[scope.id] == "direct"
        for id in self._chosen(kind, scope, at, hops, decided):
            edge, arrived = hops[id]
            self.accesses += direct or edge.child.is_scope
            if edge.child.is_scope:
                ahead.append(Arrival(id, arrived, False, scope.id, (*at.path, id)))
            else:
                self.copies[id] += 1
                found.setdefault((id, arrived), Delivery(id, arrived, (*at.path, id)))

    def _chosen(
        self,
        kind: Kind,
        node: Node,
        at: Arrival,
        hops: Mapping[str, Any],
        decided: dict[tuple[str, Kind, Notification], Answer],
    ) -> list[str]:
        """The hops that the policy of the place leaves; a choice counts for all copies."""
        policy = node.policies.get(kind)
        if policy is None:
            return list(hops)
        assert not isinstance(policy, Traverse)
        key = (node.id, kind, at.notification)
        answer = decided.get(key)
        if answer is None:
            question = Question(
                at.notification,
                node.id,
                tuple(hops),
                at.source,
                at.path[0],
                at.path,
                0.0,
                lambda id: self._graph.nodes[id].facts,
                lambda id: True,
            )
            answer = policy.decide(question, self._states.get(key[:2]))
            self._states[key[:2]] = answer.state
            if is_selecting(policy):
                decided[key] = answer
        return [hop for hop in answer.now if hop in hops]

    @staticmethod
    def _check(scope: Node, medium: str) -> None:
        if scope.once or Kind.TRAVERSE in scope.policies:
            raise InvalidScopeGraph(
                f"{scope.id!r}: administrators that know only their neighbors can neither look "
                "for the level that has consumers nor tell what entered before"
            )
        if medium == "addressed" and {Kind.INTERNAL, Kind.DELIVERY} & set(scope.policies):
            raise InvalidScopeGraph(
                f"{scope.id!r} has a policy that chooses among members, and on an addressed medium "
                "nobody can: members test for themselves; make it direct"
            )
