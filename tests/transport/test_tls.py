"""TLS: what is accepted, what is refused, and that both sides say why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import ssl
import weakref
from pathlib import Path

import pytest
from certificates import Authority, private_pem
from cryptography.hazmat.primitives.asymmetric import ec
from peers import PATIENCE, Echo, Made, Recorder, Run, on_each_loop

from stentor.errors import ProtocolError, TlsError, Unreachable
from stentor.protocol import frame
from stentor.protocol.messages import Failure, Goodbye, Mark, Ping, Publish
from stentor.transport import Address, Connection, client_context, connect, serve, server_context
from stentor.transport.connection import HIGH_WATER


class Files:
    """Everything that the tests need to be made once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = Authority(directory)
        self.other_ca = Authority(directory, "Another CA")
        self.server = self.ca.server()
        self.client = self.ca.client("ann")

    def serving(self, *, mutual: bool = False) -> ssl.SSLContext:
        return server_context(
            self.server.certificate, self.server.key, self.ca.certificate if mutual else None
        )

    def connecting(self, *, as_ann: bool = False) -> ssl.SSLContext:
        if not as_ann:
            return client_context(self.ca.certificate)
        return client_context(self.ca.certificate, self.client.certificate, self.client.key)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


def place(port: int, kind: str = "tls") -> Address:
    return Address("tls" if kind == "tls" else "tcp", "127.0.0.1", port)


# -- connections that work


@on_each_loop
def test_messages_go_both_ways(run: Run, files: Files) -> None:
    async def main() -> None:
        made = Made(Echo)
        listener = await serve("tls://127.0.0.1:0", made, tls=files.serving())
        assert listener.address.kind == "tls"
        handler = Recorder()
        connection = await connect(listener.address, handler, tls=files.connecting())
        sent = [Publish(number, [b"x" * 1000] * 50) for number in range(100)]
        for message in sent:
            connection.send(message)
        await handler.until_received(100)
        assert handler.messages == sent
        assert connection.unsent == 0
        assert connection.peer == str(listener.address)
        assert made.handlers[0].link.peer_certificate is None
        connection.send(Goodbye())
        connection.close()
        assert await handler.until_closed() is None
        assert await made.handlers[0].until_closed() is None
        assert made.handlers[0].messages[-1] == Goodbye()
        await listener.close()

    run(main)


@on_each_loop
def test_nothing_is_left_of_a_connection(run: Run, files: Files, uncollected: None) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("tls://127.0.0.1:0", made, tls=files.serving())
        handler = Recorder()
        connection = await connect(listener.address, handler, tls=files.connecting())
        other = await made.first()
        left = [weakref.ref(connection), weakref.ref(other.link)]
        connection.close()
        await handler.until_closed()
        await other.until_closed()
        made.handlers.clear()
        del handler, connection, other
        await asyncio.sleep(0)
        assert [each() for each in left] == [None, None]
        await listener.close()

    run(main)


@on_each_loop
def test_version_1_3_is_preferred_and_1_2_accepted(run: Run, files: Files) -> None:
    async def main() -> None:
        listener = await serve("tls://127.0.0.1:0", Made(Echo), tls=files.serving())
        for newest, spoken in ((None, "TLSv1.3"), (ssl.TLSVersion.TLSv1_2, "TLSv1.2")):
            context = files.connecting()
            if newest is not None:
                context.maximum_version = newest
            handler = Recorder()
            connection = await connect(listener.address, handler, tls=context)
            connection.send(Mark("b", 1))
            await handler.until_received()
            assert connection._transport is not None
            assert connection._transport.get_extra_info("ssl_object").version() == spoken
            connection.close()
            await handler.until_closed()
        await listener.close()

    run(main)
    assert files.serving().minimum_version == ssl.TLSVersion.TLSv1_2
    assert files.connecting().minimum_version == ssl.TLSVersion.TLSv1_2


@on_each_loop
def test_a_client_certificate_says_who_it_is(run: Run, files: Files) -> None:
    async def main() -> None:
        made = Made(Echo)
        listener = await serve("tls://127.0.0.1:0", made, tls=files.serving(mutual=True))
        handler = Recorder()
        connection = await connect(listener.address, handler, tls=files.connecting(as_ann=True))
        assert (await made.first()).link.peer_certificate == "ann"
        assert connection.peer_certificate == "broker"
        connection.abort()
        await made.handlers[0].until_closed()

        made.handlers.clear()
        twofold = files.ca.client("ann", "bob")
        context = client_context(files.ca.certificate, twofold.certificate, twofold.key)
        connection = await connect(listener.address, Recorder(), tls=context)
        assert (await made.first()).link.peer_certificate is None
        connection.abort()
        await listener.close()

    run(main)


