"""Where a row of an event table keeps an attribute.

A filter knows attributes by dotted names. In a table `a.b` is the column of that very name, or the
field `b` of the struct column `a`, or both, one for one row and one for another. So an attribute
has a list of *places*, and its value is that of the first place that is not null: the same order in
which `Filter.matches` looks into a mapping. A struct is no value, but one that is there ends the
search.

Names that start with an underscore belong to the system, and filters see only those that brokers
show them. Two of these have no column of their own: the producer is a part of `_id`, and the
ancestors of the event type follow from `_type` and the types that are declared when the filter is
compiled. The other columns of an event table, such as `_offset`, are no attributes
and absent to a filter, whatever is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from pyspark.sql import types as T

from stentor.errors import UnsupportedColumn
from stentor.model.event_types import event_types
from stentor.model.names import RESERVED
from stentor.pipeline.filters.kinds import Kind, kind_of
from stentor.pipeline.filters.sql import Sql, any_of, field_sql, quoted, string_sql

#: An id is the producer, the epoch and the number; the producer's name may have colons in it.
_PRODUCER: Final = r"(?s)\A(.+):(?:0|[1-9][0-9]{0,18}):(?:0|[1-9][0-9]{0,18})\z"


@dataclass(frozen=True, slots=True)
class Place:
    """A column, or a field in one, that may hold an attribute's value."""

    #: SQL of the value, in the type that its kind names.
    sql: str
    #: None for a struct.
    kind: Kind | None
    #: SQL of the event type, if the value is the collection of its ancestors.
    event_type: str | None = None

    @property
    def present(self) -> Sql:
        """Whether there is something here; never null."""
        if self.kind is None or self.event_type is not None:
            return f"{self.event_type or self.sql} IS NOT NULL"
        return self.kind.present(self.sql)

    @property
    def absent(self) -> Sql:
        if self.kind is None or self.event_type is not None:
            return f"{self.event_type or self.sql} IS NULL"
        return self.kind.absent(self.sql)


def places(schema: T.StructType, name: str) -> tuple[Place, ...]:
    """Where rows of that schema may hold the attribute, in the order of precedence."""
    if name.startswith("_"):
        return _reserved(schema, name)
    return tuple(_inside(schema, name, None))


def _inside(record: T.StructType, name: str, above: str | None) -> Iterator[Place]:
    """The places at a dotted name within a record, however the nesting and the dots are mixed."""
    field = _field(record, name)
    if field is not None:
        yield from _at(field, above)
    head, dot, tail = name.partition(".")
    while dot:
        field = _field(record, head)
        if field is not None and isinstance(field.dataType, T.StructType):
            yield from _inside(field.dataType, tail, _stored(field, above))
        more, dot, tail = tail.partition(".")
        head = f"{head}.{more}"


def _field(record: T.StructType, name: str) -> T.StructField | None:
    found = [field for field in record.fields if field.name == name]
    if len(found) > 1:
        raise UnsupportedColumn(f"the table has several columns named {name!r}; rename all but one")
    return found[0] if found else None


def _at(field: T.StructField, above: str | None) -> Iterator[Place]:
    """The places in one field: a wide decimal has two, since not all of its numbers are integers
    of 64 bits, and the others are floats."""
    stored, data_type = _stored(field, above), field.dataType
    if isinstance(data_type, T.StructType):
        yield Place(stored, None)
    elif not isinstance(data_type, T.NullType):
        kind = kind_of(data_type, field.name)
        if isinstance(data_type, T.DecimalType) and data_type.scale == 0 and kind.is_float:
            yield Place(f"try_cast({stored} AS BIGINT)", kind_of(T.LongType(), field.name))
        yield Place(kind.read(stored), kind)


def _stored(field: T.StructField, above: str | None) -> str:
    return quoted(field.name) if above is None else field_sql(above, field.name)


def _reserved(schema: T.StructType, name: str) -> tuple[Place, ...]:
    if name not in RESERVED:
        return ()
    column = {"_types": "_type", "_producer": "_id"}.get(name, name)
    field = _field(schema, column)
    if field is None:
        return ()
    found = tuple(_at(field, None))
    if name == column:
        return found
    place = found[0] if found else None
    if place is None or place.kind is None or place.kind.value_type != "string":
        return ()
    if name == "_types":
        kind = kind_of(T.ArrayType(T.StringType()), name)
        return (Place(ancestors_sql(place.sql), kind, event_type=place.sql),)
    producer = f"nullif(regexp_extract({place.sql}, {string_sql(_PRODUCER)}, 1), '')"
    return (Place(producer, kind_of(T.StringType(), name)),)


# -- ancestors of event types

# A type is a kind of every prefix of its path: `quote.stock` of `quote`. Beyond that it has the
# parents that were declared for it or for one of these prefixes. Declarations are read where the
# filter is compiled, in the driver: executors need not know them.


def descends_sql(event_type: str, ancestor: str) -> Sql:
    """Whether a type is a kind of another one."""
    kinds = [name for name in event_types.known() if ancestor in event_types.ancestors(name)]
    roots: list[str] = []
    for name in sorted({ancestor, *kinds}):  # a path comes after its prefixes
        if not any(name.startswith(root + ".") for root in roots):
            roots.append(name)
    return any_of([_at_or_below(event_type, root) for root in roots])


def ancestors_sql(event_type: str) -> str:
    """The array of a type's ancestors, itself among them; null where the type is."""
    path = f"split({event_type}, '[.]')"
    prefixes = f"transform(sequence(1, size({path})), i -> array_join(slice({path}, 1, i), '.'))"
    parts = [prefixes]
    for name in sorted(event_types.known()):
        above = set(accumulate(name.split("."), "{}.{}".format))
        more = sorted(event_types.ancestors(name) - above)
        if more:
            listed = ", ".join(map(string_sql, more))
            below = _at_or_below(event_type, name)
            parts.append(f"CASE WHEN {below} THEN array({listed}) ELSE {_NONE} END")
    if len(parts) == 1:
        return f"CASE WHEN {event_type} IS NOT NULL THEN {prefixes} END"
    return f"CASE WHEN {event_type} IS NOT NULL THEN concat({', '.join(parts)}) END"


_NONE = "CAST(array() AS ARRAY<STRING>)"


def _at_or_below(event_type: str, name: str) -> str:
    here, below = string_sql(name), string_sql(name + ".")
    return f"({event_type} = {here} OR startswith({event_type}, {below}))"
