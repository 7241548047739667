"""The types of an archive's columns: which go together, and what does not fit.

Every event keeps the type that it came with, in a column of that type (`columns`). Above that there
is one schema under which all events are a table: decimals are as wide as the widest; other numbers
that are of several types are doubles. A column that was a number and is a string now is a
contradiction, and is refused when the events come, while whoever sends them can still do something
about it.

No double is equal to some large integers, nor to some decimals. A value that the type of its column
in the table cannot hold is treated as the source "stentor" treats it: the column is null there, and
`_corrupt` says what it was (`fitted`). Filters are asked before that, about the value itself, and
what is published again is what the file holds.

Integers and floats of all sizes are archived as long and double, so that only real differences
count. Times, booleans, strings, binary data and decimals stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stentor.errors import ArchiveError
from stentor.pipeline.columns.headers import as_json as misfits_as_json
from stentor.pipeline.columns.types import is_list, list_of, sql_name

#: Says which values did not fit their columns.
CORRUPT: Final = pa.field("_corrupt", pa.string())
#: Up to here every integer is a double.
EXACT: Final = 2**53

_MAX_DIGITS: Final = 38
_LONG_DIGITS: Final = 19


def joined_types(name: str, old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """A type for the values of both; `ArchiveError` if they contradict each other.

    >>> joined_types("x", pa.int64(), pa.float64())
    DataType(double)
    """
    if old == new:
        return old
    if _is_number(old) and _is_number(new):
        return _joined_numbers(old, new)
    if is_list(old) and is_list(new):
        return list_of(joined_types(name, old.value_type, new.value_type))
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_joined_fields(f"{name}.", old, new))
    raise ArchiveError(
        f"column {name!r} is a {sql_name(old)} in the archive and a {sql_name(new)} in "
        f"the events; cast it (.withColumn({name!r}, col({name!r}).cast({sql_name(old)!r}))), "
        "give it another name, or archive these events elsewhere"
    )


def _joined_fields(within: str, old: Any, new: Any) -> list[pa.Field]:
    theirs = {field.name: field for field in new}
    fields = []
    for field in old:
        other = theirs.pop(field.name, None)
        kind = field.type
        if other is not None:
            kind = joined_types(within + field.name, kind, other.type)
        fields.append(pa.field(field.name, kind))
    return [*fields, *theirs.values()]


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _joined_numbers(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """A type that holds all numbers of both, or else most of them."""
    digits = [_digits(kind) for kind in (old, new)]
    if None not in digits:
        before, behind = (max(each) for each in zip(*filter(None, digits), strict=True))
        if before + behind <= _MAX_DIGITS:
            return pa.decimal128(before + behind, behind)
    return pa.float64()


def _digits(kind: pa.DataType) -> tuple[int, int] | None:
    """Before and behind the point."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return (_LONG_DIGITS, 0) if pa.types.is_integer(kind) else None


def as_in(schema: pa.Schema, file: pa.Schema) -> pa.Schema:
    """The schema, but with the types of numbers that a file has for its columns."""
    return pa.schema(_fields_as_in(schema, file))


def _fields_as_in(wanted: Any, file: Any) -> list[pa.Field]:
    theirs = {field.name: field.type for field in file}
    return [pa.field(f.name, _type_as_in(f.type, theirs.get(f.name))) for f in wanted]


def _type_as_in(wanted: pa.DataType, found: pa.DataType | None) -> pa.DataType:
    if found is None:
        return wanted
    if pa.types.is_struct(wanted) and pa.types.is_struct(found):
        return pa.struct(_fields_as_in(wanted, found))
    if is_list(wanted) and is_list(found):
        return list_of(_type_as_in(wanted.value_type, found.value_type))
    return found if _is_number(wanted) and _is_number(found) else wanted


def aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns: null where it has none, and nothing changed."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            array = batch.column(index)
            arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- values that do not fit


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under the archive's schema: null where a value does not fit, told in `_corrupt`.

    >>> old = pa.record_batch({"x": pa.array([1, 2**53 + 1])})
    >>> fitted(old, pa.schema([("x", pa.float64()), CORRUPT])).to_pylist()
    [{'x': 1.0, '_corrupt': None}, {'x': None, '_corrupt': '{"x": 9007199254740993}'}]
    """
    misfits: dict[int, dict[str, Any]] = {}

    def misfit(row: int, name: str, value: Any) -> None:
        misfits.setdefault(row, {})[name] = value

    batch = aligned(batch, as_in(schema, batch.schema))
    arrays = [_fit(batch.column(f.name), f.type, f.name, misfit) for f in schema]
    if misfits:
        place = schema.get_field_index(CORRUPT.name)
        told = arrays[place].to_pylist()
        for row, found in misfits.items():
            told[row] = misfits_as_json({**_told(told[row]), **found})
        arrays[place] = pa.array(told, pa.string())
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _told(corrupt: str | None) -> dict[str, Any]:
    """What `_corrupt` says already."""
    try:
        found = json.loads(corrupt or "{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {CORRUPT.name: corrupt}


def _fit(
    array: pa.Array, wanted: pa.DataType, name: str, misfit: Callable[[int, str, Any], None]
) -> pa.Array:
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        children = [
            _fit(pc.struct_field(array, i), field.type, f"{name}.{field.name}", misfit)
            for i, field in enumerate(wanted)
        ]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if is_list(wanted):
        lost = _lost(array.flatten(), wanted.value_type)
        rows = pc.list_parent_indices(array).to_numpy()[lost].tolist()
    else:
        rows = np.flatnonzero(_lost(array, wanted)).tolist()
    return _converted(_without(array, rows, name, misfit), wanted)


def _converted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Values as another type, or the nearest that it has."""
    if not _rounds(array.type, wanted):
        return array.cast(wanted, safe=False)
    # One by one: Arrow's cast of decimals does not always round to the nearest double.
    return pa.array([_nearest(value, wanted) for value in array.to_pylist()], wanted)


def _rounds(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether decimals become doubles in it."""
    if is_list(old):
        return _rounds(old.value_type, new.value_type)
    if pa.types.is_struct(old):
        return any(_rounds(field.type, new.field(field.name).type) for field in old)
    return bool(pa.types.is_decimal(old) and pa.types.is_floating(new))


def _nearest(value: Any, wanted: pa.DataType) -> Any:
    if isinstance(value, list):
        return [_nearest(each, wanted.value_type) for each in value]
    if isinstance(value, dict):
        return {name: _nearest(each, wanted.field(name).type) for name, each in value.items()}
    return value if value is None or not pa.types.is_floating(wanted) else float(value)


def _without(
    array: pa.Array, rows: list[int], name: str, misfit: Callable[[int, str, Any], None]
) -> pa.Array:
    """The array, null in these rows."""
    if not rows:
        return array
    for row in dict.fromkeys(rows):
        misfit(row, name, array[row].as_py())
    keep = np.ones(len(array), bool)
    keep[rows] = False
    return pc.if_else(pa.array(keep), array, pa.scalar(None, array.type))


def _lost(numbers: pa.Array, wanted: pa.DataType) -> Any:
    """By row, whether no number of the wanted type is the same."""
    if not _is_number(wanted):  # records in lists
        values = zip(numbers.to_pylist(), _converted(numbers, wanted).to_pylist(), strict=True)
        return np.array([not _same(was, now) for was, now in values], bool)
    if not pa.types.is_floating(wanted):
        return np.zeros(len(numbers), bool)
    if pa.types.is_decimal(numbers.type):
        values = numbers.to_pylist()
        return np.array([v is not None and Decimal(repr(float(v))) != v for v in values], bool)
    found = np.zeros(len(numbers), bool)
    large = pc.or_(pc.greater(numbers, EXACT), pc.less(numbers, -EXACT)).fill_null(False)
    for row in np.flatnonzero(large.to_numpy(zero_copy_only=False)).tolist():
        value = numbers[row].as_py()
        found[row] = int(float(value)) != value
    return found


def _same(was: Any, now: Any) -> bool:
    """Whether a value is the same in another type; a decimal is what its shortest form says."""
    if isinstance(was, dict) and isinstance(now, dict):
        return all(_same(value, now[name]) for name, value in was.items())
    if isinstance(was, list) and isinstance(now, list):
        return all(_same(*both) for both in zip(was, now, strict=True))
    if isinstance(was, Decimal) and isinstance(now, float):
        return Decimal(repr(now)) == was
    return bool(was == now or was != was)


def leaves(schema: Any, within: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """All columns that are no structs, by their dotted names."""
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from leaves(field.type, f"{within}{field.name}.")
        else:
            yield within + field.name, field.type


def flat(table: pa.Table) -> pa.Table:
    """The table with a column for each leaf, under its dotted name; null where a struct is."""
    while any(map(pa.types.is_struct, table.schema.types)):
        table = table.flatten()
    return table
