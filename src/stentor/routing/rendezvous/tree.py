"""One rendezvous tree, as one broker sees it."""

from __future__ import annotations

from collections.abc import Iterable

from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.routing.protocol import BrokerId, FilterId
from stentor.routing.rendezvous.pastry import key_of
from stentor.routing.rendezvous.ring_messages import Entry
from stentor.routing.rendezvous.summary import Strategy, Summary
from stentor.routing.table import Destination, Local, Neighbor, RoutingTable


class Tree:
    """Who asked this broker for what, whom it asked in turn, and for what.

    Children are brokers that are further from the key, the parent is one that is closer. What the
    broker asks for is the summary of what its children and its clients ask for.
    """

    def __init__(self, name: str, strategy: Strategy) -> None:
        self.name = name
        self.key = key_of(name)
        #: The broker that was asked; None at the root, and while there is nothing to ask for.
        self.parent: BrokerId | None = None
        self.summary = Summary(strategy)
        self.table = RoutingTable()

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

    def change(self, child: BrokerId, added: Iterable[Entry], removed: Iterable[Entry]) -> None:
        """A child asks for more and for less."""
        destination = Neighbor(child)
        held = self.table.at(destination)
        for entry in added:
            if entry.key not in held:
                self._add(destination, entry)
                held = self.table.at(destination)
        for entry in removed:
            if entry.key in held:
                self._remove(destination, entry)

    def forget(self, child: BrokerId) -> None:
        """The child asks for nothing any more."""
        destination = Neighbor(child)
        for key, filter in list(self.table.at(destination).items()):
            id = key if isinstance(key, FilterId) else None
            self._remove(destination, Entry(id, filter))

    def targets(self, notification: Notification) -> list[Destination]:
        """Clients and children that want the notification, in an order that is always the same."""
        return sorted(self.table.targets(notification), key=_order)

    def _add(self, destination: Destination, entry: Entry) -> None:
        self.table.add(destination, entry.key, entry.filter)
        self.summary.add(entry.id, entry.filter)

    def _remove(self, destination: Destination, entry: Entry) -> None:
        self.table.remove(destination, entry.key)
        self.summary.remove(entry.id, entry.filter)


def _order(destination: Destination) -> tuple[bool, bool, str | int]:
    return isinstance(destination, Neighbor), isinstance(destination.id, str), destination.id
