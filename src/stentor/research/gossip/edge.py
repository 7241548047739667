"""The half of a gossip router that faces its own clients, which is the same in all of them."""

from __future__ import annotations

from collections.abc import Iterable

from stentor.errors import InvalidConfiguration, RepeatedPublication
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.research.gossip.memory import RecentIds, id_of
from stentor.routing.protocol import (
    BrokerId,
    Deliver,
    FilterId,
    Message,
    Outputs,
    TableSize,
)
from stentor.routing.table import Destination, Local, Neighbor, RoutingTable


def deliveries(notification: Notification, targets: Iterable[Destination]) -> Outputs:
    """For each client among the targets, in the order of their names."""
    clients = sorted(target.id for target in targets if isinstance(target, Local))
    return [Deliver(client, notification) for client in clients]


class Edge:
    """Local subscriptions and advertisements, and the ids of notifications that have been here."""

    def __init__(self, id: BrokerId, id_limit: int) -> None:
        self._id = id
        self._table = RoutingTable()
        self._advertised: dict[FilterId, Filter] = {}
        self._seen = RecentIds(id_limit)

    @property
    def id(self) -> BrokerId:
        return self._id

    def _holds(self, id: FilterId) -> bool:
        """Whether a local client has this subscription."""
        return id in self._table.at(Local(id.client))

    def _deliver(self, notification: Notification) -> Outputs:
        """To each local client that asked for it, once."""
        return deliveries(notification, self._table.targets(notification))

    def _published(self, notification: Notification) -> None:
        """Remember what a local client publishes."""
        id = id_of(notification)
        if not self._seen.add(id):
            raise RepeatedPublication(f"{id} was published before; give each notification a new id")

    def _arrived(self, notification: Notification) -> bool:
        """Remember what another broker sent; whether it is news."""
        return self._seen.add(id_of(notification))

    def _foreign(self, message: Message) -> InvalidConfiguration:
        """What to raise for a message that belongs to another kind of router."""
        return InvalidConfiguration(
            f"broker {self._id!r} ({type(self).__name__}) was sent a {type(message).__name__}; "
            "give all brokers of a network the same kind of router"
        )

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        """Only this broker is told: gossip has no use for advertisements elsewhere."""
        self._advertised.setdefault(id, filter)
        return []

    def unadvertise(self, id: FilterId) -> Outputs:
        self._advertised.pop(id, None)
        return []

    def offers(self) -> list[Filter]:
        """What local clients advertised. Advertisements do not travel, so of others none is known.

        That a client publishes only what it advertised is enforced by the node above.
        """
        return list(dict.fromkeys(self._advertised.values()))

    def table_size(self) -> TableSize:
        table = self._table
        return TableSize(table.count(Local), table.count(Neighbor), len(self._advertised))
