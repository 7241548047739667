"""The counting engine: each distinct predicate is evaluated once, then conjuncts are counted.

`ConjunctIndex` holds the theory. Here filters are put into it and taken out of it: a filter is a
union, each of its conjuncts is counted on its own, and its key is delivered once whichever of them
hold. Comparisons between attributes (`bid < ask`) are beyond counting (R-02.13); the constraints
beside them are counted as usual, and the comparison itself is evaluated when these hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic

from stentor.filters.facts import flat_facts
from stentor.filters.filter import Filter
from stentor.matching.counting.conjunct_index import ConjunctIndex, Predicate, states_of
from stentor.matching.protocol import Event, K, Matches, check_known, check_new, gather
from stentor.model.notification import Notification


class Counting(Generic[K]):
    """An engine whose cost is that of the satisfied predicates.

    >>> engine: Counting[str] = Counting()
    >>> engine.add("f1", Filter("Stock = 'Foo Inc.' and Price < 15"))
    >>> engine.add("f2", Filter("Stock = 'Foo Inc.' and Price < 12"))
    >>> engine.match({"Stock": "Foo Inc.", "Price": 14})
    ['f1']
    >>> engine.predicate_count
    3
    """

    def __init__(self) -> None:
        self._filters: dict[K, Filter] = {}
        self._index: ConjunctIndex[K] = ConjunctIndex()
        #: The attributes that filters look at, each with the number of these filters.
        self._names: dict[str, int] = {}

    def add(self, key: K, filter: Filter) -> None:
        check_new(key, self._filters)
        added = 0
        try:
            for conjunct in filter.conjuncts:
                self._index.add(conjunct, key)
                added += 1
        except BaseException:
            for conjunct in filter.conjuncts[:added]:
                self._index.remove(conjunct, key)
            raise
        self._filters[key] = filter
        for name in filter.names:
            self._names[name] = self._names.get(name, 0) + 1

    def remove(self, key: K) -> None:
        check_known(key, self._filters)
        filter = self._filters.pop(key)
        for conjunct in filter.conjuncts:
            self._index.remove(conjunct, key)
        for name in filter.names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def get(self, key: K) -> Filter | None:
        return self._filters.get(key)

    def match(self, notification: Event) -> list[K]:
        return list(self._match(notification, None))

    def match_batch(self, events: Sequence[Event]) -> Matches:
        """A value that occurs in many of the events is looked up once."""
        known: dict[Any, list[Predicate]] = {}
        return gather((row, self._match(event, known)) for row, event in enumerate(events))

    def _match(self, notification: Event, known: dict[Any, list[Predicate]] | None) -> Iterator[K]:
        facts = self._facts(notification)
        delivered: set[K] = set()
        for counted in self._index.matching(states_of(facts), known):
            keys = [key for key in counted.keys if key not in delivered]
            if keys and all(residual.holds(facts) for residual in counted.conjunct.residuals):
                delivered.update(keys)
                yield from keys

    def _facts(self, notification: Event) -> Mapping[str, Any]:
        names = self._names
        if isinstance(notification, Notification):
            return {n: v for n, v in notification.facts.items() if n in names}
        return flat_facts(notification, names)

    @property
    def predicate_count(self) -> int:
        """How many distinct predicates are evaluated."""
        return len(self._index.predicates)

    @property
    def sizes(self) -> dict[str, dict[str, int]]:
        """For each attribute, how much stands in which value structure."""
        return {name: values.sizes for name, values in self._index.values.items()}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, key: object) -> bool:
        return key in self._filters
