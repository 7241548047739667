"""Stock quotes: the workload that the engines are compared by.

Symbols are Zipf-distributed (s = 0.8) over 5,000; half the subscriptions are symbol + price band,
the rest mix sector, exchange, volume, change and symbol prefixes. All random numbers come from one
generator in a fixed order, so that the number of matches is known: see `KNOWN_MATCHES`.
"""

from __future__ import annotations

import random
from typing import Final

from workloads.base import Constraints, Workload

SEED: Final = 7
#: Events whose symbols are drawn; the totals hold for this many.
EVENTS_DRAWN: Final = 100_000
#: Events that the totals count: the first of those drawn.
EVENTS_USED: Final = 20_000
#: Matches of the first 20,000 events by number of filters.
KNOWN_MATCHES: Final = {
    1_000: 10_535,
    10_000: 97_791,
    100_000: 1_029_504,
    1_000_000: 9_813_380,
}

SYMBOLS: Final = [
    f"{chr(65 + i % 26)}{chr(65 + i // 26 % 26)}{chr(65 + i // 676 % 26)}{i % 10}"
    for i in range(5000)
]
WEIGHTS: Final = [1 / (i + 1) ** 0.8 for i in range(len(SYMBOLS))]
EXCHANGES: Final = ["NYSE", "NASDAQ", "LSE", "XETRA", "TSE", "HKEX", "SIX", "BME"]
SECTORS: Final = [f"sector{i}" for i in range(24)]


def stock(
    filters: int, events: int = EVENTS_USED, *, seed: int = SEED, drawn: int = EVENTS_DRAWN
) -> Workload:
    """The first `events` of `drawn` events, after `filters` subscriptions."""
    if events > drawn:
        raise ValueError(f"only {drawn} events are drawn, and {events} are wanted")
    r = random.Random(seed)
    sector = {s: SECTORS[i % 24] for i, s in enumerate(SYMBOLS)}
    base = {s: 5 * 10 ** (r.random() * 2) for s in SYMBOLS}
    subscriptions = [
        _constraints(r, symbol, base[symbol]) for symbol in r.choices(SYMBOLS, WEIGHTS, k=filters)
    ]
    quotes = [
        {
            "type": "quote",
            "symbol": s,
            "exchange": r.choice(EXCHANGES),
            "sector": sector[s],
            "price": round(base[s] * r.uniform(0.7, 1.3), 2),
            "volume": r.randrange(100, 100000),
            "change": round(r.uniform(-10, 10), 2),
            "currency": "USD",
            "ts": r.randrange(10**9),
        }
        for s in r.choices(SYMBOLS, WEIGHTS, k=drawn)[:events]
    ]
    return Workload("stock", "stock quotes, Zipf-distributed symbols", subscriptions, quotes)


def _constraints(r: random.Random, symbol: str, base: float) -> Constraints:
    kind = r.random()
    if kind < 0.5:
        low = round(base * r.uniform(0.7, 1.2), 2)
        return [
            ["symbol", "=", symbol],
            ["price", ">=", low],
            ["price", "<=", round(low * 1.05, 2)],
        ]
    if kind < 0.7:
        return [["symbol", "=", symbol], ["volume", ">", r.randrange(50000, 100000)]]
    if kind < 0.85:
        return [
            ["sector", "=", r.choice(SECTORS)],
            ["exchange", "=", r.choice(EXCHANGES)],
            ["change", ">", round(r.uniform(4, 9.9), 2)],
        ]
    if kind < 0.95:
        return [
            ["symbol", "prefix", symbol[:2]],
            ["exchange", "=", r.choice(EXCHANGES)],
            ["volume", ">", r.randrange(90000, 100000)],
        ]
    return [
        ["exchange", "=", r.choice(EXCHANGES)],
        ["price", ">", round(r.uniform(450, 700), 2)],
        ["change", "<", round(-r.uniform(5, 9.9), 2)],
    ]
