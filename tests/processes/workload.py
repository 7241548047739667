"""The load of the tests: quotes, and filters on what they say."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from recorder import Publisher

SYMBOLS = ("IBM", "SAP", "ARM", "AMD", "XOM")

#: From narrow to everything.
FILTERS = (
    "symbol = 'IBM' and price > 100",
    "price < 60",
    "volume >= 500 or symbol = 'ARM'",
    "symbol in ('SAP', 'XOM') and not volume < 100",
    "",
)


def quote(rng: random.Random) -> dict[str, Any]:
    return {
        "symbol": rng.choice(SYMBOLS),
        "price": rng.uniform(10.0, 200.0),
        "volume": rng.randrange(1_000),
    }


async def publish_for_ever(
    publisher: Publisher, seed: int, *, batch: int = 20, pause: float = 0.01, size: int = 0
) -> None:
    """Publish batch after batch, until cancelled; every tenth is waited for."""
    rng = random.Random(seed)
    batches = 0
    payload = rng.randbytes(size) if size else b""
    while True:
        for _ in range(rng.randint(1, batch)):
            await publisher.publish(quote(rng), payload=payload)
        batches += 1
        if batches % 10 == 0:
            await publisher.flush()
        await asyncio.sleep(pause * rng.random() * 2)
