"""Rendezvous trees on a ring: what type-based and topic-based routing have in common (03/A12).

Each name (of an event type, of a topic) has a key, and the ring says which broker is next on the
way to the key's root. Seen for one name, these next hops form a tree, and its root is the meeting
point of all who publish and subscribe under that name. A broker that wants something asks its
parent for it, and the parent asks its own; notifications rise to the root, and come down wherever
they were asked for.

The next hop changes when brokers join and fail. Then a broker asks its new parent for all that it
wants and tells the old one, if that is still there, that it leaves; a child that fails is
forgotten with all it asked for. So nothing depends on the root keeping anything: a new root is told
everything again by those who want it (R-03.35, 03/8.17). Because a parent is always closer to
the key than its child, brokers never ask each other in a circle, whatever they believe about the
ring at the moment, and a notification rises and comes down a finite number of times.

Where trees are stored (07/4.4):

  - `path`: at every broker on the way. Notifications are copied to whoever wants them all along
    their way up, and never go back to where they came from.
  - `root`: at the root alone. A broker first has to find it: it sends a `FindRoot`, the root
    answers, and from then on is asked directly. A root that no longer is one says so. A message may
    be lost with a broker on its way, so a `FindRoot` without an answer is repeated.

Trees are of two kinds. In one, all ask upwards only, and every notification rises to the root. In
the other, subscriptions also follow advertisements downwards (see `advertised`), and a notification
that was advertised rises only where it is asked for.

While the ring changes, notifications may be lost, or come twice; the delivery gate of each client
lets a notification pass once. As soon as the ring is at rest and all messages have arrived,
everything is delivered again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Literal, Protocol, TypeAlias

from stentor.errors import UnknownStrategy
from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.model.notification import Notification
from stentor.routing.protocol import (
    Arm,
    BrokerId,
    ClientId,
    Deliver,
    FilterId,
    Message,
    Outputs,
    Send,
    TableSize,
)
from stentor.routing.rendezvous.advertised import AdvertisedTree
from stentor.routing.rendezvous.pastry import key_of
from stentor.routing.rendezvous.ring_messages import (
    Announce,
    Ask,
    AskBack,
    Carry,
    FindRoot,
    Found,
    Heard,
    Leave,
    Moved,
    Offer,
)
from stentor.routing.rendezvous.tree import Tree
from stentor.routing.table import Local, Neighbor

Store: TypeAlias = Literal["path", "root"]

#: How long to wait for an answer before the root is sought again.
PATIENCE: Final = 5.0


class Ring(Protocol):
    """Finds the way to keys, and hides how (R-03.47)."""

    @property
    def id(self) -> BrokerId:
        """Whose view of the ring this is."""

    def add(self, broker: BrokerId) -> None:
        """The broker can be reached."""

    def remove(self, broker: BrokerId) -> bool:
        """It cannot any more. Whether `refill` should tell who still can."""

    def refill(self, brokers: Iterable[BrokerId]) -> None: ...

    def next_hop(self, key: int) -> BrokerId | None:
        """A broker closer to the key's root, or None at the root itself."""

    @property
    def leaf_set(self) -> list[BrokerId]:
        """Those next to this one, of which some would be the root of its keys if it failed."""


