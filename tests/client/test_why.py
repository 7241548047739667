"""Why a client has an event, or has not: asked of real brokers, after the fact."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest
from scripted import looped, until
from test_live import overlay

import stentor
from stentor import Retry
from stentor.broker.host import Broker
from stentor.broker.settings import Grant
from stentor.cli.options import Connecting
from stentor.cli.why import _inquire, _lines
from stentor.errors import NotPermitted, ProtocolError
from stentor.filters import Filter
from stentor.filters.mismatch import alternatives
from stentor.model import Notification, NotificationId, encode
from stentor.model.codec import decode_header
from stentor.node.clock import Clock
from stentor.node.durable import Durable
from stentor.node.feed import Feed
from stentor.node.interest import Interest
from stentor.node.parts import inquiries
from stentor.node.subscription import Subscription
from stentor.node.trail import ENDED_WEIGHT, ENTRIES, OFFSETS, Trail
from stentor.scopes import MembershipRule, ScopeGraph
from stentor.scopes.definition import records_of


async def why(broker: Broker, id: Any, client: str, token: str | None = None) -> dict[str, Any]:
    how = Connecting((broker.address,), token, None, 10.0)
    return await _inquire(how, str(id), client)


def done(steps: Generator[None, None, Any]) -> Any:
    """What something that goes in steps comes to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def outcomes(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(v["subscription"], v["outcome"]) for v in found["verdicts"]]


@looped
async def test_it_is_told_across_three_brokers_what_became_of_an_event() -> None:
    async with overlay(3) as (b0, b1, b2):
        async with stentor.connect(b0.address, name="ticker") as ticker:
            async with stentor.connect(b2.address, name="desk") as desk:
                async with desk.subscribe("price > 100") as dear, desk.subscribe("price < 10"):
                    id = await ticker.publish({"symbol": "IBM", "price": 120.5}, ack=True)
                    assert (await dear.get(timeout=60)).id == id
                    for asked in (b0, b1, b2):  # whichever broker is asked
                        found = await why(asked, id, "desk")
                        assert [e["broker"] for e in found["entered"]] == ["b0"]
                        assert found["way"] == ["b0", "b1", "b2"]
                        assert sorted(o for _, o in outcomes(found)) == ["delivered", "unmatched"]
                    unmatched = next(v for v in found["verdicts"] if v["outcome"] == "unmatched")
                    assert unmatched["alternatives"] == [
                        [{"text": "price < 10", "holds": False, "found": "price is 120.5"}]
                    ]
                    delivered = next(v for v in found["verdicts"] if v["outcome"] == "delivered")
                    # A core knows the time of the last tick.
                    assert abs(delivered["time"] - found["entered"][0]["time"]) < 30
                    text = "\n".join(_lines(found))
                    assert "way       b0 -> b1 -> b2" in text
                    assert "FAIL  price < 10  price is 120.5" in text
                    async with desk.subscribe("price > 1"):
                        found = await why(b1, id, "desk")
                        assert ("subscription 3", "later") in outcomes(found)
                found = await why(b1, id, "desk")
                assert all("ended" in v for v in found["verdicts"])
                assert sorted(o for _, o in outcomes(found)) == ["delivered", "later", "unmatched"]


@looped
async def test_what_scopes_hide_is_told_as_long_as_the_journal_has_it() -> None:
    async with overlay(2) as (b0, b1):
        graph = ScopeGraph()
        for name in ("acme", "beta"):
            graph.create_scope(name)
            graph.add_rule(MembershipRule(name, Filter(f"tenant = '{name}'")))
        deployed = asyncio.get_running_loop().create_future()
        b0.core.scoping.deploy(records_of(graph), deployed.set_result)
        b0.changed()
        assert await deployed is None
        of = {name: {"tenant": name} for name in ("acme", "beta")}
        async with stentor.connect(b0.address, name="vault", attributes=of["acme"]) as vault:
            async with stentor.connect(b1.address, name="spy", attributes=of["beta"]) as spy:
                async with spy.subscribe(""), spy.subscribe("", durable="mine"):
                    id = await vault.publish({"x": 1}, ack=True)
                    found = await why(b0, id, "spy")
                    assert {outcome for _, outcome in outcomes(found)} == {"hidden"}
            for client in ("spy", "mine"):  # and afterwards
                found = await why(b0, id, client)
                assert {outcome for _, outcome in outcomes(found)} == {"hidden"}
                assert "visible to members of acme" in found["verdicts"][0]["text"]


