"""Planned changes while everything runs: links come and go, brokers are removed without loss."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest
from mortals import MortalConsumer
from overlay_processes import Overlay, until
from witness import Run
from workload import clients, under_load

from stentor.client import connect
from stentor.errors import StentorError


async def history(address: str, expected: set[str]) -> None:
    """Everything that was ever acknowledged can still be read, each once."""
    found: list[str] = []

    async with connect(address) as bus, bus.subscribe(since="earliest") as past:
        while not expected.issubset(found):
            found.append(str((await past.get(timeout=60.0)).id))
    assert len(found) == len(set(found))


async def more(seen: Run, count: int) -> None:
    """Until so many more are published."""
    seen.read()
    goal = seen.publications + count

    def reached() -> bool:
        seen.read()
        return seen.publications >= goal

    await until(reached, "publishers go on")


def consumer_at(overlay: Overlay, seen: Run, name: str) -> MortalConsumer:
    return MortalConsumer(
        seen,
        overlay.nursery,
        overlay.directory,
        filter="price > 100",
        name="absent",
        addresses=[overlay[name].address],
        durable="desk-7",
        every=10,
    )


async def check(overlay: Overlay, seen: Run) -> None:
    # A publisher that has moved begins another stream, so its order is not kept.
    assert seen.check(order=()).owed > 0
    await history(overlay.running[0].address, seen.acknowledged)


def test_brokers_are_removed_under_load(overlay: Overlay) -> None:
    """First the middle of a line, then the one that has taken over."""

    async def run() -> None:
        overlay.line(3)
        await overlay.linked()
        seen = Run(overlay.directory)
        absent = consumer_at(overlay, seen, "b2")
        async with clients(seen, overlay.running, "volume > 100") as publishers:
            absent.start()
            await absent.alive()
            seen.quiescent()
            async with under_load(publishers):
                await more(seen, 300)
                absent.kill()
                # The others need a way around the broker that will go.
                await overlay["b3"].ask("links", add=[overlay["b1"].address])
                await more(seen, 300)
                first = await overlay["b2"].ask("drain", timeout=60.0)
                await until(lambda: not overlay["b2"].running, "b2 ends")
                await overlay.linked()

                # Who was away continues where the journal now is.
                absent.move(overlay[first["to"]].address)
                absent.start()
                await absent.alive()
                await more(seen, 300)
                absent.kill()
                last = {"b1": "b3", "b3": "b1"}[first["to"]]
                second = await overlay[first["to"]].ask("drain", timeout=60.0)
                assert second["to"] == last
                await until(lambda: not overlay[first["to"]].running, f"{first['to']} ends")
                absent.move(overlay[last].address)
                absent.start()
                await absent.alive()
                await more(seen, 300)
            await seen.settled()
            assert {publisher.broker for publisher in publishers} == {last}
            await check(overlay, seen)

    asyncio.run(run())


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 3))])
def test_deaths_while_a_broker_is_removed_cost_nothing(overlay: Overlay, seed: int) -> None:
    """Both ends of the removal die at random moments; then it is done again until it works."""

    async def run() -> None:
        rng = random.Random(seed)
        overlay.line(2)
        await overlay.linked()
        seen = Run(overlay.directory)
        b1, b2 = overlay["b1"], overlay["b2"]

        async def settled() -> bool:
            with suppress(StentorError):
                return not (await b2.status())["draining"]
            return not b2.running

        async with clients(seen, [b1, b2], "volume > 100") as publishers:
            # Where it might be sent, it also finds by itself.
            link = publishers[1]._local.link
            link._named([b1.address], link.address)
            seen.quiescent()
            async with under_load(publishers):
                for _ in range(4):
                    await more(seen, 100)

                    async def remove() -> None:
                        with suppress(StentorError):
                            await b2.ask("drain", timeout=10.0)

                    removal = asyncio.create_task(remove())
                    await asyncio.sleep(rng.random() * 0.1)
                    victim = rng.choice([b1, b2])
                    victim.kill()
                    await removal
                    # b2 goes on, or ends and begins anew.
                    await until(settled, "b2 knows what it is")
                    for broker in (b1, b2):
                        if not broker.running:
                            broker.start()
                    await overlay.linked()
            await seen.settled()
            await check(overlay, seen)

    asyncio.run(run())


def test_links_are_added_and_removed_at_run_time(overlay: Overlay) -> None:
    """Two islands are joined, parted and joined the other way around."""

    async def run() -> None:
        for name, neighbors in (("b1", []), ("b2", ["b1"]), ("b3", []), ("b4", ["b3"])):
            overlay.broker(name, neighbors).start()
        await until(lambda: overlay["b1"].sees(["b2"]), "the first island")
        await until(lambda: overlay["b3"].sees(["b4"]), "the second island")
        seen = Run(overlay.directory)
        async with clients(seen, overlay.running, "volume > 100") as publishers:
            async with under_load(publishers):
                await more(seen, 200)
                await overlay["b2"].ask("links", add=[overlay["b3"].address])
                await overlay.linked()
                await more(seen, 200)
                await overlay["b2"].ask("links", remove=["b3"])
                await until(lambda: overlay["b4"].sees(["b3"]), "parted")
                await more(seen, 200)
                await overlay["b4"].ask("links", add=[overlay["b1"].address])
                await overlay.linked()
                await more(seen, 200)
            await seen.settled()
            async with under_load(publishers):
                await more(seen, 200)
            await seen.settled()
            assert seen.check().owed > 0

    asyncio.run(run())
