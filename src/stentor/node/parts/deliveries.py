"""Deliveries: from the feeds of subscriptions to those who consume them.

A consumer gets as much as it has granted credit for, unless it does not read what it is sent.

A subscriber that wants publishers to wait for it ("block") is *congested* while its feed is full,
and nobody at this broker is answered meanwhile. So this has two bounds. One subscriber is waited
for as long as its grant allows, and all together, one after the other or at the same time, for
`patience`: however many there are, and whatever little each takes, no acknowledgement is later by
more than that. Whoever is congested when a bound is reached *yields*: it is told so, and served as
by "spill". It makes publishers wait again when it has had everything that waited for it, and not
before ten times the patience has passed, so that publishers have most of the time for themselves.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Final

from stentor.errors import QueueOverflow
from stentor.model.codec import decode_header
from stentor.model.stamp import without_stamps
from stentor.node.agenda import Agenda, CloseClient
from stentor.node.clock import Clock
from stentor.node.feed import Feed, Run
from stentor.node.hooks import Dropped, Hooks
from stentor.node.latencies import Latencies
from stentor.node.pieces import pieces
from stentor.node.scopes import Scopes
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.trail import Trail
from stentor.node.turns import Turns
from stentor.protocol import messages as m

#: Notifications that are delivered in one step, and subscriptions that are served, or messages.
DELIVERED_AT_ONCE: Final = 20_000
SERVED_AT_ONCE: Final = 1_000
#: Seconds for which publishers wait for subscribers, if nothing else is set.
PATIENCE: Final = 1.0
#: Who has yielded does not make publishers wait for so many times the patience.
YIELDED: Final = 10


class Deliveries:
    """Gives consumers what waits for them."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        sessions: Sessions,
        ready: Turns[str],
        hungry: Turns[str],
        hooks: Hooks,
        clock: Clock,
        agenda: Agenda,
        trail: Trail,
        latencies: Latencies,
        scopes: Scopes,
        patience: float = PATIENCE,
    ) -> None:
        """`ready` are subscriptions that may have something; `hungry` those that want to read.

        `patience` is for how many seconds publishers wait.
        """
        self._subscriptions = subscriptions
        self._ready = ready
        self._hungry = hungry
        self._hooks = hooks
        self._clock = clock
        self._agenda = agenda
        self._trail = trail
        self._latencies = latencies
        self._scopes = scopes
        self.patience = patience
        self.counters = {"delivered": 0, "yielded": 0, "expired": 0}
        #: Clients that do not read what they are sent.
        self.blocked: set[int] = set()
        #: Subscriptions for which publishers wait, since when; and since when they do for any.
        self._congested: dict[str, float] = {}
        self._since = 0.0
        #: Those that have yielded, and until when at least.
        self._yielded: dict[str, float] = {}
        #: Those that get nothing for a while, since their subscriber failed.
        self._resting: Turns[str] = Turns()
        subscriptions.at_end(self._forget)
        sessions.at_leave(self._left)
        sessions.at_end(self._gone)

    @property
    def congested(self) -> bool:
        """Whether publishers wait for a slow subscriber, by its own policy."""
        return bool(self._congested)

    def _forget(self, subscription: Subscription) -> None:
        self._congested.pop(subscription.feed.id, None)
        self._yielded.pop(subscription.feed.id, None)
        self._resting.discard(subscription.feed.id)

    def block(self, session: int) -> None:
        """The client does not read what it is sent."""
        self.blocked.add(session)

    def unblock(self, session: Session) -> None:
        """It does again."""
        self.blocked.discard(session.id)
        self._ready.update((s.feed.id, None) for s, _ in session.subscriptions.values())

    def _left(self, session: Session) -> None:
        self.blocked.add(session.id)  # until all that it had is taken down

    def _gone(self, session: Session) -> None:
        self.blocked.discard(session.id)

    def deliver(self) -> None:
        """Give consumers what they have credit for; if that is much, the rest has to wait."""
        ready, held = self._ready, self._subscriptions.held
        if not ready:
            return
        most = self.counters["delivered"] + DELIVERED_AT_ONCE
        messages = len(self._agenda) + SERVED_AT_ONCE
        for id in list(islice(ready, SERVED_AT_ONCE)):
            if self.counters["delivered"] >= most or len(self._agenda) >= messages:
                return
            del ready[id]
            subscription = held.get(id)
            if subscription is not None:
                self._deliver(subscription)

    def _deliver(self, subscription: Subscription) -> None:
        feed = subscription.feed
        to_client, note = self._agenda.to_client, self._trail.note
        if subscription.settling is not None:
            self._agenda.stir()
        if subscription.rests_until and subscription.rests(self._clock.now):
            self._resting.add(feed.id)
            return
        for consumer, run in subscription.deliveries(self.blocked, self._clock.time):
            if run.gap:
                gap = m.Gap(consumer.number, run.stream, run.offsets[0], run.offsets[1])
                to_client(consumer.session, gap)
                continue
            self.counters["delivered"] += len(run.items)
            if run.offsets:
                session = consumer.session
                note("delivered", feed.id, session, run.stream, run.offsets, run.attempt)
                if self._latencies.wants_delivery:
                    self._measure(feed, run)
            given = without_stamps(run.items) if self._scopes.active else run.items
            for offsets, items in pieces(run.offsets, given):
                message = m.Deliver(
                    consumer.number, run.stream, offsets, items, run.retained, run.attempt
                )
                to_client(consumer.session, message)
        if feed.perishable or subscription.settling is not None:
            self.counters["expired"] += subscription.take_expired()
        if feed.dropped > subscription.told_dropped:
            lost = feed.dropped - subscription.told_dropped
            subscription.told_dropped = feed.dropped
            for stream, offsets in feed.drops:
                note("dropped", feed.id, 0, stream, offsets)
            feed.drops.clear()
            self._hooks.tell("drop", Dropped(feed.id, f"{lost} too many for its queue"))
        if feed.blocks:
            self._note_congestion(feed)
        if feed.overflowed:
            for consumer in subscription.consumers:
                text = (
                    f"more than {feed.limit} notifications waited; read faster, or choose another "
                    "overflow policy"
                )
                self._agenda.add(CloseClient(consumer.session, QueueOverflow.code, text))
        if feed.is_catching:
            self._agenda.stir()
            self._hungry.add(feed.id)
        if subscription.has_more(self.blocked):
            self._ready.add(feed.id)

    def _measure(self, feed: Feed, run: Run) -> None:
        """How long ago the first of these was published, if it is given live."""
        if feed.is_catching or run.retained or run.attempt > 1:
            return
        published = decode_header(run.items[0]).time
        if isinstance(published, datetime):
            self._latencies.wants_delivery = False
            late = self._latencies.time_of_day() - published.timestamp()
            self._latencies.delivering.observe(max(0.0, late))

    def _note_congestion(self, feed: Feed) -> None:
        """Let publishers wait for a subscriber that wants it so, or no longer."""
        if not feed.congested:
            self._congested.pop(feed.id, None)
        elif feed.id not in self._congested:
            now = self._clock.now
            if not self._congested:
                self._since = now
            self._congested[feed.id] = now

    def tick(self) -> None:
        """Nobody waits for too long; who has caught up may be waited for again."""
        now, held = self._clock.now, self._subscriptions.held
        self._ready.update(self._resting)
        self._resting.clear()
        enough = now - self._since >= self.patience
        for id, since in list(self._congested.items()):
            if enough or now - since >= held[id].feed.patience:
                self._yield(held[id])
        for id, until in list(self._yielded.items()):
            if now >= until and not len(held[id].feed):
                held[id].feed.blocks = True
                del self._yielded[id]

    def _yield(self, subscription: Subscription) -> None:
        """Let nobody wait for this one any longer."""
        feed = subscription.feed
        feed.blocks = False
        waited = self._clock.now - self._congested.pop(feed.id)
        self._yielded[feed.id] = self._clock.now + YIELDED * self.patience
        self.counters["yielded"] += 1
        for consumer in subscription.consumers:
            self._agenda.to_client(consumer.session, m.Yielded(consumer.number, waited))
