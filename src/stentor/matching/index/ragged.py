"""Boxes of rare shapes, each with its own list of bounds.

Users write filters over any subset of many attributes, so there can be nearly as many shapes as
filters. Columns for each of them would cost far more than they hold. Boxes whose shape has fewer
than `COMMON` of them are kept here instead: one flat list of bounds for all. When tables are
joined, shapes that have become common move to columns of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index.axes import Axis
from stentor.matching.index.distinct import changes

#: A shape with this many boxes gets columns of its own.
COMMON: Final = 64

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(slots=True)
class Ragged:
    """Box i has the bounds ptr[i] to ptr[i + 1]; `axis` counts in `axes`."""

    axes: list[Axis]
    slots: NDArray[np.int32]
    ptr: Ints
    axis: Ints
    role: Ints
    low: Floats
    high: Floats
    #: Checks of each box, an empty tuple where it has none.
    checks: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        arrays = (self.slots, self.ptr, self.axis, self.role, self.low, self.high, self.checks)
        return sum(a.nbytes for a in arrays)

    def take(self, boxes: Ints) -> Ragged:
        """Some of the boxes, in this order."""
        sizes = np.diff(self.ptr)[boxes]
        ptr = np.concatenate(([0], np.cumsum(sizes)))
        at = np.repeat(self.ptr[boxes] - ptr[:-1], sizes) + np.arange(ptr[-1])
        return Ragged(
            self.axes,
            self.slots[boxes],
            ptr,
            self.axis[at],
            self.role[at],
            self.low[at],
            self.high[at],
            self.checks[boxes],
        )

    def moved(self, translate: Callable[[Axis, Floats, Floats], tuple[Floats, Floats]]) -> Ragged:
        """With the ends on ranked axes translated to other constants."""
        low, high = self.low.copy(), self.high.copy()
        for number, axis in enumerate(self.axes):
            if axis.ranked:
                mine = self.axis == number
                low[mine], high[mine] = translate(axis, low[mine], high[mine])
        return Ragged(self.axes, self.slots, self.ptr, self.axis, self.role, low, high, self.checks)

    def by_shape(self) -> list[Ints]:
        """The boxes of each shape."""
        sizes = np.diff(self.ptr)
        width = int(sizes.max(initial=0))
        codes = np.zeros((len(self), width + 1), np.int64)
        codes[:, 0] = [bool(c) for c in self.checks]
        row = np.repeat(np.arange(len(self)), sizes)
        codes[row, 1 + np.arange(len(self.axis)) - self.ptr[row]] = 8 * self.axis + self.role + 1
        order = np.lexsort(codes.T)
        return np.split(order, np.flatnonzero(changes(codes[order]))[1:])


def nothing_ragged() -> Ragged:
    ints = np.empty(0, np.int64)
    floats = np.empty(0)
    return Ragged(
        [],
        np.empty(0, np.int32),
        np.zeros(1, np.int64),
        ints,
        ints,
        floats,
        floats,
        np.empty(0, object),
    )


def stacked(parts: Iterable[Ragged]) -> Ragged:
    """All boxes of several."""
    parts = [part for part in parts if len(part)]
    if len(parts) <= 1:
        return parts[0] if parts else nothing_ragged()
    axes = list(dict.fromkeys(axis for part in parts for axis in part.axes))
    place = {axis: i for i, axis in enumerate(axes)}
    numbers = [np.array([place[axis] for axis in part.axes], np.int64) for part in parts]
    ends = np.cumsum([0, *(part.ptr[-1] for part in parts)])
    return Ragged(
        axes,
        np.concatenate([p.slots for p in parts]),
        np.concatenate(
            [np.zeros(1, np.int64), *(p.ptr[1:] + e for p, e in zip(parts, ends[:-1], strict=True))]
        ),
        np.concatenate([n[p.axis] for n, p in zip(numbers, parts, strict=True)]),
        np.concatenate([p.role for p in parts]),
        np.concatenate([p.low for p in parts]),
        np.concatenate([p.high for p in parts]),
        np.concatenate([p.checks for p in parts]),
    )


def object_array(items: list[Any]) -> NDArray[np.object_]:
    array = np.empty(len(items), object)
    for i, item in enumerate(items):  # assigning the list would look inside the tuples
        array[i] = item
    return array
