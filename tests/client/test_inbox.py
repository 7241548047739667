"""Inboxes: several subscriptions of one component, to which everything is delivered once."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import looped, until
from test_live import overlay

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import Grant, Settings
from stentor.client.interest import FEW, InboxInterest, SubId
from stentor.client.sync import LoopThread
from stentor.errors import (
    FilterTooComplex,
    InvalidConfiguration,
    JournalUnavailable,
    NoReply,
    NotPermitted,
)
from stentor.filters import Filter
from stentor.model import Notification

FAST: Any = {"delays": (0.01, 0.1)}


@dataclass
class Quote:
    symbol: str
    price: float


def broken(broker: Broker) -> None:
    """The connections of its clients break."""
    for client in list(broker.clients.values()):
        client.connection.abort()


async def numbers(inbox: Any, last: int) -> list[int]:
    """What it hands out up to the one with this number."""
    found = []
    while not found or found[-1] != last:
        found.append((await inbox.get(timeout=60))["n"])
    return found


# -- what works as it is shown


@pytest.mark.spec("R-01.14", "R-01.18", "R-01.20", "R-01.21", "01/A-7")
@looped
async def test_one_component_with_many_subscriptions_is_given_everything_once() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1.address) as bus, stentor.connect(b2.address) as other:
            async with bus.inbox() as inbox:
                high = await inbox.subscribe("price > 100")
                quotes = await inbox.subscribe("symbol = 'IBM'")
                await other.publish({"symbol": "IBM", "price": 120, "n": 0}, ack=True)
                await other.publish({"symbol": "IBM", "price": 20, "n": 1}, ack=True)
                await other.publish({"symbol": "SAP", "price": 120, "n": 2}, ack=True)
                await other.publish({"symbol": "SAP", "price": 20, "n": 3}, ack=True)
                matched = [(await inbox.get(timeout=60)).subscriptions for _ in range(3)]
                assert matched == [(high, quotes), (quotes,), (high,)]
                await inbox.unsubscribe(quotes)
                assert inbox.subscriptions == [high]
                await other.publish({"symbol": "IBM", "price": 20, "n": 4}, ack=True)
                await other.publish({"symbol": "IBM", "price": 200, "n": 5}, ack=True)
                async for n in inbox:
                    assert (n["n"], n.subscriptions) == (5, (high,))
                    break


@looped
async def test_equal_filters_are_two_subscriptions() -> None:
    async with overlay(1) as [broker]:
        async with stentor.connect(broker.address) as bus, bus.inbox("x > 1") as inbox:
            [one] = inbox.subscriptions
            two = await inbox.subscribe("x > 1")
            assert one is not two
            await bus.publish({"x": 2, "n": 0}, ack=True)
            assert (await inbox.get(timeout=60)).subscriptions == (one, two)
            await inbox.unsubscribe(one)
            await bus.publish({"x": 2, "n": 1}, ack=True)
            assert (await inbox.get(timeout=60)).subscriptions == (two,)
            with pytest.raises(InvalidConfiguration, match="no longer"):
                await inbox.unsubscribe(one)


@looped
async def test_what_nobody_wants_any_more_is_not_handed_out_although_it_has_come() -> None:
    async with overlay(1) as [broker]:
        async with stentor.connect(broker.address) as bus, bus.inbox("y = 1") as inbox:
            mine = await inbox.subscribe("x = 1")
            for n in range(4):
                await bus.publish({"x": 1, "y": n // 3, "n": n}, ack=True)
            await until(lambda: len(inbox._arrivals) == 4)
            unsubscribing = asyncio.ensure_future(inbox.unsubscribe(mine))
            await asyncio.sleep(0)
            assert await numbers(inbox, 3) == [3]
            await unsubscribing


@looped
async def test_an_inbox_of_classes_and_conditions() -> None:
    async with overlay(1) as [broker]:
        async with stentor.connect(broker.address) as bus, bus.inbox(Quote) as inbox:
            cheap = await inbox.subscribe(Quote, where="price < 10")
            await bus.publish(Quote("IBM", 5.0), ack=True)
            got = await inbox.get(timeout=60)
            assert got["symbol"] == "IBM"
            assert [cheap in got.subscriptions, len(got.subscriptions)] == [True, 2]


@looped
async def test_history_is_that_of_the_filters_that_it_begins_with() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1.address) as bus, stentor.connect(b2.address) as other:
            for n in range(4):
                await bus.publish({"x": n % 2, "y": n // 2, "n": n}, ack=True)
            async with other.inbox("x = 1", "y = 1", since="earliest") as inbox:
                assert await numbers(inbox, 3) == [1, 2, 3]
            for options in ({"since": "earliest"}, {"retained": True}):
                with pytest.raises(InvalidConfiguration, match="begins with"):
                    other.inbox(**options)


@looped
async def test_a_lease_is_that_of_the_whole_inbox() -> None:
    async with overlay(1) as [broker]:
        async with stentor.connect(broker.address) as bus:
            async with bus.inbox("x = 1", lease=30.0) as inbox:
                await inbox.subscribe("x = 2")
                await inbox.renew(timeout=10)
                [held] = broker.core.subscriptions.values()
                assert (held.lease, str(held.interest)) == (30.0, "x in (1, 2)")


# -- what outlives it


@pytest.mark.spec("R-01.20")
@looped
async def test_a_durable_inbox_comes_back_with_its_subscriptions() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b2.address) as other:
            async with stentor.connect(b1.address) as bus:
                async with bus.inbox(durable="desk-7") as inbox:
                    await inbox.subscribe("x = 1")
                    gone = await inbox.subscribe("x = 2")
                    await inbox.subscribe("y = 1")
                    await other.publish({"x": 1, "y": 1, "n": 0}, ack=True)
                    assert await numbers(inbox, 0) == [0]
                    await inbox.unsubscribe(gone)
            for n, event in enumerate([{"x": 1, "y": 0}, {"x": 2, "y": 0}, {"x": 0, "y": 1}], 1):
                await other.publish({**event, "n": n}, ack=True)
            async with stentor.connect(b1.address) as bus:
                async with bus.inbox("z = 1", durable="desk-7") as inbox:
                    assert inbox.resumed
                    assert {str(id.filter) for id in inbox.subscriptions} == {
                        *("x = 1", "y = 1", "z = 1")
                    }
                    known = inbox.subscriptions
                    assert await inbox.subscribe("x = 1") in known
                    await other.publish({"z": 1, "n": 4}, ack=True)
                    assert await numbers(inbox, 4) == [1, 3, 4]


@looped
async def test_a_plain_subscription_can_take_over_a_durable_inbox_and_the_other_way_round() -> None:
    async with overlay(1) as [broker]:
        async with stentor.connect(broker.address) as bus:
            async with bus.subscribe("x = 1", durable="desk-7"):
                pass
            async with bus.inbox(durable="desk-7") as inbox:
                assert [str(id.filter) for id in inbox.subscriptions] == ["x = 1"]
                await inbox.subscribe("y = 1")
            async with bus.subscribe("z = 1", durable="desk-7") as plain:
                assert plain.resumed
            async with bus.inbox(durable="desk-7") as inbox:
                assert [str(id.filter) for id in inbox.subscriptions] == ["z = 1"]


@pytest.mark.spec("R-01.20", "01/A-18")
@looped
async def test_the_members_of_a_group_share_one_set_of_subscriptions() -> None:
    async with overlay() as (b1, b2):
        async with stentor.connect(b1.address) as bus, stentor.connect(b2.address) as other:
            async with bus.inbox("x = 1", group="desk") as one:
                async with other.inbox(group="desk") as two:
                    assert [str(id.filter) for id in two.subscriptions] == ["x = 1"]
                    mine = await two.subscribe("y = 1")
                    await until(lambda: len(one.subscriptions) == 2)
                    for n in range(20):
                        await bus.publish({"x": 1, "y": 1, "n": n}, ack=True)
                    got = [
                        (await each.get(timeout=60))["n"] for _ in range(10) for each in (one, two)
                    ]
                    assert sorted(got) == list(range(20))
                    await two.unsubscribe(mine)
                    await until(lambda: len(one.subscriptions) == 1)
                    with pytest.raises(InvalidConfiguration, match="an inbox"):
                        await bus.subscribe("x = 1", group="desk")


@pytest.mark.spec("R-01.20", "R-01.21")
@looped
async def test_filters_come_and_go_while_connections_break() -> None:
    """Nothing twice, nothing lost, and the last word about each filter is what counts."""
    async with overlay() as (b1, b2):
        async with stentor.connect(b1.address, **FAST) as bus, stentor.connect(b2.address) as other:
            async with bus.inbox("x = 0") as inbox:
                ids: list[SubId] = []
                for n in range(1, 7):
                    adding = asyncio.ensure_future(inbox.subscribe(f"x = {n}"))
                    await asyncio.sleep(0)
                    broken(b1)
                    ids.append(await adding)
                    for x in range(n + 1):
                        await other.publish({"x": x, "n": 10 * n + x}, ack=True)
                removing = asyncio.ensure_future(inbox.unsubscribe(ids[2]))
                await asyncio.sleep(0)
                broken(b1)
                await removing
                await other.publish({"x": 3, "n": 100}, ack=True)
                await other.publish({"x": 0, "n": 101}, ack=True)
                expected = [10 * n + x for n in range(1, 7) for x in range(n + 1)]
                got = await numbers(inbox, 101)
                assert [n for n in expected if n % 10 != 3] == [
                    n for n in got if n < 100 and n % 10 != 3
                ]
                assert len(set(got)) == len(got)
                assert 100 not in got
                [held] = b1.core.subscriptions.values()
                assert str(held.interest) == "x in (0, 1, 2, 4, 5, 6)"


@looped
async def test_what_was_given_up_is_withdrawn() -> None:
    async with overlay(1) as [broker]:
        async with stentor.connect(broker.address) as bus, bus.inbox("x = 0") as inbox:
            with pytest.raises(NoReply, match="did not answer"):
                await inbox.subscribe("x = 1", timeout=0)
            assert [str(id.filter) for id in inbox.subscriptions] == ["x = 0"]
            await inbox.subscribe("x = 2")
            [held] = broker.core.subscriptions.values()
            await until(lambda: str(held.interest) == "x in (0, 2)")
            assert [str(id.filter) for id in inbox.subscriptions] == ["x = 0", "x = 2"]


@looped
async def test_what_could_not_be_stored_is_asked_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker has begun to ask for it before its disk refuses."""
    async with overlay(1) as [broker]:
        async with stentor.connect(broker.address) as bus, bus.inbox("x = 0", durable="d") as inbox:
            stored = broker.core.stored
            full = JournalUnavailable("the disk is full")
            monkeypatch.setattr(broker.core, "stored", lambda hear, _: stored(hear, full))
            with pytest.raises(JournalUnavailable):
                await inbox.subscribe("x = 1")
            [held] = broker.core.subscriptions.values()
            await until(lambda: str(held.interest) == "x = 0")
            monkeypatch.undo()
            assert str(await inbox.subscribe("x = 2"))
            assert [str(id.filter) for id in inbox.subscriptions] == ["x = 0", "x = 2"]


