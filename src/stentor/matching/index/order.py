"""The order of boxes within a segment, which decides how well its nodes separate.

Constraints with few distinct values come first, as they are. A single further dimension is ordered
by the size class of the interval and then by its place: among intervals of similar size, those that
contain a point are neighbors, which is not so if long and short ones are mixed. Several dimensions
are interleaved bit by bit (a Morton order of their ranks), which keeps boxes that are close in all
of them together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index.distinct import distinct
from stentor.matching.index.table import FROM, POINT, UP_TO, Columns, Floats, Shape

Int64s = NDArray[np.int64]

#: Dimensions with at most n / _FEW distinct lower ends are sorted by value.
_FEW = 16
#: Bits per dimension in the interleaved order, and how many dimensions take part.
_MORTON_BITS = 15
_MORTON_DIMS = 4


def box_order(shape: Shape, columns: Columns, access: list[int], dims: list[int]) -> Int64s:
    """The order in which boxes stand in the segment."""
    n = len(columns)
    keys: list[NDArray[Any]] = [columns.lows[d] for d in access]
    spread: list[int] = []
    for d in dims:
        low, high = columns.lows[d], columns.highs[d]
        if shape.dims[d][1] == POINT:
            keys.append(low)
        elif len(dims) > 1 and len(distinct(low)) * _FEW <= n:
            keys += [low, high]
        else:
            spread.append(d)
    if len(spread) == 1:
        low, high = columns.lows[spread[0]], columns.highs[spread[0]]
        role = shape.dims[spread[0]][1]
        keys += {FROM: [low], UP_TO: [high]}.get(role) or [size_class(low, high), low]
    elif spread:
        keys.append(_interleaved([_center(columns.lows[d], columns.highs[d]) for d in spread]))
    if not keys:
        return np.arange(n)
    return np.lexsort(keys[::-1])


def size_class(low: Floats, high: Floats) -> Floats:
    """The size of an interval as a power of two; minus infinity for one without extent."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.floor(np.log2(np.maximum(high - low, 0.0)))


def _center(low: Floats, high: Floats) -> Floats:
    low = np.where(np.isinf(low), high, low)
    high = np.where(np.isinf(high), low, high)
    return low / 2 + high / 2


def _interleaved(centers: list[Floats]) -> Int64s:
    """Morton codes of the ranks of the centers."""
    centers = centers[:_MORTON_DIMS]
    n = len(centers[0])
    code = np.zeros(n, np.int64)
    for d, center in enumerate(centers):
        rank = np.empty(n, np.int64)
        rank[np.argsort(center, kind="stable")] = np.arange(n)
        rank = (rank << _MORTON_BITS) // n
        for bit in range(_MORTON_BITS):
            code |= ((rank >> bit) & 1) << (bit * len(centers) + d)
    return code
