"""What a flooding router does for its own clients.

Their subscriptions are in the routing table, as everywhere. Their advertisements stay here: where
events or subscriptions go to all brokers, advertisements cannot save a message. So `offers` tells
only what clients of this broker may publish.
"""

from __future__ import annotations

from collections.abc import Hashable

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.routing.protocol import BrokerId, Deliver, FilterId, Message, Outputs, TableSize
from stentor.routing.table import Local, Neighbor, RoutingTable


class AccessPoint:
    """The part of a router that looks after clients, and knows the neighbors."""

    def __init__(self, id: BrokerId) -> None:
        self._id = id
        self._neighbors: dict[BrokerId, None] = {}
        self._table = RoutingTable()
        self._advertisements: dict[FilterId, Filter] = {}

    @property
    def id(self) -> BrokerId:
        return self._id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._neighbors)

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        self._advertisements.setdefault(id, filter)
        return []

    def unadvertise(self, id: FilterId) -> Outputs:
        self._advertisements.pop(id, None)
        return []

    def offers(self) -> list[Filter]:
        """What clients of this broker may publish; those of others are not known here."""
        return list(dict.fromkeys(self._advertisements.values()))

    def expired(self, timer: Hashable) -> Outputs:
        return []

    def table_size(self) -> TableSize:
        table = self._table
        return TableSize(table.count(Local), table.count(Neighbor), len(self._advertisements))

    def _hold(self, id: FilterId, filter: Filter) -> bool:
        """Enter a client's subscription; False if it is there already."""
        destination = Local(id.client)
        if id in self._table.at(destination):
            return False
        self._table.add(destination, id, filter)
        return True

    def _release(self, id: FilterId) -> Filter | None:
        """Take a client's subscription away; None if there is none."""
        destination = Local(id.client)
        filter = self._table.at(destination).get(id)
        if filter is not None:
            self._table.remove(destination, id)
        return filter

    def _match(self, notification: Notification) -> tuple[set[BrokerId], Outputs]:
        """The other brokers that want the notification, and its delivery to clients here."""
        targets = self._table.targets(notification)
        clients = sorted(target.id for target in targets if isinstance(target, Local))
        brokers = {target.id for target in targets if isinstance(target, Neighbor)}
        return brokers, [Deliver(client, notification) for client in clients]

    def _not_for_me(self, sender: BrokerId, message: Message) -> InvalidConfiguration:
        return InvalidConfiguration(
            f"broker {self._id!r} got a {type(message).__name__} from {sender!r}, which its "
            "routing has no use for; let all brokers of a network run the same routing"
        )
