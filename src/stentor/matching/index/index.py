"""`Index`: the production engine. Batch first, columnar, always up to date.

It is built like a log-structured merge tree. New filters go into a small growing table and take
effect at once: `recent` makes them searchable as they come. A growing table that is full becomes a
segment; see `full` for the meantime. Segments of similar size are joined, and segments with many
removed filters cleaned: small ones at once, others by a background thread. The new segment takes
the place of the old ones in one step, so matching never waits for the thread. A removed filter is
marked dead at once and disappears with the next cleaning.

Work on filters that come and go is only done for searches. While there are none, filters pile up in
segments of all sizes, as they do when a million are loaded. Every segment beyond the first, and
every recent filter that is tested without an equality, costs a search something. When these costs
have reached a share of what a compilation takes, it is made: so matching stays close to the speed
of a single segment, and compiling takes at most a small multiple of what searches would have lost.
As far as it can be foreseen from the searches so far, it is made before the next of them comes.
To keep a full table rare, it holds more while there are more filters.

As long as there are very few filters, notifications from rows are tested against each of them
(`direct`), which takes less than to arrange a search.

All boxes of a filter are in one segment. So when a segment is cleaned, the slots of its dead
filters are free again, and memory stays proportional to the filters that are held.

All methods may be called from several threads. An index can be pickled, to be broadcast to other
processes; the copy is compiled anew where it arrives.
"""

from __future__ import annotations

import pickle
import threading
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stentor.errors import (
    DuplicateKey,
    FilterTypeError,
    InvalidValue,
    UnknownKey,
    UnsupportedColumn,
)
from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.facts import flat_facts
from stentor.matching.index.axes import Axis
from stentor.matching.index.columns import ArrowSource, Row, RowSource, Source
from stentor.matching.index.direct import Direct
from stentor.matching.index.full import Full
from stentor.matching.index.plan import Box, boxes_of
from stentor.matching.index.recent import CAPACITY, Recent, searchable
from stentor.matching.index.search import (
    Part,
    grouped,
    once_each,
    search_one,
    search_parts,
)
from stentor.matching.index.segment import Segment
from stentor.matching.index.slots import GROWING, NOWHERE, Slots
from stentor.matching.index.table import GrowingTable, joined
from stentor.model.codec import Envelope

K = TypeVar("K", bound=Hashable)

#: Boxes in the growing table before it becomes a segment: compiling them takes some milliseconds.
GROWING_LIMIT: Final = CAPACITY
#: Attributes that they look at; each takes as long to compile as many boxes.
GROWING_NAMES: Final = 1_000
#: While it is searched, it holds this share of all boxes at most, but always so many, and never
#: more than that: chains get long.
RECENT_SHARE: Final = 1 / 16
RECENT_LEAST: Final = 256
RECENT_MOST: Final = 2_048
#: More new filters than this, found by the first search after a while, become a segment at once.
ABSORBED: Final = 256
#: With more recent boxes without an equality than this, a full table is compiled at once.
UNLED_MOST: Final = 16
#: Tests of boxes without an equality, recent boxes times notifications, before they are compiled:
#: so many in any case, and so many for each box.
TESTS_LIMIT: Final = 65_536
TESTS_PER_BOX: Final = 256
#: Searches of a notification in one segment more than needed, for each box, before all are joined;
#: and how many of these a call costs in addition to its notifications.
SEARCHES_PER_BOX: Final = 1 / 2
SEARCHES_PER_CALL: Final = 32
#: Up to this many boxes (`Segment.weight`) are joined at once by whoever makes it necessary: it
#: takes some milliseconds. Without a background it is more, but never what takes dozens of them.
AT_ONCE: Final = 12_288
AT_ONCE_ALONE: Final = 16_384
#: This many segments of similar size are joined.
TIER: Final = 6
#: A segment is cleaned when this share of its filters is dead.
DEAD_SHARE: Final = 0.25
#: Tokens whose use is counted.
TOKEN_LIMIT: Final = 1_000_000
#: Up to this many filters are tested one by one, in batches of up to so many notifications.
FEW: Final = 8
FEW_ROWS: Final = 1_024
#: Batches up to this size are not worth columns.
SINGLY: Final = 3
#: Rows of a batch that are searched at a time.
ROWS_AT_A_TIME: Final = 65_536

