"""Traffic: notifications on their way, to feeds here and to neighbors.

A notification travels with the stream it belongs to and is taken only from the neighbor through
which that stream comes, so that none goes around in a cycle. Its way through a broker has these
stages:

    path      only from the neighbor through which its stream comes
    repeats   those that came another way before are left out; in a tree only volatile ones do
    border    what the neighbor's grant does not admit is kept out
    hooks     "route" sees, changes or stops it
    match     the router says where it goes
    border    what the grant of the neighbor that it goes to does not show is left out
    hooks     "forward" sees, changes or stops it
    gate      what a subscriber may not see is left out (`stentor.node.scopes`)
    feed, or frame to the neighbor

What was published here begins at the hooks.

One that goes to very many feeds is given to some of them at a time. Until all have it, nothing else
is routed, so that none is given an answer before what it answers; and nobody is heard who could ask
for something (`passed`), so that whoever asks does so before it was routed or after.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Final

from stentor.errors import ProtocolError
from stentor.model.codec import decode_headers
from stentor.model.stamp import without_stamps
from stentor.node.agenda import Agenda
from stentor.node.batch import Batch
from stentor.node.border import Borders
from stentor.node.feed import Run
from stentor.node.hooks import VETO, Hooks, Point
from stentor.node.latencies import Latencies
from stentor.node.marks import Marks
from stentor.node.parts.routing import Routing
from stentor.node.pieces import pieces
from stentor.node.scopes import Scopes
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m
from stentor.routing.table import Destination, Local

#: At most so many of those that are on disk are routed in one step; fewer if to pass them on costs
#: more than this, in places that they go to.
MOST_AT_ONCE: Final = 4_000
COST_AT_ONCE: Final = 250_000
#: Feeds that are given something in one step.
FED_AT_ONCE: Final = 3_000
#: Streams of which the newest volatile notification is remembered.
STREAMS: Final = 100_000
_handling: Final = attrgetter("handling")


class Traffic:
    """Passes notifications on."""

    def __init__(
        self,
        routing: Routing,
        *,
        directory: Ways,
        marks: Marks,
        subscriptions: Subscriptions,
        ready: Turns[str],
        borders: Borders,
        hooks: Hooks,
        agenda: Agenda,
        latencies: Latencies,
        scopes: Scopes,
    ) -> None:
        self._latencies = latencies
        self._routing = routing
        self._scopes = scopes
        self._directory = directory
        self._marks = marks
        self._subscriptions = subscriptions
        self._ready = ready
        self._borders = borders
        self._hooks = hooks
        self._agenda = agenda
        #: How many are to be routed in one step, by how far the last ones went.
        self.at_once = MOST_AT_ONCE
        self.counters = {"received": 0, "forwarded": 0, "off_path": 0, "kept_out": 0}
        #: What is being passed on, as far as it was not yet given to feeds, and what happens then.
        self._rest: Iterator[None] = iter(())
        self._then: Callable[[int], None] = lambda count: None
        self._count = 0
        #: Whether not all feeds have been given what was routed last.
        self.has_work = False
        #: The newest notification that came of each stream, those that are volatile apart.
        self._newest: dict[tuple[m.StreamId, bool], int] = {}

    def forward_heard(self, neighbor: str, message: m.Forward) -> Iterator[None]:
        """Notifications from a neighbor; in steps, if they go to very many."""
        stream, offsets, items = message.stream, message.offsets, message.items
        if self._directory.towards(stream) != neighbor:
            self.counters["off_path"] += len(items)
            return
        if len(offsets) != len(items):
            raise ProtocolError(f"{len(items)} notifications with {len(offsets)} offsets")
        self.counters["received"] += len(items)
        if message.volatile or self._directory.allows_cycles:
            offsets, items = self._unseen(stream, offsets, items, message.volatile)
        if not items:
            return
        batch = Batch(stream, offsets, items, decode_headers(items), message.volatile)
        border = self._borders.with_(neighbor)
        if border is not None:
            admitted = border.admitted(batch.envelopes)
            if admitted is not None:
                self.counters["kept_out"] += len(items) - len(admitted)
                batch = batch.only(admitted)
        while batch.items:
            count = self.route(batch, neighbor)
            yield from self.passed()
            if not batch.volatile:  # all up to here has passed; what a neighbor asks now, the rest
                self._marks.heard(stream, batch.offsets[count - 1])
            batch = batch.after(count)
            if batch.items:
                yield
                yield from self.passed()

    def _unseen(
        self, stream: m.StreamId, numbers: list[int], items: list[bytes], volatile: bool
    ) -> tuple[list[int], list[bytes]]:
        """Notifications without those that came before by another way.

        They come in order; when the way has changed, the new one may bring old ones again. Who has
        missed one of these, that a journal holds, reads it there: its stream has begun afresh.
        """
        newest = self._newest.pop((stream, volatile), 0)
        if numbers and numbers[0] <= newest:
            start = bisect_right(numbers, newest)
            self.counters["off_path"] += start
            numbers, items = numbers[start:], items[start:]
        self._newest[stream, volatile] = numbers[-1] if numbers else newest
        while len(self._newest) > STREAMS:
            del self._newest[next(iter(self._newest))]
        return numbers, items

    def work(self) -> None:
        """Give it to some of them."""
        if self.has_work and next(self._rest, self) is self:
            self.has_work = False
            self._then(self._count)

    def passed(self) -> Iterator[None]:
        """What has to be done before anything else is routed, or anybody asks for something."""
        while self.has_work:
            self.work()
            yield

    def route(
        self,
        batch: Batch,
        source: str | None,
        then: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Pass on what a client (None) published or a neighbor forwarded; not while it `has_work`.

        Only the first ones, as many as one step has time for; their number. `then` is told that
        number when all of them have been given to everybody.
        """
        assert not self.has_work
        if not self._hooks.watches("route"):
            return self._pass_on(batch, source, then)
        count = len(batch.items)
        offsets, items = hooked(self._hooks, "route", batch.offsets, batch.items)
        batch = Batch(batch.stream, offsets, items, decode_headers(items), batch.volatile)
        while batch.items:  # a hook sees each once
            batch = batch.after(self._pass_on(batch, source, lambda _: None))
            for _ in self.passed():
                pass
        then(count)
        return count

    def _pass_on(self, batch: Batch, source: str | None, then: Callable[[int], None]) -> int:
        stream, offsets, items, envelopes, volatile = batch
        # More would mostly be looked at in vain.
        some = envelopes if len(items) <= self.at_once else envelopes[: self.at_once]
        root = self._directory.root(stream)
        stopwatch = self._latencies.stopwatch
        began = stopwatch()
        count, targets = self._routing.route_leading(some, source, COST_AT_ONCE, root)
        self._latencies.matching.observe((stopwatch() - began) / count, count)
        if count < len(some):
            self.at_once = count
        elif len(some) == self.at_once:
            self.at_once = min(self.at_once + self.at_once // 8 + 1, MOST_AT_ONCE)
        if count < len(items):
            offsets, items = offsets[:count], items[:count]
            batch = Batch(stream, offsets, items, envelopes, volatile)
        for destination, indexes in targets.items():
            if not isinstance(destination, Local):
                self._forward(str(destination.id), batch, indexes)
        if len(targets) <= FED_AT_ONCE:
            self._feed(batch, targets.items())
            then(count)
        else:
            self._rest, self._then, self._count = self._feed_all(batch, targets), then, count
            self.has_work = True
            self.work()
        return count

    def _feed_all(self, batch: Batch, targets: dict[Destination, list[int]]) -> Iterator[None]:
        """Give it to the feeds here, in steps."""
        waiting = iter(targets.items())
        while some := list(islice(waiting, FED_AT_ONCE)):
            self._feed(batch, some)
            yield

    def _feed(self, batch: Batch, targets: Iterable[tuple[Destination, list[int]]]) -> None:
        """Give it to some feeds here."""
        stream, offsets, items, envelopes, volatile = batch
        held, ready, scoped = self._subscriptions.held, self._ready, self._scopes.active
        stamps, bare = None, items
        if scoped:
            stamps = {id(each.stamp): each.stamp for each in envelopes}.values()
            bare = without_stamps(items)  # once for all of them
        perishable = any(map(_handling, envelopes))
        for destination, indexes in targets:
            if not isinstance(destination, Local):
                continue
            subscription = held.get(destination.id)
            if subscription is None:
                continue
            if scoped:
                indexes = self._scopes.visible(subscription, envelopes, indexes, stamps)  # type: ignore[assignment]
                if not indexes:
                    continue
            # What may come back, or die, is known by its stamp.
            data = bare if subscription.durable is None and subscription.settling is None else items
            if len(indexes) == len(items):
                these, numbers = data, offsets
            else:
                these = [data[i] for i in indexes]
                numbers = [offsets[i] for i in indexes]
            run = Run(m.VOLATILE, [], these) if volatile else Run(stream, numbers, these)
            if perishable:
                subscription.feed.perishable = True
            subscription.feed.offer(run)
            ready[destination.id] = None

    def _forward(self, neighbor: str, batch: Batch, indexes: list[int]) -> None:
        """Give these of the batch to a neighbor."""
        stream, offsets, items, envelopes, volatile = batch
        border = self._borders.with_(neighbor) if self._borders else None
        if border is not None:
            indexes = border.shown(envelopes, indexes)
        if len(indexes) < len(items):
            offsets = [offsets[i] for i in indexes]
            items = [items[i] for i in indexes]
        if self._hooks.watches("forward"):
            offsets, items = hooked(self._hooks, "forward", offsets, items)
        self.counters["forwarded"] += len(items)
        if items:
            for some, data in pieces(offsets, items):
                self._agenda.to_link(neighbor, m.Forward(stream, some, data, volatile))


def hooked(
    hooks: Hooks, point: Point, offsets: list[int], items: list[bytes]
) -> tuple[list[int], list[bytes]]:
    """What the hooks leave of encoded notifications, with their offsets."""
    answers = [hooks.run(point, data) for data in items]
    kept = [i for i, answer in enumerate(answers) if answer is not VETO]
    return [offsets[i] for i in kept], [answers[i] for i in kept]
