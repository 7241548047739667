"""What is published, and the filters of those who do not get any of it.

An event is small: a symbol, a price and a volume. The filters of others are about the same symbols
and attributes, so that a broker has to look at them: alerts that wait for a price or a volume that
never comes. What is measured is thus the price of holding filters, not that of further deliveries.
"""

from __future__ import annotations

import random
from typing import Any, Final

SYMBOLS: Final = [f"{chr(65 + i % 26)}{chr(65 + i // 26)}{i % 10}" for i in range(26 * 26)]
#: Prices and volumes stay below these.
MAX_PRICE: Final = 500.0
MAX_VOLUME: Final = 100_000

#: Matches every event, by content.
EVERYTHING: Final = "price > 0"


def events(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Quotes.

    >>> events(1)
    [{'symbol': 'HF7', 'price': 286.76, 'volume': 8371}]
    """
    r = random.Random(seed)
    return [
        {
            "symbol": r.choice(SYMBOLS),
            "price": round(r.uniform(5, MAX_PRICE), 2),
            "volume": r.randrange(100, MAX_VOLUME),
        }
        for _ in range(count)
    ]


def alerts(count: int, seed: int = 2) -> list[str]:
    """Filters that no event matches."""
    r = random.Random(seed)
    return [_alert(r, r.choice(SYMBOLS)) for _ in range(count)]


def _alert(r: random.Random, symbol: str) -> str:
    price = round(MAX_PRICE * r.uniform(1.1, 3), 2)
    kind = r.random()
    if kind < 0.5:
        return f"symbol = '{symbol}' and price between {price} and {round(1.05 * price, 2)}"
    if kind < 0.8:
        return f"symbol = '{symbol}' and volume > {MAX_VOLUME + r.randrange(MAX_VOLUME)}"
    return f"symbol prefix '{symbol[:2]}' and price > {price} and volume > {r.randrange(50_000)}"
