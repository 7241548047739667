"""Notifications that are settled one by one: by handlers, in iterations, in groups."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from queue import Queue
from tempfile import mkdtemp
from typing import Any

import pytest
from scripted import looped, until

import stentor
from stentor import Notification, Retry
from stentor.broker.host import Broker
from stentor.broker.settings import Settings
from stentor.cli.operator import Operator
from stentor.cli.options import Connecting
from stentor.client.clock import clock
from stentor.client.sync import LoopThread
from stentor.client.unsettled import Delivery, Unsettled
from stentor.errors import InvalidConfiguration, JournalUnavailable
from stentor.model import NotificationId, encode
from stentor.protocol.messages import Deliver, Withdrawn

SOON = Retry(backoff="20ms..100ms")
LETTERS = "type = 'DeadLetter' and durable = 'billing'"


@dataclass
class Order:
    account: int
    type: str = "Order"


@asynccontextmanager
async def served(data: Path | None = None) -> AsyncIterator[Broker]:
    settings = Settings(listen=("127.0.0.1:0",), name="b1", data=data)
    broker = Broker(settings, ahead=lambda: clock.ahead)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        clock.ahead = 0.0


def minutes_pass(broker: Broker, minutes: float) -> None:
    """Let time pass for the broker and its clients, however slow the machine is."""
    clock.advance(60 * minutes)
    broker.pass_time()


def durable(broker: Broker) -> Any:
    return broker.core.durables["billing"]


@looped
async def test_what_a_handler_fails_on_comes_again_and_then_is_a_dead_letter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        seen: list[int] = []
        caplog.clear()

        @bus.on(
            "type = 'Order'",
            durable="billing",
            retry=Retry(attempts=3, backoff="20ms..40ms"),
            dead_letter=True,
        )
        async def bill(order: Notification) -> None:
            seen.append(order["account"])
            if order["account"] == 7:
                raise ValueError("there is no account 7")

        await bus.ready()
        async with bus.subscribe(LETTERS) as letters:
            await bus.publish_many(Order(account) for account in (6, 7, 8))
            letter = await letters.get(timeout=60)
            await until(lambda: len(seen) == 5)
        assert seen == [6, 7, 7, 7, 8]  # in order
        assert (letter["attempts"], letter["event.account"]) == (3, 7)
        assert letter["cause"] == "ValueError: there is no account 7"
        assert letter.type == "DeadLetter"
        told = [record.getMessage().rpartition("; ")[2] for record in caplog.records]
        assert [text for text in told if "attempts" in text] == [
            "it comes again, 1 of 3 attempts made",
            "it comes again, 2 of 3 attempts made",
            "that was the last of 3 attempts, and it becomes a dead letter",
        ]
        await until(lambda: durable(broker).positions == {broker.stream: 3})


@looped
async def test_a_handler_gets_objects_of_the_class_that_it_takes() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        orders: list[Order] = []
        parcels: list[Parcel] = []

        @dataclass
        class Parcel:
            weight: int

        @bus.on("type = 'Order'", durable="billing", retry=Retry(attempts=1), dead_letter=True)
        async def bill(order: Order) -> None:
            orders.append(order)

        @bus.on("exists weight")
        def weigh(parcel: Parcel) -> None:
            parcels.append(parcel)

        await bus.ready()
        async with bus.subscribe(LETTERS) as letters:
            await bus.publish({"type": "Order", "account": "seven"})
            await bus.publish(Order(8))
            await bus.publish({"weight": 3, "color": "red"})
            letter = await letters.get(timeout=60)
        await until(lambda: orders == [Order(8)] and parcels == [Parcel(3)])
        assert "this is not a Order: Expected `int`, got `str`" in letter["cause"]


@looped
async def test_a_bus_may_be_opened_for_one_subscription_alone() -> None:
    async with served() as broker:
        bus = stentor.connect("127.0.0.1:1", broker.address)
        with suppress(ZeroDivisionError):
            async with bus.subscribe("true", durable="billing") as sub:
                await bus.publish({"x": 1}, ack=True)
                assert (await sub.get(timeout=60))["x"] == 1
                raise ZeroDivisionError
        assert bus.state == "closed"
        async with stentor.connect(broker.address).subscribe("true", durable="billing") as sub:
            assert (await sub.get(timeout=60))["x"] == 1
        async with stentor.connect(broker.address) as bus, bus.subscribe("true"):
            sub = bus.subscribe("true")
            async with sub:
                pass
            assert bus.state == "connected"


@looped
@pytest.mark.parametrize("terms", [{}, {"settle": True}, {"settle": True, "group": "workers"}])
async def test_what_was_dealt_with_is_told_to_a_broker_that_leaves(
    monkeypatch: pytest.MonkeyPatch, terms: dict[str, Any]
) -> None:
    """Or others would be given it again, wherever the subscription lives by then."""
    monkeypatch.setattr("stentor.client.confirmation.TELL_EVERY", 60.0)
    data = Path(mkdtemp())
    async with served(data) as broker:
        bus = stentor.connect(broker.address)
        await bus.open()
        orders = await bus.subscribe("type = 'Order'", durable="billing", **terms)
        await bus.publish_many((Order(account) for account in range(6)), ack=True)
        for _ in range(4):
            order = await orders.get(timeout=60)
            if terms:
                order.ack()
        stream, dealt = broker.stream, 4 if terms else 3
    async with served(data) as broker:
        assert durable(broker).positions == {stream: dealt}
    await bus.close()


@looped
async def test_a_handler_that_raises_never_loses_its_event() -> None:
    """Without another word it comes again, as often as it takes."""
    async with served() as broker, stentor.connect(broker.address) as bus:
        failures = 1
        done = asyncio.Event()

        async def bill(order: Notification) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise RuntimeError("not now")
            assert order.attempt == 2
            done.set()

        async with bus.subscribe("type = 'Order'", durable="billing", handler=bill) as orders:
            await bus.publish(Order(1), ack=True)
            await asyncio.wait_for(done.wait(), 20)
            assert orders.errors == 1


@looped
async def test_one_by_one_in_any_order() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        options: Any = {"durable": "billing", "settle": True}
        async with bus.subscribe("account > 0", **options) as orders:
            await bus.publish_many(Order(account) for account in range(1, 6))
            taken = [await orders.get(timeout=60) for _ in range(5)]
            for n in (taken[4], taken[1]):
                await n.ack()
            taken[0].ack()  # which need not be awaited
        async with bus.subscribe("account > 0", **options) as orders:
            again = [await orders.get(timeout=60) for _ in range(2)]
            assert [n["account"] for n in again] == [3, 4]
            await orders.confirm()  # all that was handed out
        assert durable(broker).positions == {broker.stream: 5}


@looped
async def test_what_is_refused_comes_first_of_its_publisher() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with stentor.connect(broker.address) as other:
            async with bus.subscribe("account > 0", durable="billing", retry=SOON) as orders:
                await bus.publish_many(Order(account) for account in (1, 2))
                await bus.flush()
                await other.publish(Order(10), ack=True)
                first = await orders.get(timeout=60)
                await first.nack(reason="not now")
                found = [await orders.get(timeout=60)]
                await found[0].ack()
                while len(found) < 3:
                    n = await orders.get(timeout=60)
                    await n.ack()
                    found.append(n)
        assert [(n["account"], n.attempt) for n in found] == [(10, 1), (1, 2), (2, 1)]


@looped
async def test_what_is_refused_may_be_overtaken() -> None:
    retry = Retry(backoff="50ms", overtake=True)
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("account > 0", durable="billing", retry=retry) as orders:
            await bus.publish_many(Order(account) for account in (1, 2))
            first = await orders.get(timeout=60)
            await first.nack(delay=timedelta(milliseconds=10))
            found = [await orders.get(timeout=60) for _ in range(2)]
        assert [(n["account"], n.attempt) for n in found] == [(2, 1), (1, 2)]


@looped
async def test_a_member_that_hangs_gives_its_work_to_others() -> None:
    retry = Retry(backoff="20ms", deadline="3s")
    async with served() as broker, stentor.connect(broker.address) as bus:
        terms: Any = {"group": "g", "durable": "billing", "retry": retry}
        got: list[tuple[int, int]] = []
        hung, released = asyncio.Event(), asyncio.Event()

        async def hang(order: Notification) -> None:
            hung.set()
            await released.wait()

        async def work(order: Notification) -> None:
            got.append((order["account"], order.attempt))

        async with bus.subscribe("account > 0", handler=hang, **terms):
            await bus.publish_many(Order(account) for account in range(6))
            await bus.flush()
            await asyncio.wait_for(hung.wait(), 60)
            async with stentor.connect(broker.address) as other:
                async with other.subscribe("account > 0", handler=work, **terms):
                    await until(lambda: len(got) == 5)
                    released.set()
        assert sorted(account for account, _ in got) == [1, 2, 3, 4, 5]
        assert sorted(attempt for _, attempt in got) == [1, 1, 1, 1, 2]  # one was begun


@looped
async def test_who_needs_longer_says_so() -> None:
    retry = Retry(backoff="20ms", deadline="4m")
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("account > 0", durable="billing", retry=retry) as orders:
            await bus.publish(Order(1), ack=True)
            n = await orders.get(timeout=60)
            for _ in range(8):
                await n.extend("5m")
                minutes_pass(broker, 2)
            await n.ack()
            await until(lambda: durable(broker).positions == {broker.stream: 1})
            assert not any(durable(broker).refused.values())


@looped
async def test_an_error_in_a_block_is_no_endless_loop() -> None:
    """What a subscriber fails on comes again, but its successor has to wait for it."""
    async with served() as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("account > 0", durable="billing"):
            pass
        await bus.publish(Order(1), ack=True)
        loop = asyncio.get_running_loop()
        times: list[float] = []

        async def fail() -> None:
            async with bus.subscribe("account > 0", durable="billing") as orders:
                assert (await orders.get(timeout=60))["account"] == 1
                times.append(loop.time())
                raise RuntimeError("not now")

        for _ in range(2):
            with pytest.raises(RuntimeError, match="not now"):
                await fail()
        assert times[1] - times[0] > 0.9
        async with bus.subscribe("account > 0", durable="billing") as orders:
            assert (await orders.get(timeout=60))["account"] == 1
        assert not any(durable(broker).refused.values())


@looped
async def test_a_lost_connection_hands_out_nothing_twice() -> None:
    async with served() as broker, stentor.connect(broker.address, delays=(0.01, 0.1)) as bus:
        async with bus.subscribe("account > 0", durable="billing", settle=True) as orders:
            await bus.publish_many(Order(account) for account in range(1, 41))
            await bus.flush()
            found: list[int] = []
            held: list[Notification] = []
            for i in range(40):
                n = await orders.get(timeout=60)
                found.append(n["account"])
                if i % 3:
                    await n.ack()
                else:
                    held.append(n)
                if i in (10, 25):
                    for client in list(broker.clients.values()):
                        client.connection.abort()
            for n in held:
                await n.ack()
            await until(lambda: durable(broker).positions == {broker.stream: 40})
        assert found == list(range(1, 41))


@looped
async def test_what_is_refused_without_a_connection_comes_again() -> None:
    """The broker hears of it later, when it has already given it once more."""
    async with served() as broker, stentor.connect(broker.address, delays=(0.01, 0.1)) as bus:
        async with bus.subscribe("account > 0", durable="billing", retry=SOON) as orders:
            await bus.publish_many(Order(account) for account in (1, 2))
            first = await orders.get(timeout=60)
            for client in list(broker.clients.values()):
                client.connection.abort()
            await until(lambda: not orders.attachment.in_force)
            first.nack(reason="not now")
            again = await orders.get(timeout=60)
            await again.ack()
            second = await orders.get(timeout=60)
        assert [(n["account"], n.attempt) for n in (again, second)] == [(1, 2), (2, 1)]


@looped
async def test_what_could_not_be_deleted_on_disk_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an operator has deleted goes when there is room again."""

    def full(batch: Any) -> None:
        raise JournalUnavailable("the disk is full")

    async with served() as broker, stentor.connect(broker.address) as bus:
        desks = [await bus.subscribe("exists x", durable=name) for name in ("d1", "d2")]
        async with Operator(Connecting((broker.address,), None, None, 30.0)) as operator:
            with monkeypatch.context() as patch:
                patch.setattr(broker.journal, "append", full)
                with pytest.raises(JournalUnavailable):
                    await desks[0].close(forget=True)
                with pytest.raises(JournalUnavailable):
                    await operator.ask("durables", name="d2", do="delete")
            await until(lambda: "d2" not in broker.journal.durables())


