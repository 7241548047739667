"""Searching a segment: from a batch of notifications to (row, slot) pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index import kernels
from stentor.matching.index.arrays import Scratch
from stentor.matching.index.axes import (
    MEASURED,
    OF_STRINGS,
    Axis,
    all_seen_on,
)
from stentor.matching.index.checks import Checker
from stentor.matching.index.columns import SMALL, Source
from stentor.matching.index.kernels import LEVELS
from stentor.matching.index.ranking import Ranking
from stentor.matching.index.segment import Segment
from stentor.model.values import COLLECTION, value_type_of

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Alive = NDArray[np.uint8]
#: Slots, or the numbers that stand for them.
Labels = Int32s | Int64s
Pairs = tuple[Int64s, Labels]

_NO_ROWS = np.empty(0, np.int64)
_NO_SLOTS = np.empty(0, np.int32)
#: Runs that the buffer has room for at first, per row and in all.
_RUNS_PER_ROW = 16
_RUNS_AT_LEAST = 4_096
#: Up to this many a segment keeps the buffer for the next search.
_RUNS_KEPT = _RUNS_PER_ROW * SMALL
#: Up to this many runs are read by the interpreter.
_FEW_RUNS = 64
#: For rows without tokens.
_ZEROS = np.zeros(SMALL + 1, np.int64)


def search_batch(segment: Segment, source: Source, alive: Alive, numbers: Int64s | None) -> Pairs:
    """All live boxes that contain the notifications of a batch, as (row, slot), by row.

    With `numbers`, which holds a number for each slot, as (row, number).
    """
    labels = segment.slots if numbers is None else segment.labels(numbers)
    points = np.empty((source.count, max(1, len(segment.axes))))
    for axis, column in segment.axes.items():
        _fill(points, column, axis, segment.rankings.get(axis), source)
    return _run(segment, points, *_led_by_tokens(segment, source), labels, alive, source)


def search_one(segment: Segment, facts: Mapping[str, Any], alive: Alive) -> list[int]:
    """The slots of all live boxes that contain one notification."""
    x = [nan] * max(1, len(segment.axes))
    readers = segment.readers
    for name, value in facts.items():
        if name in readers:
            kind = value_type_of(value)
            for type_name, column, coordinate in readers[name]:
                if type_name == kind:
                    x[column] = coordinate(value)
    for name, column in segment.present.items():
        if name in facts:
            x[column] = 1.0
    for name, column in segment.missing.items():
        if name not in facts:
            x[column] = 1.0
    led: list[int] = []
    for axis, buckets in segment.token_buckets.items():
        value = facts.get(axis.name)
        if value is not None:
            places = _tokens(value, segment.rankings[axis])
            led += [bucket for bucket in buckets[places].tolist() if bucket >= 0] if places else ()
    return _run_one(segment, np.array([x]), led, alive, facts)


class _One(Source):
    """A single notification, for checks."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(1)
        self._facts = facts

    def facts(self, row: int, names: Any) -> dict[str, Any]:
        return dict(self._facts)

    def values(self, name: str) -> Sequence[Any] | None:
        return (self._facts.get(name),)


# -- coordinates


