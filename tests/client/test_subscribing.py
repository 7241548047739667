"""Subscriptions of every kind against a broker that does as it is told."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from scripted import PATIENCE, ScriptedBroker, Session, World, looped, until

import stentor
from stentor.errors import (
    GroupElsewhere,
    InvalidConfiguration,
    InvalidValue,
    JournalUnavailable,
    LeaseExpired,
    NameTaken,
    NoReply,
    NotPermitted,
    QueueOverflow,
    StentorError,
)
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.protocol import messages as m

FAST: Any = {"delays": (0.001, 0.01)}


def item(k: int, producer: str = "p") -> bytes:
    return encode(Notification({"k": k}, id=NotificationId(producer, 0, k)))


def refuse(session: Session, message: Any) -> None:
    session.send(m.Failure("STN-604", "ask for less", message.number))


@dataclass
class Place:
    x: int
    y: int


class TestSubscribing:
    @looped
    async def test_what_was_asked_for_is_said(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            options: Any = {
                "durable": "desk",
                "since": "2026-01-01T00:00:00Z",
                "lease": 60.0,
                "retained": True,
                "overflow": "drop_oldest",
                "limit": 7,
                "window": 9,
            }
            async with bus.subscribe(Filter("k > 0"), where="k < 9", **options):
                pass
            async with bus.subscribe(group="desk", choice="key:symbol"):
                pass
        first, second = [x for x in world.heard if isinstance(x, m.Subscribe)]
        assert Filter(first.filter) == Filter("k > 0 and k < 9")
        assert (first.durable, first.credit, first.lease) == ("desk", 9, 60.0)
        assert first.since == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
        assert (first.retained, first.overflow, first.limit) == (True, "drop_oldest", 7)
        assert first.positions is None
        assert (second.filter, second.group, second.choice) == ("true", "desk", "key:symbol")

    @pytest.mark.parametrize(
        ("filter", "options", "error"),
        [
            ("k >", {}, StentorError),
            (42, {}, InvalidConfiguration),
            ("", {"window": 0}, InvalidConfiguration),
            ("", {"limit": -1}, InvalidConfiguration),
            ("", {"lease": 0}, InvalidConfiguration),
            ("", {"durable": ""}, InvalidConfiguration),
            ("", {"group": "a\x00"}, InvalidConfiguration),
            ("", {"group": "g", "retained": True}, InvalidConfiguration),
            ("", {"volatile": True, "since": "earliest"}, InvalidConfiguration),
            ("", {"volatile": True, "durable": "desk"}, InvalidConfiguration),
            ("", {"since": "2026-01-01T00:00:00"}, InvalidValue),
        ],
    )
    def test_mistakes_are_told_at_once(self, filter: Any, options: Any, error: Any) -> None:
        with pytest.raises(error):
            stentor.connect().subscribe(filter, **options)

    @looped
    async def test_a_refused_subscription_says_why(self) -> None:
        async with World().broker(answers={m.Subscribe: refuse}) as broker:
            async with stentor.connect(broker) as bus:
                with pytest.raises(NotPermitted, match="ask for less"):
                    await bus.subscribe("")
                assert not bus._local.subscriptions

    @looped
    async def test_one_that_is_not_answered_in_time(self) -> None:
        async with World().broker(answers={m.Subscribe: lambda *_: None}) as broker:
            async with stentor.connect(broker) as bus:
                with pytest.raises(NoReply):
                    await bus.subscribe("", timeout=0.01)
                assert not bus._local.subscriptions

    @pytest.mark.spec("R-01.89")
    @looped
    async def test_credit_follows_the_application(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k >= 0", window=10) as sub:
                await bus.publish_many([{"k": k} for k in range(40)], ack=True)
                (feed,) = broker.sessions[0].feeds.values()
                await until(lambda: len(sub._arrivals) == 10)
                assert feed.credit == 0
                for k in range(4):
                    assert (await sub.get())["k"] == k
                assert not any(isinstance(x, m.Credit) for x in world.heard)
                async for n in sub:
                    assert len(sub._arrivals) <= 10
                    if n["k"] == 39:
                        break
                credits = [x.more for x in world.heard if isinstance(x, m.Credit)]
                assert credits == [5] * len(credits)

    @looped
    async def test_what_is_dropped_here_is_granted_again(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k >= 0", window=4) as sub:
                for _ in range(3):
                    broker.send(m.Deliver(sub.attachment.number, "x#0", [1, 2], [item(1), item(2)]))
                await until(lambda: any(isinstance(x, m.Credit) for x in world.heard))
                assert len(sub._arrivals) == 2

    @looped
    async def test_batches_and_timeouts(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k >= 0") as sub:
                await bus.publish_many([{"k": k} for k in range(10)], ack=True)
                got: list[int] = []
                async for batch in sub.batches(limit=2):
                    assert 1 <= len(batch) <= 2
                    got += [n["k"] for n in batch]
                    if len(got) == 10:
                        break
                assert got == list(range(10))
                with pytest.raises(NoReply, match="k >= 0"):
                    await sub.get(timeout=0.01)
                with pytest.raises(NoReply):
                    await sub.next_batch(timeout=0.01)

    @looped
    async def test_the_end_of_a_subscription_ends_its_readers(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            sub = await bus.subscribe("")
            reader: asyncio.Task[Any] = asyncio.create_task(anext(sub, "over"))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            await sub.close()
            assert await reader == "over"
            assert [n async for n in sub] == []
            assert [b async for b in sub.batches()] == []
            with pytest.raises(NoReply, match="ended"):
                await sub.get()
            with pytest.raises(InvalidConfiguration, match="only once"):
                await sub

    @pytest.mark.spec("R-01.18")
    @looped
    async def test_nothing_is_handed_out_after_the_end(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k >= 0") as sub:
                await bus.publish_many([{"k": k} for k in range(3)], ack=True)
                await sub.get()
                await until(lambda: len(sub._arrivals) == 2)
            assert [n async for n in sub] == []

    @looped
    async def test_what_came_before_the_broker_ended_it_is_still_handed_out(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0") as sub:
                await bus.publish({"k": 1}, ack=True)
                broker.send(m.Ended(sub.attachment.number, "STN-611", "expired"))
                assert (await sub.get())["k"] == 1
                with pytest.raises(LeaseExpired):
                    await sub.get()

    @pytest.mark.spec("R-07.49")
    @looped
    async def test_last_values_come_first_and_once(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker, **FAST) as bus:
            await bus.publish({"k": 1}, ack=True, retain="key")
            await bus.publish({"k": 2}, ack=True, retain="key")
            async with bus.subscribe("k > 0", retained=True) as sub:
                assert (await sub.get())["k"] == 2
                broker.sessions[0].connection.abort()
                await bus.publish({"k": 3}, ack=True)
                assert (await sub.get())["k"] == 3
        first, again = [x for x in world.heard if isinstance(x, m.Subscribe)]
        assert (first.retained, again.retained) == (True, False)

    @looped
    async def test_gaps_are_told(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0") as sub:
                broker.send(m.Gap(sub.attachment.number, "old#0", 3, 7))
                broker.send(m.Deliver(sub.attachment.number, "old#0", [7, 8], [item(7), item(8)]))
                assert (await sub.get())["k"] == 8
                assert (list(sub.gaps), sub.lost) == ([("old#0", 3, 7)], 5)

    @looped
    async def test_who_is_no_longer_waited_for_hears_of_it(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0", overflow="block") as sub:
                broker.send(m.Yielded(sub.attachment.number, 1.0))
                broker.send(m.Deliver(sub.attachment.number, "old#0", [1], [item(1)]))
                await sub.get()
                assert sub.yields == 1
        assert "choose another overflow policy" in caplog.text

    @looped
    async def test_too_slow_for_its_own_policy(self) -> None:
        async with World().broker() as broker, stentor.connect(broker, **FAST) as bus:
            strict = await bus.subscribe("k > 0", overflow="disconnect")
            other = await bus.subscribe("k > 0")
            broker.send(m.Failure("STN-619", "too slow"))
            broker.sessions[0].connection.close()
            with pytest.raises(QueueOverflow):
                await strict.get()
            await bus.publish({"k": 1}, ack=True)
            assert (await other.get())["k"] == 1

    @looped
    async def test_after_a_lost_connection_it_goes_on_from_where_it_was(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker, **FAST) as bus:
            async with bus.subscribe("k > 0", window=10) as sub:
                await bus.publish_many([{"k": 1}, {"k": 2}, {"other": 3}], ack=True)
                await sub.get()
                await until(lambda: sub._arrivals.arrived == {broker.stream: 3})
                broker.sessions[0].connection.abort()
                await bus.publish({"k": 4}, ack=True)
                assert [(await sub.get())["k"] for _ in range(2)] == [2, 4]
        again = [x for x in world.heard if isinstance(x, m.Subscribe)][-1]
        assert (again.positions, again.credit) == ({broker.stream: 3}, 9)
        assert again.since is not None, "brokers that come later are read from its beginning on"

    @looped
    async def test_dataclasses(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe(Place, where="x > 1") as places:
                await bus.publish(Place(1, 1))
                await bus.publish({"x": "wrong", "y": 2}, type="Place")
                await bus.publish({"x": 2}, type="Place")
                await bus.publish(Place(2, 3), ack=True)
                assert await places.get() == Place(2, 3)
                assert places.last is not None
                assert places.last.type == "Place"
                assert places.errors == 1


@pytest.mark.spec("R-07.40")
class TestDurable:
    @looped
    async def test_dealt_with_is_confirmed_and_the_successor_continues(self) -> None:
        async def fail() -> None:
            async with bus.subscribe("k > 0", durable="desk") as sub:
                assert sub.resumed
                assert (await sub.get())["k"] == 4
                assert (await sub.get())["k"] == 5
                raise ZeroDivisionError

        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0", durable="desk") as sub:
                assert not sub.resumed
                await bus.publish_many([{"k": k} for k in range(1, 6)], ack=True)
                async for n in sub:
                    if n["k"] == 3:
                        break
            with pytest.raises(ZeroDivisionError):
                await fail()
            async with bus.subscribe("k > 0", durable="desk") as sub:
                assert (await sub.get())["k"] == 5
                await sub.confirm()
                assert world.durables["desk"] == {broker.stream: 5}
                assert sub.positions == {broker.stream: 5}
                await sub.close(forget=True)
            assert world.durables == {}

    @looped
    async def test_confirmations_are_few(self) -> None:
        world = World()
        async with world.broker(window=5000) as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k >= 0", durable="desk") as sub:
                await bus.publish_many([{"k": k} for k in range(2500)], ack=True)
                async for n in sub:
                    if n["k"] == 2499:
                        break
            confirms = [x for x in world.heard if isinstance(x, m.Confirm)]
            assert 3 <= len(confirms) < 100
            assert world.durables["desk"] == {broker.stream: 2500}

    @looped
    async def test_without_auto_confirm_only_the_application_confirms(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0", durable="desk", auto_confirm=False) as sub:
                await bus.publish_many([{"k": k} for k in range(1, 4)], ack=True)
                for _ in range(2):
                    await sub.get()
                await sub.confirm()
                await sub.get()
            assert world.durables["desk"] == {broker.stream: 2}

    @looped
    async def test_a_confirmation_survives_the_connection(self) -> None:
        def cut(session: Session, _: Any) -> None:
            del session.broker.answers[m.Confirm]
            session.connection.abort()

        world = World()
        async with world.broker() as broker, stentor.connect(broker, **FAST) as bus:
            async with bus.subscribe("k > 0", durable="desk", auto_confirm=False) as sub:
                await bus.publish({"k": 1}, ack=True)
                await sub.get()
                broker.answers[m.Confirm] = cut
                await sub.confirm()
                assert world.durables["desk"] == {broker.stream: 1}

    @looped
    async def test_leaving_while_the_connection_breaks_still_confirms(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker, **FAST) as bus:
            async with bus.subscribe("k > 0", durable="desk") as sub:
                await bus.publish({"k": 1}, ack=True)
                await sub.get()
                broker.sessions[0].connection.abort()
            assert world.durables["desk"] == {broker.stream: 1}

    @looped
    async def test_closing_the_bus_confirms_what_was_dealt_with(self) -> None:
        world = World()
        async with world.broker() as broker:
            async with stentor.connect(broker) as bus:
                sub = await bus.subscribe("k > 0", durable="desk")
                await bus.publish_many([{"k": k} for k in range(1, 4)], ack=True)
                for _ in range(2):
                    await sub.get()
            assert world.durables["desk"] == {broker.stream: 1}

    @looped
    async def test_only_durable_ones_are_confirmed(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0") as sub:
                with pytest.raises(InvalidConfiguration, match="durable="):
                    await sub.confirm()
                with pytest.raises(InvalidConfiguration, match="lease="):
                    await sub.renew()

    @pytest.mark.parametrize("terms", [{}, {"settle": True}, {"settle": True, "group": "g"}])
    @looped
    async def test_one_that_takes_over_ends_the_other(self, terms: dict[str, Any]) -> None:
        """What waits here is for the one that goes on, and is not handed out twice."""
        async with World().broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0", durable="desk", **terms) as sub:
                await bus.publish_many([{"k": k} for k in range(1, 4)], ack=True)
                await sub.get()
                await until(lambda: len(sub._arrivals) == 2)
                broker.send(m.Ended(sub.attachment.number, "STN-605", "taken over"))
                await until(lambda: sub.over)
                with pytest.raises(NameTaken, match="taken over"):
                    await sub.get()

    @looped
    async def test_one_that_cannot_be_stored_is_asked_for_again(self) -> None:
        """What was in force waits until there is room; who asks for the first time is told."""
        world = World()
        asked: list[int] = []

        def full(session: Session, message: m.Subscribe) -> None:
            asked.append(message.number)
            if len(asked) == 3:
                del session.broker.answers[m.Subscribe]
            session.send(m.Failure("STN-607", "the disk is full", message.number))

        async with world.broker() as broker, stentor.connect(broker, **FAST) as bus:
            async with bus.subscribe("k > 0", durable="desk") as sub:
                broker.answers[m.Subscribe] = full
                broker.sessions[0].connection.abort()
                await until(lambda: len(asked) == 3)
                await sub.in_force()
                await bus.publish({"k": 1})
                assert (await sub.get(timeout=PATIENCE))["k"] == 1
                asked.clear()
                broker.answers[m.Subscribe] = full
                with pytest.raises(JournalUnavailable, match="full"):
                    await bus.subscribe("k > 0", durable="other")


@pytest.mark.spec("R-01.69")
class TestLeases:
    @looped
    async def test_they_are_renewed_while_the_subscription_lives(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0", lease=0.03):
                await until(lambda: sum(isinstance(x, m.Renew) for x in world.heard) >= 3)
            before = sum(isinstance(x, m.Renew) for x in world.heard)
            async with bus.subscribe("k > 0", lease=60, renew=False) as sub:
                await sub.renew()
            assert sum(isinstance(x, m.Renew) for x in world.heard) == before + 1

    @looped
    async def test_one_that_ran_out_in_an_outage_is_over(self) -> None:
        async with World().broker() as broker, stentor.connect(broker, **FAST) as bus:
            sub = await bus.subscribe("k > 0", lease=0.02, renew=False)
            await broker.stop()
            await until(lambda: (sub._lease.left or 0) <= 0)
            await broker.start()
            with pytest.raises(LeaseExpired):
                await sub.get()
            with pytest.raises(LeaseExpired):
                await sub.renew()


class TestGroups:
    @looped
    async def test_a_group_that_lives_elsewhere_is_followed(self) -> None:
        world = World()
        async with world.broker() as here, world.broker() as there:

            def elsewhere(session: Session, message: Any) -> None:
                session.send(m.Ended(message.number, "STN-615", "elsewhere", [there.address]))

            here.answers[m.Subscribe] = elsewhere
            async with stentor.connect(here, **FAST) as bus:
                async with bus.subscribe("k > 0", group="g") as sub:
                    await bus.publish({"k": 1}, ack=True)
                    assert (await sub.get())["k"] == 1
                    assert there.sessions[0].name.startswith(bus.name + "~")
                    # The broker of the group dies, and the group moves to the own broker.
                    del here.answers[m.Subscribe]
                    await there.stop()
                    await until(lambda: here.sessions[0].feeds)
                    await bus.publish({"k": 2}, ack=True)
                    assert (await sub.get())["k"] == 2
                assert not here.sessions[0].feeds
            await there.start()

    @looped
    async def test_brokers_that_disagree_for_ever_are_an_error(self) -> None:
        world = World()
        async with world.broker() as here, world.broker() as there:
            for broker, other in ((here, there), (there, here)):
                broker.answers[m.Subscribe] = lambda session, message, other=other: (  # type: ignore[misc]
                    session.send(m.Ended(message.number, "STN-615", "no", [other.address]))
                )
            async with stentor.connect(here, **FAST) as bus:
                with pytest.raises(GroupElsewhere, match="disagree"):
                    await bus.subscribe("k > 0", group="g")

    @looped
    async def test_members_confirm_what_they_dealt_with(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker) as bus:
            async with bus.subscribe("k > 0", group="g") as sub:
                await bus.publish({"k": 1}, ack=True)
                await sub.get()
            (confirm,) = [x for x in world.heard if isinstance(x, m.Confirm)]
            assert confirm.positions == {broker.stream: 1}

    @looped
    async def test_a_member_that_comes_back_begins_where_the_connection_was_lost(self) -> None:
        """By the clock of the broker, and not where it had begun."""
        world = World()
        async with world.broker() as broker:
            broker.clock = 5_000.0
            async with stentor.connect(broker, **FAST) as bus:
                async with bus.subscribe("k > 0", group="g", since="earliest") as sub:
                    loop = asyncio.get_running_loop()
                    later = loop.time() + 0.05
                    await until(lambda: loop.time() >= later)
                    *_, again = await lost_once(world, broker)
                    assert again.since is not None
                    assert 5_000.04 < again.since < 5_000 + PATIENCE
                    assert again.positions is None
                    await sub.in_force()
                    await bus.publish_many([{"k": k} for k in (1, 2, 3)], ack=True)
                    assert (await sub.get())["k"] == 1
                    await until(lambda: len(sub._arrivals) == 2)
                    *_, again = await lost_once(world, broker)
                    assert again.positions == {broker.stream: 1}, "two had to be forgotten"
                    assert [(await sub.get())["k"] for _ in range(2)] == [2, 3]

    @looped
    async def test_other_subscriptions_tell_the_beginning_by_the_clock_of_the_broker(self) -> None:
        world = World()
        async with world.broker() as broker:
            broker.clock = 5_000.0
            async with stentor.connect(broker, **FAST) as bus, bus.subscribe("k > 0"):
                first, again = await lost_once(world, broker)
                assert (first.since, again.since) == (None, 5_000.0)


async def lost_once(world: World, broker: ScriptedBroker) -> list[m.Subscribe]:
    """Cut the connection: what was subscribed to, before and after."""
    before = sum(isinstance(x, m.Subscribe) for x in world.heard)
    (session,) = broker.sessions
    session.connection.abort()

    def found() -> list[m.Subscribe]:
        return [x for x in world.heard if isinstance(x, m.Subscribe)]

    await until(lambda: len(found()) > before)
    return found()


class TestHandlers:
    @looped
    async def test_in_order_plain_or_async_and_errors_do_not_matter(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        got: list[Any] = []
        async with World().broker() as broker:
            bus = stentor.connect(broker)

            @bus.on("k >= 0")
            async def early(n: Notification) -> None:
                await asyncio.sleep(0)
                got.append(("early", n["k"]))

            async with bus:

                @bus.on("k >= 0")
                def late(n: Notification) -> None:
                    if n["k"] == 1:
                        raise ValueError("not one")
                    got.append(("late", n["k"]))

                await bus.ready()
                await bus.publish_many([{"k": k} for k in range(5)], ack=True)
                await until(lambda: len(got) == 9)
                assert sum(sub.errors for sub in bus._local.subscriptions.values()) == 1
        assert [k for who, k in got if who == "early"] == [0, 1, 2, 3, 4]
        assert [k for who, k in got if who == "late"] == [0, 2, 3, 4]
        assert "not one" in caplog.text

    @looped
    async def test_closing_lets_a_handler_finish_but_starts_nothing_new(self) -> None:
        world = World()
        got: list[int] = []
        begun, go_on = asyncio.Event(), asyncio.Event()
        async with world.broker() as broker:
            bus = await stentor.connect(broker)

            @bus.on("k > 0", durable="desk")
            async def handle(n: Notification) -> None:
                begun.set()
                await go_on.wait()
                await bus.publish({"echo": n["k"]})
                got.append(n["k"])

            await bus.ready()
            await bus.publish_many([{"k": 1}, {"k": 2}], ack=True)
            await begun.wait()
            closing = asyncio.create_task(bus.close())
            await asyncio.sleep(0)
            go_on.set()
            await closing
            assert got == [1]
            assert [n["echo"] for n in world.all() if "echo" in n] == [1]
            assert world.durables["desk"][broker.stream] == 1

    @looped
    async def test_a_handler_that_never_ends_is_interrupted(self) -> None:
        begun = asyncio.Event()
        world = World()
        async with world.broker() as broker:
            async with stentor.connect(broker, close_timeout=0.02) as bus:

                @bus.on("k > 0", durable="desk")
                async def handle(_: Notification) -> None:
                    begun.set()
                    await asyncio.Event().wait()

                await bus.ready()
                await bus.publish({"k": 1}, ack=True)
                await begun.wait()
            assert world.durables["desk"][broker.stream] == 0, "it was not dealt with"

    @looped
    async def test_a_handler_may_end_its_own_subscription(self) -> None:
        got: list[int] = []
        async with World().broker() as broker, stentor.connect(broker) as bus:

            async def handle(n: Notification) -> None:
                got.append(n["k"])
                await sub.close()

            sub = await bus.subscribe("k > 0", handler=handle)
            await bus.publish_many([{"k": 1}, {"k": 2}], ack=True)
            await until(lambda: sub.over)
            assert got == [1]

    @looped
    async def test_a_refused_handler_is_told_by_ready(self) -> None:
        async with World().broker(answers={m.Subscribe: refuse}) as broker:
            async with stentor.connect(broker) as bus:
                bus.on("k > 0")(print)
                with pytest.raises(NotPermitted):
                    await bus.ready()
            early = stentor.connect(broker)
            early.on("k > 0")(print)
            with pytest.raises(NotPermitted):
                await early
