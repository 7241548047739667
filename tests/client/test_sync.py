"""The bus without async: the same, from threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from scripted import ScriptedBroker, World

import stentor
from stentor.client.sync import LoopThread
from stentor.errors import (
    InvalidConfiguration,
    NoReply,
    NotPermitted,
    ShuttingDown,
    Unreachable,
)
from stentor.filters import Filter
from stentor.model import Notification
from stentor.protocol import messages as m


@dataclass
class Place:
    x: int
    y: int


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def broker(world: World) -> Iterator[ScriptedBroker]:
    """A broker in a thread of its own; afterwards no other thread is left."""
    before = threading.active_count()
    broker = ScriptedBroker(world, window=20_000)
    loop = LoopThread("broker")
    loop.start()
    loop.call(broker.start())
    yield broker
    assert threading.active_count() == before + 1, threading.enumerate()
    loop.call(broker.stop())
    loop.stop()


def test_the_example_of_the_documentation(broker: ScriptedBroker) -> None:
    with stentor.connect_sync(broker.address) as bus:
        with bus.subscribe("symbol = 'IBM' and price > 100") as quotes:
            id = bus.publish({"symbol": "IBM", "price": 120.5}, ack=True)
            for n in quotes:
                assert (n["price"], n.id) == (120.5, id)
                break
        assert bus.state == "connected"
        assert bus.broker == broker.name
    assert bus.state == "closed"
    with pytest.raises(ShuttingDown):
        bus.publish({"x": 1})
    bus.close()


def test_nobody_there() -> None:
    with pytest.raises(Unreachable):
        stentor.connect_sync("inproc:nobody", timeout=0.02).open()
    assert not [t for t in threading.enumerate() if t.name.startswith("stentor")]


def test_before_it_is_open(broker: ScriptedBroker) -> None:
    bus = stentor.connect_sync(broker)
    bus.close()
    with pytest.raises(ShuttingDown, match="make another"):
        bus.publish({"x": 1})
    bus = stentor.connect_sync(broker)
    bus.publish({"x": 1}, ack=True)  # opens it
    with bus, pytest.raises(InvalidConfiguration, match="only once"):
        bus.open()


def test_publishing(broker: ScriptedBroker, world: World) -> None:
    with stentor.connect_sync(broker) as bus:
        assert bus.publish_many(({"k": k} for k in range(7_000)), ack=True) == 7_000
        bus.publish({"k": 7_000}, retain="key")
        bus.flush()
        with bus.transaction() as transaction:
            held = transaction.publish({"k": 7_001})
            with transaction.transaction() as inner:
                inner.publish({"k": 7_002})
            assert len(transaction) == 2
        assert held.id is not None
        assert transaction.state == "committed"
        given_up = bus.transaction().__enter__()
        given_up.publish({"k": -1})
        given_up.rollback()
        assert bus.unacknowledged == 0
    assert [n["k"] for n in world.all()] == list(range(7_003))
    assert list(world.last_values) == ["key"]


def test_refusals_and_timeouts_are_raised(broker: ScriptedBroker) -> None:
    broker.answers[m.Publish] = lambda session, message: session.send(
        m.Failure("STN-604", "no", message.number)
    )
    with stentor.connect_sync(broker) as bus:
        with pytest.raises(NotPermitted):
            bus.publish({"k": 1}, ack=True)
        assert bus.rejected == 1
        with bus.subscribe("k > 0") as sub, pytest.raises(NoReply):
            sub.get(timeout=0.01)


def test_reading(broker: ScriptedBroker) -> None:
    with stentor.connect_sync(broker) as bus, bus.subscribe("k >= 0") as sub:
        bus.publish_many([{"k": k} for k in range(1_000)], ack=True)
        got = [sub.get()["k"] for _ in range(10)]
        for n in sub:
            got.append(n["k"])
            assert sub.last is n
            if n["k"] == 499:
                break
        for batch in sub.batches():
            got += [n["k"] for n in batch]
            if got[-1] == 999:
                break
        assert got == list(range(1_000))


def test_several_threads_share_a_subscription(broker: ScriptedBroker) -> None:
    got: list[int] = []

    def read() -> None:
        got.extend(n["k"] for n in sub)

    with stentor.connect_sync(broker) as bus:
        sub = bus.subscribe("k >= 0")
        readers = [threading.Thread(target=read) for _ in range(3)]
        writers = [
            threading.Thread(
                target=lambda i=i: [bus.publish({"k": 100 * i + k}) for k in range(100)]
            )
            for i in range(3)
        ]
        for thread in readers + writers:
            thread.start()
        for thread in writers:
            thread.join()
        deadline = time.monotonic() + 10
        while len(got) < 300 and time.monotonic() < deadline:
            time.sleep(0.001)
        sub.close()
        for thread in readers:
            thread.join()
    assert sorted(got) == list(range(300))


@pytest.mark.spec("R-07.40")
def test_durable_ones_confirm_what_was_dealt_with(broker: ScriptedBroker, world: World) -> None:
    def fail() -> None:
        with bus.subscribe("k > 0", durable="desk") as sub:
            assert sub.resumed
            assert sub.get()["k"] == 3
            raise ZeroDivisionError

    with stentor.connect_sync(broker) as bus:
        with bus.subscribe("k > 0", durable="desk", lease=60) as sub:
            bus.publish_many([{"k": k} for k in range(1, 6)], ack=True)
            for n in sub:
                if n["k"] == 2:
                    break
            sub.renew()
        assert world.durables["desk"] == {broker.stream: 2}
        with pytest.raises(ZeroDivisionError):
            fail()
        assert world.durables["desk"] == {broker.stream: 2}
        with bus.subscribe("k > 0", durable="desk") as sub:
            sub.get()
            sub.confirm()
            assert sub.positions == {broker.stream: 3}
            assert (list(sub.gaps), sub.lost, sub.errors) == ([], 0, 0)
            sub.close(forget=True)
        assert world.durables == {}


def test_handlers_run_in_threads_and_may_use_the_bus(
    broker: ScriptedBroker, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[Any] = []
    done, done_in_the_loop = threading.Event(), threading.Event()
    bus = stentor.connect_sync(broker)

    @bus.on("k >= 0", durable="desk", settle=False)
    def early(n: Notification) -> None:
        if n["k"] == 1:
            raise ValueError("not one")
        bus.publish({"echo": n["k"]}, ack=True)

    with bus:

        @bus.on("echo >= 0")
        def late(n: Notification) -> None:
            got.append((n["echo"], threading.current_thread().name))
            if n["echo"] == 4:
                done.set()

        @bus.on("echo >= 0")
        async def in_the_loop(n: Notification) -> None:
            got.append((n["echo"], threading.current_thread().name))
            if n["echo"] == 4:
                done_in_the_loop.set()

        bus.publish_many([{"k": k} for k in range(5)], ack=True)
        assert done.wait(60)
        assert done_in_the_loop.wait(60)
    assert [k for k, name in got if "handler" in name] == [0, 2, 3, 4]
    assert [k for k, name in got if "handler" not in name] == [0, 2, 3, 4]
    assert "not one" in caplog.text
    everything = len(world.journals[broker.stream])
    assert world.durables["desk"][broker.stream] >= everything - 4


def test_closing_lets_a_handler_finish(broker: ScriptedBroker, world: World) -> None:
    begun, go_on = threading.Event(), threading.Event()
    with stentor.connect_sync(broker) as bus:

        @bus.on("k > 0", durable="desk")
        def handle(n: Notification) -> None:
            begun.set()
            go_on.wait(10)
            bus.publish({"echo": n["k"]}, ack=True)

        bus.publish_many([{"k": 1}, {"k": 2}], ack=True)
        assert begun.wait(10)
        threading.Timer(0.01, go_on.set).start()
    assert [n["echo"] for n in world.all() if "echo" in n] == [1]
    assert world.durables["desk"][broker.stream] == 1


def test_advertising(broker: ScriptedBroker) -> None:
    with stentor.connect_sync(broker) as bus:
        told = threading.Event()
        with bus.advertise("k > 0", quench=True, demand=lambda _: told.set()) as offer:
            assert offer.demanded
            assert bus.offers() == [Filter("k > 0")]
            offer.publish({"k": 1}, ack=True)
            (number,) = bus._bus._local.advertisements
            broker.send_from_thread(m.Demand(number, []))
            assert told.wait(10)
            bus.publish({"k": 2})
            assert (offer.demanded, offer.filters, offer.quenched, bus.quenched) == (
                False,
                [],
                1,
                1,
            )


async def _soon(act: Any) -> None:
    act()


@pytest.mark.filterwarnings("error::stentor.errors.FilterWarning")  # they ask for `reply_to`
def test_request_and_reply(broker: ScriptedBroker) -> None:
    bus = stentor.connect_sync(broker)

    @bus.reply("service = 'price'")
    def price(n: Notification) -> Any:
        return {"price": len(n["symbol"])}

    with bus:

        @bus.reply("service = 'price'")
        async def in_the_loop(n: Notification) -> Any:
            return {"price": -1}

        @bus.reply(Place)
        def both(place: Place) -> Any:
            yield Place(place.y, place.x)
            yield place

        assert bus.request({"service": "price", "symbol": "IBM"})["price"] in (3, -1)
        replies = bus.request_all({"service": "price", "symbol": "IBM"}, 5, max_replies=2)
        assert sorted(r["price"] for r in replies) == [-1, 3]
        places = [(r["x"], r["y"]) for r in bus.request_all(Place(1, 2), 5, max_replies=2)]
        assert places == [(2, 1), (1, 2)]
        with pytest.raises(NoReply):
            bus.request({"service": "none"}, timeout=0.02)


def test_a_callback_cannot_wait_for_the_loop_that_runs_it(broker: ScriptedBroker) -> None:
    said: list[Exception] = []

    def hook(n: Notification) -> None:
        try:
            bus.publish({"again": 1})
        except Exception as error:
            said.append(error)

    with stentor.connect_sync(broker) as bus:
        bus.hooks.add("publish", hook)
        bus.publish({"k": 1}, ack=True)
    assert isinstance(said[0], InvalidConfiguration)


def test_ctrl_c_interrupts_a_wait_and_leaves_in_good_order() -> None:
    program = """
import asyncio, sys, threading
import stentor
from scripted import ScriptedBroker, World
from stentor.client.sync import LoopThread

world = World()
broker = ScriptedBroker(world)
loop = LoopThread("broker")
loop.start()
loop.call(broker.start())
try:
    with stentor.connect_sync(broker) as bus:
        bus.publish({"k": 1})
        with bus.subscribe("nothing = 1") as sub:
            print("waiting", flush=True)
            sub.get()
except KeyboardInterrupt:
    print("interrupted", len(world.all()), [type(x).__name__ for x in world.heard[-2:]])
    print([t.name for t in threading.enumerate() if t.name.startswith("stentor")])
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "waiting\n"
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=20)
    assert output == "interrupted 1 ['Unsubscribe', 'Goodbye']\n[]\n"
    assert child.returncode == 0
