"""Notifications as columns: what the index reads coordinates from.

A `Source` gives, for each attribute, one column of a batch. Columns that come from Arrow are
converted as a whole: numbers without copying where possible, strings through their distinct values.
Anything else (a sequence of notifications, a column that mixes types) is a column of Python values,
each with its own type.

Null means that the attribute is absent, and so does NaN: it can't be an attribute's value, and data
frames use it for what is missing. Fields of structs are attributes with dotted names.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from stentor.errors import InvalidValue, UnsupportedColumn
from stentor.filters.constraint import comparable
from stentor.filters.facts import flat_facts
from stentor.matching.index.axes import (
    MEASURED,
    OF_STRINGS,
    Axis,
    all_seen_on,
    measure,
    numeric,
)
from stentor.matching.index.distinct import distinct
from stentor.model.codec import Envelope
from stentor.model.notification import Notification
from stentor.model.stamp import EPOCH, KEYS
from stentor.model.values import COLLECTION, INT_MAX, INT_MIN, normal, value_type_of

#: Batches up to this size are read without letting go of the interpreter, as most of Arrow's
#: functions do: beside a busy thread each such call may wait for milliseconds to get it back.
SMALL: Final = 1_024

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

#: What a sequence of notifications may hold.
Row: TypeAlias = Notification | Envelope | Mapping[str, Any]

_ABSENT: Final = frozenset({type(None)})
_NUMBERS: Final = frozenset({int, float, type(None)})
_STRINGS: Final = frozenset({str, type(None)})
#: Without a place on any measured axis.
_NO_NUMBERS: Final = frozenset({str, bytes, tuple, frozenset, type(None)})


class Column(Protocol):
    """One attribute of all notifications of a batch."""

    def measured(self, kind: str) -> Floats | None:
        """Coordinates on a measured axis, no -0.0 among them; None if no value is of that type."""

    def coded(self, kind: str) -> tuple[Codes, list[Any]] | None:
        """Distinct values and a code per row; the code after the last is null.

        Values are as a ranked axis has them: times in microseconds, unordered ones comparable.
        """

    def present(self, kind: str | None = None) -> NDArray[np.bool_]:
        """Where there is a value (of that type)."""

    def texts(self, axis: Axis) -> list[str | None] | None:
        """What the values look like on an axis of strings, if they are at hand and all strings."""

    def tokens(self) -> tuple[Codes, Codes, list[tuple[str, Any]]]:
        """Elements of collections: rows and codes in parallel, no pair twice, by row; and what the
        codes stand for, (type, value)."""

    def values(self) -> Sequence[Any]:
        """The values as Python objects, None where absent."""


class Source:
    """A batch of notifications by attribute name."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._columns: dict[str, Column | None] = {}
        self._objects: dict[str, tuple[Sequence[Any], frozenset[type]] | None] = {}
        self._seen: dict[Axis, list[str | None]] = {}
        #: Whether several will ask for the same. Else it is cheaper to let go of it at once.
        self.remembers = True

    def column(self, name: str) -> Column | None:
        """The column of an attribute; None if no notification has it."""
        if name not in self._columns:
            self._columns[name] = self._find(name)
        return self._columns[name]

    def names(self, among: Container[str]) -> Iterable[str]:
        """Those of the given names that some notification may have."""
        raise NotImplementedError

    def _find(self, name: str) -> Column | None:
        raise NotImplementedError

    def seen_on(self, axis: Axis, texts: list[str | None]) -> list[str | None]:
        """What the distinct strings of an attribute look like on an axis."""
        found = self._seen.get(axis)
        if found is None:
            found = all_seen_on(axis, texts)
            if self.remembers:
                self._seen[axis] = found
        return found

    def facts(self, row: int, names: Iterable[str]) -> dict[str, Any]:
        """What one notification says under these names."""
        found = {}
        for name in names:
            values = self.values(name)
            value = None if values is None else values[row]
            if value is not None:
                found[name] = value
        return found

    def values(self, name: str) -> Sequence[Any] | None:
        """The values of an attribute as Python objects; None if no notification has it."""
        column = self.column(name)
        return None if column is None else column.values()

    def objects(self, name: str) -> tuple[Sequence[Any], frozenset[type]] | None:
        """The same together with the classes of the values, which None may be among."""
        try:
            return self._objects[name]
        except KeyError:
            column = self.column(name)
            found = None
            if isinstance(column, ObjectColumn):
                found = column.values(), column.kinds
            elif column is not None:
                values = column.values()
                found = values, frozenset(map(type, values))
            self._objects[name] = found
            return found


