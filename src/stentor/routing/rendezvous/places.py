"""Where names meet: each at one of the brokers that can be reached, by consistent hashing.

Brokers and names have numbers on one circle, and a name meets at the broker nearest to it (as in
`pastry`). When a broker comes or goes, only the names next to it move. All who see the same brokers
agree, without a word.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from stentor.routing.protocol import BrokerId
from stentor.routing.rendezvous.pastry import key_of, number_of

_SIZE: Final = 1 << 128
#: Names whose places are remembered.
REMEMBERED: Final = 100_000


class Places:
    """The circle of brokers.

    >>> places = Places(["b1", "b2", "b3"])
    >>> sorted({places.of(f"type {i}") for i in range(20)})
    ['b1', 'b2', 'b3']
    """

    def __init__(self, brokers: Iterable[BrokerId]) -> None:
        self._brokers = sorted((number_of(broker), broker) for broker in brokers)
        self._numbers = [number for number, _ in self._brokers]
        self._known: dict[str, BrokerId] = {}

    def of(self, name: str) -> BrokerId:
        """The broker at which this name meets."""
        found = self._known.get(name)
        if found is None:
            key = key_of(name)
            at = bisect_left(self._numbers, key)
            beside = {self._brokers[i % len(self._brokers)] for i in (at - 1, at)}
            _, found = min(beside, key=lambda each: (_distance(each[0], key), each[0]))
            if len(self._known) < REMEMBERED:
                self._known[name] = found
        return found


def _distance(a: int, b: int) -> int:
    apart = abs(a - b)
    return min(apart, _SIZE - apart)
