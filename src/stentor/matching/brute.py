"""Brute force: test every filter (R-02.60). The oracle that all other engines are held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from stentor.filters.filter import Filter
from stentor.matching.protocol import Event, K, Matches, check_known, check_new, gather


class BruteForce(Generic[K]):
    """An engine without any preparation. It takes any filter, and its cost is their number.

    >>> engine: BruteForce[str] = BruteForce()
    >>> engine.add("ibm", Filter("symbol = 'IBM'"))
    >>> engine.match({"symbol": "IBM", "price": 120.5})
    ['ibm']
    """

    def __init__(self) -> None:
        self._filters: dict[K, Filter] = {}

    def add(self, key: K, filter: Filter) -> None:
        check_new(key, self._filters)
        self._filters[key] = filter

    def remove(self, key: K) -> None:
        check_known(key, self._filters)
        del self._filters[key]

    def get(self, key: K) -> Filter | None:
        return self._filters.get(key)

    def match(self, notification: Event) -> list[K]:
        return [key for key, filter in self._filters.items() if filter.matches(notification)]

    def match_batch(self, events: Sequence[Event]) -> Matches:
        return gather((row, self.match(event)) for row, event in enumerate(events))

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, key: object) -> bool:
        return key in self._filters