class ArrowSource(Source):
    """A record batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__(batch.num_rows)
        self._batch = batch

    def names(self, among: Container[str]) -> Iterable[str]:
        return [name for name in _field_names(self._batch.schema) if name in among]

    def _find(self, name: str) -> Column | None:
        array = _field(self._batch, name)
        return None if array is None else _arrow_column(name, array)


#: What brokers see of stamps, which need no other facts.
_OF_STAMPS: Final = {KEYS: attrgetter("keys"), EPOCH: attrgetter("epoch")}


class RowSource(Source):
    """Notifications or mappings, one by one."""

    def __init__(self, rows: Sequence[Row], names: Collection[str]) -> None:
        super().__init__(len(rows))
        self._envelopes: Sequence[Envelope] | None = None
        #: What each row says. Of envelopes the attributes suffice until a reserved name is asked
        #: for, since these are the only names that start with an underscore.
        self._rows: list[Mapping[str, Any]]
        if rows and all(issubclass(kind, Envelope) for kind in set(map(type, rows))):
            self._envelopes = cast(Sequence[Envelope], rows)
            self._rows = [row.attributes for row in self._envelopes]
        else:
            self._rows = [flat_facts(row, names) for row in rows]

    @classmethod
    def of_facts(cls, rows: list[Mapping[str, Any]]) -> RowSource:
        """From what each row says, in normal values."""
        source = cls((), ())
        source.count = len(rows)
        source._rows = rows
        return source

    def names(self, among: Container[str]) -> Iterable[str]:
        rows: Iterable[Mapping[str, Any]] = self._rows
        if self._envelopes is not None:
            rows = [row.facts for row in self._envelopes]
        return [name for name in dict.fromkeys(chain.from_iterable(rows)) if name in among]

    def _find(self, name: str) -> Column | None:
        rows = self._rows
        values: list[Any]
        if self._envelopes is not None and name in _OF_STAMPS:
            seen = _OF_STAMPS[name]
            stamps = [row.stamp for row in self._envelopes]
            column = ObjectColumn([None if stamp is None else seen(stamp) for stamp in stamps])
            return None if column.kinds <= _ABSENT else column
        if self._envelopes is not None and name.startswith("_"):
            rows = [row.facts for row in self._envelopes]
        try:
            values = list(map(itemgetter(name), rows))
        except KeyError:
            values = [row.get(name) for row in rows]
        column = ObjectColumn(values)
        return None if column.kinds <= _ABSENT else column


class ObjectColumn:
    """Python values, None where absent; types may differ from row to row, but seldom do."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        #: The classes of the values.
        self.kinds = frozenset(map(type, values))
        # Several segments ask for the same.
        self._measured: dict[str, Floats | None] = {}
        self._coded: dict[str, tuple[Codes, list[Any]]] = {}
        self._texts: dict[Axis, list[str | None]] = {}

    @cached_property
    def _types(self) -> list[str | None]:
        return [None if v is None else value_type_of(v) for v in self._values]

    def measured(self, kind: str) -> Floats | None:
        if kind not in self._measured:
            self._measured[kind] = self._measure(kind)
        return self._measured[kind]

    def _measure(self, kind: str) -> Floats | None:
        if kind == "number" and self.kinds <= _NUMBERS:
            return np.array(self._values, np.float64) + 0.0  # None becomes NaN, and -0.0 0.0
        if self.kinds <= _NO_NUMBERS:
            return None
        found = np.full(len(self._values), np.nan)
        for i, (value, value_type) in enumerate(zip(self._values, self._types, strict=True)):
            if value_type == kind:
                found[i] = measure(kind, value) + 0.0
        return found

    def coded(self, kind: str) -> tuple[Codes, list[Any]] | None:
        if kind not in self._coded:
            self._coded[kind] = self._code(kind)
        return self._coded[kind]

    def _code(self, kind: str) -> tuple[Codes, list[Any]]:
        if kind == "string" and self.kinds <= _STRINGS:
            return _coded_values(self._values)
        places: dict[Any, int] = {}
        codes = np.empty(len(self._values), np.int64)
        for i, (value, value_type) in enumerate(zip(self._values, self._types, strict=True)):
            codes[i] = places.setdefault(value, len(places)) if value_type == kind else -1
        codes[codes < 0] = len(places)
        if kind == "time":
            return codes, [numeric(kind, value) for value in places]
        return codes, [comparable(kind, value) for value in places]

    def texts(self, axis: Axis) -> list[str | None] | None:
        if not self.kinds <= _STRINGS:
            return None
        if axis.kind == "string":
            return self._values
        if axis.kind not in OF_STRINGS:
            return None
        if axis not in self._texts:
            self._texts[axis] = all_seen_on(axis, self._values)
        return self._texts[axis]

    def present(self, kind: str | None = None) -> NDArray[np.bool_]:
        if kind is None:
            return np.array([v is not None for v in self._values], bool)
        return np.array([t == kind for t in self._types], bool)

    def tokens(self) -> tuple[Codes, Codes, list[tuple[str, Any]]]:
        rows: list[int] = []
        codes: list[int] = []
        places: dict[tuple[str, Any], int] = {}
        known: dict[int, list[int]] = {}  # many rows may hold the very same object
        for i, value in enumerate(self._values):
            found = known.get(id(value))
            if found is None:
                is_set = value is not None and value_type_of(value) == COLLECTION
                elements = {(value_type_of(e), e) for e in value} if is_set else ()
                found = [places.setdefault(e, len(places)) for e in elements]
                known[id(value)] = found
            rows.extend([i] * len(found))
            codes.extend(found)
        return np.array(rows, np.int64), np.array(codes, np.int64), list(places)

    def values(self) -> Sequence[Any]:
        return self._values


