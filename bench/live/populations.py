"""Many clients: what they cost while they are idle, and what they leave behind when they go."""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any, Final

from live.brokers import BrokerProcess
from live.processes import Worker, cores
from live.profiles import Profile
from live.wire import Wire
from progress import progress
from stentor.protocol import messages as m

#: Connections that are being made, or come and go, at the same time.
AT_ONCE: Final = 100
#: Connections before the first look. So many make the broker load all that it will ever need.
WARM_UP: Final = 5_000
#: Seconds in which a broker has to notice that everybody has left.
PATIENCE: Final = 30.0


def measure_populations(profile: Profile) -> dict[str, Any]:
    """The memory of idle clients, and what is left of those who are gone."""
    with BrokerProcess("b1") as broker, Worker(Population, cores().load) as population:
        return {
            "coming_and_going": _coming_and_going(profile, broker, population),
            "idle": _idle(profile, broker, population),
        }


def _coming_and_going(
    profile: Profile, broker: BrokerProcess, population: Worker
) -> dict[str, Any]:
    progress(f"{profile.connects:,} connects and disconnects")
    population.ask("come_and_go", broker.address, WARM_UP)
    before = _footprint(broker)
    processor = broker.processor_seconds
    seconds = population.ask("come_and_go", broker.address, profile.connects)
    return {
        "connects": profile.connects,
        "rate": profile.connects / seconds,
        "processor_us": 1e6 * (broker.processor_seconds - processor) / profile.connects,
        "before": before,
        "after": _footprint(broker),
    }


def _idle(profile: Profile, broker: BrokerProcess, population: Worker) -> dict[str, Any]:
    progress(f"{profile.idle_clients:,} idle clients")
    before = broker.resident_bytes
    population.ask("stay", broker.address, profile.idle_clients)
    connected = broker.resident_bytes
    population.ask("subscribe")
    subscribed = broker.resident_bytes
    return {
        "clients": profile.idle_clients,
        "before": before,
        "connected": connected,
        "subscribed": subscribed,
    }


def _footprint(broker: BrokerProcess) -> dict[str, int]:
    """What a broker has open and holds, when nobody is connected but who asks."""
    deadline = time.monotonic() + PATIENCE
    while (status := broker.status())["clients"][1:] and time.monotonic() < deadline:
        time.sleep(0.05)
    return {
        "clients": len(status["clients"]) - 1,
        "subscriptions": len(status["subscriptions"]),
        "descriptors": broker.descriptors,
        "resident_bytes": broker.resident_bytes,
    }


class Population:
    """Clients that do nothing."""

    def __init__(self) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._wires: list[Wire] = []

    async def stay(self, address: str, count: int) -> None:
        """Connect, and stay connected."""
        for first in range(0, count, AT_ONCE):
            names = [f"idle-{i}" for i in range(first, min(first + AT_ONCE, count))]
            self._wires += await asyncio.gather(*[_connected(address, name) for name in names])

    async def subscribe(self) -> None:
        """Each to something of its own."""
        await asyncio.gather(*[_subscribed(wire, i) for i, wire in enumerate(self._wires)])

    async def come_and_go(self, address: str, count: int) -> float:
        """Connect, subscribe and leave, so often: the seconds it took."""
        began = time.monotonic()
        names = iter(range(count))

        async def work() -> None:
            for i in names:
                wire = await _connected(address, f"passing-{i}")
                await _subscribed(wire, i)
                await wire.close()

        await asyncio.gather(*[work() for _ in range(AT_ONCE)])
        return time.monotonic() - began


async def _connected(address: str, name: str) -> Wire:
    wire = Wire(name)
    await wire.open(address)
    return wire


async def _subscribed(wire: Wire, number: int) -> None:
    await wire.request(m.Subscribe(1, f"client = {number}", 1_000))
