"""What a reducer does."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from stentor.filters import Filter
from stentor.routing.reducers.announcements import Announcements


class Reducer(Protocol):
    """Keeps what is announced in step with what is wanted, one change at a time.

    Neighbors are numbered by slots from 1 on, and a set of neighbors is a bit mask of slots: one
    operation then decides for all neighbors at once, and a search for covering filters is
    done once instead of once for each neighbor.
    """

    announcements: Announcements

    def want(self, key: Hashable, filter: Filter, wanted: int) -> None:
        """The filter is wanted at exactly these neighbors from now on; 0 is nowhere.

        What is wanted anywhere is wanted at `REFERENCE` as well.
        """

    def want_all(self, changes: Iterable[tuple[Hashable, Filter, int]]) -> None:
        """Many changes of one step; nothing is decided twice because of their order."""

    @property
    def has_work(self) -> bool:
        """Whether what is announced is more than it has to be, until `work` was called."""

    def work(self) -> None:
        """Do a part of what the changes have left to do."""

    def fill_slot(self, slot: int, wanted: Sequence[tuple[Hashable, Filter, int]]) -> int:
        """Some of what is wanted at a new neighbor, and how many of these were dealt with.

        All but the last ones if they take long. What is announced at `REFERENCE` is to come first.
        """

    def drop_slot(self, slot: int) -> None:
        """The neighbor is gone; nothing is wanted there any more."""

    def announced(self, slot: int) -> dict[Hashable, Filter]:
        """All that is announced there; a look at everything."""

    def __len__(self) -> int:
        """How many filters are wanted somewhere."""
