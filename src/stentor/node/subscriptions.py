"""All subscriptions at one broker, and what has to happen when one ends.

Several parts of the core keep something about a subscription: that it catches up, that publishers
wait for it, when its lease ends. Each says once how it is to be told (`at_end`), so that ending
a subscription is one call, whatever parts there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice

from stentor.node.session import Session
from stentor.node.subscription import Consumer, Subscription
from stentor.node.turns import Turns


class Subscriptions:
    """Subscriptions by their ids."""

    def __init__(self, ready: Turns[str]) -> None:
        """`ready` are those that may have something for their consumers."""
        #: Look at it as you like; `begin` and `leave` change it.
        self.held: dict[str, Subscription] = {}
        #: Notifications that those dropped which have ended.
        self.dropped = 0
        #: How many the clients of each grant consume.
        self.by_owner: Counter[str | None] = Counter()
        self._ready = ready
        self._at_end: list[Callable[[Subscription], None]] = []
        self._at_leave: list[Callable[[Consumer], None]] = []

    def at_end(self, forget: Callable[[Subscription], None]) -> None:
        """Call this whenever a subscription has ended."""
        self._at_end.append(forget)

    def at_leave(self, forget: Callable[[Consumer], None]) -> None:
        """Call this whenever a consumer has left its subscription, and it may end."""
        self._at_leave.append(forget)

    def begin(self, subscription: Subscription) -> None:
        self.held[subscription.feed.id] = subscription

    def join(self, subscription: Subscription, session: Session, consumer: Consumer) -> None:
        """A client consumes it from now on."""
        subscription.add(consumer)
        session.subscriptions[consumer.number] = subscription, consumer
        self.by_owner[session.owner] += 1
        self._ready.add(subscription.feed.id)

    def leave(self, session: Session, number: int) -> None:
        """A client no longer consumes it. If nobody does, it ends."""
        subscription, consumer = session.subscriptions.pop(number)
        subscription.remove(consumer)
        self.by_owner[session.owner] -= 1
        if not self.by_owner[session.owner]:
            del self.by_owner[session.owner]
        for forget_consumer in self._at_leave:
            forget_consumer(consumer)
        if subscription.consumers:
            self._ready.add(subscription.feed.id)
            return
        del self.held[subscription.feed.id]
        self.dropped += subscription.feed.dropped
        for forget in self._at_end:
            forget(subscription)

    def take_down(self, session: Session, most: int) -> bool:
        """End some of what a client has consumed that is gone; whether that was all.

        Each filter of an inbox counts.
        """
        for number, (subscription, _) in list(islice(session.subscriptions.items(), most)):
            if most <= 0:
                break
            most -= max(1, len(subscription.interest))
            self.leave(session, number)
        return not session.subscriptions
