"""What has changed for each neighbor since it was last told.

Reducers know what is announced where, and write every change down here, in any order. What is
announced and withdrawn again before it was sent, or the other way round, comes to nothing: `take`
gives the difference to what the neighbor was last told. It is sent as one message, and that makes
the withdrawal of a filter gapless: the neighbor never sees a moment in which something wanted is
not asked for (R-03.19).
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
    """Changes of what is announced, by the neighbors they concern, as a mask of slots.

    >>> announcements = Announcements()
    >>> announcements.announce(0b110, "a", Filter("x > 1"))
    >>> announcements.withdraw(0b10, "a", Filter("x > 1"))
    >>> announcements.take()
    {2: Change(added={'a': Filter('x > 1')}, removed={})}
    """

    def __init__(self) -> None:
        self._changes: dict[int, Change] = {}

    def announce(self, where: int, key: Hashable, filter: Filter) -> None:
        """Where it was not announced before."""
        for slot in slots_of(where & ~REFERENCE):
            change = self._change(slot)
            if not change.removed or change.removed.pop(key, None) is None:
                change.added[key] = filter

    def withdraw(self, where: int, key: Hashable, filter: Filter) -> None:
        """Where it was announced."""
        for slot in slots_of(where & ~REFERENCE):
            change = self._change(slot)
            if change.added.pop(key, None) is None:
                change.removed[key] = filter

    def _change(self, slot: int) -> Change:
        change = self._changes.get(slot)
        if change is None:
            change = self._changes[slot] = Change({}, {})
        return change

    def take(self) -> dict[int, Change]:
        """What the neighbors are to be told now."""
        changes, self._changes = self._changes, {}
        return {slot: change for slot, change in changes.items() if change.added or change.removed}

    def forget(self, slot: int) -> None:
        """The neighbor is gone."""
        self._changes.pop(slot, None)
