"""Searching a segment, or what is recent: from a batch of notifications to (row, slot) pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index import kernels
from stentor.matching.index.arrays import FEW_AXES, RUNS_PER_ROW, Scratch
from stentor.matching.index.axes import (
    MEASURED,
    OF_STRINGS,
    Axis,
)
from stentor.matching.index.checks import Checker
from stentor.matching.index.columns import SMALL, Column, ObjectColumn, Source
from stentor.matching.index.kernels import LEVELS
from stentor.matching.index.ranking import Coordinates
from stentor.matching.index.recent import RecentNow
from stentor.matching.index.segment import Segment
from stentor.model.values import COLLECTION, value_type_of

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Alive = NDArray[np.uint8]
#: Slots, or the numbers that stand for them.
Labels = Int32s | Int64s
Pairs = tuple[Int64s, Labels]
#: What is searched in one go.
Part = Segment | RecentNow

_NO_ROWS = np.empty(0, np.int64)
_NO_SLOTS = np.empty(0, np.int32)
#: Runs that the buffer has room for: at least, and at most unless a single row needs more.
_RUNS_AT_LEAST = 4_096
_RUNS_AT_MOST = 4_194_304
#: Up to this many a segment keeps the buffer for the next search.
_RUNS_KEPT = RUNS_PER_ROW * SMALL
#: Up to this many runs are read by the interpreter.
_FEW_RUNS = 64
#: Groups that there is room for at first, besides those that are always looked into.
_GROUPS_AT_LEAST = 1_024
#: For rows without tokens.
_ZEROS = np.zeros(SMALL + 1, np.int64)


def search_parts(
    parts: Sequence[Part], source: Source, alive: Alive, numbers: Int64s | None
) -> Pairs:
    """All live boxes that contain the notifications of a batch, as (row, slot), by row.

    With `numbers`, which holds a number for each slot, as (row, number).
    """
    found: Pairs = _NO_ROWS, _NO_SLOTS if numbers is None else _NO_ROWS
    source.remembers = len(parts) > 1
    if source.remembers:
        parts = sorted(parts, key=len)
    for part in parts:  # the most are put into their place without being moved
        found = _search_batch(part, source, alive, numbers, found)
    return found


def _search_batch(
    part: Part, source: Source, alive: Alive, numbers: Int64s | None, others: Pairs
) -> Pairs:
    """Those of one part, and others that were found before."""
    labels = part.slots if numbers is None else part.labels(numbers)
    if part.axis_count <= FEW_AXES:
        axes, columns = part.every_axis
    else:  # then the batch hardly has them all
        axes = [
            (axis, column)
            for name in source.names(part.axes_of)
            for axis, column in part.axes_of[name]
            if column < part.axis_count
        ]
        columns = np.array([column for _, column in axes], np.int64)
    points = np.empty((source.count, len(axes)))
    for i, (axis, _) in enumerate(axes):
        _fill(points, i, axis, part.rankings.get(axis), source)
    tokens = _led_by_tokens(part, source)
    return _run(part, points, columns, tokens, labels, alive, source, others)


def search_one(part: Part, facts: Mapping[str, Any], alive: Alive) -> list[int]:
    """The slots of all live boxes that contain one notification."""
    readers, axis_count = part.readers, part.axis_count
    columns: list[int] = []
    x: list[float] = []
    for name, value in facts.items():
        if name in readers:
            kind = value_type_of(value)
            for type_name, column, coordinate in readers[name]:
                if (type_name == kind or not type_name) and column < axis_count:
                    columns.append(column)
                    x.append(coordinate(value))
    led: list[int] = []
    if part.token_buckets:
        for axis, buckets in list(part.token_buckets.items()):
            value = facts.get(axis.name)
            if value is not None:
                # Among recent boxes there may be newer tokens than buckets.
                places = [p for p in _tokens(value, part.rankings[axis]) if p < len(buckets)]
                if places:
                    led += [bucket for bucket in buckets[places].tolist() if bucket >= 0]
    return _run_one(part, np.array([x]), np.array(columns, np.int64), led, alive, facts)


class _One(Source):
    """A single notification, for checks."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(1)
        self._facts = facts

    def facts(self, row: int, names: Any) -> dict[str, Any]:
        return dict(self._facts)

    def values(self, name: str) -> Sequence[Any] | None:
        return (self._facts.get(name),)

    def _find(self, name: str) -> Column | None:
        value = self._facts.get(name)
        return None if value is None else ObjectColumn([value])


