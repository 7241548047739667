"""Recent boxes: those that came since the last segment was made, ready to be searched at once.

A segment is sorted and cannot take another box. Here every box is appended, and found through one
*chain* of boxes: all boxes whose equalities have the same hash, or all without an equality that
need the same axis, or all with the same token, or all that need nothing. Whoever is led to a chain
tests its boxes one by one, all bounds of each; there are few, because a full table becomes a
segment. So a new box costs a search next to nothing, and an append is a matter of microseconds.

Most rows of a batch are led nowhere, but which ones is hard to foresee, and a processor that has
to guess loses more time than the look-up takes. So a block of rows is looked up at a time: hashes
of all, then the chains that begin there, without a jump for each; then these are followed, and what
is found is sorted by row. A second set of equalities costs a few nanoseconds per row that way.

Searches take no lock, and may run beside an append. A search notes how many boxes there are when it
begins, and looks at no others. Chains are in the order of arrival, so it stops where the first box
appears that is too new for it, or the end: whether it sees the append or not, it finds the same.
An array that is full is replaced by a larger one; who began with the old one goes on with it.

Constants of ranked axes are numbered as they come. That is good enough for equalities and holes; a
range among them has to be left to a check.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import repeat
from math import nan
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from stentor.filters.conjunct import Conjunct
from stentor.matching.index import kernels
from stentor.matching.index.arrays import RUNS_PER_ROW, Floats, Int32s, Int64s, Scan, Scratch
from stentor.matching.index.axes import FLAGS, Axis, Bound
from stentor.matching.index.checks import CheckMaker, Compiled
from stentor.matching.index.plan import Box, Check
from stentor.matching.index.ranking import Coordinates, Reader, reader_of
from stentor.matching.index.substrings import Substrings

if TYPE_CHECKING:
    from stentor.matching.index.elements import GrowingConditions

#: More boxes than this are never held.
CAPACITY: Final = 4_096
#: Places of the hash table.
_PLACES: Final = 4_096
#: Signatures of several axes; boxes with yet another are found by one of their equalities.
_SIGNATURES: Final = 64


class Arrivals:
    """Coordinates on a ranked axis: constants by their arrival, 0 for everything else."""

    __slots__ = ("_found", "_parts", "elements", "places")

    def __init__(self, axis: Axis) -> None:
        #: No value has no place.
        self.places: dict[Any, float] = {None: nan}
        self._parts: list[str] | None = [] if axis.kind == "part" else None
        self._found: tuple[int, Substrings | None] = 0, None
        #: On an axis of elements, what finds the conditions that they satisfy.
        self.elements = _conditions() if axis.kind == "element" else None

    def __call__(self, value: Any) -> float:
        return self.places.get(value, 0.0)

    def of_all(self, values: Sequence[Any]) -> Floats:
        """The coordinates of many values, NaN for None."""
        return np.fromiter(map(self.places.get, values, repeat(0.0)), np.float64, len(values))

    @property
    def substrings(self) -> Substrings | None:
        """On an axis of parts, what finds them; made anew when there are new ones."""
        if self._parts is None:
            return None
        count, found = self._found
        if found is None or count < len(self._parts):
            parts = list(self._parts)
            found = Substrings(parts)
            self._found = len(parts), found
        return found

    def place(self, constant: Any) -> float:
        """The coordinate of a constant, which may be a new one."""
        found = self.places.get(constant)
        if found is None:
            if self._parts is not None:
                self._parts.append(constant)
            if self.elements is not None:
                self.elements.append(constant)
            found = self.places[constant] = 2.0 * len(self.places) - 1
        return found


def _conditions() -> GrowingConditions:
    from stentor.matching.index.elements import GrowingConditions  # which is made of recent boxes

    return GrowingConditions()


def searchable(box: Box, conjunct: Conjunct) -> tuple[Box, bool]:
    """The box with checks for the ranges that cannot be tested here, and whether there are any."""
    left = [bound for bound in box.bounds if _has_place(bound)]
    if len(left) == len(box.bounds):
        return box, False
    names = dict.fromkeys(bound.axis.name for bound in box.bounds if not _has_place(bound))
    checks: list[Check] = [(name, conjunct.constraints[name]) for name in names]
    return Box(left, box.token, [*checks, *box.checks]), True


def _has_place(bound: Bound) -> bool:
    return not bound.axis.ranked or bound.point or (bound.hole and _is_point(bound))


def _is_point(bound: Bound) -> bool:
    low, high = bound.low, bound.high
    return low is not None and high is not None and low[0] == high[0] and high[1] > low[1]


def _is_equality(bound: Bound) -> bool:
    return bound.point and not bound.hole and bound.axis.kind not in FLAGS


class RecentNow:
    """The recent boxes as one search sees them. The order in which the limits are read matters."""

    #: For small batches, and for large ones.
    scans: tuple[Scan, Scan] = kernels.scan_recent_at_once, kernels.scan_recent_freely
    always = 0
    #: Recent boxes are too few to decide their checks together.
    listed = None
    runs_per_row = RUNS_PER_ROW

    def __init__(self, recent: Recent) -> None:
        self._count = recent.count
        signatures = len(recent.signatures)
        self.axis_count = len(recent.axes)
        self.kernel_arguments = recent.kernel_arrays, self._count, signatures
        self.axes = recent.axes
        self.axes_of = recent.axes_of
        self.readers = recent.readers
        self.rankings: Mapping[Axis, Coordinates] = recent.rankings
        self.token_buckets = recent.token_buckets
        self.slots = recent.slots
        self.checked_from = recent.checked_from
        self.tests = recent.tests
        self.scratch = recent.scratch

    @property
    def every_axis(self) -> tuple[list[tuple[Axis, int]], Int64s]:
        """All axes with their columns, and the columns alone."""
        return list(self.axes.items())[: self.axis_count], np.arange(self.axis_count)

    @property
    def absent(self) -> Int64s:
        """The column of each axis for a notification without any attribute."""
        return np.full(self.axis_count, -1)

    def __len__(self) -> int:
        return self._count

    def labels(self, numbers: Int64s) -> Int64s:
        """The number of each box's slot."""
        return numbers[self.slots[: self._count]]


