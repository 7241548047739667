"""Those who publish, in a process of their own: by the client library, or prepared frames."""

from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from live.events import events
from live.wire import Wire
from stentor.client import Bus, connect
from stentor.client.encoding import EventEncoder
from stentor.protocol import messages as m

#: Notifications in a prepared frame: as many as the client library puts into one.
FRAME: Final = 1_000
#: Publications that wait for their acknowledgement at the same time, each on its own.
IN_FLIGHT: Final = 1_000


class Publishers:
    """Clients that publish the same events."""

    def __init__(self) -> None:
        self._buses: list[Bus] = []
        self._prepared: PreparedPublisher | None = None
        self._events: list[dict[str, Any]] = []

    async def open(self, address: str, clients: int, count: int, *, prepared: bool = False) -> None:
        """Connect clients that will publish so many events all in all."""
        self._events = events(count // clients)
        for i in range(clients):
            self._buses.append(await connect(address, name=f"publisher-{i}"))
        if prepared:
            self._prepared = PreparedPublisher(events(count))
            await self._prepared.open(address)
        gc.collect()
        gc.freeze()  # the events are no garbage; looking for some among them is not publishing

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()
        self._buses.clear()

    async def publish(self, *, volatile: bool = False) -> float:
        """Publish all events by the client library; the time at which that began."""
        began = monotonic()
        many = [bus.publish_many(self._events, volatile=volatile) for bus in self._buses]
        await asyncio.gather(*many)
        await asyncio.gather(*[bus.flush() for bus in self._buses])
        return began

    async def publish_prepared(self, times: int = 1) -> float:
        """The same with frames that were made before, so often in a row."""
        assert self._prepared is not None
        began = monotonic()
        for _ in range(times):
            await self._prepared.publish()
        return began

    async def publish_singly(self, count: int) -> float:
        """Publish one by one, many waiting for their own acknowledgement: the time it took."""
        began = monotonic()
        source = iter(self._events[:count])
        bus = self._buses[0]

        async def work() -> None:
            for event in source:
                await bus.publish(event, ack=True)

        await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])
        return monotonic() - began

    async def publish_durably(self, count: int) -> float:
        """Publish many at once, and wait until all is on disk: the time it took."""
        began = monotonic()
        await self._buses[0].publish_many(self._events[:count], ack=True)
        return monotonic() - began


class PreparedPublisher:
    """Publishes encoded events, as fast as the broker's window allows. At most once."""

    def __init__(self, some: list[dict[str, Any]]) -> None:
        items = EventEncoder("prepared", 1).many(some, 0, datetime.now(UTC))
        self._frames = [items[i : i + FRAME] for i in range(0, len(items), FRAME)]
        self._number = 0
        self._answered = 0
        self._window = 0
        self._wire = Wire("prepared", self._heard)

    async def open(self, address: str) -> None:
        self._window = (await self._wire.open(address)).window // FRAME

    def _heard(self, message: Any) -> None:
        if isinstance(message, m.Published):
            self._answered = message.through
            self._wire.wake()

    async def publish(self) -> None:
        """All of them, until the last is answered."""
        for items in self._frames:
            await self._until(self._number + 1 - self._window)
            self._number += 1
            self._wire.send(m.Publish(self._number, items, volatile=True))
            await self._wire.writable()
        await self._until(self._number)

    async def _until(self, number: int) -> None:
        while self._answered < number:
            await self._wire.changed()
