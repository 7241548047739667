"""The lease of a subscription, which ends by itself unless it is renewed in time."""

from __future__ import annotations

import asyncio

from stentor.client.attachment import Attachment
from stentor.client.waiting import TimeLimit
from stentor.errors import InvalidConfiguration, LeaseExpired
from stentor.protocol.messages import Renew


class Lease:
    """For how long a subscription is in force, and when that is extended."""

    def __init__(self, attachment: Attachment, seconds: float | None, *, renews: bool) -> None:
        """Without `seconds` there is none; whether it renews itself is `renews`."""
        self._attachment = attachment
        self._seconds = seconds
        self._renews = renews
        self._ends: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float | None:
        """The seconds to ask for over a new connection."""
        if self._seconds is None or self._renews or self._ends is None:
            return self._seconds
        return self._ends - self._attachment.local.monotonic

    def granted(self, seconds: float) -> None:
        """The broker has said for how long it is in force."""
        local = self._attachment.local
        self._ends = local.monotonic + seconds
        self.stop()
        if self._renews:
            self._timer = local.loop.call_later(seconds / 3, self._renew)

    async def renew(self, timeout: float | None) -> None:
        """Extend it from now on; return when the broker has."""
        if self._seconds is None:
            raise InvalidConfiguration("only a lease is renewed; subscribe with lease=seconds")
        attachment = self._attachment
        before = attachment.granted
        async with TimeLimit(timeout, "the lease was not renewed"):
            self._renew()
            await attachment.until(lambda: attachment.granted > before or attachment.over)
        if attachment.over:
            raise attachment.error or LeaseExpired("the subscription has ended")

    def _renew(self) -> None:
        self.stop()
        self._attachment.send(Renew(self._attachment.number))

    def time_moved(self) -> None:
        """A test has let time pass: a timer that waits for the machine's clock is late."""
        if self._timer is None or self._seconds is None or self._ends is None:
            return
        if self._attachment.local.monotonic >= self._ends - self._seconds * 2 / 3:
            self._renew()

    def stop(self) -> None:
        """Renew it no more, unless it is granted again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
