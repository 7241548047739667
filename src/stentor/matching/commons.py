"""Commons: what many tables of one process find out about filters, once for all of them.

Every broker keeps its own table of who asks for what. When a whole network runs in one process,
these tables hold much the same filters, and their brokers see much the same events. Which filters
an event matches, and which of two filters covers the other, depends on no table. So it is found out
once, among all filters that anybody holds, and each table picks out its own.

  - `SharedIndex` searches an event once, however many brokers it passes, and remembers the answer
    until the filters change.
  - `SharedRelations` searches a filter's relatives when it first comes, and remembers them as
    long as anybody holds it. So it has an entry for each pair of filters of which one covers the
    other.

Both count how many tables hold a filter, and forget it with the last. An answer may name filters
that the asking table does not hold; also those of a broker that died without giving them up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Final

from stentor.filters import Filter
from stentor.matching.index import Index
from stentor.matching.relations import FilterTable
from stentor.model.codec import Envelope
from stentor.model.notification import Notification

#: Events whose matches are remembered.
REMEMBERED: Final = 100_000


class SharedIndex:
    """Which of all filters that some table holds an event matches.

    Filters have numbers, by which each table finds what it has to say of them.

    >>> index = SharedIndex()
    >>> index.add(Filter("x > 1")), index.add(Filter("x > 1")), index.add(Filter("x > 5"))
    (0, 0, 1)
    >>> index.matching([Notification({"x": 3}), Notification({"x": 0})])
    [(0,), ()]
    """

    def __init__(self) -> None:
        self._index: Index[int] = Index(background=False)
        #: The number of each filter, and how many tables hold it.
        self._held: dict[Filter, list[int]] = {}
        #: Numbers of filters that nobody holds any more.
        self._free: list[int] = []
        self._found: dict[object, tuple[int, ...]] = {}

    @property
    def breadth(self) -> int:
        """All numbers are below."""
        return len(self._held) + len(self._free)

    def add(self, filter: Filter) -> int:
        """One more table holds the filter; its number."""
        known = self._held.get(filter)
        if known is not None:
            known[1] += 1
            return known[0]
        number = self._free.pop() if self._free else self.breadth
        self._held[filter] = [number, 1]
        self._index.add(number, filter)
        self._found.clear()
        return number

    def remove(self, filter: Filter) -> None:
        """One table less holds it. With the last its number is free for another."""
        known = self._held[filter]
        known[1] -= 1
        if not known[1]:
            del self._held[filter]
            number = known[0]
            self._free.append(number)
            self._index.remove(number)
            self._found.clear()

    def matching(self, events: Sequence[Envelope | Notification]) -> list[tuple[int, ...]]:
        """For each event the numbers of the filters that it matches."""
        # Envelopes of the same bytes are the same event at different brokers.
        keys: list[object] = [e.encoded if isinstance(e, Envelope) else e for e in events]
        found = self._found
        unknown = {key: event for key, event in zip(keys, events, strict=True) if key not in found}
        if unknown:
            self._search(unknown)
        answer = [found[key] for key in keys]
        while len(found) > REMEMBERED:
            del found[next(iter(found))]
        return answer

    def _search(self, unknown: Mapping[object, Envelope | Notification]) -> None:
        matches: list[list[int]] = [[] for _ in unknown]
        for number, indexes in sorted(self._index.match_leading(list(unknown.values()), None)[1]):
            for i in indexes:
                matches[i].append(number)
        self._found.update(zip(unknown, map(tuple, matches), strict=True))

    def __len__(self) -> int:
        return len(self._held)


class SharedRelations:
    """Which of all filters that some table holds cover a filter, and which it covers.

    To who asks, it is a `FilterTable` under the filters themselves in which others write, too.

    >>> relations = SharedRelations()
    >>> large, small = Filter("x > 1"), Filter("x > 5")
    >>> relations.add(large, large), relations.add(small, small)
    (None, None)
    >>> list(relations.covering(small)), list(relations.covered(large))
    ([Filter('x > 1'), Filter('x > 5')], [Filter('x > 1'), Filter('x > 5')])
    """

    def __init__(self) -> None:
        self._table: FilterTable[Filter] = FilterTable()
        #: Of each filter how many tables hold it, and its number, which gives answers an order that
        #: is the same in every run.
        self._held: dict[Filter, list[int]] = {}
        self._numbers = count()
        #: Of each filter those that cover it and those that it covers, itself among them.
        self._above: dict[Filter, dict[Filter, None]] = {}
        self._below: dict[Filter, dict[Filter, None]] = {}

    def add(self, key: Filter, filter: Filter) -> None:
        """One more table holds the filter; the key is the filter itself."""
        known = self._held.get(filter)
        if known is not None:
            known[0] += 1
            return
        self._table.add(filter, filter)
        self._held[filter] = [1, next(self._numbers)]
        above = self._above[filter] = self._ordered(self._table.coverers(filter))
        below = self._below[filter] = self._ordered(self._table.covered(filter))
        for other in above:
            self._below[other][filter] = None
        for other in below:
            self._above[other][filter] = None

    def remove(self, key: Filter) -> None:
        """One table less holds it."""
        known = self._held[key]
        known[0] -= 1
        if not known[0]:
            del self._held[key]
            self._table.remove(key)
            for other in self._above.pop(key):
                self._below[other].pop(key)
            for other in self._below.pop(key):
                if other != key:
                    self._above[other].pop(key)

    def covering(self, filter: Filter) -> Iterable[Filter]:
        """The filters that cover it, itself among them if it is held."""
        found = self._above.get(filter)
        return self._table.covering(filter) if found is None else found

    def covered(self, filter: Filter) -> Collection[Filter]:
        """The filters that it covers, itself among them if it is held."""
        found = self._below.get(filter)
        return self._table.covered(filter) if found is None else found

    def _ordered(self, filters: Iterable[Filter]) -> dict[Filter, None]:
        return dict.fromkeys(sorted(filters, key=lambda each: self._held[each][1]))

    def __len__(self) -> int:
        return len(self._held)


class Commons:
    """Both, for all tables of one process."""

    def __init__(self) -> None:
        self.index = SharedIndex()
        self.relations = SharedRelations()
