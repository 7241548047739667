"""What filters see of a batch of events: record batches for the index, inside Python workers.

The columns are those of `filter_columns`. Only event types still have to become all their
supertypes, and wide decimals in collections the numbers that they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from stentor.errors import UnknownEventType, UnsupportedColumn
from stentor.model.event_types import event_types
from stentor.model.names import RESERVED
from stentor.model.values import INT_MAX, INT_MIN
from stentor.pipeline.columns.types import is_list
from stentor.pipeline.filters.fallback import told_apart


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


# -- records of SQL

# A function in SQL learns the types of its argument only when the batches arrive, in a worker. So
# the convention of `filter_columns` is kept here in terms of Arrow: dotted names are fields within
# fields, an attribute that several fields could hold is in the first that is neither null nor NaN,
# a struct that is there ends the search, and decimals are the numbers that are published for them.

#: Where the value of a name that has no column of its own comes from.
_DERIVED: Final = {"_types": "_type", "_producer": "_id"}
_PRODUCER: Final = r"(?s)\A(?P<producer>.+):(?:0|[1-9][0-9]{0,18}):(?:0|[1-9][0-9]{0,18})\z"
#: Decimals without a fraction and with no more digits than this are 64-bit integers.
_LONG_DIGITS: Final = 18


def records_batch(records: pa.StructArray, names: Iterable[str]) -> pa.RecordBatch:
    """The attributes of these names, for the index.

    >>> rows = [{"pos": {"x": 1}, "n": None}, {"pos": None, "n": 2.5}]
    >>> records_batch(pa.array(rows), ["n", "pos.x", "other"]).to_pydict()
    {'n': [None, 2.5], 'pos.x': [1, None]}
    """
    found: list[tuple[str, pa.Array]] = []
    for name in sorted(names):
        found += [(name, column) for column in _columns(records, name)]
    nothing = pa.nulls(len(records))
    return events_batch([name for name, _ in found], [column for _, column in found] or [nothing])


def _columns(records: pa.StructArray, name: str) -> list[pa.Array]:
    """The columns of an attribute; where there are several, each row has a value in one of them."""
    if name.startswith("_") and name not in RESERVED:
        return []
    places = list(_places(records, _DERIVED.get(name, name)))
    if name in _DERIVED:
        places = [p for p in places if pt.is_string(p.type) or pt.is_large_string(p.type)][:1]
    if name == "_producer":
        return [pc.struct_field(pc.extract_regex(place, _PRODUCER), 0) for place in places]
    found: list[pa.Array] = []
    free: np.ndarray | None = None
    for place in places:
        present = _present(place)
        if not pt.is_struct(place.type):
            column = place if free is None else pc.if_else(pa.array(free), place, None)
            same = next((n for n, other in enumerate(found) if other.type == column.type), None)
            if same is None:
                found.append(column)
            else:
                found[same] = pc.if_else(pa.array(_present(found[same])), found[same], column)
        free = ~present if free is None else free & ~present
    return found


def _places(records: pa.StructArray, name: str) -> Iterator[pa.Array]:
    """The fields at a dotted name, however the nesting and the dots are mixed."""
    field = _field(records, name)
    if field is not None:
        yield from _values(name, field)
    head, dot, tail = name.partition(".")
    while dot:
        field = _field(records, head)
        if field is not None:
            if pt.is_struct(field.type):
                yield from _places(field, tail)
            elif is_list(field.type) and pt.is_struct(field.type.value_type):
                raise UnsupportedColumn(
                    f"a filter asks for {name!r}, but {head!r} holds lists of records, into which "
                    "filters cannot look; make a row of each record with `explode`"
                )
        more, dot, tail = tail.partition(".")
        head = f"{head}.{more}"


def _field(records: pa.StructArray, name: str) -> pa.Array | None:
    places = records.type.get_all_field_indices(name)
    if len(places) > 1:
        raise UnsupportedColumn(f"the record has several fields named {name!r}; rename all but one")
    return pc.struct_field(records, places) if places else None


def _values(name: str, field: pa.Array) -> Iterator[pa.Array]:
    """A field as attribute values: a wide decimal is an integer here and a float there."""
    kind = field.type
    if pt.is_null(kind):
        return
    if pt.is_decimal(kind):
        numbers = field.to_pylist()
        if kind.scale <= 0:
            whole = [None if n is None or not INT_MIN <= n <= INT_MAX else int(n) for n in numbers]
            yield pa.array(whole, pa.int64())
        if kind.scale > 0 or kind.precision > _LONG_DIGITS:
            # One by one: Arrow's cast does not always round to the nearest double.
            yield pa.array([None if n is None else float(n) for n in numbers], pa.float64())
    elif is_list(kind) and pt.is_decimal(kind.value_type) and kind.value_type.scale > 0:
        rows = field.to_pylist()
        floats = [None if r is None else [None if n is None else float(n) for n in r] for r in rows]
        yield pa.array(floats, pa.list_(pa.float64()))
    else:
        yield field


def _present(column: pa.Array) -> np.ndarray:
    """Where there is a value: neither null nor NaN."""
    found: np.ndarray = column.is_valid().to_numpy(zero_copy_only=False)
    if pt.is_floating(column.type):
        found &= ~np.isnan(column.to_numpy(zero_copy_only=False))
    return found
