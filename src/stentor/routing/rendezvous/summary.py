"""What a broker asks for on behalf of all that asked it, reduced by a strategy (R-03.37).

In a rendezvous tree there is one direction to ask in, towards the root. So what is to be
announced does not depend on who asks, and a merger may take in filters from anywhere: it goes no
further than the announcement, while the broker's own table keeps what each destination asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from stentor.errors import UnknownStrategy
from stentor.filters import Filter
from stentor.routing.protocol import FilterId
from stentor.routing.reducers import (
    Change,
    CoveringReducer,
    MergingStage,
    PlainReducer,
    Reducer,
)
from stentor.routing.reducers.reducer import REFERENCE
from stentor.routing.rendezvous.ring_messages import Entry

#: How to reduce.
Strategy: TypeAlias = Literal["simple", "identity", "covering", "merging"]
#: `presence` announces that something is wanted, but not what.
Reduction: TypeAlias = Strategy | Literal["presence"]

_SLOT: Final = 1
_WANTED: Final = REFERENCE | 1 << _SLOT
_EVERYTHING: Final = Filter()


def check_strategy(strategy: str) -> None:
    """Raise unless there is such a strategy."""
    if strategy not in get_args(Strategy):
        raise UnknownStrategy(
            f"there is no routing strategy {strategy!r}; "
            f"choose one of {', '.join(get_args(Strategy))}"
        )


class Summary:
    """The reduced form of a changing collection of filters.

    >>> summary = Summary("covering")
    >>> summary.add(FilterId("ann", 1), Filter("x > 5"))
    >>> summary.add(FilterId("bob", 1), Filter("x > 1"))
    >>> [str(entry.filter) for entry in summary.entries]
    ['x > 1']
    """

    def __init__(self, strategy: Reduction) -> None:
        self._strategy = strategy
        self._reducer: Reducer = CoveringReducer() if strategy == "covering" else PlainReducer()
        self._stage = MergingStage() if strategy == "merging" else None
        self._held: dict[Hashable, int] = {}

    def add(self, id: FilterId | None, filter: Filter) -> None:
        """Someone asks for this."""
        key, filter = self._known_as(id, filter)
        self._held[key] = self._held.get(key, 0) + 1
        if self._held[key] == 1:
            self._change(key, filter, wanted=True)

    def remove(self, id: FilterId | None, filter: Filter) -> None:
        """One who did does not any more."""
        key, filter = self._known_as(id, filter)
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
            self._change(key, filter, wanted=False)

    def _known_as(self, id: FilterId | None, filter: Filter) -> tuple[Hashable, Filter]:
        if self._strategy == "presence":
            return _EVERYTHING, _EVERYTHING
        return (id if self._strategy == "simple" else filter), filter

    def _change(self, key: Hashable, filter: Filter, *, wanted: bool) -> None:
        if self._stage is None:
            self._reducer.want(key, filter, _WANTED if wanted else 0)
            return
        delta = self._stage.add(filter) if wanted else self._stage.remove(filter)
        for merger in delta.removed:
            self._reducer.want(merger, merger, 0)
        for merger in delta.added:
            self._reducer.want(merger, merger, _WANTED)

    @property
    def is_empty(self) -> bool:
        """Whether nobody asks for anything."""
        return not self._held

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All that is to be announced now."""
        return self._entries(self._reducer.announcements.announced(_SLOT))

    def take(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """What was added to that, and what removed from it, since this was last asked."""
        nothing = Change({}, {})
        added, removed = self._reducer.announcements.take().get(_SLOT, nothing)
        return self._entries(added), self._entries(removed)

    def _entries(self, filters: Mapping[Hashable, Filter]) -> tuple[Entry, ...]:
        simple = self._strategy == "simple"
        return tuple(
            Entry(key if simple and isinstance(key, FilterId) else None, filter)
            for key, filter in filters.items()
        )
