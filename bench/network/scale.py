"""How large a network the simulator can run: brokers in a binary tree, a stock filter per client.

Clients are at random brokers. All subscribe, the network comes to rest, and the quotes are
published in rounds by random clients. A message is a filter that a broker is told, or a
notification that a broker or a client is given. Times are those of the processor: on a shared
machine the clock on the wall measures the others as well.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
from time import perf_counter, process_time
from typing import Any, Final

from measure.throughput import WrongAnswer
from progress import progress
from stentor.filters import Filter
from stentor.simulation import Network
from workloads import stock
from workloads.base import text_of
from workloads.stock import EVENTS_DRAWN

#: Publications after which the network comes to rest.
ROUND: Final = 100000


def measure_scale(
    brokers: int, clients: int, publications: int, *, check: bool = True
) -> dict[str, Any]:
    """One run; without `check` nothing is recorded or kept, which takes memory, nor judged."""
    gc.set_threshold(2_000, 1, 250_000)  # as brokers have it: what is held is hardly ever visited
    _warm_up()
    r = random.Random(1)
    started = perf_counter()
    drawn = max(publications, EVENTS_DRAWN)
    quotes = stock(clients, publications, drawn=drawn)
    filters = [Filter(text_of(constraints)) for constraints in quotes.constraints]
    before = peak_mb()

    began = process_time()
    net = Network.tree([(child // 2, child) for child in range(2, brokers + 1)], record=check)
    members = [net.client(at=r.randint(1, brokers)) for _ in range(clients)]
    made_s = process_time() - began

    began = process_time()
    with net.together():
        for client, filter in zip(members, filters, strict=True):
            client.subscribe(filter)
    net.settle()
    subscribed_s = process_time() - began
    entries = sum(size.remote for size in net.table_sizes().values())
    subscribed_mb = peak_mb()
    progress(f"subscribed: {subscribed_s:.1f} s, {entries:,} entries, {subscribed_mb:,.0f} MB")

    began = process_time()
    for start in range(0, publications, ROUND):
        with net.together():
            for event in quotes.events[start : start + ROUND]:
                r.choice(members).publish(event)
        net.settle()
        if not check:
            for client in members:
                client.received.clear()
    published_s = process_time() - began
    messages = net.counters.notifications + net.counters.delivered
    progress(f"published: {published_s:.1f} s, {messages:,} messages, {peak_mb():,.0f} MB")

    began = process_time()
    if check:
        report = net.check(order=("fifo",))
        if not report.ok:
            raise WrongAnswer(str(report))
    return {
        "brokers": brokers,
        "clients": clients,
        "publications": publications,
        "made_s": made_s,
        "subscribed_s": subscribed_s,
        "entries": entries,
        "entry_us": 1e6 * subscribed_s / max(1, entries),
        "published_s": published_s,
        "messages": messages,
        "message_us": 1e6 * published_s / max(1, messages),
        "subscribed_mb": subscribed_mb - before,
        "peak_mb": peak_mb(),
        "checked_s": process_time() - began if check else None,
        "seconds": perf_counter() - started,
    }


def _warm_up() -> None:
    """Let kernels be compiled, or read from their cache, before anything is measured."""
    quotes = stock(500, 500)
    net = Network.tree([(1, 2)])
    client = net.client(at=2)
    for constraints in quotes.constraints:
        client.subscribe(text_of(constraints))
    net.settle()
    for event in quotes.events[:50]:
        client.publish(event)
    with net.together():
        for event in quotes.events[50:]:
            client.publish(event)


def peak_mb() -> float:
    """The most memory that this process ever had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)