# -- limits


@looped
async def test_each_filter_must_be_permitted() -> None:
    grants = (Grant(name="desk", token="t", subscribe=("x > 0",)),)
    async with overlay(1, grants=grants) as [broker]:
        async with stentor.connect(broker.address, token="t") as bus:
            with pytest.raises(NotPermitted):
                await bus.inbox("x = 1", "y = 1")
            async with bus.inbox("x = 1", durable="d") as inbox:
                with pytest.raises(NotPermitted):
                    await inbox.subscribe("y = 1")
                assert [str(id.filter) for id in inbox.subscriptions] == ["x = 1"]
                assert str(await inbox.subscribe("x = 2"))


@looped
async def test_an_inbox_asks_for_no_more_than_one_filter_may() -> None:
    async with overlay(1) as [broker]:
        async with stentor.connect(broker.address) as bus, bus.inbox("x = -1") as inbox:
            large = " or ".join(f"(a{i} = 1 and b = {i})" for i in range(400))
            await inbox.subscribe(large)
            with pytest.raises(FilterTooComplex, match="another inbox"):
                await inbox.subscribe(large.replace("b", "c"))
            assert len(inbox.subscriptions) == 2
            await bus.publish({"x": -1, "n": 0}, ack=True)
            assert await numbers(inbox, 0) == [0]


