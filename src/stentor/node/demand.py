"""Demand: what is asked for of what a producer offers (R-07.73, R-01.97 to R-01.100).

The routing table of the producer's broker holds every filter that is asked for anywhere in the
overlay, as far as it is not covered by another from the same direction. So the filters there that
overlap an advertisement are the union of current interests restricted to what the producer offers.
`Demands` keeps that set for each advertisement up to date as entries come and go, and looks only at
advertisements that overlap what has changed. Overlap that cannot be decided counts (01/A-14).

When the last filter goes, the producer is told only after a while (`LINGER`): subscribers often
come back. What is asked for again in the meantime never stopped. A producer with very many
interested filters is told that everything is wanted, which is safe and small.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stentor.filters import Filter, Questions
from stentor.matching import FilterTable

#: Seconds for which demand that has ended still counts.
LINGER: Final = 1.0
#: With more filters than this, the producer is told that everything is wanted.
MANY: Final = 1_000

#: The session and its number for the advertisement.
Offer = tuple[int, int]


class _Wanted:
    __slots__ = ("changed", "filters", "quiet_at", "told")

    def __init__(self, filters: set[Filter]) -> None:
        self.filters = filters
        self.told: list[str] | None = None
        self.changed = True
        #: When the producer is to be told that nobody listens.
        self.quiet_at: float | None = None


class Demands:
    """Which filters overlap each advertisement.

    >>> demands = Demands()
    >>> demands.watch((1, 1), Filter("symbol = 'IBM'"), [Filter("price > 100")])
    >>> demands.changes(now=0.0)
    [((1, 1), ['price > 100'])]
    >>> demands.entry(Filter("price > 100"), there=False)
    >>> demands.changes(now=0.0), demands.changes(now=2.0)
    ([], [((1, 1), [])])
    """

    def __init__(self) -> None:
        self._offers: FilterTable[Offer] = FilterTable()
        self._wanted: dict[Offer, _Wanted] = {}
        self._changed: set[Offer] = set()

    def __len__(self) -> int:
        return len(self._wanted)

    def watch(self, offer: Offer, filter: Filter, asked: Iterable[Filter]) -> None:
        """A producer wants to know; `asked` is everything that is asked for now."""
        self._offers.add(offer, filter)
        questions = Questions()
        self._wanted[offer] = _Wanted({f for f in asked if questions.overlaps(f, filter)})
        self._changed.add(offer)

    def forget(self, offer: Offer) -> None:
        if self._wanted.pop(offer, None) is not None:
            self._offers.remove(offer)
            self._changed.discard(offer)

    def entry(self, filter: Filter, *, there: bool) -> None:
        """A filter is now asked for by somebody, or by nobody."""
        if there:
            for offer in self._offers.overlapping(filter):
                self._wanted[offer].filters.add(filter)
                self._changed.add(offer)
            return
        for offer, wanted in self._wanted.items():
            if filter in wanted.filters:
                wanted.filters.remove(filter)
                self._changed.add(offer)

    def changes(self, now: float) -> list[tuple[Offer, list[str]]]:
        """What producers are to be told now."""
        news: list[tuple[Offer, list[str]]] = []
        for offer in list(self._changed):
            wanted = self._wanted[offer]
            if not wanted.filters and wanted.told:
                if wanted.quiet_at is None:
                    wanted.quiet_at = now + LINGER
                if now < wanted.quiet_at:
                    continue
            wanted.quiet_at = None
            self._changed.discard(offer)
            texts = sorted(map(str, wanted.filters)) if len(wanted.filters) <= MANY else [""]
            if texts != wanted.told:
                wanted.told = texts
                news.append((offer, texts))
        return news