@looped
async def test_durable_subscriptions_tell_what_is_confirmed_waits_or_was_given_up() -> None:
    async with overlay(2) as (b0, b1):
        async with stentor.connect(b0.address) as bus:
            async with stentor.connect(b1.address, name="biller") as biller:
                tried = Retry(attempts=2, backoff="10ms..20ms")

                @biller.on("account > 0", durable="billing", retry=tried, dead_letter=True)
                async def bill(order: stentor.Notification) -> None:
                    if order["account"] == 7:
                        raise ValueError("there is no account 7")

                await biller.ready()
                good = await bus.publish({"account": 1}, ack=True)
                bad = await bus.publish({"account": 7}, ack=True)

                async def became(id: Any, name: str, wanted: str) -> dict[str, Any]:
                    while True:
                        found = await why(b0, id, name)
                        if outcomes(found) == [("durable billing", wanted)]:
                            return found
                        await asyncio.sleep(0.02)

                await asyncio.wait_for(became(good, "biller", "confirmed"), 20)
                found = await asyncio.wait_for(became(bad, "billing", "dead-letter"), 20)
                assert "after 2 attempts: ValueError" in found["verdicts"][0]["text"]
            late = await bus.publish({"account": 2}, ack=True)
            await asyncio.wait_for(became(late, "billing", "waiting"), 20)
            await asyncio.wait_for(became(good, "billing", "confirmed"), 20)


@looped
async def test_what_overflow_or_time_has_taken_is_named_with_its_policy() -> None:
    async with overlay(1) as (b0,):
        async with (
            stentor.connect(b0.address) as bus,
            stentor.connect(b0.address, name="slow") as s,
        ):
            async with s.subscribe("x >= 0", limit=2, overflow="drop_oldest") as slow:
                subscription = next(iter(b0.core.subscriptions.values()))
                session = subscription.consumers[0].session
                b0.core.block(session)  # it does not read
                ids = [await bus.publish({"x": x}, ack=True) for x in range(5)]
                await until(lambda: subscription.feed.dropped == 3)
                found = [await why(b0, id, "slow") for id in ids]
                states = [outcome for each in found for _, outcome in outcomes(each)]
                assert states == ["dropped"] * 3 + ["waiting"] * 2
                text = found[0]["verdicts"][0]["text"]
                assert text == "dropped: more than 2 waited, and its policy is 'drop_oldest'"
                b0.core.unblock(session)
                b0.changed()
                assert (await slow.get(timeout=60))["x"] == 3
                assert outcomes(await why(b0, ids[4], "slow")) == [("subscription 1", "delivered")]


@looped
async def test_what_is_not_due_or_was_refused_or_never_was_is_told() -> None:
    grants = (
        Grant("desk", token="d", publish=("x > 0",), subscribe=("",)),
        Grant("boss", token="b", publish=("",), subscribe=("",), operate=True),
    )
    async with overlay(1, grants=grants) as (b0,):
        async with stentor.connect(b0.address, token="d", name="ann") as ann:
            later = await ann.publish({"x": 1}, deliver_at=timedelta(hours=1), ack=True)
            found = await why(b0, later, "ann", "b")
            assert found["due"] is not None
            assert any("scheduled" in line for line in _lines(found))
            with pytest.raises(NotPermitted):
                await ann.publish({"x": 0}, ack=True)
            refused = NotificationId(later.producer, later.epoch, later.sequence + 1)
            found = await why(b0, refused, "ann", "b")
            assert [r["code"] for r in found["refused"]] == [NotPermitted.code]
            never = NotificationId(later.producer, later.epoch, later.sequence + 99)
            assert "no journal has it" in "\n".join(_lines(await why(b0, never, "ann", "b")))
            with pytest.raises(NotPermitted):  # only administrators ask
                await why(b0, later, "ann", "d")


