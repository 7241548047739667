"""What is known of a file without reading it, and which files a filter can pass over.

A commit holds for each column of a file the least and the greatest value and the number of rows
without one, as the format has it, so that every reader can pass over files. As a constraint of
the filter language this reads: the attribute lies between these two, or it is absent. A file can be
passed over if no event could satisfy both the filter and these constraints, which is the question
that `overlaps` answers for filters; where it does not know, it says yes, and the file is read. The
event type of a file is known exactly.

Bounds are on the safe side for those who compare otherwise than Stentor, too: NaN, which is greater
than all numbers in SQL and absent in a filter, leaves a column without a greatest value; JSON has
no infinities; long texts are cut, the greatest one to something that is not less.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.domains import REAL, Domain, domain
from stentor.filters.ranges import Ranges
from stentor.model.event_types import event_types
from stentor.pipeline.archives.columns import variants
from stentor.pipeline.archives.moments import from_micros
from stentor.pipeline.archives.schemas import CORRUPT, EXACT, flat, leaves
from stentor.pipeline.archives.tables import Bounds, File, Table
from stentor.pipeline.columns.types import is_list

#: Columns whose values are measured, the first ones; and how much of a text is kept.
MAX_COLUMNS: Final = 256
MAX_TEXT: Final = 48

#: These say to which journal a file belongs, so they are measured always, and whole.
_JOURNAL: Final = frozenset({"_broker", "_stream", "_offset"})
_ALWAYS: Final = _JOURNAL | {"_time"}
#: Nobody looks for ranges of these.
_NEVER: Final = frozenset({"_id", "_corrupt", "_payload"})


class _Measured:
    """What is known of one column: its ends, as far as they can be told, and rows without value."""

    def __init__(self, name: str, kind: pa.DataType, number: int) -> None:
        self.name, self.kind = name, kind
        self.absent = 0
        self.low: Any = None
        self.high: Any = None
        wanted = (number < MAX_COLUMNS and name not in _NEVER) or name in _ALWAYS
        self._is_measured = wanted and value_type(kind) is not None
        #: Whether there is a least value that is known, and a greatest, if there is any value.
        self.lower = self.upper = True

    def add(self, column: pa.ChunkedArray) -> None:
        self.absent += column.null_count
        if column.null_count == len(column):
            return
        if not self._is_measured:
            self.lower = self.upper = False
            return
        if pa.types.is_floating(self.kind) and pc.any(pc.is_nan(column)).as_py():
            self.upper = False
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, self.kind), column)
            if column.null_count == len(column):
                return
        low, high = _ends(column)
        self.lower &= low is not None
        self.upper &= high is not None
        self.low = min((end for end in (low, self.low) if end is not None), default=None)
        self.high = max((end for end in (high, self.high) if end is not None), default=None)


class Statistics:
    """The statistics of a file, taken while it is written."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [_Measured(*leaf, n) for n, leaf in enumerate(leaves(schema))]
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        """Take some more rows into account."""
        self._rows += table.num_rows
        for column, array in zip(self._columns, flat(table).columns, strict=True):
            column.add(array)

    def doubtful(self) -> set[str]:
        """Columns of floats without a greatest value, by their dotted names."""
        floats = [each for each in self._columns if pa.types.is_floating(each.kind)]
        return {each.name for each in floats if not each.upper}

    def json(self) -> str:
        """As an add action has them."""
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        absent: dict[str, Any] = {}
        for each in self._columns:
            path, whole = each.name.split("."), each.name in _JOURNAL
            _put(absent, path, each.absent)
            if each.lower and each.low is not None:
                _put(low, path, _written(each.low, whole))
            top = each.high
            if isinstance(top, str) and not whole:
                top = _above(top)
            if each.upper and top is not None:
                _put(high, path, _written(top, True))
        found = {"numRecords": self._rows, "minValues": low, "maxValues": high, "nullCount": absent}
        return json.dumps(found)


def leaf_names(schema: pa.Schema) -> list[str]:
    """All columns that are no structs, by their dotted names; lists as Parquet calls them."""
    found = leaves(schema)
    return [f"{name}.list.element" if is_list(kind) else name for name, kind in found]


def _put(into: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        into = into.setdefault(step, {})
    into[path[-1]] = value


def value_type(kind: pa.DataType) -> str | None:
    """The type of values, as filters call it, if there are bounds for it."""
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind):
        return "string"
    return "time" if pa.types.is_timestamp(kind) else None


