"""What a run cost, in messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stentor.routing.protocol import BrokerId, Kind


@dataclass
class Counters:
    """Messages over links since the start, or between two moments: `later - earlier`.

    >>> from stentor.simulation import Network
    >>> net = Network.tree([(1, 2), (2, 3)])
    >>> _ = net.client(at=3).subscribe("x > 1")
    >>> net.settle()
    >>> net.counters.subscriptions, net.counters.notifications
    (2, 0)
    """

    #: Messages sent over a link, for each kind and link (from, to).
    links: dict[Kind, Counter[tuple[BrokerId, BrokerId]]] = field(
        default_factory=lambda: {
            "notification": Counter(),
            "subscription": Counter(),
            "advertisement": Counter(),
            "control": Counter(),
        }
    )
    #: Notifications handed to clients.
    delivered: int = 0
    #: Messages that were lost with a link or a broker.
    lost: int = 0

    @property
    def notifications(self) -> int:
        return self.links["notification"].total()

    @property
    def subscriptions(self) -> int:
        """Messages that announce or withdraw subscriptions."""
        return self.links["subscription"].total()

    @property
    def advertisements(self) -> int:
        return self.links["advertisement"].total()

    @property
    def control(self) -> int:
        """Messages that keep the overlay itself together."""
        return self.links["control"].total()

    @property
    def messages(self) -> int:
        return sum(counter.total() for counter in self.links.values())

    def copy(self) -> Counters:
        links = {kind: Counter(counter) for kind, counter in self.links.items()}
        return Counters(links, self.delivered, self.lost)

    def __sub__(self, earlier: Counters) -> Counters:
        links = {kind: counter - earlier.links[kind] for kind, counter in self.links.items()}
        return Counters(links, self.delivered - earlier.delivered, self.lost - earlier.lost)

    def __str__(self) -> str:
        return (
            f"{self.notifications} notifications, {self.subscriptions} subscriptions, "
            f"{self.advertisements} advertisements, {self.control} control, "
            f"{self.delivered} delivered, {self.lost} lost"
        )
