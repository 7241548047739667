"""`stentor.testing`: brokers for tests, time that passes when it is told, assertions, faults."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import stentor
from stentor import Retry
from stentor.client.clock import clock
from stentor.errors import (
    FilterSyntaxError,
    InvalidConfiguration,
    LeaseExpired,
    NoReply,
    StentorError,
)
from stentor.testing import AsyncTestBroker, TestBroker, broker


class TestTime:
    def test_delays_expiry_and_leases(self, stentor_broker: TestBroker) -> None:
        began = perf_counter()
        bus = stentor_broker.connect(name="desk")
        quotes = bus.subscribe("price > 100", lease=600).open()
        bus.publish({"price": 120}, deliver_at="1h", expires="1h")
        bus.publish({"price": 130}, deliver_at="3h")
        stentor_broker.advance("59m")
        stentor_broker.assert_nothing_delivered()
        stentor_broker.advance("2m")
        stentor_broker.assert_delivered({"price": 120}, to="desk")
        assert quotes.get(60)["price"] == 120, "its lease was renewed all the time"
        stentor_broker.advance(timedelta(hours=2))
        assert quotes.get(60)["price"] == 130
        # What waits in the client's own queue expires there.
        bus.publish({"price": 140}, expires="1m")
        stentor_broker.assert_delivered({"price": 140})
        stentor_broker.advance("2m")
        with pytest.raises(NoReply):
            quotes.get(0.05)
        passed = stentor_broker.now - datetime.now(UTC)
        whole = timedelta(hours=3, minutes=3)
        spent = timedelta(seconds=perf_counter() - began)
        assert whole - spent <= passed <= whole, "what the test itself takes is part of it"

    def test_a_moment_is_meant_by_the_clock_of_the_test(self, stentor_broker: TestBroker) -> None:
        bus = stentor_broker.connect()
        with bus.subscribe("x > 0", expires="10m") as fresh:
            stentor_broker.advance("1d")
            bus.publish({"x": 1}, deliver_at="5m")
            stentor_broker.assert_nothing_delivered()
            stentor_broker.advance("6m")
            assert fresh.get(60)["x"] == 1, "its time is that of the test, so it is fresh"

    def test_retries_and_dead_letters(self, stentor_broker: TestBroker) -> None:
        bus = stentor_broker.connect(name="service")
        attempts: list[int] = []

        retry = Retry(attempts=4, backoff="10m..1h")

        @bus.on("type = 'Order'", durable="billing", retry=retry, dead_letter=True)
        def bill(order: Any) -> None:
            attempts.append(order.attempt)
            raise RuntimeError("the bank is closed")

        with bus.subscribe("type = 'DeadLetter'"):
            bus.publish({"type": "Order", "account": 7}, ack=True)
            stentor_broker.settle()
            assert attempts == [1]
            stentor_broker.advance("8m")
            assert attempts == [1]
            stentor_broker.advance("3m")
            assert attempts == [1, 2], "the second attempt comes after ten minutes"
            stentor_broker.advance("2h")
            assert attempts == [1, 2, 3, 4]
            letter = stentor_broker.assert_delivered({"type": "DeadLetter"}, to="service")
            assert letter["attempts"] == 4
            assert len([d for d in stentor_broker.deliveries if d.durable == "billing"]) == 4

    def test_a_deadline_passes_while_the_test_holds_on(self, stentor_broker: TestBroker) -> None:
        one, two = (stentor_broker.connect(name=name) for name in ("one", "two"))
        options: Any = {"group": "workers", "retry": Retry(deadline="30m", backoff="1m")}
        with one.subscribe("job > 0", **options) as first:
            one.publish({"job": 1}, ack=True)
            n = first.get(60)
            with two.subscribe("job > 0", **options) as second:
                stentor_broker.advance("28m")
                stentor_broker.assert_nothing_delivered(to="two")
                stentor_broker.advance("5m")
                assert second.get(60).attempt == 2
        assert n.attempt == 1

    def test_a_lease_that_nobody_renews_ends(self, stentor_broker: TestBroker) -> None:
        bus = stentor_broker.connect()
        sub = bus.subscribe("x > 0", lease=3600, renew=False).open()
        stentor_broker.advance("55m")
        bus.publish({"x": 1}, ack=True)
        assert sub.get(60)["x"] == 1
        stentor_broker.advance("6m")
        with pytest.raises(LeaseExpired):
            sub.get(60)

    def test_time_is_the_machines_again_afterwards(self) -> None:
        with broker() as one, broker() as two:
            one.advance("1h")
            assert two.now - datetime.now(UTC) > timedelta(minutes=59), "clocks of brokers agree"
            with pytest.raises(StentorError):
                one.advance(-1)
            with pytest.raises(StentorError):
                one.advance("soon")
        assert clock.ahead == 0.0


class TestAssertions:
    def test_what_is_delivered(self, stentor_broker: TestBroker) -> None:
        @dataclass
        class Order:
            number: int
            city: str = "Bern"

        bus = stentor_broker.connect(name="desk")
        with bus.subscribe(Order, where="number > 1"), bus.subscribe("x > 0", volatile=True):
            bus.publish(Order(2))
            bus.publish({"x": 1, "to": {"city": "Bern"}}, volatile=True)
            assert stentor_broker.assert_delivered(Order).type == "Order"
            stentor_broker.assert_delivered({"number": 2, "city": "Bern"}, to="desk")
            stentor_broker.assert_delivered("number between 1 and 3", count=1)
            stentor_broker.assert_delivered({"to.city": "Bern"})
            stentor_broker.assert_delivered({"to": {"city": "Bern"}})
            stentor_broker.assert_nothing_delivered({"number": 1})
            stentor_broker.forget()
            stentor_broker.assert_nothing_delivered()

    def test_a_filter_with_a_mistake_is_told_even_if_nothing_came(
        self, stentor_broker: TestBroker
    ) -> None:
        for ask in (stentor_broker.assert_delivered, stentor_broker.assert_nothing_delivered):
            with pytest.raises(FilterSyntaxError):
                ask("price > ")

    def test_what_is_said_when_it_is_not(self, stentor_broker: TestBroker) -> None:
        def said(pattern: Any, **options: Any) -> str:
            with pytest.raises(AssertionError) as raised:
                stentor_broker.assert_delivered(pattern, timeout=0.05, **options)
            return str(raised.value)

        bus = stentor_broker.connect(name="desk")
        with bus.subscribe("price > 100 and symbol = 'IBM'"):
            assert "nothing has been published" in said({"price": 99})
            bus.publish({"price": 99, "symbol": "IBM"}, ack=True)
            assert "price > 100: price is 99" in said({"price": 99}, to="desk")
            assert "symbol" not in said({"price": 99}).split("asks for")[1].partition("\n")[2]
            assert "nothing like it was published" in said({"price": 98})
            assert "no subscriber here has the name 'dsek'" in said({"price": 99}, to="dsek")
            bus.publish({"price": 101, "symbol": "IBM"}, ack=True)
            assert "1 and not 2 times" in said({"price": 101}, count=2)
            with pytest.raises(AssertionError, match="something was delivered"):
                stentor_broker.assert_nothing_delivered()


class TestFaults:
    def test_a_connection_is_cut_and_nothing_is_lost(self, stentor_broker: TestBroker) -> None:
        bus = stentor_broker.connect(name="desk", delays=(0.001, 0.01))
        states: list[str] = []
        bus.on_state(states.append)
        with bus.subscribe("x > 0") as sub:
            bus.publish({"x": 1}, ack=True)
            assert sub.get(60)["x"] == 1
            stentor_broker.cut(bus)
            bus.publish({"x": 2}, ack=True)
            assert sub.get(60)["x"] == 2
        assert "reconnecting" in states
        with pytest.raises(InvalidConfiguration, match="clients are 'desk'"):
            stentor_broker.cut("dsek")

    def test_a_broker_stops_and_comes_back(self, tmp_path: Path) -> None:
        with broker(data=str(tmp_path / "b1")) as one:
            bus = one.connect(delays=(0.001, 0.01))
            with bus.subscribe("x > 0", durable="d") as sub:
                bus.publish({"x": 1}, ack=True)
                assert sub.get(60)["x"] == 1
                one.stop()
                assert "stopped" in repr(one)
                bus.publish({"x": 2})
                one.start()
                assert sub.get(60)["x"] == 2

    def test_a_partition(self, stentor_broker: TestBroker) -> None:
        far = stentor_broker.neighbor(name="far")
        here, there = stentor_broker.connect(), far.connect(name="there")
        with there.subscribe("x > 0") as sub:
            stentor_broker.partition(far)
            here.publish({"x": 1}, ack=True)
            far.assert_nothing_delivered()
            stentor_broker.heal(far)
            assert sub.get(60)["x"] == 1, "it comes when there is a way again"

    def test_a_client_that_dies_is_forgotten(self, stentor_broker: TestBroker) -> None:
        async def dies() -> None:
            bus = await stentor.connect(stentor_broker.address, name="ann")
            await bus.subscribe("x > 0", durable="d")
            bus._local._tasks.clear()  # nothing is said any more, as by a process that was killed

        asyncio.run(dies())
        stentor_broker.connect(name="bob").publish({"x": 1}, ack=True)
        with stentor_broker.connect(name="eve").subscribe("x > 0", durable="d") as sub:
            assert sub.get(60)["x"] == 1


class TestAsync:
    async def test_a_coroutine_runs_without_a_plugin(self, stentor_broker: AsyncTestBroker) -> None:
        async with stentor_broker.connect() as bus, bus.subscribe("x > 0") as sub:
            await bus.publish({"x": 1}, deliver_at="10m")
            await stentor_broker.assert_nothing_delivered()
            await stentor_broker.advance("10m")
            await stentor_broker.assert_delivered({"x": 1})
            assert (await sub.get(60))["x"] == 1
            await stentor_broker.cut(bus)
            await bus.publish({"x": 2}, ack=True)
            assert (await sub.get(60))["x"] == 2
            far = await stentor_broker.neighbor()
            await stentor_broker.partition(far)
            await stentor_broker.heal(far)

    async def test_what_would_block_says_so(self, stentor_broker: AsyncTestBroker) -> None:
        with pytest.raises(InvalidConfiguration, match=r"broker\.aio"):
            stentor_broker._broker.advance("1s")

    def test_within_a_plain_test(self, stentor_broker: TestBroker) -> None:
        async def main() -> None:
            async with stentor_broker.aio.connect() as bus, bus.subscribe("x > 0"):
                await bus.publish({"x": 1})
                await stentor_broker.aio.assert_delivered({"x": 1})

        asyncio.run(main())


def test_brokers_end_with_the_one_that_they_were_made_by() -> None:
    with broker() as first:

        async def main() -> AsyncTestBroker:
            await first.aio.advance("1h")
            return await first.aio.neighbor()

        other = asyncio.run(main())
    assert other._stage.broker is None
    assert clock.ahead == 0.0


def test_it_leaves_no_threads_behind() -> None:
    with broker() as first:
        first.connect().publish({"x": 1})
    before = threading.active_count()
    for _ in range(5):
        with broker() as each:
            each.connect().publish({"x": 1})
    gc.collect()
    assert threading.active_count() == before


@pytest.mark.stentor(name="marked", enforce_advertisements=True)
def test_a_mark_sets_it_up(stentor_broker: TestBroker) -> None:
    assert stentor_broker.name == "marked"
    with pytest.raises(StentorError, match="advertis"):
        stentor_broker.connect().publish({"x": 1}, ack=True)


def test_a_project_gets_it_by_installing(pytester: pytest.Pytester) -> None:
    """A project with nothing but a test; no plugin for async tests is there."""
    pytester.makepyfile(
        """
        async def test_async(stentor_broker):
            async with stentor_broker.connect() as bus, bus.subscribe("x > 0"):
                await bus.publish({"x": 1})
                await stentor_broker.assert_delivered({"x": 1})

        def test_plain(stentor_broker):
            assert stentor_broker.published == []
            stentor_broker.assert_delivered({"x": 1}, timeout=0)
        """
    )
    result = pytester.runpytest_inprocess(
        "-p", "stentor.testing.plugin", "-p", "no:xdist", "-p", "no:benchmark"
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*nothing has been published*"])
