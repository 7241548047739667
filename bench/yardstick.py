"""The yardstick: what a good programmer writes in an afternoon.

A Numba loop with the most selective equality of each filter as its access key; every filter found
under a key of the event is verified constraint by constraint. It has no ranges, no updates and no
disjunctions; it only answers how fast the obvious thing is, on this machine, in this run. Each
constraint is an interval on a float: numbers as they are, strings by their rank among all constants
(so that a prefix is an interval, too).
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

Constraints = list[list[Any]]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = NDArray[np.int32]


@njit(cache=True, nogil=True)
def _verify(
    x: Floats,
    codes: Integers,
    key_ptr: Integers,
    number: Numbers,
    attr: Integers,
    low: Floats,
    high: Floats,
    out_row: Integers,
    out_filter: Numbers,
) -> int:
    """Filters stand in the order of their keys, so those under one key are neighbors."""
    n = 0
    for row in range(x.shape[0]):
        for a in range(codes.shape[1]):
            key = codes[row, a]
            if key < 0:
                continue
            for f in range(key_ptr[key], key_ptr[key + 1]):
                ok = True
                for c in range(attr.shape[0]):
                    v = x[row, attr[c, f]]
                    if v < low[c, f] or v > high[c, f]:
                        ok = False
                        break
                if ok:
                    if n < out_row.shape[0]:
                        out_row[n] = row
                        out_filter[n] = number[f]
                    n += 1
    return n


class Yardstick:
    """Compiled once from all filters; `match_batch` gives rows and filter numbers."""

    def __init__(self, filters: list[Constraints]) -> None:
        self.names = sorted({a for f in filters for a, _, _ in f})
        place = {name: i for i, name in enumerate(self.names)}
        texts = {name: set[str]() for name in self.names}
        for f in filters:
            for name, op, value in f:
                if isinstance(value, str):
                    texts[name].add(value)
                    if op == "prefix":
                        texts[name].add(value[:-1] + chr(ord(value[-1]) + 1))
        self.ranks = {
            n: {t: 2 * i + 1.0 for i, t in enumerate(sorted(s))} for n, s in texts.items() if s
        }
        self.sorted = {n: sorted(s) for n, s in texts.items() if s}
        uses = Counter((a, v) for f in filters for a, op, v in f if op == "=")
        best = [min(((a, v) for a, op, v in f if op == "="), key=uses.__getitem__) for f in filters]
        self.keys = {key: i for i, key in enumerate(dict.fromkeys(best))}
        self.key_names = sorted({name for name, _ in self.keys})
        order = np.argsort([self.keys[key] for key in best], kind="stable")
        sizes = np.bincount([self.keys[key] for key in best])
        width = max(len({a for a, _, _ in f}) for f in filters) - 1
        attr = np.zeros((width, len(filters)), np.int32)
        low = np.full((width, len(filters)), -np.inf)
        high = np.full((width, len(filters)), np.inf)
        for i, number in enumerate(order.tolist()):
            bounds: dict[str, list[float]] = {}
            for name, op, value in filters[number]:
                if (name, value) != best[number]:
                    least, most = self._interval(name, op, value)
                    both = bounds.setdefault(name, [-np.inf, np.inf])
                    both[0], both[1] = max(both[0], least), min(both[1], most)
            for c, (name, (least, most)) in enumerate(bounds.items()):
                attr[c, i], low[c, i], high[c, i] = place[name], least, most
        self.arrays: tuple[Any, ...] = (
            np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
            order.astype(np.int32),
            attr,
            low,
            high,
        )
        self.room = 1 << 16

    def _interval(self, name: str, op: str, value: Any) -> tuple[float, float]:
        if isinstance(value, str):
            rank = self.ranks[name]
            if op == "prefix":
                return rank[value], rank[value[:-1] + chr(ord(value[-1]) + 1)] - 1
            return rank[value], rank[value]
        if op in ("<", "<="):
            return -np.inf, value if op == "<=" else np.nextafter(value, -np.inf)
        return value if op == ">=" else np.nextafter(value, np.inf), np.inf

    def match_batch(self, batch: pa.RecordBatch) -> tuple[Integers, Numbers]:
        x = np.empty((batch.num_rows, len(self.names)))
        codes = np.full((batch.num_rows, len(self.key_names)), -1, np.int64)
        for i, name in enumerate(self.names):
            column = batch.column(name)
            if name not in self.ranks:
                x[:, i] = column.to_numpy()
                continue
            encoded = column.dictionary_encode()
            values = encoded.dictionary.to_pylist()
            indices = encoded.indices.to_numpy()
            known = self.ranks[name]
            ranks = [known.get(v) or 2.0 * bisect(self.sorted[name], v) for v in values]
            x[:, i] = np.array(ranks)[indices]
            if name in self.key_names:
                table = np.array([self.keys.get((name, v), -1) for v in values])
                codes[:, self.key_names.index(name)] = table[indices]
        while True:
            rows, found = np.empty(self.room, np.int64), np.empty(self.room, np.int32)
            key_ptr, number, attr, low, high = self.arrays
            n = _verify(x, codes, key_ptr, number, attr, low, high, rows, found)
            if n <= self.room:
                return rows[:n], found[:n]
            self.room = 2 * n
