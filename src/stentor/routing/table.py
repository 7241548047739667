"""The routing table: which filters lead to which destinations (R-03.05, R-03.09).

An entry says that what a filter matches goes to a destination, a neighbor broker or a local client.
Many entries have equal filters, so the table holds each distinct filter once, with its owners, and
the production index searches the distinct ones. An entry has a key of its own within its
destination: a subscription's id where each is kept apart, else the filter itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from stentor.filters import Filter
from stentor.matching import Index, Matcher
from stentor.matching.commons import SharedIndex
from stentor.model.codec import Envelope
from stentor.model.notification import Notification
from stentor.routing.protocol import BrokerId, ClientId

#: What a destination costs, in places that an event goes to.
DESTINATION: Final = 20
#: Events that are looked at together, at least, and pairs of these with filters, at most; and as
#: long as few of them match.
BLOCK: Final = 256
PAIRS: Final = 4_000_000
MOST_PAIRS: Final = 32_000_000


class Neighbor(Struct, frozen=True, gc=False):
    """A destination: another broker."""

    id: BrokerId


class Local(Struct, frozen=True, gc=False):
    """A destination: a client of this broker."""

    id: ClientId


Destination: TypeAlias = Neighbor | Local


class Ghost(Struct, frozen=True, gc=False):
    """A neighbor that is gone and whose interest lingers: no destination of notifications."""

    id: BrokerId
    number: int


class Row(Struct, eq=False, gc=False):
    """A distinct filter and how many entries each destination has for it.

    Mostly that is one entry of one destination, and there are very many rows: they hold no mapping
    until they need one.

    >>> row = Row(Filter("x > 1"))
    >>> row.own(Local("ann")), row.own(Local("bob")), row.own(Local("bob"))
    (None, None, None)
    >>> row.owners
    {Local(id='ann'): 1, Local(id='bob'): 2}
    """

    filter: Filter
    #: The only owner, if there is just one.
    sole: Destination | None = None
    #: Owners and their entries, unless there are none, or one entry of the sole owner.
    several: dict[Destination, int] | None = None
    #: Rows of a table are numbered as they come, or as the index that tables share has it.
    number: int = 0

    @property
    def owners(self) -> Mapping[Destination, int]:
        if self.several is not None:
            return self.several
        return {} if self.sole is None else {self.sole: 1}

    def __len__(self) -> int:
        """How many destinations have the filter."""
        return (self.sole is not None) if self.several is None else len(self.several)

    def own(self, destination: Destination) -> None:
        """One more entry of the destination."""
        if self.several is None:
            if self.sole is None:
                self.sole = destination
                return
            self.several = {self.sole: 1}
        self.several[destination] = self.several.get(destination, 0) + 1
        self.sole = destination if len(self.several) == 1 else None

    def disown(self, destination: Destination) -> None:
        """One less."""
        if self.several is None:
            self.sole = None
            return
        left = self.several[destination] - 1
        if left:
            self.several[destination] = left
            return
        del self.several[destination]
        if len(self.several) == 1:
            ((self.sole, count),) = self.several.items()
            if count == 1:
                self.several = None
        elif not self.several:
            self.sole = self.several = None


def _number(found: tuple[Row, list[int]]) -> int:
    return found[0].number


class RoutingTable:
    """Entries of filters and destinations.

    >>> table = RoutingTable()
    >>> _ = table.add(Neighbor("north"), 1, Filter("x > 1"))
    >>> _ = table.add(Local("ann"), 2, Filter("x > 5"))
    >>> table.targets({"x": 3})
    {Neighbor(id='north')}
    """

    def __init__(
        self, engine: Callable[[], Matcher[Any]] | None = None, shared: SharedIndex | None = None
    ) -> None:
        """Filters are searched by an engine of its own, or by one that is `shared` with others."""
        self._shared = shared
        #: By the number of a filter there: its sole owner, or its row, if it is held here.
        self._leads: list[Destination | Row | None] = []
        self._engine: Matcher[Row] = Index(background=False) if engine is None else engine()
        #: Rows by their filters, for others to look at.
        self.held: dict[Filter, Row] = {}
        self._entries: dict[Destination, dict[Hashable, Filter]] = {}
        self._count = 0
        self._rows = 0
        #: Pairs that are looked at together now: fewer after very many of them matched.
        self._pairs = PAIRS

    def add(self, destination: Destination, key: Hashable, filter: Filter) -> Row:
        """A new entry; the key must be free. The row shows all owners of the filter."""
        row = self.held.get(filter)
        if row is None:
            row = Row(filter, number=self._rows)
            self._rows += 1
            if self._shared is None:
                self._engine.add(row, filter)
            else:
                row.number = self._shared.add(filter)
                if row.number >= len(self._leads):
                    self._make_room(self._shared)
            self.held[filter] = row
        entries = self._entries.get(destination)
        if entries is None:
            entries = self._entries[destination] = {}
        before = len(entries)
        entries[key] = filter
        self._count += len(entries) - before
        row.own(destination)
        if self._shared is not None:
            self._leads[row.number] = row.sole or row
        return row

    def remove(self, destination: Destination, key: Hashable) -> Row:
        """Take an entry away; the key must be held. The row shows the owners that are left."""
        entries = self._entries[destination]
        filter = entries.pop(key)
        self._count -= 1
        if not entries:
            del self._entries[destination]
        row = self.held[filter]
        row.disown(destination)
        if self._shared is not None:
            self._leads[row.number] = row.sole or (row if len(row) else None)
        if not len(row):
            del self.held[filter]
            if self._shared is None:
                self._engine.remove(row)
            else:
                self._shared.remove(filter)
        return row

    def _make_room(self, shared: SharedIndex) -> None:
        """For the numbers of all filters that anybody holds."""
        missing = shared.breadth - len(self._leads)
        if missing > 0:
            self._leads += [None] * missing

    def targets(self, notification: Notification | Mapping[str, Any]) -> set[Destination]:
        """The destinations with at least one filter that the notification matches."""
        if self._shared is not None:
            if not isinstance(notification, Notification):
                notification = Notification(notification)
            return set(self.targets_of([notification]))
        found: set[Destination] = set()
        for row in self._engine.match(notification):
            found.update(row.owners)
        return found

    def targets_of(self, events: Sequence[Envelope | Notification]) -> dict[Destination, list[int]]:
        """For each destination the events that go there, by their indexes, ascending.

        Destinations may share a list; do not change it.

        >>> table = RoutingTable()
        >>> _ = table.add(Local("ann"), 2, Filter("x > 5"))
        >>> table.targets_of([Notification({"x": x}) for x in (3, 7, 9)])
        {Local(id='ann'): [1, 2]}
        """
        if self._shared is not None:
            return self._targets_by(self._shared, events)
        return self._targets(self._matching(events, None)[1])

    def targets_of_leading(
        self, events: Sequence[Envelope | Notification], most: int
    ) -> tuple[int, dict[Destination, list[int]]]:
        """The same for as many leading events, at least one, as cost about `most` to pass on.

        How many these are comes first. Each place that an event goes to costs 1, and each
        destination `DESTINATION` in addition.
        """
        if (DESTINATION + len(events)) * self._count <= most:  # however many match
            return len(events), self.targets_of(events)
        if self._shared is not None:
            return self._leading_by(self._shared, events, most)
        count, matching = self._matching(events[: max(BLOCK, self._pairs // self._count)], most)
        quiet = True
        while count > 1:
            cost = sum((DESTINATION + len(rows)) * len(row) for row, rows in matching)
            if cost <= most:
                break
            quiet = False
            count = max(1, min(count // 2, count * most // cost))
            shorter = ((row, rows[: bisect_left(rows, count)]) for row, rows in matching)
            matching = [(row, rows) for row, rows in shorter if rows]
        self._pairs = min(2 * self._pairs, MOST_PAIRS) if quiet else PAIRS
        return count, self._targets(matching)

    def _targets(self, matching: Iterable[tuple[Row, list[int]]]) -> dict[Destination, list[int]]:
        found: dict[Destination, list[int]] = {}
        several: dict[Destination, list[list[int]]] = {}
        # Engines find them in any order; destinations come in the same one in every run.
        for row, indexes in sorted(matching, key=_number):
            for destination in row.owners if row.sole is None else (row.sole,):
                known = found.setdefault(destination, indexes)
                if known is not indexes:  # it has several filters
                    several.setdefault(destination, [known]).append(indexes)
        for destination, lists in several.items():
            found[destination] = sorted(set().union(*lists))
        return found

    def _matching(
        self, events: Sequence[Envelope | Notification], most: int | None
    ) -> tuple[int, Iterable[tuple[Row, list[int]]]]:
        """How many events were looked at, and for each row the indexes of those that match it."""
        if isinstance(self._engine, Index):
            return self._engine.match_leading(events, most)
        found: dict[Row, list[int]] = {}
        indexes, rows = self._engine.match_batch([event.facts for event in events])
        for i, row in zip(indexes.tolist(), rows.tolist(), strict=True):
            found.setdefault(row, []).append(i)
        return len(events), found.items()

    def _targets_by(
        self, shared: SharedIndex, events: Sequence[Envelope | Notification]
    ) -> dict[Destination, list[int]]:
        """By what others have found out, too: for each event the numbers of filters."""
        matching = shared.matching(events)
        self._make_room(shared)
        lead_of = self._leads.__getitem__
        found: dict[Destination, list[int]] = {}
        for i, numbers in enumerate(matching):
            for lead in dict.fromkeys(map(lead_of, numbers)):
                if lead is None:
                    continue
                for destination in lead.owners if isinstance(lead, Row) else (lead,):
                    indexes = found.get(destination)
                    if indexes is None:
                        found[destination] = [i]
                    elif indexes[-1] != i:  # it has several filters
                        indexes.append(i)
        return found

    def _leading_by(
        self, shared: SharedIndex, events: Sequence[Envelope | Notification], most: int
    ) -> tuple[int, dict[Destination, list[int]]]:
        count, found = len(events), self._targets_by(shared, events)
        while count > 1:
            cost = sum(DESTINATION + len(indexes) for indexes in found.values())
            if cost <= most:
                break
            count = max(1, min(count // 2, count * most // cost))
            shorter = (
                (to, indexes[: bisect_left(indexes, count)]) for to, indexes in found.items()
            )
            found = {to: indexes for to, indexes in shorter if indexes}
        return count, found

    def at(self, destination: Destination) -> Mapping[Hashable, Filter]:
        """The entries of a destination."""
        return self._entries.get(destination, {})

    def owners(self, filter: Filter) -> Mapping[Destination, int]:
        """The destinations that have this filter, with how many entries each."""
        row = self.held.get(filter)
        return {} if row is None else row.owners

    def rows(self) -> Iterator[Row]:
        yield from self.held.values()

    @property
    def destinations(self) -> list[Destination]:
        return list(self._entries)

    def count(self, kind: type[Neighbor] | type[Local]) -> int:
        """The number of entries of neighbors, or of clients."""
        return sum(len(e) for d, e in self._entries.items() if isinstance(d, kind))

    def __len__(self) -> int:
        return self._count
