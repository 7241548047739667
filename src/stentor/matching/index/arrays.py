"""The arrays of a segment, as the kernels take them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]


class AccessArrays(NamedTuple):
    """How coordinates lead to groups; see `kernels`."""

    #: Per signature: axes, first of them, start of its table, mask, first bucket, first key.
    signature: Int64s
    signature_axis: Int64s
    table: Int32s
    key: Floats
    bucket_ptr: Int64s
    bucket_group: Int64s
    #: Groups without an equality: every row is tested against them.
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
