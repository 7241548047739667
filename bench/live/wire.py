"""A client at the level of the protocol: messages in, messages out, nothing in between.

Load that is made by the client library costs more than the broker that carries it. To see what the
broker itself can do, publications are prepared before the clock runs, and what is delivered is
counted without being decoded. Mosquitto's own tools do just that: they send lines of text that are
ready, and hand on what comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from stentor.errors import error_of
from stentor.protocol import messages as m
from stentor.protocol.handshake import Handshake, Left, hello
from stentor.transport import Connection, connect


class Wire:
    """One connection."""

    def __init__(
        self, name: str, heard: Callable[[Any], None] | None = None, *, role: str = "client"
    ) -> None:
        """`heard` is called with every message that is not about the connection.

        Without it, all that is of interest are answers to requests.
        """
        self._name = name
        self._heard = heard or self._answered
        self._role = role
        self._connection: Connection | None = None
        self._welcome: m.Welcome | None = None
        self._answer: Any = None
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closing = False
        self._closed = False
        self._error: Exception | None = None

    async def open(self, address: str) -> m.Welcome:
        """Connect and be welcomed."""
        await connect(address, self)
        while self._welcome is None:
            await self.changed()
        return self._welcome

    def send(self, message: Any) -> None:
        assert self._connection is not None
        self._connection.send(message)
        if not self._connection.writable:
            self._writable.clear()

    async def writable(self) -> None:
        """Until what was sent has mostly been taken."""
        await self._writable.wait()

    def wake(self) -> None:
        """Something that was heard is worth waking up for."""
        self._news.set()

    async def changed(self) -> None:
        """Until `wake` is called. An error if the connection is lost instead."""
        if not self._closed:
            self._news.clear()
            await self._news.wait()
        if self._closed and not self._closing:
            raise self._error or ConnectionError("the broker closed the connection")

    async def request(self, message: m.Subscribe | m.Ask) -> Any:
        """Send a request and wait for its answer, one at a time."""
        self._answer = None
        self.send(message)
        while self._answer is None:
            await self.changed()
        return self._answer

    def _answered(self, message: Any) -> None:
        if isinstance(message, m.Subscribed | m.Done):
            self._answer = message
            self.wake()

    async def close(self) -> None:
        """Say goodbye, and wait until the broker has closed, too."""
        assert self._connection is not None
        self._closing = True
        self._connection.send(m.Goodbye())
        self._connection.close()
        while not self._closed:
            await self.changed()

    # -- called by the connection

    def opened(self, connection: Connection) -> None:
        self._connection = connection
        self._handshake = Handshake("the broker", hello(self._role, self._name))
        connection.send(self._handshake.hello)

    def received(self, connection: Connection, messages: list[Any]) -> None:
        for message in messages:
            match self._handshake.hear(message):
                case None:
                    pass
                case m.Pong() as answer:
                    connection.send(answer)
                case m.Welcome() as welcome:
                    self._welcome = welcome
                    self.wake()
                case Left(reason):
                    self._error = reason
                    connection.close()
                case m.Failure(code, text):
                    self._error = error_of(code, text)
                    connection.close()
                case _:
                    self._heard(message)

    def writable_again(self, connection: Connection) -> None:
        self._writable.set()

    def closed(self, connection: Connection, error: Exception | None) -> None:
        self._error = self._error or error
        self._closed = True
        self._writable.set()
        self.wake()


async def ask(address: str, what: str) -> Any:
    """A broker's answer to an operator's question."""
    wire = Wire("operator", role="operator")
    await wire.open(address)
    done = await wire.request(m.Ask(1, what))
    await wire.close()
    return done.data


async def hold_filters(address: str, name: str, filters: list[str]) -> Wire:
    """A client with many subscriptions, all in force."""
    waiting = set(range(len(filters)))

    def heard(message: Any) -> None:
        if isinstance(message, m.Subscribed):
            waiting.discard(message.number)
            if not waiting:
                wire.wake()

    wire = Wire(name, heard)
    await wire.open(address)
    for number, filter in enumerate(filters):
        wire.send(m.Subscribe(number, filter, 1_000))
        await wire.writable()
    while waiting:
        await wire.changed()
    return wire
