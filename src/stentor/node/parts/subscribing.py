"""Subscribing: what subscribers ask of the broker.

A subscription becomes a feed and a filter in the router's table, or several filters if it is an
inbox. A durable one is also stored; it has one consumer at a time, and outlives it. The members of
a group share one.

What an inbox asks for changes while it is served. New filters are asked for before old ones are
withdrawn, so that nothing wanted is unasked for in between. It belongs to whatever lasts longest:
a durable inbox comes back with the filters that it had, and the members of a group have the same
ones, whoever of them has changed them.

An inbox may have hundreds of filters, each of which is compared with those of everybody. So they
are asked for in steps, before anything else that the client says is heard; nobody is told that they
are in force before all are. Who joins a group meanwhile goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf, isfinite
from typing import Final

from msgspec.structs import replace

from stentor.errors import (
    InvalidConfiguration,
    LeaseExpired,
    NameTaken,
    NotPermitted,
    Overloaded,
    ProtocolError,
    StentorError,
)
from stentor.filters import Filter
from stentor.node.agenda import Agenda
from stentor.node.clock import Clock
from stentor.node.durable import Durable
from stentor.node.feed import Feed
from stentor.node.interest import Interest
from stentor.node.journals import Journals
from stentor.node.last_values import OF, label, owned
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.durables import Durables
from stentor.node.parts.groups import Groups, group_id
from stentor.node.parts.homes import Homes
from stentor.node.parts.leases import Leases
from stentor.node.parts.probing import Probing
from stentor.node.parts.routing import Routing
from stentor.node.parts.settlements import Settlements
from stentor.node.scopes import Scopes, check_names
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.settling import Settling
from stentor.node.subscription import Consumer, Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: The longest name of a durable subscription or group.
MAX_NAME: Final = 255
#: Streams that nobody knows of which a client may bring a position.
UNKNOWN_STREAMS: Final = 1_000
#: No stream comes so far; a journal can still count it.
MAX_OFFSET: Final = 1 << 62

_DONE: Final = object()


class Subscribing:
    """Does what subscribers ask."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        sessions: Sessions,
        durables: Durables,
        homes: Homes,
        groups: Groups,
        leases: Leases,
        settlements: Settlements,
        probing: Probing,
        routing: Routing | Carriage,
        journals: Journals,
        directory: Ways,
        ready: Turns[str],
        hungry: Turns[str],
        clock: Clock,
        agenda: Agenda,
        scopes: Scopes,
        read: Callable[[str], Filter],
        most: int,
        queue: int,
    ) -> None:
        """`read` is how the words of clients are read.

        `most` subscriptions are allowed to one client, and `queue` notifications to wait.
        """
        self._read = read
        self._scopes = scopes
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._durables = durables
        self._homes = homes
        self._groups = groups
        self._leases = leases
        self._settlements = settlements
        self._probing = probing
        self._routing = routing
        self._journals = journals
        self._directory = directory
        self._ready = ready
        self._hungry = hungry
        self._clock = clock
        self._agenda = agenda
        self._most = most
        self._queue = queue
        sessions.taken_down_by(subscriptions.take_down)

    def rebound(self, most: int, queue: int) -> None:
        """From now on so many are allowed, and so many notifications to wait for each new one."""
        self._most, self._queue = most, queue

    def regrant(self, session: Session) -> None:
        """The grant of a client has changed; raise if it does not allow what the client has."""
        allowance = session.allowance
        for subscription, _ in session.subscriptions.values():
            check_permitted(session, subscription.interest)
            allowance.check_overflow(session.name, subscription.feed.overflow)
            subscription.feed.patience = allowance.block

    # -- to subscribe

    def subscribe(self, session: Session, message: m.Subscribe) -> Iterator[None] | None:
        """Begin or join a subscription; in steps, of which all but the first are returned."""
        self._check(session, message)
        interest = self._interest(message.filter)
        check_permitted(session, interest)
        session.allowance.check_weight(session.name, interest.weight)
        if message.durable is not None:
            message = replace(message, durable=self._homes.name(session, message.durable))
        if message.group is not None:  # names belong to grants
            name = self._scopes.group(session, message.group)
            message = replace(message, group=owned(session.owner, name))
        if not self._homes.admits(session, message):
            return None
        consumer = Consumer(session.id, message.number, max(0, message.credit))
        resumed = False
        if message.group is None:
            subscription, resumed = self._new(session, message, interest)
        else:
            group = self._group(session, message, message.group, interest)
            if group is None:
                return None
            subscription = group
        if not interest.fixed:
            self._tell(consumer, *interest.changes(subscription.interest))
        self._subscriptions.join(subscription, session, consumer)
        steps = self._subscribed(session, message, subscription, consumer, resumed)
        return None if next(steps, _DONE) is _DONE else steps

    def _subscribed(
        self,
        session: Session,
        message: m.Subscribe,
        subscription: Subscription,
        consumer: Consumer,
        resumed: bool,
    ) -> Iterator[None]:
        """Ask for all of it; then the client is told when it is in force."""
        yield from self._routing.asked(subscription.feed.id)
        if session.subscriptions.get(message.number, _DONE) != (subscription, consumer):
            return  # somebody has taken it over, or the client has left
        if message.volatile:
            answer = m.Subscribed(message.number, subscription.lease, time=self._clock.time)
            self._agenda.to_client(session.id, answer)
        else:
            self._probing.settle(consumer, session, resumed=resumed)

    def _interest(self, asked: str | list[str]) -> Interest:
        """What a client asks for."""
        fixed = isinstance(asked, str)
        texts = [asked] if isinstance(asked, str) else asked
        return Interest((check_names(self._read(text)) for text in texts), fixed=fixed)

    def _check(self, session: Session, message: m.Subscribe) -> None:
        if message.number in session.subscriptions:
            raise ProtocolError(f"the number {message.number} is in use by another subscription")
        if len(session.subscriptions) >= self._most:
            raise Overloaded(
                f"{session.name!r} has {self._most} subscriptions, the most that this broker "
                "allows to one client"
            )
        session.allowance.check("subscriptions", self._subscriptions.by_owner[session.owner])
        for name in (message.durable, message.group):
            if name is not None and (not 0 < len(name) <= MAX_NAME or OF in name):
                raise InvalidConfiguration(
                    f"the name of a durable subscription or group has 1 to {MAX_NAME} characters, "
                    f"and none of them is {OF!r}"
                )
            if name is not None and name.startswith("\x00"):
                raise InvalidConfiguration(
                    "the name of a durable subscription or group begins with a character that "
                    "can be read"
                )
        session.allowance.check_overflow(session.name, message.overflow)
        if message.lease is not None and not message.lease > 0:
            raise InvalidConfiguration(f"a lease of {message.lease} seconds ends before it begins")
        if message.expires is not None and not message.expires > 0:
            raise InvalidConfiguration(
                f"expires={message.expires} leaves out every event; give a longer time"
            )
        if message.since is not None and not isfinite(message.since):
            raise InvalidConfiguration(f"since={message.since} is not a time")
        _check_settlement(message)
        past = message.durable, message.since, message.positions, message.group
        if message.volatile and (message.retained or any(each is not None for each in past)):
            raise InvalidConfiguration(
                "a volatile subscription has no past and shares with nobody; leave out durable, "
                "since, positions, retained and group, or volatile"
            )

    def _new(
        self, session: Session, message: m.Subscribe, interest: Interest
    ) -> tuple[Subscription, bool]:
        """A subscription of one client; and whether it goes on with a durable one."""
        durable = None
        begun = resumed = False
        since = message.since
        positions = self._plausible(message.positions)
        id = f"{session.name}@{session.id}/{message.number}"
        if message.durable is not None:
            id = f"durable {message.durable}"
            durable = self._durables.held.get(message.durable)
            begun = resumed = durable is not None
            if durable is None:
                before = self._homes.since(message.durable)
                since, begun = (since, False) if before is None else (before, True)
                begin = self._clock.time if since is None else since
                durable = self._durables.new(session, message.durable, interest, begin)
            else:
                interest = _kept(session, durable, interest)
                if durable.group:
                    raise NameTaken(
                        f"the durable subscription {durable.label!r} belongs to a group; join the "
                        "group, or choose another name"
                    )
                since = durable.since
            merged = durable.positions
            if message.settlement is None:  # else only what was settled is done
                for stream, position in (positions or {}).items():
                    merged[stream] = max(position, merged.get(stream, 0))
            positions = merged
        begun |= message.positions is not None
        feed = self._feed(session, id, message, since, positions, resumed=begun)
        interest.within = self._within(session)
        subscription = Subscription(
            feed,
            interest,
            durable=durable,
            lease=message.lease,
            settling=self._settling(session, message, durable),
            rests_until=0.0 if durable is None else self._rests_until(durable),
        )
        if durable is not None:  # nothing can go wrong any more
            self._take_over(id)
            self._durables.attach(session, durable, interest)
            self._homes.begins(durable)
        self._begin(subscription)
        feed.held = message.retained
        return subscription, resumed

    def _rests_until(self, durable: Durable) -> float:
        """When what it has refused may come again, on the clock that only goes forward."""
        return self._clock.now + durable.rests_for(self._clock.time)

    def _within(self, session: Session) -> Filter | None:
        """What the client may see, as a filter; None for everything."""
        view = self._scopes.view(session.id)
        return None if view is None else view.constraint

    def _group(
        self, session: Session, message: m.Subscribe, name: str, interest: Interest
    ) -> Subscription | None:
        """The group's subscription, made if need be; None if the group lives elsewhere."""
        subscription = self._subscriptions.held.get(group_id(name))
        if subscription is None:
            home = self._groups.home(name) if message.durable is None else None
            if home is not None:
                self._groups.send_home(session, message.number, name, home)
                return None
            self._groups.check_room(session)
            return self._new_group(session, message, name, interest)
        theirs, called = subscription.interest, label(name)
        if theirs.fixed != interest.fixed or (interest.fixed and theirs != interest):
            same = "the same filter" if theirs.fixed else "an inbox, and share its filters"
            raise InvalidConfiguration(
                f"the group {called!r} subscribes to {str(theirs)!r}; its members must all use "
                f"{same}"
            )
        durable = subscription.durable
        if (None if durable is None else durable.name) != message.durable:
            kept = "is not durable" if durable is None else f"is kept as durable={durable.label!r}"
            raise InvalidConfiguration(f"the group {called!r} {kept}; its members must all say so")
        if subscription.settling is not None and message.settlement is not None:
            subscription.settling.agree(message.settlement)  # the newest is as good as any
        return subscription

    def _settling(
        self, session: Session, message: m.Subscribe, durable: Durable | None
    ) -> Settling | None:
        if message.settlement is None and message.group is None:
            return None
        terms = message.settlement or m.Settlement()
        group = label(message.group or "")
        lasts = inf if message.expires is None else message.expires
        return Settling(terms, durable, self._clock, group=group, owner=session.owner, lasts=lasts)

    def _new_group(
        self, session: Session, message: m.Subscribe, name: str, interest: Interest
    ) -> Subscription:
        durable = None
        since = message.since
        # A member that has lost the group may know where to begin it again; not so one that is
        # durable, for which members who are gone have dealt with something else.
        positions = None if message.durable is not None else self._plausible(message.positions)
        resumed = positions is not None
        if message.durable is not None:
            durable = self._durables.held.get(message.durable)
            if durable is None:
                before = self._homes.since(message.durable)
                since, resumed = (since, False) if before is None else (before, True)
                begin = self._clock.time if since is None else since
                durable = self._durables.new(session, message.durable, interest, begin, group=True)
            elif not durable.group or self._durables.is_attached(durable):
                raise NameTaken(
                    f"the durable subscription {durable.label!r} belongs to another group or to a "
                    "single client; choose another name"
                )
            else:
                interest = _kept(session, durable, interest)
                since, positions, resumed = durable.since, durable.positions, True
        interest.within = self._within(session)
        subscription = Subscription(
            self._feed(session, group_id(name), message, since, positions, resumed=resumed),
            interest,
            durable=durable,
            group=name,
            choice=message.choice,
            owner=session.owner,
            settling=self._settling(session, message, durable),
        )
        self._begin(subscription)
        if durable is None:
            self._groups.begin(name)
        else:  # found as such, wherever it lives
            self._durables.attach(session, durable, interest)
            self._homes.begins(durable)
        return subscription

    def _plausible(self, positions: m.Positions | None) -> m.Positions | None:
        """Positions that a client brings, without what cannot be.

        Nothing lies behind the head of a stream that is kept here; who says so has read what an
        older copy of it does not have, or says no truth. Of other streams the feed finds out.
        Streams that nobody knows may come back, but not very many.
        """
        if positions is None:
            return None
        heads = self._journals.heads()
        own = self._journals.stream
        if MAX_OFFSET > positions.get(own, 0) > self._journals.own.head:
            self._journals.claimed = max(self._journals.claimed, positions[own])
        found: m.Positions = {}
        unknown = 0
        for stream, position in positions.items():
            if stream not in heads and not self._directory.reaches(stream):
                unknown += 1
                if unknown > UNKNOWN_STREAMS:
                    continue
            found[stream] = max(0, min(position, heads.get(stream, MAX_OFFSET)))
        return found

    def _feed(
        self,
        session: Session,
        id: str,
        message: m.Subscribe,
        since: float | None,
        positions: m.Positions | None,
        *,
        resumed: bool,
    ) -> Feed:
        return Feed(
            id,
            since=since,
            positions=positions,
            limit=min(message.limit or self._queue, self._queue),
            overflow=message.overflow,
            probe=self._probing.next,
            made=self._clock.time,
            volatile=message.volatile,
            patience=session.allowance.block,
            lasts=inf if message.expires is None else message.expires,
            resumed=resumed,
        )

    def _begin(self, subscription: Subscription) -> None:
        feed = subscription.feed
        self._subscriptions.begin(subscription)
        self._leases.renew(subscription)
        self._settlements.begin(subscription)
        interest = subscription.interest
        self._routing.subscribe(feed.id, interest.narrowed(interest))
        if feed.is_catching:
            self._hungry.add(feed.id)

    def _take_over(self, id: str) -> None:
        """A durable subscription has one consumer; a new one takes the place of the old."""
        old = self._subscriptions.held.get(id)
        for consumer in [] if old is None else list(old.consumers):
            session = self._sessions.held[consumer.session]
            text = "another client has taken over this durable subscription"
            self._agenda.to_client(session.id, m.Ended(consumer.number, NameTaken.code, text))
            self._subscriptions.leave(session, consumer.number)

    # -- afterwards

    def amend(self, session: Session, message: m.Amend) -> Iterator[None] | None:
        """Change what an inbox asks for; in steps, of which all but the first are returned."""
        if message.subscription not in session.subscriptions:
            raise LeaseExpired(_no_subscription(message.subscription))
        subscription, _ = session.subscriptions[message.subscription]
        feed, interest = subscription.feed, subscription.interest
        if interest.fixed:
            raise InvalidConfiguration(
                f"subscription {message.subscription} is not an inbox, so its filter stays; "
                "subscribe with a list of filters"
            )
        added = [check_names(self._read(text)) for text in message.added]
        check_permitted(session, added)
        if session.allowance.weight is not None:
            more = sum(filter.weight for filter in added if filter not in interest)
            session.allowance.check_weight(session.name, interest.weight + more)
        removed = [self._read(text) for text in message.removed]
        new, gone = interest.amend(added, removed)
        asked, unasked = interest.narrowed_changes(new, gone)
        try:
            self._routing.subscribe(feed.id, asked)
        except StentorError:  # some routers cannot carry every filter
            interest.amend(gone, new)
            raise
        if new or gone:  # in the words that were used, as printing many would take long
            added_texts = dict(zip(added, message.added, strict=True))
            removed_texts = dict(zip(removed, message.removed, strict=True))
            texts = [added_texts[f] for f in new], [removed_texts[f] for f in gone]
            for consumer in subscription.consumers:
                self._agenda.to_client(consumer.session, m.Amended(consumer.number, *texts))
        steps = self._amended(session, message, subscription, new, unasked)
        return None if next(steps, _DONE) is _DONE else steps

    def _amended(
        self,
        session: Session,
        message: m.Amend,
        subscription: Subscription,
        new: list[Filter],
        gone: list[Filter],
    ) -> Iterator[None]:
        """Ask for what is new, then no longer for what is gone, and answer."""
        feed, durable = subscription.feed, subscription.durable
        ending = self._routing.unsubscribe(feed.id, gone)
        yield from self._routing.asked(feed.id)
        yield from ending
        if new:
            feed.asks_more()
            subscription.interest.recent |= dict.fromkeys(new, self._probing.next)

        def answer() -> None:
            if self._subscriptions.held.get(feed.id) is not subscription:
                text = _no_subscription(message.subscription)
                self._agenda.to_client(session.id, m.Failure(LeaseExpired.code, text, number))
            elif durable is not None:
                self._durables.store(durable, self._durables.answer(session, m.Done(number)))
            else:
                self._agenda.to_client(session.id, m.Done(number))

        number = message.number
        if message.added and not feed.volatile:
            self._probing.want(feed)
            self._probing.then(session.id, answer)
        else:
            answer()

    def _tell(self, consumer: Consumer, new: list[Filter], gone: list[Filter]) -> None:
        """Tell a client how its inbox has changed, before anything comes of it."""
        if new or gone:
            told = m.Amended(consumer.number, [str(f) for f in new], [str(f) for f in gone])
            self._agenda.to_client(consumer.session, told)

    def unsubscribe(self, session: Session, message: m.Unsubscribe) -> None:
        if message.number in session.subscriptions:
            subscription, _ = session.subscriptions[message.number]
            self._subscriptions.leave(session, message.number)
            durable = subscription.durable
            if message.forget and durable is not None and not subscription.consumers:
                ended = self._durables.answer(session, m.Ended(message.number))
                self._homes.delete(durable, ended)
                return
        self._agenda.to_client(session.id, m.Ended(message.number))

    def renew(self, session: Session, message: m.Renew) -> None:
        if message.number not in session.subscriptions:
            raise LeaseExpired(_no_subscription(message.number))
        subscription, _ = session.subscriptions[message.number]
        self._leases.renew(subscription)
        answer = m.Subscribed(message.number, subscription.lease, time=self._clock.time)
        self._agenda.to_client(session.id, answer)

    def credit(self, session: Session, message: m.Credit) -> None:
        held = session.subscriptions.get(message.number)
        if held is not None:
            subscription, consumer = held
            consumer.credit = min(consumer.credit + max(0, message.more), 1 << 40)
            self._ready.add(subscription.feed.id)

    def confirm(self, session: Session, message: m.Confirm) -> None:
        held = session.subscriptions.get(message.number)
        if held is not None:
            subscription, consumer = held
            durable = subscription.durable
            news = subscription.confirm(consumer, message.positions)
            self._settlements.look(subscription)
            if durable is not None:
                if message.request is not None:
                    done = self._durables.answer(session, m.Done(message.request))
                    self._durables.store(durable, done)
                    return
                if news:
                    self._durables.changed(durable)
        if message.request is not None:
            answer: m.Done | m.Failure = m.Done(message.request)
            if held is None:
                text = _no_subscription(message.number)
                answer = m.Failure(LeaseExpired.code, text, message.request)
            self._agenda.to_client(session.id, answer)


