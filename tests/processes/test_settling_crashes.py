"""Brokers and subscribers that die by SIGKILL while notifications are settled one by one.

At the end each acknowledged event was dealt with by an application, or there is one dead letter of
it; and what is on disk says that nothing is left.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from overlay_processes import Overlay, until

import stentor
from stentor import Notification, Retry

EVENTS = 300


class Applications:
    """Handlers of one durable subscription, or of a group, that fail on some events."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.dealt: Counter[int] = Counter()

    async def handle(self, event: Notification) -> None:
        if event["k"] % 10 == 3:
            raise ValueError(f"nobody can deal with {event['k']}")
        if self.rng.random() < 0.05:
            raise RuntimeError("not now")
        self.dealt[event["k"]] += 1


async def storm(overlay: Overlay, *, seed: int, members: int) -> None:
    rng = random.Random(seed)
    home, other = overlay.line(2)
    await overlay.linked()
    apps = Applications(seed)
    terms: dict[str, Any] = {
        "durable": "billing",
        "retry": Retry(attempts=4, backoff="20ms..100ms", deadline="2s", overtake=bool(seed % 2)),
        "dead_letter": True,
        "handler": apps.handle,
    }
    if members > 1:
        terms["group"] = "workers"
    where = overlay[home].address
    delays: Any = {"delays": (0.02, 0.2)}
    buses = [await stentor.connect(where, **delays) for _ in range(members)]
    for bus in buses:
        await bus.subscribe("k >= 0", **terms)
    publisher = await stentor.connect(overlay[other].address, **delays)
    watcher = await stentor.connect(overlay[other].address, **delays)
    letters: Counter[int] = Counter()

    async def count(letter: Notification) -> None:
        letters[letter["event.k"]] += 1

    await watcher.subscribe("type = 'DeadLetter' and durable = 'billing'", handler=count)
    try:
        publishing = asyncio.create_task(publish(publisher, rng))
        for _ in range(4):
            await asyncio.sleep(0.3 * rng.random())
            overlay[home].kill()
            await asyncio.sleep(0.1 * rng.random())
            overlay[home].start()
        acknowledged = await publishing
        await overlay.linked()
        await until(
            lambda: all(apps.dealt[k] or letters[k] for k in acknowledged),
            lambda: f"{[k for k in acknowledged if not (apps.dealt[k] or letters[k])]} are lost",
        )
        assert set(letters.values()) == {1}
        hopeless = {k for k in acknowledged if k % 10 == 3}
        assert hopeless <= set(letters)
        assert not hopeless & set(apps.dealt)
        await until(lambda: settled(overlay[home], acknowledged), "all is settled on disk")
    finally:
        for bus in (*buses, publisher, watcher):
            await bus.close()


async def publish(bus: stentor.Bus, rng: random.Random) -> set[int]:
    for k in range(EVENTS):
        await bus.publish({"k": k}, ack=True)
        if rng.random() < 0.2:
            await asyncio.sleep(0.01)
    return set(range(EVENTS))


async def settled(home: Any, acknowledged: set[int]) -> bool:
    """Whether the home has nothing left that was not settled."""
    [durable] = (await home.status())["durables"]
    return sum(durable["positions"].values()) >= len(acknowledged)


@pytest.mark.spec("R-07.41", "R-07.60")
@pytest.mark.parametrize(("seed", "members"), [(0, 1), (1, 3)])
def test_each_is_dealt_with_or_dead_once(overlay: Overlay, seed: int, members: int) -> None:
    asyncio.run(storm(overlay, seed=seed, members=members))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_each_is_dealt_with_or_dead_once_in_many_runs(overlay: Overlay, seed: int) -> None:
    asyncio.run(storm(overlay, seed=seed, members=1 + 2 * (seed % 3 == 0)))
