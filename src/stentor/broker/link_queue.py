"""What waits to go over a link: in order, within bounds.

Everything for a neighbor goes through one queue, so that nothing overtakes anything: the recovery
of streams rests on that (see `stentor.node.streams`). Notifications are sent as far as the neighbor
has granted credit; what comes behind them in the queue waits with them.

When the queue is full, notifications are dropped instead of stopping everybody. In the place of the
first that is dropped of a stream stands the word that the stream begins afresh; so whoever is on
the other side and needs all of it asks its journal, and nothing that is journaled is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from stentor.protocol.messages import BetweenBrokers, Forward, StreamId, Streams

#: Notifications that a neighbor may be sent beyond those whose arrival it has granted again.
LINK_WINDOW: Final = 20_000


class LinkQueue:
    """The queue of one link.

    >>> queue = LinkQueue(limit=2, restart=lambda stream: Streams([], []))
    >>> for offset in (1, 2, 3):
    ...     queue.push(Forward("b1#0", [offset], [b"..."]))
    >>> [type(message).__name__ for message in queue.pop()], queue.dropped
    (['Forward', 'Forward', 'Streams'], 1)
    """

    def __init__(
        self,
        *,
        limit: int,
        restart: Callable[[StreamId], Streams | None],
        credit: int = LINK_WINDOW,
    ) -> None:
        """`restart` gives the word that stands in the place of what is dropped of a stream."""
        self.limit = limit
        self._restart = restart
        self._credit = credit
        self._queue: deque[BetweenBrokers] = deque()
        #: Notifications in the queue.
        self.waiting = 0
        self.dropped = 0
        #: Streams of which everything is dropped until there is room again.
        self._broken: set[StreamId] = set()

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, message: BetweenBrokers) -> None:
        """Put a message at the end."""
        if isinstance(message, Forward):
            count = len(message.items)
            if self._broken and 2 * self.waiting <= self.limit:
                self._broken.clear()
            full = self.waiting + count > self.limit and self.waiting > 0
            if full or message.stream in self._broken:
                self._drop(message)
                return
            self.waiting += count
        self._queue.append(message)

    def _drop(self, message: Forward) -> None:
        self.dropped += len(message.items)
        if not message.volatile and message.stream not in self._broken:
            self._broken.add(message.stream)
            word = self._restart(message.stream)
            if word is not None:
                self._queue.append(word)

    def grant(self, more: int) -> None:
        """The neighbor can take more."""
        self._credit += max(0, more)

    def pop(self, limit: int = 1_000) -> list[BetweenBrokers]:
        """Messages that may be sent now, in order."""
        found: list[BetweenBrokers] = []
        queue = self._queue
        while queue and len(found) < limit:
            message = queue[0]
            if isinstance(message, Forward):
                if self._credit <= 0:
                    break
                self._credit -= len(message.items)
                self.waiting -= len(message.items)
            elif isinstance(message, Streams):
                # The word is on its way; what is dropped from now on needs another one.
                self._broken.difference_update(origin.stream for origin in message.up)
            found.append(queue.popleft())
        return found
