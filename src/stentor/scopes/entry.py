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
    the same, NUL, CONDITION   of those among them who have what a policy of SCOPE asks of members
    the same, NUL, =NAME       of the one among them whom a policy of SCOPE has chosen
    @PRODUCER                  of the publisher itself, which hears what it publishes
    (empty)                    of all that are in no scope
    ~CROSSING                  no place: the edge on which something waits
    ^                          of brokers, which hear what lets go of what they hold

A component hears what it has published itself only as the publisher, never as a member: that would
be an echo.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.filters.expression import Atom
from stentor.matching import Index
from stentor.model import Notification
from stentor.model.codec import Envelope
from stentor.model.stamp import Stamp
from stentor.scopes.definition import (
    Change,
    ComponentData,
    EdgeData,
    GraphData,
    Record,
    RuleData,
    ScopeData,
    UpdateData,
    drop,
    new_graph,
    ordered,
    put,
    rule_of,
)
from stentor.scopes.dissemination import Dissemination, Outcome, Postponed
from stentor.scopes.graph import RESERVED, ScopeGraph
from stentor.scopes.happenings import Watches
from stentor.scopes.live import check_live, check_references
from stentor.scopes.nodes import Edge, Node
from stentor.scopes.places import (
    MAX_PAST,
    NOWHERE,
    WORDS,
    Span,
    View,
    Waiting,
    common,
    gaps,
    joined,
    named,
    personal,
    place_of_component,
    place_of_publisher,
    place_of_rule,
    without,
)
from stentor.scopes.policies import Hold, Kind, RequirePrivilege, compares
from stentor.scopes.reach import MAX_ANSWERS, Reach, translated_members
from stentor.scopes.roster import Roster, facts_of, watched

#: Versions of one publication; a graph that makes more of it lets none of the others pass.
MAX_VERSIONS: Final = 64
#: Reaches that are kept, and filters in them; all are found anew when there are more.
MAX_REACHES: Final = 20_000
MAX_FILTERS: Final = 100_000
#: Filters that are tested one by one rather than by the index.
FEW_FILTERS: Final = 3
#: Changes of places of which it is known whom they concern.
MAX_MOVES: Final = 256
#: Numbers in a second, which rise over restarts as well: those of a clock of microseconds.
PER_SECOND: Final = 1_000_000


_attributes: Final = attrgetter("attributes")
_facts: Final = attrgetter("facts")

#: What decides how far a publisher is heard: its name, if the graph has it, and its places.
_Standing: TypeAlias = tuple[str | None, tuple[str, ...]]


class Mark(NamedTuple):
    """What is put before the bytes of a notification, and the edges that it crosses."""

    stamp: Stamp
    prefix: bytes
    edges: tuple[tuple[str, str], ...]


class Decided(NamedTuple):
    """What becomes of a publication at its entry, or of what has waited, when it goes on."""

    #: In which versions it is visible where; None stands for it as it came.
    versions: list[tuple[Stamp, Notification | None]]
    #: When it is looked at again, and what is remembered of it until then; None if something else
    #: has to happen first.
    later: list[tuple[float | None, Stamp, Notification | None]]


