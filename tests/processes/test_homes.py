"""Durable subscriptions and groups whose broker dies, is stopped, or is another than answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from overlay_processes import LIMITS, Overlay, until
from tcp_proxy import TcpProxy

from stentor.client import Bus, connect
from stentor.client.subscription import Subscription
from stentor.errors import DurableElsewhere

#: Events that a test publishes at a time.
MANY = 300


async def publish(bus: Bus, first: int, count: int = MANY) -> list[int]:
    """Acknowledged when this returns."""
    numbers = list(range(first, first + count))
    await bus.publish_many(({"x": number} for number in numbers), ack=True, timeout=60.0)
    return numbers


class Reader:
    """Reads a subscription to a list, in the background."""

    def __init__(self, subscription: Subscription[Any]) -> None:
        self.subscription = subscription
        self.got: list[int] = []
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for n in self.subscription:
            self.got.append(n["x"])

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


async def to_the_end(subscription: Subscription[Any]) -> None:
    async for _ in subscription:
        pass


@contextlib.asynccontextmanager
async def reading(bus: Bus, **options: object) -> AsyncIterator[Reader]:
    async with bus.subscribe("exists x", **options) as subscription:  # type: ignore[arg-type]
        reader = Reader(subscription)
        try:
            yield reader
        finally:
            await reader.stop()


def exactly(got: list[int], wanted: list[int]) -> None:
    counts = Counter(got)
    assert not set(wanted) - set(got), f"lost: {sorted(set(wanted) - set(got))[:10]}"
    assert not [x for x in got if counts[x] > 1], "came again"


def test_a_durable_is_the_same_at_whichever_broker_answers(overlay: Overlay) -> None:
    async def run() -> None:
        overlay.line(3)
        await overlay.linked()
        async with connect(overlay["b2"].address) as publisher:
            async with (
                connect(overlay["b1"].address) as bus,
                bus.subscribe("exists x", durable="desk-7") as first,
            ):
                wanted = await publish(publisher, 0, 20)
                got = [(await first.get(timeout=30.0))["x"] for _ in range(10)]
                await first.confirm()
            async with (
                connect(overlay["b3"].address) as bus,
                bus.subscribe("exists x", durable="desk-7") as second,
            ):
                assert second.resumed
                got += [(await second.get(timeout=30.0))["x"] for _ in range(10)]
            assert got == wanted

    asyncio.run(run())


def test_a_durable_waits_for_its_home_and_is_not_made_twice(overlay: Overlay) -> None:
    """Its home is killed, and both clients and brokers that know of it come back elsewhere."""

    async def run() -> None:
        overlay.line(2)
        await overlay.linked()
        async with connect(overlay["b2"].address) as publisher:
            async with (
                connect(overlay["b1"].address) as bus,
                bus.subscribe("exists x", durable="desk-7") as desk,
            ):
                wanted = await publish(publisher, 0, 10)
                got = [(await desk.get(timeout=30.0))["x"] for _ in range(10)]
                await desk.confirm()
            overlay["b1"].kill()
            overlay["b2"].restart()  # what it knows of others is on its disk
            wanted += await publish(publisher, 10, 10)
            addresses = overlay["b1"].address, overlay["b2"].address
            async with connect(*addresses) as bus:
                attaching = asyncio.ensure_future(bus.subscribe("exists x", durable="desk-7"))
                wanted += await publish(publisher, 20, 10)
                assert not attaching.done()
                overlay["b1"].start()
                desk = await asyncio.wait_for(attaching, 60.0)
                assert desk.resumed
                got += [(await desk.get(timeout=30.0))["x"] for _ in range(20)]
                await desk.close()
            assert got == wanted

    asyncio.run(run())


def test_a_home_that_is_stopped_gives_no_second_durable(overlay: Overlay) -> None:
    """SIGTERM sends its subscribers to a neighbor; they wait there until it is back."""

    async def run() -> None:
        overlay.line(3)
        await overlay.linked()
        addresses = [overlay[name].address for name in ("b1", "b2")]
        async with (
            connect(overlay["b3"].address) as publisher,
            connect(*addresses) as bus,
            reading(bus, durable="desk-7") as reader,
        ):
            wanted = await publish(publisher, 0)
            for round in range(1, 3):
                await overlay["b1"].terminate()
                wanted += await publish(publisher, round * MANY)
                overlay["b1"].start()
                count = (round + 1) * MANY
                await until(lambda count=count: len(reader.got) >= count, "all have come")
            assert reader.got == wanted

    asyncio.run(run())


@pytest.mark.parametrize("home", ["b1", "b3"])
def test_a_durable_group_loses_and_repeats_nothing_when_its_home_dies(
    overlay: Overlay, home: str
) -> None:
    """Whether the home's stream sorts lower or higher than that of the member's broker."""

    async def run() -> None:
        overlay.line(3)
        await overlay.linked()
        async with (
            connect(overlay["b2"].address) as publisher,
            connect(overlay[home].address) as near,
            reading(near, durable="jobs", group="workers") as first,
            connect(overlay["b2"].address) as far,
            reading(far, durable="jobs", group="workers") as second,
        ):
            wanted = await publish(publisher, 0)

            def got() -> list[int]:
                return first.got + second.got

            await until(lambda: len(got()) >= len(wanted), "all have come")
            await first.subscription.confirm()
            await second.subscription.confirm()
            assert first.got
            assert second.got
            overlay[home].kill()
            wanted += await publish(publisher, MANY)
            overlay[home].start()
            wanted += await publish(publisher, 2 * MANY)
            await until(lambda: set(wanted) <= set(got()), "all have come")
            exactly(got(), wanted)

    asyncio.run(run())


def test_who_prefers_to_go_on_takes_over(overlay: Overlay) -> None:
    """The home never comes back; what was confirmed before the last copy does not come again."""

    async def run() -> None:
        overlay.line(3)
        await overlay.linked()
        async with connect(overlay["b3"].address) as publisher:
            async with (
                connect(overlay["b1"].address) as bus,
                bus.subscribe("exists x", durable="desk-7") as desk,
            ):
                wanted = await publish(publisher, 0, 10)
                got = [(await desk.get(timeout=30.0))["x"] for _ in range(10)]
                await desk.confirm()

                async def copied() -> bool:
                    copies = await overlay["b2"].ask("durables", name="desk-7")
                    return bool(copies["copy"] and sum(copies["copy"].values()) >= 10)

                await until(copied, "b2 has a copy")
            overlay["b1"].kill()
            wanted += await publish(publisher, 10, 10)
            async with (
                connect(overlay["b3"].address) as bus,
                bus.subscribe("exists x", durable="desk-7", takeover="1s") as desk,
            ):
                got += [(await desk.get(timeout=30.0))["x"] for _ in range(10)]
                await desk.confirm()
            assert got == wanted
            overlay["b1"].start()  # after all: it is fenced
            await overlay.linked()
            wanted += await publish(publisher, 20, 10)
            async with (
                connect(overlay["b1"].address) as bus,
                bus.subscribe("exists x", durable="desk-7") as desk,
            ):
                got += [(await desk.get(timeout=30.0))["x"] for _ in range(10)]
            assert got == wanted

    asyncio.run(run())


@pytest.mark.parametrize(
    ("do", "terms"),
    [
        ({"do": "reset", "to": 0.0}, {}),
        ({"do": "reset", "to": 0.0}, {"settle": True, "group": "workers"}),
        ({"do": "delete"}, {"settle": True}),
    ],
)
def test_a_reset_is_not_undone_by_a_consumer_that_was_away(
    overlay: Overlay, do: dict[str, Any], terms: dict[str, Any]
) -> None:
    """It has hung for longer than its broker waits, with an event in hand."""

    async def run() -> None:
        home = overlay.broker("b1", limits=replace(LIMITS, timeout=0.9))
        home.start()
        await overlay.linked()
        async with (
            connect(home.address) as publisher,
            TcpProxy(home.address) as cable,
            connect(cable.address, delays=(0.02, 0.2)) as bus,
        ):
            desk = await bus.subscribe("exists x", durable="desk-7", **terms)
            wanted = await publish(publisher, 0, 10)
            for _ in range(5):
                held = await desk.get(timeout=30.0)
            await desk.confirm()
            held = await desk.get(timeout=30.0)

            async def given_up() -> bool:
                return not (await home.ask("durables", name="desk-7"))["attached"]

            cable.stall()
            await until(given_up, "its broker has given it up")
            await home.ask("durables", name="desk-7", **do)
            cable.release(forget=True)
            if terms:
                held.ack()
            with pytest.raises(DurableElsewhere, match="was deleted or reset"):
                await asyncio.wait_for(to_the_end(desk), 30.0)
            async with bus.subscribe(
                "exists x", durable="desk-7", since="earliest", **terms
            ) as again:
                got = [(await again.get(timeout=30.0))["x"] for _ in wanted]
                assert sorted(got) == wanted

    asyncio.run(run())
