"""Hostile bytes on real sockets cost their connection: the listener goes on serving others."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tracemalloc

import pytest
from peers import PATIENCE, Echo, Made, Recorder, Run, on_each_loop

from stentor.errors import ProtocolError, StentorError
from stentor.protocol import FrameReader, frame
from stentor.protocol.messages import (
    AnyMessage,
    Done,
    Failure,
    Forward,
    Hello,
    Ping,
    Publish,
    Subscribe,
)
from stentor.transport import Address, connect, serve

_VALID: list[AnyMessage] = [
    Hello([1], "client", "ann", "token"),
    Publish(1, [b"abc" * 20, b""], retain={0: "k"}),
    Subscribe(2, "price > 100", 500, positions={"b1": 7}),
    Done(3, {"a": [1, None, {"b": 2.5}]}),
    Forward("b1", [1, 2], [b"x", b"y"]),
    Ping(),
]
STREAM = b"".join(map(frame, _VALID))


def mutated(chance: random.Random) -> bytes:
    """The stream with some bytes changed, removed, repeated or inserted."""
    stream = bytearray(STREAM)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(stream))
        match chance.randrange(4):
            case 0:
                stream[at] = chance.randrange(256)
            case 1:
                del stream[at : at + chance.randint(1, 8)]
            case 2:
                stream[at:at] = stream[at : at + 40]
            case 3:
                stream[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(stream)


async def throw(address: Address, data: bytes, pieces: int, chance: random.Random) -> bytes:
    """Send the bytes in pieces, then stop sending: everything that comes back."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    with contextlib.suppress(ConnectionError):
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(pieces - 1))
        for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
            writer.write(data[first:last])
            await writer.drain()
            await asyncio.sleep(0)
        writer.write_eof()
    answer = b""
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
    writer.close()
    return answer


async def still_serves(address: Address) -> None:
    handler = Recorder()
    connection = await connect(address, handler)
    connection.send(Ping())
    await handler.until_received()
    assert handler.messages == [Ping()]
    connection.close()
    await handler.until_closed()


@on_each_loop
@pytest.mark.parametrize("seed", range(3))
def test_mutated_streams_cost_their_connection_only(run: Run, seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        made = Made(Echo)
        listener = await serve("127.0.0.1:0", made, max_frame=4096)
        bystander = Recorder()
        steady = await connect(listener.address, bystander)
        refused = 0
        for attempt in range(100):
            data = mutated(chance)
            answer = await throw(listener.address, data, chance.randint(1, 4), chance)
            # What comes back is always well formed: echoes, and perhaps a failure at the end.
            back = FrameReader().feed(answer)
            if back and isinstance(back[-1], Failure):
                refused += 1
                assert back[-1].code == ProtocolError.code
            # And it is what a reader alone would have made of the bytes.
            alone = FrameReader(4096)
            try:
                expected = alone.feed(data)
            except ProtocolError:
                expected = []
            assert back[: len(expected)] == expected
            assert (alone.error is not None) == (len(back) == len(expected) + 1)
            if attempt % 25 == 0:
                await still_serves(listener.address)
        assert refused > 10
        steady.send(Ping())
        await bystander.until_received()
        for handler in made.handlers[1:]:
            error = await handler.until_closed()
            assert error is None or isinstance(error, StentorError)
        steady.close()
        await bystander.until_closed()
        await listener.close()

    run(main)


@on_each_loop
def test_random_bytes_cost_their_connection_only(run: Run) -> None:
    async def main() -> None:
        chance = random.Random(4)
        listener = await serve("127.0.0.1:0", Made(Echo))
        for _ in range(100):
            data = chance.randbytes(chance.randint(1, 3000))
            await throw(listener.address, data, chance.randint(1, 3), chance)
        await still_serves(listener.address)
        await listener.close()

    run(main)


@on_each_loop
def test_many_half_frames_occupy_what_was_sent(run: Run) -> None:
    """Connections that announce 16 MB each and send a little cost a little."""

    async def main() -> None:
        made = Made(Echo)
        listener = await serve("127.0.0.1:0", made)
        slow = []
        tracemalloc.start()
        try:
            for _ in range(100):
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
                slow.append((reader, writer))
                writer.write((16 * 2**20).to_bytes(4))
                for _ in range(10):
                    writer.write(b"x" * 100)
                    await asyncio.sleep(0)
            await still_serves(listener.address)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 * 2**20  # all hundred together, both sides, less than one such frame
        for _, writer in slow:
            writer.close()
        for handler in made.handlers:
            await handler.until_closed()
        await listener.close()

    run(main)


@on_each_loop
def test_a_flood_of_tiny_frames_is_handled_in_batches(run: Run) -> None:
    """A million bytes of the smallest frames: few calls, and the echo never piles up."""

    async def main() -> None:
        made = Made(Echo)
        listener = await serve("127.0.0.1:0", made)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        tiny = frame(Ping())
        count = 2**20 // len(tiny)
        connection.send_frame(tiny * count)
        await handler.until_received(count)
        server = made.handlers[0]
        assert len(server.batches) < 100
        assert server.link.unsent < 2**20
        connection.close()
        await handler.until_closed()
        await listener.close()

    run(main)


@on_each_loop
def test_who_floods_and_never_reads_is_held_up_and_let_go(run: Run) -> None:
    """An echo that is not read must stop the reading, and cost no more than the marks."""

    async def main() -> None:
        made = Made(Echo)
        listener = await serve("127.0.0.1:0", made)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.address.port, limit=1024)
        writer.transport.set_write_buffer_limits(high=0)
        flood = frame(Publish(1, [b"x" * 50_000])) * 20
        server: Recorder | None = None
        async with asyncio.timeout(PATIENCE):
            while server is None or server.link.writable:
                writer.write(flood)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await writer.drain()
                server = await made.first()
        assert server.link.unsent < 4 * 2**20
        await still_serves(listener.address)
        writer.transport.abort()
        await server.until_closed()
        await listener.close()

    run(main)
