"""A graph with cycles whose links are cut: what can still go another way does."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from overlay_processes import Overlay, until
from tcp_proxy import TcpProxy
from test_crashes import GRAPH

from stentor.client import Bus, connect

#: Seconds after a cut from which on nothing volatile may be lost.
SOON = 1.0


@pytest.mark.spec("R-08.44")
def test_a_cut_costs_volatile_events_of_a_second_and_no_others(overlay: Overlay) -> None:
    """All links of one broker but one are cut, one after another."""

    async def run() -> None:
        names = [f"b{i + 1}" for i in range(len(GRAPH))]
        for name in names:
            overlay.broker(name, overlay="graph")
        async with AsyncExitStack() as stack:
            cut: list[TcpProxy] = []
            for name, others in zip(names, GRAPH, strict=True):
                for other in others:
                    address = overlay[names[other]].address
                    if name == "b7":
                        proxy = await stack.enter_async_context(TcpProxy(address))
                        address, _ = proxy.address, cut.append(proxy)
                    overlay.link(name, address)
                overlay[name].start()
            await overlay.linked()
            publisher = await stack.enter_async_context(connect(overlay["b1"].address))
            got: dict[str, list[int]] = {}
            for name in ("b4", "b7"):
                bus = await stack.enter_async_context(connect(overlay[name].address))
                subscription = await stack.enter_async_context(bus.subscribe("exists x"))
                got[name] = []

                async def read(subscription=subscription, into=got[name]) -> None:  # type: ignore[no-untyped-def]
                    async for n in subscription:
                        into.append(n["x"])

                reading = asyncio.create_task(read())
                stack.callback(reading.cancel)
            journaled, volatile = await publish_while_cut(publisher, cut[:-1])
            for name, found in got.items():
                wanted = journaled | volatile
                await until(
                    lambda found=found, wanted=wanted: wanted <= set(found),  # type: ignore[misc]
                    lambda name=name, found=found, wanted=wanted: (  # type: ignore[misc]
                        f"{name} has all; it lacks {sorted(wanted - set(found))[:20]}"
                    ),
                )
                assert len(found) == len(set(found))

    asyncio.run(run())


async def publish_while_cut(bus: Bus, links: list[TcpProxy]) -> tuple[set[int], set[int]]:
    """Even numbers are journaled, odd ones volatile; those of both that have to arrive."""
    journaled, volatile = set(), set()
    number = 0
    for link in links:
        cut = time.monotonic()
        await link.cut()
        while time.monotonic() < cut + 2 * SOON:
            await bus.publish({"x": number}, ack=True)
            journaled.add(number)
            at = time.monotonic()
            await bus.publish({"x": number + 1}, volatile=True)
            if at > cut + SOON:
                volatile.add(number + 1)
            number += 2
            await asyncio.sleep(0.002)
    assert volatile
    return journaled, volatile
