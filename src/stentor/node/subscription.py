"""A subscription at its broker: what is asked for, a feed of it, and those who consume that.

Usually one client consumes the whole feed. The members of a group share it: each notification goes
to exactly one of them, chosen by the group's policy (01/A-18). What a member was given and has not
confirmed goes to the others when it leaves, so that a consumer that dies loses nothing. Therefore
a member may be given an offset after higher ones. So a member confirms by naming the offset that it
was given last of a stream and has dealt with: everything that it was given of the stream up to that
one, in the order of giving, is done. What no journal holds is given at most once, and is not
remembered.

A consumer is given as many notifications as it granted credit for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from zlib import crc32

from stentor.errors import UnknownStrategy
from stentor.model.codec import decode_header
from stentor.model.identity import NotificationId
from stentor.node.durable import Durable
from stentor.node.feed import Feed, Run
from stentor.node.interest import Interest
from stentor.protocol.messages import Positions, StreamId

#: Notifications that are remembered until they are confirmed.
UNCONFIRMED: Final = 100_000

#: Intervals of a stream that a group's members have confirmed out of order. When there are more,
#: those who wait for the slowest are given no more.
INTERVALS: Final = 20_000

#: Notifications that are taken from the feed of a group at a time.
AT_ONCE: Final = 256

CHOICES: Final = ("round_robin", "least_loaded", "key:ATTRIBUTE")

#: Notifications with their streams and offsets, in the order in which they were given.
Given: TypeAlias = deque[tuple[StreamId, int, bytes]]


@dataclass(slots=True, eq=False)
class Consumer:
    """A client's end of a subscription."""

    session: int
    number: int
    credit: int
    #: What it was given and has not confirmed; kept for groups and durable subscriptions.
    given: Given = field(default_factory=deque)


