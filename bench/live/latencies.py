"""How long one event takes, at a tenth of the rate that is possible.

Publisher and subscriber are two clients in one process, so that one clock tells both times, and
neither has to wait for the other to leave the processor. Events are published one by one at even
distances; each carries the time at which it was. Beside it, as many bytes go to a process that does
nothing but send them back: what remains of a latency without a broker, on this machine at this
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from struct import Struct
from time import perf_counter, perf_counter_ns
from typing import Any, Final, cast

from live.brokers import BrokerProcess
from live.events import EVERYTHING, events
from live.processes import Worker, cores
from live.profiles import Profile
from live.scratch import scratch
from measure.clock import spread
from progress import progress
from stentor.client import Subscription, connect

#: Events from which the highest rate is taken.
BURST: Final = 20_000
#: Bytes of an event, about: a time and padding.
_BARE: Final = Struct(">Q92x")


def measure_latency(profile: Profile) -> list[dict[str, Any]]:
    """At most once, journaled, and without a broker."""
    with (
        scratch() as folder,
        Worker(Mirror, cores().broker) as mirror,
        Worker(Echo, cores().load) as echo,
    ):
        rows = [
            _measure(profile, folder, echo, "at most once", volatile=True),
            _measure(profile, folder, echo, "journaled", volatile=False),
        ]
        rate = rows[0]["rate"]
        progress("latency, loopback alone")
        port = mirror.ask("open")
        found = echo.ask("bare_latencies", port, rate, profile.latency_seconds)
        return [*rows, {"name": "loopback alone", "rate": rate, **found}]


def _measure(
    profile: Profile, folder: Path, echo: Worker, name: str, *, volatile: bool
) -> dict[str, Any]:
    progress(f"latency, {name}")
    with BrokerProcess("b1", data=folder / name) as broker:
        echo.ask("open", broker.address, volatile=volatile)
        peak = max(echo.ask("peak") for _ in range(3))
        found = echo.ask("latencies", peak / 10, profile.latency_seconds)
        echo.ask("close")
        return {"name": name, "peak": peak, "rate": peak / 10, **found}


class Echo:
    """A client that publishes and one that receives it."""

    async def open(self, address: str, *, volatile: bool) -> None:
        self._volatile = volatile
        self._events = events(BURST)
        self._publisher = await connect(address, name="publisher")
        self._subscriber = await connect(address, name="subscriber")
        self._subscription = await self._subscriber.subscribe(EVERYTHING, overflow="block")

    async def close(self) -> None:
        await self._publisher.close()
        await self._subscriber.close()

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
        publish, volatile = self._publisher.publish, self._volatile

        async def send(i: int) -> None:
            event = self._events[i % BURST]
            await publish({**event, "sent": perf_counter_ns()}, volatile=volatile)

        return await _paced(rate, seconds, send, lambda n: _latencies(self._subscription, n))

    async def bare_latencies(self, port: int, rate: float, seconds: float) -> dict[str, float]:
        """The same without a broker."""
        loop = asyncio.get_running_loop()
        transport, bare = await loop.create_connection(Bare, "127.0.0.1", port)

        async def send(i: int) -> None:
            transport.write(_BARE.pack(perf_counter_ns()))

        found = await _paced(rate, seconds, send, bare.latencies)
        transport.close()
        return found


async def _paced(
    rate: float,
    seconds: float,
    send: Callable[[int], Awaitable[None]],
    receive: Callable[[int], Awaitable[list[int]]],
) -> dict[str, float]:
    """Send at even distances; the nanoseconds that everything took."""
    count = int(rate * seconds)
    receiving = asyncio.ensure_future(receive(count))
    began = perf_counter()
    for i in range(count):
        due = began + i / rate
        while perf_counter() < due:
            await asyncio.sleep(0)
        await send(i)
    achieved = count / (perf_counter() - began)
    return {"achieved": achieved, **spread(await receiving)}


async def _latencies(subscription: Subscription[Any], count: int) -> list[int]:
    found: list[int] = []
    async for notification in subscription:
        found.append(perf_counter_ns() - notification["sent"])
        if len(found) == count:
            break
    return found


class Bare(asyncio.Protocol):
    """Hears what it has sent."""

    def __init__(self) -> None:
        self._rest = b""
        self._found: list[int] = []
        self._expected = 0
        self._done = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        now = perf_counter_ns()
        data = self._rest + data
        whole = len(data) - len(data) % _BARE.size
        self._found += [now - sent for (sent,) in _BARE.iter_unpack(data[:whole])]
        self._rest = data[whole:]
        if len(self._found) >= self._expected:
            self._done.set()

    async def latencies(self, count: int) -> list[int]:
        self._expected = count
        await self._done.wait()
        return self._found


class Mirror:
    """Sends back what it gets."""

    async def open(self) -> int:
        """Where it listens."""
        server = await asyncio.get_running_loop().create_server(_Mirrored, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port


class _Mirrored(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
