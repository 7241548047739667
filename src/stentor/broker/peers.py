"""Both ends of what connects to a broker: clients, operators and other brokers.

Everyone who connects says `Hello` first, within `HELLO_PATIENCE`; what they are is decided then. A
`Guest` is a connection before that; it becomes a `Client` or a `Link`. The broker itself dials its
neighbors (`Dialing`) and is the guest there.

These classes turn events of a connection into calls of the host, `Broker`, and hold what belongs to
the connection, such as the credit of a link.

Nobody keeps the broker to itself. What a connection brings is dealt with for a few milliseconds,
message by message and long messages in steps (`Backlog`); then it is the turn of all others, and
nothing more is read from this one until its backlog is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stentor.broker.access import Permissions
from stentor.broker.adopting import RELEASED, Adoption, discard_offer, released
from stentor.broker.draining import acknowledged
from stentor.broker.outbox import LINK_WINDOW, Outbox
from stentor.errors import (
    JournalUnavailable,
    LinkRefused,
    NoReply,
    NotPermitted,
    Overloaded,
    ProtocolError,
    ShuttingDown,
    StentorError,
)
from stentor.node.reading import parsed, received
from stentor.protocol import messages as m
from stentor.transport import Connection

if TYPE_CHECKING:
    from stentor.broker.host import Broker

#: Seconds in which a connection has to say who it is.
HELLO_PATIENCE: Final = 10.0
#: Bytes that it may send until then.
HELLO_FRAME: Final = 64 * 1024
#: Connections that have not said who they are. The oldest has to go if there are more.
MAX_STRANGERS: Final = 1_000
#: Bytes that a question may have, which holds data of any shape.
ASK_FRAME: Final = 64 * 1024
#: Messages that go to a link before its connection is looked at again.
AT_ONCE: Final = 8
#: Seconds for which the messages of one connection are dealt with before others have their turn.
BUDGET: Final = 0.01

#: Characters of a filter that is short enough to be parsed between two other messages.
SHORT_FILTER: Final = 1_024

Steps: TypeAlias = Iterator[asyncio.Future[Any] | None]
_DONE: Final = object()


class Backlog:
    """What a connection has brought and was not dealt with yet."""

    def __init__(
        self,
        connection: Connection,
        deal: Callable[[Any], Steps | None],
        afterwards: Callable[[], object],
    ) -> None:
        """`deal` takes a message and returns what is left to do of it, if that is much.

        A step may give something that has to be waited for before the next one.
        """
        self._connection = connection
        self._deal = deal
        self._afterwards = afterwards
        self._messages: deque[Any] = deque()
        #: The message that is being dealt with.
        self._steps: Steps | None = None
        self._is_waiting = False

    def add(self, messages: list[Any]) -> None:
        """Deal with these, behind what there is; raise what is wrong with them."""
        self._messages.extend(messages)
        if not self._is_waiting:
            self._work()

    def _work(self) -> None:
        connection, messages = self._connection, self._messages
        deadline = monotonic() + BUDGET
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
                    self._steps = self._deal(messages.popleft())
                else:
                    break
                if (self._steps or messages) and monotonic() > deadline:
                    self._wait()
                    asyncio.get_running_loop().call_soon(self._go_on)
                    break
        finally:
            self._afterwards()

    def _wait(self) -> None:
        self._is_waiting = self._connection.busy = True

    def _go_on(self, *_: object) -> None:
        self._is_waiting = self._connection.busy = False
        self._connection.attempt(self._work)


class Guest:
    """A connection that somebody has made to this broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connection: Connection | None = None
        self._role: Client | Link | None = None
        self._patience: asyncio.TimerHandle | None = None

    def opened(self, connection: Connection) -> None:
        self.connection = connection
        connection.max_open = ASK_FRAME
        connection.room = self.broker.room
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
        self.connection.send(m.Failure(error.code, str(error)))
        self.connection.close()

    def received(self, connection: Connection, messages: list[Any]) -> None:
        if self._role is None:
            hello = messages[0]
            if not isinstance(hello, m.Hello):
                raise ProtocolError(f"the first message must be Hello, not {type(hello).__name__}")
            self._hush()
            self.broker.strangers.pop(self, None)
            try:
                self._role = self.broker.admit(self, connection, hello)
            except ProtocolError:
                raise
            except StentorError as error:
                self.broker.refused(connection, hello, error)
                connection.send(m.Failure(error.code, str(error)))
                connection.close()
                return
            connection.max_frame = self.broker.settings.limits.frame
            messages = messages[1:]
        if messages:
            self._role.received(messages)

    def writable_again(self, connection: Connection) -> None:
        if self._role is not None:
            self._role.writable_again()

    def closed(self, connection: Connection, error: Exception | None) -> None:
        self._hush()
        self.broker.guests.discard(self)
        self.broker.strangers.pop(self, None)
        if self._role is not None:
            self._role.closed(error)

    def _hush(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class Client:
    """A connected client or operator."""

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        id: int,
        producer: str,
        name: str,
        permissions: Permissions,
        *,
        is_operator: bool = False,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.id = id
        self.producer = producer
        self.name = name
        self.permissions = permissions
        self.is_operator = is_operator
        #: Questions that are not answered yet.
        self.questions = 0
        self.received = Backlog(connection, self._heard, self._dealt).add

    def _heard(self, message: Any) -> Steps | None:
        if isinstance(message, m.Publish) and not self.is_operator:
            return self.broker.core.hear(self.id, message)
        if isinstance(message, m.Ping):
            self.connection.send(m.Pong())
        elif isinstance(message, m.Ask):
            self.broker.asked(self, message)
        elif isinstance(message, m.Goodbye):
            self.connection.close()
        elif isinstance(message, m.Pong):
            pass
        elif self.is_operator:
            raise ProtocolError(f"an operator cannot send {type(message).__name__}")
        else:
            texts = _filters(message)
            if sum(map(len, texts)) > SHORT_FILTER:
                return self._after_parsing(message, texts)
            return self.broker.core.hear(self.id, message)
        return None

    def _after_parsing(self, message: Any, texts: list[str]) -> Steps:
        for text in texts:
            yield self.broker.parse(text, received)
        yield from self.broker.core.hear(self.id, message) or ()

    def _dealt(self) -> None:
        self.broker.changed()
        if self.broker.journal.full:
            self.broker.hold_back(self.connection)

    def send(self, message: Any) -> None:
        connection = self.connection
        connection.send(message)
        if not connection.writable:
            self.broker.core.block(self.id)

    def writable_again(self) -> None:
        self.broker.core.unblock(self.id)
        self.broker.changed()

    def closed(self, error: Exception | None) -> None:
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
        origin: m.Origin,
        permissions: Permissions,
        dialed: bool,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.origin = origin
        self.permissions = permissions
        #: Whether this broker has made the connection.
        self.dialed = dialed
        self.outbox = Outbox(limit=broker.settings.limits.link_queue, restart=self._restart)
        self._taken = 0
        self.received = Backlog(connection, self._heard, self._dealt).add
        #: Set while this broker hands over to the neighbor.
        self.handed_over: asyncio.Future[None] | None = None
        self._adoption: Adoption | None = None
        #: Whether an offer of the neighbor was refused. What is still to come of it is ignored.
        self._refused = False
        #: Whether the neighbor has said anything yet as the owner of its stream.
        self._is_heard = False
        #: The journal that this neighbor has handed over, to be served when it is gone.
        self.legacy: Path | None = None
        self.received_notifications = 0
        self.sent_notifications = 0

    def _restart(self, stream: m.StreamId) -> m.Streams | None:
        """The word that a stream begins afresh, for this neighbor."""
        return self.broker.core.broken(stream, self.stream)

    @property
    def stream(self) -> str:
        return self.origin.stream

    def _heard(self, message: Any) -> Steps | None:
        stream = self.origin.stream
        if self.broker.links.get(stream) is not self:
            return None  # it was replaced
        if isinstance(message, m.Credit):
            self.outbox.grant(message.more)
        elif isinstance(message, m.Ping):
            self.connection.send(m.Pong())
        elif isinstance(message, m.Pong):
            pass
        elif isinstance(message, m.Handover):
            self._adopt(message)
        elif isinstance(message, m.HandedOver):
            if self.handed_over is None:
                acknowledged(self.broker, self)
            self._answered(None)
        elif isinstance(message, m.Failure) and self.handed_over is not None:
            self._answered(JournalUnavailable(message.message))
        elif isinstance(message, m.Failure | m.Goodbye):
            self.broker.link_ending(self, message)
        else:
            if isinstance(message, m.Forward):
                self._taken += len(message.items)
                self.received_notifications += len(message.items)
            if not self._is_heard:
                self._is_heard = True
                discard_offer(self.broker.settings.data, stream)
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
            raise ProtocolError(f"what {self.origin.broker!r} sent is no good: {error}") from error

    def _dealt(self) -> None:
        self.broker.changed()
        self.grant()
        self.flush()

    def grant(self) -> None:
        """Let the neighbor send more, unless a subscriber here makes publishers wait."""
        if self._taken >= LINK_WINDOW // 4 and not self.broker.core.congested:
            self.connection.send(m.Credit(0, self._taken))
            self._taken = 0

    def _adopt(self, piece: m.Handover) -> None:
        """The neighbor is about to go and hands its journal over."""
        if piece.file == RELEASED:
            released(self.broker, self, piece.data.decode(errors="replace"))
            return
        if self._refused:
            return
        if self.permissions.rights is not None:
            text = "its grant limits what it may publish or see, so its journal is not taken over"
            self._refuse(NotPermitted(text))
            return
        try:
            if self._adoption is None:
                self._adoption = Adoption(
                    self.broker.settings.data, self.stream, self.permissions.name
                )
            if self._adoption.take(piece):
                self.broker.adopt_soon(self._verify(self._adoption))
        except JournalUnavailable as error:
            self._refuse(error)

    async def _verify(self, adoption: Adoption) -> None:
        """Everything is there: answer whether it is good."""
        try:
            await asyncio.to_thread(adoption.verify)
            if self._adoption is adoption and not self.connection.is_closing:
                adoption.keep()
                self._adoption = None
                self.connection.send(m.HandedOver())
        except StentorError as error:
            self._refuse(error)
        finally:
            adoption.abandon()

    def _refuse(self, error: StentorError) -> None:
        self._refused = True
        adoption, self._adoption = self._adoption, None
        if adoption is not None:
            adoption.abandon()
        self.connection.send(m.Failure(error.code, str(error)))

    def expect_handed_over(self) -> asyncio.Future[None]:
        """Done when the neighbor says `HandedOver`; fails when it refuses or is lost."""
        self.handed_over = asyncio.get_running_loop().create_future()
        return self.handed_over

    def _answered(self, error: Exception | None) -> None:
        """The neighbor has taken over what this broker handed it, or could not."""
        waiting, self.handed_over = self.handed_over, None
        if waiting is not None and not waiting.done():
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

    def push(self, message: Any) -> None:
        self.outbox.push(message)

    def flush(self) -> None:
        """Send as much as credit and the connection allow."""
        connection = self.connection
        while connection.writable and not connection.is_closing:
            found = self.outbox.pop(AT_ONCE)
            if not found:
                return
            for message in found:
                if isinstance(message, m.Forward):
                    self.sent_notifications += len(message.items)
                connection.send(message)

    def writable_again(self) -> None:
        self.flush()

    def closed(self, error: Exception | None) -> None:
        self._answered(ShuttingDown("the link was lost"))
        adoption, self._adoption = self._adoption, None
        if adoption is not None:
            adoption.abandon()
        self.broker.link_gone(self, error)


class Dialing:
    """The near end of a link that this broker makes."""

    def __init__(self, broker: Broker, address: str) -> None:
        self.broker = broker
        self.address = address
        self.link: Link | None = None
        #: Done when the connection is over, with what ended it.
        self.over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._reason: Exception | None = None
        self._patience: asyncio.TimerHandle | None = None

    def opened(self, connection: Connection) -> None:
        connection.max_open = ASK_FRAME
        connection.send(self.broker.hello())
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
        if self.link is None:
            self._hush()
            first = messages[0]
            if isinstance(first, m.Failure):
                self._reason = _as_error(first)
                connection.close()
                return
            if not isinstance(first, m.Welcome):
                raise ProtocolError(f"Hello is answered by Welcome, not {type(first).__name__}")
            origin = m.Origin(first.stream, first.broker, tuple(first.addresses) or (self.address,))
            try:
                self.broker.check_terms(first.broker, first.terms)
                permissions = self.broker.access.of_neighbor(connection.peer_certificate)
                self.link = self.broker.link_made(connection, origin, permissions, dialed=True)
            except StentorError as error:
                self._reason = error
                connection.send(m.Goodbye(str(error)))
                connection.close()
                return
            messages = messages[1:]
        if messages:
            self.link.received(messages)

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


def _as_error(failure: m.Failure) -> StentorError:
    for kind in (LinkRefused, Overloaded):
        if failure.code == kind.code:
            return kind(failure.message)
    return StentorError(f"{failure.code}: {failure.message}")
