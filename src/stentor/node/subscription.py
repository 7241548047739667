"""A subscription at its broker: a feed, and those who consume it.

Usually one client consumes the whole feed. The members of a group share it: each notification goes
to exactly one of them, chosen by the group's policy (01/A-18). What a member was given and has not
confirmed goes to the others when it leaves, so that a consumer that dies loses nothing.

A consumer is given as many notifications as it granted credit for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from stentor.errors import UnknownStrategy
from stentor.model.codec import decode_header
from stentor.model.identity import NotificationId
from stentor.node.durable import Durable
from stentor.node.feed import Feed, Run
from stentor.protocol.messages import Positions, StreamId

#: Notifications that are remembered until they are confirmed.
UNCONFIRMED: Final = 100_000

CHOICES: Final = ("round_robin", "least_loaded", "key:ATTRIBUTE")


@dataclass(slots=True, eq=False)
class Consumer:
    """A client's end of a subscription."""

    session: int
    number: int
    credit: int
    #: What it was given and has not confirmed; kept for groups and durable subscriptions.
    given: deque[tuple[StreamId, int, bytes]] = field(default_factory=deque)


class Subscription:
    """A feed with its consumers."""

    def __init__(
        self,
        feed: Feed,
        *,
        durable: Durable | None = None,
        group: str | None = None,
        choice: str = "round_robin",
        lease: float | None = None,
    ) -> None:
        if choice not in CHOICES[:2] and not (choice.startswith("key:") and len(choice) > 4):
            raise UnknownStrategy(
                f"a group cannot choose by {choice!r}; choose one of {', '.join(CHOICES)}"
            )
        self.feed = feed
        self.durable = durable
        self.group = group
        self.choice = choice
        #: Seconds that a lease lasts, and when it ends.
        self.lease = lease
        self.ends = float("inf")
        self.consumers: list[Consumer] = []
        self._turn = 0
        #: Repeats of a notification that another broker's journal holds as well.
        self.repeated = 0

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves. What it has not confirmed is for the others."""
        self.consumers.remove(consumer)
        if self.group is not None and self.consumers and consumer.given:
            self.feed.put_back(
                Run(stream, [offset] if offset else [], [data])
                for stream, offset, data in consumer.given
            )

    @property
    def _remembers(self) -> bool:
        return self.durable is not None or self.group is not None

    def deliveries(self, blocked: set[int]) -> Iterator[tuple[Consumer, Run]]:
        """What goes to whom now, as far as credit reaches. Blocked sessions get nothing."""
        if self.group is None:
            for consumer in self.consumers:
                if consumer.credit > 0 and consumer.session not in blocked:
                    for run in self.feed.take(consumer.credit):
                        fresh = self._fresh(run)
                        if fresh is not None:
                            consumer.credit -= len(fresh.items)
                            self._give(consumer, fresh)
                            yield consumer, fresh
            return
        yield from self._shared(blocked)

    def _shared(self, blocked: set[int]) -> Iterator[tuple[Consumer, Run]]:
        """One notification at a time to one consumer; neighbors for the same one go together."""
        batch: Run | None = None
        last: Consumer | None = None
        while len(self.feed):
            ready = [c for c in self.consumers if c.credit > 0 and c.session not in blocked]
            if not ready:
                break
            taken = self.feed.take(1)
            if not taken:
                break
            run = self._fresh(taken[0])
            if run is None:
                continue
            consumer = self._choose(ready, run.items[0])
            if consumer is None:
                self.feed.put_back([run])
                break
            consumer.credit -= 1
            self._give(consumer, run)
            if (
                consumer is last
                and batch is not None
                and batch.stream == run.stream
                and bool(batch.offsets) == bool(run.offsets)
                and batch.retained == run.retained
                and (not run.offsets or run.offsets[0] > batch.offsets[-1])
            ):
                batch.offsets.extend(run.offsets)
                batch.items.extend(run.items)
            else:
                if batch is not None and last is not None:
                    yield last, batch
                last = consumer
                batch = Run(run.stream, list(run.offsets), list(run.items), run.retained)
        if batch is not None and last is not None:
            yield last, batch

    def _choose(self, ready: list[Consumer], data: bytes) -> Consumer | None:
        """Which consumer gets this; None if the one that must have it is not ready."""
        if self.choice == "least_loaded":
            return min(ready, key=lambda c: (len(c.given), -c.credit))
        if self.choice.startswith("key:"):
            value = decode_header(data).attributes.get(self.choice[4:])
            members = sorted(self.consumers, key=lambda c: (c.session, c.number))
            chosen = members[crc32(repr(value).encode()) % len(members)]
            return chosen if chosen in ready else None
        self._turn += 1
        return ready[self._turn % len(ready)]

    # -- confirmation

    def _fresh(self, run: Run) -> Run | None:
        """The run without what was dealt with before by way of another stream."""
        if self.durable is None or not run.offsets:
            return run
        recent = self.durable.recent
        keep = [i for i, data in enumerate(run.items) if _id_of(data) not in recent]
        if len(keep) == len(run.items):
            return run
        self.repeated += len(run.items) - len(keep)
        if not keep:
            return None
        return Run(run.stream, [run.offsets[i] for i in keep], [run.items[i] for i in keep])

    def _give(self, consumer: Consumer, run: Run) -> None:
        if self._remembers:
            offsets = run.offsets or [0] * len(run.items)
            consumer.given.extend(
                (run.stream, offset, data) for offset, data in zip(offsets, run.items, strict=True)
            )
            while len(consumer.given) > UNCONFIRMED:
                consumer.given.popleft()

    def confirm(self, consumer: Consumer, positions: Positions) -> bool:
        """The consumer has dealt with what it was given up to here; whether that is news."""
        given = consumer.given
        rest: deque[tuple[StreamId, int, bytes]] = deque()
        confirmed = False
        for entry in given:
            stream, offset, data = entry
            if offset > positions.get(stream, 0 if offset else -1):
                rest.append(entry)
            else:
                confirmed = True
                if self.durable is not None and offset:
                    self.durable.remember(_id_of(data))
        if confirmed:
            consumer.given = rest
        if self.durable is None:
            return False
        if self.group is None:
            return self.durable.confirm(positions)
        return self.durable.confirm(self._confirmed()) or confirmed

    def _confirmed(self) -> Positions:
        """How far all members together have dealt with each stream."""
        positions = self.feed.positions
        for stream, first in self.feed.first_waiting().items():
            positions[stream] = min(positions[stream], first - 1)
        for consumer in self.consumers:
            for stream, offset, _ in consumer.given:
                if offset:
                    positions[stream] = min(positions[stream], offset - 1)
        return positions


def _id_of(data: bytes) -> NotificationId:
    id = decode_header(data).id
    assert id is not None  # brokers take nothing without one
    return id
