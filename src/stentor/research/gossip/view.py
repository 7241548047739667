"""The peers that a broker gossips with: all of its neighbors, or a few of them drawn at random.

A partial view keeps the cost of membership down: it holds a uniform sample of the neighbors, which
is kept uniform as neighbors come (reservoir sampling) and filled again as they go.
"""

from __future__ import annotations

import random

from stentor.research.gossip.options import at_least
from stentor.routing.protocol import BrokerId


class PeerView:
    """Neighbors, and the sample of them that gossip goes to.

    >>> view = PeerView(random.Random(1), size=2)
    >>> for broker in "abcd":
    ...     view.up(broker)
    >>> len(view), len(view.neighbors)
    (2, 4)
    >>> len(view.draw(1)), len(view.draw(5))  # never more than there are
    (1, 2)
    """

    def __init__(self, rng: random.Random, size: int | None = None) -> None:
        self._rng = rng
        self._size = size if size is None else at_least(1, view=size)
        self._neighbors: dict[BrokerId, None] = {}
        self._view: list[BrokerId] = []

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._neighbors)

    def __len__(self) -> int:
        return len(self._view)

    def up(self, neighbor: BrokerId) -> None:
        if neighbor in self._neighbors:
            return
        self._neighbors[neighbor] = None
        if self._size is None or len(self._view) < self._size:
            self._view.append(neighbor)
            return
        place = self._rng.randrange(len(self._neighbors))
        if place < self._size:
            self._view[place] = neighbor

    def down(self, neighbor: BrokerId) -> None:
        if neighbor not in self._neighbors:
            return
        del self._neighbors[neighbor]
        if neighbor in self._view:
            self._view.remove(neighbor)
            rest = [other for other in self._neighbors if other not in self._view]
            if rest:
                self._view.append(self._rng.choice(rest))

    def draw(self, count: int) -> list[BrokerId]:
        """So many distinct peers at random, or all if there are fewer."""
        return self._rng.sample(self._view, min(count, len(self._view)))
