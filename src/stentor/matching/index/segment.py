"""A compiled, immutable set of boxes; `layout` builds it and `kernels` search it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from stentor.matching.index import kernels
from stentor.matching.index.arrays import RUNS_PER_ROW, Int64s, Scan, Scratch, packed
from stentor.matching.index.axes import Axis
from stentor.matching.index.distinct import distinct
from stentor.matching.index.layout import Layout
from stentor.matching.index.listed import Listed
from stentor.matching.index.ragged import object_array
from stentor.matching.index.ranking import Ranking, Reader, reader_of
from stentor.matching.index.table import Columns, Floats, Shape, Table

#: What a box with checks, and what an attribute, takes to compile in addition; in plain boxes.
CHECKED: Final = 20
NAMED: Final = 50


def weight(boxes: int, checked: int, names: int) -> int:
    """What it takes to compile so many boxes, in plain ones."""
    return boxes + CHECKED * checked + NAMED * names


class Segment:
    """Boxes ready to be searched."""

    #: For small batches, and for large ones.
    scans: tuple[Scan, Scan] = kernels.scan_at_once, kernels.scan_freely

    def __init__(self, table: Table) -> None:
        layout = Layout(table)
        words, self.arrays = packed(layout.arrays())
        self.kernel_arguments = (words,)
        self.axes = layout.axes
        self.rankings: Mapping[Axis, Ranking] = layout.rankings()
        self.axis_count = len(self.axes)
        #: All axes with their columns, and the columns alone.
        self.every_axis = list(self.axes.items()), np.array([*self.axes.values()], np.int64)
        self.always = len(self.arrays.free)
        self.slots = layout.slots
        self.distinct_slots = distinct(self.slots)
        self.checked_from = layout.checked_from
        #: The checks of each box that has any.
        self.tests = layout.tests
        listed = Listed(self.tests)
        #: What decides some of them for a whole batch, if there are such.
        self.listed = listed if len(listed) else None
        #: For each axis of tokens the bucket of each constant, -1 where there is none.
        self.token_buckets = layout.token_buckets
        #: All attributes that are looked at.
        self.names = frozenset(
            [
                *(axis.name for axis in (*self.axes, *self.token_buckets)),
                *(name for checks in self.tests for check in checks for name in check.names),
            ]
        )
        self._laid = layout.laid
        self._ragged = layout.table.ragged
        self._labels: Int64s | None = None
        #: Scratch space of searches that have ended, for the next; a thread takes it for itself.
        self.scratch: list[Scratch] = []
        #: As the last large search found them.
        self.runs_per_row = RUNS_PER_ROW
        #: The coordinates of a notification without any attribute.
        self.absent = np.full(len(self.axes), np.nan)
        self.absent[self.arrays.standing] = 1.0
        #: For an attribute its axes with their columns, and for each of these the type of value
        #: that it reads (any if empty) and the coordinate of such a value.
        self.axes_of: dict[str, list[tuple[Axis, int]]] = {}
        self.readers: dict[str, list[Reader]] = {}
        for axis, column in self.axes.items():
            self.axes_of.setdefault(axis.name, []).append((axis, column))
            reader = reader_of(axis, column, self.rankings.get(axis))
            self.readers.setdefault(axis.name, []).append(reader)

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def parts(self) -> tuple[Segment]:
        """What is searched."""
        return (self,)

    @property
    def weight(self) -> int:
        """What it takes to compile it, in plain boxes."""
        return weight(len(self.slots), len(self.tests), len(self.names))

    def labels(self, numbers: Int64s) -> Int64s:
        """The number of each box's slot: side by side, where a search finds them."""
        if self._labels is None:
            self._labels = numbers[self.slots]
        return self._labels

    def __reduce__(self) -> tuple[type[Segment], tuple[Table]]:
        return Segment, (self.table(),)

    def table(self) -> Table:
        """The boxes back in raw form, to be compiled anew together with others."""
        shapes: dict[Shape, Columns] = {}
        rows = self.arrays.shape.reshape(-1, 6)
        for laid in self._laid:
            k, _, first, at, _, _ = rows[laid.number].tolist()
            count = int(laid.starts[-1])
            bounds = self.arrays.bounds[at : at + count * k * 2].reshape(count, k, 2)
            others = iter(range(k))
            lows: list[Floats] = []
            highs: list[Floats] = []
            for d in range(len(laid.shape.dims)):
                if d in laid.access:  # a point has one coordinate
                    column = np.repeat(laid.keys[:, laid.access.index(d)], np.diff(laid.starts))
                    lows.append(column)
                    highs.append(column)
                else:
                    place = next(others)
                    lows.append(bounds[:, place, 0])
                    highs.append(bounds[:, place, 1])
            checks = None
            if laid.shape.checked:
                begin = first - self.checked_from
                checks = object_array(self.tests[begin : begin + count])
            shapes[laid.shape] = Columns(self.slots[first : first + count], lows, highs, checks)
        constants = {axis: ranking.constants for axis, ranking in self.rankings.items()}
        return Table(shapes, self._ragged, constants)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, and an estimate for the constants."""
        arrays = (*self.kernel_arguments, self.slots, self.distinct_slots)
        constants = sum(160 * len(r.constants) for r in self.rankings.values())
        constants += sum(r.substrings.nbytes for r in self.rankings.values() if r.substrings)
        constants += sum(r.elements.nbytes for r in self.rankings.values() if r.elements)
        return sum(a.nbytes for a in arrays) + self._ragged.nbytes + constants
