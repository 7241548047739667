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
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.domains import REAL, Domain, domain
from stentor.filters.ranges import Ranges
from stentor.model.event_types import event_types
from stentor.pipeline.archives.facts import column_of
from stentor.pipeline.archives.manifests import Bounds, File
from stentor.pipeline.archives.moments import from_micros
from stentor.pipeline.archives.schemas import leaves

#: Columns that are measured, the first ones; and how much of a text is kept.
MAX_COLUMNS: Final = 256
MAX_TEXT: Final = 48
#: Up to here every integer is a double.
EXACT: Final = 2**53

_KINDS: Final[dict[type[DataType], str]] = {
    BooleanType: "bool",
    DoubleType: "number",
    LongType: "number",
    StringType: "string",
    TimestampType: "time",
}
_NOT_SEEN: Final = frozenset({"_id", "_broker", "_stream", "_offset", "_corrupt"})


def measured(table: pa.Table, schema: StructType) -> dict[str, Bounds]:
    """The bounds of all columns that filters can see."""
    found: dict[str, Bounds] = {}
    for name, kind in leaves(schema):
        if name in _NOT_SEEN:
            continue
        if len(found) == MAX_COLUMNS:
            break
        found[name] = _bounds(column_of(table, schema, name), kind)
    return found


def _bounds(column: pa.ChunkedArray, kind: DataType) -> Bounds:
    if isinstance(kind, DoubleType):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    absent: int = column.null_count
    if type(kind) not in _KINDS or absent == len(column):
        return Bounds(None, None, absent)
    if isinstance(kind, TimestampType):
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

    >>> schema = StructType().add("price", DoubleType())
    >>> old = File("a", "quote", None, 2, 9, 0, columns={"price": Bounds(1.0, 5.0, 0)})
    >>> Pruner(Filter("price > 7"), [schema]).may_match(old)
    False
    """

    def __init__(
        self, filter: Filter, schemas: Sequence[StructType], *, lineage: bool = True
    ) -> None:
        """With the schemas that files have, by their numbers.

        `lineage` says that this process knows what the program has declared of event types.
        """
        self._filter = filter
        self._lineage = lineage
        self._kinds = [
            {name: _KINDS.get(type(kind)) for name, kind in leaves(schema)} for schema in schemas
        ]

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
        kind = kinds[name]
        if kind is None:
            return None
        found = _range(kind, bounds)
        return None if found is None else Constraint(((kind, found),), absent=bounds.absent > 0)


def _range(kind: str, bounds: Bounds) -> Ranges | None:
    values: Domain = REAL if kind == "number" else domain(kind)
    low, high = _value(kind, bounds.low), _value(kind, bounds.high)
    if low is None:
        return None if high is None else Ranges.below(values, high)
    return Ranges.above(values, low) if high is None else Ranges.between(values, low, high)


def _value(kind: str, bound: Any) -> Any:
    """A bound as filters compare it; None if it cannot be relied on."""
    if kind == "time" and bound is not None:
        try:
            return from_micros(bound)
        except OverflowError:  # beyond the years that the model has
            return None
    if type(bound) is int and abs(bound) > EXACT:
        return None  # where the column is a double elsewhere, it is rounded when it is read
    return bound
