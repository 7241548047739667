"""Advertisements and demand, request and reply, hooks."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from scripted import Session, World, looped, until

import stentor
from stentor.errors import (
    InvalidConfiguration,
    InvalidNotification,
    NoReply,
    NotAdvertised,
    NotPermitted,
    ProviderFailed,
    Vetoed,
)
from stentor.filters import Filter
from stentor.model import Notification
from stentor.protocol import messages as m

FAST: Any = {"delays": (0.001, 0.01)}


@dataclass
class Place:
    x: int
    y: int


@pytest.mark.spec("R-07.73", "R-01.97", "R-01.98")
class TestAdvertising:
    @looped
    async def test_demand_is_told_and_quenching_follows_it(self) -> None:
        world = World()
        told: list[bool] = []
        async with world.broker() as broker, stentor.connect(broker, **FAST) as bus:
            offer = bus.advertise(
                "k > 0", quench=True, demand=lambda offer: told.append(offer.demanded)
            )
            async with offer:
                assert (offer.demanded, offer.filters) == (True, None)
                await bus.publish({"k": 1}, ack=True)
                broker.send(m.Demand(offer._number, []))
                await until(lambda: told == [False])
                id = await bus.publish({"k": 2}, ack=True)
                await bus.publish({"other": 2}, ack=True)
                assert (offer.quenched, bus.quenched, id.sequence) == (1, 1, 1)
                broker.send(m.Demand(offer._number, ["k > 9"]))
                await until(lambda: told == [False, True])
                assert offer.filters == [Filter("k > 9")]
                await bus.publish_many([{"k": k} for k in (3, 10, 4)], ack=True)
                async with bus.transaction() as transaction:
                    quenched = await transaction.publish({"k": 5})
                    sent = await transaction.publish({"k": 11})
                assert (quenched.id is None, sent.id is None) == (True, False)
                # Without a connection nobody knows, so everything counts as wanted.
                broker.sessions[0].connection.abort()
                await until(lambda: offer.filters is None)
                await bus.publish({"k": 6}, ack=True)
            await bus.publish({"k": 7}, ack=True)
        assert [n["k"] for n in world.all() if "k" in n] == [1, 10, 11, 6, 7]

    @looped
    async def test_publishing_through_the_offer(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.advertise(Place, demand=False) as offer:
                await offer.publish(Place(1, 2), ack=True)
                with pytest.raises(NotAdvertised):
                    await offer.publish({"x": 1})
                await offer.publish({"x": 1}, type="Place", ack=True)
        assert [n["x"] for n in world.all()] == [1, 1]
        (said,) = [x for x in world.heard if isinstance(x, m.Advertise)]
        assert not said.demand

    @looped
    async def test_offers_are_made_again_and_can_be_found(self) -> None:
        async with World().broker() as broker, stentor.connect(broker, **FAST) as bus:
            async with bus.advertise("k > 0"):
                assert await bus.offers() == [Filter("k > 0")]
                broker.sessions[0].connection.abort()
                assert await bus.offers("k = 3") == [Filter("k > 0")]
            assert await bus.offers() == []

    @looped
    async def test_one_that_is_refused(self) -> None:
        def refuse(session: Session, message: Any) -> None:
            session.send(m.Failure("STN-604", "no", message.number))

        async with World().broker(answers={m.Advertise: refuse}) as broker:
            async with stentor.connect(broker) as bus:
                with pytest.raises(NotPermitted):
                    await bus.advertise("k > 0")
                assert not bus._local.advertisements

    @looped
    async def test_one_that_is_refused_later_is_logged(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(session: Session, message: Any) -> None:
            session.send(m.Failure("STN-604", "no more", message.number))

        async with World().broker() as broker, stentor.connect(broker, **FAST) as bus:
            async with bus.advertise("k > 0"):
                broker.answers[m.Advertise] = refuse
                broker.sessions[0].connection.abort()
                await until(lambda: not bus._local.advertisements)
        assert "no more" in caplog.text

    @looped
    async def test_ending_one_while_the_connection_breaks(self) -> None:
        def cut(session: Session, _: Any) -> None:
            session.connection.abort()

        async with World().broker(answers={m.Unadvertise: cut}) as broker:
            async with stentor.connect(broker, **FAST) as bus:
                async with bus.advertise("k > 0"):
                    pass
                assert not bus._local.advertisements


@pytest.mark.spec("R-01.47", "01/A-16")
class TestRequests:
    @looped
    async def test_one_inbox_is_in_force_before_the_first_request(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:

            @bus.reply("service = 'price'")
            async def price(n: Notification) -> dict[str, Any]:
                return {"price": len(n["symbol"])}

            await bus.ready()
            for symbol in ("IBM", "ACME"):
                reply = await bus.request({"service": "price", "symbol": symbol})
                assert reply["price"] == len(symbol)
        kinds = [type(x).__name__ for x in world.heard if isinstance(x, m.Subscribe | m.Publish)]
        assert kinds == ["Subscribe"] * 2 + ["Publish"] * 4
        assert world.all() == [], "requests and replies are volatile"

    @looped
    async def test_several_providers_and_several_replies(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:

            @bus.reply("ask = 'all'")
            async def two(_: Notification) -> Any:
                yield {"from": "two", "n": 1}
                yield {"from": "two", "n": 2}

            @bus.reply("ask = 'all'")
            def echo(n: Notification) -> Any:
                return n  # which must not be taken for another request

            @bus.reply("ask = 'all'")
            def nothing(_: Notification) -> None:
                return None

            await bus.ready()
            for _ in range(2):
                replies = [r async for r in bus.request_all({"ask": "all"}, 9, max_replies=3)]
                assert sorted(r.get("from", "echo") for r in replies) == ["echo", "two", "two"]
            assert len([r async for r in bus.request_all({"ask": "all"}, 9, max_replies=2)]) == 2
            ended_by_time = [r async for r in bus.request_all({"ask": "all"}, 0.3)]
            assert 1 <= len(ended_by_time) <= 3

    @looped
    async def test_typed_requests(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:

            @bus.reply(Place, where="x > 0")
            def swapped(place: Place) -> Place:
                return Place(place.y, place.x)

            await bus.ready()
            reply = await bus.request(Place(1, 2))
            assert (reply["x"], reply["y"], reply.type) == (2, 1, "Place")

    @looped
    async def test_no_reply_is_an_error_and_late_ones_are_dropped(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            requests: list[Notification] = []
            bus.on("ask = 'slowly'")(requests.append)
            bus.reply("ask = 'first'")(lambda n: {"ok": True})
            await bus.ready()
            await bus.request({"ask": "first"})
            with pytest.raises(NoReply, match="nobody replied"):
                await bus.request({"ask": "slowly"}, timeout=0.02)
            await until(lambda: requests)
            late = {"in_reply_to": requests[0]["reply_to"], "correlation_id": "2"}
            await bus.publish(late, ack=True)
            await until(lambda: bus._requests is not None and bus._requests.dropped == 1)
            with pytest.raises(InvalidNotification, match="reply_to"):
                await bus.request({"reply_to": "me"})
            with pytest.raises(InvalidConfiguration, match="max_replies"):
                _ = [r async for r in bus.request_all({"x": 1}, max_replies=0)]

    @looped
    async def test_a_provider_that_fails_says_so(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:

            @bus.reply("ask = 'x'")
            def broken(_: Notification) -> Any:
                raise ValueError("broken")

            await bus.ready()
            with pytest.raises(ProviderFailed, match="ValueError: broken"):
                await bus.request({"ask": "x"}, timeout=30)


@pytest.mark.spec("R-01.72")
class TestHooks:
    @looped
    async def test_at_every_point_of_a_client(self) -> None:
        dropped: list[Any] = []
        async with World().broker() as broker, stentor.connect(broker) as bus:
            hooks = bus.hooks
            hooks.add("publish", lambda n: stentor.VETO if n["k"] < 0 else None)
            hooks.add("publish", lambda n: n.replace(attributes={**n, "by": "hook"}))
            hooks.add("subscribe", lambda f: f & Filter("k < 100"))
            hooks.add("subscribe", lambda f: stentor.VETO if f.is_never else None)
            hooks.add("advertise", lambda f: stentor.VETO if f.is_always else None)
            hooks.add("deliver", lambda n: stentor.VETO if n["k"] == 2 else None)
            hooks.add("drop", dropped.append)
            with pytest.raises(Vetoed, match="publish"):
                await bus.publish({"k": -1})
            with pytest.raises(Vetoed, match="subscribe"):
                await bus.subscribe("k > 1000")
            with pytest.raises(Vetoed, match="advertise"):
                await bus.advertise("")
            async with bus.subscribe("k > 0") as sub:
                assert sub.filter == Filter("k > 0 and k < 100")
                await bus.publish_many([{"k": 2}, {"k": 3}], ack=True)
                n = await sub.get()
                assert (n["k"], n["by"]) == (3, "hook")
                await bus.publish_many([{"k": 2}, {"k": 4}], ack=True)
                assert [n["k"] for n in await sub.next_batch()] == [4]
        assert [d.reason for d in dropped] == ["vetoed", "vetoed"]
