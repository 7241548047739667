"""Multicast groups of regions, as simulations under the High Level Architecture use them (07/4.8).

A federate says in which region of a space its updates lie, and for which region it wants updates.
Which groups it joins then depends on the regions, in one of two ways.

*Region-based*: there is one group for each update region, joined by all whose subscription region
intersects it. Only those that want an update get it, but all joins are decided anew whenever a
region moves, an update region as much as a subscription region.

*Grid-based*: the space is cut into cells, with a group for each. A federate joins the cells that
its subscription region touches, an update goes to the cells that its region touches. Update regions
move for free. The price: one update may come through several cells, so it has to be deduplicated;
and it may come to a federate whose region only shares a cell with it, a false arrival, which the
exact test at the receiver drops (07/T-15).

Regions are closed. Cells are half-open, so each point lies in exactly one; two regions with a point
in common thus share the cell of this point, and nothing is missed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, floor, isfinite, prod
from typing import TypeAlias

from stentor.errors import InvalidConfiguration, UnknownClient

FederateId: TypeAlias = str
GroupId: TypeAlias = Hashable


@dataclass(frozen=True)
class Region:
    """A box: a closed interval in each dimension.

    >>> Region.of((40, 60), (10, 20)).intersects(Region.of((60, 70), (15, 30)))
    True
    """

    sides: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        for low, high in self.sides:
            if not (isfinite(low) and isfinite(high) and low <= high):
                raise InvalidConfiguration(
                    f"[{low}, {high}] is not a side of a region; give the lower bound first"
                )

    @staticmethod
    def of(*sides: tuple[float, float]) -> Region:
        return Region(sides)

    def intersects(self, other: Region) -> bool:
        return all(
            low <= other_high and other_low <= high
            for (low, high), (other_low, other_high) in zip(self.sides, other.sides, strict=True)
        )


@dataclass(frozen=True)
class Churn:
    """Groups that federates joined and left, because a region came or moved."""

    joined: tuple[tuple[FederateId, GroupId], ...] = ()
    left: tuple[tuple[FederateId, GroupId], ...] = ()

    def __len__(self) -> int:
        return len(self.joined) + len(self.left)


@dataclass(frozen=True)
class Arrival:
    """What becomes of one update."""

    #: The groups that it is sent to.
    groups: tuple[GroupId, ...]
    #: Those that want it; each takes it once.
    delivered: tuple[FederateId, ...]
    #: Those that got it and do not want it.
    false: tuple[FederateId, ...]
    #: Copies that came to somebody who had one already.
    repeated: int


class _Federation(ABC):
    """Federates with their regions, and the groups that they are in."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._subscribed: dict[FederateId, Region] = {}
        self._updated: dict[FederateId, Region] = {}
        self._joined: dict[FederateId, dict[GroupId, None]] = {}

    @property
    @abstractmethod
    def count(self) -> int:
        """How many groups there are."""

    def groups_of(self, federate: FederateId) -> list[GroupId]:
        """The groups that a federate is in."""
        return list(self._joined.get(federate, ()))

    def subscribe(self, federate: FederateId, region: Region) -> Churn:
        """The federate wants updates of this region, and no longer of another one."""
        self._check(region)
        self._subscribed[federate] = region
        return self._decide([federate])

    def publish(self, federate: FederateId, region: Region) -> Churn:
        """The federate's updates lie in this region, and no longer in another one."""
        self._check(region)
        self._updated[federate] = region
        return self._moved()

    def leave(self, federate: FederateId) -> Churn:
        """The federate goes, with both of its regions."""
        self._subscribed.pop(federate, None)
        self._updated.pop(federate, None)
        left = tuple((federate, group) for group in self._joined.pop(federate, ()))
        others = self._moved()
        return Churn(others.joined, left + others.left)

    def update(self, federate: FederateId) -> Arrival:
        """The federate sends an update of its region."""
        region = self._updated.get(federate)
        if region is None:
            raise UnknownClient(f"{federate!r} has no update region; let it publish one first")
        groups = dict.fromkeys(self._sent_to(federate, region))
        copies = {
            other: len(groups.keys() & joined.keys())
            for other, joined in self._joined.items()
            if other != federate and groups.keys() & joined.keys()
        }
        wanted = tuple(o for o in copies if self._subscribed[o].intersects(region))
        return Arrival(
            groups=tuple(groups),
            delivered=wanted,
            false=tuple(other for other in copies if other not in wanted),
            repeated=sum(copies.values()) - len(copies),
        )

    def _check(self, region: Region) -> None:
        if len(region.sides) != self._dimensions:
            raise InvalidConfiguration(
                f"the space has {self._dimensions} dimensions and the region {len(region.sides)}"
            )

    def _decide(self, federates: Iterable[FederateId]) -> Churn:
        """Let the federates join and leave groups as their subscription regions require."""
        joined: list[tuple[FederateId, GroupId]] = []
        left: list[tuple[FederateId, GroupId]] = []
        for federate in federates:
            before = self._joined.get(federate, {})
            now = dict.fromkeys(self._wanted(federate, self._subscribed[federate]))
            joined += [(federate, group) for group in now if group not in before]
            left += [(federate, group) for group in before if group not in now]
            self._joined[federate] = now
        return Churn(tuple(joined), tuple(left))

    @abstractmethod
    def _wanted(self, federate: FederateId, region: Region) -> Iterable[GroupId]:
        """The groups that a federate with this subscription region must be in."""

    @abstractmethod
    def _sent_to(self, federate: FederateId, region: Region) -> Iterable[GroupId]:
        """The groups that an update of this region goes to."""

    @abstractmethod
    def _moved(self) -> Churn:
        """An update region has come, moved or gone."""


