"""Publication transactions: all or nothing, and nothing before the end (R-01.94 to R-01.96, A-13).

What is published in a transaction is held back. When its `async with` is left without an error, all
of it goes to the broker as one frame that is journaled as a whole and routed consecutively; ids are
given only then. After a lost connection the same frame is sent again with the same ids, and the
broker recognizes what it has. Leaving returns when it is on disk. An error inside of the block, or
a publication that the broker refuses, and none of it was ever published.

A transaction within a transaction adds what it holds to the outer one when it ends well.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from stentor.client.encoding import notification_of, utc_now
from stentor.client.times import resolve
from stentor.client.waiting import TimeLimit, settles
from stentor.errors import InvalidConfiguration, Overloaded
from stentor.model import Notification, NotificationId

if TYPE_CHECKING:
    from stentor.client.bus import Bus

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
        #: "open", "committed", "rolled back", or "unknown" if the commit was not answered in time.
        self.state = "new"

    def __len__(self) -> int:
        """Publications that are held."""
        return len(self._held)

    async def publish(self, event: Any, *, retain: str | None = None, **parts: Any) -> Held:
        """Hold a publication back. What is wrong with it is raised here."""
        if self.state != "open":
            raise InvalidConfiguration(
                f"the transaction is {self.state}; publish inside of its `async with`"
            )
        if len(self._held) >= LIMIT:
            raise Overloaded(f"a transaction holds at most {LIMIT} notifications; use several")
        resolve(parts, self._bus.local.now())
        notification = notification_of(event, parts)
        if notification.time is None:
            notification = notification.replace(time=utc_now())
        held = Held(notification, retain)
        self._held.append(held)
        return held

    def transaction(self) -> Transaction:
        """One inside of this one: it ends well into this one, or not at all."""
        return Transaction(self._bus, outer=self)

    def rollback(self) -> None:
        """Publish nothing of it."""
        self._held.clear()
        self.state = "rolled back"

    async def _commit(self) -> None:
        if self._outer is not None:
            if self._outer.state != "open":
                raise InvalidConfiguration(
                    f"the outer transaction is {self._outer.state}; end the inner one first"
                )
            self._outer._held += self._held
            self.state = "committed"
            return
        self.state = "rolled back"  # as long as nothing was sent
        local = self._bus.local
        await local.room(self._timeout)
        admitted = [(each, local.admit(each.notification)) for each in self._held]
        sent = [(held, notification) for held, notification in admitted if notification is not None]
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

    async def __aenter__(self) -> Transaction:
        if self.state != "new":
            raise InvalidConfiguration("a transaction is used once; make another")
        self._bus.local.check_open()
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
            self.rollback()
        else:
            await self._commit()