class RingRouter(ABC):
    """A broker's part in all trees. The kinds of routers differ in what the names are."""

    def __init__(self, ring: Ring, *, plant: Callable[[str], Tree], store: Store) -> None:
        """`plant` gives a tree of that name in which nothing was asked for yet."""
        if store not in ("path", "root"):
            raise UnknownStrategy(f"there is no store {store!r}; choose path or root")
        self._ring = ring
        self._plant = plant
        self._store = store
        self._neighbors: dict[BrokerId, None] = {}
        self._trees: dict[str, Tree] = {}
        self._subscriptions: dict[FilterId, list[str]] = {}
        self._advertisements: dict[FilterId, Filter] = {}
        self._seeking: dict[str, None] = {}
        self._outputs: Outputs = []
        self._to_self: list[Message] = []

    # -- what the kinds of routers say

    @abstractmethod
    def _names(self, conjunct: Conjunct, filter: Filter) -> Iterable[str]:
        """The trees in which to ask for a part of a filter; `UnsupportedMapping` if none."""

    @abstractmethod
    def _name(self, notification: Notification) -> str | None:
        """The tree in which the notification rises; None if nobody can have asked for it."""

    def _arrived(self, message: Carry) -> None:  # noqa: B027 (a hook)
        """A notification has risen to the root, which is here."""

    def _changed(self, message: Message) -> None:  # noqa: B027 (a hook)
        """What is asked for in a tree has changed, and there is no parent to be told."""

    def _lost(self, neighbor: BrokerId) -> None:  # noqa: B027 (a hook)
        """The neighbor is gone, and with it what it knew."""

    # -- the router

    @property
    def id(self) -> BrokerId:
        return self._ring.id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._neighbors)

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if id in self._subscriptions:
            return []
        parts: dict[str, list[Conjunct]] = {}
        for conjunct in filter.conjuncts:
            for name in self._names(conjunct, filter):
                parts.setdefault(name, []).append(conjunct)
        self._subscriptions[id] = list(parts)
        for name, conjuncts in parts.items():
            tree = self._tree(name)
            tree.subscribe(id, Filter.of_conjuncts(conjuncts))
            self._spread(tree)
        return self._done()

    def unsubscribe(self, id: FilterId) -> Outputs:
        for name in self._subscriptions.pop(id, ()):
            tree = self._trees[name]
            tree.unsubscribe(id)
            self._spread(tree)
        return self._done()

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        """Known at this broker only: notifications rise whether they are advertised or not."""
        self._advertisements.setdefault(id, filter)
        return []

    def unadvertise(self, id: FilterId) -> Outputs:
        self._advertisements.pop(id, None)
        return []

    def offers(self) -> list[Filter]:
        return list(dict.fromkeys(self._advertisements.values()))

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        self._enter(notification)
        return self._done()

    def _enter(self, notification: Notification) -> None:
        """Let the notification rise from here."""
        name = self._name(notification)
        if name is not None:
            self._carry(None, Carry(name, notification, rising=True))

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        self._handle(sender, message)
        return self._done()

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._ring.add(neighbor)
        self._neighbors[neighbor] = None
        self._follow_ring()
        return self._done()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        if self._neighbors.pop(neighbor, 0) is not None:
            return []
        if self._ring.remove(neighbor):
            self._ring.refill(self._neighbors)
        for tree in list(self._trees.values()):
            if tree.parent == neighbor:
                tree.attach(None)
            tree.forget(neighbor)
            self._spread(tree)
        self._lost(neighbor)
        self._follow_ring()
        return self._done()

    def expired(self, timer: Hashable) -> Outputs:
        if isinstance(timer, FindRoot) and timer.tree in self._seeking:
            self._seek(timer.tree)
        return self._done()

    def table_size(self) -> TableSize:
        tables = [tree.table for tree in self._trees.values()]
        return TableSize(
            local=sum(table.count(Local) for table in tables),
            remote=sum(table.count(Neighbor) for table in tables),
            advertisements=len(self._advertisements),
        )

    # -- messages

    def _handle(self, sender: BrokerId, message: Message) -> None:
        match message:
            case Carry():
                self._carry(sender, message)
            case Announce() | Ask() | Offer():
                self._asked(sender, message)
            case AskBack(tree=name) | Heard(tree=name):
                tree = self._trees.get(name)
                if isinstance(tree, AdvertisedTree) and tree.parent == sender:
                    tree.answered(message)
                    self._spread(tree)
            case Leave(tree=name):
                if name in self._trees:
                    self._trees[name].forget(sender)
                    self._spread(self._trees[name])
            case FindRoot(tree=name, broker=broker):
                hop = self._hop(name)
                self._send(broker if hop is None else hop, Found(name) if hop is None else message)
            case Found(tree=name):
                if name in self._seeking:
                    del self._seeking[name]
                    self._attach(self._trees[name], sender)
            case Moved(tree=name):
                if name in self._trees and self._trees[name].parent == sender:
                    self._trees[name].attach(None)
                    self._spread(self._trees[name])

    def _send(self, to: BrokerId, message: Message) -> None:
        if to == self.id:
            self._to_self.append(message)
        elif to in self._neighbors:
            self._outputs.append(Send(to, message))

    def _done(self) -> Outputs:
        while self._to_self:
            self._handle(self.id, self._to_self.pop(0))
        outputs, self._outputs = self._outputs, []
        return outputs

    # -- notifications

    def _carry(self, sender: BrokerId | None, message: Carry) -> None:
        name, notification = message.tree, message.notification
        tree = self._trees.get(name)
        follows = message.advertised and isinstance(tree, AdvertisedTree) and tree.is_settled
        hop = self._hop(name) if message.rising and not follows else None
        if hop is not None:
            plain = Carry(name, notification, rising=True) if message.advertised else message
            self._send(hop, plain)
            if not self._copies_on_the_way:
                return
        # A neighbor that it came from has served itself, unless it was only passing it on.
        only_passed = message.rising and not follows and not self._copies_on_the_way
        source = None if only_passed else sender
        for target in () if tree is None else tree.targets(notification):
            if isinstance(target, Local):
                self._outputs.append(Deliver(target.id, notification))
            elif tree is not None and target.id == tree.parent:
                if follows:
                    self._send(target.id, message)
            elif target.id != source:
                self._send(target.id, Carry(name, notification, rising=False))
        if message.rising and hop is None:
            self._arrived(message)

    @property
    def _copies_on_the_way(self) -> bool:
        return self._store == "path"

    # -- asking

    def _asked(self, child: BrokerId, message: Announce | Ask | Offer) -> None:
        if self._store == "root" and self._hop(message.tree) is not None:
            self._send(child, Moved(message.tree))
            return
        tree = self._tree(message.tree)
        tree.asked(child, message)
        self._spread(tree)

    def _spread(self, tree: Tree) -> None:
        """Tell others what has changed."""
        if tree.parent is None or tree.is_empty:
            self._settle(tree)
        self._tell(tree)
        if tree.is_empty:
            self._trees.pop(tree.name, None)

    def _tell(self, tree: Tree) -> None:
        for to, message in tree.take():
            if to is None:
                self._changed(message)
            else:
                self._send(to, message)

    def _settle(self, tree: Tree) -> None:
        """Ask the right broker: the next on the way to the root, or the root itself."""
        hop = self._ring.next_hop(tree.key)
        tree.is_root = hop is None
        if hop is None or tree.is_empty:
            self._seeking.pop(tree.name, None)
            self._attach(tree, None)
        elif self._store == "path":
            self._attach(tree, hop)
        elif tree.parent is None and tree.name not in self._seeking:
            self._seek(tree.name)

    def _attach(self, tree: Tree, parent: BrokerId | None) -> None:
        if tree.parent == parent:
            return
        if tree.parent is not None:
            self._send(tree.parent, Leave(tree.name))
        tree.attach(parent)
        self._tell(tree)

    def _seek(self, name: str) -> None:
        self._seeking[name] = None
        seek = FindRoot(name, self.id)
        hop = self._hop(name)
        if hop is not None:
            self._send(hop, seek)
        self._outputs.append(Arm(seek, PATIENCE))

    def _follow_ring(self) -> None:
        """The ring has changed: ask those who are right now."""
        for tree in list(self._trees.values()):
            if self._store == "root" and self._ring.next_hop(tree.key) is not None:
                for child in tree.children:
                    self._send(child, Moved(tree.name))
                    tree.forget(child)
                self._spread(tree)
            self._settle(tree)
            self._tell(tree)

    def _tree(self, name: str) -> Tree:
        tree = self._trees.get(name)
        if tree is None:
            tree = self._trees[name] = self._plant(name)
        return tree

    def _hop(self, name: str) -> BrokerId | None:
        return self._ring.next_hop(key_of(name))
