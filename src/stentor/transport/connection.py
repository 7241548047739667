"""A connection that carries messages, whatever it runs over.

*Reading.* What has arrived is decoded at once, and the handler gets it in one call. So work is done
in batches exactly when there is much of it, and nothing waits for a batch to fill. Very many small
messages are handed over in several turns of the event loop, so that others have theirs in between;
nothing more is read from the other side meanwhile. Connections that share a `rota` also wait for
each other: what comes in a round of the loop that has no time left is decoded in one of the next.

*Writing.* What is sent during one turn of the event loop goes out together at its end: one system
call, one TLS record, no delay. What the other side does not take piles up here. `writable` turns
false at the high-water mark and the handler hears `writable_again` when the pile is small; a
sender that may have a lot to say must watch it. Who does not is stopped by a hard limit: the
connection is aborted with `Overloaded` instead of filling the memory.

*Closing.* `close` sends what was written and then says that no more will come. It goes on reading,
and ignores what it reads, until the other side has closed too: a socket that is closed with unread
input resets the connection, and the reset can overtake the last words, which may be the `Failure`
that explains everything. The other side has a few seconds for that. A side that stops sending is
taken to be closing: there are no half-open connections.

*Faults.* Bytes or messages that break the protocol are answered by a `Failure` and cost the
connection. An exception in a handler is logged and costs the connection too. Neither reaches the
event loop. A handler that was told `opened` is told `closed` exactly once, as the last thing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from stentor.errors import Overloaded, ProtocolError, StentorError, Unreachable
from stentor.protocol.frames import AT_ONCE, MAX_FRAME, MAX_OPEN, FrameReader, frame
from stentor.protocol.messages import AnyMessage, Failure
from stentor.transport.address import Address
from stentor.transport.rota import Rota
from stentor.transport.tls import explained, peer_name

logger = logging.getLogger("stentor.transport")

#: Bytes that may wait to be sent before the connection is no longer `writable`, and at which it is
#: again.
HIGH_WATER: Final = 256 * 1024
LOW_WATER: Final = 64 * 1024
#: Bytes that may wait to be sent at all.
MAX_UNSENT: Final = 64 * 2**20
#: Seconds that the other side has to take the last of what was sent and to close.
LINGER: Final = 5.0


class Room:
    """Bytes of frames that are not complete, which all connections of a broker may hold together.

    Who announces much and never sends the rest occupies what it sent. When there is no room, the
    connection that holds most has to go.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._held: dict[Connection, int] = {}

    def hold(self, connection: Connection, held: int) -> None:
        """The connection now holds so many bytes of a frame."""
        self._used += held - self._held.pop(connection, 0)
        if held:
            self._held[connection] = held
        if self._used > self._limit:
            largest = max(self._held, key=self._held.__getitem__)
            self._used -= self._held.pop(largest)
            largest.abort(
                Overloaded(
                    f"frames that are not complete take more than {self._limit} bytes, and that "
                    f"of {largest.peer} takes most of it"
                )
            )


class Handler(Protocol):
    """What happens to a connection, told to whoever uses it. All calls are made by the loop."""

    def opened(self, connection: Connection) -> None:
        """It can be used; nothing was received yet."""

    def received(self, connection: Connection, messages: list[AnyMessage]) -> None:
        """All messages that had arrived, at least one. `ProtocolError` refuses them."""

    def writable_again(self, connection: Connection) -> None:
        """It was not `writable`, and now it is."""

    def closed(self, connection: Connection, error: Exception | None) -> None:
        """It is over. No error if either side closed it in good order."""