Rows = NDArray[np.int64]
Batch: TypeAlias = pa.RecordBatch | pa.Table | Sequence[Row]


@dataclass(frozen=True)
class IndexMemory:
    """Where the memory of an index is, in bytes."""

    segments: int
    recent: int
    keys: int

    @property
    def total(self) -> int:
        return self.segments + self.recent + self.keys


@dataclass
class _Held:
    """A segment in use, and how many of its filters are dead."""

    number: int
    segment: Segment | Full
    dead: int

    @property
    def to_be_cleaned(self) -> bool:
        if isinstance(self.segment, Full):
            return True
        return self.dead > DEAD_SHARE * len(self.segment.distinct_slots)


class _Seen(NamedTuple):
    """What searches look at. It is replaced as a whole, except that recent filters come."""

    held: tuple[Segment | Full, ...]
    #: The growing table: boxes without checks, and boxes with checks.
    recent: tuple[Recent, Recent]
    #: All attributes that some filter looks at; it may have more.
    names: set[str]

    @property
    def parts(self) -> list[Part]:
        found: list[Part] = []
        for segment in self.held:
            found += segment.parts
        for recent in self.recent:
            if recent.count:
                found.append(recent.now())
        return found


class Index(Generic[K]):
    """Finds the filters that match, among very many.

    >>> index = Index()
    >>> index.add("s1", Filter("symbol = 'IBM' and price > 100"))
    >>> index.add("s2", Filter("symbol = 'IBM'"))
    >>> index.match({"symbol": "IBM", "price": 99})
    ['s2']
    >>> index.remove("s1")
    >>> len(index)
    1
    """

    def __init__(
        self, filters: Iterable[tuple[K, Filter]] = (), *, background: bool = True
    ) -> None:
        """With `background=False`, small segments are joined and cleaned within other calls."""
        self._lock = threading.RLock()
        self._slots = Slots()
        self._slot_of: dict[K, int] = {}
        #: All filters, while there never were more than few since there was none.
        self._few: dict[K, Direct] | None = {}
        self._held: tuple[_Held, ...] = ()
        self._numbers = 0
        self._growing = GrowingTable()
        self._growing_slots: list[int] = []
        self._growing_names: set[str] = set()
        self._seen = _Seen((), _nothing_recent(), set())
        #: Filters of the growing table that searches do not see yet; the next one will make them.
        #: Their boxes are made again then: to keep them would cost whoever loads very many.
        self._unseen: list[tuple[int, Filter]] = []
        #: Filters that were added since the last search. As long as they are few, the next search
        #: is likely to come soon, and they are made ready for it as they come.
        self._since_search = GROWING_LIMIT
        #: Work that one segment in place of all would have saved. Threads may lose some of it
        #: between them; it is an estimate in any case.
        self._tests = 0
        self._searches = 0
        #: Notifications searched for while the growing table grew, and a share of those before.
        self._asked = 0
        #: Whether some filter asks for more than attributes.
        self._reserved = False
        self._token_uses: dict[tuple[Axis, object], int] = {}
        self._background = background
        self._worker: threading.Thread | None = None
        for key, filter_ in filters:
            self.add(key, filter_)
        if len(self._slot_of) > ABSORBED:  # there may be no more for a while
            self.compact()

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, key: object) -> bool:
        return key in self._slot_of

    @property
    def memory(self) -> IndexMemory:
        """How much memory the index takes, by its own count."""
        with self._lock:
            segments = sum(held.segment.nbytes for held in self._held)
            recent = 400 * len(self._growing) + sum(r.nbytes for r in self._seen.recent)
            return IndexMemory(segments, recent, self._slots.nbytes)

    @property
    def segment_count(self) -> int:
        """How many segments a search goes through; `compact` makes it one."""
        return len(self._held)

    # -- changes

    def add(self, key: K, filter: Filter) -> None:
        """Hold a filter under a key. Takes effect at once; a key in use is a `DuplicateKey`."""
        if not isinstance(filter, Filter):
            raise FilterTypeError(f"expected a Filter, as in Filter({str(filter)!r})")
        with self._lock:
            if key in self._slot_of:
                raise DuplicateKey(
                    f"there is a filter under {key!r} already; remove it first, or use another key"
                )
            several = len(filter.conjuncts) > 1
            boxes: list[tuple[Box, Conjunct]] = []
            for conjunct in filter.conjuncts:
                found, shared = boxes_of(conjunct, self._choose_token)
                boxes += [(box, conjunct) for box in found]
                several = several or shared
            if not boxes:  # nothing can match it
                self._slot_of[key] = self._slots.take(key, False, NOWHERE)
                self._note_few(key, filter)
                return
            slot = self._slots.take(key, several, GROWING)
            self._growing_slots.append(slot)
            try:
                for box, _ in boxes:
                    self._growing.append(slot, box)
            except BaseException:  # a constant of a registered type that cannot be hashed, say
                self._slots.alive[slot] = 0  # whatever was appended disappears with the dead
                raise
            self._slot_of[key] = slot
            if not filter.names <= self._growing_names:
                self._reserved = self._reserved or any(n.startswith("_") for n in filter.names)
                self._growing_names |= filter.names
                self._seen.names.update(filter.names)
            self._note_few(key, filter)
            self._since_search += 1
            if self._since_search < GROWING_LIMIT and len(boxes) <= RECENT_LEAST:
                self._show(slot, boxes)
            else:
                self._unseen.append((slot, filter))
            if (
                len(self._growing) >= self._growing_limit
                or len(self._growing_names) >= GROWING_NAMES
            ):
                self._settle_growing()

    def _note_few(self, key: K, filter: Filter) -> None:
        """Hold a filter to be tested by itself, if there are few. Searches have the dict before."""
        few = self._few
        if few is not None:
            self._few = {**few, key: Direct(filter)} if len(few) < FEW else None

    def remove(self, key: K) -> None:
        """Forget the filter under a key. Takes effect at once; no such key is an `UnknownKey`."""
        with self._lock:
            slot = self._slot_of.pop(key, None)
            if slot is None:
                raise UnknownKey(f"there is no filter under {key!r}")
            if self._few is not None:
                self._few = {k: direct for k, direct in self._few.items() if k != key}
            elif not self._slot_of:
                self._few = {}
            self._slots.alive[slot] = 0
            number = int(self._slots.segment_of[slot])
            if number == NOWHERE:
                self._slots.release([slot])
            elif number != GROWING:
                held = next(h for h in self._held if h.number == number)
                held.dead += 1
                if held.to_be_cleaned:
                    self._tend()

    def compact(self) -> None:
        """Join everything into one segment now, and wait for it. Matching goes on meanwhile."""
        with self._lock:
            if len(self._growing):
                self._settle_growing()
        self.settle()
        with self._lock:
            chosen = self._held
            wanted = len(chosen) > 1 or any(held.dead for held in chosen)
        if wanted:
            self._join(chosen)

    def settle(self) -> None:
        """Wait until the background thread has nothing left to do."""
        while True:
            with self._lock:
                worker = self._worker
            if worker is None:
                return
            worker.join()
            with self._lock:
                if self._worker is worker and not worker.is_alive():
                    self._worker = None  # it ended without saying so, as threads do in a fork

    # -- matching

    def match(self, notification: Row) -> list[K]:
        """The keys of all filters that match one notification, in no particular order."""
        few = self._few
        if few is not None:
            facts = self._facts(notification, self._seen.names)
            return [key for key, direct in few.items() if direct.matches(facts)]
        ticket, seen, parts = self._begin(1)
        try:
            facts = self._facts(notification, seen.names)
            slots: list[int] = []
            alive, keys = self._slots.alive, self._slots.keys
            for part in parts:
                slots += search_one(part, facts, alive)
            if self._slots.any_several and len(slots) > 1:
                slots = list(dict.fromkeys(slots))
            return [keys[slot] for slot in slots]
        finally:
            self._slots.end_search(ticket)

    def _facts(self, notification: Row, names: Collection[str]) -> Mapping[str, Any]:
        if isinstance(notification, Envelope) and not self._reserved:
            return notification.attributes
        return flat_facts(notification, names)

    def match_batch(self, batch: Batch) -> tuple[Rows, NDArray[Any]]:
        """All matches of a batch, as parallel arrays: row number and key, ordered by row.

        A batch is a PyArrow record batch or table, or a sequence of notifications or mappings. In
        a column null and NaN mean that the attribute is absent; in a mapping NaN is no value, as
        everywhere. Columns that no filter asks for may have any type.

        >>> index = Index([("cheap", Filter("price < 10")), ("all", Filter("exists price"))])
        >>> rows, keys = index.match_batch(pa.record_batch({"price": [5.0, 50.0, None]}))
        >>> sorted(zip(rows.tolist(), keys.tolist()))
        [(0, 'all'), (0, 'cheap'), (1, 'all')]
        """
        if isinstance(batch, Mapping):
            raise TypeError("expected a batch of notifications; for a single one call `match`")
        before = self._held
        try:
            return self._match_batch(batch)
        except (UnsupportedColumn, InvalidValue):
            # Only filters that are held may ask for a column, not those that were removed.
            with self._lock:
                all_live = int(self._slots.alive.sum()) == self._slots.taken
                if all_live and before is self._held:
                    raise
            self.compact()
            return self._match_batch(batch)

    def _match_batch(self, batch: Batch) -> tuple[Rows, NDArray[Any]]:
        count = batch.num_rows if isinstance(batch, pa.RecordBatch | pa.Table) else len(batch)
        ticket, seen, parts = self._begin(count)
        try:
            rows_found: list[Rows] = []
            keys_found: list[NDArray[Any]] = []
            for offset, source in _sources(batch, seen.names):
                rows, keys = self._match_source(source, parts)
                rows_found.append(rows + offset if offset else rows)
                keys_found.append(keys)
        finally:
            self._slots.end_search(ticket)
        if not rows_found:
            return np.empty(0, np.int64), self._slots.keys_at(np.empty(0, np.int32))
        if len(rows_found) == 1:
            return rows_found[0], keys_found[0]
        return np.concatenate(rows_found), np.concatenate(keys_found)

    def match_by_key(self, batch: Sequence[Row]) -> list[tuple[K, list[int]]]:
        """All matches of a sequence, by key: for each key that matches at all its rows, ascending.

        >>> index = Index([("cheap", Filter("price < 10")), ("all", Filter("exists price"))])
        >>> sorted(index.match_by_key([{"price": 5}, {"price": 50}]))
        [('all', [0, 1]), ('cheap', [0])]
        """
        return self.match_leading(batch, None)[1]

    def match_leading(
        self, batch: Sequence[Row], most: int | None
    ) -> tuple[int, list[tuple[K, list[int]]]]:
        """The same for as many leading rows, at least one, as have `most` matches together.

        How many these are comes first.

        >>> index = Index([("cheap", Filter("price < 10")), ("all", Filter("exists price"))])
        >>> count, found = index.match_leading([{"price": price} for price in (50, 5, 5, 5)], 4)
        >>> count, sorted(found)
        (2, [('all', [0, 1]), ('cheap', [1])])
        """
        if len(batch) <= SINGLY:
            singly: dict[K, list[int]] = {}
            for row, notification in enumerate(batch):
                for key in self.match(notification):
                    singly.setdefault(key, []).append(row)
            return len(batch), list(singly.items())
        few = self._few
        if few is not None and len(batch) <= FEW_ROWS:
            return _tested(few, RowSource(batch, self._seen.names), most)
        ticket, seen, parts = self._begin(len(batch))
        try:
            slots = self._slots
            pairs: list[tuple[Rows, NDArray[Any]]] = []
            for offset, source in _sources(batch, seen.names):
                rows, labels = search_parts(parts, source, slots.alive, None)
                pairs.append((rows + offset if offset else rows, labels))
            count = len(batch)
            if not pairs:
                return count, []
            rows, labels = pairs[0]
            if len(pairs) > 1:
                rows = np.concatenate([pair[0] for pair in pairs])
                labels = np.concatenate([pair[1] for pair in pairs])
            if not len(rows):
                return count, []
            if slots.any_several:
                rows, labels = once_each(rows, labels, slots.several)
            if most is not None and len(rows) > most:
                count = max(1, int(rows[most]))
                end = np.searchsorted(rows, count)
                rows, labels = rows[:end], labels[:end]
            labels, lists = grouped(rows, labels, len(slots.alive))
            return count, list(zip(slots.keys[labels].tolist(), lists, strict=True))
        finally:
            self._slots.end_search(ticket)

    def _match_source(self, source: Source, parts: list[Part]) -> tuple[Rows, NDArray[Any]]:
        """The rows and keys of all matches in a portion of a batch."""
        slots = self._slots
        several = slots.any_several
        # Slots are needed to drop what is found twice; else numbers for keys save a step.
        numbers = None if several else slots.numbers
        rows, labels = search_parts(parts, source, slots.alive, numbers)
        if several:
            rows, labels = once_each(rows, labels, slots.several)
        return rows, labels if numbers is not None else slots.keys_at(labels)

    def _begin(self, notifications: int) -> tuple[int, _Seen, list[Part]]:
        """A ticket to hand back at the end, and what to search.

        Searches do not take the lock, except to compile or for the first filters after a while: a
        thread that changes the index all the time would keep them from getting it.
        """
        ticket = self._slots.begin_search()
        try:
            if self._unseen:
                with self._lock:
                    if len(self._unseen) > ABSORBED:
                        self._settle_growing()
                    self._show_unseen()
            seen = self._seen
            unled = seen.recent[0].unled + seen.recent[1].unled
            if unled:
                self._tests += unled * notifications
                if self._tests > max(TESTS_LIMIT, TESTS_PER_BOX * len(self._growing)):
                    with self._lock:
                        self._settle_growing()
            self._since_search = 0
            self._asked += notifications + SEARCHES_PER_CALL
            if len(seen.held) > 1:
                self._searches += (len(seen.held) - 1) * (notifications + SEARCHES_PER_CALL)
                if self._searches > SEARCHES_PER_BOX * sum(map(len, seen.held)):
                    with self._lock:
                        self._tend()
            # What is recent must be noted before the arrays of slots, which grow with it.
            seen = self._seen
            parts = seen.parts
        except BaseException:
            self._slots.end_search(ticket)
            raise
        return ticket, seen, parts

    def _show_unseen(self) -> None:
        """Let searches find the newest filters."""
        for slot, filter_ in self._unseen:
            for conjunct in filter_.conjuncts:
                found, _ = boxes_of(conjunct, self._least_used)
                self._show(slot, [(box, conjunct) for box in found])
        self._unseen = []

    def _show(self, slot: int, boxes: list[tuple[Box, Conjunct]]) -> None:
        plain, checked = self._seen.recent
        for box, conjunct in boxes:
            found, wider = searchable(box, conjunct)
            if wider and len(boxes) > 1:
                self._slots.mark_several(slot)
            (checked if found.checks else plain).append(slot, found)

    # -- copies for other processes

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            if len(self._growing):
                self._settle_growing()
            segments = [held.segment for held in self._held]
            state = (self._slots, self._slot_of, segments, self._background)
            return {"state": pickle.dumps(state)}  # now, while nothing changes

    def __setstate__(self, state: dict[str, Any]) -> None:
        slots, slot_of, segments, background = pickle.loads(state["state"])
        self.__init__(background=background)  # type: ignore[misc]
        self._slots, self._slot_of = slots, slot_of
        self._few = None if slot_of else {}
        for segment in segments:
            self._hold(segment, replacing=())
        self._seen = _Seen(self._held_segments(), _nothing_recent(), self._names())
        self._reserved = any(name.startswith("_") for name in self._seen.names)

    # -- segments

    def _choose_token(self, tokens: Iterable[tuple[Axis, object]]) -> tuple[Axis, object]:
        """The token that the fewest filters are found by so far."""
        if len(self._token_uses) > TOKEN_LIMIT:
            self._token_uses.clear()  # a hint only: forgetting it costs nothing but balance
        chosen = self._least_used(tokens)
        self._token_uses[chosen] = self._token_uses.get(chosen, 0) + 1
        return chosen

    def _least_used(self, tokens: Iterable[tuple[Axis, object]]) -> tuple[Axis, object]:
        return min(tokens, key=lambda token: self._token_uses.get(token, 0))

    @property
    def _growing_limit(self) -> int:
        if self._since_search >= GROWING_LIMIT:
            return GROWING_LIMIT
        share = max(RECENT_LEAST, int(RECENT_SHARE * len(self._slot_of)))
        return min(GROWING_LIMIT, RECENT_MOST, share)

    def _settle_growing(self) -> None:
        """Hold the growing table as a segment, and begin another."""
        recent = self._seen.recent
        unled = recent[0].unled + recent[1].unled
        full = Full(self._growing, recent, self._growing_slots, self._growing_names)
        if self._unseen or unled > UNLED_MOST:
            segment, dead = self._compiled([full], self._slots.alive)
        else:
            segment, dead = full, []
        if segment is not None:
            self._hold(segment, replacing=())
        self._growing = GrowingTable()
        self._growing_slots = []
        self._growing_names = set()
        self._unseen = []
        self._seen = _Seen(self._held_segments(), _nothing_recent(), self._names())
        self._tests = 0
        self._slots.release(dead)
        # Most likely there will be as many searches as there were, for which it can be joined now.
        self._searches += max(0, len(self._held) - 1) * self._asked
        self._asked //= 2
        self._tend()

    def _compiled(
        self, chosen: Sequence[Segment | Full], alive: NDArray[np.uint8]
    ) -> tuple[Segment | Full | None, list[int]]:
        """One segment of the live filters of several, if there are any; and the dead slots."""
        table = joined([segment.table() for segment in chosen], alive)
        slots = np.concatenate([segment.distinct_slots for segment in chosen])
        dead = slots[alive[slots] == 0].tolist()
        if not len(table):
            return None, dead
        segment = Segment(table)
        if self._slots.numbers is not None:
            segment.labels(self._slots.numbers)  # else the first search would have to wait for them
        return segment, dead

    def _hold(self, segment: Segment | Full, replacing: tuple[_Held, ...]) -> None:
        """Put a segment in the place of others."""
        slots = segment.distinct_slots
        dead = int(len(slots) - np.count_nonzero(self._slots.alive[slots]))
        held = _Held(self._numbers, segment, dead)
        self._numbers += 1
        self._slots.segment_of[slots] = held.number
        self._held = (*(h for h in self._held if h not in replacing), held)

    def _held_segments(self) -> tuple[Segment | Full, ...]:
        return tuple(held.segment for held in self._held)

    def _names(self) -> set[str]:
        return self._growing_names.union(*[held.segment.names for held in self._held])

    def _tend(self) -> None:
        """Have segments joined or cleaned if it is time."""
        if self._worker is not None and self._worker.is_alive():
            return
        limit = AT_ONCE if self._background else AT_ONCE_ALONE
        while chosen := self._due():
            if sum(held.segment.weight for held in chosen) > limit:
                break
            self._join(chosen)
        else:
            return
        self._worker = threading.Thread(target=self._work, name="stentor-index", daemon=True)
        self._worker.start()

    def _work(self) -> None:
        try:
            while True:
                with self._lock:
                    chosen = self._due()
                    if not chosen:
                        self._worker = None
                        return
                self._join(chosen)
        except BaseException:
            self._worker = None  # nobody shall wait for it; the segments are as they were
            raise

    def _due(self) -> tuple[_Held, ...]:
        """The segments to be joined next: enough of similar size, or one to be cleaned.

        Or, if it has cost enough that they are several, all.
        """
        tiers: dict[int, list[_Held]] = {}
        for held in self._held:
            tiers.setdefault(int(log(max(1, len(held.segment)), TIER)), []).append(held)
        for tier in sorted(tiers):
            if len(tiers[tier]) >= TIER:
                return tuple(tiers[tier])
        boxes = sum(len(held.segment) for held in self._held)
        if len(self._held) > 1 and self._searches > SEARCHES_PER_BOX * boxes:
            return self._held
        return tuple(h for h in self._held if h.to_be_cleaned)[:1]

    def _join(self, chosen: tuple[_Held, ...]) -> None:
        """Compile several segments into one without their dead filters, and swap it in."""
        with self._lock:
            alive = self._slots.alive.copy()
        segment, dead = self._compiled([held.segment for held in chosen], alive)
        with self._lock:
            if not all(held in self._held for held in chosen):
                return  # another thread was faster
            if segment is None:
                self._held = tuple(h for h in self._held if h not in chosen)
            else:
                self._hold(segment, chosen)
            self._seen = _Seen(self._held_segments(), self._seen.recent, self._names())
            self._searches = 0
            self._slots.release(dead)