@looped
async def test_attempts_and_what_was_settled_outlive_the_broker(tmp_path: Path) -> None:
    retry = Retry(attempts=3, backoff="10ms", overtake=True)
    terms: Any = {"durable": "billing", "retry": retry, "dead_letter": True}
    tmp_path = Path(mkdtemp(dir=tmp_path))
    async with served(tmp_path) as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe("account > 0", **terms) as orders:
            await bus.publish_many(Order(account) for account in (1, 2, 3))
            one, two, three = [await orders.get(timeout=60) for _ in range(3)]
            await two.ack()
            await one.nack(reason="first")
            again = await orders.get(timeout=60)
            assert (again["account"], again.attempt) == (1, 2)
            await again.nack(reason="second", delay=0.0)
            await until(lambda: durable(broker).refused[broker.stream][1].attempts == 2)
            del three
    async with served(tmp_path) as broker, stentor.connect(broker.address) as bus:
        async with bus.subscribe(LETTERS) as letters:
            async with bus.subscribe("account > 0", **terms) as orders:
                found = {
                    (n["account"], n.attempt): n for n in [await orders.get(), await orders.get()]
                }
                assert set(found) == {(1, 3), (3, 1)}
                await found[1, 3].nack(reason="third")
                await found[3, 1].ack()
                letter = await letters.get(timeout=60)
                assert (letter["event.account"], letter["cause"]) == (1, "third")
    async with served(tmp_path) as broker:
        assert durable(broker).positions[broker.stream] >= 3


