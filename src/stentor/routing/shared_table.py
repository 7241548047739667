"""`SharedTable`: the routing table of a broker that runs in one process with very many others.

All of them hold much the same filters, so their index numbers each filter once, for all
(`stentor.matching.SharedIndex`), and a table says by the number who asks. Mostly that is just one
neighbor that knows the filter by itself: a byte then says which, and there is nothing else. All
other entries are held as in a `RoutingTable`. So a thousand brokers can hold a hundred thousand
filters each, and where a batch goes is looked up for all of its events at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from stentor.filters import Filter
from stentor.matching.commons import Numbers, SharedIndex
from stentor.model.codec import Envelope
from stentor.model.notification import Notification
from stentor.routing.table import DESTINATION, Destination, Local, Neighbor, Row

#: What stands for a filter that nobody asks for, and for one that has a row. All others stand for
#: neighbors, as many as there are bytes.
_NOBODY: Final = 0
_ROW: Final = 1
_FIRST: Final = 2
_LAST: Final = 255
#: Events that are looked at one by one.
_FEW: Final = 12


class SharedTable:
    """Entries of filters and destinations, as in a `RoutingTable`.

    >>> table = SharedTable(SharedIndex())
    >>> _ = table.add(Neighbor("north"), Filter("x > 1"), Filter("x > 1"))
    >>> _ = table.add(Local("ann"), 2, Filter("x > 5"))
    >>> table.targets_of([Notification({"x": 3})])
    {Neighbor(id='north'): [0]}
    """

    def __init__(self, shared: SharedIndex) -> None:
        self._shared = shared
        #: By the number of a filter: what stands for who asks for it.
        self._leads = bytearray()
        #: By what stands for it: a neighbor; and how many filters only it asks for, by themselves.
        self._neighbors: list[Destination | None] = [None, None]
        self._sizes = [0, 0]
        self._places: dict[Destination, int] = {}
        self._rows: dict[int, Row] = {}
        #: Entries that no byte stands for.
        self._entries: dict[Destination, dict[Hashable, Filter]] = {}
        self._count = 0
        #: Rows by their filters, for others to look at.
        self.held: Mapping[Filter, Row] = _Held(self)

    def add(self, destination: Destination, key: Hashable, filter: Filter) -> Row | None:
        """A new entry, and the row that shows all owners of the filter; None if the key is held."""
        entries = self._entries.get(destination)
        if entries is not None and key in entries:
            return None
        number = self._shared.add(filter)
        if number >= len(self._leads):
            self._make_room()
        lead = self._leads[number]
        if type(destination) is Neighbor and isinstance(key, Filter):
            place = self._places.get(destination, _NOBODY)
            if lead == _NOBODY:
                place = place or self._place(destination)
                if place:
                    self._leads[number] = place
                    self._sizes[place] += 1
                    self._count += 1
                    return Row(filter, destination)
            elif lead == place:
                self._shared.remove(filter)
                return None
        self._count += 1
        if lead == _NOBODY:
            self._leads[number] = _ROW
            row = self._rows[number] = Row(filter)
        elif lead == _ROW:
            row = self._rows[number]
        else:
            row = self._rows[number] = self._written_out(number, filter)
        row.own(destination)
        self._entries.setdefault(destination, {})[key] = filter
        return row

    def _place(self, neighbor: Destination) -> int:
        """What shall stand for a new neighbor; nothing does if there are too many."""
        free = (i for i in range(_FIRST, len(self._sizes)) if self._neighbors[i] is None)
        place = next(free, len(self._sizes))
        if place > _LAST:
            return _NOBODY
        if place == len(self._sizes):
            self._neighbors.append(None)
            self._sizes.append(0)
        self._neighbors[place] = neighbor
        self._places[neighbor] = place
        return place

    def _written_out(self, number: int, filter: Filter) -> Row:
        """The row of a filter for which a byte stood; its entry is held apart now."""
        place = self._leads[number]
        neighbor = self._neighbors[place]
        assert neighbor is not None
        self._entries.setdefault(neighbor, {})[filter] = filter
        self._leads[number] = _ROW
        self._left(place)
        return Row(filter, neighbor)

    def _left(self, place: int) -> None:
        """No byte stands any more for one filter of a neighbor."""
        self._sizes[place] -= 1
        if not self._sizes[place]:
            neighbor = self._neighbors[place]
            assert neighbor is not None
            del self._places[neighbor]
            self._neighbors[place] = None

    def remove(self, destination: Destination, key: Hashable) -> Row:
        """Take an entry away; the key must be held. The row shows the owners that are left."""
        self._count -= 1
        filter = self._entries.get(destination, {}).pop(key, None)
        if filter is None:
            assert isinstance(key, Filter)
            number = self._shared.number(key)
            assert number is not None
            place = self._leads[number]
            assert self._neighbors[place] == destination
            row = Row(self._shared.filter(number))
            self._leads[number] = _NOBODY
            self._left(place)
        else:
            if not self._entries[destination]:
                del self._entries[destination]
            number = self._shared.number(filter)
            assert number is not None
            row = self._rows[number]
            row.disown(destination)
            if not row:
                del self._rows[number]
                self._leads[number] = _NOBODY
        self._shared.remove(row.filter)
        return row

    def _make_room(self) -> None:
        """For the numbers of all filters that anybody holds."""
        missing = self._shared.breadth - len(self._leads)
        if missing > 0:
            self._leads += bytes(max(missing, len(self._leads) // 8))

    # -- where notifications go

    def targets(self, notification: Notification | Mapping[str, Any]) -> set[Destination]:
        """The destinations with at least one filter that the notification matches."""
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        return set(self.targets_of([notification]))

    def targets_of(self, events: Sequence[Envelope | Notification]) -> dict[Destination, list[int]]:
        """For each destination the events that go there, by their indexes, ascending.

        Destinations may share a list; do not change it.
        """
        matching = self._shared.matching(events)
        self._make_room()
        numbers = np.concatenate(matching) if matching else np.empty(0, np.intp)
        leads = np.frombuffer(self._leads, np.uint8)[numbers]
        if len(events) <= _FEW:
            return self._targets_of_few(matching, leads.tobytes())
        indexes = np.repeat(np.arange(len(matching)), [len(each) for each in matching])
        where = np.zeros((len(self._sizes), len(matching)), np.bool_)
        where[leads, indexes] = True
        found: dict[Destination, list[int]] = {}
        if where[_ROW].any():
            rows = leads == _ROW
            for i, number in zip(indexes[rows].tolist(), numbers[rows].tolist(), strict=True):
                for destination in self._rows[number].owners:
                    place = self._places.get(destination)
                    if place is not None:
                        where[place, i] = True
                    else:
                        _note(found, destination, i)
        for neighbor, place in self._places.items():
            some = where[place].nonzero()[0].tolist()
            if some:
                found[neighbor] = some
        return found

    def _targets_of_few(
        self, matching: list[Numbers], leads: bytes
    ) -> dict[Destination, list[int]]:
        """What does not look at many events at once is faster for few."""
        found: dict[Destination, list[int]] = {}
        end = 0
        for i, numbers in enumerate(matching):
            start, end = end, end + len(numbers)
            here = leads[start:end]
            for lead in set(here):
                if lead == _ROW:
                    at = here.find(_ROW)
                    while at >= 0:
                        for destination in self._rows[int(numbers[at])].owners:
                            _note(found, destination, i)
                        at = here.find(_ROW, at + 1)
                elif lead != _NOBODY:
                    _note(found, self._neighbors[lead], i)  # type: ignore[arg-type]
        return found

    def targets_of_leading(
        self, events: Sequence[Envelope | Notification], most: int
    ) -> tuple[int, dict[Destination, list[int]]]:
        """The same for as many leading events, at least one, as cost about `most` to pass on."""
        count, found = len(events), self.targets_of(events)
        while count > 1 and (DESTINATION + count) * self._count > most:  # else it cannot be more
            cost = sum(DESTINATION + len(indexes) for indexes in found.values())
            if cost <= most:
                break
            count = max(1, min(count // 2, count * most // cost))
            shorter = (
                (to, indexes[: bisect_left(indexes, count)]) for to, indexes in found.items()
            )
            found = {to: indexes for to, indexes in shorter if indexes}
        return count, found

    # -- what it holds

    def row(self, filter: Filter) -> Row | None:
        """The row of the filter, if it is held."""
        number = self._shared.number(filter)
        lead = _NOBODY if number is None or number >= len(self._leads) else self._leads[number]
        if lead == _NOBODY:
            return None
        return self._rows[number] if lead == _ROW else Row(filter, self._neighbors[lead])  # type: ignore[index]

    def filters(self) -> list[Filter]:
        """The filters that it holds."""
        held = np.frombuffer(bytes(self._leads), np.uint8).nonzero()[0]
        return [self._shared.filter(number) for number in held.tolist()]

    def __contains__(self, entry: tuple[Destination, Hashable]) -> bool:
        destination, key = entry
        held = self._entries.get(destination)
        if held is not None and key in held:
            return True
        if not isinstance(key, Filter) or destination not in self._places:
            return False
        number = self._shared.number(key)
        place = self._places[destination]
        return number is not None and number < len(self._leads) and self._leads[number] == place

    def at(self, destination: Destination) -> Mapping[Hashable, Filter]:
        """The entries of a destination."""
        held = self._entries.get(destination, {})
        place = self._places.get(destination)
        if place is None:
            return held
        alone = np.frombuffer(bytes(self._leads), np.uint8) == place
        filters = [self._shared.filter(number) for number in alone.nonzero()[0].tolist()]
        return {**dict(zip(filters, filters, strict=True)), **held}

    def owners(self, filter: Filter) -> Mapping[Destination, int]:
        """The destinations that have this filter, with how many entries each."""
        row = self.row(filter)
        return {} if row is None else row.owners

    def rows(self) -> Iterator[Row]:
        yield from self.held.values()

    @property
    def destinations(self) -> list[Destination]:
        return list(dict.fromkeys([*self._entries, *self._places]))

    def size(self, destination: Destination) -> int:
        """The number of entries of a destination."""
        alone = self._sizes[self._places.get(destination, _NOBODY)]
        return alone + len(self._entries.get(destination, ()))

    def count(self, kind: type[Neighbor] | type[Local]) -> int:
        """The number of entries of neighbors, or of clients."""
        return sum(self.size(d) for d in self.destinations if isinstance(d, kind))

    def __len__(self) -> int:
        return self._count


class _Held(Mapping[Filter, Row]):
    """The rows of a table; those for which a byte stands are made when asked for."""

    __slots__ = ("_table",)

    def __init__(self, table: SharedTable) -> None:
        self._table = table

    def __getitem__(self, filter: Filter) -> Row:
        row = self._table.row(filter)
        if row is None:
            raise KeyError(filter)
        return row

    def get(self, filter: Any, default: Any = None) -> Any:
        return self._table.row(filter) or default

    def __iter__(self) -> Iterator[Filter]:
        return iter(self._table.filters())

    def __len__(self) -> int:
        return len(self._table.filters())


def _note(found: dict[Destination, list[int]], destination: Destination, index: int) -> None:
    """An event goes there, perhaps by several filters; the events come in order."""
    indexes = found.get(destination)
    if indexes is None:
        found[destination] = [index]
    elif indexes[-1] != index:
        indexes.append(index)
