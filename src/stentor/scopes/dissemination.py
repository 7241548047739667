"""Where a notification goes: the reference router (04/A4), with traversal (04/A8).

A step is a place: *climbing* into a scope from a member, where the notification is internal, or
*descending* into a scope from a superscope, where it is incoming. From an internal one, steps lead
down to the other members and up to the superscopes; from an incoming one only down, so a path turns
at most once (R-04.18). A notification never descends into what it has climbed through: that would
be an echo, which matters where mappings make other versions of it, or policies tell internal from
incoming ones.

Steps are taken in the order of their distance, each once for the same place, version and climbed
scopes, and where policies ask whether it has passed some scope, for the same answers to that. Where
the graph has neither mappings nor policies, the climbed scopes make no difference to who receives
it (04/P4) and do not tell steps apart, so that the cost is that of the scopes and edges reached,
not of the paths. With mappings it may be that of the paths; `MAX_STEPS` bounds it.

Members of scopes come last: for each version once, `Interests` says who wants it, and of these the
members of the scopes that it has reached get it. So the cost does not grow with the components that
want nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from stentor.errors import InvalidScopeGraph
from stentor.model import Notification
from stentor.scopes.crossing import Crossing, Interests
from stentor.scopes.nodes import Edge, Node
from stentor.scopes.policies import Answer, Kind, Question, Traverse, compares, is_selecting

if TYPE_CHECKING:
    from stentor.scopes.graph import ScopeGraph
    from stentor.scopes.roster import Roster

#: More steps than any sensible graph needs for one notification.
MAX_STEPS: Final = 1_000_000


class Delivery(Struct, frozen=True):
    """A component gets a notification, in the version in which it arrives there."""

    consumer: str
    notification: Notification
    #: The way it took: the publisher, scopes upwards, scopes downwards, the consumer.
    path: tuple[str, ...]


class Reached(Struct, frozen=True):
    """A scope in which a version is visible: internal, or incoming from a superscope."""

    scope: str
    notification: Notification
    internal: bool
    path: tuple[str, ...]


class Postponed(Struct, frozen=True):
    """A crossing that a policy put off: `until` a time, or until `key` is set free."""

    child: str
    parent: str
    upward: bool
    notification: Notification
    #: What it has climbed through, and the way so far.
    climbed: tuple[str, ...]
    path: tuple[str, ...]
    until: float | None = None
    key: str | None = None


class Refusal(Struct, frozen=True):
    """What stopped a notification on an edge, or at a scope."""

    at: tuple[str, ...]
    by: str

    def __str__(self) -> str:
        return f"{' → '.join(self.at)}: stopped by {self.by}"


class Outcome(Struct):
    """All that becomes of one publication."""

    deliveries: list[Delivery]
    reached: list[Reached]
    postponed: list[Postponed]
    refusals: list[Refusal]
    #: What the policies remember now, by scope and kind.
    states: dict[tuple[str, Kind], Any]
    #: Keys of held ones that go on (True) or are dropped (False).
    released: list[tuple[str, bool]]


_Step: TypeAlias = "tuple[bool, Node, Notification, str, tuple[str, ...], tuple[str, ...]]"


class Dissemination:
    """One publication's way through a graph as it is now. Changes nothing in the graph.

    `interests` says who subscribes to what, `now` is the time for policies, `explain` collects what
    was refused where, and `echo` lets notifications come back where they climbed, which Def 6.5
    allows literally. `duplicates` is a mode of 04/A5: `version`, `origin` or `per_path`. `roster`
    knows who stands behind the ports of rules, where that matters.
    """

    def __init__(
        self,
        graph: ScopeGraph,
        *,
        interests: Interests | None = None,
        now: float = 0.0,
        explain: bool = False,
        echo: bool = False,
        duplicates: str | None = None,
        roster: Roster | None = None,
    ) -> None:
        self._graph = graph
        self._roster = roster
        self._nodes = graph.nodes
        self._interests = interests
        self._now = now
        self._mode = duplicates or graph.duplicates
        self._echo = echo
        self._plain = graph.is_plain and self._mode != "per_path" and not explain
        self.outcome = Outcome([], [], [], [], {}, [])
        self._cross = Crossing(
            open_by_default=graph.open_by_default,
            tables=graph.tables,
            interests=interests,
            told=self._refuse if explain else None,
        )
        self._steps: deque[_Step] = deque()
        self._seen: set[Any] = set()
        self._entered: set[str] = set()
        self._decided: dict[Any, Answer] = {}
        self._got: set[Any] = set()
        self._waiting: dict[Notification, dict[str, list[tuple[tuple[str, ...], Reached]]]] = {}
        self._publisher = ""

    # -- beginnings

    def publish(self, publisher: str, n: Notification) -> Outcome:
        """A component publishes."""
        node = self._graph.node(publisher)
        self._publisher = node.id
        if self._graph.self_delivery and not node.is_scope and self._wants(node, n):
            self._deliver(node.id, n, (node.id,))
        self._ascend(node, n, node.id, (node.id,), (node.id,))
        return self._run()

    def resume(self, waiting: Postponed) -> Outcome:
        """What was put off goes on, if its edge still exists and lets it pass (04/T13)."""
        self._publisher = waiting.path[0]
        # By the end that the graph is sure to know: what publishes, or is a member by a rule, may
        # be a node that stands for others.
        if waiting.upward:
            child = self._nodes.get(waiting.child)
            edge = None if child is None else child.parents.get(waiting.parent)
        else:
            parent = self._nodes.get(waiting.parent)
            edge = None if parent is None else parent.children.get(waiting.child)
            if edge is None and self._roster is not None:
                edge = self._roster.edge(waiting.child)
        if edge is not None:
            self._go(edge, waiting.upward, waiting.notification, waiting.climbed, waiting.path)
        return self._run()

    # -- steps

    def _run(self) -> Outcome:
        steps = 0
        while self._steps:
            steps += 1
            if steps > MAX_STEPS:
                raise InvalidScopeGraph(
                    f"more than {MAX_STEPS:,} ways lead from {self._publisher!r} through the "
                    "scopes; fewer edges with mappings or policies are needed"
                )
            climbing, node, n, source, climbed, path = self._steps.popleft()
            if self._mode != "per_path":
                place = (climbing, node.id, n, None if self._plain else self._passed(climbed, path))
                if place in self._seen:
                    continue
                self._seen.add(place)
            if node.once:
                if node.id in self._entered:
                    continue
                self._entered.add(node.id)
            self.outcome.reached.append(Reached(node.id, n, climbing, path))
            if climbing:
                self._spread(node, n, Kind.INTERNAL, source, climbed, path)
                self._ascend(node, n, source, climbed, path)
            elif _searches(node):
                self._search(node, n, climbed, path)
            else:
                self._spread(node, n, Kind.DELIVERY, source, climbed, path)
        self._hand_out()
        return self.outcome

    def _passed(
        self, climbed: tuple[str, ...], path: tuple[str, ...]
    ) -> tuple[frozenset[str], ...]:
        """What of the way makes a difference further on: echoes, and policies that ask about it."""
        asked = self._graph.looked_at
        return frozenset(climbed), frozenset(path) if asked is None else asked.intersection(path)

    def _ascend(
        self,
        node: Node,
        n: Notification,
        source: str,
        climbed: tuple[str, ...],
        path: tuple[str, ...],
    ) -> None:
        """From a component, or from a scope in which it is internal, to the superscopes."""
        if Kind.PUBLISHING not in node.policies:
            for edge in node.parents.values():
                self._go(edge, True, n, climbed, path)
            return
        open_edges = {
            edge.parent.id: edge
            for edge in node.parents.values()
            if self._cross.up(edge, n) is not None
        }
        self._narrowed(Kind.PUBLISHING, node, n, open_edges, True, source, climbed, path)

    def _spread(
        self,
        node: Node,
        n: Notification,
        kind: Kind,
        source: str,
        climbed: tuple[str, ...],
        path: tuple[str, ...],
    ) -> None:
        """From a scope to its members, but not back where it came from."""
        if kind not in node.policies:
            for edge in node.subscopes.values():
                if self._echo or edge.child.id not in climbed:
                    self._go(edge, False, n, climbed, path)
            self._reach_members(node, n, climbed, path)
            return
        open_edges = self._hops(kind, node, n, climbed)
        self._narrowed(kind, node, n, open_edges, False, source, climbed, path)

    def _hops(
        self, kind: Kind, node: Node, n: Notification, climbed: tuple[str, ...]
    ) -> dict[str, Edge]:
        """The members that let it pass, for a policy to choose from."""
        edges = {e.child.id: e for e in self._likely(node, n) if e.child.id not in climbed}
        found = {id: e for id, e in edges.items() if self._cross.down(e, n) is not None}
        policy = node.policies.get(kind)
        if self._roster is None or policy is None or not compares(policy):
            return found
        for away in (False, True):
            hops: dict[str, Edge] = {}
            for id, edge in found.items():
                behind = {id: edge} if id not in self._graph.ports else self._behind(id, n, away)
                hops |= behind
            if hops:
                break
        return hops

    def _behind(self, port: str, n: Notification, away: bool) -> dict[str, Edge]:
        """The members behind a port that let it pass, by name, without the publisher."""
        assert self._roster is not None
        own = self._nodes[self._publisher].name
        return {
            name: edge
            for name, edge in self._roster.opened(port, away=away).items()
            if name != own and self._cross.down(edge, n) is not None
        }

    def _has_any(self, edge: Edge, n: Notification) -> bool:
        """Whether this is a member, or a port with a member behind it that lets it pass."""
        if self._roster is None or edge.child.id not in self._graph.ports:
            return True
        return any(self._behind(edge.child.id, n, away) for away in (False, True))

    def _go(
        self,
        edge: Edge,
        upward: bool,
        n: Notification,
        climbed: tuple[str, ...],
        path: tuple[str, ...],
    ) -> None:
        """Cross an edge, if it lets it pass, and go on from there."""
        arrived = self._cross.up(edge, n) if upward else self._cross.down(edge, n)
        if arrived is None:
            return
        if upward:
            to, source = edge.parent, edge.child.id
            step = (True, to, arrived, source, (*climbed, to.id), (*path, to.id))
            self._steps.append(step)
        elif edge.child.is_scope:
            to = edge.child
            self._steps.append((False, to, arrived, edge.parent.id, climbed, (*path, to.id)))
        else:
            self._deliver(edge.child.id, arrived, (*path, edge.child.id))

    # -- policies

    def _narrowed(
        self,
        kind: Kind,
        node: Node,
        n: Notification,
        edges: Mapping[str, Edge],
        upward: bool,
        source: str,
        climbed: tuple[str, ...],
        path: tuple[str, ...],
    ) -> None:
        answer = self._decide(kind, node, n, edges, source, climbed, path)
        for hop in answer.now:
            if hop in edges:
                self._go(edges[hop], upward, n, climbed, path)
        for hop, when in answer.later:
            self._postpone(edges.get(hop), upward, n, climbed, path, until=when)
        for hop, key in answer.held:
            self._postpone(edges.get(hop), upward, n, climbed, path, key=key)

    def _decide(
        self,
        kind: Kind,
        node: Node,
        n: Notification,
        edges: Mapping[str, Edge],
        source: str,
        climbed: tuple[str, ...],
        path: tuple[str, ...],
    ) -> Answer:
        policy = node.policies[kind]
        assert not isinstance(policy, Traverse)
        place, selecting = (node.id, kind), is_selecting(policy)
        if selecting and (*place, n) in self._decided:
            return self._decided[(*place, n)]
        states = self.outcome.states
        state = states[place] if place in states else self._graph.policy_states.get(place)

        def facts(id: str) -> Mapping[str, Any]:
            # Whoever stands behind a port is no node of the graph.
            edge = None if kind is Kind.PUBLISHING else edges.get(id)
            return (self._nodes[id] if edge is None else edge.child).facts

        def reaches(hop: str) -> bool:
            edge = edges[hop]
            return (
                not edge.child.is_scope or kind is Kind.PUBLISHING or self._wanted(edge, n, climbed)
            )

        answer = policy.decide(
            Question(
                n,
                node.id,
                tuple(edges),
                source,
                self._publisher,
                path,
                self._now,
                facts,
                reaches,
            ),
            state,
        )
        if answer.state is not None or state is not None:
            states[place] = answer.state
        self.outcome.released += answer.released
        if selecting:
            self._decided[(*place, n)] = answer
        left = set(edges) - {
            *answer.now,
            *(h for h, _ in answer.later),
            *(h for h, _ in answer.held),
        }
        for hop in left:
            self._refuse(edges[hop], kind is Kind.PUBLISHING, f"the {kind} policy of {node.id}")
        return answer

    def _wanted(self, edge: Edge, n: Notification, climbed: tuple[str, ...]) -> bool:
        """Whether somebody at or below the end of an edge would get it, by interfaces alone."""
        below = deque([(edge, n)])
        while below:
            edge, n = below.popleft()
            arrived = self._cross.down(edge, n)
            if arrived is None or edge.child.id in climbed:
                continue
            if not edge.child.is_scope:
                if self._has_any(edge, n):
                    return True
                continue
            below.extend((each, arrived) for each in edge.child.children.values())
        return False

    def _postpone(
        self,
        edge: Edge | None,
        upward: bool,
        n: Notification,
        climbed: tuple[str, ...],
        path: tuple[str, ...],
        *,
        until: float | None = None,
        key: str | None = None,
    ) -> None:
        if edge is not None:
            ends = edge.child.id, edge.parent.id
            self.outcome.postponed.append(
                Postponed(*ends, upward, n, climbed, path, until=until, key=key)
            )

    # -- traversal

    def _search(
        self, top: Node, n: Notification, climbed: tuple[str, ...], path: tuple[str, ...]
    ) -> None:
        """Look for the level that has consumers, and hand it over there."""
        policy = top.policies[Kind.TRAVERSE]
        assert isinstance(policy, Traverse)
        deepest = policy.order == "bottom_up"
        levels: dict[tuple[str, Notification], tuple[int, tuple[str, ...]]] = {}
        ahead = deque([(top, n, 0, path)])
        while ahead:
            node, version, depth, way = ahead.popleft()
            place = (node.id, version)
            known = levels.get(place)
            if known is not None and (depth <= known[0] if deepest else depth >= known[0]):
                continue
            levels.pop(place, None)
            levels[place] = depth, way
            for edge in node.subscopes.values():
                if edge.child.id in climbed:
                    continue
                arrived = self._cross.down(edge, version)
                if arrived is None:
                    continue
                own = edge.child.policies.get(Kind.TRAVERSE)
                if own is None or own == policy:
                    ahead.append((edge.child, arrived, depth + 1, (*way, edge.child.id)))
                elif policy.at_boundary == "broadcast":
                    self._go(edge, False, version, climbed, way)
        hits: dict[int, list[tuple[Node, Notification, dict[str, Edge], tuple[str, ...]]]] = {}
        for (id, version), (depth, way) in levels.items():
            node = self._nodes[id]
            edges = {
                hop: edge
                for hop, edge in self._hops(Kind.DELIVERY, node, version, climbed).items()
                if not edge.child.is_scope and self._has_any(edge, version)
            }
            if edges:
                hits.setdefault(depth, []).append((node, version, edges, way))
        if not hits:
            return
        found = hits[max(hits) if deepest else min(hits)]
        for node, version, edges, way in found if policy.tie == "all" else found[:1]:
            if Kind.DELIVERY in node.policies:
                source = way[-2] if len(way) > 1 else ""
                self._narrowed(Kind.DELIVERY, node, version, edges, False, source, climbed, way)
            else:
                for edge in edges.values():
                    self._go(edge, False, version, climbed, way)

    # -- members

    def _likely(self, node: Node, n: Notification) -> Iterable[Edge]:
        """The members that may want it: all, unless somebody knows better."""
        wanting = None if self._interests is None else self._interests.matching(n)
        if wanting is None:
            return node.children.values()
        return [
            edge
            for id, edge in node.children.items()
            if edge.child.is_scope or edge.is_mapped or id in wanting
        ]

    def _reach_members(
        self, node: Node, n: Notification, climbed: tuple[str, ...], path: tuple[str, ...]
    ) -> None:
        if self._interests is None or self._mode == "per_path":
            self._members_of(node, n, climbed, path)
            return
        at = self._waiting.setdefault(n, {}).setdefault(node.id, [])
        at.append((climbed, self.outcome.reached[-1]))

    def _members_of(
        self, node: Node, n: Notification, climbed: tuple[str, ...], path: tuple[str, ...]
    ) -> None:
        for edge in node.children.values():
            if not edge.child.is_scope and (self._echo or edge.child.id not in climbed):
                self._go(edge, False, n, climbed, path)

    def _hand_out(self) -> None:
        """For each version at once: of those who want it, the members of scopes it has reached."""
        for n, scopes in self._waiting.items():
            assert self._interests is not None
            wanting = self._interests.matching(n)
            if wanting is None:
                for id, arrivals in scopes.items():
                    for climbed, reached in arrivals:
                        self._members_of(self._nodes[id], n, climbed, reached.path)
                continue
            for consumer in wanting:
                node = self._nodes.get(consumer)
                if node is None:
                    continue
                for id in node.parents.keys() & scopes.keys():
                    edge = node.parents[id]
                    if not edge.is_mapped:
                        self._hand_to(edge, n, scopes[id])
            for id, arrivals in scopes.items():
                for consumer in self._graph.mapped_members(id):
                    self._hand_to(self._nodes[consumer].parents[id], n, arrivals)
        self._waiting.clear()

    def _hand_to(
        self, edge: Edge, n: Notification, arrivals: list[tuple[tuple[str, ...], Reached]]
    ) -> None:
        for climbed, reached in arrivals:
            if self._echo or edge.child.id not in climbed:
                self._go(edge, False, n, climbed, reached.path)

    def _wants(self, node: Node, n: Notification) -> bool:
        if self._interests is not None:
            return self._interests.subscribed(node.id, n)
        half = node.interface.input
        return half is None or any(each.matches(n) for each in half)

    def _deliver(self, consumer: str, n: Notification, path: tuple[str, ...]) -> None:
        if self._mode != "per_path":
            key = (consumer, n) if self._mode == "version" else consumer
            if key in self._got:
                return
            self._got.add(key)
        self.outcome.deliveries.append(Delivery(consumer, n, path))

    def _refuse(self, edge: Edge, upward: bool, by: str) -> None:
        ends = (edge.child.id, edge.parent.id)
        self.outcome.refusals.append(Refusal(ends if upward else ends[::-1], by))


def _searches(node: Node) -> bool:
    policy = node.policies.get(Kind.TRAVERSE)
    return isinstance(policy, Traverse) and policy.order != "broadcast"
