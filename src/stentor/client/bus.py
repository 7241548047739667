"""The bus: what an application sees of the service. The page for its users is docs/client.md."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import wraps
from html import escape
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

from stentor.client.advertisement import Advertisement, OnDemand
from stentor.client.encoding import notification_of, utc_now
from stentor.client.inbox import Inbox
from stentor.client.local_broker import LocalBroker
from stentor.client.outbox import pieces
from stentor.client.past import Past
from stentor.client.requests import Requests, answered, requests_of
from stentor.client.retry import Retry
from stentor.client.subscription import Subscription
from stentor.client.terms import WINDOW, Terms
from stentor.client.times import resolve, since_seconds
from stentor.client.transaction import Transaction
from stentor.client.typed import Reader, filter_of, is_event_class, taken_by
from stentor.client.uncancelled import cancel_elsewhere
from stentor.client.uplink import State
from stentor.client.waiting import Collector, TimeLimit, settles
from stentor.client.warning import application, told
from stentor.client.words import Choice, Order, Overflow, Parts, PlacementPolicy
from stentor.errors import (
    InvalidConfiguration,
    InvalidNotification,
    NoReply,
    StentorError,
    UnknownStrategy,
)
from stentor.model import Notification, NotificationId
from stentor.model.names import shown, text_problem
from stentor.notation.units import parse_duration, seconds_of

if TYPE_CHECKING:
    from stentor.client.detecting import PolicyGiven
    from stentor.composite import Pattern
    from stentor.filters import Filter
    from stentor.node.hooks import Hooks

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Events that `publish_many` encodes at a time.
CHUNK: Final = 500
#: In which order a subscriber may have what waits for it.
ORDERS: Final[tuple[str, ...]] = get_args(Order)
#: What brokers may do with what does not fit.
OVERFLOWS: Final[tuple[str, ...]] = get_args(Overflow)
#: Notifications that the broker may deliver ahead of the application where higher priorities come
#: first: what was delivered cannot be overtaken by what the broker still has.
RANKED_WINDOW: Final = 100

_log: Final = logging.getLogger("stentor.client")


class InboxOptions(TypedDict, total=False):
    """The options of `Bus.inbox`, which are explained at `Bus.subscribe`."""

    durable: str | None
    since: str | datetime | timedelta | Past | None
    group: str | None
    choice: Choice
    key: str | None
    lease: float | None
    renew: bool
    retained: bool
    overflow: Overflow
    limit: int
    window: int | None
    auto_confirm: bool
    retry: Retry | None
    dead_letter: bool
    settle: bool | None
    handler: Callable[[Any], Any] | None
    timeout: float | None
    takeover: float | str | None
    expires: str | float | timedelta | None
    order: Order
    strict: bool


class ReplyOptions(InboxOptions, total=False):
    """The options of `Bus.subscribe` that those who answer requests may use as well."""

    where: str | Filter | None


class SubscribeOptions(ReplyOptions, total=False):
    """The options of `Bus.subscribe`, where they are explained."""

    volatile: bool


class DetectOptions(TypedDict, total=False):
    """The options of `Bus.detect` that `Bus.subscribe` explains."""

    durable: str | None
    lease: float | None
    limit: int
    window: int | None
    auto_confirm: bool
    retry: Retry | None
    dead_letter: bool
    settle: bool | None
    handler: Callable[[Any], Any] | None
    timeout: float | None
    takeover: float | str | None
    expires: str | float | timedelta | None


class Bus:
    """A connection to the service, made by `stentor.connect`.

    It is opened by `async with` (or `await`) and used by the tasks of one event loop.
    """

    def __init__(self, local: LocalBroker, *, timeout: float, close_timeout: float) -> None:
        #: What is behind the bus; not meant for applications.
        self._local = local
        self._timeout = timeout
        #: Seconds for publications to be acknowledged at the end.
        self._close_timeout = close_timeout
        self._opened = False
        self._handlers: list[Subscription[Any]] = []
        self._requests: Requests | None = None

    def __repr__(self) -> str:
        return f"<Bus {self.name!r}, {self.state}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        return shown_as_table(self)

    # -- life

    @property
    def name(self) -> str:
        """The client's name. With it begins the producer in the ids of what it publishes."""
        return self._local.name

    @property
    def state(self) -> State:
        """`connecting`, `connected`, `reconnecting` or `closed`."""
        return self._local.state

    @property
    def error(self) -> StentorError | None:
        """Why there is no connection, as long as there is none."""
        return self._local.link.error if self._opened and self.state != "closed" else None

    @property
    def broker(self) -> str | None:
        """The name of the broker that serves, or served last."""
        welcome = self._local.link.welcome if self._opened and self.state != "closed" else None
        return None if welcome is None else welcome.broker

    def on_state(self, callback: Callable[[State], object]) -> Callable[[State], object]:
        """Have a function called with every new state; also a decorator."""
        self._local.state_callbacks.append(callback)
        return callback

    def on_refusal(
        self, callback: Callable[[Notification, StentorError], object]
    ) -> Callable[[Notification, StentorError], object]:
        """Have a function called with each publication that a broker refuses; also a decorator.

        Except those that somebody waits for, who is told. What was told here is neither logged nor
        raised by `flush`.
        """
        self._local.refusal_callbacks.append(callback)
        return callback

    async def open(self) -> Bus:
        """Connect, and subscribe what was given to `on` and `reply` before."""
        if self._opened:
            raise InvalidConfiguration("a bus is opened only once; make another with connect()")
        self._opened = True
        await self._local.open(self._timeout)
        try:
            for subscription in self._handlers:
                await subscription.open()
        except BaseException:
            await self._local.close(0.0)
            raise
        return self

    async def close(self) -> None:
        """Wait until publications are acknowledged, say goodbye, leave nothing behind.

        `NoReply` if publications could not be acknowledged in time.
        """
        await self._local.close(self._close_timeout)

    def __await__(self) -> Generator[Any, None, Bus]:
        return self.open().__await__()

    async def __aenter__(self) -> Bus:
        if not self._opened:
            await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except NoReply:
            if error is None:
                raise
            _log.exception("publications were not acknowledged")

    # -- publishing

    async def publish(
        self,
        event: Any,
        ack: bool = False,
        *,
        volatile: bool = False,
        retain: str | None = None,
        timeout: float | None = None,
        type: str | None = None,
        subject: str | None = None,
        channel: str | None = None,
        payload: bytes | None = None,
        content_type: str | None = None,
        time: datetime | None = None,
        deliver_at: str | float | timedelta | datetime | None = None,
        expires: str | float | timedelta | datetime | None = None,
        priority: int | None = None,
    ) -> NotificationId:
        """Publish a mapping of attributes, a `Notification` or an instance of a dataclass.

        Returns when it is queued, or with `ack` when it is in the journal of its broker, on disk.
        A `volatile` one skips the journal: it is delivered at most once. With `retain`, it is kept
        as the last value under that key. `timeout` bounds the waiting; `NoReply` leaves open
        whether it is published.

        Nobody is given it before `deliver_at`, nor from `expires` on: a datetime, a text in ISO
        8601, or a duration ("10m"). Those who subscribe with `order="priority"` get a higher
        `priority` first, of 0 to 9, where 4 is the usual one.
        """
        local = self._local
        local.check_open()
        if local.outbox.full:
            await local.room(timeout)
        if retain is not None:
            _check_key(retain, volatile)
        parts: dict[str, Any] = {}
        if type is not None:
            parts["type"] = type
        if subject is not None:
            parts["subject"] = subject
        if channel is not None:
            parts["channel"] = channel
        if payload is not None:
            parts["payload"] = payload
        if content_type is not None:
            parts["content_type"] = content_type
        if time is not None:
            parts["time"] = time
        if priority is not None:
            parts["priority"] = priority
        if deliver_at is not None or expires is not None:
            if deliver_at is not None:
                _check_delay(volatile)
                parts["deliver_at"] = deliver_at
            if expires is not None:
                parts["expires"] = expires
            resolve(parts, local.now())
        sequence = local.next_sequence
        if parts or local.careful:
            admitted = local.admit(notification_of(event, parts))
            if admitted is None:  # nobody asks for it; its id stays unused
                local.put([], skip=1)
                return local.id(sequence)
            items = [local.encoder.one(admitted, sequence, utc_now())]
        else:
            items = local.encoder.many((event,), sequence, utc_now())
        keys = None if retain is None else {0: retain}
        if not ack:
            local.put(items, volatile=volatile, retain=keys)
            return local.id(sequence)
        answered: asyncio.Future[None] = local.loop.create_future()
        local.put(items, volatile=volatile, retain=keys, waiter=settles(answered))
        if timeout is None:  # a limit that is none still costs a tenth of the whole call
            await answered
        else:
            async with TimeLimit(timeout, "the publication was not acknowledged"):
                await answered
        return local.id(sequence)

    async def publish_many(
        self,
        events: Iterable[Any] | AsyncIterable[Any],
        ack: bool = False,
        *,
        volatile: bool = False,
        retain: Callable[[Any], str | None] | None = None,
        timeout: float | None = None,
        **parts: Unpack[Parts],
    ) -> int:
        """Publish many, in order and fast: how many there were.

        As `publish` for each, with the same `type`, `subject`, `channel` and so on for all, except
        that `retain` makes the key of an event, and that `timeout` bounds each wait for room and
        the wait for the last acknowledgement.

            await bus.publish_many(({"price": p} for p in prices), type="Quote")
        """
        self._local.check_open()
        check_several(events)
        shared = {name: value for name, value in parts.items() if value is not None}
        if "deliver_at" in shared:
            _check_delay(volatile)
        resolve(shared, self._local.now())
        if retain is not None and volatile:
            _check_key("", volatile)
        collector = Collector() if ack else None
        count = 0
        if isinstance(events, AsyncIterable):
            async for event in events:
                await self._put_chunk([event], volatile, retain, timeout, collector, shared)
                count += 1
        else:
            iterator = iter(events)
            while chunk := list(itertools.islice(iterator, CHUNK)):
                await self._put_chunk(chunk, volatile, retain, timeout, collector, shared)
                count += len(chunk)
                await asyncio.sleep(0)  # others are to get on meanwhile, such as the connection
        if collector is not None:
            async with TimeLimit(timeout, "the publications were not all acknowledged"):
                await collector.done()
        return count

    async def _put_chunk(
        self,
        events: list[Any],
        volatile: bool,
        retain: Callable[[Any], str | None] | None,
        timeout: float | None,
        collector: Collector | None,
        parts: dict[str, Any],
    ) -> None:
        local = self._local
        if local.outbox.full or local.closing:
            await local.room(timeout)
        skipped = 0
        if local.careful:
            admitted = [(event, local.admit(notification_of(event, parts))) for event in events]
            events = [event for event, notification in admitted if notification is not None]
            skipped = len(admitted) - len(events)
            first, now = local.next_sequence, utc_now()
            notifications = [n for _, n in admitted if n is not None]
            items = [local.encoder.one(n, first + i, now) for i, n in enumerate(notifications)]
        else:
            items = local.encoder.many(events, local.next_sequence, utc_now(), parts)
        start = 0
        for piece in pieces(items) if items else ():
            keys = None if retain is None else _keys(retain, events[start : start + len(piece)])
            waiter = None if collector is None else collector.waiter()
            start += len(piece)
            local.put(piece, volatile=volatile, retain=keys, waiter=waiter)
        if skipped:
            local.put([], skip=skipped)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when everything that was published so far is acknowledged.

        Raises the first refusal that nobody has heard of, if there was one.
        """
        await self._local.flush(timeout)

    async def cancel(self, id: NotificationId, timeout: float | None = None) -> bool:
        """Have something never delivered that was published with `deliver_at`.

        Whether that was in time. The broker that serves now is asked first, and if it does not
        have it, all others; `Unreachable` if none has it, and one could not be asked.
        """
        async with TimeLimit(timeout, "the brokers did not say whether it was cancelled"):
            await self._local.answers_of_all(None)  # what is not on disk would come after all
            if await self._local.ask("cancel", {"id": str(id)}):
                return True
            return await cancel_elsewhere(self._local, str(id))

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Publications that are all made or none, when the `async with` is left."""
        return Transaction(self, timeout=timeout)

    @property
    def unacknowledged(self) -> int:
        """Publications that are not yet acknowledged."""
        return len(self._local.outbox)

    @property
    def quenched(self) -> int:
        """Publications that were not sent because nobody asked for them."""
        return self._local.quenched

    @property
    def rejected(self) -> int:
        """Publications that a broker refused."""
        return self._local.outbox.rejections

    # -- subscribing

    @overload
    def subscribe(
        self, filter: str | Filter = "", **options: Unpack[SubscribeOptions]
    ) -> Subscription[Notification]: ...

    @overload
    def subscribe(
        self, filter: type[T], **options: Unpack[SubscribeOptions]
    ) -> Subscription[T]: ...

    def subscribe(
        self,
        filter: str | Filter | type[Any] = "",
        *,
        where: str | Filter | None = None,
        durable: str | None = None,
        since: str | datetime | timedelta | Past | None = None,
        group: str | None = None,
        choice: Choice = "round_robin",
        key: str | None = None,
        lease: float | None = None,
        renew: bool = True,
        retained: bool = False,
        overflow: Overflow = "spill",
        limit: int = 0,
        volatile: bool = False,
        window: int | None = None,
        auto_confirm: bool = True,
        retry: Retry | None = None,
        dead_letter: bool = False,
        settle: bool | None = None,
        handler: Callable[[Any], Any] | None = None,
        timeout: float | None = None,
        takeover: float | str | None = None,
        expires: str | float | timedelta | None = None,
        order: Order = "published",
        strict: bool = False,
    ) -> Subscription[Any]:
        """Ask for what a filter matches, or for the events of a dataclass (`where` narrows them).

        durable       a name under which the broker keeps the position while nobody is connected
        since         history first: an ISO time, a datetime, a timedelta, "earliest", or an archive
                      (`stentor.pipeline.past`)
        group         share the notifications with the other members of this group
        choice        how a group chooses: "round_robin" or "least_loaded"
        key           instead of that, an attribute: what has equal values goes to one member
        lease         seconds for which the broker keeps it unless renewed, which is done by itself
                      unless `renew=False`
        retained      begin with the last value of every key
        overflow      what the broker does when more than `limit` wait: "spill", "block",
                      "drop_oldest", "drop_newest", "disconnect"
        volatile      only what comes while it is connected, at most once: cheap for the brokers,
                      and in force as soon as its own broker has it
        window        notifications that may be on their way or wait here
        auto_confirm  whether a durable one confirms by itself what was dealt with
        retry         how often and when a notification comes again that was refused
        dead_letter   publish what was given in vain as often as allowed as a dead letter
        settle        settle each by itself: `n.ack()`, `n.nack()`, `n.extend()`; so it is with
                      `retry` or `dead_letter`, and for handlers of durable subscriptions and groups
        handler       is called with each notification, instead of iterating; or with an object of
                      the class of events that the function says it takes
        timeout       seconds for the subscription to be in force
        takeover      for how long ("30s") the broker where a durable one lives may be out of reach
                      before another one takes it over; without it that broker is waited for
        expires       how old a notification may be ("10s"), by its time; older ones do not come
        order         "published": of each publisher in its order; "priority": higher priorities
                      first, settled one by one
        strict        raise `NeverMatches` for a filter that nothing can match, instead of a warning
        """
        terms = _terms(
            durable=durable,
            since=since,
            group=group,
            choice=choice,
            key=key,
            lease=lease,
            renew=renew,
            retained=retained,
            overflow=overflow,
            limit=limit,
            volatile=volatile,
            window=window,
            auto_confirm=auto_confirm,
            retry=retry,
            dead_letter=dead_letter,
            settle=settle,
            handled=handler is not None,
            timeout=timeout,
            takeover=takeover,
            expires=expires,
            order=order,
        )
        wanted = told(filter, where, strict)
        reader = self._reader(filter, handler)
        return Subscription(self._local, wanted, terms, reader=reader, handler=handler, bus=self)

    def _reader(
        self, filter: str | Filter | type[Any], handler: Callable[[Any], Any] | None
    ) -> Reader[Any] | None:
        """What makes objects of notifications, if a class is asked for or taken by the handler."""
        kind = filter if is_event_class(filter) else None
        if kind is None and handler is not None:
            kind = taken_by(handler, application()[0].f_locals)
        return None if kind is None else Reader(kind)

    def detect(
        self,
        pattern: Pattern,
        *,
        policy: PolicyGiven = None,
        lateness: str | float | timedelta | None = None,
        mode: Literal["standing", "one_shot"] = "standing",
        placement: PlacementPolicy = "minimum_latency",
        **options: Unpack[DetectOptions],
    ) -> Subscription[Notification]:
        """Have a pattern over events detected in the broker network; each detection comes as a
        notification (see `stentor.composite`).

        policy    when events are consumed: "best_effort" at once, "guaranteed" when nothing older
                  can come, "probabilistic" when that is likely; without it, what is durable is
                  guaranteed
        lateness  with "guaranteed", by how much events may come to their brokers later than their
                  own time says; 2s without it
        mode      "one_shot": the first detection in a partition is the last
        placement where it is detected, by best effort: whole at this broker ("minimum_latency"),
                  near the sources ("minimum_bandwidth"), in parts that others use already
                  ("minimum_impact"), in small parts everywhere ("minimum_load"), at two brokers
                  ("maximum_reliability"), or where all of a sequence is offered ("delegation")

        The detector ends with its last subscriber. With `durable` the broker goes on detecting
        while nobody is connected, and keeps what it finds. The other options are those of
        `subscribe`.
        """
        from stentor.client.detecting import detection  # most clients have no use for patterns

        handler = options.pop("handler", None)
        durable = options.get("durable") is not None
        wanted = detection(pattern, policy, lateness, mode, placement, durable=durable)
        terms = _terms(**options, handled=handler is not None, detect=wanted)
        found = told(f"_type = '{pattern.type}'", None, False)
        return Subscription(self._local, found, terms, handler=handler)

    def inbox(self, *filters: str | Filter | type[Any], **options: Unpack[InboxOptions]) -> Inbox:
        """Several subscriptions of one component, each notification delivered once.

        It begins with these filters; `subscribe` and `unsubscribe` of the inbox change them. The
        options are those of `subscribe`. History and last values are those of the filters that it
        begins with. A durable inbox comes back with the subscriptions that it had, and the members
        of a group share theirs.
        """
        handler = options.pop("handler", None)
        strict = options.pop("strict", False)
        wanted = [told(filter, None, strict) for filter in filters]
        terms = _terms(**options, handled=handler is not None)
        return Inbox(self._local, wanted, terms, handler=handler)

    def on(
        self, filter: str | Filter | type[Any] = "", **options: Unpack[SubscribeOptions]
    ) -> Callable[[F], F]:
        """A decorator: call the function, plain or async, with each notification, in order.

        On a bus that is not open yet, the subscription begins when it is opened.
        """

        def register(handler: F) -> F:
            changed: SubscribeOptions = {**options, "handler": handler}
            self._add(self.subscribe(filter, **changed))
            return handler

        return register

    def _add(self, subscription: Subscription[Any]) -> None:
        self._local.check_open()
        self._handlers.append(subscription)
        if self._opened:
            self._local.start(_logged(subscription.open()))

    async def ready(self) -> None:
        """Return when everything that was given to `on` and `reply` is in force."""
        for subscription in self._handlers:
            await subscription.in_force()

    # -- advertising

    def advertise(
        self,
        filter: str | Filter | type[Any],
        *,
        demand: OnDemand | bool = True,
        quench: bool = False,
    ) -> Advertisement:
        """Announce what will be published; ends with its `async with`, or by `close`.

        `demand` is called with the advertisement whenever what is asked for of it has changed;
        False leaves that out. With `quench`, what nobody asks for is not sent.
        """
        advertisement = Advertisement(self, filter_of(filter), quench=quench, demand=bool(demand))
        if callable(demand):
            advertisement.on_demand(demand)
        return advertisement

    async def offers(
        self, overlapping: str | Filter | None = None, timeout: float | None = None
    ) -> list[Filter]:
        """What is advertised anywhere, as far as it overlaps a filter."""
        arguments = {} if overlapping is None else {"overlapping": str(filter_of(overlapping))}
        return [filter_of(text) for text in await self._local.ask("offers", arguments, timeout)]

    # -- request and reply

    async def request(
        self, event: Any, timeout: float = 10.0, *, volatile: bool = True, **parts: Unpack[Parts]
    ) -> Notification:
        """Publish a request and return the first reply; `NoReply` if there is none in time.

        `NobodyProvides`, which is a `NoReply`, comes at once if no provider's filter matches.
        `ProviderFailed` has the error that the provider raised.
        """
        replies = self.request_all(event, timeout, max_replies=1, volatile=volatile, **parts)
        async with aclosing(replies) as replies:
            async for reply in replies:
                return reply
        raise NoReply("the bus was closed")

    def request_all(
        self,
        event: Any,
        timeout: float = 10.0,
        max_replies: int | None = None,
        *,
        volatile: bool = True,
        **parts: Unpack[Parts],
    ) -> AsyncGenerator[Notification, None]:
        """Publish a request and iterate over the replies until time is up or there are enough.

        Providers that raise an error count as having replied; `ProviderFailed` if all of them did.
        """
        self._local.check_open()
        if self._requests is None:
            self._requests = Requests(self)
        return self._requests.all(event, timeout, max_replies, volatile, dict(parts))

    def reply(
        self,
        filter: str | Filter | type[Any] = "",
        *,
        volatile: bool = True,
        **options: Unpack[ReplyOptions],
    ) -> Callable[[F], F]:
        """A decorator: answer the requests that the filter matches with what the function returns.

        It may return an event, None for no reply, or be a generator of several. With `group=`, each
        request goes to one of several providers.
        """

        def register(provider: F) -> F:
            @wraps(provider)  # so that it is named in the log
            async def handle(event: Any) -> None:
                assert subscription.last is not None  # it is the request behind the event
                await answered(self, subscription.last, lambda: provider(event), volatile)

            where = requests_of(filter_of(options.get("where") or ""))
            changed: ReplyOptions = {**options, "where": where, "handler": handle}
            changed.setdefault("settle", False)  # who asked does not wait for another attempt
            subscription = self.subscribe(filter, **changed)
            self._add(subscription)
            return provider

        return register

    # -- extending

    @property
    def hooks(self) -> Hooks:
        """Code that changes what is published, subscribed, advertised and delivered."""
        if self._local.hooks is None:
            from stentor.node.hooks import Hooks  # not needed by most, and a lot to load

            self._local.hooks = Hooks()
        return self._local.hooks


