"""Ten attacks on what is durable, made on an overlay that is at work.

Each was once a way to lose, repeat or withhold events that had been acknowledged. They are made by
the soak (`soak.py`) while everything else goes on; what all clients recorded is judged at its end,
and what an attack can see itself, it asserts.

The ground on which they are made has five brokers. A durable group, `jobs`, lives at b5, whose
stream sorts behind those of all others; its members are processes with handlers that fail on some
orders and hang on others. Consumers that can be killed have durable subscriptions at b1 and b4.
"""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from mortals import MortalConsumer, MortalWorker
from overlay_processes import PATIENCE, Overlay, until
from witness import Run

from stentor.broker.settings import Grant
from stentor.client import Bus, connect
from stentor.errors import NoReply, StentorError

#: Everybody but the tenant, who may do little.
GRANTS: Final = (
    Grant("operator", token="operator-secret", operate=True),
    Grant("neighbor", token="neighbor-secret", broker=True),
    Grant("house", token="house-secret"),
    Grant("tenant", token="tenant-secret", publish=(), durables=3, groups=3),
)
#: Seconds for which a broker that hangs beside the way, or a subscriber that blocks, may hold up
#: others. The promise is two; the machine that runs this may be busy with other things.
DELAY: Final = 6.0
#: The group of the ground, and what takes a member too long.
JOBS: Final = "jobs"
DEADLINE: Final = 2.0


@dataclass
class Ground:
    """Where attacks are made."""

    overlay: Overlay
    seen: Run
    rng: random.Random
    consumers: dict[str, MortalConsumer]
    workers: list[MortalWorker]
    #: A client at each broker that publishes, apart from the load.
    publishers: dict[str, Bus]
    #: The longest delays that attacks have seen, in seconds.
    delays: dict[str, float] = field(default_factory=dict)

    async def publish(self, at: str, count: int = 20) -> None:
        """Acknowledged when this returns."""
        for i in range(count):
            event = {"symbol": "IBM", "price": self.rng.uniform(10.0, 200.0), "volume": i}
            await self.publishers[at].publish(event)
        await self.publishers[at].flush(PATIENCE)

    def measured(self, what: str, began: float) -> None:
        """Something was held up since then; not for too long."""
        seconds = time.monotonic() - began
        self.delays[what] = max(seconds, self.delays.get(what, 0.0))
        assert seconds < DELAY, f"{what} took {seconds:.1f} s"


@asynccontextmanager
async def busy_machine(loops: int = 6) -> AsyncIterator[None]:
    """Other programs want all processors."""
    program = "while True: pass"
    others = [await asyncio.create_subprocess_exec(sys.executable, "-c", program)]
    others += [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        for _ in range(loops - 1)
    ]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            await other.wait()


# -- the attacks


async def home_dies_on_a_busy_machine(ground: Ground) -> None:
    """The home of a group is killed, with members at other brokers, and is slow to come back."""
    async with busy_machine():
        ground.overlay["b5"].kill()
        await asyncio.sleep(5.0)
        ground.overlay["b5"].start()
        await until(ground.overlay["b5"].reachable, "b5 is back")


async def home_dies_after_confirmations(ground: Ground) -> None:
    """What was confirmed before the home died must not come again."""
    ground.seen.read()
    jobs = ground.seen.components[f"durable {JOBS}"]
    dealt = len(jobs.received) - len(jobs.unsettled)
    goal = dealt + 50

    def confirmed() -> bool:
        ground.seen.read()
        return len(jobs.received) - len(jobs.unsettled) >= goal

    await until(confirmed, "orders are dealt with")
    ground.overlay["b5"].kill()
    await asyncio.sleep(6.0)
    ground.overlay["b5"].start()


async def homes_are_stopped(ground: Ground) -> None:
    """SIGTERM sends subscribers on; nothing may be made a second time where they go."""
    for name in ("b4", "b5"):
        await ground.overlay[name].terminate()
        await asyncio.sleep(ground.rng.random())
        ground.overlay[name].start()


async def another_broker_answers(ground: Ground) -> None:
    """A client that can reach a second broker must not begin an empty durable there."""
    overlay, consumer = ground.overlay, ground.consumers["b4"]
    consumer.kill()
    overlay["b4"].kill()
    consumer.move(overlay["b4"].address, overlay["b2"].address)
    consumer.start()
    await asyncio.sleep(2.0)
    overlay["b4"].start()
    await consumer.alive()


async def older_copy_of_a_directory(ground: Ground) -> None:
    """A broker is started on what its directory was a while ago."""
    overlay = ground.overlay
    broker = overlay["b3"]
    await broker.terminate()
    copy = overlay.directory / "older"
    shutil.copytree(broker.data, copy)
    broker.start()
    await overlay.linked()
    await ground.publish("b3")
    await ground.seen.settled()  # what only that journal has is lost with it
    broker.kill()
    shutil.rmtree(broker.data)
    shutil.move(copy, broker.data)
    broker.start()
    await overlay.linked()
    await ground.publish("b3")


