"""The stage: the loop in which the brokers of a test run, what they did, and time.

Brokers run in a thread of their own, so that a test may block, or have an event loop. All brokers
of a process share that thread. They test filters one by one, which gives the same answers as the
index that brokers have: a test has few filters, and the code of the index would have to be
compiled. So a broker costs a few milliseconds, and every test can have its own.

Time. The clocks of the brokers and of all clients of the process are ahead of the machine's by as
much as the test has let pass (`client.clock`). `advance` does that in steps. After each step in
which a broker had something to say, it waits until all is at rest, so that what follows from it
(a handler that fails again, a renewed lease) happens at its time, and not at the end. At rest means
that nothing is on its way to the journal, all clients have answered a ping, and what was given out
to be settled is settled, or a moment has passed; a test may hold on to something on purpose.

Faults are those of the network and of processes: a connection is cut without a goodbye and comes
back when it is made again, or is refused until it is healed; a broker stops and starts again with
its journal, if it has a directory.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Final

from stentor.broker import Broker, Settings
from stentor.broker.peers import ConnectedClient
from stentor.client.clock import clock
from stentor.client.sync import LoopThread
from stentor.errors import InvalidConfiguration
from stentor.matching import BruteForce
from stentor.model import decode
from stentor.node.agenda import Action, ToClient
from stentor.node.hooks import Hooks
from stentor.node.subscription import Subscription
from stentor.protocol import messages as m
from stentor.testing.notes import Delivery, Notes, Pattern, Wish, unexpected

#: Steps in which time passes, at most, and seconds of one, at least.
STEPS: Final = 400
STEP: Final = 0.1
#: Seconds of the machine's clock to wait for clients to answer, and to settle what they have.
ANSWERS: Final = 0.5
SETTLES: Final = 0.1
#: Seconds between two looks at something that says nothing when it changes.
LOOK: Final = 0.001

_lock: Final = threading.Lock()
_thread: LoopThread | None = None
#: Stages that are set; when none is, time is the machine's again.
_open: Final[set[Stage]] = set()


def loop_thread() -> LoopThread:
    """The thread of all brokers of this process."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = LoopThread("brokers of tests")
            _thread.start()
        return _thread


