"""A rendezvous tree in which subscriptions also follow advertisements (R-03.36, 03/A12).

Advertisements rise to the root and leave state at every broker on the way. Subscriptions rise too,
as in any rendezvous tree; and wherever they pass, they also go to each child that offers something
they overlap, and from there further down, to where it is published. So every subscription
comes to every publisher that may match it: it rises to the first broker above both, at the latest
to the root, and comes down the way the advertisement went up. A broker is thus asked from above
for whatever is wanted above, and need not pass on anything else: notifications meet subscriptions
where their ways meet, and the root sees only what is wanted through it.

That holds for a notification that was advertised, once the advertisement is known up to the root
and the subscriptions have come back. So offers are numbered, and each is acknowledged by `Heard`:
by the root at once, by another broker when its own parent has acknowledged all that it had to pass
on. As links keep the order of messages, what had to come back is there by then. An advertisement
only has an *effect* when it has been acknowledged; before that, and whenever a broker has got a new
parent that has not acknowledged its offers yet, notifications rise to the root, as those do that
were never advertised. Hence advertising takes nothing from anybody at any moment.

The rest is routing on a tree, and so a `Plane` of the tree routers does it: advertisements are told
to the parent alone, subscriptions to the parent always and to others as far as these offer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from stentor.filters import Filter
from stentor.matching import Index
from stentor.model.notification import Notification
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate
from stentor.routing.protocol import BrokerId, FilterId, Message
from stentor.routing.rendezvous.ring_messages import Ask, AskBack, Heard, Offer
from stentor.routing.rendezvous.tree import Tree
from stentor.routing.strategy import Strategy
from stentor.routing.table import Local, Neighbor
from stentor.routing.tree.plane import Plane, Role


class _RendezvousPlane(Plane):
    """A plane of which only the parent is told the advertisements."""

    def add_neighbor(self, neighbor: BrokerId) -> None:
        assert self.advertisements is not None
        self.advertisements.add_neighbor(neighbor, told=neighbor == self.role.parent)
        self.subscriptions.add_neighbor(neighbor, told=True)


class AdvertisedTree(Tree):
    """Who asks for what and who offers what, seen from one broker."""

    def __init__(
        self, name: str, routing: Strategy, advertisements: Strategy, numbers: Iterator[int]
    ) -> None:
        """`numbers` rise, and none is used for two offers of this broker."""
        super().__init__(name)
        self._plane = _RendezvousPlane(routing, advertisements)
        assert self._plane.advertisements is not None
        self.table = self._plane.subscriptions.table
        self.offered = self._plane.advertisements.table
        self._numbers = numbers
        self._fresh = False
        #: Numbers of offers to the parent: the first one, the latest one, the latest acknowledged.
        self._since = self._latest = self._heard = 0
        #: The number of the first offer of each child that has made one.
        self._offering: dict[BrokerId, int] = {}
        #: Own advertisements that have an effect.
        self._effective: Index[FilterId] = Index(background=False)
        #: What waits until an offer to the parent is acknowledged: own ones, and those of children.
        self._young: deque[tuple[int, FilterId, Filter]] = deque()
        self._owed: deque[tuple[int, BrokerId, int]] = deque()
        #: The same, of this step.
        self._new_young: list[tuple[FilterId, Filter]] = []
        self._new_owed: list[tuple[BrokerId, int]] = []

    @property
    def is_empty(self) -> bool:
        above = None if self.parent is None else Neighbor(self.parent)
        return all(d == above for t in (self.table, self.offered) for d in t.destinations)

    @property
    def children(self) -> list[BrokerId]:
        found = (d.id for d in self._plane.destinations if isinstance(d, Neighbor))
        return [broker for broker in found if broker != self.parent]

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> None:
        self._plane.insert(SubscriptionUpdate, Local(id.client), id, filter)

    def unsubscribe(self, id: FilterId) -> None:
        self._plane.delete(SubscriptionUpdate, Local(id.client), id)

    def advertise(self, id: FilterId, filter: Filter) -> None:
        self._plane.insert(AdvertisementUpdate, Local(id.client), id, filter)
        self._new_young.append((id, filter))

    def unadvertise(self, id: FilterId) -> None:
        self._plane.delete(AdvertisementUpdate, Local(id.client), id)
        if id in self._effective:
            self._effective.remove(id)
        else:
            self._young = deque(young for young in self._young if young[1] != id)

    def advertises(self, notification: Notification) -> bool:
        """Whether a client here has advertised the notification, to an effect."""
        return bool(self._effective.match(notification))

    # -- neighbors

    def asked(self, child: BrokerId, message: Message) -> None:
        if not isinstance(message, Ask | Offer):
            return
        if message.fresh:
            self.forget(child)
        if isinstance(message, Offer):
            if child not in self._offering:
                self._offering[child] = message.number
                self._plane.add_neighbor(child)
            if message.update.added:
                self._new_owed.append((child, message.number))
        self._plane.apply(child, message.update)

    def forget(self, child: BrokerId) -> None:
        if self._offering.pop(child, None) is not None:
            self._plane.forget_neighbor(child)
            self._owed = deque(owed for owed in self._owed if owed[1] != child)
        self._plane.clear(Neighbor(child))

    def attach(self, parent: BrokerId | None) -> None:
        if self.parent is not None:
            self._plane.drop_neighbor(self.parent)
        self.parent = parent
        self._plane.role = Role(parent)
        self._since = 0
        self._fresh = True
        if parent is not None:
            self._plane.add_neighbor(parent)

    def answered(self, message: AskBack | Heard) -> None:
        """The parent asks for what is offered, or acknowledges it."""
        assert self.parent is not None
        if isinstance(message, Heard):
            self._heard = max(self._heard, message.number)
        elif message.since == self._since:
            self._plane.apply(self.parent, message.update)

    @property
    def is_settled(self) -> bool:
        """Whether the parent asks for all that is wanted above of what is offered here."""
        return self.is_root or 0 < self._since <= self._heard

    # -- what results

    def take(self) -> list[tuple[BrokerId | None, Message]]:
        told = [(to, self._message(to, update)) for to, update in self._plane.take()]
        return [*told, *self._acknowledge()]  # in this order: first what comes back, then `Heard`

    def _message(self, to: BrokerId, update: Message) -> Message:
        if isinstance(update, SubscriptionUpdate) and to != self.parent:
            return AskBack(self.name, update, self._offering[to])
        fresh, self._fresh = self._fresh, False
        if isinstance(update, SubscriptionUpdate):
            return Ask(self.name, update, fresh)
        assert isinstance(update, AdvertisementUpdate)
        number = next(self._numbers)
        self._since = self._since or number
        if update.added:
            self._latest = number
        return Offer(self.name, update, number, fresh)

    def _acknowledge(self) -> list[tuple[BrokerId, Message]]:
        """What has been heard of up to the root takes effect, and children are told."""
        self._young += [(self._latest, id, filter) for id, filter in self._new_young]
        self._owed += [(self._latest, child, number) for child, number in self._new_owed]
        self._new_young, self._new_owed = [], []
        heard = self._latest if self.is_root else self._heard
        while self._young and self._young[0][0] <= heard:
            _, id, filter = self._young.popleft()
            self._effective.add(id, filter)
        latest: dict[BrokerId, int] = {}
        while self._owed and self._owed[0][0] <= heard:
            _, child, number = self._owed.popleft()
            latest[child] = number
        return [(child, Heard(self.name, number)) for child, number in latest.items()]
