"""Subscriptions as the broker holds them: made, stored, taken over, ended.

A subscription becomes a feed and a filter in the router's table. A durable one is also stored; it
has one consumer at a time, and outlives it.
"""

from __future__ import annotations

from typing import Any, Final

from stentor.errors import (
    LeaseExpired,
    NameTaken,
    NotPermitted,
    Overloaded,
    StentorError,
)
from stentor.filters import Filter
from stentor.node.durable import Durable
from stentor.node.feed import Feed
from stentor.node.service.offers import Offers
from stentor.node.session import Session
from stentor.node.subscription import Consumer, Subscription
from stentor.protocol import messages as m
from stentor.routing.protocol import FilterId
from stentor.routing.table import Local

#: Streams that nobody knows of which a client may bring a position.
UNKNOWN_STREAMS: Final = 1_000
#: No stream comes so far; a journal can still count it.
MAX_OFFSET: Final = 1 << 62
#: Subscriptions that are told in one step how far streams have come.
PROGRESS_AT_ONCE: Final = 1_000


class Subscriptions(Offers):
    """Keeps subscriptions."""

    def restore(self, durables: dict[str, bytes]) -> None:
        """Take up the durable subscriptions that were stored."""
        for name, data in durables.items():
            self.durables[name] = Durable.from_data(name, data)

    def import_durables(self, durables: dict[str, bytes]) -> dict[str, bytes | None]:
        """Take over durable subscriptions of a broker that was removed; what is to be stored."""
        news: dict[str, bytes | None] = {}
        for name, data in durables.items():
            theirs = Durable.from_data(name, data)
            ours = self.durables.setdefault(name, theirs)
            if ours is not theirs:
                if not ours.belongs_to(theirs.owner):
                    continue  # the same name for something else
                ours.confirm(theirs.positions)
            news[name] = ours.to_data()
        return news

    def _new_subscription(
        self, session: Session, message: m.Subscribe, filter: Filter
    ) -> tuple[Subscription, bool]:
        durable = None
        resumed = False
        since = message.since
        positions = None if message.positions is None else self._plausible(message.positions)
        id = f"{session.name}@{session.id}/{message.number}"
        if message.durable is not None:
            id = f"durable {message.durable}"
            durable = self.durables.get(message.durable)
            resumed = durable is not None
            if durable is None:
                begin = self._clock if since is None else since
                durable = self._new_durable(session, message.durable, filter, begin)
            else:
                self._check_owner(session, durable)
                if durable.group:
                    raise _of_a_group(durable.name)
                since = durable.since
            merged = dict(durable.positions)
            for stream, position in (positions or {}).items():
                merged[stream] = max(position, merged.get(stream, 0))
            positions = merged
        subscription = Subscription(
            self._feed(id, filter, message, since, positions),
            durable=durable,
            lease=message.lease,
        )
        if durable is not None:  # nothing can go wrong any more
            self._take_over(id)
            durable.filter = filter
            durable.owner = session.owner or durable.owner
            self.durables[durable.name] = durable
        self._enter(subscription)
        if message.retained:
            subscription.feed.held = True
        return subscription, resumed

    def _new_durable(
        self, session: Session, name: str, filter: Filter, since: float, *, group: bool = False
    ) -> Durable:
        if len(self.durables) >= self._max_durables:
            raise Overloaded(
                f"{len(self.durables)} durable subscriptions are kept, the most that this broker "
                "allows; forget some that nobody needs, or raise limits.durables"
            )
        return Durable(name, filter, since=since, group=group, owner=session.owner)

    def _check_owner(self, session: Session, durable: Durable) -> None:
        """Raise if the durable subscription is somebody else's."""
        if not durable.belongs_to(session.owner):
            raise NotPermitted(
                f"the durable subscription {durable.name!r} belongs to another grant than that of "
                f"{session.name!r}; choose another name"
            )

    def _plausible(self, positions: m.Positions) -> m.Positions:
        """Positions that a client brings, without what cannot be.

        Nothing lies behind the head of a stream that is kept here. Of other streams the feed finds
        out. Streams that nobody knows may come back, but not very many.
        """
        heads = self._heads()
        found: m.Positions = {}
        unknown = 0
        for stream, position in positions.items():
            if stream not in heads and not self.directory.reaches(stream):
                unknown += 1
                if unknown > UNKNOWN_STREAMS:
                    continue
            found[stream] = max(0, min(position, heads.get(stream, MAX_OFFSET)))
        return found

    def _feed(
        self,
        id: str,
        filter: Filter,
        message: m.Subscribe,
        since: float | None,
        positions: m.Positions | None,
    ) -> Feed:
        return Feed(
            id,
            filter,
            since=since,
            positions=positions,
            limit=min(message.limit or self._queue, self._queue),
            overflow=message.overflow,
            probe=self._probes.number + 1,
            made=self._clock,
        )

    def _enter(self, subscription: Subscription) -> None:
        feed = subscription.feed
        self.subscriptions[feed.id] = subscription
        if subscription.durable is not None:
            self._attached.add(subscription.durable.name)
        if subscription.group is not None:
            self._groups_here.add(subscription.group)
        if subscription.lease is not None:
            subscription.ends = self._now + subscription.lease
            self._leases[feed.id] = None
        self._last_filter += 1
        self._route_filters(
            self.router.subscribe(FilterId(feed.id, self._last_filter), feed.filter)
        )
        if feed.catching:
            self._hungry[feed.id] = None

    def _take_over(self, id: str) -> None:
        """A durable subscription has one consumer; a new one takes the place of the old."""
        old = self.subscriptions.get(id)
        if old is None:
            return
        for consumer in list(old.consumers):
            session = self.sessions[consumer.session]
            text = "another client has taken over this durable subscription"
            self._to_client(session, m.Ended(consumer.number, NameTaken.code, text))
            self._route_filters(self.router.withdraw(self._detach(session, consumer.number), []))

    def _detach(self, session: Session, number: int) -> list[FilterId]:
        """A consumer leaves its subscription; the filters that go with it."""
        subscription, consumer = session.subscriptions.pop(number)
        subscription.remove(consumer)
        self._settling.pop(consumer, None)
        if subscription.consumers:
            self._ready[subscription.feed.id] = None
            return []
        id = subscription.feed.id
        del self.subscriptions[id]
        self.dropped += subscription.feed.dropped
        if subscription.durable is not None:
            self._attached.discard(subscription.durable.name)
        self._leases.pop(id, None)
        self._congested.pop(id, None)
        self._stuck.pop(id, None)
        self._probing.pop(id, None)
        self._hungry.pop(id, None)
        self._starved.pop(id, None)
        self._fetches.forget(id)
        self._fed()
        self._last_values.pop(id, None)
        if subscription.group is not None:
            self._groups_here.discard(subscription.group)
            self._groups_begun.discard(subscription.group)
            self._groups_ended = True
        return [
            f
            for f in self.router.plane.subscriptions.table.at(Local(id))
            if isinstance(f, FilterId)
        ]

    def _held(self, session: Session, number: int) -> tuple[Subscription, Consumer]:
        try:
            return session.subscriptions[number]
        except KeyError:
            raise LeaseExpired(
                f"there is no subscription {number}, or no longer; subscribe again"
            ) from None

    def stored(self, context: Any, error: StentorError | None) -> None:
        """The state of a durable subscription is on disk, or could not be stored."""
        if context is None:
            return
        session, answer = context
        if session.id in self.sessions:
            if error is not None:
                answer = m.Failure(error.code, str(error), answer.number)
            self._to_client(session, answer)

    def _expire(self, subscription: Subscription) -> None:
        text = f"the lease of {subscription.lease} seconds was not renewed; subscribe again"
        for consumer in list(subscription.consumers):
            session = self.sessions[consumer.session]
            self._to_client(session, m.Ended(consumer.number, LeaseExpired.code, text))
            gone = self._detach(session, consumer.number)
            self._route_filters(self.router.withdraw(gone, []))

    def _progress(self) -> None:
        """Tell subscribers how far streams have come in which there was nothing for them.

        That is no hurry, so a few at a time: nobody else shall wait while very many are told.
        """
        marks = {**self._marks, **self._heads()}
        for _ in range(min(PROGRESS_AT_ONCE, len(self._to_tell))):
            subscription = self.subscriptions.get(self._to_tell.popleft())
            if subscription is None:
                continue
            for stream, head in marks.items():
                subscription.feed.mark(stream, head)
            self._tell_progress(subscription)


def _of_a_group(durable: str) -> NameTaken:
    return NameTaken(
        f"the durable subscription {durable!r} belongs to a group; join the group, or choose "
        "another name"
    )
