"""`TestBroker` and `AsyncTestBroker`: what a test calls, with and without async."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, TypeVar

from stentor.broker import Settings
from stentor.client import Bus, SyncBus, connect, connect_sync
from stentor.client.clock import clock
from stentor.errors import InvalidConfiguration, StentorError
from stentor.model import Notification
from stentor.notation.units import seconds_of
from stentor.testing.notes import Delivery, Pattern
from stentor.testing.stage import Stage, loop_thread

T = TypeVar("T")

#: Seconds that an assertion waits for what is on its way.
PATIENCE: Final = 2.0


class TestBroker:
    """A broker for a test, whose calls wait. Made by `stentor.testing.broker`, or by the fixture.

    In a test with an event loop, `broker.aio` has the same calls to be awaited.
    """

    __test__ = False  # pytest takes it for a class of tests otherwise

    def __init__(self, settings: Settings) -> None:
        self._stage = Stage(settings)
        self._buses: list[SyncBus] = []
        #: Those that end with this one, whichever way they were made and this one is closed.
        self._others: list[TestBroker] = []
        #: The same with `await`.
        self.aio = AsyncTestBroker(self)

    def __repr__(self) -> str:
        state = "stopped" if self._stage.broker is None else "running"
        return f"<TestBroker {self.name!r} at {self.address}, {state}>"

    # -- life

    @property
    def address(self) -> str:
        """Where it listens, for `stentor.connect` and for programs under test."""
        return self._stage.address

    @property
    def name(self) -> str:
        return self._stage.settings.name or self.address

    @property
    def now(self) -> datetime:
        """What time it is for the broker and for the clients of this process."""
        return datetime.now(UTC) + timedelta(seconds=clock.ahead)

    def start(self) -> TestBroker:
        """Start, or start again where it was."""
        self._call(self._stage.start())
        return self

    def stop(self) -> None:
        """Stop in good order; without a directory its journal is gone."""
        self._call(self._stage.stop())

    def close(self) -> None:
        """End it, and the buses and brokers that were made by it."""
        for bus in self._buses:
            try:
                bus.close()
            except StentorError:
                continue  # of what a test has left unfinished nobody wants to hear
        for other in self._others:
            other.close()
        self._call(self._stage.end())

    def __enter__(self) -> TestBroker:
        return self.start() if self._stage.broker is None else self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def connect(self, **options: Any) -> SyncBus:
        """A bus at this broker. It is closed with the broker, if the test does not close it."""
        bus = connect_sync(self.address, **{"close_timeout": 1.0, **options})
        self._buses.append(bus)
        return bus

    def neighbor(self, **settings: Any) -> TestBroker:
        """Another broker, linked with this one; it ends with this one."""
        other = broker(**settings)
        self._others.append(other)
        other.start()
        self._call(self._stage.link(other._stage))
        return other

    # -- time

    def advance(self, duration: str | float | timedelta) -> None:
        """Let time pass without waiting: deadlines, delays, expiry, retries, leases.

        It is at rest when this returns: what became due was delivered, and handlers have run.
        """
        self._call(self._stage.advance(seconds_of(duration, "duration")))

    def settle(self) -> None:
        """Wait until what was published is delivered, and what was given to handlers is settled."""
        self._call(self._stage.rest())

    # -- what happened

    @property
    def published(self) -> list[Notification]:
        """What the broker has routed, the oldest first."""
        return list(self._stage.notes.routed)

    @property
    def deliveries(self) -> list[Delivery]:
        """What it has sent to clients, the oldest first."""
        return list(self._stage.notes.deliveries)

    def forget(self) -> None:
        """Begin anew with `published` and `deliveries`."""
        self._stage.notes.clear()

    def assert_delivered(
        self, pattern: Pattern, *, to: str | None = None, count: int = 1, timeout: float = PATIENCE
    ) -> Notification:
        """Wait until something that fits was delivered; the last one. Else say why it was not.

        The pattern is a mapping of attributes (others may be there as well), a filter, or an event
        class. `to` is the name of a client, a durable subscription or a group.
        """
        __tracebackhide__ = True
        found = self._call(self._stage.until_delivered(pattern, to, count, timeout))
        return found[-1].notification

    def assert_nothing_delivered(
        self, pattern: Pattern | None = None, *, to: str | None = None
    ) -> None:
        """Wait until all is at rest, and see that nothing that fits was delivered."""
        __tracebackhide__ = True
        self._call(self._stage.nothing_delivered(pattern, to))

    # -- faults

    def cut(self, name: str | SyncBus | Bus) -> None:
        """Cut the connection of a client, or the link with a broker, without a goodbye.

        Both try to connect again by themselves.
        """
        self._call(self._stage.cut(name if isinstance(name, str) else name.name))

    def partition(self, other: TestBroker) -> None:
        """Cut the link with another broker until `heal`."""
        self._call(self._stage.unlink(other._stage))

    def heal(self, other: TestBroker) -> None:
        """Link with another broker again."""
        self._call(self._stage.link(other._stage))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True  # pytest shows the line of the test, which is what matters
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise InvalidConfiguration(
                "this would hold up the event loop, and with it the clients of the test; await the "
                "same call of `broker.aio`"
            )
        try:
            return loop_thread().call(work)
        except AssertionError as error:
            raise error.with_traceback(None) from None


class AsyncTestBroker:
    """A broker for a test with an event loop: the calls of `TestBroker`, to be awaited."""

    __test__ = False

    def __init__(self, broker: TestBroker) -> None:
        self._broker = broker
        self._stage = broker._stage
        self._buses: list[Bus] = []

    def __repr__(self) -> str:
        return f"<Async{repr(self._broker)[1:]}"

    @property
    def address(self) -> str:
        """See `TestBroker.address`."""
        return self._broker.address

    @property
    def name(self) -> str:
        return self._broker.name

    @property
    def now(self) -> datetime:
        """See `TestBroker.now`."""
        return self._broker.now

    @property
    def published(self) -> list[Notification]:
        """See `TestBroker.published`."""
        return self._broker.published

    @property
    def deliveries(self) -> list[Delivery]:
        """See `TestBroker.deliveries`."""
        return self._broker.deliveries

    def forget(self) -> None:
        """See `TestBroker.forget`."""
        self._broker.forget()

    def connect(self, **options: Any) -> Bus:
        """A bus at this broker, to be opened by `async with` or `await`."""
        bus = connect(self.address, **{"close_timeout": 1.0, **options})
        self._buses.append(bus)
        return bus

    async def start(self) -> AsyncTestBroker:
        """See `TestBroker.start`."""
        await _called(self._stage.start())
        return self

    async def stop(self) -> None:
        """See `TestBroker.stop`."""
        await _called(self._stage.stop())

    async def close(self) -> None:
        """See `TestBroker.close`."""
        for bus in self._buses:
            try:
                await bus.close()
            except StentorError:
                continue
        for other in self._broker._others:
            await other.aio.close()
        await _called(self._stage.end())

    async def __aenter__(self) -> AsyncTestBroker:
        return await self.start() if self._stage.broker is None else self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def neighbor(self, **settings: Any) -> AsyncTestBroker:
        """See `TestBroker.neighbor`."""
        other = broker(**settings)
        self._broker._others.append(other)
        await other.aio.start()
        await _called(self._stage.link(other._stage))
        return other.aio

    async def advance(self, duration: str | float | timedelta) -> None:
        """See `TestBroker.advance`."""
        await _called(self._stage.advance(seconds_of(duration, "duration")))

    async def settle(self) -> None:
        """See `TestBroker.settle`."""
        await _called(self._stage.rest())

    async def assert_delivered(
        self, pattern: Pattern, *, to: str | None = None, count: int = 1, timeout: float = PATIENCE
    ) -> Notification:
        """See `TestBroker.assert_delivered`."""
        found = await _called(self._stage.until_delivered(pattern, to, count, timeout))
        return found[-1].notification

    async def assert_nothing_delivered(
        self, pattern: Pattern | None = None, *, to: str | None = None
    ) -> None:
        """See `TestBroker.assert_nothing_delivered`."""
        await _called(self._stage.nothing_delivered(pattern, to))

    async def cut(self, name: str | Bus) -> None:
        """See `TestBroker.cut`."""
        await _called(self._stage.cut(name if isinstance(name, str) else name.name))

    async def partition(self, other: AsyncTestBroker) -> None:
        """See `TestBroker.partition`."""
        await _called(self._stage.unlink(other._stage))

    async def heal(self, other: AsyncTestBroker) -> None:
        """See `TestBroker.heal`."""
        await _called(self._stage.link(other._stage))


async def _called(work: Coroutine[Any, Any, T]) -> T:
    """Do something in the thread of the brokers, while the loop of the test goes on."""
    return await asyncio.wrap_future(loop_thread().submit(work))


def broker(**settings: Any) -> TestBroker:
    """A broker for a test, to be started by `with`; `broker().aio` by `async with`.

    It listens on a free port of this machine and keeps its journal in memory, unless the settings,
    which are those of `stentor.broker.Settings`, say otherwise.
    """
    known = Settings(**settings)
    if "listen" not in settings:
        known = replace(known, listen=("127.0.0.1:0",))
    return TestBroker(known)
