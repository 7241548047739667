"""A compiled, immutable set of boxes; `layout` builds it and `kernels` search it."""

from __future__ import annotations

import numpy as np

from stentor.matching.index.arrays import Int64s, Scratch
from stentor.matching.index.axes import Axis
from stentor.matching.index.checks import compiled
from stentor.matching.index.distinct import distinct
from stentor.matching.index.layout import Layout
from stentor.matching.index.plan import names_of
from stentor.matching.index.ragged import object_array
from stentor.matching.index.ranking import Reader, coordinate_on
from stentor.matching.index.table import Columns, Floats, Shape, Table


class Segment:
    """Boxes ready to be searched."""

    def __init__(self, table: Table) -> None:
        layout = Layout(table)
        self.access = layout.access_arrays()
        self.arrays = layout.group_arrays()
        #: For the kernels as plain tuples: their compiled form, kept on disk, must not refer to
        #: classes that another version of this package may have elsewhere.
        self.complements = layout.complements.array()
        self.kernel_arrays = tuple(self.access), tuple(self.arrays), self.complements
        self.axes = layout.axes
        self.rankings = layout.rankings()
        self.slots = layout.slots
        self.distinct_slots = distinct(self.slots)
        self.checks = layout.checks
        self.checked_from = layout.checked_from
        ready = {id(check): compiled(check) for checks in self.checks for check in checks}
        #: The checks of each box again, ready for use.
        self.tests = [tuple([ready[id(check)] for check in checks]) for checks in self.checks]
        #: For each axis of tokens the bucket of each constant, -1 where there is none.
        self.token_buckets = layout.token_buckets
        #: All attributes that are looked at.
        self.names = frozenset(
            [
                *(axis.name for axis in (*self.axes, *self.token_buckets)),
                *(name for checks in self.checks for check in checks for name in names_of(check)),
            ]
        )
        self._laid = layout.laid
        self._ragged = layout.table.ragged
        self._labels: Int64s | None = None
        #: Scratch space of searches that have ended, for the next; a thread takes it for itself.
        self.scratch: list[Scratch] = []
        #: No row is led to more groups than this by its equalities.
        sizes = np.diff(self.access.bucket_ptr)
        self.most_groups = int(sizes.max(initial=0)) * len(self.access.signature)
        #: For an attribute: types of its value, columns, and the coordinate of a value.
        self.readers: dict[str, list[Reader]] = {}
        #: Columns that are set whatever the type, and those set when the attribute is missing.
        self.present: dict[str, int] = {}
        self.missing: dict[str, int] = {}
        for axis, column in self.axes.items():
            self._add_reader(axis, column)

    def _add_reader(self, axis: Axis, column: int) -> None:
        if axis.kind == "present":
            self.present[axis.name] = column
        elif axis.kind == "missing":
            self.missing[axis.name] = column
        else:
            reader = (axis.value_type, column, coordinate_on(axis, self.rankings.get(axis)))
            self.readers.setdefault(axis.name, []).append(reader)

    def __len__(self) -> int:
        return len(self.slots)

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
        for laid in self._laid:
            k, _, first, at, _, _ = self.arrays.shape[laid.number].tolist()
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
                checks = object_array(self.checks[begin : begin + count])
            shapes[laid.shape] = Columns(self.slots[first : first + count], lows, highs, checks)
        constants = {axis: ranking.constants for axis, ranking in self.rankings.items()}
        return Table(shapes, self._ragged, constants)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, and an estimate for the constants."""
        arrays = (*self.access, *self.arrays, self.complements, self.slots, self.distinct_slots)
        constants = sum(160 * len(r.constants) for r in self.rankings.values())
        constants += sum(r.substrings.nbytes for r in self.rankings.values() if r.substrings)
        return sum(a.nbytes for a in arrays) + self._ragged.nbytes + constants
