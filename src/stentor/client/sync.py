"""The bus without async: the same calls, for programs that use threads or none.

One event loop runs in a thread of its own, and everything that happens on the bus happens there.
Each call here hands a coroutine to that loop and waits for it. So a bus can be used by several
threads at once, and Ctrl-C interrupts any wait. Plain functions given to `on` and `reply` run in a
thread for each, so they may use the bus and may take their time; async ones run in the loop.
When the bus is closed, all its threads have ended.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from functools import wraps
from inspect import iscoroutinefunction, isgenerator
from time import monotonic
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from stentor.client.advertisement import Advertisement, OnDemand
from stentor.client.bus import (
    Bus,
    DetectOptions,
    InboxOptions,
    ReplyOptions,
    SubscribeOptions,
    check_several,
    shown_as_table,
)
from stentor.client.connecting import connect
from stentor.client.inbox import Inbox
from stentor.client.interest import SubId
from stentor.client.requests import answer, answer_failure, requests_of
from stentor.client.subscription import LostRange, Subscription
from stentor.client.transaction import Held, Transaction
from stentor.client.typed import filter_of
from stentor.client.uplink import State
from stentor.client.words import Parts, PlacementPolicy, PublishOptions
from stentor.errors import InvalidConfiguration, NoReply, ShuttingDown, StentorError
from stentor.model import Notification, NotificationId
from stentor.protocol.messages import Positions
from stentor.transport.event_loop import new_event_loop

if TYPE_CHECKING:
    from stentor.client.detecting import PolicyGiven
    from stentor.composite import Pattern
    from stentor.filters import Filter
    from stentor.node.hooks import Hooks

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Seconds after which a wait looks up: a signal that comes just before a thread falls asleep does
#: not wake it.
LOOK_UP: Final = 0.2
#: Notifications that an iterator fetches from the loop at a time.
FETCH: Final = 256
#: Events that `publish_many` hands to the loop at a time.
CHUNK: Final = 5_000

_log: Final = logging.getLogger("stentor.client")


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        #: Whether work is taken; everything that was taken before it ended is ended too.
        self._lock = threading.Lock()
        self._running = False
        #: What opens the bus, as long as nobody has opened it.
        self.opens: Callable[[], object] | None = None

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def start(self) -> None:
        self._running = True
        self._thread.start()

    @property
    def inside(self) -> bool:
        """Whether this is the thread of the loop itself."""
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return what it returns."""
        if self.inside:
            work.close()
            raise InvalidConfiguration(
                "a callback of the bus cannot wait for the bus; use `on` with a plain function, "
                "which runs in a thread of its own"
            )
        opens = self.opens
        if opens is not None:
            try:
                opens()
            except BaseException:
                work.close()
                raise
        future = self.submit(work)
        try:
            return _result(future)
        except CancelledError:
            raise ShuttingDown("the bus was closed") from None
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for it any more
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop, and do not wait for it."""
        with self._lock:
            if not self._running:
                work.close()
                raise ShuttingDown("the bus is closed; make another with connect_sync()")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the loop and its thread."""
        with self._lock:
            was_running, self._running = self._running, False
        if was_running:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        elif not self._thread.is_alive():
            self._loop.close()


def _result(future: Future[T]) -> T:
    while True:
        try:
            return future.result(LOOK_UP)
        except TimeoutError:
            if future.done():  # it is the work's own, or it has just been done
                return future.result()


