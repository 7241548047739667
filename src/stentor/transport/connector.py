"""Connecting to a broker, with errors that say what to do."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

from stentor.errors import InvalidAddress, TlsError, Unreachable
from stentor.protocol.frames import MAX_FRAME
from stentor.transport import inproc
from stentor.transport.address import Address
from stentor.transport.connection import MAX_UNSENT, Connection, Handler
from stentor.transport.secure import TlsLayer
from stentor.transport.tls import client_context

#: Seconds until an attempt to connect is given up.
CONNECT_TIMEOUT: Final = 10.0
#: Seconds between looks at a Unix socket whose listener has not taken those who came before.
_RETRY: Final = 0.01

_HINTS: Final = {
    errno.ECONNREFUSED: "the connection was refused; is a broker running there?",
    errno.ENOENT: "there is no such socket; is a broker running there?",
    errno.EACCES: "permission denied; may this user use that socket?",
    errno.EHOSTUNREACH: "there is no route to that host",
    errno.ENETUNREACH: "there is no network that leads there",
    errno.ETIMEDOUT: "nobody answered; is the host up, and does a firewall let this through?",
    errno.EADDRNOTAVAIL: "this machine has no free port, or no such address",
    errno.EMFILE: "this process has too many open files; raise its limit (ulimit -n)",
    errno.ENFILE: "this machine has too many open files",
    errno.ENOTSOCK: "that file is not a socket",
}


async def connect(
    address: Address | str,
    handler: Handler,
    *,
    tls: ssl.SSLContext | None = None,
    timeout: float = CONNECT_TIMEOUT,
    max_frame: int = MAX_FRAME,
    max_unsent: int = MAX_UNSENT,
) -> Connection:
    """A connection to a broker. The handler has been told `opened` when this returns.

    The address decides whether TLS is used: `tls` is for `tls://` and is ignored elsewhere, and
    `tls://` without it trusts the authorities that the machine trusts. `Unreachable`, `TlsError`
    or `InvalidAddress` say why there is no connection.
    """
    address = Address.parse(address)
    loop = asyncio.get_running_loop()
    if address.kind == "tls" and tls is None:
        tls = client_context()

    deadline = loop.time() + timeout
    try:
        async with asyncio.timeout_at(deadline):
            sock = await _socket(loop, address)
    except TimeoutError as error:
        raise Unreachable(
            f"{address} cannot be reached: nobody answered within {timeout:g} seconds; "
            "is the host up, and does a firewall let this through?"
        ) from error
    # From here on the socket belongs to a transport of the loop.
    made = Connection(
        address,
        lambda: handler,
        loop,
        max_frame=max_frame,
        max_open=max_frame,  # whom one asks may answer at length
        max_unsent=max_unsent,
    )
    if address.kind == "tls":
        assert tls is not None
        await _secure(loop, made, sock, tls, deadline)
    elif address.kind == "tcp":
        await _attach(loop.create_connection, made, sock)
    else:
        await _attach(loop.create_unix_connection, made, sock)
    return made


async def _attach(
    create: Callable[..., Coroutine[Any, Any, object]],
    protocol: Connection | TlsLayer,
    sock: socket.socket,
) -> None:
    """Let the loop serve the socket.

    When a caller loses patience, uvloop closes a transport that it has already handed to its
    protocol, and tells the protocol nothing. So it is not told of that; the protocol is aborted and
    hears of its end like any other.
    """
    opening = asyncio.ensure_future(create(lambda: protocol, sock=sock))
    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda _: protocol.abort())
        raise


async def _secure(
    loop: asyncio.AbstractEventLoop,
    connection: Connection,
    sock: socket.socket,
    context: ssl.SSLContext,
    deadline: float,
) -> None:
    """Open the connection by a TLS handshake over the socket."""
    outcome: asyncio.Future[TlsError | None] = loop.create_future()

    def done(_: TlsLayer, error: TlsError | None) -> None:
        if not outcome.done():
            outcome.set_result(error)

    layer = TlsLayer(
        connection,
        context,
        loop,
        done,
        server_hostname=connection.address.host or "localhost",
        timeout=max(0.0, deadline - loop.time()),
    )
    await _attach(loop.create_connection, layer, sock)
    try:
        error = await outcome
    except BaseException:  # the caller has lost patience
        layer.abort()
        raise
    if error is not None:
        raise error


async def _socket(loop: asyncio.AbstractEventLoop, address: Address) -> socket.socket:
    """A connected socket that does not block."""
    if address.kind == "inproc":
        return inproc.dial(address.path)
    if address.kind == "unix":
        return await _unix_socket(address)
    return await _network_socket(loop, address)


async def _unix_socket(address: Address) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        while True:
            try:
                sock.connect(address.path)
                return sock
            except BlockingIOError:
                await asyncio.sleep(_RETRY)  # the listener's queue is full, and has no event
    except OSError as error:
        sock.close()
        raise _unreachable(address, error) from error
    except BaseException:
        sock.close()
        raise


async def _network_socket(loop: asyncio.AbstractEventLoop, address: Address) -> socket.socket:
    """A connected socket: each address that the name stands for is tried."""
    if address.port == 0:
        raise InvalidAddress(f"{address}: nobody can be reached at port 0; give the real one")
    try:
        found = await loop.getaddrinfo(
            address.host or "localhost", address.port, type=socket.SOCK_STREAM
        )
    except (socket.gaierror, UnicodeError) as error:
        raise Unreachable(
            f"{address} cannot be reached: the name {address.host!r} is unknown; is it spelled "
            "right?"
        ) from error
    failure: OSError | None = None
    for family, kind, protocol, _, place in found:
        try:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(sock, place)
                return sock
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            # The first failure is what the user most likely wants to know; a refusal says more
            # than the lack of IPv6.
            if failure is None or error.errno == errno.ECONNREFUSED:
                failure = error
    raise _unreachable(address, failure or OSError("the name has no address")) from failure


def _unreachable(address: Address, error: OSError) -> Unreachable:
    said = os.strerror(error.errno) if error.errno else str(error)
    return Unreachable(f"{address} cannot be reached: {_HINTS.get(error.errno or 0, said.lower())}")
