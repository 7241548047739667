"""The four multicast schemes (03/A19): where a notification is sent, given who wants it.

They differ in who knows what. *In one step* the publisher's broker knows who is interested,
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
from stentor.research.multicast.groups import Groups
from stentor.research.multicast.ways import beside, connects, leading, outwards
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
    def count(self) -> int:
        """How many groups there are."""

    def plan(self, sender: BrokerId, interested: Iterable[BrokerId]) -> Plan:
        """What is sent for a notification that is published at the sender."""


class OneStep:
    """The sender reaches all that are interested itself, with one send for each cluster.

    >>> scheme = OneStep([(1, 2, 3), (4, 5, 6)])
    >>> [send.group for send in scheme.plan(1, [1, 2, 5, 6]).sends]
    [(2,), (5, 6)]
    """

    def __init__(
        self, clusters: Iterable[Iterable[BrokerId]], threshold: int | None = None
    ) -> None:
        self._clusters = [Groups(tuple(cluster), threshold) for cluster in clusters]
        brokers = [member for groups in self._clusters for member in groups.members]
        self._brokers = frozenset(brokers)
        if len(self._brokers) < len(brokers):
            raise DuplicateBroker("a broker is in two clusters; each belongs to one")

    @property
    def selective(self) -> int:
        """How many groups reach exactly some subset of a cluster."""
        return sum(groups.selective for groups in self._clusters)

    @property
    def count(self) -> int:
        return sum(groups.count for groups in self._clusters)

    def plan(self, sender: BrokerId, interested: Iterable[BrokerId]) -> Plan:
        wanted = others(sender, interested, self._brokers)
        found = (groups.group(wanted) for groups in self._clusters)
        return Plan(tuple(Multicast(sender, group) for group in found if group), wanted)


class HopByHop:
    """Each broker of a tree sends to the group of those neighbors that lead to somebody.

    >>> scheme = HopByHop([(1, 2), (2, 3), (2, 4), (4, 5)])
    >>> [(send.sender, send.group) for send in scheme.plan(1, [3, 5]).sends]
    [(1, (2,)), (2, (3, 4)), (4, (5,))]
    """

    def __init__(
        self, edges: Iterable[tuple[BrokerId, BrokerId]], threshold: int | None = None
    ) -> None:
        self._threshold = threshold
        self._neighbors = _tree(edges)
        self._at = [Groups(tuple(near), threshold) for near in self._neighbors.values()]

    @property
    def count(self) -> int:
        """With a threshold also the groups of all neighbors but one, from which it came."""
        counts = [groups.count for groups in self._at]
        if self._threshold is not None:
            degrees = [len(groups.members) for groups in self._at]
            counts += [degree for degree in degrees if degree - 1 > self._threshold]
        return sum(counts)

    def plan(self, sender: BrokerId, interested: Iterable[BrokerId]) -> Plan:
        wanted = others(sender, interested, self._neighbors.keys())
        before = outwards(self._neighbors, sender)
        matching = leading(before, wanted)
        sends = []
        for broker, previous in before.items():
            ahead = [neighbor for neighbor in self._neighbors[broker] if neighbor != previous]
            group = Groups(tuple(ahead), self._threshold).group(matching)
            if group:
                sends.append(Multicast(broker, group))
        return Plan(tuple(sends), wanted)


# -- the four by name


def ideal(brokers: Iterable[BrokerId]) -> OneStep:
    """A group for every subset of brokers.

    >>> ideal(range(10)).count
    1024
    """
    return OneStep([brokers])


def clustered(clusters: Iterable[Iterable[BrokerId]]) -> OneStep:
    """CGM: a group for every subset of each cluster.

    >>> clustered([range(5), range(5, 10)]).count
    64
    """
    return OneStep(clusters)


def threshold_clustered(clusters: Iterable[Iterable[BrokerId]], threshold: int) -> OneStep:
    """TCGM: in each cluster groups of up to `threshold` brokers, and one of all.

    >>> scheme = threshold_clustered([range(5), range(5, 10)], 2)
    >>> scheme.selective, scheme.count
    (30, 32)
    """
    return OneStep(clusters, threshold)


def neighbor_matching(
    edges: Iterable[tuple[BrokerId, BrokerId]], threshold: int | None = None
) -> HopByHop:
    """Hop by hop along a tree.

    >>> neighbor_matching([(1, 2), (2, 3)]).count
    8
    """
    return HopByHop(edges, threshold)


def interested(
    table: RoutingTable, notification: Notification | Mapping[str, Any]
) -> frozenset[BrokerId]:
    """The brokers with a matching subscription, from a table that has those of all brokers.

    >>> from stentor.filters import Filter
    >>> table = RoutingTable()
    >>> for broker in (1, 2, 3):
    ...     _ = table.add(Neighbor(broker), broker, Filter(f"x > {broker}"))
    >>> sorted(interested(table, {"x": 3}))
    [1, 2]
    """
    found = table.targets(notification)
    return frozenset(target.id for target in found if isinstance(target, Neighbor))


def others(
    sender: BrokerId, interested: Iterable[BrokerId], known: Collection[BrokerId]
) -> frozenset[BrokerId]:
    """Those that must be sent to; what is published at a broker need not be sent there."""
    wanted = frozenset(interested)
    for broker in (sender, *wanted):
        if broker not in known:
            raise UnknownBroker(f"there is no broker {broker!r} in the groups; add it first")
    return wanted - {sender}


def _tree(edges: Iterable[tuple[BrokerId, BrokerId]]) -> dict[BrokerId, list[BrokerId]]:
    """Each broker's neighbors."""
    links = list(edges)
    near = beside(links)
    if len(links) != len(near) - 1 or not connects(near, near):
        raise InvalidTopology("hop by hop needs links that form one tree, without cycles")
    return near
