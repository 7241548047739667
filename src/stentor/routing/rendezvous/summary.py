"""What a broker asks for on behalf of all that asked it, reduced by a strategy (R-03.37).

In a rendezvous tree there is one direction to ask in, towards the root. So what is to be
announced does not depend on who asks, and a merger may take in filters from anywhere: it goes no
further than the announcement, while the broker's own table keeps what each destination asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Literal, TypeAlias

from stentor.filters import Filter
from stentor.routing.protocol import FilterId
from stentor.routing.reducers import Reduction, ReductionName
from stentor.routing.rendezvous.ring_messages import Entry

#: `presence` announces that something is wanted, but not what.
Summarizing: TypeAlias = ReductionName | Literal["presence"]

_EVERYTHING: Final = Filter()


class Summary:
    """The reduced form of a changing collection of filters.

    >>> summary = Summary("covering")
    >>> summary.add(FilterId("ann", 1), Filter("x > 5"))
    >>> summary.add(FilterId("bob", 1), Filter("x > 1"))
    >>> [str(entry.filter) for entry in summary.entries]
    ['x > 1']
    """

    def __init__(self, strategy: Summarizing) -> None:
        self._presence = strategy == "presence"
        self._reduction = Reduction("identity" if strategy == "presence" else strategy)

    def add(self, id: FilterId | None, filter: Filter) -> None:
        """Someone asks for this."""
        self._reduction.add(id, _EVERYTHING if self._presence else filter)

    def remove(self, id: FilterId | None, filter: Filter) -> None:
        """One who did does not any more."""
        self._reduction.remove(id, _EVERYTHING if self._presence else filter)

    @property
    def is_empty(self) -> bool:
        """Whether nobody asks for anything."""
        return not len(self._reduction)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All that is to be announced now."""
        return _entries(self._reduction.announced)

    def take(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """What was added to that, and what removed from it, since this was last asked."""
        added, removed = self._reduction.take()
        return _entries(added), _entries(removed)


def _entries(filters: Mapping[Hashable, Filter]) -> tuple[Entry, ...]:
    return tuple(
        Entry(key if isinstance(key, FilterId) else None, filter) for key, filter in filters.items()
    )
