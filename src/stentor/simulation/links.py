"""Virtual links: messages on their way, and which of them arrives next.

Between two brokers messages keep their order; between different pairs nothing is promised. So the
messages that may arrive next are the first ones of each channel, and a schedule is a sequence of
choices among them. Without a seed they arrive in the order they were sent; with one, the choice is
random, and every order that the links allow can happen; a caller may also choose by hand.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TypeAlias

from stentor.routing.protocol import BrokerId, Message

Channel: TypeAlias = tuple[BrokerId, BrokerId]


class Links:
    """The channels between brokers, from and to, and what is on its way on each."""

    def __init__(self, seed: int | None = None) -> None:
        self._channels: dict[Channel, deque[Message]] = {}
        #: A channel stands in here once for each message, in the order of sending.
        self._order: deque[Channel] = deque()
        self._random = None if seed is None else random.Random(seed)
        self._busy: dict[Channel, None] = {}

    def open(self, a: BrokerId, b: BrokerId) -> None:
        self._channels[a, b] = deque()
        self._channels[b, a] = deque()

    def close(self, a: BrokerId, b: BrokerId) -> int:
        """Take the link away; how many messages were lost with it."""
        lost = 0
        for channel in ((a, b), (b, a)):
            queue = self._channels.pop(channel, None)
            lost += len(queue or ())
            if self._busy.pop(channel, 0) is None:
                self._order = deque(c for c in self._order if c != channel)
        return lost

    def is_open(self, a: BrokerId, b: BrokerId) -> bool:
        return (a, b) in self._channels

    def send(self, sender: BrokerId, receiver: BrokerId, message: Message) -> bool:
        """Whether there was a link to send it over."""
        channel = (sender, receiver)
        queue = self._channels.get(channel)
        if queue is None:
            return False
        queue.append(message)
        self._busy[channel] = None
        if self._random is None:
            self._order.append(channel)
        return True

    @property
    def pending(self) -> list[Channel]:
        """The channels on which a message may arrive now."""
        return list(self._busy)

    def on_the_way(self, sender: BrokerId, receiver: BrokerId) -> list[Message]:
        return list(self._channels.get((sender, receiver), ()))

    def arrive(self, channel: Channel | None = None) -> tuple[BrokerId, BrokerId, Message] | None:
        """The next message of the given channel, or of one that the schedule chooses."""
        if channel is None:
            if not self._busy:
                return None
            if self._random is not None:
                channel = self._random.choice(list(self._busy))
            else:
                channel = self._order.popleft()
        elif channel not in self._busy:
            return None
        elif self._random is None:
            self._order.remove(channel)
        queue = self._channels[channel]
        message = queue.popleft()
        if not queue:
            del self._busy[channel]
        return (*channel, message)
