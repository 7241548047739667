"""Connections: what arrives, in which batches; what waits; how they end. On every transport."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from peers import PATIENCE, Echo, Made, Recorder, Run, on_each_loop

from stentor.errors import InvalidAddress, Overloaded, ProtocolError, Unreachable
from stentor.protocol import FrameReader, frame
from stentor.protocol.messages import AnyMessage, Failure, Goodbye, Mark, Ping, Pong, Publish
from stentor.transport import Address, Connection, connect, serve
from stentor.transport.connection import HIGH_WATER

KINDS = ["tcp", "unix", "inproc"]


def place(kind: str, directory: Path) -> str:
    return {
        "tcp": "127.0.0.1:0",
        "unix": f"unix:{directory}/broker.sock",
        "inproc": f"inproc:{directory}",
    }[kind]


# -- opening


@on_each_loop
@pytest.mark.parametrize("kind", KINDS)
def test_one_whose_maker_lost_patience_ends_like_any_other(
    run: Run, kind: str, tmp_path: Path
) -> None:
    """As when a broker stops while it dials a neighbor, to which it has said hello already."""

    class Impatient(Recorder):
        def opened(self, connection: Connection) -> None:
            super().opened(connection)
            connection.send(Ping())
            dialing.cancel()

    async def main() -> None:
        nonlocal dialing
        faults: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: faults.append(told))
        listener = await serve(place(kind, tmp_path), Made(Echo))
        handler = Impatient()
        dialing = asyncio.ensure_future(connect(listener.address, handler))
        with pytest.raises(asyncio.CancelledError):
            await dialing
        await handler.until_closed()
        await listener.close()
        assert not faults

    dialing: asyncio.Future[Connection]
    run(main)


# -- messages


@on_each_loop
@pytest.mark.parametrize("kind", KINDS)
def test_messages_go_both_ways_in_order(run: Run, kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        made = Made(Echo)
        listener = await serve(place(kind, tmp_path), made)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        assert handler.connection is connection
        sent: list[AnyMessage] = [Mark("b", number) for number in range(5000)]
        for message in sent:
            connection.send(message)
        await handler.until_received(len(sent))
        assert handler.messages == sent
        other = (await made.first()).link
        size = sum(len(frame(message)) for message in sent)
        for end in (connection, other):
            assert (end.bytes_in, end.bytes_out) == (size, size)
            assert (end.frames_in, end.frames_out) == (5000, 5000)
            assert end.unsent == 0
        connection.close()
        assert connection.is_closing
        assert await handler.until_closed() is None
        assert await made.handlers[0].until_closed() is None
        await listener.close()

    run(main)


@on_each_loop
def test_what_was_sent_in_one_turn_arrives_in_one_batch(run: Run) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        connection = await connect(listener.address, Recorder())
        for _ in range(1000):
            connection.send(Ping())
        connection.send_frame(frame(Pong()))
        other = await made.first()
        await other.until_received()
        assert other.batches == [[Ping()] * 1000 + [Pong()]]
        connection.abort()
        await listener.close()

    run(main)


@on_each_loop
def test_a_large_frame_arrives_and_a_too_large_one_is_refused(run: Run) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made, max_frame=10**6)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        large = Publish(1, [b"x" * 990_000])
        connection.send(large)
        other = await made.first()
        await other.until_received()
        assert other.messages == [large]
        other.link.max_frame = 2 * 10**6
        connection.send(Publish(2, [b"x" * 1_900_000]))
        await other.until_received(2)
        connection.send(Publish(3, [b"x" * 3 * 10**6]))
        error = await other.until_closed()
        assert isinstance(error, ProtocolError)
        await handler.until_closed()
        (failure,) = handler.messages
        assert isinstance(failure, Failure)
        assert failure.code == "STN-601"
        assert "2000000 are accepted" in failure.message
        await listener.close()

    run(main)


@on_each_loop
def test_last_heard_follows_the_loop_clock(run: Run) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        connection = await connect(listener.address, Recorder())
        other = await made.first()
        before = other.link.last_heard
        connection.send(Ping())
        await other.until_received()
        assert before <= other.link.last_heard <= asyncio.get_running_loop().time()
        assert "open" in repr(other.link)
        connection.abort()
        await other.until_closed()
        assert "closed" in repr(other.link)
        await listener.close()

    run(main)


@on_each_loop
def test_small_messages_are_not_delayed(run: Run) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        connection = await connect(listener.address, Recorder())
        for end in (connection, (await made.first()).link):
            assert end._transport is not None
            sock = end._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        connection.abort()
        await listener.close()

    run(main)


# -- slow readers


@on_each_loop
@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_reader_makes_its_writer_wait(run: Run, kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve(place(kind, tmp_path), made)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        other = await made.first()
        other.link.pause_reading()
        item = b"x" * 60_000
        count = 0
        while connection.writable:
            connection.send(Publish(count, [item]))
            count += 1
            await asyncio.sleep(0)
        assert HIGH_WATER < connection.unsent < HIGH_WATER + 200_000
        assert handler.drained == 0
        other.link.resume_reading()
        await handler.until(lambda: handler.drained == 1)
        assert handler.link.writable
        await other.until_received(count)
        assert [m.number for m in other.messages if isinstance(m, Publish)] == list(range(count))
        connection.close()
        await other.until_closed()
        await listener.close()

    run(main)


@on_each_loop
def test_the_mark_holds_within_one_turn(run: Run) -> None:
    """A sender that asks `writable` in a loop must see it turn false without a pause."""

    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        connection = await connect(listener.address, Recorder())
        (await made.first()).link.pause_reading()
        sent = 0
        while connection.writable:
            connection.send(Publish(1, [b"x" * 10_000]))
            sent += 10_000
            assert sent < 10**9
        assert connection.unsent < 3 * HIGH_WATER
        connection.abort()
        await listener.close()

    run(main)


@on_each_loop
def test_who_ignores_the_mark_is_aborted_at_the_limit(run: Run) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        handler = Recorder()
        connection = await connect(listener.address, handler, max_unsent=2**21)
        (await made.first()).link.pause_reading()
        for number in range(1000):
            connection.send(Publish(number, [b"x" * 100_000]))
            assert connection.unsent <= 2**21
        error = await handler.until_closed()
        assert isinstance(error, Overloaded)
        assert "does not take" in str(error)
        assert connection.frames_out < 1000
        made.handlers[0].link.abort()
        await listener.close()

    run(main)


@on_each_loop
def test_close_gives_up_on_who_never_reads(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        (await made.first()).link.pause_reading()
        while connection.writable:
            connection.send(Publish(1, [b"x" * 100_000]))
        connection.close()
        await handler.until_closed()
        made.handlers[0].link.abort()
        await listener.close()

    monkeypatch.setattr("stentor.transport.connection.LINGER", 0.05)
    run(main)


# -- closing


@on_each_loop
@pytest.mark.parametrize("kind", KINDS)
def test_close_sends_what_was_written_first(run: Run, kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve(place(kind, tmp_path), made)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        for number in range(100):
            connection.send(Publish(number, [b"x" * 50_000]))
        connection.send(Goodbye("done"))
        connection.close()
        connection.send(Ping())  # too late, and ignored
        connection.close()  # nothing happens twice
        other = await made.first()
        assert await other.until_closed() is None
        assert len(other.messages) == 101
        assert other.messages[-1] == Goodbye("done")
        assert await handler.until_closed() is None
        assert (handler.closings, other.closings) == (1, 1)
        await listener.close()

    run(main)


@on_each_loop
def test_the_last_words_survive_unread_input(run: Run) -> None:
    """Closing a socket with unread input resets it; the reset must not overtake the failure."""

    async def main() -> None:
        listener = await serve("127.0.0.1:0", Made(), max_frame=1000)
        for _ in range(20):
            handler = Recorder()
            connection = await connect(listener.address, handler)
            connection.send_frame((2000).to_bytes(4) + b"x" * 1_000_000)
            await handler.until_closed()
            (failure,) = handler.messages
            assert isinstance(failure, Failure)
        await listener.close()

    run(main)


@on_each_loop
def test_abort_tells_its_error(run: Run) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        other = await made.first()
        reason = Unreachable("silent for too long")
        connection.abort(reason)
        assert connection.is_closing
        assert await handler.until_closed() is reason
        await other.until_closed()
        connection.abort()
        connection.close()
        connection.send(Ping())
        connection.resume_reading()
        connection.pause_reading()
        assert connection.unsent == 0
        await asyncio.sleep(0)
        assert handler.closings == 1
        await listener.close()

    run(main)


@on_each_loop
def test_half_a_message_at_the_end_is_an_error(run: Run) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        connection = await connect(listener.address, Recorder())
        connection.send_frame(frame(Publish(1, [b"x" * 100]))[:50])
        connection.close()
        other = await made.first()
        error = await other.until_closed()
        assert isinstance(error, Unreachable)
        assert "in the middle of a message" in str(error)
        await listener.close()

    run(main)


@on_each_loop
def test_a_reset_is_unreachable(run: Run) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made)
        sock = socket.create_connection((listener.address.host, listener.address.port))
        other = await made.first()
        # Closing with this option sends a reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        error = await other.until_closed()
        assert isinstance(error, Unreachable)
        assert "reset" in str(error)
        await listener.close()

    run(main)


# -- faults in handlers


class Faulty(Recorder):
    """Raises what it is told to, at the place it is told."""

    def __init__(self, where: str, error: Exception) -> None:
        super().__init__()
        self._where = where
        self._fault = error

    def _maybe(self, where: str) -> None:
        if where == self._where:
            raise self._fault

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self._maybe("opened")

    def received(self, connection: Connection, messages: list[AnyMessage]) -> None:
        super().received(connection, messages)
        self._maybe("received")

    def closed(self, connection: Connection, error: Exception | None) -> None:
        super().closed(connection, error)
        self._maybe("closed")


@on_each_loop
@pytest.mark.parametrize("where", ["opened", "received"])
@pytest.mark.parametrize("fault", [ProtocolError("no such thing"), KeyError("a bug")])
def test_faults_cost_the_connection_and_nothing_else(
    run: Run, where: str, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        faulty = [True]

        def make() -> Recorder:
            return Faulty(where, fault) if faulty.pop() else Echo()

        made = Made(make)
        listener = await serve("127.0.0.1:0", made)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        connection.send(Ping())
        assert await handler.until_closed() is None
        (failure,) = handler.messages
        assert isinstance(failure, Failure)
        if isinstance(fault, ProtocolError):
            assert failure == Failure("STN-601", "no such thing")
        else:
            assert failure.code == "STN-000"
            assert "a bug" not in failure.message  # nothing of the inside is told
        assert await made.handlers[0].until_closed() is fault
        assert made.handlers[0].closings == 1

        faulty.append(False)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        connection.send(Ping())
        await handler.until_received()
        connection.close()
        await handler.until_closed()
        await listener.close()

    with caplog.at_level(logging.WARNING, "stentor.transport"):
        run(main)
    logged = [record for record in caplog.records if record.name == "stentor.transport"]
    assert bool(logged) == isinstance(fault, KeyError)
    assert all(record.exc_info for record in logged)


@on_each_loop
def test_faults_while_closing_or_making_a_handler_are_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        made = Made(lambda: Faulty("closed", KeyError("while closing")))
        listener = await serve("127.0.0.1:0", made)
        connection = await connect(listener.address, Recorder())
        connection.close()
        await (await made.first()).until_closed()
        await listener.close()

        def no_handler() -> Recorder:
            raise KeyError("no handler")

        listener = await serve("127.0.0.1:0", no_handler)
        handler = Recorder()
        await connect(listener.address, handler)
        await handler.until_closed()
        assert isinstance(handler.messages[0], Failure)
        await listener.close()

    run(main)
    faults = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert faults == ["'while closing'", "'no handler'"]


# -- reaching and listening


@on_each_loop
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("unix:missing.sock", "no such socket; is a broker running there"),
        ("unix:" + "x" * 200, "long"),
        ("inproc:missing", "nobody listens under that name"),
        ("no-such-host.invalid:1", "name 'no-such-host.invalid' is unknown"),
    ],
)
def test_who_cannot_be_reached_is_named_with_the_reason(
    run: Run, address: str, reason: str
) -> None:
    async def main() -> None:
        handler = Recorder()
        with pytest.raises(Unreachable, match=reason) as caught:
            await connect(address, handler)
        assert str(Address.parse(address)) in str(caught.value)
        assert handler.connection is None

    run(main)


@on_each_loop
def test_a_refused_connection_asks_whether_a_broker_is_running(run: Run) -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            with pytest.raises(Unreachable, match=f"127.0.0.1:{port}.*is a broker running there"):
                await connect(f"127.0.0.1:{port}", Recorder())
        with pytest.raises(InvalidAddress, match="port 0"):
            await connect("127.0.0.1:0", Recorder())

    run(main)


@on_each_loop
def test_connecting_ends_in_time(run: Run, tmp_path: Path) -> None:
    """A Unix socket whose queue is full never answers, and has no event to wait for."""

    async def main() -> None:
        path = str(tmp_path / "full.sock")
        with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as waiting:
            deaf.bind(path)
            deaf.listen(0)
            waiting.connect(path)
            with pytest.raises(Unreachable, match=r"within 0\.05 seconds"):
                await connect(f"unix:{path}", Recorder(), timeout=0.05)

    run(main)


@on_each_loop
@pytest.mark.parametrize("kind", KINDS)
def test_a_place_is_taken_while_it_is_listened_to_and_free_afterwards(
    run: Run, kind: str, tmp_path: Path
) -> None:
    async def main() -> None:
        listener = await serve(place(kind, tmp_path), Made())
        address = listener.address
        with pytest.raises(InvalidAddress, match="in use"):
            await serve(address, Made())
        await listener.close()
        await listener.close()
        with pytest.raises(Unreachable):
            await connect(address, Recorder())
        again = await serve(address, Made(Echo))
        handler = Recorder()
        connection = await connect(address, handler)
        connection.send(Ping())
        await handler.until_received()
        await again.close()
        connection.send(Ping())  # connections outlive their listener
        await handler.until_received(2)
        connection.close()
        await handler.until_closed()

    run(main)


@on_each_loop
def test_port_zero_becomes_the_real_port_on_all_addresses_of_a_name(run: Run) -> None:
    async def main() -> None:
        for text in ("localhost:0", ":0"):
            listener = await serve(text, Made(Echo))
            assert listener.address.port > 0
            assert listener.address.host == text.removesuffix(":0")
            handler = Recorder()
            connection = await connect(Address("tcp", "127.0.0.1", listener.address.port), handler)
            connection.send(Ping())
            await handler.until_received()
            connection.abort()
            handler = Recorder()
            await connect(listener.address, handler)
            handler.link.abort()
            await listener.close()

    run(main)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("192.0.2.1:0", "does not have that address"),
        ("no-such-host.invalid:0", "unknown"),
        ("unix:no/such/directory/b.sock", "directory does not exist"),
        ("unix:" + "x" * 200, "long"),
    ],
)
def test_where_nobody_can_listen_the_reason_is_given(address: str, reason: str) -> None:
    async def main() -> None:
        with pytest.raises(InvalidAddress, match=reason):
            await serve(address, Made())

    asyncio.run(main())


@on_each_loop
def test_a_stale_unix_socket_is_replaced_and_removed_at_the_end(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "b.sock"
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(path))  # closing leaves the file, as a kill does
        assert path.exists()
        made = Made()
        listener = await serve(f"unix:{path}", made)
        handler = Recorder()
        connection = await connect(listener.address, handler)
        assert f"(process {os.getpid()})" in (await made.first()).link.peer
        await listener.close()
        assert not path.exists()
        connection.close()
        await handler.until_closed()

        path.write_text("precious")
        with pytest.raises(InvalidAddress, match="there is a file"):
            await serve(f"unix:{path}", Made())
        assert path.read_text() == "precious"

    run(main)


@on_each_loop
def test_a_listener_removes_no_other_socket_than_its_own(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "b.sock"
        listener = await serve(f"unix:{path}", Made())
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            await listener.close()
            assert path.exists()

    run(main)


def test_inproc_joins_different_loops_in_different_threads() -> None:
    addresses: list[Address] = []
    ready = threading.Event()
    stop: list[Any] = []

    async def broker() -> None:
        listener = await serve("inproc:other-thread", Made(Echo))
        addresses.append(listener.address)
        ended = asyncio.Event()
        stop.append((asyncio.get_running_loop(), ended))
        ready.set()
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
        await listener.close()

    thread = threading.Thread(target=lambda: asyncio.run(broker()))
    thread.start()
    assert ready.wait(PATIENCE)

    async def client() -> None:
        handler = Recorder()
        connection = await connect(addresses[0], handler)
        for number in range(1000):
            connection.send(Mark("b", number))
        await handler.until_received(1000)
        assert handler.messages == [Mark("b", number) for number in range(1000)]
        connection.close()
        await handler.until_closed()

    asyncio.run(client())
    loop, ended = stop[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_inproc_notices_a_listener_whose_loop_has_ended() -> None:
    async def broker() -> None:
        await serve("inproc:forgotten", Made())  # and never closed

    async def client() -> None:
        with pytest.raises(Unreachable, match="loop of its listener has ended"):
            await connect("inproc:forgotten", Recorder())

    asyncio.run(broker())
    asyncio.run(client())


# -- nothing is left behind


@on_each_loop
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_closed_connections(
    run: Run, kind: str, tmp_path: Path, uncollected: None
) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve(place(kind, tmp_path), made)
        left: list[weakref.ref[Connection]] = []
        files = len(os.listdir("/proc/self/fd"))
        for number in range(100):
            handler = Recorder()
            connection = await connect(listener.address, handler)
            connection.send(Ping())
            if number % 2:
                connection.close()
            else:
                (await made.first()).link.abort()
            await handler.until_closed()
            other = await made.first()
            await other.until_closed()
            left += [weakref.ref(connection), weakref.ref(other.link)]
            made.handlers.clear()
            del handler, connection, other
        await asyncio.sleep(0)
        assert sum(ref() is not None for ref in left) <= 2  # what the last turn still holds
        assert len(os.listdir("/proc/self/fd")) <= files + 2
        assert len(asyncio.all_tasks()) == 1
        await listener.close()

    run(main)


def test_a_raw_client_can_talk() -> None:
    """What goes over the socket is exactly frames."""

    async def main() -> None:
        listener = await serve("127.0.0.1:0", Made(Echo))
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
        writer.write(bytes.fromhex("00000002 9104"))
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        assert FrameReader().feed(answer) == [Ping()]
        writer.close()
        await listener.close()

    asyncio.run(main())
