"""The place in the overlay: links, which brokers there are, probes and marks.

Whenever a stream begins afresh (see `stentor.node.streams`), all feeds catch up on it. Clients hear
`Subscribed` when a probe sent after their subscription has been echoed by all brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, product
from typing import Final
from zlib import crc32

from stentor.errors import (
    LinkRefused,
    ProtocolError,
    StentorError,
)
from stentor.filters import Filter
from stentor.node.actions import (
    CloseLink,
    Persist,
    ToLink,
)
from stentor.node.border import Border, Rights
from stentor.node.feed import Feed
from stentor.node.hooks import VETO
from stentor.node.log import Log
from stentor.node.reading import parsed
from stentor.node.service.base import groups_at
from stentor.node.service.journals import Journals
from stentor.node.session import Session
from stentor.node.subscription import Consumer, Subscription
from stentor.protocol import messages as m
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import FilterId

#: Seconds, once to twice, for which a link may be in reserve before it counts as closing a cycle.
RESERVE_PATIENCE: Final = 5.0
#: Filters of a neighbor that is gone which are taken down in one step.
UNLINKED_AT_ONCE: Final = 100
#: Feeds that hear in one step of what concerns all of them; and how far streams came that are gone.
FEEDS_AT_ONCE: Final = 500
MARKS_AT_ONCE: Final = 10_000


class Overlay(Journals):
    """Links, streams, probes."""

    def announce_as(self, addresses: Iterable[str]) -> None:
        """Where others can connect; to be said before the first link is made."""
        self.directory.own = m.Origin(self.stream, self.name, tuple(addresses))

    def adopt(self, log: Log) -> None:
        """Answer for the journal of a broker that was removed."""
        self._logs[log.stream] = log
        origin, sends = self.directory.adopt(log.stream)
        self._send(sends)
        self._fresh([origin])

    def link_up(self, neighbor: str, rights: Rights | None = None) -> None:
        """A new link, over which nothing has been said yet; `rights` if not all is allowed."""
        while neighbor in self._unlinking:
            self._unlink(neighbor)
        self._borders.pop(neighbor, None)
        if rights is not None:
            self._borders[neighbor] = Border(neighbor, rights)
        self._route_filters(self.router.link_up(neighbor))
        self._send_offers(self._offers.link_up(neighbor))
        self._out.append(ToLink(neighbor, self.directory.link_up(neighbor)))
        for stream, names in [(self.stream, self._groups_here), *self._groups.items()]:
            if (
                names
                and not self._keeps_groups(neighbor)
                and self.directory.towards(stream) != neighbor
            ):
                self._out += [ToLink(neighbor, piece) for piece in groups_at(stream, names)]

    def link_down(self, neighbor: str) -> None:
        """The link is gone, with everything that was on its way.

        What the neighbor asked for and offered is taken down in several steps, if it was much.
        """
        self._unlinking[neighbor] = None
        self._unlink(neighbor)
        renewed, gone, sends = self.directory.link_down(neighbor)
        self._send(sends)
        self._gone(gone)
        self._fresh(renewed)
        sends, complete = self._probes.link_down(neighbor, self._heads())
        self._send(sends)
        self._probed(complete)

    def is_unlinking(self, neighbor: str) -> bool:
        """Whether it is still being forgotten what a neighbor asked for that is gone."""
        return neighbor in self._unlinking

    def _unlink(self, neighbor: str) -> None:
        """Take down some of what a neighbor asked for and offered whose link is gone."""
        routers = (self.router, self._route_filters), (self._offers, self._send_offers)
        for router, tell in routers:
            tell(router.forget_some(neighbor, UNLINKED_AT_ONCE))
        if not any(router.asks(neighbor) for router, _ in routers):
            for router, tell in routers:
                tell(router.link_down(neighbor))
            del self._unlinking[neighbor]
            self._borders.pop(neighbor, None)

    def work(self) -> None:
        """Go on with what links and streams that came or went have begun; then what can wait."""
        if self._unlinking:
            self._unlink(next(iter(self._unlinking)))
        if self._answered:
            self._settle_some()
        if self._last_marks:
            self._mark_some()
        super().work()

    def _keeps_groups(self, neighbor: str) -> bool:
        """Whether groups do not cross the link with this neighbor."""
        return neighbor in self._borders and self._borders[neighbor].keeps_groups

    def broken(self, stream: m.StreamId, neighbor: str | None = None) -> m.Streams | None:
        """What to say to a neighbor in place of notifications that were dropped on the way.

        Nothing if the stream is gone, or now comes through that neighbor: it has been told so.
        """
        origin = self.directory.origin(stream)
        if origin is None or (neighbor is not None and self.directory.towards(stream) == neighbor):
            return None
        return m.Streams([origin], [])

    def _subscriptions_heard(self, neighbor: str, message: m.Subscriptions) -> None:
        if self.hooks.watches("admin_in"):
            answer = self.hooks.run("admin_in", message)
            if answer is VETO:
                return
            message = answer
        update = read_filters(message)
        if neighbor in self._borders:
            update = self._borders[neighbor].asked.update(update)
        self._route_filters(self.router.receive(neighbor, update))

    def _streams_heard(self, neighbor: str, message: m.Streams) -> Iterator[None]:
        if len(self.directory.others) + len(message.up) > m.MAX_STREAMS:
            raise ProtocolError(
                f"{neighbor!r} knows too many brokers; at most {m.MAX_STREAMS} form an overlay"
            )
        fresh, sends, cycle = self.directory.heard(neighbor, message)
        self._send(sends)
        if cycle:
            self._refuse(neighbor)
        self._gone([s for s in message.down if not self.directory.reaches(s)])
        for origin in fresh:
            yield from self._freshly(origin)
            yield

    def _refuse(self, neighbor: str) -> None:
        text = f"the link to {neighbor!r} closes a cycle; links must form a tree"
        self._out.append(CloseLink(neighbor, LinkRefused.code, text))

    def _look_for_cycles(self) -> None:
        """Close links that have been in reserve for too long."""
        now = self._now
        self._reserve = {n: self._reserve.get(n, now) for n in sorted(self.directory.reserve)}
        # Usually one broker acts before the others, and then they need not.
        patience = RESERVE_PATIENCE * (1 + crc32(self.stream.encode()) % 100 / 100)
        for neighbor, since in self._reserve.items():
            if now - since >= patience:
                self._refuse(neighbor)

    def _fresh(self, origins: Iterable[m.Origin]) -> None:
        """These streams begin afresh: all feeds may have missed something of them."""
        for origin in origins:
            for _ in self._freshly(origin):
                pass

    def _freshly(self, origin: m.Origin) -> Iterator[None]:
        """The same in steps, between which nothing of the stream may come."""
        stream = origin.stream
        self.counters["interruptions"] += 1
        self._cancel(stream)
        head = self._marks.pop(stream, 0)
        for i, (id, subscription) in enumerate(list(self.subscriptions.items()), 1):
            feed = subscription.feed
            if self.subscriptions.get(id) is subscription:
                feed.mark(stream, head)
                feed.interrupted(stream, self._probes.number + 1)
                self._want_probe(feed)
                self._hungry[id] = None
            if not i % FEEDS_AT_ONCE:
                yield

    def _gone(self, streams: Collection[m.StreamId]) -> None:
        heads: m.Positions = {}
        for stream in streams:
            self._cancel(stream)
            self._groups.pop(stream, None)
            if stream in self._marks:
                heads[stream] = self._marks.pop(stream)
        if self._serving and streams:
            gone = set(streams)
            self._serving = deque(f for f in self._serving if f.origin not in gone)
        if heads:
            marks = product(list(self.subscriptions.values()), heads.items())
            self._last_marks.append(((s.feed, *mark) for s, mark in marks))
            self._mark_some()

    def _mark_some(self) -> None:
        """Tell some feeds how far streams have come that are gone."""
        marks = self._last_marks[0]
        looked = 0
        for feed, stream, head in islice(marks, MARKS_AT_ONCE):
            looked += 1
            feed.mark(stream, head)
        if looked < MARKS_AT_ONCE:
            self._last_marks.popleft()

    def _want_probe(self, feed: Feed) -> None:
        self._probing[feed.id] = None
        self._probe_wanted = True

    def _begin_probe(self) -> None:
        while self._probe_wanted and not self._probes.waiting and not self._answered:
            self._probe_wanted = False
            self.counters["probes"] += 1
            self._send(self._probes.begin(self.neighbors))
            self._probed(self._probes.finish_own(self._heads()))

    def _probe_heard(self, neighbor: str, message: m.Probe) -> None:
        if self.directory.towards(message.origin) != neighbor:
            # Nobody there waits for it whom we know. For whom we do not know, we are left out.
            self._send([(neighbor, m.Echo(message.origin, message.number, {}))])
            return
        self._send(self._probes.passed(neighbor, message, self.neighbors, self._heads()))

    def _echo_heard(self, neighbor: str, message: m.Echo) -> None:
        # Of a stream that comes another way, nobody there can know how far it is.
        message.heads = {
            s: head for s, head in message.heads.items() if self.directory.towards(s) == neighbor
        }
        sends, complete = self._probes.echoed(neighbor, message, self._heads())
        self._send(sends)
        self._probed(complete)

    def _probed(self, complete: tuple[int, m.Positions] | None) -> None:
        """All brokers have answered: subscriptions from before are in force."""
        if complete is None:
            return
        number, heads = complete
        # In a tree a broker is left out only if its link has failed. In a cycle its answer may come
        # another way than its stream, and proves nothing: it has to be asked again, in a while.
        left_out = [o.stream for o in self.directory.others if o.stream not in heads]
        waiting, self._probing = self._probing, {}
        settled = [c for c, (probe, *_) in self._settling.items() if probe <= number]
        self._answered.append(self._settle(number, heads, left_out, waiting, settled))
        self._settle_some()

    def _settle_some(self) -> None:
        """Tell some subscriptions that a probe was answered."""
        if next(self._answered[0], self) is self:
            self._answered.popleft()

    def _settle(
        self,
        number: int,
        heads: m.Positions,
        left_out: list[m.StreamId],
        waiting: Iterable[str],
        settled: list[Consumer],
    ) -> Iterator[None]:
        for i, id in enumerate(waiting, 1):
            if not i % FEEDS_AT_ONCE:
                yield
            subscription = self.subscriptions.get(id)
            if subscription is None:
                continue
            feed = subscription.feed
            for stream in left_out:
                feed.interrupted(stream, number + 1)
            begins = feed.heads(number, heads)
            self._take_back(feed)
            if begins and subscription.durable is not None:
                # It begins here. Brokers that could not be asked are read from the time of its
                # making on, when they are there.
                subscription.durable.confirm(feed.positions)
            if feed.waits_for(number):
                self._probing[id] = None
                self._probe_later |= bool(left_out)
                self._probe_wanted |= not left_out
            if feed.held and id not in self._last_values:
                self._ask_last_values(feed, heads)
            self._hungry[id] = None
            self._ready[id] = None
        for i, consumer in enumerate(settled, 1):
            if not i % FEEDS_AT_ONCE:
                yield
            if consumer in self._settling:
                _, session, resumed = self._settling.pop(consumer)
                subscription, _ = session.subscriptions[consumer.number]
                self._settled(session, subscription, consumer, resumed)

    def _settled(
        self, session: Session, subscription: Subscription, consumer: Consumer, resumed: bool
    ) -> None:
        """A subscription is in force; one that is durable, when that is on disk."""
        # Where it begins comes first: who knows that it is in force must know from where on.
        self._tell_progress(subscription)
        answer = m.Subscribed(consumer.number, subscription.lease, resumed, self._clock)
        durable = subscription.durable
        if durable is None:
            self._to_client(session, answer)
            return
        self._dirty.pop(durable.name, None)
        self._out.append(Persist(durable.name, durable.to_data(), (session, answer)))

    def _mark_heard(self, neighbor: str, message: m.Mark) -> None:
        if self.directory.towards(message.stream) == neighbor:
            self._marks[message.stream] = message.head
            self._flood(message, but=neighbor)


def read_filters(message: m.Subscriptions | m.Advertisements) -> SubscriptionUpdate:
    try:
        added = tuple((_unwritten(key), parsed(text)) for key, text in message.added)
        return SubscriptionUpdate(added, tuple(_unwritten(key) for key in message.removed))
    except StentorError as error:
        raise ProtocolError(f"a neighbor sent a filter that is none: {error}") from error


def _unwritten(key: m.Key) -> FilterId | Filter:
    return parsed(key) if isinstance(key, str) else FilterId(*key)
