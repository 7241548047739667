"""How many rows of a batch are searched at a time.

All matches of one search are in memory together, and how many there are is not known before: the
file that nobody wants may end in the middle of a batch, and one that thousands want begin. So a few
rows of it, evenly spread, are searched first. What one of them has stands for all rows up to the
next, and the batch is cut where about as many come together as are wanted at a time.

The more filters there are, the fewer rows are tried, since each of these may match all of them; and
the fewer stand for how many rows there are between two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from stentor.matching import Index

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
    """Where to cut a batch: from which row to before which."""
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
