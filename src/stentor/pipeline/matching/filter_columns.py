"""The columns that filters look at, and nothing else of the events.

Where an event table keeps an attribute is said by `stentor.pipeline.filters.attributes`, for this
plan as for column expressions: in a column, in fields of structs, or in several places of which the
first that has a value counts. Here all of that becomes one column for each attribute, computed in
the JVM; if its places have different types, one column for each place, of which a row has a value
in one at most. What is nowhere is absent, and needs no column.

Under the name `_types` the column holds the event type itself: its ancestors are looked up in the
Python worker, once for each type in a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stentor.model.names import RESERVED
from stentor.pipeline.filters.attributes import Place, places

#: What filters see under these names follows from other columns.
_DERIVED: Final = ("_types", "_producer")


class Input(NamedTuple):
    """An attribute and the column that has it, or columns, of which one has a value.

    They are several if the attribute has a different type in each.
    """

    name: str
    columns: tuple[Column, ...]
    #: Whether it is simply the column of that name.
    is_plain: bool


def inputs(schema: T.StructType, names: Iterable[str]) -> list[Input]:
    """The columns for those of the names that events of this schema can have."""
    found = (input_of(schema, name) for name in sorted(set(names)))
    return [one for one in found if one is not None]


def flat(inputs: Iterable[Input]) -> tuple[list[str], list[Column]]:
    """All columns, and in parallel the names of their attributes."""
    pairs = [(one.name, column) for one in inputs for column in one.columns]
    return [name for name, _ in pairs], [column for _, column in pairs]


def input_of(schema: T.StructType, name: str) -> Input | None:
    """The columns of an attribute; None if no event has it."""
    found = places(schema, name)
    if all(place.kind is None for place in found):
        return None  # nowhere, or always a record, which is no value
    if len(found) == 1:
        stored = name in schema.names and name not in _DERIVED
        is_plain = stored and not _is_decimal(schema[name].dataType)
        return Input(name, (F.expr(_value(found[0])),), is_plain)
    if len({_form(place) for place in found} - {None}) == 1:
        cases = [f"WHEN {place.present} THEN {_value(place)}" for place in found]
        return Input(name, (F.expr(f"CASE {' '.join(cases)} END"),), False)
    masked = []
    for before, place in enumerate(found):
        earlier = " OR ".join(f"({other.present})" for other in found[:before]) or "false"
        masked.append(F.expr(f"CASE WHEN NOT ({earlier}) THEN {_value(place)} END"))
    return Input(name, tuple(masked), False)


def attribute_names(schema: T.StructType) -> list[str]:
    """All attributes that filters could find in events of this schema."""
    return list(dict.fromkeys([*RESERVED, *_leaves(schema, "")]))


def _leaves(struct: T.StructType, within: str) -> Iterator[str]:
    for one in struct.fields:
        name = within + one.name
        if isinstance(one.dataType, T.StructType):
            yield from _leaves(one.dataType, name + ".")
        elif not name.startswith("_"):
            yield name


def _is_decimal(kind: T.DataType) -> bool:
    element = kind.elementType if isinstance(kind, T.ArrayType) else kind
    return isinstance(element, T.DecimalType)


def _value(place: Place) -> str:
    return "NULL" if place.kind is None else place.event_type or place.sql


def _form(place: Place) -> str | None:
    """What values of a place have in common, so that they can be in one column."""
    if place.kind is None:
        return None
    element = place.kind.element
    if element is None:
        return "integer" if place.kind.is_integer else place.kind.form
    return f"array of {element.form}"
