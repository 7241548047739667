"""Transactions: all or nothing, and nothing before the end (R-01.94 to R-01.96, A-13, R-07.41).

What is published in a transaction is held back. When its `async with` is left without an error, all
of it goes to the broker as one frame that is journaled as a whole and routed consecutively; ids are
given only then. After a lost connection the same frame is sent again with the same ids, and the
broker recognizes what it has. Leaving returns when it is on disk. An error inside the block, or
a publication that the broker refuses, and none of it was ever published.

A transaction within a transaction adds what it holds to the outer one when it ends well.

*Consuming.* A transaction may also take notifications of durable subscriptions that settle one by
one. Then its publications and the settlement are one message to the broker where the subscription
lives, over whichever connection leads there, and one step on its disk. If the answer is lost, the
same is sent again when the subscription is in force again, wherever; the subscription knows whether
it was carried out. If the block is left with an error, what was taken is refused, and comes again.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from stentor.client.attachment import AGAIN
from stentor.client.encoding import EventEncoder, notification_of, utc_now
from stentor.client.subscription import Subscription
from stentor.client.times import resolve
from stentor.client.waiting import TimeLimit, settles
from stentor.client.words import Parts
from stentor.errors import InvalidConfiguration, Overloaded, StentorError
from stentor.model import Notification, NotificationId
from stentor.protocol.messages import Commit

if TYPE_CHECKING:
    from stentor.client.bus import Bus

T = TypeVar("T")

#: Notifications that a transaction may hold.
LIMIT: Final = 100_000


class Held:
    """A publication in a transaction; it has its id once that is committed."""

    __slots__ = ("id", "notification", "retain")

    def __init__(self, notification: Notification, retain: str | None) -> None:
        self.notification = notification
        self.retain = retain
        #: None until the commit, and for ever after a rollback.
        self.id: NotificationId | None = None


class Transaction:
    """Publications that belong together. Made by `Bus.transaction`."""

    def __init__(
        self, bus: Bus, outer: Transaction | None = None, timeout: float | None = None
    ) -> None:
        self._bus = bus
        self._outer = outer
        self._timeout = timeout
        self._held: list[Held] = []
        self._taken: list[Notification] = []
        #: "open", "committed", "rolled back", or "unknown" if the commit was not answered in time.
        self.state = "new"

    def __len__(self) -> int:
        """Publications that are held."""
        return len(self._held)

    async def publish(
        self, event: Any, *, retain: str | None = None, **options: Unpack[Parts]
    ) -> Held:
        """Hold a publication back. What is wrong with it is raised here."""
        parts: dict[str, Any] = dict(options)
        self._check_open()
        if len(self._held) >= LIMIT:
            raise Overloaded(f"a transaction holds at most {LIMIT} notifications; use several")
        resolve(parts, self._bus._local.now())
        notification = notification_of(event, parts)
        if notification.time is None:
            notification = notification.replace(time=utc_now())
        held = Held(notification, retain)
        self._held.append(held)
        return held

    async def take(self, subscription: Subscription[T], timeout: float | None = None) -> T:
        """The next one of a subscription; it is settled when the transaction is committed.

        The subscription is durable and settles one by one. If the transaction ends in another way,
        what was taken comes again.
        """
        self._check_open()
        self._check_takeable(subscription)
        event = await subscription.get(timeout)
        assert subscription.last is not None
        self.ack(subscription.last)
        return event

    def ack(self, notification: Notification) -> None:
        """Let a notification that the application has be settled with the transaction."""
        self._check_open()
        if notification.delivery is None:
            raise InvalidConfiguration(
                "this notification is not settled on its own; subscribe with durable= and "
                "settle=True"
            )
        self._check_takeable(notification.delivery.subscription)
        self._taken.append(notification)

    def _check_takeable(self, subscription: Subscription[Any]) -> None:
        subscription.takeable()
        if subscription.attachment.local is not self._bus._local:
            raise InvalidConfiguration(
                "the subscription is another client's, which alone settles what it is given; take "
                "from it in a transaction of its own bus"
            )

    def _check_open(self) -> None:
        if self.state != "open":
            raise InvalidConfiguration(
                f"the transaction is {self.state}; use it inside its `async with`"
            )

    def transaction(self) -> Transaction:
        """One inside this one: it ends well into this one, or not at all."""
        return Transaction(self._bus, outer=self)

    def rollback(self) -> None:
        """Publish nothing of it, and have again what it has taken."""
        self._roll_back("the transaction was rolled back")

    def _roll_back(self, reason: str | BaseException) -> None:
        self._held.clear()
        self.state = "rolled back"
        self._give_back(reason)

    def _give_back(self, reason: str | BaseException) -> None:
        """What was taken comes again, unless the broker knows better."""
        taken, self._taken = self._taken, []
        for notification in taken:
            settlements = notification.delivery.subscription.takeable()
            if settlements.unsettled.has(notification):
                notification.nack(reason=reason)

    async def _commit(self) -> None:
        if self._outer is not None:
            if self._outer.state != "open":
                raise InvalidConfiguration(
                    f"the outer transaction is {self._outer.state}; end the inner one first"
                )
            self._outer._held += self._held
            self._outer._taken += self._taken
            self.state = "committed"
            return
        self.state = "rolled back"  # as long as nothing was sent
        local = self._bus._local
        await local.room(self._timeout)
        admitted = [(each, local.admit(each.notification)) for each in self._held]
        sent = [(held, notification) for held, notification in admitted if notification is not None]
        if self._taken:
            try:
                await self._consume(sent)
            except StentorError as error:
                self._give_back(error)
                raise
            return
        if not sent:
            self.state = "committed"
            return
        first = local.next_sequence
        now = utc_now()
        items = [
            local.encoder.one(notification, first + i, now)
            for i, (_, notification) in enumerate(sent)
        ]
        retain = {i: held.retain for i, (held, _) in enumerate(sent) if held.retain is not None}
        answer: asyncio.Future[None] = local.loop.create_future()
        local.put(items, atomic=True, retain=retain, waiter=settles(answer))
        self.state = "unknown"
        async with TimeLimit(self._timeout, "the commit was not acknowledged"):
            try:
                await answer
            except asyncio.CancelledError:
                raise
            except BaseException:
                self.state = "rolled back"
                raise
        for i, (held, _) in enumerate(sent):
            held.id = local.id(first + i)
        self.state = "committed"

    async def _consume(self, sent: list[tuple[Held, Notification]]) -> None:
        """Publish and settle in one step, wherever the subscriptions live."""
        local, taken = self._bus._local, self._taken
        subscriptions: dict[Subscription[Any], list[Notification]] = {}
        for notification in taken:
            subscriptions.setdefault(notification.delivery.subscription, []).append(notification)
        first = local.next_sequence
        retain = {i: held.retain for i, (held, _) in enumerate(sent) if held.retain is not None}
        async with TimeLimit(self._timeout, "the commit was not acknowledged"):
            await local.answers_of_all(None)  # they come before, whichever way this goes
            local.put([], skip=max(1, len(sent)))
            name = local.id(first)
            while True:
                links = {await each.attachment.served() for each in subscriptions}
                if len(links) > 1:
                    raise InvalidConfiguration(
                        "the transaction takes from subscriptions that live at different brokers, "
                        "which cannot be one step; take from one of them, or move one: "
                        "`stentor durables ADDRESS move NAME`"
                    )
                [link] = links
                encoder = local.encoder
                if link is not local.link and link.welcome is not None:
                    encoder = EventEncoder(link.welcome.producer, encoder.epoch)
                now = utc_now()
                items = [encoder.one(n, first + i, now) for i, (_, n) in enumerate(sent)]
                local.outbox.check(items, sum(map(len, items)), True)
                if local.recording is not None and self.state != "unknown" and items:
                    local.recording.published(items, local.id(first))
                answer = local.expect(number := local.number())
                for subscription in subscriptions:
                    subscription.attachment.ask(answer)
                settled = {
                    each.attachment.number: each.takeable().unsettled.places(found)
                    for each, found in subscriptions.items()
                }
                parts = name.producer, name.epoch, name.sequence
                link.send(Commit(number, items, settled, parts, retain))
                self.state = "unknown"
                try:
                    if await answer is not AGAIN:
                        break
                except StentorError:
                    self.state = "rolled back"
                    raise
        for subscription, found in subscriptions.items():
            subscription.takeable().committed(found)
        if local.recording is not None and items:
            local.recording.acknowledged(items)
        for i, (held, _) in enumerate(sent):
            held.id = NotificationId(encoder.producer, encoder.epoch, first + i)
        self.state = "committed"

    async def __aenter__(self) -> Transaction:
        if self.state != "new":
            raise InvalidConfiguration("a transaction is used once; make another")
        self._bus._local.check_open()
        self.state = "open"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.state != "open":
            return
        if error is not None:
            self._roll_back(error)
        else:
            await self._commit()
