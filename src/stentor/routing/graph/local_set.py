"""A broker's own filters, those of its clients and subtrees, reduced to what it tells the others.

What is announced has numbers of its own, so that a message that withdraws something is short, and
what was withdrawn and is announced again is never taken for what was there before.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count
from typing import NamedTuple

from stentor.filters import Filter
from stentor.routing.graph.messages import Entry
from stentor.routing.reducers import Reduction, Sample
from stentor.routing.strategy import Strategy


class LocalDelta(NamedTuple):
    """Entries to announce and numbers of entries to withdraw, in one step."""

    add: tuple[Entry, ...]
    remove: tuple[int, ...]


class LocalSet:
    """The filters of a broker's clients, and the reduced set that is announced for them.

    >>> subscriptions = LocalSet(Strategy("covering"))
    >>> subscriptions.add("ann", Filter("x > 5"))
    >>> subscriptions.take()
    LocalDelta(add=((0, Filter('x > 5')),), remove=())
    >>> subscriptions.add("bob", Filter("x > 1"))
    >>> subscriptions.take()
    LocalDelta(add=((1, Filter('x > 1')),), remove=(0,))
    >>> _ = subscriptions.remove("bob")
    >>> subscriptions.take()
    LocalDelta(add=((2, Filter('x > 5')),), remove=(1,))
    """

    def __init__(
        self, strategy: Strategy, sample: Sample | None = None, at_once: int | None = None
    ) -> None:
        """A strategy that floods announces nothing.

        The sample is what imperfect merging is measured on. With `at_once`, no step looks at more
        filters anew, and `work` does the rest.
        """
        #: All filters, by what tells them apart.
        self.filters: dict[Hashable, Filter] = {}
        self._reduction: Reduction | None = None
        if not strategy.floods:
            stage = strategy.stage(sample or Sample(strategy.sample), of_client=False)
            self._reduction = Reduction(strategy.name, stage=stage, at_once=at_once)
        self._numbers: dict[Hashable, int] = {}
        self._next = count()

    def add(self, id: Hashable, filter: Filter) -> None:
        """Hold a filter under an id that is not in use."""
        self.filters[id] = filter
        if self._reduction is not None:
            self._reduction.add(id, filter)

    def remove(self, id: Hashable) -> Filter:
        """Forget the filter under an id that is in use."""
        filter = self.filters.pop(id)
        if self._reduction is not None:
            self._reduction.remove(id, filter)
        return filter

    @property
    def has_work(self) -> bool:
        """Whether more is announced than has to be, until `work` was called."""
        return self._reduction is not None and self._reduction.has_work

    def work(self) -> None:
        """Do a part of what the changes have left to do."""
        if self._reduction is not None:
            self._reduction.work()

    def take(self) -> LocalDelta:
        """What is to be announced and withdrawn since this was last asked."""
        if self._reduction is None:
            return LocalDelta((), ())
        change = self._reduction.take()
        remove = tuple(self._numbers.pop(key) for key in change.removed)
        add: list[Entry] = []
        for key, filter in change.added.items():
            number = self._numbers[key] = next(self._next)
            add.append((number, filter))
        return LocalDelta(tuple(add), remove)