def _coded_values(values: list[Any]) -> tuple[Codes, list[Any]]:
    places: dict[Any, int] = {}
    codes = [-1 if v is None else places.setdefault(v, len(places)) for v in values]
    found = np.array(codes, np.int64)
    found[found < 0] = len(places)
    return found, list(places)


class ArrowColumn:
    """An Arrow array whose values all have one type."""

    def __init__(self, array: pa.Array, kind: str) -> None:
        self._array = array
        self._kind = kind
        self._measured: Floats | None = None
        self._coded: tuple[Codes, list[Any]] | None = None
        self._tokens: tuple[Codes, Codes, list[tuple[str, Any]]] | None = None
        self._values: list[Any] | None = None

    def measured(self, kind: str) -> Floats | None:
        if kind != self._kind:
            return None
        if self._measured is None:
            array = self._array
            if kind == "time":
                array = array.view(pa.int64())
            found = array.to_numpy(zero_copy_only=False)
            if found.dtype == object:  # Booleans among which some are null
                found = np.array([np.nan if v is None else v for v in found.tolist()])
            self._measured = found.astype(np.float64, copy=False) + 0.0
        return self._measured

    def coded(self, kind: str) -> tuple[Codes, list[Any]] | None:
        if kind != self._kind:
            return None
        if self._coded is None:
            array = self._array
            if kind == "time":
                array = array.view(pa.int64())
            elif pt.is_floating(array.type):
                array = pa.array(self.measured(kind), from_pandas=True)  # NaN is null
            if not pt.is_dictionary(array.type):
                if len(array) <= SMALL:
                    self._coded = _coded_values(array.to_pylist())
                    return self._coded
                array = array.dictionary_encode()
            values = array.dictionary.to_pylist()
            codes = array.indices
            if codes.null_count:
                codes = codes.cast(pa.int64()).fill_null(len(values))
            # A dictionary may name null itself; that code then leads to None, which has no rank.
            self._coded = codes.to_numpy(zero_copy_only=False), values
        return self._coded

    def texts(self, axis: Axis) -> list[str | None] | None:
        return None  # to be seen through the distinct ones

    def present(self, kind: str | None = None) -> NDArray[np.bool_]:
        if kind is not None and kind != self._kind:
            return np.zeros(len(self._array), bool)
        if self._kind in MEASURED:
            measured = self.measured(self._kind)
            assert measured is not None
            return ~np.isnan(measured)
        found: NDArray[np.bool_] = self._array.is_valid().to_numpy(zero_copy_only=False)
        return found

    def tokens(self) -> tuple[Codes, Codes, list[tuple[str, Any]]]:
        if self._tokens is None:
            self._tokens = self._find_tokens()
        return self._tokens

    def _find_tokens(self) -> tuple[Codes, Codes, list[tuple[str, Any]]]:
        if self._kind != COLLECTION:
            return np.empty(0, np.int64), np.empty(0, np.int64), []
        if len(self._array) <= SMALL or not _is_text(self._array.type.value_type):
            return ObjectColumn(self.values()).tokens()  # type: ignore[arg-type]
        sizes = self._array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        elements = self._array.flatten().dictionary_encode()
        values = elements.dictionary.to_pylist()
        pairs = np.repeat(np.arange(len(sizes)), sizes) * (len(values) + 1)
        pairs += elements.indices.cast(pa.int64()).fill_null(len(values)).to_numpy()
        rows, codes = np.divmod(distinct(pairs), len(values) + 1)
        there = codes < len(values)
        return rows[there], codes[there], [("string", value) for value in values]

    def values(self) -> Sequence[Any]:
        if self._values is None:
            self._values = [_python_value(v) for v in self._array.to_pylist()]
        return self._values