def shown_as_table(bus: Any) -> str:
    """What a notebook shows of a bus.

    >>> shown_as_table(type("Bus", (), dict(name="ann", state="connecting", broker=None, error=None,
    ...     unacknowledged=0)))
    '<table><tr><th>bus</th><td>ann</td></tr><tr><th>state</th><td>connecting</td></tr></table>'
    """
    rows = {"bus": bus.name, "state": bus.state, "broker": bus.broker, "error": bus.error}
    if bus.unacknowledged:
        rows["not acknowledged"] = f"{bus.unacknowledged:,}"
    cells = "".join(
        f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value is not None
    )
    return f"<table>{cells}</table>"


def _keys(retain: Callable[[Any], str | None], events: Sequence[Any]) -> dict[int, str]:
    keys = {}
    for i, event in enumerate(events):
        key = retain(event)
        if key is not None:
            _check_key(key, False)
            keys[i] = key
    return keys


def _check_key(key: str, volatile: bool) -> None:
    if volatile:
        raise InvalidConfiguration(
            "a last value is kept by the journal, which volatile publications skip; choose one"
        )
    problem = text_problem(key)
    if problem is not None:
        raise InvalidNotification(f"the key retain={shown(key)} {problem}")


def check_several(events: object) -> None:
    """Raise if this is one event rather than many."""
    if isinstance(events, Mapping):
        raise InvalidNotification(
            "publish_many takes several events, as in a list; for a single one there is publish"
        )


