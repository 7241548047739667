"""A broker that dies by SIGKILL while it detects a pattern: nothing is missed, nothing repeated."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest
from overlay_processes import Overlay, until

import stentor
from stentor.composite import Pattern

PAIRS = 60
LATENESS = 3.0


@pytest.mark.spec("R-06.32")
def test_a_guaranteed_detector_survives_the_death_of_its_broker(overlay: Overlay) -> None:
    asyncio.run(storm(overlay))


async def storm(overlay: Overlay) -> None:
    rng = random.Random(7)
    home, other = overlay.line(2)
    await overlay.linked()
    pairs = Pattern("(A ; B) partition by k", events={"A": "isa a", "B": "isa b"})
    delays: Any = {"delays": (0.02, 0.2)}
    found: Counter[int] = Counter()

    async def count(detection: stentor.Notification) -> None:
        found[detection["k"]] += 1

    bus = await stentor.connect(overlay[home].address, **delays)
    options: dict[str, Any] = {"durable": "pairs", "lateness": LATENESS, "handler": count}
    await bus.detect(pairs, **options)
    publishers = [await stentor.connect(overlay[b].address, **delays) for b in (home, other)]

    #: Pairs of which something came too late to its broker to take part, on a machine that halts.
    late: set[int] = set()

    async def publish(k: int) -> None:
        for type in "ab":
            began = time.monotonic()
            await rng.choice(publishers).publish({"k": k}, type=type, ack=True)
            if time.monotonic() - began > LATENESS:
                late.add(k)

    async def publish_all() -> None:
        for k in range(PAIRS):
            await publish(k)

    try:
        publishing = asyncio.create_task(publish_all())
        for _ in range(3):
            await asyncio.sleep(0.2 + 0.3 * rng.random())
            overlay[home].kill()
            overlay[home].start()
        await publishing
        await overlay.linked()
        try:
            await until(lambda: len(found.keys() | late) == PAIRS, "all are found")
        except AssertionError:
            status = {b: (await overlay[b].status())["detectors"] for b in (home, other)}
            missing = sorted(set(range(PAIRS)) - found.keys() - late)
            raise AssertionError(f"{missing} were not found: {status}") from None
        # What would be found a second time would come before the one that is published now.
        last = PAIRS
        await publish(last)
        while last in late:
            last += 1
            await publish(last)
        await until(lambda: found[last] > 0, "the last one is found")
        assert set((+found).values()) == {1}, found
    finally:
        for each in (bus, *publishers):
            await each.close()
