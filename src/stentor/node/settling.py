"""Settling: what has become of each notification that consumers were given, one by one.

A notification of a subscription that settles goes through these states:

    ready      it may be given to a consumer
    given      a consumer has it. It is *begun* when the application has it: before, it waits there
               behind others, and nobody can be blamed for it
    resting    it was refused, or not settled in time, and comes again when it is due
    in line    one before it, of the same publisher in the same stream, rests or is tried again
    dying      it was given in vain as often as is allowed; somebody makes a dead letter of it

and ends when it is done. Unless the subscriber lets retried ones be *overtaken*, there is a line
for each publisher of which one has failed: that one first, then what was given to the same consumer
behind it and not begun, then what comes. Only the first of a line is given. When it is done those
behind it are ready, up to the next that was refused.

The *deadline* of a notification runs from its beginning. What a consumer has and has not begun is
given to others when that one settles nothing for so long: its application hangs. Only what was
begun counts as an attempt.

All of this is in memory, and bounded. What is done, and what was refused how often, is in the
`Durable` and outlives it; what is neither is read from the journals again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from stentor.model.codec import Envelope
from stentor.model.dead_letter import PRODUCER, is_of
from stentor.model.handling import DEFAULT, Ranked
from stentor.model.identity import NotificationId
from stentor.node.clock import Clock
from stentor.node.durable import Durable, Refusal
from stentor.node.feed import QUEUE_BYTES, Run
from stentor.protocol.messages import Positions, Settle, Settlement, StreamId

if TYPE_CHECKING:
    from stentor.node.subscription import Consumer

#: Notifications of one subscription that may be unsettled; more are not taken from its feed.
UNSETTLED: Final = 10_000
#: Notifications that come again in one step.
LOOKED: Final = 1_000

Key: TypeAlias = tuple[StreamId, int]
#: What keeps its order: the notifications of a publisher in a stream, and where the subscriber
#: wants higher priorities first, those of each priority.
Line: TypeAlias = tuple[StreamId, str, int]
#: For a consumer: what is taken from it, of which stream, and the refusal that this answers, or 0.
Withdrawal: TypeAlias = tuple["Consumer", StreamId, list[int], int]


class Entry(Struct, eq=False):
    """A notification that is not settled."""

    key: Key
    data: bytes
    id: NotificationId
    #: How often it has been given, with the next or the present time.
    attempt: int = 1
    #: Who has it; nobody, while it rests or waits.
    holder: Consumer | None = None
    begun: bool = False
    #: When it comes again, or is taken from its holder.
    due: float = inf
    cause: str = ""
    #: When it expires, in seconds since 1970.
    ends: float = inf
    priority: int = DEFAULT
    #: Whether only those of the same priority keep their order.
    ranked: bool = False

    @property
    def stream(self) -> StreamId:
        return self.key[0]

    @property
    def offset(self) -> int:
        return self.key[1]

    @property
    def line(self) -> Line:
        return self.key[0], self.id.producer, self.priority if self.ranked else DEFAULT


#: What no journal holds is not settled, so it matters to nobody whose it is.
_NOBODY: Final = NotificationId("nobody", 0, 0)


def end_of(envelope: Envelope, lasts: float) -> float:
    """When a notification expires for a subscriber who wants it for so many seconds."""
    handling = envelope.handling
    end = inf if handling is None else handling.end
    if lasts < inf and envelope.time is not None:
        begin = envelope.time.timestamp()
        if handling is not None:
            begin = max(begin, handling.due)
        end = min(end, begin + lasts)
    return end


def _place(entry: Entry) -> int:
    return entry.offset


def _at(line: list[Entry], entry: Entry) -> int | None:
    """Where it is in the line."""
    at = bisect_left(line, entry.offset, key=_place)
    return at if at < len(line) and line[at] is entry else None


class Settling:
    """What is unsettled of one subscription."""

    def __init__(
        self,
        terms: Settlement,
        durable: Durable | None,
        clock: Clock,
        *,
        group: str = "",
        owner: str | None = None,
        lasts: float = inf,
    ) -> None:
        """`group` and `owner` are those of a group that is not durable.

        What is older than `lasts` seconds is not given to anybody.
        """
        self.terms = terms
        self._group = group, owner
        self._durable = durable
        self._clock = clock
        self._lasts = lasts
        #: Those that have expired unseen; who counts them resets this.
        self.expired = 0
        self.ready: deque[Entry] | Ranked[Entry] = self._queue()
        #: Those that were given in vain as often as is allowed; to be taken, and then `finish`ed.
        self.dying: deque[Entry] = deque()
        #: Those of which somebody who was attached before makes dead letters. Nothing is taken from
        #: the feed while these are on their way, or it would come before what was refused.
        self._buried: set[Key] = set() if durable is None else set(durable.dying)
        #: Whether the durable subscription has changed; who stores it resets this.
        self.changed = False
        self._entries: dict[Key, Entry] = {}
        self._bytes = 0
        self._held: dict[Consumer, dict[Key, Entry]] = {}
        #: When each consumer was last heard of, or given something while it had nothing.
        self._active: dict[Consumer, float] = {}
        self._lines: dict[Line, list[Entry]] = {}
        self._due: list[tuple[float, int, Entry]] = []
        self._order = count()
        #: The streams that came by. If there are several, one notification may be in two of them:
        #: who is unsettled by their ids, and where else they are.
        self._streams: set[StreamId] = set()
        self._ids: set[NotificationId] | None = None
        self._twins: dict[NotificationId, list[Key]] = {}

    def agree(self, terms: Settlement) -> None:
        """From now on these hold."""
        self.terms, before = terms, self.ready
        self.ready = self._queue()
        self.ready.extend(before)

    def _queue(self) -> deque[Entry] | Ranked[Entry]:
        return Ranked() if self.terms.ranked else deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def room(self) -> int:
        """How many more may be taken from the feed."""
        if self._buried and self._durable is not None:
            self._buried &= self._durable.dying
            if self._buried and not self.terms.overtake:
                return 0
        return UNSETTLED - len(self._entries) if self._bytes < QUEUE_BYTES else 0

    def load(self, consumer: Consumer) -> int:
        """How many a consumer has and has not settled."""
        return len(self._held.get(consumer, ()))

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, key: Key) -> Entry | None:
        """The one of this stream and offset, while it is not settled."""
        return self._entries.get(key)

    # -- from the feed to consumers

    def admit(self, run: Run, envelopes: Sequence[Envelope]) -> None:
        """Take in what comes from the feed and was never settled."""
        durable = self._durable
        elsewhere = {} if durable is None else durable.refused_elsewhere(run.stream)
        for entry in self._new(run, envelopes):
            refused = {} if durable is None else durable.refused.setdefault(entry.stream, {})
            place = elsewhere.get(str(entry.id)) if elsewhere else None
            if durable is not None and place is not None and entry.offset not in refused:
                refused[entry.offset] = durable.refused[place[0]].pop(place[1])
            if entry.offset in refused:
                self._resume(entry, refused[entry.offset])
            elif not self._waits(entry):
                self.ready.append(entry)

    def admit_to(self, consumer: Consumer, run: Run, envelopes: Sequence[Envelope]) -> Run | None:
        """The same, where all of it may go to a consumer at once: what it gets.

        None if some has to wait.
        """
        refused = self._durable is not None and any(self._durable.refused.values())
        if self.ready or self._lines or refused:
            return None
        held = self._held[consumer]
        if not held:
            self._active[consumer] = self._clock.now
        entries = self._new(run, envelopes)
        for entry in entries:
            entry.holder = consumer
            held[entry.key] = entry
        if len(entries) == len(run.items):
            return run
        return Run(run.stream, [e.offset for e in entries], [e.data for e in entries])

    def _new(self, run: Run, envelopes: Sequence[Envelope]) -> list[Entry]:
        """What was not there before, without dead letters of one's own."""
        known, stream, found = self._entries, run.stream, []
        own = any(e.id.producer.startswith(PRODUCER) for e in envelopes if e.id is not None)
        self._streams.add(stream)
        if len(self._streams) > 1 and self._ids is None:
            self._ids = {entry.id for entry in known.values()}
        ids, name, lasts = self._ids, self._group, self._lasts
        if self._durable is not None:
            name = self._durable.label, self._durable.owner
        for offset, data, envelope in zip(run.offsets, run.items, envelopes, strict=True):
            key = (stream, offset)
            assert envelope.id is not None  # brokers take nothing without one
            entry = Entry(key, data, envelope.id)
            if key in known:
                continue
            if own and is_of(envelope, *name):
                self._settled([entry])  # or who fails on everything would fail for ever
                continue
            if (envelope.handling is not None or lasts < inf) and self._is_over(entry, envelope):
                continue
            if ids is not None:
                if entry.id in ids:
                    self._twins.setdefault(entry.id, []).append(key)
                    continue
                ids.add(entry.id)
            known[key] = entry
            found.append(entry)
        self._bytes += sum(map(len, run.items))
        if len(found) < len(run.items):
            self._bytes = sum(len(entry.data) for entry in known.values())
        return found

    def _is_over(self, entry: Entry, envelope: Envelope) -> bool:
        """Note how the notification is to be handled; whether it has expired, and is settled."""
        if envelope.handling is not None:
            entry.priority = envelope.handling.priority
            entry.ranked = self.terms.ranked
        entry.ends = end_of(envelope, self._lasts)
        if entry.ends > self._clock.time or not entry.key[1]:
            return False
        refused = {} if self._durable is None else self._durable.refused.get(entry.stream, {})
        if entry.offset in refused:
            return False  # somebody has failed on it, which is to be told
        self.expired += 1
        self._settled([entry])
        return True

    def expire(self, entry: Entry) -> None:
        """One that was ready, and is so no longer, has expired.

        If it was given in vain before, it becomes a dead letter where these are wanted.
        """
        self.expired += 1
        if not entry.key[1]:
            return
        if entry.attempt > 1 and self.terms.dead_letter:
            entry.cause = f"it has expired; before that: {entry.cause}"
            self._die(entry)
            return
        del self._entries[entry.key]
        self._bytes -= len(entry.data)
        self._leave_line(entry)
        self._settled([entry])

    def pass_on(self, run: Run, envelopes: Sequence[Envelope] = ()) -> None:
        """Take in what no journal holds: it is given once, and then nobody asks about it.

        Their envelopes, if any of them may expire.
        """
        entries = [Entry((run.stream, 0), data, _NOBODY) for data in run.items]
        for entry, envelope in zip(entries, envelopes, strict=False):
            self._is_over(entry, envelope)
        self.ready.extend(entries)

    def _resume(self, entry: Entry, refusal: Refusal) -> None:
        """It was refused before, when somebody else was attached, or this broker was another."""
        entry.attempt = refusal.attempts + 1
        entry.cause = refusal.cause
        if self._exhausted(refusal.attempts):
            self._die(entry)
            return
        entry.due = self._clock.now + refusal.left(self._clock.time)
        self._rest(entry)

    def united(self) -> None:
        """The durable subscription was united with a copy of it: what others have done counts.

        Who has something already keeps it.
        """
        durable = self._durable
        assert durable is not None
        free = [e for e in self._entries.values() if e.holder is None and e.due != -inf]
        done = {entry for entry in free if durable.is_done(*entry.key)}
        for entry in self._remove_all(done) if done else ():
            self._settled([entry])
        for entry in free:
            refusal = durable.refused.get(entry.stream, {}).get(entry.offset)
            if entry not in done and refusal is not None and refusal.attempts >= entry.attempt:
                self._let_go(entry)
                self._resume(entry, refusal)

    def _waits(self, entry: Entry) -> bool:
        """Put it into its line, if one is before it there."""
        line = None if self.terms.overtake else self._lines.get(entry.line)
        if line is None or line[0].offset >= entry.offset:
            return False
        if _at(line, entry) is None:
            insort(line, entry, key=_place)
        return True

    def give(self, entry: Entry, consumer: Consumer) -> None:
        """A consumer gets what was ready."""
        if not entry.key[1]:
            return
        held = self._held[consumer]
        if not held:
            self._active[consumer] = self._clock.now
        held[entry.key] = entry
        entry.holder, entry.begun, entry.due = consumer, False, inf

    # -- what consumers say

    def settle(self, consumer: Consumer, message: Settle) -> list[Withdrawal]:
        """A consumer says what has become of notifications; what is taken from it."""
        self._active[consumer] = self._clock.now
        held = self._held.get(consumer, {})
        for stream, offsets in message.done.items():
            self._finish(consumer, stream, offsets)
        for stream, offsets in message.begun.items():
            for offset in offsets:
                self._begin(held.get((stream, offset)), 1)
        for stream, offset, attempt in message.again:
            self._begin(held.get((stream, offset)), attempt)
        for stream, offset, seconds in message.extended:
            entry = held.get((stream, offset))
            if entry is not None and self.terms.deadline and seconds > 0:
                entry.begun = True
                self._arm(entry, seconds)
        gone: list[Withdrawal] = []
        for refused in message.refused:
            entry = held.get((refused.stream, refused.offset))
            taken: list[int] = []
            if entry is not None and entry.attempt == refused.attempt:
                taken = [entry.offset, *self.refuse(entry, refused.cause, refused.delay)]
            gone.append((consumer, refused.stream, taken, refused.offset))
        return gone

    # -- transactions

    def state_of(self, consumer: Consumer, key: Key) -> str:
        """Whether a consumer may settle this in a transaction.

        "held", "unknown" if it is yet to come here, or "gone" if it is done or another's.
        """
        assert self._durable is not None
        entry = self._entries.get(key)
        if entry is not None:
            own = entry.holder is consumer or entry.holder is None
            return "held" if own and entry.due != -inf else "gone"
        if self._durable.is_done(*key) or key in self._durable.dying:
            return "gone"
        return "unknown"

    def claim(self, keys: Iterable[Key]) -> None:
        """These are settled by a transaction that is on its way: nobody has them meanwhile."""
        entries = [self._entries[key] for key in keys]
        if self.ready:
            self._unready({entry for entry in entries if entry.holder is None})
        for entry in entries:
            self._let_go(entry)
            entry.due = -inf

    def settle_claimed(self, keys: Iterable[Key]) -> None:
        """That is on disk."""
        streams: dict[StreamId, set[Entry]] = {}
        for key in keys:
            streams.setdefault(key[0], set()).add(self._entries[key])
        for entries in streams.values():
            self._settled(self._remove_all(entries))

    def _begin(self, entry: Entry | None, attempt: int) -> None:
        """The application has what it was given this time."""
        if entry is not None and not entry.begun and entry.attempt == attempt:
            entry.begun = True
            self._arm(entry, self.terms.deadline or inf)

    def _finish(self, consumer: Consumer, stream: StreamId, offsets: list[int]) -> None:
        """A consumer has dealt with these."""
        entries, held, lines = self._entries, self._held.get(consumer, {}), self._lines
        finished: list[Entry] = []
        others: set[Entry] = set()
        for offset in offsets:
            key = (stream, offset)
            entry = entries.get(key)
            if entry is None:
                self._done_before(stream, offset)
            elif entry.holder is consumer and not lines:  # by far the most frequent
                del entries[key], held[key]
                entry.holder, entry.due = None, inf
                self._bytes -= len(entry.data)
                finished.append(entry)
            elif (entry.holder is consumer or entry.holder is None) and entry.due != -inf:
                others.add(entry)
        if others:
            finished += self._remove_all(others)
        self._settled(finished)

    def _remove_all(self, entries: set[Entry]) -> list[Entry]:
        """The last goes first, so that no line advances."""
        if self.ready and any(entry.holder is None for entry in entries):
            self._unready(entries)
        removed = sorted(entries, key=_place)
        for entry in reversed(removed):
            self._remove(entry, ready=False)
        return removed

    def confirm(self, consumer: Consumer, positions: Positions) -> None:
        """A member names the offset that it was given last of a stream and has dealt with.

        Everything that it was given of the stream up to that one is done. It may have been given
        an offset after higher ones, so the order of giving counts.
        """
        self._active[consumer] = self._clock.now
        held = list(self._held.get(consumer, {}).values())
        last = {e.stream: i for i, e in enumerate(held) if positions.get(e.stream) == e.offset}
        for i, entry in enumerate(held):
            if i <= last.get(entry.stream, -1):
                self.finish(entry)

    def _done_before(self, stream: StreamId, offset: int) -> None:
        """It was given by way of another stream, or over a connection that is lost, and nobody has
        been given it since.
        """
        durable = self._durable
        if (
            durable is not None
            and stream in durable.done
            and not durable.is_done(stream, offset)
            and (stream, offset) not in durable.dying
            and durable.intervals < UNSETTLED
        ):
            durable.settle(stream, offset)
            self.changed = True

    def _arm(self, entry: Entry, seconds: float) -> None:
        entry.due = self._clock.now + seconds
        if entry.due != inf:
            heappush(self._due, (entry.due, next(self._order), entry))
            if len(self._due) > 2 * len(self._entries) + 1_000:  # most were settled in time
                self._due = [each for each in self._due if each[2].due == each[0]]
                heapify(self._due)

    def finish(self, entry: Entry) -> None:
        """It is done."""
        if self._entries.get(entry.key) is entry:
            self._remove(entry)
            self._settled([entry])

    def _unready(self, entries: set[Entry]) -> None:
        """These are not ready, or no longer; what is ready is looked through once."""
        if entries:
            before, self.ready = self.ready, self._queue()
            self.ready.extend([entry for entry in before if entry not in entries])

    def _remove(self, entry: Entry, *, ready: bool = True) -> None:
        """It is no longer unsettled; `ready` if it may be."""
        del self._entries[entry.key]
        self._bytes -= len(entry.data)
        if ready or entry.holder is not None:
            self._let_go(entry)
        entry.due = inf
        self._leave_line(entry)

    def _leave_line(self, entry: Entry) -> None:
        line = self._lines.get(entry.line) if self._lines else None
        if line is None:
            return
        at = _at(line, entry)
        if at is not None:
            del line[at]
        self._advance(line, entry.line)

    def _settled(self, entries: list[Entry]) -> None:
        if self._ids is not None:
            self._ids.difference_update(entry.id for entry in entries)
            for entry in entries if self._twins else ():
                for stream, offset in self._twins.pop(entry.id, ()):
                    self._done_before(stream, offset)
        if self._durable is not None and entries:
            stream = entries[0].stream
            self._durable.settle_all(stream, [e.key[1] for e in entries], [e.id for e in entries])
            self.changed = True

    def _let_go(self, entry: Entry) -> None:
        """Its holder no longer has it, and it is not ready."""
        if entry.holder is not None:
            self._held[entry.holder].pop(entry.key, None)
            entry.holder = None
        elif self.ready and entry in self.ready:
            self.ready.remove(entry)

    def _advance(self, line: list[Entry], key: Line) -> None:
        """The first of a line has changed: what need not wait any more is ready.

        But for what a transaction has taken, which is nobody's.
        """
        released = 0
        while released < len(line) and line[released].attempt == 1:
            released += 1
        self.ready.extend([entry for entry in line[:released] if entry.due != -inf])
        del line[:released]
        if not line:
            del self._lines[key]
        elif line[0].due not in (inf, -inf):
            heappush(self._due, (line[0].due, next(self._order), line[0]))

    def refuse(self, entry: Entry, cause: str, delay: float | None = None) -> list[int]:
        """A consumer could not deal with it; what else of the stream is taken from that one."""
        consumer, terms = entry.holder, self.terms
        assert consumer is not None
        self._let_go(entry)
        entry.cause = cause
        if self._durable is not None:  # somebody else may have tried meanwhile
            known = self._durable.refused.get(entry.stream, {}).get(entry.offset)
            entry.attempt = max(entry.attempt, 0 if known is None else known.attempts + 1)
        wait = delay
        if wait is None or not isfinite(wait) or wait < 0:
            wait = min(terms.most, terms.least * 2.0 ** min(entry.attempt - 1, 60))
        if self._durable is not None:
            due = self._clock.time + wait
            refusal = Refusal(entry.attempt, due, cause, str(entry.id), wait)
            self._durable.refused.setdefault(entry.stream, {})[entry.offset] = refusal
            self.changed = True
        entry.attempt += 1
        taken = self._take_back_behind(entry, consumer)
        if self._exhausted(entry.attempt - 1):
            self._die(entry)
        else:
            entry.due = self._clock.now + wait
            self._rest(entry)
        return taken

    def _exhausted(self, attempts: int) -> bool:
        return 0 < self.terms.attempts <= attempts

    def _take_back_behind(self, entry: Entry, consumer: Consumer) -> list[int]:
        """Make a line behind it, of what was given and not begun, and of what is ready."""
        if self.terms.overtake:
            return []
        line = self._lines.setdefault(entry.line, [])
        held = self._held[consumer]
        taken = [
            other
            for other in held.values()
            if not other.begun and other.offset > entry.offset and other.line == entry.line
        ]
        ready = [e for e in self.ready if e.line == entry.line and e.offset > entry.offset]
        for other in taken:
            self._let_go(other)
        if ready:
            self._unready(set(ready))
        for other in (*taken, *ready):
            other.due = self._clock.now
            if _at(line, other) is None:
                insort(line, other, key=_place)
        return [other.offset for other in taken]

    def _rest(self, entry: Entry) -> None:
        if not self.terms.overtake:
            line = self._lines.setdefault(entry.line, [])
            if _at(line, entry) is None:
                insort(line, entry, key=_place)
        heappush(self._due, (entry.due, next(self._order), entry))

    def _die(self, entry: Entry) -> None:
        entry.due = -inf
        if not self.terms.overtake:
            line = self._lines.setdefault(entry.line, [])
            if _at(line, entry) is None:
                insort(line, entry, key=_place)
        self.dying.append(entry)

    # -- time passes

    @property
    def is_due(self) -> bool:
        """Whether something comes again, or has taken too long."""
        return bool(self._due) and self._due[0][0] <= self._clock.now

    def tick(self, most: int) -> list[Withdrawal]:
        """What is due is ready, and what took too long is taken from consumers: `most` of it."""
        gone: list[Withdrawal] = []
        now, due = self._clock.now, self._due
        looked = 0
        while self.is_due and looked < LOOKED and len(gone) < most:
            looked += 1
            at, _, entry = heappop(due)
            if entry.due != at or self._entries.get(entry.key) is not entry:
                continue
            if entry.holder is not None:
                consumer = entry.holder
                seconds = f"{self.terms.deadline:g}"
                taken = self.refuse(entry, f"it was not settled within {seconds} seconds")
                gone.append((consumer, entry.stream, [entry.offset, *taken], 0))
            elif self.terms.overtake or self._lines[entry.line][0] is entry:
                entry.due = inf
                self.ready.append(entry)
        if self.terms.deadline and len(self._held) > 1:
            for consumer, held in self._held.items():
                if held and now >= self._active[consumer] + self.terms.deadline:
                    gone += self._idle(consumer, [e for e in held.values() if not e.begun])
        return gone

    def _idle(self, consumer: Consumer, entries: Iterable[Entry]) -> Iterator[Withdrawal]:
        """Others get what a consumer has not begun that settles nothing."""
        streams: dict[StreamId, list[int]] = {}
        for entry in entries:
            self._let_go(entry)
            self._again(entry)
            streams.setdefault(entry.stream, []).append(entry.offset)
        for stream, offsets in streams.items():
            yield consumer, stream, offsets, 0

    def _again(self, entry: Entry) -> None:
        """It was given in vain, by nobody's fault."""
        entry.due, entry.begun = self._clock.now, False
        if not self._waits(entry):
            entry.due = inf
            self.ready.append(entry)

    # -- consumers come and go

    def join(self, consumer: Consumer) -> None:
        self._held[consumer] = {}
        self._active[consumer] = self._clock.now

    def leave(self, consumer: Consumer) -> None:
        """What it has not settled is for others, before everything else."""
        before, self.ready = self.ready, self._queue()
        self._active.pop(consumer, None)
        for entry in self._held.pop(consumer, {}).values():
            entry.holder = None
            self._again(entry)
        self.ready.extend(before)
