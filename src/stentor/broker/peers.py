"""Both ends of what connects to a broker: clients, operators and other brokers.

Everyone who connects says `Hello` first, within `HELLO_PATIENCE`; what they are is decided then. A
`Guest` is a connection before that; it becomes a `ConnectedClient` or a `Link`. The broker itself
dials its neighbors (`Dialing`) and is the guest there.

These classes turn events of a connection into calls of the host, `Broker`, and hold what belongs to
the connection, such as the credit of a link.

Nobody keeps the broker to itself. What connections bring is dealt with message by message and long
messages in steps (`Backlog`), as long as there is time in a round of the event loop (`Rota`); then
it is the turn of others, and nothing more is read from this one until its backlog is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stentor.broker.access import Permissions
from stentor.broker.link_queue import LINK_WINDOW, LinkQueue
from stentor.broker.succession import Transfer
from stentor.errors import (
    LinkRefused,
    NoReply,
    Overloaded,
    ProtocolError,
    ShuttingDown,
    StentorError,
)
from stentor.node.detection import patterns
from stentor.node.reading import Texts, parsed, received
from stentor.protocol import messages as m
from stentor.protocol.handshake import Handshake, Left
from stentor.routing.protocol import Place
from stentor.transport import Connection

if TYPE_CHECKING:
    from stentor.broker.host import Broker

_log: Final = logging.getLogger("stentor.broker")

#: Seconds in which a connection has to say who it is.
HELLO_PATIENCE: Final = 10.0
#: Bytes that it may send until then.
HELLO_FRAME: Final = 64 * 1024
#: Connections that have not said who they are. The oldest has to go if there are more.
MAX_STRANGERS: Final = 1_000
#: Bytes that a question may have, which holds data of any shape.
ASK_FRAME: Final = 64 * 1024
#: Seconds that a client has to say what it has settled, when it is sent away.
LAST_WORDS: Final = 1.0
#: Messages that go to a link before its connection is looked at again.
AT_ONCE: Final = 8
#: Characters of a filter that is short enough to be parsed between two other messages.
SHORT_FILTER: Final = 1_024

Steps: TypeAlias = Iterator[asyncio.Future[Any] | None]
_DONE: Final = object()


class Backlog:
    """What a connection has brought and was not dealt with yet."""

    __slots__ = ("_is_waiting", "_messages", "_steps", "peer")

    def __init__(self, peer: ConnectedClient | Link) -> None:
        """`peer` deals with messages, and knows nothing of this: so both go with the connection."""
        self.peer = peer
        #: The next one is the last.
        self._messages: list[Any] = []
        #: What is left of the message that is being dealt with. A step may give something that has
        #: to be waited for before the next one.
        self._steps: Steps | None = None
        self._is_waiting = False

    def add(self, messages: list[Any]) -> None:
        """Deal with these, behind what there is; raise what is wrong with them."""
        self._messages[:0] = reversed(messages)
        if not self._is_waiting:
            self._work()

    def _work(self) -> None:
        connection, messages, rota = self.peer.connection, self._messages, self.peer.broker.rota
        more = rota.more()
        try:
            while not connection.is_closing:
                if self._steps is not None:
                    step = next(self._steps, _DONE)
                    if step is _DONE:
                        self._steps = None
                    elif isinstance(step, asyncio.Future):
                        self._wait()
                        step.add_done_callback(self._go_on)
                        break
                elif messages:
                    self._steps = self.peer.heard(messages.pop())
                else:
                    break
                if (self._steps or messages) and not more():
                    self._wait()
                    rota.wait(self._go_on)
                    break
        finally:
            self.peer.dealt()

    def _wait(self) -> None:
        self._is_waiting = self.peer.connection.busy = True

    def _go_on(self, *_: object) -> None:
        self._is_waiting = self.peer.connection.busy = False
        self.peer.connection.attempt(self._work)


class Guest:
    """A connection that somebody has made to this broker."""

    __slots__ = ("_backlog", "_handshake", "_patience", "broker", "connection")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connection: Connection | None = None
        #: Of whom it has turned out to be.
        self._backlog: Backlog | None = None
        self._patience: asyncio.TimerHandle | None = None

    def opened(self, connection: Connection) -> None:
        self.connection = connection
        self._handshake = Handshake(connection.peer)
        connection.max_open = ASK_FRAME
        connection.room = self.broker.room
        connection.rota = self.broker.rota
        self.broker.guests.add(self)
        strangers = self.broker.strangers
        strangers[self] = None
        if len(strangers) > MAX_STRANGERS:
            oldest = next(iter(strangers))
            del strangers[oldest]
            assert oldest.connection is not None
            oldest.connection.abort(Overloaded("too many connections have not said Hello"))
        self._patience = asyncio.get_running_loop().call_later(HELLO_PATIENCE, self._too_late)

    def _too_late(self) -> None:
        assert self.connection is not None
        error = NoReply(f"no Hello within {HELLO_PATIENCE:g} seconds")
        self.connection.send(self._handshake.refuse(error))
        self.connection.close()

    def received(self, connection: Connection, messages: list[Any]) -> None:
        if self._backlog is None:
            self._handshake.hear(messages[0])
            self._hush()
            self.broker.strangers.pop(self, None)
            try:
                self._backlog = Backlog(self.broker.admit(connection, self._handshake))
            except ProtocolError:
                raise
            except StentorError as error:
                self.broker.refused(connection, self._handshake.hello, error)
                connection.send(self._handshake.refuse(error))
                connection.close()
                return
            connection.max_frame = self.broker.settings.limits.frame
            messages = messages[1:]
        if messages:
            self._backlog.add(messages)

    def writable_again(self, connection: Connection) -> None:
        if self._backlog is not None:
            self._backlog.peer.writable_again()

    def closed(self, connection: Connection, error: Exception | None) -> None:
        self._hush()
        self.broker.guests.discard(self)
        self.broker.strangers.pop(self, None)
        if self._backlog is not None:
            self._backlog.peer.closed(error)

    def _hush(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


@dataclass(eq=False, repr=False, slots=True)
class ConnectedClient:
    """A connected client or operator."""

    broker: Broker
    connection: Connection
    _handshake: Handshake
    id: int
    producer: str
    permissions: Permissions
    #: How many publications it was told that may be unanswered.
    window: int
    is_operator: bool
    #: Questions that are not answered yet. Long answers are made one after the other.
    questions: int = 0
    answering: asyncio.Lock | None = None
    #: Parts of a scope graph that is being deployed.
    parts: bytes = b""
    #: Closes the connection, if the client does not do so after `Goodbye`.
    _leaving: asyncio.TimerHandle | None = None
    #: The request to publish whose answer is waited for, to know how long it takes.
    _sample: tuple[int, float] | None = None

    @property
    def name(self) -> str:
        """What it calls itself."""
        return self._handshake.hello.name

    @property
    def hello(self) -> m.Hello:
        """Who it has said that it is."""
        return self._handshake.hello

    @property
    def is_leaving(self) -> bool:
        """Whether it was sent away, and has not gone yet."""
        return self._leaving is not None

    def say_goodbye(self, reason: str, instead: list[str]) -> None:
        """Send it away. What it has settled is heard until it closes, and nothing else."""
        if self._leaving is None:
            self.broker.core.block(self.id)
            self.connection.send(m.Goodbye(reason, instead))
            self.connection.resume_reading()
            close = self.connection.close
            self._leaving = asyncio.get_running_loop().call_later(LAST_WORDS, close)

    def heard(self, message: Any) -> Steps | None:
        """It says something; what is left to do of that, if it is much."""
        if self._leaving is not None and not isinstance(message, m.Settle | m.Confirm | m.Goodbye):
            return None
        if isinstance(message, m.Publish | m.Commit) and not self.is_operator:
            if self._sample is None and isinstance(message, m.Publish):
                self._sample = message.number, perf_counter()
            return self.broker.core.hear(self.id, message)
        match self._handshake.hear(message):
            case None:
                pass
            case m.Pong() as answer:
                self.connection.send(answer)
            case Left():
                self.connection.close()
            case m.Ask() as question:
                self.broker.questions.asked(self, question)
            case _ if self.is_operator:
                raise ProtocolError(f"an operator cannot send {type(message).__name__}")
            case m.Subscribe(detect=m.Detection(pattern=pattern)):
                return self._after_parsing(message, [pattern], patterns)
            case _ if sum(map(len, texts := _filters(message))) > SHORT_FILTER:
                return self._after_parsing(message, texts, received)
            case _:
                return self.broker.core.hear(self.id, message)
        return None

    def _after_parsing(self, message: Any, texts: list[str], read: Texts[Any]) -> Steps:
        for text in texts:
            yield self.broker.parse(text, read)
        yield from self.broker.core.hear(self.id, message) or ()

    def dealt(self) -> None:
        """Something that it has said has been dealt with."""
        self.broker.heard()
        if self.broker.journal.full:
            self.broker.hold_back(self.connection)

    def send(self, message: Any) -> None:
        connection = self.connection
        connection.send(message)
        if self._sample is not None and isinstance(message, m.Published):
            number, heard = self._sample
            if message.through >= number:
                self._sample = None
                self.broker.core.latencies.acknowledging.observe(perf_counter() - heard)
        if not connection.writable:
            self.broker.core.block(self.id)

    def writable_again(self) -> None:
        self.broker.core.unblock(self.id)
        self.broker.heard()

    def closed(self, error: Exception | None) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self.broker.client_gone(self, error)

    def dismiss(self, code: str, reason: str) -> None:
        """Close the connection, saying why."""
        self.connection.send(m.Failure(code, reason))
        self.connection.close()


class Link:
    """A link to a neighbor, made by either side."""

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        handshake: Handshake,
        origin: m.Origin,
        permissions: Permissions,
        place: Place,
        *,
        dialed: bool,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self._handshake = handshake
        self.origin = origin
        self.permissions = permissions
        #: What the neighbor is to this broker.
        self.place = place
        #: Whether this broker has made the connection.
        self.dialed = dialed
        #: None of these knows of this link, or they would keep each other when it is gone.
        self.queue = LinkQueue(
            limit=broker.settings.limits.link_queue,
            restart=lambda stream: broker.core.broken(stream, origin.stream),
        )
        self.transfer = Transfer(broker, connection, origin, permissions)
        self._taken = 0
        self.received_notifications = 0
        self.sent_notifications = 0

    @property
    def stream(self) -> str:
        return self.origin.stream

    @property
    def hello(self) -> m.Hello:
        """Who the neighbor has said that it is, if it has dialed."""
        return self._handshake.hello

    def heard(self, message: Any) -> Steps | None:
        """It says something; what is left to do of that, if it is much."""
        if self.broker.links.get(self.stream) is not self:
            return None  # it was replaced
        match self._handshake.hear(message):
            case None:
                pass
            case m.Pong() as answer:
                self.connection.send(answer)
            case Left(reason):
                self.transfer.lost(reason)
                _log.info("%s ends the link: %s", self.origin.broker, reason)
                self.connection.close()
            case m.Credit():
                self.queue.grant(message.more)
            case _ if self.transfer.hear(message):
                pass
            case _:
                if isinstance(message, m.Forward):
                    self._taken += len(message.items)
                    self.received_notifications += len(message.items)
                return self._stepwise(message)
        return None

    def _stepwise(self, message: Any) -> Steps:
        if isinstance(message, m.Fetch) and len(message.filter) > SHORT_FILTER:
            yield self.broker.parse(message.filter, parsed)
        if isinstance(message, m.Subscriptions | m.Advertisements):
            for _, text in message.added:
                if len(text) > SHORT_FILTER:
                    yield self.broker.parse(text, parsed)
        try:
            yield from self.broker.core.hear_neighbor(self.origin.stream, message)
        except ProtocolError:
            raise
        except StentorError as error:
            raise ProtocolError(f"what {self.origin.broker!r} sent is invalid: {error}") from error

    def dealt(self) -> None:
        """Something that it has said has been dealt with."""
        self.broker.heard()
        self.grant()
        self.flush()

    def grant(self) -> None:
        """Let the neighbor send more, unless a subscriber here makes publishers wait."""
        if self._taken >= LINK_WINDOW // 4 and not self.broker.core.congested:
            self.connection.send(m.Credit(0, self._taken))
            self._taken = 0

    def push(self, message: Any) -> None:
        self.queue.push(message)

    def flush(self) -> None:
        """Send as much as credit and the connection allow."""
        connection = self.connection
        while connection.writable and not connection.is_closing:
            found = self.queue.pop(AT_ONCE)
            if not found:
                return
            for message in found:
                if isinstance(message, m.Forward):
                    self.sent_notifications += len(message.items)
                connection.send(message)

    def writable_again(self) -> None:
        self.flush()

    def closed(self, error: Exception | None) -> None:
        self.transfer.lost(ShuttingDown("the link was lost"))
        self.broker.links.gone(self, error)


class Dialing:
    """The near end of a link that this broker makes."""

    def __init__(
        self, broker: Broker, address: str, place: Place, expected: str | None = None
    ) -> None:
        """`place` is what the neighbor is to this broker, `expected` its stream, if it is known."""
        self.broker = broker
        self.address = address
        self._place = place
        self._expected = expected
        self.link: Link | None = None
        self._backlog: Backlog | None = None
        #: Done when the connection is over, with what ended it.
        self.over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._reason: Exception | None = None
        self._patience: asyncio.TimerHandle | None = None

    def opened(self, connection: Connection) -> None:
        connection.max_open = ASK_FRAME
        connection.rota = self.broker.rota
        hello = self.broker.links.hello(self._place)
        self._handshake = Handshake(f"the broker at {self.address}", hello)
        connection.send(self._handshake.hello)
        # Whoever took the connection may never say a word: a host that hangs, a way that is cut.
        patience = min(HELLO_PATIENCE, self.broker.settings.limits.timeout)
        error = NoReply(f"no answer to Hello within {patience:g} seconds")
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(patience, connection.abort, error)

    def _hush(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def received(self, connection: Connection, messages: list[Any]) -> None:
        while messages and self.link is None:
            self._hush()
            first, *messages = messages
            match self._handshake.hear(first):
                case m.Pong() as answer:
                    connection.send(answer)
                case Left(reason):
                    self._reason = reason
                    connection.close()
                    return
                case m.Welcome():
                    try:
                        self.link = self._linked(connection)
                        self._backlog = Backlog(self.link)
                    except StentorError as error:
                        self._reason = error
                        connection.send(self._handshake.refuse(error))
                        connection.close()
                        return
        if messages and self._backlog is not None:
            self._backlog.add(messages)

    def _linked(self, connection: Connection) -> Link:
        broker = self.broker
        origin = self._handshake.neighbor(broker.core.routing.terms, self.address)
        if self._expected not in (None, origin.stream):
            raise LinkRefused(f"at {self.address} there is now another broker, {origin.broker!r}")
        permissions = broker.access.of_neighbor(connection.peer_certificate)
        return broker.links.made(
            connection, self._handshake, origin, permissions, self._place, dialed=True
        )

    def writable_again(self, connection: Connection) -> None:
        if self.link is not None:
            self.link.writable_again()

    def closed(self, connection: Connection, error: Exception | None) -> None:
        self._hush()
        if self.link is not None:
            self.link.closed(error)
        if not self.over.done():
            self.over.set_result(self._reason or error)


def _filters(message: Any) -> list[str]:
    """The filters that a client has written."""
    if isinstance(message, m.Amend):
        return [*message.added, *message.removed]
    asked = getattr(message, "filter", [])
    return [asked] if isinstance(asked, str) else asked
