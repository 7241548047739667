"""The arrays of a segment, as the kernels take them: all in one.

Every array that is handed to a kernel costs time, as much as testing some dozens of boxes. So those
of a segment stand in one array of words, one after the other, and the kernels find them there: it
begins with the places where they begin, and the end of the last. Doubles are the bits of words, and
smaller integers share them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: A kernel that returns the row where it stopped, and the number of runs.
Scan = Callable[..., tuple[int, int]]

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]


class Arrays(NamedTuple):
    """How coordinates lead to groups, and the boxes themselves; see `kernels`.

    What is said to be per group and so on is a row of several numbers, one row after the other.
    """

    #: Per axis: whether single equalities are looked up by it (1), whether it stands (2), that is,
    #: has a coordinate if the attribute is *not* there, and whether there are visits (4).
    use: Int64s
    standing: Int64s
    #: The hash table of all single equalities, and per bucket its axis, coordinate, first group and
    #: end among those of `bucket_group`.
    single: Int32s
    single_bucket: Int64s
    #: Per signature of several axes: axes, first of them, start of its table, mask, first bucket,
    #: first key.
    signature: Int64s
    signature_axis: Int64s
    table: Int32s
    key: Floats
    #: Per axis what only matters to a notification with a coordinate there: the groups without an
    #: equality, and the signatures, as -1 for the first and so on.
    visit_ptr: Int64s
    visit: Int64s
    bucket_ptr: Int64s
    bucket_group: Int64s
    #: Groups without any bound: every row is tested against them.
    free: Int64s
    #: Per group: first box, end, shape, top level.
    group: Int64s
    #: Per group of single intervals: the size of the longest.
    group_size: Floats
    #: Per shape: dimensions, first of them, first box, where its bounds start, kind, and what else
    #: there is to test: nothing, extras, or from 2 on the complement of that number.
    shape: Int64s
    #: Per group its first node and the number of its nodes on each level.
    level: Int64s
    #: Per shape where the nodes of each level start.
    node_at: Int64s
    dim_axis: Int64s
    dim_hole: Int64s
    bounds: Floats
    nodes: Floats
    #: Where the extras of each box begin; per extra its axis (-1 for a hole on the first and so
    #: on), lower and upper end.
    extra_ptr: Int64s
    extra: Int64s
    #: See `complements`.
    complements: Int64s


def packed(arrays: Arrays) -> tuple[Int64s, Arrays]:
    """All of them in one array, and each of them as a part of it."""
    sizes = [-(-array.nbytes // 8) for array in arrays]
    begins = np.cumsum([len(arrays) + 1, *sizes])
    words = np.zeros(int(begins[-1]), np.int64)
    words[: len(begins)] = begins
    every: tuple[NDArray[Any], ...] = arrays
    parts: list[NDArray[Any]] = []
    for array, begin, end in zip(every, begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        part = words[begin:end].view(array.dtype)[: array.size]
        part[:] = array
        parts.append(part)
    return words, Arrays._make(parts)


#: With more axes than this, those that a batch says nothing about are left out.
FEW_AXES: Final = 64
#: Runs that a search expects to find, unless earlier ones have found more.
RUNS_PER_ROW: Final = 16


class Scratch(NamedTuple):
    """What a search writes to; see `kernels`."""

    runs: Int32s
    #: The stack of levels, and then the groups to look into; among recent boxes, a block of rows.
    work: Int64s
    #: The coordinates of one notification, those of one without any attribute to begin with; among
    #: recent boxes the columns that have them.
    x: Floats | Int64s