# -- Arrow types


def _field(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """The array of an attribute: a column of that name, or fields inside structs."""
    names = batch.schema.names
    if name in names:
        if names.count(name) > 1:
            raise UnsupportedColumn(f"the batch has several columns named {name!r}")
        array = batch.column(name)
        return None if pt.is_struct(array.type) else array
    parts = name.split(".")
    for size in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:size])
        if head in names:
            kind = batch.schema.field(head).type
            if pt.is_struct(kind):
                return _inside(batch.column(head), parts[size:])
    return None


def _field_names(fields: Iterable[pa.Field], within: str = "") -> Iterator[str]:
    """The full names of all attributes, those inside structs, too."""
    for field in fields:
        yield within + field.name
        if pt.is_struct(field.type):
            yield from _field_names(field.type, f"{within}{field.name}.")


def _inside(struct: pa.Array, parts: list[str]) -> pa.Array | None:
    for size in range(len(parts), 0, -1):
        head = ".".join(parts[:size])
        if struct.type.get_field_index(head) < 0:
            continue
        array = pc.struct_field(struct, head)  # null where the struct is null
        if size == len(parts):
            return None if pt.is_struct(array.type) else array
        if pt.is_struct(array.type):
            return _inside(array, parts[size:])
    return None


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _arrow_column(name: str, array: pa.Array) -> Column | None:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _arrow_column(name, array.storage)
    if pt.is_null(kind):
        return None
    if pt.is_run_end_encoded(kind):
        return _arrow_column(name, pc.run_end_decode(array))
    if pt.is_dictionary(kind):
        if _is_text(kind.value_type) or _is_binary(kind.value_type):
            return ArrowColumn(array, "string" if _is_text(kind.value_type) else "bytes")
        return _arrow_column(name, array.dictionary_decode())
    if pt.is_boolean(kind):
        return ArrowColumn(array, "bool")
    if pt.is_integer(kind) or pt.is_floating(kind):
        if pt.is_uint64(kind) and (pc.max(array).as_py() or 0) > INT_MAX:
            raise InvalidValue(f"column {name!r} holds integers that do not fit 64 bits with sign")
        return ArrowColumn(array, "number")
    if _is_text(kind):
        return ArrowColumn(array.cast(pa.string()) if pt.is_string_view(kind) else array, "string")
    if _is_binary(kind):
        return ArrowColumn(array if kind == pa.binary() else array.cast(pa.binary()), "bytes")
    if pt.is_timestamp(kind):
        return ArrowColumn(array.cast(pa.timestamp("us", "UTC"), safe=False), "time")
    if _is_list(kind):
        if pt.is_struct(kind.value_type):
            return ObjectColumn([_python_value(v) for v in array.to_pylist()])
        if pt.is_nested(kind.value_type):
            raise UnsupportedColumn(
                f"column {name!r} holds {kind}; a collection has plain elements, or records"
            )
        return ArrowColumn(array, COLLECTION)
    if pt.is_union(kind) or pt.is_date(kind) or pt.is_decimal(kind):
        return ObjectColumn([_python_value(v) for v in array.to_pylist()])
    raise UnsupportedColumn(
        f"column {name!r} has the Arrow type {kind}, which holds no attribute values; cast it to a "
        "number, string, binary, bool, date, timestamp, or a list of these"
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_fixed_size_binary(kind)
        or pt.is_binary_view(kind)
    )


def _in_utc(value: Any) -> Any:
    """Arrow's times without a zone are read as UTC."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def _python_value(value: Any) -> Any:
    if value is None or value != value:
        return None
    return normal(_held(value))


def _held(value: Any) -> Any:
    """The same without what is null or NaN inside of it."""
    if isinstance(value, list):
        return [_held(v) for v in value if v is not None and v == v]
    if isinstance(value, dict):
        return {name: _held(v) for name, v in value.items() if v is not None and v == v}
    if isinstance(value, Decimal):  # a column has one scale: whole numbers, or the nearest floats
        whole = value.as_tuple().exponent == 0 and INT_MIN <= value <= INT_MAX
        return int(value) if whole else float(value)
    return _in_utc(value)
