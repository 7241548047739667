"""Joining the constants of several tables, in order.

Strings and byte strings are sorted by Arrow, which lets other threads run meanwhile: the order of
UTF-8 bytes is the order of code points. Everything else is sorted by Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stentor.matching.index.axes import MULTIPLE, Axis

Ints = NDArray[np.int64]

_ARROW = {
    "string": pa.large_string(),
    "reverse": pa.large_string(),
    "head": pa.large_string(),
    "tail": pa.large_string(),
    "bytes": pa.large_binary(),
}
#: Fewer constants than this are sorted by Python, too: calls of Arrow would take longer.
_FEW = 256
#: Python objects are made in portions, so that other threads get their turn.
_PORTION = 16_384


def join_constants(axis: Axis, lists: Sequence[Sequence[Any]]) -> tuple[Sequence[Any], list[Ints]]:
    """All constants, sorted and distinct, and for each list the new places of its members."""
    arrow_type = _ARROW.get(axis.kind)
    if arrow_type is not None and sum(map(len, lists)) > _FEW:
        return _join_arrow(arrow_type, lists)
    whole = list(dict.fromkeys(c for constants in lists for c in constants))
    if axis.kind not in MULTIPLE:  # tokens are only ever equal, never ordered
        whole.sort()
    place = {constant: i for i, constant in enumerate(whole)}
    return whole, [np.array([place[c] for c in constants], np.int64) for constants in lists]


def _join_arrow(
    arrow_type: pa.DataType, lists: Sequence[Sequence[Any]]
) -> tuple[Sequence[Any], list[Ints]]:
    arrays = [_arrow(arrow_type, constants) for constants in lists]
    whole = pc.unique(pa.chunked_array(arrays, arrow_type))
    whole = whole.take(pc.sort_indices(whole))
    places = [
        pc.index_in(a, value_set=whole).to_numpy(zero_copy_only=False).astype(np.int64)
        for a in arrays
    ]
    return _python(whole), places


def _arrow(arrow_type: pa.DataType, constants: Sequence[Any]) -> pa.ChunkedArray:
    portions = [
        pa.array(constants[i : i + _PORTION], arrow_type)
        for i in range(0, len(constants), _PORTION)
    ]
    return pa.chunked_array(portions, arrow_type).combine_chunks()


def _python(array: pa.Array) -> list[Any]:
    found: list[Any] = []
    for i in range(0, len(array), _PORTION):
        found.extend(array.slice(i, _PORTION).to_pylist())
    return found