def _check_delay(volatile: bool) -> None:
    if volatile:
        raise InvalidConfiguration(
            "what is delivered later is kept on disk until then, which volatile publications skip; "
            "leave out volatile, or deliver_at"
        )


def _terms(
    *,
    durable: str | None = None,
    since: str | datetime | timedelta | Past | None = None,
    group: str | None = None,
    choice: str = "round_robin",
    key: str | None = None,
    takeover: float | str | None = None,
    auto_confirm: bool = True,
    retry: Retry | None = None,
    dead_letter: bool = False,
    settle: bool | None = None,
    handled: bool = False,
    window: int | None = None,
    expires: str | float | timedelta | None = None,
    order: str = "published",
    overflow: str = "spill",
    **others: Any,
) -> Terms:
    _check_word("order", order, ORDERS)
    _check_word("overflow", overflow, OVERFLOWS)
    ranked = order == "priority"
    if ranked and durable is None and group is None:
        raise InvalidConfiguration(
            "order='priority' is for what waits in a queue that the broker keeps, and is settled "
            "one by one; subscribe with durable= or group="
        )
    past = since if isinstance(since, Past) else None
    if isinstance(since, Past):
        since = "earliest"  # journals that an archive does not know are read from their beginning
    if settle is None:
        by_default = handled and auto_confirm and (durable is not None or group is not None)
        settle = by_default or retry is not None or dead_letter or ranked
    elif not settle and (retry is not None or dead_letter or ranked):
        raise InvalidConfiguration(
            "what comes again, becomes a dead letter, or comes by priority is settled one by one; "
            "leave out settle=False, or retry, dead_letter and order"
        )
    settlement = None
    if settle:
        settlement = (retry or Retry()).terms(
            dead_letter=dead_letter, group=group is not None, ranked=ranked
        )
    if window is None:
        window = RANKED_WINDOW if ranked else WINDOW
    return Terms(
        auto_confirm=auto_confirm,
        settlement=settlement,
        durable=_name(durable, "durable"),
        since=None if since is None else since_seconds(since),
        past=past,
        group=_name(group, "group"),
        choice=_choice(choice, key, group),
        takeover=parse_duration(takeover) if isinstance(takeover, str) else takeover,
        expires=None if expires is None else seconds_of(expires, "expires"),
        window=window,
        overflow=overflow,
        **others,
    )


def _check_word(option: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise UnknownStrategy(f"there is no {option}={word!r}; choose one of {', '.join(words)}")


def _choice(choice: str, key: str | None, group: str | None) -> str:
    if key is None:
        return choice
    if group is None:
        raise InvalidConfiguration(
            f"key={key!r} says which member of a group is given an event; subscribe with group="
        )
    if choice != "round_robin":
        raise InvalidConfiguration(
            f"a group chooses by key={key!r} or by choice={choice!r}; leave out one of them"
        )
    return f"key:{key}"


def _name(name: str | None, what: str) -> str | None:
    if name is not None:
        problem = text_problem(name)
        if problem is not None:
            raise InvalidConfiguration(f"the name {what}={shown(name)} {problem}")
    return name


async def _logged(opening: Any) -> None:
    """For what nobody waits for."""
    try:
        await opening
    except StentorError as error:
        _log.error("a subscription failed: %s", error)