def _tested(
    few: Mapping[K, Direct], source: Source, most: int | None
) -> tuple[int, list[tuple[K, list[int]]]]:
    """As `match_leading`, by testing each filter."""
    found = [(key, rows) for key, direct in few.items() if (rows := direct.rows(source))]
    if most is None or sum(len(rows) for _, rows in found) <= most:
        return source.count, found
    count = max(1, sorted(chain.from_iterable(rows for _, rows in found))[most])
    shorter = ((key, rows[: bisect_left(rows, count)]) for key, rows in found)
    return count, [(key, rows) for key, rows in shorter if rows]


def _sources(batch: Batch, names: Collection[str]) -> Iterator[tuple[int, Source]]:
    """The batch in portions, each with the number of its first row."""
    if isinstance(batch, list | tuple) and len(batch) <= ROWS_AT_A_TIME:
        if batch:
            yield 0, RowSource(batch, names)
    elif isinstance(batch, pa.Table):
        offset = 0
        for chunk in batch.to_batches():
            for first, source in _sources(chunk, names):
                yield offset + first, source
            offset += chunk.num_rows
    elif isinstance(batch, pa.RecordBatch):
        for first in range(0, batch.num_rows, ROWS_AT_A_TIME):
            yield first, ArrowSource(batch.slice(first, ROWS_AT_A_TIME))
    else:
        for first in range(0, len(batch), ROWS_AT_A_TIME):
            yield first, RowSource(batch[first : first + ROWS_AT_A_TIME], names)


def _nothing_recent() -> tuple[Recent, Recent]:
    return Recent(checked=False), Recent(checked=True)
