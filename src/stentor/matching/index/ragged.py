"""Boxes of rare shapes, each with its own list of bounds.

Users write filters over any subset of many attributes, so there can be nearly as many shapes as
filters. Columns for each of them would cost far more than they hold. Boxes whose shape has fewer
than `COMMON` of them are kept here instead: one flat list of bounds for all. When tables are
joined, shapes that have become common move to columns of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index.axes import Axis
from stentor.matching.index.distinct import changes, distinct

#: A shape with this many boxes gets columns of its own.
COMMON: Final = 64

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
#: Axes and roles of a shape, and whether it is checked.
Dims = tuple[tuple[tuple[Axis, int], ...], bool]

_NO_MOVE = np.empty(0, np.int64)


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
        used = distinct(self.axis[at])
        numbers = np.zeros(len(self.axes), np.int64)
        numbers[used] = np.arange(len(used))
        return Ragged(
            [self.axes[number] for number in used.tolist()],
            self.slots[boxes],
            ptr,
            numbers[self.axis[at]],
            self.role[at],
            self.low[at],
            self.high[at],
            self.checks[boxes],
        )

    def ends_by_axis(self) -> Iterator[tuple[Axis, Floats, Floats]]:
        """The lower and upper ends on each axis."""
        order = np.argsort(self.axis, kind="stable")
        begins = np.searchsorted(self.axis[order], np.arange(len(self.axes) + 1)).tolist()
        for axis, begin, end in zip(self.axes, begins, begins[1:], strict=False):
            yield axis, self.low[order[begin:end]], self.high[order[begin:end]]

    def moved(self, moves: Mapping[Axis, Ints]) -> Ragged:
        """With the ends on ranked axes translated to the new places of their constants."""
        parts = [moves[axis] if axis.ranked else _NO_MOVE for axis in self.axes]
        starts = np.cumsum([0, *map(len, parts)])[self.axis]
        ranked = np.array([axis.ranked for axis in self.axes], bool)[self.axis]
        low, high = self.low.copy(), self.high.copy()
        if ranked.any():
            move, starts = np.concatenate(parts), starts[ranked]
            low[ranked] = translated(low[ranked], move, starts, 1)
            high[ranked] = translated(high[ranked], move, starts, 0)
        return Ragged(self.axes, self.slots, self.ptr, self.axis, self.role, low, high, self.checks)

    def by_shape(self, known: Iterable[Dims]) -> tuple[list[Ints], Ints]:
        """The boxes of each shape that is common or known, and all the others."""
        sizes = np.diff(self.ptr)
        width = int(sizes.max(initial=0))
        codes = np.zeros((len(self), width + 1), np.int64)
        codes[:, 0] = [bool(c) for c in self.checks]
        row = np.repeat(np.arange(len(self)), sizes)
        codes[row, 1 + np.arange(len(self.axis)) - self.ptr[row]] = 8 * self.axis + self.role + 1
        order = np.lexsort(codes.T)
        starts = np.flatnonzero(changes(codes[order]))
        ends = np.append(starts[1:], len(order))
        found = ends - starts >= COMMON
        firsts = codes[order[starts]]
        places = {code.tobytes(): i for i, code in enumerate(firsts)}
        numbers = {axis: i for i, axis in enumerate(self.axes)}
        for dims, checked in known:
            if len(dims) <= width and all(axis in numbers for axis, _ in dims):
                code = np.zeros(width + 1, np.int64)
                code[0] = checked
                code[1 : 1 + len(dims)] = [8 * numbers[axis] + role + 1 for axis, role in dims]
                place = places.get(code.tobytes())
                if place is not None:
                    found[place] = True
        chosen = np.flatnonzero(found).tolist()
        return [order[starts[i] : ends[i]] for i in chosen], order[~np.repeat(found, ends - starts)]


def positions(ends: Floats, offset: int) -> Ints:
    """The constants that finite ends refer to."""
    finite = ends[np.isfinite(ends)]
    return (finite.astype(np.int64) - offset) >> 1


def translated(ends: Floats, move: Ints, start: Ints | int, offset: int) -> Floats:
    """Ends with new places of constants: they are 2·position + side + offset, or infinite.

    The constant at a position moves to `move[start + position]`.
    """
    finite = np.isfinite(ends)
    codes = np.where(finite, ends, offset).astype(np.int64) - offset
    # An infinite end may have no constant at all on its axis; where it moves does not matter.
    places = np.append(move, 0)[np.where(finite, start + (codes >> 1), len(move))]
    return np.where(finite, 2 * places + (codes & 1) + offset, ends)


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