class Subscription:
    """A feed with its consumers."""

    def __init__(
        self,
        feed: Feed,
        interest: Interest,
        *,
        durable: Durable | None = None,
        group: str | None = None,
        choice: str = "round_robin",
        lease: float | None = None,
        owner: str | None = None,
    ) -> None:
        if choice not in CHOICES[:2] and not (choice.startswith("key:") and len(choice) > 4):
            raise UnknownStrategy(
                f"a group cannot choose by {choice!r}; choose one of {', '.join(CHOICES)}"
            )
        self.feed = feed
        self.interest = interest
        self.durable = durable
        self.group = group
        self.choice = choice
        #: The grant whose clients may join the group; None without grants.
        self.owner = owner
        #: Seconds that a lease lasts, and when it ends.
        self.lease = lease
        self.ends = float("inf")
        self.consumers: list[Consumer] = []
        self._turn = 0
        #: Drops that hooks were told of.
        self.told_dropped = 0
        #: Repeats of a notification that another broker's journal holds as well.
        self.repeated = 0
        #: How far the only consumer knows that each stream has come for it.
        self._told: Positions = {}
        #: Up to where each stream was taken from the feed, where what is done is kept one by one.
        self._taken: Positions = {}

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves. What it has not confirmed is for the others."""
        self.consumers.remove(consumer)
        if self.group is not None and self.consumers and consumer.given:
            self.feed.put_back(
                Run(stream, [offset], [data]) for stream, offset, data in consumer.given
            )

    @property
    def _remembers(self) -> bool:
        return self.durable is not None or self.group is not None

    def deliveries(self, blocked: set[int]) -> Iterator[tuple[Consumer, Run]]:
        """What goes to whom now, as far as credit reaches. Blocked sessions get nothing."""
        if self.group is not None:
            yield from self._shared(blocked)
            return
        for consumer in self.consumers:
            given = False  # repeats do not count
            while not given and consumer.credit > 0 and consumer.session not in blocked:
                taken = self.feed.take(consumer.credit)
                if not taken:
                    break
                for run in taken:
                    fresh = self._fresh(run)
                    if fresh is not None:
                        given = True
                        consumer.credit -= len(fresh.items)
                        self._give(consumer, fresh)
                        yield consumer, fresh

    def has_more(self, blocked: set[int]) -> bool:
        """Whether somebody can be given more at once."""
        return (
            self.group is None
            and len(self.feed) > 0
            and not self.feed.held
            and any(c.credit > 0 and c.session not in blocked for c in self.consumers)
        )

    def _shared(self, blocked: set[int]) -> Iterator[tuple[Consumer, Run]]:
        """One notification at a time to one consumer; neighbors for the same one go together."""
        batch: Run | None = None
        last: Consumer | None = None
        waiting: deque[Run] = deque()
        while ready := [
            c
            for c in self.consumers
            if c.credit > 0 and c.session not in blocked and len(c.given) < UNCONFIRMED
        ]:
            if not waiting:
                if self.durable is not None and self.durable.intervals > INTERVALS:
                    break
                for each in self.feed.take(AT_ONCE):
                    self._note(each)
                    waiting.extend(_singly(each))
                if not waiting:
                    break
            run = self._fresh(waiting.popleft())
            if run is None:
                continue
            consumer = None if run.gap else self._choose(ready, run.items[0])
            if batch is not None and last is not None:
                if consumer is last and _follows(batch, run):
                    last.credit -= 1
                    self._give(last, run)
                    batch.offsets.extend(run.offsets)
                    batch.items.extend(run.items)
                    continue
                yield last, batch
                batch = last = None
            if run.gap:
                yield from ((each, run) for each in self.consumers)
            elif consumer is None:
                waiting.appendleft(run)
                break
            else:
                consumer.credit -= 1
                self._give(consumer, run)
                batch, last = run, consumer
        if batch is not None and last is not None:
            yield last, batch
        self.feed.put_back(waiting)

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

    def begins(self) -> None:
        """The feed has begun, where it is now: what lies before is not for this subscription."""
        if self.durable is not None:
            for stream, position in self.feed.passed.items():
                self.durable.begin(stream, position)

    def _note(self, run: Run) -> None:
        """A run was taken from the feed: what lies between its offsets is for nobody."""
        if self.durable is None or not run.offsets:
            return
        durable, stream = self.durable, run.stream
        before = self._taken_until(stream, run.offsets[0] - 1)
        if run.gap:
            durable.pass_over(stream, *run.offsets)
        elif run.offsets[-1] - before != len(run.offsets):
            last = before
            for offset in run.offsets:
                if offset > last:
                    durable.pass_over(stream, last + 1, offset - 1)
                    last = offset
        self._taken[stream] = max(before, run.offsets[-1])

    def _taken_until(self, stream: StreamId, begin: int) -> int:
        """Up to where the stream was taken; it begins here if it never was."""
        assert self.durable is not None
        if stream not in self._taken:
            self.durable.begin(stream, begin)
            self._taken[stream] = self.durable.done[stream].floor
        return self._taken[stream]

    def _pass_over(self) -> None:
        """Where nothing waits, all that the feed has read is taken."""
        assert self.durable is not None
        if not len(self.feed):
            for stream, position in self.feed.positions.items():
                if not self.feed.is_claim(stream):
                    before = self._taken_until(stream, position)
                    if before < position:
                        self.durable.pass_over(stream, before + 1, position)
                        self._taken[stream] = position

    def take_back(self) -> bool:
        """Keep no position that its stream never had; whether something durable has changed."""
        gone, self.feed.taken_back = self.feed.taken_back, {}
        for stream in gone:
            self._taken.pop(stream, None)
        if self.durable is None or not gone:
            return False
        self.durable.take_back(gone)
        return True

    def _fresh(self, run: Run) -> Run | None:
        """The run without what was dealt with before, in this stream or by way of another."""
        if self.durable is None or not run.offsets or run.gap:
            return run
        self.durable.begin(run.stream, run.offsets[0] - 1)
        recent, done = self.durable.recent, self.durable.done[run.stream]
        keep = [
            i
            for i, (offset, data) in enumerate(zip(run.offsets, run.items, strict=True))
            if offset not in done and _id_of(data) not in recent
        ]
        if len(keep) == len(run.items):
            return run
        self.repeated += len(run.items) - len(keep)
        kept = set(keep)
        for i, offset in enumerate(run.offsets):
            if i not in kept:
                done.add(offset)
        if not keep:
            return None
        return Run(run.stream, [run.offsets[i] for i in keep], [run.items[i] for i in keep])

    def _give(self, consumer: Consumer, run: Run) -> None:
        if not run.offsets:
            return
        if self.group is None:
            self._told[run.stream] = run.offsets[-1]
        if self._remembers and not run.gap:
            consumer.given.extend(
                (run.stream, offset, data)
                for offset, data in zip(run.offsets, run.items, strict=True)
            )
            if self.group is None:
                while len(consumer.given) > UNCONFIRMED:
                    consumer.given.popleft()  # only its id is lost

    def news(self) -> Positions:
        """How far streams have come, as far as the only consumer cannot know it."""
        told, feed = self._told, self.feed
        news = {
            s: p for s, p in feed.passed.items() if p > told.get(s, -1) and not feed.is_claim(s)
        }
        told.update(news)
        return news

    def confirm(self, consumer: Consumer, positions: Positions) -> bool:
        """The consumer has dealt with what it was given up to here; whether that is news."""
        done = _done if self.group is None else _done_in_order
        confirmed, rest = done(consumer.given, positions)
        consumer.given = rest
        if self.durable is None:
            return False
        if self.group is None:
            for _, _, data in confirmed:
                self.durable.remember(_id_of(data))
            known = self.feed.positions
            # Nobody has dealt with what has not come.
            return self.durable.confirm(
                {s: min(p, known[s]) for s, p in positions.items() if s in known}
            )
        for stream, offset, data in confirmed:
            self.durable.settle(stream, offset, _id_of(data))
        self._pass_over()
        return bool(confirmed)


def _done(given: Given, positions: Positions) -> tuple[Given, Given]:
    """What the only consumer has dealt with: all up to the position."""
    confirmed: Given = deque()
    rest: Given = deque()
    for entry in given:
        (confirmed if entry[1] <= positions.get(entry[0], 0) else rest).append(entry)
    return confirmed, rest


def _done_in_order(given: Given, positions: Positions) -> tuple[Given, Given]:
    """What a member has dealt with: all up to the one that it names, in the order of giving."""
    last = {s: i for i, (s, offset, _) in enumerate(given) if positions.get(s) == offset}
    confirmed: Given = deque()
    rest: Given = deque()
    for i, entry in enumerate(given):
        (confirmed if i <= last.get(entry[0], -1) else rest).append(entry)
    return confirmed, rest


def _singly(run: Run) -> Iterator[Run]:
    """Its notifications, each as a run of its own; a gap stays what it is."""
    if run.gap:
        yield run
    for i, data in enumerate(run.items):
        yield Run(run.stream, run.offsets[i : i + 1], [data], run.retained)


def _follows(batch: Run, run: Run) -> bool:
    """Whether the run can be sent as the continuation of the batch."""
    return (
        batch.stream == run.stream
        and bool(batch.offsets) == bool(run.offsets)
        and batch.retained == run.retained
        and (not run.offsets or run.offsets[0] > batch.offsets[-1])
    )


def _id_of(data: bytes) -> NotificationId:
    id = decode_header(data).id
    assert id is not None  # brokers take nothing without one
    return id
