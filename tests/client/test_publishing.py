"""Publishing against a broker that does as it is told, and transactions."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from scripted import Session, World, looped, until

import stentor
from stentor.errors import (
    InvalidConfiguration,
    InvalidNotification,
    InvalidValue,
    NoReply,
    NotAdvertised,
    NotPermitted,
    Overloaded,
    Unreachable,
)
from stentor.model import Notification, NotificationId, decode
from stentor.protocol import messages as m

FAST: Any = {"delays": (0.001, 0.01)}


@dataclass
class Place:
    x: int
    y: int


class TestPublishing:
    @looped
    async def test_one_turn_is_one_frame(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            await asyncio.gather(*(bus.publish({"k": k}) for k in range(50)))
            await bus.flush()
        frames = [x for x in world.heard if isinstance(x, m.Publish)]
        assert [len(frame.items) for frame in frames] == [50]

    @looped
    async def test_every_part_travels(self) -> None:
        world = World()
        moment = datetime(2026, 1, 2, tzinfo=UTC)
        async with world.broker() as broker, stentor.connect(broker) as bus:
            await bus.publish(
                {"k": 1},
                type="quote",
                subject="a/b",
                channel="news",
                payload=b"!",
                content_type="text/plain",
                time=moment,
            )
            await bus.publish(Notification({"k": 2}, type="quote"), payload=b"?")
            await bus.publish(Place(3, 4), ack=True)
        first, second, third = world.all()
        assert (first.type, first.subject, first.channel) == ("quote", "a/b", "news")
        assert (first.payload, first.content_type, first.time) == (b"!", "text/plain", moment)
        assert (second.type, second.payload) == ("quote", b"?")
        assert (third.type, dict(third)) == ("Place", {"x": 3, "y": 4})

    @looped
    async def test_mistakes_use_up_no_id(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            first = await bus.publish({"k": 1})
            for wrong in ({}, {"k": float("nan")}, {"_type": "x"}, 42):
                with pytest.raises((InvalidNotification, InvalidValue)):
                    await bus.publish(wrong)
            with pytest.raises((InvalidNotification, InvalidValue)):
                await bus.publish_many([{"k": 2}, {"k": float("nan")}])
            with pytest.raises(InvalidConfiguration, match="volatile"):
                await bus.publish({"k": 1}, volatile=True, retain="k")
            with pytest.raises(InvalidNotification, match="retain"):
                await bus.publish({"k": 1}, retain="")
            assert (await bus.publish({"k": 2})).sequence == first.sequence + 1

    @pytest.mark.spec("R-01.13")
    @looped
    async def test_an_id_is_not_published_again(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            id = await bus.publish({"k": 1}, ack=True)
            changed = Notification({"k": 2}, id=id)
            for publishing in (bus.publish(changed), bus.publish_many([{"k": 3}, changed])):
                with pytest.raises(InvalidNotification, match=r"replace\(id=None\)"):
                    await publishing
            theirs = Notification({"k": 4}, id=NotificationId("another", 1, 0))
            ids = [await bus.publish(each) for each in (changed.replace(id=None), theirs)]
            await bus.flush()
        sent = [decode(i) for x in world.heard if isinstance(x, m.Publish) for i in x.items]
        assert [(n["k"], n.id) for n in sent] == [(1, id), (2, ids[0]), (4, ids[1])]

    @looped
    async def test_a_refusal_reaches_the_one_who_waits(self) -> None:
        def refuse(session: Session, message: Any) -> None:
            bad = [i for i, data in enumerate(message.items) if decode(data)["k"] < 0]
            good = [data for i, data in enumerate(message.items) if i not in bad]
            if bad:
                session.send(m.Rejected(message.number, bad, "STN-604", "may not"))
            session.store(m.Publish(message.number, good))
            session.send(m.Published(message.number))

        world = World()
        async with world.broker(answers={m.Publish: refuse}) as broker:
            async with stentor.connect(broker) as bus:
                good, bad = await asyncio.gather(
                    bus.publish({"k": 1}, ack=True),
                    bus.publish({"k": -1}, ack=True),
                    return_exceptions=True,
                )
                assert isinstance(good, NotificationId)
                assert isinstance(bad, NotPermitted)
                with pytest.raises(NotPermitted):
                    await bus.publish_many([{"k": 2}, {"k": -2}], ack=True)
                await bus.publish({"k": -3})
                with pytest.raises(NotPermitted):
                    await bus.flush()
                await bus.flush()
                assert bus.rejected == 3
        assert [n["k"] for n in world.all()] == [1, 2]

    @pytest.mark.parametrize("heard_by", ["flush", "log", "close", "callback"])
    def test_a_refusal_that_nobody_waits_for_is_told_once(
        self, heard_by: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def told() -> list[str]:
            answered = asyncio.Event()

            def refuse(session: Session, message: Any) -> None:
                bad = [i for i, data in enumerate(message.items) if decode(data)["k"] < 0]
                session.send(m.Rejected(message.number, bad, "STN-604", "may not"))
                session.send(m.Published(message.number))
                answered.set()

            heard = list[str]()
            async with World().broker(answers={m.Publish: refuse}) as broker:
                async with stentor.connect(broker) as bus:
                    if heard_by == "callback":
                        bus.on_refusal(lambda n, error: heard.append(f"{n['k']}: {error}"))
                        bus.on_refusal(lambda n, error: 1 / 0)
                    await bus.publish_many([{"k": -1}, {"k": 1}])
                    if heard_by == "log":
                        await answered.wait()
                        while bus.unacknowledged:
                            await asyncio.sleep(0)
                    elif heard_by == "flush":
                        with pytest.raises(NotPermitted) as raised:
                            await bus.flush()
                        heard.append(str(raised.value))
                    elif heard_by == "callback":
                        await bus.flush()
                    assert bus.rejected == (0 if heard_by == "close" else 1)
            return heard + [r.getMessage() for r in caplog.records if r.exc_info is None]

        expected = {"flush": "may not", "callback": "-1: may not"}
        assert asyncio.run(told()) == [expected.get(heard_by, "1 publication was refused: may not")]
        if heard_by == "callback":
            assert "ZeroDivisionError" in caplog.text

    @looped
    async def test_a_failure_with_the_number_of_a_publication_refuses_all_of_it(self) -> None:
        def fail(session: Session, message: Any) -> None:
            session.send(m.Failure("STN-604", "no", message.number))

        async with World().broker(answers={m.Publish: fail}) as broker:
            async with stentor.connect(broker) as bus:
                with pytest.raises(NotPermitted):
                    await bus.publish({"k": 1}, ack=True)

    @pytest.mark.spec("R-01.89")
    @looped
    async def test_the_window_and_the_buffer_are_kept(self) -> None:
        world = World()
        hold: list[Any] = []
        answers: Any = {m.Publish: lambda session, message: hold.append((session, message))}
        async with world.broker(window=10, answers=answers) as broker:
            async with stentor.connect(broker, buffer=20) as bus:
                for k in range(20):
                    await bus.publish({"k": k})
                    await asyncio.sleep(0)
                with pytest.raises(NoReply, match="takes no more"):
                    await bus.publish({"k": 20}, timeout=0.01)
                assert bus.unacknowledged == 20
                await until(lambda: sum(len(x.items) for _, x in hold) == 10)
                waiting = asyncio.create_task(bus.publish({"k": 20}))
                del broker.answers[m.Publish]
                for session, message in hold:
                    session.on_publish(message)
                await waiting
                await bus.flush()
        assert [n["k"] for n in world.all()] == list(range(21))

    @looped
    async def test_many_from_any_source(self) -> None:
        async def numbers() -> Any:
            for k in range(3):
                yield {"k": k}

        world = World()
        async with world.broker(window=20_000) as broker, stentor.connect(broker) as bus:
            assert await bus.publish_many(numbers(), ack=True) == 3
            assert await bus.publish_many({"k": k} for k in range(3, 2000)) == 1997
            keep = await bus.publish_many(
                [{"k": 1}, {"k": 2}], retain=lambda e: f"key {e['k']}" if e["k"] > 1 else None
            )
            assert keep == 2
            await bus.flush()
        assert [n["k"] for n in world.all()][:2000] == list(range(2000))
        assert list(world.last_values) == ["key 2"]

    @looped
    async def test_large_events_go_in_several_frames(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            events = [Notification({"k": k}, payload=bytes(100_000)) for k in range(7)]
            await bus.publish_many(events, ack=True)
            with pytest.raises(Overloaded):
                await bus.publish({"k": 8}, payload=bytes(2 << 20))
        assert [n["k"] for n in world.all()] == list(range(7))

    @pytest.mark.spec("R-07.39")
    @looped
    async def test_volatile_is_delivered_at_most_once(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker, **FAST) as bus:
            async with bus.subscribe("k > 0") as sub:
                await bus.publish({"k": 1}, volatile=True, ack=True)
                assert (await sub.get())["k"] == 1
                broker.answers[m.Publish] = lambda session, _: session.connection.abort()
                with pytest.raises(Unreachable, match="volatile"):
                    await bus.publish({"k": 2}, volatile=True, ack=True)
                del broker.answers[m.Publish]
                await bus.publish({"k": 3}, ack=True)
                assert (await sub.get())["k"] == 3
        assert [n["k"] for n in world.all()] == [3]

    @looped
    async def test_closing_waits_for_acknowledgements_and_says_so_if_they_do_not_come(self) -> None:
        async def publish(k: int, then: Any) -> None:
            async with stentor.connect(broker, close_timeout=0.02) as bus:
                await bus.publish({"k": k})
                then()

        world = World()
        async with world.broker() as broker:
            await publish(1, lambda: None)
            assert [n["k"] for n in world.all()] == [1]
            broker.answers[m.Publish] = lambda *_: None
            with pytest.raises(NoReply, match="1 publication is not acknowledged"):
                await publish(2, lambda: None)
            with pytest.raises(ZeroDivisionError):
                await publish(3, lambda: 1 / 0)
        assert isinstance(world.heard[-1], m.Goodbye)


@pytest.mark.spec("R-01.94", "R-01.95", "R-01.96", "01/A-13")
class TestTransactions:
    @looped
    async def test_nothing_before_the_end_and_everything_then_in_one_frame(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.transaction() as transaction:
                held = [await transaction.publish({"k": k}) for k in range(3)]
                await bus.publish({"k": 99}, ack=True)
                assert [h.id for h in held] == [None] * 3
                assert len(transaction) == 3
            assert transaction.state == "committed"
            assert [n["k"] for n in world.all()] == [99, 0, 1, 2]
            assert [h.id for h in held] == [n.id for n in world.all()[1:]]
        (frame,) = [x for x in world.heard if isinstance(x, m.Publish) and x.atomic]
        assert len(frame.items) == 3

    @looped
    async def test_an_error_and_a_rollback_publish_nothing(self) -> None:
        async def fail() -> None:
            async with bus.transaction() as transaction:
                states.append(transaction)
                await transaction.publish({"k": 1})
                raise ZeroDivisionError

        world = World()
        states: list[Any] = []
        async with world.broker() as broker, stentor.connect(broker) as bus:
            with pytest.raises(ZeroDivisionError):
                await fail()
            async with bus.transaction() as given_up:
                await given_up.publish({"k": 2})
                given_up.rollback()
            assert (states[0].state, given_up.state) == ("rolled back", "rolled back")
            with pytest.raises(InvalidConfiguration, match="rolled back"):
                await given_up.publish({"k": 2})
            with pytest.raises(InvalidConfiguration, match="used once"):
                await given_up.__aenter__()
            async with bus.transaction() as empty:
                pass
            assert empty.state == "committed"
            # Its content may be published later, and no id was used up.
            assert (await bus.publish({"k": 2}, ack=True)).sequence == 0
        assert [n["k"] for n in world.all()] == [2]

    @looped
    async def test_an_inner_one_ends_into_the_outer_one(self) -> None:
        async def fail(outer: Any) -> None:
            async with outer.transaction() as inner:
                await inner.publish({"k": 3})
                raise ZeroDivisionError

        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.transaction() as outer:
                await outer.publish({"k": 1})
                async with outer.transaction() as inner:
                    held = await inner.publish({"k": 2}, retain="key")
                with pytest.raises(ZeroDivisionError):
                    await fail(outer)
                assert world.all() == []
            assert held.id is not None
        assert [n["k"] for n in world.all()] == [1, 2]
        assert list(world.last_values) == ["key"]

    @looped
    async def test_one_refusal_aborts_all_of_it(self) -> None:
        def refuse(session: Session, message: Any) -> None:
            everything = list(range(len(message.items)))
            session.send(m.Rejected(message.number, everything, "STN-408", "not advertised"))
            session.send(m.Published(message.number))

        async with World().broker(answers={m.Publish: refuse}) as broker:
            async with stentor.connect(broker) as bus:
                transaction = await bus.transaction().__aenter__()
                held = await transaction.publish({"k": 1})
                with pytest.raises(NotAdvertised):
                    await transaction.__aexit__(None, None, None)
                assert (transaction.state, held.id) == ("rolled back", None)

    @looped
    async def test_too_large_a_one_is_an_error_and_leaves_nothing(self) -> None:
        world = World()
        async with world.broker(window=5) as broker, stentor.connect(broker) as bus:
            transaction = await bus.transaction().__aenter__()
            for k in range(6):
                await transaction.publish({"k": k})
            with pytest.raises(Overloaded, match="allows 5"):
                await transaction.__aexit__(None, None, None)
            assert transaction.state == "rolled back"
            await bus.publish({"k": 7}, ack=True)
        assert [n["k"] for n in world.all()] == [7]

    @looped
    async def test_without_an_answer_the_outcome_is_unknown(self) -> None:
        async with World().broker(answers={m.Publish: lambda *_: None}) as broker:
            bus = await stentor.connect(broker, close_timeout=0.01)
            transaction = await bus.transaction(timeout=0.01).__aenter__()
            await transaction.publish({"k": 1})
            with pytest.raises(NoReply):
                await transaction.__aexit__(None, None, None)
            assert transaction.state == "unknown"
            with pytest.raises(NoReply):
                await bus.close()
