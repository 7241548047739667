"""Every routing strategy, with every one of advertisements, delivers between real brokers."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from scripted import looped, until
from test_live import overlay

import stentor
from stentor.broker import replacement
from stentor.broker.host import Broker
from stentor.broker.overlay import free_ports
from stentor.broker.replacement import replace_link
from stentor.broker.settings import ADVERTISEMENTS, ROUTING, Settings
from stentor.errors import InvalidConfiguration, LinkRefused, NotAdvertised


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
                        assert [(await late.get(timeout=60))["price"] for _ in range(3)] == [
                            *(99, 101, 120)
                        ]
                        assert [(await early.get(timeout=60))["price"] for _ in range(2)] == [
                            *(101, 120)
                        ]
                    if advertisements != "none":
                        with pytest.raises(NotAdvertised):
                            await bus.publish({"symbol": "IBM"}, ack=True)
            await until(lambda: not b0.core.subscriptions and b0.core.router.is_empty)


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
                    assert (await sub.get(timeout=60))["room"] == "A1"
                await until(lambda: not b0.core.routing.interests())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"routing": "covering"}, {"routing": "flooding"}),
        ({"routing": "merging"}, {"routing": "simple"}),
        ({}, {"advertisements": "covering"}),
        ({"advertisements": "simple"}, {"advertisements": "covering"}),
        ({}, {"overlay": "graph"}),
        ({"overlay": "graph"}, {"overlay": "rendezvous"}),
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
            await until(lambda: "go together" in b2.links.dialing[b1.address])
            assert not b1.links
            assert b1.address not in b2.links.reserve


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
            assert (await one.get(timeout=60))["x"] == 1
            assert (await two.get(timeout=60))["x"] == 2


@asynccontextmanager
async def linked(links: list[tuple[int, int, str]], shape: str) -> AsyncIterator[list[Broker]]:
    """Brokers by number, each linked with one before it, as its "peer" or "parent"."""
    brokers: list[Broker] = []
    async with AsyncExitStack() as stack:
        for i in range(max(max(a, b) for a, b, _ in links) + 1):
            peers = [brokers[b].address for a, b, what in links if a == i and what == "peer"]
            above = [brokers[b].address for a, b, what in links if a == i and what == "parent"]
            settings = Settings(
                listen=("127.0.0.1:0",),
                name=f"b{i}",
                overlay=shape,
                neighbors=tuple(peers),
                parent=above[0] if above else None,
            )
            brokers.append(await stack.enter_async_context(Broker(settings)))
        count = len(brokers) - 1
        await until(lambda: all(len(b.core.directory.others) == count for b in brokers))
        yield brokers


SHAPES = {
    "hierarchy": [(1, 0, "parent"), (2, 0, "parent"), (3, 2, "parent")],
    "hybrid": [(1, 0, "peer"), (2, 1, "peer"), (2, 0, "peer"), (3, 0, "parent")],
    "graph": [(1, 0, "peer"), (2, 1, "peer"), (2, 0, "peer"), (3, 2, "peer"), (3, 0, "peer")],
    "rendezvous": [(1, 0, "peer"), (2, 1, "peer"), (3, 2, "peer"), (3, 0, "peer")],
}


@pytest.mark.spec("R-03.31", "R-03.33", "R-08.41", "R-08.43", "R-08.44", "R-07.73")
@pytest.mark.parametrize("shape", SHAPES)
@looped
async def test_everybody_gets_what_they_ask_for_in_every_overlay(shape: str) -> None:
    async with linked(SHAPES[shape], shape) as brokers, AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(stentor.connect(b)) for b in brokers]
        subs = [
            await stack.enter_async_context(bus.subscribe(f"x >= {i}"))
            for i, bus in enumerate(buses)
        ]
        for i, bus in enumerate(buses):
            async with bus.advertise("exists x", quench=True):
                for x in range(4):
                    await bus.publish({"x": x, "from": i}, ack=True)
        for i, sub in enumerate(subs):
            got = [await sub.get(timeout=60) for _ in range(4 * (4 - i))]
            for source in range(4):
                assert [n["x"] for n in got if n["from"] == source] == list(range(i, 4))


@pytest.mark.spec("R-08.43")
@looped
async def test_a_graph_that_loses_a_link_loses_nothing() -> None:
    async with linked(SHAPES["graph"], "graph") as brokers:
        async with stentor.connect(brokers[1]) as bus, stentor.connect(brokers[3]) as other:
            async with other.subscribe("exists x") as sub:
                for x in range(30):
                    if x == 10:  # whichever of its links leads there
                        way = brokers[3].core.directory.towards(brokers[1].stream)
                        brokers[3].links[way].connection.abort()
                    await bus.publish({"x": x}, ack=True)
                assert [(await sub.get(timeout=60))["x"] for _ in range(30)] == list(range(30))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"overlay": "tree", "parent": "127.0.0.1:1"}, "in a tree brokers have no parent"),
        ({"overlay": "hierarchy", "neighbors": ("127.0.0.1:1",)}, "linked with its parent"),
        (
            {"overlay": "hybrid", "neighbors": ("127.0.0.1:1",), "parent": "127.0.0.1:2"},
            "leave its neighbors out",
        ),
        ({"overlay": "rendezvous", "parent": "127.0.0.1:1"}, "in a rendezvous brokers have no"),
        ({"overlay": "rendezvous", "routing": "flooding"}, "cannot be flooded"),
        ({"overlay": "rendezvous", "advertisements": "covering"}, "leave `advertisements` out"),
    ],
)
@looped
async def test_links_that_an_overlay_does_not_have_are_refused(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=reason):
        await Broker(Settings(listen=("127.0.0.1:0",), **settings)).start()


@looped
async def test_a_peer_is_not_let_into_a_hierarchy() -> None:
    here = {"listen": ("127.0.0.1:0",), "overlay": "hybrid"}
    async with Broker(Settings(name="b1", **here)) as b1:
        async with Broker(Settings(name="b2", parent=b1.address, **here)) as b2:
            await until(lambda: b1.links)
            async with Broker(Settings(name="b3", neighbors=(b2.address,), **here)) as b3:
                await until(lambda: "cannot be a peer" in b3.links.dialing.get(b2.address, ""))
                assert not b3.links


@pytest.mark.spec("R-07.67")
@pytest.mark.parametrize("shape", ["tree", "graph"])
@looped
async def test_a_link_is_replaced_under_traffic(shape: str) -> None:
    async with linked([(1, 0, "peer"), (2, 1, "peer")], shape) as (b0, b1, b2):
        async with stentor.connect(b0) as bus, stentor.connect(b2) as other:
            async with other.subscribe("exists x") as sub:
                for x in range(20):
                    if x == 10:
                        await replace_link(b2, "b1", b0.address)
                    await bus.publish({"x": x}, ack=True)
                assert [(await sub.get(timeout=60))["x"] for _ in range(20)] == list(range(20))
        assert b2.links.keys() == {b0.stream}
        assert b1.address not in b2.links.dialing


@pytest.mark.spec("R-07.67")
@looped
async def test_a_link_stays_if_the_new_neighbor_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replacement, "PATIENCE", 0.3)
    async with linked([(1, 0, "peer")], "tree") as (b0, b1):
        nobody = f"127.0.0.1:{free_ports(['127.0.0.1'])[0]}"
        with pytest.raises(LinkRefused, match=f"that with {b0.address} stays"):
            await replace_link(b1, "b0", nobody)
        assert b1.links.keys() == {b0.stream}
        assert list(b1.links.dialing) == [b0.address]
        with pytest.raises(InvalidConfiguration, match="dials no neighbor 'b1'"):
            await replace_link(b0, "b1", nobody)
