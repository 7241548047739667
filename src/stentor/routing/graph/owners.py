"""Distinct filters and who stated them, over an engine that holds each filter once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from stentor.filters import Filter

O = TypeVar("O", bound=Hashable)  # noqa: E741


class _Engine(Protocol):
    def add(self, key: Filter, filter: Filter) -> None: ...

    def remove(self, key: Filter) -> None: ...


E = TypeVar("E", bound=_Engine)


class Owners(Generic[E, O]):
    """Filters with their owners; an owner may state a filter several times.

    >>> from stentor.matching import FilterTable
    >>> table: FilterTable[Filter] = FilterTable()
    >>> owners: Owners[FilterTable[Filter], str] = Owners(table)
    >>> owners.add(Filter("x > 1"), "ann")
    >>> owners.add(Filter("x > 1"), "bob")
    >>> len(table), list(owners.of(table.covered(Filter("x > 0"))))
    (1, ['ann', 'bob'])
    """

    def __init__(self, engine: E) -> None:
        """The engine is empty, and changed by none but this object."""
        self.engine = engine
        self._owners: dict[Filter, Counter[O]] = {}

    def add(self, filter: Filter, owner: O) -> None:
        owners = self._owners.get(filter)
        if owners is None:
            self.engine.add(filter, filter)
            owners = self._owners[filter] = Counter()
        owners[owner] += 1

    def remove(self, filter: Filter, owner: O) -> None:
        owners = self._owners[filter]
        owners[owner] -= 1
        if not owners[owner]:
            del owners[owner]
            if not owners:
                del self._owners[filter]
                self.engine.remove(filter)

    def of(self, filters: Iterable[Filter]) -> dict[O, None]:
        """All owners of at least one of the filters."""
        return {owner: None for filter in filters for owner in self._owners.get(filter, ())}

    @property
    def filters(self) -> list[Filter]:
        return list(self._owners)
