"""Notifications on their way: to feeds here, to neighbors, and from feeds to clients.

A notification travels with the stream it belongs to and is taken only from the neighbor through
which that stream comes, so that none goes around in a cycle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from stentor.errors import (
    ProtocolError,
    QueueOverflow,
)
from stentor.model.codec import Envelope, decode_headers
from stentor.node.actions import (
    CloseClient,
    ToClient,
    ToLink,
)
from stentor.node.feed import Feed, Run
from stentor.node.hooks import VETO, Dropped, Point
from stentor.node.pieces import pieces
from stentor.node.service.base import Base
from stentor.protocol import messages as m
from stentor.routing.table import Local

#: Notifications that are routed as soon as so many have come. Larger batches gain nothing, and what
#: was decoded is no longer in the processor's cache when its turn comes.
ROUTED_AT_ONCE: Final = 1_000
#: At most so many of those that are on disk; fewer if to pass them on costs more than this, in
#: places that they go to.
MOST_AT_ONCE: Final = 4_000
COST_AT_ONCE: Final = 100_000
#: Notifications that are delivered in one step, and subscriptions that are served, or messages.
DELIVERED_AT_ONCE: Final = 20_000
SERVED_AT_ONCE: Final = 1_000
#: Streams of which the newest volatile notification is remembered.
STREAMS: Final = 100_000
#: Seconds for which publishers wait for a subscriber ("block") that takes nothing. Then it is
#: served as by "spill", until it takes something again.
BLOCK_PATIENCE: Final = 5.0


class Notifications(Base):
    """Passes notifications on."""

    #: How many are routed in one step, by how far the last ones went.
    _routed_at_once = MOST_AT_ONCE

    def _route_volatile(self) -> None:
        """What was published since the last time, by whomever, goes in one batch."""
        for _ in self._routing_volatile():
            pass

    def _routing_volatile(self) -> Iterator[None]:
        """The same in steps, for whoever may have published very much."""
        while self._volatile[0]:
            items, envelopes = self._volatile
            first = self._volatile_number + 1
            numbers = list(range(first, first + len(items)))
            count = self._route(self.stream, numbers, items, envelopes, None, volatile=True)
            self._volatile_number += count
            self._volatile = items[count:], envelopes[count:]
            yield

    def _route(
        self,
        stream: m.StreamId,
        offsets: list[int],
        items: list[bytes],
        envelopes: Sequence[Envelope],
        source: str | None,
        *,
        volatile: bool = False,
    ) -> int:
        """Pass on the first ones, as many as one step has time for; their number."""
        if not self.hooks.watches("route"):
            return self._pass_on(stream, offsets, items, envelopes, source, volatile=volatile)
        all_ = len(items)
        offsets, items = self._hooked("route", offsets, items)
        envelopes = decode_headers(items)
        while items:  # a hook sees each once
            count = self._pass_on(stream, offsets, items, envelopes, source, volatile=volatile)
            offsets, items, envelopes = offsets[count:], items[count:], envelopes[count:]
        return all_

    def _pass_on(
        self,
        stream: m.StreamId,
        offsets: list[int],
        items: list[bytes],
        envelopes: Sequence[Envelope],
        source: str | None,
        *,
        volatile: bool,
    ) -> int:
        count, targets = self.router.route_leading(envelopes, source, COST_AT_ONCE)
        if count < len(items):
            offsets, items = offsets[:count], items[:count]
            self._routed_at_once = count
        else:
            self._routed_at_once = min(2 * self._routed_at_once, MOST_AT_ONCE)
        for destination, indexes in targets.items():
            if len(indexes) == len(items):
                these, numbers = items, offsets
            else:
                these = [items[i] for i in indexes]
                numbers = [offsets[i] for i in indexes]
            if isinstance(destination, Local):
                subscription = self.subscriptions.get(destination.id)
                if subscription is not None:
                    run = Run(m.VOLATILE, [], these) if volatile else Run(stream, numbers, these)
                    subscription.feed.offer(run)
                    self._ready[destination.id] = None
            else:
                border = self._borders.get(str(destination.id)) if self._borders else None
                if border is not None:
                    indexes = border.shown(envelopes, indexes)
                    these = [items[i] for i in indexes]
                    numbers = [offsets[i] for i in indexes]
                if self.hooks.watches("forward"):
                    numbers, these = self._hooked("forward", numbers, these)
                if not these:
                    continue
                self.counters["forwarded"] += len(these)
                for some, data in pieces(numbers, these):
                    message = m.Forward(stream, some, data, volatile)
                    self._out.append(ToLink(str(destination.id), message))
        return count

    def _hooked(
        self, point: Point, offsets: list[int], items: list[bytes]
    ) -> tuple[list[int], list[bytes]]:
        """The batch as the hooks leave it."""
        answers = [self.hooks.run(point, data) for data in items]
        kept = [i for i, answer in enumerate(answers) if answer is not VETO]
        return [offsets[i] for i in kept], [answers[i] for i in kept]

    def _forwarded(self, neighbor: str, message: m.Forward) -> Iterator[None]:
        stream = message.stream
        if self.directory.towards(stream) != neighbor:
            self.counters["off_path"] += len(message.items)
            return
        offsets, items, volatile = message.offsets, message.items, message.volatile
        if len(offsets) != len(items):
            raise ProtocolError(f"{len(items)} notifications with {len(offsets)} offsets")
        self.counters["received"] += len(items)
        if volatile:
            offsets, items = self._unseen(stream, offsets, items)
        if items:
            envelopes: Sequence[Envelope] = decode_headers(items)
            border = self._borders.get(neighbor)
            admitted = None if border is None else border.admitted(envelopes)
            if admitted is not None:
                self.counters["kept_out"] += len(items) - len(admitted)
                offsets = [offsets[i] for i in admitted]
                items = [items[i] for i in admitted]
                envelopes = [envelopes[i] for i in admitted]
            while items:
                count = self._route(stream, offsets, items, envelopes, neighbor, volatile=volatile)
                offsets, items, envelopes = offsets[count:], items[count:], envelopes[count:]
                if items:
                    yield

    def _unseen(
        self, stream: m.StreamId, numbers: list[int], items: list[bytes]
    ) -> tuple[list[int], list[bytes]]:
        """Volatile notifications without those that came before by another way.

        They come in order; when the way has changed, the new one may bring old ones again.
        """
        newest = self._volatile_seen.pop(stream, 0)
        if numbers and numbers[0] <= newest:
            start = bisect_right(numbers, newest)
            self.counters["off_path"] += start
            numbers, items = numbers[start:], items[start:]
        self._volatile_seen[stream] = numbers[-1] if numbers else newest
        while len(self._volatile_seen) > STREAMS:
            del self._volatile_seen[next(iter(self._volatile_seen))]
        return numbers, items

    def _note_congestion(self, feed: Feed) -> None:
        """Let publishers wait for a subscriber that wants it so, or no longer."""
        if not feed.congested:
            self._congested.pop(feed.id, None)
            self._stuck.pop(feed.id, None)
        elif self._stuck.get(feed.id) != feed.delivered:
            self._stuck.pop(feed.id, None)
            self._congested.setdefault(feed.id, (self._now, feed.delivered))

    def _lose_patience(self) -> None:
        """Do not wait for subscribers that take nothing at all: everybody would, for ever."""
        for id, (since, taken) in list(self._congested.items()):
            delivered = self.subscriptions[id].feed.delivered
            if delivered != taken:
                self._congested[id] = self._now, delivered
            elif self._now - since >= BLOCK_PATIENCE:
                del self._congested[id]
                self._stuck[id] = delivered

    def _deliver(self) -> None:
        """Give consumers what they have credit for; if that is much, the rest has to wait."""
        if not self._ready:
            return
        ready, self._ready = self._ready, {}
        most = self.counters["delivered"] + DELIVERED_AT_ONCE
        waiting = list(reversed(ready))
        fewest, messages = len(waiting) - SERVED_AT_ONCE, len(self._out) + SERVED_AT_ONCE
        while waiting:
            if (
                self.counters["delivered"] >= most
                or len(waiting) <= fewest
                or len(self._out) >= messages
            ):
                self._ready = dict.fromkeys(reversed(waiting)) | self._ready
                return
            id = waiting.pop()
            subscription = self.subscriptions.get(id)
            if subscription is None:
                continue
            feed = subscription.feed
            for consumer, run in subscription.deliveries(self._blocked):
                if run.gap:
                    gap = m.Gap(consumer.number, run.stream, run.offsets[0], run.offsets[1])
                    self._out.append(ToClient(consumer.session, gap))
                    continue
                self.counters["delivered"] += len(run.items)
                for offsets, items in pieces(run.offsets, run.items):
                    message = m.Deliver(consumer.number, run.stream, offsets, items, run.retained)
                    self._out.append(ToClient(consumer.session, message))
            if feed.dropped > subscription.told_dropped:
                lost = feed.dropped - subscription.told_dropped
                subscription.told_dropped = feed.dropped
                self.hooks.tell("drop", Dropped(feed.id, f"{lost} too many for its queue"))
            self._note_congestion(feed)
            if feed.overflowed:
                for consumer in subscription.consumers:
                    self._out.append(
                        CloseClient(
                            consumer.session,
                            QueueOverflow.code,
                            f"more than {feed.limit} notifications waited; read faster, or choose "
                            "another overflow policy",
                        )
                    )
            if feed.catching:
                self._hungry[id] = None
            if subscription.has_more(self._blocked):
                self._ready[id] = None
