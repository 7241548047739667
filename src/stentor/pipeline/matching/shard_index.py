"""One shard of changing subscriptions, as a Python worker holds it.

It is the working copy of what is in Spark's state, compiled: an index that changes are applied to,
one by one, without compiling anew. The state has the subscriptions in buckets, by a hash of their
ids, as Arrow batches: a change rewrites one bucket, and all of them are read in a few steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from stentor.errors import StentorError, UnsupportedColumn
from stentor.filters import Filter
from stentor.matching import Index
from stentor.pipeline.matching import packed_index
from stentor.pipeline.matching.event_batches import events_batch
from stentor.pipeline.matching.parcels import PARCEL_BYTES, portions, unwrapped, wrapped
from stentor.pipeline.matching.subscriptions import MOST_SHOWN, Mistake, parse_one, refuse

#: Into how many buckets a shard is divided.
BUCKETS: Final = 256
#: About how many bytes the events of matches have that are put together at a time.
_MATCHED_BYTES: Final = 16 * PARCEL_BYTES

_log: Final = logging.getLogger("stentor.pipeline.matching")


class Change(NamedTuple):
    """A new filter for a subscription, or None to remove it."""

    id: Any
    filter: str | None
    bucket: int


class Layout(NamedTuple):
    """What a shard has to know about ids and events."""

    id_type: pa.DataType
    #: How many columns of a batch are the event; further ones are only for filters.
    width: int
    #: In which columns an attribute is.
    columns_of: dict[str, tuple[int, ...]]
    #: Attributes that cannot be looked at, and why.
    unsupported: dict[str, str]


class Held:
    """The subscriptions of a shard, ready to be searched and to be changed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._index: Index[int] = Index(background=False)
        #: The index knows filters by their places in this list; free ones are used again.
        self._ids: list[Any] = []
        self._free: list[int] = []
        self._place_of: dict[Any, int] = {}
        #: The texts by id, for each bucket.
        self._buckets: dict[int, dict[Any, str]] = {}
        self._text_bytes = 0
        #: The attributes that some filter has looked at, if events can have them.
        self._names: set[str] = set()
        self._id_array: pa.Array | None = None

    def __len__(self) -> int:
        return len(self._place_of)

    @property
    def nbytes(self) -> int:
        return self._index.memory.total + 2 * self._text_bytes + 200 * len(self._ids)

    # -- changes

    def apply(
        self, changes: Iterable[Change], *, on_error: str = "fail", in_state: bool = False
    ) -> list[Change]:
        """Make changes; those that did change something are returned.

        If they are `in_state` already, they have been found good, and stay there even if they
        cannot be used now: the events may have other columns since, or an operator be missing.
        Such a subscription is kept, but matches nothing.
        """
        made: list[Change] = []
        mistakes: list[Mistake] = []
        for change in changes:
            bucket = self._buckets.setdefault(change.bucket, {})
            if bucket.get(change.id) == change.filter:
                continue
            try:
                filter_ = None if change.filter is None else self._usable(change.filter)
            except StentorError as error:
                mistakes.append((change.id, str(error)))
                if not in_state:
                    continue
                filter_ = None
            self._set(change.id, filter_)
            self._text_bytes += len(change.filter or "") - len(bucket.pop(change.id, ""))
            if change.filter is not None:
                bucket[change.id] = change.filter
            made.append(change)
        if mistakes and on_error == "fail":
            refuse(mistakes, len(mistakes))
        what = "subscription %r, which is kept," if in_state else "the change of subscription %r"
        for id, problem in mistakes[:MOST_SHOWN]:
            _log.warning(what + " is left out: %s", id, problem)
        if len(mistakes) > MOST_SHOWN:
            _log.warning("and so are %d more", len(mistakes) - MOST_SHOWN)
        if made:
            self._id_array = None
        return made

    def _usable(self, text: str) -> Filter:
        filter_ = parse_one(text)
        for name in filter_.names - self._names:
            if name in self._layout.unsupported:
                raise UnsupportedColumn(self._layout.unsupported[name])
        self._names |= filter_.names & self._layout.columns_of.keys()
        return filter_

    def _set(self, id: Any, filter_: Filter | None) -> None:
        place = self._place_of.pop(id, None)
        if place is not None:
            self._index.remove(place)
        if filter_ is None:
            if place is not None:
                self._ids[place] = None
                self._free.append(place)
            return
        if place is None:
            if not self._free:
                self._free.append(len(self._ids))
                self._ids.append(None)
            place = self._free.pop()
            self._ids[place] = id
        self._place_of[id] = place
        self._index.add(place, filter_)

    # -- the state

    def bucket(self, number: int) -> bytes | None:
        """A bucket as it is kept; None if it is empty."""
        texts = self._buckets.get(number)
        if not texts:
            return None
        ids = pa.array(list(texts), self._layout.id_type)
        return wrapped(
            pa.record_batch({"id": ids, "filter": pa.array(texts.values(), pa.string())})
        )

    def load(self, number: int, content: bytes, *, on_error: str = "fail") -> None:
        """Take in a bucket that was kept."""
        batch = unwrapped(content)
        ids, texts = batch.column("id").to_pylist(), batch.column("filter").to_pylist()
        pairs = zip(ids, texts, strict=True)
        changes = [Change(id, text, number) for id, text in pairs]
        self.apply(changes, on_error=on_error, in_state=True)

    def compact(self) -> None:
        self._index.compact()

    # -- matching

    def matches(self, events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The ids of all matches, and the events, in pieces of about the size of a parcel."""
        if self._id_array is None:
            self._id_array = pa.array(self._ids, self._layout.id_type)
        looked_at = [
            (n, place) for n in sorted(self._names) for place in self._layout.columns_of[n]
        ]
        names = [name for name, _ in looked_at]
        looked_at = looked_at or [("", 0)]
        columns = events.columns
        batch = events_batch(names, [columns[place] for _, place in looked_at])
        # Each match has a copy of its event.
        bytes_each = max(1, events.nbytes // max(1, events.num_rows))
        at_a_time = max(1, min(packed_index.PAIRS_AT_A_TIME, _MATCHED_BYTES // bytes_each))
        for start, end in packed_index.portions(self._index, batch):
            rows, places = self._index.match_batch(batch.slice(start, end - start))
            for first in range(0, len(rows), at_a_time):
                some = slice(first, first + at_a_time)
                ids = self._id_array.take(pa.array(places[some]))
                taken = pa.array(rows[some] + start)
                found = [column.take(taken) for column in columns[: self._layout.width]]
                names_ = [str(n) for n in range(len(found) + 1)]
                yield from portions(pa.RecordBatch.from_arrays([ids, *found], names_))
