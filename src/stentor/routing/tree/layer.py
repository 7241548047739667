"""A layer: who asks for what, and what is announced to whom.

Subscriptions are one layer of a broker and advertisements are another; both are the same machine
with a strategy each (R-03.25). A layer has three stages:

    what a destination asks for ──► merged (if the strategy merges) ──► demand ──► reducer
                                         └─► routing table

The *demand* counts, for each filter, the destinations that ask for it. A filter is wanted at a
neighbor if a destination other than this neighbor asks for it, if the layer announces to this
neighbor at all (in a hierarchy only the parent is told), and, for subscriptions where
advertisements are in use, if an advertisement from there overlaps it. The reducer turns that into
announcements. All of it is incremental, and `take` gives one change for each neighbor.

The routing table holds for a client exactly its own filters, for a neighbor what came from it,
merged. A change by one destination changes no entries but its own, and these depend on nothing
else (restricted change and restricted impact, R-03.15).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import count, islice
from typing import Any, Final, Protocol

from stentor.filters import Filter
from stentor.matching import FilterTable, Matcher
from stentor.routing.protocol import BrokerId, FilterId
from stentor.routing.reducers import Change, MergingStage, Sample
from stentor.routing.reducers.reducer import REFERENCE
from stentor.routing.strategy import Strategy
from stentor.routing.table import Destination, Ghost, Local, Neighbor, RoutingTable

#: Filters that a new neighbor is told in one step.
TOLD_AT_ONCE: Final = 200


class NeighborOffers(Protocol):
    """What neighbors offer."""

    def serving(self, filter: Filter) -> dict[BrokerId, Filter]:
        """The neighbors that offer something the filter overlaps, each with one such offer."""

    def another(self, filter: Filter, neighbor: BrokerId) -> Filter | None:
        """Some offer of this neighbor that the filter overlaps."""

    def always(self, neighbor: BrokerId) -> bool:
        """Whether the neighbor is asked whatever it offers."""


class _Demand:
    """A filter and the destinations that ask for it, with how often each does.

    Where offers count, it also knows the neighbors that serve it, each with one offer as witness.
    """

    __slots__ = ("filter", "number", "owners", "served")

    def __init__(self, filter: Filter, number: int) -> None:
        self.filter = filter
        self.number = number
        self.served: dict[BrokerId, Filter] | None = None
        self.owners: dict[Destination | Ghost, int] = {}


class Layer:
    """Filters of clients and neighbors, and what the neighbors are told of them."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        sample: Sample | None = None,
        engine: Callable[[], Matcher[Any]] | None = None,
        on_entry: Callable[[Destination, Filter], None] | None = None,
        at_once: int | None = None,
    ) -> None:
        """`on_entry` is told of each entry of the table that has come or gone.

        With `at_once`, no step looks at more filters anew, and `work` does the rest.
        """
        self.strategy = strategy
        self.table = RoutingTable(engine)
        self._on_entry = on_entry
        self._sample = sample or Sample(strategy.sample)
        self._stages: dict[Destination, MergingStage] = {}
        self._demand: dict[Hashable, _Demand] = {}
        self._numbers = count()
        self._reducer = strategy.reducer(at_once)
        self._at_once = at_once
        #: What new neighbors have not been told, of what was asked for when they came.
        self._joining: dict[BrokerId, deque[Hashable]] = {}
        self._slots: dict[BrokerId, int] = {}
        #: Neighbors that are told of this layer, as a mask.
        self._told = 0
        #: Demand that has changed in this step; the reducer hears of it at the end.
        self._changed: dict[Hashable, _Demand] = {}
        #: For subscriptions where advertisements count.
        self._offers: NeighborOffers | None = None
        self._overlaps: FilterTable[Hashable] | None = None

    def watch(self, on_entry: Callable[[Destination, Filter], None]) -> None:
        """From now on tell of each entry of the table that has come or gone."""
        self._on_entry = on_entry

    # -- neighbors

    @property
    def neighbors(self) -> Collection[BrokerId]:
        return self._slots.keys()

    def bit(self, neighbor: BrokerId) -> int:
        return 1 << self._slots[neighbor]

    def add_neighbor(self, neighbor: BrokerId, *, told: bool) -> None:
        """A neighbor with which nothing has been exchanged yet.

        With `at_once`, `work` goes on telling it what is asked for until it no longer `is_joining`.
        """
        used = set(self._slots.values())
        slot = self._slots[neighbor] = next(s for s in count(1) if s not in used)
        if told and not self.strategy.floods:
            self._flush()
            self._told |= 1 << slot
            # What nothing covers comes first, so that what it covers finds it announced.
            first = self._reducer.announcements.announced(0)
            keys = deque(key for key in first if key in self._demand)
            keys.extend(key for key in self._demand if key not in first)
            self._joining[neighbor] = keys
            self._go_on(neighbor)

    def is_joining(self, neighbor: BrokerId) -> bool:
        """Whether the neighbor has not been told all that is asked for."""
        return neighbor in self._joining

    def _go_on(self, neighbor: BrokerId) -> None:
        """Tell a new neighbor more of what is asked for."""
        self._flush()
        keys = self._joining[neighbor]
        count = len(keys) if self._at_once is None else min(len(keys), TOLD_AT_ONCE)
        some = [keys.popleft() for _ in range(count)]
        asked = ((key, self._demand.get(key)) for key in some)
        wanted = [(key, d.filter, self._wanted(d)) for key, d in asked if d is not None]
        done = self._reducer.fill_slot(self._slots[neighbor], wanted)
        keys.extendleft(key for key, *_ in reversed(wanted[done:]))
        if not keys:
            del self._joining[neighbor]

    def drop_neighbor(self, neighbor: BrokerId) -> None:
        """The neighbor is gone: forget what it was told, and what it asked for."""
        self.forget_neighbor(neighbor)
        self.clear(Neighbor(neighbor))

    def forget_neighbor(self, neighbor: BrokerId) -> None:
        """Forget what the neighbor was told."""
        self._flush()
        self._joining.pop(neighbor, None)
        slot = self._slots.pop(neighbor)
        self._told &= ~(1 << slot)
        self._reducer.drop_slot(slot)
        if self._offers is not None:
            for demand in self._demand.values():
                if demand.served is not None:
                    demand.served.pop(neighbor, None)

    # -- changes

    def insert(
        self, destination: Destination, key: Hashable, filter: Filter, *, merge: bool = True
    ) -> None:
        """The destination asks for what the filter matches; the key is new to it."""
        stage = self._stage(destination)
        if stage is None:
            self._enter(destination, key, filter)
            self._own(destination, self._demand_key(key, filter), filter)
            return
        if isinstance(destination, Local):
            self._enter(destination, key, filter)
        self._apply(destination, *stage.add(filter, merge=merge))

    def delete(self, destination: Destination, key: Hashable) -> None:
        """It no longer does; if it never did, nothing changes."""
        if not self.holds(destination, key):
            return
        stage = self._stages.get(destination)
        if stage is not None and isinstance(destination, Neighbor):
            assert isinstance(key, Filter)
            filter = key
        else:
            filter = self.table.at(destination)[key]
            self._cancel(destination, key)
        if stage is None:
            self._disown(destination, self._demand_key(key, filter))
        else:
            self._apply(destination, *stage.remove(filter))
            if not stage:
                del self._stages[destination]

    def holds(self, destination: Destination, key: Hashable) -> bool:
        """Whether the destination asks for what it knows by this key."""
        if isinstance(destination, Neighbor) and self.strategy.name == "merging":
            return destination in self._stages and key in self._stages[destination]
        return key in self.table.at(destination)

    def clear(self, neighbor: Neighbor, most: int | None = None) -> None:
        """The neighbor asks for nothing any more; only so many filters go, if there are more."""
        self._stages.pop(neighbor, None)
        for key, filter in list(islice(self.table.at(neighbor).items(), most)):
            self._cancel(neighbor, key)
            self._disown(neighbor, self._demand_key(key, filter))

    def asked(self, destination: Destination) -> list[tuple[Hashable, Filter]]:
        """What the destination asks for, as it said it."""
        stage = self._stages.get(destination)
        if stage is not None and isinstance(destination, Neighbor):
            return [(part, part) for part in stage.all_parts]
        return list(self.table.at(destination).items())

    def linger(self, neighbor: Neighbor, ghost: Ghost) -> None:
        """Nothing goes to the neighbor any more, but what it asked for stays announced."""
        self._stages.pop(neighbor, None)
        for key, filter in list(self.table.at(neighbor).items()):
            self._cancel(neighbor, key)
            demand_key = self._demand_key(key, filter)
            demand = self._demand[demand_key]
            demand.owners[ghost] = demand.owners.pop(neighbor)
            self._refresh(demand_key, demand)

    def end_linger(self, ghost: Ghost) -> None:
        """What is asked for by nobody else is now withdrawn."""
        for key in [key for key, demand in self._demand.items() if ghost in demand.owners]:
            self._demand[key].owners[ghost] = 1
            self._disown(ghost, key)

    def _demand_key(self, key: Hashable, filter: Filter) -> Hashable:
        return self.strategy.key(key, filter) if isinstance(key, FilterId) else key

    def _stage(self, destination: Destination) -> MergingStage | None:
        stage = self._stages.get(destination)
        if stage is None:
            of_client = isinstance(destination, Local)
            stage = self.strategy.stage(self._sample, of_client=of_client)
            if stage is not None:
                self._stages[destination] = stage
        return stage

    def _apply(
        self, destination: Destination, added: Iterable[Filter], removed: Iterable[Filter]
    ) -> None:
        """New mergers before the old ones go, so that nothing is unasked for in between."""
        in_table = isinstance(destination, Neighbor)
        for filter in added:
            if in_table:
                self._enter(destination, filter, filter)
            self._own(destination, filter, filter)
        for filter in removed:
            if in_table:
                self._cancel(destination, filter)
            self._disown(destination, filter)

    def _enter(self, destination: Destination, key: Hashable, filter: Filter) -> None:
        self.table.add(destination, key, filter)
        if self._on_entry is not None:
            self._on_entry(destination, filter)

    def _cancel(self, destination: Destination, key: Hashable) -> None:
        row = self.table.remove(destination, key)
        if self._on_entry is not None:
            self._on_entry(destination, row.filter)

    def _own(self, destination: Destination, key: Hashable, filter: Filter) -> None:
        demand = self._demand.get(key)
        if demand is None:
            demand = self._demand[key] = _Demand(filter, next(self._numbers))
            if self._overlaps is not None:
                self._overlaps.add(key, filter)
        demand.owners[destination] = demand.owners.get(destination, 0) + 1
        self._refresh(key, demand)

    def _disown(self, destination: Destination | Ghost, key: Hashable) -> None:
        demand = self._demand[key]
        demand.owners[destination] -= 1
        if not demand.owners[destination]:
            del demand.owners[destination]
            if not demand.owners:
                del self._demand[key]
                if self._overlaps is not None:
                    self._overlaps.remove(key)
        self._refresh(key, demand)

    # -- what is wanted where

    def _refresh(self, key: Hashable, demand: _Demand) -> None:
        if not self.strategy.floods:
            self._changed[key] = demand

    def _flush(self) -> None:
        if self._changed:
            changed, self._changed = self._changed, {}
            self._reducer.want_all(
                (key, demand.filter, self._wanted(demand)) for key, demand in changed.items()
            )

    def _wanted(self, demand: _Demand) -> int:
        """At which neighbors; with the reference, unless nobody but a sole neighbor asks."""
        owners = demand.owners
        if not owners:
            return 0
        wanted = self._told
        local = True
        if len(owners) == 1:
            (owner,) = owners
            if isinstance(owner, Neighbor):
                local = False
                if owner.id in self._slots:
                    wanted &= ~(1 << self._slots[owner.id])
        if self._offers is not None and wanted:
            wanted &= self._served(demand, self._offers)
        return wanted | REFERENCE if wanted or local else 0

    def _served(self, demand: _Demand, offers: NeighborOffers) -> int:
        if demand.served is None:
            demand.served = offers.serving(demand.filter)
        return sum(
            1 << slot
            for neighbor, slot in self._slots.items()
            if neighbor in demand.served or offers.always(neighbor)
        )

    def serve(self, offers: NeighborOffers) -> None:
        """From now on a filter is wanted only where it is served; `offered` tells of changes."""
        self._offers = offers
        self._overlaps = FilterTable()

    def offered(self, neighbor: BrokerId, offer: Filter, *, there: bool) -> None:
        """An offer of the neighbor has come, or is gone.

        A filter that has another witness for this neighbor is not concerned.
        """
        assert self._overlaps is not None
        assert self._offers is not None
        keys = self._overlaps.overlapping(offer)
        for key in sorted(keys, key=lambda key: self._demand[key].number):
            demand = self._demand[key]
            served = demand.served
            if served is None:
                continue  # nobody has asked yet
            if there:
                if neighbor in served:
                    continue
                served[neighbor] = offer
            else:
                if served.get(neighbor) != offer:
                    continue
                other = self._offers.another(demand.filter, neighbor)
                if other is not None:
                    served[neighbor] = other
                    continue
                del served[neighbor]
            self._refresh(key, demand)

    def take(self) -> list[tuple[BrokerId, Change]]:
        """What each neighbor is to be told now."""
        self._flush()
        changes = self._reducer.announcements.take()
        return [(n, changes[slot]) for n, slot in self._slots.items() if slot in changes]

    @property
    def has_work(self) -> bool:
        """Whether neighbors were not told enough, or more than they have to be."""
        return bool(self._joining) or self._reducer.has_work

    def work(self) -> None:
        """Do a part of what the changes have left to do."""
        if self._joining:
            self._go_on(next(iter(self._joining)))
        self._reducer.work()

    def announced(self, neighbor: BrokerId) -> dict[Hashable, Filter]:
        """What the neighbor has been told."""
        self._flush()
        return dict(self._reducer.announcements.announced(self._slots[neighbor]))

    def wanted(self, neighbor: BrokerId) -> list[Filter]:
        """All that must be asked for at the neighbor (α of the remote invariant)."""
        bit = self.bit(neighbor)
        return [d.filter for d in self._demand.values() if self._wanted(d) & bit]

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is held."""
        self._flush()
        return not (len(self.table) or self._demand or self._stages or len(self._reducer))
