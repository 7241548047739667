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
    #: Rows of a table are numbered as they come.
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

    def __init__(self, engine: Callable[[], Matcher[Any]] | None = None) -> None:
        self._engine: Matcher[Row] = Index(background=False) if engine is None else engine()
        #: Rows by their filters, for others to look at.
        self.held: dict[Filter, Row] = {}
        self._entries: dict[Destination, dict[Hashable, Filter]] = {}
        self._count = 0
        self._rows = 0
        #: Pairs that are looked at together now: fewer after very many of them matched.
        self._pairs = PAIRS

    def add(self, destination: Destination, key: Hashable, filter: Filter) -> Row | None:
        """A new entry, and the row that shows all owners of the filter; None if the key is held."""
        entries = self._entries.get(destination)
        if entries is None:
            entries = self._entries[destination] = {}
        elif key in entries:
            return None
        entries[key] = filter
        self._count += 1
        row = self.held.get(filter)
        if row is None:
            row = Row(filter, number=self._rows)
            self._rows += 1
            self._engine.add(row, filter)
            self.held[filter] = row
        row.own(destination)
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
        if not len(row):
            del self.held[filter]
            self._engine.remove(row)
        return row

    def targets(self, notification: Notification | Mapping[str, Any]) -> set[Destination]:
        """The destinations with at least one filter that the notification matches."""
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

    def __contains__(self, entry: tuple[Destination, Hashable]) -> bool:
        destination, key = entry
        held = self._entries.get(destination)
        return held is not None and key in held

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

    def size(self, destination: Destination) -> int:
        """The number of entries of a destination."""
        return len(self._entries.get(destination, ()))

    def count(self, kind: type[Neighbor] | type[Local]) -> int:
        """The number of entries of neighbors, or of clients."""
        return sum(len(e) for d, e in self._entries.items() if isinstance(d, kind))

    def __len__(self) -> int:
        return self._count
