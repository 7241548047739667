"""One rendezvous tree, as one broker sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.routing.protocol import BrokerId, FilterId, Message
from stentor.routing.rendezvous.pastry import key_of
from stentor.routing.rendezvous.ring_messages import Announce, Entry
from stentor.routing.rendezvous.summary import Summarizing, Summary
from stentor.routing.shared_table import SharedTable
from stentor.routing.table import Destination, Local, Neighbor, RoutingTable


class Tree(ABC):
    """Who asked this broker for what, whom it asked in turn, and for what.

    Children are brokers that are further from the key, the parent is one that is closer.
    """

    table: RoutingTable | SharedTable

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = key_of(name)
        #: The broker that was asked; None at the root, and while there is nothing to ask for.
        self.parent: BrokerId | None = None
        self.is_root = False

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether neither children nor clients need the tree."""

    @property
    @abstractmethod
    def children(self) -> list[BrokerId]: ...

    @abstractmethod
    def subscribe(self, id: FilterId, filter: Filter) -> None: ...

    @abstractmethod
    def unsubscribe(self, id: FilterId) -> None: ...

    @abstractmethod
    def asked(self, child: BrokerId, message: Message) -> None:
        """A child asks for more and for less."""

    @abstractmethod
    def forget(self, child: BrokerId) -> None:
        """The child asks for nothing any more."""

    @abstractmethod
    def attach(self, parent: BrokerId | None) -> None:
        """From now on this is the parent, and has been told nothing."""

    @abstractmethod
    def take(self) -> list[tuple[BrokerId | None, Message]]:
        """What others are to be told now. None is in the place of the parent that a root lacks."""

    def targets(self, notification: Notification) -> list[Destination]:
        """Who wants the notification, in an order that is always the same."""
        return sorted(self.table.targets(notification), key=_order)


class SummaryTree(Tree):
    """A tree in which all ask upwards: for the summary of what they were asked for."""

    def __init__(self, name: str, strategy: Summarizing) -> None:
        super().__init__(name)
        self.summary = Summary(strategy)
        self.table = RoutingTable()
        self._fresh = False

    @property
    def is_empty(self) -> bool:
        return self.summary.is_empty

    @property
    def children(self) -> list[BrokerId]:
        return [d.id for d in self.table.destinations if isinstance(d, Neighbor)]

    def subscribe(self, id: FilterId, filter: Filter) -> None:
        self._add(Local(id.client), Entry(id, filter))

    def unsubscribe(self, id: FilterId) -> None:
        self._remove(Local(id.client), Entry(id, self.table.at(Local(id.client))[id]))

    def asked(self, child: BrokerId, message: Message) -> None:
        if isinstance(message, Announce):
            if message.fresh:
                self.forget(child)
            self._change(Neighbor(child), message.added, message.removed)

    def _change(self, child: Destination, added: Iterable[Entry], removed: Iterable[Entry]) -> None:
        held = self.table.at(child)
        for entry in added:
            if entry.key not in held:
                self._add(child, entry)
                held = self.table.at(child)
        for entry in removed:
            if entry.key in held:
                self._remove(child, entry)

    def forget(self, child: BrokerId) -> None:
        destination = Neighbor(child)
        for key, filter in list(self.table.at(destination).items()):
            id = key if isinstance(key, FilterId) else None
            self._remove(destination, Entry(id, filter))

    def attach(self, parent: BrokerId | None) -> None:
        self.parent = parent
        self._fresh = parent is not None

    def take(self) -> list[tuple[BrokerId | None, Message]]:
        added, removed = self.summary.take()
        if self._fresh:
            self._fresh = False
            return [(self.parent, Announce(self.name, self.summary.entries, fresh=True))]
        if added or removed:
            return [(self.parent, Announce(self.name, added, removed))]
        return []

    def _add(self, destination: Destination, entry: Entry) -> None:
        self.table.add(destination, entry.key, entry.filter)
        self.summary.add(entry.id, entry.filter)

    def _remove(self, destination: Destination, entry: Entry) -> None:
        self.table.remove(destination, entry.key)
        self.summary.remove(entry.id, entry.filter)


def _order(destination: Destination) -> tuple[bool, bool, str | int]:
    return isinstance(destination, Neighbor), isinstance(destination.id, str), destination.id
