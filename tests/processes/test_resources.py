"""Nothing is left behind by those who leave, and little is needed for those who stay."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import pytest
from overlay_processes import LIMITS, BrokerProcess, Overlay, until

from stentor.client import connect
from stentor.protocol import messages as m
from stentor.protocol.frames import FrameReader, frame


class Footprint(NamedTuple):
    """What a broker process occupies."""

    descriptors: int
    threads: int
    tasks: int
    bytes: int


async def visit(address: str, name: str, kind: int) -> None:
    """A client that does something and leaves, in good order or not."""
    bus = await connect(address, name=name)
    if kind % 4 == 0:
        async with bus.subscribe("i >= 0") as subscription:
            await bus.publish({"i": kind}, ack=True)
            await subscription.get(timeout=60.0)
    elif kind % 4 == 1:
        kept = await bus.subscribe(f"i = {kind}", durable=name)
        await kept.close(forget=True)
    elif kind % 4 == 2:
        async with bus.advertise("i >= 0"):
            await bus.publish({"i": kind}, volatile=True)
    if kind % 3 == 0:
        # The cable is pulled: no goodbye.
        wire = bus._local.link._wire
        assert wire is not None
        assert wire.connection is not None
        wire.connection.abort()
    await bus.close()


async def at_rest(broker: BrokerProcess) -> Footprint:
    """What the broker occupies when everybody has left."""

    async def deserted() -> dict[str, Any] | None:
        status = await broker.status()
        # The one who asks is there.
        alone = len(status["clients"]) == 1 and not status["subscriptions"]
        return status if alone and not status["durables"] else None

    status = await until(deserted, "all have left")
    process = broker.process
    # Those who ask leave something behind, too, for a moment.
    await until(lambda: process.descriptors <= 40, lambda: f"{process.descriptors} files are open")
    return Footprint(process.descriptors, process.threads, status["tasks"], process.private_bytes)


async def visits(overlay: Overlay, count: int) -> tuple[Footprint, Footprint]:
    """The footprint after a fifth of the visits, when everything was there once, and after all."""
    broker = overlay["b1"]

    async def rush(kinds: Iterator[int]) -> Footprint:
        async def visitor() -> None:
            for kind in kinds:
                await visit(broker.address, f"visitor-{kind}", kind)

        await asyncio.gather(*(visitor() for _ in range(8)))
        return await at_rest(broker)

    return await rush(iter(range(count // 5))), await rush(iter(range(count // 5, count)))


async def visited(overlay: Overlay, count: int) -> None:
    overlay.line(2)
    await overlay.linked()
    before, after = await visits(overlay, count)
    # Whoever asks may still be on the way out. And an index forgets filters that were removed a few
    # thousand at a time.
    assert after.descriptors <= before.descriptors + 2
    assert after.threads <= before.threads
    assert after.tasks <= before.tasks + 1
    assert after.bytes < before.bytes + 3 * 2**20 + 1_500 * count


def test_visitors_leave_nothing_behind(overlay: Overlay) -> None:
    asyncio.run(visited(overlay, 1_000))


@pytest.mark.slow
def test_ten_thousand_visitors_leave_nothing_behind(overlay: Overlay) -> None:
    asyncio.run(visited(overlay, 10_000))


class Idle(asyncio.Protocol):
    """A client that connects, subscribes, and does nothing but answer pings."""

    def __init__(self, name: str, done: asyncio.Future[None]) -> None:
        self._name = name
        self._done = done
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(frame(m.Hello(list(m.VERSIONS), "client", self._name)))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        for message in self._reader.feed(data):
            if isinstance(message, m.Welcome):
                filter = f"symbol = 'S{hash(self._name) % 1_000}' and price > 10"
                self._transport.write(frame(m.Subscribe(1, filter, credit=100)))
            elif isinstance(message, m.Subscribed):
                self._done.set_result(None)
            elif isinstance(message, m.Ping):
                self._transport.write(frame(m.Pong()))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("closed"))


@pytest.mark.slow
def test_ten_thousand_idle_clients_fit_into_a_gigabyte(overlay: Overlay) -> None:
    clients = 10_000
    room = clients + 1_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        broker = overlay.broker(
            "b1",
            limits=replace(LIMITS, timeout=30.0),
            options={"limits": {resource.RLIMIT_NOFILE: room}},
        )
        broker.start()
        await overlay.linked()
        host, _, port = broker.address.rpartition(":")
        for first in range(0, clients, 200):
            there = [loop.create_future() for _ in range(200)]
            for i, done in enumerate(there, first):
                idle = partial(Idle, f"idle-{i}", done)
                await loop.create_connection(idle, host, int(port))
            await asyncio.gather(*there)
        await asyncio.sleep(10.0)  # pings go back and forth meanwhile
        status = await broker.status()
        assert len(status["clients"]) == clients + 1
        assert broker.process.rss < 2**30
        async with connect(broker.address) as bus, bus.subscribe("i = 1") as quick:
            await bus.publish({"i": 1}, ack=True, timeout=30.0)
            await quick.get(timeout=30.0)

    resource.setrlimit(resource.RLIMIT_NOFILE, (room, max(room, hard)))
    try:
        asyncio.run(run())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
