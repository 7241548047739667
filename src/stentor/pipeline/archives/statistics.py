"""What is known of a file without reading it, and which files a filter can pass over.

For each column a manifest holds the least and the greatest value and the number of rows without
one. As a constraint of the filter language this reads: the attribute lies between these two, or it
is absent. A file can be passed over if no event could satisfy both the filter and these
constraints, which is the question that `overlaps` answers for filters; where it does not know, it
says yes, and the file is read. The event type of a file is known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.domains import REAL, Domain, domain
from stentor.filters.ranges import Ranges
from stentor.model.event_types import event_types
from stentor.pipeline.archives.facts import column_of
from stentor.pipeline.archives.manifests import Bounds, File
from stentor.pipeline.archives.moments import from_micros
from stentor.pipeline.archives.schemas import EXACT, leaves
from stentor.pipeline.columns.types import is_list

#: Columns that are measured, the first ones; and how much of a text is kept.
MAX_COLUMNS: Final = 256
MAX_TEXT: Final = 48

_NOT_SEEN: Final = frozenset({"_id", "_broker", "_stream", "_offset", "_corrupt"})


def measured(table: pa.Table) -> dict[str, Bounds]:
    """The bounds of all columns that filters can see."""
    schema = table.schema
    found: dict[str, Bounds] = {}
    for name, kind in leaves(schema):
        if name in _NOT_SEEN:
            continue
        if len(found) == MAX_COLUMNS:
            break
        column = column_of(table, name)
        assert column is not None
        found[name] = _bounds(column, kind)
    return found


def _value_type(kind: pa.DataType) -> str | None:
    """The type of values, as filters call it, if there are bounds for it."""
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind):
        return "string"
    return "time" if pa.types.is_timestamp(kind) else None


def _bounds(column: pa.ChunkedArray, kind: pa.DataType) -> Bounds:
    if is_list(kind) and pa.types.is_integer(kind.value_type):
        # No filter is asked about these, but whether the elements fit another type.
        inner = _bounds(pc.list_flatten(column), kind.value_type)
        return Bounds(inner.low, inner.high, column.null_count)
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    absent: int = column.null_count
    if _value_type(kind) is None or absent == len(column):
        return Bounds(None, None, absent)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if isinstance(low, str):
        return Bounds(low[:MAX_TEXT], _above(high), absent)
    if isinstance(low, float):  # JSON has no infinities
        return Bounds(
            low if math.isfinite(low) else None, high if math.isfinite(high) else None, absent
        )
    return Bounds(low, high, absent)


def _above(text: str) -> str | None:
    """A short text that is not less than this one; None if there is none."""
    if len(text) <= MAX_TEXT:
        return text
    for end in range(MAX_TEXT, 0, -1):
        following = ord(text[end - 1]) + 1
        if following == 0xD800:
            following = 0xE000  # half a surrogate pair is no character
        if following <= 0x10FFFF:
            return text[: end - 1] + chr(following)
    return None


class Pruner:
    """Says which files a filter has to look at.

    >>> schema = pa.schema({"price": pa.float64()})
    >>> old = File("a", "quote", None, 2, 9, 0, columns={"price": Bounds(1.0, 5.0, 0)})
    >>> Pruner(Filter("price > 7"), [schema]).may_match(old)
    False
    """

    def __init__(
        self, filter: Filter, schemas: Sequence[pa.Schema], *, lineage: bool = True
    ) -> None:
        """With the schemas that files have, by their numbers.

        `lineage` says that this process knows what the program has declared of event types.
        """
        self._filter = filter
        self._lineage = lineage
        self._kinds = [dict(leaves(schema)) for schema in schemas]

    def may_match(self, file: File) -> bool:
        """Whether some event of the file may match."""
        return any(self._overlaps(conjunct, file) for conjunct in self._filter.conjuncts)

    def _overlaps(self, conjunct: Conjunct, file: File) -> bool:
        for name, constraint in conjunct.constraints.items():
            if name == "_types":
                possible = self._is_kind(constraint, file.type)
            else:
                known = self._known(name, file)
                possible = known is None or constraint.intersects(known)
            if not possible:
                return False
        return True

    def _is_kind(self, constraint: Constraint, kind: str | None) -> bool:
        if kind is None:
            return constraint.absent
        return not self._lineage or constraint.accepts(event_types.ancestors(kind))

    def _known(self, name: str, file: File) -> Constraint | None:
        """What the events of a file can have under a name; None if that is not known."""
        if name == "_producer":  # a part of `_id`
            return None
        if name == "_type":
            if file.type is None:
                return Constraint(absent=True)
            return Constraint((("string", Ranges.points(domain("string"), [file.type])),))
        kinds = self._kinds[file.schema]
        if name not in kinds:
            return Constraint(absent=True)
        bounds = file.columns.get(name)
        if bounds is None:
            return None
        if bounds.absent >= file.rows:
            return Constraint(absent=True)
        kind = _value_type(kinds[name])
        if kind is None:
            return None
        found = _range(kind, kinds[name], bounds)
        return None if found is None else Constraint(((kind, found),), absent=bounds.absent > 0)


def _range(kind: str, column: pa.DataType, bounds: Bounds) -> Ranges | None:
    values: Domain = REAL if kind == "number" else domain(kind)
    low, high = _value(column, bounds.low), _value(column, bounds.high)
    if low is None:
        return None if high is None else Ranges.below(values, high)
    return Ranges.above(values, low) if high is None else Ranges.between(values, low, high)


def _value(kind: pa.DataType, bound: Any) -> Any:
    """A bound as filters compare it; None if it cannot be relied on."""
    if pa.types.is_timestamp(kind) and bound is not None:
        try:
            return from_micros(bound)
        except OverflowError:  # beyond the years that the model has
            return None
    if pa.types.is_floating(kind) and type(bound) is int and abs(bound) > EXACT:
        return None  # older compactions made doubles of integers, and kept the bounds
    return bound


def may_lose(file: File, own: pa.Schema, schema: pa.Schema) -> bool:
    """Whether some value of a file may not fit the archive's schema; its own schema is given."""
    wanted = dict(leaves(schema))
    return any(
        _may_lose(kind, wanted[name], file.columns.get(name))
        for name, kind in leaves(own)
        if name in wanted
    )


def _may_lose(kind: pa.DataType, wanted: pa.DataType, bounds: Bounds | None) -> bool:
    if is_list(kind) and is_list(wanted):
        kind, wanted = kind.value_type, wanted.value_type
    if kind == wanted or pa.types.is_decimal(wanted):
        return False
    if pa.types.is_integer(kind) and bounds is not None:
        low, high = bounds.low, bounds.high
        if isinstance(low, int) and isinstance(high, int):
            return low < -EXACT or high > EXACT
    return True
