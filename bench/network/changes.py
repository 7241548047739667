"""What one subscription, and one withdrawal, costs a broker that holds many.

Two brokers and the clients of one of them, a hundred filters each. Subscriptions and withdrawals
alternate, so that the number of filters stays. What is timed is the whole path: the client, its
delivery gate with its index, the routing table with its index, the reducer, the message, and the
same once more at the neighbor. Text is parsed before.

The times are processor time, because others use the machine, too. Python's garbage collector now
and then visits everything that is held; it is timed apart, and the largest times are usually its.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from time import process_time, process_time_ns
from types import TracebackType
from typing import Any

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
    _Held(routing, fresh_filters(256)).replace_each(fresh_filters(16))  # compiles the kernels
    wanted = [Filter(text) for text in stock(filters, 0).texts()]
    fresh = fresh_filters(changes)
    gc.collect()
    before = process_time()
    held = _Held(routing, wanted)
    loading = process_time() - before
    messages = held.net.counters.subscriptions
    with _Collections() as collections:
        subscribing, withdrawing = held.replace_each(fresh, lambda: collections.nanoseconds)
    return {
        "routing": routing,
        "filters": filters,
        "load_s": loading,
        "announced": held.net.table_sizes()[NEIGHBOR].remote,
        "messages": (held.net.counters.subscriptions - messages) / (2 * changes),
        "subscribe": _summary(subscribing),
        "unsubscribe": _summary(withdrawing),
    }


class _Held:
    """A broker whose clients hold filters, and its neighbor."""

    def __init__(self, routing: str, filters: list[Filter]) -> None:
        routers: dict[BrokerId, TreeRouter] = {
            id: tree_router(id, routing) for id in (BROKER, NEIGHBOR)
        }
        self.net = Host(routers, [(BROKER, NEIGHBOR)], record=False)
        clients = [self.net.client(at=BROKER) for _ in filters[::FILTERS_PER_CLIENT]]
        self._held: list[tuple[Client, FilterId]] = []
        for number, filter in enumerate(filters):
            client = clients[number % len(clients)]
            self._held.append((client, client.subscribe(filter)))
            self.net.settle()

    def replace_each(
        self, filters: list[Filter], collecting: Callable[[], int] = int
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Subscribe to each and withdraw another one; the time of each, and the collector's."""
        r = random.Random(9)
        subscribing, withdrawing = [], []
        for filter in filters:
            place = r.randrange(len(self._held))
            client, old = self._held[place]
            start, collected = process_time_ns(), collecting()
            new = client.subscribe(filter)
            self.net.settle()
            subscribing.append((process_time_ns() - start, collecting() - collected))
            start, collected = process_time_ns(), collecting()
            client.unsubscribe(old)
            self.net.settle()
            withdrawing.append((process_time_ns() - start, collecting() - collected))
            self._held[place] = client, new
        return subscribing, withdrawing


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


def _summary(times: list[tuple[int, int]]) -> dict[str, Any]:
    """All of it, and the longest time and the share of the collector."""
    whole = [total for total, _ in times]
    return spread(whole) | {
        "max_uncollected_us": max(total - collector for total, collector in times) / 1e3,
        "collector_share": sum(collector for _, collector in times) / sum(whole),
    }