class RegionGroups(_Federation):
    """One group for each update region; its name is that of the federate.

    >>> groups = RegionGroups(dimensions=2)
    >>> _ = groups.subscribe("tank", Region.of((40, 60), (10, 20)))
    >>> groups.publish("plane", Region.of((55, 70), (15, 30))).joined
    (('tank', 'plane'),)
    >>> groups.update("plane").delivered
    ('tank',)
    """

    @property
    def count(self) -> int:
        return len(self._updated)

    def _wanted(self, federate: FederateId, region: Region) -> Iterable[GroupId]:
        return [
            other
            for other, updated in self._updated.items()
            if other != federate and updated.intersects(region)
        ]

    def _sent_to(self, federate: FederateId, region: Region) -> Iterable[GroupId]:
        return [federate] if any(federate in joined for joined in self._joined.values()) else []

    def _moved(self) -> Churn:
        return self._decide(self._subscribed)


class GridGroups(_Federation):
    """One group for each cell of a grid over the space, which begins at the origin.

    >>> groups = GridGroups(space=(100, 100), cell=(50, 50))
    >>> groups.subscribe("tank", Region.of((40, 60), (10, 20))).joined
    (('tank', (0, 0)), ('tank', (1, 0)))
    >>> _ = groups.publish("plane", Region.of((70, 80), (30, 40)))
    >>> groups.update("plane").false
    ('tank',)
    """

    def __init__(self, space: Sequence[float], cell: Sequence[float]) -> None:
        """The extents of the space and of a cell."""
        if len(space) != len(cell) or not all(
            0 < size <= extent < float("inf") for extent, size in zip(space, cell, strict=False)
        ):
            raise InvalidConfiguration(
                f"cells of {tuple(cell)} do not cut up a space of {tuple(space)}"
            )
        super().__init__(len(space))
        self._space = tuple(space)
        self._cell = tuple(cell)

    @property
    def count(self) -> int:
        return prod(self._cells_along)

    @property
    def _cells_along(self) -> list[int]:
        return [ceil(extent / size) for extent, size in zip(self._space, self._cell, strict=True)]

    def _check(self, region: Region) -> None:
        super()._check(region)
        for (low, high), extent in zip(region.sides, self._space, strict=True):
            if low < 0 or high > extent:
                raise InvalidConfiguration(
                    f"[{low}, {high}] lies outside of the space from 0 to {extent}"
                )

    def _cells(self, region: Region) -> Iterable[GroupId]:
        """The upper border of the space belongs to the last cells."""
        return product(
            *(
                range(min(floor(low / size), last), min(floor(high / size), last) + 1)
                for (low, high), size, last in zip(
                    region.sides, self._cell, [n - 1 for n in self._cells_along], strict=True
                )
            )
        )

    def _wanted(self, federate: FederateId, region: Region) -> Iterable[GroupId]:
        return self._cells(region)

    def _sent_to(self, federate: FederateId, region: Region) -> Iterable[GroupId]:
        return self._cells(region)

    def _moved(self) -> Churn:
        return Churn()
