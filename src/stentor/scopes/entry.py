"""Scopes in brokers: what the broker at which a publication enters decides, and how others use it.

*Places.* Members come and go at any broker, so no broker knows them all. But what they are given
depends only on why they are members: because the graph names the component, or because a rule takes
it in. Each such reason is a *place*, with a key. For a rule, a *port* stands in the graph for all
whom it takes in. The broker at which a publication enters lets the graph disseminate it among
components that are named and ports, and so finds out in which version it is visible at which
places, with every interface, mapping and policy on the way to members. What that costs grows with
the scopes that are reached, not with their members.

*Members.* A component that the graph names is at the place of its name, and what the graph says of
it is all that counts. Any other is at the places whose rules its own facts satisfy. Its broker
finds that out, and nobody else needs to know.

*Time.* A graph has epochs, which rise with each change. A publication is decided by the graph of
one epoch, and carries that epoch for ever. Whether a component is at a place is asked for that
epoch, too: of each place it is kept from which epoch on, and up to which, it was there on which
terms (`Span`). So what a component may see of something does not depend on when it asks: live
traffic, history and last values all have the answer of the time of publication.

    key                        whose place it is
    =ID                        of the component that the graph names so, in all scopes it is in
    N:SCOPE LABEL              of those whom the rule LABEL of SCOPE takes in; N is SCOPE's length
    @PRODUCER                  of the publisher itself, which hears what it publishes
    (empty)                    of all that are in no scope

A component hears what it has published itself only as the publisher, never as a member: that would
be an echo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from stentor.errors import InvalidScopeGraph, StentorError
from stentor.filters import Filter
from stentor.filters.expression import Atom
from stentor.model import Notification
from stentor.model.stamp import EPOCH, KEYS, Stamp
from stentor.scopes.definition import (
    Change,
    ComponentData,
    EdgeData,
    GraphData,
    Record,
    RuleData,
    ScopeData,
    drop,
    new_graph,
    ordered,
    put,
    rule_of,
)
from stentor.scopes.dissemination import Dissemination, Outcome
from stentor.scopes.graph import ScopeGraph
from stentor.scopes.interfaces import EVERYTHING, NOTHING, Half
from stentor.scopes.mappings import is_registered
from stentor.scopes.nodes import Edge, Node
from stentor.scopes.policies import (
    Broadcast,
    ByPath,
    ByProducer,
    Chain,
    Custom,
    Delay,
    Hold,
    Kind,
    Nobody,
    Only,
    Policy,
)

#: The place of those who are in no scope.
NOWHERE: Final = ""
#: Places of the past that are remembered; what was published before the oldest is seen by nobody.
MAX_PAST: Final = 10_000
#: Versions of one publication; a graph that makes more of it lets none of the others pass.
MAX_VERSIONS: Final = 64

_ON_PORTS: Final = (Broadcast, Nobody, Only, Chain, ByProducer, ByPath)


def place_of_rule(scope: str, label: str) -> str:
    return f"{len(scope)}:{scope} {label}"


def place_of_component(id: str) -> str:
    return f"={id}"


def named(id: str) -> str:
    """No place: that the graph names a component, be it in a scope or not."""
    return f"!{id}"


def place_of_publisher(producer: str) -> str:
    return f"@{producer}"


class Span(Struct, array_like=True):
    """A place, whom it takes in, and from which epoch on and up to which; None for still."""

    key: str
    scope: str
    where: str
    among: list[str]
    since: int
    until: int | None = None

    def is_like(self, other: Span) -> bool:
        """Whether it takes in the same."""
        return (self.scope, self.where, self.among) == (other.scope, other.where, other.among)

    @property
    def time(self) -> tuple[int, int]:
        """From when on, and up to when, which is -1 for still."""
        return self.since, -1 if self.until is None else self.until

    @property
    def filter(self) -> Filter:
        return _parsed(self.where)


@lru_cache(maxsize=MAX_PAST)
def _parsed(text: str) -> Filter:
    return Filter(text)


class View(Struct, frozen=True):
    """What one component may see: at which places it is, or was, in which epochs."""

    producer: str
    #: By place, the epochs: from, and up to, which is -1 for still.
    places: dict[str, tuple[tuple[int, int], ...]]
    #: Whether it is in no scope, and sees what was published where there was no graph.
    outside: bool

    def sees(self, stamp: Stamp | None) -> bool:
        """Whether something with this stamp is visible to it."""
        if stamp is None:
            return self.outside
        if stamp.publisher == self.producer:
            return place_of_publisher(self.producer) in stamp.keys
        for key in stamp.keys:
            for since, until in self.places.get(key, ()):
                if since <= stamp.epoch and (until < 0 or stamp.epoch < until):
                    return True
        return False

    @property
    def now(self) -> tuple[str, ...]:
        """The places at which it still is; components with the same ones see the same."""
        return tuple(sorted(k for k, spans in self.places.items() if spans[-1][1] < 0))

    @property
    def constraint(self) -> Filter:
        """A filter on stamps that matches whatever is visible to it, and little else."""
        found = _has(place_of_publisher(self.producer))
        for key, spans in sorted(self.places.items()):
            for since, until in spans:
                part = _has(key)
                if since > 0:
                    part &= _epoch(">=", since)
                if until >= 0:
                    part &= _epoch("<", until)
                found |= part
        return found | _UNSTAMPED if self.outside else found


def _has(key: str) -> Filter:
    return Filter.of_expression(Atom(KEYS, "has", (key,)))


def _epoch(operator: str, epoch: int) -> Filter:
    return Filter.of_expression(Atom(EPOCH, operator, (epoch,)))


_UNSTAMPED: Final = Filter(f"not exists {KEYS}")


class Component:
    """A client, as the graph sees it: what it has said of itself, and what follows from that."""

    def __init__(self, producer: str, name: str, attributes: Mapping[str, Any]) -> None:
        """`name` and attributes are what somebody vouches for."""
        self.producer = producer
        self.name = name
        self.attributes = dict(attributes)
        self.view = View(producer, {}, True)
        #: As of which changes the view and the way up are known.
        self.viewed = self.climbs = -1
        self.node = Node(place_of_publisher(producer), is_scope=False, name=name)
        #: The stamp of all that it publishes, if that does not depend on what that is, and the
        #: edges that it then crosses.
        self.constant: Stamp | None = None
        self.edges: list[tuple[str, str]] = []


class EntryGraph:
    """The scope graph of a broker, as of one epoch.

    >>> from stentor.scopes.definition import ScopeData, RuleData
    >>> entry = EntryGraph()
    >>> entry.change(1, Change([ScopeData("acme"), RuleData("acme", "r", "tenant = 'acme'")]))
    >>> ann = Component("ann", "ann", {"tenant": "acme"})
    >>> bob, eve = Component("bob", "bob", {"tenant": "acme"}), Component("eve", "eve", {})
    >>> [(stamp, version)] = entry.versions(ann, Notification({"x": 1}))
    >>> stamp.keys, version is None
    (('4:acme r', '@ann'), True)
    >>> [entry.view(each).sees(stamp) for each in (ann, bob, eve)]
    [True, True, False]
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.records: dict[str, Record] = {}
        self.graph = ScopeGraph()
        #: Nodes whose memberships a change has touched.
        self._moving: set[str] = set()
        #: How often the graph has been changed, or made anew.
        self._built = 0
        self._rebuild()
        #: Places as they are, by key, and as they were, oldest first.
        self.places: dict[str, Span] = {}
        self.past: list[Span] = []
        #: The first epoch in which a place of each key existed, and the first of all.
        self._first: dict[str, int] = {}
        self.begin = 0
        #: The last epoch in which places have changed.
        self.moved = 0
        #: Notifications that went across each edge, and into each scope, since the broker started.
        self.crossed: dict[tuple[str, str], int] = {}

    # -- changes

    def change(self, epoch: int, change: Change) -> None:
        """Carry out a change; if it cannot be, nothing has changed and the error is raised."""
        records = self.records
        gone = [records[key] for key in change.drop if key in records]
        new = {record.key: record for record in change.put}
        before = {key: records.get(key) for key in (*change.drop, *new)}
        self._moving.clear()
        for key in change.drop:
            records.pop(key, None)
        records |= new
        try:
            if any(isinstance(record, GraphData) for record in (*new.values(), *gone)):
                self._rebuild()
            else:
                self._alter(gone, new)
            check_references(records, gone)
            lost = any(isinstance(record, ScopeData | ComponentData) for record in gone)
            check_live(self.graph, records.values() if lost else new.values())
        except StentorError:
            for key, record in before.items():
                records.pop(key, None)
                if record is not None:
                    records[key] = record
            self._rebuild()
            raise
        self.epoch = epoch
        self._built += 1
        self.begin = self.begin or epoch
        self._move(epoch, [*gone, *new.values()])

    def restore(
        self,
        epoch: int,
        records: Iterable[Record],
        open: Iterable[Span],
        past: Iterable[Span],
        begin: int = 0,
    ) -> None:
        """Take up what was stored, or sent by another broker."""
        self.records = {record.key: record for record in records}
        self._rebuild()
        self.epoch = epoch
        self.past, self.places = list(past), {span.key: span for span in open}
        known = [*self.past, *self.places.values()]
        self._first = {}
        for span in known:
            self._first[span.key] = min(span.since, self._first.get(span.key, span.since))
        self.begin = begin
        self.moved = epoch

    def _alter(self, gone: list[Record], new: Mapping[str, Record]) -> None:
        graph = self.graph
        for record in reversed(ordered(gone)):
            if isinstance(record, RuleData) and record.scope in graph:
                graph.remove_port(place_of_rule(record.scope, record.label), record.scope)
            drop(graph, record)
        for record in ordered(new.values()):
            self._put(record)

    def _put(self, record: Record) -> None:
        put(self.graph, record)
        if isinstance(record, RuleData):
            key = place_of_rule(record.scope, record.label)
            self.graph.remove_port(key, record.scope)
            self.graph.add_port(key, rule_of(record))

    def _rebuild(self) -> None:
        self._built += 1
        self.graph = new_graph(self.records)
        self.graph.watchers.append(lambda _, child, parent: self._moving.add(child))
        for record in ordered(self.records.values()):
            self._put(record)

    def _move(self, epoch: int, touched: Iterable[Record]) -> None:
        """Places that are there now, and those that are no longer, after these have changed."""
        keys: set[str] = set()
        for record in touched:
            if isinstance(record, RuleData):
                keys.add(place_of_rule(record.scope, record.label))
            elif isinstance(record, ComponentData):
                keys |= {place_of_component(record.id), named(record.id)}
            elif isinstance(record, ScopeData):
                rules = self.graph.rules.of_scope(record.id)
                keys |= {place_of_rule(rule.scope, rule.label) for rule in rules}
        keys |= {place_of_component(id) for id in self._moving}
        for key in sorted(keys):
            new, old = self._place(key, epoch), self.places.get(key)
            if new is None or old is None or not old.is_like(new):
                if old is not None:
                    del self.places[key]
                    old.until = epoch
                    self.past.append(old)
                    self.moved = epoch
                if new is not None:
                    self.places[key] = new
                    self._first.setdefault(key, epoch)
                    self.moved = epoch
        del self.past[:-MAX_PAST]

    def _place(self, key: str, epoch: int) -> Span | None:
        """The place with this key, as the records have it."""
        node = self.graph.nodes.get(key[1:]) if key[:1] in "=!" else None
        if node is not None and not node.is_scope and (key[0] == "!" or node.parents):
            where = str(Filter.of_expression(Atom("name", "=", (key[1:],))))
            return Span(key, "", where, [], epoch)
        rule = self.records.get(f"rule {key}")
        if not isinstance(rule, RuleData):
            return None
        admits = self.graph.scope(rule.scope).admits
        where = rule.where if admits is None else str(Filter(rule.where) & admits)
        return Span(key, rule.scope, where, rule.among, epoch)

    # -- components

    def view(self, component: Component) -> View:
        """What it may see, as of the present epoch."""
        if component.viewed != self.moved:
            component.view = self._view(component)
            component.viewed = self.moved
        return component.view

    def _facts(self, component: Component) -> Mapping[str, Any]:
        """What rules look at, where the graph does not name it."""
        return {**component.attributes, "name": component.name, "roles": ()}

    def _view(self, component: Component) -> View:
        facts = self._facts(component)
        taken = [s for s in self.past if s.filter.matches(facts)]
        taken += [self.places[key] for key in self._keys_now(component, facts)]
        plain = [span for span in taken if not span.among]
        whenever_named = [span for span in taken if span.key == named(component.name)]
        places: dict[str, list[tuple[int, int]]] = {}
        anywhere: list[tuple[int, int]] = []
        for span in taken:
            if span.key.startswith("!"):
                continue
            times = list(self._times(span, plain))
            if not span.key.startswith("="):
                for other in whenever_named:
                    times = [each for time in times for each in _without(time, other.time)]
            for since, until in times:
                anywhere.append((since, until))
                if since <= self._first[span.key]:
                    since = 0  # there is nothing older of that name
                places.setdefault(span.key, []).append((since, until))
        for since, until in _gaps(sorted(anywhere), self.begin):
            places.setdefault(NOWHERE, []).append((since, until))
        found = {key: tuple(sorted(spans)) for key, spans in places.items()}
        return View(component.producer, found, any(u < 0 for _, u in found.get(NOWHERE, ())))

    def _keys_now(self, component: Component, facts: Mapping[str, Any]) -> list[str]:
        own = place_of_component(component.name), named(component.name)
        keys = [key for key in own if key in self.places]
        for rule in self.graph.rules.matching(facts):
            key = place_of_rule(rule.scope, rule.label)
            if key in self.places and self.places[key].filter.matches(facts):
                keys.append(key)
        return keys

    def _times(self, span: Span, plain: list[Span]) -> Iterable[tuple[int, int]]:
        """When the component was at a place: all the time, or while it was in another scope."""
        if not span.among:
            return [span.time]
        found = [_common(span.time, o.time) for o in plain if o.scope in span.among]
        return [each for each in found if each is not None]

    def _climbing(self, component: Component) -> Node:
        """The component as a publisher: with an edge into each scope that it is a member of."""
        if component.climbs == self._built:
            return component.node
        known = self.graph.nodes.get(component.name)
        node = Node(place_of_publisher(component.producer), is_scope=False, name=component.name)
        node.attributes = dict(component.attributes)
        if known is not None and not known.is_scope:
            node.interface, node.policies = known.interface, known.policies
            node.attributes, node.roles = known.attributes, known.roles
            node.id = known.id  # by which policies know it
            for id, edge in known.parents.items():
                node.parents[id] = Edge(
                    node, edge.parent, edge.selective, edge.imposed, edge.mapping, edge.labels
                )
        for key in self.view(component).now:
            record = self.records.get(f"rule {key}")
            if not isinstance(record, RuleData):
                continue
            rule = rule_of(record)
            parent = self.graph.scope(rule.scope)
            edge = Edge(node, parent, rule.selective, rule.imposed, rule.mapping, [rule.label])
            if edge.carries:
                node.parents.setdefault(rule.scope, edge)
        default = self.graph.default_scope
        if not node.parents and default is not None:
            node.parents[default] = Edge(node, self.graph.scope(default))
        component.node, component.climbs = node, self._built
        component.edges = []
        component.constant = self._constant(component, node)
        return node

    # -- publications

    def versions(
        self, component: Component, n: Notification | None, now: float = 0.0
    ) -> list[tuple[Stamp, Notification | None]]:
        """In which versions something is visible where; None stands for the original, the first.

        `n` is not looked at where the stamp does not depend on it: see `needs_content`.
        """
        node = self._climbing(component)
        if component.constant is not None:
            return [(component.constant, None)]
        assert n is not None
        outcome = self._disseminate(node, n, now)
        self.graph.commit(outcome)
        own = place_of_publisher(component.producer)
        found: dict[Notification | None, dict[str, None]] = {None: {own: None}}
        for delivery in outcome.deliveries:
            if delivery.consumer != node.id:
                version = None if delivery.notification == n else delivery.notification
                found.setdefault(version, {})[self._key(delivery.consumer)] = None
        for reached in outcome.reached:
            edge = reached.path[-2], reached.path[-1]
            self.crossed[edge] = self.crossed.get(edge, 0) + 1
        some = list(found.items())[:MAX_VERSIONS]
        return [
            (Stamp(self.epoch, component.producer, tuple(sorted(keys))), version)
            for version, keys in some
        ]

    def needs_content(self, component: Component) -> bool:
        """Whether where something is visible depends on what it says."""
        self._climbing(component)
        return component.constant is None

    def explain(self, component: Component, n: Notification) -> Outcome:
        """All that would become of a publication, with every refusal; changes nothing."""
        return self._disseminate(self._climbing(component), n, 0.0, explain=True)

    def _disseminate(
        self, node: Node, n: Notification, now: float, *, explain: bool = False
    ) -> Outcome:
        nodes = self.graph.nodes
        before = nodes.get(node.id)
        nodes[node.id] = node
        try:
            return Dissemination(self.graph, now=now, explain=explain).publish(node.id, n)
        finally:
            if before is None:
                del nodes[node.id]
            else:
                nodes[node.id] = before

    def _key(self, consumer: str) -> str:
        return place_of_component(consumer) if consumer in self.graph.nodes else consumer

    def _constant(self, component: Component, node: Node) -> Stamp | None:
        """The stamp of everything that it publishes, unless that depends on what it is."""
        own = place_of_publisher(component.producer)
        if not node.parents:
            return Stamp(self.epoch, component.producer, (own, NOWHERE))
        if not self.graph.is_plain or node.policies:
            return None
        keys = {own}
        climbing = list(node.parents.values())
        descending: list[Node] = []
        seen: set[tuple[bool, str]] = set()
        open_ = self.graph.open_by_default
        while climbing or descending:
            if climbing:
                edge = climbing.pop()
                child, scope = edge.child, edge.parent
                known = _known(
                    (child.interface.output, open_ or not child.is_scope),
                    (edge.selective.output, True),
                    (edge.imposed.output, True),
                    (scope.everyone.output, True),
                )
                if known is None or edge.is_mapped:
                    return None
                if not known or (True, scope.id) in seen:
                    continue
                seen.add((True, scope.id))
                component.edges.append((child.id, scope.id))
                climbing += scope.parents.values()
            else:
                scope = descending.pop()
                if (False, scope.id) in seen:
                    continue
                seen.add((False, scope.id))
            for edge in scope.children.values():
                child = edge.child
                known = _known(
                    (scope.everyone.input, True),
                    (edge.imposed.input, True),
                    (edge.selective.input, True),
                    (child.interface.input, open_ or not child.is_scope),
                )
                if known is None or edge.is_mapped:
                    return None
                if known and child.is_scope:
                    component.edges.append((scope.id, child.id))
                    descending.append(child)
                elif known and child.id != node.id:
                    keys.add(self._key(child.id))
        return Stamp(self.epoch, component.producer, tuple(sorted(keys)))