@on_each_loop
def test_an_unverified_certificate_says_nothing(run: Run, files: Files) -> None:
    async def main() -> None:
        listener = await serve("tls://127.0.0.1:0", Made(), tls=files.serving())
        context = files.connecting()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = await connect(listener.address, Recorder(), tls=context)
        assert connection.peer_certificate is None
        connection.abort()
        await listener.close()

    run(main)


@on_each_loop
def test_a_slow_reader_makes_its_writer_wait(run: Run, files: Files) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("tls://127.0.0.1:0", made, tls=files.serving())
        handler = Recorder()
        connection = await connect(listener.address, handler, tls=files.connecting())
        other = await made.first()
        other.link.pause_reading()
        count = 0
        while connection.writable:
            connection.send(Publish(count, [b"x" * 60_000]))
            count += 1
        assert HIGH_WATER < connection.unsent < 3 * HIGH_WATER
        other.link.resume_reading()
        await handler.until(lambda: handler.drained == 1)
        connection.close()
        await other.until_closed()
        assert len(other.messages) == count
        await listener.close()

    run(main)


# -- handshakes that fail: what each side says


async def attempt(
    serving: ssl.SSLContext, connecting: ssl.SSLContext, log: pytest.LogCaptureFixture
) -> tuple[str, str]:
    """The error of the client and the log of the server."""
    log.clear()
    made = Made(Echo)
    listener = await serve("tls://127.0.0.1:0", made, tls=serving)
    handler = Recorder()
    try:
        connection = await connect(listener.address, handler, tls=connecting)
    except TlsError as refused:
        error: Exception | None = refused
    else:  # with TLS 1.3 the server's objection comes later
        connection.send(Ping())
        error = await handler.until_closed()
    assert isinstance(error, TlsError)
    assert f":{listener.address.port}" in str(error)
    assert not handler.messages
    async with asyncio.timeout(PATIENCE):
        while not log.messages:  # the client may know first
            await asyncio.sleep(0.001)
    assert not made.handlers
    await listener.close()
    (said,) = log.messages
    return str(error), said


