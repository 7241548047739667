"""Hostile bytes on the port of a real broker cost a connection, never the broker, nor its time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from dataclasses import replace

import pytest
from extremes import Attack, Extremes
from fuzzing import Fuzzer
from overlay_processes import LIMITS, Overlay, until
from turns import MeasuredBroker, strike
from wire_client import WireClient
from witness import Run

from stentor.broker.settings import Grant
from stentor.protocol import messages as m
from stentor.protocol.frames import frame


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
    seen = Run(overlay.directory)
    async with (
        seen.connect(overlay["b1"].address, name="well-behaved") as here,
        seen.connect(overlay["b2"].address, name="far-away") as there,
        seen.subscribed(here, "i >= 0"),
        seen.subscribed(there, "i >= 0"),
    ):
        seen.quiescent()
        publishers = [here, there]
        sizes = []
        for i in range(attacks):
            await attack(overlay["b1"].address, fuzzer.connection())
            if i % 20 == 0:
                for publisher in publishers:
                    await publisher.publish({"i": i})
                assert overlay["b1"].running, overlay["b1"].logged()[-3000:]
                sizes.append(process.private_bytes)
        await seen.settled()
        assert seen.check().owed > 0
        assert max(sizes) < sizes[0] + 60 * 2**20
        await until(lambda: overlay["b1"].sees(["b2"]), "only true brokers are left")


def test_hostile_bytes_cost_a_connection_only(overlay: Overlay) -> None:
    asyncio.run(besiege(overlay, attacks=300, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_long_siege(overlay: Overlay, seed: int) -> None:
    asyncio.run(besiege(overlay, attacks=3_000, seed=100 + seed))


#: Seconds of processor time for one step. What is aimed at is a fifth of it, on a quiet machine.
STEP = 0.25
DEEP = b"\x93\x26\x01" + b"\x91" * 500_000
NESTING = Attack("nesting", "client", [len(DEEP).to_bytes(4) + DEEP])
#: Attacks that held a broker up for seconds, or took much of its memory.
WORST = (
    Attack("empty items", "client", [frame(m.Publish(1, [b""] * 80_000))]),
    Attack("far too many", "client", [frame(m.Publish(1, [b""] * 500_000))]),
    Attack("all that a frame holds", "client", [frame(m.Publish(1, [b""] * 8_000_000))]),
    Attack("tiny requests", "client", [frame(m.Ping()) * 200_000]),
    Attack("a long filter", "client", [frame(m.Subscribe(1, " or ".join(["x=1"] * 8_000), 1))]),
    NESTING,
)


@pytest.mark.parametrize("grants", [(), (Grant("nobody", token="t", publish=(), subscribe=()),)])
def test_no_frame_holds_the_broker_up(grants: tuple[Grant, ...]) -> None:
    token = "t" if grants else None
    with MeasuredBroker(grants, token) as broker:
        for attack in WORST:
            taken, _, where = broker.suffer(attack)
            assert taken < STEP, (attack.what, where)


@pytest.mark.slow
@pytest.mark.parametrize("sort", sorted({*Extremes.SORTS} - {"filters"}))
def test_extremes_do_not_hold_the_broker_up(sort: str) -> None:
    with MeasuredBroker() as broker:
        for attack in itertools.islice(Extremes(7, (broker.broker.stream,), (sort,)), 60):
            taken, _, where = broker.suffer(attack)
            assert taken < 2 * STEP, (attack.what, where)


def test_what_was_refused_is_not_kept(overlay: Overlay) -> None:
    """Neither by errors, nor by connections that the other side does not close."""
    broker = overlay.broker("b1")
    broker.start()
    asyncio.run(until(broker.reachable, broker.logged))
    host, _, port = broker.address.rpartition(":")
    strike((host, int(port)), NESTING)
    before = broker.process.private_bytes
    for _ in range(200):
        strike((host, int(port)), NESTING)
    assert broker.process.private_bytes < before + 40 * 2**20


def test_half_frames_and_silent_connections_are_bounded(overlay: Overlay) -> None:
    """Frames that are announced and never sent, and a crowd that never says Hello."""
    broker = overlay.broker("b1", limits=replace(LIMITS, timeout=30.0))
    broker.start()
    asyncio.run(until(broker.reachable, broker.logged))
    host, _, port = broker.address.rpartition(":")
    before = broker.process.private_bytes
    half = (16 * 2**20).to_bytes(4) + b"\x96\x0a\x01" + bytes(12 * 2**20)
    with contextlib.ExitStack() as stack:
        for i in range(40):
            wire = stack.enter_context(WireClient(broker.address))
            wire.hello(f"half-{i}")
            with contextlib.suppress(OSError):
                wire.socket.sendall(half)
        for _ in range(1_200):
            stack.enter_context(socket.create_connection((host, int(port))))
        with WireClient(broker.address) as honest:
            honest.hello("honest")
            honest.send(m.Ping())
            assert honest.expect(m.Pong)
        assert broker.process.private_bytes < before + 400 * 2**20
