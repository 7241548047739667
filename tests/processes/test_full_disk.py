"""A disk that is full: nothing acknowledged is lost, the rest waits, live traffic goes on."""

from __future__ import annotations

import asyncio
import resource
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from overlay_processes import Overlay, until
from witness import Run
from workload import under_load

from stentor.client import Bus, connect
from stentor.errors import JournalUnavailable, NoReply

ROOM = 2 * 2**20


def is_refused(bus: Bus) -> bool:
    return isinstance(bus.error, JournalUnavailable)


def test_a_full_disk_stops_durable_publishing_only(overlay: Overlay) -> None:
    async def run() -> None:
        full = overlay.broker("b1", options={"limits": {resource.RLIMIT_FSIZE: ROOM}})
        full.start()
        overlay.broker("b2", ["b1"]).start()
        await overlay.linked()
        seen = Run(overlay.directory)
        async with AsyncExitStack() as stack:

            async def client(name: str, at: str) -> Any:
                return await stack.enter_async_context(seen.connect(overlay[at].address, name=name))

            here, there = await client("here", "b1"), await client("there", "b2")
            await stack.enter_async_context(seen.subscribed(here, ""))
            await stack.enter_async_context(seen.subscribed(there, ""))
            seen.quiescent()
            publisher = await client("durable", "b1")

            async def failing() -> bool:
                return bool((await full.status())["journal"]["failed_commits"])

            async with under_load([publisher], batch=100, size=2_000):
                await until(failing, "the disk is full")

            # Who publishes durably is told why, and waits.
            publishers = [publisher, await client("other", "b1")]
            for each in publishers:
                await each.publish({"x": 1}, payload=bytes(2 * ROOM))  # never fits
                await until(partial(is_refused, each), "a clear error")
                with pytest.raises(NoReply):
                    await each.flush(timeout=0.5)

            # What needs no disk goes on, in both directions.
            ids: list[str] = []
            for at in ("b1", "b2"):
                volatile = await client(f"volatile-{at}", at)
                for i in range(100):
                    ids.append(str(await volatile.publish({"i": i}, volatile=True)))

            def arrived() -> bool:
                seen.read()
                return all(c.received.issuperset(ids) for c in seen.components.values())

            await until(arrived, "volatile notifications arrive meanwhile")

            # Even a crash now costs nothing: the journal opens without room to write.
            full.restart()
            await until(full.reachable, lambda: f"it starts again\n{full.logged()}")

            full.process.limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
            await seen.settled()
            assert seen.check().owed > 0

    asyncio.run(run())


@pytest.mark.parametrize("terms", [{}, {"settle": True}])
def test_durable_subscribers_are_served_by_a_broker_that_starts_on_a_full_disk(
    overlay: Overlay, terms: dict[str, Any]
) -> None:
    """What is on disk of a subscription is older than what it has come to, and good enough."""

    async def run() -> None:
        full = overlay.broker("b1")
        full.start()
        await overlay.linked()
        retries = {"delays": (0.02, 0.2), "timeout": 30.0}
        async with (
            connect(full.address, **retries) as publisher,
            connect(full.address, **retries) as bus,
            bus.subscribe("exists x", durable="desk-7", window=10, **terms) as desk,
        ):
            await publisher.publish_many(({"x": x} for x in range(100)), ack=True)
            got = [(await desk.get(timeout=30.0))["x"] for _ in range(10)]
            await desk.confirm()
            full.kill()
            most = max(file.stat().st_size for file in full.data.iterdir())
            full.options = {"limits": {resource.RLIMIT_FSIZE: most}}
            full.start()
            got += [(await desk.get(timeout=30.0))["x"] for _ in range(90)]
            assert got == list(range(100))
            with pytest.raises(NoReply):
                await publisher.publish({"x": 100}, ack=True, timeout=0.5)
            full.process.limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
            assert (await desk.get(timeout=30.0))["x"] == 100
            await desk.confirm(timeout=30.0)

    asyncio.run(run())
