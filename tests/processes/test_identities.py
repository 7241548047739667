"""Ids belong to who has proved to be their producer: nobody can use up those of somebody else.

Brokers and subscribers recognize by its id a notification that comes twice, or by two ways. Whoever
could publish under the ids of another would make what that one publishes look like a repeat.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from overlay_processes import PATIENCE, Overlay, until
from wire_client import WireClient

from stentor.broker.settings import Grant
from stentor.client import connect
from stentor.model import Notification, NotificationId, encode
from stentor.protocol import messages as m

GRANTS = (
    Grant("operator", token="op-secret", operate=True),
    Grant("neighbor", token="broker-secret", broker=True),
    Grant("desk", token="desk-secret", publish=("i >= 0",), subscribe=()),
    Grant("auditor", token="auditor-secret", publish=()),
    Grant("junk", token="junk-secret", publish=("junk = 1",), subscribe=()),
)
VICTIM = "sensör-7"
#: What an attacker may call itself.
NAMES = (
    VICTIM,
    f"{VICTIM}@desk",
    VICTIM.upper(),
    unicodedata.normalize("NFD", VICTIM),
    f"{VICTIM} ",
)
EVENTS = 101


@pytest.fixture
def guarded(overlay: Overlay) -> Overlay:
    for name, neighbors in (("b1", []), ("b2", ["b1"]), ("b3", ["b2"])):
        overlay.broker(name, neighbors, grants=GRANTS, token="broker-secret").start()
    overlay.operator_options = {"token": "op-secret"}
    return overlay


def attack(address: str, name: str, seen: NotificationId) -> int:
    """Publish what the grant allows, under the ids that the victim will use next."""
    accepted = 0
    with WireClient(address) as wire:
        welcome = wire.hello(name, token="junk-secret")
        producers = {seen.producer, VICTIM, name, welcome.producer}
        for number, producer in enumerate(sorted(producers), 1):
            ids = [
                NotificationId(producer, seen.epoch + epoch, seen.sequence + i)
                for epoch in (0, 1)
                for i in range(2 * EVENTS)
            ]
            wire.send(m.Publish(number, [encode(Notification({"junk": 1}, id=i)) for i in ids]))
            rejected = set()
            for answer in wire.messages():
                if isinstance(answer, m.Rejected):
                    rejected.update(answer.items)
                elif isinstance(answer, m.Published):
                    break
            own = producer == welcome.producer
            assert len(rejected) == (0 if own else len(ids)), producer
            accepted += own
    return accepted


@pytest.mark.parametrize("place", ["b1", "b2"])
def test_all_that_is_acknowledged_reaches_a_durable_auditor(guarded: Overlay, place: str) -> None:
    async def run() -> None:
        await guarded.linked()
        got: list[int] = []
        async with (
            connect(guarded["b3"].address, token="auditor-secret", name="auditor") as auditor,
            auditor.subscribe("", durable="audit") as everything,
            connect(guarded["b1"].address, token="desk-secret", name=VICTIM) as victim,
        ):
            first = await victim.publish({"i": 0}, ack=True)
            # Before the victim goes on, while it does, and after it is gone.
            for start in range(1, EVENTS, 50):
                for name in NAMES:
                    assert attack(guarded[place].address, name, first) == 1
                for i in range(start, start + 50):
                    await victim.publish({"i": i}, ack=True)
            async with connect(
                guarded["b2"].address, token="desk-secret", name=VICTIM
            ) as elsewhere:
                await elsewhere.publish({"i": EVENTS}, ack=True)
            async with asyncio.timeout(PATIENCE):
                while len(got) <= EVENTS:
                    event = await everything.get(PATIENCE)
                    if "i" in event:
                        assert event.id is not None
                        assert event.id.producer == f"{VICTIM}@desk"
                        got.append(event["i"])
        assert sorted(got) == list(range(EVENTS + 1))

    asyncio.run(run())


def test_who_moves_with_something_unanswered_publishes_once(guarded: Overlay) -> None:
    """The same party is the same producer at every broker, so repeats are recognized."""

    async def run() -> None:
        await guarded.linked()
        places = [guarded[name].address for name in ("b1", "b2")]
        got: Counter[int] = Counter()

        async def read(everything: Any) -> None:
            async for event in everything:
                got[event["i"]] += 1

        async with (
            connect(guarded["b3"].address, token="auditor-secret", name="auditor") as auditor,
            auditor.subscribe("i >= 0", durable="audit") as everything,
            connect(*places, token="desk-secret", name=VICTIM) as victim,
        ):
            reading = asyncio.create_task(read(everything))
            i = 0
            for name in ("b1", "b2", "b1"):
                await until(lambda name=name: victim.broker == name, guarded.tail)  # type: ignore[misc]
                for _ in range(500):
                    await victim.publish({"i": i})
                    i += 1
                    await asyncio.sleep(0)
                guarded[name].kill()
                await until(
                    lambda name=name: victim.state == "connected" and victim.broker != name,  # type: ignore[misc]
                    guarded.tail,
                )
                guarded[name].start()
                await guarded.linked()
            await victim.flush(PATIENCE)
            await until(lambda: len(got) == i, lambda: f"{len(got)} of {i}")
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
        assert set(got.values()) == {1}

    asyncio.run(run())
