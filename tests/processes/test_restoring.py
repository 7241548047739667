"""A broker is backed up while it commits, dies, and is put back from the copy."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from overlay_processes import Overlay, until

from stentor.broker.storage.backup import backup, restore
from stentor.client import connect
from stentor.errors import DataInUse


@pytest.mark.parametrize("alone", [True, False])
def test_what_the_copy_has_is_served_and_nothing_new_is_taken_for_old(
    overlay: Overlay, tmp_path: Path, alone: bool
) -> None:
    broker = overlay.broker("b1", data=tmp_path / "b1", neighbors=[])
    broker.start()
    at = broker
    if not alone:
        at = overlay.broker("b2", ["b1"])
        at.start()

    async def main() -> None:
        await until(broker.reachable, "it runs")
        if not alone:
            await until(lambda: at.sees(["b1"]), "they are linked")
        copied = asyncio.Event()
        published = 0

        async def publish() -> None:
            nonlocal published
            async with connect(broker.address, name="feed") as bus:
                while not copied.is_set():
                    await bus.publish({"x": published + 1}, ack=True)
                    published += 1
                for _ in range(20):  # what the copy cannot have
                    await bus.publish({"x": published + 1}, ack=True)
                    published += 1

        async with connect(at.address, name="desk") as bus:
            async with bus.subscribe("x > 0", durable="desk", since="earliest") as quotes:
                feed = asyncio.create_task(publish())
                got = [(await quotes.get())["x"] for _ in range(20)]
                report = await asyncio.to_thread(backup, broker.data, tmp_path / "copy")
                with pytest.raises(DataInUse):
                    await asyncio.to_thread(restore, tmp_path / "copy", broker.data, replace=True)
                copied.set()
                await feed
                assert 20 <= report.head < published
                while len(got) < published:
                    got.append((await quotes.get())["x"])
        assert got == list(range(1, published + 1))
        broker.kill()
        shutil.rmtree(broker.data)
        restore(tmp_path / "copy", broker.data)
        broker.start()
        await until(broker.reachable, "it runs again")
        status = await broker.status()
        assert status["stream"] != report.stream
        assert status["journal"]["head"] == 0
        # Everything that the copy has can be read, and what is new comes once, also to whoever was
        # ahead of the copy.
        async with connect(broker.address, name="feed") as bus:
            for x in range(1000, 1050):
                await bus.publish({"x": x}, ack=True)
        async with connect(at.address, name="desk") as bus:
            async with bus.subscribe("x > 0", durable="desk") as quotes:
                while (last := (await quotes.get())["x"]) < 1049:
                    assert last >= 1000 or alone, last  # its position was that of the copy
            async with bus.subscribe("x > 0", since="earliest") as past:
                found = [(await past.get())["x"] for _ in range(report.head + 50)]
            assert sorted(found) == [*range(1, report.head + 1), *range(1000, 1050)]

    asyncio.run(asyncio.wait_for(main(), 120.0))
