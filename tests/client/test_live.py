"""The library and real brokers: what the documentation shows works as it is shown."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from scripted import looped, until

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import Grant, Settings, TlsFiles
from stentor.client.sync import LoopThread
from stentor.errors import AccessDenied, InvalidConfiguration, NoReply, NotPermitted, TlsError

FAST: Any = {"delays": (0.01, 0.1)}


@dataclass
class Quote:
    symbol: str
    price: float


@asynccontextmanager
async def overlay(count: int = 2, **options: Any) -> AsyncIterator[list[Broker]]:
    """Brokers in a line, linked."""
    brokers: list[Broker] = []
    try:
        for i in range(count):
            neighbors = (brokers[-1].address,) if brokers else ()
            broker = Broker(
                Settings(listen=("127.0.0.1:0",), name=f"b{i}", neighbors=neighbors, **options)
            )
            await broker.start()
            brokers.append(broker)
        await until(lambda: all(len(b.core.directory.others) == count - 1 for b in brokers))
        yield brokers
    finally:
        for broker in brokers:
            await broker.stop()


@looped
async def test_the_lines_of_the_documentation_across_two_brokers() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1.address) as bus, stentor.connect(b2.address) as other:
            async with other.subscribe("symbol = 'IBM' and price > 100") as quotes:
                await bus.publish({"symbol": "IBM", "price": 120.5}, ack=True)
                async for n in quotes:
                    assert n["price"] == 120.5
                    assert n.id is not None
                    assert n.time is not None
                    break
            async with other.subscribe(
                "price > 100", durable="desk-7", since="2026-01-01T00:00:00Z"
            ) as q:
                assert (await q.get(timeout=60))["price"] == 120.5
            await bus.publish({"symbol": "IBM", "price": 130.5}, ack=True)
            async with other.subscribe("price > 100", durable="desk-7") as q:
                assert q.resumed
                assert (await q.get(timeout=60))["price"] == 130.5


@looped
async def test_filters_look_into_lists_of_records_across_two_brokers() -> None:
    lines = [{"sku": "B-4", "quantity": 99}, {"sku": "A-17", "quantity": 12}]
    async with overlay() as (b1, b2):
        async with stentor.connect(b1.address) as bus, stentor.connect(b2.address) as other:
            wanted = "any line in lines: line.sku = 'A-17' and line.quantity > 10"
            async with other.subscribe(wanted) as orders:
                few = [{**line, "quantity": line["quantity"] % 10} for line in lines]
                await bus.publish({"order": 1, "lines": few}, ack=True)
                await bus.publish({"order": 2, "lines": lines}, ack=True)
                order = await orders.get(timeout=30)
                assert order["order"] == 2
                assert list(order["lines"]) == lines


def test_the_lines_without_async() -> None:
    loop = LoopThread("broker")
    loop.start()
    broker = Broker(Settings(listen=("127.0.0.1:0",), name="b1"))
    loop.call(broker.start())
    try:
        with stentor.connect_sync(broker.address) as bus:
            got: list[float] = []

            @bus.on("price > 100")
            def dear(n: stentor.Notification) -> None:
                got.append(n["price"])

            with bus.subscribe("price > 0") as every:
                bus.publish_many([{"price": p} for p in (120.5, 7.0, 130.5)], ack=True)
                assert [every.get(timeout=60)["price"] for _ in range(3)] == [120.5, 7.0, 130.5]
        assert got == [120.5, 130.5][: len(got)]
    finally:
        loop.call(broker.stop())
        loop.stop()


@looped
async def test_a_volatile_subscription_gets_what_comes_while_it_is_there() -> None:
    async with overlay(2) as (first, second):
        async with stentor.connect(first.address) as bus, stentor.connect(second.address) as other:
            await bus.publish({"x": 1}, ack=True)
            async with bus.subscribe("x > 1", volatile=True) as sub:
                await bus.publish({"x": 2}, ack=True)
                await bus.publish({"x": 3}, volatile=True, ack=True)
                assert [(await sub.get())["x"] for _ in range(2)] == [2, 3]
                async with other.subscribe(""):  # what was asked before is known there now
                    await other.publish({"x": 4}, ack=True)
                    assert (await sub.get())["x"] == 4


@looped
async def test_a_broker_that_restarts_interrupts_nothing(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/b1"
    settings = Settings(listen=(address,), data=tmp_path / "data", name="b1")
    broker = Broker(settings)
    await broker.start()
    async with stentor.connect(address, **FAST) as bus:
        async with (
            bus.subscribe("k >= 0") as plain,
            bus.subscribe("k >= 0", durable="d") as durable,
        ):
            await bus.publish_many([{"k": k} for k in range(10)], ack=True)
            assert [(await plain.get(60))["k"] for _ in range(10)] == list(range(10))
            await broker.stop()
            await bus.publish_many([{"k": k} for k in range(10, 20)])
            broker = Broker(settings)
            await broker.start()
            await bus.publish_many([{"k": k} for k in range(20, 30)], ack=True)
            assert [(await plain.get(60))["k"] for _ in range(20)] == list(range(10, 30))
            assert [(await durable.get(60))["k"] for _ in range(30)] == list(range(30))
            for sub in (plain, durable):
                with pytest.raises(NoReply):
                    await sub.get(timeout=0.05)
    await broker.stop()


@looped
async def test_failing_over_to_another_broker_loses_and_repeats_nothing() -> None:
    async with overlay(3) as (b1, b2, b3):
        async with stentor.connect(b1, b3, name="producer", **FAST) as bus:
            async with stentor.connect(b2) as other, other.subscribe("k >= 0") as sub:
                publishing = asyncio.create_task(
                    bus.publish_many([{"k": k} for k in range(5_000)], ack=True)
                )
                assert (await sub.get())["k"] == 0
                for client in list(b1.clients.values()):
                    client.connection.abort()
                await publishing
                seen = [0]
                while len(seen) < 5_000:
                    seen.append((await sub.get(timeout=60))["k"])
                assert seen == list(range(5_000))


@pytest.mark.spec("01/A-18")
@looped
async def test_a_group_across_brokers_gets_each_notification_once() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1) as one, stentor.connect(b2) as two:
            async with one.subscribe("k >= 0", group="desk") as first:
                await until(lambda: b2.core.groups.elsewhere)
                async with two.subscribe("k >= 0", group="desk") as second:
                    await two.publish_many([{"k": k} for k in range(100)], ack=True)
                    got: list[int] = []

                    async def read(sub: Any) -> None:
                        async for n in sub:
                            got.append(n["k"])

                    readers = [asyncio.create_task(read(sub)) for sub in (first, second)]
                    await until(lambda: len(got) >= 100)
                    assert sorted(got) == list(range(100))
                    assert first.last is not None
                    assert second.last is not None, "both have had some"
            await asyncio.gather(*readers)


@pytest.mark.spec("01/A-18")
@looped
async def test_a_group_whose_broker_restarts_repeats_and_loses_nothing(tmp_path: Path) -> None:
    home = Settings(listen=(f"unix:{tmp_path}/b1",), data=tmp_path / "data", name="b1")
    broker = Broker(home)
    await broker.start()
    other = Broker(Settings(listen=("127.0.0.1:0",), name="b2", neighbors=home.listen))
    await other.start()
    await until(lambda: broker.core.directory.others and other.core.directory.others)
    got: list[int] = []
    async with (
        stentor.connect(other) as bus,
        stentor.connect(broker, name="m1", **FAST) as one,
        stentor.connect(broker, name="m2", **FAST) as two,
    ):
        for member in (one, two):
            await member.subscribe("k >= 0", group="desk", handler=lambda n: got.append(n["k"]))
        await bus.publish_many([{"k": k} for k in range(100)], ack=True)
        await until(lambda: len(got) >= 100)
        # The broker's clock is known to a tick, which history would reach back.
        later = broker.core.clock.time + 0.5
        await until(lambda: broker.core.clock.time >= later)
        await broker.stop()
        await bus.publish_many([{"k": k} for k in range(100, 200)], ack=True)
        broker = Broker(home)
        await broker.start()
        await until(lambda: len(got) >= 200)
        await bus.publish_many([{"k": k} for k in range(200, 300)], ack=True)
        await until(lambda: len(got) >= 300)
        assert sorted(got) == list(range(300))
    await other.stop()
    await broker.stop()


@pytest.mark.spec("R-07.49")
@looped
async def test_last_values() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1) as bus, stentor.connect(b2) as other:
            for price in (1.0, 2.0):
                await bus.publish({"symbol": "IBM", "price": price}, retain="IBM", ack=True)
            async with other.subscribe("price > 0", retained=True) as sub:
                assert (await sub.get(timeout=60))["price"] == 2.0
                await bus.publish({"symbol": "IBM", "price": 3.0}, ack=True)
                assert (await sub.get(timeout=60))["price"] == 3.0


@pytest.mark.spec("R-07.73", "R-01.97")
@looped
async def test_demand_wakes_a_quenched_producer() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1) as bus, stentor.connect(b2) as other:
            async with bus.advertise(Quote, quench=True) as offer:
                await until(lambda: offer.filters == [])
                await offer.publish(Quote("IBM", 1.0), ack=True)
                async with other.subscribe(Quote, where="price > 100") as quotes:
                    await until(lambda: offer.demanded)
                    assert len(await other.offers()) == 1
                    await offer.publish(Quote("IBM", 7.0), ack=True)
                    await offer.publish(Quote("IBM", 120.5), ack=True)
                    assert await quotes.get(timeout=60) == Quote("IBM", 120.5)
                assert offer.quenched == 2
                await until(lambda: not offer.demanded)


@looped
async def test_request_and_reply_across_brokers() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1) as bus, stentor.connect(b2) as other:

            @other.reply("service = 'price'")
            def price(n: stentor.Notification) -> Any:
                return {"price": 120.5, "symbol": n["symbol"]}

            await other.ready()
            reply = await bus.request({"service": "price", "symbol": "IBM"}, timeout=5)
            assert (reply["price"], reply["symbol"]) == (120.5, "IBM")


@looped
async def test_permissions_and_leases() -> None:
    grants = (Grant("desk", token="secret", publish=("k > 0",), subscribe=("k > 0",)),)
    async with overlay(1, grants=grants) as (broker,):
        with pytest.raises(AccessDenied):
            await stentor.connect(broker, token="guess")
        async with stentor.connect(broker, token="secret") as bus:
            with pytest.raises(NotPermitted):
                await bus.publish({"k": 0}, ack=True)
            with pytest.raises(NotPermitted):
                await bus.subscribe("")
            transaction = await bus.transaction().__aenter__()
            for k in (1, 0):
                await transaction.publish({"k": k})
            with pytest.raises(NotPermitted):
                await transaction.__aexit__(None, None, None)
            async with bus.subscribe("k > 0", lease=30.0) as sub:
                for k in range(1, 6):
                    await bus.publish({"k": k}, ack=True)
                    assert (await sub.get(timeout=60))["k"] == k
            with pytest.raises(InvalidConfiguration, match="same filter"):
                async with bus.subscribe("k > 1", group="g"), bus.subscribe("k > 2", group="g"):
                    pass


@looped
async def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.server("localhost"), authority.client("desk")
    tls = TlsFiles(server.certificate, server.key, authority.certificate)
    settings = Settings(listen=("tls://localhost:0",), name="b1", tls=tls)
    files = {"ca": authority.certificate, "certificate": client.certificate, "key": client.key}
    async with Broker(settings) as broker:
        async with stentor.connect(broker, tls=files) as bus:
            async with bus.subscribe("k > 0") as sub:
                await bus.publish({"k": 1}, ack=True)
                assert (await sub.get(timeout=60))["k"] == 1
        with pytest.raises(TlsError, match="not trusted here"):
            await stentor.connect(broker, timeout=30)
        with pytest.raises(TlsError, match="requires a certificate"):
            await stentor.connect(broker, tls={"ca": authority.certificate}, timeout=30)


@looped
async def test_ten_thousand_events_in_order_and_a_thousand_connections() -> None:
    async with overlay(1) as (broker,):
        async with stentor.connect(broker) as bus, bus.subscribe("k >= 0", window=500) as sub:
            publishing = asyncio.create_task(bus.publish_many({"k": k} for k in range(10_000)))
            got: list[int] = []
            async for batch in sub.batches():
                got += [n["k"] for n in batch]
                if len(got) == 10_000:
                    break
            await publishing
            assert got == list(range(10_000))
        for _ in range(100):
            async with stentor.connect(broker):
                pass
        await until(lambda: not broker.clients)