def _known(*halves: tuple[Half, bool]) -> bool | None:
    """Whether all of these let everything pass; None if that depends on what it is."""
    found: bool | None = True
    for half, omitted in halves:
        if half is None:
            passes: bool | None = omitted
        elif half == NOTHING:
            passes = False
        else:
            passes = True if half is EVERYTHING or half == EVERYTHING else None
        if passes is False:
            return False
        if passes is None:
            found = None
    return found


def _common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    since = max(one[0], other[0])
    ends = [until for _, until in (one, other) if until >= 0]
    until = min(ends) if ends else -1
    return None if 0 <= until <= since else (since, until)


def _without(time: tuple[int, int], other: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """What is left of a time without another one.

    >>> list(_without((1, -1), (3, 5))), list(_without((1, 4), (0, -1)))
    ([(1, 3), (5, -1)], [])
    """
    (since, until), (start, end) = time, other
    if start > since:
        yield since, start if until < 0 else min(start, until)
    if end >= 0 and (until < 0 or end < until):
        yield max(since, end), until


def _gaps(spans: Iterable[tuple[int, int]], begin: int) -> Iterable[tuple[int, int]]:
    """Epochs from the first of the graph on that none of these spans, in order, covers.

    >>> list(_gaps([(0, 5), (7, -1)], 1)), list(_gaps([], 1)), list(_gaps([(0, -1)], 1))
    ([(5, 7)], [(0, -1)], [])
    """
    at = 0
    for since, until in spans:
        if since > max(at, begin):
            yield at, since
        if until < 0:
            return
        at = max(at, until)
    yield at, -1


# -- what brokers can carry out


def check_references(records: Mapping[str, Record], gone: Iterable[Record]) -> None:
    """Raise if something is left that names a scope or component that has gone."""
    lost = {record.key for record in gone if record.key not in records}
    lost = {key for key in lost if key.startswith(("scope ", "component "))}
    for record in records.values() if lost else ():
        names: tuple[str, ...] = ()
        if isinstance(record, EdgeData):
            parent, child = record.parent, record.child
            names = f"scope {parent}", f"scope {child}", f"component {child}"
        elif isinstance(record, RuleData):
            names = (f"scope {record.scope}",)
        for name in names:
            if name in lost:
                raise InvalidScopeGraph(
                    f"the {record.key} is left without the {name}; drop it as well, or keep both"
                )


def check_live(graph: ScopeGraph, records: Iterable[Record]) -> None:
    """Raise if brokers cannot do what the graph asks for. Nothing is done only in part."""
    if graph.duplicates != "version" or not graph.self_delivery:
        raise InvalidScopeGraph(
            "brokers deliver each version once, and publishers hear themselves; leave `duplicates` "
            "and `self_delivery` as they are"
        )
    for record in records:
        if isinstance(record, ScopeData | ComponentData):
            for kind, policy in graph.node(record.id).policies.items():
                _check_policy(graph, record.id, kind, policy)
        elif isinstance(record, RuleData | EdgeData):
            scope = record.scope if isinstance(record, RuleData) else record.parent
            for kind, policy in graph.node(scope).policies.items():
                _check_policy(graph, scope, kind, policy)
            for data in (record.terms.up, record.terms.down):
                if data is not None and data[0] == "function" and not is_registered(data[1]):
                    raise InvalidScopeGraph(
                        f"this broker knows no mapping {data[1]!r}; call register_mapping in the "
                        "program that runs it, or write the mapping as assignments"
                    )


def _check_policy(graph: ScopeGraph, id: str, kind: Kind, policy: Policy | Custom) -> None:
    if isinstance(policy, Delay | Hold):
        raise InvalidScopeGraph(
            f"brokers hold nothing back at scopes, as the {kind} policy of {id!r} wants; publish "
            "with delay=, or decide in a component"
        )
    if kind is Kind.PUBLISHING or not graph.rules.of_scope(id):
        if kind is Kind.TRAVERSE and any(graph.rules.of_scope(each) for each in _below(graph, id)):
            raise InvalidScopeGraph(
                f"the traverse policy of {id!r} has to know who is there, and below it rules take "
                "members in; name the members in the graph"
            )
        return
    names = {Only: "names", Chain: "handlers"}.get(type(policy))
    for name in getattr(policy, names) if names else ():
        if name not in graph:
            raise InvalidScopeGraph(
                f"the {kind} policy of {id!r} chooses {name!r}, which could only be a member by a "
                "rule, and nobody knows such members by name; name it in the graph"
            )
    if not isinstance(policy, _ON_PORTS):
        raise InvalidScopeGraph(
            f"the {kind} policy of {id!r} chooses among members, and a rule takes in whoever "
            "comes, at any broker; name the members in the graph, or have them share a group"
        )


def _below(graph: ScopeGraph, id: str) -> set[str]:
    found, ahead = {id}, [graph.scope(id)]
    while ahead:
        for edge in ahead.pop().subscopes.values():
            if edge.child.id not in found:
                found.add(edge.child.id)
                ahead.append(edge.child)
    return found
