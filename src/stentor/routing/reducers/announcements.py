"""What has been announced to each neighbor, and what has changed since the last message.

Reducers write every change down here, in any order. What is announced and withdrawn again before it
was sent, or the other way round, comes to nothing: `take` gives the difference to what the neighbor
was last told. It is sent as one message, and that makes the withdrawal of a filter gapless: the
neighbor never sees a moment in which something wanted is not asked for (R-03.19).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from stentor.filters import Filter


class Change(NamedTuple):
    """Filters that are new, and those that are no longer announced, under their keys."""

    added: dict[Hashable, Filter]
    removed: dict[Hashable, Filter]


class Announcements:
    """Announced filters, by the number of the neighbor."""

    def __init__(self) -> None:
        self._announced: dict[int, dict[Hashable, Filter]] = {}
        self._changes: dict[int, Change] = {}

    def announce(self, slot: int, key: Hashable, filter: Filter) -> None:
        self._announced.setdefault(slot, {})[key] = filter
        change = self._change(slot)
        if change.removed.pop(key, None) is None:
            change.added[key] = filter

    def withdraw(self, slot: int, key: Hashable) -> None:
        filter = self._announced[slot].pop(key)
        change = self._change(slot)
        if change.added.pop(key, None) is None:
            change.removed[key] = filter

    def _change(self, slot: int) -> Change:
        change = self._changes.get(slot)
        if change is None:
            change = self._changes[slot] = Change({}, {})
        return change

    def announced(self, slot: int) -> Mapping[Hashable, Filter]:
        return self._announced.get(slot, {})

    def take(self) -> dict[int, Change]:
        """What the neighbors are to be told now."""
        changes, self._changes = self._changes, {}
        return {slot: change for slot, change in changes.items() if change.added or change.removed}

    def forget(self, slot: int) -> None:
        """The neighbor is gone."""
        self._announced.pop(slot, None)
        self._changes.pop(slot, None)
