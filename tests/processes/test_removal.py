"""Planned changes while everything runs: links come and go, brokers are removed without loss."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from mortals import MortalConsumer
from overlay_processes import Overlay, until
from recorder import Recorder
from workload import publish_for_ever

from stentor.client import connect


async def history(address: str) -> list[Any]:
    """The ids of everything that was ever published anywhere."""
    found = []
    async with connect(address) as bus, bus.subscribe(since="earliest") as past:
        end = await bus.publish({"end": True}, ack=True)
        async for notification in past:
            found.append(notification.id)
            if notification.id == end:
                break
    return found


def test_a_broker_is_removed_under_load(overlay: Overlay) -> None:
    async def run() -> None:
        overlay.line(3)
        await overlay.linked()
        recorder = Recorder()
        async with AsyncExitStack() as stack:
            publishers = []
            for name in ("b1", "b2", "b3"):
                bus = connect(overlay[name].address, name=f"client-{name}")
                await stack.enter_async_context(bus)
                await stack.enter_async_context(recorder.subscribed(bus, name, "volume > 100"))
                publishers.append(recorder.publisher(bus))
            absent = MortalConsumer(
                recorder,
                overlay.nursery,
                overlay.directory,
                "price > 100",
                name="absent",
                addresses=[overlay["b2"].address, overlay["b1"].address],
                durable="desk-7",
                every=10,
            )
            absent.start()
            await absent.alive()
            recorder.quiescent()
            loads = [
                asyncio.create_task(publish_for_ever(publisher, i))
                for i, publisher in enumerate(publishers)
            ]
            await until(lambda: len(recorder.publications) > 500, "load")
            absent.catch_up()
            absent.kill()

            # The others need a way around the broker that will go.
            await overlay["b3"].ask("links", add=[overlay["b1"].address])
            await until(lambda: len(recorder.publications) > 1000, "load")
            handed = await overlay["b2"].ask("drain", timeout=60.0)
            assert handed["to"] == "b1"
            await until(lambda: not overlay["b2"].running, "b2 ends")
            await overlay.linked()
            absent.start()
            await absent.alive()
            count = len(recorder.publications)
            await until(lambda: len(recorder.publications) > count + 500, "load")
            for load in loads:
                load.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
            await recorder.settled(diaries=[absent])
            # A publisher that has moved begins another stream: its order is not kept.
            assert recorder.check(order=()).owed > 0
            assert publishers[1].bus.broker == "b1"

    asyncio.run(run())
