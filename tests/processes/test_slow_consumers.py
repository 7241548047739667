"""Consumers that do not read. Nobody else may notice, and they lose nothing by it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from overlay_processes import LIMITS, Overlay, until
from wire_client import WireClient

from stentor.client import connect
from stentor.model import decode
from stentor.protocol import messages as m

PAYLOAD = bytes(2_000)


async def full_pace(overlay: Overlay, entry: str, exit: str, count: int) -> float:
    """Seconds that it takes to bring so many notifications from a publisher to two consumers."""
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
        for start in range(0, count, 500):
            await source.publish_many(
                [{"i": i, "payload": PAYLOAD} for i in range(start, start + 500)], ack=False
            )
        await until(lambda: got == [count, count], lambda: f"all {count} arrive; {got} have")
        elapsed = time.monotonic() - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return elapsed


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_consumer_that_does_not_read_harms_nobody(overlay: Overlay, brokers: int) -> None:
    async def run() -> None:
        names = overlay.line(brokers, limits=replace(LIMITS, timeout=120.0, queue=1_000))
        await overlay.linked()
        exit = names[-1]
        count = 10_000
        without = await full_pace(overlay, "b1", exit, count)
        process = overlay[exit].process
        with WireClient(overlay[exit].address, receive_buffer=65_536) as stalled:
            stalled.hello("sleeper")
            stalled.send(m.Subscribe(1, "i >= 0", credit=1_000_000))
            stalled.expect(m.Subscribed)
            before = process.private_bytes
            during = await full_pace(overlay, "b1", exit, count)
            growth = process.private_bytes - before
            print(without, during, growth, before)
            assert during < 3 * without
            assert growth < 30 * 2**20

            woken = []
            for message in stalled.messages():
                if isinstance(message, m.Deliver):
                    woken += [decode(item)["i"] for item in message.items]
                    if len(woken) == count:
                        break
            assert woken == list(range(count))

    asyncio.run(run())
