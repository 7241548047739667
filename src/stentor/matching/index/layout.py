"""Laying out the boxes of a table: from columns to the arrays that the kernels search.

The boxes of each shape are sorted by their equalities (or the token), which gives the groups, and
within a group so that boxes close to each other become neighbors; every 16 of them get a node.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stentor.matching.index import complements, kernels
from stentor.matching.index.arrays import AccessArrays, GroupArrays, Int32s, Int64s
from stentor.matching.index.axes import MULTIPLE, Axis
from stentor.matching.index.complements import Complements, gathered
from stentor.matching.index.distinct import changes, distinct
from stentor.matching.index.kernels import FAN, LEVELS
from stentor.matching.index.order import box_order, size_class
from stentor.matching.index.plan import Check
from stentor.matching.index.pools import pools_of
from stentor.matching.index.ragged import Ragged
from stentor.matching.index.ranking import Ranking
from stentor.matching.index.table import (
    FROM,
    HOLE,
    POINT,
    RANGE,
    TOKEN,
    UP_TO,
    Columns,
    Floats,
    Shape,
    Table,
)

#: A notification is looked up in at most this many hash tables, each over so many axes at most.
_SIGNATURES = 64
_SIGNATURE_AXES = 4


class Laid(NamedTuple):
    """Where the boxes of one shape are in the segment."""

    number: int
    shape: Shape
    access: list[int]
    #: Coordinates of the groups on the access dimensions, a row each.
    keys: Floats
    #: Where the groups start, relative to the first box; and the end.
    starts: Int64s


class Layout:
    """Lays out one shape after the other; unchecked shapes first."""

    def __init__(self, table: Table) -> None:
        self.table = table = gathered(table)
        self.axes: dict[Axis, int] = {}
        self._ordered: set[Axis] = set()
        self.slots: Int32s = np.empty(0, np.int32)
        self.checks: list[tuple[Check, ...]] = []
        self.checked_from = 0
        self.token_buckets: dict[Axis, Int64s] = {}
        self.laid: list[Laid] = []
        self._slots: list[Int32s] = []
        self._groups: list[Int64s] = []
        self._shape_rows: list[tuple[int, ...]] = []
        self._dim_axis: list[int] = []
        self._dim_hole: list[int] = []
        self._bounds: list[Floats] = []
        self._nodes: list[Floats] = []
        self._node_at: list[list[int]] = []
        self._level_base: list[Int64s] = []
        self._level_count: list[Int64s] = []
        #: signature -> list of (coordinates, group numbers)
        self._access: dict[tuple[Axis, ...], list[tuple[Floats, Int64s]]] = {}
        self._free: list[int] = []
        self._group_count = 0
        self._box_count = 0
        self._bounds_at = 0
        self._nodes_at = 0
        self._group_sizes: list[Floats] = []
        self.complements = Complements()
        self._extras: list[Ragged] = []
        self._extras_from: list[int] = []
        access = _choose_access(table)
        shapes = sorted(table.shapes, key=lambda s: s.dims)
        pools = pools_of(table.ragged)
        for checked in (False, True):  # boxes without checks first
            if checked:
                self.checked_from = self._box_count
            for shape in shapes:
                if shape.checked == checked:
                    columns = table.shapes[shape]
                    self._lay_out(shape, columns, access[shape], None)
            for pool in pools:
                if pool.shape.checked == checked:
                    by_value = any(role in (POINT, TOKEN) for _, role in pool.shape.dims)
                    self._lay_out(pool.shape, pool.columns, [0] if by_value else [], pool.extras)
        if self._slots:
            self.slots = np.concatenate(self._slots)

    def rankings(self) -> dict[Axis, Ranking]:
        return {
            axis: Ranking(axis, self.table.constants[axis], axis in self._ordered)
            for axis in (*self.axes, *self.token_buckets)
            if axis.ranked
        }

    def _axis(self, axis: Axis) -> int:
        return self.axes.setdefault(axis, len(self.axes))

    def _lay_out(
        self, shape: Shape, columns: Columns, access: list[int], extras: Ragged | None
    ) -> None:
        dims = [d for d in range(len(shape.dims)) if d not in access]
        order = box_order(shape, columns, access, dims)
        lows = [columns.lows[d][order] for d in dims]
        highs = [columns.highs[d][order] for d in dims]
        n = len(order)
        found = np.empty((n, len(access)))
        for i, d in enumerate(access):
            found[:, i] = columns.lows[d][order]
        starts = np.flatnonzero(changes(found))
        kind = _kind([shape.dims[d][1] for d in dims])
        if kind == kernels.INTERVAL:
            starts = _starts_by_size(starts, lows[0], highs[0])
            with np.errstate(over="ignore"):
                self._group_sizes.append(np.maximum.reduceat(highs[0] - lows[0], starts))
        else:
            self._group_sizes.append(np.zeros(len(starts)))
        keys = found[starts]
        numbers = np.arange(len(starts)) + self._group_count
        if access:
            signature = tuple(shape.dims[d][0] for d in access)
            self._access.setdefault(signature, []).append((keys, numbers))
        else:
            self._free.extend(numbers.tolist())
        self._put_groups(starts, np.append(starts[1:], n), lows, highs)
        number = len(self._shape_rows)
        rest = int(extras is not None)
        if extras is not None and not shape.dims and n >= complements.LEAST:
            rest = 2 + len(self.complements)
            split = self.complements.add(extras, self._box_count, self._axis)
            self._ordered.update(extras.axes[one] for one in split.axes.tolist())
            extras = split.rest
        self._shape_rows.append(
            (len(dims), len(self._dim_axis), self._box_count, self._bounds_at, kind, rest)
        )
        for d in dims:
            axis, role = shape.dims[d]
            self._dim_axis.append(self._axis(axis))
            self._dim_hole.append(role == HOLE)
            if role != POINT:
                self._ordered.add(axis)
        # One box after the other, its lower and upper end on each dimension in turn.
        bounds = np.empty((n, len(dims), 2))
        for d, (low, high) in enumerate(zip(lows, highs, strict=True)):
            bounds[:, d, 0] = low
            bounds[:, d, 1] = high
        self._bounds.append(bounds.reshape(-1))
        self._bounds_at += bounds.size
        self._slots.append(columns.slots[order])
        if columns.checks is not None:
            self.checks.extend(columns.checks[order].tolist())
        if extras is None:
            self.laid.append(Laid(number, shape, access, keys, np.append(starts, n)))
        else:
            self._extras.append(extras.take(order))
            self._extras_from.append(self._box_count)
        self._group_count += len(starts)
        self._box_count += n

    def _put_groups(
        self, starts: Int64s, ends: Int64s, lows: list[Floats], highs: list[Floats]
    ) -> None:
        """Groups with their nodes, level by level, until a level has at most FAN in each."""
        groups = np.empty((len(starts), 4), np.int64)
        groups[:, 0] = starts + self._box_count
        groups[:, 1] = ends + self._box_count
        groups[:, 2] = len(self._shape_rows)
        groups[:, 3] = LEVELS - 1
        bases = np.zeros((len(starts), LEVELS), np.int64)
        counts = np.zeros((len(starts), LEVELS), np.int64)
        node_at = [0] * LEVELS
        # Least and greatest lower end, least and greatest upper end; of single boxes to begin with.
        ranges = [(low, low, high, high) for low, high in zip(lows, highs, strict=True)]
        first, size = starts, ends - starts
        done = np.zeros(len(starts), bool)
        for level in range(LEVELS):
            blocks = -(-size // FAN)
            base = np.concatenate(([0], np.cumsum(blocks)[:-1]))
            within = np.arange(int(blocks.sum())) - np.repeat(base, blocks)
            at = np.repeat(first, blocks) + FAN * within
            ranges = [
                (
                    np.minimum.reduceat(a, at),
                    np.maximum.reduceat(b, at),
                    np.minimum.reduceat(c, at),
                    np.maximum.reduceat(d, at),
                )
                for a, b, c, d in ranges
            ]
            nodes = np.empty((len(at), len(ranges), 4))
            for d, four in enumerate(ranges):
                for i, values in enumerate(four):
                    nodes[:, d, i] = values
            self._nodes.append(nodes.reshape(-1))
            node_at[level] = self._nodes_at
            self._nodes_at += nodes.size
            bases[:, level] = base
            counts[:, level] = blocks
            top = ~done & (blocks <= FAN)
            groups[top, 3] = level
            done |= top
            if done.all():
                break
            first, size = base, blocks
        self._groups.append(groups)
        self._level_base.append(bases)
        self._level_count.append(counts)
        self._node_at.append(node_at)

    def access_arrays(self) -> AccessArrays:
        rows: list[tuple[int, ...]] = []
        axes: list[int] = []
        tables: list[Int32s] = []
        keys: list[Floats] = []
        bucket_ptr = [np.zeros(1, np.int64)]
        bucket_group: list[Int64s] = []
        bucket_count = group_count = 0
        for signature, parts in self._access.items():
            coordinates = np.concatenate([p[0] for p in parts])
            groups = np.concatenate([p[1] for p in parts])
            order = np.lexsort(coordinates.T)
            coordinates, groups = coordinates[order], groups[order]
            first = np.flatnonzero(changes(coordinates))
            distinct = np.ascontiguousarray(coordinates[first])
            bucket_group.append(groups)
            bucket_ptr.append(np.append(first[1:], len(groups)) + group_count)
            if signature[0].kind in MULTIPLE:
                buckets = np.full(len(self.table.constants[signature[0]]), -1, np.int64)
                buckets[distinct[:, 0].astype(np.int64) >> 1] = np.arange(len(first)) + bucket_count
                self.token_buckets[signature[0]] = buckets
            else:
                size = 1 << (2 * len(first)).bit_length()
                table = np.full(size, -1, np.int32)
                kernels.fill_table(distinct, bucket_count, table, size - 1)
                key_at = sum(len(k) for k in keys)
                table_at = sum(len(t) for t in tables)
                rows.append((len(signature), len(axes), table_at, size - 1, bucket_count, key_at))
                axes.extend(self._axis(axis) for axis in signature)
                tables.append(table)
                keys.append(distinct.reshape(-1))
            bucket_count += len(first)
            group_count += len(groups)
        return AccessArrays(
            np.array(rows, np.int64).reshape(-1, 6),
            np.array(axes, np.int64),
            _concatenated(tables, np.int32),
            _concatenated(keys, np.float64),
            np.concatenate(bucket_ptr),
            _concatenated(bucket_group, np.int64),
            np.array(self._free, np.int64),
        )

    def group_arrays(self) -> GroupArrays:
        return GroupArrays(
            np.concatenate([np.empty((0, 4), np.int64), *self._groups]),
            _concatenated(self._group_sizes, np.float64),
            np.array(self._shape_rows, np.int64).reshape(-1, 6),
            np.concatenate([np.empty((0, LEVELS), np.int64), *self._level_base]),
            np.concatenate([np.empty((0, LEVELS), np.int64), *self._level_count]),
            np.array(self._node_at, np.int64).reshape(-1, LEVELS),
            np.array(self._dim_axis, np.int64),
            np.array(self._dim_hole, np.uint8),
            _concatenated(self._bounds, np.float64),
            _concatenated(self._nodes, np.float64),
            *self._extra_arrays(),
        )

    def _extra_arrays(self) -> tuple[Any, ...]:
        """The extras of all boxes; most boxes have none."""
        if not self._extras:
            nothing = np.empty(0, np.int64)
            return nothing, nothing, np.empty(0, np.uint8), np.empty(0), np.empty(0)
        sizes = np.zeros(self._box_count, np.int64)
        for first, extras in zip(self._extras_from, self._extras, strict=True):
            sizes[first : first + len(extras)] = np.diff(extras.ptr)
            for axis in extras.axes:
                self._axis(axis)
        for extras in self._extras:
            for number in distinct(extras.axis[extras.role != POINT]).tolist():
                self._ordered.add(extras.axes[number])
        numbers = [np.array([self._axis(a) for a in e.axes], np.int64) for e in self._extras]
        return (
            np.concatenate(([0], np.cumsum(sizes))),
            np.concatenate([n[e.axis] for n, e in zip(numbers, self._extras, strict=True)]),
            np.concatenate([(e.role == HOLE).astype(np.uint8) for e in self._extras]),
            np.concatenate([e.low for e in self._extras]),
            np.concatenate([e.high for e in self._extras]),
        )


def _choose_access(table: Table) -> dict[Shape, list[int]]:
    """For each shape the dimensions by which its boxes are found: a token, or its equalities.

    Every notification is looked up once for each signature. If there are too many of them, the
    shapes with the fewest boxes make do with their most varied equality.
    """
    chosen: dict[Shape, list[int]] = {}
    boxes: dict[tuple[Axis, ...], int] = {}
    for shape, columns in table.shapes.items():
        tokens = [d for d, (_, role) in enumerate(shape.dims) if role == TOKEN]
        points = [d for d, (_, role) in enumerate(shape.dims) if role == POINT]
        if len(points) > _SIGNATURE_AXES:
            points.sort(key=lambda d: -len(distinct(columns.lows[d])))
            points = sorted(points[:_SIGNATURE_AXES])
        chosen[shape] = tokens or points
        signature = tuple(shape.dims[d][0] for d in chosen[shape])
        boxes[signature] = boxes.get(signature, 0) + len(columns)
    kept = set(sorted(boxes, key=lambda s: -boxes[s])[:_SIGNATURES])
    for shape, dims in chosen.items():
        if len(dims) > 1 and tuple(shape.dims[d][0] for d in dims) not in kept:
            columns = table.shapes[shape]
            chosen[shape] = [max(dims, key=lambda d: len(distinct(columns.lows[d])))]
    return chosen


def _kind(roles: list[int]) -> int:
    if not roles:
        return kernels.PLAIN
    if len(roles) > 1:
        return kernels.BOXES
    kinds = {FROM: kernels.FROM, UP_TO: kernels.UP_TO, RANGE: kernels.INTERVAL}
    return kinds.get(roles[0], kernels.BOXES)


def _starts_by_size(starts: Int64s, low: Floats, high: Floats) -> Int64s:
    """Large groups of intervals are divided by size class, by which they are sorted already."""
    sizes = np.diff(np.append(starts, len(low)))
    classes = np.where(np.repeat(sizes, sizes) > kernels.LEAF, size_class(low, high), 0)
    begins = np.zeros(len(low), bool)
    begins[starts] = True
    begins[1:] |= classes[1:] != classes[:-1]
    return np.flatnonzero(begins)


def _concatenated(arrays: list[Any], dtype: Any) -> Any:
    return np.concatenate([np.empty(0, dtype), *arrays])
