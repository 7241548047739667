"""A layer: who asks for what, and what is announced to whom.

Subscriptions are one layer of a broker and advertisements are another; both are the same machine
with a strategy each (R-03.25). A layer has three stages:

    what a destination asks for ──► merged (if the strategy merges) ──► demand ──► reducer
                                         └─► routing table

The *demand* says, for each filter, which destinations ask for it: that is in the routing table,
unless filters are merged, or subscriptions to equal ones kept apart. A filter is wanted at a
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
from typing import Any, Final

from stentor.filters import Filter
from stentor.filters.effort import effort, spend
from stentor.matching import Commons, Matcher
from stentor.routing.protocol import BrokerId, FilterId
from stentor.routing.reducers import Change, MergingStage, Sample
from stentor.routing.reducers.slots import REFERENCE
from stentor.routing.shared_table import SharedTable
from stentor.routing.strategy import Strategy
from stentor.routing.table import Destination, Ghost, Local, Neighbor, RoutingTable, Row
from stentor.routing.tree.steering import Steering

#: Filters that a new neighbor is told in one step.
TOLD_AT_ONCE: Final = 200
#: Elementary steps (see `effort`) after which no more filters are steered in one step, and how many
#: it takes at least to announce one or hide it.
STEERED: Final = 10_000
ANNOUNCING: Final = 50


class Layer:
    """Filters of clients and neighbors, and what the neighbors are told of them."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        sample: Sample | None = None,
        engine: Callable[[], Matcher[Any]] | None = None,
        commons: Commons | None = None,
        on_entry: Callable[[Destination, Row], None] | None = None,
        at_once: int | None = None,
    ) -> None:
        """`on_entry` is told of each entry of the table that has come or gone, and of its row.

        With `commons`, filters are searched together with those of others.
        With `at_once`, no step looks at more filters anew, and `work` does the rest.
        """
        self.strategy = strategy
        self.table = RoutingTable(engine) if commons is None else SharedTable(commons.index)
        self._on_entry = on_entry
        self._sample = sample or Sample(strategy.sample)
        self._stages: dict[Destination, MergingStage] = {}
        #: Whether the routing table says who asks for what.
        self._tabled = strategy.name in ("identity", "covering")
        self._floods = strategy.floods
        self._merges = strategy.name == "merging"
        self._demand: Any = self.table.held if self._tabled else {}
        #: What neighbors asked for that are gone, and whose interest lingers.
        self._lingering: dict[Ghost, dict[Hashable, Filter]] = {}
        self._reducer = strategy.reducer(at_once, None if commons is None else commons.relations)
        self._at_once = at_once
        #: What new neighbors have not been told, of what was asked for when they came.
        self._joining: dict[BrokerId, deque[Hashable]] = {}
        self._slots: dict[BrokerId, int] = {}
        #: Neighbors that are told of this layer, as a mask.
        self._told = 0
        #: Demand that has changed in this step; the reducer hears of it at the end.
        self._changed: dict[Hashable, Row] = {}
        #: For subscriptions where advertisements count; and a neighbor that is asked whatever it
        #: offers.
        self._steering: Steering | None = None
        self._always: Callable[[BrokerId], bool] = lambda neighbor: False

    def watch(self, on_entry: Callable[[Destination, Row], None]) -> None:
        """From now on tell of each entry of the table that has come or gone, and of its row."""
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
            first = self._reducer.announced(0)
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
        wanted = [(key, d.filter, self._wanted(key, d)) for key, d in asked if d is not None]
        done = self._reducer.fill_slot(self._slots[neighbor], wanted)
        keys.extendleft(key for key, *_ in reversed(wanted[done:]))
        if not keys:
            del self._joining[neighbor]

    def forget_neighbor(self, neighbor: BrokerId) -> None:
        """Forget what the neighbor was told."""
        self._flush()
        self._joining.pop(neighbor, None)
        slot = self._slots.pop(neighbor)
        self._told &= ~(1 << slot)
        self._reducer.drop_slot(slot)
        if self._steering is not None:
            self._steering.forget_neighbor(neighbor)

    # -- changes

    def insert(
        self, destination: Destination, key: Hashable, filter: Filter, *, merge: bool = True
    ) -> None:
        """The destination asks for what the filter matches; if the key is new to it."""
        if self._merges:
            if not self.holds(destination, key):
                if isinstance(destination, Local):
                    self._enter(destination, key, filter)
                stage = self._stage(destination)
                self._apply(destination, *stage.add(filter, merge=merge))
            return
        row = self._enter(destination, key, filter)
        if row is None:
            return
        if self._tabled:
            self._asked_more(self._demand_key(key, filter), row)
        else:
            self._own(destination, self._demand_key(key, filter), filter)

    def delete(self, destination: Destination, key: Hashable) -> None:
        """It no longer does; if it never did, nothing changes."""
        if not self.holds(destination, key):
            return
        stage = self._stages.get(destination)
        if stage is not None and isinstance(destination, Neighbor):
            assert isinstance(key, Filter)
            filter = key
        else:
            filter = self._cancel(destination, key)
        if stage is None:
            self._disown(destination, self._demand_key(key, filter), filter)
        else:
            self._apply(destination, *stage.remove(filter))
            if not stage:
                del self._stages[destination]

    def holds(self, destination: Destination, key: Hashable) -> bool:
        """Whether the destination asks for what it knows by this key."""
        if self._merges and isinstance(destination, Neighbor):
            return destination in self._stages and key in self._stages[destination]
        return (destination, key) in self.table

    def clear(self, neighbor: Neighbor, most: int | None = None) -> None:
        """The neighbor asks for nothing any more; only so many filters go, if there are more."""
        self._stages.pop(neighbor, None)
        for key, filter in list(islice(self.table.at(neighbor).items(), most)):
            self._cancel(neighbor, key)
            self._disown(neighbor, self._demand_key(key, filter), filter)

    def asked(self, destination: Destination) -> list[tuple[Hashable, Filter]]:
        """What the destination asks for, as it said it."""
        stage = self._stages.get(destination)
        if stage is not None and isinstance(destination, Neighbor):
            return [(part, part) for part in stage.all_parts]
        return list(self.table.at(destination).items())

    def linger(self, neighbor: Neighbor, ghost: Ghost) -> None:
        """Nothing goes to the neighbor any more, but what it asked for stays announced."""
        self._stages.pop(neighbor, None)
        lingering = self._lingering[ghost] = {}
        for key, filter in list(self.table.at(neighbor).items()):
            lingering[self._demand_key(key, filter)] = filter
            self._cancel(neighbor, key)
            self._disown(neighbor, self._demand_key(key, filter), filter)

    def end_linger(self, ghost: Ghost) -> None:
        """What is asked for by nobody else is now withdrawn."""
        for key, filter in self._lingering.pop(ghost, {}).items():
            self._asked_less(key, self._demand.get(key) or Row(filter))

    def _demand_key(self, key: Hashable, filter: Filter) -> Hashable:
        return self.strategy.key(key, filter) if isinstance(key, FilterId) else key

    def _stage(self, destination: Destination) -> MergingStage:
        stage = self._stages.get(destination)
        if stage is None:
            of_client = isinstance(destination, Local)
            stage = self.strategy.stage(self._sample, of_client=of_client)
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
            self._disown(destination, filter, filter)

    def _enter(self, destination: Destination, key: Hashable, filter: Filter) -> Row | None:
        row = self.table.add(destination, key, filter)
        if row is not None and self._on_entry is not None:
            self._on_entry(destination, row)
        return row

    def _cancel(self, destination: Destination, key: Hashable) -> Filter:
        row = self.table.remove(destination, key)
        if self._on_entry is not None:
            self._on_entry(destination, row)
        return row.filter

    def _own(self, destination: Destination, key: Hashable, filter: Filter) -> None:
        """It asks for this, where the table does not say who asks for what."""
        demand = self._demand.get(key)
        if demand is None:
            demand = self._demand[key] = Row(filter)
        demand.own(destination)
        self._asked_more(key, demand)

    def _disown(self, destination: Destination, key: Hashable, filter: Filter) -> None:
        """In the table it is gone already, if that says who asks for what."""
        demand = self._demand.get(key) or Row(filter)
        if not self._tabled:
            demand.disown(destination)
            if not demand:
                del self._demand[key]
        self._asked_less(key, demand)

    def _asked_more(self, key: Hashable, demand: Row) -> None:
        if self._steering is not None:
            self._steering.ask(key, demand.filter)
        self._refresh(key, demand)

    def _asked_less(self, key: Hashable, demand: Row) -> None:
        if self._steering is not None and not demand and not self._lingers(key):
            self._steering.forget(key)
        self._refresh(key, demand)

    def _lingers(self, key: Hashable) -> bool:
        """Whether somebody asked for it who may come back."""
        return any(key in those for those in self._lingering.values())

    # -- what is wanted where

    def _refresh(self, key: Hashable, demand: Row) -> None:
        if not self._floods:
            self._changed[key] = demand

    def _flush(self) -> None:
        if self._changed:
            changed, self._changed = self._changed, {}
            self._reducer.want_all(
                (key, demand.filter, self._wanted(key, demand)) for key, demand in changed.items()
            )

    def _wanted(self, key: Hashable, demand: Row) -> int:
        """At which neighbors; with the reference, unless nobody but a sole neighbor asks."""
        lingers = bool(self._lingering) and self._lingers(key)
        owner = demand.sole
        if owner is None and not demand and not lingers:
            return 0
        wanted = self._told
        local = True
        if type(owner) is Neighbor and not lingers:
            local = False
            if owner.id in self._slots:
                wanted &= ~(1 << self._slots[owner.id])
        if self._steering is not None and wanted:
            wanted &= self._served(self._steering.served(key))
        return wanted | REFERENCE if wanted or local else 0

    def _served(self, served: Collection[BrokerId]) -> int:
        return sum(
            1 << slot
            for neighbor, slot in self._slots.items()
            if neighbor in served or self._always(neighbor)
        )

    def steer(self, steering: Steering, always: Callable[[BrokerId], bool]) -> None:
        """From now on a filter is wanted only where it is served, and at whom is `always` asked."""
        self._steering = steering
        self._always = always

    def steered(self) -> None:
        """Offers of neighbors have come or gone."""
        if self._at_once is None and self._steering is not None:
            self._steer(self._steering)

    @property
    def is_serving(self) -> bool:
        """Whether `work` has to go on before neighbors are asked for all that they offer."""
        return self._steering is not None and self._steering.is_serving

    def _steer(self, steering: Steering) -> None:
        """Decide anew where some of what is asked for is wanted; if nothing is said, all."""
        enough = effort.left - STEERED
        while steering.has_work and (self._at_once is None or effort.left > enough):
            found = steering.look()
            if found is None:
                continue
            spend(ANNOUNCING)
            neighbor, key, filter = found
            demand = self._demand.get(key) or Row(filter)
            if self._at_once is None or neighbor not in steering.served(key):
                self._refresh(key, demand)
            else:
                self._flush()
                wanted = [(key, filter, self._wanted(key, demand))]
                self._reducer.fill_slot(self._slots[neighbor], wanted)

    def take(self) -> list[tuple[BrokerId, Change]]:
        """What each neighbor is to be told now."""
        self._flush()
        changes = self._reducer.announcements.take()
        return [(n, changes[slot]) for n, slot in self._slots.items() if slot in changes]

    @property
    def has_work(self) -> bool:
        """Whether neighbors were not told enough, or more than they have to be."""
        steering = self._steering
        return (
            bool(self._joining)
            or self._reducer.has_work
            or (steering is not None and steering.has_work)
        )

    def work(self) -> None:
        """Do a part of what the changes have left to do."""
        if self._joining:
            self._go_on(next(iter(self._joining)))
        if self._steering is not None:
            self._steer(self._steering)
        self._reducer.work()

    def announced(self, neighbor: BrokerId) -> dict[Hashable, Filter]:
        """What the neighbor has been told."""
        self._flush()
        return self._reducer.announced(self._slots[neighbor])

    def wanted(self, neighbor: BrokerId) -> list[Filter]:
        """All that must be asked for at the neighbor (α of the remote invariant)."""
        bit = self.bit(neighbor)
        return [d.filter for key, d in self._demand.items() if self._wanted(key, d) & bit]

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is held."""
        self._flush()
        return not (len(self.table) or self._demand or self._stages or len(self._reducer))
