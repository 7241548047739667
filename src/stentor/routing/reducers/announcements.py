"""What has been announced to each neighbor, and what has changed since the last message.

Reducers write every change down here, in any order. What is announced and withdrawn again before it
was sent, or the other way round, comes to nothing: `take` gives the difference to what the neighbor
was last told. It is sent as one message, and that makes the withdrawal of a filter gapless: the
neighbor never sees a moment in which something wanted is not asked for (R-03.19).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from stentor.filters import Filter
from stentor.routing.reducers.slots import REFERENCE, slots_of


class Change(NamedTuple):
    """Filters that are new, and those that are no longer announced, under their keys."""

    added: dict[Hashable, Filter]
    removed: dict[Hashable, Filter]


class Announcements:
    """Announced filters, and the neighbors they are announced to, as a mask of slots.

    >>> announcements = Announcements()
    >>> announcements.announce(0b110, "a", Filter("x > 1"))
    >>> announcements.withdraw(0b10, "a")
    >>> announcements.announced(2), announcements.announced(1)
    ({'a': Filter('x > 1')}, {})
    """

    def __init__(self) -> None:
        self._announced: dict[Hashable, int] = {}
        #: Filters that have other keys than themselves.
        self._named: dict[Hashable, Filter] = {}
        self._changes: dict[int, Change] = {}

    def announce(self, where: int, key: Hashable, filter: Filter) -> None:
        """Where it was not announced before."""
        self._announced[key] = self._announced.get(key, 0) | where
        if key is not filter:
            self._named[key] = filter
        for slot in slots_of(where & ~REFERENCE):
            change = self._change(slot)
            if not change.removed or change.removed.pop(key, None) is None:
                change.added[key] = filter

    def withdraw(self, where: int, key: Hashable) -> None:
        """Where it was announced."""
        filter = self._filter(key)
        left = self._announced[key] & ~where
        if left:
            self._announced[key] = left
        else:
            del self._announced[key]
            self._named.pop(key, None)
        for slot in slots_of(where & ~REFERENCE):
            change = self._change(slot)
            if change.added.pop(key, None) is None:
                change.removed[key] = filter

    def _change(self, slot: int) -> Change:
        change = self._changes.get(slot)
        if change is None:
            change = self._changes[slot] = Change({}, {})
        return change

    def _filter(self, key: Hashable) -> Filter:
        filter = self._named.get(key, key)
        assert isinstance(filter, Filter)
        return filter

    def announced(self, slot: int) -> dict[Hashable, Filter]:
        """All that is announced there; a look at everything."""
        bit = 1 << slot
        return {key: self._filter(key) for key, where in self._announced.items() if where & bit}

    def take(self) -> dict[int, Change]:
        """What the neighbors are to be told now."""
        changes, self._changes = self._changes, {}
        return {slot: change for slot, change in changes.items() if change.added or change.removed}

    def forget(self, slot: int) -> None:
        """The neighbor is gone."""
        bit = 1 << slot
        for key in [key for key, where in self._announced.items() if where & bit]:
            self._announced[key] &= ~bit
            if not self._announced[key]:
                del self._announced[key]
                self._named.pop(key, None)
        self._changes.pop(slot, None)
