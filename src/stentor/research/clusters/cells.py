"""Cells: virtual brokers made of several brokers, joined in a tree (07/O6).

Every member of a cell has links to all other members and to all members of the neighboring cells.
Of these links only few carry anything. The first living member of a cell, in the order in which
they are given, is its head: it is linked to the other members, and to the heads of the neighboring
cells. That is a tree of brokers, in which one member of each cell forwards. It is a function of
who is alive and of nothing else, so all brokers that see the same brokers alive see the same tree.

While they do not yet see the same, two brokers use a link if both believe it to be in the tree. The
links in use have no cycle even then. Inside a cell each broker that takes another for the head
has one link, to a broker that takes itself for the head, and those have none among themselves; so
they form stars. Between cells only brokers that take themselves for heads have links, and at most
one into each neighboring cell. A cycle would have to turn back in some cell that is farthest out:
it would enter a star through its head, and could leave only over the link by which it came.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import combinations, product
from typing import TypeAlias

from stentor.errors import DuplicateBroker, InvalidTopology, UnknownBroker
from stentor.routing.protocol import BrokerId

CellId: TypeAlias = int | str


class Cells:
    """Which brokers make up each cell, and which cells are neighbors.

    >>> cells = Cells({"east": (1, 2), "west": (3, 4)}, [("east", "west")])
    >>> cells.tree_neighbors(1, alive={2, 3, 4})
    [2, 3]
    >>> cells.tree_neighbors(2, alive={3, 4})
    [3]
    """

    def __init__(
        self,
        members: Mapping[CellId, Iterable[BrokerId]],
        links: Iterable[tuple[CellId, CellId]] = (),
    ) -> None:
        self._members = {cell: tuple(brokers) for cell, brokers in members.items()}
        self._cell_of: dict[BrokerId, CellId] = {}
        for cell, brokers in self._members.items():
            if not brokers:
                raise InvalidTopology(f"the cell {cell!r} has no brokers; give it at least one")
            for broker in brokers:
                if broker in self._cell_of:
                    raise DuplicateBroker(f"the broker {broker!r} is given twice; ids must differ")
                self._cell_of[broker] = cell
        self._cell_links = list(links)
        self._beside = self._tree()

    def _tree(self) -> dict[CellId, list[CellId]]:
        """Each cell's neighbors, in a tree of all cells."""
        beside: dict[CellId, list[CellId]] = {cell: [] for cell in self._members}
        for a, b in self._cell_links:
            for cell in (a, b):
                if cell not in beside:
                    raise InvalidTopology(f"there is no cell {cell!r} that could be linked")
            beside[a].append(b)
            beside[b].append(a)
        reached = list(beside)[:1]
        for cell in reached:
            reached += [n for n in beside[cell] if n not in reached]
        if len(reached) < len(beside) or len(self._cell_links) != len(beside) - 1:
            raise InvalidTopology("cells must be linked in one tree, without cycles")
        return beside

    @property
    def brokers(self) -> list[BrokerId]:
        return list(self._cell_of)

    @property
    def links(self) -> Iterator[tuple[BrokerId, BrokerId]]:
        """All links that there should be, inside cells and between neighboring ones."""
        for members in self._members.values():
            yield from combinations(members, 2)
        for a, b in self._cell_links:
            yield from product(self._members[a], self._members[b])

    def cell_of(self, broker: BrokerId) -> CellId:
        try:
            return self._cell_of[broker]
        except KeyError:
            raise UnknownBroker(
                f"the broker {broker!r} is in no cell; name it in the cells of all brokers"
            ) from None

    def tree_neighbors(self, broker: BrokerId, alive: Container[BrokerId]) -> list[BrokerId]:
        """A living broker's neighbors in the tree, if beside itself these are alive."""
        cell = self.cell_of(broker)
        head = next(m for m in self._members[cell] if m == broker or m in alive)
        if head != broker:
            return [head]
        found = [member for member in self._members[cell] if member in alive]
        for beside in self._beside[cell]:
            found += [member for member in self._members[beside] if member in alive][:1]
        return found
