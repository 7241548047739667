"""What filters see of archived events, where there is no Spark: row by row, few columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import StructType

from stentor.errors import InvalidValue
from stentor.filters import Filter
from stentor.model.event_types import event_types
from stentor.model.identity import NotificationId
from stentor.model.values import normal
from stentor.pipeline.archives.schemas import leaves

Mask = NDArray[np.bool_]


class RowFilter:
    """A filter on tables of one schema.

    >>> from pyspark.sql.types import LongType
    >>> cheap = RowFilter(Filter("x < 2"), StructType().add("x", LongType()))
    >>> cheap.matches(pa.table({"x": [1, 2, None]})).tolist()
    [True, False, False]
    """

    def __init__(self, filter: Filter, schema: StructType) -> None:
        self._filter = filter
        self._schema = schema
        self._known = {name for name, _ in leaves(schema)}

    def matches(self, table: pa.Table) -> Mask:
        """By row, whether it matches."""
        if self._filter.is_always:
            return np.ones(table.num_rows, bool)
        columns = {
            name: values
            for name in self._filter.names
            if (values := self._values(table, name)) is not None
        }
        names = list(columns)
        conjuncts = self._filter.conjuncts
        found = []
        for row in range(table.num_rows):
            facts = {name: v for name in names if (v := columns[name][row]) is not None}
            found.append(any(conjunct.matches(facts) for conjunct in conjuncts))
        return np.array(found, bool)

    def _values(self, table: pa.Table, name: str) -> list[Any] | None:
        """The values of a name, None where there is none; None for all if no event has any."""
        if name == "_types":
            kinds = self._values(table, "_type")
            if kinds is None:
                return None
            return [None if kind is None else event_types.ancestors(kind) for kind in kinds]
        if name == "_producer":
            ids = self._values(table, "_id")
            return None if ids is None else [_producer(written) for written in ids]
        if name not in self._known:
            return None
        values = column_of(table, self._schema, name).to_pylist()
        return [None if v is None or v != v else normal(v) for v in values]


def _producer(written: str | None) -> str | None:
    try:
        return None if written is None else NotificationId.parse(written).producer
    except InvalidValue:
        return None


def column_of(table: pa.Table, schema: StructType, name: str) -> pa.ChunkedArray | pa.Array:
    """The column of a dotted name; dots may also be part of the names of columns and fields."""
    for field in schema.fields:
        if field.name == name and not isinstance(field.dataType, StructType):
            return table.column(name)
        if isinstance(field.dataType, StructType) and name.startswith(f"{field.name}."):
            inner = name[len(field.name) + 1 :]
            if any(inner == leaf for leaf, _ in leaves(field.dataType)):
                column = table.column(field.name)
                if isinstance(column, pa.ChunkedArray):
                    column = column.combine_chunks()
                fields = field.dataType.fieldNames()
                arrays = [pc.struct_field(column, i) for i in range(len(fields))]
                return column_of(pa.table(arrays, names=fields), field.dataType, inner)
    raise KeyError(name)


def publishable(table: pa.Table, schema: StructType) -> Mask:
    """By row, whether there is anything in it to publish."""
    found = np.zeros(table.num_rows, bool)
    for name, _ in leaves(schema):
        if name.startswith("_") and name not in ("_type", "_subject", "_channel"):
            continue
        if found.all():
            break
        column = column_of(table, schema, name)
        valid = pc.is_valid(column)
        if pa.types.is_floating(column.type):
            valid = pc.and_(valid, pc.invert(pc.fill_null(pc.is_nan(column), True)))
        found |= (
            valid.to_numpy()
            if isinstance(valid, pa.ChunkedArray)
            else valid.to_numpy(zero_copy_only=False)
        )
    return found
