"""What filters see of a batch of events: record batches for the index, inside Python workers.

The columns are those of `filter_columns`. Only event types still have to become all their
supertypes, and wide decimals in collections the numbers that they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from stentor.errors import UnknownEventType
from stentor.model.event_types import event_types
from stentor.pipeline.filters.wide_decimals import told_apart


def events_batch(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Columns by the names of their attributes; there may be more columns, which do not count.

    A name that comes several times has a value in one of its columns, each of a different type.
    If there are no names, filters see nothing of the events, and a column says how many there are.
    """
    if not names:
        return pa.record_batch({"": pa.nulls(len(columns[0]))})
    found: dict[str, list[pa.Array]] = {}
    for name, column in zip(names, columns, strict=False):
        found.setdefault(name, []).append(supertypes(column) if name == "_types" else column)
    arrays = [
        _mixed(several) if len(several) > 1 else told_apart(several[0])
        for several in found.values()
    ]
    return pa.RecordBatch.from_arrays(arrays, list(found))


def _mixed(columns: Sequence[pa.Array]) -> pa.Array:
    """One column of values that have different types."""
    chosen = np.zeros(len(columns[0]), np.int8)
    for number, column in enumerate(columns):
        chosen[column.is_valid().to_numpy(zero_copy_only=False)] = number
    return pa.UnionArray.from_sparse(pa.array(chosen), list(map(told_apart, columns)))


def supertypes(types: pa.Array) -> pa.Array:
    """For each event type the list of itself and all its supertypes."""
    coded = types if pt.is_dictionary(types.type) else types.dictionary_encode()
    found = [_ancestors(name) for name in coded.dictionary.to_pylist()]
    return pa.array(found, pa.list_(pa.string())).take(coded.indices)


def _ancestors(name: str | None) -> list[str] | None:
    try:
        return None if name is None else sorted(event_types.ancestors(name))
    except UnknownEventType:  # no notification could have this type
        return None
