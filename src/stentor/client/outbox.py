"""What was published and is not yet answered, in order: the sending half of a client, pure.

Publications are collected in *frames*, each one `Publish` message. The newest frame stays open
until it is taken to be sent, so everything that is published in the meantime shares it; nothing
waits for company. A frame goes through three places:

    queued ──take──▶ unanswered ──published / rejected──▶ gone
       ▲                  │
       └────── lost ──────┘

The broker answers in order: `Published` ends all frames up to a number. `Rejected` names items of
one frame that were refused; the rest of the frame still waits. At most `window` notifications are
unanswered, and all in all the outbox takes `limit` notifications or `limit_bytes` bytes until it is
`full`; whoever publishes then waits for room.

When the connection is lost, the unanswered frames go back in front of the queue and are sent again
with the same numbers and the same ids. Their broker tells on reconnection what it has journaled of
this client: frames up to there are answered by that. Items of a frame that it has already are sent
once more and dropped there by their ids. What was refused is never sent again. Volatile
publications that were on their way are lost, which is what volatile means.

Who waits for a publication gives a *waiter*, a function that is called once with None when it is
journaled, or with the error. A *barrier* is called when everything queued before it is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from stentor.errors import Overloaded, StentorError, Unreachable
from stentor.notation.counts import counted
from stentor.protocol.messages import Publish

#: Called once, with the error if it went wrong.
Waiter: TypeAlias = Callable[[StentorError | None], None]
#: Called with items that were refused and that nobody waits for, and the reason.
Refusals: TypeAlias = Callable[[list[bytes], StentorError], None]

#: Items and bytes of one frame.
FRAME_ITEMS: Final = 1_000
FRAME_BYTES: Final = 256 * 1024
#: Notifications and bytes that may wait until publishers have to.
LIMIT: Final = 50_000
LIMIT_BYTES: Final = 64 * 2**20
#: What a frame adds to its items, generously: its fields, and a length for each item.
_FRAME_OVERHEAD: Final = 64
_ITEM_OVERHEAD: Final = 5
_KEY_OVERHEAD: Final = 10


class _Frame:
    __slots__ = (
        "atomic",
        "items",
        "newest",
        "number",
        "places",
        "refused",
        "retain",
        "size",
        "ticket",
        "volatile",
        "waiters",
    )

    def __init__(self, ticket: int, *, volatile: bool, atomic: bool) -> None:
        #: Place among all frames, in order of publication.
        self.ticket = ticket
        self.number = 0
        self.items: list[bytes] = []
        self.size = 0
        #: The sequence number of the last item.
        self.newest = -1
        self.volatile = volatile
        self.atomic = atomic
        self.retain: dict[int, str] = {}
        #: Who waits for the items from one index up to another.
        self.waiters: list[tuple[int, int, Waiter]] = []
        self.refused: set[int] = set()
        #: Indexes of the items as sent, if some were left out.
        self.places: list[int] | None = None


class Outbox:
    """Publications on their way.

    >>> outbox = Outbox()
    >>> outbox.put([b"a", b"b"], newest=1, waiter=lambda error: print("journaled", error))
    >>> outbox.take(lambda: 7).items
    [b'a', b'b']
    >>> outbox.published(7)
    journaled None
    >>> len(outbox)
    0
    """

    def __init__(self, limit: int = LIMIT, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        #: As the broker said. 0: it did not.
        self.window = 0
        self.max_frame = 0
        self._frame_bytes = FRAME_BYTES
        self._frame_items = FRAME_ITEMS
        self._queue: deque[_Frame] = deque()
        self._unanswered: deque[_Frame] = deque()
        self._in_flight = 0
        self._count = 0
        self._bytes = 0
        self._tickets = 0
        self._barriers: deque[tuple[int, Waiter]] = deque()
        #: Volatile publications that went down with a connection.
        self.lost = 0
        #: Publications that a broker refused, and who is told of those that nobody waits for.
        self.rejections = 0
        self.on_refusal: Refusals = lambda items, error: None
        #: Called with items that are in the journal, if somebody wants to know.
        self.on_journaled: Callable[[list[bytes]], None] | None = None

    def __len__(self) -> int:
        """Notifications that are not yet answered, sent or not."""
        return self._count

    @property
    def full(self) -> bool:
        """Whether a publisher has to wait."""
        return self._count >= self._limit or self._bytes >= self._limit_bytes

    @property
    def awaited(self) -> bool:
        """Whether somebody waits until everything is answered."""
        return bool(self._barriers)

    # -- in

    def put(
        self,
        items: list[bytes],
        *,
        newest: int,
        volatile: bool = False,
        atomic: bool = False,
        retain: dict[int, str] | None = None,
        waiter: Waiter | None = None,
    ) -> None:
        """Queue encoded notifications, the last of which has this sequence number.

        The list is the outbox's from now on. `Overloaded` if no frame can hold them; atomic ones
        must go into one.
        """
        size = sum(map(len, items)) + _ITEM_OVERHEAD * len(items)
        if retain:
            size += sum(4 * len(key) + _KEY_OVERHEAD for key in retain.values())
        frame = self._queue[-1] if self._queue else None
        if (
            frame is None
            or atomic
            or frame.atomic
            or frame.number
            or frame.volatile is not volatile
            or len(frame.items) + len(items) > self._frame_items
            or frame.size + size > self._frame_bytes
        ):
            self.check(items, size, atomic)
            self._tickets += 1
            frame = _Frame(self._tickets, volatile=volatile, atomic=atomic)
            self._queue.append(frame)
        start = len(frame.items)
        if start:
            frame.items += items
        else:
            frame.items = items
        frame.size += size
        frame.newest = newest
        if retain:
            for index, key in retain.items():
                frame.retain[start + index] = key
        if waiter is not None:
            frame.waiters.append((start, start + len(items), waiter))
        self._count += len(items)
        self._bytes += size

    def check(self, items: list[bytes], size: int, atomic: bool) -> None:
        """Raise `Overloaded` if no frame can hold these."""
        if self.max_frame and size > self.max_frame - _FRAME_OVERHEAD:
            what = "the transaction takes" if atomic else "this takes"
            raise Overloaded(
                f"{what} {size} bytes, and the broker accepts frames of {self.max_frame}; "
                "publish less at once, or raise the broker's limit"
            )
        if 0 < self.window < len(items):
            raise Overloaded(
                f"{len(items)} notifications at once, and the broker allows {self.window} "
                "without an answer; publish fewer at once, or raise the broker's limit"
            )

    def barrier(self, waiter: Waiter) -> None:
        """Call the waiter as soon as everything that was put in so far is answered."""
        if self._count == 0:
            waiter(None)
        else:
            self._barriers.append((self._tickets, waiter))

    # -- out

    def take(self, number: Callable[[], int]) -> Publish | None:
        """The next message, if one may be sent now; `number` makes the number of a new frame."""
        if not self._queue or not self._fits(self._queue[0]):
            return None
        frame = self._queue.popleft()
        if not frame.number:
            frame.number = number()
        self._unanswered.append(frame)
        self._in_flight += len(frame.items) - len(frame.refused)
        return _message(frame)

    def _fits(self, frame: _Frame) -> bool:
        in_flight = self._in_flight
        return not (self.window and in_flight and in_flight + len(frame.items) > self.window)

    # -- answers

    def published(self, through: int) -> None:
        """Everything up to this number is in the journal."""
        unanswered = self._unanswered
        while unanswered and unanswered[0].number <= through:
            frame = unanswered.popleft()
            self._in_flight -= len(frame.items) - len(frame.refused)
            self._end(frame, None)
        if self._barriers:
            self._lift()

    def rejected(self, number: int, indexes: list[int] | None, error: StentorError) -> None:
        """Items of a frame were refused, or all of them."""
        frame = next((each for each in self._unanswered if each.number == number), None)
        if frame is None:
            return
        if indexes is None:
            indexes = list(range(len(frame.items)))
        elif frame.places is not None:
            indexes = [frame.places[i] for i in indexes if 0 <= i < len(frame.places)]
        new = {i for i in indexes if 0 <= i < len(frame.items)} - frame.refused
        frame.refused |= new
        self._in_flight -= len(new)
        self.rejections += len(new)
        heard = set[int]()
        waiting = []
        for start, stop, waiter in frame.waiters:
            if any(start <= i < stop for i in new):
                heard.update(range(start, stop))
                waiter(error)
            else:
                waiting.append((start, stop, waiter))
        frame.waiters = waiting
        if new - heard:
            self.on_refusal([frame.items[i] for i in sorted(new - heard)], error)
        if len(frame.refused) == len(frame.items):
            self._unanswered.remove(frame)
            self._end(frame, None)
        if self._barriers:
            self._lift()

    def _end(self, frame: _Frame, error: StentorError | None) -> None:
        self._count -= len(frame.items)
        self._bytes -= frame.size
        if self.on_journaled is not None and error is None and not frame.volatile:
            self.on_journaled([x for i, x in enumerate(frame.items) if i not in frame.refused])
        for _, _, waiter in frame.waiters:
            waiter(error)

    def _lift(self) -> None:
        """Call the barriers that nothing is left in front of."""
        oldest = self._tickets + 1
        if self._queue:
            oldest = self._queue[0].ticket
        if self._unanswered:
            oldest = min(oldest, self._unanswered[0].ticket)
        while self._barriers and self._barriers[0][0] < oldest:
            self._barriers.popleft()[1](None)

    # -- the connection

    def connection_lost(self) -> None:
        """Nothing that was sent and not answered can be relied on."""
        kept = []
        for frame in self._unanswered:
            if frame.volatile:
                self.lost += len(frame.items)
                self._end(
                    frame,
                    Unreachable(
                        "the connection was lost with this volatile publication on its way; "
                        "it may or may not have been delivered, and is not sent again"
                    ),
                )
            else:
                kept.append(frame)
        self._unanswered.clear()
        self._in_flight = 0
        self._queue.extendleft(reversed(kept))
        self._lift()

    def connected(self, newest: int, window: int, max_frame: int) -> None:
        """A connection is there; its broker has journaled everything up to a sequence number."""
        self.window = window
        self.max_frame = max_frame
        self._frame_items = min(FRAME_ITEMS, window or FRAME_ITEMS)
        if max_frame:
            self._frame_bytes = min(FRAME_BYTES, max_frame - _FRAME_OVERHEAD)
        while self._queue and self._queue[0].number and self._queue[0].newest <= newest:
            self._end(self._queue.popleft(), None)
        if max_frame:
            self._refuse_too_large()
        self._lift()

    def _refuse_too_large(self) -> None:
        """Frames that another broker would have taken, but not this one."""
        for frame in [f for f in self._queue if f.size > self.max_frame - _FRAME_OVERHEAD]:
            self._queue.remove(frame)
            error = Overloaded(
                f"{counted(len(frame.items), 'publication')} of {frame.size} bytes, more than "
                f"this broker accepts in a frame, {self.max_frame} bytes; raise its limit"
            )
            self.rejections += len(frame.items)
            heard = {i for start, stop, _ in frame.waiters for i in range(start, stop)}
            unheard = [item for i, item in enumerate(frame.items) if i not in heard]
            if unheard:
                self.on_refusal(unheard, error)
            self._end(frame, error)

    def fail(self, error: StentorError) -> None:
        """Give everything up."""
        frames = [*self._unanswered, *self._queue]
        barriers = [waiter for _, waiter in self._barriers]
        self._unanswered.clear()
        self._queue.clear()
        self._barriers.clear()
        self._in_flight = 0
        for frame in frames:
            self._end(frame, error)
        for waiter in barriers:
            waiter(error)


def pieces(items: list[bytes]) -> Iterator[list[bytes]]:
    """The same in lists that each fit into a frame.

    >>> [len(piece) for piece in pieces([bytes(100_000)] * 5)]
    [2, 2, 1]
    """
    if sum(map(len, items)) <= FRAME_BYTES - _ITEM_OVERHEAD * len(items):
        yield items
        return
    start = size = 0
    for i, item in enumerate(items):
        size += len(item) + _ITEM_OVERHEAD
        if size > FRAME_BYTES and i > start:
            yield items[start:i]
            start, size = i, len(item) + _ITEM_OVERHEAD
    yield items[start:]


def _message(frame: _Frame) -> Publish:
    items, retain = frame.items, frame.retain
    if frame.refused:
        places = [i for i in range(len(items)) if i not in frame.refused]
        frame.places = places
        items = [items[i] for i in places]
        retain = {new: retain[old] for new, old in enumerate(places) if old in retain}
    return Publish(frame.number, items, frame.volatile, frame.atomic, retain)
