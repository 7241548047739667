"""Brokers that find each other by event types, and link when they have to do with each other."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from scripted import looped, until
from test_strategies_live import linked

import stentor
from stentor.broker import visits
from stentor.broker.host import Broker
from stentor.broker.settings import Settings
from stentor.routing.rendezvous.places import Places

RING = [(1, 0, "peer"), (2, 1, "peer"), (3, 2, "peer"), (4, 3, "peer"), (4, 0, "peer")]


@asynccontextmanager
async def ring() -> AsyncIterator[list[Broker]]:
    """Five brokers, each of which knows all others."""
    async with linked(RING, "rendezvous") as brokers:
        yield brokers


def type_at(brokers: list[Broker], place: Broker, but: str = "") -> str:
    """An event type that meets at this broker."""
    places = Places(broker.stream for broker in brokers)
    names = (f"t{i}" for i in range(10_000))
    return next(n for n in names if places.of(n) == place.stream and n != but)


def visited(broker: Broker) -> set[Any]:
    """The names of those with whom it is linked for a while."""
    return {link.origin.broker for link in broker.links.values() if link.place == "visitor"}


@pytest.mark.spec("R-03.34", "R-03.36", "R-07.70")
@looped
async def test_only_those_who_have_to_do_with_a_type_know_who_asks_for_it() -> None:
    async with ring() as brokers:
        b0, _, b2, b3, _ = brokers
        quote = type_at(brokers, b3)
        async with stentor.connect(b0) as consumer, stentor.connect(b2) as producer:
            async with consumer.subscribe(f"isa {quote} and x > 1") as sub:
                for x in range(5):
                    await producer.publish({"x": x}, type=f"{quote}.small", ack=True)
                assert [(await sub.get(timeout=60))["x"] for _ in range(3)] == [2, 3, 4]
                told = {b.name: b.core.router.table_size().remote for b in brokers}
                assert told == {b.name: int(b is b2) for b in brokers}
                assert visited(b0) == {"b2", "b3"}


@pytest.mark.spec("R-03.34")
@looped
async def test_a_link_that_nobody_needs_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "IDLE", 0.2)
    async with ring() as brokers:
        b0, _, b2, b3, _ = brokers
        quote = type_at(brokers, b3)
        async with stentor.connect(b0) as consumer, stentor.connect(b2) as producer:
            async with consumer.subscribe(f"isa {quote}") as sub:
                await producer.publish({"x": 1}, type=quote, ack=True)
                assert (await sub.get(timeout=60))["x"] == 1
                assert visited(b0) == {"b2", "b3"}
            await until(lambda: not visited(b0))


@pytest.mark.spec("R-03.34")
@looped
async def test_who_asks_for_no_type_is_linked_with_all() -> None:
    async with ring() as brokers:
        async with stentor.connect(brokers[0]) as consumer, stentor.connect(brokers[2]) as producer:
            async with consumer.subscribe("x > 1") as sub:
                for type in ("a", "b", None):
                    await producer.publish({"x": 2}, type=type, ack=True)
                got = [(await sub.get(timeout=60)).type for _ in range(3)]
                assert got == ["a", "b", None]
                assert len(brokers[0].links) == 4


@pytest.mark.spec("R-03.35", "R-07.60")
@looped
async def test_what_was_published_before_is_found_by_who_asks_for_the_past() -> None:
    async with ring() as brokers:
        quote = type_at(brokers, brokers[3])
        async with stentor.connect(brokers[2]) as producer:
            await producer.publish({"x": 1}, type=quote, ack=True)
        async with stentor.connect(brokers[0]) as consumer:
            async with consumer.subscribe(f"isa {quote}", since="earliest") as sub:
                assert (await sub.get(timeout=60))["x"] == 1


@pytest.mark.spec("R-03.35", "R-07.60")
@looped
async def test_the_place_of_a_type_may_go() -> None:
    """Nothing is kept there that cannot be lost: a new type finds its subscribers without it."""
    async with ring() as brokers:
        place = brokers[3]
        quote, trade = (first := type_at(brokers, place)), type_at(brokers, place, but=first)
        async with stentor.connect(brokers[0]) as consumer, stentor.connect(brokers[2]) as producer:
            async with consumer.subscribe(f"isa {quote} or isa {trade}") as sub:
                await producer.publish({"x": 0}, type=quote, ack=True)
                assert (await sub.get(timeout=60))["x"] == 0
                await place.stop()
                for x in range(1, 4):
                    await producer.publish({"x": x}, type=quote, ack=True)
                    await producer.publish({"x": -x}, type=trade, ack=True)
                got = [(await sub.get(timeout=20))["x"] for _ in range(6)]
                assert got == [1, -1, 2, -2, 3, -3]


@pytest.mark.spec("R-07.60")
@looped
async def test_a_broker_that_is_removed_leaves_its_journal_to_be_found() -> None:
    """Who takes it over has the types in it, and so is found by those who ask for them."""

    def settings(name: str, *neighbors: Broker) -> Settings:
        return Settings(
            listen=("127.0.0.1:0",),
            neighbors=tuple(neighbor.address for neighbor in neighbors),
            name=name,
            data=root / name,
            overlay="rendezvous",
        )

    async with AsyncExitStack() as stack:
        root = Path(stack.enter_context(TemporaryDirectory()))  # the test runs twice
        b0 = await stack.enter_async_context(Broker(settings("b0")))
        b1 = await stack.enter_async_context(Broker(settings("b1", b0)))
        b2 = await stack.enter_async_context(Broker(settings("b2", b0, b1)))
        b3 = await stack.enter_async_context(Broker(settings("b3", b0)))
        await until(lambda: all(len(b.core.directory.others) == 3 for b in (b0, b1, b2, b3)))
        consumer = await stack.enter_async_context(stentor.connect(b3))
        sub = await stack.enter_async_context(consumer.subscribe("isa quote"))
        async with stentor.connect(b2) as producer:
            for x in range(3):
                await producer.publish({"x": x}, type="quote", ack=True)
        assert [(await sub.get(timeout=60))["x"] for _ in range(3)] == [0, 1, 2]
        await b2.drain()
        await until(lambda: b2.stream not in b3.links)
        async with consumer.subscribe("isa quote", since="earliest") as everything:
            got = [(await everything.get(timeout=60))["x"] for _ in range(3)]
            assert got == [0, 1, 2]
        async with stentor.connect(b1) as producer:
            await producer.publish({"x": 3}, type="quote", ack=True)
        assert (await sub.get(timeout=60))["x"] == 3


@pytest.mark.spec("01/A-14")
@looped
async def test_demand_is_told_to_who_offers_a_type_that_nobody_has_yet() -> None:
    async with ring() as brokers:
        quote = type_at(brokers, brokers[3])
        async with stentor.connect(brokers[0]) as consumer, stentor.connect(brokers[2]) as producer:
            async with consumer.subscribe(f"isa {quote}.small and x > 1"):
                async with producer.advertise(f"isa {quote}", demand=True) as offer:
                    await until(lambda: bool(offer.filters))


@pytest.mark.spec("01/A-18")
@looped
async def test_all_brokers_know_where_a_group_lives() -> None:
    async with ring() as brokers:
        async with stentor.connect(brokers[0]) as one, stentor.connect(brokers[2]) as other:
            async with one.subscribe("isa quote", group="desk") as first:
                async with other.subscribe("isa quote", group="desk") as second:
                    async with stentor.connect(brokers[4]) as producer:
                        for x in range(4):
                            await producer.publish({"x": x}, type="quote", ack=True)
                    got = [(await each.get(timeout=60))["x"] for each in (first, second) * 2]
                    assert sorted(got) == [0, 1, 2, 3]
