"""Slots: small numbers that stand for filters inside the index.

Boxes carry the slot of their filter, and arrays over slots say which filter that is and whether it
still lives. A slot may be given to another filter only when no segment mentions it any more, and
when no search is under way that may still hold such a segment: it would report the new filter
for the old one. So freed slots wait until every search that began before has ended.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stentor.model.values import INT_MAX, INT_MIN

#: `segment_of` a filter that is in the growing table, or that has no boxes at all.
GROWING: Final = -1
NOWHERE: Final = -2


class Slots:
    """The filters of an index by slot. The index's lock guards all but `begin` and `end_search`."""

    def __init__(self) -> None:
        self.keys: NDArray[np.object_] = np.empty(64, object)
        #: The keys again as integers, as long as they all are: arrays of them are much faster.
        self.numbers: NDArray[np.int64] | None = np.zeros(64, np.int64)
        self.alive: NDArray[np.uint8] = np.zeros(64, np.uint8)
        #: 1 where several boxes of the filter may contain one notification.
        self.several: NDArray[np.uint8] = np.zeros(64, np.uint8)
        self.any_several = False
        #: The number of the segment that has the filter's boxes.
        self.segment_of: NDArray[np.int32] = np.empty(64, np.int32)
        self._used = 0
        self._free: list[int] = []
        self._waiting: list[tuple[int, list[int]]] = []
        #: Searches and releases are numbered in the order in which they happen.
        self._clock = count()
        self._searches: dict[int, None] = {}

    def take(self, key: Any, several: bool, segment: int) -> int:
        """A slot for a new filter."""
        if not self._free and self._waiting:
            self._reuse()
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            self._used += 1
            if slot == len(self.alive):
                self._grow()
        self.keys[slot] = key
        if self.numbers is not None:
            if type(key) is int and INT_MIN <= key <= INT_MAX:
                self.numbers[slot] = key
            else:
                self.numbers = None
        self.alive[slot] = 1
        self.several[slot] = several
        self.any_several = self.any_several or several
        self.segment_of[slot] = segment
        return slot

    def mark_several(self, slot: int) -> None:
        """From now on, several boxes of the filter may contain one notification."""
        self.several[slot] = 1
        self.any_several = True

    def keys_at(self, slots: NDArray[Any]) -> NDArray[Any]:
        """The keys of slots: integers if all keys are, else objects."""
        found: NDArray[Any] = self.keys[slots] if self.numbers is None else self.numbers[slots]
        return found

    def release(self, slots: list[int]) -> None:
        """No segment mentions these slots any more."""
        if slots:
            self._waiting.append((next(self._clock), slots))
            self._reuse()

    def begin_search(self) -> int:
        """Must be called before a search looks at the segments. Needs no lock."""
        ticket = next(self._clock)
        self._searches[ticket] = None
        return ticket

    def end_search(self, ticket: int) -> None:
        """Must be called with the ticket when the search has turned slots into keys."""
        del self._searches[ticket]

    @property
    def taken(self) -> int:
        """How many slots stand for filters, or for those that some segment still mentions."""
        waiting = sum(len(slots) for _, slots in self._waiting)
        return self._used - len(self._free) - waiting

    @property
    def nbytes(self) -> int:
        arrays = (self.keys, self.numbers, self.alive, self.several, self.segment_of)
        sizes = [a.nbytes for a in arrays if a is not None]
        return sum(sizes) + 100 * self._used  # and the dictionary of keys

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        waiting = [slot for _, slots in state.pop("_waiting") for slot in slots]
        # No search is under way in a copy.
        return {
            **state,
            "_clock": count(),
            "_searches": {},
            "_waiting": [],
            "_free": self._free + waiting,
        }

    def _reuse(self) -> None:
        searches = list(self._searches)  # in one step: searches begin and end meanwhile
        while self._waiting and all(self._waiting[0][0] < ticket for ticket in searches):
            for slot in self._waiting.pop(0)[1]:
                self.keys[slot] = None
                self._free.append(slot)

    def _grow(self) -> None:
        # Searches under way keep the old arrays, in which their slots stay as they were.
        size = 2 * len(self.alive)
        for name in ("keys", "numbers", "alive", "several", "segment_of"):
            old = getattr(self, name)
            if old is None:
                continue
            new = np.zeros(size, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
