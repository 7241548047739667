"""One order for all: what is published at one broker, from anywhere, while brokers die."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from mortals import MortalConsumer
from overlay_processes import LIMITS, Overlay, until
from tcp_proxy import TcpProxy
from witness import Run
from workload import clients, under_load

from stentor import recorded
from stentor.client import Bus
from stentor.semantics import Condition, check

#: Silence is noticed soon.
SOON = replace(LIMITS, timeout=0.9)
ORDERS = ("fifo", "total_pairwise", "total_global")


@pytest.mark.spec("R-01.28", "R-01.30", "R-01.32")
@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 3))])
def test_all_get_one_order_though_the_sequencer_dies(overlay: Overlay, seed: int) -> None:
    """Publishers and subscribers are everywhere; the home is in the middle, and killed again and
    again, now and then together with a broker on the way or with a consumer that has to catch up.
    """

    async def run() -> None:
        rng = random.Random(seed)
        overlay.line(3)
        await overlay.linked()
        seen = Run(overlay.directory)
        home = overlay["b2"]
        consumer = MortalConsumer(
            seen,
            overlay.nursery,
            overlay.directory,
            filter="volume > 100",
            name="desk",
            addresses=[overlay["b3"].address],
            durable="desk-7",
            every=20,
        )
        async with clients(seen, overlay.running), AsyncExitStack() as stack:
            consumer.start()
            await consumer.alive()
            seen.quiescent()
            publishers: list[Bus] = []
            for broker in overlay.running:
                bus = seen.connect(broker.address, name=f"at-{broker.name}", sequencer="b2")
                publishers.append(await stack.enter_async_context(bus))
            assert {bus.broker for bus in publishers} == {"b2"}
            async with under_load(publishers, seed) as load:
                for _ in range(4):
                    await asyncio.sleep(0.3 * rng.random())
                    others = rng.sample([overlay["b1"], overlay["b3"], consumer], 1)
                    victims = [home, *others[: rng.randint(0, 1)]]
                    for victim in victims:
                        victim.kill()
                    # Nobody takes its place: publications wait.
                    await until(
                        lambda: all(bus.state == "reconnecting" for bus in publishers), "they wait"
                    )
                    for victim in victims:
                        victim.start()
                    await overlay.linked()
                    load.check()
            await seen.settled()
            report = seen.check(order=ORDERS)
            assert report.owed > 0
            assert {bus.broker for bus in publishers} == {"b2"}

    asyncio.run(run())


@pytest.mark.spec("R-01.28", "R-01.32")
def test_who_is_cut_off_from_the_sequencer_waits(overlay: Overlay) -> None:
    """There is a broker on that side, too, but an order that begins there would be a second one."""

    async def run() -> None:
        overlay.line(2, limits=SOON)
        await overlay.linked()
        seen = Run(overlay.directory)
        b1, b2 = overlay["b1"], overlay["b2"]
        async with (
            clients(seen, overlay.running),
            TcpProxy(b1.address) as cable,
            seen.connect(b1.address, name="near", sequencer="b1") as near,
            seen.connect(cable.address, b2.address, name="far", sequencer="b1") as far,
        ):
            seen.quiescent()
            for bus in (near, far):
                await bus.publish({"i": 0}, ack=True)
            cable.stall()
            await until(lambda: far.state == "reconnecting", "it notices")
            for i in range(1, 50):
                await far.publish({"i": i})
                await near.publish({"i": i}, ack=True)
            assert (far.unacknowledged, far.state) == (49, "reconnecting")
            assert (await b2.status())["journal"]["head"] == 0
            cable.release(forget=True)
            await seen.settled()
            report = seen.check(order=ORDERS)
            assert (report.publications, report.owed) == (100, 200)

    asyncio.run(run())


@pytest.mark.spec("R-01.29")
def test_without_a_sequencer_there_is_no_such_order(overlay: Overlay) -> None:
    """The control: at both ends, the own publications come first."""

    async def run() -> None:
        overlay.line(2)
        await overlay.linked()
        seen = Run(overlay.directory)
        async with clients(seen, overlay.running) as publishers:
            for i in range(100):
                await asyncio.gather(*(bus.publish({"i": i}, ack=True) for bus in publishers))
            await seen.settled()
            seen.check(order=["fifo"])
            found = check(recorded(seen.recorder.path).trace, order=["total_global"])
            assert found.conditions == {Condition.TOTAL_GLOBAL}

    asyncio.run(run())
