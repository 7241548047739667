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

"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from inspect import isawaitable
from math import inf
from time import time as clock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

from stentor.client.arrivals import Arrivals
from stentor.client.attachment import Attachment
from stentor.client.confirmation import Confirmations, Settlements
from stentor.client.lease import Lease
from stentor.client.local_broker import LocalBroker
from stentor.client.past import Past, Recall
from stentor.client.terms import Terms
from stentor.client.unsettled import CAUSE, Unsettled
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
    Credit,
    Deliver,
    Gap,
    Positions,
    Refused,
    Settle,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Withdrawn,
    Yielded,
)

if TYPE_CHECKING:
    from stentor.client.bus import Bus
    from stentor.client.recorder import RecordedComponent
    from stentor.filters import Filter

    Handler = Callable[[Any], Awaitable[object] | object]

T = TypeVar("T")

#: Seconds that the end of a subscription may take.
CLOSING: Final = 5.0
#: Gaps that are remembered, the newest ones.
MAX_GAPS: Final = 1_000

_log: Final = logging.getLogger("stentor.client")


class LostRange(NamedTuple):
    """Offsets of a stream that no longer exist, by retention; some may have matched."""

    stream: str
    first: int
    last: int


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
        bus: Bus | None = None,
    ) -> None:
        """`bus` is opened and closed with it, if it is not open before."""
        self._local = local
        self._terms = terms
        #: What makes of notifications what is handed out, if they are not as they are.
        self.reader = reader
        self._bus = bus
        #: What ends with its block.
        self._around = AsyncExitStack()
        self._handler = handler
        #: Where it lives, and whether it is in force there.
        self.attachment = Attachment(local)
        shared = terms.group is not None
        self._arrivals: Arrivals | Unsettled = Arrivals(shared=shared)
        #: What is settled one by one, if it is.
        self.settlements: Settlements | None = None
        #: Who tells the broker what was dealt with, if it wants to know.
        self._dealings: Confirmations | Settlements | None = None
        if terms.settlement is not None:
            self._dealings = self.settlements = Settlements(self.attachment, terms, self)
            self._arrivals = self.settlements.unsettled
        elif terms.durable is not None or shared:
            self._dealings = Confirmations(self.attachment, self._arrivals, terms)
        self._lease = Lease(self.attachment, terms.lease, renews=terms.renew)
        #: Handed out or dropped since credit was granted last.
        self._used = 0
        self._half = max(1, terms.window // 2)
        #: Whether the broker has been asked for it over this connection.
        self._said = False
        #: When the broker said for the first time that it is in force.
        self._begun_at: float | None = None
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
        self._task: asyncio.Task[None] | None = None
        #: What it is given is recorded by this, if it is.
        self._recorded: RecordedComponent | None = None
        self._filter = filter
        #: Whether the application has ended it.
        self.closing = False
        #: Whether nothing more is handed out, although something may wait.
        self.stopped = False
        #: Whether a durable subscription of that name existed before.
        self.resumed = False
        #: The notification behind what was handed out last.
        self.last: Notification | None = None
        #: Stretches of history that retention had already removed, the newest ones.
        self.gaps: deque[LostRange] = deque(maxlen=MAX_GAPS)
        #: How many notifications retention had already removed, at most.
        self.lost = 0
        #: With `overflow="block"`: how often publishers stopped waiting for it.
        self.yields = 0
        #: Whether something of it may expire.
        self._perishable = terms.expires is not None
        #: Notifications that expired here, before the application took them.
        self.expired = 0
        #: How many handlers failed, and notifications did not fit the class subscribed to.
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
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.attachment.over

    @property
    def _begun(self) -> bool:
        """Whether it has ever been in force."""
        return self._begun_at is not None

    @property
    def plain(self) -> bool:
        """Whether notifications are handed out as they came, and nobody is told about it."""
        told = self._dealings is not None or self._local.recording is not None
        return self.reader is None and not told and self._local.hooks is None

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
            if self.reader is None and self._recorded is None and self._local.hooks is None:
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
            raise (self.attachment.error or NoReply("the subscription has ended")) from None

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
            if self.reader is None and self._recorded is None and self._local.hooks is None:
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
            if self.reader is None:
                return notification  # type: ignore[return-value]
            return self.reader(notification)
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
        if not self.attachment.number and not self.closing:
            await self.open()
        if self._recall is not None and not (self.over or self.stopped):
            await self._remember(self._recall)
            return
        await self.attachment.until(lambda: len(self._arrivals) or self.over or self.stopped)
        if self.stopped:
            if isinstance(self._arrivals, Arrivals):
                self._arrivals.deal()
            raise StopAsyncIteration
        if not len(self._arrivals):
            if self.attachment.error is not None:
                raise self.attachment.error
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

    def _handed_out(self, count: int) -> None:
        """So many were just given to the application, so those before have been dealt with."""
        if self._recall is None:
            self._used += count
        if isinstance(self._arrivals, Unsettled) and self._arrivals.freed:
            self._used += self._arrivals.freed
            self._arrivals.freed = 0
        if self._dealings is not None:
            self._dealings.handed_out(count)
        if self._used >= self._half:
            self._grant()

    def _grant(self) -> None:
        if self.attachment.in_force:
            self.attachment.send(Credit(self.attachment.number, self._used))
            self._used = 0

    # -- what the broker says

    def deliver(self, message: Deliver) -> None:
        """Notifications have come."""
        if self.over or self.closing:
            return
        count = len(message.items)
        self._perishable = self._perishable or any_handled(message.items)
        arrived = message.stream, message.offsets, message.items, message.retained
        if isinstance(self._arrivals, Unsettled):
            new = self._arrivals.deliver(*arrived, message.attempt)
            self._handed_out(0)  # what was settled before is settled once more, unseen
        else:
            new = self._arrivals.deliver(*arrived)
        if not message.retained:
            self._past_last_values = True
        if new < count:
            self._handed_out(count - new)
        if new:
            self.attachment.notify()

    def subscribed(self, message: Subscribed) -> None:
        """It is in force."""
        again = self._lost_at is not None
        self.resumed = self.resumed or (not self._begun and message.resumed)
        self._born = message.born or self._born
        broker_time = message.time or clock()
        self._ahead = broker_time - self._local.monotonic
        if self._begun_at is None:
            self._begun_at = broker_time
        self._lost_at = None
        self._forgotten = {}
        self.attachment.made()
        if message.lease is not None:
            self._lease.granted(message.lease)
        if self._used >= self._half:
            self._grant()
        if self._dealings is not None:
            self._dealings.in_force(again=again)
        self.attachment.notify()

    def withdrawn(self, message: Withdrawn) -> None:
        """The broker has taken some back."""
        if self.settlements is not None:
            self.settlements.withdrawn(message)
            self._handed_out(0)
            self.attachment.notify()

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
        self.attachment.end(error)
        if error is not None and self._dealings is not None:
            self._arrivals.clear()  # it is for whoever goes on with it
        if self._recall is not None:
            self._recall.close()
        self._local.subscriptions.pop(self.attachment.number, None)
        if self._recorded is not None:
            self._recorded.ended()
        self._suspend()

    # -- connections come and go

    def broker_leaves(self) -> None:
        """What was dealt with is not for others."""
        if self._dealings is not None:
            self._dealings.tell()
        if self.settlements is not None and self._terms.group is not None:
            self._arrivals.clear()  # what waits is for them

    def connection_lost(self, error: StentorError, at: float) -> None:
        """It has to be made again. The broker was there until then, by the loop's clock."""
        if self.attachment.in_force and self._lost_at is None:
            self._lost_at = at + self._ahead
        if self._recorded is not None:  # before it is in force again it may be given something
            self._recorded.cut_off()
        self._said = False
        self._suspend()
        if isinstance(self._arrivals, Unsettled):
            self._arrivals.forget_waiting()
        elif self._terms.group is not None:
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

    def _suspend(self) -> None:
        """It is in force no longer."""
        self._lease.stop()
        if self._dealings is not None:
            self._dealings.cut_off()
        self.attachment.lost()

    def subscribe_again(self) -> None:
        """Say what is wanted over a new connection, from where it was; once over each."""
        link = self.attachment.link
        if self.over or link is None or self._said:
            return
        lease = self._lease.left
        if lease is not None and lease <= 0:
            text = f"the lease of {self._terms.lease} seconds has run out"
            self.ended(LeaseExpired(text))
            return
        self._used = 0
        self._said = True
        link.send(self._message(lease))

    def _message(self, lease: float | None) -> Subscribe:
        terms = self._terms
        since = terms.since
        positions: Positions | None = None
        if terms.volatile:
            pass  # it goes on with what comes
        elif terms.group is not None and terms.durable is None:
            if self._begun:
                since = self._lost_at
                if since is None:  # the group has moved
                    since = self._local.monotonic + self._ahead
                positions = self._forgotten or None
        elif self.settlements is not None:
            pass  # the broker knows what was settled
        elif self._arrivals.arrived or self._begun:
            positions = dict(self._arrivals.arrived)
            if since is None:
                # Brokers that were not there yet: what they have from the beginning of this
                # subscription on is part of it.
                since = self._begun_at
        return Subscribe(
            self.attachment.number,
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
            self.attachment.cut_off and terms.group is None,
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
        if not self.attachment.waits:
            _log.warning("%r waits: %s", self, error)
        self.attachment.waits = True
        self.sent_on(error, self._local.monotonic)
        return True

    def amended(self, message: Amended) -> None:
        """What it asks for has changed at the broker, which is so for inboxes only."""

    # -- confirmation

    def takeable(self) -> Settlements:
        """Where what a transaction takes from it is settled; raise why none can, if none can."""
        if self.settlements is None or not self.durable:
            raise InvalidConfiguration(
                "a transaction takes from a durable subscription that settles one by one; "
                "subscribe with durable='name' and settle=True"
            )
        return self.settlements

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
        assert self._dealings is not None
        await self._dealings.confirm(timeout)

    # -- leases

    async def renew(self, timeout: float | None = None) -> None:
        """Extend the lease from now on. Done by itself unless `renew=False`."""
        await self._lease.renew(timeout)

    def time_moved(self) -> None:
        """A test has let time pass."""
        self._lease.time_moved()

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
        self.attachment.notify()

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
        self.attachment.begin()
        self._hooked()
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
        self.attachment.link = self._local.link
        if self._local.recording is not None:
            self._recorded = self._local.recording.component(self._terms)
            if self._dealings is not None:
                self._dealings.recorded = self._recorded
            self._record()
        self._local.subscriptions[self.attachment.number] = self
        if self._local.link.connected:
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
        await self.attachment.until(lambda: self.attachment.in_force or self.over)
        if self.attachment.error is not None:
            raise self.attachment.error

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
        owed = self._dealings is not None and self._dealings.closes(handed_out=handed_out)
        self._arrivals.clear()
        self._lease.stop()
        attachment = self.attachment
        try:
            if not self.over and attachment.number and (attachment.in_force or forget or owed):
                await self._leave(forget, refused)
        finally:
            self.ended(None)

    async def _leave(self, forget: bool, refused: Refused | None) -> None:
        """Confirm, then unsubscribe, as far as the connection allows it in a few seconds."""
        attachment, number = self.attachment, self.attachment.number
        try:
            async with asyncio.timeout(CLOSING):
                await attachment.until(lambda: attachment.in_force or self.over)
                while not self.over:
                    if refused is not None:
                        attachment.send(Settle(number, {}, refused=[refused]))
                    if self._dealings is not None:
                        await self._dealings.leave()
                    attachment.send(Unsubscribe(number, forget))
                    await attachment.until(lambda: not attachment.in_force)
                    if not forget:  # a broker that is gone has forgotten the subscription
                        break
                    await attachment.until(lambda: attachment.in_force or self.over)
                if forget and attachment.error is not None:
                    raise attachment.error
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
        if self._dealings is not None and self.attachment.in_force and not self.closing:
            try:
                await self._dealings.flush(CLOSING)
            except StentorError as error:
                _log.warning("%r: what was dealt with could not be told: %s", self, error)
        self.closing = True
        self._arrivals.clear()
        self.ended(None)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as around:
            if self._bus is not None and not self._bus._opened:
                await around.enter_async_context(self._bus)
            if not self.attachment.number or self.closing:
                await self.open()
            self._around = around.pop_all()
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
        async with self._around:
            await self._close(handed_out=error is None, refused=refused)
