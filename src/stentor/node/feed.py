"""A feed: one subscription's way from many streams to its subscriber, gapless and without repeats.

What is published at a broker forms a stream with offsets. A feed knows for each stream a
*position*: everything up to there has been queued for the subscriber or was not for it. How it
moves on from there depends on the mode in which the feed reads the stream:

- JOINING  The feed was just made and wants nothing of the past. What comes is queued. When the
           overlay has answered a probe sent after the subscription, the subscription is in force
           everywhere; the head of the stream in that answer becomes the position, and the feed is
           LIVE. If the way was interrupted meanwhile, it is CATCHING from there.
- LIVE     Everything behind the position that matches will be forwarded here, in order. An offset
           at or below the position is a repeat.
- CATCHING Something behind the position may have been missed: the way was interrupted, the queue
           was full, or the past is wanted. Stretches of the journal are fetched, one at a time and
           only while the queue has room. What arrives live meanwhile goes to a buffer. `cover` is
           the offset behind which buffer and live traffic are complete; it is unknown (None) until
           a probe sent after the interruption has been answered. As soon as the position has
           reached the cover, the buffer follows and the feed is LIVE. If the buffer overflows it
           is emptied, and the cover is at least what was seen last.
- AWAY     Nothing comes of the stream, as nothing in it is known to be for anybody here (see
           `rendezvous_directory`). All that is owed lies behind the position, which stays. When the
           stream is there it begins afresh, and the feed is CATCHING.

What the subscriber asks for may grow meanwhile (see `Interest`). Nothing published before that is
owed, so positions stay. But a stretch that was asked for by the old filters may be read after the
new ones are in force everywhere, and would hide what they match: it is asked for once more.

A feed *begins* with the first answer to a probe that was sent after its subscription: from then on
it owes its subscriber everything. Brokers that could not be reached then have no place in that
answer; when they are there, their streams are read from where they were heard to be, or from the
time on at which the feed was made. If retention has taken the beginning of such a stream, and what
is left of it is newer than the feed, something may be gone that was owed: that is a gap as well.
Who asks for the past wants what there is of it where it can be had at once; what is there only
later is owed as to everybody else.

A subscriber that is too slow therefore never holds anything up and loses nothing that is journaled:
its feed just falls back to reading journals at its own pace ("spill"). Other policies drop instead.
Notifications that no journal holds are dropped, oldest first, when the queue is full; under "block"
the owner lets publishers wait while the feed is `congested`, and twice as many are kept. It does so
for a while only; then the feed no longer `blocks`, and is served as by "spill".

A *volatile* feed has no place in any stream. What comes is queued, whether a journal holds it or
not; only what it has had of a stream is left out. It never waits for a probe, and reads no journal.

The feed is pure. Its owner tells it what happens and asks it which fetches it wants. Queue and
buffers together hold at most twice the limit and one stretch, last values not counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from stentor.errors import InvalidConfiguration, UnknownStrategy
from stentor.node.reading import STRETCH
from stentor.protocol.messages import VOLATILE, Positions, StreamId

#: What a feed does with what does not fit into its queue.
Overflow: TypeAlias = Literal["spill", "block", "drop_oldest", "drop_newest", "disconnect"]

QUEUE_LIMIT: Final = 10_000
#: Bytes that may wait for one subscription, and that are taken at once.
QUEUE_BYTES: Final = 32 * 2**20
TAKE_BYTES: Final = 4 * 2**20
#: Stretches of what was dropped that wait to be noted.
DROPS: Final = 64

JOINING: Final = 0
LIVE: Final = 1
CATCHING: Final = 2
AWAY: Final = 3


class Run(NamedTuple):
    """Notifications of one stream in order. Offsets are empty if no journal holds them.

    A `gap` has no notifications: from the first to the last offset, the journal holds nothing more.
    """

    stream: StreamId
    offsets: list[int]
    items: list[bytes]
    retained: bool = False
    gap: bool = False
    #: How often these have been given, with this time.
    attempt: int = 1

    def split(self, count: int) -> tuple[Run, Run]:
        """The first `count` and the rest."""
        stream, offsets, items, retained, *_ = self
        return (
            Run(stream, offsets[:count], items[:count], retained),
            Run(stream, offsets[count:], items[count:], retained),
        )

    @property
    def size(self) -> int:
        """Bytes of its notifications."""
        return sum(map(len, self.items))

    def fitting(self, room: int) -> int:
        """How many of its notifications have no more bytes than this."""
        return bisect_right(list(accumulate(map(len, self.items))), room)

    def after(self, position: int) -> Run | None:
        """What lies behind the position; None if nothing does."""
        offsets = self.offsets
        if offsets[0] > position:
            return self
        if offsets[-1] <= position:
            return None
        start = next(i for i, offset in enumerate(offsets) if offset > position)
        return self.split(start)[1]


class Wish(NamedTuple):
    """A fetch that the feed wants: from an offset on, or from a time on if that is 0."""

    stream: StreamId
    first: int
    since: float


@dataclass(slots=True)
class _Reading:
    """How far one stream is read, and how."""

    mode: int
    position: int = 0
    #: Whether `position` says anything; else reading starts at the feed's `since`.
    known: bool = False
    cover: int | None = None
    #: What the buffer has lost ends here; the cover is not below.
    floor: int = 0
    buffer: list[Run] = field(default_factory=list)
    buffered: int = 0
    fetching: bool = False
    #: More is asked for than by the fetch that is under way, so its answer says too little.
    stale: bool = False
    #: The last stretch ended at the head of the stream.
    at_head: bool = False
    #: The first probe whose answer tells the cover or the head.
    probe: int = 0
    #: Whether what there is of its past is enough.
    lenient: bool = False


class Feed:
    """The queue of one subscription, and its place in every stream.

    >>> feed = Feed("ann/1")
    >>> feed.offer(Run("b1#0", [7], [b"..."]))
    >>> feed.heads(1, {"b1#0": 6})
    True
    >>> feed.offer(Run("b1#0", [7, 9], [b"...", b"+++"]))
    >>> [run.offsets for run in feed.take(10)], feed.positions
    ([[7], [9]], {'b1#0': 9})
    """

    def __init__(
        self,
        id: str,
        *,
        since: float | None = None,
        positions: Positions | None = None,
        limit: int = QUEUE_LIMIT,
        overflow: str = "spill",
        probe: int = 0,
        made: float = 0.0,
        volatile: bool = False,
        patience: float = float("inf"),
        lasts: float = inf,
        resumed: bool = False,
    ) -> None:
        """`probe` is the number of the first probe that is sent after the subscription.

        Without `since` nothing of the past is wanted; `made` is the time at which that is said.
        `patience` is for how many seconds publishers wait for this subscriber, and `lasts` for how
        many it wants a notification. One that is `resumed` has begun before, and is owed all since.
        """
        if limit < 1:
            raise InvalidConfiguration(f"a queue of {limit} notifications can never deliver one")
        if overflow not in get_args(Overflow):
            raise UnknownStrategy(
                f"there is no overflow policy {overflow!r}; "
                f"choose one of {', '.join(get_args(Overflow))}"
            )
        self.id = id
        self.since = since
        self.limit = limit
        self.overflow = overflow
        self.volatile = volatile
        self.patience = patience
        self.lasts = lasts
        #: Whether something of it may expire: it is `lasts`, or a notification that said so came.
        self.perishable = lasts < inf
        #: Whether publishers are made to wait.
        self.blocks = overflow == "block"
        self._probe = probe
        self._made = made
        #: Whether it owes its subscriber all that is published from now on.
        self.begun = resumed
        self._queue: deque[Run] = deque()
        self._waiting = 0
        self._streams: dict[StreamId, _Reading] = {}
        #: Up to where a volatile feed has had each stream.
        self._had: Positions = {}
        self._buffered = 0
        #: Bytes of what waits, and of what is buffered.
        self._bytes = 0
        self._buffered_bytes = 0
        #: Fetches that are under way, and streams whose journals it reads.
        self._fetching = 0
        self._catching = 0
        self.dropped = 0
        self.delivered = 0
        #: A subscriber that must be disconnected, by its own policy.
        self.overflowed = False
        #: Last values come before everything else: until they have, nothing is taken.
        self.held = False
        #: Positions that somebody has said, the subscriber or who led to the stream before it began
        #: afresh, until it is known that streams reach there; and those that did not.
        self._claimed: Positions = dict(positions or {})
        self.taken_back: Positions = {}
        #: Where it began in each stream, if it wanted nothing of the past: behind this position.
        self.began: Positions = {}
        #: Stretches of streams in which something was dropped; who has taken note empties it.
        self.drops: list[tuple[StreamId, list[int]]] = []
        for stream, position in (positions or {}).items():
            self._add(stream, _Reading(CATCHING, position, known=True, probe=probe))

    # -- what is known

    def __len__(self) -> int:
        """Notifications that wait."""
        return self._waiting

    @property
    def breadth(self) -> int:
        """Streams that it has to do with."""
        return len(self._streams)

    @property
    def positions(self) -> Positions:
        """Everything up to here is queued, taken, or not for this feed."""
        return {s: r.position for s, r in self._streams.items() if r.known}

    @property
    def passed(self) -> Positions:
        """Everything up to here was taken, or is not for this feed."""
        if self.volatile:
            return {}
        positions = self.positions
        for stream, first in self.first_waiting().items():
            positions[stream] = min(positions[stream], first - 1)
        return positions

    def is_claim(self, stream: StreamId) -> bool:
        """Whether somebody said its position, and the stream is not known to reach there."""
        return stream in self._claimed

    @property
    def buffered(self) -> int:
        """Notifications that wait for what was missed before them."""
        return self._buffered

    @property
    def congested(self) -> bool:
        """Whether publishers are to wait for this subscriber."""
        return self.blocks and self._waiting >= self.limit

    @property
    def settled(self) -> bool:
        """Whether the feed is live on all streams that come."""
        return all(reading.mode in (LIVE, AWAY) for reading in self._streams.values())

    @property
    def is_catching(self) -> bool:
        """Whether it reads a journal."""
        return self._catching > 0

    @property
    def catching(self) -> list[StreamId]:
        """The streams whose journals it reads."""
        return [s for s, r in self._streams.items() if r.mode == CATCHING]

    def place(self, stream: StreamId, offset: int) -> Literal["waiting", "passed", "ahead"]:
        """Whether a notification that matches waits here, has been here, or is yet to come."""
        reading = self._streams.get(stream)
        runs = [self._queue] if reading is None else [self._queue, reading.buffer]
        if any(r.stream == stream and offset in r.offsets for each in runs for r in each):
            return "waiting"
        position = self._had.get(stream, 0)
        if reading is not None and reading.known and not self.is_claim(stream):
            position = max(position, reading.position)
        return "passed" if position >= offset else "ahead"

    # -- what comes

    def offer(self, run: Run) -> None:
        """Notifications that match, as the routers bring them."""
        if self.overflowed:
            return  # what comes behind something that was dropped would hide that
        if self.volatile and run.offsets:
            new = run.after(self._had.get(run.stream, 0))
            if new is not None:
                self._had[run.stream] = new.offsets[-1]
                self._offer_volatile(new)
            return
        if not run.offsets:
            self._offer_volatile(run)
            return
        reading = self._reading(run.stream)
        if reading.known and run.stream not in self._claimed:
            rest = run.after(reading.position)
            if rest is None:
                return
            run = rest
        if reading.mode in (CATCHING, AWAY):
            self._buffer(reading, run)
        elif self._has_room(run):
            self._append(run)
            reading.position, reading.known = run.offsets[-1], True
        else:
            self._overflow(reading, run)

    def _has_room(self, run: Run) -> bool:
        """Whether the run fits into the queue. One that is alone always does."""
        return self._waiting + len(run.items) <= self.limit and (
            not self._waiting or self._bytes + run.size <= QUEUE_BYTES
        )

    def _offer_volatile(self, run: Run) -> None:
        self._append(run)
        if self.overflow == "disconnect" and self._waiting > self.limit:
            self.overflowed = True
        # Publishers that are made to wait may have something under way, and those elsewhere cannot
        # be made to.
        limit = 2 * self.limit if self.blocks else self.limit
        while self._waiting > limit and self._drop_volatile(self._waiting - limit):
            pass
        while self._bytes > QUEUE_BYTES and self._waiting > 1 and self._drop_volatile(1):
            pass

    def _drop_volatile(self, surplus: int) -> bool:
        """Drop the oldest run that is not to be read again, or as much of it as is too much."""
        for i, run in enumerate(self._queue):
            if self.volatile or (not run.offsets and not run.retained):  # a gap has offsets
                if len(run.items) > surplus:
                    gone, self._queue[i] = run.split(surplus)
                else:
                    del self._queue[i]
                    gone = run
                self._bytes -= gone.size
                self._waiting -= len(gone.items)
                self._drop(gone)
                return True
        return False

    def _overflow(self, reading: _Reading, run: Run) -> None:
        """Notifications from a journal that do not fit."""
        if self.overflow in ("spill", "block"):
            if not reading.known:  # of a stream that it has just joined
                reading.position, reading.known = run.offsets[0] - 1, True
            self._turn(reading, CATCHING)
            reading.cover = run.offsets[-1]
            return
        if self.overflow == "disconnect":  # and it comes back to this position
            self.overflowed = True
            self._drop(run)
            return
        reading.position, reading.known = run.offsets[-1], True
        if self.overflow == "drop_newest":
            fits, rest = run.split(max(0, self.limit - self._waiting))
            if fits.items:
                self._append(fits)
            self._drop(rest)
        else:
            self._append(run)
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        gaps: list[Run] = []
        while self._waiting > self.limit:
            oldest = self._queue.popleft()
            if oldest.gap:
                gaps.append(oldest)  # it takes no room, and is still true
                continue
            surplus = min(self._waiting - self.limit, len(oldest.items))
            gone, rest = oldest.split(surplus)
            self._bytes -= gone.size
            self._waiting -= surplus
            self._drop(gone)
            if rest.items:
                self._queue.appendleft(rest)
        self._queue.extendleft(reversed(gaps))

    def _drop(self, run: Run) -> None:
        """These will not come any more."""
        self.dropped += len(run.items)
        if run.offsets:
            self.drops.append((run.stream, run.offsets))
            del self.drops[:-DROPS]

    def _buffer(self, reading: _Reading, run: Run) -> None:
        size = run.size
        count = self._buffered + len(run.items)
        if (
            count <= self.limit
            and self._waiting + count <= 2 * self.limit  # all of it may soon be in the queue
            and self._buffered_bytes + size <= QUEUE_BYTES
        ):
            reading.buffer.append(run)
            reading.buffered += len(run.items)
            self._buffered += len(run.items)
            self._buffered_bytes += size
        else:
            self._clear(reading)
            reading.floor = run.offsets[-1]
            if reading.cover is not None:
                reading.cover = reading.floor

    def _clear(self, reading: _Reading) -> None:
        """Empty the buffer."""
        self._buffered -= reading.buffered
        self._buffered_bytes -= sum(run.size for run in reading.buffer)
        reading.buffered = 0
        reading.buffer.clear()

    def stretch(
        self, run: Run, *, asked: int, through: int, head: int, low: int, first: int = 0
    ) -> None:
        """What was fetched from a journal: all that matches from `asked` up to `through`.

        What was asked for by time begins at `first`; if nothing older is left, it may be gone.
        """
        reading = self._streams.get(run.stream)
        if reading is None or not reading.fetching:
            return
        stale = reading.stale
        self._fetched(reading)
        if stale:
            return
        self._check_claim(run.stream, reading, head)
        if reading.mode != CATCHING:
            return
        if asked and reading.known and asked > reading.position + 1:
            self._join(reading)  # it was asked for by a claim that did not hold
            return
        if asked and reading.known:
            asked = max(asked, reading.position + 1)
        if asked and asked < low:
            self._queue.append(Run(run.stream, [asked, low - 1], [], gap=True))
        elif not (asked or reading.known or reading.lenient) and self.begun and 1 < first <= low:
            self._queue.append(Run(run.stream, [1, low - 1], [], gap=True))
        if run.offsets:
            new = run.after(reading.position) if reading.known else run
            if new is not None:
                self._append(new)
        reading.position = max(reading.position, through)
        reading.known = True
        reading.at_head = through >= head
        self._join(reading)

    def fetch_failed(self, stream: StreamId) -> None:
        """A fetch will not be answered."""
        reading = self._streams.get(stream)
        if reading is not None:
            self._fetched(reading)

    def _fetched(self, reading: _Reading) -> None:
        """No fetch of the stream is under way any more."""
        self._fetching -= reading.fetching
        reading.fetching = reading.stale = False

    def _join(self, reading: _Reading) -> None:
        """Go live if what was missed is there."""
        if reading.cover is None or not reading.known or reading.position < reading.cover:
            return
        for run in reading.buffer:
            new = run.after(reading.position)
            if new is not None:
                self._append(new)
                reading.position = new.offsets[-1]
        self._clear(reading)
        self._turn(reading, LIVE)

    def _append(self, run: Run) -> None:
        self._queue.append(run)
        self._waiting += len(run.items)
        self._bytes += run.size

    def put_last_values(self, items: list[bytes]) -> None:
        """What was kept under keys, ahead of everything else."""
        self.held = False
        if items:
            run = Run(VOLATILE, [], items, retained=True)
            self._queue.appendleft(run)
            self._waiting += len(items)
            self._bytes += run.size

    def asks_more(self) -> None:
        """The subscriber asks for more than before."""
        for reading in self._streams.values():
            reading.stale = reading.fetching

    # -- what happens to streams

    def _reading(self, stream: StreamId) -> _Reading:
        reading = self._streams.get(stream)
        if reading is None:
            mode = JOINING if self.since is None else CATCHING
            reading = self._add(stream, _Reading(mode, probe=self._probe))
        return reading

    def _add(self, stream: StreamId, reading: _Reading) -> _Reading:
        self._streams[stream] = reading
        self._catching += reading.mode == CATCHING
        return reading

    def _turn(self, reading: _Reading, mode: int) -> None:
        """From now on the stream is read in this mode."""
        self._catching += (mode == CATCHING) - (reading.mode == CATCHING)
        reading.mode = mode

    def interrupted(self, stream: StreamId, probe: int) -> None:
        """Something of the stream may have been lost on its way; `probe` will be sent after it."""
        if self.volatile:
            return
        reading = self._reading(stream)
        self._fetched(reading)
        reading.probe = probe
        if reading.mode == JOINING and not reading.known:
            return  # where it begins is not known yet, so nothing behind that is lost
        if reading.known:
            self._claimed[stream] = reading.position
        self._clear(reading)
        self._turn(reading, CATCHING)
        reading.cover = None
        reading.floor = 0
        reading.at_head = False

    def heads(
        self,
        probe: int,
        heads: Positions,
        others: Positions | None = None,
        away: Positions | None = None,
    ) -> bool:
        """The answer to a probe: where the streams were when the subscription was in force.

        `others` is how far streams were heard to be before, of which the answer says nothing;
        `away` the same of streams that were not asked, as nothing is known to be there for anybody
        here. Whether the feed begins with this, at these heads and not in the past.
        """
        begins = self.since is None and probe >= self._probe
        if not (begins or self.begun) and probe >= self._probe:
            self.begun = True
            for stream in heads:
                self._reading(stream).lenient = True
        for stream, head in (away or {}).items():
            self._presume(stream, head, probe, begins)
        for stream, head in heads.items():
            reading = self._reading(stream)
            if probe >= reading.probe and self._claimed.get(stream, 0) <= head:
                self._claimed.pop(stream, None)
            if reading.mode == JOINING:
                if begins:
                    reading.position = max(reading.position, head)
                    self.began[stream] = head
                    reading.known = True
                    self._turn(reading, LIVE if reading.probe <= probe else CATCHING)
            elif reading.mode == CATCHING and reading.cover is None and reading.probe <= probe:
                reading.cover = max(head, reading.floor)
                if stream not in self._claimed:  # or the journal must tell: it may be ahead of this
                    self._join(reading)
        if begins:
            for stream, head in (others or {}).items():
                reading = self._reading(stream)
                if reading.mode == JOINING:
                    reading.position, reading.known = max(reading.position, head), True
            self.since, self.begun = self._made, True
            for reading in self._streams.values():
                if reading.mode == JOINING:  # it cannot be reached
                    self._turn(reading, CATCHING)
        return begins

    def _presume(self, stream: StreamId, head: int, probe: int, begins: bool) -> None:
        """Nothing comes of the stream. If that changes, it begins afresh, and is read from here."""
        reading = self._reading(stream)
        if reading.mode == JOINING and begins:
            reading.position = max(reading.position, head)
            reading.known = True
        elif reading.mode != CATCHING or not reading.known:
            return
        if reading.probe <= probe:
            self._clear(reading)
            self._turn(reading, AWAY)
        else:
            self._turn(reading, CATCHING)

    def skip(self, stream: StreamId, position: int) -> None:
        """Up to here the stream holds nothing that this feed was ever owed."""
        reading = self._streams.get(stream)
        if reading is not None and reading.known:
            reading.position = max(reading.position, position)

    def _check_claim(self, stream: StreamId, reading: _Reading, head: int) -> None:
        """The journal reaches to this head, after somebody said how far it has been read.

        Who has read more than there is would miss what is to come. A stream never goes back; so
        that was no truth. The answer to a probe proves only that a stream is not behind it.
        """
        if self._claimed.pop(stream, 0) > head:
            reading.position = self.taken_back[stream] = head

    def unproved(self, probe: int) -> set[StreamId]:
        """Streams to which the way was interrupted, and that this probe may prove to be there."""
        return {
            stream
            for stream, reading in self._streams.items()
            if reading.mode == CATCHING and reading.cover is None and reading.probe <= probe
        }

    def waits_for(self, probe: int) -> bool:
        """Whether it waits for a later probe than this one: to begin at all, or for a stream."""
        waiting = (JOINING, CATCHING)
        return self._probe > probe or any(
            r.mode in waiting and r.probe > probe for r in self._streams.values()
        )

    def mark(self, stream: StreamId, head: int) -> bool:
        """All of the stream up to here has been forwarded; whether the position has moved."""
        reading = self._streams.get(stream)
        if self.overflowed or reading is None or reading.mode != LIVE or reading.position >= head:
            return False
        reading.position = head
        return True

    def wishes(self) -> Iterator[Wish]:
        """Fetches that the feed wants now; the owner reports each with `fetches` when sent."""
        for stream, reading in list(self._streams.items()):
            if 2 * (self._waiting + self._fetching * STRETCH) > self.limit:
                return
            if (
                reading.mode == CATCHING
                and not reading.fetching
                and not (reading.at_head and reading.cover is None)
            ):
                if reading.known:
                    yield Wish(stream, reading.position + 1, 0.0)
                else:
                    yield Wish(stream, 0, self.since or 0.0)

    def fetches(self, stream: StreamId) -> None:
        """A fetch of this stream is under way."""
        reading = self._streams.pop(stream)
        self._streams[stream] = reading  # the next one is another stream's turn
        reading.fetching = True
        self._fetching += 1

    # -- what goes

    def take(self, credit: int) -> list[Run]:
        """Up to `credit` notifications, in order, and not many bytes at once; `more` may wait."""
        if self.held:
            return []
        taken: list[Run] = []
        room = TAKE_BYTES
        queue = self._queue
        while queue and credit > 0:
            run = queue.popleft()
            count = len(run.items)
            if count > credit:
                run, rest = run.split(credit)
                queue.appendleft(rest)
                count = credit
            size = run.size
            if size > room:
                fits = max(int(not taken), run.fitting(room))
                if not fits:
                    queue.appendleft(run)
                    break
                run, rest = run.split(fits)
                if rest.items:
                    queue.appendleft(rest)
                count, size = fits, run.size
            room -= size
            credit -= count
            self._bytes -= size
            self._waiting -= count
            self.delivered += count
            taken.append(run)
        return taken

    def first_waiting(self) -> Positions:
        """The lowest offset of each stream that waits."""
        first: Positions = {}
        for run in self._queue:
            if run.offsets:
                first[run.stream] = min(run.offsets[0], first.get(run.stream, run.offsets[0]))
        return first