@looped
async def test_a_border_that_hides_it_is_named() -> None:
    boss = Grant("boss", token="b", publish=("",), subscribe=("",), operate=True)
    inner = Grant("b1", token="l", publish=("",), subscribe=("x > 5",), broker=True)
    b0 = Broker(_settings("b0", grants=(boss, inner)))
    await b0.start()
    b1 = Broker(_settings("b1", neighbors=(b0.address,), token="l", grants=(boss,)))
    await b1.start()
    try:
        await until(lambda: len(b1.core.directory.others) == 1)
        async with stentor.connect(b0.address, token="b") as bus:
            async with stentor.connect(b1.address, token="b", name="ann") as ann:
                async with ann.subscribe("x >= 0"):
                    id = await bus.publish({"x": 1}, ack=True)
                    found = await why(b0, id, "ann", "b")
                    assert found["hidden"] == [
                        {"neighbor": "b1", "direction": "out", "broker": "b0"}
                    ]
                    assert "does not let it pass from b0 to b1" in "\n".join(_lines(found))
    finally:
        await b1.stop()
        await b0.stop()


def _settings(name: str, **options: Any) -> Any:
    from stentor.broker.settings import Settings

    return Settings(listen=("127.0.0.1:0",), name=name, **options)


@looped
async def test_a_question_that_makes_no_sense_is_refused() -> None:
    async with overlay(1) as (b0,):
        for arguments in ({}, {"notification": "x"}, {"notification": "a:1:1", "from": 3}):
            with pytest.raises(ProtocolError):
                list(b0.core.inquiries.asked(arguments))


# -- bounds


def test_the_trail_is_bounded_and_forgets_the_oldest() -> None:
    trail = Trail(Clock(0.0, 0.0))
    for i in range(ENTRIES + 10):
        trail.note("delivered", "a@1/1", 1, "s", [i])
    assert trail.steps("a@1/1", "s", 5) == []
    assert len(trail.steps("a@1/1", "s", ENTRIES)) == 1
    for i in range(10):
        trail.note(
            "delivered", "a@1/1", 1, "t", list(range(i * OFFSETS // 5, (i + 1) * OFFSETS // 5))
        )
    assert trail.steps("a@1/1", "t", 0) == []
    assert trail.begin >= 0.0


def test_an_interest_of_very_many_parts_is_explained_briefly() -> None:
    filters = [Filter(f"a{i} = {i} or b{i} > {i}") for i in range(200)]
    event = decode_header(encode(Notification({"a1": 2}, id=NotificationId("p", 1, 1))))
    told = done(inquiries._unmatched(Interest(filters), event))
    assert len(told["alternatives"]) == inquiries.ALTERNATIVES


def test_what_an_event_of_very_many_names_lacks_is_told_without_guessing() -> None:
    event = Notification(dict.fromkeys([f"name_{i}" for i in range(1_000)], 1))
    ((part,),) = alternatives(Filter("nam_1 = 1"), event)
    assert part.found == "there is no 'nam_1'"


def test_the_filters_of_ended_subscriptions_are_kept_as_long_as_they_weigh_little() -> None:
    trail = Trail(Clock(0.0, 0.0))
    heavy = Interest([Filter(" or ".join(f"a{i} = 1" for i in range(500)))], fixed=True)
    for i in range(200):
        trail.ended(Subscription(Feed(f"ann@1/{i}"), heavy))
    kept = trail.endings("ann")
    assert kept[-1].id == "ann@1/199"
    assert 1 < len(kept) <= ENDED_WEIGHT // heavy.weight
    trail.ended(Subscription(Feed("durable d"), heavy, durable=Durable("d", heavy, since=0.0)))
    assert trail.endings("d") == []


@looped
async def test_while_a_question_is_answered_subscriptions_come_and_go() -> None:
    async with overlay(1) as (b0,):
        async with stentor.connect(b0.address, name="desk") as desk:
            async with desk.subscribe("x > 1"), desk.subscribe("x > 2"):
                async with desk.subscribe("x > 3", durable="kept"):
                    pass
                data = encode(Notification({"x": 0}, id=NotificationId("p", 1, 1)))
                asked = {"client": "desk", "stream": b0.stream, "offset": 1, "data": data}
                steps = b0.core.inquiries.asked(asked)
                next(steps)
                async with desk.subscribe("x > 4"), desk.subscribe("x > 5", durable="new"):
                    next(steps)
                found = done(steps)
        assert [v["outcome"] for v in found["verdicts"][:2]] == ["unmatched", "unmatched"]
