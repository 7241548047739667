"""A schedule: what is on its way, and which of it happens next.

Whatever takes time goes through a channel: the messages from one broker to another, what a disk is
to write, what a client is to hear. A channel keeps its order; between channels nothing is promised.
So what may happen next is the first of each channel, and a run is a sequence of choices among them.
Without a seed things happen in the order in which they came, one by one (`next`), or all that is in
a channel together when its turn comes (`next_all`). With one the choice is random, and every order
that the channels allow can happen; a caller may also choose by hand.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Hashable
from typing import Any


class Schedule:
    """Channels by their names.

    >>> schedule = Schedule()
    >>> schedule.put("east", 1), schedule.put("west", 2), schedule.put("east", 3)
    (None, None, None)
    >>> schedule.next("west"), schedule.next(), schedule.pending
    (('west', 2), ('east', 1), ['east'])
    """

    def __init__(self, seed: int | None = None) -> None:
        self._channels: dict[Hashable, deque[Any]] = {}
        #: Channels with something in them, and the place of each in the list that is drawn from.
        self._busy: dict[Hashable, int] = {}
        self._urn: list[Hashable] = []
        #: A channel stands in here once for each thing in it, in the order of coming; and once for
        #: each that was taken before its turn.
        self._order: deque[Hashable] = deque()
        self._early: Counter[Hashable] = Counter()
        self._random = None if seed is None else random.Random(seed)
        #: Channels that have all the time in the world: they wait for all others.
        self.lazy: set[Hashable] = set()

    def __len__(self) -> int:
        """How much is on its way."""
        return sum(len(self._channels[channel]) for channel in self._busy)

    def put(self, channel: Hashable, what: Any) -> None:
        queue = self._channels.get(channel)
        if queue is None:
            queue = self._channels[channel] = deque()
        queue.append(what)
        if channel not in self._busy:
            self._busy[channel] = len(self._urn)
            self._urn.append(channel)
        if self._random is None:
            self._order.append(channel)

    def drop(self, channel: Hashable) -> list[Any]:
        """Forget what is in a channel; what that was."""
        queue = self._channels.pop(channel, None)
        if not queue:
            return []
        self._idle(channel)
        if self._random is None:
            self._order = deque(c for c in self._order if c != channel)
            del self._early[channel]
        return list(queue)

    def waiting(self, channel: Hashable) -> list[Any]:
        """What is in a channel, the next one first."""
        return list(self._channels.get(channel, ()))

    @property
    def pending(self) -> list[Hashable]:
        """The channels that have something to happen next."""
        return list(self._busy)

    def next(self, channel: Hashable = None) -> tuple[Hashable, Any] | None:
        """Take the next thing of the given channel, or of one that the schedule chooses."""
        if channel is None:
            if not self._busy:
                return None
            if self._random is None:
                channel = self._first()
            else:
                urn = self._urn
                if self.lazy:
                    urn = [c for c in urn if c not in self.lazy] or urn
                channel = self._random.choice(urn)
        elif channel not in self._busy:
            return None
        elif self._random is None:
            self._order.remove(channel)
        queue = self._channels[channel]
        what = queue.popleft()
        if not queue:
            self._idle(channel)
        return channel, what

    def next_all(self) -> tuple[Hashable, list[Any]] | None:
        """Take all that is in the channel whose turn it is; with a seed, just the next thing.

        That is an order which can happen, and whoever deals with much at once is done sooner.

        >>> schedule = Schedule()
        >>> schedule.put("east", 1), schedule.put("west", 2), schedule.put("east", 3)
        (None, None, None)
        >>> schedule.next_all(), schedule.next(), schedule.next()
        (('east', [1, 3]), ('west', 2), None)
        """
        found = self.next()
        if found is None:
            return None
        channel, first = found
        if self._random is not None or channel not in self._busy:
            return channel, [first]
        queue = self._channels[channel]
        rest = list(queue)
        self._early[channel] += len(rest)
        queue.clear()
        self._idle(channel)
        return channel, [first, *rest]

    def _first(self) -> Hashable:
        """The channel whose turn it is."""
        while True:
            channel = self._order.popleft()
            if not self._early[channel]:
                return channel
            self._early[channel] -= 1

    def _idle(self, channel: Hashable) -> None:
        place, last = self._busy.pop(channel), self._urn.pop()
        if last != channel:
            self._urn[place] = last
            self._busy[last] = place
