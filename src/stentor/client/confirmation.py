"""Telling a broker what the application has dealt with: by position, or one by one.

*Confirmations* (durable subscriptions, and members of groups) say how far the application has come
in each stream. A notification has been dealt with when the next one is asked for, or when the
`async with` is left without an error. So a process that dies gets at most its last few
notifications again, and loses none.

*Settlements* take their place where each notification is settled by itself: what came is then in
`Unsettled`.

Either is told soon, and many at a time; and as `told` to the recorder, if there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from stentor.client.arrivals import Arrivals
from stentor.client.attachment import Attachment
from stentor.client.terms import Terms
from stentor.client.unsettled import Delivery, Unsettled
from stentor.client.waiting import TimeLimit
from stentor.model import Notification
from stentor.protocol.messages import Confirm, Positions, Settle, Withdrawn

if TYPE_CHECKING:
    from stentor.client.recorder import RecordedComponent

#: What was dealt with is told after so many seconds, or so many notifications.
TELL_EVERY: Final = 0.05
TELL_AFTER: Final = 1_000

_NOT_STORED: Final = "the confirmation was not stored"


class _Soon:
    """A timer that calls something once, a moment after the first time that it is wanted."""

    def __init__(self, attachment: Attachment, call: Callable[[], None]) -> None:
        self._attachment = attachment
        self._call = call
        self._timer: asyncio.TimerHandle | None = None
        self.is_set = False

    def start(self) -> None:
        if not self.is_set:
            self.is_set = True
            self._timer = self._attachment.local.loop.call_later(TELL_EVERY, self._ring)

    def _ring(self) -> None:
        self.is_set = False
        self._call()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.is_set = False


class Confirmations:
    """How far the application has come in each stream, and how much of that the broker knows."""

    def __init__(self, attachment: Attachment, arrivals: Arrivals, terms: Terms) -> None:
        self._attachment = attachment
        self._arrivals = arrivals
        self._durable = terms.durable is not None
        self._by_itself = terms.auto_confirm
        self._soon = _Soon(attachment, self.tell)
        #: Handed out since the broker was told last, and what it was told.
        self._new = 0
        self._told: Positions = {}
        #: What is still to be said when it ends, and how many have been dealt with by then.
        self._last: tuple[Positions, int] | None = None
        self.recorded: RecordedComponent | None = None

    def handed_out(self, count: int) -> None:
        """So many were just given to the application; those before have been dealt with."""
        if self._by_itself and self._attachment.in_force:
            self._new += count
            if self._new > TELL_AFTER:
                self.tell()
            else:
                self._soon.start()

    def in_force(self, *, again: bool) -> None:
        """It is in force; `again` if what was said last may not have arrived."""
        if again:
            self._told = {}
        if self._by_itself:  # what was handed out before has been dealt with, too
            self._soon.start()

    def cut_off(self) -> None:
        """Say nothing until it is in force again."""
        self._soon.stop()

    def _dealt_with(self, *, handed_out: bool = False) -> int:
        """How many were dealt with, if that is recorded."""
        if self.recorded is None:
            return 0
        count = self.recorded.given - (0 if handed_out else self._arrivals.held)
        self.recorded.dealt(count)
        return count

    def tell(self) -> None:
        """Tell the broker at once what was dealt with, if that is news."""
        self._soon.stop()
        if not self._by_itself:  # the application says it
            return
        positions = self._arrivals.dealt()
        if self._attachment.in_force and positions != self._told:
            message = Confirm(self._attachment.number, positions)
            if self.recorded is not None:
                recorded, count = self.recorded, self._dealt_with()
                message.request = self._attachment.when_answered(lambda: recorded.confirmed(count))
            self._attachment.send(message)
            self._told = positions
            self._new = 0

    async def confirm(self, timeout: float | None) -> None:
        """Have it stored that everything that was handed out was dealt with."""
        self._arrivals.deal()
        await self._confirm(self._arrivals.dealt(), self._dealt_with(), timeout)

    async def _confirm(self, positions: Positions, count: int, timeout: float | None) -> None:
        async with TimeLimit(timeout, _NOT_STORED):
            number = self._attachment.number
            await self._attachment.put(lambda request: Confirm(number, positions, request))
            self._told = positions
        if self.recorded is not None:
            self.recorded.confirmed(count)

    async def flush(self, timeout: float) -> None:
        """Have it stored what was dealt with; what the application holds right now was not."""
        positions = self._arrivals.dealt()
        if self._by_itself and positions != self._told:
            await self._confirm(positions, self._dealt_with(), timeout)

    def closes(self, *, handed_out: bool) -> bool:
        """It ends; what was handed out last counts or not. Whether something is left to say."""
        self._soon.stop()
        dealt = self._arrivals.dealt(handed_out=handed_out)
        if self._by_itself and dealt != self._told:
            self._last = dealt, self._dealt_with(handed_out=handed_out)
        return self._last is not None

    async def leave(self) -> None:
        """Say what is left to say."""
        if self._last is None:
            return
        if self._durable:
            await self._confirm(*self._last, None)
        else:
            self._attachment.send(Confirm(self._attachment.number, self._last[0]))


class Settlements:
    """What the application says of each notification, from whichever thread, and what is told."""

    def __init__(self, attachment: Attachment, terms: Terms, subscription: Any) -> None:
        """`subscription` is the one to which notifications say that they belong."""
        settlement = terms.settlement
        assert settlement is not None
        self._attachment = attachment
        self._soon = _Soon(attachment, self.tell)
        self.unsettled = Unsettled(
            Delivery(self.ack, self.nack, self.extend, subscription),
            ordered=not settlement.overtake,
            timed=settlement.deadline > 0,
            shared=terms.group is not None,
            ranked=settlement.ranked,
        )
        self._acked = self.unsettled.ack  # it is called for every single one
        self.recorded: RecordedComponent | None = None

    # -- what applications say

    def ack(self, notification: Notification) -> None:
        """It was dealt with."""
        if get_ident() != self._attachment.thread:
            self._attachment.call(self.ack, notification)
        elif self._acked(notification) > TELL_AFTER or not self._soon.is_set:
            self._tell_soon()

    def nack(self, notification: Notification, delay: float | None, cause: str) -> None:
        """It could not be dealt with."""
        if get_ident() != self._attachment.thread:
            self._attachment.call(self.nack, notification, delay, cause)
            return
        if self.recorded is not None and self.unsettled.has(notification):
            assert notification.id is not None  # it has come from a broker
            self.recorded.refused(notification.id, notification.place)
        self.unsettled.nack(notification, delay, cause)
        self._tell_soon()

    def extend(self, notification: Notification, seconds: float) -> None:
        """It takes longer."""
        if get_ident() != self._attachment.thread:
            self._attachment.call(self.extend, notification, seconds)
            return
        self.unsettled.extend(notification, seconds)
        self._tell_soon()

    def committed(self, notifications: list[Notification]) -> None:
        """These were settled by a transaction."""
        self.unsettled.committed(notifications)
        if self.recorded is not None:
            self.recorded.committed(self.unsettled.told)

    # -- what the broker says

    def withdrawn(self, message: Withdrawn) -> None:
        """It has taken some back."""
        if self.recorded is not None:
            self.recorded.taken(message)
        self.unsettled.withdrawn(message)

    def in_force(self, *, again: bool) -> None:
        """It is in force: the broker is told what it cannot know."""
        self.tell()

    def cut_off(self) -> None:
        """Say nothing until it is in force again."""
        self._soon.stop()

    # -- what the broker is told

    def handed_out(self, count: int) -> None:
        """So many were just given to the application."""
        if not self._soon.is_set:
            self._tell_soon()

    def _tell_soon(self) -> None:
        """Tell the broker what was settled: soon, or at once if that is much."""
        pending = self.unsettled.pending
        if pending > TELL_AFTER:
            self.tell()
        elif pending and self._attachment.in_force:
            self._soon.start()

    def tell(self) -> None:
        """Tell the broker at once what was settled."""
        self._soon.stop()
        if self._attachment.in_force:
            message = self.unsettled.message(self._attachment.number)
            if message is not None:
                if self.recorded is not None:
                    stored = self.recorded.told(self.unsettled.told)
                    message.request = self._attachment.when_answered(stored)
                self._attachment.send(message)

    async def confirm(self, timeout: float | None) -> None:
        """Have it stored that everything that was handed out was dealt with."""
        for notification in self.unsettled.in_hand:
            self.unsettled.ack(notification)
        await self.flush(timeout)

    async def flush(self, timeout: float | None) -> None:
        """Return when what was settled is on disk."""
        async with TimeLimit(timeout, _NOT_STORED):
            self._soon.stop()
            message = self.unsettled.message(self._attachment.number)
            stored = None
            if self.recorded is not None and message is not None:
                stored = self.recorded.told(self.unsettled.told)
            message = message or Settle(self._attachment.number, {})

            def asked(number: int) -> Settle:
                message.request = number
                return message

            await self._attachment.put(asked)
            if stored is not None:
                stored()

    def closes(self, *, handed_out: bool) -> bool:
        """It ends. Whether something is left to say."""
        self._soon.stop()
        return self.unsettled.pending > 0

    async def leave(self) -> None:
        """Say what is left to say."""
        if self.unsettled.pending:
            await self.flush(None)
