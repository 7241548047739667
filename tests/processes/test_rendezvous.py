"""Brokers that find each other by event types, while the places of the types are killed."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest
from mortals import MortalConsumer
from overlay_processes import BrokerProcess, Overlay
from witness import Run
from workload import under_load

from stentor.routing.rendezvous.places import Places

RING = [[], [0], [1], [2], [3, 0]]
TYPES = ("quote.stock", "quote.bond", "trade", None)
FILTERS = (
    "isa quote and price > 100",
    "isa quote.stock or isa trade",
    "isa trade and price < 60",
    "isa order",
    "isa quote.bond and volume >= 500",
)


async def place_of(overlay: Overlay, type: str) -> BrokerProcess:
    """The broker at which a type meets."""
    streams = {(await broker.status())["stream"]: broker for broker in overlay.running}
    return streams[str(Places(streams).of(type))]


@pytest.mark.spec("R-03.34", "R-03.35", "R-07.60", "R-07.70")
@pytest.mark.parametrize(
    "seconds", [2.0, pytest.param(20.0, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_nothing_is_lost_when_the_places_of_types_are_killed(
    overlay: Overlay, seconds: float
) -> None:
    """Each time the broker at which a type meets, and now and then another one with it."""

    async def run() -> None:
        rng = random.Random(7)
        names = overlay.graph(RING, overlay="rendezvous")
        await overlay.linked()
        seen = Run(overlay.directory)
        async with AsyncExitStack() as stack:
            for name, filter in zip(names, FILTERS, strict=True):
                bus = await stack.enter_async_context(
                    seen.connect(overlay[name].address, name=f"s-{name}")
                )
                await stack.enter_async_context(seen.subscribed(bus, filter))
            consumer = MortalConsumer(
                seen,
                overlay.nursery,
                overlay.directory,
                filter="isa quote.stock and price > 50",
                name="desk",
                addresses=[overlay[names[-1]].address],
                durable="desk-7",
                every=20,
            )
            consumer.start()
            await consumer.alive()
            seen.quiescent()
            publishers = [
                await stack.enter_async_context(
                    seen.connect(overlay[name].address, name=f"p-{name}")
                )
                for name in names[:3]
            ]
            loop = asyncio.get_running_loop()
            kills = 0
            async with under_load(publishers, types=TYPES) as load:
                end = loop.time() + seconds
                while loop.time() < end or not kills:
                    victims = {await place_of(overlay, rng.choice(["quote", "trade"]))}
                    if rng.random() < 0.3:
                        victims.add(rng.choice(list(overlay.brokers.values())))
                    for victim in victims:
                        victim.kill()
                        kills += 1
                    await asyncio.sleep(rng.uniform(0.0, 0.5))
                    for victim in victims:
                        victim.start()
                    await overlay.linked()
                    load.check()
            await overlay.linked()
            await seen.settled()
        report = seen.check()
        assert report.owed > 100

    asyncio.run(run())
