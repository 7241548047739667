"""Those who subscribe, in a process of their own: by the client library, or merely counting."""

from __future__ import annotations

import asyncio
import gc
from time import monotonic
from typing import Any, Final

from live.events import EVERYTHING, alerts
from live.wire import Wire, hold_filters
from stentor.client import Bus, Subscription, connect
from stentor.client.words import Overflow
from stentor.protocol import messages as m

#: Notifications that may be on their way, as in the client library.
WINDOW: Final = 5_000


class Subscribers:
    """Clients that all receive everything."""

    def __init__(self) -> None:
        self._buses: list[Bus] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._counting: CountingSubscriber | None = None
        self._durable: Subscription[Any] | None = None
        self._held: list[Wire] = []
        self._received = 0
        self._expected = 0
        self._arrived = asyncio.Event()

    async def hold(self, address: str, first: int, last: int) -> None:
        """Have a broker hold filters of others, some of a long list."""
        self._held.append(await hold_filters(address, f"holder-{first}", alerts(last)[first:]))

    async def open(self, address: str, clients: int, *, overflow: Overflow = "spill") -> None:
        """Subscribe clients by the client library."""
        for i in range(clients):
            bus = await connect(address, name=f"subscriber-{i}")
            subscription = await bus.subscribe(EVERYTHING, overflow=overflow)
            self._buses.append(bus)
            self._tasks.append(asyncio.create_task(self._read(subscription)))
        gc.collect()
        gc.freeze()

    async def open_durable(self, address: str, name: str, *, settle: bool) -> None:
        """Subscribe one that is durable, and confirms, or settles each by itself."""
        bus = await connect(address, name=name)
        subscription = await bus.subscribe(EVERYTHING, durable=name, settle=settle)
        self._buses.append(bus)
        read = self._settle if settle else self._read
        self._tasks.append(asyncio.create_task(read(subscription)))
        self._durable = subscription

    async def expect_stored(self, count: int) -> float:
        """The time at which so many more have been received, and that is on the broker's disk."""
        await self.expect(count)
        assert self._durable is not None
        await self._durable.confirm()
        return monotonic()

    async def forget_durable(self) -> None:
        """Nothing is kept of the durable one."""
        assert self._durable is not None
        await self._durable.close(forget=True)
        await self.close()

    async def _settle(self, subscription: Subscription[Any]) -> None:
        async for batch in subscription.batches():
            for notification in batch:
                await notification.ack()
            self._received += len(batch)
            if self._received >= self._expected:
                self._arrived.set()

    async def close(self) -> None:
        """Those of the client library leave."""
        for bus in self._buses:
            await bus.close()
        await asyncio.gather(*self._tasks)
        self._buses.clear()
        self._tasks.clear()
        self._received = self._expected = 0

    async def _read(self, subscription: Subscription[Any]) -> None:
        async for batch in subscription.batches():
            self._received += len(batch)
            if self._received >= self._expected:
                self._arrived.set()

    async def expect(self, count: int) -> float:
        """The time at which so many more have been received by all together."""
        self._expected += count
        while self._received < self._expected:
            self._arrived.clear()
            await self._arrived.wait()
        return monotonic()

    async def open_counting(self, address: str) -> None:
        """Subscribe one that only counts."""
        self._counting = CountingSubscriber()
        await self._counting.open(address)

    async def close_counting(self) -> None:
        assert self._counting is not None
        await self._counting.close()

    async def expect_counted(self, count: int) -> float:
        """The same for the one that only counts."""
        assert self._counting is not None
        await self._counting.expect(count)
        return monotonic()


class CountingSubscriber:
    """Receives everything, and does not look at it."""

    def __init__(self) -> None:
        self._received = 0
        self._expected = 0
        self._used = 0
        self._in_force = False
        self._wire = Wire("counting", self._heard)

    async def open(self, address: str) -> None:
        await self._wire.open(address)
        self._wire.send(m.Subscribe(1, EVERYTHING, WINDOW, overflow="block"))
        while not self._in_force:
            await self._wire.changed()

    async def close(self) -> None:
        await self._wire.close()

    def _heard(self, message: Any) -> None:
        if isinstance(message, m.Deliver):
            count = len(message.items)
            self._received += count
            self._used += count
            if self._used >= WINDOW // 2:
                self._wire.send(m.Credit(1, self._used))
                self._used = 0
            if self._received >= self._expected:
                self._wire.wake()
        elif isinstance(message, m.Subscribed):
            self._in_force = True
            self._wire.wake()

    async def expect(self, count: int) -> None:
        self._expected += count
        while self._received < self._expected:
            await self._wire.changed()
