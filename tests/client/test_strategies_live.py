"""Every routing strategy, with every one of advertisements, delivers between real brokers."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import pytest
from scripted import looped, until
from test_live import overlay

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import ADVERTISEMENTS, ROUTING, Settings
from stentor.errors import NotAdvertised


@pytest.mark.spec("R-03.24", "R-03.26", "R-07.73")
@pytest.mark.parametrize("advertisements", ADVERTISEMENTS)
@pytest.mark.parametrize("routing", ROUTING)
@looped
async def test_what_is_asked_for_comes_and_nothing_else(routing: str, advertisements: str) -> None:
    async with overlay(3, routing=routing, advertisements=advertisements) as (b0, _, b2):
        async with stentor.connect(b0) as bus, stentor.connect(b2) as other:
            async with other.subscribe("price > 100") as early:
                async with bus.advertise("exists price", quench=True):
                    async with other.subscribe("symbol = 'IBM' or price > 100") as late:
                        for price in (99, 101, 120):
                            await bus.publish({"symbol": "IBM", "price": price}, ack=True)
                        assert [(await late.get(timeout=5))["price"] for _ in range(3)] == [
                            *(99, 101, 120)
                        ]
                        assert [(await early.get(timeout=5))["price"] for _ in range(2)] == [
                            *(101, 120)
                        ]
                    if advertisements != "none":
                        with pytest.raises(NotAdvertised):
                            await bus.publish({"symbol": "IBM"}, ack=True)
            await until(lambda: not b0.core.subscriptions and b0.core.router.plane.is_empty)


@pytest.mark.spec("R-03.20")
@looped
async def test_a_subscription_stays_at_home_until_somebody_offers_what_it_asks_for() -> None:
    async with overlay(2, advertisements="covering") as (b0, b1):
        async with stentor.connect(b0) as bus, stentor.connect(b1) as other:
            async with other.subscribe("temperature > 30") as sub:
                async with bus.advertise("temperature < 10"):
                    assert not b0.core.routing.interests()
                async with bus.advertise("exists temperature and room prefix 'A'"):
                    assert [str(f) for f in b0.core.routing.interests()] == ["temperature > 30"]
                    # It is in force: nobody has to wait before the first publication.
                    await bus.publish({"temperature": 31, "room": "A1"}, ack=True)
                    assert (await sub.get(timeout=5))["room"] == "A1"
                await until(lambda: not b0.core.routing.interests())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"routing": "covering"}, {"routing": "flooding"}),
        ({"routing": "merging"}, {"routing": "simple"}),
        ({}, {"advertisements": "covering"}),
        ({"advertisements": "simple"}, {"advertisements": "covering"}),
    ],
)
@looped
async def test_brokers_that_would_lose_events_between_them_are_not_linked(
    one: dict[str, str], other: dict[str, str]
) -> None:
    here = {"listen": ("127.0.0.1:0",)}
    async with Broker(Settings(name="b1", **here, **one)) as b1:
        settings = Settings(name="b2", neighbors=(b1.address,), **here, **other)
        async with Broker(settings) as b2:
            await until(lambda: "go together" in b2.dialing[b1.address])
            assert not b1.links
            assert b1.address not in b2.reserve


@looped
async def test_strategies_that_go_together_may_differ() -> None:
    here = {"listen": ("127.0.0.1:0",)}
    async with (
        Broker(Settings(name="b1", routing="merging", looseness=0.3, **here)) as b1,
        Broker(Settings(name="b2", routing="identity", neighbors=(b1.address,), **here)) as b2,
        stentor.connect(b1) as bus,
        stentor.connect(b2) as other,
    ):
        await until(lambda: b1.links)
        async with other.subscribe("x = 1") as one, other.subscribe("x = 2") as two:
            await bus.publish_many([{"x": x} for x in (1, 2, 3)], ack=True)
            assert (await one.get(timeout=5))["x"] == 1
            assert (await two.get(timeout=5))["x"] == 2
