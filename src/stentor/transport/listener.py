"""Listening for connections on TCP, TLS, Unix sockets and within the process.

A TLS handshake that fails is logged with its reason: an operator who mixed up certificates reads it
on either side.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable
from typing import Any, Final

from stentor.errors import InvalidAddress, TlsError
from stentor.protocol.frames import MAX_FRAME
from stentor.transport import inproc
from stentor.transport.address import Address
from stentor.transport.connection import MAX_UNSENT, Connection, Handler
from stentor.transport.secure import HANDSHAKE_TIMEOUT, TlsLayer

logger = logging.getLogger("stentor.transport")

#: Handshakes that are under way at the same time; with more, the oldest is given up.
MAX_SHAKING: Final = 1_000
#: Connections that the operating system holds until they are accepted.
BACKLOG: Final = 1024


class Listener:
    """Somewhere that others connect to. Made by `serve`."""

    def __init__(
        self,
        address: Address,
        make_handler: Callable[[], Handler],
        tls: ssl.SSLContext | None,
        max_frame: int,
        max_unsent: int,
        handshake_timeout: float,
    ) -> None:
        #: Where it listens: with the real port, if any was asked for.
        self.address = address
        self._make_handler = make_handler
        self._tls = tls
        self._max_frame = max_frame
        self._max_unsent = max_unsent
        self._handshake_timeout = handshake_timeout
        self._loop = asyncio.get_running_loop()
        self._servers: list[asyncio.AbstractServer] = []
        #: Handshakes that are under way, the oldest first; connections from within the process.
        self._shaking: dict[TlsLayer, None] = {}
        self._adopting: set[asyncio.Task[None]] = set()
        #: Device and inode of the Unix socket, to remove no other's.
        self._file: tuple[int, int] | None = None
        self._closed = False

    def renew(self, tls: ssl.SSLContext | None) -> None:
        """Show another certificate from now on. Connections that stand keep theirs."""
        if self._tls is not None and tls is not None:
            self._tls = tls

    async def close(self) -> None:
        """Listen no more. Connections that were made stay; those in the making are given up."""
        if self._closed:
            return
        self._closed = True
        if self.address.kind == "inproc":
            inproc.unregister(self.address.path)
        if self._file is not None:
            # Before the socket is closed: nobody finds a file behind which there is no one.
            with contextlib.suppress(OSError):
                found = os.stat(self.address.path)
                if (found.st_dev, found.st_ino) == self._file:
                    os.unlink(self.address.path)
        for server in self._servers:
            server.close()
        for layer in list(self._shaking):
            layer.abandon()
        await asyncio.gather(*self._adopting, return_exceptions=True)
        await asyncio.sleep(0)  # some loops close the sockets in their next turn

    # -- opening

    async def _open(self) -> None:
        if self.address.kind == "inproc":
            inproc.register(self.address.path, self._accept_from_any_thread)
            return
        if self.address.kind == "unix":
            sock = _bind_unix(self.address)
            found = os.stat(self.address.path)
            self._file = (found.st_dev, found.st_ino)
            self._servers = [
                await self._loop.create_unix_server(self._connection, sock=sock, backlog=BACKLOG)
            ]
            return
        sockets = await _bind_network(self._loop, self.address)
        self.address = self.address.with_port(sockets[0].getsockname()[1])
        factory = self._connection if self._tls is None else self._secured
        self._servers = [
            await self._loop.create_server(factory, sock=sock, backlog=BACKLOG) for sock in sockets
        ]

    # -- accepting

    def _connection(self) -> Connection:
        return Connection(
            self.address,
            self._make_handler,
            self._loop,
            max_frame=self._max_frame,
            max_unsent=self._max_unsent,
        )

    def _accept_from_any_thread(self, sock: socket.socket) -> None:
        self._loop.call_soon_threadsafe(self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        if self._closed:
            sock.close()
        else:
            task = self._loop.create_task(self._adopt(sock))
            self._adopting.add(task)
            task.add_done_callback(self._adopting.discard)

    async def _adopt(self, sock: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._connection, sock)

    def _secured(self) -> TlsLayer:
        assert self._tls is not None
        layer = TlsLayer(
            self._connection(),
            self._tls,
            self._loop,
            self._shaken,
            timeout=self._handshake_timeout,
        )
        self._shaking[layer] = None
        if len(self._shaking) > MAX_SHAKING:
            oldest = next(iter(self._shaking))
            del self._shaking[oldest]
            oldest.abandon()
        return layer

    def _shaken(self, layer: TlsLayer, error: TlsError | None) -> None:
        self._shaking.pop(layer, None)
        if error is not None:
            logger.warning("refused a connection: %s", error)


async def serve(
    address: Address | str,
    make_handler: Callable[[], Handler],
    *,
    tls: ssl.SSLContext | None = None,
    max_frame: int = MAX_FRAME,
    max_unsent: int = MAX_UNSENT,
    handshake_timeout: float = HANDSHAKE_TIMEOUT,
) -> Listener:
    """Listen at the address; every connection gets a handler of its own.

    The address decides whether TLS is used: `tls` is for `tls://`, which cannot do without, and is
    ignored elsewhere. `InvalidAddress` says why nobody can listen there.
    """
    address = Address.parse(address)
    if address.kind == "tls" and tls is None:
        raise TlsError(f"to listen at {address}, a certificate and its key are needed; give both")
    listener = Listener(
        address,
        make_handler,
        tls if address.kind == "tls" else None,
        max_frame,
        max_unsent,
        handshake_timeout,
    )
    await listener._open()
    return listener


# -- sockets


def _bind_unix(address: Address) -> socket.socket:
    _remove_stale(address)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(address.path)
    except OSError as error:
        sock.close()
        raise _cannot_listen(address, error) from error
    return sock


def _remove_stale(address: Address) -> None:
    """Remove the socket that a process which was killed has left. A live one is an error."""
    try:
        mode = os.stat(address.path).st_mode
    except OSError:
        return  # there is nothing, or `bind` will say what is wrong
    if not stat.S_ISSOCK(mode):
        raise InvalidAddress(
            f"cannot listen at {address}: there is a file of that name; remove it or choose "
            "another path"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address.path)
            return
        except OSError:
            pass  # not refused: somebody is there, or `bind` will say what is wrong
    raise InvalidAddress(
        f"cannot listen at {address}: it is in use; is another broker running there?"
    )


async def _bind_network(loop: asyncio.AbstractEventLoop, address: Address) -> list[socket.socket]:
    """Sockets for each address that the host name stands for, all with one port."""
    if not address.host:
        return [_bind_everywhere(address)]
    try:
        found = await loop.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidAddress(
            f"cannot listen at {address}: the name {address.host!r} is unknown; "
            "is it spelled right?"
        ) from error
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    port = address.port
    for family, place in dict.fromkeys((family, place) for family, _, _, _, place in found):
        try:
            sock = _bound(family, (place[0], port, *place[2:]))
        except OSError as error:
            failure = error
            # A name may stand for addresses that this machine does not have, such as ::1 where
            # there is no IPv6. That a port is taken is never passed over.
            if error.errno in _ABSENT:
                continue
            for other in sockets:
                other.close()
            raise _cannot_listen(address, error) from error
        sockets.append(sock)
        port = sock.getsockname()[1]
    if not sockets:
        raise _cannot_listen(address, failure or OSError("the name has no address")) from failure
    return sockets


def _bind_everywhere(address: Address) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            try:
                return _bound(socket.AF_INET6, ("::", address.port), both=True)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
        return _bound(socket.AF_INET, ("0.0.0.0", address.port))
    except OSError as error:
        raise _cannot_listen(address, error) from error


def _bound(family: int, place: tuple[Any, ...], *, both: bool = False) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # those accepted inherit it
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.bind(place)
        sock.listen(BACKLOG)  # only now is it known whether the port is free
    except OSError:
        sock.close()
        raise
    return sock


#: The machine does not have that address, or not that kind of addresses.
_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

_HINTS: Final = {
    errno.EADDRINUSE: "it is in use; is another broker running there?",
    errno.EACCES: "permission denied; choose another port or path",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
    errno.ENOENT: "the directory does not exist; make it first",
    errno.ENOTDIR: "a part of the path is not a directory",
}


def _cannot_listen(address: Address, error: OSError) -> InvalidAddress:
    said = os.strerror(error.errno) if error.errno else str(error)
    return InvalidAddress(f"cannot listen at {address}: {_HINTS.get(error.errno or 0, said)}")
