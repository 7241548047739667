"""A broker is started on an older copy of its directory: what it acknowledges is not lost."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import stentor
from stentor.broker import Broker, Settings
from stentor.broker.settings import Limits


def looped(test: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(*args), 60)

    asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def settings(root: Path, name: str, *neighbors: str, **limits: Any) -> Settings:
    return Settings(
        listen=("127.0.0.1:0",),
        name=name,
        data=root / name,
        neighbors=neighbors,
        limits=Limits(**limits),
    )


async def publish(broker: Broker, *numbers: int) -> None:
    async with stentor.connect(broker, name=f"p{numbers[0]}") as bus:
        for x in numbers:
            await bus.publish({"x": x}, ack=True)


@asynccontextmanager
async def copied(root: Path, other: Broker) -> AsyncIterator[None]:
    """The broker `old` publishes 1, 2, 3; inside, 4..8, and goes. Then it has a copy of before."""
    async with Broker(settings(root, "old", other.address)) as broker:
        await until(lambda: other.core.directory.reaches(broker.stream))
        await publish(broker, 1, 2, 3)
    shutil.copytree(root / "old", root / "copy")
    async with Broker(settings(root, "old", other.address)) as broker:
        await until(lambda: other.core.directory.reaches(broker.stream))
        await publish(broker, 4, 5, 6, 7, 8)
        yield
    shutil.rmtree(root / "old")
    (root / "copy").rename(root / "old")


def test_neighbors_tell_it_before_it_acknowledges_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Broker(settings(tmp_path, "other")) as other:
            async with stentor.connect(other, name="sub") as bus:
                async with bus.subscribe("", since="earliest", durable="d") as sub:
                    async with copied(tmp_path, other):
                        assert [(await sub.get())["x"] for _ in range(8)] == list(range(1, 9))
                    async with Broker(settings(tmp_path, "old", other.address)) as broker:
                        before = broker.stream
                        await publish(broker, *range(9, 20))
                        assert [(await sub.get())["x"] for _ in range(11)] == list(range(9, 20))
                        assert broker.stream != before
                        assert broker.health()[0]
                        assert sub.lost == 0  # it had everything
                        # The journal that the copy had is still served, and says what it lacks.
                        async with bus.subscribe("x < 9", since="earliest") as late:
                            assert [(await late.get())["x"] for _ in range(3)] == [1, 2, 3]
                            await until(lambda: late.lost)
                            assert list(late.gaps) == [(before, 4, 8)]

    looped(test)
    assert "is an older copy" in caplog.text


def test_a_word_that_comes_late_costs_nothing_acknowledged(tmp_path: Path) -> None:
    """Nobody could be asked in time; then a subscriber that had more is there again."""

    async def test() -> None:
        async with Broker(settings(tmp_path, "other")) as other:
            async with stentor.connect(other, name="sub") as bus:
                async with bus.subscribe("", since="earliest") as sub:
                    async with copied(tmp_path, other):
                        assert [(await sub.get())["x"] for _ in range(8)] == list(range(1, 9))
                    async with Broker(settings(tmp_path, "old")) as broker:
                        await publish(broker, 9, 10)  # under the offsets of 4 and 5
                        broker.links.add(other.address)
                        assert [(await sub.get())["x"] for _ in range(2)] == [9, 10]
                        await publish(broker, 11)
                        assert (await sub.get())["x"] == 11
                    async with Broker(settings(tmp_path, "old", other.address)) as broker:
                        await publish(broker, 12)
                        assert (await sub.get())["x"] == 12

    looped(test)


def test_who_waits_for_a_neighbor_does_not_wait_for_long(tmp_path: Path) -> None:
    async def test() -> None:
        async with Broker(settings(tmp_path, "old")) as broker:
            await publish(broker, 1)
        away = "127.0.0.1:9"
        async with Broker(settings(tmp_path, "old", away, contact=0.3)) as broker:
            stream = broker.stream
            await publish(broker, 2)
            assert (broker.stream, broker.journal.head) == (stream, 2)

    looped(test)


def test_subscribers_tell_it_where_there_is_no_neighbor(tmp_path: Path) -> None:
    async def test() -> None:
        made = settings(tmp_path, "old")
        broker = Broker(made)
        await broker.start()
        at = broker.address
        here = Settings(listen=(at,), name="old", data=made.data)
        await publish(broker, 1, 2, 3)
        await broker.stop()
        shutil.copytree(tmp_path / "old", tmp_path / "copy")
        broker = Broker(here)
        await broker.start()
        async with stentor.connect(at, name="sub") as bus:
            sub = await bus.subscribe("", since="earliest")
            await publish(broker, 4, 5, 6, 7)
            assert [(await sub.get())["x"] for _ in range(7)] == list(range(1, 8))
            await broker.stop()
            shutil.rmtree(tmp_path / "old")
            (tmp_path / "copy").rename(tmp_path / "old")
            async with Broker(here) as broker:
                before = broker.stream
                await publish(broker, 8, 9)
                assert [(await sub.get())["x"] for _ in range(2)] == [8, 9]
                await until(lambda: broker.stream != before)
                await publish(broker, 10)
                assert (await sub.get())["x"] == 10

    looped(test)


def test_an_interrupted_change_goes_on_at_the_next_start(tmp_path: Path) -> None:
    from stentor.broker.storage import Ends, declare_outdated

    async def test() -> None:
        async with Broker(settings(tmp_path, "old")) as broker:
            await publish(broker, 1, 2, 3)
            stream = broker.stream
        declare_outdated(tmp_path / "old", Ends(stream, 2, 7))
        async with Broker(settings(tmp_path, "old")) as broker:
            assert broker.stream != stream
            async with stentor.connect(broker) as bus:
                async with bus.subscribe("", since="earliest") as sub:
                    assert sorted([(await sub.get())["x"] for _ in range(3)]) == [1, 2, 3]
                    await until(lambda: sub.lost)
                    assert list(sub.gaps) == [(stream, 3, 7)]

    looped(test)
