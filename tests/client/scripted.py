"""A broker in a few lines that does as it is told: journals in memory, cuts wherever a test wants.

A `World` is an overlay without distance: brokers that see each other's journals at once. It counts
every message that goes in or out of any of them, and cuts the connection at the counts it is given.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from stentor.filters import Filter
from stentor.model import decode
from stentor.protocol import messages as m
from stentor.transport import Connection, serve

_names = itertools.count()

#: Seconds after which a test that waits has failed.
PATIENCE = 20.0


class World:
    def __init__(self, cuts: Iterable[int] = (), *, flush: bool = False, outage: int = 0) -> None:
        self.journals: dict[str, list[bytes]] = {}
        self.newest: dict[tuple[str, str], tuple[int, int]] = {}
        self.durables: dict[str, dict[str, int]] = {}
        self.last_values: dict[str, bytes] = {}
        self.brokers: list[ScriptedBroker] = []
        self.messages = 0
        self.cuts = set(cuts)
        #: Whether what was sent before a cut arrives.
        self.flush = flush
        #: How many connections a broker refuses after it has cut one.
        self.outage = outage
        self.cut = 0
        #: Every message that a client has sent, in order.
        self.heard: list[Any] = []

    def all(self) -> list[Any]:
        """Everything that is journaled, stream by stream."""
        return [decode(item) for journal in self.journals.values() for item in journal]

    def counted(self, broker: ScriptedBroker, connection: Connection) -> bool:
        """Whether the connection survives this message."""
        self.messages += 1
        if self.messages not in self.cuts:
            return True
        self.cut += 1
        broker.refusals = self.outage
        if self.flush:
            connection.close()
        else:
            connection.abort()
        return False

    def spread(self) -> None:
        for broker in self.brokers:
            for session in list(broker.sessions):
                session.serve()

    @asynccontextmanager
    async def broker(self, **options: Any) -> AsyncIterator[ScriptedBroker]:
        broker = ScriptedBroker(self, **options)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()


class ScriptedBroker:
    def __init__(
        self,
        world: World,
        *,
        window: int = 100,
        max_frame: int = 1 << 20,
        timeout: float = 30.0,
        token: str | None = None,
        answers: dict[type, Callable[[Session, Any], None]] | None = None,
        address: str | None = None,
    ) -> None:
        self.world = world
        number = next(_names)
        self.name = f"s{number}"
        self.stream = f"s{number}#0"
        self.address = address or f"inproc:scripted-{number}"
        self.window, self.max_frame, self.timeout, self.token = window, max_frame, timeout, token
        #: What a test wants to be done with a kind of message, instead of the usual.
        self.answers = answers or {}
        self.sessions: list[Session] = []
        #: What it says that the time is; it stands still.
        self.clock = 0.0
        #: Connections that it refuses next.
        self.refusals = 0
        world.journals.setdefault(self.stream, [])
        self._listener: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = await serve(self.address, lambda: Session(self))
        if self not in self.world.brokers:
            self.world.brokers.append(self)

    async def stop(self) -> None:
        """Vanish without a word; the journal stays."""
        await self._listener.close()
        for session in list(self.sessions):
            session.connection.abort()

    def send_from_thread(self, message: Any) -> None:
        """To every client, for tests that run in another thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.send, message)

    def send(self, message: Any) -> None:
        """To every client."""
        for session in self.sessions:
            session.send(message)


class _Feed:
    def __init__(self, message: m.Subscribe, positions: dict[str, int]) -> None:
        self.message = message
        self.filter = Filter(message.filter)
        self.positions = positions
        self.credit = message.credit


