"""Simple and identity-based routing: whatever is wanted is announced (R-03.17, R-03.18).

The two differ in the key. Under simple routing it is the subscription's own id, so that all are
announced one by one; under identity-based routing it is the filter, so that equal ones are one.
A change costs as much as the messages it causes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from stentor.filters import Filter
from stentor.routing.reducers.announcements import Announcements
from stentor.routing.reducers.slots import REFERENCE


class PlainReducer:
    """Announces each wanted filter.

    >>> reducer = PlainReducer()
    >>> reducer.want("a", Filter("x > 1"), REFERENCE | 0b110)
    >>> sorted(reducer.announcements.take())
    [1, 2]
    """

    def __init__(self) -> None:
        self.announcements = Announcements()
        self._wanted: dict[Hashable, int] = {}
        #: Filters that have other keys than themselves.
        self._named: dict[Hashable, Filter] = {}

    def want(self, key: Hashable, filter: Filter, wanted: int) -> None:
        wanted &= ~REFERENCE  # what is announced here depends on nothing else
        before = self._wanted.get(key, 0)
        if more := wanted & ~before:
            self.announcements.announce(more, key, filter)
        if less := before & ~wanted:
            self.announcements.withdraw(less, key, filter)
        if wanted:
            self._wanted[key] = wanted
            if key is not filter:
                self._named[key] = filter
        else:
            self._forget(key)

    def _forget(self, key: Hashable) -> None:
        self._wanted.pop(key, None)
        self._named.pop(key, None)

    def want_all(self, changes: Iterable[tuple[Hashable, Filter, int]]) -> None:
        for change in changes:
            self.want(*change)

    @property
    def has_work(self) -> bool:
        return False

    def work(self) -> None:
        """Every change is complete at once."""

    def fill_slot(self, slot: int, wanted: Sequence[tuple[Hashable, Filter, int]]) -> int:
        self.want_all(wanted)
        return len(wanted)

    def drop_slot(self, slot: int) -> None:
        self.announcements.forget(slot)
        bit = 1 << slot
        for key in [key for key, where in self._wanted.items() if where & bit]:
            self._wanted[key] &= ~bit
            if not self._wanted[key]:
                self._forget(key)

    def announced(self, slot: int) -> dict[Hashable, Filter]:
        bit = 1 << slot
        return {key: self._filter(key) for key, where in self._wanted.items() if where & bit}

    def _filter(self, key: Hashable) -> Filter:
        filter = self._named.get(key, key)
        assert isinstance(filter, Filter)
        return filter

    def __len__(self) -> int:
        return len(self._wanted)
