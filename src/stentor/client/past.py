"""A past that is kept elsewhere than in journals, such as in an archive.

Journals are kept for some time, archives for good. A subscription can begin in an archive and go on
in the journals, without a gap and without a repeat, because an archive knows its place in them: up
to which offset of each journal it has everything. The subscription is made at once, to continue
behind these positions, but grants no credit. So brokers have checked it and keep its place in their
journals, while the application is given the past. When that is used up, credit is granted.

Archives are read with blocking calls, so a thread makes them, one portion at a time and only when
the application asks for more. Who stops waiting does not stop the thread: the portion is there for
the next one who asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from stentor.model import Notification
from stentor.protocol.messages import Positions

if TYPE_CHECKING:
    from stentor.filters import Filter


class Recalled(Protocol):
    """What a past has for one subscription."""

    @property
    def filter(self) -> Filter:
        """What the subscription asks of the brokers."""

    @property
    def positions(self) -> Positions:
        """By journal, the last offset that is not asked of the brokers."""

    def portions(self) -> Iterator[list[Notification]]:
        """The notifications in order."""


@runtime_checkable
class Past(Protocol):
    """What `since=` of a subscription may be, instead of a time."""

    def recall(self, filter: Filter) -> Recalled:
        """Look up what it has for a filter. May block."""


class Recall:
    """Reads what was recalled, for one task at a time."""

    def __init__(self, recalled: Recalled) -> None:
        self._portions = recalled.portions()
        self._next: asyncio.Future[list[Notification] | None] | None = None
        self._closed = False

    async def next(self) -> list[Notification] | None:
        """The next portion; None behind the last. An error is raised again by every later call."""
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.run_in_executor(None, next, self._portions, None)
        portion = await asyncio.shield(self._next)
        if portion is not None:
            self._next = None
        return portion

    def close(self) -> None:
        """Read no more; files are closed when the thread is done with them."""
        if self._closed:
            return
        self._closed = True
        pending = self._next
        if pending is None:
            _close(self._portions)
        else:
            pending.add_done_callback(self._read_last)

    def _read_last(self, pending: asyncio.Future[list[Notification] | None]) -> None:
        if not pending.cancelled():
            pending.exception()  # nobody else will ask for it
        _close(self._portions)


def _close(portions: Iterator[list[Notification]]) -> None:
    close = getattr(portions, "close", None)
    if close is not None:
        close()
