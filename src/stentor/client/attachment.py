"""How a subscription is attached to the broker where it lives.

A subscription outlives connections, and a group or a durable subscription may live at another
broker than the one to which its client is connected. Here is over which connection it is asked for,
under which number, and whether it is in force there. A question about it that is not answered when
the connection is lost is put again over the next one, until it is answered or the subscription is
over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from stentor.client.backoff import Backoff
from stentor.errors import InvalidConfiguration, NoReply, StentorError

if TYPE_CHECKING:
    from stentor.client.local_broker import LocalBroker
    from stentor.client.uplink import Uplink

#: Seconds at most between two questions where a group or a durable subscription lives.
PATIENCE: Final = 2.0


class _Again:
    pass


#: In place of an answer that was lost with its connection.
AGAIN: Final = _Again()


class Attachment:
    """Where a subscription lives, and what is asked there."""

    def __init__(self, local: LocalBroker) -> None:
        self.local = local
        #: By which the broker knows it; 0 before it has begun.
        self.number = 0
        self.link: Uplink | None = None
        #: Whether the broker has said over this connection that it is in force, and how often ever.
        self.in_force = False
        self.granted = 0
        #: Whether nothing more will come in any case, and why.
        self.over = False
        self.error: StentorError | None = None
        #: How often it was sent on since it was in force last.
        self.moves = 0
        self.patience = Backoff(longest=PATIENCE)
        #: Whether the broker where it lives could not be reached; and whether other brokers can.
        self.waits = False
        self.cut_off = False
        self._changed: list[asyncio.Future[None]] = []
        #: Answers to questions, which are put again if the connection is lost.
        self._asked: list[asyncio.Future[Any]] = []
        #: The loop and the thread in which it lives.
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread: int | None = None

    def begin(self) -> None:
        """It is to be asked for, with a number of its own."""
        if self.number:
            raise InvalidConfiguration("a subscription begins only once; make another")
        self.local.check_open()
        self._loop, self.thread = self.local.loop, get_ident()
        self.number = self.local.number()

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call this soon in the thread where it lives."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(function, *arguments)

    # -- coming and going

    def made(self) -> None:
        """It is in force."""
        self.in_force = True
        self.granted += 1
        self.moves = 0
        self.waits = self.cut_off = False
        self.patience.reset()

    def wait(self, *, cut_off: bool) -> None:
        """The broker where it lives cannot be reached; or it only moves, if not `cut_off`."""
        self.waits, self.cut_off, self.moves = True, cut_off, 0

    def lost(self) -> None:
        """It is in force no longer; questions have to be put again."""
        self.in_force = False
        for answer in self._asked:
            if not answer.done():
                answer.set_result(AGAIN)
        self.notify()

    def end(self, error: StentorError | None) -> None:
        """Nothing more will come."""
        self.over = True
        if self.error is None:
            self.error = error

    # -- waiting

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something holds that `notify` is called for."""
        while not condition():
            future: asyncio.Future[None] = self.local.loop.create_future()
            self._changed.append(future)
            await future

    def notify(self) -> None:
        """Something has changed for which somebody may wait."""
        if self._changed:
            waiting, self._changed = self._changed, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def served(self) -> Uplink:
        """The connection over which it is in force, as soon as there is one."""
        await self.until(lambda: (self.in_force and self.link is not None) or self.over)
        if self.over or self.link is None:
            raise self.error or NoReply("the subscription has ended")
        return self.link

    # -- saying and asking

    def send(self, message: Any) -> None:
        """Say something about it, which is for nobody while it is not in force."""
        if self.in_force and self.link is not None:
            self.link.send(message)

    def ask(self, answer: asyncio.Future[Any]) -> None:
        """This is answered by `AGAIN` if the connection is lost."""
        self._asked.append(answer)
        answer.add_done_callback(self._asked.remove)

    def when_answered(self, hear: Callable[[], None]) -> int:
        """The number of a request; when it is answered, this is called."""
        number = self.local.number()
        answer = self.local.expect(number)
        self.ask(answer)

        def answered(future: asyncio.Future[Any]) -> None:
            heard = not future.cancelled() and future.exception() is None
            if heard and future.result() is not AGAIN:
                hear()

        answer.add_done_callback(answered)
        return number

    async def put(self, question: Callable[[int], Any]) -> None:
        """Put a question about it, over new connections again until it is answered."""
        while True:
            link = await self.served()
            number = self.local.number()
            answer = self.local.expect(number)
            self.ask(answer)
            link.send(question(number))
            if await answer is not AGAIN:
                return
