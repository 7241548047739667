"""What a Spark schema asks for: which attribute goes to which column, and how columns nest.

A column is an attribute, a struct of attributes, or reserved. The field `b` of a struct `a` is the
attribute `a.b`; a column that is itself named `a.b` is the same attribute. Everything that cannot
be is refused here, before any event is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.types import DataType, StructType

from stentor.errors import UnsupportedColumn
from stentor.model.names import name_problem, shown
from stentor.pipeline.columns.column_fits import Fit, fit_of
from stentor.pipeline.columns.reserved import RESERVED
from stentor.pipeline.spark_features import to_arrow_schema_in_utc, to_arrow_type_in_utc
from stentor.protocol.messages import MAX_NAMES


@dataclass(frozen=True)
class Leaf:
    """An attribute in a column of its own."""

    attribute: str
    fit: Fit


@dataclass(frozen=True)
class Branch:
    """A struct. An event that has a plain value under the struct's name does not fit it."""

    attribute: str
    arrow: pa.DataType
    children: tuple[Leaf | Branch, ...]

    def leaves(self) -> Iterator[Leaf]:
        for child in self.children:
            if isinstance(child, Leaf):
                yield child
            else:
                yield from child.leaves()

    def names(self) -> Iterator[str]:
        """All attributes that it has to look at, its own name among them."""
        yield self.attribute
        for child in self.children:
            if isinstance(child, Leaf):
                yield child.attribute
            else:
                yield from child.names()


@dataclass(frozen=True)
class Reserved:
    """A column that is not an attribute."""

    name: str


Column = Leaf | Branch | Reserved

_HINT: Final = f"reserved columns are {', '.join(RESERVED)}"


class Layout:
    """The columns of an event table.

    >>> from pyspark.sql.types import LongType, StructField
    >>> inner = StructType([StructField("x", LongType()), StructField("y", LongType())])
    >>> Layout(StructType().add("position", inner).add("n", LongType())).attributes
    ['position', 'position.x', 'position.y', 'n']
    """

    def __init__(self, schema: StructType) -> None:
        """`UnsupportedColumn` if events have no such columns."""
        self.schema = schema
        self.columns: tuple[Column, ...] = tuple(
            _column(f.name, f.dataType, f.nullable) for f in schema.fields
        )
        twice = {name for name in schema.fieldNames() if schema.fieldNames().count(name) > 1}
        if twice:
            raise UnsupportedColumn(f"the schema has several columns named {min(twice)!r}")
        #: Exactly what Spark expects.
        self.arrow: pa.Schema = to_arrow_schema_in_utc(schema)

    @property
    def attributes(self) -> list[str]:
        """All attributes that have to be read."""
        found: dict[str, None] = {}
        for column in self.columns:
            if isinstance(column, Leaf):
                found[column.attribute] = None
            elif isinstance(column, Branch):
                found.update(dict.fromkeys(column.names()))
        return list(found)

    @property
    def asked_for(self) -> list[str] | None:
        """The attributes that brokers are asked for; None for all, where these are too many."""
        return names if len(names := self.attributes) <= MAX_NAMES else None

    def has(self, name: str) -> bool:
        """Whether there is a column of this name."""
        return name in self.schema.fieldNames()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The same for Arrow, times in UTC; `UnsupportedColumn` for what Arrow has not."""
    try:
        return to_arrow_schema_in_utc(schema)
    except PySparkTypeError:
        for field in schema.fields:
            try:
                to_arrow_type_in_utc(field.dataType)
            except PySparkTypeError:
                raise UnsupportedColumn(
                    f"column {field.name!r} is a {field.dataType.simpleString()}, which no "
                    "attribute value is: leave it out, or cast it"
                ) from None
        raise


def _column(name: str, kind: DataType, nullable: bool) -> Column:
    if name.startswith("_"):
        wanted = RESERVED.get(name)
        if wanted is None:
            raise UnsupportedColumn(
                f"column {shown(name)}: no attribute begins with an underscore; {_HINT}"
            )
        if kind != wanted:
            raise UnsupportedColumn(
                f"column {name} is a {wanted.simpleString()}, not a {kind.simpleString()}"
            )
        return Reserved(name)
    return _attribute(name, kind, nullable)


def _attribute(name: str, kind: DataType, nullable: bool) -> Leaf | Branch:
    problem = name_problem(name)
    if problem is not None:
        raise UnsupportedColumn(
            f"no attribute can have the name of column {shown(name)}: it {problem}"
        )
    if not nullable:
        raise UnsupportedColumn(
            f"column {shown(name)} is NOT NULL, but any event may lack an attribute; "
            "leave that out, and filter on IS NOT NULL"
        )
    if not isinstance(kind, StructType):
        return Leaf(name, fit_of(name, kind))
    fields: Sequence[str] = kind.fieldNames()
    if not fields or len(set(fields)) < len(fields):
        raise UnsupportedColumn(f"the struct {shown(name)} has no fields, or two of one name")
    children = tuple(_attribute(f"{name}.{f.name}", f.dataType, f.nullable) for f in kind.fields)
    arrow = to_arrow_schema_in_utc(StructType().add(name, kind)).field(0).type
    return Branch(name, arrow, children)
