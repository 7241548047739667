"""Complements: boxes that nearly every notification lies in, or half of them, as far as any single
bound can tell: `a != 1 and b not in (2, 3)`, `c > 5 and d <= 'x'`.

Nothing leads to such a box that would not lead to very many. So the search goes the other way: all
boxes, without those that leave out what the notification says. For each axis and each value there
that boxes leave out by itself, these boxes are an *entry*: a bit for every box, or a list where
that is shorter. A further entry of the axis holds all boxes with any bound there; they are ruled
out if the notification has no coordinate. Of the boxes with a lower end on the axis, in the order
of these ends, a coordinate rules out all from some place on; so there are bits for all from the
first on, for all from a later place on, and so forth, at such distances that the boxes up to the
next such place are no more than the words of the bits. Upper ends are the same with their signs
turned. What remains, 64 boxes a step, is the answer; only boxes that leave out more than single
values (`x not between 1 and 5`) are tested after that.

All this is in one array, since each array that is handed to a kernel costs time. It begins with the
places in it where axes, values, entries, lists and bits begin, and goes on with four numbers for
each complement: its first box, its words of 64 boxes, its first axis and the end of its axes. Then:

    axes       number in the segment; of values left out the first, how many, and the first entry:
               that of all boxes, then of each; of lower ends, and of upper ends with their signs
               turned, the first, how many, the first box among the lists, and the first bits
    values     doubles, ascending: those left out, and ends
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
#: How many words of bits an axis costs besides its own, and how many a box that is tested.
AXIS_COST: Final = 5
BOX_COST: Final = 2
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


def pays(axis: Int64s, boxes: int) -> bool:
    """Whether so many boxes, with bounds on these axes, had better be a complement.

    Otherwise a search tests about half of those that are led to by an attribute it has.
    """
    words = -(-boxes // 64)
    bounds = np.bincount(axis)
    bounds = bounds[bounds > 0]
    cost = int(np.minimum(bounds, words).sum()) + AXIS_COST * len(bounds)
    return boxes >= LEAST and cost <= BOX_COST * boxes


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
        self._axes: list[tuple[int, ...]] = []
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
        hole = boxes.role == HOLE
        covered = ~hole | (boxes.low == boxes.high)
        order = np.flatnonzero(covered)
        order = order[np.argsort(boxes.axis[order], kind="stable")]
        axes = distinct(boxes.axis[order])
        axes_from = len(self._axes)
        begins = np.searchsorted(boxes.axis[order], axes)
        for one, mine in zip(axes.tolist(), np.split(order, begins[1:]), strict=True):
            entry = len(self._entries)
            self._add_entry(distinct(box[mine]), words)
            single = self._add_values(mine[hole[mine]], boxes.low, box, words)
            inside = mine[~hole[mine]]
            lower = self._add_ends(boxes.low[inside], box[inside], words)
            upper = self._add_ends(-boxes.high[inside], box[inside], words)
            self._axes.append((number(boxes.axes[one]), *single, entry, *lower, *upper))
        self._pools.append((first, words, axes_from, len(self._axes)))
        tested = np.bincount(box[~covered], minlength=count) > 0
        return Split(axes, _of_some(boxes, tested))

    def _add_values(
        self, bounds: Int64s, low: NDArray[np.float64], box: Int64s, words: int
    ) -> tuple[int, int]:
        """Entries for the single values that are left out: the first, and how many."""
        bounds = bounds[np.lexsort((box[bounds], low[bounds]))]
        starts = np.flatnonzero(changes(low[bounds]))
        for members in np.split(box[bounds], starts[1:]) if len(starts) else ():
            self._add_entry(members, words)
        return self._add_doubles(low[bounds[starts]]), len(starts)

    def _add_doubles(self, values: NDArray[np.float64]) -> int:
        self._values.append(values)
        self._value_count += len(values)
        return self._value_count - len(values)

    def _add_ends(
        self, ends: NDArray[np.float64], box: Int64s, words: int
    ) -> tuple[int, int, int, int]:
        """Lower ends: the first, how many, the first box, and the first bits."""
        finite = ends > -np.inf  # the others leave nothing out
        ends, box = ends[finite], box[finite]
        order = np.argsort(ends, kind="stable")
        ends, box = ends[order], box[order]
        found = self._add_doubles(ends), len(ends), self._list_size, self._bits_size
        self._lists.append(box)
        self._list_size += len(box)
        for start in range(0, len(box), words):
            self._add_bits(box[start:], words)
        return found

    def _add_entry(self, members: Int64s, words: int) -> None:
        if len(members) <= words:
            self._entries.append((self._list_size, len(members)))
            self._lists.append(members)
            self._list_size += len(members)
            return
        self._entries.append((self._bits_size, -1))
        self._add_bits(members, words)

    def _add_bits(self, members: Int64s, words: int) -> None:
        marks = np.zeros(64 * words, bool)
        marks[members] = True
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
