"""Waiting for answers: futures, several at once, time limits."""

from __future__ import annotations

import asyncio
from types import TracebackType

from stentor.client.outbox import Waiter
from stentor.errors import InvalidConfiguration, NoReply, StentorError


def settles(future: asyncio.Future[None]) -> Waiter:
    """A waiter that passes its news on to a future."""

    def waiter(error: StentorError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return waiter


def checked_seconds(timeout: float | None) -> float | None:
    """The timeout, if it is one: other durations may be written `"10s"`, and this looks like them.

    >>> checked_seconds("3s")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    stentor.errors.InvalidConfiguration: a timeout is a number of seconds, such as 2.5, and not '3s'
    """
    if timeout is not None and not isinstance(timeout, int | float):
        raise InvalidConfiguration(
            f"a timeout is a number of seconds, such as 2.5, and not {timeout!r}"
        )
    return timeout


class TimeLimit:
    """`NoReply` if what is inside takes longer; no limit if that is None."""

    __slots__ = ("_seconds", "_timeout", "_what")

    def __init__(self, seconds: float | None, what: str) -> None:
        self._seconds = checked_seconds(seconds)
        self._what = what
        self._timeout: asyncio.Timeout | None = None

    async def __aenter__(self) -> None:
        if self._seconds is not None:
            self._timeout = asyncio.timeout(self._seconds)
            await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timeout is None:
            return
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise NoReply(f"{self._what} within {self._seconds:g} seconds") from error


class Collector:
    """Waits for several publications at once."""

    def __init__(self) -> None:
        self._waiting = 0
        self._error: StentorError | None = None
        self._done: asyncio.Future[None] | None = None

    def waiter(self) -> Waiter:
        self._waiting += 1
        return self._answered

    def _answered(self, error: StentorError | None) -> None:
        self._waiting -= 1
        if self._error is None:
            self._error = error
        if not self._waiting and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def done(self) -> None:
        if self._waiting:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        if self._error is not None:
            raise self._error
