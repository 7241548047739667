"""Type-based rendezvous routing, as in Hermes (R-03.34 to R-03.37, R-07.70).

Each event type has a tree, and its root is the type's rendezvous. Subscriptions to the type are
asked for in its tree, reduced on the way by the strategy; notifications rise in the tree of their
own type.

A subscription to a type also wants all subtypes, among them those that appear later (07/T-10). It
stays in its own tree; what is carried further is the *interest* of that tree. A notification
names all its supertypes. When it has risen to the root of its own type, it also enters the trees of
the supertypes, unless that root knows that nobody there wants it:

  - As long as it does not know the interest of a supertype, every notification enters that tree,
    and asks on arrival at the root there to be told.
  - From then on the root of the supertype tells the root of the subtype what is asked for in its
    tree, and each change of it, and only what matches enters the tree.

So interest saves messages and is never needed for a delivery. Whenever one of the two roots is
replaced, the interest is forgotten, and the next notification asks again. No broker has to know the
type hierarchy, types need not be declared, and a root keeps nothing that cannot be lost (R-03.35).

Where `advertisements` are in use, subscriptions follow them (see `advertised`). An advertisement of
a type is also one of its supertypes and enters their trees as well; and a notification enters all
its trees at once, where it is published. In a tree in which it was advertised it goes where it is
asked for; in another, such as that of a subtype of the advertised type, it rises to the root. So
nothing is lost when advertisements are wide or missing, but only what is advertised by its own type
relieves all rendezvous. Interests are not needed then.

With `schemas` the rendezvous of a type also holds its declaration, and publications and
subscriptions are checked (see `metadata`).

With `catch_all` there is one more supertype, of everything. Its tree takes subscriptions that name
no type, and notifications without one. Without it such a subscription is refused: each of its
notifications would have to pass one and the same root.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Final

from stentor.errors import InvalidConfiguration, UnsupportedMapping
from stentor.filters import Filter
from stentor.filters.addressing.content import TYPES
from stentor.filters.conjunct import Conjunct
from stentor.model.event_types import EventType, EventTypes, event_types
from stentor.model.notification import Notification
from stentor.routing import strategy as strategies
from stentor.routing.protocol import BrokerId, ClientId, FilterId, Message, Outputs, TableSize
from stentor.routing.reducers import ReductionName, check_reduction
from stentor.routing.rendezvous.addresses import types_of
from stentor.routing.rendezvous.advertised import AdvertisedTree
from stentor.routing.rendezvous.interests import Interests
from stentor.routing.rendezvous.metadata import Metadata
from stentor.routing.rendezvous.ring_messages import (
    Announce,
    AskNoMore,
    Carry,
    InterestUnknown,
    SupertypeInterest,
)
from stentor.routing.rendezvous.ring_router import Ring, RingRouter, Store
from stentor.routing.rendezvous.tree import SummaryTree, Tree
from stentor.routing.table import Neighbor

#: The supertype of everything; no type can have this name.
EVERYTHING: Final = ""
#: Types of which a root remembers the interest of supertypes. Of others it asks again.
REMEMBERED: Final = 10_000


class TypeRendezvousRouter(RingRouter):
    """Routes by event type, and by content within each type.

    >>> from stentor.routing.protocol import FilterId
    >>> from stentor.routing.rendezvous.pastry import Pastry
    >>> router = TypeRendezvousRouter(Pastry("b1"))
    >>> _ = router.subscribe(FilterId("ann", 1), Filter("isa quote and price > 100"))
    >>> router.subscribe(FilterId("ann", 2), Filter("price > 100"))
    Traceback (most recent call last):
    ...
    stentor.errors.UnsupportedMapping: the filter price > 100 names no event type; add isa ... to \
