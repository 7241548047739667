"""The engines side by side: how each is filled, and what each is given to match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from stentor.filters import Filter
from stentor.matching.brute import BruteForce
from stentor.matching.counting import Counting
from stentor.matching.index import Index
from workloads import Workload

#: Rows and keys of all matches.
Pairs = tuple[NDArray[np.int64], NDArray[Any]]


class Engine(Protocol):
    """What the measurements need of an engine. Keys are numbers here."""

    def add(self, key: int, filter: Filter) -> None: ...

    def match(self, notification: dict[str, Any]) -> list[int]: ...

    def match_batch(self, events: Any) -> Pairs: ...


#: Engines that take events one by one and are too slow for the large sizes.
SLOW: Final[dict[str, type[BruteForce[int]] | type[Counting[int]]]] = {
    "BruteForce": BruteForce,
    "Counting": Counting,
}


def filled(name: str, filters: Iterable[Filter]) -> Engine:
    """A fresh engine with the filters under the keys 0, 1, ..."""
    engine: Engine = Index() if name == "Index" else SLOW[name]()
    for key, filter_ in enumerate(filters):
        engine.add(key, filter_)
    if isinstance(engine, Index):
        engine.compact()
    return engine


def parsed(workload: Workload) -> list[Filter]:
    """The filters of a workload."""
    return [Filter(text) for text in workload.texts()]


def same_matches(some: Pairs, all_matches: Pairs, events: int) -> bool:
    """Whether `some` are exactly the matches of the first events among `all_matches`."""
    rows, keys = all_matches
    early = rows < events
    return np.array_equal(_codes(some), _codes((rows[early], keys[early])))


def _codes(pairs: Pairs) -> NDArray[np.int64]:
    rows, keys = pairs
    codes: NDArray[np.int64] = np.sort(rows << 32 | keys.astype(np.int64))
    return codes


def warm_up(workload: Workload, filters: Sequence[Filter]) -> None:
    """Has every kernel compiled and loaded, so that no measurement pays for it."""
    index = filled("Index", filters)
    index.match_batch(workload.batch.slice(0, 64))
    for event in workload.events[:64]:
        index.match(event)
