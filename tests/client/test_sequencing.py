"""A client that is served by one broker, which it knows by name."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from scripted import looped, until

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import Grant, Settings
from stentor.errors import ProtocolError, RedirectRefused, Unreachable
from stentor.semantics import check

FAST: Any = {"delays": (0.01, 0.1)}


@asynccontextmanager
async def line(**options: Any) -> AsyncIterator[tuple[Broker, Broker]]:
    async with Broker(Settings(listen=("127.0.0.1:0",), name="b1", **options)) as b1:
        settings = Settings(listen=("127.0.0.1:0",), name="b2", neighbors=(b1.address,), **options)
        async with Broker(settings) as b2:
            await until(lambda: all(len(b.core.directory.others) == 1 for b in (b1, b2)))
            yield b1, b2


@pytest.mark.spec("R-01.28", "R-01.32")
@looped
async def test_what_goes_through_one_broker_has_one_order(tmp_path: Path) -> None:
    async with line() as (b1, b2):
        recorder = stentor.Recorder(tmp_path / f"{b1.address.replace(':', '-')}.jsonl")
        options: Any = {"sequencer": "b1", "record": recorder}
        async with (
            stentor.connect(b1, name="near", **options) as near,
            stentor.connect(b2, name="far", **options) as far,
            stentor.connect(b1, name="here", record=recorder) as here,
            stentor.connect(b2, name="there", record=recorder) as there,
            here.subscribe() as one,
            there.subscribe() as two,
        ):
            assert (near.broker, far.broker) == ("b1", "b1")
            for i in range(50):
                await near.publish({"x": i}, ack=i % 7 == 0)
                await far.publish({"x": i}, ack=i % 5 == 0)
            async with far.transaction() as together:
                await together.publish({"x": 50})
                await together.publish({"x": 51})
            await far.flush()
            await near.flush()
            assert b2.core.journals.head == 0
            first, second = [[(await s.get()).id for _ in range(102)] for s in (one, two)]
            assert first == second
        report = check(
            stentor.recorded(recorder.path, settled=True).trace, order=["fifo", "total_global"]
        )
        assert (report.ok, report.owed) == (True, 204)
        recorder.close()


@looped
async def test_a_broker_that_nobody_knows_is_told() -> None:
    async with line() as (b1, _):
        bus = stentor.connect(b1, sequencer="b7", timeout=0.2)
        with pytest.raises(Unreachable, match="broker 'b1' knows no broker 'b7'"):
            await bus.open()
        assert bus.state == "closed"


@looped
async def test_it_is_found_when_it_comes() -> None:
    async with Broker(Settings(listen=("127.0.0.1:0",), name="b1")) as b1:
        bus = stentor.connect(b1, sequencer="b2", timeout=20)
        opening = bus._local.loop.create_task(bus.open())
        await until(lambda: len(b1.core.sessions) == 1)
        settings = Settings(listen=("127.0.0.1:0",), name="b2", neighbors=(b1.address,))
        async with Broker(settings):
            await opening
            assert bus.broker == "b2"
            await bus.publish({"x": 1}, ack=True)
            await bus.close()


@looped
async def test_no_other_broker_is_taken_for_it(tmp_path: Path, caplog: Any) -> None:
    """Not even one that has its address now; publications wait until the right one is back."""
    home = Settings(listen=(f"unix:{tmp_path}/b.sock",), name="home")
    async with Broker(home) as broker:
        bus = await stentor.connect(broker, sequencer="home", **FAST)
        await bus.publish({"x": 1}, ack=True)
    async with Broker(replace(home, name="other")) as other:
        await bus.publish({"x": 2})
        await until(lambda: "broker 'other' is not 'home'" in str(bus.error))
        assert other.core.journals.head == 0
        assert bus.unacknowledged == 1
    with caplog.at_level(logging.WARNING, "stentor.client"):
        async with Broker(home) as broker:
            await bus.flush(20)
            assert bus.broker == "home"
            # It had no directory, so that this is a journal without a past.
            assert "broker 'home' has begun another journal" in caplog.text
            await bus.close()


@looped
async def test_it_is_found_again_at_another_address(tmp_path: Path) -> None:
    async with Broker(Settings(listen=("127.0.0.1:0",), name="b1")) as b1:
        home = Settings(
            listen=("127.0.0.1:0",),
            name="b2",
            data=Path(mkdtemp(dir=tmp_path)),
            neighbors=(b1.address,),
        )
        async with Broker(home) as broker:
            await until(lambda: len(b1.core.directory.others) == 1)
            first = broker.address
            bus = await stentor.connect(b1, sequencer="b2", **FAST)
            await bus.publish({"x": 1}, ack=True)
            await broker.stop()
        await bus.publish({"x": 2})
        async with Broker(home) as broker:
            assert broker.address != first
            await bus.flush(20)
            assert (bus.broker, broker.core.journals.head) == ("b2", 2)
            await bus.close()


@looped
async def test_a_question_without_a_name_is_refused() -> None:
    async with line() as (b1, b2), stentor.connect(b1) as bus:
        assert await bus._local.ask("where", {"broker": "b2"}) == [b2.address]
        assert await bus._local.ask("where", {"broker": "b3"}) == []
        with pytest.raises(ProtocolError, match="broker=None is not a name of a broker"):
            await bus._local.ask("where")


@looped
async def test_it_is_not_followed_to_where_there_is_no_reason_to_trust() -> None:
    grants = (Grant("all", token="secret", broker=True),)
    async with Broker(Settings(listen=("127.0.0.1:0",), name="b1", grants=grants)) as b1:
        settings = Settings(
            listen=("127.0.0.1:0",),
            name="b2",
            advertise=("192.0.2.7:7411",),
            neighbors=(b1.address,),
            token="secret",
            grants=grants,
        )
        async with Broker(settings):
            await until(lambda: len(b1.core.directory.others) == 1)
            bus = stentor.connect(b1, token="secret", sequencer="b2", timeout=10)
            with pytest.raises(RedirectRefused, match=r"'b2' is at 192\.0\.2\.7:7411"):
                await bus.open()


def test_programs_without_async_have_it_too() -> None:
    import asyncio

    async def main() -> None:
        async with line() as (b1, b2):

            def client() -> None:
                with stentor.connect_sync(b2.address, sequencer="b1") as bus:
                    bus.publish({"x": 1}, ack=True)
                    assert bus.broker == "b1"

            await asyncio.to_thread(client)
            assert (b1.core.journals.head, b2.core.journals.head) == (1, 0)

    asyncio.run(main())