each alternative, or let the routers have a catch_all rendezvous
    """

    def __init__(
        self,
        ring: Ring,
        *,
        strategy: ReductionName = "covering",
        store: Store = "path",
        catch_all: bool = False,
        types: EventTypes | None = None,
        advertisements: bool | ReductionName = False,
        schemas: bool = False,
    ) -> None:
        """With `types`, only notifications that are legal events of their type are published.

        `advertisements` says by which strategy they are reduced; True is covering. With `schemas`,
        event types are declared at their rendezvous, and this is what is checked.
        """
        check_reduction(strategy)
        offering = "covering" if advertisements is True else advertisements
        if offering is not False:
            check_reduction(offering)
        numbers = count(1)

        def plant(name: str) -> Tree:
            if offering is False:
                return SummaryTree(name, strategy)
            both = strategies.Strategy(strategy), strategies.Strategy(offering)
            return AdvertisedTree(name, *both, numbers)

        super().__init__(ring, plant=plant, store=store)
        self._advertises = offering is not False
        self._catch_all = catch_all
        self._types = types
        self._metadata = Metadata(ring, self._send, self._enter) if schemas else None
        #: The trees that each advertisement of a client here is in.
        self._advertised: dict[FilterId, list[str]] = {}
        #: Where this broker is the root of a type: what the roots of its supertypes want.
        self._interests: dict[str, Interests] = {}
        #: Where it is the root of a supertype: the subtypes whose roots are to be told, and these.
        self._askers: dict[str, dict[tuple[str, BrokerId], None]] = {}

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if self._metadata is None:
            return super().subscribe(id, filter)
        unknown = self._metadata.check_filter(filter)
        outputs = super().subscribe(id, filter)
        self._metadata.look_up(unknown)
        return outputs + self._done()

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        if self._types is not None:
            self._types.check(notification)
        unknown = () if self._metadata is None else self._metadata.check(notification)
        if self._metadata is None or not unknown:
            return super().publish(client, notification)
        self._metadata.inspect(notification, unknown)
        return self._done()

    # -- advertisements

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        if not self._advertises:
            return super().advertise(id, filter)
        if id in self._advertisements:
            return []
        parts: dict[str, list[Conjunct]] = {}
        for conjunct in filter.conjuncts:
            for name in self._offered_in(conjunct):
                parts.setdefault(name, []).append(conjunct)
        self._advertisements[id] = filter
        self._advertised[id] = list(parts)
        for name, conjuncts in parts.items():
            tree = self._tree(name)
            assert isinstance(tree, AdvertisedTree)
            tree.advertise(id, Filter.of_conjuncts(conjuncts))
            self._spread(tree)
        return self._done()

    def unadvertise(self, id: FilterId) -> Outputs:
        self._advertisements.pop(id, None)
        for name in self._advertised.pop(id, ()):
            tree = self._trees[name]
            assert isinstance(tree, AdvertisedTree)
            tree.unadvertise(id)
            self._spread(tree)
        return self._done()

    def offers(self) -> list[Filter]:
        found = dict.fromkeys(super().offers())
        for tree in self._advertised_trees:
            rows = tree.offered.rows()
            others = (row for row in rows if any(isinstance(o, Neighbor) for o in row.owners))
            found |= dict.fromkeys(row.filter for row in others)
        return list(found)

    def _offered_in(self, conjunct: Conjunct) -> list[str]:
        """The trees of the types that the conjunct names, and of their supertypes."""
        types = types_of(conjunct) or ()
        names = sorted({name for type_ in types for name in event_types.ancestors(type_)})
        return [*names, EVERYTHING] if self._catch_all else names

    def _enter(self, notification: Notification) -> None:
        if not self._advertises:
            super()._enter(notification)
            return
        own = [] if notification.type is None else [notification.type]
        for name in [*own, *self._supertypes(notification)]:
            tree = self._trees.get(name)
            known = isinstance(tree, AdvertisedTree) and tree.advertises(notification)
            self._carry(None, Carry(name, notification, rising=True, advertised=known))

    @property
    def _advertised_trees(self) -> list[AdvertisedTree]:
        return [tree for tree in self._trees.values() if isinstance(tree, AdvertisedTree)]

    # -- declarations

    def declare(self, declaration: EventType) -> Outputs:
        """Make the declaration of an event type known at its rendezvous.

        >>> from stentor.routing.rendezvous.pastry import Pastry
        >>> router = TypeRendezvousRouter(Pastry("b1"), schemas=True)
        >>> router.declare(EventTypes().declare("quote", attributes={"price": "number"}))
        []
        >>> router.publish("ann", Notification({"price": "high"}, type="quote"))
        Traceback (most recent call last):
        ...
        stentor.errors.InvalidNotification: 'price' of event type 'quote' is a string; declared \
