"""Boxes as columns: the raw form that segments are compiled from.

Boxes with the same axes, in the same roles, form a *shape* and are kept as columns of lower and
upper ends. On ranked axes the ends are written with the positions of their constants in the table's
own list of constants, as if these were ranks (see `axes`): the constant at position i has the
coordinate 2i+1, the gap before it 2i. When tables are put together the positions are translated,
and compiling sorts the constants, after which position and rank are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index.axes import FLAGS, MEASURED, PLAIN_ORDER, Axis, Bound
from stentor.matching.index.checks import CheckMaker, Compiled
from stentor.matching.index.constants import join_constants
from stentor.matching.index.plan import Box
from stentor.matching.index.ragged import (
    COMMON,
    Ragged,
    object_array,
    positions,
    stacked,
    translated,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Roles of a dimension: an interval, outside of one, an equality, a token, a half-open range.
RANGE, HOLE, POINT, TOKEN, FROM, UP_TO = range(6)


class Shape(NamedTuple):
    """What boxes have in common: their axes with the role of each, and whether they are checked."""

    dims: tuple[tuple[Axis, int], ...]
    checked: bool


@dataclass(slots=True)
class Rows:
    """The boxes of one shape as lists that grow."""

    slots: list[int]
    #: Lower and upper end on each dimension in turn, box after box.
    ends: list[float]
    checks: list[tuple[Compiled, ...]]

    def columns(self, dims: int, checked: bool) -> Columns:
        ends = np.array(self.ends, np.float64).reshape(len(self.slots), dims, 2)
        return Columns(
            np.array(self.slots, np.int32),
            [ends[:, d, 0] for d in range(dims)],
            [ends[:, d, 1] for d in range(dims)],
            object_array(self.checks) if checked else None,
        )


@dataclass(slots=True)
class Columns:
    """The boxes of one shape as arrays. `lows[d]` and `highs[d]` belong to dimension d."""

    slots: NDArray[np.int32]
    lows: list[Floats]
    highs: list[Floats]
    checks: NDArray[np.object_] | None

    def __len__(self) -> int:
        return len(self.slots)


@dataclass(slots=True)
class Table:
    """Boxes of all shapes, and the constants that their ranked bounds refer to."""

    shapes: dict[Shape, Columns]
    ragged: Ragged
    constants: dict[Axis, Sequence[Any]]

    def __len__(self) -> int:
        return sum(len(columns) for columns in self.shapes.values()) + len(self.ragged)


@dataclass(slots=True)
class GrowingTable:
    """The table of recent filters: boxes are appended one by one."""

    shapes: dict[Shape, Rows] = field(default_factory=dict)
    #: For each ranked axis, constant -> position, in the order of arrival.
    constants: dict[Axis, dict[Any, int]] = field(default_factory=dict)
    size: int = 0
    make_checks: CheckMaker = field(default_factory=CheckMaker)

    def __len__(self) -> int:
        return self.size

    def append(self, slot: int, box: Box) -> None:
        dims: list[tuple[Axis, int]] = []
        ends: list[float] = []
        for bound in box.bounds:
            axis = bound.axis
            if axis.kind in MEASURED or axis.kind in FLAGS:
                low, high = bound.low + 0.0, bound.high + 0.0  # -0.0 would hash differently
            else:
                low, high = self._ranked(axis, bound)
            dims.append((axis, _role(bound, low, high)))
            ends.append(low)
            ends.append(high)
        if box.token is not None:
            axis, token = box.token
            place = 2.0 * self._position(axis, token) + 1
            dims.append((axis, TOKEN))
            ends += (place, place)
        shape = Shape(tuple(dims), bool(box.checks))
        rows = self.shapes.get(shape)
        if rows is None:
            rows = self.shapes[shape] = Rows([], [], [])
        rows.slots.append(slot)
        rows.ends += ends
        if box.checks:
            rows.checks.append(self.make_checks(box.checks))
        self.size += 1

    def frozen(self) -> Table:
        """The same boxes as arrays."""
        shapes: dict[Shape, Columns] = {}
        rare: list[tuple[Shape, Rows]] = []
        for shape, rows in self.shapes.items():
            if len(rows.slots) < COMMON:
                rare.append((shape, rows))
            else:
                shapes[shape] = rows.columns(len(shape.dims), shape.checked)
        constants: dict[Axis, Sequence[Any]] = {a: list(k) for a, k in self.constants.items()}
        return Table(shapes, _ragged(rare), constants)

    def _ranked(self, axis: Axis, bound: Bound) -> tuple[float, float]:
        low = high = inf
        if bound.low is None:
            low = -inf
        else:
            low = 2 * self._position(axis, bound.low[0]) + 1 + bound.low[1]
        if bound.high is not None:
            high = 2 * self._position(axis, bound.high[0]) + bound.high[1]
        return low, high

    def _position(self, axis: Axis, constant: Any) -> int:
        known = self.constants.get(axis)
        if known is None:
            known = self.constants[axis] = {}
        place = known.get(constant)
        if place is None:
            if axis.kind not in PLAIN_ORDER and known:
                other = next(iter(known))
                _ = constant < other or other < constant  # fails here, not when it is compiled
            place = known[constant] = len(known)
        return place


def _role(bound: Bound, low: float, high: float) -> int:
    if bound.hole:
        return HOLE
    if bound.point:
        return POINT
    if high == inf and low != -inf:
        return FROM
    return UP_TO if low == -inf and high != inf else RANGE


def _ragged(rare: list[tuple[Shape, Rows]]) -> Ragged:
    places: dict[Axis, int] = {}
    slots: list[int] = []
    sizes: list[int] = []
    axes: list[int] = []
    roles: list[int] = []
    ends: list[float] = []
    checks: list[tuple[Compiled, ...]] = []
    for shape, rows in rare:
        count = len(rows.slots)
        slots += rows.slots
        sizes += [len(shape.dims)] * count
        axes += [places.setdefault(axis, len(places)) for axis, _ in shape.dims] * count
        roles += [role for _, role in shape.dims] * count
        ends += rows.ends
        checks += rows.checks or [()] * count
    pairs = np.array(ends, np.float64).reshape(-1, 2)
    return Ragged(
        list(places),
        np.array(slots, np.int32),
        np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64),
        np.array(axes, np.int64),
        np.array(roles, np.int64),
        pairs[:, 0],
        pairs[:, 1],
        object_array(checks),
    )


def joined(tables: Iterable[Table], alive: NDArray[np.uint8]) -> Table:
    """One table with the live boxes of all, its constants sorted."""
    tables = [_living(table, alive) for table in tables]
    axes = {axis for table in tables for axis in table.constants}
    constants: dict[Axis, Sequence[Any]] = {}
    moves: list[dict[Axis, Ints]] = [{} for _ in tables]
    for axis in axes:
        lists = [table.constants.get(axis, ()) for table in tables]
        constants[axis], places = join_constants(axis, lists)
        for move, place in zip(moves, places, strict=True):
            move[axis] = place
    parts: dict[Shape, list[Columns]] = {}
    rare: list[Ragged] = []
    for table, move in zip(tables, moves, strict=True):
        for shape, columns in table.shapes.items():
            if len(columns):
                parts.setdefault(shape, []).append(_moved(shape, columns, move))
        rare.append(table.ragged.moved(move))
    ragged = _promoted(stacked(rare), parts)
    return Table({shape: _stacked(cols) for shape, cols in parts.items()}, ragged, constants)


def _living(table: Table, alive: NDArray[np.uint8]) -> Table:
    """Without dead boxes, and without the constants that only these referred to."""
    shapes = {shape: _kept(columns, alive) for shape, columns in table.shapes.items()}
    live = alive[table.ragged.slots] != 0
    ragged = table.ragged if live.all() else table.ragged.take(np.flatnonzero(live))
    if ragged is table.ragged and all(shapes[s] is table.shapes[s] for s in shapes):
        return table
    used = {axis: np.zeros(len(known), bool) for axis, known in table.constants.items()}
    for shape, columns in shapes.items():
        for d, (axis, _) in enumerate(shape.dims):
            if axis.ranked:
                used[axis][positions(columns.lows[d], 1)] = True
                used[axis][positions(columns.highs[d], 0)] = True
    for axis, low, high in ragged.ends_by_axis():
        if axis.ranked:
            used[axis][positions(low, 1)] = True
            used[axis][positions(high, 0)] = True
    constants = {
        axis: list(compress(known, used[axis].tolist())) for axis, known in table.constants.items()
    }
    moves = {axis: np.cumsum(mask) - 1 for axis, mask in used.items()}
    return Table(
        {shape: _moved(shape, columns, moves) for shape, columns in shapes.items()},
        ragged.moved(moves),
        {axis: known for axis, known in constants.items() if known},
    )


def _kept(columns: Columns, alive: NDArray[np.uint8]) -> Columns:
    keep = alive[columns.slots] != 0
    if keep.all():
        return columns
    return Columns(
        columns.slots[keep],
        [low[keep] for low in columns.lows],
        [high[keep] for high in columns.highs],
        None if columns.checks is None else columns.checks[keep],
    )


def _moved(shape: Shape, columns: Columns, move: dict[Axis, Ints]) -> Columns:
    """With the positions of constants translated."""
    lows, highs = list(columns.lows), list(columns.highs)
    for d, (axis, _) in enumerate(shape.dims):
        if axis.ranked and len(columns):
            lows[d] = translated(lows[d], move[axis], 0, 1)
            highs[d] = translated(highs[d], move[axis], 0, 0)
    return Columns(columns.slots, lows, highs, columns.checks)


def _promoted(ragged: Ragged, parts: dict[Shape, list[Columns]]) -> Ragged:
    """Move the shapes that have become common to columns; the rest stays ragged."""
    if not len(ragged):
        return ragged
    common, rest = ragged.by_shape(parts)
    for boxes in common:
        at = ragged.ptr[boxes[0]]
        size = int(ragged.ptr[boxes[0] + 1] - at)
        dims = tuple(
            (ragged.axes[axis], role)
            for axis, role in zip(
                ragged.axis[at : at + size].tolist(),
                ragged.role[at : at + size].tolist(),
                strict=True,
            )
        )
        shape = Shape(dims, bool(ragged.checks[boxes[0]]))
        places = ragged.ptr[boxes]
        columns = Columns(
            ragged.slots[boxes],
            [ragged.low[places + d] for d in range(size)],
            [ragged.high[places + d] for d in range(size)],
            ragged.checks[boxes] if shape.checked else None,
        )
        parts.setdefault(shape, []).append(columns)
    return ragged.take(rest)


def _stacked(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    dims = range(len(parts[0].lows))
    return Columns(
        np.concatenate([p.slots for p in parts]),
        [np.concatenate([p.lows[d] for p in parts]) for d in dims],
        [np.concatenate([p.highs[d] for p in parts]) for d in dims],
        None
        if parts[0].checks is None
        else np.concatenate([p.checks for p in parts if p.checks is not None]),
    )
