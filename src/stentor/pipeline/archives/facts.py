"""What filters see of archived events, where there is no Spark: row by row, few columns."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stentor.errors import InvalidValue
from stentor.filters import Filter
from stentor.model.event_types import event_types
from stentor.model.identity import NotificationId
from stentor.model.values import INT_MAX, INT_MIN, normal
from stentor.pipeline.archives.schemas import flat

Mask = NDArray[np.bool_]


class RowFilter:
    """A filter on tables, whatever their columns are.

    >>> RowFilter(Filter("x < 2")).matches(pa.table({"x": [1, 2, None]})).tolist()
    [True, False, False]
    """

    def __init__(
        self, filter: Filter, ancestors: Callable[[str], frozenset[str]] = event_types.ancestors
    ) -> None:
        """`ancestors` says of an event type what else its events are."""
        self._filter = filter
        self._ancestors = ancestors

    def matches(self, table: pa.Table) -> Mask:
        """By row, whether it matches."""
        if self._filter.is_always:
            return np.ones(table.num_rows, bool)
        leaves = flat(table)
        columns = {
            name: values
            for name in self._filter.names
            if (values := self._values(leaves, name)) is not None
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
            return [None if kind is None else self._ancestors(kind) for kind in kinds]
        if name == "_producer":
            ids = self._values(table, "_id")
            return None if ids is None else [_producer(written) for written in ids]
        places = table.schema.get_all_field_indices(name)
        return [_value(v) for v in table.column(places[0]).to_pylist()] if places else None


def _value(value: Any) -> Any:
    """What filters see of a value: what is published of it, if something is."""
    if value is None or value != value:
        return None
    if isinstance(value, list):
        return normal([v for v in map(_value, value) if v is not None])
    if isinstance(value, Decimal):
        whole = cast(int, value.as_tuple().exponent) >= 0 and INT_MIN <= value <= INT_MAX
        return int(value) if whole else float(value)
    return normal(value)


def _producer(written: str | None) -> str | None:
    try:
        return None if written is None else NotificationId.parse(written).producer
    except InvalidValue:
        return None


def publishable(table: pa.Table) -> Mask:
    """By row, whether there is anything in it to publish."""
    found = np.zeros(table.num_rows, bool)
    columns = flat(table)
    for name, column in zip(columns.schema.names, columns.columns, strict=True):
        if name.startswith("_") and name not in ("_type", "_subject", "_channel"):
            continue
        if found.all():
            break
        found |= pc.invert(pc.is_null(column, nan_is_null=True)).to_numpy()
    return found
