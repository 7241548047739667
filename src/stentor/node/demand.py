"""Demand: what is asked for of what a producer offers (R-07.73, R-01.97 to R-01.100).

The routing table of the producer's broker holds every filter that is asked for anywhere in the
overlay, as far as it is not covered by another from the same direction. So the filters there that
overlap an advertisement are the union of current interests restricted to what the producer offers.
`Demands` keeps that set for each advertisement up to date as entries come and go, and looks only at
advertisements that overlap what has changed. Overlap that cannot be decided counts (01/A-14).

There may be thousands of advertisements and of filters, and all pairs may overlap. So with
`at_once` what happens is only noted, and `work` looks at a few pairs at a time, in the order in
which it has happened: at filters that have come or gone, and, for an advertisement that has come,
at those that stand when its turn comes. All that comes or goes later is noted behind it.

When the last filter goes, the producer is told only after a while (`LINGER`): subscribers often
come back. What is asked for again in the meantime never stopped. A producer with very many
interested filters is told that everything is wanted, which is safe and small.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from stentor.filters import Filter, Questions
from stentor.matching import FilterTable

#: Seconds for which demand that has ended still counts.
LINGER: Final = 1.0
#: With more filters than this, the producer is told that everything is wanted.
MANY: Final = 1_000
#: What a search for the advertisements that a filter overlaps costs, in pairs.
SEARCH: Final = 20
#: Texts of filters that are put together for producers in one step, and what it costs to write one.
TOLD_AT_ONCE: Final = 5_000
WRITING: Final = 10

#: The session and its number for the advertisement.
Offer = tuple[int, int]


class _Wanted:
    __slots__ = ("filters", "quiet_at", "told")

    def __init__(self) -> None:
        self.filters: set[Filter] = set()
        self.told: list[str] | None = None
        #: When the producer is to be told that nobody listens.
        self.quiet_at: float | None = None


class Demands:
    """Which filters overlap each advertisement.

    >>> demands = Demands(lambda: [Filter("price > 100")])
    >>> demands.watch((1, 1), Filter("symbol = 'IBM'"))
    >>> demands.changes(now=0.0)
    [((1, 1), ['price > 100'])]
    >>> demands.entry(Filter("price > 100"), there=False)
    >>> demands.changes(now=0.0), demands.changes(now=2.0)
    ([], [((1, 1), [])])
    """

    def __init__(self, asked: Callable[[], Iterable[Filter]], at_once: int | None = None) -> None:
        """`asked` gives everything that is asked for now.

        With `at_once`, no step looks at more pairs of a filter and an offer.
        """
        self._asked = asked
        self._at_once = at_once
        self._offers: FilterTable[Offer] = FilterTable()
        self._wanted: dict[Offer, _Wanted] = {}
        #: What is to be looked at: filters that have come (True) or gone, or a new offer.
        self._news: deque[dict[Filter, bool] | Offer] = deque()
        #: A filter that has come, and the offers with which it has not been compared.
        self._came: tuple[Filter, Iterator[Offer]] | None = None
        #: New offers, and what the one whose turn it is has not been compared with.
        self._unseen: dict[Offer, Filter] = {}
        self._rest: Iterator[Filter] | None = None
        #: Offers whose producers are to be told something; those whose last filter has gone, with
        #: the time at which that counts; and those whose producers do not read.
        self._changed: dict[Offer, None] = {}
        self._quiet: dict[Offer, float] = {}
        self._blocked: dict[int, dict[Offer, None]] = {}
        self._texts: dict[Filter, str] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def has_work(self) -> bool:
        """Whether there is something to look at, or to tell."""
        return bool(self._news or self._came or self._changed)

    def watch(self, offer: Offer, filter: Filter) -> None:
        """A producer wants to know what is asked for of this."""
        self._offers.add(offer, filter)
        self._wanted[offer] = _Wanted()
        self._unseen[offer] = filter
        self._news.append(offer)
        if self._at_once is None:
            self.work()

    def offers(self) -> list[Offer]:
        """Those whose producers want to know."""
        return list(self._wanted)

    def forget(self, offer: Offer) -> None:
        if self._wanted.pop(offer, None) is not None:
            self._offers.remove(offer)
            for notes in (self._unseen, self._changed, self._quiet):
                notes.pop(offer, None)
            self._blocked.get(offer[0], {}).pop(offer, None)
            if self._news and self._news[0] == offer:
                self._rest = None
            if not self._wanted:  # what happens from now on is not noted, so nothing before counts
                self._news.clear()
                self._came = self._rest = None
                self._texts.clear()

    def entry(self, filter: Filter, *, there: bool) -> None:
        """A filter is now asked for by somebody, or by nobody."""
        if not self._wanted:
            return  # an offer that comes is compared with what stands then
        if not self._news or not isinstance(self._news[-1], dict):
            self._news.append({})
        last = self._news[-1]
        assert isinstance(last, dict)
        last[filter] = there
        if self._at_once is None:
            self.work()

    def work(self) -> None:
        """Look at some of what has happened."""
        left = self._at_once or sys.maxsize
        while (self._came or self._news) and left > 0:
            if self._came is not None:
                left -= self._look_for(*self._came, left)
                continue
            first = self._news[0]
            if isinstance(first, dict):
                filter = next(iter(first))
                left -= self._look_at(filter, there=first.pop(filter))
                if not first:
                    self._news.popleft()
            else:
                looked = self._compare(first, left)
                if looked < left:
                    self._news.popleft()
                    self._rest = None
                left -= looked

    def _look_at(self, filter: Filter, *, there: bool) -> int:
        """A filter has come or gone; what it has cost to look at that, in pairs."""
        if there:
            self._came = filter, self._offers.may_overlap(filter)
            return SEARCH
        self._texts.pop(filter, None)
        for offer, wanted in self._wanted.items():
            if filter in wanted.filters:
                wanted.filters.remove(filter)
                self._has_changed(offer)
        return 1 + len(self._wanted) // SEARCH

    def _look_for(self, filter: Filter, offers: Iterator[Offer], most: int) -> int:
        """Compare a filter that has come with so many offers; fewer, if those were all."""
        questions = Questions()
        looked = 0
        for offer in islice(offers, most):
            looked += 1
            offered = self._offers.get(offer)
            if offered is not None and questions.overlaps(filter, offered):
                self._add(offer, filter)
        if looked < most:
            self._came = None
        return looked

    def _compare(self, offer: Offer, most: int) -> int:
        """Compare a new offer with so many filters; fewer, if those were all."""
        if offer not in self._unseen:
            return 0  # forgotten
        offered = self._unseen[offer]
        if self._rest is None:
            self._rest = iter(list(self._asked()))
        questions = Questions()
        looked = 0
        for filter in islice(self._rest, most):
            looked += 1
            if questions.overlaps(filter, offered):
                self._add(offer, filter)
        if looked < most:
            del self._unseen[offer]
            self._has_changed(offer)
        return looked

    def _add(self, offer: Offer, filter: Filter) -> None:
        self._wanted[offer].filters.add(filter)
        self._has_changed(offer)

    def _has_changed(self, offer: Offer) -> None:
        if offer not in self._unseen:  # its producer is told when all has been looked at
            self._changed[offer] = None

    def changes(self, now: float, blocked: Collection[int] = ()) -> list[tuple[Offer, list[str]]]:
        """What producers are to be told now, unless their sessions are blocked."""
        while self._quiet:
            offer, due = next(iter(self._quiet.items()))
            if now < due:
                break
            del self._quiet[offer]
            if not self._wanted[offer].filters:
                self._changed[offer] = None
        news: list[tuple[Offer, list[str]]] = []
        left = sys.maxsize if self._at_once is None else TOLD_AT_ONCE
        written = left // WRITING
        while self._changed and left > 0:
            offer = next(iter(self._changed))
            del self._changed[offer]
            wanted = self._wanted[offer]
            left -= SEARCH
            if offer[0] in blocked:
                self._blocked.setdefault(offer[0], {})[offer] = None
                continue
            if not wanted.filters and wanted.told:
                if wanted.quiet_at is None:
                    wanted.quiet_at = now + LINGER
                    self._quiet[offer] = wanted.quiet_at
                if now < wanted.quiet_at:
                    continue
            texts = [""]
            if len(wanted.filters) <= MANY:
                new = [f for f in wanted.filters if f not in self._texts]
                left -= len(wanted.filters) + WRITING * len(new)
                self._texts.update((f, str(f)) for f in new[:written])
                if len(new) > written:
                    self._changed[offer] = None  # the next time for the others
                    continue
                texts = sorted(self._texts[f] for f in wanted.filters)
            wanted.quiet_at = None
            self._quiet.pop(offer, None)
            if texts != wanted.told:
                wanted.told = texts
                news.append((offer, texts))
        return news

    def unblock(self, session: int) -> None:
        """The session reads again."""
        self._changed.update(self._blocked.pop(session, {}))
