"""The routing strategies by name, and what each is made of (R-03.24).

Each is a restriction of the next: simple routing keeps every subscription apart, identity-based
routing takes equal filters for one, covering-based routing hides what others cover, merging puts
one filter in place of several. Flooding asks for everything once and for all. The API of clients is
the same under all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stentor.errors import InvalidConfiguration, UnknownStrategy
from stentor.filters import Filter
from stentor.routing.protocol import FilterId
from stentor.routing.reducers import (
    CoveringReducer,
    MergingStage,
    PlainReducer,
    Reducer,
    Sample,
    Visible,
)

STRATEGIES: Final = ("flooding", "simple", "identity", "covering", "merging")


@dataclass(frozen=True)
class Strategy:
    """A strategy with its options.

    >>> Strategy.of("covering")
    Strategy(name='covering', looseness=0.0, sample=None)
    >>> Strategy("coverin")
    Traceback (most recent call last):
    ...
    stentor.errors.UnknownStrategy: there is no routing strategy 'coverin'; choose one of \
flooding, simple, identity, covering, merging
    """

    name: str
    #: The share of vain matches that a merger may have; 0 allows perfect mergers only.
    looseness: float = 0.0
    #: What imperfection is measured on; without it, on the latest notifications seen.
    sample: tuple[Mapping[str, Any], ...] | None = None

    def __post_init__(self) -> None:
        if self.name not in STRATEGIES:
            raise UnknownStrategy(
                f"there is no routing strategy {self.name!r}; choose one of {', '.join(STRATEGIES)}"
            )
        if self.looseness and self.name != "merging":
            raise InvalidConfiguration(
                f"looseness is for merging, not for {self.name}; leave it out"
            )
        if not 0.0 <= self.looseness <= 1.0:
            raise InvalidConfiguration(f"looseness is a share from 0 to 1, not {self.looseness!r}")

    @staticmethod
    def of(
        given: str | Strategy,
        looseness: float = 0.0,
        sample: Iterable[Mapping[str, Any]] | None = None,
    ) -> Strategy:
        """The strategy of that name, with options."""
        if isinstance(given, Strategy):
            return given
        return Strategy(given, looseness, None if sample is None else tuple(sample))

    @property
    def floods(self) -> bool:
        return self.name == "flooding"

    @property
    def terms(self) -> str:
        """What neighbors have to agree on: whether filters are told, and by what they are known.

        >>> Strategy("covering").terms, Strategy("merging").terms, Strategy("simple").terms
        ('filters', 'filters', 'subscriptions')
        """
        return {"flooding": "nothing", "simple": "subscriptions"}.get(self.name, "filters")

    @property
    def is_exact(self) -> bool:
        """Whether a notification only goes where somebody wants it."""
        return not self.floods and not self.looseness

    def key(self, id: FilterId, filter: Filter) -> Hashable:
        """By what an entry is known to others."""
        return id if self.name == "simple" else filter

    def reducer(self, at_once: int | None = None, visible: Visible | None = None) -> Reducer:
        """`at_once` is how many filters one step looks at anew; None is all that it has to.

        `visible` is where announced filters are searched, if that is not the reducer's own.
        """
        covers = self.name in ("covering", "merging")
        return CoveringReducer(at_once, visible) if covers else PlainReducer()

    def stage(self, sample: Sample, *, of_client: bool) -> MergingStage:
        """What merges the filters of one destination, a client's only perfectly, if it merges."""
        return MergingStage(0.0 if of_client else self.looseness, sample)