@looped
async def test_who_asks_for_everything_does_not_get_its_own_dead_letters() -> None:
    async with served() as broker, stentor.connect(broker.address) as bus:
        retry = Retry(attempts=1)
        async with bus.subscribe(durable="billing", retry=retry, dead_letter=True) as orders:
            async with bus.subscribe(LETTERS) as letters:
                await bus.publish(Order(1), ack=True)
                await (await orders.get(timeout=60)).nack()
                await letters.get(timeout=60)
            await bus.publish(Order(2), ack=True)
            assert (await orders.get(timeout=60))["account"] == 2


def test_the_same_without_async() -> None:
    loop = LoopThread("broker")
    loop.start()
    broker = Broker(Settings(listen=("127.0.0.1:0",), name="b1"))
    loop.call(broker.start())
    try:
        with stentor.connect_sync(broker.address) as bus:
            failed, done = threading.Event(), threading.Event()

            @bus.on("account > 0", durable="billing", retry=SOON)
            def bill(order: Notification) -> None:
                if not failed.is_set():
                    failed.set()
                    raise ValueError("not now")
                assert order.attempt == 2
                done.set()

            taken = Queue[Order]()

            @bus.on("account = 1")
            def take(order: Order) -> None:
                taken.put(order)

            bus.publish(Order(1), ack=True)
            assert done.wait(60)
            assert taken.get(timeout=60) == Order(1)
            with bus.subscribe("account > 0", durable="other", retry=SOON) as orders:
                bus.publish(Order(2), ack=True)
                n = orders.get(timeout=60)
                n.nack(delay="10ms")
                n = orders.get(timeout=60)
                assert n.attempt == 2
                n.ack()
                orders.confirm(timeout=5)
    finally:
        loop.call(broker.stop())
        loop.stop()