def _fill(
    points: NDArray[np.float64], i: int, axis: Axis, ranking: Ranking | None, source: Source
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
            values = all_seen_on(axis, values)
        kernels.gather(ranking.of_all([*values, None]), codes, points, i)  # null is the last code
    elif axis.kind in MEASURED:
        measured = column.measured(axis.kind)
        points[:, i] = np.nan if measured is None else measured
    else:
        there = column.present(axis.detail or None)
        points[:, i] = (
            np.where(there, np.nan, 1.0) if axis.kind == "missing" else np.where(there, 1.0, np.nan)
        )


def _led_by_tokens(segment: Segment, source: Source) -> tuple[Int64s, Int64s]:
    """The buckets that the tokens of each row lead to: where those of a row begin, and all."""
    total = source.count
    found = [
        _led_on(axis, buckets, segment.rankings[axis], source)
        for axis, buckets in segment.token_buckets.items()
    ]
    found = [pair for pair in found if len(pair[0])]
    if not found:
        return _ZEROS if total < len(_ZEROS) else np.zeros(total + 1, np.int64), _NO_ROWS
    rows, buckets = found[0]
    if len(found) > 1:
        rows = np.concatenate([pair[0] for pair in found])
        buckets = np.concatenate([pair[1] for pair in found])
        order = np.argsort(rows, kind="stable")
        rows, buckets = rows[order], buckets[order]
    return np.searchsorted(rows, np.arange(total + 1)), buckets


def _led_on(axis: Axis, buckets: Int64s, ranking: Ranking, source: Source) -> tuple[Int64s, Int64s]:
    """Rows and buckets in parallel, by row."""
    column = source.column(axis.name)
    if column is None:
        return _NO_ROWS, _NO_ROWS
    rows: Int64s
    if ranking.substrings is not None:
        coded = column.coded("string")
        if coded is None:
            return _NO_ROWS, _NO_ROWS
        codes, texts = coded
        sizes, places = ranking.substrings.within_each([*texts, None])  # null is the last code
        counts = sizes[codes]
        first = np.repeat((np.cumsum(sizes) - sizes)[codes], counts)
        within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows, places = np.repeat(np.arange(len(codes)), counts), places[first + within]
    else:
        rows, tokens = column.tokens()
        found = [ranking.places.get(token, -1.0) for token in tokens]
        places = np.array(found, np.float64).astype(np.int64) >> 1
        known = places >= 0
        rows, places = rows[known], places[known]
    led = buckets[places]
    known = led >= 0
    return rows[known], led[known]


def _tokens(value: Any, ranking: Ranking) -> list[int]:
    """The constants of an axis of tokens that a value has."""
    if ranking.substrings is not None:
        return ranking.substrings.within(value) if type(value) is str else []
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
    segment: Segment,
    points: NDArray[np.float64],
    token_ptr: Int64s,
    token_bucket: Int64s,
    labels: Labels,
    alive: Alive,
    source: Source,
) -> Pairs:
    """Run the kernel to the end, growing its buffers as needed, and collect the pairs."""
    total = len(points)
    scan = kernels.scan_freely if total > SMALL else kernels.scan_at_once
    scratch = _scratch(segment, total)
    found: list[Pairs] = []
    start = 0
    while start < total:
        stop, n = scan(points, start, token_ptr, token_bucket, *segment.kernel_arrays, *scratch)
        if n:
            found.append(_expanded(segment, scratch.runs, n, labels, alive, source))
        elif stop < total and stop == start:  # not even one row fitted
            scratch = _larger(scratch)
        start = stop
    _keep(segment, scratch)
    if len(found) == 1:
        return found[0]
    if not found:
        return _NO_ROWS, _NO_SLOTS
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def _run_one(
    segment: Segment,
    point: NDArray[np.float64],
    led: list[int],
    alive: Alive,
    facts: Mapping[str, Any],
) -> list[int]:
    """As `_run`, with less ado for a single row, which tokens led to these buckets."""
    token_ptr, token_bucket = _ZEROS, _NO_ROWS
    if led:
        token_ptr, token_bucket = np.array((0, len(led))), np.array(led, np.int64)
    scratch = _scratch(segment, 1)
    while True:
        stop, n = kernels.scan_at_once(
            point, 0, token_ptr, token_bucket, *segment.kernel_arrays, *scratch
        )
        if stop:
            break
        scratch = _larger(scratch)
    if n > _FEW_RUNS:
        _, slots = _expanded(segment, scratch.runs, n, segment.slots, alive, _One(facts))
        _keep(segment, scratch)
        found: list[int] = slots.tolist()
        return found
    runs = scratch.runs[:n].tolist() if n else ()
    _keep(segment, scratch)
    found = []
    checker: Checker | None = None
    for _, first, end in runs:
        slots = segment.slots[first:end]
        if first >= segment.checked_from:
            checker = checker or Checker(_One(facts))
            tests = segment.tests[first - segment.checked_from : end - segment.checked_from]
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


def _scratch(segment: Segment, rows: int) -> Scratch:
    """Room for the search of so many rows; more than a first guess only if there was need."""
    room = max(_RUNS_AT_LEAST, _RUNS_PER_ROW * rows)
    try:
        scratch = segment.scratch.pop()
        if len(scratch.runs) >= room:
            return scratch
    except IndexError:  # other threads use what there was
        pass
    return Scratch(
        np.empty((room, 3), np.int32),
        np.empty((LEVELS, 2), np.int64),
        np.empty(len(segment.access.free) + segment.most_groups + 64, np.int64),
    )


def _larger(scratch: Scratch) -> Scratch:
    runs, stack, todo = scratch
    return Scratch(np.empty((4 * len(runs), 3), np.int32), stack, np.empty(4 * len(todo), np.int64))


def _keep(segment: Segment, scratch: Scratch) -> None:
    if len(scratch.runs) <= _RUNS_KEPT and not segment.scratch:
        segment.scratch.append(scratch)


def _expanded(
    segment: Segment, runs: Int32s, n: int, labels: Labels, alive: Alive, source: Source
) -> Pairs:
    plain, checked = kernels.count_runs(runs, n, segment.checked_from)
    rows = np.empty(plain + 1, np.int64)
    found = np.empty(plain + 1, labels.dtype)
    count = kernels.expand(runs, n, segment.checked_from, segment.slots, labels, alive, rows, found)
    rows, found = rows[:count], found[:count]
    if checked:
        more_rows, boxes = _checked(segment, runs, n, checked, alive, source)
        rows = np.concatenate((rows, more_rows))
        found = np.concatenate((found, labels[boxes]))
        order = np.argsort(rows, kind="stable")
        rows, found = rows[order], found[order]
    return rows, found


def _checked(
    segment: Segment, runs: Int32s, n: int, count: int, alive: Alive, source: Source
) -> tuple[Int64s, Int64s]:
    """Candidates whose checks hold, as (row, box)."""
    rows = np.empty(count, np.int64)
    boxes = np.empty(count, np.int64)
    kernels.expand_checked(runs, n, segment.checked_from, rows, boxes)
    live = alive[segment.slots[boxes]] != 0
    rows, boxes = rows[live], boxes[live]
    checker = Checker(source)
    first = segment.checked_from
    tests = segment.tests
    keep = [
        checker.passes(tests[box - first], row)
        for row, box in zip(rows.tolist(), boxes.tolist(), strict=True)
    ]
    chosen = np.array(keep, bool)
    return rows[chosen], boxes[chosen]
