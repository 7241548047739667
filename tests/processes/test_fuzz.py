"""Hostile bytes on the port of a real broker cost a connection, never the broker."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest
from fuzzing import Fuzzer
from overlay_processes import LIMITS, Overlay, until
from recorder import Recorder

from stentor.client import connect


async def attack(address: str, pieces: list[bytes]) -> None:
    """Send it all, read what comes, and hang up."""
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                while await reader.read(65_536):
                    pass
    except OSError:
        pass
    finally:
        writer.close()


async def besiege(overlay: Overlay, *, attacks: int, seed: int) -> None:
    names = overlay.line(2, limits=replace(LIMITS, timeout=5.0))
    await overlay.linked()
    streams = tuple([(await overlay[name].status())["stream"] for name in names])
    fuzzer = Fuzzer(seed, (*streams, *names, "well-behaved"))
    process = overlay["b1"].process
    recorder = Recorder()
    async with (
        connect(overlay["b1"].address, name="well-behaved") as here,
        connect(overlay["b2"].address, name="far-away") as there,
        recorder.subscribed(here, "here", "i >= 0"),
        recorder.subscribed(there, "there", "i >= 0"),
    ):
        recorder.quiescent()
        publishers = [recorder.publisher(bus) for bus in (here, there)]
        sizes = []
        for i in range(attacks):
            await attack(overlay["b1"].address, fuzzer.connection())
            if i % 20 == 0:
                for publisher in publishers:
                    await publisher.publish({"i": i})
                assert overlay["b1"].running, overlay["b1"].logged()[-3000:]
                sizes.append(process.private_bytes)
        await recorder.settled()
        assert recorder.check().owed > 0
        assert max(sizes) < sizes[0] + 60 * 2**20
        await until(lambda: overlay["b1"].sees(["b2"]), "only true brokers are left")


def test_hostile_bytes_cost_a_connection_only(overlay: Overlay) -> None:
    asyncio.run(besiege(overlay, attacks=300, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_long_siege(overlay: Overlay, seed: int) -> None:
    asyncio.run(besiege(overlay, attacks=3_000, seed=100 + seed))