def test_what_cannot_be_settled_says_so() -> None:
    with pytest.raises(InvalidConfiguration, match="settle=True"):
        Notification({"x": 1}).ack()
    bus = stentor.connect("127.0.0.1:1")
    with pytest.raises(InvalidConfiguration, match="durable= or group="):
        bus.subscribe("x > 1", retry=Retry())
    with pytest.raises(InvalidConfiguration, match="settle=False"):
        bus.subscribe("x > 1", durable="d", retry=Retry(), settle=False)
    for wrong in ({"attempts": 0}, {"backoff": "1m..1s"}, {"backoff": "soon"}, {"deadline": -1}):
        with pytest.raises(InvalidConfiguration):
            Retry(**wrong)  # type: ignore[arg-type]


# -- what came in two streams


def test_what_is_in_hand_is_not_handed_out_again_by_way_of_another_stream() -> None:
    """Its publisher had to publish it a second time, elsewhere, and the connection was lost."""
    said: list[object] = []
    delivery = Delivery(said.append, lambda *_: None, lambda *_: None)
    unsettled = Unsettled(delivery, ordered=True, timed=False, shared=False)
    items = [encode(Notification({"x": x}, id=NotificationId("p", 0, x))) for x in range(3)]
    unsettled.deliver("b1#0", [1, 2], items[:2])
    first, second = unsettled.some(2)
    unsettled.ack(second)
    assert unsettled.message(1) is not None
    unsettled.forget_waiting()
    # Both come back, with the next one, from the journal of the other broker.
    unsettled.deliver("b2#0", [7, 8, 9], items)
    assert [n["x"] for n in unsettled.some(10)] == [2]
    assert unsettled.repeats == 2
    unsettled.ack(first)
    message = unsettled.message(1)
    assert message is not None
    assert sorted(message.done["b2#0"]) == [7, 8]
    assert unsettled.has(first) is False


