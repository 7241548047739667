"""Complements: boxes that only leave values out, as `a != 1 and b not in (2, 3)` does.

Nothing leads to such a box, since nearly every notification lies in it. So the search goes the
other way: all boxes, without those that leave out what the notification says. For each axis and
each value there, the boxes that leave it out are an *entry*: a bit for every box, or a list where
that is shorter. A further entry of the axis holds all boxes that leave out any value there; they
are ruled out if the notification has no coordinate. What remains, 64 boxes a step, is the answer
for boxes that leave out single values. Others (`x not between 1 and 5`) are tested after that.

All this is in one array, since each array that is handed to a kernel costs time. It begins with the
places in it where axes, values, entries, lists and bits begin, and goes on with four numbers for
each complement: its first box, its words of 64 boxes, its first axis and the end of its axes. Then:

    axes       number in the segment, first value, values, first entry: that of all, then of each
    values     doubles, ascending for each axis
    entries    where it begins among the lists, and its size; or among the bits, and -1
    lists      boxes, counted from the first
    bits       a word for 64 boxes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index.axes import Axis
from stentor.matching.index.distinct import changes, distinct
from stentor.matching.index.ragged import Ragged, object_array, stacked
from stentor.matching.index.table import HOLE, Columns, Shape, Table

Int64s = NDArray[np.int64]

#: Fewer boxes than this are sooner tested one by one.
LEAST: Final = 64
#: Common shapes that leave out fewer values than this are laid out as trees.
MANY: Final = 3


def gathered(table: Table) -> Table:
    """The same boxes; those which do nothing but leave many values out are among the rare ones.

    There they share one complement, whatever their shapes. Where each leaves out one or two values,
    neighbors leave out nearly the same, and a tree of boxes does as well.
    """
    chosen = [
        shape
        for shape in table.shapes
        if len(shape.dims) >= MANY and all(role == HOLE for _, role in shape.dims)
    ]
    if not chosen:
        return table
    parts = [_as_ragged(shape, table.shapes[shape]) for shape in chosen]
    shapes = {shape: cols for shape, cols in table.shapes.items() if shape not in chosen}
    return Table(shapes, stacked([table.ragged, *parts]), table.constants)


def _as_ragged(shape: Shape, columns: Columns) -> Ragged:
    count, dims = len(columns), len(shape.dims)
    checks = object_array([()] * count) if columns.checks is None else columns.checks
    return Ragged(
        [axis for axis, _ in shape.dims],
        columns.slots,
        np.arange(count + 1) * dims,
        np.tile(np.arange(dims), count),
        np.full(count * dims, HOLE),
        np.stack(columns.lows, axis=1).reshape(-1),
        np.stack(columns.highs, axis=1).reshape(-1),
        checks,
    )


class Split(NamedTuple):
    """The complements of some boxes."""

    #: On which axes, counted in those of the boxes.
    axes: Int64s
    #: The boxes with those bounds only that remain to be tested.
    rest: Ragged


class Complements:
    """The complements of a segment, to be put into arrays."""

    def __init__(self) -> None:
        self._pools: list[tuple[int, int, int, int]] = []
        self._axes: list[tuple[int, int, int, int]] = []
        self._values: list[NDArray[np.float64]] = []
        self._entries: list[tuple[int, int]] = []
        self._lists: list[Int64s] = []
        self._bits: list[Int64s] = []
        self._value_count = self._list_size = self._bits_size = 0

    def __len__(self) -> int:
        return len(self._pools)

    def add(self, boxes: Ragged, first: int, number: Callable[[Axis], int]) -> Split:
        """Boxes that come to stand from `first` on; `number` is that of an axis in the segment."""
        count = len(boxes)
        words = -(-count // 64)
        box = np.repeat(np.arange(count), np.diff(boxes.ptr))
        single = (boxes.role == HOLE) & (boxes.low == boxes.high)
        axis, value, mine = boxes.axis[single], boxes.low[single], box[single]
        order = np.lexsort((mine, value, axis))
        axis, value, mine = axis[order], value[order], mine[order]
        axes = distinct(axis)
        axes_from = len(self._axes)
        for one in axes.tolist():
            begin, end = np.searchsorted(axis, (one, one + 1)).tolist()
            starts = np.flatnonzero(changes(value[begin:end])) + begin
            entry = len(self._entries)
            self._add_entry(distinct(mine[begin:end]), words)
            for members in np.split(mine[begin:end], starts[1:] - begin):
                self._add_entry(members, words)
            self._values.append(value[starts])
            row = (number(boxes.axes[one]), self._value_count, len(starts), entry)
            self._axes.append(row)
            self._value_count += len(starts)
        self._pools.append((first, words, axes_from, len(self._axes)))
        tested = np.bincount(box[~single], minlength=count) > 0
        return Split(axes, _of_some(boxes, tested))

    def _add_entry(self, members: Int64s, words: int) -> None:
        if len(members) <= words:
            self._entries.append((self._list_size, len(members)))
            self._lists.append(members)
            self._list_size += len(members)
            return
        marks = np.zeros(64 * words, bool)
        marks[members] = True
        self._entries.append((self._bits_size, -1))
        self._bits.append(np.packbits(marks, bitorder="little").view(np.int64))
        self._bits_size += words

    def array(self) -> Int64s:
        """All of them; see above."""
        parts = [
            np.array(self._pools, np.int64).reshape(-1),
            np.array(self._axes, np.int64).reshape(-1),
            np.concatenate([np.empty(0), *self._values]).view(np.int64),
            np.array(self._entries, np.int64).reshape(-1),
            np.concatenate([np.empty(0, np.int64), *self._lists]),
            np.concatenate([np.empty(0, np.int64), *self._bits]),
        ]
        begins = np.cumsum([5, *map(len, parts[:-1])])[1:]
        return np.concatenate([begins, *parts])


def _of_some(boxes: Ragged, some: NDArray[np.bool_]) -> Ragged:
    """All boxes, but only some of them with their bounds."""
    sizes = np.diff(boxes.ptr)
    kept = np.repeat(some, sizes)
    return Ragged(
        boxes.axes,
        boxes.slots,
        np.concatenate(([0], np.cumsum(sizes * some))),
        boxes.axis[kept],
        boxes.role[kept],
        boxes.low[kept],
        boxes.high[kept],
        boxes.checks,
    )
