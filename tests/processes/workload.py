"""The load of the tests: quotes, and filters on what they say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from overlay_processes import PATIENCE, BrokerProcess
from witness import Run

from stentor.client import Bus

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
    bus: Bus,
    seed: int,
    *,
    batch: int = 20,
    pause: float = 0.01,
    size: int = 0,
    types: Sequence[str | None] = (None,),
) -> None:
    """Publish batch after batch, until cancelled; every tenth is waited for."""
    rng = random.Random(seed)
    batches = 0
    payload = rng.randbytes(size) if size else b""
    while True:
        for _ in range(rng.randint(1, batch)):
            type = types[0] if len(types) == 1 else rng.choice(types)
            await bus.publish(quote(rng), payload=payload, type=type)
        batches += 1
        if batches % 10 == 0:
            await bus.flush(PATIENCE)
        await asyncio.sleep(pause * rng.random() * 2)


class Load:
    """Publishers at work. What goes wrong with them is raised by `check`, and at the end."""

    def __init__(self, tasks: list[asyncio.Task[None]]) -> None:
        self._tasks = tasks

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


@asynccontextmanager
async def under_load(
    publishers: Iterable[Bus], seed: int = 0, **options: Any
) -> AsyncIterator[Load]:
    """While the body runs, all publishers publish for ever."""
    load = Load(
        [
            asyncio.create_task(publish_for_ever(bus, seed + i, **options))
            for i, bus in enumerate(publishers)
        ]
    )
    try:
        yield load
    finally:
        await load.stop()


@asynccontextmanager
async def clients(
    run: Run, brokers: Iterable[BrokerProcess], filter: str = ""
) -> AsyncIterator[list[Bus]]:
    """At each broker a client that subscribes, and that can publish."""
    async with AsyncExitStack() as stack:
        buses = []
        for broker in brokers:
            bus = run.connect(broker.address, name=f"client-{broker.name}", timeout=PATIENCE)
            await stack.enter_async_context(bus)
            await stack.enter_async_context(run.subscribed(bus, filter))
            buses.append(bus)
        yield buses
