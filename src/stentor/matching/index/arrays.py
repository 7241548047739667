"""The arrays of a segment, as the kernels take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: A kernel that returns the row where it stopped, and the number of runs.
Scan = Callable[..., tuple[int, int]]

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]


class AccessArrays(NamedTuple):
    """How coordinates lead to groups; see `kernels`."""

    #: Per axis: whether single equalities are looked up by it (1), and whether it stands (2), that
    #: is, has a coordinate if the attribute is *not* there.
    use: NDArray[np.uint8]
    standing: Int64s
    #: The hash table of all single equalities, and per bucket its axis and coordinate.
    single: Int32s
    single_axis: Int64s
    single_key: Floats
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


class GroupArrays(NamedTuple):
    """The boxes themselves; see `kernels`."""

    #: Per group: first box, end, shape, top level.
    group: Int64s
    #: Per group of single intervals: the size of the longest.
    group_size: Floats
    #: Per shape: dimensions, first of them, first box, where its bounds start, kind, and what else
    #: there is to test: nothing, extras, or from 2 on the complement of that number.
    shape: Int64s
    level_base: Int64s
    level_count: Int64s
    node_at: Int64s
    dim_axis: Int64s
    dim_hole: NDArray[np.uint8]
    bounds: Floats
    nodes: Floats
    extra_ptr: Int64s
    extra_axis: Int64s
    extra_hole: NDArray[np.uint8]
    extra_low: Floats
    extra_high: Floats


class Scratch(NamedTuple):
    """What a search writes to; see `kernels`."""

    runs: Int32s
    stack: Int64s
    todo: Int64s
    #: The coordinates of one notification, those of one without any attribute to begin with.
    x: Floats
