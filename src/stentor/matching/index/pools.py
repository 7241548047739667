"""Pools: how boxes of rare shapes are found.

Each box is given one bound to lead to it: its token, else its most varied equality, else a lower or
upper end. Boxes led to in the same way form a pool, whatever the axis; it is laid out in the order
of axes and ends. The rest of their bounds are extras, tested box by box. Where ends would lead to
very many boxes, these and all that nothing leads to are a complement instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index.axes import FLAGS
from stentor.matching.index.complements import pays
from stentor.matching.index.distinct import changes
from stentor.matching.index.ragged import Ragged
from stentor.matching.index.table import FROM, HOLE, POINT, RANGE, TOKEN, UP_TO, Floats

Int64s = NDArray[np.int64]


class Pool(NamedTuple):
    """Boxes of rare shapes that are found in the same way, sorted by axis and coordinate or end."""

    #: The role of the bound that leads to them; HOLE if none does, or they are a complement.
    lead: int
    checked: bool
    #: The axis of that bound, counted in `extras.axes`, and its coordinate or end.
    axis: Int64s
    end: Floats
    #: The boxes without that bound, unless it says more than the lead.
    extras: Ragged


#: How good it is to find a box by a bound of this role.
_ROLE_SCORE = {HOLE: 0, RANGE: 2, FROM: 2, UP_TO: 2, POINT: 1_000, TOKEN: 10**12}


def pools_of(ragged: Ragged) -> list[Pool]:
    """Give every box one bound to be found by; what is left becomes its extras."""
    if not len(ragged):
        return []
    flags = np.array([axis.kind in FLAGS for axis in ragged.axes], bool)
    points = ragged.role == POINT
    scores = np.array([_ROLE_SCORE[role] for role in range(6)])[ragged.role]
    scores += np.where(points, _varied(ragged, points)[ragged.axis], 0)
    scores[flags[ragged.axis]] = 1
    sizes = np.diff(ragged.ptr)
    box = np.repeat(np.arange(len(ragged)), sizes)
    best = np.full(len(ragged), -1, np.int64)
    order = np.lexsort((scores, box))  # the last of each box has the highest score
    best[box[order]] = order
    role = np.append(ragged.role, HOLE)[best]  # a box without bounds has the last, a hole
    # An interval leads by its lower end, and is tested whole; a hole leads nowhere.
    lead = np.where(role == RANGE, FROM, role)
    axis = np.append(ragged.axis, -1)[best]
    ends = np.where(
        lead == UP_TO, np.append(ragged.high, 0.0)[best], np.append(ragged.low, 0.0)[best]
    )
    checked = np.array([bool(c) for c in ragged.checks], bool)
    alike = np.zeros(len(ragged), np.int64)
    for some in (~checked, checked):
        some = some & (lead != POINT) & (lead != TOKEN)
        if pays(ragged.axis[some[box]], int(some.sum())):
            # Those with a single bound of one kind stand together: they are often found together.
            alike[some] = 8 * sizes[some] + lead[some]
            lead[some] = HOLE
    order = np.lexsort((ends, axis, alike, lead, checked))
    kinds = np.stack((lead, checked), axis=1)[order]
    axis = np.where(lead == HOLE, -1, axis)
    return [
        _pool(ragged, boxes, best[boxes], int(lead[boxes[0]]), axis[boxes], ends[boxes])
        for boxes in np.split(order, np.flatnonzero(changes(kinds))[1:])
    ]


def _varied(ragged: Ragged, points: NDArray[np.bool_]) -> Int64s:
    """For each axis the number of its distinct coordinates in equalities."""
    pairs = np.stack((ragged.axis[points].astype(np.float64), ragged.low[points]), axis=1)
    pairs = pairs[np.lexsort(pairs.T[::-1])]
    return np.bincount(pairs[changes(pairs), 0].astype(np.int64), minlength=len(ragged.axes))


def _pool(
    ragged: Ragged, boxes: Int64s, best: Int64s, lead: int, axis: Int64s, ends: Floats
) -> Pool:
    part = ragged.take(boxes)
    place = {name: number for number, name in enumerate(part.axes)}
    axis = np.array([place[ragged.axes[a]] if a >= 0 else -1 for a in axis.tolist()], np.int64)
    checked = bool(part.checks[0])
    if lead == HOLE:
        return Pool(lead, checked, axis, ends, part)
    within = best - ragged.ptr[boxes] + part.ptr[:-1]  # the leading bound in its new place
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
    return Pool(lead, checked, axis, ends, extras)