class Recent:
    """Boxes that are found as soon as they are appended: either all with checks, or none."""

    def __init__(self, checked: bool) -> None:
        #: How many boxes there are.
        self.count = 0
        #: How many of them every notification with the same attributes is tested against.
        self.unled = 0
        self.is_checked = checked
        self.checked_from = 0 if checked else CAPACITY
        self.tests: list[tuple[Compiled, ...]] = []
        self._make_checks = CheckMaker()
        self.axes: dict[Axis, int] = {}
        self.axes_of: dict[str, list[tuple[Axis, int]]] = {}
        self.readers: dict[str, list[Reader]] = {}
        self.rankings: dict[Axis, Arrivals] = {}
        #: For each axis of tokens the first box of each token, -1 where there is none.
        self.token_buckets: dict[Axis, Int64s] = {}
        self.scratch: list[Scratch] = []
        self.slots: Int32s = np.empty(0, np.int32)
        self._last: dict[Hashable, int] = {}
        self.signatures: dict[tuple[int, ...], int] = {}
        self._arrays: dict[str, NDArray[Any]] = {}
        self.kernel_arrays: tuple[NDArray[Any], ...] = ()

    def _begin(self) -> None:
        """Make the arrays; an index without recent boxes has none."""
        self._set_arrays(
            table=np.full(_PLACES, -1, np.int32),
            following=np.full(64, -1, np.int32),
            signature_of=np.full(64, -1, np.int32),
            first=np.full(1, -1, np.int32),
            axis_first=np.full(16, -1, np.int32),
            axis_signature=np.full(16, -1, np.int32),
            standing=np.zeros(16, np.uint8),
            signature=np.zeros((16, 2), np.int64),
            signature_next=np.full(16, -1, np.int32),
            signature_axis=np.zeros(16, np.int64),
            bound_ptr=np.zeros(64, np.int64),
            bound=np.zeros(192, np.int64),
        )

    def _set_arrays(self, **arrays: NDArray[Any]) -> None:
        self._arrays = arrays
        #: The same words as `bound`: of three the first is an axis (-1 for a hole on the first and
        #: so on), the others are lower and upper end.
        self._ends: Floats = arrays["bound"].view(np.float64)
        #: What kernels take, in the order above.
        self.kernel_arrays = tuple(arrays.values())

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values()) + 400 * self.count

    def now(self) -> RecentNow:
        """What there is at this moment, for a search. What comes in between is seen or not."""
        return RecentNow(self)

    def append(self, slot: int, box: Box) -> None:
        """Add a box, which searches find from now on. The index's lock guards it."""
        number = self.count
        if not self._arrays:
            self._begin()
        if number + 1 >= len(self._arrays["bound_ptr"]):
            self._enlarge("following", "signature_of", "bound_ptr")
        if number == len(self.slots):
            self.slots = np.resize(self.slots, max(64, 2 * number))
        points: list[tuple[int, float]] = []
        others: list[int] = []
        at = int(self._arrays["bound_ptr"][number])
        # Equalities last: whoever is led here most likely satisfies them.
        for bound in sorted(box.bounds, key=_is_equality):
            column = self._axis(bound.axis)
            low, high = self._ends_of(bound)
            if 3 * at == len(self._arrays["bound"]):
                self._enlarge("bound")
            self._arrays["bound"][3 * at] = ~column if bound.hole else column
            self._ends[3 * at + 1] = low
            self._ends[3 * at + 2] = high
            at += 1
            if _is_equality(bound):
                points.append((column, low))
            else:
                others.append(column)
        self._arrays["bound_ptr"][number + 1] = at
        self.slots[number] = slot
        if box.checks:
            self.tests.append(self._make_checks(box.checks))
        if box.token is not None:
            self._lead_by_token(number, *box.token)
        elif points:
            self._lead_by_points(number, sorted(dict(points).items()))
        else:
            self.unled += 1
            led = [column for column in others if not self._stands(column)]
            if led:
                self._chain(number, "axis_first", led[0])
            else:
                self._chain(number, "first", 0)
        self.count = number + 1  # only now do searches look at it

    def _stands(self, column: int) -> bool:
        return bool(self._arrays["standing"][column])

    def _ends_of(self, bound: Bound) -> tuple[float, float]:
        if not bound.axis.ranked:
            return bound.low + 0.0, bound.high + 0.0  # -0.0 would hash differently
        place = self.rankings[bound.axis].place(bound.low[0])
        return place, place

    def _axis(self, axis: Axis) -> int:
        column = self.axes.get(axis)
        if column is None:
            column = len(self.axes)
            if column == len(self._arrays["standing"]):
                self._enlarge("axis_first", "axis_signature", "standing")
            self._arrays["standing"][column] = axis.kind == "missing"
            if axis.ranked:
                self.rankings[axis] = Arrivals(axis)
            reader = reader_of(axis, column, self.rankings.get(axis))
            self.readers.setdefault(axis.name, []).append(reader)
            self.axes_of.setdefault(axis.name, []).append((axis, column))
            self.axes[axis] = column
        return column

    def _lead_by_points(self, box: int, points: list[tuple[int, float]]) -> None:
        signature = tuple(column for column, _ in points)
        number = self.signatures.get(signature)
        if number is None:
            if len(points) > 1 and len(self.signatures) >= _SIGNATURES:
                self._lead_by_points(box, points[:1])
                return
            number = self._add_signature(signature)
        self._arrays["signature_of"][box] = number
        table = self._arrays["table"]
        coordinates = np.array([coordinate for _, coordinate in points])
        self._chain(box, "table", kernels.recent_place(coordinates, number, len(table) - 1))

    def _add_signature(self, columns: tuple[int, ...]) -> int:
        number = len(self.signatures)
        if number == len(self._arrays["signature"]):
            self._enlarge("signature", "signature_next")
        at = int(self._arrays["signature"][number - 1].sum()) if number else 0
        while at + len(columns) > len(self._arrays["signature_axis"]):
            self._enlarge("signature_axis")
        arrays = self._arrays
        arrays["signature_axis"][at : at + len(columns)] = columns
        arrays["signature"][number] = len(columns), at
        lead = columns[0]
        last = self._last.get(("signature", lead))
        if last is None:
            arrays["axis_signature"][lead] = number
        else:
            arrays["signature_next"][last] = number
        self._last["signature", lead] = number
        self.signatures[columns] = number
        return number

    def _lead_by_token(self, box: int, axis: Axis, token: object) -> None:
        known = self.rankings.get(axis)
        if known is None:
            known = self.rankings[axis] = Arrivals(axis)
        place = int(known.place(token)) >> 1
        firsts = self.token_buckets.get(axis)
        if firsts is None or place >= len(firsts):
            larger = np.full(64 if firsts is None else 2 * len(firsts), -1, np.int64)
            if firsts is not None:
                larger[: len(firsts)] = firsts
            firsts = self.token_buckets[axis] = larger
        last = self._last.get((axis, token))
        if last is None:
            firsts[place] = box
        else:
            self._arrays["following"][last] = box
        self._last[axis, token] = box

    def _chain(self, box: int, name: str, place: int) -> None:
        last = self._last.get((name, place))
        if last is None:
            self._arrays[name][place] = box
        else:
            self._arrays["following"][last] = box
        self._last[name, place] = box

    def _enlarge(self, *names: str) -> None:
        arrays = dict(self._arrays)
        for name in names:
            old = arrays[name]
            arrays[name] = np.full((2 * len(old), *old.shape[1:]), _EMPTY.get(name, 0), old.dtype)
            arrays[name][: len(old)] = old
        self._set_arrays(**arrays)


_EMPTY: Final = dict.fromkeys(
    ("following", "signature_of", "axis_first", "axis_signature", "signature_next"), -1
)
