"""What a broker does with every notification, without the broker: decode it and find its targets.

    python bench/hot_path.py

Small events (three attributes, an id and a time, about 75 bytes) in batches as they come off a
connection, on one core. The processor time of this process is taken, in turns, and the best turn
counts. All figures are microseconds for one event, or for one call where the title says so.
"""

# ruff: noqa: E402

from __future__ import annotations

from onecore import use_one_core

use_one_core()

import gc
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import process_time
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid

from stentor.filters import Filter
from stentor.matching import Index
from stentor.model import (
    IdSource,
    Notification,
    decode_headers,
    decode_many,
    encode_batch,
)
from stentor.routing import FilterId, Strategy, TreeRouter
from workloads import stock

EVENTS: Final = 2_000
SYMBOLS: Final = 5_000
TURNS: Final = 15
BATCHES: Final = (500, 100, 10, 1)

Best = dict[str, float]


def main() -> None:
    console = Console()
    with console.status("measuring"):
        shown = [encoding(), routing(), single_matches(), changes()]
    for grid in shown:
        console.print(grid)


def attributes(rng: random.Random) -> dict[str, str | float]:
    return {
        "symbol": f"S{rng.randrange(SYMBOLS)}",
        "price": round(rng.uniform(1, 100), 2),
        "volume": rng.randrange(100_000),
    }


def small_events() -> list[bytes]:
    rng = random.Random(1)
    ids, now = IdSource("client", 1), datetime.now(UTC)
    ns = [Notification(attributes(rng), id=next(ids), time=now) for _ in range(EVENTS)]
    return encode_batch(ns)


def content_filters(count: int) -> list[Filter]:
    rng = random.Random(2)
    return [
        Filter(f"symbol = 'S{rng.randrange(SYMBOLS)}' and price > {rng.randrange(100)}")
        for _ in range(count)
    ]


def stock_events(quotes: list[dict[str, str | float]]) -> list[bytes]:
    ids, now = IdSource("client", 1), datetime.now(UTC)
    return encode_batch([Notification(quote, id=next(ids), time=now) for quote in quotes])


def settled(filters: list[Filter]) -> TreeRouter:
    """A router with a client for each filter, whose index has had the time to put itself right."""
    index: Index[object] = Index()
    router = TreeRouter("b", Strategy("simple"), engine=lambda: index)
    for number, filter in enumerate(filters):
        router.subscribe(FilterId(f"client-{number}", 1), filter)
    if len(filters) > 100:
        index.compact()
    return router


def race(contestants: Mapping[str, Callable[[], object]], turns: int = TURNS) -> Best:
    """The least processor time of each, in microseconds."""
    for run in contestants.values():
        run()
    gc.collect()
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(turns):
        for name, run in contestants.items():
            before = process_time()
            run()
            best[name] = min(best[name], (process_time() - before) * 1e6)
    return best


# -- what is measured


def encoding() -> Grid:
    rng = random.Random(1)
    plain = [attributes(rng) for _ in range(EVENTS)]
    ids, now = IdSource("client", 1), datetime.now(UTC)
    ns = [Notification(given, id=next(ids), time=now) for given in plain]
    items = encode_batch(ns)
    best = race(
        {
            "Notification(...)": lambda: [Notification(given) for given in plain],
            "with id and time": lambda: [
                Notification(given, id=next(ids), time=now) for given in plain
            ],
            "encode_batch": lambda: encode_batch(ns),
            "decode_headers": lambda: decode_headers(items),
            "decode_many": lambda: decode_many(items),
        }
    )
    grid = titled("One event", ["", "µs"])
    for name, time in best.items():
        grid.add_row(name, f"{time / EVENTS:.2f}")
    return grid


def routing() -> Grid:
    small = small_events()
    quotes = stock(10_000, EVENTS)
    stock_filters = [Filter(text) for text in quotes.texts()]
    cases: dict[str, tuple[list[Filter], list[bytes]]] = {
        "1 filter": (content_filters(1), small),
        "8 filters": (content_filters(8), small),
        "100 filters": (content_filters(100), small),
        "1,000 filters": (content_filters(1_000), small),
        "10,000 filters": (content_filters(10_000), small),
        "10,000 of stocks": (stock_filters, small),
        "the same, stock quotes": (stock_filters, stock_events(quotes.events)),
    }
    grid = titled(
        "Decode and route, by the size of batches",
        ["", *(f"{size:,}" for size in BATCHES), "of it decoding"],
    )
    for name, (filters, items) in cases.items():
        router = settled(filters)
        events = EVENTS
        runs = {str(size): routed(router, items, size) for size in BATCHES}
        runs["decoding"] = decoded(items, BATCHES[0])
        best = race(runs)
        grid.add_row(name, *(f"{time / events:.2f}" for time in best.values()))
    return grid


def routed(router: TreeRouter, items: list[bytes], size: int) -> Callable[[], None]:
    def run() -> None:
        for first in range(0, len(items), size):
            router.route(decode_headers(items[first : first + size]), None)

    return run


def decoded(items: list[bytes], size: int) -> Callable[[], None]:
    def run() -> None:
        for first in range(0, len(items), size):
            decode_headers(items[first : first + size])

    return run


def single_matches() -> Grid:
    envelopes = decode_headers(small_events())[:200]
    grid = titled("Index.match of one event", ["filters", "just added", "compiled"])
    for count in (1, 10, 1_000, 10_000):
        filters = content_filters(count)
        recent = Index(enumerate(filters))
        compiled = Index(enumerate(filters))
        compiled.compact()
        for _ in range(50):  # what is just added is compiled as soon as that pays
            for envelope in envelopes:
                recent.match(envelope)
        recent.settle()
        best = race(
            {
                "recent": lambda recent=recent: [recent.match(e) for e in envelopes],  # type: ignore[misc]
                "compiled": lambda compiled=compiled: [compiled.match(e) for e in envelopes],  # type: ignore[misc]
            }
        )
        grid.add_row(f"{count:,}", *(f"{time / len(envelopes):.1f}" for time in best.values()))
    return grid


def changes() -> Grid:
    """Filters come one by one, with matching in between: the cost must not grow with them."""
    count, portion = 20_000, 5_000
    filters = content_filters(count)
    envelopes = decode_headers(small_events())[:20]
    grid = titled(
        "An addition and a match, by the filters held",
        ["match of", *(f"{first:,}–{first + portion:,}" for first in range(0, count, portion))],
    )
    for size in (1, len(envelopes)):
        index: Index[int] = Index()
        times: list[str] = []
        before = process_time()
        for number, filter in enumerate(filters):
            index.add(number, filter)
            index.match_by_key(envelopes[:size])
            if (number + 1) % portion == 0:
                times.append(f"{(process_time() - before) * 1e6 / portion:.0f}")
                before = process_time()
        index.settle()
        grid.add_row(f"{size:,}", *times)
    return grid


def titled(title: str, header: list[str]) -> Grid:
    grid = Grid(title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold")
    for place, name in enumerate(header):
        grid.add_column(name, justify="right" if place else "left")
    return grid


if __name__ == "__main__":
    main()
