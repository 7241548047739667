"""`GraphRouter`: content-based routing on any graph, with cycles, failures and growth.

Every broker floods its links (`link_states`) and so knows the graph, and in it the one shortest
path between any two brokers (`paths`). The *tree of a broker* is made of its paths to all others.

Interest. A broker reduces the subscriptions of its own clients to a set that it announces
(`local_set`), and this set spreads along the broker's own tree to all others (`spread`). Entries
are kept by origin. Nothing is suppressed in favor of another origin's filter, so the mistake that
acyclic tables make on a graph (08, trap 6: each of two brokers relies on the other to be
reachable through a third) cannot be made.

Notifications. One that enters at broker P travels the tree of P. A broker matches it, which gives
the origins whose clients want it, and passes it to those of its children in the tree of P behind
which there is such an origin. So once the graph is known to all, a notification uses exactly
the edges of the smallest part of the tree of P that joins P to those origins, each once. While it
is not, brokers may send along different trees, so whoever carries notifications takes each only
once. Who needs every notification has to know when trees change: `take_changes` tells what has
changed of them at this broker, and `stentor.node.graph_directory` says what follows.

Advertisements. Each broker's advertisements are reduced and spread to all brokers likewise. Where
they are *coupled*, a filter of origin O is passed to a child in the tree of O only if behind that
child some broker advertises what overlaps it. Paths are the same in both directions, so those are
the brokers from which a notification for O would come this way. When advertisements or trees
change, the filters concerned are decided anew.

Subtrees. A neighbor may be a *child*: the root of a hierarchy below this broker, which has no part
in the graph (R-08.44). What it asks for and offers counts as this broker's own, and what enters
below it enters the graph here.

A link that goes down takes with it what was told over it. Of what the neighbor told, routing is
right at once; the entries themselves are taken out of the table a few at a time, since until then
they can only send something in vain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from stentor.errors import InvalidConfiguration, InvalidTopology, ProtocolError, UnknownBroker
from stentor.filters import Filter, Questions
from stentor.filters.effort import effort, spend
from stentor.matching import Commons, FilterTable, Matcher
from stentor.model.codec import Envelope
from stentor.model.notification import Notification
from stentor.routing.graph.link_states import LinkState, LinkStates
from stentor.routing.graph.local_set import LocalSet
from stentor.routing.graph.messages import Entry, Topology
from stentor.routing.graph.owners import Owners
from stentor.routing.graph.paths import Graph, order
from stentor.routing.graph.spread import Spread, Told
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate, Update
from stentor.routing.protocol import (
    BrokerId,
    FilterId,
    Message,
    Outputs,
    Place,
    Send,
    TableSize,
)
from stentor.routing.reducers import Sample
from stentor.routing.reducers.sample import OBSERVED
from stentor.routing.shared_table import SharedTable
from stentor.routing.strategy import Strategy
from stentor.routing.table import Destination, Local, Neighbor, RoutingTable

_EVERYTHING: Final = Filter("")
#: Entries of a lost link that are taken out of the table in one step.
TAKEN_OUT: Final = 100
#: Elementary steps (see `effort`) after which no more filters are steered in one step; and what it
#: takes to look at one, to compare it with an advertisement, and to announce it.
STEERED: Final = 10_000
LOOK: Final = 6
PAIR: Final = 10
ANNOUNCING: Final = 50
#: Advertisements that are compared with a filter; if there are more it goes everywhere.
COMPARED: Final = 1_000


@dataclass
class TreeChange:
    """What has changed of the tree of one broker, where it passes another."""

    #: Whether notifications come from another neighbor than before.
    way: bool = False
    #: The children behind which there are other brokers than before.
    children: set[BrokerId] = field(default_factory=set)


class GraphRouter:
    """A broker's routing decisions on a generic graph.

    >>> a, b = GraphRouter("a"), GraphRouter("b")
    >>> for send in (*a.link_up("b"), *b.link_up("a")):
    ...     receiver, sender = (a, "b") if send.to == "a" else (b, "a")
    ...     _ = receiver.receive(sender, send.message)
    >>> [interest] = a.subscribe(FilterId("ann", 1), Filter("x > 1"))
    >>> interest.to, interest.message.added
    ('b', ((FilterId(client='a', number=0), Filter('x > 1')),))
    """

    def __init__(
        self,
        id: BrokerId,
        routing: str | Strategy = "covering",
        advertisements: str | Strategy | None = None,
        costs: Mapping[BrokerId, int] | None = None,
        *,
        shape: str = "graph",
        coupled: bool = True,
        engine: Callable[[], Matcher[Any]] | None = None,
        commons: Commons | None = None,
        at_once: int | None = None,
    ) -> None:
        """Without `advertisements`, or where they are not `coupled`, subscriptions go everywhere.

        `costs` are those of the links to neighbors, present and future; otherwise they are 1. With
        `at_once`, no step looks at more filters anew, and `work` does the rest. `shape` is what the
        overlay is called in `terms`. With `commons`, notifications are matched together with those
        of other routers.
        """
        self._id = id
        self._shape = shape
        self._routing = Strategy.of(routing)
        self._advertising = None if advertisements is None else Strategy.of(advertisements)
        offers = self._advertising or Strategy("flooding")
        self.is_coupled = coupled and not offers.floods
        self._sample = Sample(self._routing.sample)
        self._subscriptions = LocalSet(self._routing, self._sample, at_once)
        self._advertisements = LocalSet(offers, at_once=at_once)
        self._links = LinkStates(id, costs)
        self._neighbors: dict[BrokerId, None] = {}
        #: Neighbors that are roots of hierarchies below, and those of them that are linked.
        self._below: set[BrokerId] = set()
        self.subtrees: dict[BrokerId, None] = {}
        self._graph = Graph({})
        self._branches: dict[BrokerId, dict[BrokerId, BrokerId]] = {}
        self._children: dict[BrokerId, frozenset[BrokerId]] = {}
        self._changes: dict[BrokerId, TreeChange] = {}
        self._interests = Spread(id, SubscriptionUpdate, self._towards, self._interested)
        self._offers = Spread(id, AdvertisementUpdate, self._towards, self._told_of_offers)
        #: What clients want, and what origins want, as `Neighbor`.
        self._table = RoutingTable(engine) if commons is None else SharedTable(commons.index)
        self._watcher: Callable[[Filter, bool], None] | None = None
        self._wanted: Owners[FilterTable[Filter], tuple[BrokerId, int]] = Owners(FilterTable())
        self._offered: Owners[FilterTable[Filter], BrokerId] = Owners(FilterTable())
        #: Entries of the table that came over links which are gone.
        self._void: deque[Iterator[tuple[Neighbor, Hashable]]] = deque()
        #: Keys of what children offer.
        self._offering: dict[BrokerId, dict[Hashable, None]] = {}
        #: Advertisements that came or went since it was last decided where all that overlaps them
        #: goes; and what has not been looked at of the one whose turn it is.
        self._came: dict[tuple[BrokerId, Filter], None] = {}
        self._gone: dict[tuple[BrokerId, Filter], None] = {}
        self._noted: tuple[BrokerId, Filter] | None = None
        self._rest: Iterator[Filter] | None = None
        self._at_once = at_once
        self._lives = 0
        self._life: dict[BrokerId, int] = {}

    @property
    def id(self) -> BrokerId:
        return self._id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset((*self._neighbors, *self.subtrees))

    @property
    def terms(self) -> str:
        """What neighbors have to agree on, in words.

        >>> GraphRouter("a", "merging").terms
        'a graph that announces filters'
        """
        told = "nothing" if self._routing.floods else "filters"
        steered = ", steered by advertisements" if self.is_coupled else ""
        return f"a {self._shape} that announces {told}{steered}"

    # -- local clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._subscriptions.filters:
            return []
        self._enter(Local(id.client), id, filter)
        self._subscriptions.add(id, filter)
        return self._announce()

    def unsubscribe(self, id: FilterId) -> Outputs:
        return self.withdraw([id], [])

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._advertisements.filters:
            return []
        self._advertisements.add(id, filter)
        return self._announce()

    def unadvertise(self, id: FilterId) -> Outputs:
        return self.withdraw([], [id])

    def withdraw(
        self, subscriptions: Iterable[FilterId], advertisements: Iterable[FilterId]
    ) -> Outputs:
        for id in subscriptions:
            if id in self._subscriptions.filters:
                self._cancel(Local(id.client), id)
                self._subscriptions.remove(id)
        for id in advertisements:
            if id in self._advertisements.filters:
                self._advertisements.remove(id)
        return self._announce()

    def _announce(self) -> Outputs:
        """Tell the others what has changed of the own filters."""
        offers, interests = self._advertisements.take(), self._subscriptions.take()
        outputs: Outputs = []
        if offers.add or offers.remove:
            outputs += self._offer(self._id, self._id, *offers)
        if interests.add or interests.remove:
            outputs += self._interest(self._id, self._id, *interests)
        return outputs

    # -- other brokers

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        if sender in self.subtrees and isinstance(message, Update):
            return self._from_below(sender, message)
        if sender not in self._neighbors:
            raise UnknownBroker(
                f"{sender!r} is not a neighbor of {self._id!r}; announce the link with link_up "
                "first"
            )
        match message:
            case SubscriptionUpdate():
                changes = _by_origin(message)
                return [o for each in changes for o in self._interest(sender, *each)]
            case AdvertisementUpdate():
                changes = _by_origin(message)
                return [o for each in changes for o in self._offer(sender, *each)]
            case Topology(states):
                return self._learn(sender, states)
        raise InvalidConfiguration(
            f"{sender!r} sent {self._id!r} a {type(message).__name__}, which is not a message of "
            "graph routing; all brokers of an overlay must run the same kind of router"
        )

    def link_up(self, neighbor: BrokerId) -> Outputs:
        if neighbor == self._id or neighbor in self.neighbors:
            raise InvalidTopology(f"{self._id!r} cannot have a second link to {neighbor!r}")
        if neighbor in self._below:
            self.subtrees[neighbor] = None
            self._asked(_EVERYTHING)
            return []
        others = sorted(self._neighbors, key=order)
        self._neighbors[neighbor] = None
        self._lives += 1
        self._life[neighbor] = self._lives
        self._interests.link_up(neighbor)
        self._offers.link_up(neighbor)
        state = self._links.linked(self._neighbors)
        outputs: Outputs = [Send(neighbor, Topology(self._links.all()))]
        outputs += [Send(other, Topology((state,))) for other in others]
        self._asked(_EVERYTHING)
        return outputs + self._graph_changed()

    def place(self, neighbor: BrokerId, place: Place) -> None:
        """What the neighbor is to this broker from now on: a peer in the graph, or a child."""
        if place == "child":
            self._below.add(neighbor)
        else:
            self._below.discard(neighbor)

    def is_joining(self, neighbor: BrokerId) -> bool:
        """A new neighbor is told in one step."""
        return False

    def asks(self, neighbor: BrokerId) -> bool:
        """Whether `forget_some` has something left to do before `link_down`."""
        if neighbor not in self.subtrees:
            return False
        return bool(self._table.size(Neighbor(neighbor)) or self._offered_below(neighbor, 1))

    def forget_some(self, neighbor: BrokerId, most: int) -> Outputs:
        """Forget so many filters of a child that says nothing any more."""
        if neighbor not in self.subtrees:
            return []
        asked = list(islice(self._table.at(Neighbor(neighbor)), most))
        offered = self._offered_below(neighbor, most)
        outputs = self._from_below(neighbor, SubscriptionUpdate((), tuple(asked)))
        return outputs + self._from_below(neighbor, AdvertisementUpdate((), tuple(offered)))

    def _offered_below(self, child: BrokerId, most: int) -> list[Hashable]:
        return list(islice(self._offering.get(child, ()), most))

    def _from_below(self, child: BrokerId, message: Update) -> Outputs:
        """What a subtree asks for or offers has changed: it counts as the own."""
        asks = isinstance(message, SubscriptionUpdate)
        held = self._subscriptions if asks else self._advertisements
        for key, filter in message.added:
            if (child, key) not in held.filters:
                held.add((child, key), filter)
                if asks:
                    self._enter(Neighbor(child), key, filter)
                else:
                    self._offering.setdefault(child, {})[key] = None
        for key in message.removed:
            if (child, key) in held.filters:
                held.remove((child, key))
                if asks:
                    self._cancel(Neighbor(child), key)
                else:
                    del self._offering[child][key]
        return self._announce()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        outputs: Outputs
        if neighbor in self.subtrees:
            outputs = []
            while self.asks(neighbor):
                outputs += self.forget_some(neighbor, TAKEN_OUT)
            del self.subtrees[neighbor]
            self._offering.pop(neighbor, None)
            self._asked(_EVERYTHING)
            return outputs
        if neighbor not in self._neighbors:
            raise UnknownBroker(f"{self._id!r} has no link to {neighbor!r} that could go down")
        del self._neighbors[neighbor]
        state = self._links.linked(self._neighbors)
        outputs = [Send(other, Topology((state,))) for other in sorted(self._neighbors, key=order)]
        self._void.append(self._entries(self._interests.link_down(neighbor), self._life[neighbor]))
        del self._life[neighbor]
        for origin, filters in self._offers.link_down(neighbor).items():
            for filter in filters.values():
                self._offered.remove(filter, origin)
                self._note(origin, filter, there=False)
        self._take_out()
        self._asked(_EVERYTHING)
        return outputs + self._graph_changed() + self._steered()

    # -- in steps

    @property
    def has_work(self) -> bool:
        """Whether more is asked for or sent than has to be, until `work` was called."""
        local = self._subscriptions.has_work or self._advertisements.has_work
        return local or bool(self._void or self._came or self._gone)

    @property
    def is_serving(self) -> bool:
        """Whether `work` has to go on before neighbors are asked for all that they offer."""
        return bool(self._came)

    def work(self) -> Outputs:
        """Do a part of what the changes have left to do."""
        self._take_out()
        self._subscriptions.work()
        self._advertisements.work()
        return self._announce() + self._steer()

    def _entries(self, told: Told, life: int) -> Iterator[tuple[Neighbor, Hashable]]:
        for origin, filters in told.items():
            for number, filter in filters.items():
                if self.is_coupled:
                    self._wanted.remove(filter, (origin, number))
                yield Neighbor(origin), (life, number)

    def _take_out(self) -> None:
        """Take some entries of a lost link out of the table."""
        if self._void:
            for _ in range(TAKEN_OUT):
                entry = next(self._void[0], None)
                if entry is None:
                    self._void.popleft()
                    return
                self._cancel(*entry)

    # -- what is known

    def table_size(self) -> TableSize:
        below = sum(self._table.size(Neighbor(child)) for child in self.subtrees)
        return TableSize(
            local=len(self._subscriptions.filters) - below,
            remote=self._interests.remote() + below,
            advertisements=len(self._advertisements.filters) + self._offers.remote(),
        )

    def offers(self) -> list[Filter]:
        tells = self._advertising is not None and not self._advertising.floods
        found = self._offered.filters if tells else set(self._advertisements.filters.values())
        return sorted(found, key=str)

    def interests(self) -> list[Filter]:
        """What is asked for by anybody.

        Where everything is flooded, brokers do not say what they ask for: that may be everything.
        """
        found = [row.filter for row in self._table.rows()]
        return [*found, _EVERYTHING] if self._may_want_everything else found

    def watch(self, changed: Callable[[Filter, bool], None]) -> None:
        """Be told of each of the `interests` that has come (True) or gone."""
        self._watcher = changed

    @property
    def _may_want_everything(self) -> bool:
        return self._routing.floods and bool(self.neighbors)

    def _asked(self, filter: Filter) -> None:
        """Whether somebody asks for this may have changed."""
        if self._watcher is not None:
            there = bool(self._table.owners(filter))
            self._watcher(filter, there or (filter.is_always and self._may_want_everything))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held of what anybody asks for or offers."""
        return (
            not len(self._table) and self._interests.is_empty and self._offers.is_empty
        ) and not self._void

    # -- the graph

    def describe(self, about: tuple[Any, ...]) -> Outputs:
        """Let all brokers know something about this one; `about` tells it there."""
        state = self._links.describe(about)
        return [Send(other, Topology((state,))) for other in sorted(self._neighbors, key=order)]

    def about(self, broker: BrokerId) -> tuple[Any, ...]:
        """What a broker has let all others know about itself."""
        return self._links.about(broker)

    def reachable(self) -> Collection[BrokerId]:
        """All brokers to which there is a way, this one included."""
        return self._graph.tree(self._id).costs.keys()

    def towards(self, root: BrokerId) -> BrokerId | None:
        """The neighbor through which notifications come that entered at this broker."""
        return self._branches_of(self._id).get(root)

    def way(self, root: BrokerId, broker: BrokerId) -> BrokerId | None:
        """The neighbor that passes on to this broker what entered at the root."""
        return self._branches_of(root).get(broker)

    def children(self, root: BrokerId) -> frozenset[BrokerId]:
        """The neighbors that get from here what entered at the root."""
        return self._children_of(root)

    def take_changes(self) -> dict[BrokerId, TreeChange]:
        """The brokers whose trees have changed here since this was last asked."""
        changes, self._changes = self._changes, {}
        return changes

    def _learn(self, sender: BrokerId, states: Iterable[LinkState]) -> Outputs:
        news, answers = self._links.learn(states)
        outputs: Outputs = [Send(sender, Topology(tuple(answers)))] if answers else []
        if not news:
            return outputs
        for neighbor in sorted(self._neighbors, key=order):
            if neighbor != sender:
                outputs.append(Send(neighbor, Topology(tuple(news))))
        outputs += self._graph_changed()
        self._links.forget(self.reachable())
        return outputs

    def _graph_changed(self) -> Outputs:
        """Compute the trees anew, if need be, and tell of the origins whose trees differ here."""
        edges = self._links.edges()
        if edges == self._graph.costs:
            return []
        before, graph = self._graph, self._graph.changed(edges)
        roots = dict.fromkeys((*before.tree(self._id).costs, *graph.tree(self._id).costs))
        changed: set[BrokerId] = set()
        for root in roots:
            old = before.tree(root)
            new = graph.tree(root)
            if old is not new:
                changed.add(root)
                self._note_change(root, self._branches_of(root), new.branches(self._id))
                if old.parents.get(self._id) != new.parents.get(self._id):
                    self._changes.setdefault(root, TreeChange()).way = True
        self._graph = graph
        for root in changed:
            self._branches.pop(root, None)
            self._children.pop(root, None)
        outputs: Outputs = []
        for spread in (self._offers, self._interests):
            for origin in spread.origins():
                if origin in changed or origin not in roots:
                    outputs += spread.tell(origin)
        return outputs

    def _note_change(
        self, root: BrokerId, old: dict[BrokerId, BrokerId], new: dict[BrokerId, BrokerId]
    ) -> None:
        if old != new:
            children = self._changes.setdefault(root, TreeChange()).children
            for broker in old.keys() | new.keys():
                if old.get(broker) != new.get(broker):
                    children |= {way for way in (old.get(broker), new.get(broker)) if way}

    def _branches_of(self, root: BrokerId) -> dict[BrokerId, BrokerId]:
        """In the tree of a broker: for each broker behind this one, the child on the way to it."""
        branches = self._branches.get(root)
        if branches is None:
            branches = self._branches[root] = self._graph.tree(root).branches(self._id)
        return branches

    def _children_of(self, root: BrokerId) -> frozenset[BrokerId]:
        """The children of this broker in the tree of another, or in its own."""
        children = self._children.get(root)
        if children is None:
            children = self._children[root] = frozenset(self._branches_of(root).values())
        return children

    def _towards(self, origin: BrokerId) -> BrokerId | None:
        return origin if origin == self._id else self.towards(origin)

    # -- filters

    def _enter(self, destination: Destination, key: Hashable, filter: Filter) -> None:
        self._table.add(destination, key, filter)
        self._asked(filter)

    def _cancel(self, destination: Destination, key: Hashable) -> None:
        self._asked(self._table.remove(destination, key).filter)

    def _interest(
        self, sender: BrokerId, origin: BrokerId, add: Iterable[Entry], remove: Iterable[int]
    ) -> Outputs:
        came, went = self._interests.update(sender, origin, add, remove)
        life = self._life.get(sender, 0)
        for number, filter in came:
            if sender != self._id:
                self._enter(Neighbor(origin), (life, number), filter)
            if self.is_coupled:
                self._wanted.add(filter, (origin, number))
        for number, filter in went:
            if sender != self._id:
                self._cancel(Neighbor(origin), (life, number))
            if self.is_coupled:
                self._wanted.remove(filter, (origin, number))
        return self._interests.tell(origin, _numbers(came, went))

    def _interested(self, origin: BrokerId, filter: Filter) -> Collection[BrokerId]:
        """The children in the origin's tree behind which something may be published for it."""
        if not self.is_coupled:
            return self._children_of(origin)
        branches = self._branches_of(origin)
        children = self._children_of(origin)
        questions = Questions()
        found: set[BrokerId] = set()
        for compared, offer in enumerate(self._offered.engine.may_overlap(filter)):
            if len(found) == len(children):
                break
            spend(PAIR)
            through = {
                branches[broker] for broker in self._offered.of([offer]) if broker in branches
            }
            if not through <= found and questions.overlaps(filter, offer):
                found |= through
            if compared >= COMPARED:  # it cannot be decided for the others
                return children
        return found

    def _told_of_offers(self, origin: BrokerId, filter: Filter) -> Collection[BrokerId]:
        """The children in the origin's tree."""
        return self._children_of(origin)

    def _offer(
        self, sender: BrokerId, origin: BrokerId, add: Iterable[Entry], remove: Iterable[int]
    ) -> Outputs:
        came, went = self._offers.update(sender, origin, add, remove)
        for _, filter in came:
            self._offered.add(filter, origin)
        for _, filter in went:
            self._offered.remove(filter, origin)
        outputs = self._offers.tell(origin, _numbers(came, went))
        if sender != self._id:  # what is offered here calls for nothing from here
            for _, filter in came:
                self._note(origin, filter, there=True)
            for _, filter in went:
                self._note(origin, filter, there=False)
        return outputs + self._steered()

    def _note(self, origin: BrokerId, filter: Filter, *, there: bool) -> None:
        """An advertisement came or went: where overlapping interests go is to be decided anew."""
        if self.is_coupled:
            change = origin, filter
            for notes in (self._came, self._gone):
                if notes and next(iter(notes)) == change:
                    self._rest = None
                notes.pop(change, None)
            (self._came if there else self._gone)[change] = None

    def _steered(self) -> Outputs:
        return self._steer() if self._at_once is None else []

    def _steer(self) -> Outputs:
        """Decide anew for some interests; if nothing is said of steps, for all."""
        enough = effort.left - STEERED
        concerned: dict[BrokerId, set[int]] = {}
        while (self._came or self._gone) and (self._at_once is None or effort.left > enough):
            spend(LOOK)
            notes = self._came or self._gone
            advertiser, offer = change = next(iter(notes))
            if self._rest is None or self._noted != change:
                self._noted = change
                self._rest = self._wanted.engine.may_overlap(offer)
            filter = next(self._rest, None)
            if filter is None:
                del notes[change]
                self._rest = None
                continue
            for origin, number in self._wanted.of([filter]):
                child = self._branches_of(origin).get(advertiser)
                told = child is not None and self._interests.has_told(child, origin, number)
                if child is not None and told != (notes is self._came):
                    spend(PAIR)
                    if filter.overlaps(offer):
                        concerned.setdefault(origin, set()).add(number)
                        spend(ANNOUNCING)
        outputs: Outputs = []
        for origin in sorted(concerned, key=order):
            outputs += self._interests.tell(origin, concerned[origin])
        return outputs

    # -- notifications

    def route_leading(
        self,
        events: Sequence[Envelope | Notification],
        source: BrokerId | None,
        most: int | None,
        root: BrokerId | None = None,
    ) -> tuple[int, dict[Destination, list[int]]]:
        """Where a batch goes that a client (None) published or a neighbor forwarded.

        All of it entered at the root, which is this broker if it is not given. For each neighbor
        and client the indexes of the events that go there, ascending; for as many leading events,
        at least one, as cost about `most` (`RoutingTable`) to pass on. Their number comes first.
        """
        if self._routing.looseness:  # nothing else asks for the sample
            for event in events[-OBSERVED:]:
                known = event if isinstance(event, Notification) else event.notification()
                self._sample.observe(known)
        if most is None:
            count, found = len(events), self._table.targets_of(events)
        else:
            count, found = self._table.targets_of_leading(events, most)
        root = self._id if root is None else root
        targets: dict[Destination, list[int]] = {}
        ways: dict[BrokerId, list[list[int]]] = {}
        branches = self._branches_of(root)
        for destination, indexes in found.items():
            if isinstance(destination, Local):
                targets[destination] = indexes
            else:
                at = destination.id
                way = at if at in self.subtrees else branches.get(at)
                if way is not None and way != source:
                    ways.setdefault(way, []).append(indexes)
        for way, lists in ways.items():
            several = len(lists) > 1
            targets[Neighbor(way)] = sorted(set().union(*lists)) if several else lists[0]
        if self._routing.floods:
            for way in sorted({*self._children_of(root), *self.subtrees} - {source}, key=order):
                targets[Neighbor(way)] = list(range(count))
        return count, targets


def _numbers(*entries: Iterable[Entry]) -> set[int]:
    return {number for part in entries for number, _ in part}


def _by_origin(update: Update) -> list[tuple[BrokerId, list[Entry], list[int]]]:
    """The changes of each origin's filters."""
    found: dict[BrokerId, tuple[list[Entry], list[int]]] = {}
    for key, filter in update.added:
        id = _id(key)
        found.setdefault(id.client, ([], []))[0].append((id.number, filter))
    for key in update.removed:
        id = _id(key)
        found.setdefault(id.client, ([], []))[1].append(id.number)
    return [(origin, add, remove) for origin, (add, remove) in found.items()]


def _id(key: Hashable) -> FilterId:
    if not isinstance(key, FilterId):
        raise ProtocolError(f"on a graph a filter is known by its broker and number, not by {key}")
    return key
