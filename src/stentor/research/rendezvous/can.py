"""CAN: a space of several dimensions that its members divide among themselves (07/O10).

The space is a cube of integer points. It is tiled by *zones*, boxes that are half open on every
side, one for each member, so every point has exactly one owner. The zones are the leaves of a
binary tree: a node is the box that its two children halve, and the dimension that is halved
changes from level to level.

Join: the newcomer picks a point; the zone around it is halved, and the newcomer gets the half with
its point. No other zone changes.

Leave: if the other half of the zone is undivided, its owner takes both together. If not, somewhere
in that other half there are two zones that are halves of one; one of their owners takes both and
the other one moves to the zone that is free. Two zones change and everyone has one zone again. (The
authors of CAN let some neighbor keep two zones until a background process finds that pair.)

Neighbors are members whose zones touch along a face: they abut in one dimension and overlap in all
others. Routing to a point goes greedily to the neighbor whose zone is nearest to it, in the sum of
the distances along each dimension. It always arrives: from the point of the own zone that is
nearest to the target, one step along a dimension in which the target is further out leads into a
neighbor's zone, which is thus nearer by at least one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from stentor.errors import DuplicateBroker, InvalidConfiguration, InvalidTopology, UnknownBroker
from stentor.routing.protocol import BrokerId

Point = tuple[int, ...]

#: Points along each dimension.
SIDE: Final = 1 << 48


class Box(NamedTuple):
    """A box of points with both corners in it."""

    first: Point
    last: Point


class Zone(NamedTuple):
    """A box of points, from `low` up to but not including `high`."""

    low: Point
    high: Point

    def contains(self, point: Point) -> bool:
        return all(low <= x < high for low, x, high in zip(self.low, point, self.high, strict=True))

    def meets(self, box: Box) -> bool:
        """Whether the zone and the box have a point in common."""
        return all(
            low <= last and first < high
            for low, high, first, last in zip(self.low, self.high, *box, strict=True)
        )

    def touches(self, other: Zone) -> bool:
        """Whether the two share a face: they abut in one dimension and overlap in the others."""
        abutting = 0
        for low, high, its_low, its_high in zip(*self, *other, strict=True):
            if high < its_low or its_high < low:
                return False
            abutting += high == its_low or its_high == low
        return abutting == 1

    def distance(self, point: Point) -> int:
        """Steps from the zone to the point, along the dimensions."""
        return sum(
            max(low - x, x - high + 1, 0)
            for low, high, x in zip(self.low, self.high, point, strict=True)
        )

    def halves(self, dimension: int) -> tuple[Zone, Zone]:
        middle = (self.low[dimension] + self.high[dimension]) // 2
        return (
            Zone(self.low, _replaced(self.high, dimension, middle)),
            Zone(_replaced(self.low, dimension, middle), self.high),
        )


class _Node:
    """A box of the tree: a zone with its owner, or two halves."""

    __slots__ = ("depth", "halves", "owner", "parent", "zone")

    def __init__(self, zone: Zone, parent: _Node | None) -> None:
        self.zone = zone
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.halves: tuple[_Node, _Node] | None = None
        self.owner: BrokerId | None = None


class Can:
    """The zones of the members, who neighbors whom, and the way to a point.

    >>> can = Can(dimensions=2, side=100)
    >>> for member, point in {"a": (0, 0), "b": (99, 0), "c": (99, 99)}.items():
    ...     can.join(member, point)
    >>> can.zone("c")
    Zone(low=(50, 50), high=(100, 100))
    >>> can.owner((10, 90)), sorted(can.neighbors("a")), can.route("a", (60, 60))
    ('a', ['b', 'c'], ['a', 'c'])
    """

    def __init__(self, dimensions: int, side: int = SIDE) -> None:
        if dimensions < 1 or side < 1:
            raise InvalidConfiguration(
                f"a space of {dimensions} dimensions with {side} points along each is empty"
            )
        self.dimensions = dimensions
        self.side = side
        self._root = _Node(Zone((0,) * dimensions, (side,) * dimensions), None)
        self._leaves: dict[BrokerId, _Node] = {}
        # Dictionaries instead of sets, for an order that does not change from run to run.
        self._neighbors: dict[BrokerId, dict[BrokerId, None]] = {}

    @classmethod
    def of(cls, points: Mapping[BrokerId, Point], dimensions: int, side: int = SIDE) -> Can:
        """The space after the members have joined one by one, in the order given."""
        can = cls(dimensions, side)
        for member, point in points.items():
            can.join(member, point)
        return can

    # -- members come and go

    def join(self, member: BrokerId, point: Point) -> None:
        """Halve the zone around the point and give the half with the point to the member."""
        if member in self._leaves:
            raise DuplicateBroker(f"{member!r} has a zone already; let it leave first")
        if len(point) != self.dimensions or not self._root.zone.contains(point):
            raise InvalidConfiguration(
                f"{point} is not a point of this space; "
                f"give {self.dimensions} integers from 0 to {self.side - 1}"
            )
        leaf = self._leaf(point)
        before = leaf.owner
        if before is None:  # the first member has it all
            self._settle(leaf, member, ())
            return
        around = [before, *self._neighbors[before]]
        zones = leaf.zone.halves(self._dimension(leaf))
        halves = leaf.halves = (_Node(zones[0], leaf), _Node(zones[1], leaf))
        leaf.owner = None
        mine, rest = halves if zones[0].contains(point) else halves[::-1]
        self._settle(rest, before, around)
        self._settle(mine, member, around)

    def leave(self, member: BrokerId) -> None:
        """Let others take over the member's zone."""
        free = self._find(member)
        around = self._forget(member)
        if free.parent is None:
            free.owner = None
            return
        other = _other_half(free)
        if other.halves is None:
            self._merge(other, around)
            return
        pair = other.halves
        while (deeper := pair[0].halves or pair[1].halves) is not None:
            pair = deeper
        stays, moves = pair
        assert stays.owner is not None
        assert moves.owner is not None
        self._merge(stays, self._forget(moves.owner))
        # The merged zone is larger than both, so its owner may be around now.
        self._settle(free, moves.owner, [*around, stays.owner])

    def _merge(self, leaf: _Node, around: Iterable[BrokerId]) -> None:
        """Give a zone and its other half, which is free, to the zone's owner as one zone.

        `around` are the neighbors of the other half.
        """
        owner, parent = leaf.owner, leaf.parent
        assert owner is not None
        assert parent is not None
        parent.halves = None
        self._settle(parent, owner, [*self._neighbors[owner], *around])

    def _settle(self, leaf: _Node, member: BrokerId, around: Iterable[BrokerId]) -> None:
        """Make the member the owner of a zone. Its neighbors are some of those around."""
        if member in self._leaves:
            self._forget(member)
        leaf.owner = member
        self._leaves[member] = leaf
        mine = self._neighbors[member] = {}
        for other in around:
            if other in self._leaves and self._leaves[other].zone.touches(leaf.zone):
                mine[other] = None
                self._neighbors[other][member] = None

    def _forget(self, member: BrokerId) -> list[BrokerId]:
        """Take the member out; the answer is who its neighbors were."""
        del self._leaves[member]
        around = list(self._neighbors.pop(member))
        for other in around:
            del self._neighbors[other][member]
        return around

    def _dimension(self, leaf: _Node) -> int:
        """The dimension in which to halve: each in turn, unless it cannot be halved any more."""
        low, high = leaf.zone
        for offset in range(self.dimensions):
            dimension = (leaf.depth + offset) % self.dimensions
            if high[dimension] - low[dimension] > 1:
                return dimension
        raise InvalidTopology(f"the zone at {low} is a single point and cannot be shared")

    # -- questions

    def owner(self, point: Point) -> BrokerId:
        """Whose zone the point is in."""
        owner = self._leaf(point).owner
        if owner is None:
            raise UnknownBroker("the space has no members yet; let one join")
        return owner

    def zone(self, member: BrokerId) -> Zone:
        return self._find(member).zone

    def neighbors(self, member: BrokerId) -> list[BrokerId]:
        """The members whose zones share a face with the member's."""
        self._find(member)
        return list(self._neighbors[member])

    def next_hop(self, member: BrokerId, point: Point) -> BrokerId:
        """The neighbor nearest to the point, or the member itself if it owns the point."""
        if self.zone(member).contains(point):
            return member
        return min(self._neighbors[member], key=lambda n: self._leaves[n].zone.distance(point))

    def route(self, start: BrokerId, point: Point) -> list[BrokerId]:
        """The members on the greedy way from the start to the owner of the point."""
        way = [start]
        while (hop := self.next_hop(way[-1], point)) != way[-1]:
            way.append(hop)
        return way

    def __iter__(self) -> Iterator[BrokerId]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def __contains__(self, member: object) -> bool:
        return member in self._leaves

    def _find(self, member: BrokerId) -> _Node:
        try:
            return self._leaves[member]
        except KeyError:
            raise UnknownBroker(f"{member!r} has no zone here; let it join first") from None

    def _leaf(self, point: Point) -> _Node:
        node = self._root
        while node.halves is not None:
            first, second = node.halves
            node = first if first.zone.contains(point) else second
        return node


def _replaced(point: Point, dimension: int, value: int) -> Point:
    return (*point[:dimension], value, *point[dimension + 1 :])


def _other_half(node: _Node) -> _Node:
    assert node.parent is not None
    assert node.parent.halves is not None
    first, second = node.parent.halves
    return second if node is first else first
