"""Progress: telling subscribers how far streams have come in which there was nothing for them.

So who comes back after a long time need not read a journal in vain.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from stentor.node.agenda import Agenda
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.marks import Marks
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.protocol import messages as m

#: Seconds between two words to the same client.
EVERY: Final = 5.0
#: Pairs of a subscription and a stream that are looked at in one step, and how many of them cost as
#: much as a subscription by itself.
AT_ONCE: Final = 10_000
ITSELF: Final = 20


class Progress:
    """Tells how far streams have come."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        journals: Journals,
        marks: Marks,
        clock: Clock,
        agenda: Agenda,
    ) -> None:
        self._subscriptions = subscriptions
        self._journals = journals
        self._marks = marks
        self._clock = clock
        self._agenda = agenda
        self._to_tell: deque[str] = deque()
        self._next = clock.now

    def tell(self, subscription: Subscription) -> None:
        """Tell its consumer what it does not know."""
        # The members of a group know their own part only, and who settles one by one, no position.
        if subscription.group is None and subscription.settling is None:
            for consumer in subscription.consumers:
                news = subscription.news()
                if news:
                    self._agenda.to_client(consumer.session, m.Progress(consumer.number, news))

    def tick(self) -> None:
        """That is no hurry, so a few at a time: nobody else shall wait while very many are told."""
        if self._clock.now >= self._next and not self._to_tell:
            self._next = self._clock.now + EVERY
            self._to_tell.extend(self._subscriptions.held)
        if not self._to_tell:
            return
        marks = {**self._marks.heads, **self._journals.heads()}
        left = AT_ONCE
        while self._to_tell and left > 0:
            subscription = self._subscriptions.held.get(self._to_tell.popleft())
            if subscription is None:
                continue
            for stream, head in marks.items():
                subscription.feed.mark(stream, head)
            self.tell(subscription)
            left -= ITSELF + len(marks) + subscription.feed.breadth
