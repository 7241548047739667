"""What one subscription, and one withdrawal, costs a broker that holds many.

Two brokers and the clients of one of them, a hundred filters each. Subscriptions and withdrawals
alternate, so that the number of filters stays. What is timed is the whole path: the client, the
words that it sends, the core that checks, routes and answers, the words between the brokers, and
the neighbor's core. The two routers are timed by themselves as well, with the same filters: their
tables with the index, the reducer, and the update that they exchange. Filters are read from their
texts before, and simulated brokers need not print them.

The times are processor time, because others use the machine, too. Python's garbage collector now
and then visits everything that is held; it is timed apart, and the largest times are usually its.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from time import process_time, process_time_ns
from types import TracebackType
from typing import Any, Protocol

from measure.clock import spread
from measure.updates import fresh_filters
from stentor.filters import Filter
from stentor.routing import BrokerId, FilterId, TreeRouter, tree_router
from stentor.simulation import Client
from stentor.simulation.host import Host
from workloads import stock

FILTERS_PER_CLIENT = 100
BROKER, NEIGHBOR = 1, 2


def measure_changes(routing: str, filters: int, changes: int) -> dict[str, Any]:
    """One strategy, one number of filters held."""
    for kind in (_Network, _Routers):  # compiles the kernels
        _replace_each(kind(routing, fresh_filters(256)), fresh_filters(16))
    wanted = [Filter(text) for text in stock(filters, 0).texts()]
    fresh = fresh_filters(changes)
    gc.collect()
    before = process_time()
    network = _Network(routing, wanted)
    loading = process_time() - before
    messages = network.messages
    with _Collections() as collections:
        subscribing, withdrawing = _replace_each(network, fresh, lambda: collections.nanoseconds)
    routed, unrouted = _replace_each(_Routers(routing, wanted), fresh)
    return {
        "routing": routing,
        "filters": filters,
        "load_s": loading,
        "announced": network.announced,
        "messages": (network.messages - messages) / (2 * changes),
        "subscribe": _summary(subscribing, routed),
        "unsubscribe": _summary(withdrawing, unrouted),
    }


class _Holder(Protocol):
    """What holds filters at one broker, and tells its neighbor of them."""

    held: list[Any]

    def add(self, place: int, filter: Filter) -> Any:
        """Hold one more; what `remove` takes."""

    def remove(self, held: Any) -> None: ...


class _Network:
    """A broker whose clients hold filters, and its neighbor."""

    def __init__(self, routing: str, filters: list[Filter]) -> None:
        routers: dict[BrokerId, TreeRouter] = {
            id: tree_router(id, routing) for id in (BROKER, NEIGHBOR)
        }
        self._net = Host(routers, [(BROKER, NEIGHBOR)], record=False)
        self._clients = [self._net.client(at=BROKER) for _ in filters[::FILTERS_PER_CLIENT]]
        self.held = [self.add(place, filter) for place, filter in enumerate(filters)]

    @property
    def messages(self) -> int:
        return self._net.counters.subscriptions

    @property
    def announced(self) -> int:
        """How many filters the neighbor knows."""
        return self._net.table_sizes()[NEIGHBOR].remote

    def add(self, place: int, filter: Filter) -> tuple[Client, FilterId]:
        client = self._clients[place % len(self._clients)]
        id = client.subscribe(filter)
        self._net.settle()
        return client, id

    def remove(self, held: tuple[Client, FilterId]) -> None:
        client, id = held
        client.unsubscribe(id)
        self._net.settle()


class _Routers:
    """The routers of both, without anything around them."""

    def __init__(self, routing: str, filters: list[Filter]) -> None:
        self._routers = {id: tree_router(id, routing) for id in (BROKER, NEIGHBOR)}
        self._last = 0
        self._clients = len(filters[::FILTERS_PER_CLIENT])
        self._carry(BROKER, self._routers[BROKER].link_up(NEIGHBOR))
        self._carry(NEIGHBOR, self._routers[NEIGHBOR].link_up(BROKER))
        self.held = [self.add(place, filter) for place, filter in enumerate(filters)]

    def add(self, place: int, filter: Filter) -> FilterId:
        self._last += 1
        id = FilterId(f"c{place % self._clients}", self._last)
        self._carry(BROKER, self._routers[BROKER].subscribe(id, filter))
        return id

    def remove(self, held: FilterId) -> None:
        self._carry(BROKER, self._routers[BROKER].withdraw([held], []))

    def _carry(self, sender: int, outputs: Any) -> None:
        """To the other router, until there is nothing to be done."""
        for output in outputs:
            self._carry(output.to, self._routers[output.to].receive(sender, output.message))
        while self._routers[sender].has_work:
            self._carry(sender, self._routers[sender].work())


def _replace_each(
    holder: _Holder, filters: list[Filter], collecting: Callable[[], int] = int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Add each and remove another one; the time of each, and the collector's."""
    r = random.Random(9)
    adding, removing = [], []
    for filter in filters:
        place = r.randrange(len(holder.held))
        start, collected = process_time_ns(), collecting()
        new = holder.add(place, filter)
        adding.append((process_time_ns() - start, collecting() - collected))
        start, collected = process_time_ns(), collecting()
        holder.remove(holder.held[place])
        removing.append((process_time_ns() - start, collecting() - collected))
        holder.held[place] = new
    return adding, removing


class _Collections:
    """How long the garbage collector has run."""

    def __init__(self) -> None:
        self.nanoseconds = 0
        self._since = 0

    def __enter__(self) -> _Collections:
        gc.callbacks.append(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._since = process_time_ns()
        else:
            self.nanoseconds += process_time_ns() - self._since


def _summary(times: list[tuple[int, int]], routing: list[tuple[int, int]]) -> dict[str, Any]:
    """All of it, the routers alone, the longest time and the share of the collector."""
    whole = [total for total, _ in times]
    return spread(whole) | {
        "routers_us": sum(total for total, _ in routing) / len(routing) / 1e3,
        "max_uncollected_us": max(total - collector for total, collector in times) / 1e3,
        "collector_share": sum(collector for _, collector in times) / sum(whole),
    }
