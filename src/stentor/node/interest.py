"""What a subscription asks for: one filter, or those of an inbox, any of which may match.

The filters of an inbox come and go while it is served. Routers know each of them by itself, so that
a change is as cheap as a subscription. Journals are read by all of them at once, so by their union;
it is worked out when somebody asks for it, which in a feed that is live nobody does. All filters of
an inbox together may weigh no more than one filter of a client may, so the union is none that
brokers would not take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stentor.errors import FilterTooComplex
from stentor.filters import Filter
from stentor.filters.filter import RECEIVED_STEPS
from stentor.protocol.messages import MAX_INBOX


class Interest:
    """A set of filters.

    >>> interest = Interest([Filter("x = 1"), Filter("y > 2")])
    >>> interest.amend([Filter("x = 3")], [Filter("y > 2")])
    ([Filter('x = 3')], [Filter('y > 2')])
    >>> print(interest)
    x in (1, 3)
    """

    def __init__(self, filters: Iterable[Filter], *, fixed: bool = False) -> None:
        """`fixed` is what is no inbox: the one filter of a subscription."""
        self.fixed = fixed
        #: The filters, and what each weighs.
        self._filters = {filter: filter.weight for filter in filters}
        #: What they weigh together.
        self.weight = sum(self._filters.values())
        self._text: str | None = None
        self._within: Filter | None = None
        #: The filters as routers know them, as far as they were asked for; that is dear.
        self._narrowed: dict[Filter, Filter] = {}
        #: Those that were added, each with the first probe whose answer says that it is in force.
        self.recent: dict[Filter, int] = {}
        if not fixed:
            _check(len(self._filters), self.weight)

    def __iter__(self) -> Iterator[Filter]:
        return iter(self._filters)

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, filter: Filter) -> bool:
        return filter in self._filters

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interest):
            return NotImplemented
        return self.fixed == other.fixed and self._filters.keys() == other._filters.keys()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """The union of all filters, as one."""
        if self._text is None:
            first, *others = self if len(self) else [Filter("false")]
            conjuncts = (c for filter in (first, *others) for c in filter.conjuncts)
            self._text = str(Filter.of_conjuncts(conjuncts) if others else first)
        return self._text

    @property
    def within(self) -> Filter | None:
        """What else has to match, whatever the subscriber asks for: what it may see; or None."""
        return self._within

    @within.setter
    def within(self, within: Filter | None) -> None:
        self._within = within
        self._narrowed.clear()

    def narrowed(self, filters: Iterable[Filter]) -> list[Filter]:
        """Some of the filters, as routers know them: they match what may be seen."""
        within, known = self._within, self._narrowed
        if within is None:
            return list(filters)
        found = []
        for filter in filters:
            if filter not in known:
                known[filter] = filter & within
            found.append(known[filter])
        return found

    @property
    def sought(self) -> str:
        """The union of all filters as those who read journals know it."""
        return str(self) if self.within is None else str(Filter(str(self)) & self.within)

    @property
    def texts(self) -> list[str]:
        """The filters, each by itself."""
        return [str(filter) for filter in self]

    def amend(
        self, added: Iterable[Filter], removed: Iterable[Filter]
    ) -> tuple[list[Filter], list[Filter]]:
        """Add some and remove others: those that were not there, and those that are gone.

        `FilterTooComplex` if that would be too much, and nothing has changed.
        """
        held, coming = self._filters, dict.fromkeys(added)
        new = {filter: filter.weight for filter in coming if filter not in held}
        gone = [f for f in dict.fromkeys(removed) if f in held and f not in coming]
        weight = self.weight + sum(new.values()) - sum([held[filter] for filter in gone])
        _check(len(held) + len(new) - len(gone), weight)
        for filter in gone:
            del held[filter]
        held |= new
        self.weight = weight
        self._text = None
        return list(new), gone

    def narrowed_changes(
        self, new: list[Filter], gone: list[Filter]
    ) -> tuple[list[Filter], list[Filter]]:
        """What `amend` has added and removed, as routers know it.

        It costs what has changed, unless something is `within`: then filters that differ may have
        become one, which goes with the last of them.
        """
        if self.within is None:
            return new, gone
        others = set(self.narrowed(self._filters.keys() - set(new)))
        asked, unasked = (dict.fromkeys(self.narrowed(some)) for some in (new, gone))
        for filter in gone:
            self._narrowed.pop(filter, None)
        return (
            [f for f in asked if f not in others and f not in unasked],
            [f for f in unasked if f not in others and f not in asked],
        )

    def in_force(self, probe: int) -> None:
        """This probe has been answered."""
        self.recent = {filter: first for filter, first in self.recent.items() if first > probe}

    def changes(self, after: Interest) -> tuple[list[Filter], list[Filter]]:
        """What another one asks for that this does not, and the other way round."""
        before, now = self._filters, after._filters
        return [f for f in now if f not in before], [f for f in before if f not in now]


def _check(count: int, weight: int) -> None:
    if count > MAX_INBOX or weight > RECEIVED_STEPS:
        raise FilterTooComplex(
            f"an inbox has at most {MAX_INBOX} filters that are together no more complex than one "
            f"may be, and this one would have {count}; open another inbox for some of them"
        )
