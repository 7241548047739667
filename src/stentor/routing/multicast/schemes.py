"""The four multicast schemes (03/A19): where a notification is sent, given who wants it.

Two differ in how often they send. *In one step* the publisher's broker knows who is interested,
everywhere, as simple routing and subscription flooding let it know, and sends to one group in each
cluster of brokers. *Ideal* multicast has a single cluster with a group for every subset; *clustered
group multicast* (CGM) has several, and so far fewer groups for a few more sends; *threshold
clustered* multicast (TCGM) has groups of up to T brokers in each cluster, and one of all its
members. *Hop by hop*, each broker of a tree knows only behind which neighbors somebody is
interested, and sends to the group of these neighbors: *neighbor matching*, which fits filter-based
routing as it is. Where a broker has very many neighbors, these may have a threshold as well.

Groups of all members reach brokers that did not ask. Such a broker must match again and finds that
the notification came in vain (07/T-15); hop by hop it also passes nothing on.

The published comparison says that CGM needs fewer groups than ideal multicast by a factor of
2^C / C; it is 2^(N - N/C) / C. And it counts receivers against T over all clusters, though groups
are made for each; here T holds in each cluster, which therefore needs a group of all its members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stentor.errors import DuplicateBroker, InvalidTopology, UnknownBroker
from stentor.model.notification import Notification
from stentor.routing.multicast.groups import Groups
from stentor.routing.protocol import BrokerId
from stentor.routing.table import Neighbor, RoutingTable


@dataclass(frozen=True)
class Multicast:
    """One send: it reaches all members of the group but the sender."""

    sender: BrokerId
    group: tuple[BrokerId, ...]

    @property
    def receivers(self) -> tuple[BrokerId, ...]:
        return tuple(member for member in self.group if member != self.sender)


@dataclass(frozen=True)
class Plan:
    """What is sent for one notification, in order, and for whom it is."""

    sends: tuple[Multicast, ...]
    interested: frozenset[BrokerId]

    @property
    def receivers(self) -> list[BrokerId]:
        """Everyone that a send reaches, once for each time."""
        return [receiver for send in self.sends for receiver in send.receivers]

    @property
    def relays(self) -> frozenset[BrokerId]:
        """Those that got it from others and send it on."""
        return frozenset(self.receivers) & {send.sender for send in self.sends}

    @property
    def vain(self) -> list[BrokerId]:
        """Those that neither wanted it nor pass it on."""
        return [r for r in self.receivers if r not in self.interested and r not in self.relays]

    @property
    def crossings(self) -> int:
        """How often it crosses links between brokers and multicast routers, up and down."""
        return len(self.sends) + len(self.receivers)


class Scheme(Protocol):
    """Groups that are set up once, and a plan for each notification."""

    @property
    def selective(self) -> int:
        """How many groups reach exactly some subset."""

    @property
    def count(self) -> int:
        """How many groups there are altogether."""

    def plan(self, sender: BrokerId, interested: Iterable[BrokerId]) -> Plan:
        """What is sent for a notification that is published at the sender."""


class _Counted:
    """The numbers of groups of all brokers or clusters together."""

    _groups: Collection[Groups]

    @property
    def selective(self) -> int:
        return sum(groups.selective for groups in self._groups)

    @property
    def count(self) -> int:
        return sum(groups.count for groups in self._groups)


class OneStep(_Counted):
    """The sender reaches all that are interested itself, with one send for each cluster.

    >>> scheme = OneStep([(1, 2, 3), (4, 5, 6)])
    >>> [send.group for send in scheme.plan(1, [1, 2, 5, 6]).sends]
    [(2,), (5, 6)]
    """

    def __init__(
        self, clusters: Iterable[Iterable[BrokerId]], threshold: int | None = None
    ) -> None:
        self._groups = [Groups(tuple(cluster), threshold) for cluster in clusters]
        brokers = [member for groups in self._groups for member in groups.members]
        self._brokers = frozenset(brokers)
        if len(self._brokers) < len(brokers):
            raise DuplicateBroker("a broker is in two clusters; each belongs to one")

    def plan(self, sender: BrokerId, interested: Iterable[BrokerId]) -> Plan:
        wanted = _others(sender, interested, self._brokers)
        found = (groups.group(wanted) for groups in self._groups)
        return Plan(tuple(Multicast(sender, group) for group in found if group), wanted)


class HopByHop(_Counted):
    """Each broker of a tree sends to the group of those neighbors that lead to somebody.

    >>> scheme = HopByHop([(1, 2), (2, 3), (2, 4), (4, 5)])
    >>> [(send.sender, send.group) for send in scheme.plan(1, [3, 5]).sends]
    [(1, (2,)), (2, (3, 4)), (4, (5,))]
    """

    def __init__(
        self, edges: Iterable[tuple[BrokerId, BrokerId]], threshold: int | None = None
    ) -> None:
        beside = _tree(edges)
        self._at = {broker: Groups(tuple(near), threshold) for broker, near in beside.items()}
        self._groups = self._at.values()

    def plan(self, sender: BrokerId, interested: Iterable[BrokerId]) -> Plan:
        wanted = _others(sender, interested, self._at.keys())
        order, came_from = self._walk(sender)
        # Towards the sender, so that a broker comes after all that are behind it.
        leading: set[BrokerId] = set(wanted)
        for broker in reversed(order):
            if broker in leading and broker != sender:
                leading.add(came_from[broker])
        sends = []
        for broker in order:
            ahead = [n for n in self._at[broker].members if came_from.get(n) == broker]
            group = self._at[broker].group(leading.intersection(ahead))
            if group:
                sends.append(Multicast(broker, self._onward(group, came_from.get(broker))))
        return Plan(tuple(sends), wanted)

    def _walk(self, start: BrokerId) -> tuple[list[BrokerId], dict[BrokerId, BrokerId]]:
        """All brokers from the start outwards, and the neighbor through which each is reached."""
        order, came_from = [start], dict[BrokerId, BrokerId]()
        for broker in order:
            for neighbor in self._at[broker].members:
                if neighbor != came_from.get(broker):
                    came_from[neighbor] = broker
                    order.append(neighbor)
        return order, came_from
