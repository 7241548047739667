"""A changing collection of filters, reduced by a strategy for one direction.

Where a broker has the same thing to say to everybody, such as what its own clients want, there is
one announced set instead of one for each neighbor: a reducer with a single slot.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from stentor.errors import UnknownStrategy
from stentor.filters import Filter
from stentor.routing.reducers.announcements import Change
from stentor.routing.reducers.covering import CoveringReducer
from stentor.routing.reducers.merging import MergingStage
from stentor.routing.reducers.plain import PlainReducer
from stentor.routing.reducers.reducer import Reducer
from stentor.routing.reducers.slots import REFERENCE

#: How to reduce.
ReductionName: TypeAlias = Literal["simple", "identity", "covering", "merging"]
#: Plain reducers leave out the reference slot, so another one is used.
_SLOT: Final = 1
_WANTED: Final = REFERENCE | 1 << _SLOT


def check_reduction(strategy: str) -> None:
    """`UnknownStrategy` unless it is simple, identity, covering or merging."""
    if strategy not in get_args(ReductionName):
        raise UnknownStrategy(
            f"there is no routing strategy {strategy!r}; "
            f"choose one of {', '.join(get_args(ReductionName))}"
        )


class Reduction:
    """What is to be announced of all that was added.

    >>> reduction = Reduction("covering")
    >>> reduction.add("ann", Filter("x > 5"))
    >>> reduction.add("bob", Filter("x > 1"))
    >>> list(reduction.announced)
    [Filter('x > 1')]
    """

    def __init__(
        self, strategy: str, *, stage: MergingStage | None = None, at_once: int | None = None
    ) -> None:
        """`stage` merges in another way than perfectly.

        With `at_once`, no step looks at more filters anew, and `work` does the rest.
        """
        check_reduction(strategy)
        self._simple = strategy == "simple"
        covers = strategy == "covering"
        self._reducer: Reducer = CoveringReducer(at_once) if covers else PlainReducer()
        self._stage = (stage or MergingStage()) if strategy == "merging" else None
        self._held: dict[Hashable, int] = {}

    def add(self, id: Hashable, filter: Filter) -> None:
        """Someone asks for this."""
        key = id if self._simple else filter
        self._held[key] = self._held.get(key, 0) + 1
        if self._held[key] == 1:
            self._change(key, filter, wanted=True)

    def remove(self, id: Hashable, filter: Filter) -> None:
        """One who did does not any more."""
        key = id if self._simple else filter
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
            self._change(key, filter, wanted=False)

    def _change(self, key: Hashable, filter: Filter, *, wanted: bool) -> None:
        if filter.is_never and not self._simple:
            return  # everything covers it
        if self._stage is None:
            self._reducer.want(key, filter, _WANTED if wanted else 0)
            return
        # Mergers of one stage never cover each other, so they need no further reduction.
        delta = self._stage.add(filter) if wanted else self._stage.remove(filter)
        for merger in delta.removed:
            self._reducer.want(merger, merger, 0)
        for merger in delta.added:
            self._reducer.want(merger, merger, _WANTED)

    @property
    def announced(self) -> Mapping[Hashable, Filter]:
        """All that is to be announced now: by id under simple routing, else by filter."""
        return self._reducer.announced(_SLOT)

    def take(self) -> Change:
        """What was added to that, and what removed from it, since this was last asked."""
        return self._reducer.announcements.take().get(_SLOT, Change({}, {}))

    @property
    def has_work(self) -> bool:
        """Whether more is announced than has to be, until `work` was called."""
        return self._reducer.has_work

    def work(self) -> None:
        """Do a part of what the changes have left to do."""
        self._reducer.work()

    def __len__(self) -> int:
        """How many are asked for; under all strategies but the simple one, how many distinct."""
        return len(self._held)
