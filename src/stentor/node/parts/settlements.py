"""Settlements: what subscribers say of single notifications, and dead letters.

What became of notifications is kept by each subscription (see `stentor.node.settling`). Here is
what concerns others: consumers hear what is taken from them, durable subscriptions are stored, and
of what was given in vain too often a dead letter is published, by this broker.

The dead letter and the state of its durable subscription, in which the notification is done, are
one transaction of the journal: after a crash there are both or neither. Until that is on disk, no
other state of the subscription is stored, since the notification counts as unsettled in it. One
such transaction is under way at a time; if it fails, it is tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Final

from stentor.errors import LeaseExpired, StentorError
from stentor.filters import Filter
from stentor.model.codec import decode_headers
from stentor.model.dead_letter import PRODUCER, TYPE, dead_letter
from stentor.model.identity import NotificationId
from stentor.model.stamp import without_stamps
from stentor.node.agenda import Agenda
from stentor.node.clock import Clock
from stentor.node.hooks import Dropped, Hooks
from stentor.node.journals import Journals
from stentor.node.last_values import label
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.durables import Durables
from stentor.node.parts.publishing import Publishing
from stentor.node.parts.routing import Routing
from stentor.node.scopes import Scopes
from stentor.node.session import Session
from stentor.node.settle_portions import is_short, portions
from stentor.node.settling import Entry, Withdrawal
from stentor.node.subscription import Consumer, Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.protocol import messages as m
from stentor.routing.protocol import FilterId

#: What this broker publishes itself.
LETTERS: Final = Filter(f"type = '{TYPE}'")
#: Dead letters in one transaction, and seconds until one that failed is tried again.
AT_ONCE: Final = 100
RETRY: Final = 1.0
#: Unsettled notifications that are looked at in one step because others are refused.
REFUSED: Final = 20_000
#: Seconds that a refused notification of a subscription rests that does not settle one by one.
LEAST: Final = 1.0
MOST: Final = 60.0


@dataclass(slots=True)
class _Dying:
    subscription: Subscription
    entry: Entry


class Settlements:
    """Hears what has become of notifications."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        durables: Durables,
        publishing: Publishing,
        routing: Routing | Carriage,
        journals: Journals,
        hooks: Hooks,
        ready: Turns[str],
        clock: Clock,
        agenda: Agenda,
        scopes: Scopes,
    ) -> None:
        self._scopes = scopes
        self._subscriptions = subscriptions
        self._durables = durables
        self._publishing = publishing
        self._routing = routing
        self._hooks = hooks
        self._ready = ready
        self._clock = clock
        self._agenda = agenda
        self.counters = {"dead_letters": 0, "given_up": 0}
        self._producer = PRODUCER + journals.stream
        self._epoch = int(clock.time * 1000)
        self._sequence = 0
        self._session: Session | None = None
        self._settling: Turns[str] = Turns()
        self._overdue: Turns[str] = Turns()
        self._advertised = not routing.is_steered
        self._dying: deque[_Dying] = deque()
        #: Those of which a dead letter is on its way to the disk, and not before when.
        self._written: list[_Dying] = []
        self._not_before = 0.0
        #: Whether durable subscriptions are being handed over: their heir makes the dead letters.
        self.paused = False
        subscriptions.at_end(self._forget)

    def begin(self, subscription: Subscription) -> None:
        """A subscription has begun."""
        if subscription.settling is None:
            return
        self._settling.add(subscription.feed.id)
        if subscription.settling.terms.dead_letter and not self._advertised:
            # Where advertisements steer, dead letters would reach nobody otherwise.
            self._advertised = True
            self._routing.advertise(FilterId(self._producer, 0), LETTERS)

    def _forget(self, subscription: Subscription) -> None:
        self._settling.discard(subscription.feed.id)
        self._overdue.discard(subscription.feed.id)

    # -- what consumers say

    def settle(self, session: Session, message: m.Settle) -> Iterator[None] | None:
        held = session.subscriptions.get(message.number)
        if held is None:
            self._unknown(session, message)
            return None
        if is_short(message):
            self._settle(*held, message)
            self._answer(session, held[0], message)
            return None
        return self._settle_much(session, message, *held)

    def _unknown(self, session: Session, message: m.Settle) -> None:
        if message.request is not None:
            text = f"there is no subscription {message.number}, or no longer; subscribe again"
            failure = m.Failure(LeaseExpired.code, text, message.request)
            self._agenda.to_client(session.id, failure)

    def _settle_much(
        self, session: Session, message: m.Settle, subscription: Subscription, consumer: Consumer
    ) -> Iterator[None]:
        """A part of what the message says in each step."""

        def refusals() -> int:
            """Each may look at everything that is unsettled."""
            unsettled = 0 if subscription.settling is None else len(subscription.settling)
            return max(1, REFUSED // (1 + unsettled))

        for portion in portions(message, refusals):
            if session.subscriptions.get(message.number) != (subscription, consumer):
                self._unknown(session, message)
                return
            self._settle(subscription, consumer, portion)
            yield
        self._answer(session, subscription, message)

    def _settle(self, subscription: Subscription, consumer: Consumer, message: m.Settle) -> None:
        durable, settling = subscription.durable, subscription.settling
        if settling is not None:
            self._withdraw(settling.settle(consumer, message))
            self._changed(subscription)
        elif durable is not None:
            for refused in message.refused:
                if not durable.is_done(refused.stream, refused.offset):
                    self._rest(subscription, refused)

    def _answer(self, session: Session, subscription: Subscription, message: m.Settle) -> None:
        durable = subscription.durable
        if message.request is not None:
            done = m.Done(message.request)
            if durable is None:
                self._agenda.to_client(session.id, done)
            else:
                self._durables.store(durable, self._durables.answer(session, done))

    def _rest(self, subscription: Subscription, refused: m.Refused) -> None:
        """Nothing comes for a while, so that what fails does not come again at once for ever."""
        durable = subscription.durable
        assert durable is not None
        attempts = durable.refuse(refused.stream, refused.offset, 0.0, refused.cause)
        wait = refused.delay
        if wait is None or not isfinite(wait) or wait < 0:
            wait = min(MOST, LEAST * 2.0 ** min(attempts - 1, 60))
        refusal = durable.refused[refused.stream][refused.offset]
        refusal.due, refusal.wait = self._clock.time + wait, wait
        subscription.rests_until = max(subscription.rests_until, self._clock.now + wait)
        self._durables.changed(durable)

    def _withdraw(self, withdrawals: list[Withdrawal]) -> None:
        for consumer, stream, offsets, refused in withdrawals:
            gone = m.Withdrawn(consumer.number, stream, offsets, refused)
            self._agenda.to_client(consumer.session, gone)

    def look(self, subscription: Subscription) -> None:
        """It may have been settled what its consumers were given."""
        if subscription.settling is not None:
            self._changed(subscription)

    def _changed(self, subscription: Subscription) -> None:
        """Something was settled, or is due."""
        settling, durable = subscription.settling, subscription.durable
        assert settling is not None
        if settling.changed:
            settling.changed = False
            if durable is not None:
                subscription.pass_over()
                self._durables.changed(durable)
        self._bury(subscription)
        self._ready.add(subscription.feed.id)

    def tick(self) -> None:
        """What rests comes again, and what took too long is taken from consumers."""
        for id in list(self._settling):
            self._look(id)

    def _look(self, id: str) -> None:
        subscription = self._subscriptions.held[id]
        settling = subscription.settling
        assert settling is not None
        self._withdraw(settling.tick(max(1, REFUSED // (1 + len(settling)))))
        if settling.changed or settling.ready or settling.dying:
            self._changed(subscription)
        if settling.is_due:
            self._overdue.add(id)

    @property
    def has_work(self) -> bool:
        """Whether more is due than one step can look at."""
        return bool(self._overdue)

    def work(self) -> None:
        """Look at some of it."""
        if self._overdue:
            self._look(self._overdue.next())

    # -- dead letters

    def _bury(self, subscription: Subscription) -> None:
        settling = subscription.settling
        assert settling is not None
        while settling.dying:
            entry = settling.dying.popleft()
            if settling.terms.dead_letter:
                self._dying.append(_Dying(subscription, entry))
                if subscription.durable is not None:
                    subscription.durable.dying.add(entry.key)
                continue
            self.counters["given_up"] += 1
            text = f"given up after {entry.attempt - 1} attempts: {entry.cause}"
            self._hooks.tell("drop", Dropped(subscription.feed.id, text))
            settling.finish(entry)

    def publish(self) -> None:
        """Publish dead letters, if none are on their way."""
        if not self._dying or self._written or self._clock.now < self._not_before or self.paused:
            return
        letters: list[bytes] = []
        later: list[_Dying] = []
        while self._dying and len(letters) < AT_ONCE:
            dying = self._dying.popleft()
            durable = dying.subscription.durable
            if durable is not None and self._durables.held.get(durable.name) is not durable:
                continue  # nobody asks for it any more
            if durable is not None and self._durables.is_on_hold(durable.name):
                later.append(dying)
                continue
            self._written.append(dying)
            letters.append(self._letter(dying))
        self._dying.extendleft(reversed(later))
        if not letters:
            return
        states: dict[str, bytes] = {}
        for dying in self._written:
            durable = dying.subscription.durable
            if durable is not None and durable.name not in states:
                keys = [d.entry.key for d in self._written if d.subscription.durable is durable]
                states[durable.name] = durable.to_data(done=keys)
                self._durables.hold(durable.name)
        if self._session is None:
            line = self._publishing.line(self._producer, self._producer, None)
            self._session = Session(-1, self._producer, self._producer, line)
        self._publishing.publish_own(
            self._session, letters, decode_headers(letters), states=states, then=self._published
        )

    def _letter(self, dying: _Dying) -> bytes:
        subscription, entry = dying.subscription, dying.entry
        durable = subscription.durable
        id = NotificationId(self._producer, self._epoch, self._sequence)
        self._sequence += 1
        letter = dead_letter(
            without_stamps([entry.data])[0],
            kind="group" if durable is None else "durable",
            name=label(str(subscription.group)) if durable is None else durable.label,
            owner=subscription.owner if durable is None else durable.owner,
            attempts=entry.attempt - 1,
            cause=entry.cause,
            id=id,
            time=self._clock.time,
        )
        return self._scopes.letter(subscription, entry.data, self._producer) + letter

    def _published(self, error: StentorError | None) -> None:
        """What was on its way is on disk and routed, or could not be stored."""
        written, self._written = self._written, []
        failed = error is not None
        if failed:
            self._session = None
            self._not_before = self._clock.now + RETRY
            self._dying.extendleft(reversed(written))
        else:
            self.counters["dead_letters"] += len(written)
        names = set()
        for dying in written:
            subscription, entry = dying.subscription, dying.entry
            durable, settling = subscription.durable, subscription.settling
            assert settling is not None
            if durable is not None:
                names.add(durable.name)
            if failed:
                continue
            if durable is not None:
                durable.dying.discard(entry.key)
                durable.settle(entry.stream, entry.offset, entry.id)
            settling.finish(entry)
            attached = self._subscriptions.held.get(subscription.feed.id)
            if attached is not None:  # perhaps somebody else by now, who has waited for this
                self.look(attached)
        for name in names:
            self._durables.release(name)
