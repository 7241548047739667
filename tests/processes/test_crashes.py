"""Brokers and clients that die by SIGKILL under load, at any instruction.

Every run ends with everyone alive again. Then everything that was acknowledged must have arrived
everywhere it belongs, once, unaltered, and in order for each publisher.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from mortals import Mortal, MortalConsumer, MortalProducer
from overlay_processes import BrokerProcess, Overlay, until
from witness import Run
from workload import FILTERS, under_load

from stentor.filters import Filter

#: Whom each broker dials.
SHAPES = {
    "line": [[], [0], [1], [2], [3]],
    "star": [[], [0], [0], [0]],
    "tree": [[], [0], [0], [1], [1], [2], [2]],
    "ring": [[3], [0], [1], [2]],
}

#: With cycles, for brokers that route on them: seven, each reached by two ways or more.
GRAPH = [[], [0], [1, 0], [2], [3, 1], [4, 0], [5, 3, 2]]


async def storm(
    overlay: Overlay, shape: list[list[int]], /, *, seconds: float, seed: int, **settings: Any
) -> str:
    """Load, and deaths at random moments; then judgment. What happened, in a line.

    Where advertisements steer subscriptions, publishers advertise, and none of them dies.
    """
    rng = random.Random(seed)
    steered = "advertisements" in settings
    names = overlay.graph(shape, **settings)
    await overlay.linked()
    seen = Run(overlay.directory)
    async with AsyncExitStack() as stack:
        for i, name in enumerate(names):
            bus = await stack.enter_async_context(
                seen.connect(overlay[name].address, name=f"s-{name}")
            )
            filter = FILTERS[i % len(FILTERS)]
            await stack.enter_async_context(seen.subscribed(bus, filter))
        consumer = MortalConsumer(
            seen,
            overlay.nursery,
            overlay.directory,
            filter="price > 50",
            name="desk",
            addresses=[overlay[names[-1]].address],
            durable="desk-7",
            every=20,
        )
        consumer.start()
        await consumer.alive()
        producer = MortalProducer(
            seen,
            overlay.nursery,
            overlay.directory,
            name="feed",
            addresses=[overlay[names[len(names) // 2]].address],
            seed=seed,
        )
        seen.quiescent()
        publishers = []
        for i, name in enumerate([names[0], names[1], names[-1]]):
            bus = await stack.enter_async_context(
                seen.connect(overlay[name].address, name=f"p-{i}")
            )
            if steered:
                await stack.enter_async_context(bus.advertise("exists price"))
            publishers.append(bus)
        kills = 0
        victims: list[BrokerProcess | Mortal] = [*overlay.brokers.values(), consumer]
        if not steered:
            producer.start()
            victims.append(producer)
        loop = asyncio.get_running_loop()
        async with under_load(publishers, seed) as load:
            end = loop.time() + seconds
            while loop.time() < end:
                for victim in rng.sample(victims, rng.choice([1, 1, 1, 2])):
                    victim.kill()
                    kills += 1
                    await asyncio.sleep(rng.choice([0.0, 0.05, 0.3]) * rng.random())
                    victim.start()
                await asyncio.sleep(rng.choice([0.02, 0.2, 0.6]) * rng.random())
                load.check()
        await overlay.linked()
        if not steered:
            producer.kill()
        await seen.settled()
        report = seen.check()
        assert report.owed > 0
        return f"{kills} deaths, {seen.again} notifications again to the dead; {report}"


@pytest.mark.spec("R-07.39", "R-07.40", "R-07.55", "R-07.60")
@pytest.mark.parametrize("shape", ["tree", "ring"])
def test_nothing_acknowledged_is_lost_or_repeated(overlay: Overlay, shape: str) -> None:
    asyncio.run(storm(overlay, SHAPES[shape], seconds=2.0, seed=len(shape)))


@pytest.mark.spec("R-07.60", "R-08.43")
@pytest.mark.parametrize("advertisements", ["none", "covering"])
def test_nothing_is_lost_in_a_graph_with_cycles(overlay: Overlay, advertisements: str) -> None:
    steered = {} if advertisements == "none" else {"advertisements": advertisements}
    asyncio.run(storm(overlay, GRAPH, seconds=2.0, seed=5, overlay="graph", **steered))


@pytest.mark.spec("R-03.26", "R-07.60")
def test_nothing_is_lost_where_advertisements_steer(overlay: Overlay) -> None:
    asyncio.run(
        storm(
            overlay,
            SHAPES["tree"],
            seconds=2.0,
            seed=3,
            routing="merging",
            advertisements="covering",
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_lost_or_repeated_in_a_long_storm(
    overlay: Overlay, shape: str, seed: int
) -> None:
    asyncio.run(storm(overlay, SHAPES[shape], seconds=15.0, seed=seed))


def test_who_changes_brokers_publishes_and_receives_once(overlay: Overlay) -> None:
    """Clients that know several brokers go on at another one while theirs is away.

    What was not answered is published again there, so two journals may hold it. Order holds within
    a stream only.
    """

    async def run() -> None:
        overlay.line(3)
        await overlay.linked()
        seen = Run(overlay.directory)
        places = [overlay[name].address for name in ("b1", "b2", "b3")]
        consumer = MortalConsumer(
            seen,
            overlay.nursery,
            overlay.directory,
            filter="price > 50",
            name="desk",
            addresses=places[2:],
            durable="desk-7",
            every=20,
        )
        async with (
            seen.connect(*places[:2], name="p") as source,
            seen.connect(*places[1::-1], name="s") as sink,
            seen.subscribed(sink, "volume > 100"),
        ):

            def elsewhere(name: str) -> bool:
                states = {source.state, sink.state}
                return states == {"connected"} and name not in (source.broker, sink.broker)

            consumer.start()
            await consumer.alive()
            seen.quiescent()
            async with under_load([source], batch=50) as load:
                for name in ("b1", "b2", "b1"):
                    overlay[name].kill()
                    await until(partial(elsewhere, name), "both go on elsewhere")
                    overlay[name].start()
                    await overlay.linked()
                    load.check()
            await seen.settled()
            assert seen.check(order=()).owed > 0

    asyncio.run(run())


@pytest.mark.spec("R-01.18", "R-01.20", "R-01.21", "R-07.60")
def test_an_inbox_is_changed_while_brokers_die(overlay: Overlay) -> None:
    """One component with several subscriptions: what stays subscribed loses nothing, everything
    comes once, and nothing comes for what is not subscribed any more.
    """

    async def run() -> None:
        rng = random.Random(7)
        overlay.line(3)
        await overlay.linked()
        seen = Run(overlay.directory)
        async with (
            seen.connect(overlay["b1"].address, name="desk") as bus,
            seen.connect(overlay["b3"].address, name="p-3") as far,
            seen.connect(overlay["b2"].address, name="p-2") as near,
            seen.reading(bus.inbox("symbol = 'IBM'", durable="desk-7")) as inbox,
        ):
            seen.quiescent()
            async with under_load([far, near]) as load:
                for i, name in enumerate(("b1", "b2", "b1", "b3", "b1", "b2")):
                    adding = asyncio.create_task(inbox.subscribe(FILTERS[1 + i % 3]))
                    await asyncio.sleep(0.1 * rng.random())
                    overlay[name].restart()
                    added = await adding
                    await asyncio.sleep(0.3 * rng.random())
                    removing = asyncio.create_task(inbox.unsubscribe(added))
                    await asyncio.sleep(0)
                    if rng.random() < 0.5:
                        overlay[name].restart()
                    await removing
                    load.check()
                await inbox.subscribe("price < 60")
                seen.quiescent()
                await asyncio.sleep(0.5)
            await overlay.linked()
            await seen.settled()
            assert seen.check().owed > 0
            status = await overlay["b1"].status()
            assert [each["filter"] for each in status["durables"]] == [
                str(Filter("symbol = 'IBM' or price < 60"))
            ]

    asyncio.run(run())
