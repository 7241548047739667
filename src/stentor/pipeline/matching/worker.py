"""What Spark's Python workers do: find the packed filters, and search them batch by batch.

Spark reuses workers for task after task and micro-batch after micro-batch, but forgets a broadcast
value whenever a task comes between that does not refer to it. Compiling an index anew each time
would cost more than matching. So a worker remembers the last ones by digest: the digest comes with
the function, the value is only fetched when it is not known yet.

A search has a price by the batch, and one by the row. Spark's batches may be as small as those of
the files it reads, so a few of them are put together first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from stentor.pipeline.matching.event_batches import events_batch
from stentor.pipeline.matching.kernel_cache import claim_kernel_cache
from stentor.pipeline.matching.packed_index import Packed

if TYPE_CHECKING:
    from stentor.pipeline.matching.broadcasts import Shipped

#: Rows that are searched at a time, at least, as long as there are more.
ENOUGH_ROWS: Final = 32_768
#: So many are remembered, and beyond the newest so many bytes.
MOST: Final = 32
MOST_BYTES: Final = 256 * 2**20


class Sized(Protocol):
    @property
    def nbytes(self) -> int:
        """How much memory it takes, about."""


S = TypeVar("S", bound=Sized)


class Memory(Generic[S]):
    """The least recently used is forgotten first."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._known: OrderedDict[str, S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, digest: str) -> bool:
        return digest in self._known

    def get(self, digest: str) -> S | None:
        found = self._known.get(digest)
        if found is not None:
            self._known.move_to_end(digest)
        return found

    def take(self, digest: str) -> S | None:
        """The same, to be changed: it is no longer what the digest stands for."""
        return self._known.pop(digest, None)

    def put(self, digest: str, value: S) -> S:
        self._known[digest] = value
        self._known.move_to_end(digest)
        total = sum(one.nbytes for one in self._known.values())
        while len(self._known) > 1 and (len(self._known) > self._most or total > self._most_bytes):
            total -= self._known.popitem(last=False)[1].nbytes
        return value


_known: Final[Memory[Packed]] = Memory()


class Part(NamedTuple):
    """Where a worker finds packed filters: the digest of what they are, and how it gets them."""

    digest: str
    shipped: Shipped


def packed(part: Part) -> Packed:
    """The filters of a part, fetched at most once while they are remembered."""
    found = _known.get(part.digest)
    if found is None:
        claim_kernel_cache()  # unpacking compiles
        found = _known.put(part.digest, part.shipped.value)
    return found


def matched(part: Part, names: Sequence[str], batches: Iterable[Any]) -> Iterator[pa.Array]:
    """For each event the ids of the filters that match it, as lists.

    The columns of a batch have these names; if there are no names, filters see nothing of events,
    and one column of anything says how many there are.
    """
    for columns in gathered(batches):
        yield from packed(part).id_lists(events_batch(names, columns))


def matched_in_shards(
    parts: Sequence[Part], names: Sequence[str], batches: Iterable[Any]
) -> Iterator[pa.Array]:
    """The same where the last column says which part an event is to be held against.

    Spark has put the events of a part together, so one task needs one part, and a batch is hardly
    ever cut.
    """
    for columns in gathered(batches):
        shards = columns[-1].to_numpy(zero_copy_only=False)
        starts = [0, *(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(shards)]
        for start, end in pairwise(starts):
            if start < end:
                run = tuple(column.slice(start, end - start) for column in columns)
                yield from matched(parts[int(shards[start])], names, [run])


def gathered(batches: Iterable[Any]) -> Iterator[tuple[pa.Array, ...]]:
    """The columns of batches, with at least so many rows each that a search pays."""
    waiting: list[tuple[pa.Array, ...]] = []
    rows = 0
    for batch in batches:
        # Spark gives a function of one column that column alone.
        waiting.append(batch if isinstance(batch, tuple) else (batch,))
        rows += len(waiting[-1][0])
        if rows >= ENOUGH_ROWS:
            yield _together(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _together(waiting)


def _together(batches: list[tuple[pa.Array, ...]]) -> tuple[pa.Array, ...]:
    if len(batches) == 1:
        return batches[0]
    return tuple(pa.concat_arrays(columns) for columns in zip(*batches, strict=True))
