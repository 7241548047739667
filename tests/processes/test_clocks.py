"""A clock that jumps: set by hand, corrected by the network, wrong after a restart.

Leases are counted on a clock that only goes forward, so they neither end nor last by it. History is
found by the time at which it was journaled, which never goes back within a journal.
"""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from overlay_processes import Overlay, until
from witness import Run

from stentor.client import Bus, connect
from stentor.errors import LeaseExpired

HOUR = 3_600.0


class Clock:
    """The time of day of a broker, as an offset to the true one."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set(0.0)

    def set(self, offset: float) -> None:
        # In place: the broker has the file mapped.
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("d", offset))


@pytest.fixture
def clock(overlay: Overlay, tmp_path: Path) -> Clock:
    """The clock of b1, which is linked with b2."""
    clock = Clock(tmp_path / "clock")
    overlay.broker("b1", options={"clock": clock.file}).start()
    overlay.broker("b2", ["b1"]).start()
    return clock


async def past(bus: Bus, source: Bus, **options: Any) -> list[int]:
    """All that a new subscription finds in the past of the source's broker."""
    found: list[int] = []
    async with bus.subscribe("i >= 0", **options) as subscription:
        end = await source.publish({"i": 99, "end": True}, ack=True)
        async for notification in subscription:
            if notification.id == end:
                return found
            if "end" not in notification:
                found.append(notification["i"])
    raise AssertionError("the subscription ended")


def test_history_is_complete_and_in_order_whatever_the_clock_did(
    overlay: Overlay, clock: Clock
) -> None:
    async def run() -> None:
        await overlay.linked()
        begin = datetime.now(UTC)
        async with (
            connect(overlay["b1"].address, name="p") as source,
            connect(overlay["b2"].address) as there,
        ):
            for i, offset in enumerate([0.0, HOUR, -HOUR, 0.0, 24 * HOUR, 0.0]):
                clock.set(offset)
                await source.publish({"i": i}, ack=True)
            overlay["b1"].restart()  # with a clock that is a day behind its journal
            await overlay.linked()
            # From the first jump on, the journal is an hour ahead, later a day.
            for since, found in (
                ("earliest", [0, 1, 2, 3, 4, 5]),
                (begin, [0, 1, 2, 3, 4, 5]),
                (begin + timedelta(hours=0.5), [1, 2, 3, 4, 5]),
                (begin + timedelta(hours=12), [4, 5]),
                (begin + timedelta(hours=48), []),
            ):
                for bus in (source, there):
                    assert await past(bus, source, since=since) == found

    asyncio.run(run())


def test_subscriptions_survive_jumps_and_restarts(overlay: Overlay, clock: Clock) -> None:
    async def run() -> None:
        await overlay.linked()
        seen = Run(overlay.directory)
        async with (
            seen.connect(overlay["b1"].address, name="p1") as here,
            seen.connect(overlay["b2"].address, name="p2") as there,
            seen.subscribed(here, ""),
            seen.subscribed(there, ""),
            seen.subscribed(here, "", durable="d"),
            seen.subscribed(here, "", lease=1.0),
        ):
            seen.quiescent()
            publishers = [here, there]
            for offset, restart in (
                *((0.0, False), (24 * HOUR, False), (24 * HOUR, True)),
                *((-24 * HOUR, False), (-24 * HOUR, True), (HOUR, False)),
            ):
                clock.set(offset)
                if restart:
                    overlay["b1"].restart()
                for publisher in publishers:
                    for i in range(20):
                        await publisher.publish({"i": i})
                await seen.settled()
            # Long enough for a lease that nobody renews.
            await asyncio.sleep(1.5)
            await publishers[1].publish({"i": 0})
            await seen.settled()
            assert seen.check().owed == 4 * (6 * 40 + 1)

    asyncio.run(run())


def test_a_broker_whose_clock_was_lost_goes_on(overlay: Overlay, clock: Clock) -> None:
    """After a restart it is 1970 again, as on a machine whose battery is empty."""

    async def run() -> None:
        await overlay.linked()
        seen = Run(overlay.directory)
        async with (
            seen.connect(overlay["b1"].address, name="known") as known,
            seen.connect(overlay["b2"].address) as there,
            seen.subscribed(there, ""),
        ):
            seen.quiescent()
            publishers = [known]
            await publishers[0].publish({"i": 0})
            await seen.settled()
            clock.set(-time.time())
            overlay["b1"].restart()
            async with (
                seen.connect(overlay["b1"].address, name="new") as new,
                seen.subscribed(new, "", durable="d"),
            ):
                publishers.append(new)
                for publisher in publishers:
                    await publisher.publish({"i": 1})
                await seen.settled()
                assert seen.check().owed == 3

    asyncio.run(run())


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_lease_ends_when_it_should(overlay: Overlay, clock: Clock, jump: float) -> None:
    async def run() -> None:
        await until(overlay["b1"].reachable, "b1 runs")
        async with connect(overlay["b1"].address) as bus:
            loop = asyncio.get_running_loop()
            async with bus.subscribe("i >= 0", lease=0.8, renew=False) as leased:
                began = loop.time()
                clock.set(jump)
                await bus.publish({"i": 1}, ack=True)
                assert (await leased.get())["i"] == 1  # it has not ended by the jump
                with pytest.raises(LeaseExpired):
                    await leased.get(timeout=30.0)
                assert loop.time() - began > 0.7  # nor early, nor never

    asyncio.run(run())


def test_what_was_refused_comes_again_although_the_clock_was_set_back(
    overlay: Overlay, clock: Clock
) -> None:
    """It rests for a second, and not for an hour and a second."""

    async def run() -> None:
        await overlay.linked()
        async with connect(overlay["b1"].address) as bus:
            with suppress(RuntimeError):
                async with bus.subscribe("i >= 0", durable="desk-7") as desk:
                    await bus.publish({"i": 1}, ack=True)
                    await desk.get(timeout=30.0)
                    raise RuntimeError("not now")
        clock.set(-HOUR)
        overlay["b1"].restart()
        async with (
            connect(overlay["b1"].address, timeout=30.0) as bus,
            bus.subscribe("i >= 0", durable="desk-7") as desk,
        ):
            assert (await desk.get(timeout=30.0))["i"] == 1

    asyncio.run(run())
