"""What a client process of the tests runs: one that is there to be killed.

Such a process records what it does and is given, so its recording is true up to the instruction at
which it died.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import uvloop

from stentor.client import Retry, connect
from stentor.errors import TransactionLost


def run_client(what: str, **arguments: object) -> int:
    import logging

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s"
    )
    role = {
        "durable": consume,
        "producer": produce,
        "reader": read,
        "service": serve,
        "worker": work,
    }[what]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(role(**arguments))  # type: ignore[operator]
    return 0


async def consume(
    *,
    addresses: list[str],
    name: str,
    durable: str,
    filter: str,
    record: str,
    every: int,
    token: str | None = None,
) -> None:
    """Consume a durable subscription, confirming after so many."""
    async with connect(*addresses, name=name, record=record, token=token) as bus:
        wanted = bus.subscribe(filter, durable=durable, auto_confirm=False, window=100)
        async with wanted as subscription:
            unconfirmed = 0
            while True:
                try:
                    async with asyncio.timeout(0.2 if unconfirmed else None):
                        await anext(subscription)
                except TimeoutError:
                    await subscription.confirm()
                    unconfirmed = 0
                    continue
                unconfirmed += 1
                if unconfirmed >= every:
                    await subscription.confirm()
                    unconfirmed = 0


async def serve(*, addresses: list[str], name: str, durable: str, filter: str, to: str) -> None:
    """Take an event, and publish one of another type in the same step, for ever."""
    bus = connect(*addresses, name=name, delays=(0.02, 0.2), timeout=60.0)
    async with bus, bus.subscribe(filter, durable=durable, settle=True) as events:
        while True:
            with suppress(TransactionLost):  # it was carried out, or comes again
                async with bus.transaction() as transaction:
                    n = await transaction.take(events)
                    await transaction.publish({"stage": to, "k": n["k"]})


async def work(
    *,
    addresses: list[str],
    name: str,
    record: str,
    seed: int,
    hangs: bool,
    attempts: int,
    deadline: float | None,
    overtake: bool,
    token: str | None = None,
    **terms: str,
) -> None:
    """Work on orders, as a subscriber or a member of a group, with a handler that fails on some."""
    from worker import Worker

    retry = Retry(attempts, backoff="10ms..50ms", deadline=deadline, overtake=overtake)
    worker = Worker(seed, slow=deadline if hangs and deadline else 0.0)
    bus = connect(
        *addresses,
        name=name,
        record=record,
        token=token,
        delays=(0.02, 0.2),
        timeout=60.0,  # nobody starts it again if it gives up
    )
    async with bus:
        handled = bus.subscribe(
            "k >= 0", handler=worker.handle, retry=retry, dead_letter=True, **terms
        )
        async with handled:
            await asyncio.Event().wait()


async def read(
    *, addresses: list[str], name: str, filter: str, group: str | None, record: str
) -> None:
    """Take what comes, as a member of a group or alone."""
    bus = connect(*addresses, name=name, record=record)
    async with bus, bus.subscribe(filter, group=group) as wanted:
        async for _ in wanted:
            pass


async def produce(
    *, addresses: list[str], name: str, record: str, seed: int, token: str | None = None
) -> None:
    """Publish for ever, a few at a time, each time waiting for the answer."""
    from workload import quote

    rng = random.Random(seed)
    async with connect(*addresses, name=name, record=record, token=token) as bus:
        while True:
            for _ in range(rng.randint(1, 20)):
                await bus.publish(quote(rng))
            await bus.flush()
            await asyncio.sleep(0.01)