class Connection(asyncio.Protocol):
    """One end of a connection. Made by `connect` and `serve`; used by one event loop."""

    __slots__ = (
        "__weakref__",
        "_busy",
        "_closing",
        "_error",
        "_flowing",
        "_handler",
        "_holds",
        "_linger",
        "_loop",
        "_lost",
        "_make_handler",
        "_max_unsent",
        "_out",
        "_pending",
        "_queued",
        "_reader",
        "_reading",
        "_scheduled",
        "_transport",
        "address",
        "bytes_in",
        "bytes_out",
        "frames_in",
        "frames_out",
        "last_heard",
        "peer",
        "peer_certificate",
        "room",
        "rota",
        "writable",
    )

    def __init__(
        self,
        address: Address,
        make_handler: Callable[[], Handler],
        loop: asyncio.AbstractEventLoop,
        *,
        max_frame: int = MAX_FRAME,
        max_open: int = MAX_OPEN,
        max_unsent: int = MAX_UNSENT,
    ) -> None:
        #: The address that was connected to.
        self.address = address
        #: The other side, for people.
        self.peer = str(address)
        #: The common name in its certificate, if it showed one that was verified.
        self.peer_certificate: str | None = None
        #: What its half frames have to fit into, together with those of others.
        self.room: Room | None = None
        #: In turn with whom it hands over what has come.
        self.rota: Rota | None = None
        #: False from the high-water mark on until the handler hears `writable_again`.
        self.writable = True
        self.bytes_in = 0
        self.bytes_out = 0
        self.frames_in = 0
        self.frames_out = 0
        #: When bytes came in last, on the loop's clock.
        self.last_heard = loop.time()

        self._loop = loop
        self._make_handler = make_handler
        self._holds = 0
        self._handler: Handler | None = None
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(max_frame, max_open)
        #: Whether more is to be read, whether the handler is busy, and whether the transport reads.
        self._reading = True
        self._busy = False
        self._flowing = True
        #: Whether the rest of what has come will be handed over in a later turn.
        self._queued = False
        self._max_unsent = max_unsent
        #: Frames of this turn of the loop, their bytes, and whether `_flush` will be called.
        self._out: list[bytes] = []
        self._pending = 0
        self._scheduled = False
        self._closing = False
        self._lost = False
        self._error: Exception | None = None
        self._linger: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "closed" if self._lost else "closing" if self._closing else "open"
        return f"<Connection with {self.peer}, {state}>"

    # -- sending

    def send(self, message: AnyMessage) -> None:
        """Send a message. Once the connection is closing it is dropped."""
        self.send_frame(frame(message))

    def send_frame(self, data: bytes) -> None:
        """Send a message that `stentor.protocol.frame` has encoded, such as one to many."""
        if self._closing:
            return
        if not self.writable and self.unsent + len(data) > self._max_unsent:
            self.abort(
                Overloaded(
                    f"{self.peer} does not take what is sent to it: "
                    f"{self.unsent} bytes wait, and {self._max_unsent} are allowed"
                )
            )
            return
        self.frames_out += 1
        self._out.append(data)
        self._pending += len(data)
        if self._pending > HIGH_WATER:
            self._flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self._flush()

    def _flush(self) -> None:
        out = self._out
        if not out or self._lost or self._transport is None:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._pending = 0
        self.bytes_out += len(data)
        try:
            self._transport.write(data)
        except RuntimeError:  # the other side was faster; we hear of that in a moment
            if not self._transport.is_closing():
                raise

    @property
    def unsent(self) -> int:
        """Bytes that were sent here and that the operating system has not yet taken."""
        if self._transport is None or self._lost:
            return self._pending
        return self._pending + self._transport.get_write_buffer_size()

    # -- receiving

    @property
    def max_frame(self) -> int:
        """Bytes of the largest frame that is accepted. May be raised, as after a handshake."""
        return self._reader.max_frame

    @max_frame.setter
    def max_frame(self, limit: int) -> None:
        self._reader.max_frame = limit

    @property
    def max_open(self) -> int:
        """The same for messages that hold data of any shape. May be changed."""
        return self._reader.max_open

    @max_open.setter
    def max_open(self, limit: int) -> None:
        self._reader.max_open = limit

    @property
    def busy(self) -> bool:
        """Whether the handler still has to do with what it was given. It gets no more meanwhile."""
        return self._busy

    @busy.setter
    def busy(self, busy: bool) -> None:
        self._busy = busy
        self._flow()

    def pause_reading(self) -> None:
        """Hand nothing more over and read no more, so that the other side has to wait."""
        self._reading = False
        self._flow()

    def resume_reading(self) -> None:
        """Read again."""
        self._reading = True
        self._flow()

    def _flow(self) -> None:
        """Let the transport read if it should; what has come already goes first."""
        transport = self._transport
        if transport is None or self._lost:
            return
        pending = self._reader.pending and not self._closing
        wanted = self._reading and not self._busy
        if wanted and pending and not self._queued:
            self._queued = True
            later = self._loop.call_soon if self.rota is None else self.rota.wait
            later(self._go_on)
        flowing = self._closing or (wanted and not pending)
        if flowing is not self._flowing:
            self._flowing = flowing
            if flowing:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _go_on(self) -> None:
        self._queued = False
        if self._reading and not self._busy and not self._closing:
            self._hand_over(b"")

    # -- closing

    @property
    def is_closing(self) -> bool:
        """Whether it is closed or about to be. Nothing can be sent any more."""
        return self._closing

    def close(self) -> None:
        """Send what was written, then close. The handler hears `closed` when that is done."""
        if self._closing:
            return
        self._closing = True
        transport = self._transport
        if transport is None:
            return
        self._flush()
        self._linger = self._loop.call_later(LINGER, transport.abort)
        self._flow()
        end_writing(transport)

    def abort(self, error: Exception | None = None) -> None:
        """Close at once. What was not sent is lost; the handler hears `closed` with the error."""
        if self._lost:
            return
        self._closing = True
        self._out.clear()
        self._pending = 0
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, error: ProtocolError) -> None:
        """The other side broke the protocol: tell it, and have done with it."""
        logger.info("closing the connection with %s: %s", self.peer, error)
        if self._error is None:
            self._error = error.with_traceback(None)  # which would keep what was read
        self.send(Failure(error.code, str(error)))
        self.close()

    def _fail(self, error: Exception) -> None:
        """This side has a fault."""
        logger.error(
            "a fault here costs the connection with %s", self.peer, exc_info=error, stacklevel=2
        )
        if self._error is None:
            self._error = error.with_traceback(None)
        self.send(Failure(StentorError.code, "a fault on this side; its log says more"))
        self.close()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's do not derive from it
        self._transport = transport
        transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
        self.peer = _peer(transport, self.address)
        self.peer_certificate = peer_name(transport.get_extra_info("ssl_object"))
        self.last_heard = self._loop.time()
        try:
            handler = self._make_handler()
        except Exception as error:
            self._fail(error)
            return
        finally:
            del self._make_handler  # which may know the handler
        self._handler = handler
        self.attempt(handler.opened, self)

    def attempt(self, function: Callable[..., object], *args: Any) -> None:
        """Do something that may break the protocol or fail; either costs the connection."""
        try:
            function(*args)
        except ProtocolError as error:
            self._refuse(error)
        except Exception as error:
            self._fail(error)

    def data_received(self, data: bytes) -> None:
        self.last_heard = self._loop.time()
        self.bytes_in += len(data)
        if self._closing or self._handler is None:
            return
        if not self._flowing:  # some transports had it already
            self._reader.keep(data)
        elif self.rota is not None and self.rota.is_over:
            self._reader.keep(data)
            self._flow()
        else:
            self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        """Give the handler what has come, or a part of it if that is very much."""
        self.attempt(self._received, data)
        if self.room is not None:
            held = 0 if self._closing else self._reader.buffered
            if held or self._holds:
                self._holds = held
                self.room.hold(self, held)
        if not self._flowing or self._reader.pending:
            self._flow()

    def _received(self, data: bytes) -> None:
        reader, handler = self._reader, self._handler
        assert handler is not None
        messages = reader.feed(data, AT_ONCE)
        if messages:
            self.frames_in += len(messages)
            handler.received(self, messages)
        if reader.error is not None and not self._closing:
            raise reader.error

    def eof_received(self) -> None:
        """The other side closes. Returning nothing lets the transport do the same."""
        transport = self._transport
        while self._reader.pending and not self._closing:
            self._hand_over(b"")
        if self._closing or transport is None:
            return
        if self._reader.buffered:
            self._error = Unreachable(
                f"{self.peer} closed the connection in the middle of a message"
            )
        self._flush()
        self._closing = True
        self._linger = self._loop.call_later(LINGER, transport.abort)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if not self._closing and self._handler is not None:
            self.attempt(self._handler.writable_again, self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._closing = True
        if self.room is not None:
            self.room.hold(self, 0)
        self._out.clear()
        self._pending = 0
        self._reader = FrameReader(self.max_frame)  # lets go of half a frame
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._transport = None  # the two would keep each other
        handler, self._handler = self._handler, None
        if handler is None:
            return
        try:
            handler.closed(self, self._error or _cause(exc, self.peer))
        except Exception:
            logger.exception("a fault while the connection with %s was closed", self.peer)


def end_writing(transport: asyncio.Transport) -> None:
    """Say that no more will come, unless the other side is gone, which nobody has noticed yet."""
    try:
        transport.write_eof()
    except OSError:
        transport.abort()


def _cause(error: Exception | None, peer: str) -> Exception | None:
    """Why a connection was lost, in the product's own words."""
    if error is None or isinstance(error, StentorError):
        return error
    if isinstance(error, ssl.SSLError):
        return explained(error, peer)
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lost = Unreachable(
        f"the connection with {peer} was lost: {(said or 'no reason given').lower()}"
    )
    lost.__cause__ = error
    return lost


def _peer(transport: asyncio.BaseTransport, address: Address) -> str:
    """The other side, for people: the socket's address, or the process behind a Unix socket."""
    if address.kind in ("tcp", "tls"):
        name = transport.get_extra_info("peername")
        if not name:
            return str(address)
        # A listener for every interface sees IPv4 as a part of IPv6.
        return str(Address(address.kind, name[0].removeprefix("::ffff:"), name[1]))
    sock = transport.get_extra_info("socket")
    if address.kind == "inproc" or sock is None or not hasattr(socket, "SO_PEERCRED"):
        return str(address)
    try:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except OSError:
        return str(address)
    process, _user, _group = struct.unpack("iII", credentials)
    return f"{address} (process {process})"
