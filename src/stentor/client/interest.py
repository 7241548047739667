"""What an inbox asks for, as its application sees it and as the broker has it; pure.

The application has subscriptions: each is an id and a filter, and two may have equal filters
(R-01.14). The broker has a set of filters. A filter is *wanted* as long as some subscription has
it. About a filter that comes or goes the broker is told, again over every new connection until it
has answered. Meanwhile the filter is *pending*, and what is wanted here counts.

Otherwise the broker's word counts. A durable inbox is kept there with its filters, and those of
a group change when one of its members changes them. So for a filter that the broker has and nobody
here wants there will be a subscription, which is the one that whoever asks for it gets; and those
of a filter that the broker no longer has are over.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from stentor.client.typed import filter_of
from stentor.errors import InvalidConfiguration
from stentor.model import Notification

if TYPE_CHECKING:
    from stentor.filters import Filter
    from stentor.matching import Index

#: So few filters are tested one by one: to load an index takes longer.
FEW: Final = 16


class SubId:
    """A subscription of an inbox: this one, not another with an equal filter."""

    __slots__ = ("filter",)

    def __init__(self, filter: Filter) -> None:
        self.filter = filter

    def __repr__(self) -> str:
        return f"<SubId {'everything' if self.filter.is_always else repr(str(self.filter))}>"


class InboxInterest:
    """The subscriptions of an inbox.

    >>> from stentor.filters import Filter
    >>> interest = InboxInterest([Filter("price > 100")])
    >>> quotes = interest.add(Filter("symbol = 'IBM'"))
    >>> interest.matching(Notification({"symbol": "IBM", "price": 120}))
    (<SubId 'price > 100'>, <SubId "symbol = 'IBM'">)
    >>> interest.word([quotes.filter])
    (["symbol = 'IBM'"], [])
    """

    def __init__(self, filters: Iterable[Filter] = ()) -> None:
        self._ids: dict[Filter, list[SubId]] = {}
        #: What the broker has, and what is pending, how often.
        self._told: dict[Filter, None] = {}
        self._pending: Counter[Filter] = Counter()
        #: Subscriptions that nobody has asked for here, by their filters.
        self._unclaimed: dict[Filter, SubId] = {}
        self._index: Index[Filter] | None = None
        self._few = FEW
        for filter in filters:
            self.add(filter)
            self._told[filter] = None

    def __iter__(self) -> Iterator[SubId]:
        return (id for ids in self._ids.values() for id in ids)

    @property
    def filter(self) -> Filter:
        """The union of all filters."""
        from stentor.filters import Filter

        return Filter.of_conjuncts(c for filter in self._ids for c in filter.conjuncts)

    # -- what the application does

    def add(self, filter: Filter) -> SubId:
        """A subscription to a filter."""
        found = self._unclaimed.pop(filter, None)
        return self._new(filter) if found is None else found

    def _new(self, filter: Filter) -> SubId:
        id = SubId(filter)
        ids = self._ids.setdefault(filter, [])
        if not ids and self._index is not None:
            self._index.add(filter, filter)
        ids.append(id)
        return id

    def remove(self, id: SubId) -> bool:
        """End a subscription; whether its filter is not wanted any more."""
        ids = self._ids.get(id.filter, [])
        if id not in ids:
            raise InvalidConfiguration(f"{id!r} is not a subscription of this inbox, or no longer")
        if len(ids) == 1:
            self._end(id.filter)
            return True
        ids.remove(id)
        return False

    def _end(self, filter: Filter) -> None:
        if self._ids.pop(filter, None) is not None and self._index is not None:
            self._index.remove(filter)
        self._unclaimed.pop(filter, None)

    def matching(self, notification: Notification) -> tuple[SubId, ...]:
        """The subscriptions that want this now."""
        if self._index is None and len(self._ids) > self._few:
            self._load_index()
        if self._index is None:
            return tuple(
                id for f, ids in self._ids.items() if f.matches(notification) for id in ids
            )
        found = self._index.match(notification)
        return tuple(id for filter in found for id in self._ids[filter])

    def _load_index(self) -> None:
        try:
            from stentor.matching import Index  # not needed by most, and a lot to load
        except ModuleNotFoundError:  # a client alone, without the extra `broker`
            self._few = sys.maxsize
            return
        self._index = Index(background=False)
        for filter in self._ids:
            self._index.add(filter, filter)

    # -- what is said to the broker

    def begin(self, filters: Iterable[Filter]) -> None:
        """The broker will be told about these."""
        self._pending.update(filters)

    def end(self, filters: Iterable[Filter]) -> None:
        """It has answered, or never will."""
        for filter in filters:
            self._pending[filter] -= 1
            if not self._pending[filter]:
                del self._pending[filter]
                self._agree(filter)

    def word(self, filters: Iterable[Filter]) -> tuple[list[str], list[str]]:
        """What there is to say about these now: which are wanted, and which are not."""
        wanted = {str(filter): filter in self._ids for filter in filters}
        return [text for text in wanted if wanted[text]], [t for t in wanted if not wanted[t]]

    def take_up(self) -> list[str]:
        """What to ask for over a new connection: all but what the broker has not yet had."""
        self._told = {filter: None for filter in self._told if filter in self._ids}
        return [str(filter) for filter in self._told]

    @property
    def agreed(self) -> list[SubId]:
        """Those about which there is nothing to say."""
        return [id for id in self if id.filter not in self._pending]

    @property
    def unsaid(self) -> bool:
        """Whether something is wanted that the broker does not have."""
        return not self._ids.keys() <= self._told.keys()

    def is_stray(self, filter: Filter) -> bool:
        """Whether the broker has it, nobody here wants it, and nothing is being said about it."""
        return filter in self._told and filter not in self._ids and filter not in self._pending

    def amended(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """The broker has more filters from here on, or fewer."""
        for filter in map(filter_of, removed):
            self._told.pop(filter, None)
            self._agree(filter)
        for filter in map(filter_of, added):
            self._told[filter] = None
            self._agree(filter)

    def _agree(self, filter: Filter) -> None:
        """Unless there is something to say about a filter, the broker is right."""
        if filter in self._pending:
            return
        if filter not in self._told:
            self._end(filter)
        elif filter not in self._ids:
            self._unclaimed[filter] = self._new(filter)
