"""A subscription at its broker: what is asked for, a feed of it, and those who consume that.

Usually one client consumes the whole feed. The members of a group share it: each notification goes
to exactly one of them, chosen by the group's policy (01/A-18). What a member was given and has not
settled goes to the others when it leaves, so that a consumer that dies loses nothing. How that is
kept one by one, for groups and for whoever wants it so, is in `stentor.node.settling`. What no
journal holds is given at most once, and is not remembered.

The only consumer of a subscription may confirm by positions instead: everything up to there was
dealt with.

A consumer is given as many notifications as it granted credit for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from zlib import crc32

from stentor.errors import UnknownStrategy
from stentor.model.codec import Envelope, decode_header, decode_headers
from stentor.model.identity import NotificationId
from stentor.node.durable import Durable
from stentor.node.feed import Feed, Run
from stentor.node.interest import Interest
from stentor.node.settling import Settling, end_of
from stentor.protocol.messages import Positions, StreamId

#: Notifications that are remembered until they are confirmed.
UNCONFIRMED: Final = 100_000

#: Notifications that are taken from the feed at a time where each is settled by itself.
AT_ONCE: Final = 256

CHOICES: Final = ("round_robin", "least_loaded", "key:ATTRIBUTE")

#: The ids of notifications with their streams and offsets, in the order in which they were given.
Given: TypeAlias = deque[tuple[StreamId, int, NotificationId]]


@dataclass(slots=True, eq=False)
class Consumer:
    """A client's end of a subscription."""

    session: int
    number: int
    credit: int
    #: What it was given and has not confirmed; kept for durable subscriptions.
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
        settling: Settling | None = None,
        rests_until: float = 0.0,
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
        #: What is unsettled; in groups, and where notifications are settled one by one.
        self.settling = settling
        #: Until when nothing is given, since its subscriber has failed.
        self.rests_until = rests_until
        #: The grant whose clients may join the group; None without grants.
        self.owner = owner
        #: Seconds that a lease lasts, and when it ends.
        self.lease = lease
        self.ends = float("inf")
        self.consumers: list[Consumer] = []
        self._turn = 0
        #: Drops that hooks were told of.
        self.told_dropped = 0
        #: Notifications that nobody was given because they had expired, and those not yet told of.
        self.expired = 0
        self._expired = 0
        #: Repeats of a notification that another broker's journal holds as well.
        self.repeated = 0
        #: How far the only consumer knows that each stream has come for it.
        self._told: Positions = {}
        #: Up to where each stream was taken from the feed, where what is done is kept one by one.
        self._taken: Positions = {}

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        if self.settling is not None:
            self.settling.join(consumer)

    def remove(self, consumer: Consumer) -> None:
        """A consumer leaves. What it has not confirmed is for the others."""
        self.consumers.remove(consumer)
        if self.settling is not None:
            self.settling.leave(consumer)

    def rests(self, now: float) -> bool:
        """Whether nothing is given now, on the clock that only goes forward.

        Where notifications are settled one by one, each rests by itself.
        """
        if now >= self.rests_until or self.durable is None or self.settling is not None:
            return False
        return any(self.durable.refused.values())

    def deliveries(self, blocked: set[int], time: float = 0.0) -> Iterator[tuple[Consumer, Run]]:
        """What goes to whom now, as far as credit reaches. Blocked sessions get nothing.

        `time` is in seconds since 1970.
        """
        if self.settling is not None:
            yield from self._settled(self.settling, blocked, time)
            return
        for consumer in self.consumers:
            given = False  # repeats do not count
            while not given and consumer.credit > 0 and consumer.session not in blocked:
                taken = self.feed.take(consumer.credit)
                if not taken:
                    break
                for run in taken:
                    if self.feed.perishable and not run.gap:
                        run = self._lasting(run, time)
                        if not run.items:
                            continue
                    if self.durable is not None and run.offsets and not run.gap:
                        run, envelopes = self._fresh(run, decode_headers(run.items))
                        if not run.items:
                            continue
                        self._give(consumer, run, envelopes)
                    elif run.offsets:
                        self._told[run.stream] = run.offsets[-1]
                    given = True
                    consumer.credit -= len(run.items)
                    yield consumer, run

    def has_more(self, blocked: set[int]) -> bool:
        """Whether somebody can be given more at once."""
        return (
            self.group is None
            and len(self.feed) > 0
            and (self.settling is None or self.settling.room > 0)
            and not self.feed.held
            and any(c.credit > 0 and c.session not in blocked for c in self.consumers)
        )

    def _lasting(self, run: Run, time: float) -> Run:
        """Without what has expired. That counts as passed: the subscriber hears of the position."""
        keep = [
            i
            for i, envelope in enumerate(decode_headers(run.items))
            if end_of(envelope, self.feed.lasts) > time
        ]
        if len(keep) == len(run.items):
            return run
        self._expired += len(run.items) - len(keep)
        offsets = [run.offsets[i] for i in keep] if run.offsets else []
        return Run(run.stream, offsets, [run.items[i] for i in keep], run.retained)

    def take_expired(self) -> int:
        """How many have expired since this was asked last."""
        expired, self._expired = self._expired, 0
        if self.settling is not None:
            expired += self.settling.expired
            self.settling.expired = 0
        self.expired += expired
        return expired

    def _settled(
        self, settling: Settling, blocked: set[int], time: float
    ) -> Iterator[tuple[Consumer, Run]]:
        """One at a time to one consumer; neighbors for the same one go together.

        Those that come again go alone.
        """
        if settling.terms.ranked:
            yield from self._fill(settling)
        batch: Run | None = None
        last: Consumer | None = None
        sole = self.consumers[0] if len(self.consumers) == 1 else None
        while ready := [c for c in self.consumers if c.credit > 0 and c.session not in blocked]:
            if sole is not None and settling.ready:
                yield from self._to_one(settling, sole, time)
                continue
            if not settling.ready:
                most = AT_ONCE if sole is None else sole.credit
                taken = self.feed.take(min(most, settling.room))
                if not taken:
                    break
                if batch is not None and last is not None:
                    yield last, batch
                    batch = last = None
                for run in taken:
                    yield from self._admit(settling, run)
                continue
            entry = settling.ready[0]
            if entry.ends <= time:
                settling.expire(settling.ready.popleft())
                continue
            consumer = self._choose(ready, entry.data)
            if consumer is None:
                break
            settling.ready.popleft()
            settling.give(entry, consumer)
            consumer.credit -= 1
            offsets = [entry.offset] if entry.offset else []
            run = Run(entry.stream, offsets, [entry.data], attempt=entry.attempt)
            if batch is not None and last is not None:
                if consumer is last and _follows(batch, run):
                    batch.offsets.extend(offsets)
                    batch.items.append(entry.data)
                    continue
                yield last, batch
            batch, last = run, consumer
        if batch is not None and last is not None:
            yield last, batch

    def _fill(self, settling: Settling) -> Iterator[tuple[Consumer, Run]]:
        """Take in as much as there is room for, so that the highest of many priorities is known."""
        while settling.room > 0 and (taken := self.feed.take(settling.room)):
            for run in taken:
                yield from self._admit(settling, run)

    def _to_one(
        self, settling: Settling, consumer: Consumer, time: float
    ) -> Iterator[tuple[Consumer, Run]]:
        """All that is ready goes to the only consumer, as far as its credit reaches."""
        ready = settling.ready
        run: Run | None = None
        for _ in range(min(len(ready), consumer.credit)):
            entry = ready.popleft()
            if entry.ends <= time:
                settling.expire(entry)
                continue
            settling.give(entry, consumer)
            stream, offset = entry.key
            if (
                run is not None
                and run.stream == stream
                and run.attempt == entry.attempt == 1
                and (run.offsets[-1] < offset if run.offsets else not offset)
            ):
                if offset:
                    run.offsets.append(offset)
                run.items.append(entry.data)
                continue
            if run is not None:
                consumer.credit -= len(run.items)
                yield consumer, run
            offsets = [offset] if offset else []
            run = Run(stream, offsets, [entry.data], attempt=entry.attempt)
        if run is not None:
            consumer.credit -= len(run.items)
            yield consumer, run

    def _admit(self, settling: Settling, run: Run) -> Iterator[tuple[Consumer, Run]]:
        """Take in a run; what is for all goes to them."""
        self._note(run)
        if run.gap or run.retained:
            for consumer in self.consumers:
                consumer.credit -= len(run.items)
                yield consumer, run
        elif run.offsets:
            fresh, envelopes = self._fresh(run, decode_headers(run.items))
            if not fresh.items:
                return
            given = None
            if len(self.consumers) == 1 and not settling.terms.ranked:
                given = settling.admit_to(self.consumers[0], fresh, envelopes)
            if given is None:
                settling.admit(fresh, envelopes)
            elif given.items:
                self.consumers[0].credit -= len(given.items)
                yield self.consumers[0], given
        else:
            settling.pass_on(run, decode_headers(run.items) if self.feed.perishable else ())

    def _choose(self, ready: list[Consumer], data: bytes) -> Consumer | None:
        """Which consumer gets this; None if the one that must have it is not ready."""
        if len(self.consumers) == 1:
            return ready[0]
        if self.choice == "least_loaded":
            assert self.settling is not None
            load = self.settling.load
            return min(ready, key=lambda c: (load(c), -c.credit))
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
        elif run.offsets[0] <= before or run.offsets[-1] - before != len(run.offsets):
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

    def pass_over(self) -> None:
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

    def _fresh(self, run: Run, envelopes: Sequence[Envelope]) -> tuple[Run, Sequence[Envelope]]:
        """Without what was dealt with before, in this stream or by way of another."""
        durable = self.durable
        if durable is None:
            return run, envelopes
        durable.begin(run.stream, run.offsets[0] - 1)
        recent, done, dying = durable.recent, durable.done[run.stream], durable.dying
        ahead = run.offsets[0] <= done.top
        keep = [
            i
            for i, envelope in enumerate(envelopes)
            if not (ahead and run.offsets[i] in done)
            and envelope.id not in recent  # type: ignore[operator]  # nothing comes without one
            and not (dying and (run.stream, run.offsets[i]) in dying)
        ]
        if len(keep) == len(run.items):
            return run, envelopes
        self.repeated += len(run.items) - len(keep)
        kept = set(keep)
        for i, offset in enumerate(run.offsets):
            if i not in kept and (run.stream, offset) not in dying:
                done.add(offset)
        fresh = Run(run.stream, [run.offsets[i] for i in keep], [run.items[i] for i in keep])
        return fresh, [envelopes[i] for i in keep]

    def _give(self, consumer: Consumer, run: Run, envelopes: Sequence[Envelope]) -> None:
        self._told[run.stream] = run.offsets[-1]
        consumer.given.extend(
            (run.stream, offset, envelope.id)  # type: ignore[misc]  # nothing comes without one
            for offset, envelope in zip(run.offsets, envelopes, strict=True)
        )
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
        if self.settling is not None:
            self.settling.confirm(consumer, positions)
            return False  # it says itself whether it has changed
        confirmed, consumer.given = _done(consumer.given, positions)
        if self.durable is None:
            return False
        for _, _, id in confirmed:
            self.durable.remember(id)
        known = self.feed.positions
        # Nobody has dealt with what has not come.
        return self.durable.confirm(
            {s: min(p, known[s]) for s, p in positions.items() if s in known}
        )


def _done(given: Given, positions: Positions) -> tuple[Given, Given]:
    """What the only consumer has dealt with: all up to the position."""
    confirmed: Given = deque()
    rest: Given = deque()
    for entry in given:
        (confirmed if entry[1] <= positions.get(entry[0], 0) else rest).append(entry)
    return confirmed, rest


def _follows(batch: Run, run: Run) -> bool:
    """Whether the run can be sent as the continuation of the batch."""
    return (
        batch.stream == run.stream
        and bool(batch.offsets) == bool(run.offsets)
        and batch.retained == run.retained
        and batch.attempt == run.attempt == 1
        and (not run.offsets or run.offsets[0] > batch.offsets[-1])
    )
