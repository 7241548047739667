"""Candidates: which of many filters need to be asked about a notification.

A filter that accepts one text only of some attribute (`symbol = 'IBM'`) is filed under it, and is
asked only about notifications that have it; if there are several such attributes, under the one
that fewest filters share. All other filters are asked always. That is all: the judgment of a run
shares no code with the engines that it judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from stentor.filters import Filter
from stentor.filters.ranges import Ranges
from stentor.model import Notification


class Candidates:
    """Filters by their places in a list.

    >>> found = Candidates([Filter("s = 'a'"), Filter("x > 1"), Filter("s = 'b'")])
    >>> found.of(Notification({"s": "b", "x": 0}))
    [1, 2]
    """

    def __init__(self, filters: Iterable[Filter]) -> None:
        texts = [_texts(filter) for filter in filters]
        uses = Counter(text for each in texts for text in each)
        self._always: list[int] = []
        self._filed: dict[tuple[str, str], list[int]] = {}
        for place, each in enumerate(texts):
            if each:
                rarest = min(each, key=lambda text: uses[text])
                self._filed.setdefault(rarest, []).append(place)
            else:
                self._always.append(place)

    def of(self, notification: Notification) -> list[int]:
        """The places of all filters that may match, ascending."""
        found = list(self._always)
        for name, value in notification.facts.items():
            if isinstance(value, str):
                found += self._filed.get((name, value), ())
        return sorted(found)


def _texts(filter: Filter) -> list[tuple[str, str]]:
    """The attributes of which it accepts one text only."""
    if len(filter.conjuncts) != 1:
        return []
    found = []
    for name, constraint in filter.conjuncts[0].constraints.items():
        if constraint.is_single:
            ((_, part),) = constraint.parts
            if isinstance(part, Ranges) and part.values and isinstance(part.values[0], str):
                found.append((name, part.values[0]))
    return found
