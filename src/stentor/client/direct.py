"""A blocking connection to one broker, for who moves data in bulk: journals out, batches in.

A bus serves an application: it has an event loop, subscriptions, and any broker will do. Who reads
a journal wants that journal, by offset, as fast as it comes, and who publishes a batch under ids of
its own wants that broker, which knows what it has already. Both wait anyway. So this is a plain
socket and a loop around it; there are no threads, and it can be used in a process that was forked.

The broker sends stretch upon stretch of a journal as fast as they are taken: the socket's own
buffers hold what comes next. A connection that is lost is made again, for up to `patience` seconds,
and what was not answered is asked again: to read on does no harm, and what is published twice under
the same id the broker takes once. A broker that has too much to do, or no room on its disk, is
waited for in the same way.

    with Direct("127.0.0.1:7411") as broker:
        for journal in broker.streams():
            for stretch in broker.read(journal.stream, journal.low, journal.head):
                ...
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from stentor.client.backoff import PERMANENT, TRANSIENT, Backoff
from stentor.client.connecting import Tls, tls_context
from stentor.client.outbox import pieces
from stentor.errors import (
    HistoryGone,
    InvalidAddress,
    NameTaken,
    ProtocolError,
    StentorError,
    Unreachable,
    error_of,
)
from stentor.model.moments import moments
from stentor.protocol import FrameReader, frame
from stentor.protocol.handshake import Handshake, Left, hello
from stentor.protocol.messages import (
    AnyMessage,
    Ask,
    Done,
    Failure,
    Goodbye,
    Pong,
    Publish,
    Published,
    Read,
    Rejected,
    Stretch,
    Welcome,
)
from stentor.transport import Address
from stentor.transport.tls import explained

if TYPE_CHECKING:
    from stentor.filters import Filter

#: Seconds for one attempt to connect, and in all until a broker that is gone is given up.
CONNECTING: Final = 10.0
PATIENCE: Final = 60.0
#: Bytes that are taken from the socket at a time.
CHUNK: Final = 256 * 1024
#: Publications that go on their way before the first is answered.
IN_FLIGHT: Final = 8

T = TypeVar("T")

_log: Final = logging.getLogger("stentor.client")


class StreamState(NamedTuple):
    """A journal that a broker has: its own, or one that it took over."""

    stream: str
    #: The name of the broker where its notifications entered.
    broker: str
    #: The first offset that is still there, and the last.
    low: int
    head: int


def broker_for(producer: str, brokers: Sequence[str]) -> str:
    """The broker that a producer publishes to: always the same one of a list in any order.

    >>> broker_for("feed", ["b:1", "a:1"]) == broker_for("feed", ["a:1", "b:1"])
    True
    """
    listed = sorted(brokers)
    return listed[int.from_bytes(sha256(producer.encode()).digest()[:8]) % len(listed)]


class _Lost(Exception):
    """The connection is gone; `reason` says why."""

    def __init__(self, reason: StentorError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Direct:
    """One broker, asked directly. Use it in one thread, by `with`."""

    def __init__(
        self,
        address: str | Address,
        *,
        name: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        timeout: float = CONNECTING,
        patience: float = PATIENCE,
    ) -> None:
        """Connects at first use. `name` is what the broker calls the `producer` by."""
        self.address = Address.parse(address)
        if self.address.kind == "inproc":
            raise InvalidAddress(f"{address}: this needs a socket; use tcp, tls:// or unix:")
        self.name = name or f"direct-{secrets.token_hex(8)}"
        self._token = token
        self._tls = tls_context(tls)
        if self.address.kind == "tls" and self._tls is None:
            self._tls = tls_context({})
        self._timeout = timeout
        self._patience = patience
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._heard: deque[AnyMessage] = deque()
        self._numbers = itertools.count(1)
        self._welcome: Welcome | None = None

    def __enter__(self) -> Direct:
        self._persist(self._connected)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye."""
        sock, self._socket = self._socket, None
        if sock is not None:
            try:
                sock.sendall(frame(Goodbye()))
            except OSError:
                pass
            finally:
                sock.close()

    # -- asking

    @property
    def welcome(self) -> Welcome:
        """What the broker said of itself."""
        self._persist(self._connected)
        assert self._welcome is not None
        return self._welcome

    @property
    def producer(self) -> str:
        """Who publishes, in the ids of what is published: the name, and who we proved to be."""
        welcome = self._welcome or self.welcome
        return welcome.producer or self.name

    @property
    def broker(self) -> str:
        """The broker's name."""
        return self.welcome.broker

    def streams(self) -> list[StreamState]:
        """The journals that the broker has."""
        return [
            StreamState(found["stream"], found["broker"], found["low"], found["head"])
            for found in self._ask("streams")
        ]

    def offset_at(self, stream: str, since: float) -> int:
        """The first offset of a journal at this time (seconds since 1970) or later."""
        for found in self._ask("streams", since=since):
            if found["stream"] == stream:
                return int(found["at"])
        raise self._no_journal(stream)

    def read(
        self,
        stream: str,
        first: int,
        last: int,
        filter: str | Filter = "",
        *,
        skip_lost: bool = False,
        times: str = "",
        headers: bool = False,
        attributes: Sequence[str] | None = None,
    ) -> Iterator[Stretch]:
        """The journal from one offset to another, stretch by stretch, filtered by the broker.

        What is beyond the end of the journal does not come. What retention has taken away is a
        `HistoryGone`, or is passed over if `skip_lost` says so. With `times`, stretches have no
        items, but their times by this name (see `stentor.model.moments`) and their sizes. With
        `headers`, items come without their payloads, and with `attributes` without others than
        these, unless there is nothing to be saved by that.
        """
        at = first
        number = 0

        def next_stretch() -> Stretch:
            nonlocal number
            self._connected()
            if not number:
                number = next(self._numbers)
                names = None if attributes is None else list(attributes)
                self._send(Read(number, stream, at, last, str(filter), times, headers, names))
            return self._answer(number, Stretch)

        def ask_again() -> None:
            nonlocal number
            number = 0

        done = first > last
        try:
            while not done:
                found = self._persist(next_stretch, lost=ask_again)
                if found.low > at and not skip_lost:
                    raise HistoryGone(
                        f"of the journal {stream!r} the offsets {at}..{min(found.low - 1, last)} "
                        f"are gone: it begins at {found.low}; keep more of it at the broker "
                        "(its retention), or read from there on"
                    )
                at = max(found.through + 1, at)
                done = found.through >= min(last, found.head)
                if times and found.items:  # a broker of an earlier release has sent all of them
                    found.times = moments(found.items, times)
                    found.sizes = list(map(len, found.items))
                    found.items = []
                yield found
        finally:
            if not done:
                self._abort()  # the broker would go on

    def publish(self, items: Sequence[bytes], *, atomic: bool = False) -> None:
        """Publish encoded notifications whose ids are this producer's, rising; wait for the disk.

        Those that the broker has already are passed over. An atomic batch is one transaction.
        """
        if not items:
            return
        window = max(1, self.welcome.window)
        cut = [list(items)]
        if not atomic:
            parts = [items[at : at + window] for at in range(0, len(items), window)]
            cut = [piece for part in parts for piece in pieces(list(part))]
        left = deque((next(self._numbers), piece) for piece in cut)

        def all_published() -> None:
            self._connected()
            sent: deque[int] = deque()
            unanswered = 0
            while left:
                while len(sent) < min(IN_FLIGHT, len(left)):
                    number, piece = left[len(sent)]
                    if sent and unanswered + len(piece) > window:
                        break
                    self._send(Publish(number, piece, atomic=atomic))
                    sent.append(number)
                    unanswered += len(piece)
                through = self._published(left)
                while sent and sent[0] <= through:
                    sent.popleft()
                    unanswered -= len(left.popleft()[1])

        self._persist(all_published)

    def _published(self, left: deque[tuple[int, list[bytes]]]) -> int:
        while True:
            message = self._next()
            if isinstance(message, Published):
                return message.through
            if isinstance(message, Rejected):
                raise error_of(message.code, message.message)
            if isinstance(message, Failure) and message.number == left[0][0]:
                raise error_of(message.code, message.message)

    def _ask(self, what: str, **arguments: Any) -> Any:
        def asked() -> Any:
            self._connected()
            number = next(self._numbers)
            self._send(Ask(number, what, arguments))
            return self._answer(number, Done).data

        return self._persist(asked)

    def _no_journal(self, stream: str) -> HistoryGone:
        return HistoryGone(f"the broker at {self.address} has no journal {stream!r}")

    # -- the connection

    def _persist(self, work: Callable[[], T], lost: Callable[[], object] = lambda: None) -> T:
        """Do it, again after each loss of the connection, as long as there is patience."""
        backoff = Backoff()
        deadline = monotonic() + self._patience
        while True:
            try:
                return work()
            except _Lost as error:
                reason = error.reason
            except TRANSIENT as error:
                reason = error
            self._abort()
            lost()
            left = deadline - monotonic()
            if left <= 0 or isinstance(reason, (*PERMANENT, NameTaken)):
                raise reason
            _log.info("connecting again: %s", reason)
            sleep(min(backoff.next(), left))

    def _connected(self) -> None:
        if self._socket is not None:
            return
        try:
            sock = self._dial()
        except ssl.SSLError as error:
            if isinstance(error, ssl.SSLEOFError):  # nobody is there behind the port, or no more
                raise _Lost(Unreachable(str(explained(error, str(self.address))))) from error
            raise _Lost(explained(error, str(self.address))) from error
        except OSError as error:
            said = os.strerror(error.errno) if error.errno else str(error)
            raise _Lost(Unreachable(f"{self.address} cannot be reached: {said.lower()}")) from error
        self._socket = sock
        self._reader = FrameReader()
        self._heard.clear()
        self._handshake = Handshake(
            f"the broker at {self.address}", hello("client", self.name, self._token)
        )
        self._send(self._handshake.hello)
        self._next()
        self._welcome = self._handshake.welcome
        sock.settimeout(self._silence)

    def _dial(self) -> socket.socket:
        address = self.address
        if address.kind == "unix":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(self._timeout)
            try:
                sock.connect(address.path)
            except BaseException:
                sock.close()
                raise
            return sock
        host = address.host or "localhost"
        sock = socket.create_connection((host, address.port), self._timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                return self._tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return sock

    def _send(self, message: AnyMessage) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(frame(message))
        except OSError as error:
            raise self._closed(error) from error

    def _answer(self, number: int, kind: type[T]) -> T:
        """The answer to a request; other messages are passed over."""
        while True:
            message = self._next()
            if getattr(message, "number", None) != number:
                continue
            if isinstance(message, Failure):
                raise error_of(message.code, message.message)
            if not isinstance(message, kind):
                raise _Lost(ProtocolError(f"{type(message).__name__} is not what was asked for"))
            return message

    def _next(self) -> AnyMessage:
        sock = self._socket
        assert sock is not None
        while True:
            while self._heard:
                try:
                    heard = self._handshake.hear(self._heard.popleft())
                except ProtocolError as error:
                    raise _Lost(error) from error
                match heard:
                    case Pong():
                        self._send(heard)
                    case Left():
                        raise _Lost(heard.reason)
                    case None:
                        pass
                    case _:
                        return heard
            try:
                data = sock.recv(CHUNK)
            except OSError as error:
                raise self._closed(error) from error
            if not data:
                raise self._closed(None)
            try:
                self._heard.extend(self._reader.feed(data))
            except ProtocolError as error:
                raise _Lost(error) from error

    def _closed(self, error: OSError | None) -> _Lost:
        if isinstance(error, TimeoutError):
            text = f"nothing was heard of it for {self._silence:g} seconds"
        else:
            text = "it closed the connection" if error is None else str(error)
        return _Lost(Unreachable(f"the connection to the broker at {self.address} is lost: {text}"))

    @property
    def _silence(self) -> float:
        """Seconds without a word after which a broker counts as gone: it says Ping before that."""
        told = self._welcome.timeout if self._welcome is not None else 0.0
        return max(self._timeout, told)

    def _abort(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
