"""Which columns events have after the mappings of a scope graph, and of which types.

A mapping says what each attribute becomes by an expression, and what the types of its terms are
the table knows; so the type of the result follows, as `stentor.scopes.expressions` computes it. A
notification may pass several mappings, so this goes on until nothing new is found. Where two of
them give an attribute different types, or one is a function in Python, somebody has to say what
the column is to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from pyspark.sql import types as T

from stentor.errors import PipelineDefinitionError
from stentor.filters.expression import Arithmetic, Attribute, Constant
from stentor.model.values import value_type_of
from stentor.pipeline.columns.reserved import RESERVED
from stentor.scopes import ContentMapping, FunctionMapping, ScopeGraph
from stentor.scopes.expressions import Call, Expression
from stentor.scopes.mappings import SETTABLE

_TYPES: Final[dict[str, T.DataType]] = {
    "string": T.StringType(),
    "bool": T.BooleanType(),
    "bytes": T.BinaryType(),
    "time": T.TimestampType(),
}
_CORRUPT: Final = "_corrupt"
#: More rounds than there are mappings on any sensible path; types that grow for ever are told.
_ROUNDS: Final = 64


def mapped_schema(
    graph: ScopeGraph, source: T.StructType, given: str | T.StructType | None
) -> T.StructType:
    """The columns of the result: attributes, then the reserved columns of the source."""
    reserved = [field for field in source.fields if field.name in RESERVED]
    if _CORRUPT not in source.fieldNames():
        reserved.append(T.StructField(_CORRUPT, T.StringType()))
    attributes = [field for field in source.fields if field.name not in RESERVED]
    if given is not None:
        named = T.StructType.fromDDL(given) if isinstance(given, str) else given
        attributes = [f for f in cast("T.StructType", named).fields if f.name not in RESERVED]
        return T.StructType([*attributes, *reserved])
    known: dict[str, T.DataType] = {field.name: field.dataType for field in attributes}
    mappings = list(_mappings(graph))
    for _ in range(_ROUNDS):
        found = dict(known)
        for mapping in mappings:
            for name, expression in mapping.set:
                kind = _type(expression, known, graph.tables)
                if name not in SETTABLE and kind is not None:
                    _note(found, name, kind)
        if found == known:
            break
        known = found
    added = [T.StructField(name, kind) for name, kind in known.items()]
    return T.StructType([*added, *reserved])


def _mappings(graph: ScopeGraph) -> Iterator[ContentMapping]:
    for node in graph.nodes.values():
        for edge in node.parents.values():
            for mapping in (edge.mapping.up, edge.mapping.down):
                if isinstance(mapping, FunctionMapping):
                    raise PipelineDefinitionError(
                        f"the mapping between {edge.child.id!r} and {edge.parent.id!r} is a "
                        "function; say with schema= which attributes the result has"
                    )
                if mapping is not None:
                    yield mapping


def _note(known: dict[str, T.DataType], name: str, kind: T.DataType) -> None:
    before = known.setdefault(name, kind)
    if before == kind:
        return
    if _is_integer(before) and _is_integer(kind):
        known[name] = T.LongType()
        return
    raise PipelineDefinitionError(
        f"mappings make {name!r} a {before.simpleString()} and a {kind.simpleString()}; say with "
        "schema= what the column shall be"
    )


def _type(
    expression: Expression, known: Mapping[str, T.DataType], tables: Mapping[str, Any]
) -> T.DataType | None:
    """The type of what an expression gives; None as long as nothing is known of it."""
    match expression:
        case Constant(value):
            return _of_value(value)
        case Attribute(name):
            return _of_attribute(name, known)
        case Arithmetic("/", _, _):
            return T.DoubleType()
        case Arithmetic(_, left, right):
            sides = [_type(each, known, tables) for each in (left, right)]
            if any(isinstance(each, (T.DoubleType, T.FloatType)) for each in sides):
                return T.DoubleType()
            return T.LongType() if all(map(_is_integer, sides)) else None
        case Call("round" | "floor" | "ceil", _):
            return T.LongType()
        case Call("concat", _):
            return T.StringType()
        case Call("lookup", (Constant(table), _, Constant(name))):
            rows = tables.get(table, {}).values()
            return _one([_of_value(row[name]) for row in rows if row.get(name) is not None])
        case Call(_, arguments):
            return _one(_type(each, known, tables) for each in arguments)


def _one(kinds: Iterable[T.DataType | None]) -> T.DataType | None:
    """What all have in common, if they do."""
    found = {each for each in kinds if each is not None}
    return found.pop() if len(found) == 1 else None


def _of_attribute(name: str, known: Mapping[str, T.DataType]) -> T.DataType | None:
    if name in known:
        return known[name]
    if name.startswith("_"):
        return RESERVED.get(name, T.StringType())
    head, *fields = name.split(".")
    kind = known.get(head)
    for field in fields:
        if not isinstance(kind, T.StructType) or field not in kind.fieldNames():
            return None
        kind = kind[field].dataType
    return kind


def _of_value(value: Any) -> T.DataType | None:
    value_type = value_type_of(value)
    if value_type == "number":
        return T.LongType() if isinstance(value, int) else T.DoubleType()
    return _TYPES.get(value_type)


def _is_integer(kind: T.DataType | None) -> bool:
    return isinstance(kind, T.IntegralType)
