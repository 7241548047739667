"""What every matching engine can do.

An engine holds filters, each under a key of the caller's choice, and says which of them a
notification matches. The engines differ in how they find out, never in the answer. Filters come and
go at any time; a change that fails leaves the engine as it was.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stentor.errors import DuplicateKey, UnknownKey
from stentor.filters.filter import Filter
from stentor.model.notification import Notification

K = TypeVar("K", bound=Hashable)

#: A notification, or a plain mapping of its attributes.
Event = Notification | Mapping[str, Any]
#: Row numbers and keys, side by side: the notification in that row matches that key's filter.
Matches = tuple[NDArray[np.int64], NDArray[Any]]


@runtime_checkable
class Matcher(Protocol[K]):
    """A set of filters that tells which of them a notification matches.

    >>> from stentor.matching.brute import BruteForce
    >>> engine: Matcher[str] = BruteForce()
    >>> engine.add("cheap", Filter("price < 10"))
    >>> engine.match({"price": 5}), len(engine), "cheap" in engine
    (['cheap'], 1, True)
    """

    def add(self, key: K, filter: Filter) -> None:
        """Hold the filter under the key; `DuplicateKey` if the key is taken."""

    def remove(self, key: K) -> None:
        """Forget the key's filter; `UnknownKey` if there is none."""

    def match(self, notification: Event) -> list[K]:
        """The keys of all filters that the notification matches, each once, in no special order."""

    def match_batch(self, events: Sequence[Event]) -> Matches:
        """The same for many at once: the row of each match, and its key."""

    def __len__(self) -> int: ...

    def __contains__(self, key: object) -> bool: ...


def gather(rows: Iterable[tuple[int, Iterable[Hashable]]]) -> Matches:
    """The keys matched in each row, as parallel arrays. The keys are kept as objects.

    >>> gather([(0, ["a", "b"]), (2, ["a"])])
    (array([0, 0, 2]), array(['a', 'b', 'a'], dtype=object))
    """
    numbers: list[int] = []
    keys: list[Hashable] = []
    for row, found in rows:
        before = len(keys)
        keys.extend(found)
        numbers.extend([row] * (len(keys) - before))
    array = np.empty(len(keys), object)
    for i, key in enumerate(keys):  # assigning the list would look inside keys that are tuples
        array[i] = key
    return np.array(numbers, np.int64), array


def check_new(key: Hashable, held: Mapping[Any, Any]) -> None:
    """Raise `DuplicateKey` if something is held under the key."""
    if key in held:
        raise DuplicateKey(
            f"a filter is already held under the key {key!r}; remove it first or use another key"
        )


def check_known(key: Hashable, held: Mapping[Any, Any]) -> None:
    """Raise `UnknownKey` if nothing is held under the key."""
    if key not in held:
        raise UnknownKey(
            f"no filter is held under the key {key!r}; it may have been removed before"
        )
