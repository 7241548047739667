"""How long one event takes, at a tenth of the rate that is possible.

Publisher and subscriber are two clients in one process, so that one clock tells both times, and
neither has to wait for the other to leave the processor. Events are published one by one at even
distances; each carries the time at which it was.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

from live.brokers import BrokerProcess
from live.events import EVERYTHING, events
from live.processes import Worker, cores
from live.profiles import Profile
from live.scratch import scratch
from measure.clock import spread
from progress import progress
from stentor.client import Subscription, connect

#: Events from which the highest rate is taken.
BURST = 20_000


def measure_latency(profile: Profile) -> list[dict[str, Any]]:
    """At most once, and journaled."""
    with scratch() as folder:
        return [_measure(profile, folder, volatile=volatile) for volatile in (True, False)]


def _measure(profile: Profile, folder: Path, *, volatile: bool) -> dict[str, Any]:
    name = "at most once" if volatile else "journaled"
    progress(f"latency, {name}")
    with BrokerProcess("b1", data=folder / name) as broker, Worker(Echo, cores().load) as echo:
        echo.ask("open", broker.address, volatile=volatile)
        peak = max(echo.ask("peak") for _ in range(3))
        found = echo.ask("latencies", peak / 10, profile.latency_seconds)
        return {"name": name, "peak": peak, "rate": peak / 10, **found}


class Echo:
    """A client that publishes and one that receives it."""

    async def open(self, address: str, *, volatile: bool) -> None:
        self._volatile = volatile
        self._events = events(BURST)
        self._publisher = await connect(address, name="publisher")
        self._subscriber = await connect(address, name="subscriber")
        self._subscription = await self._subscriber.subscribe(EVERYTHING, overflow="block")

    async def peak(self) -> float:
        """Events per second, as many as are possible."""
        began = perf_counter()
        many = self._publisher.publish_many(self._events, volatile=self._volatile)
        publishing = asyncio.create_task(many)
        received = 0
        async for batch in self._subscription.batches():
            received += len(batch)
            if received == len(self._events):
                break
        await publishing
        return BURST / (perf_counter() - began)

    async def latencies(self, rate: float, seconds: float) -> dict[str, float]:
        """The times that events take at this rate."""
        count = int(rate * seconds)
        reading = asyncio.create_task(_latencies(self._subscription, count))
        publish, volatile = self._publisher.publish, self._volatile
        began = perf_counter()
        for i in range(count):
            due = began + i / rate
            while perf_counter() < due:
                await asyncio.sleep(0)
            event = self._events[i % BURST]
            await publish({**event, "sent": perf_counter_ns()}, volatile=volatile)
        achieved = count / (perf_counter() - began)
        return {"achieved": achieved, **spread(await reading)}


async def _latencies(subscription: Subscription[Any], count: int) -> list[int]:
    found: list[int] = []
    async for notification in subscription:
        found.append(perf_counter_ns() - notification["sent"])
        if len(found) == count:
            break
    return found
