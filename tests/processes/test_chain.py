"""A chain of services whose processes and brokers die by SIGKILL: each event comes out once.

    source ── a ──► service "first" ── b ──► service "second" ── c ──► counted in the journals

Some events are to be delivered later. The judge is what is in the journals: of each acknowledged
event there is one of each stage, whoever died when.
"""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from nursery import Nursery
from overlay_processes import Overlay

import stentor

EVENTS = 120


async def storm(overlay: Overlay, nursery: Nursery, *, seed: int) -> None:
    rng = random.Random(seed)
    brokers = overlay.line(2)
    await overlay.linked()
    addresses = [overlay[name].address for name in brokers]
    services: dict[str, dict[str, Any]] = {}
    for i, (durable, stage, to) in enumerate((("first", "a", "b"), ("second", "b", "c"))):
        services[durable] = {
            # The second one is not served where it lives, in half of the runs.
            "addresses": [addresses[i if seed % 2 else 0]],
            "name": f"service-{durable}",
            "durable": durable,
            "filter": f"stage = '{stage}'",
            "to": to,
        }
        async with stentor.connect(addresses[i]) as bus:
            async with bus.subscribe(f"stage = '{stage}'", durable=durable, settle=True):
                pass
    log = overlay.directory / "services.log"
    children = {name: nursery.start("service", log=log, **a) for name, a in services.items()}
    source = await stentor.connect(addresses[1], delays=(0.02, 0.2))
    try:
        publishing = asyncio.create_task(publish(source, rng))
        for _ in range(10):
            await asyncio.sleep(0.3 * rng.random())
            if rng.random() < 0.5:
                name = rng.choice(list(services))
                children[name].kill()
                await asyncio.sleep(0.1 * rng.random())
                children[name] = nursery.start("service", log=log, **services[name])
            else:
                broker = overlay[rng.choice(brokers)]
                broker.kill()
                await asyncio.sleep(0.1 * rng.random())
                broker.start()
        await publishing
        await overlay.linked()
        found: Counter[tuple[str, int]] = Counter()
        async with stentor.connect(*addresses) as bus:
            async with bus.subscribe("exists stage", since="earliest") as everything:
                while len([1 for stage, _ in found if stage == "c"]) < EVENTS:
                    n = await everything.get(timeout=60)
                    found[n["stage"], n["k"]] += 1
        # Other copies of an event would be dropped by the subscriber's gate; these are not.
        assert set(found.values()) == {1}, found.most_common(3)
        heads = [await overlay[name].status() for name in brokers]
        stored = sum(each["journal"]["head"] for each in heads)
        assert stored == len(found) == 3 * EVENTS
    finally:
        for child in children.values():
            child.kill()
        await source.close()


async def publish(bus: stentor.Bus, rng: random.Random) -> None:
    for k in range(EVENTS):
        later = f"{rng.randrange(10, 900)}ms" if rng.random() < 0.3 else None
        await bus.publish({"stage": "a", "k": k}, ack=True, deliver_at=later)
        if rng.random() < 0.2:
            await asyncio.sleep(0.02)


@pytest.mark.spec("R-07.41", "R-07.57")
@pytest.mark.parametrize("seed", [0, 1])
def test_each_event_passes_the_chain_once(overlay: Overlay, nursery: Nursery, seed: int) -> None:
    asyncio.run(storm(overlay, nursery, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_each_event_passes_the_chain_once_in_many_runs(
    overlay: Overlay, nursery: Nursery, seed: int
) -> None:
    asyncio.run(storm(overlay, nursery, seed=seed))
