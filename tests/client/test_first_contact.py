"""What somebody meets who is new: mistakes that are told, errors that arrive, notebooks."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from time import perf_counter
from typing import Any

import pytest
from scripted import looped

import stentor
from stentor.broker import Broker, Settings
from stentor.client.sync import (
    SyncAdvertisement,
    SyncBus,
    SyncInbox,
    SyncSubscription,
    SyncTransaction,
)
from stentor.errors import (
    FilterTooComplex,
    FilterWarning,
    InvalidConfiguration,
    InvalidNotification,
    NeverMatches,
    NobodyProvides,
    NoReply,
    ProviderFailed,
    ShuttingDown,
    UnknownStrategy,
    Unreachable,
)
from stentor.filters import Filter
from stentor.filters.advice import advice
from stentor.testing import TestBroker


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Broker, Broker]]:
    async with (
        Broker(Settings(name="b1", listen="127.0.0.1:0")) as b1,
        Broker(Settings(name="b2", listen="127.0.0.1:0", neighbors=(b1.address,))) as b2,
    ):
        while not b1.links or not b2.core.directory.reaches(b1.stream):
            await asyncio.sleep(0.005)
        yield b1, b2


@pytest.mark.spec("R-01.47")
class TestRequests:
    @looped
    async def test_a_providers_error_reaches_who_asked(self) -> None:
        async with two_brokers() as (b1, b2):
            async with stentor.connect(b1) as shop, stentor.connect(b2) as desk:

                @shop.reply("service = 'price'")
                async def price(n: Any) -> dict[str, float]:
                    return {"price": {"IBM": 120.5}[n["symbol"]]}

                await shop.ready()
                answer = await desk.request({"service": "price", "symbol": "IBM"})
                assert answer["price"] == 120.5
                with pytest.raises(ProviderFailed, match="KeyError: 'SAP'") as raised:
                    await desk.request({"service": "price", "symbol": "SAP"})
                assert (raised.value.kind, raised.value.reason) == ("KeyError", "'SAP'")

                @shop.reply("service = 'price'")
                def another(n: Any) -> dict[str, float]:
                    return {"price": 98.0}

                await shop.ready()
                both = desk.request_all({"service": "price", "symbol": "SAP"}, 5, max_replies=2)
                assert [each["price"] async for each in both] == [98.0], "the other one has failed"

    @looped
    async def test_that_nobody_provides_it_is_told_at_once(self) -> None:
        async with two_brokers() as (b1, b2):
            async with stentor.connect(b1) as shop, stentor.connect(b2) as desk:
                began = perf_counter()
                with pytest.raises(NobodyProvides, match="no provider's filter matches"):
                    await desk.request({"service": "price"}, timeout=60)
                # Who only looks on does not reply, and is none to wait for.
                async with desk.subscribe("service = 'price'") as seen:
                    with pytest.raises(NobodyProvides):
                        await desk.request({"service": "price"}, timeout=60)
                    assert (await seen.get(60))["service"] == "price"
                assert perf_counter() - began < 50, "it did not wait for its time"

                @shop.reply("service = 'price'")
                def silent(n: Any) -> None:
                    return None

                await shop.ready()
                with pytest.raises(NoReply, match="within") as raised:
                    await desk.request({"service": "price"}, timeout=0.2)
                assert type(raised.value) is NoReply, "there is a provider, and it is silent"

    def test_without_async_as_well(self) -> None:
        with stentor.testing.broker() as broker, broker.connect() as bus:

            @bus.reply("service = 'divide'")
            def divide(n: Any) -> dict[str, float]:
                return {"result": n["a"] / n["b"]}

            assert bus.request({"service": "divide", "a": 6, "b": 3})["result"] == 2
            with pytest.raises(ProviderFailed, match="ZeroDivisionError"):
                bus.request({"service": "divide", "a": 6, "b": 0})


class TestCancelling:
    @looped
    async def test_it_is_found_wherever_it_waits(self) -> None:
        async with two_brokers() as (b1, b2):
            async with stentor.connect(b1, name="ann") as bus:
                id = await bus.publish({"remind": "ann"}, ack=True, deliver_at="1h")
            async with stentor.connect(b2, name="ann") as bus:
                assert await bus.cancel(id, timeout=10), "it waits at the other broker"
                assert not await bus.cancel(id, timeout=10), "and does no longer"

    @looped
    async def test_a_broker_that_cannot_be_asked_is_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("stentor.client.local_broker.ATTEMPT", 0.2)
        async with two_brokers() as (b1, b2):
            async with stentor.connect(b1, name="ann") as bus:
                id = await bus.publish({"remind": "ann"}, ack=True, deliver_at="1h")
            async with stentor.connect(b2, name="ann") as bus:
                await b1._close_listeners()
                with pytest.raises(Unreachable, match="it may be at b1"):
                    await bus.cancel(id, timeout=30)


class TestFilters:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("price > 100 and price < 50", "price > 100 contradicts price < 50"),
            ("symbol = 'A' and (x = 1 and symbol = 'B')", "symbol = 'A' contradicts symbol = 'B'"),
            ("x in (1, 2) and x in (2, 3) and x in (1, 3)", "nothing can match"),
            ("order-id = 7", 'write "order-id"'),
            ("x = 1 and a-b-c > 7", "a-b-c is read as a minus b minus c"),
            ("_typ = 'quote'", "did you mean _type?"),
        ],
    )
    def test_what_is_told(self, text: str, said: str) -> None:
        assert said in "\n".join(each.text for each in advice(text))

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "a - b > 7",
            '"order-id" = 7',
            "x = -1",
            "x > y -1",
            "day > date '2026-01-01'",
            "x = 'a-b'",
        ],
    )
    def test_what_is_not(self, text: str) -> None:
        assert advice(text) == []

    def test_the_place_of_a_name_is_told(self) -> None:
        (found,) = advice("x = 1 and order-id = 7")
        assert found.offset == 10

    @looped
    async def test_subscribing_warns_and_strict_refuses(self) -> None:
        @dataclass
        class Quote:
            symbol: str
            price: float

        bus = stentor.connect()
        for given in ("x > 5 and x < 3", Filter("x > 5") & Filter("x < 3")):
            with pytest.warns(FilterWarning, match="nothing can match") as warned:
                bus.subscribe(given)
            assert warned[0].filename == __file__, "the warning points at who subscribes"
            with pytest.raises(NeverMatches):
                bus.subscribe(given, strict=True)
            with pytest.raises(NeverMatches):
                bus.inbox("y = 1", given, strict=True)
        with pytest.warns(FilterWarning, match="did you mean 'price'"):
            bus.subscribe(Quote, where="prise > 100")
        with pytest.raises(NeverMatches):
            bus.on(Quote, where="prise > 100", strict=True)(print)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bus.subscribe(Quote, where="price > 100", strict=True)
            bus.subscribe("false")

    @pytest.mark.parametrize("word", ["overflow", "order"])
    def test_a_misspelled_word_is_told(self, word: str) -> None:
        options: Any = {word: "drop_odlest", "group": "g"}
        with pytest.raises(UnknownStrategy, match=f"there is no {word}='drop_odlest'"):
            stentor.connect().subscribe("x > 1", **options)

    def test_a_negated_comparison_of_fields_is_refused_with_what_to_write(self) -> None:
        with pytest.raises(FilterTooComplex, match=r"write all x in xs: x\.a >= x\.b"):
            Filter("not (any line in lines: line.a < line.b)")
        assert Filter("all line in lines: line.a >= line.b").matches({"lines": [{"a": 2, "b": 1}]})


class TestMany:
    @looped
    async def test_many_of_a_type(self) -> None:
        async with Broker(Settings(listen="127.0.0.1:0")) as broker:
            async with stentor.connect(broker) as bus, bus.subscribe("isa quote") as quotes:
                for _ in range(2):  # the careful way, then the short one
                    await bus.publish_many([{"price": p} for p in (1, 2)], type="quote.stock")
                await bus.publish_many([{"price": 3}], type="quote", subject="a.b", channel="c")
                await bus.publish_many(
                    [{"price": 4}], ack=True, type="quote", priority=7, expires="1h"
                )
                got = [await quotes.get(60) for _ in range(6)]
                assert [n["price"] for n in got] == [1, 2, 1, 2, 3, 4]
                assert {n.type for n in got[:4]} == {"quote.stock"}
                assert (got[4].subject, got[4].channel, got[5].priority) == ("a.b", "c", 7)
                with pytest.raises(InvalidNotification):
                    await bus.publish_many([{"price": 1}], type="no type\n")
                with pytest.raises(InvalidConfiguration, match="volatile"):
                    await bus.publish_many([{"price": 1}], volatile=True, deliver_at="1h")
                with pytest.raises(InvalidNotification, match="for a single one there is publish"):
                    await bus.publish_many({"price": 1})


class TestNotebooks:
    def test_a_bus_opens_at_first_use_and_shows_itself(self) -> None:
        with stentor.testing.broker() as broker:
            bus = stentor.connect_sync(broker.address, name="<ann>")
            assert "connecting" in bus._repr_html_()
            seen: list[Any] = []
            bus.on("x > 1")(seen.append)
            bus.publish({"x": 2}, ack=True)
            assert "<td>connected</td>" in bus._repr_html_()
            assert "&lt;ann&gt;" in bus._repr_html_(), "a name is no markup"
            bus.close()
            assert [n["x"] for n in seen] == [2], "what was given to `on` began with it"
            with pytest.raises(ShuttingDown, match="make another"):
                bus.publish({"x": 3})

    def test_a_subscription_is_in_force_at_once_and_with_only_closes_it(
        self, stentor_broker: TestBroker
    ) -> None:
        handled = threading.Event()
        with stentor.connect_sync(stentor_broker.address) as bus:
            first = bus.subscribe("k >= 0")
            bus.subscribe("k >= 0", handler=lambda n: handled.set())
            inbox = bus.inbox("k >= 0")
            bus.publish({"k": 1}, ack=True)
            with first as same, inbox:
                assert same is first.open()
                assert (first.get(10)["k"], inbox.get(10)["k"]) == (1, 1)
            with pytest.raises(InvalidConfiguration, match="begins only once"):
                first.open()
            assert handled.wait(10)

    def test_the_end_of_a_program_loses_nothing(self) -> None:
        with stentor.testing.broker() as broker, broker.connect() as bus:
            with bus.subscribe("x > 1") as seen:
                program = f"""
                    import stentor
                    bus = stentor.connect_sync({broker.address!r})
                    bus.publish_many({{"x": x}} for x in range(2_000))
                """
                done = subprocess.run([sys.executable, "-c", dedent(program)], timeout=60)
                assert done.returncode == 0
                assert [seen.get(60)["x"] for _ in range(1_998)] == list(range(2, 2_000))

    def test_completion_offers_what_applications_use(self) -> None:
        bus = stentor.connect()
        for thing in (stentor, bus, bus.subscribe(), bus.inbox(), Filter(), bus.advertise("x = 1")):
            for name in dir(thing):
                assert hasattr(thing, name), f"{thing!r} has no {name}"
        offered = {name for name in dir(bus) if not name.startswith("_")}
        assert not offered & {"local", "close_timeout"}
        assert "deliver" not in dir(bus.subscribe())
        broker = Broker(Settings())
        assert all(hasattr(Broker, name) or name in vars(broker) for name in dir(broker))
        assert "start" in dir(broker)
        with pytest.raises(ShuttingDown, match="start it"):
            stentor.connect(broker)
        assert "client_gone" not in dir(broker)
        assert "subscribe" in dir(bus.inbox())
        assert "TYPE_CHECKING" not in dir(stentor)
        assert {"connect", "testing", "errors"} <= set(dir(stentor))
        # Without async there is the same.
        for thing, kind in (
            (bus, SyncBus),
            (bus.subscribe(), SyncSubscription),
            (bus.inbox(), SyncInbox),
            (bus.advertise("x = 1"), SyncAdvertisement),
            (bus.transaction(), SyncTransaction),
        ):
            for_async, for_others = (
                {name for name in dir(each) if not name.startswith("_")} for each in (thing, kind)
            )
            assert for_async == for_others
        assert set(dir(stentor.Notification({"x": 1}))) >= {"ack", "id", "replace"}


class TestEmbedding:
    @looped
    async def test_directories_are_texts(self, tmp_path: Path) -> None:
        settings = Settings(data=str(tmp_path / "b1"), listen="127.0.0.1:0")
        for expected in ([], [1]):
            broker = Broker(settings)
            await broker.start()
            bus = await stentor.connect(broker)
            sub = await bus.subscribe("x > 0", since="earliest")
            for x in expected:
                assert (await sub.get(60))["x"] == x
            await bus.publish({"x": 1}, ack=True)
            await sub.close()
            await bus.close()
            await broker.stop()

    def test_settings_that_make_no_sense_are_refused(self) -> None:
        with pytest.raises(UnknownStrategy, match="there is no overlay 'tre'; choose one of tree"):
            Settings(overlay="tre")  # type: ignore[arg-type]
        with pytest.raises(InvalidConfiguration, match="data=5 is not a path"):
            Settings(data=5)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_type_checker_finds_typos(tmp_path: Path) -> None:
    right = """
        import stentor
        from stentor.broker import Settings
        Settings(data="b1", listen="127.0.0.1:0", neighbors=["b2:7411"], overlay="graph")
        bus = stentor.connect_sync()
        bus.subscribe("x = 1", overflow="drop_oldest", order="priority", group="g", key="x")
        bus.publish({"x": 1}, priority=3, type="t")
        bus.publish_many([{"x": 1}], type="t")
    """
    wrong = [
        'bus.subscribe("x = 1", overflow="drop_odlest")',
        'bus.subscribe("x = 1", order="prioritty")',
        'bus.subscribe("x = 1", choice="roundrobin", group="g")',
        'bus.subscribe("x = 1", duarble="g")',
        'bus.publish({"x": 1}, pirority=3)',
        'bus.publish_many([{"x": 1}], tpye="t")',
        'bus.inbox("x = 1", overflow="dropoldest")',
        'bus.on("x = 1", order="fifo")',
        'stentor.connect_sync(nmae="desk")',
        'Settings(routing="coverng")',
        'Settings(date="b1")',
    ]
    source = dedent(right) + "\n".join(wrong) + "\n"
    (tmp_path / "app.py").write_text(source)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "app.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    first = source.splitlines().index(wrong[0]) + 1
    lines = {line.split(":")[1] for line in checked.stdout.splitlines() if ": error:" in line}
    assert lines == {str(first + i) for i in range(len(wrong))}, checked.stdout


def test_a_timeout_in_words_is_told_what_it_should_be(
    stentor_broker: stentor.testing.TestBroker,
) -> None:
    with pytest.raises(InvalidConfiguration, match=r"a number of seconds, .* and not '3s'"):
        stentor.connect_sync(stentor_broker.address, timeout="3s")  # type: ignore[arg-type]
    bus = stentor_broker.connect()
    for wait in (
        lambda: bus.request({"x": 1}, "3s"),  # type: ignore[arg-type]
        lambda: bus.flush("3s"),  # type: ignore[arg-type]
        lambda: bus.publish({"x": 1}, ack=True, timeout="3s"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidConfiguration, match="a number of seconds"):
            wait()
