"""Whether a broker says that it is ready: links that are up, down, and in reserve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import stentor
from stentor.broker import Broker, Settings
from stentor.errors import NoReply


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def brokers(*names: str) -> AsyncIterator[list[Broker]]:
    made = [Broker(Settings(listen=("127.0.0.1:0",), name=name)) for name in names]
    for each in made:
        await each.start()
    try:
        yield made
    finally:
        for each in made:
            await each.stop()


def states(broker: Broker) -> list[str]:
    return sorted(link["state"] for link in broker.status()["links"])


def test_a_link_in_reserve_is_fine() -> None:
    """It closes a cycle, so it waits, for ever if nothing breaks; else it takes over."""

    async def main() -> None:
        async with brokers("a", "b", "c") as (a, b, c):
            b.links.add(a.address)
            await until(lambda: a.ready()[0] and len(a.links) == 1)
            c.links.add(b.address)
            await until(lambda: c.core.directory.reaches(a.stream))
            assert c.ready() == (True, {"draining": False, "journal": True, "links_down": []})
            c.links.add(a.address)
            await until(lambda: states(c) == ["reserve", "up"])
            (spare,) = [link for link in c.status()["links"] if link["state"] == "reserve"]
            assert spare["broker"] == "a"
            assert (
                spare["reason"] == "a is reached through b; this link is made when that way is lost"
            )
            assert c.ready() == (True, {"draining": False, "journal": True, "links_down": []})
            # The way that exists is lost: the spare link is made, and the other one is down.
            await b.stop()
            await until(lambda: a.stream in c.links)
            await until(lambda: c.ready()[1]["links_down"] == [b.address])
            assert states(c) == ["down", "up"]

    asyncio.run(main())


def test_a_broker_that_is_to_be_its_own_neighbor_is_not_ready() -> None:
    async def main() -> None:
        async with brokers("a") as (a,):
            a.links.add(a.address.replace("127.0.0.1", "localhost"))
            await until(lambda: "own neighbor" in a.status()["links"][0].get("reason", ""))
            assert states(a) == ["down"]
            assert not a.ready()[0]

    asyncio.run(main())


def test_a_broker_without_its_directory_acknowledges_nothing_and_says_so(tmp_path: Path) -> None:
    data, away = tmp_path / "b1", tmp_path / "away"

    async def main() -> None:
        settings = Settings(listen=("127.0.0.1:0",), data=data)
        async with Broker(settings) as broker, stentor.connect(broker) as bus:
            await bus.publish({"x": 1}, ack=True)
            data.rename(away)
            await until(lambda: not broker.health()[0])  # also if nobody publishes
            assert not broker.ready()[0]
            with pytest.raises(NoReply):
                await bus.publish({"x": 2}, ack=True, timeout=0.5)
            away.rename(data)
            await bus.flush()
            assert broker.health()[0]
            assert broker.journal.head == 2

    asyncio.run(main())
