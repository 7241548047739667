"""Outages: what the log hears of the time without a good connection.

A broker that restarts is back within a moment, and nobody needs to hear of that. After `NOTICE`
seconds whoever waits for an acknowledgement would take silence for a program that hangs, so there
is a warning, and another every `REPEAT` seconds. A connection that is lost again at once, as on a
broker whose disk is full, does not end an outage.
"""

from __future__ import annotations

import logging
from typing import Final

#: Seconds of an outage before the first warning, and between two of them.
NOTICE: Final = 2.0
REPEAT: Final = 60.0

#: Apart from the rest of the client's log, for programs that tell of it in words of their own.
LOG: Final = logging.getLogger("stentor.client.outage")


class Outage:
    """How long there has been no good connection, and when the log is to be told of it."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._due = 0.0
        self._told = False

    def begin(self, now: float, *, anew: bool) -> None:
        """A connection was lost; `anew` if it had been a good one."""
        if anew or self._began is None:
            self._began = now
            self._due = now + NOTICE

    def goes_on(self, now: float, reason: Exception) -> None:
        """There is still no good connection."""
        if self._began is not None and now >= self._due:
            self._due = now + REPEAT
            self._told = True
            LOG.warning("no connection for %.0f s, still trying: %s", now - self._began, reason)

    def connected(self, address: object) -> None:
        """There is a connection, which may turn out to be a good one."""
        if self._told:
            self._told = False
            LOG.warning("connected again, to %s", address)
