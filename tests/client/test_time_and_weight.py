"""When notifications are delivered, until when, and which of them first."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from scripted import looped, until

import stentor
from stentor import Notification, Retry
from stentor.broker.host import Broker
from stentor.broker.settings import Settings
from stentor.errors import InvalidConfiguration, InvalidNotification, InvalidValue, UnknownStrategy


@asynccontextmanager
async def served(data: Path | None = None, **settings: Any) -> AsyncIterator[Broker]:
    broker = Broker(Settings(listen=("127.0.0.1:0",), name="b1", data=data, **settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def taken(subscription: Any, count: int) -> list[Any]:
    return [(await subscription.get(timeout=10))["x"] for _ in range(count)]


# -- expiry


@looped
async def test_what_has_expired_is_given_to_nobody_who_comes_later() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        await bus.publish({"x": 1}, ack=True, expires="50ms")
        await bus.publish({"x": 2}, ack=True, expires="1h")
        await bus.publish({"x": 3}, ack=True)
        await asyncio.sleep(0.3)
        async with bus.subscribe("exists x", since="earliest") as sub:
            assert await taken(sub, 2) == [2, 3]
            assert sub.positions == {broker.stream: 2}
        assert broker.core.counters["expired"] == 1


@looped
async def test_what_expires_in_the_queue_of_the_client_is_not_handed_out() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("exists x") as sub:
            await bus.publish({"x": 1}, expires=timedelta(milliseconds=200))
            await bus.publish({"x": 2}, ack=True)
            await until(lambda: len(sub._arrivals) == 2)
            await asyncio.sleep(0.4)
            assert await taken(sub, 1) == [2]
            assert sub.expired == 1
            await bus.publish({"x": 3}, expires=timedelta(milliseconds=200))
            await bus.publish({"x": 4}, ack=True)
            await until(lambda: len(sub._arrivals) == 2)
            await asyncio.sleep(0.4)
            assert [n["x"] for n in await sub.next_batch()] == [4]


@looped
async def test_a_subscription_says_how_old_a_notification_may_be() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        old = datetime.now(UTC) - timedelta(minutes=1)
        await bus.publish({"x": 1}, time=old)
        await bus.publish({"x": 2}, time=old, expires="1h")
        await bus.publish({"x": 3}, ack=True)
        async with bus.subscribe("exists x", since="earliest", expires="10s") as sub:
            assert await taken(sub, 1) == [3]
        async with bus.subscribe("exists x", since="earliest", expires="2m") as sub:
            assert await taken(sub, 3) == [1, 2, 3]


@looped
@pytest.mark.parametrize("settle", [False, True])
async def test_what_has_expired_is_done_for_a_durable_subscription(settle: bool) -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("exists x", durable="d", settle=settle):
            pass
        for x in range(6):
            await bus.publish({"x": x}, ack=True, expires="50ms" if x % 2 else None)
        await asyncio.sleep(0.3)
        async with bus.subscribe("exists x", durable="d", settle=settle) as sub:
            for x in (0, 2, 4):
                n = await sub.get(timeout=10)
                assert n["x"] == x
                if settle:
                    await n.ack()
            await sub.confirm()
            # Behind the last one that is dealt with, only who settles need not be told.
            end = 6 if settle else 5
            await until(lambda: broker.core.durables["d"].positions[broker.stream] >= end)
        assert not broker.core.durables["d"].intervals
        assert broker.core.counters["expired"] == 3


@looped
async def test_who_has_failed_on_it_hears_of_its_end() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with (
            bus.subscribe("type = 'DeadLetter'") as letters,
            bus.subscribe(
                "exists x",
                durable="d",
                retry=Retry(attempts=5, backoff="200ms"),
                dead_letter=True,
            ) as sub,
        ):
            await bus.publish({"x": 1}, expires="100ms")
            await (await sub.get(timeout=10)).nack(reason="not now")
            letter = await letters.get(timeout=10)
            assert letter["attempts"] == 1
            assert letter["cause"] == "it has expired; before that: not now"
            await until(lambda: broker.core.durables["d"].positions[broker.stream] >= 1)


@looped
async def test_a_last_value_expires() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        await bus.publish({"x": 1}, retain="a", expires="50ms")
        await bus.publish({"x": 2}, retain="b", ack=True)
        await asyncio.sleep(0.3)
        async with bus.subscribe("exists x", retained=True) as sub:
            assert await taken(sub, 1) == [2]


@looped
async def test_durations_are_told_by_the_clock_of_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as broker:
        monkeypatch.setattr(broker, "_clock", lambda: 1_900_000_000.0)
        async with stentor.connect(broker.address) as bus:
            async with bus.subscribe("exists x") as sub:
                await bus.publish({"x": 1}, expires="1h")
                found = (await sub.get(timeout=10)).expires
                assert found is not None
                assert abs(found.timestamp() - 1_900_003_600) < 60


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"expires": "soon"}, InvalidValue),
        ({"expires": datetime(2026, 1, 1)}, InvalidValue),
        ({"deliver_at": "2026-01-01T00:00:00"}, InvalidValue),
        ({"priority": 10}, InvalidNotification),
        ({"priority": True}, InvalidNotification),
        ({"deliver_at": "1h", "expires": datetime.now(UTC)}, InvalidNotification),
        ({"deliver_at": "1h", "volatile": True}, InvalidConfiguration),
    ],
)
@looped
async def test_what_cannot_be_is_told_at_once(
    options: dict[str, Any], error: type[Exception]
) -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        with pytest.raises(error):
            await bus.publish({"x": 1}, **options)


# -- priorities


@looped
async def test_the_highest_priority_goes_first_and_equals_keep_their_order() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("exists x", durable="d", order="priority"):
            pass
        priorities = [4, 0, 9, 4, 7, 9, 0, None]
        for x, priority in enumerate(priorities):
            await bus.publish({"x": x}, ack=True, priority=priority)
        async with bus.subscribe("exists x", durable="d", order="priority", window=1) as sub:
            found = []
            for _ in priorities:
                n = await sub.get(timeout=10)
                found.append(n["x"])
                await n.ack()
            await sub.confirm()
            assert found == [2, 5, 4, 0, 3, 7, 1, 6]
            assert broker.core.durables["d"].positions == {broker.stream: len(priorities)}


@looped
async def test_a_client_hands_out_the_highest_of_those_that_it_has() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("exists x", group="g", order="priority") as sub:
            for x, priority in enumerate([1, 5, 3]):
                await bus.publish({"x": x}, ack=True, priority=priority)
            await until(lambda: len(sub._arrivals) == 3)
            assert await taken(sub, 3) == [1, 2, 0]


@looped
async def test_what_was_refused_holds_up_its_own_priority_only() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe(
            "exists x", durable="d", order="priority", retry=Retry(backoff="100ms"), window=10
        ) as sub:
            for x, priority in enumerate([5, 5, 2, 7]):
                await bus.publish({"x": x}, priority=priority)
            await bus.flush()
            await until(lambda: len(sub._arrivals) == 4)
            found = []
            for _ in range(5):
                n = await sub.get(timeout=10)
                found.append((n["x"], n.attempt))
                if n["x"] == 0 and n.attempt == 1:
                    await n.nack()
                else:
                    await n.ack()
            assert found == [(3, 1), (0, 1), (2, 1), (0, 2), (1, 1)]


@looped
async def test_filters_see_how_it_is_to_be_handled() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("_priority >= 5") as urgent:
            await bus.publish({"x": 1})
            await bus.publish({"x": 2}, priority=5)
            n: Notification = await urgent.get(timeout=10)
            assert (n["x"], n.priority, n.expires, n.deliver_at) == (2, 5, None, None)


@looped
async def test_priorities_need_a_queue_that_is_settled() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        with pytest.raises(InvalidConfiguration, match="durable= or group="):
            bus.subscribe("exists x", order="priority")
        with pytest.raises(InvalidConfiguration, match="settle=False"):
            bus.subscribe("exists x", order="priority", durable="d", settle=False)
        with pytest.raises(UnknownStrategy, match="published, priority"):
            bus.subscribe("exists x", order="random")
