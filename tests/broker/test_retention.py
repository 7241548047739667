"""Journals keep what durable subscriptions elsewhere have not confirmed."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stentor
from stentor.broker import Broker, Settings
from stentor.broker.settings import Retention


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


@pytest.mark.spec("R-07.40")
@pytest.mark.parametrize("bound", [2**30, 60_000], ids=["kept", "told"])
def test_what_a_durable_subscriber_elsewhere_has_not_confirmed(tmp_path: Path, bound: int) -> None:
    async def main() -> None:
        retention = Retention(bytes=30_000, durable_bytes=bound)
        here, there = (
            Settings(listen=("127.0.0.1:0",), data=tmp_path / name, retention=retention)
            for name in ("here", "there")
        )
        async with Broker(here) as origin, Broker(there) as home:
            home.links.add(origin.address)
            await until(lambda: home.core.directory.reaches(origin.stream))
            async with stentor.connect(home, name="desk") as bus:
                async with bus.subscribe("", durable="desk"):
                    pass
            async with stentor.connect(origin, name="feed") as feed:
                for x in range(100):
                    await feed.publish({"x": x}, payload=bytes(1_000), ack=True)
                await until(lambda: origin.journal.status()["bytes"] <= bound)
                async with stentor.connect(home, name="desk") as bus:
                    async with bus.subscribe("", durable="desk") as sub:
                        found = [(await sub.get())["x"]]
                        while found[-1] < 99:
                            found.append((await sub.get())["x"])
                        assert (sub.lost > 0) == (bound < 2**30)
                        assert found == list(range(sub.lost, 100))
                        assert origin.journal.status()["wanted_removed"] >= sub.lost
                    await until(lambda: origin.journal.status()["wanted"] == 101)
                    await feed.publish({"x": 100}, payload=bytes(1_000), ack=True)
                    await until(lambda: origin.journal.status()["bytes"] < 35_000)

    async def bounded() -> None:
        await asyncio.wait_for(main(), 60)

    asyncio.run(bounded())


@pytest.mark.spec("R-07.40")
@pytest.mark.parametrize("terms", [{}, {"settle": True}, {"settle": True, "group": "workers"}])
def test_what_a_durable_subscriber_wants_that_was_just_made(
    tmp_path: Path, terms: dict[str, Any]
) -> None:
    async def main() -> None:
        retention = Retention(bytes=30_000, durable_bytes=2**30)
        settings = Settings(listen=("127.0.0.1:0",), data=tmp_path, retention=retention)
        async with Broker(settings) as broker, stentor.connect(broker) as bus:
            for name in ("one", "another"):
                async with bus.subscribe("", durable=name, **terms):
                    pass
                for x in range(100):
                    await bus.publish({"x": x}, payload=bytes(1_000), ack=True)
                async with bus.subscribe("", durable=name, **terms) as sub:
                    assert [(await sub.get(60))["x"] for _ in range(100)] == list(range(100))
                    await sub.confirm()
                    assert not sub.lost

    asyncio.run(main())