# -- coordinates


def _fill(
    points: NDArray[np.float64], i: int, axis: Axis, ranking: Coordinates | None, source: Source
) -> None:
    column = source.column(axis.name)
    if column is None:
        points[:, i] = 1.0 if axis.kind == "missing" else np.nan
    elif ranking is not None:
        texts = column.texts(axis)
        if texts is not None:
            points[:, i] = ranking.of_all(texts)
            return
        coded = column.coded(axis.value_type)
        if coded is None:
            points[:, i] = np.nan
            return
        codes, values = coded
        if axis.kind in OF_STRINGS:
            values = source.seen_on(axis, values)
        places = ranking.of_all([*values, None])  # null is the last code
        kernels.gather(places, codes.astype(np.int64), points, i)
    elif axis.kind in MEASURED:
        measured = column.measured(axis.kind)
        points[:, i] = np.nan if measured is None else measured
    else:
        there = column.present(axis.detail or None)
        points[:, i] = (
            np.where(there, np.nan, 1.0) if axis.kind == "missing" else np.where(there, 1.0, np.nan)
        )


def _led_by_tokens(part: Part, source: Source) -> Int64s:
    """The buckets that the tokens of each row lead to, after the places where those begin."""
    total = source.count
    found = [
        _led_on(axis, buckets, part.rankings[axis], source)
        for axis, buckets in list(part.token_buckets.items())
    ]
    found = [pair for pair in found if len(pair[0])]
    if not found:
        return _ZEROS if total < len(_ZEROS) else np.zeros(total + 1, np.int64)
    rows, buckets = found[0]
    if len(found) > 1:
        rows = np.concatenate([pair[0] for pair in found])
        buckets = np.concatenate([pair[1] for pair in found])
        order = np.argsort(rows, kind="stable")
        rows, buckets = rows[order], buckets[order]
    begins = np.searchsorted(rows, np.arange(total + 1)) + total + 1
    return np.concatenate((begins, buckets))


def _led_on(
    axis: Axis, buckets: Int64s, ranking: Coordinates, source: Source
) -> tuple[Int64s, Int64s]:
    """Rows and buckets in parallel, by row."""
    column = source.column(axis.name)
    if column is None:
        return _NO_ROWS, _NO_ROWS
    rows: Int64s
    substrings = ranking.substrings
    if substrings is not None:
        coded = column.coded("string")
        if coded is None:
            return _NO_ROWS, _NO_ROWS
        codes, texts = coded
        sizes, places = substrings.within_each([*texts, None])  # null is the last code
        counts = sizes[codes]
        first = np.repeat((np.cumsum(sizes) - sizes)[codes], counts)
        within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows, places = np.repeat(np.arange(len(codes)), counts), places[first + within]
    elif ranking.elements is not None:
        rows, places = ranking.elements.of_column(column)
    else:
        rows, codes, elements = column.tokens()
        found = [ranking.places.get(element, -1.0) for element in elements]
        places = (np.array(found, np.float64).astype(np.int64) >> 1)[codes]
    known = (places >= 0) & (places < len(buckets))  # recent tokens may be newer than the buckets
    rows, led = rows[known], buckets[places[known]]
    known = led >= 0
    return rows[known], led[known]


