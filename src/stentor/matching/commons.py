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

Both count how often a filter is held, and forget it with the last. An answer may name filters
that the asking table does not hold; also those of a broker that died without giving them up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

import numpy as np

from stentor.filters import Filter
from stentor.matching.index import Index
from stentor.matching.relations import FilterTable
from stentor.model.codec import Envelope
from stentor.model.notification import Notification

#: Events whose matches are remembered.
REMEMBERED: Final = 100_000
#: Numbers of filters, ascending.
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.intp]]


class SharedIndex:
    """Which of all filters that some table holds an event matches.

    Filters have numbers, by which each table finds what it has to say of them.

    >>> index = SharedIndex()
    >>> index.add(Filter("x > 1")), index.add(Filter("x > 1")), index.add(Filter("x > 5"))
    (0, 0, 1)
    >>> [found.tolist() for found in index.matching([Notification({"x": x}) for x in (3, 0)])]
    [[0], []]
    """

    def __init__(self) -> None:
        self._index: Index[int] = Index(background=False)
        #: The number of each filter that is held, and by the numbers: the filters, and how many
        #: entries of tables have them.
        self._numbers: dict[Filter, int] = {}
        self._filters: list[Filter] = []
        self._counts: list[int] = []
        #: Numbers of filters that nobody holds any more.
        self._free: list[int] = []
        self._found: dict[object, Numbers] = {}

    @property
    def breadth(self) -> int:
        """All numbers are below."""
        return len(self._filters)

    def number(self, filter: Filter) -> int | None:
        """The number of a filter, if anybody holds it."""
        return self._numbers.get(filter)

    def filter(self, number: int) -> Filter:
        """The filter of a number that somebody holds."""
        return self._filters[number]

    def add(self, filter: Filter) -> int:
        """One more entry has the filter; its number."""
        number = self._numbers.get(filter)
        if number is not None:
            self._counts[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self._filters[number], self._counts[number] = filter, 1
        else:
            number = len(self._filters)
            self._filters.append(filter)
            self._counts.append(1)
        self._numbers[filter] = number
        self._index.add(number, filter)
        self._found.clear()
        return number

    def remove(self, filter: Filter) -> None:
        """One entry less has it. With the last its number is free for another."""
        number = self._numbers[filter]
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[filter]
            self._free.append(number)
            self._index.remove(number)
            self._found.clear()

    def matching(self, events: Sequence[Envelope | Notification]) -> list[Numbers]:
        """For each event the numbers of the filters that it matches."""
        # Envelopes of the same bytes are the same event at different brokers.
        keys: list[object] = [e.encoded if isinstance(e, Envelope) else e for e in events]
        found = self._found
        answer = [found.get(key) for key in keys]
        unknown = {keys[i]: events[i] for i, known in enumerate(answer) if known is None}
        if unknown:
            self._search(unknown)
            answer = [found[key] for key in keys]
            while len(found) > REMEMBERED:
                del found[next(iter(found))]
        return answer  # type: ignore[return-value]  # none is None now

    def _search(self, unknown: Mapping[object, Envelope | Notification]) -> None:
        matches: list[list[int]] = [[] for _ in unknown]
        for number, indexes in sorted(self._index.match_leading(list(unknown.values()), None)[1]):
            for i in indexes:
                matches[i].append(number)
        arrays = (np.array(numbers, np.intp) for numbers in matches)
        self._found.update(zip(unknown, arrays, strict=True))

    def __len__(self) -> int:
        return len(self._numbers)


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
