"""Leases: subscriptions that end unless they are renewed."""

from __future__ import annotations

from itertools import islice
from typing import Final

from stentor.errors import LeaseExpired
from stentor.node.agenda import Agenda
from stentor.node.clock import Clock
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.protocol import messages as m

#: Leases that end in one step.
AT_ONCE: Final = 256


class Leases:
    """Subscriptions for a time."""

    def __init__(
        self, subscriptions: Subscriptions, *, sessions: Sessions, clock: Clock, agenda: Agenda
    ) -> None:
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._clock = clock
        self._agenda = agenda
        self._leases: Turns[str] = Turns()
        subscriptions.at_end(self._forget)

    def renew(self, subscription: Subscription) -> None:
        """It lasts from now on, if it is a lease."""
        if subscription.lease is not None:
            subscription.ends = self._clock.now + subscription.lease
            self._leases.add(subscription.feed.id)

    def _forget(self, subscription: Subscription) -> None:
        self._leases.discard(subscription.feed.id)

    def tick(self) -> None:
        """End those that were not renewed."""
        held, now = self._subscriptions.held, self._clock.now
        ended = (s for id in self._leases if (s := held[id]).ends <= now)
        for subscription in list(islice(ended, AT_ONCE)):
            text = f"the lease of {subscription.lease} seconds was not renewed; subscribe again"
            for consumer in list(subscription.consumers):
                session = self._sessions.held[consumer.session]
                ended_now = m.Ended(consumer.number, LeaseExpired.code, text)
                self._agenda.to_client(session.id, ended_now)
                self._subscriptions.leave(session, consumer.number)
