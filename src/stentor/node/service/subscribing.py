"""What subscribers ask of the broker."""

from __future__ import annotations

from typing import Final

from stentor.errors import (
    InvalidConfiguration,
    LeaseExpired,
    NotPermitted,
    Overloaded,
    ProtocolError,
)
from stentor.node.actions import (
    Persist,
)
from stentor.node.reading import received
from stentor.node.service.groups import Groups
from stentor.node.session import Session
from stentor.node.subscription import Consumer
from stentor.protocol import messages as m

#: The longest name of a durable subscription or group.
MAX_NAME: Final = 255


class Subscribing(Groups):
    """Does what subscribers ask."""

    def _subscribe(self, session: Session, message: m.Subscribe) -> None:
        number = message.number
        if number in session.subscriptions:
            raise ProtocolError(f"the number {number} is in use by another subscription")
        if len(session.subscriptions) >= self._max_subscriptions:
            raise Overloaded(
                f"{session.name!r} has {self._max_subscriptions} subscriptions, the most that "
                "this broker allows to one client"
            )
        filter = received(message.filter)
        if session.may_subscribe is not None and not session.may_subscribe(filter):
            raise NotPermitted(
                f"{session.name!r} may not subscribe to {str(filter) or 'everything'!r}; ask for "
                "less, or have the grant widened"
            )
        for name in (message.durable, message.group):
            if name is not None and not 0 < len(name) <= MAX_NAME:
                raise InvalidConfiguration(
                    f"the name of a durable subscription or group has 1 to {MAX_NAME} characters"
                )
        if message.lease is not None and not message.lease > 0:
            raise InvalidConfiguration(f"a lease of {message.lease} seconds ends before it begins")
        consumer = Consumer(session.id, number, max(0, message.credit))
        resumed = False
        if message.group is not None:
            subscription = self._join_group(session, message, filter)
            if subscription is None:
                return
        else:
            subscription, resumed = self._new_subscription(session, message, filter)
        subscription.add(consumer)
        session.subscriptions[number] = subscription, consumer
        self._ready[subscription.feed.id] = None
        self._want_probe(subscription.feed)
        self._settling[consumer] = self._probes.number + 1, session, resumed

    def _unsubscribe(self, session: Session, message: m.Unsubscribe) -> None:
        if message.number in session.subscriptions:
            subscription, _ = session.subscriptions[message.number]
            gone = self._detach(session, message.number)
            self._route_filters(self.router.withdraw(gone, []))
            durable = subscription.durable
            if message.forget and durable is not None and not subscription.consumers:
                self.durables.pop(durable.name, None)
                self._dirty[durable.name] = None
        self._to_client(session, m.Ended(message.number))

    def _renew(self, session: Session, message: m.Renew) -> None:
        subscription, _ = self._held(session, message.number)
        if subscription.lease is not None:
            subscription.ends = self._now + subscription.lease
        answer = m.Subscribed(message.number, subscription.lease, time=self._clock)
        self._to_client(session, answer)

    def _credit(self, session: Session, message: m.Credit) -> None:
        held = session.subscriptions.get(message.number)
        if held is not None:
            subscription, consumer = held
            consumer.credit = min(consumer.credit + max(0, message.more), 1 << 40)
            self._ready[subscription.feed.id] = None

    def _confirm(self, session: Session, message: m.Confirm) -> None:
        held = session.subscriptions.get(message.number)
        if held is not None:
            subscription, consumer = held
            durable = subscription.durable
            if subscription.confirm(consumer, message.positions) and durable is not None:
                self._dirty[durable.name] = None
            if durable is not None and message.request is not None:
                self._dirty.pop(durable.name, None)
                context = (session, m.Done(message.request))
                self._out.append(Persist(durable.name, durable.to_data(), context))
                return
        if message.request is not None:
            answer: m.Done | m.Failure = m.Done(message.request)
            if held is None:
                text = f"there is no subscription {message.number}, or no longer; subscribe again"
                answer = m.Failure(LeaseExpired.code, text, message.request)
            self._to_client(session, answer)