as number
        """
        if self._metadata is None:
            raise InvalidConfiguration(
                "the rendezvous of types hold no declarations here; make all routers with schemas"
            )
        self._metadata.declare(declaration)
        return self._done()

    def declaration(self, name: str) -> EventType | None:
        """What was declared about an event type, if this broker knows it."""
        return None if self._metadata is None else self._metadata.declaration(name)

    @property
    def refused(self) -> int:
        """Notifications that contradicted a declaration, and declarations that did, found here."""
        return 0 if self._metadata is None else self._metadata.refused

    def table_size(self) -> TableSize:
        size = super().table_size()
        known = sum(len(interests) for interests in self._interests.values())
        offered = sum(tree.offered.count(Neighbor) for tree in self._advertised_trees)
        return TableSize(size.local, size.remote + known, size.advertisements + offered)

    def _names(self, conjunct: Conjunct, filter: Filter) -> Iterable[str]:
        types = types_of(conjunct)
        if types is None:
            if not self._catch_all:
                raise UnsupportedMapping(
                    f"the filter {filter} names no event type; add isa ... to each alternative, "
                    "or let the routers have a catch_all rendezvous"
                )
            return [EVERYTHING]
        return types

    def _name(self, notification: Notification) -> str | None:
        if notification.type is None:
            return EVERYTHING if self._catch_all else None
        return notification.type

    def _supertypes(self, notification: Notification) -> list[str]:
        others = sorted(notification.facts.get(TYPES, frozenset()) - {notification.type})
        return [*others, EVERYTHING] if self._catch_all else others

    # -- at the root of a type

    def _arrived(self, message: Carry) -> None:
        notification, name = message.notification, message.tree
        if self._advertises or notification.type is None:
            return
        if name != notification.type:
            if message.asks is not None:
                self._asked_by(message.asks, name, notification.type)
            return
        supertypes = self._supertypes(notification)
        if not supertypes:
            return
        interests = self._interests.get(name)
        if interests is None:
            interests = self._interests[name] = Interests()
            if len(self._interests) > REMEMBERED:
                self._forget_interests(next(iter(self._interests)))
        wanting = interests.wanting(notification)
        for supertype in supertypes:
            if not interests.known(supertype):
                self._carry(None, Carry(supertype, notification, rising=True, asks=self.id))
            elif supertype in wanting:
                self._carry(None, Carry(supertype, notification, rising=True))

    def _told(self, root: BrokerId, message: SupertypeInterest) -> None:
        interests = self._interests.get(message.tree)
        if interests is None:
            self._send(root, AskNoMore(message.supertype, message.tree))
        elif message.fresh:
            interests.learn(message.supertype, root, message.added)
        elif interests.known(message.supertype) == root:
            interests.change(message.supertype, message.added, message.removed)

    def _forget_interests(self, name: str) -> None:
        for supertype, root in self._interests.pop(name).roots.items():
            self._send(root, AskNoMore(supertype, name))

    # -- at the root of a supertype

    def _asked_by(self, broker: BrokerId, name: str, subtype: str) -> None:
        reachable = broker == self.id or broker in self._neighbors
        if reachable and (subtype, broker) not in self._askers.get(name, ()):
            self._askers.setdefault(name, {})[subtype, broker] = None
            tree = self._trees.get(name)
            entries = tree.summary.entries if isinstance(tree, SummaryTree) else ()
            self._send(broker, SupertypeInterest(subtype, name, entries, fresh=True))

    def _changed(self, message: Message) -> None:
        if isinstance(message, Announce):
            name = message.tree
            for subtype, broker in self._askers.get(name, ()):
                self._send(broker, SupertypeInterest(subtype, name, message.added, message.removed))

    # -- both

    def _handle(self, sender: BrokerId, message: Message) -> None:
        match message:
            case SupertypeInterest():
                self._told(sender, message)
            case InterestUnknown(tree=name, supertype=supertype):
                if name in self._interests:
                    self._interests[name].forget(supertype, sender)
            case AskNoMore(tree=name, subtype=subtype):
                self._askers.get(name, {}).pop((subtype, sender), None)
            case _:
                if self._metadata is None or not self._metadata.handle(sender, message):
                    super()._handle(sender, message)

    def _lost(self, neighbor: BrokerId) -> None:
        if self._metadata is not None:
            self._metadata.lose(neighbor)
        for interests in self._interests.values():
            for supertype in list(interests.roots):
                interests.forget(supertype, neighbor)
        for askers in self._askers.values():
            for asker in [asker for asker in askers if asker[1] == neighbor]:
                del askers[asker]

    def _follow_ring(self) -> None:
        super()._follow_ring()
        if self._metadata is not None:
            self._metadata.follow_ring()
        for name in [name for name in self._interests if self._hop(name) is not None]:
            self._forget_interests(name)
        for name in [name for name in self._askers if self._hop(name) is not None]:
            for subtype, broker in self._askers.pop(name):
                self._send(broker, InterestUnknown(subtype, name))
