"""Pools: how boxes of rare shapes are found.

Each box is given one bound to lead to it: its token, else its most varied equality, else a lower or
upper end. Boxes led to on the same axis in the same way form a pool, which is laid out like a shape
of that one dimension; the rest of their bounds are extras, tested box by box.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index.axes import FLAGS
from stentor.matching.index.distinct import changes, distinct
from stentor.matching.index.ragged import Ragged
from stentor.matching.index.table import FROM, HOLE, POINT, RANGE, TOKEN, UP_TO, Columns, Shape

Int64s = NDArray[np.int64]


class Pool(NamedTuple):
    """Boxes of rare shapes that are found in the same way."""

    shape: Shape
    columns: Columns
    extras: Ragged


#: How good it is to find a box by a bound of this role.
_ROLE_SCORE = {HOLE: 0, RANGE: 2, FROM: 2, UP_TO: 2, POINT: 1_000, TOKEN: 10**12}


def pools_of(ragged: Ragged) -> list[Pool]:
    """Give every box one bound to be found by; what is left becomes its extras."""
    if not len(ragged):
        return []
    varied = np.zeros(len(ragged.axes), np.int64)
    flags = np.array([axis.kind in FLAGS for axis in ragged.axes], bool)
    for number in range(len(ragged.axes)):
        points = (ragged.axis == number) & (ragged.role == POINT)
        varied[number] = len(distinct(ragged.low[points]))
    scores = np.array([_ROLE_SCORE[role] for role in range(6)])[ragged.role]
    scores += np.where(ragged.role == POINT, varied[ragged.axis], 0)
    scores[flags[ragged.axis]] = 1
    sizes = np.diff(ragged.ptr)
    box = np.repeat(np.arange(len(ragged)), sizes)
    best = np.full(len(ragged), -1, np.int64)
    order = np.lexsort((scores, box))  # the last of each box has the highest score
    best[box[order]] = order
    role = np.append(ragged.role, HOLE)[best]  # a box without bounds has the last, a hole
    # An interval leads by its lower end, and is tested whole; a hole leads nowhere.
    lead = np.where(role == RANGE, FROM, role)
    pools: list[Pool] = []
    axis = np.where(lead == HOLE, -1, np.append(ragged.axis, -1)[best])
    checked = np.array([bool(c) for c in ragged.checks], bool)
    keys = np.stack((axis, lead, checked), axis=1)
    order = np.lexsort(keys.T)
    for boxes in np.split(order, np.flatnonzero(changes(keys[order]))[1:]):
        pools.append(_pool(ragged, boxes, best[boxes], keys[boxes[0]].tolist()))
    return pools


def _pool(ragged: Ragged, boxes: Int64s, best: Int64s, key: list[int]) -> Pool:
    number, lead, checked = key
    part = ragged.take(boxes)
    within = best - ragged.ptr[boxes] + part.ptr[:-1]  # the leading bound in its new place
    if number < 0:
        shape = Shape((), bool(checked))
        return Pool(shape, Columns(part.slots, [], [], part.checks if checked else None), part)
    low, high = part.low[within], part.high[within]
    if lead == FROM:
        high = np.full(len(low), np.inf)
    shape = Shape(((ragged.axes[number], lead),), bool(checked))
    whole = part.role[within] == lead  # the lead says all that the bound says
    keep = np.ones(len(part.axis), bool)
    keep[within[whole]] = False
    sizes = np.diff(part.ptr) - whole
    extras = Ragged(
        part.axes,
        part.slots,
        np.concatenate(([0], np.cumsum(sizes))),
        part.axis[keep],
        part.role[keep],
        part.low[keep],
        part.high[keep],
        part.checks,
    )
    return Pool(shape, Columns(part.slots, [low], [high], part.checks if checked else None), extras)
