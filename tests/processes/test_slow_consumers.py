"""Consumers that do not read. Nobody else may notice, and they lose nothing by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from overlay_processes import LIMITS, Overlay, until
from wire_client import WireClient

from stentor.client import connect
from stentor.client.subscription import Subscription
from stentor.model import Notification, decode
from stentor.protocol import messages as m

PAYLOAD = bytes(4_000)
COUNT = 8_000
#: Less than what COUNT notifications occupy.
BOUND = 20 * 2**20
#: Little may wait anywhere, so that what piles up is seen.
SMALL = replace(LIMITS, timeout=120.0, window=500, queue=500, link_queue=500)


def quotes() -> Iterator[dict[str, Any]]:
    return ({"i": i, "payload": PAYLOAD} for i in range(COUNT))


async def full_pace(overlay: Overlay, entry: str, exit: str) -> float:
    """Seconds that it takes to bring COUNT notifications from a publisher to two consumers."""
    got = [0, 0]
    async with (
        connect(overlay[entry].address) as source,
        connect(overlay[exit].address) as first,
        connect(overlay[exit].address) as second,
        first.subscribe("i >= 0") as one,
        second.subscribe("i >= 0") as two,
    ):

        async def consume(index: int) -> None:
            async for batch in [one, two][index].batches():
                got[index] += len(batch)

        tasks = [asyncio.create_task(consume(i)) for i in range(2)]
        began = time.monotonic()
        await source.publish_many(quotes())
        await until(lambda: got == [COUNT, COUNT], lambda: f"all arrive; {got} have")
        elapsed = time.monotonic() - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return elapsed


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_consumer_that_does_not_read_harms_nobody(overlay: Overlay, brokers: int) -> None:
    async def run() -> None:
        names = overlay.line(brokers, limits=SMALL)
        await overlay.linked()
        exit = names[-1]
        without = await full_pace(overlay, "b1", exit)
        process = overlay[exit].process
        with WireClient(overlay[exit].address, receive_buffer=65_536) as stalled:
            stalled.hello("sleeper")
            stalled.send(m.Subscribe(1, "i >= 0", credit=1_000_000))
            stalled.expect(m.Subscribed)
            before = process.private_bytes
            during = await full_pace(overlay, "b1", exit)
            assert process.private_bytes < before + BOUND
            assert during < 3 * without + 1.0

            woken = []
            for message in stalled.messages():
                if isinstance(message, m.Deliver):
                    woken += [decode(item)["i"] for item in message.items]
                    if len(woken) == COUNT:
                        break
            assert woken == list(range(COUNT))

    asyncio.run(run())


def test_a_neighbor_that_does_not_read_harms_nobody(overlay: Overlay) -> None:
    """A link is full: what does not fit is dropped there, and read from the journal afterwards."""

    async def run() -> None:
        b1, b2, b3 = (overlay.broker(name, limits=SMALL) for name in ("b1", "b2", "b3"))
        for other in (b2, b3):
            overlay.link(other.name, b1.address)
        overlay.start_all()
        await overlay.linked()

        async def take(subscription: Subscription[Notification]) -> None:
            got: list[int] = []
            async for batch in subscription.batches():
                got += [notification["i"] for notification in batch]
                if len(got) >= COUNT:
                    break
            assert got == list(range(COUNT))

        async with (
            connect(b1.address) as source,
            connect(b2.address) as slow,
            connect(b3.address) as fast,
            slow.subscribe("i >= 0") as late,
            fast.subscribe("i >= 0") as soon,
        ):
            await source.publish_many(quotes())
            await asyncio.gather(take(soon), take(late))
            before = b1.process.private_bytes
            b2.process.pause()
            await source.publish_many(quotes())
            await take(soon)
            assert b1.process.private_bytes < before + BOUND
            assert (await b1.status())["dropped"]["links"] > 0
            b2.process.resume()
            await take(late)

    asyncio.run(run())