class SyncBus:
    """A bus whose calls wait. Made by `stentor.connect_sync`.

    It is opened by `with`, by `open`, or by the first call that needs a connection, and closed at
    the end of the block, by `close`, or when the program ends.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop = LoopThread(f"stentor {bus.name}")
        self._open = False
        self._closed = False
        self._opening = threading.RLock()
        self._loop.opens = self._open_at_first_use
        #: What is to be subscribed when the bus is opened, and what handlers run, with threads.
        self._early: list[Callable[[], object]] = []
        self._handlers: list[tuple[SyncSubscription[Any], threading.Thread]] = []

    def __repr__(self) -> str:
        return f"<SyncBus {self.name!r}, {self.state}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        return shown_as_table(self)

    @property
    def name(self) -> str:
        return self._bus.name

    @property
    def state(self) -> State:
        return self._bus.state

    @property
    def error(self) -> StentorError | None:
        return self._bus.error

    @property
    def broker(self) -> str | None:
        return self._bus.broker

    @property
    def hooks(self) -> Hooks:
        return self._bus.hooks

    @property
    def unacknowledged(self) -> int:
        return self._bus.unacknowledged

    @property
    def quenched(self) -> int:
        return self._bus.quenched

    @property
    def rejected(self) -> int:
        return self._bus.rejected

    def on_state(self, callback: Callable[[State], object]) -> Callable[[State], object]:
        """Have a function called with every new state, in the thread of the bus."""
        return self._bus.on_state(callback)

    def on_refusal(
        self, callback: Callable[[Notification, StentorError], object]
    ) -> Callable[[Notification, StentorError], object]:
        """Have a function called with each refusal that nobody waits for, in that thread."""
        return self._bus.on_refusal(callback)

    # -- life

    def open(self) -> SyncBus:
        """Connect. `close` ends what this begins, and so does the end of the program."""
        with self._opening:
            if self._open or self._closed:
                raise InvalidConfiguration("a bus is opened only once; make another")
            self._open = True
            self._loop.opens = None
            self._loop.start()
            try:
                self._loop.call(self._bus.open())
                atexit.register(self._close_at_exit)
                for subscribe in self._early:
                    subscribe()
            except BaseException:
                self.close()
                raise
        return self

    def _open_at_first_use(self) -> None:
        with self._opening:
            if not self._open and not self._closed:
                self.open()

    def _close_at_exit(self) -> None:
        """So that what was published at last is not lost."""
        try:
            self.close()
        except StentorError as error:
            _log.error("%s", error)

    def close(self) -> None:
        """Wait until publications are acknowledged, say goodbye, end all threads."""
        if self._closed:
            return
        self._closed = True
        self._loop.opens = None
        atexit.unregister(self._close_at_exit)
        if self._open:
            for subscription, _ in self._handlers:
                subscription.stop()
            deadline = monotonic() + self._bus._close_timeout
            for _, thread in self._handlers:
                if thread is not threading.current_thread():
                    thread.join(max(0.0, deadline - monotonic()))
        try:
            if self._open:
                self._loop.call(self._bus.close())
        finally:
            self._loop.stop()

    def __enter__(self) -> SyncBus:
        return self if self._open else self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except NoReply:
            if error is None:
                raise
            _log.exception("publications were not acknowledged")

    # -- publishing

    def publish(
        self, event: Any, ack: bool = False, **options: Unpack[PublishOptions]
    ) -> NotificationId:
        """See `Bus.publish`. For many small ones, `publish_many` is much faster."""
        return self._loop.call(self._bus.publish(event, ack, **options))

    def publish_many(
        self,
        events: Iterable[Any],
        ack: bool = False,
        *,
        volatile: bool = False,
        retain: Callable[[Any], str | None] | None = None,
        timeout: float | None = None,
        **parts: Unpack[Parts],
    ) -> int:
        """See `Bus.publish_many`. The events are taken from their source in this thread."""
        check_several(events)
        count = 0
        iterator = iter(events)
        while chunk := list(itertools.islice(iterator, CHUNK)):
            count += self._loop.call(
                self._bus.publish_many(
                    chunk, ack, volatile=volatile, retain=retain, timeout=timeout, **parts
                )
            )
        return count

    def flush(self, timeout: float | None = None) -> None:
        """See `Bus.flush`."""
        self._loop.call(self._bus.flush(timeout))

    def cancel(self, id: NotificationId, timeout: float | None = None) -> bool:
        """See `Bus.cancel`."""
        return self._loop.call(self._bus.cancel(id, timeout))

    def transaction(self, timeout: float | None = None) -> SyncTransaction:
        """See `Bus.transaction`."""
        return SyncTransaction(self._loop, self._bus.transaction(timeout))

    # -- subscribing

    @overload
    def subscribe(
        self, filter: str | Filter = "", **options: Unpack[SubscribeOptions]
    ) -> SyncSubscription[Notification]: ...

    @overload
    def subscribe(
        self, filter: type[T], **options: Unpack[SubscribeOptions]
    ) -> SyncSubscription[T]: ...

    def subscribe(
        self, filter: str | Filter | type[Any] = "", **options: Unpack[SubscribeOptions]
    ) -> SyncSubscription[Any]:
        """See `Bus.subscribe`; it is in force when this returns. `with` closes it at the end.

        A plain `handler` runs in a thread of its own.
        """
        return self._subscription(filter, **options).open()

    def _subscription(
        self, filter: str | Filter | type[Any], **options: Unpack[SubscribeOptions]
    ) -> SyncSubscription[Any]:
        handler = options.get("handler")
        if handler is None or iscoroutinefunction(handler):
            return SyncSubscription(self, self._bus.subscribe(filter, **options))
        without: SubscribeOptions = {**options, "handler": None}
        without["settle"] = _settles(options)
        subscription = self._bus.subscribe(filter, **without)
        subscription.reader = self._bus._reader(filter, handler)
        return SyncSubscription(self, subscription, handler)

    def detect(
        self,
        pattern: Pattern,
        *,
        policy: PolicyGiven = None,
        lateness: str | float | timedelta | None = None,
        mode: Literal["standing", "one_shot"] = "standing",
        placement: PlacementPolicy = "minimum_latency",
        **options: Unpack[DetectOptions],
    ) -> SyncSubscription[Notification]:
        """See `Bus.detect` and `subscribe`."""
        handler = options.get("handler")
        is_plain = handler is not None and not iscoroutinefunction(handler)
        if is_plain:
            without: DetectOptions = {**options, "handler": None}
            without["settle"] = _settles(options)
            options = without
        subscription = self._bus.detect(
            pattern, policy=policy, lateness=lateness, mode=mode, placement=placement, **options
        )
        return SyncSubscription(self, subscription, handler if is_plain else None).open()

    def inbox(
        self, *filters: str | Filter | type[Any], **options: Unpack[InboxOptions]
    ) -> SyncInbox:
        """See `Bus.inbox` and `subscribe`."""
        handler = options.get("handler")
        if handler is None or iscoroutinefunction(handler):
            return SyncInbox(self, self._bus.inbox(*filters, **options)).open()
        without: InboxOptions = {**options, "handler": None}
        without["settle"] = _settles(options)
        return SyncInbox(self, self._bus.inbox(*filters, **without), handler).open()

    def on(
        self, filter: str | Filter | type[Any] = "", **options: Unpack[SubscribeOptions]
    ) -> Callable[[F], F]:
        """See `Bus.on`. On an open bus, the subscription is in force when this returns."""

        def register(handler: F) -> F:
            changed: SubscribeOptions = {**options, "handler": handler}
            self._soon(lambda: self.subscribe(filter, **changed))
            return handler

        return register

    def _soon(self, subscribe: Callable[[], object]) -> None:
        if self._open:
            subscribe()
        else:
            self._early.append(subscribe)

    def _run(self, subscription: SyncSubscription[Any], handler: Callable[[Any], Any]) -> None:
        """Call a handler with everything, in a thread of its own."""

        def work() -> None:
            try:
                for event in subscription:
                    behind = subscription.last
                    try:
                        handler(event)
                    except Exception as error:
                        subscription._subscription.failed(handler, behind, error)
                    else:
                        if behind is not None and behind.delivery is not None:
                            behind.ack()
            except StentorError as error:
                _log.error("%r has ended: %s", subscription, error)

        thread = threading.Thread(target=work, name=f"stentor {self.name} handler", daemon=True)
        self._handlers = [each for each in self._handlers if each[1].is_alive()]
        self._handlers.append((subscription, thread))
        thread.start()

    def ready(self) -> None:
        """Open the bus, if it is not; then all functions given to `on` and `reply` are in force."""
        self._open_at_first_use()

    # -- advertising

    def advertise(
        self,
        filter: str | Filter | type[Any],
        *,
        demand: OnDemand | bool = True,
        quench: bool = False,
    ) -> SyncAdvertisement:
        """See `Bus.advertise`; the broker has it when this returns. `with` ends it.

        Callbacks run in the thread of the bus.
        """
        advertisement = self._bus.advertise(filter, demand=demand, quench=quench)
        return SyncAdvertisement(self._loop, advertisement).open()

    def offers(
        self, overlapping: str | Filter | None = None, timeout: float | None = None
    ) -> list[Filter]:
        """See `Bus.offers`."""
        return self._loop.call(self._bus.offers(overlapping, timeout))

    # -- request and reply

    def request(
        self, event: Any, timeout: float = 10.0, *, volatile: bool = True, **parts: Unpack[Parts]
    ) -> Notification:
        """See `Bus.request`."""
        return self._loop.call(self._bus.request(event, timeout, volatile=volatile, **parts))

    def request_all(
        self,
        event: Any,
        timeout: float = 10.0,
        max_replies: int | None = None,
        *,
        volatile: bool = True,
        **parts: Unpack[Parts],
    ) -> Iterator[Notification]:
        """See `Bus.request_all`."""
        replies = self._bus.request_all(event, timeout, max_replies, volatile=volatile, **parts)

        async def following() -> Notification | None:
            return await anext(replies, None)

        try:
            while (reply := self._loop.call(following())) is not None:
                yield reply
        finally:
            self._loop.call(replies.aclose())

    def reply(
        self,
        filter: str | Filter | type[Any] = "",
        *,
        volatile: bool = True,
        **options: Unpack[ReplyOptions],
    ) -> Callable[[F], F]:
        """See `Bus.reply`. A plain function runs in a thread of its own."""

        def register(provider: F) -> F:
            if iscoroutinefunction(provider):
                self._soon(
                    lambda: self._loop.call(self._replying(filter, volatile, options, provider))
                )
                return provider

            @wraps(provider)
            def handle(event: Any) -> None:
                request = subscription.last
                assert request is not None  # the request behind the event
                try:
                    result = provider(event)
                    for each in result if isgenerator(result) else (result,):
                        self._loop.call(answer(self._bus, request, each, volatile))
                except Exception as error:
                    self._loop.call(answer_failure(self._bus, request, error, volatile))
                    raise

            where = requests_of(filter_of(options.get("where") or ""))
            changed: ReplyOptions = {**options, "where": where, "handler": handle}
            changed.setdefault("settle", False)
            subscription = self._subscription(filter, **changed)
            self._soon(subscription.open)
            return provider

        return register

    async def _replying(
        self, filter: Any, volatile: bool, options: ReplyOptions, provider: Any
    ) -> None:
        self._bus.reply(filter, volatile=volatile, **options)(provider)
        await self._bus.ready()


def _settles(options: InboxOptions | DetectOptions) -> bool | None:
    """Whether each is settled by itself; a handler is not told to the bus, so it is said here."""
    lasts = options.get("durable") is not None or options.get("group") is not None
    default = True if lasts and options.get("auto_confirm", True) else None
    return options.get("settle", default)


class SyncSubscription(Generic[T]):
    """A subscription that is read by `for`, `get` or `batches`. See `Subscription`.

    Several threads may read it; each notification goes to one of them.
    """

    def __init__(
        self,
        bus: SyncBus,
        subscription: Subscription[T],
        handler: Callable[[T], Any] | None = None,
    ) -> None:
        self._bus = bus
        self._loop = bus._loop
        self._subscription = subscription
        self._handler = handler
        self._lock = threading.Lock()
        self._opened = False
        #: Notifications that were fetched and not yet handed out, the next one last.
        self._fetched: list[T] = []
        # What is confirmed counts as dealt with when the next one is asked for, so it is fetched
        # one by one; so is what has a notification behind it, which is the `last` one.
        self._at_once = FETCH if subscription.plain else 1
        self._last: Notification | None = None

    def __repr__(self) -> str:
        return repr(self._subscription)

    @property
    def filter(self) -> Filter:
        """What it asks for."""
        return self._subscription.filter

    @property
    def durable(self) -> bool:
        """Whether it outlives its application."""
        return self._subscription.durable

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self._subscription.over

    @property
    def expired(self) -> int:
        """See `Subscription.expired`."""
        return self._subscription.expired

    @property
    def yields(self) -> int:
        """See `Subscription.yields`."""
        return self._subscription.yields

    @property
    def positions(self) -> Positions:
        return self._subscription.positions

    @property
    def gaps(self) -> Sequence[LostRange]:
        return self._subscription.gaps

    @property
    def lost(self) -> int:
        return self._subscription.lost

    @property
    def errors(self) -> int:
        return self._subscription.errors

    @property
    def resumed(self) -> bool:
        return self._subscription.resumed

    @property
    def last(self) -> Notification | None:
        """The notification behind what was handed out last."""
        return self._subscription.last if self._last is None else self._last

    # -- reading

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        with self._lock:
            if not self._fetched and not self._fetch(None):
                raise StopIteration
            return self._hand_out()

    def get(self, timeout: float | None = None) -> T:
        """The next one; `NoReply` if none comes in time."""
        with self._lock:
            if not self._fetched and not self._fetch(timeout):
                raise NoReply("the subscription has ended")
            return self._hand_out()

    def _hand_out(self) -> T:
        event = self._fetched.pop()
        if isinstance(event, Notification):
            self._last = event
        return event

    def batches(self, limit: int = 1_000) -> Iterator[list[T]]:
        """Notifications in lists, as they have come."""
        while True:
            with self._lock:
                batch = self._fetched[::-1]
                self._fetched.clear()
                if not batch:
                    batch = self._loop.call(self._subscription.next_batch(limit))
            if not batch:
                return
            yield batch

    def _fetch(self, timeout: float | None) -> bool:
        """Get some from the loop; False when there will be no more."""
        found = self._loop.call(self._subscription.next_batch(self._at_once, timeout))
        self._fetched = found[::-1]
        return bool(found)

    # -- the rest

    def in_force(self) -> None:
        """See `Subscription.in_force`."""
        self._loop.call(self._subscription.in_force())

    def confirm(self, timeout: float | None = None) -> None:
        """See `Subscription.confirm`."""
        self._loop.call(self._subscription.confirm(timeout))

    def renew(self, timeout: float | None = None) -> None:
        """See `Subscription.renew`."""
        self._loop.call(self._subscription.renew(timeout))

    def open(self) -> Self:
        """Does nothing, since it is open; after `close` an error."""
        if self._opened and not self._subscription.closing:
            return self
        self._opened = True
        self._loop.call(self._subscription.open())
        if self._handler is not None:
            self._bus._run(self, self._handler)
        return self

    def close(self, *, forget: bool = False) -> None:
        """See `Subscription.close`."""
        self._loop.call(self._subscription.close(forget=forget))

    def stop(self) -> None:
        """See `Subscription.stop`."""
        self._loop.call(self._stop())

    async def _stop(self) -> None:
        self._subscription.stop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call(self._subscription.__aexit__(kind, error, trace))


class SyncInbox(SyncSubscription[Notification]):
    """An inbox that is read like a subscription. See `Inbox`."""

    def __init__(
        self, bus: SyncBus, inbox: Inbox, handler: Callable[[Notification], Any] | None = None
    ) -> None:
        super().__init__(bus, inbox, handler)
        self._inbox = inbox

    @property
    def subscriptions(self) -> list[SubId]:
        """See `Inbox.subscriptions`."""
        return self._inbox.subscriptions

    def subscribe(
        self,
        filter: str | Filter | type[Any] = "",
        *,
        where: str | Filter | None = None,
        timeout: float | None = None,
    ) -> SubId:
        """See `Inbox.subscribe`."""
        return self._loop.call(self._inbox.subscribe(filter, where=where, timeout=timeout))

    def unsubscribe(self, subscription: SubId, timeout: float | None = None) -> None:
        """See `Inbox.unsubscribe`."""
        self._loop.call(self._inbox.unsubscribe(subscription, timeout))


class SyncAdvertisement:
    """See `Advertisement`."""

    def __init__(self, loop: LoopThread, advertisement: Advertisement) -> None:
        self._loop = loop
        self._advertisement = advertisement

    @property
    def filter(self) -> Filter:
        """What is offered."""
        return self._advertisement.filter

    @property
    def demanded(self) -> bool:
        return self._advertisement.demanded

    @property
    def filters(self) -> list[Filter] | None:
        return self._advertisement.filters

    @property
    def quenched(self) -> int:
        return self._advertisement.quenched

    def on_demand(self, callback: OnDemand) -> OnDemand:
        return self._advertisement.on_demand(callback)

    def publish(
        self, event: Any, ack: bool = False, **options: Unpack[PublishOptions]
    ) -> NotificationId:
        """See `Advertisement.publish`."""
        return self._loop.call(self._advertisement.publish(event, ack, **options))

    def open(self) -> SyncAdvertisement:
        self._loop.call(self._advertisement.open())
        return self

    def close(self) -> None:
        self._loop.call(self._advertisement.close())

    def __enter__(self) -> SyncAdvertisement:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncTransaction:
    """See `Transaction`."""

    def __init__(self, loop: LoopThread, transaction: Transaction) -> None:
        self._loop = loop
        self._transaction = transaction

    @property
    def state(self) -> str:
        return self._transaction.state

    def __len__(self) -> int:
        return len(self._transaction)

    def publish(self, event: Any, *, retain: str | None = None, **parts: Unpack[Parts]) -> Held:
        """See `Transaction.publish`."""
        return self._loop.call(self._transaction.publish(event, retain=retain, **parts))

    def take(self, subscription: SyncSubscription[T], timeout: float | None = None) -> T:
        """See `Transaction.take`."""
        return self._loop.call(self._transaction.take(subscription._subscription, timeout))

    def ack(self, notification: Notification) -> None:
        """See `Transaction.ack`."""
        self._transaction.ack(notification)

    def transaction(self) -> SyncTransaction:
        """See `Transaction.transaction`."""
        return SyncTransaction(self._loop, self._transaction.transaction())

    def rollback(self) -> None:
        self._transaction.rollback()

    def __enter__(self) -> SyncTransaction:
        self._loop.call(self._transaction.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call(self._transaction.__aexit__(kind, error, trace))


def _taking(
    options: Callable[P, object],
) -> Callable[[Callable[..., SyncBus]], Callable[P, SyncBus]]:
    """For type checkers: the function that is decorated takes what this one takes."""
    return lambda function: function


@_taking(connect)
def connect_sync(*brokers: Any, **options: Any) -> SyncBus:
    """A bus for programs without async and for notebooks. Options are those of `connect`.

    It connects when it is first used, or by `with` or `open`.

    >>> connect_sync("127.0.0.1:7411", name="desk-7")
    <SyncBus 'desk-7', connecting>
    """
    return SyncBus(connect(*brokers, **options))
