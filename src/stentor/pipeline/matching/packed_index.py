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
from stentor.pipeline.matching.search_size import cuts, portions
from stentor.pipeline.matching.vocabulary import Vocabulary

#: So many ids are reported at a time, at most: Arrow's strings together have less than 2**31 bytes.
MOST_IDS: Final = 8_000_000


class Packed:
    """An index of filters and the ids that they are reported by."""

    def __init__(self, index: Index[int], ids: pa.Array, vocabulary: Vocabulary) -> None:
        self._index = index
        self._ids = ids
        self._vocabulary = vocabulary

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
        for start, end in portions(self._index, batch):
            rows, places = self._index.match_batch(batch.slice(start, end - start))
            ends = np.zeros(end - start + 1, np.int64)
            counts = np.bincount(rows, minlength=end - start)
            np.cumsum(counts, out=ends[1:])
            for first, last in cuts(counts, MOST_IDS):
                ids = self._ids.take(pa.array(places[ends[first] : ends[last]]))
                offsets = (ends[first : last + 1] - ends[first]).astype(np.int32)
                yield pa.ListArray.from_arrays(pa.array(offsets), ids)


def _unpacked(vocabulary: Vocabulary, index: bytes, ids: pa.Array) -> Packed:
    vocabulary.install()  # first: the index refers to operators by name
    return Packed(pickle.loads(index), ids, vocabulary)
