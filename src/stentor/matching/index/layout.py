"""Laying out the boxes of a table: from columns to the arrays that the kernels search.

The boxes of each shape are sorted by their equalities (or the token), which gives the groups, and
within a group so that boxes close to each other become neighbors; every 16 of them get a node.
What is visited for every notification, a hash table over several axes or a group without an
equality, is listed under one of the axes that it needs, the one with the fewest such visits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stentor.matching.index import complements, kernels
from stentor.matching.index.arrays import Arrays, Int32s, Int64s
from stentor.matching.index.axes import MULTIPLE, Axis
from stentor.matching.index.checks import Compiled
from stentor.matching.index.complements import Complements, gathered
from stentor.matching.index.distinct import changes, distinct
from stentor.matching.index.kernels import FAN, LEVELS
from stentor.matching.index.order import box_order, size_class
from stentor.matching.index.pools import Pool, pools_of
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
        self.tests: list[tuple[Compiled, ...]] = []
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
        self._levels: list[Int64s] = []
        #: signature -> list of (coordinates, group numbers)
        self._access: dict[tuple[Axis, ...], list[tuple[Floats, Int64s]]] = {}
        #: The same for single equalities in pools: axes, coordinates, group numbers.
        self._single: list[tuple[Int64s, Floats, Int64s]] = []
        #: Groups without an equality by axis: axes, group numbers.
        self._by_axis: list[tuple[Int64s, Int64s]] = []
        self._visits: dict[Axis, int] = {}
        self._free: list[int] = []
        self._group_count = 0
        self._box_count = 0
        self._bounds_at = 0
        self._nodes_at = 0
        self._group_sizes: list[Floats] = []
        self.complements = Complements()
        #: First box, numbers of the axes, and the boxes, for each pool.
        self._extras: list[tuple[int, Int64s, Ragged]] = []
        access = _choose_access(table)
        shapes = sorted(table.shapes, key=lambda s: s.dims)
        pools = pools_of(table.ragged)
        for checked in (False, True):  # boxes without checks first
            if checked:
                self.checked_from = self._box_count
            for shape in shapes:
                if shape.checked == checked:
                    columns = table.shapes[shape]
                    self._lay_out(shape, columns, access[shape])
            for pool in pools:
                if pool.checked == checked:
                    self._lay_out_pool(pool)
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

    def _visited(self, axes: Iterable[Axis]) -> int:
        """One of the axes, to be visited by; not one of those that stand, if there is a choice."""
        chosen = min(axes, key=lambda axis: (axis.kind == "missing", self._visits.get(axis, 0)))
        self._visits[chosen] = self._visits.get(chosen, 0) + 1
        return self._axis(chosen)

    def _lay_out(self, shape: Shape, columns: Columns, access: list[int]) -> None:
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
        elif dims:
            axis_number = self._visited(shape.dims[d][0] for d in dims)
            self._by_axis.append((np.full(len(numbers), axis_number), numbers))
        else:
            self._free.extend(numbers.tolist())
        self._put_groups(starts, np.append(starts[1:], n), lows, highs, kind == kernels.BOXES)
        number = len(self._shape_rows)
        self._shape_rows.append(
            (len(dims), len(self._dim_axis), self._box_count, self._bounds_at, kind, 0)
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
            self.tests.extend(columns.checks[order].tolist())
        self.laid.append(Laid(number, shape, access, keys, np.append(starts, n)))
        self._group_count += len(starts)
        self._box_count += n

    def _lay_out_pool(self, pool: Pool) -> None:
        """Boxes of rare shapes; see `pools`."""
        extras, axis, ends = pool.extras, pool.axis, pool.end
        n = len(extras)
        named = distinct(np.concatenate((extras.axis, axis[axis >= 0])))
        places = np.full(len(extras.axes), -1, np.int64)  # their numbers in this segment
        for number in named.tolist():
            if extras.axes[number].kind not in MULTIPLE:
                places[number] = self._axis(extras.axes[number])
        by_value = pool.lead in (POINT, TOKEN)
        starts = np.flatnonzero(changes(np.stack((axis, ends), axis=1) if by_value else axis))
        numbers = np.arange(len(starts)) + self._group_count
        shapes = np.zeros(len(starts), np.int64) + len(self._shape_rows)
        bounds = np.empty(0)
        if pool.lead in (FROM, UP_TO):
            bounds = np.full((n, 2), np.inf if pool.lead == FROM else -np.inf)
            bounds[:, 0 if pool.lead == FROM else 1] = ends
            self._by_axis.append((places[axis[starts]], numbers))
            shapes += np.arange(len(starts))
            kind = kernels.FROM if pool.lead == FROM else kernels.UP_TO
            for number in axis[starts].tolist():
                at = len(self._dim_axis)
                self._shape_rows.append((1, at, self._box_count, self._bounds_at, kind, 1))
                self._dim_axis.append(int(places[number]))
                self._dim_hole.append(0)
                self._ordered.add(extras.axes[number])
        else:
            rest = 1
            if pool.lead == HOLE and n >= complements.LEAST:
                rest = 2 + len(self.complements)
                split = self.complements.add(extras, self._box_count, self._axis)
                self._ordered.update(extras.axes[one] for one in split.axes.tolist())
                extras = split.rest
            self._shape_rows.append((0, 0, self._box_count, self._bounds_at, kernels.PLAIN, rest))
            if pool.lead == POINT:
                self._single.append((places[axis[starts]], ends[starts], numbers))
            elif pool.lead == TOKEN:
                for mine in np.split(np.arange(len(starts)), np.flatnonzero(changes(axis[starts]))):
                    if len(mine):
                        signature = (extras.axes[int(axis[starts[mine[0]]])],)
                        found = ends[starts[mine]].reshape(-1, 1), numbers[mine]
                        self._access.setdefault(signature, []).append(found)
            else:
                self._free.extend(numbers.tolist())
        groups = np.zeros((len(starts), 4), np.int64)
        groups[:, 0] = starts + self._box_count
        groups[:, 1] = np.append(starts[1:], n) + self._box_count
        groups[:, 2] = shapes
        self._groups.append(groups)
        self._group_sizes.append(np.zeros(len(starts)))
        self._levels.append(np.zeros((len(starts), LEVELS, 2), np.int64))
        self._node_at += [[0] * LEVELS] * (len(self._shape_rows) - len(self._node_at))
        self._bounds.append(bounds.reshape(-1))
        self._bounds_at += bounds.size
        self._slots.append(extras.slots)
        if pool.checked:
            self.tests.extend(extras.checks.tolist())
        for number in distinct(extras.axis[extras.role != POINT]).tolist():
            self._ordered.add(extras.axes[number])
        self._extras.append((self._box_count, places[extras.axis], extras))
        self._group_count += len(starts)
        self._box_count += n

    def _put_groups(
        self,
        starts: Int64s,
        ends: Int64s,
        lows: list[Floats],
        highs: list[Floats],
        with_nodes: bool,
    ) -> None:
        """Groups with their nodes, level by level, until a level has at most FAN in each."""
        groups = np.empty((len(starts), 4), np.int64)
        groups[:, 0] = starts + self._box_count
        groups[:, 1] = ends + self._box_count
        groups[:, 2] = len(self._shape_rows)
        groups[:, 3] = LEVELS - 1
        levels = np.zeros((len(starts), LEVELS, 2), np.int64)
        node_at = [0] * LEVELS
        # Least and greatest lower end, least and greatest upper end; of single boxes to begin with.
        ranges = [(low, low, high, high) for low, high in zip(lows, highs, strict=True)]
        first, size = starts, ends - starts
        done = np.zeros(len(starts), bool)
        for level in range(LEVELS if with_nodes else 0):
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
            levels[:, level, 0] = base
            levels[:, level, 1] = blocks
            top = ~done & (blocks <= FAN)
            groups[top, 3] = level
            done |= top
            if done.all():
                break
            first, size = base, blocks
        self._groups.append(groups)
        self._levels.append(levels)
        self._node_at.append(node_at)

    def arrays(self) -> Arrays:
        complements = self.complements.array()
        return Arrays._make([*self._access_arrays(), *self._group_arrays(), complements])

    def _access_arrays(self) -> tuple[Any, ...]:
        """How coordinates lead to groups."""
        rows: list[tuple[int, ...]] = []
        axes: list[int] = []
        tables: list[Int32s] = []
        keys: list[Floats] = []
        by_axis: list[int] = []
        single = self._single
        for alone in [s for s in self._access if len(s) == 1 and s[0].kind not in MULTIPLE]:
            axis = self._axis(alone[0])
            for found, numbers in self._access.pop(alone):
                single.append((np.full(len(numbers), axis), found[:, 0], numbers))
        single_axis = _concatenated([p[0] for p in single], np.int64)
        single_key = _concatenated([p[1] for p in single], np.float64)
        groups = _concatenated([p[2] for p in single], np.int64)
        order = np.lexsort((single_key, single_axis))
        single_axis, single_key, groups = single_axis[order], single_key[order], groups[order]
        first = np.flatnonzero(changes(np.stack((single_axis, single_key), axis=1)))
        single_axis, single_key = single_axis[first], single_key[first]
        single_table = _hash_table(len(first))
        ends = np.append(first[1:], len(groups))[: len(first)]
        single_bucket = np.stack((single_axis, single_key.view(np.int64), first, ends), axis=1)
        kernels.fill_single(single_axis, single_key, single_table, len(single_table) - 1)
        bucket_ptr = [np.zeros(1, np.int64), ends]
        bucket_group = [groups]
        bucket_count, group_count = len(first), len(groups)
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
                table = _hash_table(len(first))
                kernels.fill_table(distinct, bucket_count, table, len(table) - 1)
                key_at = sum(len(k) for k in keys)
                table_at = sum(len(t) for t in tables)
                mask = len(table) - 1
                rows.append((len(signature), len(axes), table_at, mask, bucket_count, key_at))
                axes.extend(self._axis(axis) for axis in signature)
                tables.append(table)
                keys.append(distinct.reshape(-1))
                by_axis.append(self._visited(signature))
            bucket_count += len(first)
            group_count += len(groups)
        standing = [number for axis, number in self.axes.items() if axis.kind == "missing"]
        visit_ptr, visit = _listed(
            len(self.axes),
            _concatenated([np.array(by_axis, np.int64), *(p[0] for p in self._by_axis)], int),
            _concatenated([~np.arange(len(rows)), *(p[1] for p in self._by_axis)], int),
        )
        use = np.where(np.diff(visit_ptr), 4, 0)
        use[single_axis] |= 1
        use[standing] |= 2
        return (
            use,
            np.array(standing, np.int64),
            single_table,
            single_bucket.reshape(-1),
            np.array(rows, np.int64).reshape(-1),
            np.array(axes, np.int64),
            _concatenated(tables, np.int32),
            _concatenated(keys, np.float64),
            visit_ptr,
            visit,
            np.concatenate(bucket_ptr),
            np.concatenate(bucket_group),
            np.array(self._free, np.int64),
        )

    def _group_arrays(self) -> tuple[Any, ...]:
        """The boxes themselves."""
        return (
            _concatenated([rows.reshape(-1) for rows in self._groups], np.int64),
            _concatenated(self._group_sizes, np.float64),
            np.array(self._shape_rows, np.int64).reshape(-1),
            _concatenated([rows.reshape(-1) for rows in self._levels], np.int64),
            np.array(self._node_at, np.int64).reshape(-1),
            np.array(self._dim_axis, np.int64),
            np.array(self._dim_hole, np.int64),
            _concatenated(self._bounds, np.float64),
            _concatenated(self._nodes, np.float64),
            *self._extra_arrays(),
        )

    def _extra_arrays(self) -> tuple[Int64s, Int64s]:
        """The extras of all boxes; most boxes have none."""
        if not self._extras:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        sizes = np.zeros(self._box_count, np.int64)
        for first, _, extras in self._extras:
            sizes[first : first + len(extras)] = np.diff(extras.ptr)
        rows = [
            (np.where(e.role == HOLE, ~axes, axes), e.low.view(np.int64), e.high.view(np.int64))
            for _, axes, e in self._extras
        ]
        extra = np.concatenate([np.stack(row, axis=1).reshape(-1) for row in rows])
        return np.concatenate(([0], np.cumsum(sizes))), extra


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


def _hash_table(entries: int) -> Int32s:
    """An empty one, to be at most half full; its size is a power of two, and whole words."""
    return np.full(1 << max(1, (2 * entries).bit_length()), -1, np.int32)


def _listed(axis_count: int, axes: Int64s, members: Int64s) -> tuple[Int64s, Int64s]:
    """Where the members of each axis begin (and the last end), and the members in that order."""
    counts = np.bincount(axes, minlength=axis_count)
    return np.concatenate(([0], np.cumsum(counts))), members[np.argsort(axes, kind="stable")]