class Stage:
    """One broker of a test. All its coroutines run in the thread of the brokers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.notes = Notes()
        self.broker: Broker | None = None
        self.address = ""
        self._said = 0
        self._changed = asyncio.Event()

    # -- life

    async def start(self) -> None:
        if self.broker is not None:
            raise InvalidConfiguration("the broker runs; stop it first")
        hooks = Hooks()
        hooks.add("route", self._routed)
        # It comes back where it was, so that clients find it.
        settings = replace(self.settings, listen=(self.address,)) if self.address else self.settings
        broker = Broker(
            settings,
            hooks=hooks,
            engine=BruteForce,
            ahead=lambda: clock.ahead,
            watch=self._carried_out,
        )
        await broker.start()
        self.broker = broker
        self.address = broker.address
        _open.add(self)

    async def stop(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.stop()

    async def end(self) -> None:
        """Stop for good."""
        await self.stop()
        _open.discard(self)
        if not _open:
            clock.ahead = 0.0

    @property
    def running(self) -> Broker:
        if self.broker is None:
            raise InvalidConfiguration("the broker is stopped; start it first")
        return self.broker

    # -- what happens

    def _routed(self, data: bytes) -> None:
        self.notes.note_routed(data)
        self._changed.set()

    def _carried_out(self, action: Action) -> None:
        if not isinstance(action, ToClient) or self.broker is None:
            return
        self._said += 1
        client = self.broker.clients.get(action.session)
        if client is None or not isinstance(action.message, m.Deliver):
            return
        session = self.broker.core.sessions.get(action.session)
        known = None if session is None else session.subscriptions.get(action.message.number)
        durable, group = (None, None) if known is None else _kept(known[0])
        for item in action.message.items:
            attempt = action.message.attempt
            self.notes.deliveries.append(
                Delivery(decode(item), client.name, durable, group, attempt)
            )
        self._changed.set()

    def wishes(self) -> Iterator[Wish]:
        """What everybody has subscribed to."""
        if self.broker is None:
            return
        for session in self.broker.core.sessions.values():
            for subscription, _ in session.subscriptions.values():
                names = (session.name, *_kept(subscription))
                filters = tuple(subscription.interest)
                yield Wish(tuple(n for n in names if n), filters)

    async def until_delivered(
        self, pattern: Pattern, to: str | None, count: int, timeout: float
    ) -> list[Delivery]:
        """The deliveries that fit, as soon as there are so many; `AssertionError` says why not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while len(self.notes.found(pattern, to)) < count:
                    self._changed.clear()
                    await self._changed.wait()
        found = self.notes.found(pattern, to)
        if not found:
            raise AssertionError(self.notes.missing(pattern, to, self.wishes()))
        if len(found) < count:
            told = unexpected(found, pattern, to)
            raise AssertionError(f"{len(found)} and not {count} times {told}")
        return found

    async def nothing_delivered(self, pattern: Pattern | None, to: str | None) -> None:
        await self.rest()
        found = self.notes.found(pattern, to)
        if found:
            raise AssertionError(unexpected(found, pattern, to))

    # -- time

    async def advance(self, seconds: float) -> None:
        if not seconds >= 0:
            raise InvalidConfiguration(f"time does not go back, so {seconds} seconds cannot pass")
        await self.rest()
        loop = asyncio.get_running_loop()
        left, unheard, at = seconds, 0.0, loop.time()
        while left > 0:
            lease = min(self._leases(), default=inf)
            by = min(left, max(STEP, seconds / STEPS), lease / 4)
            left -= by
            before = sum(stage._said for stage in _open)
            # What the steps themselves take is part of the time that passes.
            now = loop.time()
            clock.advance(max(0.0, by - (now - at)))
            at = now
            unheard += by
            if unheard >= lease / 4:  # whoever has one renews it before it ends
                await _answers()
                unheard = 0.0
            for stage in list(_open):
                if stage.broker is not None:
                    stage.broker.pass_time()
            await asyncio.sleep(0)
            await _idle()
            if sum(stage._said for stage in _open) > before:
                await self.rest()
        await self.rest()

    def _leases(self) -> Iterator[float]:
        for stage in _open:
            for subscription in stage._subscriptions():
                if subscription.lease is not None:
                    yield subscription.lease

    def _subscriptions(self) -> Iterator[Subscription]:
        if self.broker is not None:
            yield from self.broker.core.subscriptions.values()

    async def rest(self) -> None:
        """Wait until nothing is under way."""
        while True:
            before = sum(stage._said for stage in _open)
            await _idle()
            await _answers()
            await _until(lambda: not any(map(_given, self._all())), SETTLES)
            await _idle()
            if sum(stage._said for stage in _open) == before:
                return

    def _all(self) -> Iterator[Subscription]:
        for stage in _open:
            yield from stage._subscriptions()

    # -- faults

    async def cut(self, name: str) -> None:
        """End the connection of a client, or the link with a broker, without a goodbye."""
        ended = 0
        broker = self.running
        for client in list(broker.clients.values()):
            if client.name == name or client.name.startswith(f"{name}~"):
                client.connection.abort()
                ended += 1
        for link in list(broker.links.values()):
            if link.origin.broker == name:
                link.connection.abort()
                ended += 1
        if not ended:
            clients = ", ".join(sorted(repr(c.name) for c in broker.clients.values())) or "none"
            links = ", ".join(sorted(repr(each.origin.broker) for each in broker.links.values()))
            raise InvalidConfiguration(
                f"nobody of the name {name!r} is connected; clients are {clients}"
                + (f", brokers are {links}" if links else "")
            )

    async def link(self, other: Stage) -> None:
        """Link with another broker, and wait until both know of it."""
        mine, theirs = self.running, other.running
        mine.links.add(other.address)
        if not await _until(
            lambda: (
                mine.core.directory.reaches(theirs.stream)
                and theirs.core.directory.reaches(mine.stream)
            ),
            10.0,
        ):
            raise InvalidConfiguration(f"{mine.name!r} and {theirs.name!r} did not link")

    async def unlink(self, other: Stage) -> None:
        """Cut the link with another broker until `link`."""
        mine, theirs = self.running, other.running
        for one, two, stage in ((mine, theirs, other), (theirs, mine, self)):
            if stage.address in one.links.dialed:
                one.links.remove(stage.address)
            link = one.links.get(two.stream)
            if link is not None:
                link.connection.abort()
        cut = {mine.stream, theirs.stream}
        await _until(lambda: not cut & (mine.links.keys() | theirs.links.keys()), 10.0)


def _kept(subscription: Subscription) -> tuple[str | None, str | None]:
    """The names of a durable subscription and of a group."""
    durable = None if subscription.durable is None else subscription.durable.label
    return durable, subscription.group


def _given(subscription: Subscription) -> bool:
    """Whether somebody has something of it that is not settled."""
    settling = subscription.settling
    return settling is not None and any(entry.holder is not None for entry in settling)


async def _idle() -> None:
    """Until nothing is on its way to a journal, or has to be done."""
    brokers = [stage.broker for stage in _open if stage.broker is not None]
    while any(
        broker.journal.pending or broker.core.is_routing or broker.core.has_work or broker._turn
        for broker in brokers
    ):
        await asyncio.sleep(LOOK)


async def _answers() -> None:
    """Until all clients have answered, so that they have heard what was said to them before."""
    loop = asyncio.get_running_loop()
    clients: list[tuple[ConnectedClient, float]] = []
    for stage in _open:
        for client in () if stage.broker is None else stage.broker.clients.values():
            if not client.connection.is_closing:
                client.connection.last_heard = 0.0
                client.connection.send(m.Ping())
                clients.append((client, loop.time()))
    await _until(
        lambda: all(
            client.connection.last_heard or client.connection.is_closing for client, _ in clients
        ),
        ANSWERS,
    )
    for client, now in clients:
        client.connection.last_heard = client.connection.last_heard or now


async def _until(true: Callable[[], bool], seconds: float) -> bool:
    """Whether it has become true in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not true():
        if loop.time() > end:
            return False
        await asyncio.sleep(LOOK)
    return True