@dataclass(eq=False, repr=False, slots=True)
class Component:
    """A client, as the graph sees it: what it has said of itself, and what follows from that."""

    producer: str
    #: What somebody vouches for.
    name: str
    attributes: dict[str, Any]
    #: Whether it is this broker itself, which sees what is said to brokers and nothing else.
    is_broker: bool = False
    #: As of which changes the view, the reach and the way up are known.
    viewed: int = -1
    climbs: int = -1
    placed: int = -1
    view: View = field(init=False)
    reach: Reach = field(init=False)
    node: Node = field(init=False)
    #: What was put before publications lately, by the interfaces that they pass.
    marks: dict[int, Mark] = field(init=False)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What rules look at, where the graph does not name it."""
        return facts_of(self.name, self.attributes)


class EntryGraph:
    """The scope graph of a broker, as of one epoch.

    >>> from stentor.scopes.definition import ScopeData, RuleData
    >>> entry = EntryGraph()
    >>> entry.change(1, Change([ScopeData("acme"), RuleData("acme", "r", "tenant = 'acme'")]))
    >>> ann = Component("ann", "ann", {"tenant": "acme"})
    >>> bob, eve = Component("bob", "bob", {"tenant": "acme"}), Component("eve", "eve", {})
    >>> [(stamp, version)], _ = entry.versions(ann, Notification({"x": 1}))
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
        #: Places of a rule for those who satisfy a policy, and places that a change has touched.
        self._narrower: dict[str, tuple[str, ...]] = {}
        self._conditions: dict[str, tuple[str, str]] = {}
        self._touched: set[str] = set()
        #: How often the graph has been changed, or made anew.
        self._built = 0
        #: How far publishers are heard: by the component, if the graph names it, and its places.
        self._reaches: dict[_Standing, Reach] = {}
        #: Where something translated of publishers may arrive, and as of which change.
        self._translated: dict[_Standing, frozenset[str]] = {}
        self._translated_as_of = -1
        self._filters: Index[Filter] = Index()
        #: The stream of this broker, the number of what was decided last, and up to which numbers
        #: words of others were heard that let go of what is held.
        self.stream = ""
        self._number = 0
        self._heard: dict[str, int] = {}
        #: Whether policies hold something back until something else is said.
        self.holds = False
        #: Whether brokers have to hear what is said to brokers.
        self.says_words = False
        #: What may set that free.
        self.letting_go: tuple[Filter, ...] = ()
        #: What rules wait for that change the graph.
        self.watches = Watches(self.graph, ())
        #: Who stands behind ports, and the scopes where that has to be known.
        self.roster = Roster()
        self.watched: frozenset[str] = frozenset()
        self._rebuild()
        #: Places as they are, by key, and as they were, oldest first.
        self.places: dict[str, Span] = {}
        self.past: list[Span] = []
        #: The first epoch in which a place of each key existed, and the first of all.
        self._first: dict[str, int] = {}
        self.begin = 0
        #: The last epoch in which places have changed.
        self.moved = 0
        #: The last of these changes, each with the places that have come or gone, and up to which
        #: epoch they are forgotten.
        self._moves: deque[tuple[int, list[Span]]] = deque()
        self._forgotten = 0
        self._size = 0
        #: Notifications that went across each edge, and into each scope, since the broker started.
        self.crossed: dict[tuple[str, str], int] = {}

    @property
    def size(self) -> int:
        """Bytes of the records, and of the places as they are and were."""
        return self._size

    # -- changes

    def change(self, epoch: int, change: Change) -> None:
        """Carry out a change; if it cannot be, nothing has changed and the error is raised."""
        records = self.records
        gone = [records[key] for key in change.drop if key in records]
        new = {record.key: record for record in change.put}
        before = {key: records.get(key) for key in (*change.drop, *new)}
        self._moving.clear()
        self._touched.clear()
        for key in change.drop:
            records.pop(key, None)
        records |= new
        try:
            if any(isinstance(r, GraphData | UpdateData) for r in (*new.values(), *gone)):
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
            self._watch()
            raise
        self.epoch = epoch
        self._built += 1
        self.begin = self.begin or epoch
        were = [record for record in before.values() if record is not None]
        self._size += sum(map(_size, new.values())) - sum(map(_size, were))
        touched: list[Record] = [*were, *new.values()]
        self._disturb(touched)
        self._move(epoch, touched)
        self._watch()

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
        self.moved = self._forgotten = epoch
        self._moves.clear()
        self._size = sum(map(_size, self.records.values())) + sum(map(_size, known))
        self._watch()

    def _watch(self) -> None:
        if self.graph.automation or self.watches:
            self.watches = Watches(self.graph, self.graph.automation.values())
        if self.graph.has_policies or self.watched or self.watches.consumption:
            is_scope = (id for id, node in self.graph.nodes.items() if node.is_scope)
            self.watched = frozenset(is_scope) if self.watches.consumption else watched(self.graph)
            self.roster.changed(self.graph)
        policies = (p for id in self.graph.policed for p in self.graph.node(id).policies.values())
        holding = [each for each in policies if isinstance(each, Hold)]
        filters = [f for each in holding for f in (each.release, each.abort) if f is not None]
        self.says_words = bool(holding or self.watches)
        self.holds, self.letting_go = bool(holding), tuple(dict.fromkeys(filters))

    def heard(self, stream: str, number: int) -> None:
        """A word of a broker was heard."""
        if number > self._heard.get(stream, 0):
            self._heard = {**self._heard, stream: number}  # what is held shares the one before

    def _alter(self, gone: list[Record], new: Mapping[str, Record]) -> None:
        graph = self.graph
        for record in reversed(ordered(gone)):
            if isinstance(record, RuleData) and record.scope in graph:
                self._close(record)
            drop(graph, record)
        for record in ordered(new.values()):
            self._put(record)

    def _put(self, record: Record) -> None:
        put(self.graph, record)
        match record:
            case RuleData():
                self._open(record)
            case ScopeData():
                for rule in self.graph.rules.of_scope(record.id):
                    known = self.records.get(f"rule {place_of_rule(rule.scope, rule.label)}")
                    if isinstance(known, RuleData):
                        self._open(known)

    def _open(self, record: RuleData) -> None:
        """The ports of a rule: for all whom it takes in, and for those who satisfy a policy."""
        self._close(record)
        place, rule = place_of_rule(record.scope, record.label), rule_of(record)
        self.graph.add_port(_stand_in(place), rule)
        policies = self.graph.scope(record.scope).policies.values()
        asked = {(p.attribute, p.level) for p in policies if isinstance(p, RequirePrivilege)}
        for attribute, level in sorted(asked):
            condition = str(Filter.of_expression(Atom(attribute, ">=", (level,))))
            key = f"{place}{RESERVED}{condition}"  # no rule has a label like that
            self._conditions[key] = place, condition
            self.graph.add_port(_stand_in(key), rule, {attribute: level})
            self._narrower[place] = (*self._narrower.get(place, ()), key)
        self._touched.update(self._narrower.get(place, ()))

    def _close(self, record: RuleData) -> None:
        place = place_of_rule(record.scope, record.label)
        narrower = self._narrower.pop(place, ())
        self._touched.update(narrower)
        for key in (place, *narrower):
            self._conditions.pop(key, None)
            self.graph.remove_port(_stand_in(key), record.scope)

    def _disturb(self, touched: Iterable[Record]) -> None:
        """Forget the reaches that have looked at something that has changed."""
        ids = set(self._moving)
        for record in touched:
            match record:
                case ScopeData() | ComponentData():
                    ids.add(record.id)
                case EdgeData():
                    ids |= {record.child, record.parent}
                case RuleData():
                    ids.add(record.scope)
        stale = [key for key, reach in self._reaches.items() if not ids.isdisjoint(reach.seen)]
        for key in stale:
            del self._reaches[key]
        for key in [key for key in self._reaches if key[0] in ids]:
            del self._reaches[key]

    def _rebuild(self) -> None:
        self._built += 1
        self._reaches.clear()
        self._narrower.clear()
        self._conditions.clear()
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
        keys |= {place_of_component(id) for id in self._moving} | self._touched
        changed: list[Span] = []
        for key in sorted(keys):
            new, old = self._place(key, epoch), self.places.get(key)
            if new is None or old is None or not old.is_like(new):
                if old is not None:
                    del self.places[key]
                    old.until = epoch
                    self.past.append(old)
                    changed.append(old)
                if new is not None:
                    self.places[key] = new
                    self._first.setdefault(key, epoch)
                    self._size += _size(new)
                    changed.append(new)
        if len(self.past) > MAX_PAST:
            self._size -= sum(map(_size, self.past[:-MAX_PAST]))
            del self.past[:-MAX_PAST]
        if changed:
            self.moved = epoch
            self._moves.append((epoch, changed))
            if len(self._moves) > MAX_MOVES:
                self._forgotten = self._moves.popleft()[0]

    def _place(self, key: str, epoch: int) -> Span | None:
        """The place with this key, as the records have it."""
        node = self.graph.nodes.get(key[1:]) if key[:1] in "=!" else None
        if node is not None and not node.is_scope and (key[0] == "!" or node.parents):
            where = str(Filter.of_expression(Atom("name", "=", (key[1:],))))
            return Span(key, "", where, [], epoch)
        place, condition = self._conditions.get(key, (key, ""))
        rule = self.records.get(f"rule {place}")
        if not isinstance(rule, RuleData):
            return None
        admits = self.graph.scope(rule.scope).admits
        where = rule.where if admits is None else str(Filter(rule.where) & admits)
        if condition:
            where = str(Filter(where) & Filter(condition))
        policies = self.graph.scope(rule.scope).policies
        chosen = not condition and any(
            kind is not Kind.PUBLISHING and compares(policy) for kind, policy in policies.items()
        )
        return Span(key, rule.scope, where, rule.among, epoch, None, chosen)

    # -- components

    def view(self, component: Component) -> View:
        """What it may see, as of the present epoch."""
        if component.is_broker:
            return View(component.producer, {WORDS: ((0, -1),)}, False)
        if component.viewed != self.moved:
            if component.viewed < 0 or self._concerns(component):
                component.view = self._view(component)
            component.viewed = self.moved
        return component.view

    def moved_since(self, epoch: int) -> list[Span] | None:
        """The places that have come or gone since then; None if that is not known any more."""
        if epoch < self._forgotten:
            return None
        return [span for at, spans in self._moves if at > epoch for span in spans]

    def _concerns(self, component: Component) -> bool:
        """Whether a place has come or gone, since its view was found, that takes it in."""
        if component.viewed < self._forgotten:
            return True
        facts = component.facts
        for epoch, spans in reversed(self._moves):
            if epoch <= component.viewed:
                return False
            if any(span.may_match(facts) for span in spans):
                return True
        return False

    def _view(self, component: Component) -> View:
        facts = component.facts
        taken = [s for s in self.past if s.may_match(facts) and s.filter.matches(facts)]
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
                    times = [each for time in times for each in without(time, other.time)]
            for since, until in times:
                anywhere.append((since, until))
                if span.chosen:
                    own = personal(span.key, component.name)
                    places.setdefault(own, []).append((since, until))
                if since <= self._first[span.key]:
                    since = 0  # there is nothing older of that name
                places.setdefault(span.key, []).append((since, until))
        for since, until in gaps(sorted(anywhere), self.begin):
            places.setdefault(NOWHERE, []).append((since, until))
        found = {key: joined(spans) for key, spans in places.items()}
        return View(component.producer, found, any(u < 0 for _, u in found.get(NOWHERE, ())))

    def _keys_now(self, component: Component, facts: Mapping[str, Any]) -> list[str]:
        own = place_of_component(component.name), named(component.name)
        keys = [key for key in own if key in self.places]
        for rule in self.graph.rules.matching(facts):
            place = place_of_rule(rule.scope, rule.label)
            for key in (place, *self._narrower.get(place, ())):
                if key in self.places and self.places[key].filter.matches(facts):
                    keys.append(key)
        return keys

    def _times(self, span: Span, plain: list[Span]) -> Iterable[tuple[int, int]]:
        """When the component was at a place: all the time, or while it was in another scope."""
        if not span.among:
            return [span.time]
        found = [common(span.time, o.time) for o in plain if o.scope in span.among]
        return [each for each in found if each is not None]

    def _reach(self, component: Component) -> Reach:
        """How far it is heard; components in the same places share that."""
        if component.climbs == self._built:
            return component.reach
        known = self.graph.nodes.get(component.name)
        is_named = known is not None and not known.is_scope
        key = component.name if is_named else None, self.view(component).shared.now
        reach = self._reaches.get(key)
        if reach is None:
            if len(self._reaches) >= MAX_REACHES or len(self._filters) >= MAX_FILTERS:
                self._reaches.clear()
                self._filters = Index()
                self._built += 1  # those that components have at hand rely on the index as well
            node = self._climbing(component)
            reach = Reach(node.parents.values(), node, open_by_default=self.graph.open_by_default)
            rules = (self.records.get(f"rule {place}") for place in key[1])
            reach.seen |= {rule.scope for rule in rules if isinstance(rule, RuleData)}
            if self.watches and any(map(self.watches.concern, reach.seen)):
                reach.is_known = False
            self._reaches[key] = reach
        if len(reach.bits) > FEW_FILTERS:
            for filter in reach.bits:
                if filter not in self._filters:
                    self._filters.add(filter, filter)
        component.reach, component.climbs = reach, self._built
        component.marks = {}
        return reach

    def _climbing(self, component: Component) -> Node:
        """The component as a publisher: with an edge into each scope that it is a member of."""
        if component.placed == self._built:
            return component.node
        known = self.graph.nodes.get(component.name)
        id = _stand_in(place_of_publisher(component.producer))
        node = Node(id, is_scope=False, name=component.name)
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
        component.node, component.placed = node, self._built
        return node

    def is_watched(self, component: Component) -> bool:
        """Whether others have to know of it, since somebody may choose it, or wait for it."""
        return bool(self.watched) and any(
            (
                isinstance(record := self.records.get(f"rule {key}"), RuleData)
                and record.scope in self.watched
            )
            or (self.watches.consumption and key[:1] == "=")
            for key in self.view(component).now
        )

    def may_delay(self, component: Component) -> bool:
        """Whether policies may put off something of it."""
        return self.graph.has_delays and not self._reach(component).is_known

    def translated_places(self, component: Component) -> frozenset[str]:
        """Where something of it may arrive that is no longer what it has published."""
        if not self.graph.has_mappings:
            return frozenset()
        if self._translated_as_of != self._built:
            self._translated, self._translated_as_of = {}, self._built
        known = self.graph.nodes.get(component.name)
        is_named = known is not None and not known.is_scope
        key = component.name if is_named else None, self.view(component).shared.now
        found = self._translated.get(key)
        if found is None:
            node = self._climbing(component)
            edges, is_open = node.parents.values(), self.graph.open_by_default
            members = translated_members(edges, node, open_by_default=is_open)
            found = self._translated[key] = frozenset(map(_place_of, members))
        return found

    # -- publications

    def marks(self, component: Component, envelopes: Sequence[Envelope]) -> list[Mark] | None:
        """What is put before each of these, if there are no other versions of them.

        None if mappings or policies have a say: ask for the `versions` of each.
        """
        reach = self._reach(component)
        if not reach.is_known:
            return None
        bits = self._bits(reach, envelopes)
        found = [self._mark(component, reach, each) for each in bits]
        own = place_of_publisher(component.producer)
        crossed = self.crossed
        for each, number in Counter(bits).items():
            for child, parent in self._mark(component, reach, each).edges:
                edge = (child or own, parent)
                crossed[edge] = crossed.get(edge, 0) + number
        return found

    def _bits(self, reach: Reach, envelopes: Sequence[Envelope | Notification]) -> list[int]:
        """Which filters of a reach match each of these."""
        if not reach.bits or not envelopes:
            return [0] * len(envelopes)
        remembered = reach.remembered
        plain = reach.is_plain and isinstance(envelopes[0], Envelope)
        said = list(map(reach.said, map(_attributes if plain else _facts, envelopes)))
        known = [remembered(each) for each in said]
        if None in known:
            rows = [i for i, bits in enumerate(known) if bits is None]
            matched = self._matched(reach, [envelopes[i] for i in rows])
            for i, bits in zip(rows, matched, strict=True):
                known[i] = bits
                reach.remember(said[i], bits)
        return known  # type: ignore[return-value]

    def _matched(self, reach: Reach, envelopes: Sequence[Envelope | Notification]) -> list[int]:
        found = [0] * len(envelopes)
        if len(reach.bits) > FEW_FILTERS:
            for filter, rows in self._filters.match_by_key(envelopes):
                bit = reach.bits.get(filter)
                for row in rows if bit is not None else ():
                    found[row] |= bit  # type: ignore[operator]
            return found
        for filter, bit in reach.bits.items():
            for i, envelope in enumerate(envelopes):
                if filter.matches(envelope):  # type: ignore[arg-type]
                    found[i] |= bit
        return found

    def _mark(self, component: Component, reach: Reach, bits: int) -> Mark:
        mark = component.marks.get(bits)
        if mark is None:
            if len(component.marks) >= MAX_ANSWERS:
                component.marks.clear()
            answer = reach.answer(bits)
            keys = {place_of_publisher(component.producer), *map(_place_of, answer.members)}
            if reach.is_outside:
                keys.add(NOWHERE)
            stamp = Stamp(self.epoch, component.producer, tuple(sorted(keys)))
            mark = component.marks[bits] = Mark(stamp, stamp.prefix, answer.edges)
        return mark

    def versions(self, component: Component, n: Notification, now: float = 0.0) -> Decided:
        """In which versions something is visible where, and what of it waits."""
        reach = self._reach(component)
        if reach.is_known:
            (bits,) = self._bits(reach, [n])
            return Decided([(self._mark(component, reach, bits).stamp, None)], [])
        node = self._climbing(component)
        outcome = self._disseminate(node, lambda graph: graph.publish(node.id, n), now)
        found = self._decided(component, node, n, outcome, now)
        own = place_of_publisher(component.producer)
        return found._replace(versions=_with_original(found.versions, self.epoch, component, own))

    def resume(self, stamp: Stamp, n: Notification, now: float = 0.0) -> Decided:
        """What has waited goes on, by the graph as it is now; it may be visible nowhere."""
        waiting = Waiting.of(stamp)
        component = Component(waiting.producer, waiting.name, waiting.attributes)
        node = self._climbing(component)
        crossing = Postponed(
            waiting.child or node.id,
            waiting.parent,
            waiting.upward,
            n,
            (node.id, *waiting.climbed),
            (node.id, *waiting.path),
        )
        outcome = self._disseminate(node, lambda graph: graph.resume(crossing), now)
        return self._decided(component, node, n, outcome, now)

    def _decided(
        self, component: Component, node: Node, n: Notification, outcome: Outcome, now: float
    ) -> Decided:
        # What is put off waits with the broker, on disk, and not in the graph.
        self.graph.policy_states.update(outcome.states)
        found: dict[Notification | None, dict[str, None]] = {}
        for delivery in outcome.deliveries:
            if delivery.consumer != node.id:
                version = None if delivery.notification == n else delivery.notification
                found.setdefault(version, {})[_place_of(delivery.consumer)] = None
        for reached in outcome.reached:
            edge = reached.path[-2].removeprefix(RESERVED), reached.path[-1]
            self.crossed[edge] = self.crossed.get(edge, 0) + 1
        producer = component.producer
        versions = [
            (Stamp(self.epoch, producer, tuple(sorted(keys))), version)
            for version, keys in found.items()
        ]
        del versions[MAX_VERSIONS:]
        for held, goes_on in dict.fromkeys(outcome.released):
            word = {"key": held, "goes_on": goes_on, "stream": self.stream}
            versions.append(self._word(producer, word, now))
        if self.watches:
            who = component.name, dict(component.attributes)
            happened = self.watches.noticed(outcome, node, who, self.roster)
            if happened is not None:
                word = {"stream": self.stream}
                versions.append(self._word(producer, word, now, happened.data))
        later = []
        for each in outcome.postponed:
            waiting = Waiting(
                producer,
                component.name,
                component.attributes,
                "" if each.child == node.id else each.child,
                each.parent,
                each.upward,
                each.climbed[1:],
                each.path[1:],
            )
            if each.key is not None:
                own = {"stream": self.stream, "number": self._next(now), "heard": self._heard}
                waiting = msgspec.structs.replace(waiting, held=each.key, **own)
            version = None if each.notification == n else each.notification
            later.append((each.until, Stamp(self.epoch, producer, (waiting.key,)), version))
        return Decided(versions, later[:MAX_VERSIONS])

    def _word(
        self, producer: str, word: dict[str, Any], now: float, data: bytes = b""
    ) -> tuple[Stamp, Notification]:
        """Something that only brokers hear."""
        said = Notification({**word, "number": self._next(now)}, payload=data)
        return Stamp(self.epoch, producer, (WORDS,)), said

    def _next(self, now: float) -> int:
        """The number of one more decision."""
        self._number = max(self._number + 1, int(now * PER_SECOND))
        return self._number

    def explain(self, component: Component, n: Notification) -> Outcome:
        """All that would become of a publication, with every refusal; changes nothing."""
        node = self._climbing(component)
        return self._disseminate(node, lambda graph: graph.publish(node.id, n), 0.0, explain=True)

    def _disseminate(
        self,
        node: Node,
        begin: Callable[[Dissemination], Outcome],
        now: float,
        *,
        explain: bool = False,
    ) -> Outcome:
        nodes = self.graph.nodes
        before = nodes.get(node.id)
        nodes[node.id] = node
        try:
            roster = self.roster if self.watched else None
            return begin(Dissemination(self.graph, now=now, explain=explain, roster=roster))
        finally:
            if before is None:
                del nodes[node.id]
            else:
                nodes[node.id] = before


def _with_original(
    versions: list[tuple[Stamp, Notification | None]], epoch: int, component: Component, own: str
) -> list[tuple[Stamp, Notification | None]]:
    """The original first, which its publisher sees in any case."""
    others = [(stamp, version) for stamp, version in versions if version is not None]
    keys = {own, *(key for stamp, version in versions if version is None for key in stamp.keys)}
    return [(Stamp(epoch, component.producer, tuple(sorted(keys))), None), *others]


def _stand_in(place: str) -> str:
    """The id, in the graph, of what stands for those at a place; no name is like it."""
    return RESERVED + place


def _place_of(member: str) -> str:
    """The place of a member: a component that the graph names, or a port."""
    is_port = member.startswith(RESERVED)
    return member.removeprefix(RESERVED) if is_port else place_of_component(member)


def _size(part: Record | Span) -> int:
    """Bytes that a record, or a place, takes where the graph is stored or sent."""
    return len(msgspec.msgpack.encode(part))
