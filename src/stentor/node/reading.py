"""Reading journals: for feeds, here and elsewhere in the overlay, and for clients in bulk.

A *serving* broker reads one stretch of its journal at a time, so that no request holds up live
traffic: at most `STRETCH` entries or `LOOKED_BYTES` are looked at, or `STRETCH_BYTES` returned, and
the answer says how far it goes. A *fetching* broker has at most `FETCHES` requests on their way;
feeds that want more wait for their turn. A client that reads in bulk gets larger stretches as long
as nothing has to be decoded for them, and has at most `READS` requests waiting. It may do without
payloads and without attributes that it has no use for, or ask for times and sizes alone, to find
out in which order journals should be read, and how much at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from itertools import accumulate
from secrets import randbits
from typing import Final, Generic, NamedTuple, TypeVar

from stentor.errors import JournalDamaged, StentorError
from stentor.filters import Filter
from stentor.matching.index import select
from stentor.model.codec import Envelope, decode_headers, without_payloads
from stentor.model.moments import moments
from stentor.model.projection import projected
from stentor.model.stamp import any_stamped, without_stamps
from stentor.node.log import LastValue, Log
from stentor.node.pieces import pieces
from stentor.protocol.messages import Chunk, Fetch, Read, StreamId, Stretch
from stentor.scopes.places import View

STRETCH: Final = 1_000
STRETCH_BYTES: Final = 256 * 1024
#: Bytes that are looked at in search of what a filter matches.
LOOKED_BYTES: Final = 256 * 1024
FETCHES: Final = 32
#: Seconds after which a request that is not answered is made again.
LOST: Final = 20.0
#: The same for a client that reads everything: nothing is decoded, the entries only pass through.
BULK: Final = 4_096
BULK_BYTES: Final = 1024 * 1024
READS: Final = 16
#: Last values that are looked at in one step.
LAST_VALUES: Final = 1_000


#: What a text is read as.
Meaning = TypeVar("Meaning")
#: Filters that are remembered, and characters of all their texts.
REMEMBERED: Final = 4_096
REMEMBERED_TEXT: Final = 2**20


class Texts(Generic[Meaning]):
    """What came of the filters, or patterns, that were read last: the same texts come again."""

    def __init__(self, read: Callable[[str], Meaning], most: int = REMEMBERED) -> None:
        """`most` is how many are remembered."""
        self._read = read
        self._most = most
        self._known: OrderedDict[str, Meaning | StentorError] = OrderedDict()
        self._characters = 0

    def __call__(self, text: str) -> Meaning:
        """What it means; raises what is wrong with the text."""
        found = self._known.get(text)
        if found is None:
            found = self.outcome(text)
            self.remember(text, found)
        if isinstance(found, StentorError):
            raise copy(found)  # what is raised keeps all who called, and this one is remembered
        return found

    def outcome(self, text: str) -> Meaning | StentorError:
        """What it means, or what is wrong with the text. May be called in any thread."""
        try:
            return self._read(text)
        except StentorError as error:
            return error.with_traceback(None)

    def remember(self, text: str, found: Meaning | StentorError) -> None:
        """Know what comes of a text, as it may take long to find out."""
        known = self._known
        if known.pop(text, None) is None:
            self._characters += len(text)
        known[text] = found
        while len(known) > self._most or (self._characters > REMEMBERED_TEXT and len(known) > 1):
            self._characters -= len(known.popitem(last=False)[0])


#: What a client asks for, if it is within what one request may cost.
received: Final = Texts(Filter.received)
#: What brokers tell each other: what one of them has taken, the others take, too.
parsed: Final = Texts(Filter)


def stretch(log: Log, head: int, fetch: Fetch) -> Chunk:
    """The next stretch that a request asks for; `head` is the last offset that was routed."""
    low = log.low
    first = fetch.first or log.offset_at(fetch.since)
    first = max(first, low, 1)
    end = min(head, first + STRETCH - 1)
    offsets, items, through = _scan(log, first, end, parsed(fetch.filter), STRETCH_BYTES)
    place = fetch.origin, fetch.number, log.stream
    return Chunk(*place, offsets, items, through, head, low, first=first)


class Sight:
    """Who reads a journal where there is a scope graph: a component, or, with None, an auditor.

    A component reads what it may see, and an auditor all that was published, as it was published.
    """

    def __init__(self, view: View | None) -> None:
        self._view = view
        self.within = Filter() if view is None else view.constraint

    def of(self, offsets: list[int], items: list[bytes]) -> tuple[list[int], list[bytes]]:
        """Those of these that are to be seen, without stamps."""
        seen = [i for i, each in enumerate(decode_headers(items)) if self._sees(each)]
        return [offsets[i] for i in seen], without_stamps([items[i] for i in seen])

    def _sees(self, envelope: Envelope) -> bool:
        if self._view is not None:
            return self._view.sees(envelope.stamp)
        stamp, id = envelope.stamp, envelope.id
        return stamp is None or id is None or id.producer == stamp.publisher


def bulk(log: Log, head: int, read: Read, sight: Sight | None = None) -> Stretch:
    """The next stretch that a client asks for."""
    low = log.low
    first = max(read.first, low, 1)
    filter = received(read.filter)
    if sight is not None:
        filter &= sight.within
    as_they_are = filter.is_always and not read.times and sight is None
    count, size = (BULK, BULK_BYTES) if as_they_are else (STRETCH, STRETCH_BYTES)
    end = min(head, read.last or head, first + count - 1)
    offsets, items, through = _scan(log, first, end, filter, size)
    if sight is None and any_stamped(items):  # under a graph that is not known here
        sight = Sight(View("", {}, True))
    if sight is not None:
        offsets, items = sight.of(offsets, items)
    times = moments(items, read.times) if read.times else []
    if read.headers:
        items = without_payloads(items)
    if read.attributes is not None:
        items = projected(items, read.attributes)
    if read.times:
        sizes = list(map(len, items))
        return Stretch(read.number, log.stream, offsets, [], through, head, low, times, sizes)
    return Stretch(read.number, log.stream, offsets, items, through, head, low)


def _scan(
    log: Log, first: int, end: int, filter: Filter, limit: int
) -> tuple[list[int], list[bytes], int]:
    """What the filter matches from `first` to `end`, and how far that goes: `limit` is in bytes."""
    offsets: list[int] = []
    items: list[bytes] = []
    size = looked = 0
    at = first
    while at <= end and size < limit and looked < LOOKED_BYTES:
        try:
            found = log.read(at, end - at + 1)
        except JournalDamaged:
            if at == first:
                raise
            break  # first what is intact; who goes on from there hears of the damage
        if filter.is_always:
            wanted: Iterable[int] = range(len(found))
        else:
            ends = list(accumulate(map(len, found), initial=looked))
            fitting = max(1, bisect_right(ends, LOOKED_BYTES) - 1)
            looked = ends[fitting] if fitting == len(found) else LOOKED_BYTES
            found = found[:fitting]
            wanted = select(filter, decode_headers(found))
        for i in wanted:
            size += len(found[i])
            if items and size > limit:  # large ones travel alone, so that any frame can hold them
                return offsets, items, at + i - 1
            offsets.append(at + i)
            items.append(found[i])
        at += len(found)
    return offsets, items, at - 1


def last_values(log: Log, fetch: Fetch) -> Iterator[Chunk | None]:
    """The last values that a request asks for, in chunks: the last goes `through` to the head.

    What lies between two of them is one step; None is one that has found nothing.
    """
    filter = parsed(fetch.filter)
    done, after, more = 0, "", True
    page: list[LastValue] = []
    while more:
        if not page:
            page = log.last_values(after, LAST_VALUES)
            more = bool(page)
        ends = list(accumulate(len(value.data) for value in page))
        fitting = max(1, bisect_right(ends, LOOKED_BYTES))
        some, page = page[:fitting], page[fitting:]
        envelopes = decode_headers([value.data for value in some])
        kept = [v for v, e in zip(some, envelopes, strict=True) if filter.matches(e.facts)]
        after = some[-1].key if some else after
        if more and not kept:
            yield None
            continue
        start = 0
        for _, items in pieces([], [value.data for value in kept]):
            these = kept[start : start + len(items)]
            start += len(items)
            done += len(items)
            yield Chunk(
                fetch.origin,
                fetch.number,
                log.stream,
                [],
                items,
                through=done,
                head=done + more,
                times=[value.time for value in these],
                keys=[value.key for value in these],
            )


class Pending(NamedTuple):
    """A request that is on its way."""

    feed: str
    stream: StreamId
    first: int
    retained: bool
    #: The last probe that was sent before it.
    behind: int = 0
    #: When it was sent, or answered in part.
    at: float = 0.0


def _drawn() -> int:
    return randbits(62)


class Fetches:
    """Requests that have not been answered.

    >>> fetches = Fetches(draw=lambda: 1)
    >>> fetches.add(Pending("ann/1", "b1#0", 7, False))
    1
    >>> fetches.answered(1), fetches.answered(1)
    (Pending(feed='ann/1', stream='b1#0', first=7, retained=False, behind=0, at=0.0), None)
    """

    def __init__(self, draw: Callable[[], int] | None = None) -> None:
        """Numbers are drawn, so that nobody guesses one; unless `draw` does, by the system.

        Who is not on the way to a stream cannot answer in its place, nor have it answer a request
        that was not ours; and after a restart no number comes again.
        """
        self._pending: dict[int, Pending] = {}
        self._draw = draw or _drawn
        #: The last probe that was sent.
        self.probe = 0
        self.now = 0.0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def full(self) -> bool:
        return len(self._pending) >= FETCHES

    def add(self, pending: Pending) -> int:
        number = self._draw()
        self._pending[number] = pending._replace(behind=self.probe, at=self.now)
        return number

    def answered(self, number: int, *, more: bool = False) -> Pending | None:
        """The request that an answer belongs to; with `more`, another answer will come."""
        pending = self._pending.pop(number, None)
        if more and pending is not None:
            self._pending[number] = pending._replace(at=self.now)
        return pending

    def cancel(self, stream: StreamId) -> list[Pending]:
        """Requests to this stream that will not be answered."""
        numbers = [n for n, p in self._pending.items() if p.stream == stream]
        return [self._pending.pop(n) for n in numbers]

    def abandon(self, feed: str, streams: Collection[StreamId], probe: int) -> list[Pending]:
        """What a feed has asked these streams for before this probe, and is answered no more."""
        numbers = [
            number
            for number, pending in self._pending.items()
            if pending.feed == feed and pending.stream in streams and not pending.retained
            if pending.behind < probe
        ]
        return [self._pending.pop(number) for number in numbers]

    def overdue(self) -> list[Pending]:
        """Those that were not answered for so long that they, or the answers, were lost."""
        numbers = [n for n, p in self._pending.items() if self.now - p.at > LOST]
        return [self._pending.pop(number) for number in numbers]

    def forget(self, feed: str) -> None:
        """Nobody waits for what this feed has asked for. The next of its name is another one."""
        for number in [n for n, p in self._pending.items() if p.feed == feed]:
            del self._pending[number]
