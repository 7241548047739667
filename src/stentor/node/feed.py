"""A feed: one subscription's way from many streams to its subscriber, gapless and without repeats.

What is published at a broker forms a stream with offsets. A feed knows for each stream a
*position*: everything up to there has been queued for the subscriber or was not for it. How it
moves on from there depends on the mode in which the feed reads the stream:

- JOINING  The feed was just made and wants nothing of the past. What comes is queued. When the
           overlay has answered a probe sent after the subscription, the subscription is in force
           everywhere; the head of the stream in that answer becomes the position, and the feed is
           LIVE.
- LIVE     Everything behind the position that matches will be forwarded here, in order. An offset
           at or below the position is a repeat.
- CATCHING Something behind the position may have been missed: the way was interrupted, the queue
           was full, or the past is wanted. Stretches of the journal are fetched, one at a time and
           only while the queue has room. What arrives live meanwhile goes to a buffer. `cover` is
           the offset behind which buffer and live traffic are complete; it is unknown (None) until
           a probe sent after the interruption has been answered. As soon as the position has
           reached the cover, the buffer follows and the feed is LIVE. If the buffer overflows it
           is emptied, and the cover moves up to what was seen last.

A subscriber that is too slow therefore never holds anything up and loses nothing that is journaled:
its feed just falls back to reading journals at its own pace ("spill"). Other policies drop instead.
Notifications that no journal holds are dropped, oldest first, when the queue is full.

The feed is pure. Its owner tells it what happens and asks it which fetches it wants; memory is
bounded by the queue, the buffer (as large again) and one stretch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from stentor.errors import InvalidConfiguration, UnknownStrategy
from stentor.filters import Filter
from stentor.protocol.messages import VOLATILE, Positions, StreamId

#: What a feed does with what does not fit into its queue.
Overflow: TypeAlias = Literal["spill", "drop_oldest", "drop_newest", "disconnect"]

QUEUE_LIMIT: Final = 10_000

JOINING: Final = 0
LIVE: Final = 1
CATCHING: Final = 2


class Run(NamedTuple):
    """Notifications of one stream in order. Offsets are empty if no journal holds them."""

    stream: StreamId
    offsets: list[int]
    items: list[bytes]
    retained: bool = False

    def split(self, count: int) -> tuple[Run, Run]:
        """The first `count` and the rest."""
        stream, offsets, items, retained = self
        return (
            Run(stream, offsets[:count], items[:count], retained),
            Run(stream, offsets[count:], items[count:], retained),
        )

    def after(self, position: int) -> Run | None:
        """What lies behind the position; None if nothing does."""
        offsets = self.offsets
        if offsets[0] > position:
            return self
        if offsets[-1] <= position:
            return None
        start = next(i for i, offset in enumerate(offsets) if offset > position)
        return self.split(start)[1]


class Missing(NamedTuple):
    """A stretch of a journal that was wanted and no longer exists."""

    stream: StreamId
    first: int
    last: int


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
    buffer: list[Run] = field(default_factory=list)
    buffered: int = 0
    fetching: bool = False
    #: The last stretch ended at the head of the stream.
    at_head: bool = False
    #: The first probe whose answer tells the cover or the head.
    probe: int = 0


class Feed:
    """The queue of one subscription, and its place in every stream.

    >>> feed = Feed("ann/1", Filter("price > 100"))
    >>> feed.offer(Run("b1#0", [7], [b"..."]))
    >>> feed.heads(1, {"b1#0": 6})
    []
    >>> feed.offer(Run("b1#0", [7, 9], [b"...", b"+++"]))
    >>> [run.offsets for run in feed.take(10)], feed.positions
    ([[7], [9]], {'b1#0': 9})
    """

    def __init__(
        self,
        id: str,
        filter: Filter,
        *,
        since: float | None = None,
        positions: Positions | None = None,
        limit: int = QUEUE_LIMIT,
        overflow: str = "spill",
        probe: int = 0,
    ) -> None:
        """`probe` is the number of the first probe that is sent after the subscription."""
        if limit < 1:
            raise InvalidConfiguration(f"a queue of {limit} notifications can never deliver one")
        if overflow not in get_args(Overflow):
            raise UnknownStrategy(
                f"there is no overflow policy {overflow!r}; "
                f"choose one of {', '.join(get_args(Overflow))}"
            )
        self.id = id
        self.filter = filter
        self.since = since
        self.limit = limit
        self.overflow = overflow
        self._probe = probe
        self._queue: deque[Run] = deque()
        self._waiting = 0
        self._streams: dict[StreamId, _Reading] = {}
        #: Journal stretches that were gone, to be told to the subscriber.
        self.missing: list[Missing] = []
        self.dropped = 0
        self.delivered = 0
        #: A subscriber that must be disconnected, by its own policy.
        self.overflowed = False
        #: Last values come before everything else: until they have, nothing is taken.
        self.held = False
        for stream, position in (positions or {}).items():
            self._streams[stream] = _Reading(CATCHING, position, known=True, probe=probe)

    # -- what is known

    def __len__(self) -> int:
        """Notifications that wait."""
        return self._waiting

    @property
    def positions(self) -> Positions:
        """Everything up to here is queued, taken, or not for this feed."""
        return {s: r.position for s, r in self._streams.items() if r.known}

    @property
    def settled(self) -> bool:
        """Whether the feed is live on all streams that it knows."""
        return all(reading.mode == LIVE for reading in self._streams.values())

    @property
    def catching(self) -> list[StreamId]:
        """The streams whose journals it reads."""
        return [s for s, r in self._streams.items() if r.mode == CATCHING]

    # -- what comes

    def offer(self, run: Run) -> None:
        """Notifications that match, as the routers bring them."""
        if not run.offsets:
            self._offer_volatile(run)
            return
        reading = self._reading(run.stream)
        if reading.known:
            rest = run.after(reading.position)
            if rest is None:
                return
            run = rest
        if reading.mode == CATCHING:
            self._buffer(reading, run)
        elif self._waiting + len(run.items) <= self.limit:
            self._append(run)
            reading.position, reading.known = run.offsets[-1], True
        else:
            self._overflow(reading, run)

    def _offer_volatile(self, run: Run) -> None:
        self._append(run)
        if self.overflow == "disconnect" and self._waiting > self.limit:
            self.overflowed = True
        while self._waiting > self.limit and self._drop_volatile():
            pass

    def _drop_volatile(self) -> bool:
        """Drop the oldest run that no journal holds, or as much of it as is too much."""
        for i, run in enumerate(self._queue):
            if not run.offsets and not run.retained:
                surplus = self._waiting - self.limit
                if len(run.items) > surplus:
                    self._queue[i] = run.split(surplus)[1]
                    gone = surplus
                else:
                    del self._queue[i]
                    gone = len(run.items)
                self._waiting -= gone
                self.dropped += gone
                return True
        return False

    def _overflow(self, reading: _Reading, run: Run) -> None:
        """Notifications from a journal that do not fit."""
        if self.overflow == "spill":
            if not reading.known:  # of a stream that it has just joined
                reading.position, reading.known = run.offsets[0] - 1, True
            reading.mode = CATCHING
            reading.cover = run.offsets[-1]
            reading.at_head = False
            return
        reading.position, reading.known = run.offsets[-1], True
        if self.overflow == "disconnect":
            self.overflowed = True
            self.dropped += len(run.items)
        elif self.overflow == "drop_newest":
            room = max(0, self.limit - self._waiting)
            if room:
                self._append(run.split(room)[0])
            self.dropped += len(run.items) - room
        else:
            self._append(run)
            while self._waiting > self.limit:
                oldest = self._queue.popleft()
                surplus = self._waiting - self.limit
                self._waiting -= len(oldest.items)
                self.dropped += min(surplus, len(oldest.items))
                if len(oldest.items) > surplus:
                    rest = oldest.split(surplus)[1]
                    self._queue.appendleft(rest)
                    self._waiting += len(rest.items)

    def _buffer(self, reading: _Reading, run: Run) -> None:
        if reading.buffered + len(run.items) <= self.limit:
            reading.buffer.append(run)
            reading.buffered += len(run.items)
        else:
            reading.buffer.clear()
            reading.buffered = 0
            if reading.cover is not None:
                reading.cover = run.offsets[-1]
            else:
                # Not even the beginning is known: the next answer to a probe tells where live
                # traffic is complete, but what has just been dropped lies behind it.
                reading.probe = -1

    def stretch(self, run: Run, *, asked: int, through: int, head: int, low: int) -> None:
        """What was fetched from a journal: all that matches from `asked` up to `through`."""
        reading = self._streams.get(run.stream)
        if reading is None or not reading.fetching:
            return
        reading.fetching = False
        if reading.mode != CATCHING:
            return
        if asked and asked < low:
            self.missing.append(Missing(run.stream, asked, low - 1))
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
            reading.fetching = False

    def _join(self, reading: _Reading) -> None:
        """Go live if what was missed is there."""
        if reading.cover is None or not reading.known or reading.position < reading.cover:
            return
        for run in reading.buffer:
            new = run.after(reading.position)
            if new is not None:
                self._append(new)
                reading.position = new.offsets[-1]
        reading.buffer.clear()
        reading.buffered = 0
        reading.mode = LIVE

    def _append(self, run: Run) -> None:
        self._queue.append(run)
        self._waiting += len(run.items)

    def put_last_values(self, items: list[bytes]) -> None:
        """What was kept under keys, ahead of everything else."""
        self.held = False
        if items:
            self._queue.appendleft(Run(VOLATILE, [], items, retained=True))
            self._waiting += len(items)

    # -- what happens to streams

    def _reading(self, stream: StreamId) -> _Reading:
        reading = self._streams.get(stream)
        if reading is None:
            mode = JOINING if self.since is None else CATCHING
            reading = self._streams[stream] = _Reading(mode, probe=self._probe)
        return reading

    def interrupted(self, stream: StreamId, probe: int) -> None:
        """Something of the stream may have been lost on its way; `probe` will be sent after it."""
        reading = self._reading(stream)
        reading.fetching = False
        reading.probe = probe
        if reading.known:
            reading.mode = CATCHING
            reading.cover = None
            reading.at_head = False
            reading.buffer.clear()
            reading.buffered = 0

    def heads(self, probe: int, heads: Positions) -> list[StreamId]:
        """The answer to a probe: where the streams were when the subscription was in force.

        The streams that are named in the answer have to be probed once more.
        """
        again = []
        for stream, head in heads.items():
            reading = self._reading(stream)
            if reading.probe == -1:
                again.append(stream)
                reading.probe = probe + 1
            elif reading.probe > probe:
                continue
            elif reading.mode == JOINING:
                reading.position = max(reading.position, head)
                reading.known = True
                reading.mode = LIVE
            elif reading.mode == CATCHING and reading.cover is None:
                reading.cover = head
                self._join(reading)
        return again

    def waits_for(self, probe: int) -> bool:
        """Whether a stream waits for a later probe than this one."""
        return any(r.mode != LIVE and r.probe > probe for r in self._streams.values())

    def mark(self, stream: StreamId, head: int) -> bool:
        """All of the stream up to here has been forwarded; whether the position has moved."""
        reading = self._streams.get(stream)
        if reading is not None and reading.mode == LIVE and reading.position < head:
            reading.position = head
            return True
        return False

    def wishes(self) -> Iterator[Wish]:
        """Fetches that the feed wants now; the owner reports each with `fetches` when sent."""
        if 2 * self._waiting > self.limit:
            return
        for stream, reading in self._streams.items():
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
        self._streams[stream].fetching = True

    # -- what goes

    def take(self, credit: int) -> list[Run]:
        """Up to `credit` notifications, in order."""
        if self.held:
            return []
        taken: list[Run] = []
        queue = self._queue
        while queue and credit > 0:
            run = queue.popleft()
            count = len(run.items)
            if count > credit:
                run, rest = run.split(credit)
                queue.appendleft(rest)
                count = credit
            credit -= count
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

    def put_back(self, runs: Iterable[Run]) -> None:
        """Notifications that were taken and not delivered, to be taken again."""
        for run in reversed(list(runs)):
            self._queue.appendleft(run)
            self._waiting += len(run.items)
            self.delivered -= len(run.items)