def _ends(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """The least value and the greatest, each None if it cannot be told."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        ends = pc.min_max(column)
        return tuple(_in_years(ends[name].as_py()) for name in ("min", "max"))
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if isinstance(low, float):
        return low if math.isfinite(low) else None, high if math.isfinite(high) else None
    return low, high


def _in_years(micros: int) -> Any:
    """A time, if others can read it."""
    try:
        return from_micros(micros)
    except OverflowError:
        return None


def _written(value: Any, whole: bool) -> Any:
    if isinstance(value, str):
        return value if whole else value[:MAX_TEXT]
    if isinstance(value, bool | int | float):
        return value
    return value.isoformat(timespec="microseconds").replace("+00:00", "Z")


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

    >>> old = File("events-a", "quote", None, 2, 9, 0, {"price": Bounds(1.0, 5.0, 0)})
    >>> Pruner(Filter("price > 7"), pa.schema({"price": pa.float64()})).may_match(old)
    False
    """

    def __init__(self, filter: Filter, columns: pa.Schema) -> None:
        """With the columns of the table."""
        self._filter = filter
        self._columns = variants(columns)

    def may_match(self, file: File) -> bool:
        """Whether some event of the file may match."""
        return any(self._overlaps(conjunct, file) for conjunct in self._filter.conjuncts)

    def _overlaps(self, conjunct: Conjunct, file: File) -> bool:
        for name, constraint in conjunct.constraints.items():
            if name == "_types":
                kinds = None if file.type is None else event_types.ancestors(file.type)
                possible = constraint.absent if kinds is None else constraint.accepts(kinds)
            else:
                known = self._known(name, file)
                possible = known is None or any(map(constraint.intersects, known))
            if not possible:
                return False
        return True

    def _known(self, name: str, file: File) -> list[Constraint] | None:
        """What the events of a file can have under a name; None if that is not known."""
        if name == "_producer":  # a part of `_id`
            return None
        if name == "_type":
            if file.type is None:
                return [Constraint(absent=True)]
            return [Constraint((("string", Ranges.points(domain("string"), [file.type])),))]
        columns = self._columns.get(name, {})
        found = []
        for path, kind in columns.items():
            bounds = file.known(path)
            if bounds is None or bounds.absent is None:
                return None
            if bounds.absent < file.rows:
                range = _range(kind, bounds)
                if range is None:
                    return None
                # NaN is no value, and need not be counted as none.
                absent = bool(bounds.absent) or len(columns) > 1 or pa.types.is_floating(kind)
                found.append(Constraint(((range[0], range[1]),), absent=absent))
        return found or [Constraint(absent=True)]


def _range(column: pa.DataType, bounds: Bounds) -> tuple[str, Ranges] | None:
    kind = value_type(column)
    if kind is None:
        return None
    values: Domain = REAL if kind == "number" else domain(kind)
    low, high = _value(kind, bounds.low), _value(kind, bounds.high)
    if kind == "number" and pa.types.is_floating(column) and low is None and high is None:
        return None
    if low is None:
        return None if high is None else (kind, Ranges.below(values, high))
    found = Ranges.above(values, low) if high is None else Ranges.between(values, low, high)
    return kind, found


def _value(kind: str, bound: Any) -> Any:
    """A bound as filters compare it; None if it cannot be relied on."""
    if kind == "time" and bound is not None:
        try:
            return from_micros(bound)
        except OverflowError:  # beyond the years that the model has
            return None
    return None if bound != bound else bound


def may_lose(file: File, path: str, kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether some value of a column of this type may not fit the type that is wanted."""
    if kind == wanted or file.lacks(path):
        return False
    if is_list(kind) and is_list(wanted):
        kind, wanted = kind.value_type, wanted.value_type
    if pa.types.is_decimal(wanted):
        return False
    bounds = file.known(path)
    if pa.types.is_integer(kind) and bounds is not None:
        low, high = bounds.low, bounds.high
        if isinstance(low, int) and isinstance(high, int):
            return low < -EXACT or high > EXACT
    return True


def kind_of(
    file: File, attributes: Mapping[str, Mapping[str, pa.DataType]]
) -> frozenset[str] | None:
    """Which columns a file uses, of attributes that have several (`columns.variants`).

    None if its rows differ in that, as they do where another program has joined files.
    """
    found = set()
    for columns in attributes.values():
        if len(columns) > 1:
            having = [path for path in columns if not file.lacks(path)]
            if len(having) > 1:
                return None
            found.update(having or list(columns)[:1])
    return frozenset(found)


def table_schema(table: Table) -> pa.Schema:
    """The schema of all events as a table; with `_corrupt` if some value may not fit it."""
    schema = table.schema
    wanted = dict(leaves(schema))
    several = {n: c for n, c in variants(table.columns).items() if len(c) > 1}
    loses = CORRUPT.name not in schema.names and any(
        may_lose(file, path, kind, wanted[name])
        for file in table.files.values()
        for name, columns in several.items()
        for path, kind in columns.items()
    )
    return schema.append(CORRUPT) if loses else schema
