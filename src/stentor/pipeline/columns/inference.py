"""A schema for events that nobody has described, from a sample of them.

Each attribute becomes a column of the type that most of its values have; integers become long, and
double as soon as one of them is no integer. The others will be misfits, and show up in `_corrupt`.
Dotted names become structs. Where events disagree whether `a` is a value or a record that holds
`a.b`, both are kept: `a`, and a column that is itself named `a.b`.

Columns are sorted by name, so that the same events give the same schema in whatever order they are
seen. Declared event types settle what a sample leaves open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql import types as T

from stentor.errors import PipelineError
from stentor.model.values import COLLECTION

#: The kinds of values, by their Python types. A tie is won by the kind that comes first.
_KINDS: Final[dict[type, str]] = {
    str: "string",
    float: "number",
    int: "number",
    datetime: "time",
    bool: "bool",
    bytes: "bytes",
    list: COLLECTION,
    frozenset: COLLECTION,
}
_ORDER: Final = list(dict.fromkeys(_KINDS.values()))
_SPARK: Final[dict[str, T.DataType]] = {
    "string": T.StringType(),
    "number": T.DoubleType(),
    "time": T.TimestampType(),
    "bool": T.BooleanType(),
    "bytes": T.BinaryType(),
    COLLECTION: T.ArrayType(T.StringType()),
}


class _Seen:
    """What was seen under one name."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.all_integers = True
        self.elements: _Seen | None = None

    def add(self, value: Any) -> None:
        kind = _KINDS.get(type(value))
        if kind is None:  # of a registered value type, which no column holds
            return
        self.kinds[kind] += 1
        if kind == COLLECTION:
            self.elements = self.elements or _Seen()
            for element in value:
                self.elements.add(element)
        elif kind == "number" and type(value) is not int:
            self.all_integers = False

    def spark(self, declared: str | None = None) -> T.DataType | None:
        """The type of the column; None if there is no value that a column could hold."""
        if declared is not None and declared in _SPARK:
            kind = declared
        elif self.kinds:
            kind = max(_ORDER, key=lambda kind: self.kinds[kind])
        else:
            return None
        if kind == "number" and self.kinds[kind] and self.all_integers:
            return T.LongType()
        if kind == COLLECTION and self.elements is not None:
            return T.ArrayType(self.elements.spark() or T.StringType())
        return _SPARK[kind]


def infer(
    events: Iterable[Mapping[str, Any]], declared: Mapping[str, str] | None = None
) -> T.StructType:
    """The schema of events, given as their attributes; `declared` are those of an event type.

    >>> infer([{"symbol": "IBM", "pos.x": 1}, {"symbol": "SAP", "pos.x": 0.5}]
    ... ).simpleString()
    'struct<pos:struct<x:double>,symbol:string>'
    """
    seen: dict[str, _Seen] = {name: _Seen() for name in declared or {}}
    for event in events:
        for name, value in event.items():
            found = seen.get(name)
            if found is None:
                found = seen[name] = _Seen()
            found.add(value)
    types = {}
    for name in sorted(seen):
        kind = seen[name].spark((declared or {}).get(name))
        if kind is not None:
            types[name] = kind
    if not types:
        raise PipelineError(
            "there are no events to infer a schema from; give one, as in "
            'columns="symbol string, price double"'
        )
    _check_case(types)
    return _tree(types)


def _check_case(names: Iterable[str]) -> None:
    """Spark does not tell names apart that differ in case only."""
    known: dict[str, str] = {}
    for name in [part for each in names for part in (*_prefixes(each), each)]:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise PipelineError(
                f"the attributes {other!r} and {name!r} differ in case only, which Spark takes for "
                "the same column; give a schema that names one of them"
            )


def _tree(types: Mapping[str, T.DataType]) -> T.StructType:
    """Dotted names as structs, except below a name that is a value itself."""
    flat = {
        name
        for name in types
        if any(name.startswith(other + ".") for other in _prefixes(name) if other in types)
    }
    root: dict[str, Any] = {}
    for name, kind in types.items():
        if name in flat:
            continue
        *path, last = name.split(".")
        at = root
        for step in path:
            at = at.setdefault(step, {})
        at[last] = kind
    fields = [T.StructField(name, _built(root[name])) for name in root]
    fields += [T.StructField(name, types[name]) for name in flat]
    return T.StructType(sorted(fields, key=lambda field: str(field.name)))


def _prefixes(name: str) -> Iterable[str]:
    parts = name.split(".")
    return (".".join(parts[:size]) for size in range(1, len(parts)))


def _built(node: Any) -> T.DataType:
    if isinstance(node, T.DataType):
        return node
    return T.StructType(
        [T.StructField(name, _built(child)) for name, child in sorted(node.items())]
    )
