"""Filters on their way to a Python worker, and there.

`Packed` holds the index, compiled, and the ids as an Arrow array: the index knows filters by their
places in that array, so ids of any type come out exactly as they went in, without becoming Python
objects. Kernels and names are seen to before the index is unpacked, which needs both.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from stentor.filters import Filter
from stentor.matching import Index
from stentor.pipeline.matching.vocabulary import Vocabulary

#: So many ids are reported at a time, at most: Arrow's strings together have less than 2**31 bytes.
MOST_IDS: Final = 8_000_000


@dataclass(frozen=True, eq=False)
class Packed:
    """An index of filters and the ids that they are reported by."""

    index: Index[int]
    ids: pa.Array
    vocabulary: Vocabulary

    @classmethod
    def of(cls, ids: pa.Array, filters: Sequence[Filter], vocabulary: Vocabulary) -> Packed:
        """From ids and filters in parallel."""
        index: Index[int] = Index(enumerate(filters), background=False)
        index.compact()
        return cls(index, ids, vocabulary)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self.vocabulary, pickle.dumps(self.index), self.ids)

    @property
    def nbytes(self) -> int:
        return self.index.memory.total + int(self.ids.nbytes)

    def id_lists(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        """For each row the ids of the filters that match it: lists, in portions of the batch."""
        for start, end in portions(self.index, batch):
            rows, places = self.index.match_batch(batch.slice(start, end - start))
            ends = np.zeros(end - start + 1, np.int64)
            counts = np.bincount(rows, minlength=end - start)
            np.cumsum(counts, out=ends[1:])
            for first, last in cuts(counts, MOST_IDS):
                ids = self.ids.take(pa.array(places[ends[first] : ends[last]]))
                offsets = (ends[first : last + 1] - ends[first]).astype(np.int32)
                yield pa.ListArray.from_arrays(pa.array(offsets), ids)


def _unpacked(vocabulary: Vocabulary, index: bytes, ids: pa.Array) -> Packed:
    vocabulary.install()  # first: the index refers to operators by name
    return Packed(pickle.loads(index), ids, vocabulary)


# -- how many rows of a batch are searched at a time


#: About how many matches are found at a time.
PAIRS_AT_A_TIME: Final = 1_000_000
#: Rows that are tried, at most and at least, and how many matches they may have together.
_TRIED: Final = 256
_TRIED_AT_LEAST: Final = 16
_TRIED_PAIRS: Final = 2**25
#: Rows that each of them stands for, at most; and at least, unless these are all there are.
_APART: Final = 128
_APART_AT_LEAST: Final = 16


def portions(index: Index[int], batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Where to cut a batch: from which row to before which.

    All matches of one search are in memory together, and how many there are is not known before. So
    a few rows, evenly spread, are searched first. What one of them has stands for all rows up to
    the next. The more filters there are, the fewer rows are tried, since each may match all.
    """
    tried = max(_TRIED_AT_LEAST, min(_TRIED, _TRIED_PAIRS // max(1, len(index))))
    for start in range(0, batch.num_rows, tried * _APART):
        stretch = batch.slice(start, tried * _APART)
        if stretch.num_rows <= tried:
            yield start, start + stretch.num_rows
            continue
        apart = max(-(-stretch.num_rows // tried), _APART_AT_LEAST)
        places = np.arange(0, stretch.num_rows, apart)
        rows, _ = index.match_batch(stretch.take(pa.array(places)))
        counts = np.bincount(rows, minlength=len(places))
        expected = np.repeat(counts, apart)[: stretch.num_rows]
        for begin, end in cuts(expected, PAIRS_AT_A_TIME):
            yield start + begin, start + end


def cuts(counts: np.ndarray[Any, Any], most: int) -> Iterator[tuple[int, int]]:
    """Cut rows so that those of one piece have about `most` matches; each has at least one row.

    >>> list(cuts(np.array([2, 2, 2, 9, 0, 1]), 4))
    [(0, 2), (2, 3), (3, 6)]
    """
    if not len(counts):
        return
    number = np.maximum(np.cumsum(counts) - 1, 0) // most
    inner = (np.flatnonzero(np.diff(number)) + 1).tolist()
    yield from pairwise([0, *inner, len(counts)])