def test_what_is_refused_after_it_came_back_in_another_stream_is_refused_there() -> None:
    delivery = Delivery(lambda _: None, lambda *_: None, lambda *_: None)
    unsettled = Unsettled(delivery, ordered=True, timed=False, shared=False)
    item = encode(Notification({"x": 1}, id=NotificationId("p", 0, 1)))
    unsettled.deliver("b1#0", [1], [item])
    (held,) = unsettled.some(1)
    unsettled.forget_waiting()
    unsettled.deliver("b2#0", [7], [item])
    assert unsettled.some(1) == []
    unsettled.nack(held, None, "no")
    message = unsettled.message(1)
    assert message is not None
    assert [(r.stream, r.offset) for r in message.refused] == [("b2#0", 7)]


def test_what_is_acknowledged_while_the_connection_is_gone_is_not_handed_out_again() -> None:
    """It comes back before the broker could be told."""
    delivery = Delivery(lambda _: None, lambda *_: None, lambda *_: None)
    for stream, offset in (("b1#0", 1), ("b2#0", 7)):
        unsettled = Unsettled(delivery, ordered=True, timed=False, shared=False)
        item = encode(Notification({"x": 1}, id=NotificationId("p", 0, 1)))
        unsettled.deliver("b1#0", [1], [item])
        (held,) = unsettled.some(1)
        unsettled.forget_waiting()
        unsettled.ack(held)
        unsettled.deliver(stream, [offset], [item])
        assert unsettled.some(1) == []
        message = unsettled.message(1)
        assert message is not None
        assert offset in message.done[stream]


def test_what_was_refused_before_it_came_back_waits_for_its_turn() -> None:
    """The broker gave it again before it heard of that, and gives the one before it again first."""
    delivery = Delivery(lambda _: None, lambda *_: None, lambda *_: None)
    unsettled = Unsettled(delivery, ordered=True, timed=False, shared=False)
    items = [encode(Notification({"x": x}, id=NotificationId("p", 0, x))) for x in range(2)]
    unsettled.deliver("b1#0", [1, 2], items)
    held = unsettled.some(2)
    unsettled.forget_waiting()
    for each in held:
        unsettled.nack(each, None, "no")
    unsettled.deliver("b1#0", [1, 2], items)
    unsettled.withdrawn(Withdrawn(1, "b1#0", [1], refused=1))
    assert unsettled.some(10) == []
    unsettled.withdrawn(Withdrawn(1, "b1#0", [2], refused=2))
    unsettled.deliver("b1#0", [1], items[:1], attempt=2)
    unsettled.deliver("b1#0", [2], items[1:], attempt=2)
    assert [(n["x"], n.attempt) for n in unsettled.some(10)] == [(0, 2), (1, 2)]


def test_what_is_taken_back_too_late_is_not_handed_out_again() -> None:
    """A member was slow to say that it is done; it was taken back, and comes to the same member."""
    delivery = Delivery(lambda _: None, lambda *_: None, lambda *_: None)
    unsettled = Unsettled(delivery, ordered=True, timed=True, shared=True)
    items = [encode(Notification({"x": x}, id=NotificationId("p", 0, x))) for x in range(3)]
    unsettled.deliver("b1#0", [1, 2, 3], items)
    done, refused, held = unsettled.some(3)
    unsettled.ack(done)
    assert unsettled.message(1) is not None
    unsettled.nack(refused, None, "no")
    unsettled.withdrawn(Withdrawn(1, "b1#0", [1, 2, 3], refused=2))
    unsettled.deliver("b1#0", [1, 2, 3], items)
    assert [n["x"] for n in unsettled.some(10)] == [1, 2]
    message = unsettled.message(1)
    assert message is not None
    assert message.done == {"b1#0": [1]}
    assert not unsettled.has(held)


@looped
async def test_what_was_settled_before_the_connection_was_lost_holds_up_nothing() -> None:
    """It comes again if the broker has not heard of it, and the broker then hears of it at once."""
    broker = Broker(Settings(listen=("127.0.0.1:0",), name="b1"))
    async with broker, stentor.connect(broker, name="desk") as bus:
        async with bus.subscribe("exists x", durable="d", settle=True) as wanted:
            await bus.publish({"x": 1}, ack=True)
            first = await wanted.get(timeout=30)
            unsettled = wanted.settlements.unsettled
            assert unsettled is not None
            # As if the message about it had been lost with the connection.
            unsettled.ack(first)
            assert unsettled.message(1) is not None
            unsettled.forget_waiting()
            item = encode(Notification({"x": 1}, id=first.id))
            wanted.deliver(Deliver(1, first.place[0], [first.place[1]], [item]))
            home = broker.core.durables["d"]
            await until(lambda: home.is_done(*first.place))