def _check_settlement(message: m.Subscribe) -> None:
    terms = message.settlement
    if terms is None:
        return
    if message.durable is None and message.group is None:
        raise InvalidConfiguration(
            "only a durable subscription or a group settles notifications one by one; subscribe "
            "with durable or group"
        )
    times = terms.least, terms.most, terms.deadline
    if terms.attempts < 0 or not all(0 <= seconds < inf for seconds in times):
        raise InvalidConfiguration(
            f"{terms.attempts} attempts, {terms.least} to {terms.most} seconds apart, with a "
            f"deadline of {terms.deadline} seconds, is no way to settle"
        )


def _kept(session: Session, durable: Durable, interest: Interest) -> Interest:
    """What a durable subscription goes on with: an inbox with the filters that it had."""
    if interest.fixed:
        return interest
    check_permitted(session, durable.interest)
    return Interest(durable.interest)


def check_permitted(session: Session, filters: Iterable[Filter]) -> None:
    """Raise if the grant of a client does not allow it to ask for one of these."""
    for filter in filters:
        if session.may_subscribe is not None and not session.may_subscribe(filter):
            raise NotPermitted(
                f"{session.name!r} may not subscribe to {str(filter) or 'everything'!r}; ask for "
                "less, or have the grant widened"
            )


def _no_subscription(number: int) -> str:
    return f"there is no subscription {number}, or no longer; subscribe again"
