"""Reading journals: for feeds that catch up, for new subscribers the last values, for clients all.

Own streams are read at once, those of others by requests that travel through the overlay. `work`
does one piece at a time, behind live traffic; clients that read in bulk take turns, and one that
does not take what it is sent loses its turn until it does.
"""

from __future__ import annotations

from typing import Final

from stentor.errors import (
    HistoryGone,
    JournalDamaged,
    NotPermitted,
    Overloaded,
    ProtocolError,
    StentorError,
)
from stentor.model.codec import decode_headers
from stentor.node.actions import (
    ToClient,
    ToLink,
)
from stentor.node.feed import Feed, Run
from stentor.node.last_values import LastValues
from stentor.node.reading import READS, Pending, bulk, last_values, parsed, received, stretch
from stentor.node.service.notifications import Notifications
from stentor.node.session import Session
from stentor.protocol import messages as m

#: Seconds that a subscriber waits for last values from brokers that do not answer.
LAST_VALUES_PATIENCE: Final = 5.0
#: Requests of others that may wait. Each broker has a few dozen on their way at most.
MAX_SERVING: Final = 100_000


class Journals(Notifications):
    """Reads journals, here and elsewhere."""

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do at once."""
        return bool(
            self._landed
            or self._volatile[0]
            or self._leaving
            or self._unlinking
            or self._answered
            or self._last_marks
            or self._serving
            or self._hungry
            or self._turns
            or self.router.has_work
            or self._offers.has_work
            or self._demands.has_work
        )

    @property
    def wants_turn(self) -> bool:
        """Whether the host should come back at once, to `work` or to `take`."""
        return self.has_work or bool(self._ready)

    def work(self) -> None:
        """Do one piece of what can wait, a stretch each for a broker, a client and a feed."""
        if self.router.has_work:
            self._route_filters(self.router.work())
        if self._offers.has_work:
            self._send_offers(self._offers.work())
        self._demands.work()
        if self._serving:
            self._answer_fetch(self._serving.popleft())
        if self._hungry:
            id = next(iter(self._hungry))
            del self._hungry[id]
            subscription = self.subscriptions.get(id)
            if subscription is not None:
                self._feed_hungry(subscription.feed)
        if self._turns:
            self._read_on(next(iter(self._turns)))

    def _feed_hungry(self, feed: Feed) -> None:
        for wish in feed.wishes():
            fetch = m.Fetch(wish.stream, self.stream, 0, str(feed.filter), wish.first, wish.since)
            if wish.stream in self._logs:
                feed.fetches(wish.stream)
                self._stretched(feed, wish.first, self._read(fetch))
                continue
            neighbor = self.directory.towards(wish.stream)
            if neighbor is None:
                continue  # when it can be reached again, the stream begins afresh
            if self._fetches.full:
                self._starved[feed.id] = None
                return
            feed.fetches(wish.stream)
            fetch.number = self._fetches.add(Pending(feed.id, wish.stream, wish.first, False))
            self._out.append(ToLink(neighbor, fetch))

    def _stretched(self, feed: Feed, asked: int, chunk: m.Chunk) -> None:
        feed.stretch(
            Run(chunk.stream, chunk.offsets, chunk.items),
            asked=asked,
            through=chunk.through,
            head=chunk.head,
            low=chunk.low,
        )
        self._take_back(feed)
        self._ready[feed.id] = None

    def _take_back(self, feed: Feed) -> None:
        """A durable subscription keeps no position that its stream never had."""
        if feed.taken_back:
            durable = self.subscriptions[feed.id].durable
            if durable is not None:
                durable.positions |= feed.taken_back
                self._dirty[durable.name] = None
            feed.taken_back = {}

    def _read(self, fetch: m.Fetch) -> m.Chunk:
        self.counters["served"] += 1
        head = self._heads()[fetch.stream]
        try:
            return stretch(self._logs[fetch.stream], head, fetch)
        except JournalDamaged as error:
            # What is damaged is never served; for the reader it is gone, as by retention.
            last = getattr(error, "last", 0) or head
            return m.Chunk(fetch.origin, fetch.number, fetch.stream, [], [], last, head, last + 1)

    # -- for clients

    def streams(self, since: float | None = None) -> list[dict[str, object]]:
        """The journals that this broker has; with a time, also where each was at that time."""
        found = []
        for stream, head in self._heads().items():
            log = self._logs[stream]
            entry: dict[str, object] = {
                "stream": stream,
                "broker": stream.rpartition("#")[0] or stream,
                "low": log.low,
                "head": head,
            }
            if since is not None:
                entry["at"] = log.offset_at(since)
            found.append(entry)
        return found

    def _read_asked(self, session: Session, message: m.Read) -> None:
        filter = received(message.filter)
        if session.may_subscribe is not None and not session.may_subscribe(filter):
            raise NotPermitted(
                f"{session.name!r} may not read {'everything' if filter.is_always else filter!s}; "
                "ask for less, or have the grant widened"
            )
        if message.stream not in self._logs:
            raise HistoryGone(
                f"{self.name!r} has no journal {message.stream!r}; turn to the broker that has "
                "taken it over, if there is one"
            )
        if len(session.reads) >= READS:
            raise Overloaded(f"{READS} requests to read wait already; wait for their answers")
        session.reads.append(message)
        if session.id not in self._blocked:
            self._turns[session.id] = None

    def _read_on(self, id: int) -> None:
        """The next stretch for a client; then it is the turn of others."""
        del self._turns[id]
        session = self.sessions.get(id)
        if session is None or not session.reads:
            return
        read = session.reads.popleft()
        self.counters["served"] += 1
        answer: m.Stretch | m.Failure
        head = self._heads().get(read.stream, 0)
        try:
            answer = bulk(self._logs[read.stream], head, read)
        except JournalDamaged as error:  # as above: gone
            last = getattr(error, "last", 0) or head
            answer = m.Stretch(read.number, read.stream, [], [], last, head, last + 1)
        except StentorError as error:
            answer = m.Failure(error.code, str(error), read.number)
        self._out.append(ToClient(id, answer))
        if isinstance(answer, m.Stretch) and answer.through < min(read.last or head, head):
            read.first = answer.through + 1
            session.reads.appendleft(read)
        if session.reads and id not in self._blocked:
            self._turns[id] = None

    # -- for other brokers

    def _fetch_heard(self, neighbor: str, message: m.Fetch) -> None:
        try:
            parsed(message.filter)
        except StentorError as error:
            raise ProtocolError(f"a neighbor asks by a filter that is none: {error}") from error
        border = self._borders.get(neighbor)
        if border is not None:
            message.filter = border.fetchable(message.filter)
        if message.stream in self._logs:
            if len(self._serving) >= MAX_SERVING:
                raise ProtocolError(f"{MAX_SERVING} requests wait to be answered")
            self._serving.append(message)
            return
        onwards = self.directory.towards(message.stream)
        if onwards is not None and onwards != neighbor:
            self._out.append(ToLink(onwards, message))

    def _answer_fetch(self, fetch: m.Fetch) -> None:
        neighbor = self.directory.towards(fetch.origin)
        if neighbor is not None:
            if fetch.retained:
                for chunk in last_values(self._logs[fetch.stream], fetch):
                    self._out.append(ToLink(neighbor, chunk))
                return
            chunk = self._read(fetch)
            if self.hooks.watches("forward"):
                chunk.offsets, chunk.items = self._hooked("forward", chunk.offsets, chunk.items)
            self._out.append(ToLink(neighbor, chunk))

    def _chunk_heard(self, neighbor: str, message: m.Chunk) -> None:
        if message.offsets and len(message.offsets) != len(message.items):
            raise ProtocolError(f"{len(message.items)} items with {len(message.offsets)} offsets")
        if not len(message.keys) == len(message.times) in (0, len(message.items)):
            raise ProtocolError(f"{len(message.items)} last values with {len(message.keys)} keys")
        border = self._borders.get(neighbor)
        if border is not None:
            envelopes = decode_headers(message.items)
            self.counters["kept_out"] += border.admit_chunk(message, envelopes)
        if message.origin != self.stream:
            onwards = self.directory.towards(message.origin)
            if onwards is not None and onwards != neighbor:
                self._out.append(ToLink(onwards, message))
            return
        more = bool(message.keys) and message.through < message.head
        pending = self._fetches.answered(message.number, more=more)
        self._fed()
        if pending is None or pending.stream != message.stream:
            return
        subscription = self.subscriptions.get(pending.feed)
        if subscription is None:
            return
        if pending.retained:
            self._last_values_of(pending.feed, message.stream, message)
        else:
            self._stretched(subscription.feed, pending.first, message)

    def _cancel(self, stream: m.StreamId) -> None:
        """Requests to this stream will not be answered."""
        for pending in self._fetches.cancel(stream):
            subscription = self.subscriptions.get(pending.feed)
            if pending.retained:
                self._last_values_of(pending.feed, stream, None)
            elif subscription is not None:
                subscription.feed.fetch_failed(stream)
                self._hungry[pending.feed] = None
        self._fed()

    def _ask_last_values(self, feed: Feed, heads: m.Positions) -> None:
        collected = LastValues(set(heads), self._now + LAST_VALUES_PATIENCE)
        self._last_values[feed.id] = collected
        for stream in heads:
            fetch = m.Fetch(stream, self.stream, 0, str(feed.filter), 0, 0.0, retained=True)
            neighbor = self.directory.towards(stream)
            if stream in self._logs:
                for chunk in last_values(self._logs[fetch.stream], fetch):
                    self._last_values_of(feed.id, stream, chunk)
            elif neighbor is None:
                self._last_values_of(feed.id, stream, None)
            else:
                fetch.number = self._fetches.add(Pending(feed.id, stream, 0, True))
                self._out.append(ToLink(neighbor, fetch))

    def _last_values_of(self, id: str, stream: str, chunk: m.Chunk | None) -> None:
        """The last values of one broker; the newest of a key counts."""
        collected = self._last_values.get(id)
        if collected is None:
            return
        if chunk is not None:
            for key, time, data in zip(chunk.keys, chunk.times, chunk.items, strict=True):
                collected.put(key, time, data)
            if chunk.through < chunk.head:
                return
        collected.waiting.discard(stream)
        if not collected.waiting:
            self._put_last_values(id)

    def _put_last_values(self, id: str) -> None:
        collected = self._last_values.pop(id)
        subscription = self.subscriptions.get(id)
        if subscription is not None:
            subscription.feed.put_last_values(collected.in_order())
            self._ready[id] = None
