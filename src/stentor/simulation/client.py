"""A client of a simulated network, as an application would use one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stentor.filters import Filter
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification
from stentor.routing.protocol import BrokerId, ClientId, FilterId

if TYPE_CHECKING:
    from stentor.simulation.host import Host


class Client:
    """Publishes and subscribes at one broker; `received` is what was delivered, in order.

    >>> from stentor.simulation import Network
    >>> net = Network.tree([(1, 2)])
    >>> a, b = net.client(at=1), net.client(at=2)
    >>> wanted = b.subscribe("x > 1")
    >>> net.settle()
    >>> _ = a.publish({"x": 2})
    >>> net.settle()
    >>> [dict(n) for n in b.received]
    [{'x': 2}]
    """

    def __init__(self, network: Host, id: ClientId, at: BrokerId) -> None:
        self._network = network
        self.id = id
        self.at = at
        self.received: list[Notification] = []

    def subscribe(self, filter: str | Filter) -> FilterId:
        """Ask for what the filter matches; the id is what `unsubscribe` takes."""
        return self._network.subscribe(self, _filter(filter))

    def unsubscribe(self, id: FilterId) -> None:
        """Withdraw a subscription; one that is not held is no error."""
        self._network.unsubscribe(self, id)

    def advertise(self, filter: str | Filter) -> FilterId:
        """Declare what will be published."""
        return self._network.advertise(self, _filter(filter))

    def unadvertise(self, id: FilterId) -> None:
        self._network.unadvertise(self, id)

    def publish(
        self, notification: Notification | Mapping[str, Any], *, strict: bool = False
    ) -> NotificationId:
        """Publish; the answer is the id that the notification got.

        Where advertisements are in use and none of this client's matches, the notification is
        dropped, or `NotAdvertised` is raised if `strict`.
        """
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        return self._network.publish(self, notification, strict=strict)

    def offers(self, overlapping: str | Filter | None = None) -> list[Filter]:
        """What may currently be published, as far as the client's broker knows."""
        return self._network.offers(self, None if overlapping is None else _filter(overlapping))

    def leave(self) -> None:
        """Withdraw everything and go."""
        self._network.leave(self)

    def __repr__(self) -> str:
        return f"Client({self.id!r}, at={self.at!r})"


def _filter(given: str | Filter) -> Filter:
    return given if isinstance(given, Filter) else Filter(given)
