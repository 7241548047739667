"""Brokers that start in any order, dial each other at once, and are linked in a circle."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest
from overlay_processes import Overlay, free_port
from witness import Run
from workload import clients

from stentor.client import Bus


async def publish(publishers: list[Bus], count: int = 10) -> None:
    for i in range(count):
        for publisher in publishers:
            await publisher.publish({"i": i})


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 3))])
def test_brokers_find_each_other_in_whatever_order_they_start(overlay: Overlay, seed: int) -> None:
    """Clients publish and subscribe at brokers whose neighbors are not there yet."""

    async def run() -> None:
        rng = random.Random(seed)
        names = [f"b{i}" for i in range(1, 6)]
        ports = {name: free_port() for name in names}
        links = [(names[rng.randrange(i)], names[i]) for i in range(1, len(names))]
        neighbors = {n: {a if b == n else b for a, b in links if n in (a, b)} for n in names}
        for name in names:
            # Both ends of a link dial; one of the two connections must give way.
            dialed = [f"127.0.0.1:{ports[other]}" for other in neighbors[name]]
            overlay.broker(name, dialed, listen=(f"127.0.0.1:{ports[name]}",))
        seen = Run(overlay.directory)
        async with AsyncExitStack() as stack:
            publishers: list[Bus] = []
            order = rng.sample(names, len(names))
            for name in order:
                overlay[name].start()
                publishers += await stack.enter_async_context(clients(seen, [overlay[name]]))
                await publish(publishers)
            await overlay.linked()
            await publish(publishers)
            await seen.settled()
            await publish(publishers)
            await seen.settled()
            assert seen.check().owed == 5 * 5 * 10
            for name in names:
                status = await overlay[name].status()
                up = [link["broker"] for link in status["links"] if link["state"] == "up"]
                assert sorted(up) == sorted(
                    {a if b == name else b for a, b in links if name in (a, b)}
                )

    asyncio.run(run())


def test_a_circle_has_a_link_in_reserve(overlay: Overlay) -> None:
    """One link is kept in reserve; it takes over when another one is lost, and nothing is twice."""

    async def run() -> None:
        names = ["b1", "b2", "b3", "b4"]
        ports = {name: free_port() for name in names}
        for i, name in enumerate(names):
            following = names[(i + 1) % len(names)]
            overlay.broker(
                name, [f"127.0.0.1:{ports[following]}"], listen=(f"127.0.0.1:{ports[name]}",)
            )
        overlay.start_all()
        await overlay.linked()
        seen = Run(overlay.directory)
        async with clients(seen, [overlay[n] for n in ("b1", "b2", "b4")]) as publishers:
            seen.quiescent()
            await publish(publishers)
            await seen.settled()

            # Whichever link is the reserve: without b3 the rest is a line only if it is used, or
            # b3 was at one end of it.
            overlay["b3"].kill()
            await publish(publishers)
            await overlay.linked()
            await publish(publishers)
            await seen.settled()
            overlay["b3"].start()
            await overlay.linked()
            await publish(publishers)
            await seen.settled()
            overlay["b1"].restart()
            await publish(publishers)
            await overlay.linked()
            await publish(publishers)
            await seen.settled()
            assert seen.check().owed == 3 * 3 * 60

    asyncio.run(run())
