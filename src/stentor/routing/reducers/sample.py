"""A sample of traffic, on which the imperfection of mergers is measured (03/A8).

Which notifications of the sample a filter matches is kept as a bit mask, so that a group of many
parts is measured by a few operations on integers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from stentor.filters import Filter

#: Observed notifications that are kept.
OBSERVED: Final = 256
#: Filters whose matches are kept.
REMEMBERED: Final = 10_000


class Sample:
    """Notifications on which the imperfection of mergers is measured.

    Given ones stay; otherwise the latest observed ones are taken.

    >>> sample = Sample([{"x": x} for x in range(10)])
    >>> parts = [Filter("x between 0 and 3"), Filter("x between 6 and 9")]
    >>> sample.imperfection(Filter("x between 0 and 9"), parts)
    0.2
    """

    def __init__(self, given: Iterable[Mapping[str, Any]] | None = None) -> None:
        self._observes = given is None
        self._notifications: deque[Mapping[str, Any]] = (
            deque(maxlen=OBSERVED) if given is None else deque(given)
        )
        self._matches: dict[Filter, int] = {}

    def observe(self, notification: Mapping[str, Any]) -> None:
        if self._observes:
            self._notifications.append(notification)
            self._matches.clear()

    def imperfection(self, merger: Filter, parts: Iterable[Filter]) -> float:
        """The share of the merger's matches that are in vain; 1 if nothing is known."""
        matched = vain = self._matched(merger)
        if not matched:
            return 1.0
        for part in parts:
            vain &= ~self._matched(part)
        return vain.bit_count() / matched.bit_count()

    def _matched(self, filter: Filter) -> int:
        """The notifications that the filter matches, by their places in the sample."""
        mask = self._matches.get(filter)
        if mask is None:
            mask = sum(1 << i for i, n in enumerate(self._notifications) if filter.matches(n))
            if len(self._matches) >= REMEMBERED:
                self._matches.clear()
            self._matches[filter] = mask
        return mask
