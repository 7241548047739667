"""A short tour: who gets which event, and what a hundred thousand subscriptions cost.

Everything it prints is computed while it runs.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from stentor import Filter, Notification
from stentor.matching import Index

console = Console(highlight=False)

DESKS = {
    "blue chips": "symbol in ('IBM', 'SAP') and price >= 100",
    "tech Europe": "sector = 'tech' and exchange in ('XETRA', 'LSE', 'SIX')",
    "big movers": "change < -5 or change > 5",
    "block trades": "price * volume > 1000000",
    "auction watch": "exists auction.ends and symbol prefix 'S'",
    "everything": "true",
}
EVENTS: list[dict[str, Any]] = [
    {"symbol": "IBM", "sector": "tech", "exchange": "NYSE", "price": 120.5, "change": 0.4},
    {"symbol": "SAP", "sector": "tech", "exchange": "XETRA", "price": 98.0, "change": -6.1},
    {"symbol": "SIE", "sector": "industry", "price": 170.25, "volume": 9000},
    {"symbol": "SAP", "auction": {"ends": "22:17"}, "price": "on request"},
]


def who_gets_what() -> None:
    console.rule("[bold]Subscriptions by content")
    index: Index[str] = Index()
    for desk, text in DESKS.items():
        index.add(desk, Filter(text))
    table = Table("event", "delivered to")
    for event in EVENTS:
        receivers = index.match(Notification(event))
        words = ", ".join(f"{name}={value!r}" for name, value in Notification(event).items())
        table.add_row(words, ", ".join(sorted(receivers)))
    console.print(table)
    console.print("A missing attribute, or one of another type, satisfies no comparison.\n")


def what_filters_know() -> None:
    console.rule("[bold]What filters know about each other")
    table = Table("question", "answer")
    ibm, ibm_high = Filter("symbol = 'IBM'"), Filter("symbol = 'IBM' and price > 100")
    table.add_row(f"does [b]{ibm}[/b] cover [b]{ibm_high}[/b]?", str(ibm.covers(ibm_high)))
    low, high = Filter("price between 1 and 5"), Filter("price > 4 and price <= 9")
    table.add_row(f"[b]{low}[/b] merged with [b]{high}[/b]", str(low.merge(high)))
    below, above = Filter("price < 4"), Filter("price > 7")
    table.add_row(f"[b]{below}[/b] merged with [b]{above}[/b]", str(below.merge(above)))
    table.add_row(f"do [b]{below}[/b] and [b]{above}[/b] overlap?", str(below.overlaps(above)))
    ends = Filter("file like '%.tar.gz'")
    table.add_row(
        f"does [b]{ends}[/b] cover [b]file regex '^v[0-9]+\\.tar\\.gz$'[/b]?",
        str(ends.covers(Filter(r"file regex '^v[0-9]+\.tar\.gz$'"))),
    )
    table.add_row(
        "a JMS selector: [b]JMSType = 'car' AND weight > 2500[/b]",
        str(Filter.from_selector("JMSType = 'car' AND weight > 2500")),
    )
    table.add_row(
        'an EventBridge pattern: [b]{"detail": {"state": \\["running"]}}[/b]',
        str(
            Filter.from_pattern({"detail": {"state": ["running"]}}).matches(
                {"detail": {"state": "running"}}
            )
        )
        + " for {'detail': {'state': 'running'}}",
    )
    console.print(table)


def at_scale(filters: int = 100_000, events: int = 50_000) -> None:
    console.rule(f"[bold]{filters:,} subscriptions")
    rng = random.Random(7)
    symbols = [f"{a}{b}{c}" for a in "ABCDEFGHIJ" for b in "KLMNOPQRST" for c in range(20)]
    exchanges = ["NYSE", "NASDAQ", "LSE", "XETRA", "TSE", "HKEX", "SIX", "BME"]
    index: Index[int] = Index()
    started = time.perf_counter()
    with console.status("parsing and adding filters"):
        for number in range(filters):
            symbol, low = rng.choice(symbols), rng.uniform(1, 100)
            kind = rng.random()
            if kind < 0.6:
                text = f"symbol = '{symbol}' and price between {low:.2f} and {low * 1.05:.2f}"
            elif kind < 0.9:
                text = f"exchange = '{rng.choice(exchanges)}' and symbol prefix '{symbol[:2]}' " + (
                    f"and volume > {rng.randrange(90_000, 100_000)}"
                )
            else:
                text = f"price > {100 - low / 50:.2f} and volume < {rng.randrange(1_000)}"
            index.add(number, Filter(text))
        index.compact()
    loaded = time.perf_counter() - started
    batch = pa.record_batch(
        {
            "symbol": [rng.choice(symbols) for _ in range(events)],
            "exchange": [rng.choice(exchanges) for _ in range(events)],
            "price": [rng.uniform(1, 105) for _ in range(events)],
            "volume": [rng.randrange(100_000) for _ in range(events)],
        }
    )
    index.match_batch(batch.slice(0, 2_000))  # the kernels are compiled at their first use
    started = time.perf_counter()
    rows, _keys = index.match_batch(batch)
    matched = time.perf_counter() - started
    started = time.perf_counter()
    index.add(-1, Filter("symbol = 'AK0' and price > 50"))
    received = index.match({"symbol": "AK0", "price": 51})
    index.remove(-1)
    changed = time.perf_counter() - started
    console.print(f"loaded from text   {filters / loaded:12,.0f} filters/s")
    console.print(f"matched            {events / matched:12,.0f} events/s, {len(rows):,} matches")
    console.print(f"memory             {index.memory.total / filters:12,.0f} bytes per filter")
    console.print(
        f"one more, matched at once and removed again in {changed * 1e3:.1f} ms "
        f"({'seen' if -1 in received else 'NOT SEEN'})"
    )


def main() -> None:
    who_gets_what()
    what_filters_know()
    at_scale()


if __name__ == "__main__":
    main()
