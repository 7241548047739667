"""Last values for new subscribers: asked of all brokers, put before everything else.

There may be very many, and very many may want them: the own ones are looked through a few at
a time, for one subscriber after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from stentor.model.codec import any_handled, decode_headers
from stentor.model.stamp import any_stamped
from stentor.node.agenda import Agenda
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.last_values import Collection
from stentor.node.reading import Fetches, Pending, last_values
from stentor.node.scopes import Scopes, base_key
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: Seconds that a subscriber waits for last values from brokers that do not answer.
PATIENCE: Final = 5.0
_NO_MORE: Final = m.Chunk("", 0, "", [], [], 0, 0)


class LastValues:
    """Collects the last values that new subscriptions want."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        journals: Journals,
        directory: Ways,
        fetches: Fetches,
        ready: Turns[str],
        clock: Clock,
        agenda: Agenda,
        scopes: Scopes,
    ) -> None:
        self._scopes = scopes
        self._subscriptions = subscriptions
        self._journals = journals
        self._directory = directory
        self._fetches = fetches
        self._ready = ready
        self._clock = clock
        self._agenda = agenda
        self.collections: dict[str, Collection] = {}
        #: Subscriptions that the own last values are looked through for, and how far.
        self._looking: deque[tuple[str, m.StreamId, Iterator[m.Chunk | None]]] = deque()
        subscriptions.at_end(self._forget)

    def _forget(self, subscription: Subscription) -> None:
        self.collections.pop(subscription.feed.id, None)

    def ask(self, subscription: Subscription, heads: m.Positions) -> None:
        """Ask the brokers of these streams, unless that was done."""
        id, asked = subscription.feed.id, subscription.interest.sought
        if id in self.collections:
            return
        self.collections[id] = Collection(set(heads), self._clock.now + PATIENCE)
        journals = self._journals
        for stream in heads:
            fetch = m.Fetch(stream, journals.stream, 0, asked, 0, 0.0, retained=True)
            neighbor = self._directory.towards(stream)
            if stream in journals:
                chunks = last_values(journals[stream], fetch)
                self._looking.append((id, stream, chunks))
            elif neighbor is None:
                self.came(id, stream, None)
            else:
                fetch.number = self._fetches.add(Pending(id, stream, 0, True))
                self._agenda.to_link(neighbor, fetch)

    @property
    def has_work(self) -> bool:
        """Whether own last values are still to be looked through."""
        return bool(self._looking)

    def work(self) -> None:
        """Look through some for a subscriber."""
        if self._looking:
            id, stream, chunks = self._looking[0]
            chunk = next(chunks, _NO_MORE) if id in self.collections else _NO_MORE
            if chunk is _NO_MORE:
                self._looking.popleft()
            elif chunk is not None:
                self.came(id, stream, chunk)

    def came(self, id: str, stream: m.StreamId, chunk: m.Chunk | None) -> None:
        """The last values of one broker, or that there will be none; the newest of a key counts."""
        collection = self.collections.get(id)
        if collection is None:
            return
        if chunk is not None:
            for i in self._visible(id, chunk.items):
                collection.put(base_key(chunk.keys[i]), chunk.times[i], chunk.items[i])
            if chunk.through < chunk.head:
                return
        collection.waiting.discard(stream)
        if not collection.waiting:
            self._put(id)

    def _visible(self, id: str, items: list[bytes]) -> Sequence[int]:
        indexes, subscription = range(len(items)), self._subscriptions.held.get(id)
        if subscription is None or not (self._scopes.active or any_stamped(items)):
            return indexes
        return self._scopes.visible(subscription, decode_headers(items), indexes)

    def tick(self) -> None:
        """Wait no longer for brokers that do not answer."""
        for id, collection in list(self.collections.items()):
            if collection.deadline <= self._clock.now:
                collection.waiting = {s for s in collection.waiting if s in self._journals}
                if not collection.waiting:
                    self._put(id)

    def _put(self, id: str) -> None:
        collection = self.collections.pop(id)
        subscription = self._subscriptions.held.get(id)
        if subscription is not None:
            values = collection.in_order()
            subscription.feed.perishable = subscription.feed.perishable or any_handled(values)
            subscription.feed.put_last_values(values)
            self._ready.add(id)
