"""Making a connection, losing it, and leaving nothing behind."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

import pytest
from scripted import ScriptedBroker, Session, World, looped, until

import stentor
from stentor.errors import (
    AccessDenied,
    InvalidAddress,
    InvalidConfiguration,
    NameTaken,
    NoReply,
    ProtocolError,
    ShuttingDown,
    StentorError,
    TlsError,
    Unreachable,
)
from stentor.protocol import messages as m
from stentor.transport import serve

FAST: Any = {"delays": (0.001, 0.01)}


class TestConnecting:
    @looped
    async def test_the_example_of_the_documentation(self) -> None:
        async with World().broker() as broker, stentor.connect(broker.address) as bus:
            async with bus.subscribe("symbol = 'IBM' and price > 100") as quotes:
                id = await bus.publish({"symbol": "IBM", "price": 120.5}, ack=True)
                async for n in quotes:
                    assert (n["price"], n.id) == (120.5, id)
                    assert n.time is not None
                    assert n.time.utcoffset() is not None
                    break

    @looped
    async def test_an_object_with_an_address_is_a_broker(self) -> None:
        async with World().broker() as broker, stentor.connect(broker) as bus:
            assert bus.state == "connected"
            assert bus.broker == broker.name
            assert bus.name.startswith("c-")
        assert bus.state == "closed"

    @looped
    async def test_nobody_there_lists_every_address_and_why(self) -> None:
        with pytest.raises(Unreachable) as raised:
            await stentor.connect("inproc:one", "inproc:two", timeout=0.05)
        assert "inproc:one" in str(raised.value)
        assert "inproc:two" in str(raised.value)
        assert "nobody listens" in str(raised.value)

    @looped
    async def test_a_silent_port_is_told_apart(self) -> None:
        class Silent:
            opened = writable_again = received = closed = lambda *_: None

        listener = await serve("inproc:silent", Silent)  # type: ignore[arg-type]
        try:
            with pytest.raises(Unreachable, match="no broker said Welcome"):
                await stentor.connect("inproc:silent", timeout=0.05)
        finally:
            await listener.close()

    @looped
    async def test_a_refusal_that_lasts_is_raised_at_once(self) -> None:
        async with World().broker(token="secret") as broker:
            with pytest.raises(AccessDenied, match="who are you"):
                await stentor.connect(broker, token="guess", timeout=30)
            async with stentor.connect(broker, token="secret") as bus:
                assert bus.state == "connected"

    @looped
    async def test_the_second_broker_serves_if_the_first_does_not(self) -> None:
        async with World().broker() as broker, stentor.connect("inproc:nobody", [broker]) as bus:
            assert bus.broker == broker.name

    @looped
    async def test_a_broker_of_another_version_is_refused(self) -> None:
        def welcome(session: Session, _: Any) -> None:
            session.send(m.Welcome(99, "b", "b#0"))

        async with World().broker(answers={m.Hello: welcome}) as broker:
            with pytest.raises(ProtocolError, match="99"):
                await stentor.connect(broker, timeout=30)

    @looped
    async def test_an_answer_that_is_no_welcome_costs_the_connection(self) -> None:
        def nonsense(session: Session, _: Any) -> None:
            session.send(m.Published(1))

        async with World().broker(answers={m.Hello: nonsense}) as broker:
            with pytest.raises(ProtocolError, match="Published"):
                await stentor.connect(broker, timeout=30)

    @pytest.mark.parametrize(
        ("arguments", "options", "error"),
        [
            (("somewhere:over:there",), {}, InvalidAddress),
            ((42,), {}, InvalidAddress),
            ((), {"buffer": 0}, InvalidConfiguration),
            ((), {"delays": (2.0, 1.0)}, InvalidConfiguration),
            ((), {"tls": {"cert": "x"}}, InvalidConfiguration),
            ((), {"tls": {"ca": "no/such/file"}}, TlsError),
            ((), {"name": ""}, StentorError),
            ((), {"name": "a\nb"}, StentorError),
        ],
    )
    def test_mistakes_are_told_before_anything_is_tried(
        self, arguments: Any, options: Any, error: Any
    ) -> None:
        with pytest.raises(error):
            stentor.connect(*arguments, **options)

    @looped
    async def test_before_and_after_it_cannot_be_used(self) -> None:
        async with World().broker() as broker:
            bus = stentor.connect(broker)
            with pytest.raises(Unreachable, match="async with"):
                await bus.publish({"x": 1})
            async with bus:
                with pytest.raises(InvalidConfiguration, match="only once"):
                    await bus.open()
            for use in (bus.publish({"x": 1}), bus.publish_many([]), bus.offers()):
                with pytest.raises(ShuttingDown):
                    await use
            with pytest.raises(ShuttingDown):
                await bus.subscribe("x = 1")
            await bus.close()


class TestReconnecting:
    @looped
    async def test_states_are_told_and_publications_survive(self) -> None:
        world = World()
        states: list[str] = []
        async with world.broker() as broker:
            bus = stentor.connect(broker, **FAST)
            bus.on_state(states.append)
            bus.on_state(lambda state: 1 / 0)
            async with bus:
                await bus.publish({"k": 1}, ack=True)
                await broker.stop()
                await until(lambda: bus.state == "reconnecting")
                assert isinstance(bus.error, Unreachable)
                await bus.publish({"k": 2})
                with pytest.raises(NoReply):
                    await bus.publish({"k": 3}, ack=True, timeout=0.01)
                await broker.start()
                await bus.flush()
                assert bus.error is None
        assert states == ["connected", "reconnecting", "connected", "closed"]
        assert [n["k"] for n in world.all()] == [1, 2, 3]

    @looped
    async def test_what_the_broker_has_is_not_sent_again(self) -> None:
        def swallow(session: Session, message: Any) -> None:
            session.store(message)
            session.connection.abort()

        world = World()
        async with world.broker(answers={m.Publish: swallow}) as broker:
            async with stentor.connect(broker, **FAST) as bus:
                await bus.publish({"k": 1}, ack=True)
        assert [n["k"] for n in world.all()] == [1]
        assert sum(isinstance(message, m.Publish) for message in world.heard) == 1

    @looped
    async def test_the_epoch_is_above_that_of_an_earlier_life(self) -> None:
        world, far = World(), 2**62
        async with world.broker() as broker:
            world.newest[broker.stream, "ann"] = (far, 7)
            async with stentor.connect(broker, name="ann") as bus:
                id = await bus.publish({"k": 1}, ack=True)
                assert (id.producer, id.epoch, id.sequence) == ("ann", far + 1, 0)

    @looped
    async def test_a_broker_that_knows_a_later_life_is_avoided(self) -> None:
        world = World()
        async with world.broker() as one, world.broker() as two:
            async with stentor.connect(one, two, name="ann", **FAST) as bus:
                world.newest[two.stream, "ann"] = (2**62, 0)
                await one.stop()
                await until(lambda: isinstance(bus.error, NameTaken))
                await one.start()
                await bus.publish({"k": 1}, ack=True)
                assert bus.broker == one.name

    @looped
    async def test_goodbye_names_another_broker(self) -> None:
        world = World()
        async with world.broker() as one, world.broker() as two:
            async with stentor.connect(one, **FAST) as bus, bus.subscribe("k > 0") as sub:
                one.send(m.Goodbye("drained", [two.address, "not an address"]))
                await until(lambda: bus.broker == two.name)
                await bus.publish({"k": 1}, ack=True)
                assert (await sub.get())["k"] == 1

    @looped
    async def test_one_who_takes_our_name_ends_the_bus(self) -> None:
        world = World()
        async with world.broker() as broker:
            bus = await stentor.connect(broker, name="ann", **FAST)
            sub = await bus.subscribe("k > 0")
            broker.answers[m.Publish] = lambda *_: None
            waiting = asyncio.create_task(bus.publish({"k": 1}, ack=True))
            await until(lambda: any(isinstance(x, m.Publish) for x in world.heard))
            broker.send(m.Failure("STN-605", "another client has connected as 'ann'"))
            broker.sessions[0].connection.close()
            for use in (waiting, sub.get(), bus.publish({"k": 2})):
                with pytest.raises(NameTaken):
                    await use
            assert bus.state == "closed"
            await bus.close()

    @looped
    async def test_silence_is_noticed(self) -> None:
        world = World()
        async with world.broker(timeout=0.03, answers={m.Ping: lambda *_: None}) as broker:
            async with stentor.connect(broker, **FAST) as bus:
                await until(lambda: bus._local.link.connections > 1)
        assert any(isinstance(message, m.Ping) for message in world.heard)

    @looped
    async def test_pings_are_answered(self) -> None:
        world = World()
        async with world.broker() as broker, stentor.connect(broker):
            broker.send(m.Ping())
            await until(lambda: any(isinstance(x, m.Pong) for x in world.heard))


class TestNothingIsLeftBehind:
    @looped
    async def test_no_task_and_no_file_descriptor(self, tmp_path: Path) -> None:
        def descriptors() -> int:
            gc.collect()
            return len(os.listdir("/proc/self/fd"))

        async def use(broker: ScriptedBroker) -> None:
            async with stentor.connect(broker, "inproc:nobody", **FAST) as bus:
                bus.on("k > 0")(lambda n: None)
                async with bus.subscribe("k > 0", durable="desk", lease=60):
                    await bus.publish({"k": 1}, ack=True)
                    broker.sessions[-1].connection.abort()
                    await bus.publish({"k": 2}, ack=True)
                await bus.subscribe("k > 1")

        async with World().broker(address=f"unix:{tmp_path}/socket") as broker:
            await use(broker)
            before = descriptors()
            for _ in range(20):
                await use(broker)
            await until(lambda: not broker.sessions)
            assert descriptors() <= before

    @looped
    async def test_a_bus_that_is_cancelled_ends_cleanly(self) -> None:
        async with World().broker() as broker:

            async def work() -> None:
                async with stentor.connect(broker) as bus, bus.subscribe("") as sub:
                    ready.set()
                    await sub.get()

            ready = asyncio.Event()
            task = asyncio.create_task(work())
            await ready.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    @looped
    async def test_cancelled_while_connecting(self) -> None:
        task = asyncio.create_task(stentor.connect("inproc:nobody").open())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
