"""The columns of the Delta table, and those of the events: names, and one column for each type.

A Delta table has columns of one type each, and they only grow: new columns may come, and new fields
of structs. Events change more than that. A price that was whole may have cents next year, and then
the column `price`, a long, is joined by the column `price@double`; every event has its value where
it was put when it came, to the last digit, and nothing that is written is ever touched. Whoever
reads the archive as events sees one column again, of the type that holds both or else most of it
(`logical`, `schemas.joined`); with SQL it is `coalesce(price, "price@double")`. A number that
becomes a string is no growth but a contradiction, and refused.

The format forbids some characters in names, and a dot separates a struct from its fields. These are
written in hexadecimal, as in URLs, and so are `%` and `@`: the attribute `price (USD)` is
the column `price%20%28USD%29`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stentor.errors import ArchiveError
from stentor.pipeline.archives.schemas import flat, joined_types
from stentor.pipeline.columns.types import sql_name

#: The day in UTC; a partition of the table, and no column of events.
DAY: Final = "_day"

_FORBIDDEN: Final = re.compile(r"[\x00-\x20.,;{}()=%@]")
_WORDS: Final = re.compile(r"[^A-Za-z0-9]+")


def column_name(attribute: str) -> str:
    """The name of the first column of an attribute, or of a part of its dotted name.

    >>> column_name("price"), column_name("price (USD)"), column_name("ärger 100%")
    ('price', 'price%20%28USD%29', 'ärger%20100%25')
    """
    return _FORBIDDEN.sub(lambda found: f"%{ord(found[0]):02X}", attribute)


def attribute_name(column: str) -> str:
    """The other way round.

    >>> attribute_name("price%20%28USD%29"), attribute_name("price@double")
    ('price (USD)', 'price')
    """
    return unquote(column.partition("@")[0])


def _by_attribute(fields: Iterable[pa.Field]) -> dict[str, list[pa.Field]]:
    found: dict[str, list[pa.Field]] = {}
    for field in fields:
        found.setdefault(attribute_name(field.name), []).append(field)
    return found


# -- growth


def grown(columns: pa.Schema, events: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
    """The columns that the table needs for such events, and which of them the events have.

    `ArchiveError` if they contradict each other.

    >>> table, own = grown(pa.schema({"x": pa.int64()}), pa.schema({"x": pa.float64()}))
    >>> table.names, own.names
    (['x', 'x@double'], ['x@double'])
    """
    all_fields, own = _grown("", columns, events)
    return pa.schema(all_fields), pa.schema(own)


def _grown(within: str, columns: Any, events: Any) -> tuple[list[pa.Field], list[pa.Field]]:
    fields = {field.name: field for field in columns}
    known = _by_attribute(columns)
    spelled = {name.lower(): name for name in known}
    own = []
    for field in events:
        other = spelled.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise ArchiveError(
                f"the archive has a column {within}{other}, and the events have "
                f"{within}{field.name}; Spark does not tell these apart, so rename one"
            )
        place, kind, having = within + field.name, field.type, known.get(field.name, [])
        for each in having:
            joined_types(place, logical_type(each.type), kind)
        if pa.types.is_struct(kind):
            name = column_name(field.name)
            inside, mine = _grown(f"{place}.", having[0].type if having else (), kind)
            fields[name] = pa.field(name, pa.struct(inside))
            own.append(pa.field(name, pa.struct(mine)))
            continue
        same = next((each for each in having if each.type == kind), None)
        if same is None:
            same = pa.field(_fresh(column_name(field.name), kind, fields), kind)
            fields[same.name] = same
        own.append(same)
    return list(fields.values()), own


def _fresh(name: str, kind: pa.DataType, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    name = f"{name}@{_WORDS.sub('_', sql_name(kind)).strip('_')}"
    while name in taken:
        name += "_"
    return name


def logical(columns: Any) -> pa.Schema:
    """The columns of the events: of each attribute one.

    >>> logical(pa.schema({"x": pa.int64(), "y%20": pa.string(), "x@double": pa.float64()})).names
    ['x', 'y ']
    """
    return pa.schema(_logical("", columns))


def _logical(within: str, columns: Any) -> list[pa.Field]:
    found = []
    for name, fields in _by_attribute(columns).items():
        kind = logical_type(fields[0].type)
        for other in fields[1:]:
            kind = joined_types(within + name, kind, logical_type(other.type))
        found.append(pa.field(name, kind))
    return found


def logical_type(kind: pa.DataType) -> pa.DataType:
    """A type whose structs have the names of attributes, and one field for each."""
    return pa.struct(_logical("", kind)) if pa.types.is_struct(kind) else kind


def variants(columns: Any, within: str = "", place: str = "") -> dict[str, dict[str, pa.DataType]]:
    """By the dotted name of an attribute: its columns, by their dotted names, and their types.

    >>> variants(pa.schema({"a": pa.struct({"x%20": pa.int64(), "x%20@double": pa.float64()})}))
    {'a.x ': {'a.x%20': DataType(int64), 'a.x%20@double': DataType(double)}}
    """
    found: dict[str, dict[str, pa.DataType]] = {}
    for field in columns:
        name, path = within + attribute_name(field.name), place + field.name
        if pa.types.is_struct(field.type):
            inside = variants(field.type, f"{name}.", f"{path}.")
        else:
            inside = {name: {path: field.type}}
        for each, kinds in inside.items():
            found.setdefault(each, {}).update(kinds)
    return found


# -- rows


def chosen(columns: Any, wanted: frozenset[str], within: str = "") -> list[pa.Field]:
    """The columns without those of attributes that have several, unless these are wanted."""
    found = []
    for fields in _by_attribute(columns).values():
        named = [f for f in fields if len(fields) == 1 or within + f.name in wanted] or fields[:1]
        for field in named:
            kind = field.type
            if pa.types.is_struct(kind):
                kind = pa.struct(chosen(kind, wanted, f"{within}{field.name}."))
            found.append(pa.field(field.name, kind))
    return found


def typed(table: pa.Table) -> Iterator[tuple[int, int, pa.Table]]:
    """The rows as events, in runs whose attributes are of one type each: where, and the events."""
    several = [paths for paths in variants(table.schema).values() if len(paths) > 1]
    if not several:
        yield 0, table.num_rows, _as_events(table, table.schema)
        return
    codes, leaves = np.zeros(table.num_rows, np.int64), flat(table)
    for paths in several:
        which = np.zeros(table.num_rows, np.int64)
        for number, path in enumerate(paths):
            which[pc.is_valid(leaves.column(path)).to_numpy()] = number
        codes = codes * len(paths) + which
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), table.num_rows]
    for start, end in pairwise(edges):
        if start == end:
            continue
        code, wanted = int(codes[start]), set()
        for paths in reversed(several):
            code, number = divmod(code, len(paths))
            wanted.add(list(paths)[number])
        fields = chosen(table.schema, frozenset(wanted))
        yield start, end, _as_events(table.slice(start, end - start), pa.schema(fields))


def _as_events(table: pa.Table, fields: pa.Schema) -> pa.Table:
    """Some columns, under the names of attributes."""
    target = logical(fields)
    if table.schema == target:
        return table
    arrays = [
        _renamed(_picked(table.column(field.name).combine_chunks(), field.type), wanted.type)
        for field, wanted in zip(fields, target, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=target)


def _picked(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Some fields of structs."""
    if array.type == kind:
        return array
    names = [field.name for field in array.type]
    children = [
        _picked(pc.struct_field(array, names.index(field.name)), field.type) for field in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())


def _renamed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.view(kind)


def as_columns(batch: pa.RecordBatch, own: pa.Schema) -> pa.RecordBatch:
    """Events under the names of their columns, as `grown` gives them."""
    arrays = [_renamed(a, f.type) for a, f in zip(batch.columns, own, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=own)