# -- without async


def test_an_inbox_without_async() -> None:
    loop = LoopThread("broker")
    loop.start()
    broker = Broker(Settings(listen=("127.0.0.1:0",), name="b1"))
    loop.call(broker.start())
    try:
        with stentor.connect_sync(broker.address) as bus:
            with bus.inbox("price > 100") as inbox:
                quotes = inbox.subscribe("symbol = 'IBM'")
                bus.publish({"symbol": "IBM", "price": 120}, ack=True)
                bus.publish({"symbol": "IBM", "price": 20}, ack=True)
                first, second = inbox.get(timeout=60), inbox.get(timeout=60)
                assert (len(first.subscriptions), second.subscriptions) == (2, (quotes,))
                inbox.unsubscribe(quotes)
                bus.publish({"symbol": "IBM", "price": 20}, ack=True)
                bus.publish({"symbol": "SAP", "price": 120}, ack=True)
                assert next(inbox)["symbol"] == "SAP"
                assert len(inbox.subscriptions) == 1
    finally:
        loop.call(broker.stop())
        loop.stop()


# -- the subscriptions, as a pure value

TEXTS = [f"x = {x}" for x in range(4)]


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "other"]), st.sampled_from(TEXTS))))
def test_application_and_broker_agree_when_everything_was_said(
    steps: list[tuple[str, str]],
) -> None:
    """A broker that is told each word in order, and of whose set another member changes some."""
    interest, broker = InboxInterest(), set[str]()
    for act, text in steps:
        filter = Filter(text)
        if act == "other":
            change = ([], [text]) if text in broker else ([text], [])
        elif act == "add":
            interest.add(filter)
            interest.begin([filter])
            change = interest.word([filter])
        else:
            held = [id for id in interest if id.filter == filter]
            if not held or not interest.remove(held[0]):
                continue
            interest.begin([filter])
            change = interest.word([filter])
        interest.amended(*change)
        if act != "other":
            interest.end([filter])
        broker = (broker | set(change[0])) - set(change[1])
        assert {str(id.filter) for id in interest} == broker
        assert set(interest.take_up()) == broker


@pytest.mark.parametrize("count", [2, FEW + 5])
def test_many_filters_are_searched_as_few_are(count: int) -> None:
    interest = InboxInterest([Filter(f"x >= {i}") for i in range(count)])
    for round in range(3):
        for x in range(-1, count + 1):
            expected = [id for id in interest if id.filter.matches({"x": x})]
            assert set(interest.matching(Notification({"x": x}))) == set(expected)
        interest.remove(next(iter(interest)))
        interest.add(Filter(f"x = {round}"))


@looped
async def test_one_that_was_ended_is_not_entered_again() -> None:
    """It would hand out nothing, for ever."""
    async with overlay(1) as [broker], stentor.connect(broker.address) as bus:
        for ended in (bus.inbox("n > 0"), bus.subscribe("n > 0")):
            async with ended:
                pass
            with pytest.raises(InvalidConfiguration, match="begins only once"):
                async with ended:
                    pass
