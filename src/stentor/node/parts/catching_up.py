"""Catching up: reading journals for feeds, here and elsewhere in the overlay.

Own streams are read at once, those of others by requests that travel through the overlay towards
the broker that has them. `work` does one piece at a time, behind live traffic.

While links change, a request or its answer may get lost at a broker between that knows no way just
then. Who asked hears nothing of that if the ways to it stay as they are. So what is not answered
for a while is asked for again; an answer that comes after all belongs to nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

from stentor.errors import JournalDamaged, ProtocolError, StentorError
from stentor.model.codec import any_handled, decode_headers
from stentor.model.stamp import any_stamped
from stentor.node.agenda import Agenda
from stentor.node.border import Borders
from stentor.node.clock import Clock
from stentor.node.feed import Feed, Run
from stentor.node.hooks import Hooks
from stentor.node.journals import Journals
from stentor.node.parts.durables import Durables
from stentor.node.parts.last_values import LastValues
from stentor.node.parts.traffic import hooked
from stentor.node.reading import Fetches, Pending, last_values, parsed, stretch
from stentor.node.scopes import Scopes
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: Requests of others that may wait. Each broker has a few dozen on their way at most.
MAX_SERVING: Final = 100_000


class CatchingUp:
    """Reads journals for feeds of this broker and of others."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        journals: Journals,
        directory: Ways,
        durables: Durables,
        last_values: LastValues,
        fetches: Fetches,
        ready: Turns[str],
        hungry: Turns[str],
        borders: Borders,
        hooks: Hooks,
        clock: Clock,
        agenda: Agenda,
        scopes: Scopes,
    ) -> None:
        """`hungry` are feeds that may want to read journals."""
        self._scopes = scopes
        self._subscriptions = subscriptions
        self._journals = journals
        self._directory = directory
        self._durables = durables
        self._last_values = last_values
        self.fetches = fetches
        self._ready = ready
        self._hungry = hungry
        self._borders = borders
        self._hooks = hooks
        self._clock = clock
        self._agenda = agenda
        self.counters = {"served": 0, "kept_out": 0, "asked_again": 0}
        #: Feeds that have to wait until requests of others are answered.
        self._starved: Turns[str] = Turns()
        #: Streams whose brokers do not answer, and feeds that wait for these.
        self._spared: set[m.StreamId] = set()
        self._patient: Turns[str] = Turns()
        #: Requests of other brokers.
        self._serving: deque[m.Fetch] = deque()
        #: Those for last values that are being answered.
        self._retained: deque[tuple[m.StreamId, Iterator[m.Chunk | None]]] = deque()
        subscriptions.at_end(self._forget)

    def _forget(self, subscription: Subscription) -> None:
        id = subscription.feed.id
        self._hungry.discard(id)
        self._starved.discard(id)
        self._patient.discard(id)
        self.fetches.forget(id)
        self._fed()

    # -- one piece at a time

    @property
    def has_work(self) -> bool:
        return bool(self._serving or self._hungry or self._retained)

    def work(self) -> None:
        """A stretch for a broker and one for a feed."""
        if self._serving:
            self._answer(self._serving.popleft())
        if self._retained:
            self._answer_retained()
        if self._hungry:
            subscription = self._subscriptions.held.get(self._hungry.next())
            if subscription is not None:
                self._feed(subscription)

    def _feed(self, subscription: Subscription) -> None:
        feed, own = subscription.feed, self._journals.stream
        for wish in feed.wishes():
            asked = subscription.interest.sought
            fetch = m.Fetch(wish.stream, own, 0, asked, wish.first, wish.since)
            if wish.stream in self._journals:
                feed.fetches(wish.stream)
                self._stretched(subscription, wish.first, self._read(fetch))
                continue
            neighbor = self._directory.towards(wish.stream)
            if neighbor is None:
                continue  # when it can be reached again, the stream begins afresh
            if wish.stream in self._spared:
                self._patient.add(feed.id)
                continue
            if self.fetches.full:
                self._starved.add(feed.id)
                return
            feed.fetches(wish.stream)
            fetch.number = self.fetches.add(Pending(feed.id, wish.stream, wish.first, False))
            self._agenda.to_link(neighbor, fetch)

    def _stretched(self, subscription: Subscription, asked: int, chunk: m.Chunk) -> None:
        feed = subscription.feed
        if self._scopes.active or any_stamped(chunk.items):
            envelopes = decode_headers(chunk.items)
            seen = self._scopes.visible(subscription, envelopes, range(len(envelopes)))
            chunk.offsets = [chunk.offsets[i] for i in seen]
            chunk.items = [chunk.items[i] for i in seen]
        feed.perishable = feed.perishable or any_handled(chunk.items)
        feed.stretch(
            Run(chunk.stream, chunk.offsets, chunk.items),
            asked=asked,
            through=chunk.through,
            head=chunk.head,
            low=chunk.low,
            first=chunk.first,
        )
        self._durables.take_back(subscription)
        self._ready.add(feed.id)

    def _read(self, fetch: m.Fetch) -> m.Chunk:
        self.counters["served"] += 1
        head = self._journals.heads()[fetch.stream]
        try:
            return stretch(self._journals[fetch.stream], head, fetch)
        except JournalDamaged as error:
            # What is damaged is never served; for the reader it is gone, as by retention.
            last = getattr(error, "last", 0) or head
            place, low = (fetch.origin, fetch.number, fetch.stream), last + 1
            return m.Chunk(*place, [], [], last, head, low, first=low)

    # -- for other brokers

    def fetch_heard(self, neighbor: str, message: m.Fetch) -> None:
        """A request, for us or to be passed on."""
        try:
            parsed(message.filter)
        except StentorError as error:
            raise ProtocolError(f"a neighbor asks with an invalid filter: {error}") from error
        border = self._borders.with_(neighbor)
        if border is not None:
            message.filter = border.fetchable(message.filter)
        if message.stream in self._journals:
            if len(self._serving) >= MAX_SERVING:
                raise ProtocolError(f"{MAX_SERVING} requests wait to be answered")
            self._serving.append(message)
            return
        onwards = self._directory.towards(message.stream)
        if onwards is not None and onwards != neighbor:
            self._agenda.to_link(onwards, message)

    def _answer(self, fetch: m.Fetch) -> None:
        neighbor = self._directory.towards(fetch.origin)
        if neighbor is None:
            return
        if fetch.retained:
            chunks = last_values(self._journals[fetch.stream], fetch)
            self._retained.append((fetch.origin, chunks))
            return
        chunk = self._read(fetch)
        if self._hooks.watches("forward"):
            chunk.offsets, chunk.items = hooked(self._hooks, "forward", chunk.offsets, chunk.items)
        self._agenda.to_link(neighbor, chunk)

    def _answer_retained(self) -> None:
        origin, chunks = self._retained[0]
        neighbor = self._directory.towards(origin)
        for chunk in chunks if neighbor is not None else ():
            if chunk is not None and neighbor is not None:
                self._agenda.to_link(neighbor, chunk)
            return
        self._retained.popleft()

    def chunk_heard(self, neighbor: str, message: m.Chunk) -> None:
        """An answer, for us or to be passed on."""
        if message.offsets and len(message.offsets) != len(message.items):
            raise ProtocolError(f"{len(message.items)} items with {len(message.offsets)} offsets")
        if not len(message.keys) == len(message.times) in (0, len(message.items)):
            raise ProtocolError(f"{len(message.items)} last values with {len(message.keys)} keys")
        border = self._borders.with_(neighbor)
        if border is not None:
            envelopes = decode_headers(message.items)
            self.counters["kept_out"] += border.admit_chunk(message, envelopes)
        if message.origin != self._journals.stream:
            onwards = self._directory.towards(message.origin)
            if onwards is not None and onwards != neighbor:
                self._agenda.to_link(onwards, message)
            return
        more = bool(message.keys) and message.through < message.head
        pending = self.fetches.answered(message.number, more=more)
        self._fed()
        if pending is None or pending.stream != message.stream:
            return
        subscription = self._subscriptions.held.get(pending.feed)
        if subscription is None:
            return
        if pending.retained:
            self._last_values.came(pending.feed, message.stream, message)
        else:
            self._stretched(subscription, pending.first, message)

    # -- ways that are lost

    def interrupted(self, stream: m.StreamId) -> None:
        """Requests to this stream will not be answered."""
        self._give_up(self.fetches.cancel(stream))

    def tick(self) -> None:
        """Ask again for what was not answered."""
        self.fetches.now = self._clock.now
        lost = self.fetches.overdue()
        if lost:
            self.counters["asked_again"] += len(lost)
            self._give_up(lost)

    def _give_up(self, requests: list[Pending]) -> None:
        for pending in requests:
            subscription = self._subscriptions.held.get(pending.feed)
            if pending.retained:
                self._last_values.came(pending.feed, pending.stream, None)
            elif subscription is not None:
                subscription.feed.fetch_failed(pending.stream)
                self._hungry.add(pending.feed)
        self._fed()

    def spare(self, streams: Collection[m.StreamId]) -> None:
        """The brokers of these streams do not answer, so the room for requests is for others."""
        back = self._spared.difference(streams)
        self._spared = set(streams)
        if back:
            self._hungry.update(self._patient)
            self._patient.clear()

    def ask_again(self, feed: Feed, streams: Collection[m.StreamId], probe: int) -> None:
        """What the feed has asked these streams for before this probe does not count.

        It may be lost: who did not know the way then, to the stream or back, has not passed it on.
        What is sent behind a probe that has come back is not.
        """
        for pending in self.fetches.abandon(feed.id, streams, probe):
            feed.fetch_failed(pending.stream)
        self._fed()

    def gone(self, streams: Collection[m.StreamId]) -> None:
        """The brokers of these streams cannot be reached: neither ask them nor answer them."""
        for stream in streams:
            self.interrupted(stream)
        if self._serving and streams:
            gone = set(streams)
            self._serving = deque(f for f in self._serving if f.origin not in gone)

    def _fed(self) -> None:
        """Requests have ended: others may send theirs."""
        if self._starved and not self.fetches.full:
            self._hungry.update(self._starved)
            self._starved.clear()
