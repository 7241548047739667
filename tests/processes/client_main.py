"""What a client process of the tests runs: one that is there to be killed.

Such a process keeps a *diary*, a file to which it appends a line for each thing that happened, in
one write each; so the diary is true up to the instruction at which the process died. A line begins
with the time on the monotonic clock, which all processes share.

    S               it has started, and is subscribed
    P hex           it has published this, which nobody can have seen yet
    A               everything published before is acknowledged
    G hex           it was given this notification
    C               everything it was given before is confirmed, on its broker's disk
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import UTC, datetime

import uvloop

from stentor.client import connect
from stentor.model import Notification, encode


class Diary:
    def __init__(self, file: str) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, notification: Notification | None = None) -> None:
        data = "" if notification is None else encode(notification).hex()
        os.write(self._file, f"{time.monotonic()!r} {kind} {data}\n".encode())


def run_client(what: str, **arguments: object) -> int:
    import logging

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s"
    )
    role = {"durable": consume, "producer": produce, "reader": read}[what]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(role(**arguments))  # type: ignore[operator]
    return 0


async def consume(
    *, addresses: list[str], name: str, durable: str, filter: str, diary: str, every: int
) -> None:
    """Consume a durable subscription, confirming after so many."""
    entries = Diary(diary)
    async with connect(*addresses, name=name) as bus:
        wanted = bus.subscribe(filter, durable=durable, auto_confirm=False, window=100)
        async with wanted as subscription:
            entries.write("S")
            unconfirmed = 0
            while True:
                try:
                    async with asyncio.timeout(0.2 if unconfirmed else None):
                        notification = await anext(subscription)
                except TimeoutError:
                    await subscription.confirm()
                    entries.write("C")
                    unconfirmed = 0
                    continue
                entries.write("G", notification)
                unconfirmed += 1
                if unconfirmed >= every:
                    await subscription.confirm()
                    entries.write("C")
                    unconfirmed = 0


async def read(
    *, addresses: list[str], name: str, filter: str, group: str | None, diary: str
) -> None:
    """Write down what comes, as a member of a group or alone."""
    entries = Diary(diary)
    async with connect(*addresses, name=name) as bus, bus.subscribe(filter, group=group) as wanted:
        entries.write("S")
        async for notification in wanted:
            entries.write("G", notification)


async def produce(*, addresses: list[str], name: str, diary: str, seed: int) -> None:
    """Publish for ever, a few at a time, each time waiting for the answer."""
    from workload import quote

    entries = Diary(diary)
    rng = random.Random(seed)
    async with connect(*addresses, name=name) as bus:
        entries.write("S")
        while True:
            for _ in range(rng.randint(1, 20)):
                notification = Notification(quote(rng), time=datetime.now(UTC))
                id = await bus.publish(notification)
                entries.write("P", notification.replace(id=id))
            await bus.flush()
            entries.write("A")
            await asyncio.sleep(0.01)
