"""A broker's own filters, reduced to what it tells the others.

What is announced has numbers of its own, so that a message that withdraws something is short, and
what was withdrawn and is announced again is never taken for what was there before.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count
from typing import NamedTuple

from stentor.filters import Filter
from stentor.routing.graph.messages import Entry
from stentor.routing.protocol import FilterId
from stentor.routing.reducers import Reduction


class Delta(NamedTuple):
    """Entries to announce and numbers of entries to withdraw, in one step."""

    add: tuple[Entry, ...]
    remove: tuple[int, ...]


class LocalSet:
    """The filters of a broker's clients, and the reduced set that is announced for them.

    >>> subscriptions = LocalSet("covering")
    >>> subscriptions.add(FilterId("ann", 1), Filter("x > 5"))
    Delta(add=((0, Filter('x > 5')),), remove=())
    >>> subscriptions.add(FilterId("bob", 1), Filter("x > 1"))
    Delta(add=((1, Filter('x > 1')),), remove=(0,))
    >>> subscriptions.remove(FilterId("bob", 1))
    Delta(add=((2, Filter('x > 5')),), remove=(1,))
    """

    def __init__(self, strategy: str) -> None:
        """`UnknownStrategy` unless it is simple, identity, covering or merging."""
        #: All filters, by id.
        self.filters: dict[FilterId, Filter] = {}
        self._reduction = Reduction(strategy)
        self._numbers: dict[Hashable, int] = {}
        self._next = count()

    def add(self, id: FilterId, filter: Filter) -> Delta:
        """Hold a filter under an id that is not in use."""
        self.filters[id] = filter
        self._reduction.add(id, filter)
        return self._taken()

    def remove(self, id: FilterId) -> Delta:
        """Forget the filter under an id that is in use."""
        self._reduction.remove(id, self.filters.pop(id))
        return self._taken()

    def _taken(self) -> Delta:
        change = self._reduction.take()
        remove = tuple(self._numbers.pop(key) for key in change.removed)
        add: list[Entry] = []
        for key, filter in change.added.items():
            number = self._numbers[key] = next(self._next)
            add.append((number, filter))
        return Delta(tuple(add), remove)
