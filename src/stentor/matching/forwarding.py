"""Forwarding: to which destinations a notification goes (R-02.70).

A router does not ask which filters match but which neighbors own at least one that does. That can
be answered earlier: once a filter of a neighbor matched, its other filters need no test, and
once every neighbor is marked nothing needs a test. An engine that can profit from this is a
`SelectiveMatcher`; any other answers in full, and the destinations of its answer are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

from stentor.filters.filter import Filter
from stentor.matching.protocol import Event, K, Matcher, SelectiveMatcher

D = TypeVar("D", bound=Hashable)


class Forwarder(Generic[K, D]):
    """Filters with the destinations that own them, over any engine.

    >>> from stentor.matching.brute import BruteForce
    >>> forwarder: Forwarder[int, str] = Forwarder(BruteForce())
    >>> forwarder.add(1, Filter("price < 10"), "north")
    >>> forwarder.add(2, Filter("price < 20"), "south")
    >>> sorted(forwarder.forward({"price": 5})), sorted(forwarder.forward({"price": 15}))
    (['north', 'south'], ['south'])
    """

    def __init__(self, engine: Matcher[K]) -> None:
        """The engine must be empty, and be changed through the forwarder only."""
        self._engine = engine
        self._destination: dict[K, D] = {}
        self._filters_of: Counter[D] = Counter()

    def add(self, key: K, filter: Filter, destination: D) -> None:
        hash(destination)  # fails here, before anything has changed
        self._engine.add(key, filter)
        self._destination[key] = destination
        self._filters_of[destination] += 1

    def remove(self, key: K) -> None:
        self._engine.remove(key)
        destination = self._destination.pop(key)
        self._filters_of[destination] -= 1
        if not self._filters_of[destination]:
            del self._filters_of[destination]

    @property
    def destinations(self) -> frozenset[D]:
        """All that own at least one filter."""
        return frozenset(self._filters_of)

    def forward(self, notification: Event) -> set[D]:
        """The destinations that own at least one filter which the notification matches."""
        destination = self._destination
        if not isinstance(self._engine, SelectiveMatcher):
            return {destination[key] for key in self._engine.match(notification)}
        marked: set[D] = set()
        for key in self._engine.match_lazily(notification, lambda k: destination[k] in marked):
            marked.add(destination[key])
            if len(marked) == len(self._filters_of):
                break
        return marked

    def __len__(self) -> int:
        return len(self._destination)