@on_each_loop
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_sides_say_why_there_is_no_connection(
    run: Run, files: Files, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    ca, other = files.ca, files.other_ca
    expired, elsewhere = ca.server(expired=True), ca.server("elsewhere.example")
    stranger, former = other.client("eve"), ca.client("old", expired=True)
    mutual = files.serving(mutual=True)
    plain = files.connecting()
    cases = {
        "a server of another CA": (
            files.serving(),
            client_context(other.certificate),
            "not trusted here; give that as the CA file",
            "does not trust the CA that signed our certificate",
        ),
        "a server with an expired certificate": (
            server_context(expired.certificate, expired.key),
            plain,
            "has expired; renew it",
            "refused our certificate: it has expired",
        ),
        "a server of another name": (
            server_context(elsewhere.certificate, elsewhere.key),
            plain,
            "another IP address.*127.0.0.1",
            "for another name",
        ),
        "a client without a certificate": (
            mutual,
            plain,
            "certificate is required|requires a certificate",
            "showed no certificate, and one is required here",
        ),
        "a client of another CA": (
            mutual,
            client_context(ca.certificate, stranger.certificate, stranger.key),
            "does not trust the CA that signed our certificate",
            "not trusted here",
        ),
        "a client with an expired certificate": (
            mutual,
            client_context(ca.certificate, former.certificate, former.key),
            "refused our certificate: it has expired",
            "has expired",
        ),
    }

    async def main() -> None:
        for name, (serving, connecting, client_says, server_says) in cases.items():
            connecting.minimum_version = connecting.maximum_version = version
            error, log = await attempt(serving, connecting, caplog)
            assert re.search(client_says, error), (name, error)
            assert re.search(server_says, log), (name, log)

    with caplog.at_level(logging.WARNING, "stentor.transport"):
        run(main)


@on_each_loop
def test_a_name_may_be_left_unverified(run: Run, files: Files) -> None:
    async def main() -> None:
        elsewhere = files.ca.server("elsewhere.example")
        serving = server_context(elsewhere.certificate, elsewhere.key)
        listener = await serve("tls://127.0.0.1:0", Made(), tls=serving)
        context = client_context(files.ca.certificate, verify_name=False)
        connection = await connect(listener.address, Recorder(), tls=context)
        connection.abort()
        # Whoever signed it still counts.
        context = client_context(files.other_ca.certificate, verify_name=False)
        with pytest.raises(TlsError, match="not trusted"):
            await connect(listener.address, Recorder(), tls=context)
        await listener.close()

    run(main)


@on_each_loop
def test_a_plain_client_is_told_in_its_own_language(
    run: Run, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("tls://127.0.0.1:0", made, tls=files.serving())
        handler = Recorder()
        connection = await connect(place(listener.address.port, "tcp"), handler)
        connection.send(Publish(1, [b"x" * 2_000_000]))
        await handler.until_closed()
        (failure,) = handler.messages
        assert isinstance(failure, Failure)
        assert failure.code == "STN-609"
        assert "tls://" in failure.message
        assert not made.handlers
        await listener.close()

    run(main)
    assert any("does not speak TLS" in message for message in caplog.messages)


@on_each_loop
def test_a_tls_client_at_a_plain_port_is_told(run: Run, files: Files) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("127.0.0.1:0", made, tls=files.serving())
        with pytest.raises(TlsError, match="does not speak TLS; connect without tls://"):
            await connect(
                place(listener.address.port), Recorder(), tls=files.connecting(), timeout=PATIENCE
            )
        error = await (await made.first()).until_closed()
        assert isinstance(error, ProtocolError)
        assert "this is TLS" in str(error)
        await listener.close()

    run(main)


@on_each_loop
def test_silence_during_the_handshake_has_an_end(
    run: Run, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve(
            "tls://127.0.0.1:0", made, tls=files.serving(), handshake_timeout=0.05
        )
        with socket.create_connection(("127.0.0.1", listener.address.port)) as silent:
            silent.setblocking(False)
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.get_running_loop().sock_recv(silent, 100) == b""
        await listener.close()

        with (
            socket.create_server(("127.0.0.1", 0)) as deaf,
            pytest.raises(TlsError, match="not finished in time; is that a TLS port"),
        ):
            await connect(
                place(deaf.getsockname()[1]), Recorder(), tls=files.connecting(), timeout=0.05
            )

    run(main)
    assert any("not finished in time" in message for message in caplog.messages)


@on_each_loop
def test_closing_a_listener_ends_handshakes(run: Run, files: Files) -> None:
    async def main() -> None:
        listener = await serve("tls://127.0.0.1:0", Made(), tls=files.serving())
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
        writer.write(b"\x16\x03\x01")  # begins a handshake and says no more
        async with asyncio.timeout(PATIENCE):
            while not listener._shaking:
                await asyncio.sleep(0.001)
            await listener.close()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()

    run(main)


@on_each_loop
def test_garbage_instead_of_tls_costs_one_connection(
    run: Run, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        listener = await serve("tls://127.0.0.1:0", Made(Echo), tls=files.serving())
        for garbage in (b"\x16" + os.urandom(500), b"\x16\x03\x01\x00\x05hello", b"\x16" * 300_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
            writer.write(garbage)
            writer.write_eof()
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
            writer.close()
        handler = Recorder()
        connection = await connect(listener.address, handler, tls=files.connecting())
        connection.send(Ping())
        await handler.until_received()
        connection.abort()
        await listener.close()

    run(main)
    assert len(caplog.messages) == 3


@on_each_loop
def test_altered_records_end_an_open_connection(run: Run, files: Files) -> None:
    """Somebody between the two changes a byte: the connection ends, with a reason."""

    async def main() -> None:
        made = Made()
        listener = await serve("tls://127.0.0.1:0", made, tls=files.serving())
        handler = Recorder()
        connection = await connect(listener.address, handler, tls=files.connecting())
        other = await made.first()
        assert connection._transport is not None
        connection._transport._raw.write(b"\x17\x03\x03\x00\x20" + b"x" * 32)  # type: ignore[attr-defined]
        error = await other.until_closed()
        assert isinstance(error, TlsError)
        assert await handler.until_closed() is not None
        await listener.close()

    run(main)


@on_each_loop
def test_a_cut_connection_is_noticed_in_the_middle_of_a_message(run: Run, files: Files) -> None:
    async def main() -> None:
        made = Made()
        listener = await serve("tls://127.0.0.1:0", made, tls=files.serving())
        handler = Recorder()
        connection = await connect(listener.address, handler, tls=files.connecting())
        other = await made.first()
        connection.send_frame(frame(Ping()) + b"\0\0\1\0half")
        await other.until_received()
        assert connection._transport is not None
        connection._transport._raw.close()  # type: ignore[attr-defined]
        error = await other.until_closed()
        assert isinstance(error, Unreachable)
        await listener.close()

    run(main)


# -- files


def test_every_wrong_file_is_named(files: Files, tmp_path: Path) -> None:
    good, ca = files.server, files.ca.certificate
    other = files.ca.server()
    text = tmp_path / "text.pem"
    text.write_text("hello")
    damaged = tmp_path / "damaged.pem"
    lines = good.certificate.read_text().splitlines()
    damaged.write_text("\n".join([lines[0], lines[1][:40], *lines[2:]]))
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(private_pem(ec.generate_private_key(ec.SECP256R1()), b"secret"))
    missing = tmp_path / "missing.pem"
    cases = [
        ((missing, good.key, None), "certificate .*missing.pem does not exist"),
        ((good.certificate, missing, None), "key .*missing.pem does not exist"),
        ((good.certificate, good.key, missing), "CA file .*missing.pem does not exist"),
        ((text, good.key, None), "certificate .*text.pem is not in PEM format"),
        ((good.certificate, text, None), "key .*text.pem is not in PEM format"),
        ((good.certificate, good.key, text), "CA file .*text.pem is not in PEM format"),
        ((good.certificate, good.certificate, None), "key .* is not in PEM .*PRIVATE KEY"),
        ((good.certificate, other.key, None), "does not belong to the certificate"),
        ((damaged, good.key, None), "damaged.pem .* is damaged"),
        ((good.certificate, good.key, damaged), "CA file .*damaged.pem is damaged"),
        ((good.certificate, encrypted, None), "encrypted.pem is encrypted"),
        ((tmp_path, good.key, None), "cannot be read: Is a directory"),
    ]
    for (certificate, key, authority), reason in cases:
        with pytest.raises(TlsError, match=reason):
            server_context(certificate, key, authority)
    for (certificate, key, authority), reason in cases:
        with pytest.raises(TlsError, match=reason):
            client_context(ca if authority is None else authority, certificate, key)
    with pytest.raises(TlsError, match="no certificate that it belongs to"):
        client_context(ca, key=good.key)


def test_one_file_may_hold_certificate_and_key(files: Files, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(files.client.certificate.read_bytes() + files.client.key.read_bytes())
    client_context(files.ca.certificate, both)


def test_listening_without_a_certificate_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(TlsError, match="a certificate and its key are needed"):
            await serve("tls://127.0.0.1:0", Made())

    asyncio.run(main())


@on_each_loop
def test_without_a_ca_the_machine_decides(run: Run, files: Files) -> None:
    async def main() -> None:
        listener = await serve("tls://127.0.0.1:0", Made(), tls=files.serving())
        with pytest.raises(TlsError, match="not trusted"):
            await connect(listener.address, Recorder())
        await listener.close()

    run(main)


@on_each_loop
def test_nothing_is_left_of_failed_handshakes(run: Run, files: Files) -> None:
    async def main() -> None:
        listener = await serve("tls://127.0.0.1:0", Made(), tls=files.serving())
        stranger = client_context(files.other_ca.certificate)
        opened = len(os.listdir("/proc/self/fd"))
        for _ in range(30):
            with pytest.raises(TlsError):
                await connect(listener.address, Recorder(), tls=stranger)
        async with asyncio.timeout(PATIENCE):
            while listener._shaking or len(os.listdir("/proc/self/fd")) > opened:
                await asyncio.sleep(0.001)
        await listener.close()

    run(main)


def test_a_connection_is_one_kind_of_object_for_all_transports(files: Files) -> None:
    async def main() -> None:
        listener = await serve("tls://localhost:0", Made(), tls=files.serving())
        connection = await connect(listener.address, Recorder(), tls=files.connecting())
        assert type(connection) is Connection
        connection.abort()
        await listener.close()

    asyncio.run(main())