class Session:
    connection: Connection

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.world = broker.world
        self.name = ""
        self.feeds: dict[int, _Feed] = {}
        self.offers: dict[int, Filter] = {}

    def opened(self, connection: Connection) -> None:
        self.connection = connection

    def writable_again(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection, error: Exception | None) -> None:
        if self in self.broker.sessions:
            self.broker.sessions.remove(self)

    def received(self, connection: Connection, messages: list[Any]) -> None:
        for message in messages:
            if connection.is_closing:
                return
            if not self.world.counted(self.broker, connection):
                return
            self.world.heard.append(message)
            special = self.broker.answers.get(type(message))
            if special is not None:
                special(self, message)
            else:
                getattr(self, "on_" + type(message).__name__.lower())(message)

    def send(self, message: Any) -> None:
        if not self.connection.is_closing and self.world.counted(self.broker, self.connection):
            self.connection.send(message)

    # -- what a broker does

    def on_hello(self, hello: m.Hello) -> None:
        broker = self.broker
        if broker.refusals:
            broker.refusals -= 1
            self.connection.abort()
            return
        if hello.token != broker.token:
            self.send(m.Failure("STN-603", "who are you?"))
            self.connection.close()
            return
        self.name = hello.name
        broker.sessions.append(self)
        self.send(
            m.Welcome(
                1,
                broker.name,
                broker.stream,
                [broker.address],
                self.world.newest.get((broker.stream, hello.name)),
                broker.window,
                broker.max_frame,
                broker.timeout,
            )
        )

    def on_ping(self, _: m.Ping) -> None:
        self.send(m.Pong())

    def on_pong(self, _: m.Pong) -> None:
        pass

    def on_goodbye(self, _: m.Goodbye) -> None:
        self.connection.close()

    def on_publish(self, message: m.Publish) -> None:
        if message.volatile:
            self.send(m.Published(message.number))
            for broker in self.world.brokers:
                for session in broker.sessions:
                    session.volatile(message.items)
            return
        self.store(message)
        self.send(m.Published(message.number))
        self.world.spread()

    def store(self, message: m.Publish) -> None:
        stream = self.broker.stream
        for i, item in enumerate(message.items):
            id = decode(item).id
            assert id is not None
            newest = self.world.newest.get((stream, id.producer), (-1, -1))
            if (id.epoch, id.sequence) > newest:
                self.world.newest[stream, id.producer] = (id.epoch, id.sequence)
                self.world.journals[stream].append(item)
                if i in message.retain:
                    self.world.last_values[message.retain[i]] = item

    def on_subscribe(self, message: m.Subscribe) -> None:
        journals = self.world.journals
        known = dict(message.positions or {})
        resumed = False
        if message.durable is not None:
            resumed = message.durable in self.world.durables
            for stream, at in self.world.durables.setdefault(message.durable, {}).items():
                known[stream] = max(at, known.get(stream, 0))
        begin = 0 if message.since is not None else None
        for stream, journal in journals.items():
            known.setdefault(stream, len(journal) if begin is None else begin)
        if message.durable is not None and not resumed:
            self.world.durables[message.durable] = dict(known)
        feed = self.feeds[message.number] = _Feed(message, known)
        self.send(m.Subscribed(message.number, message.lease, resumed, self.broker.clock))
        self.send(m.Progress(message.number, dict(known)))
        if message.retained:
            kept = [i for i in self.world.last_values.values() if feed.filter.matches(decode(i))]
            self.send(m.Deliver(message.number, "", [], kept, retained=True))
        self.serve()

    def on_unsubscribe(self, message: m.Unsubscribe) -> None:
        feed = self.feeds.pop(message.number, None)
        if message.forget and feed is not None and feed.message.durable is not None:
            del self.world.durables[feed.message.durable]
        self.send(m.Ended(message.number))

    def on_renew(self, message: m.Renew) -> None:
        self.send(m.Subscribed(message.number, self.feeds[message.number].message.lease))

    def on_credit(self, message: m.Credit) -> None:
        if message.number in self.feeds:
            self.feeds[message.number].credit += message.more
            self.serve()

    def on_confirm(self, message: m.Confirm) -> None:
        feed = self.feeds.get(message.number)
        if feed is not None and feed.message.durable is not None:
            kept = self.world.durables[feed.message.durable]
            for stream, at in message.positions.items():
                kept[stream] = max(at, kept.get(stream, 0))
        if message.request is not None:
            self.send(m.Done(message.request))

    def on_settle(self, message: m.Settle) -> None:
        """What is done is, in order; what was refused is not given again."""
        feed = self.feeds.get(message.number)
        if feed is not None and feed.message.durable is not None:
            kept = self.world.durables[feed.message.durable]
            for stream, offsets in message.done.items():
                kept[stream] = max([*offsets, kept.get(stream, 0)])
        for refused in message.refused:
            self.send(m.Withdrawn(message.number, refused.stream, [], refused.offset))
        if message.request is not None:
            self.send(m.Done(message.request))

    def on_advertise(self, message: m.Advertise) -> None:
        self.offers[message.number] = Filter(message.filter)
        self.send(m.Done(message.number))

    def on_unadvertise(self, message: m.Unadvertise) -> None:
        self.offers.pop(message.number, None)
        self.send(m.Done(message.number))

    def on_ask(self, message: m.Ask) -> None:
        self.send(m.Done(message.number, [str(f) for f in self.offers.values()]))

    # -- delivery

    def serve(self) -> None:
        for number, feed in list(self.feeds.items()):
            for stream, journal in self.world.journals.items():
                self._serve(number, feed, stream, journal)

    def _serve(self, number: int, feed: _Feed, stream: str, journal: list[bytes]) -> None:
        at = feed.positions.setdefault(stream, 0)
        offsets, items = [], []
        while at < len(journal) and feed.credit > 0:
            at += 1
            if feed.filter.matches(decode(journal[at - 1])):
                offsets.append(at)
                items.append(journal[at - 1])
                feed.credit -= 1
        moved = at > feed.positions[stream]
        feed.positions[stream] = at
        for i in range(0, len(items), 3):
            self.send(m.Deliver(number, stream, offsets[i : i + 3], items[i : i + 3]))
        if moved and at == len(journal):
            self.send(m.Progress(number, {stream: at}))

    def volatile(self, items: list[bytes]) -> None:
        for number, feed in self.feeds.items():
            wanted = [item for item in items if feed.filter.matches(decode(item))]
            if wanted:
                self.send(m.Deliver(number, "", [], wanted))


def run(test: Any, loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop) -> Any:
    """Run a test in an event loop, and see that it leaves nothing behind."""

    async def main() -> Any:
        result = await asyncio.wait_for(test, PATIENCE)
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks were left behind: {left}"
        return result

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main())


def looped(test: Any) -> Any:
    """An async test as a plain one, run in asyncio's own loop and in uvloop's; see `run`."""

    @functools.wraps(test)
    def plain(*args: Any, **options: Any) -> None:
        for loop in (asyncio.new_event_loop, uvloop.new_event_loop):
            run(test(*args, **options), loop)

    return plain


async def until(condition: Callable[[], object]) -> None:
    """Give way to others until something holds; `run` sees to it that this ends."""
    while not condition():
        await asyncio.sleep(0.001)