async def broker_hangs_beside_the_way(ground: Ground) -> None:
    """One that hangs delays nobody whose events do not pass through it."""
    overlay = ground.overlay
    overlay["b4"].process.pause()
    try:
        for at in ("b1", "b3"):
            began = time.monotonic()
            bus = connect(overlay[at].address, token="house-secret", name=f"late-{at}")
            async with bus, bus.subscribe(f"late = '{at}'") as late:
                ground.measured("a subscription beside one that hangs", began)
                began = time.monotonic()
                await ground.publishers["b1"].publish({"late": at}, ack=True, timeout=PATIENCE)
                await late.get(timeout=PATIENCE)
                ground.measured("an event beside one that hangs", began)
    finally:
        overlay["b4"].process.resume()


async def subscriber_blocks(ground: Ground) -> None:
    """One that makes publishers wait for it, and is slow, makes nobody wait for long."""
    overlay = ground.overlay
    async with (
        connect(overlay["b2"].address, token="house-secret", name="blocker") as bus,
        bus.subscribe("", overflow="block", window=1, limit=1) as blocking,
    ):
        ends = time.monotonic() + 8.0
        taking = asyncio.create_task(_slowly(blocking))
        try:
            while time.monotonic() < ends:
                began = time.monotonic()
                await ground.publishers["b1"].publish({"x": 1}, ack=True, timeout=PATIENCE)
                ground.measured("an acknowledgement beside one who blocks", began)
                await asyncio.sleep(0.1)
        finally:
            taking.cancel()
            await asyncio.wait([taking])


async def _slowly(subscription: Any) -> None:
    async for _ in subscription:
        await asyncio.sleep(4.0)


async def directory_is_removed(ground: Ground) -> None:
    """Nothing is acknowledged that goes to a file which is gone."""
    broker = ground.overlay["b3"]
    away = ground.overlay.directory / "away"
    # One that is there: who was sent on when the broker was stopped may still be elsewhere.
    async with ground.seen.connect(
        broker.address, name="remover", token="house-secret"
    ) as publisher:
        await publisher.publish({"x": 1}, ack=True, timeout=PATIENCE)
        assert publisher.broker == "b3"
        broker.data.rename(away)
        with suppress(NoReply):
            await publisher.publish({"x": 2}, ack=True, timeout=2.0)
            raise AssertionError("an event was acknowledged that is on no disk")
        broker.kill()
        shutil.rmtree(broker.data, ignore_errors=True)
        away.rename(broker.data)
        broker.start()
        await publisher.flush(PATIENCE)


async def disk_is_full_at_the_start(ground: Ground) -> None:
    """A broker that has no room to write starts, and serves what it has."""
    broker = ground.overlay["b3"]
    broker.kill()
    most = max(file.stat().st_size for file in broker.data.iterdir())
    broker.options = {"limits": {resource.RLIMIT_FSIZE: most}}
    try:
        broker.start()
        await until(broker.reachable, lambda: f"b3 starts\n{broker.logged()[-2000:]}")
    finally:
        broker.options = {}
        broker.process.limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)


async def names_are_squatted(ground: Ground) -> None:
    """A tenant takes names that others use, and as many as he can get; that harms nobody."""
    async with (
        connect(ground.overlay["b5"].address, token="tenant-secret", name="tenant") as tenant,
        connect(ground.overlay["b5"].address, token="house-secret", name="landlord") as house,
    ):
        taken = []
        refused = 0
        for name in (JOBS, "durable-b4", "a", "b", "c", "d"):
            try:
                taken.append(await tenant.subscribe("never = 1", durable=name, timeout=PATIENCE))
            except StentorError:
                refused += 1
        assert refused >= 3
        made = await house.subscribe("never = 1", durable="one-more", timeout=PATIENCE)
        for each in (*taken, made):
            await each.close(forget=True)


async def member_hangs(ground: Ground) -> None:
    """A process stops in the middle of its work: others get it after the deadline."""
    worker = ground.workers[-1]
    assert worker.child is not None
    worker.child.pause()
    await asyncio.sleep(2 * DEADLINE)
    worker.child.resume()


#: What is made while load goes on, and what needs that all is quiet before.
ATTACKS: Final[tuple[Callable[[Ground], Awaitable[None]], ...]] = (
    home_dies_on_a_busy_machine,
    home_dies_after_confirmations,
    homes_are_stopped,
    another_broker_answers,
    broker_hangs_beside_the_way,
    subscriber_blocks,
    directory_is_removed,
    disk_is_full_at_the_start,
    names_are_squatted,
    member_hangs,
)
QUIET_ATTACKS: Final = (older_copy_of_a_directory,)
