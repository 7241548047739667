"""Who publishes what, and who wants what.

Publishers and consumers know nothing of each other. Publishers say what happened at their exchange,
consumers what they are interested in, and neither says anything about channels or places.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Exchange:
    """A publisher of market data: its name, the broker it uses, and what is traded there."""

    name: str
    broker: str
    #: Symbol: sector and a usual price.
    traded: dict[str, tuple[str, float]]


@dataclass(frozen=True)
class Desk:
    """A consumer: its name, the brokers it may use, and the content it wants."""

    name: str
    brokers: tuple[str, ...]
    filter: str
    #: The broker keeps its place under its name while it is away.
    durable: bool = False
    #: It comes late and wants everything from the beginning.
    history: bool = False


EXCHANGES: Final = (
    Exchange(
        "NYSE",
        "newyork",
        {"IBM": ("tech", 240.0), "XOM": ("energy", 115.0), "JPM": ("bank", 260.0)},
    ),
    Exchange(
        "SIX",
        "zurich",
        {"NESN": ("food", 82.0), "UBSG": ("bank", 31.0), "LOGN": ("tech", 88.0)},
    ),
    Exchange(
        "XLIS",
        "lisbon",
        {"EDP": ("energy", 3.6), "GALP": ("energy", 15.2), "BCP": ("bank", 0.62)},
    ),
    Exchange(
        "BME",
        "madrid",
        {"SAN": ("bank", 5.9), "IBE": ("energy", 14.8), "IDR": ("tech", 24.5)},
    ),
)

DESKS: Final = (
    Desk("ibm", ("madrid",), "symbol = 'IBM' and price > 240"),
    Desk("movers", ("zurich",), "change < -2 or change > 2"),
    Desk("banks", ("newyork",), "sector = 'bank' and price < 50"),
    Desk("iberia", ("lisbon", "london"), "exchange in ('XLIS', 'BME')"),
    Desk("blocks", ("london",), "price * volume > 1500000", durable=True),
    Desk("audit", ("newyork",), "sector = 'energy' and change < 0", history=True),
)


class Prices:
    """What happens at an exchange: random, but the same with the same seed."""

    def __init__(self, exchange: Exchange, seed: int) -> None:
        self._exchange = exchange
        self._random = random.Random(f"{exchange.name} {seed}")
        self._last = {symbol: price for symbol, (_, price) in exchange.traded.items()}

    def next(self) -> dict[str, Any]:
        """One trade. A price never strays far from the usual one."""
        symbol = self._random.choice(list(self._last))
        sector, usual = self._exchange.traded[symbol]
        old = self._last[symbol]
        drawn = old * self._random.gauss(1.0, 0.009) + (usual - old) * 0.02
        new = self._last[symbol] = round(drawn, 4)
        return {
            "exchange": self._exchange.name,
            "symbol": symbol,
            "sector": sector,
            "price": new,
            "change": round(100 * (new / old - 1), 2),
            "volume": self._random.randrange(100, 10_000, 100),
        }
