"""Filters on their way to a Python worker, and there.

`Packed` holds the index, compiled, and the ids as an Arrow array: the index knows filters by their
places in that array, so ids of any type come out exactly as they went in, without becoming Python
objects. Kernels and names are seen to before the index is unpacked, which needs both.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from stentor.filters import Filter
from stentor.matching import Index
from stentor.pipeline.matching.vocabulary import Vocabulary

#: About how many matches are reported at a time: portions of a batch are chosen for that.
PAIRS_AT_A_TIME: Final = 1_000_000
#: Rows to begin with, before it is known how many matches they have.
FIRST_ROWS: Final = 256


class Packed:
    """An index of filters and the ids that they are reported by."""

    def __init__(self, index: Index[int], ids: pa.Array, vocabulary: Vocabulary) -> None:
        self._index = index
        self._ids = ids
        self._vocabulary = vocabulary
        self._rows = FIRST_ROWS

    @classmethod
    def of(cls, ids: pa.Array, filters: Sequence[Filter], vocabulary: Vocabulary) -> Packed:
        """From ids and filters in parallel."""
        index: Index[int] = Index(enumerate(filters), background=False)
        index.compact()
        return cls(index, ids, vocabulary)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self._vocabulary, pickle.dumps(self._index), self._ids)

    @property
    def nbytes(self) -> int:
        return self._index.memory.total + int(self._ids.nbytes)

    def id_lists(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        """For each row the ids of the filters that match it: lists, in portions of the batch."""
        start = 0
        while start < batch.num_rows:
            portion = batch.slice(start, self._rows)
            rows, ids = self.pairs(portion)
            counts = np.bincount(rows, minlength=portion.num_rows)
            offsets = np.zeros(portion.num_rows + 1, np.int32)
            np.cumsum(counts, out=offsets[1:])
            yield pa.ListArray.from_arrays(pa.array(offsets), ids)
            start += portion.num_rows
            self._rows = max(1, PAIRS_AT_A_TIME * portion.num_rows // max(1, len(ids)))

    def pairs(self, batch: pa.RecordBatch) -> tuple[np.ndarray[Any, Any], pa.Array]:
        """All matches of a batch: row numbers, ascending, and ids in parallel."""
        rows, places = self._index.match_batch(batch)
        return rows, self._ids.take(pa.array(places))


def _unpacked(vocabulary: Vocabulary, index: bytes, ids: pa.Array) -> Packed:
    vocabulary.install()  # first: the index refers to operators by name
    return Packed(pickle.loads(index), ids, vocabulary)
