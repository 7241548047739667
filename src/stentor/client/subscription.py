"""Subscriptions, as an application holds them.

A subscription lives longer than a connection. Its `Arrivals` know what has come; whenever the
local broker has a new connection, the subscription is made again from there on, so the application
notices a pause at most.

Times of history are told by the broker's clock, which may differ from ours. So `Subscribed` carries
it, and from there on we count.

*Groups.* While a member is away, the others are given what it had not confirmed; so it forgets what
waits here. If the group is gone as well, with its broker or with its only member, the first that
comes back begins it again: at the time when the connection was lost, and in each stream no later
than with what this member had to forget. What the others had to it cannot know; the broker of a
durable group does.

*Flow control.* The broker may deliver `window` notifications. What was handed out is granted again,
half a window at a time; what the application has not yet asked for is not.

*Archives.* With a `past` instead of a time, the past is handed out first; no credit is granted
before it is used up.

*Confirmation* (durable subscriptions, and members of groups). What the application has dealt with
is told to the broker soon after, many at a time. A notification has been dealt with when the next
one is asked for, or when the `async with` is left without an error. So a process that dies gets at
most its last few notifications again, and loses none.

*Settlement* takes its place where each notification is settled by itself: what came is then in
`Unsettled`, and the broker is told as soon and as many at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass
from inspect import isawaitable
from math import inf
from threading import get_ident
from time import time as clock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

from stentor.client.arrivals import Arrivals
from stentor.client.backoff import Backoff
from stentor.client.local_broker import LocalBroker
from stentor.client.past import Past, Recall
from stentor.client.unsettled import CAUSE, Delivery, Unsettled
from stentor.client.uplink import Uplink
from stentor.client.waiting import TimeLimit
from stentor.errors import (
    InvalidConfiguration,
    InvalidNotification,
    JournalUnavailable,
    LeaseExpired,
    NoReply,
    QueueOverflow,
    StentorError,
    Vetoed,
)
from stentor.model import Notification, any_handled
from stentor.notation.completion import offering
from stentor.notation.counts import counted
from stentor.protocol.messages import (
    DETECT,
    Amended,
    Confirm,
    Credit,
    Deliver,
    Detection,
    Gap,
    Positions,
    Refused,
    Renew,
    Settle,
    Settlement,
    StreamId,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Withdrawn,
    Yielded,
)

if TYPE_CHECKING:
    from stentor.client.recorder import RecordedComponent
    from stentor.filters import Filter

    Handler = Callable[[Any], Awaitable[object] | object]

T = TypeVar("T")

#: Notifications that the broker may deliver ahead of the application.
WINDOW: Final = 5_000
#: Confirmations go out after so many seconds, or so many notifications.
CONFIRM_EVERY: Final = 0.05
CONFIRM_AFTER: Final = 1_000
#: Seconds that the end of a subscription may take.
CLOSING: Final = 5.0
#: Seconds at most between two questions where a group or a durable subscription lives.
PATIENCE: Final = 2.0
#: Gaps that are remembered, the newest ones.
MAX_GAPS: Final = 1_000

_log: Final = logging.getLogger("stentor.client")


class LostRange(NamedTuple):
    """Offsets of a stream that no longer exist, by retention; some may have matched."""

    stream: str
    first: int
    last: int


@dataclass(frozen=True)
class Terms:
    """What a subscription asks for, besides its filter."""

    durable: str | None = None
    since: float | None = None
    past: Past | None = None
    group: str | None = None
    choice: str = "round_robin"
    lease: float | None = None
    renew: bool = True
    retained: bool = False
    overflow: str = "spill"
    limit: int = 0
    volatile: bool = False
    window: int = WINDOW
    auto_confirm: bool = True
    settlement: Settlement | None = None
    timeout: float | None = None
    takeover: float | None = None
    expires: float | None = None
    detect: Detection | None = None

    def __post_init__(self) -> None:
        if self.takeover is not None and (self.durable is None or not self.takeover >= 0):
            raise InvalidConfiguration(
                f"takeover={self.takeover} is for durable subscriptions: the seconds for which the "
                "broker where one lives may be out of reach; give durable='name' as well"
            )
        if self.window < 1:
            raise InvalidConfiguration(f"with window={self.window} nothing can be delivered")
        if self.limit < 0:
            raise InvalidConfiguration(f"limit={self.limit} is negative; 0 is the broker's own")
        if self.lease is not None and not self.lease > 0:
            raise InvalidConfiguration(f"a lease of {self.lease} seconds ends before it begins")
        if self.group is not None and self.retained:
            raise InvalidConfiguration(
                "the members of a group share notifications, so last values for each make no "
                "sense; use retained=True without a group"
            )
        if self.volatile and (
            self.retained or any(x is not None for x in (self.durable, self.since, self.group))
        ):
            raise InvalidConfiguration(
                "a volatile subscription has no past and shares with nobody; leave out durable, "
                "since, retained and group, or volatile"
            )
        if self.expires is not None and not self.expires > 0:
            raise InvalidConfiguration(
                f"expires={self.expires} leaves out every event; give a longer time"
            )
        if self.settlement is not None and self.durable is None and self.group is None:
            raise InvalidConfiguration(
                "only a durable subscription or a group settles notifications one by one, or "
                "receives some again; subscribe with durable= or group="
            )
        if self.past is not None:
            self._check_past()

    def _check_past(self) -> None:
        """While the past is read, brokers must keep what comes, for this subscriber alone."""
        if self.durable is not None or self.group is not None:
            raise InvalidConfiguration(
                "brokers keep no place in an archive, so since=past(...) goes with neither durable "
                "nor group; read the archive first, and subscribe with since=TIME"
            )
        if self.retained:
            raise InvalidConfiguration("retained=True makes no sense with since=past(...)")
        if self.overflow != "spill":
            raise InvalidConfiguration(
                f"with overflow={self.overflow!r} what comes while the past is read could be lost "
                "or hold up publishers; use overflow='spill' with since=past(...)"
            )


class Subscription(Generic[T]):
    """Notifications that match a filter, in order, each once. Made by `Bus.subscribe`.

    It begins with `async with` (or `await`), and is then read by `async for`, `get` or `batches`,
    by one task at a time.
    """

    def __init__(
        self,
        local: LocalBroker,
        filter: Filter,
        terms: Terms,
        *,
        reader: Callable[[Notification], T] | None = None,
        handler: Handler | None = None,
    ) -> None:
        self._local = local
        self._terms = terms
        self._reader = reader
        self._handler = handler
        self._number = 0
        self._arrivals: Arrivals | Unsettled = Arrivals(shared=terms.group is not None)
        #: What is settled one by one, if it is.
        self._unsettled: Unsettled | None = None
        if terms.settlement is not None:
            self._arrivals = self._unsettled = Unsettled(
                Delivery(self._ack, self._nack, self._extend, self),
                ordered=not terms.settlement.overtake,
                timed=terms.settlement.deadline > 0,
                shared=terms.group is not None,
                ranked=terms.settlement.ranked,
            )
            self._acked = self._unsettled.ack
        #: Handed out or dropped since credit was granted last.
        self._used = 0
        self._half = max(1, terms.window // 2)
        self._confirms = self._unsettled is None and (
            terms.durable is not None or terms.group is not None
        )
        self._unconfirmed = 0
        self._confirmed: Positions = {}
        #: Answers to questions, which are put again if the connection is lost.
        self._asked: list[asyncio.Future[Any]] = []
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._lease_timer: asyncio.TimerHandle | None = None
        self._lease_ends: float | None = None
        #: How often the broker has said that it is in force.
        self._granted = 0
        #: Whether the broker has been asked for it over this connection.
        self._said = False
        #: Whether the broker has said that it is in force, over this connection and ever.
        self._settled = False
        self._settled_at: float | None = None
        #: In which term the broker says that it was made or reset, if it is durable.
        self._born = 0
        #: How far the broker's clock is ahead of the loop's.
        self._ahead = 0.0
        #: When the connection was lost, by the broker's clock, and the positions behind which lies
        #: what a member of a group forgot then.
        self._lost_at: float | None = None
        self._forgotten: Positions = {}
        self._past_last_values = False
        #: The past, until it is used up.
        self._recall: Recall | None = None
        self._changed: list[asyncio.Future[None]] = []
        self._error: StentorError | None = None
        self._task: asyncio.Task[None] | None = None
        #: The loop and the thread in which it lives.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        #: What it is given is recorded by this, if it is.
        self._recorded: RecordedComponent | None = None
        self._filter = filter
        #: The link that it uses; a group may live at another broker.
        self.link: Uplink | None = None
        self.moves = 0
        self.patience = Backoff(longest=PATIENCE)
        #: Whether the broker where it lives could not be reached; and whether other brokers can.
        self.waits = False
        self.cut_off = False
        #: Whether the application has ended it, and whether nothing more will come in any case.
        self.closing = False
        self.over = False
        #: Whether nothing more is handed out, although something may wait.
        self.stopped = False
        #: Whether a durable subscription of that name existed before.
        self.resumed = False
        #: The notification behind what was handed out last.
        self.last: Notification | None = None
        #: Stretches that were lost by retention, and how many offsets all in all.
        self.gaps: deque[LostRange] = deque(maxlen=MAX_GAPS)
        self.lost = 0
        #: How often publishers had waited for it ("block") for as long as they do.
        self.yields = 0
        #: Whether something of it may expire, and notifications that have, here.
        self._perishable = terms.expires is not None
        self.expired = 0
        #: Handlers that failed, and notifications that did not fit the class subscribed to.
        self.errors = 0

    __dir__ = offering(
        "batches",
        "close",
        "confirm",
        "durable",
        "errors",
        "expired",
        "filter",
        "gaps",
        "get",
        "in_force",
        "last",
        "lost",
        "open",
        "over",
        "positions",
        "renew",
        "resumed",
        "stop",
        "yields",
    )

    def __repr__(self) -> str:
        wanted = "everything" if self.filter.is_always else repr(str(self.filter))
        return f"<{type(self).__name__} to {wanted}>"

    @property
    def filter(self) -> Filter:
        """What it asks for."""
        return self._filter

    @property
    def durable(self) -> bool:
        """Whether it outlives its application."""
        return self._terms.durable is not None

    @property
    def _is_shared(self) -> bool:
        """Whether others may be given what this one has not dealt with."""
        return self._terms.durable is not None or self._terms.group is not None

    @property
    def _begun(self) -> bool:
        """Whether it has ever been in force."""
        return self._settled_at is not None

    @property
    def plain(self) -> bool:
        """Whether notifications are handed out as they came, and nobody is told about it."""
        told = self._confirms or self._unsettled is not None or self._local.recording is not None
        return self._reader is None and not told and self._local.hooks is None

    # -- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        arrivals = self._arrivals
        while True:
            notification = arrivals.next() if not self.stopped else None
            if notification is None:
                self._handed_out(0)
                await self._more()
                continue
            self._handed_out(1)
            if self._perishable and self._is_over(notification):
                continue
            if self._reader is None and self._recorded is None and self._local.hooks is None:
                self.last = notification
                return notification  # type: ignore[return-value]
            for shown in self._given([notification]):
                return shown

    async def get(self, timeout: float | None = None) -> T:
        """The next one; `NoReply` if none comes in time."""
        try:
            async with TimeLimit(timeout, f"no notification for {str(self.filter)!r} came"):
                return await self.__anext__()
        except StopAsyncIteration:
            raise (self._error or NoReply("the subscription has ended")) from None

    async def batches(self, limit: int = 1_000) -> AsyncIterator[list[T]]:
        """Notifications in lists as they have come, which is the fastest way to read.

        A list counts as dealt with when the next one is asked for.
        """
        while batch := await self.next_batch(limit):
            yield batch

    async def next_batch(self, limit: int = 1_000, timeout: float | None = None) -> list[T]:
        """The next list; empty when there will be no more, `NoReply` if none comes in time."""
        async with TimeLimit(timeout, f"no notification for {str(self.filter)!r} came"):
            return await self._next_batch(limit)

    async def _next_batch(self, limit: int) -> list[T]:
        arrivals = self._arrivals
        while True:
            batch = arrivals.some(limit) if not self.stopped else []
            self._handed_out(len(batch))
            if not batch:
                try:
                    await self._more()
                except StopAsyncIteration:
                    return []
                continue
            if self._perishable:
                batch = [n for n in batch if not self._is_over(n)]
                if not batch:
                    continue
            if self._reader is None and self._recorded is None and self._local.hooks is None:
                self.last = batch[-1]
                return batch  # type: ignore[return-value]
            if shown := self._given(batch):
                return shown

    def _is_over(self, notification: Notification) -> bool:
        """Whether it has expired while it waited here; then it has been settled."""
        end = inf if notification.handling is None else notification.handling.end
        if self._terms.expires is not None and notification.time is not None:
            begin = notification.time.timestamp()
            if notification.handling is not None:
                begin = max(begin, notification.handling.due)
            end = min(end, begin + self._terms.expires)
        if end > self._local.monotonic + self._ahead:
            return False
        self.expired += 1
        if notification.delivery is not None:
            if notification.attempt > 1:  # the broker knows what becomes of it
                notification.nack(0.0, "it has expired")
            else:
                notification.ack()
        return True

    def _given(self, batch: list[Notification]) -> list[T]:
        """What the application sees of these."""
        if self._recorded is not None:
            self._recorded.notified(batch)
        return [each for each in map(self._shown, batch) if each is not None]

    def _shown(self, notification: Notification) -> T | None:
        """As the application sees it; None if it does not."""
        delivery = notification.delivery
        place = None if delivery is None else notification.place
        try:
            notification = self._local.run_hooks("deliver", notification)
            self.last = notification
            if place is not None:
                notification.for_delivery(delivery, place)
            if self._reader is None:
                return notification  # type: ignore[return-value]
            return self._reader(notification)
        except Vetoed:
            self._local.dropped(notification, "vetoed")
            if place is not None:
                delivery.ack(notification.for_delivery(delivery, place))
        except InvalidNotification as error:
            self.errors += 1
            _log.error("%s", error)
            self._local.dropped(notification, "unfit")
            if delivery is not None and self._terms.settlement is not None:
                if self._terms.settlement.attempts:
                    notification.nack(reason=str(error))
                else:  # it would never fit, and hold up what follows
                    notification.ack()
        return None

    async def _more(self) -> None:
        """Wait until there may be more; `StopAsyncIteration` or the error when there will not."""
        if self._number == 0 and not self.closing:
            await self.open()
        if self._recall is not None and not (self.over or self.stopped):
            await self._remember(self._recall)
            return
        await self._until(lambda: len(self._arrivals) or self.over or self.stopped)
        if self.stopped:
            if isinstance(self._arrivals, Arrivals):
                self._arrivals.deal()
            raise StopAsyncIteration
        if not len(self._arrivals):
            if self._error is not None:
                raise self._error
            raise StopAsyncIteration

    async def _remember(self, recall: Recall) -> None:
        """Take in the next portion of the past. Behind the last, brokers may deliver."""
        portion = await recall.next()
        if portion is not None:
            assert isinstance(self._arrivals, Arrivals)  # who settles has no archive
            self._arrivals.recall(portion)
            return
        self._recall = None
        recall.close()
        self._used = self._terms.window
        self._grant()

    async def _until(self, condition: Callable[[], object]) -> None:
        """Wait until something holds that `_notify` is called for."""
        while not condition():
            future: asyncio.Future[None] = self._local.loop.create_future()
            self._changed.append(future)
            await future

    def _notify(self) -> None:
        if self._changed:
            waiting, self._changed = self._changed, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def _handed_out(self, count: int) -> None:
        """So many were just given to the application, so those before have been dealt with."""
        if self._recall is None:
            self._used += count
        if self._unsettled is not None:
            self._used += self._unsettled.freed
            self._unsettled.freed = 0
            self._tell_soon()
        if self._used >= self._half:
            self._grant()
        if self._confirms and self._terms.auto_confirm and self._settled:
            self._unconfirmed += count
            if self._unconfirmed > CONFIRM_AFTER:
                self._send_confirm()
            elif self._confirm_timer is None:
                later = self._local.loop.call_later
                self._confirm_timer = later(CONFIRM_EVERY, self._send_confirm)

    def _grant(self) -> None:
        if self._settled and self.link is not None:
            self.link.send(Credit(self._number, self._used))
            self._used = 0

    # -- what the broker says

    def deliver(self, message: Deliver) -> None:
        """Notifications have come."""
        if self.over or self.closing:
            return
        count = len(message.items)
        self._perishable = self._perishable or any_handled(message.items)
        arrived = message.stream, message.offsets, message.items, message.retained
        if self._unsettled is not None:
            new = self._unsettled.deliver(*arrived, message.attempt)
            self._handed_out(0)  # what was settled before is settled once more, unseen
        else:
            new = self._arrivals.deliver(*arrived)
        if not message.retained:
            self._past_last_values = True
        if new < count:
            self._handed_out(count - new)
        if new:
            self._notify()

    def subscribed(self, message: Subscribed) -> None:
        """It is in force."""
        self._settled = True
        self._granted += 1
        self.moves = 0
        self.waits = self.cut_off = False
        self.patience.reset()
        self.resumed = self.resumed or (self._settled_at is None and message.resumed)
        self._born = message.born or self._born
        broker_time = message.time or clock()
        self._ahead = broker_time - self._local.monotonic
        if self._settled_at is None:
            self._settled_at = broker_time
        if self._lost_at is not None:
            self._confirmed = {}  # what was said last may not have arrived
            self._lost_at = None
        self._forgotten = {}
        if message.lease is not None:
            self._lease_ends = self._local.monotonic + message.lease
            self._stop_lease()
            if self._terms.renew:
                later = self._local.loop.call_later
                self._lease_timer = later(message.lease / 3, self._renew)
        if self._used >= self._half:
            self._grant()
        if self._unsettled is not None:
            self._tell_settled()
        elif self._confirms and self._terms.auto_confirm and self._confirm_timer is None:
            # What was handed out before it was in force again has been dealt with, too.
            later = self._local.loop.call_later
            self._confirm_timer = later(CONFIRM_EVERY, self._send_confirm)
        self._notify()

    def withdrawn(self, message: Withdrawn) -> None:
        """The broker has taken some back."""
        if self._unsettled is not None:
            if self._recorded is not None:
                self._recorded.taken(message)
            self._unsettled.withdrawn(message)
            self._handed_out(0)
            self._notify()

    def progress(self, positions: Positions) -> None:
        """Up to here nothing else will come."""
        self._past_last_values = True
        if isinstance(self._arrivals, Arrivals):
            self._arrivals.progress(positions)

    def gap(self, message: Gap) -> None:
        """Something is gone for good."""
        lost = LostRange(message.stream, message.first, message.last)
        self.gaps.append(lost)
        count = max(0, lost.last - lost.first + 1)
        self.lost += count
        gone = counted(count, "notification")
        _log.warning("%r: %s lost by retention: %s", self, gone, lost)
        if isinstance(self._arrivals, Arrivals):
            self._arrivals.progress({message.stream: message.last})

    def yielded(self, message: Yielded) -> None:
        """Publishers do not wait for it any longer."""
        self.yields += 1
        _log.warning(
            "%r: publishers have waited for it for %.1f s, and do no longer until it has caught "
            "up; take notifications faster, or choose another overflow policy",
            self,
            message.seconds,
        )

    def ended(self, error: StentorError | None) -> None:
        """Nothing more will come."""
        self.over = True
        if self._error is None:
            self._error = error
        if error is not None and self._is_shared:
            self._arrivals.clear()  # it is for whoever goes on with it
        if self._recall is not None:
            self._recall.close()
        self._local.subscriptions.pop(self._number, None)
        if self._recorded is not None:
            self._recorded.ended()
        self._unsettle()

    # -- connections come and go

    def broker_leaves(self) -> None:
        """What was dealt with is not for others."""
        if self._unsettled is not None:
            self._tell_settled()
            if self._terms.group is not None:
                self._unsettled.clear()  # what waits is for them
        elif self._confirms and self._terms.auto_confirm:
            self._send_confirm()

    def connection_lost(self, error: StentorError, at: float) -> None:
        """It has to be made again. The broker was there until then, by the loop's clock."""
        if self._settled and self._lost_at is None:
            self._lost_at = at + self._ahead
        if self._recorded is not None:  # before it is in force again it may be given something
            self._recorded.cut_off()
        self._said = False
        self._unsettle()
        if self._unsettled is not None:
            self._unsettled.forget_waiting()
        elif isinstance(self._arrivals, Arrivals) and self._terms.group is not None:
            # What this member was given and has not confirmed goes to the others.
            for stream, before in self._arrivals.forget_waiting().items():
                self._forgotten[stream] = min(before, self._forgotten.get(stream, before))
        if self._terms.overflow == "disconnect" and isinstance(error, QueueOverflow):
            self.ended(error)

    def sent_on(self, error: StentorError, at: float) -> None:
        """It lives at another broker, which knows how far it has come."""
        self.connection_lost(error, at)
        if self._terms.durable is not None and self._terms.group is None:
            self._arrivals.forget_place()

    def _unsettle(self) -> None:
        self._settled = False
        self._stop_confirm()
        self._stop_lease()
        for answer in self._asked:
            if not answer.done():
                answer.set_result(AGAIN)
        self._notify()

    def subscribe_again(self) -> None:
        """Say what is wanted over a new connection, from where it was; once over each."""
        if self.over or self.link is None or self._said:
            return
        lease = self._terms.lease
        if lease is not None and not self._terms.renew and self._lease_ends is not None:
            lease = self._lease_ends - self._local.monotonic
            if lease <= 0:
                self.ended(LeaseExpired(f"the lease of {self._terms.lease} seconds has run out"))
                return
        self._used = 0
        self._said = True
        self.link.send(self._message(lease))

    def _message(self, lease: float | None) -> Subscribe:
        terms = self._terms
        since = terms.since
        positions: Positions | None = None
        if terms.volatile:
            pass  # it goes on with what comes
        elif terms.group is not None and terms.durable is None:
            if self._settled_at is not None:
                since = self._lost_at
                if since is None:  # the group has moved
                    since = self._local.monotonic + self._ahead
                positions = self._forgotten or None
        elif self._unsettled is not None:
            pass  # the broker knows what was settled
        elif self._arrivals.arrived or self._settled_at is not None:
            positions = dict(self._arrivals.arrived)
            if since is None:
                # Brokers that were not there yet: what they have from the beginning of this
                # subscription on is part of it.
                since = self._settled_at
        return Subscribe(
            self._number,
            self._asks(),
            0 if self._recall is not None else max(0, terms.window - len(self._arrivals)),
            terms.durable,
            since,
            positions,
            terms.group,
            terms.choice,
            lease,
            terms.retained and not self._past_last_values,
            terms.overflow,
            terms.limit,
            terms.volatile,
            terms.takeover,
            self.cut_off and terms.group is None,
            terms.settlement,
            terms.expires,
            terms.detect,
            self._born,
        )

    def _asks(self) -> str | list[str]:
        """What it asks for, in the words of the protocol."""
        return str(self.filter) if self._terms.detect is None else DETECT

    def survives(self, error: StentorError) -> bool:
        """Whether it is to be asked for again in a while, although the broker does not give it.

        What was in force before waits until the disk of the broker where it lives has room.
        """
        if not (self._begun and self.durable and isinstance(error, JournalUnavailable)):
            return False
        if not self.waits:
            _log.warning("%r waits: %s", self, error)
        self.waits = True
        self.sent_on(error, self._local.monotonic)
        return True

    def amended(self, message: Amended) -> None:
        """What it asks for has changed at the broker, which is so for inboxes only."""

    # -- transactions

    def check_takeable(self) -> None:
        """Raise why no transaction can take from it, if none can."""
        if self._unsettled is None or self._terms.durable is None:
            raise InvalidConfiguration(
                "a transaction takes from a durable subscription that settles one by one; "
                "subscribe with durable='name' and settle=True"
            )

    def has(self, notification: Notification) -> bool:
        """Whether the application has it, and has not settled it."""
        return self._unsettled is not None and self._unsettled.has(notification)

    async def served(self) -> Uplink:
        """The connection over which it is in force, as soon as there is one."""
        await self._until(lambda: (self._settled and self.link is not None) or self.over)
        if self.over or self.link is None:
            raise self._error or NoReply("the subscription has ended")
        return self.link

    @property
    def number(self) -> int:
        """By which its broker knows it."""
        return self._number

    def ask(self, answer: asyncio.Future[Any]) -> None:
        """This is answered by `AGAIN` if the connection is lost."""
        self._asked.append(answer)
        answer.add_done_callback(self._asked.remove)

    def places(self, notifications: list[Notification]) -> dict[StreamId, list[int]]:
        """Where these are settled, by stream."""
        assert self._unsettled is not None
        return self._unsettled.places(notifications)

    def committed(self, notifications: list[Notification]) -> None:
        """These were settled by a transaction."""
        assert self._unsettled is not None
        self._unsettled.committed(notifications)
        if self._recorded is not None:
            self._recorded.committed(self._unsettled.told)

    async def _put(self, question: Callable[[int], Any]) -> None:
        """Put a question about it, over new connections again until it is answered."""
        while True:
            await self._until(lambda: self._settled or self.over)
            if self.over:
                raise self._error or NoReply("the subscription has ended")
            assert self.link is not None
            number = self._local.number()
            answer = self._local.expect(number)
            self._asked.append(answer)
            self.link.send(question(number))
            try:
                if await answer is not AGAIN:
                    return
            finally:
                self._asked.remove(answer)

    # -- confirmation

    @property
    def positions(self) -> Positions:
        """How far the application has dealt with each stream; where it settles, nobody knows."""
        if not isinstance(self._arrivals, Arrivals):
            return {}
        return {stream: at for stream, at in self._arrivals.dealt().items() if stream}

    async def confirm(self, timeout: float | None = None) -> None:
        """Confirm everything that was handed out; it is on the broker's disk when this returns."""
        if self._terms.durable is None:
            raise InvalidConfiguration(
                "only a durable subscription is confirmed; subscribe with durable='name'"
            )
        if self._unsettled is not None:
            await self._settle_all(timeout)
            return
        assert isinstance(self._arrivals, Arrivals)
        self._arrivals.deal()
        await self._confirm_now(self._arrivals.dealt(), self._dealt_with(), timeout)

    def _dealt_with(self, *, handed_out: bool = False) -> int:
        """How many were dealt with, if that is recorded."""
        if self._recorded is None or not isinstance(self._arrivals, Arrivals):
            return 0
        count = self._recorded.given - (0 if handed_out else self._arrivals.held)
        self._recorded.dealt(count)
        return count

    async def _confirm_now(self, positions: Positions, count: int, timeout: float | None) -> None:
        """Have it stored how far the application is, which has dealt with so many."""
        async with TimeLimit(timeout, "the confirmation was not stored"):
            await self._put(lambda number: Confirm(self._number, positions, number))
            self._confirmed = positions
        if self._recorded is not None:
            self._recorded.confirmed(count)

    # -- settlement, one by one

    def _ack(self, notification: Notification) -> None:
        """Somebody says that a notification was dealt with, perhaps in another thread."""
        if get_ident() != self._thread:
            self._elsewhere(self._ack, notification)
            return
        if self._acked(notification) > CONFIRM_AFTER or self._confirm_timer is None:
            self._tell_soon()

    def _nack(self, notification: Notification, delay: float | None, cause: str) -> None:
        if get_ident() != self._thread:
            self._elsewhere(self._nack, notification, delay, cause)
            return
        assert self._unsettled is not None
        if self._recorded is not None and self._unsettled.has(notification):
            assert notification.id is not None  # it has come from a broker
            self._recorded.refused(notification.id, notification.place)
        self._unsettled.nack(notification, delay, cause)
        self._tell_soon()

    def _extend(self, notification: Notification, seconds: float) -> None:
        if get_ident() != self._thread:
            self._elsewhere(self._extend, notification, seconds)
            return
        assert self._unsettled is not None
        self._unsettled.extend(notification, seconds)
        self._tell_soon()

    def _elsewhere(self, settled: Callable[..., None], *said: Any) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(settled, *said)

    def _tell_soon(self) -> None:
        """Tell the broker what was settled: soon, or at once if that is much."""
        assert self._unsettled is not None
        pending = self._unsettled.pending
        if pending > CONFIRM_AFTER:
            self._tell_settled()
        elif pending and self._confirm_timer is None and self._settled:
            self._confirm_timer = self._local.loop.call_later(CONFIRM_EVERY, self._tell_settled)

    def _tell_settled(self) -> None:
        self._stop_confirm()
        if self._settled and self.link is not None and self._unsettled is not None:
            message = self._unsettled.message(self._number)
            if message is not None:
                if self._recorded is not None:
                    stored = self._recorded.told(self._unsettled.told)
                    message.request = self._answered_by(stored)
                self.link.send(message)

    def _answered_by(self, stored: Callable[[], None]) -> int:
        """The number of a request; when it is answered, this is called."""
        number = self._local.number()
        answer = self._local.expect(number)
        self._asked.append(answer)

        def answered(future: asyncio.Future[Any]) -> None:
            self._asked.remove(answer)
            heard = not future.cancelled() and future.exception() is None
            if heard and future.result() is not AGAIN:
                stored()

        answer.add_done_callback(answered)
        return number

    async def _settle_all(self, timeout: float | None) -> None:
        """Everything that was handed out is done; return when that is on disk."""
        assert self._unsettled is not None
        for notification in self._unsettled.in_hand:
            self._unsettled.ack(notification)
        async with TimeLimit(timeout, "the confirmation was not stored"):
            await self._store_settled()

    async def _store_settled(self) -> None:
        """Return when what was settled is on disk."""
        assert self._unsettled is not None
        self._stop_confirm()
        message = self._unsettled.message(self._number)
        stored = None
        if self._recorded is not None and message is not None:
            stored = self._recorded.told(self._unsettled.told)
        message = message or Settle(self._number, {})

        def asked(number: int) -> Settle:
            message.request = number
            return message

        await self._put(asked)
        if stored is not None:
            stored()

    def _send_confirm(self) -> None:
        """Tell the broker what was dealt with, if that is news."""
        self._stop_confirm()
        assert isinstance(self._arrivals, Arrivals)
        positions = self._arrivals.dealt()
        if self._settled and self.link is not None and positions != self._confirmed:
            message = Confirm(self._number, positions)
            if self._recorded is not None:
                recorded, count = self._recorded, self._dealt_with()
                message.request = self._answered_by(lambda: recorded.confirmed(count))
            self.link.send(message)
            self._confirmed = positions
            self._unconfirmed = 0

    def _stop_confirm(self) -> None:
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
            self._confirm_timer = None

    # -- leases

    async def renew(self, timeout: float | None = None) -> None:
        """Extend the lease from now on. Done by itself unless `renew=False`."""
        if self._terms.lease is None:
            raise InvalidConfiguration("only a lease is renewed; subscribe with lease=seconds")
        before = self._granted
        async with TimeLimit(timeout, "the lease was not renewed"):
            if self._settled and self.link is not None:
                self.link.send(Renew(self._number))
            await self._until(lambda: self._granted > before or self.over)
        if self.over:
            raise self._error or LeaseExpired("the subscription has ended")

    def _renew(self) -> None:
        self._lease_timer = None
        if self._settled and self.link is not None:
            self.link.send(Renew(self._number))

    def time_moved(self) -> None:
        """A test has let time pass: a timer that waits for the machine's clock is late."""
        lease, ends = self._terms.lease, self._lease_ends
        if self._lease_timer is None or lease is None or ends is None:
            return
        if self._local.monotonic >= ends - lease * 2 / 3:
            self._stop_lease()
            self._renew()

    def _stop_lease(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None

    # -- handlers

    async def _run(self, handler: Handler) -> None:
        """Give everything to a handler, one after the other."""
        while True:
            try:
                event = await self.__anext__()
            except StopAsyncIteration:
                return
            except StentorError as error:
                _log.error("%r has ended: %s", self, error)
                return
            behind = self.last
            try:
                answer = handler(event)
                if isawaitable(answer):
                    await answer
            except Exception as error:
                self.failed(handler, behind, error)
            else:
                if behind is not None and behind.delivery is not None:
                    behind.ack()

    def failed(self, handler: Handler, on: Notification | None, error: Exception) -> None:
        """A handler has raised. What it could not deal with comes again, if it is settled."""
        self.errors += 1
        then = "" if on is None or on.delivery is None else f"; {self._after_failure(on)}"
        _log.error("the handler %r failed on %r%s", handler, on, then, exc_info=error)
        if on is not None and on.delivery is not None:
            on.nack(reason=error)

    def _after_failure(self, notification: Notification) -> str:
        settlement = self._terms.settlement
        if settlement is None or not settlement.attempts:
            return "it comes again"
        if notification.attempt < settlement.attempts:
            return f"it comes again, {notification.attempt} of {settlement.attempts} attempts made"
        fate = "becomes a dead letter" if settlement.dead_letter else "is given up"
        return f"that was the last of {settlement.attempts} attempts, and it {fate}"

    def stop(self) -> None:
        """Hand out no more. Who asks for the next one has dealt with the one before."""
        self.stopped = True
        self._notify()

    async def finish(self, timeout: float) -> None:
        """Let a handler finish what it is at, but start nothing new."""
        if self._task is None or self._task is asyncio.current_task():
            return
        self.stop()
        _, late = await asyncio.wait([self._task], timeout=timeout)
        if late:
            _log.warning("the handler %r was interrupted: it took too long", self._handler)
            self._task.cancel()
            await asyncio.wait([self._task])

    # -- life

    async def open(self) -> Self:
        """Subscribe; it is in force everywhere when this returns."""
        if self._number:
            raise InvalidConfiguration("a subscription begins only once; make another")
        self._local.check_open()
        self._loop, self._thread = self._local.loop, get_ident()
        self._hooked()
        self._number = self._local.number()
        try:
            async with TimeLimit(self._terms.timeout, f"{self!r} was not answered"):
                await self._begin()
        except BaseException:
            await self.close()
            raise
        if self._handler is not None:
            self._task = self._local.start(self._run(self._handler))
        return self

    def _hooked(self) -> None:
        """Have the hooks see what it asks for, and change it."""
        self._filter = self._local.run_hooks("subscribe", self._filter)

    async def _begin(self) -> None:
        """Subscribe; return when that is in force."""
        if self._terms.past is not None:
            await self._begin_in(self._terms.past)
        self.link = self._local.link
        if self._local.recording is not None:
            self._recorded = self._local.recording.component(self._terms)
            self._record()
        self._local.subscriptions[self._number] = self
        if self.link.connected:
            self.subscribe_again()
        await self.in_force()
        self._record()

    def _record(self) -> None:
        """Have it recorded what it asks for, and whether that is in force."""
        if self._recorded is not None and not self.over:
            self._recorded.has([self], [self] if self._begun else [])

    async def _begin_in(self, past: Past) -> None:
        found = await self._local.loop.run_in_executor(None, past.recall, self.filter)
        self._local.check_open()
        self._filter = found.filter
        self._arrivals.arrived.update(found.positions)
        self._recall = Recall(found)

    async def in_force(self) -> None:
        """Return when it is in force, or raise why it never will be."""
        await self._until(lambda: self._settled or self.over)
        if self._error is not None:
            raise self._error

    async def close(self, *, forget: bool = False) -> None:
        """End it. What was handed out counts as dealt with. `forget` deletes a durable one."""
        await self._close(handed_out=True, forget=forget)

    async def _close(
        self, *, handed_out: bool, forget: bool = False, refused: Refused | None = None
    ) -> None:
        if self.closing:
            return
        self.closing = True
        if self._handler is not None and self._task is not asyncio.current_task():
            handed_out = False  # a handler that was interrupted has not dealt with it
            await self.finish(CLOSING)
        positions: Positions | None = None
        if self._confirms and self._terms.auto_confirm and isinstance(self._arrivals, Arrivals):
            dealt = self._arrivals.dealt(handed_out=handed_out)
            positions = dealt if dealt != self._confirmed else None
        count = 0 if positions is None else self._dealt_with(handed_out=handed_out)
        owed = positions is not None or (self._unsettled is not None and self._unsettled.pending)
        self._arrivals.clear()
        self._stop_confirm()
        self._stop_lease()
        try:
            if not self.over and self._number and (self._settled or forget or owed):
                await self._leave(positions, count, forget, refused)
        finally:
            self.ended(None)

    async def _leave(
        self, positions: Positions | None, count: int, forget: bool, refused: Refused | None
    ) -> None:
        """Confirm, then unsubscribe, as far as the connection allows it in a few seconds."""
        durable = self._terms.durable is not None
        try:
            async with asyncio.timeout(CLOSING):
                await self._until(lambda: self._settled or self.over)
                while self.link is not None and not self.over:
                    if refused is not None:
                        self.link.send(Settle(self._number, {}, refused=[refused]))
                    if self._unsettled is not None and self._unsettled.pending:
                        await self._store_settled()
                    if positions is not None and durable:
                        await self._confirm_now(positions, count, None)
                    elif positions is not None:
                        self.link.send(Confirm(self._number, positions))
                    self.link.send(Unsubscribe(self._number, forget))
                    await self._until(lambda: not self._settled)
                    if not forget:  # a broker that is gone has forgotten the subscription
                        break
                    await self._until(lambda: self._settled or self.over)
                if forget and self._error is not None:
                    raise self._error
        except TimeoutError:
            if forget:
                raise NoReply(
                    f"the broker did not answer in {CLOSING:g} seconds; the durable subscription "
                    f"{self._terms.durable!r} may still exist"
                ) from None
            _log.warning("%r: the broker did not answer when it ended", self)
        except StentorError as error:
            if forget:
                raise
            _log.warning("%r: %s", self, error)

    async def bus_closes(self) -> None:
        """The bus is about to go. What the application holds right now was not dealt with."""
        if self._unsettled is not None and self._settled and not self.closing:
            try:
                async with asyncio.timeout(CLOSING):
                    await self._store_settled()
            except (StentorError, TimeoutError) as error:
                _log.warning("%r: what was settled could not be told: %s", self, error)
        elif self._confirms and self._terms.auto_confirm and self._settled and not self.closing:
            assert isinstance(self._arrivals, Arrivals)
            positions = self._arrivals.dealt()
            if positions != self._confirmed:
                try:
                    await self._confirm_now(positions, self._dealt_with(), CLOSING)
                except StentorError as error:
                    _log.warning("%r: %s", self, error)
        self.closing = True
        self._arrivals.clear()
        self.ended(None)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        if not self._number:
            await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        refused = None
        if isinstance(error, Exception) and isinstance(self._arrivals, Arrivals):
            # Its successor gets it again, but not at once and for ever.
            held = self._arrivals.in_hand() if self._terms.durable is not None else None
            cause = f"{type(error).__name__}: {error}"[:CAUSE]
            refused = None if held is None else Refused(*held, None, cause)
        await self._close(handed_out=error is None, refused=refused)


class _Again:
    pass


#: In place of an answer that was lost with its connection.
AGAIN: Final = _Again()
