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

from stentor.protocol import messages as m
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
        self._heard = heard
        self._role = role
        self._connection: Connection | None = None
        loop = asyncio.get_running_loop()
        self._welcome: asyncio.Future[m.Welcome] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()
        self._answer: asyncio.Future[Any] = loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()

    async def open(self, address: str) -> m.Welcome:
        """Connect and be welcomed."""
        await connect(address, self)
        return await self._welcome

    def send(self, message: Any) -> None:
        assert self._connection is not None
        self._connection.send(message)
        if not self._connection.writable:
            self._writable.clear()

    async def writable(self) -> None:
        """Until what was sent has mostly been taken."""
        await self._writable.wait()

    async def request(self, message: m.Subscribe | m.Ask) -> Any:
        """Send a request and wait for its answer, one at a time."""
        self._answer = asyncio.get_running_loop().create_future()
        self.send(message)
        return await self._answer

    async def close(self) -> None:
        """Say goodbye, and wait until the broker has closed, too."""
        assert self._connection is not None
        self._connection.send(m.Goodbye())
        self._connection.close()
        await self._over

    # -- called by the connection

    def opened(self, connection: Connection) -> None:
        self._connection = connection
        connection.send(m.Hello(list(m.VERSIONS), self._role, self._name))

    def received(self, connection: Connection, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, m.Ping):
                connection.send(m.Pong())
            elif isinstance(message, m.Welcome):
                self._welcome.set_result(message)
            elif isinstance(message, m.Failure):
                raise RuntimeError(f"{message.code}: {message.message}")
            elif self._heard is not None:
                self._heard(message)
            elif isinstance(message, m.Subscribed | m.Done) and not self._answer.done():
                self._answer.set_result(message)

    def writable_again(self, connection: Connection) -> None:
        self._writable.set()

    def closed(self, connection: Connection, error: Exception | None) -> None:
        if not self._welcome.done():
            self._welcome.set_exception(error or RuntimeError("the broker closed the connection"))
        if not self._over.done():
            self._over.set_result(None)


async def ask(address: str, what: str) -> Any:
    """A broker's answer to an operator's question."""
    wire = Wire("operator", role="operator")
    await wire.open(address)
    done = await wire.request(m.Ask(1, what))
    await wire.close()
    return done.data


async def hold_filters(address: str, filters: list[str]) -> Wire:
    """A client with many subscriptions, all in force."""
    waiting = len(filters)
    done = asyncio.Event()

    def heard(message: Any) -> None:
        nonlocal waiting
        if isinstance(message, m.Subscribed):
            waiting -= 1
            if not waiting:
                done.set()

    wire = Wire("holder", heard)
    await wire.open(address)
    for number, filter in enumerate(filters):
        wire.send(m.Subscribe(number, filter, 1_000))
        await wire.writable()
    if filters:
        await done.wait()
    return wire
