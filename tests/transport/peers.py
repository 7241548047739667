"""Both ends of connections for tests: handlers that remember, and loops to run them on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from stentor.protocol.messages import AnyMessage
from stentor.transport import Connection

#: Seconds after which something that should have happened counts as a hang.
PATIENCE = 20.0

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def _run_asyncio(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(_watched(main))


def _run_uvloop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(_watched(main))


async def _watched(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs the test; whatever the loop would only have logged fails it."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with asyncio.timeout(3 * PATIENCE):
        await main()
    assert not complaints


#: Runs a test on each kind of event loop.
on_each_loop = pytest.mark.parametrize(
    "run", [pytest.param(_run_asyncio, id="asyncio"), pytest.param(_run_uvloop, id="uvloop")]
)


class Recorder:
    """A handler that remembers everything and can be awaited."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.batches: list[list[AnyMessage]] = []
        self.drained = 0
        self.error: Exception | None = None
        self.closings = 0
        self._changed = asyncio.Event()

    @property
    def messages(self) -> list[AnyMessage]:
        return [message for batch in self.batches for message in batch]

    @property
    def link(self) -> Connection:
        assert self.connection is not None
        return self.connection

    def opened(self, connection: Connection) -> None:
        assert self.connection is None
        self.connection = connection
        self._changed.set()

    def received(self, connection: Connection, messages: list[AnyMessage]) -> None:
        assert connection is self.connection
        assert messages
        assert not self.closings
        self.batches.append(messages)
        self._changed.set()

    def writable_again(self, connection: Connection) -> None:
        self.drained += 1
        self._changed.set()

    def closed(self, connection: Connection, error: Exception | None) -> None:
        assert connection is self.connection
        self.error = error
        self.closings += 1
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was recorded fulfills the condition."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_received(self, count: int = 1) -> None:
        await self.until(lambda: sum(map(len, self.batches)) >= count)

    async def until_closed(self) -> Exception | None:
        await self.until(lambda: self.closings > 0)
        return self.error


class Echo(Recorder):
    """Sends everything back, and reads no faster than that is taken."""

    def received(self, connection: Connection, messages: list[AnyMessage]) -> None:
        super().received(connection, messages)
        for message in messages:
            connection.send(message)
        if not connection.writable:
            connection.pause_reading()

    def writable_again(self, connection: Connection) -> None:
        super().writable_again(connection)
        connection.resume_reading()


class Made:
    """Makes handlers for `serve`, and keeps them."""

    def __init__(self, kind: Callable[[], Recorder] = Recorder) -> None:
        self._kind = kind
        self.handlers: list[Recorder] = []
        self._more = asyncio.Event()

    def __call__(self) -> Recorder:
        handler = self._kind()
        self.handlers.append(handler)
        self._more.set()
        return handler

    async def first(self) -> Recorder:
        """The handler of the first connection, as soon as that is open."""
        async with asyncio.timeout(PATIENCE):
            while not self.handlers:
                self._more.clear()
                await self._more.wait()
        handler = self.handlers[0]
        await handler.until(lambda: handler.connection is not None)
        return handler
