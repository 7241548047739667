"""`RendezvousRouter`: who asks for an event type and who has it find each other at a third broker.

This is type-based rendezvous with advertisements (R-03.34 to R-03.36, R-07.70) as live brokers run
it. Every broker can reach every other directly. The filters of a broker are told only to brokers
that have something for them, and a notification goes from the broker where it enters straight to
those that want it, so it never passes the meeting place.

Members. Some links stand, as they are configured. Over these, link states are flooded (as in a
graph), so all know who can be reached. All other links are *visits*: made when somebody needs them,
and closed when nobody does any more. They are no part of the graph.

Meeting. Everything that is asked for, and everything that a broker has, is known by `keys`, and
each key has a place, at one of the members (`places`). A broker tells each neighbor under which
keys it has something, and visits the places of these keys. It visits the places of the keys under
which it asks, and watches there: it is told which brokers have something, and whenever that
changes. These it visits, too, and tells them its filters. What has no type meets everywhere: who
asks for it visits all members, and so does who offers it.

Nothing at a place outlives a link. When members come or go, keys move, and whoever watches or has
something tells the new place. Until all have, a place may not know everyone. Who needs every
notification has to allow for brokers that are found late; `stentor.node.rendezvous_directory` says
how. `is_settled` tells whether this broker is linked with all that its places have named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any

from stentor.errors import InvalidConfiguration, InvalidTopology, UnknownBroker
from stentor.filters import Filter
from stentor.matching import Matcher
from stentor.model.codec import Envelope
from stentor.model.notification import Notification
from stentor.routing.graph.link_states import LinkState, LinkStates
from stentor.routing.graph.local_set import LocalSet
from stentor.routing.graph.messages import Entry, Topology
from stentor.routing.graph.paths import Graph, order
from stentor.routing.graph.spread import known_as
from stentor.routing.messages import SubscriptionUpdate
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
from stentor.routing.rendezvous.keys import ANY, name_of, offered, wanted
from stentor.routing.rendezvous.messages import Holds, Sources, Watches
from stentor.routing.rendezvous.places import Places
from stentor.routing.strategy import Strategy
from stentor.routing.table import Destination, Local, Neighbor, RoutingTable


class RendezvousRouter:
    """A broker's routing decisions where all reach all, and types say who has to do with whom.

    >>> router = RendezvousRouter("b1")
    >>> router.subscribe(FilterId("ann", 1), Filter("isa quote and price > 100"))
    []
    >>> router.is_settled, router.visits
    (True, frozenset())
    """

    def __init__(
        self,
        id: BrokerId,
        routing: str | Strategy = "covering",
        *,
        engine: Callable[[], Matcher[Any]] | None = None,
        at_once: int | None = None,
    ) -> None:
        """With `at_once`, no step looks at more filters anew, and `work` does the rest."""
        self._id = id
        self._routing = Strategy.of(routing)
        if self._routing.floods:
            raise InvalidConfiguration(
                "on a rendezvous overlay filters say where notifications go, so they cannot be "
                "flooded; choose another routing"
            )
        self._sample = Sample(self._routing.sample)
        self._subscriptions = LocalSet(self._routing, self._sample, at_once)
        self._advertisements: dict[FilterId, Filter] = {}
        self._links = LinkStates(id)
        self._neighbors: dict[BrokerId, None] = {}
        self._visitors: set[BrokerId] = set()
        self._graph = Graph({})
        self._members: frozenset[BrokerId] = frozenset((id,))
        self._in_order: Sequence[BrokerId] = (id,)
        self._places = Places(self._members)
        self._table = RoutingTable(engine)
        self._watcher: Callable[[Filter, bool], None] | None = None
        #: The filters that are announced, by key, and the numbers that each neighbor was told.
        self._announced: dict[int, tuple[Filter, frozenset[str]]] = {}
        self._asked: dict[str, set[int]] = {}
        #: The keys of all filters of clients.
        self._wished: Counter[str] = Counter()
        self._told: dict[BrokerId, set[int]] = {}
        #: Under which keys this broker has something, those of neighbors that have said it, and
        #: these by key.
        self._held: Counter[str] = Counter()
        self._theirs: dict[BrokerId, set[str]] = {}
        self._having: dict[str, set[BrokerId]] = {}
        #: Where each key that is asked for is watched, and whom that place has named.
        self._watched: dict[str, BrokerId] = {}
        self._named: dict[str, frozenset[BrokerId]] = {}
        #: Who watches keys here.
        self._watching: dict[str, set[BrokerId]] = {}
        self._everywhere = False
        self._settled: bool | None = None
        self._visits: frozenset[BrokerId] | None = None

    @property
    def id(self) -> BrokerId:
        return self._id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._neighbors)

    @property
    def standing(self) -> list[BrokerId]:
        """The neighbors that are no visitors, in order."""
        return sorted(self._neighbors.keys() - self._visitors, key=order)

    @property
    def terms(self) -> str:
        """What neighbors have to agree on, in words."""
        return "a rendezvous that announces filters"

    @property
    def is_coupled(self) -> bool:
        """Publications need not be advertised: what a journal holds is known."""
        return False

    # -- whom this broker has to do with

    @property
    def is_settled(self) -> bool:
        """Whether it is linked with all brokers that have what is asked for, as far as is known."""
        if self._settled is None:
            everybody = self._everywhere or ANY in self._asked
            needed = set(self._members if everybody else ()) - {self._id}
            keys = self._asked.keys() - {ANY}
            for key in keys:
                needed |= self._sources(key)
            known = all(self._watched[k] == self._id or k in self._named for k in keys)
            self._settled = known and needed <= self._theirs.keys()
        return self._settled

    @property
    def visits(self) -> frozenset[BrokerId]:
        """The members with which there has to be a link, by the needs of either side."""
        if self._visits is None:
            if self._everywhere or ANY in self._asked or ANY in self._held:
                found = set(self._members)
            else:
                found = {self._places.of(name_of(k)) for k in (*self._asked, *self._held)}
                found |= {broker for key in self._asked for broker in self._sources(key)}
            watching = {n for watchers in self._watching.values() for n in watchers}
            for neighbor, keys in self._theirs.items():
                meets = (self._places.of(name_of(key)) == self._id for key in keys)
                if neighbor in watching or self._table.at(Neighbor(neighbor)) or any(meets):
                    found.add(neighbor)
            self._visits = frozenset(found & self._members - {self._id})
        return self._visits

    def _sources(self, key: str) -> frozenset[BrokerId]:
        """The members that have something under a key, as far as is known."""
        if key == ANY:
            return frozenset()
        here = self._watched[key] == self._id
        found = self._having.get(key, ()) if here else self._named.get(key, ())
        return self._members.intersection(found)

    def reach_all(self, needed: bool) -> None:
        """Whether this broker has to do with all members, whatever they have."""
        if needed != self._everywhere:
            self._everywhere = needed
            self._touch()

    def asks_for(self, key: str) -> bool:
        """Whether a client here asks for something under the key.

        That need not be announced, if a filter that covers it is; but not everybody may have that.
        """
        return key in self._wished

    def _touch(self) -> None:
        self._settled = self._visits = None

    # -- local clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._subscriptions.filters:
            return []
        self._enter(Local(id.client), id, filter)
        self._subscriptions.add(id, filter)
        self._wished.update(wanted(filter))
        return self._announce()

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._advertisements:
            return []
        self._advertisements[id] = filter
        return self.hold(offered(filter))

    def unadvertise(self, id: FilterId) -> Outputs:
        return self.withdraw([], [id])

    def withdraw(
        self, subscriptions: Iterable[FilterId], advertisements: Iterable[FilterId]
    ) -> Outputs:
        for id in subscriptions:
            if id in self._subscriptions.filters:
                self._cancel(Local(id.client), id)
                self._wished.subtract(keys := wanted(self._subscriptions.remove(id)))
                for key in [key for key in keys if not self._wished[key]]:
                    del self._wished[key]
        gone: list[str] = []
        for id in advertisements:
            if id in self._advertisements:
                gone += offered(self._advertisements.pop(id))
        return self._announce() + self._drop(gone)

    # -- what this broker has

    def hold(self, keys: Collection[str]) -> Outputs:
        """Have something under these keys."""
        new = [key for key in keys if not self._held[key]]
        self._held.update(keys)
        return self._tell_all(Holds(tuple(sorted(new)))) if new else []

    def _drop(self, keys: Collection[str]) -> Outputs:
        self._held.subtract(keys)
        gone = [key for key in dict.fromkeys(keys) if not self._held[key]]
        for key in gone:
            del self._held[key]
        return self._tell_all(Holds((), tuple(sorted(gone)))) if gone else []

    def _tell_all(self, message: Message) -> Outputs:
        self._touch()
        return [Send(neighbor, message) for neighbor in sorted(self._neighbors, key=order)]

    # -- what is asked for here

    def _announce(self) -> Outputs:
        """Tell others what has changed of the own filters: those who have something for them."""
        add, remove = self._subscriptions.take()
        if not add and not remove:
            return []
        changes: dict[BrokerId, tuple[list[Entry], list[int]]] = {}
        was_asked: dict[str, bool] = {}
        for number in remove:
            _, keys = self._announced.pop(number)
            was_asked |= dict.fromkeys(keys, True)
            for key in keys:
                self._asked[key].discard(number)
            for neighbor, told in self._told.items():
                if number in told:
                    changes.setdefault(neighbor, ([], []))[1].append(number)
        for number, filter in add:
            keys = wanted(filter)
            self._announced[number] = filter, keys
            for key in keys:
                was_asked.setdefault(key, key in self._asked)
                self._asked.setdefault(key, set()).add(number)
            for neighbor in self._fitting(keys):
                changes.setdefault(neighbor, ([], []))[0].append((number, filter))
        for key in was_asked:
            if not self._asked[key]:
                del self._asked[key]
        outputs: Outputs = []
        if changed := {key for key, was in was_asked.items() if was != (key in self._asked)}:
            self._touch()
            outputs = self._watch(changed - {ANY})
        for neighbor in sorted(changes, key=order):
            outputs.append(self._update(neighbor, *changes[neighbor]))
        return outputs

    def _fitting(self, keys: Collection[str]) -> set[BrokerId]:
        """The neighbors that have something under these keys."""
        if ANY in keys:
            return set(self._theirs)
        return set().union(*(self._having.get(key, ()) for key in (*keys, ANY)))

    def _update(self, neighbor: BrokerId, add: list[Entry], remove: list[int]) -> Send:
        self._told[neighbor].difference_update(remove)
        self._told[neighbor].update(number for number, _ in add)
        added = tuple((known_as(self._id, number), filter) for number, filter in add)
        removed = tuple(known_as(self._id, number) for number in remove)
        return Send(neighbor, SubscriptionUpdate(added, removed))

    def _watch(self, keys: Iterable[str]) -> Outputs:
        """Watch these keys where they meet, as far as they are asked for, and nowhere else."""
        come: dict[BrokerId, list[str]] = {}
        gone: dict[BrokerId, list[str]] = {}
        for key in sorted(keys):
            place = self._places.of(name_of(key)) if key in self._asked else None
            before = self._watched.get(key)
            if place == before:
                continue
            self._named.pop(key, None)
            if before is not None:
                del self._watched[key]
                gone.setdefault(before, []).append(key)
            if place is not None:
                self._watched[key] = place
                come.setdefault(place, []).append(key)
        return [
            Send(place, Watches(tuple(come.get(place, ())), tuple(gone.get(place, ()))))
            for place in sorted(come.keys() | gone.keys(), key=order)
            if place in self._neighbors
        ]

    # -- other brokers

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        if sender not in self._neighbors:
            raise UnknownBroker(
                f"{sender!r} is not a neighbor of {self._id!r}; announce the link with link_up "
                "first"
            )
        match message:
            case SubscriptionUpdate(added, removed):
                self._wanted_there(sender, added, removed)
                return []
            case Holds(added, removed):
                return self._held_there(sender, added, removed)
            case Watches(added, removed):
                return self._watched_here(sender, added, removed)
            case Sources(found):
                for key, brokers in found:
                    if self._watched.get(key) == sender:
                        self._named[key] = frozenset(brokers)
                self._touch()
                return []
            case Topology(states):
                return self._learn(sender, states)
        raise InvalidConfiguration(
            f"{sender!r} sent {self._id!r} a {type(message).__name__}, which is not a message of "
            "rendezvous routing; all brokers of an overlay must run the same kind of router"
        )

    def _wanted_there(
        self,
        sender: BrokerId,
        added: Iterable[tuple[Hashable, Filter]],
        removed: Iterable[Hashable],
    ) -> None:
        there = Neighbor(sender)
        if not self._table.at(there):
            self._visits = None
        for key, filter in added:
            if key not in self._table.at(there):
                self._enter(there, key, filter)
        for key in removed:
            if key in self._table.at(there):
                self._cancel(there, key)

    def _held_there(
        self, sender: BrokerId, added: Collection[str], removed: Collection[str]
    ) -> Outputs:
        """A neighbor has something under other keys than before: tell it what is asked for."""
        keys = self._theirs.setdefault(sender, set())
        keys.update(added)
        keys.difference_update(removed)
        for key in added:
            self._having.setdefault(key, set()).add(sender)
        for key in removed:
            self._left(key, sender)
        told = self._told[sender]
        fitting = set(self._announced) if ANY in keys else set(self._asked.get(ANY, ()))
        for key in added:
            fitting |= self._asked.get(key, set())
        unfit = set[int]()
        if removed:
            unfit = {n for n in told if sender not in self._fitting(self._announced[n][1])}
        add = [(number, self._announced[number][0]) for number in sorted(fitting - told)]
        self._touch()
        outputs: Outputs = []
        if add or unfit:
            outputs.append(self._update(sender, add, sorted(unfit)))
        return outputs + self._name(key for key in (*added, *removed) if key in self._watching)

    def _left(self, key: str, neighbor: BrokerId) -> None:
        """The neighbor has nothing under the key any more."""
        having = self._having.get(key, set())
        having.discard(neighbor)
        if not having:
            self._having.pop(key, None)

    def _watched_here(
        self, sender: BrokerId, added: Iterable[str], removed: Iterable[str]
    ) -> Outputs:
        for key in removed:
            self._unwatch(key, sender)
        for key in added:
            self._watching.setdefault(key, set()).add(sender)
        self._visits = None
        found = tuple((key, self._named_to(sender, key)) for key in added)
        return [Send(sender, Sources(found))] if found else []

    def _unwatch(self, key: str, neighbor: BrokerId) -> None:
        watching = self._watching.get(key, set())
        watching.discard(neighbor)
        if not watching:
            self._watching.pop(key, None)

    def _named_to(self, neighbor: BrokerId, key: str) -> tuple[BrokerId, ...]:
        return tuple(sorted(self._having.get(key, set()) - {neighbor}, key=order))

    def _name(self, keys: Iterable[str]) -> Outputs:
        """Tell those who watch these keys here who has something under them."""
        told: dict[BrokerId, list[tuple[str, tuple[BrokerId, ...]]]] = {}
        for key in dict.fromkeys(keys):
            for neighbor in self._watching[key]:
                told.setdefault(neighbor, []).append((key, self._named_to(neighbor, key)))
        return [Send(to, Sources(tuple(told[to]))) for to in sorted(told, key=order)]

    # -- links

    def place(self, neighbor: BrokerId, place: Place) -> None:
        """What the neighbor is from now on: a peer whose link stands, or a visitor."""
        (self._visitors.add if place == "visitor" else self._visitors.discard)(neighbor)

    def link_up(self, neighbor: BrokerId) -> Outputs:
        if neighbor == self._id or neighbor in self._neighbors:
            raise InvalidTopology(f"{self._id!r} cannot have a second link to {neighbor!r}")
        self._neighbors[neighbor] = None
        self._told[neighbor] = set()
        self._touch()
        outputs: Outputs = []
        if neighbor not in self._visitors:
            state = self._links.linked(self.standing)
            outputs = [Send(neighbor, Topology(self._links.all()))]
            outputs += [Send(o, Topology((state,))) for o in self.standing if o != neighbor]
            outputs += self._members_changed()
        outputs.append(Send(neighbor, Holds(tuple(sorted(self._held)))))
        watched = tuple(key for key, place in self._watched.items() if place == neighbor)
        return [*outputs, Send(neighbor, Watches(watched))] if watched else outputs

    @property
    def is_serving(self) -> bool:
        """What neighbors offer makes no difference."""
        return False

    def is_joining(self, neighbor: BrokerId) -> bool:
        """A new neighbor is told in one step."""
        return False

    def asks(self, neighbor: BrokerId) -> bool:
        """Whether `forget_some` has something left to do before `link_down`."""
        return bool(self._table.at(Neighbor(neighbor)))

    def forget_some(self, neighbor: BrokerId, most: int) -> Outputs:
        """Forget so many filters of a neighbor that says nothing any more."""
        outputs = self._unlink(neighbor) if neighbor in self._neighbors else []
        for key in list(islice(self._table.at(Neighbor(neighbor)), most)):
            self._cancel(Neighbor(neighbor), key)
        return outputs

    def link_down(self, neighbor: BrokerId) -> Outputs:
        return self.forget_some(neighbor, len(self._table.at(Neighbor(neighbor))))

    def _unlink(self, neighbor: BrokerId) -> Outputs:
        """Nothing that the neighbor has said holds any more, but for its filters."""
        del self._neighbors[neighbor], self._told[neighbor]
        keys = self._theirs.pop(neighbor, set())
        for key in keys:
            self._left(key, neighbor)
        for key in list(self._watching):
            self._unwatch(key, neighbor)
        for key, place in self._watched.items():
            if place == neighbor:
                self._named.pop(key, None)
        self._touch()
        outputs = self._name(key for key in sorted(keys) if key in self._watching)
        if neighbor not in self._visitors:
            state = self._links.linked(self.standing)
            outputs += [Send(other, Topology((state,))) for other in self.standing]
            outputs += self._members_changed()
        return outputs

    # -- members

    def describe(self, about: tuple[Any, ...]) -> Outputs:
        """Let all brokers know something about this one; `about` tells it there."""
        state = self._links.describe(about)
        return [Send(other, Topology((state,))) for other in self.standing]

    def about(self, broker: BrokerId) -> tuple[Any, ...]:
        """What a broker has let all others know about itself."""
        return self._links.about(broker)

    def reachable(self) -> Collection[BrokerId]:
        """All members, this one included, in order."""
        return self._in_order

    def hop(self, member: BrokerId) -> BrokerId | None:
        """The neighbor on the way to a member, over links that stand."""
        return self._graph.tree(self._id).branches(self._id).get(member)

    def _learn(self, sender: BrokerId, states: Iterable[LinkState]) -> Outputs:
        news, answers = self._links.learn(states)
        outputs: Outputs = [Send(sender, Topology(tuple(answers)))] if answers else []
        if news:
            others = [other for other in self.standing if other != sender]
            outputs += [Send(other, Topology(tuple(news))) for other in others]
            outputs += self._members_changed()
            self._links.forget(self._members)
            self._touch()
        return outputs

    def _members_changed(self) -> Outputs:
        self._graph = self._graph.changed(self._links.edges())
        members = frozenset(self._graph.tree(self._id).costs)
        if members == self._members:
            return []
        self._members = members
        self._in_order = sorted(members, key=order)
        self._places = Places(members)
        self._touch()
        return self._watch(self._asked.keys() - {ANY})

    # -- in steps

    @property
    def has_work(self) -> bool:
        """Whether more is asked for than has to be, until `work` was called."""
        return self._subscriptions.has_work

    def work(self) -> Outputs:
        """Do a part of what the changes have left to do."""
        self._subscriptions.work()
        return self._announce()

    # -- what is known

    def _enter(self, destination: Destination, key: Hashable, filter: Filter) -> None:
        self._table.add(destination, key, filter)
        if self._watcher is not None:
            self._watcher(filter, True)

    def _cancel(self, destination: Destination, key: Hashable) -> None:
        filter = self._table.remove(destination, key).filter
        if not self._table.at(destination):
            self._visits = None
        if self._watcher is not None:
            self._watcher(filter, bool(self._table.owners(filter)))

    def table_size(self) -> TableSize:
        return TableSize(
            local=len(self._subscriptions.filters),
            remote=self._table.count(Neighbor),
            advertisements=len(self._advertisements),
        )

    def offers(self) -> list[Filter]:
        """What is advertised at this broker; of others only the types are known."""
        return sorted(set(self._advertisements.values()), key=str)

    def interests(self) -> list[Filter]:
        """What is asked for here, and elsewhere of what this broker has."""
        return [row.filter for row in self._table.rows()]

    def watch(self, changed: Callable[[Filter, bool], None]) -> None:
        """Be told of each of the `interests` that has come (True) or gone."""
        self._watcher = changed

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held of what anybody asks for or offers."""
        asked = self._announced, self._asked, self._wished, self._watched, self._watching
        return not len(self._table) and not self._advertisements and not any(asked)

    # -- notifications

    def route_leading(
        self,
        events: Sequence[Envelope | Notification],
        source: BrokerId | None,
        most: int | None,
        root: BrokerId | None = None,
    ) -> tuple[int, dict[Destination, list[int]]]:
        """Where a batch goes that a client (None) published or a neighbor forwarded.

        What has come from a neighbor goes to clients only.
        """
        if self._routing.looseness:  # nothing else asks for the sample
            for event in events[-OBSERVED:]:
                known = event if isinstance(event, Notification) else event.notification()
                self._sample.observe(known)
        if most is None:
            count, found = len(events), self._table.targets_of(events)
        else:
            count, found = self._table.targets_of_leading(events, most)
        return count, {
            destination: indexes
            for destination, indexes in found.items()
            if isinstance(destination, Local)
            or (source is None and destination.id in self._neighbors)
        }
