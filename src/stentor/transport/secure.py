"""TLS between a socket and a `Connection`.

asyncio has TLS of its own, but when a handshake fails it drops the connection together with the
alert that OpenSSL has written for the other side. The other side then sees a reset and learns
nothing, and a server keeps its own reason to itself. Here the alert is sent, and both sides can say
what is wrong; the rest is OpenSSL with two buffers in memory.

To the event loop a layer is a protocol, to its `Connection` it is the transport. It is in one of
three states:

    shaking hands   what arrives belongs to the handshake; a timer runs
    open            what arrives is decrypted, what is sent is encrypted
    ended           the handshake failed and an alert was sent; what arrives is ignored until the
                    other side closes, or for a few seconds

A client that speaks the plain protocol to a TLS port is recognized by its first byte, and answered
in its own language.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final, Literal, cast

from stentor.errors import TlsError
from stentor.protocol.frames import frame
from stentor.protocol.messages import Failure
from stentor.transport.address import Address
from stentor.transport.connection import LINGER, Connection, end_writing
from stentor.transport.tls import explained

#: Seconds that a handshake may take.
HANDSHAKE_TIMEOUT: Final = 10.0

#: What every TLS connection begins with: a handshake record.
_HANDSHAKE: Final = 0x16
#: Decrypted bytes that are asked for at a time. A record has 16 KB at most.
_RECORD: Final = 64 * 1024


class TlsLayer(asyncio.Protocol):
    """Carries one connection over TLS.

    `done` is called once, when the handshake is over: without an error if the connection is open.
    """

    def __init__(
        self,
        connection: Connection,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[TlsLayer, TlsError | None], None],
        *,
        server_hostname: str | None = None,
        timeout: float = HANDSHAKE_TIMEOUT,
    ) -> None:
        self.connection = connection
        #: The other side's address, for people.
        self.peer = str(connection.address)
        self._loop = loop
        self._done = done
        self._timeout = timeout
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._is_server = server_hostname is None
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._is_server,
            server_hostname=server_hostname,
        )
        self._state: Literal["shaking hands", "open", "ended"] = "shaking hands"
        self._first = True
        self._timer: asyncio.TimerHandle | None = None
        self._raw: asyncio.Transport
        self._abandoned = False

    def abandon(self) -> None:
        """Give the handshake up."""
        if self._timer is None:  # not connected yet
            self._abandoned = True
        else:
            self._raw.abort()

    # -- to the event loop: a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)  # uvloop's do not derive from it
        name = transport.get_extra_info("peername")
        if name and self._is_server:
            self.peer = str(Address("tcp", name[0], name[1]))
        if self._abandoned:
            self._raw.abort()
            return
        self._timer = self._loop.call_later(self._timeout, self._too_late)
        if not self._is_server:
            self._shake()

    def data_received(self, data: bytes) -> None:
        if self._state == "ended":
            return
        if self._first:
            self._first = False
            if self._is_server and data[0] != _HANDSHAKE:
                self._answer_plainly()
                return
        self._incoming.write(data)
        if self._state == "shaking hands":
            self._shake()
        if self._state == "open":
            self._read()

    def eof_received(self) -> None:
        if self._state == "shaking hands":
            self._finish(explained(ConnectionResetError(), self.peer))
        elif self._state == "open":
            self.connection.eof_received()

    def pause_writing(self) -> None:
        if self._state == "open":
            self.connection.pause_writing()

    def resume_writing(self) -> None:
        if self._state == "open":
            self.connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        if self._state == "shaking hands":
            self._finish(explained(exc or ConnectionResetError(), self.peer))
        else:
            self.connection.connection_lost(exc)

    # -- to the connection: a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self._raw.get_extra_info(name, default)

    def write(self, data: bytes) -> None:
        if self._state != "open":
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            self._break(error)
        else:
            self._send()

    def write_eof(self) -> None:
        """Say that no more will come, in TLS and then to the operating system."""
        if self._state == "open":
            # The farewell is written; that it is not answered yet is no fault.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._send()
            self._raw.write_eof()

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    # -- TLS

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
        except (ssl.SSLError, ValueError) as error:
            self._end()
            self._finish(explained(error, self.peer))
        else:
            self._send()
            self._cancel_timer()
            self._state = "open"
            self.connection.connection_made(cast(asyncio.BaseTransport, self))
            self._done(self, None)

    def _read(self) -> None:
        """Hand everything that is decrypted to the connection in one piece."""
        pieces: list[bytes] = []
        over = False
        fault: ssl.SSLError | None = None
        try:
            while piece := self._tls.read(_RECORD):
                pieces.append(piece)
            over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            over = True
        except ssl.SSLError as error:
            fault = error
        if pieces:
            self.connection.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if fault is not None:
            self._break(fault)
        elif over:
            self.connection.eof_received()
            self._raw.close()
        else:
            self._send()  # TLS may have something to say of its own, such as new keys

    def _send(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _break(self, error: ssl.SSLError) -> None:
        """The open connection cannot go on, by what the other side has sent."""
        self._send()
        self.connection.abort(explained(error, self.peer))

    def _end(self) -> None:
        """Send the alert, then wait until the other side has read it: see `Connection`."""
        self._send()
        self._cancel_timer()
        self._timer = self._loop.call_later(LINGER, self._raw.abort)
        end_writing(self._raw)

    def _finish(self, error: TlsError) -> None:
        """The handshake came to nothing."""
        if self._state == "shaking hands":
            self._state = "ended"
            self._done(self, error)

    def _answer_plainly(self) -> None:
        failure = Failure(TlsError.code, "this port speaks TLS; connect to it by tls://host:port")
        self._raw.write(frame(failure))
        self._end()
        self._finish(
            TlsError(f"TLS with {self.peer}: the other side does not speak TLS; it needs tls://")
        )

    def _too_late(self) -> None:
        self._finish(explained(TimeoutError(), self.peer))
        self._raw.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
