"""A connection to one broker for asking it things: status, links, drain, offers.

It is shorter than a client's: nothing is published, delivered or made again when it is lost. An
operator is told at once, and by name, what is wrong.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import Any

from stentor.cli.options import Connecting
from stentor.errors import NoReply, ProtocolError, StentorError, Unreachable, error_of
from stentor.protocol import messages as m
from stentor.protocol.handshake import Handshake, Left, hello
from stentor.transport import Connection, client_context, connect

#: Bytes of the largest answer: the status of a broker with very many clients.
_MAX_FRAME = 256 * 2**20


class Operator:
    """Asks a broker. Opened by `async with`; the first address that answers is used."""

    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self._connection: Connection | None = None
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._welcome: asyncio.Future[m.Welcome] | None = None
        self._error: StentorError | None = None
        self.address = ""

    async def __aenter__(self) -> Operator:
        files = self._connecting.tls
        tls = None if files is None else client_context(**files)
        *first, last = self._connecting.addresses
        for address in first:
            try:
                await self._open(address, tls)
            except Unreachable:
                continue
            return self
        await self._open(last, tls)
        return self

    async def _open(self, address: str, tls: Any) -> None:
        timeout = self._connecting.timeout
        self._welcome = asyncio.get_running_loop().create_future()
        self._error = None
        self._connection = await connect(
            address, self, tls=tls, timeout=timeout, max_frame=_MAX_FRAME
        )
        try:
            async with asyncio.timeout(timeout):
                await self._welcome
        except TimeoutError:
            self._connection.abort()
            raise NoReply(
                f"{address} did not answer within {timeout:g} s; is that a Stentor broker?"
            ) from None
        self.address = address

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.send(m.Goodbye())
            self._connection.close()

    async def ask(self, what: str, timeout: float | None = None, **arguments: Any) -> Any:
        """The broker's answer, or the error that it reports."""
        if self._error is not None:
            raise self._error
        assert self._connection is not None
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._connection.send(m.Ask(number, what, arguments))
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise NoReply(f"{self.address} did not answer within {timeout:g} s") from None
        finally:
            self._answers.pop(number, None)

    # -- told by the connection

    def opened(self, connection: Connection) -> None:
        name = f"operator-{secrets.token_hex(6)}"
        said = hello("operator", name, self._connecting.token)
        self._handshake = Handshake(str(connection.address), said)
        connection.send(said)

    def received(self, connection: Connection, messages: list[m.AnyMessage]) -> None:
        assert self._welcome is not None
        for message in messages:
            match self._handshake.hear(message):
                case None:
                    pass
                case m.Pong() as answer:
                    connection.send(answer)
                case m.Welcome() as welcome:
                    self._welcome.set_result(welcome)
                case Left(reason):
                    self._fail(reason)
                case m.Done(number, data):
                    self._settle(number, data, None)
                case m.Failure(code, text, number):
                    self._settle(number, None, error_of(code, text))
                case _:
                    raise ProtocolError(f"{type(message).__name__} was not asked for")

    def _settle(self, number: int | None, data: Any, error: StentorError | None) -> None:
        answer = self._answers.get(number or 0)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(data)
        else:
            answer.set_exception(error)

    def _fail(self, error: StentorError) -> None:
        """Nothing more will come; the first reason is the one that counts."""
        if self._error is None:
            self._error = error
        for future in (self._welcome, *self._answers.values()):
            if future is not None and not future.done():
                future.set_exception(self._error)
                future.exception()  # it counts as seen even if nobody waits any more

    def writable_again(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection, error: Exception | None) -> None:
        if isinstance(error, StentorError):
            self._fail(error)
        else:
            self._fail(Unreachable(f"{connection.address} has closed the connection"))