def _tokens(value: Any, ranking: Coordinates) -> list[int]:
    """The constants of an axis of tokens that a value has."""
    substrings = ranking.substrings
    if substrings is not None:
        return substrings.within(value) if type(value) is str else []
    if ranking.elements is not None:
        return ranking.elements.of_value(value)
    if value_type_of(value) != COLLECTION:
        return []
    places = [ranking.places.get((value_type_of(element), element)) for element in value]
    return list({int(place) >> 1 for place in places if place is not None})


def grouped(rows: Int64s, slots: Labels, slot_count: int) -> tuple[Int32s, list[list[int]]]:
    """The distinct slots, and the rows of each in the order given."""
    found = np.empty(len(slots), np.int32)
    ends = np.empty(len(slots), np.int64)
    sorted_rows = np.empty(len(slots), np.int64)
    counts = np.zeros(slot_count, np.int32)
    n = kernels.group_rows(rows, slots, counts, found, ends, sorted_rows)
    every = sorted_rows.tolist()
    begin = 0
    lists: list[list[int]] = []
    for end in ends[:n].tolist():
        lists.append(every[begin:end])
        begin = end
    return found[:n], lists


# -- running the kernels


def _run(
    part: Part,
    points: NDArray[np.float64],
    columns: Int64s,
    tokens: Int64s,
    labels: Labels,
    alive: Alive,
    source: Source,
    others: Pairs,
) -> Pairs:
    """Run the kernel to the end, growing its buffers as needed, and collect the pairs."""
    total = len(points)
    scan = part.scans[total > SMALL]
    scratch = _scratch(part, total)
    found: list[Pairs] = []
    start = 0
    while start < total:
        stop, n = scan(points, columns, start, tokens, *part.kernel_arguments, *scratch)
        if stop == start:  # not even one row fitted
            scratch = _larger(scratch)
            continue
        part.runs_per_row = max(RUNS_PER_ROW, 9 * n // (8 * (stop - start)))
        before = others
        if stop < total or start:
            before, others = _divided(others, stop, total)
        found.append(
            _expanded(part, scratch.runs, n, labels, alive, source, before) if n else before
        )
        start = stop
        if start < total and len(scratch.runs) < _room(part, total - start):
            scratch = _scratch(part, total - start)
    _keep(part, scratch)
    if len(found) == 1:
        return found[0]
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def _divided(pairs: Pairs, row: int, total: int) -> tuple[Pairs, Pairs]:
    """The pairs of rows before this one, and the rest."""
    at = len(pairs[0]) if row == total else int(np.searchsorted(pairs[0], row))
    return (pairs[0][:at], pairs[1][:at]), (pairs[0][at:], pairs[1][at:])


def _run_one(
    part: Part,
    point: NDArray[np.float64],
    columns: Int64s,
    led: list[int],
    alive: Alive,
    facts: Mapping[str, Any],
) -> list[int]:
    """As `_run`, with less ado for a single row, which tokens led to these buckets."""
    tokens = np.array((2, 2 + len(led), *led)) if led else _ZEROS
    scratch = _scratch(part, 1)
    while True:
        stop, n = part.scans[0](point, columns, 0, tokens, *part.kernel_arguments, *scratch)
        if stop:
            break
        scratch = _larger(scratch)
    if n > _FEW_RUNS:
        none = _NO_ROWS, _NO_SLOTS
        _, slots = _expanded(part, scratch.runs, n, part.slots, alive, _One(facts), none)
        _keep(part, scratch)
        found: list[int] = slots.tolist()
        return found
    runs = scratch.runs[:n].tolist() if n else ()
    _keep(part, scratch)
    found = []
    checker: Checker | None = None
    for _, first, end in runs:
        slots = part.slots[first:end]
        if first >= part.checked_from:
            checker = checker or Checker(_One(facts))
            tests = part.tests[first - part.checked_from : end - part.checked_from]
            found += [
                slot
                for slot, checks in zip(slots.tolist(), tests, strict=True)
                if alive[slot] and checker.passes(checks, 0)
            ]
        elif end - first < 16:
            found += [slot for slot in slots.tolist() if alive[slot]]
        else:
            found += slots[alive[slots] != 0].tolist()
    return found


def _scratch(part: Part, rows: int) -> Scratch:
    """Room for the search of so many rows; more than was guessed only if there is need."""
    room = _room(part, rows)
    try:
        scratch = part.scratch.pop()
        if len(scratch.runs) >= room and len(scratch.x) >= part.axis_count:
            return scratch
    except IndexError:  # other threads use what there was
        pass
    return Scratch(
        np.empty((room, 3), np.int32),
        np.empty(2 * LEVELS + part.always + _GROUPS_AT_LEAST, np.int64),
        part.absent.copy(),
    )


def _room(part: Part, rows: int) -> int:
    return min(max(_RUNS_AT_LEAST, part.runs_per_row * rows), _RUNS_AT_MOST)


def _larger(scratch: Scratch) -> Scratch:
    return scratch._replace(
        runs=np.empty((4 * len(scratch.runs), 3), np.int32),
        work=np.empty(4 * len(scratch.work), np.int64),
    )


def _keep(part: Part, scratch: Scratch) -> None:
    if len(scratch.runs) <= _RUNS_KEPT and not part.scratch:
        part.scratch.append(scratch)


def _expanded(
    part: Part,
    runs: Int32s,
    n: int,
    labels: Labels,
    alive: Alive,
    source: Source,
    others: Pairs,
) -> Pairs:
    plain, checked = kernels.count_runs(runs, n, part.checked_from)
    if checked:
        rows, boxes = _checked(part, runs, n, checked, alive, source)
        others = _merged(others, (rows, labels[boxes]))
    rows = np.empty(plain + len(others[0]) + 1, np.int64)
    found = np.empty(len(rows), labels.dtype)
    count = kernels.expand(
        runs, n, part.checked_from, part.slots, labels, alive, *others, rows, found
    )
    return rows[:count], found[:count]


def _merged(some: Pairs, others: Pairs) -> Pairs:
    """Both together, by row as each of them is."""
    if not len(some[0]) or not len(others[0]):
        return some if len(some[0]) else others
    size = len(some[0]) + len(others[0])
    rows, labels = np.empty(size, np.int64), np.empty(size, some[1].dtype)
    kernels.merge(*some, *others, rows, labels)
    return rows, labels


def once_each(rows: Int64s, slots: Labels, several: NDArray[np.uint8]) -> Pairs:
    """Without repeated pairs, which only filters with several boxes can give.

    The rows of each slot must be in order.
    """
    rows_left, slots_left = np.empty_like(rows), np.empty_like(slots)
    last = np.zeros(len(several), np.int64)
    n = kernels.drop_repeated(rows, slots, several, last, rows_left, slots_left)
    return rows_left[:n], slots_left[:n]


def _checked(
    part: Part, runs: Int32s, n: int, count: int, alive: Alive, source: Source
) -> tuple[Int64s, Int64s]:
    """Candidates whose checks hold, as (row, box)."""
    rows = np.empty(count, np.int64)
    boxes = np.empty(count, np.int64)
    kernels.expand_checked(runs, n, part.checked_from, rows, boxes)
    live = alive[part.slots[boxes]] != 0
    rows, boxes = rows[live], boxes[live]
    boxes -= part.checked_from
    tests = part.tests
    if part.listed is not None:
        holds = part.listed.hold(rows, boxes, source)
        rows, boxes = rows[holds], boxes[holds]
        tests = part.listed.others
        left = np.flatnonzero(part.listed.any_others[boxes])
    else:
        left = np.arange(len(boxes))
    checker = Checker(source)
    keep = np.ones(len(boxes), bool)
    keep[left] = [
        checker.passes(tests[box], row)
        for row, box in zip(rows[left].tolist(), boxes[left].tolist(), strict=True)
    ]
    return rows[keep], boxes[keep] + part.checked_from
