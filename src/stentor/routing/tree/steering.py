"""Steering: which neighbors offer what overlaps the filters that are asked for.

Where advertisements count, a filter is announced to a neighbor only while something that is
advertised there overlaps it. Of each filter and each such neighbor one offer is remembered, the
*witness*. An offer that comes concerns only filters that have no witness at its neighbor, and one
that goes only those whose witness it was: each of them gets another, or is no longer served there.

One offer may overlap all of very many filters. So what has come and gone is only noted, and `look`
looks at one filter at a time. That is right in any order, as each is decided by what is offered at
that moment. Until all that has come has been looked at (`is_serving`), neighbors may not have
been asked for everything; what has gone can only have left them asked for more than has to be.

A search for a witness that looks at very many offers in vain ends with any of them: the neighbor is
asked for something that it may not have, as wherever an overlap cannot be decided (01/A-14).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, KeysView
from typing import Final

from stentor.filters import Filter, Questions
from stentor.filters.effort import spend
from stentor.matching import FilterTable
from stentor.routing.protocol import BrokerId

#: Elementary steps (see `effort`) to look at a filter, and to compare it with an offer.
LOOK: Final = 6
PAIR: Final = 10
#: Offers that are compared with a filter before any of them counts as its witness.
COMPARED: Final = 1_000

_Change = tuple[BrokerId, Filter]


class Steering:
    """The offers of neighbors, and the neighbors that serve each filter.

    >>> steering = Steering()
    >>> steering.ask("key", Filter("x > 1"))
    >>> steering.offer("north", Filter("x = 5"))
    >>> steering.look(), list(steering.served("key"))
    (('north', 'key', Filter('x > 1')), ['north'])
    """

    def __init__(self) -> None:
        self._offers: dict[BrokerId, FilterTable[Filter]] = {}
        #: What is asked for.
        self._asked: FilterTable[Hashable] = FilterTable()
        #: The neighbors that serve it, each with a witness.
        self._serving: dict[Hashable, dict[BrokerId, Filter]] = {}
        #: What is served because of each offer.
        self._witnessed: dict[_Change, dict[Hashable, None]] = {}
        #: Offers that have come or gone and of which not all has been looked at; and what has not
        #: been looked at of the first that has come.
        self._came: dict[_Change, None] = {}
        self._gone: dict[_Change, None] = {}
        self._rest: Iterator[Hashable] | None = None

    # -- what is asked for

    def ask(self, key: Hashable, filter: Filter) -> None:
        """This is asked for; nothing changes if it was before."""
        if key not in self._asked:
            self._asked.add(key, filter)
            self._serving[key] = {}
            for neighbor in self._offers:
                self._search(key, filter, neighbor)

    def forget(self, key: Hashable) -> None:
        """It is no longer asked for."""
        self._asked.remove(key)
        for change in self._serving.pop(key).items():
            self._unwitness(key, change)

    def served(self, key: Hashable) -> KeysView[BrokerId]:
        """The neighbors that offer something which overlaps what is asked for."""
        return self._serving[key].keys()

    # -- what is offered

    def offer(self, neighbor: BrokerId, offer: Filter) -> None:
        """The neighbor offers this; nothing changes if it did before."""
        offers = self._offers.setdefault(neighbor, FilterTable())
        if offer not in offers:
            offers.add(offer, offer)
            self._came[neighbor, offer] = None

    def withdraw(self, neighbor: BrokerId, offer: Filter) -> None:
        """It no longer does; nothing changes if it never did."""
        offers = self._offers.get(neighbor, FilterTable())
        if offer in offers:
            offers.remove(offer)
            if not len(offers):
                del self._offers[neighbor]
            self._drop(neighbor, offer)
            if (neighbor, offer) in self._witnessed:
                self._gone[neighbor, offer] = None

    def forget_neighbor(self, neighbor: BrokerId) -> None:
        """Nothing is asked for at the neighbor any more."""
        self._offers.pop(neighbor, None)
        for served in self._serving.values():
            served.pop(neighbor, None)
        for change in [c for c in (*self._came, *self._gone, *self._witnessed) if c[0] == neighbor]:
            self._drop(*change)
            self._gone.pop(change, None)
            self._witnessed.pop(change, None)

    def _drop(self, neighbor: BrokerId, offer: Filter) -> None:
        if self._came and next(iter(self._came)) == (neighbor, offer):
            self._rest = None
        self._came.pop((neighbor, offer), None)

    # -- in steps

    @property
    def is_serving(self) -> bool:
        """Whether something is offered that may serve more than is known."""
        return bool(self._came)

    @property
    def has_work(self) -> bool:
        return bool(self._came or self._gone)

    def look(self) -> tuple[BrokerId, Hashable, Filter] | None:
        """Look at the next filter: a neighbor that serves it now, or no longer, and this filter."""
        spend(LOOK)
        return self._look_at() if self._came else self._look_again()

    def _look_at(self) -> tuple[BrokerId, Hashable, Filter] | None:
        """At one that may overlap the first offer that has come."""
        neighbor, offer = change = next(iter(self._came))
        if self._rest is None:
            self._rest = self._asked.may_overlap(offer)
        key = next(self._rest, self)
        if key is self:
            del self._came[change]
            self._rest = None
            return None
        filter = self._asked.get(key)
        if filter is not None and neighbor not in self._serving[key]:
            spend(PAIR)
            if filter.overlaps(offer):
                self._witness(key, change)
                return neighbor, key, filter
        return None

    def _look_again(self) -> tuple[BrokerId, Hashable, Filter] | None:
        """At one whose witness has gone."""
        neighbor, offer = change = next(iter(self._gone))
        keys = self._witnessed.get(change)
        if not keys or offer in self._offers.get(neighbor, ()):
            del self._gone[change]
            return None
        key = next(iter(keys))
        filter = self._asked.get(key)
        assert filter is not None
        del self._serving[key][neighbor]
        self._unwitness(key, change)
        return None if self._search(key, filter, neighbor) else (neighbor, key, filter)

    def _search(self, key: Hashable, filter: Filter, neighbor: BrokerId) -> bool:
        """Find a witness at the neighbor; whether there is one."""
        questions = Questions()
        offers = self._offers.get(neighbor)
        for looked, offer in enumerate(() if offers is None else offers.may_overlap(filter)):
            spend(PAIR)
            if looked >= COMPARED or questions.overlaps(filter, offer):
                self._witness(key, (neighbor, offer))
                return True
        return False

    def _witness(self, key: Hashable, change: _Change) -> None:
        neighbor, offer = change
        self._serving[key][neighbor] = offer
        self._witnessed.setdefault(change, {})[key] = None

    def _unwitness(self, key: Hashable, change: _Change) -> None:
        keys = self._witnessed[change]
        del keys[key]
        if not keys:
            del self._witnessed[change]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is offered by neighbors."""
        return not self._offers
