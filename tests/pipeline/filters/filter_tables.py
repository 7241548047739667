"""Event tables with their traps, and the broker's answer for their rows.

A table is a schema and rows; `answers` asks Spark about many filters in one job. `event_of` says
what notification a row stands for, by its own reading of the convention for event tables, and
`Filter.matches` then gives the broker's answer.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import inf, nan
from random import Random
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import types as spark
from strategies import CONDITIONS, EDGES

from stentor.filters import Filter, Operator, register_operator
from stentor.model.event_types import event_types
from stentor.model.identity import NotificationId
from stentor.pipeline.filters import to_column

Row = tuple[Any, ...]

LONGS = (0, 1, 2, 3, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
DOUBLES = (nan, inf, -inf, 0.0, -0.0, 1.0, 2.0, 2.5, -1.0, 2.0**53, 2.0**53 + 2, 2.0**63, 1e300)
_EDGES = (*EDGES, *(edge + 1 for edge in EDGES if type(edge) is int and edge < 2**63 - 1))
FLOATS = tuple(float(np.float32(v)) for v in (nan, inf, 0.0, -0.0, 1.0, 2.5, 0.1, 16777217.0))
TEXTS = (
    "",
    "a",
    "b",
    "ab",
    "ba",
    "abc",
    "abab",
    "c",
    "a\nb",
    "it's",
    "😀b",
    "a😀b",
    "\0",
    "${x}",
    "é",
)
BYTES = (b"", b"a", b"ab", b"\xff", b"\x00a", b"abab")
TIMES = (
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 2, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2024, 1, 3, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1),
)
NAIVE = tuple(time.replace(tzinfo=None) for time in TIMES)

#: What columns of each type hold, beside null.
POOLS: dict[str, tuple[spark.DataType, Sequence[Any]]] = {
    "bool": (spark.BooleanType(), (True, False)),
    "byte": (spark.ByteType(), (0, 1, 2, 3, -1, 127, -128)),
    "short": (spark.ShortType(), (0, 1, 2, 3, -1, 32767)),
    "int": (spark.IntegerType(), (0, 1, 2, 3, -1, 2**31 - 1, -(2**31))),
    "long": (spark.LongType(), LONGS),
    "float": (spark.FloatType(), FLOATS),
    "double": (spark.DoubleType(), DOUBLES),
    "cents": (spark.DecimalType(12, 2), tuple(map(Decimal, ("0.10", "1.00", "2.50", "-1.00")))),
    "whole": (spark.DecimalType(10, 0), tuple(map(Decimal, (0, 1, 2, 3, -1)))),
    "wide": (
        spark.DecimalType(30, 0),
        tuple(map(Decimal, (0, 1, 2**53 + 1, -(2**63), 2**64, 10**29))),
    ),
    "long edges": (spark.LongType(), tuple(n for n in _EDGES if type(n) is int)),
    "double edges": (spark.DoubleType(), (nan, *map(float, _EDGES))),
    "wide edges": (spark.DecimalType(30, 0), tuple(Decimal(n) for n in _EDGES if type(n) is int)),
    "string": (spark.StringType(), TEXTS),
    "folded": (spark.StringType("UTF8_LCASE"), (*TEXTS, "A", "AB")),
    "binary": (spark.BinaryType(), BYTES),
    "time": (spark.TimestampType(), TIMES),
    "naive": (spark.TimestampNTZType(), NAIVE),
    "void": (spark.NullType(), ()),
}
for _name in (
    *("bool", "int", "long", "double", "whole", "wide"),
    *("string", "folded", "binary", "time"),
):
    _type, _pool = POOLS[_name]
    POOLS[f"{_name}s"] = (
        spark.ArrayType(_type),
        (
            [],
            [None],
            *([value] for value in _pool),
            *([a, None, b] for a, b in pairwise(_pool)),
        ),
    )

_NUMBERS = ("byte", "short", "int", "long", "float", "double", "cents", "whole", "wide")
_ANY = tuple(POOLS)
#: The types that each column may have.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "x": (*_NUMBERS, *_NUMBERS, "string"),
    "y": _NUMBERS,
    "n": ("long edges", "double edges", "wide edges"),
    "s": ("string", "string", "folded", "binary", "strings"),
    "b": ("bool",),
    "tags": ("strings", "strings", "longs", "doubles", "wides", "bools", "string"),
    "at": ("time", "naive", "string"),
    "m": _ANY,
    "pos.x": (*_NUMBERS, "string"),
    "_type": ("string",),
    "_id": ("string",),
    "_time": ("time",),
    "_offset": ("long",),
}
_EVENT_TYPES = (
    "quote",
    "quote.stock",
    "quote.stock.nyse",
    "quotes",
    "filtered_alert",
    "halt.stock",
)
_IDS = ("p:1:0", "a:b:1:7", "p.q:0:12", "not an id")

_NAMES = ("x", "y", "m", "pos.x", "pos.z")
#: Conditions that the generators of the other tests do not have.
EXTRA: tuple[tuple[str, ...], ...] = (
    tuple(
        f"{name} {operator} {constant}"
        for name in _NAMES
        for operator in ("=", "!=", "<", "<=", ">", ">=")
        for constant in (9007199254740993, 9223372036854775807, 0.1, 16777217, 1e300, -128, 2.5)
    ),
    tuple(f"{name} {word}" for name in _NAMES for word in ("is int", "is not int", "is float")),
    tuple(f"{name} is int and {name} > 0 and {name} < 3" for name in _NAMES),
    ("x in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0.1)", "y not in (0, 2.5, 100)"),
    tuple(
        f"{name} {words}"
        for name in ("s", "m")
        for words in (
            "prefix bytes '61'",
            "suffix bytes '62'",
            "contains bytes 'ff'",
            "= bytes '6162'",
            "> bytes '61'",
            "!= bytes ''",
        )
    ),
    tuple(
        f"s {word} '{text}'"
        for word in ("like", "not like")
        for text in ("a%b%", "_b", "😀%b", "%a_b", "a_b", "%😀%", "__%")
    ),
    tuple(
        f"s {word} '{text}'"
        for word in ("regex", "not regex")
        for text in (
            "a.b",
            "(?s)a.b",
            "(?i)A",
            "^[a-c]+$",
            "(ab|ba)b?$",
            "[^a-z]",
            "^(a|b)*$",
            "a.*b",
            "^.{1,2}$",
            "(^|b)a",
            "[😀-😂]",
            "(a+b+)+c",
        )
    ),
    ("s >= 'a' and s < 'b'", "s > '😀'", "s = 'it''s'", "s != '${x}'", "s in ('a', 'é', '😀b')"),
    ("_types has 'quote'", "not _types has 'quote.stock'", "_types lacks 'filtered_kind'"),
    ("_types superset of ('quote', 'filtered_kind')", "some _types prefix 'filtered'"),
    ("_types subset of ('quote', 'quotes')", "_type = 'quote.stock'", "_type prefix 'quote.'"),
    ("_producer = 'p'", "_producer prefix 'a:'", "_producer is missing", "_offset > 0"),
    ("_time > time '2024-01-01'", "_time is missing", "_offset is missing", "_channel is missing"),
    ("exists pos.x", "pos.x is missing", "pos.x > 1", "pos.x = '1'", "exists pos", "pos.z < 2"),
    tuple(
        f"{left} {operator} {right}"
        for left in ("x", "x + y", "x * y", "x - 1", "x / y", "2 * x + 1")
        for operator in ("=", "!=", "<", ">=")
        for right in ("(y)", "(m)", "(pos.z)", "y - 1", "2.5")
    ),
    ("s < (m)", "b != (m)", "at >= (m)", "tags = (m)", "x = (tags)"),
    ("x divides 12", "some tags shouts 2", "s shouts 1 and s > 'a'", "not m divides 6"),
)


# Lambdas, so that they travel to the workers by value: workers do not know this module.
register_operator(
    Operator("divides", "number", lambda value, n: 0 < abs(value) < 1e18 and n % value == 0)
)
register_operator(Operator("shouts", "string", lambda value, n: len(value) >= n))


def declare_event_types() -> None:
    """Types with more ancestors than their paths say."""
    event_types.declare("filtered_kind")
    event_types.declare("filtered_alert", parents=["filtered_kind"])
    event_types.declare("halt.stock", parents=["filtered_alert", "quote"])


def random_table(random: Random, count: int) -> tuple[spark.StructType, list[Row]]:
    """A table whose columns have types that were drawn, too."""
    chosen = {name: random.choice(types) for name, types in _COLUMNS.items()}
    if random.random() < 0.5:
        del chosen["pos.x"]
    schema, pools = spark.StructType(), []
    for name, kind in chosen.items():
        data_type, pool = POOLS[kind]
        pool = {"_type": _EVENT_TYPES, "_id": _IDS}.get(name, pool)
        schema.add(name, data_type)
        pools.append((None, *pool))
    inner = {"x": POOLS[random.choice(_NUMBERS)], "z": POOLS[random.choice(_ANY)]}
    record = spark.StructType()
    for name, (data_type, _) in inner.items():
        record.add(name, data_type)
    schema.add("pos", record)

    def record_row() -> Row | None:
        if random.random() < 0.2:
            return None
        return tuple(random.choice((None, *pool)) for _, pool in inner.values())

    rows = [(*map(random.choice, pools), record_row()) for _ in range(count)]
    return schema, rows


def random_filter(random: Random) -> Filter:
    conditions = [
        random.choice(random.choice((CONDITIONS, random.choice(EXTRA))))
        for _ in range(random.randint(1, 3))
    ]
    text = random.choice((" and ", " or ")).join(f"({c})" for c in conditions)
    return Filter(f"not ({text})" if random.random() < 0.25 else text)


def answers(
    session: SparkSession,
    schema: spark.StructType,
    rows: Sequence[Row],
    filters: Sequence[Filter | str],
) -> list[tuple[Any, ...]]:
    """For each row, what the columns of all filters say; one job."""
    columns = [to_column(f, schema).alias(f"f{i}") for i, f in enumerate(filters)]
    table = session.createDataFrame(list(rows), schema, verifySchema=False)
    return [tuple(row) for row in table.select(*columns).collect()]


def event_of(schema: spark.StructType, row: Sequence[Any]) -> dict[str, Any]:
    """What a broker would see of the row."""
    event = _record(schema, row)
    shown: dict[str, Any] = {name: v for name, v in event.items() if not name.startswith("_")}
    for name in ("_type", "_subject", "_channel", "_time"):
        if event.get(name) is not None:
            shown[name] = event[name]
    if shown.get("_type") is not None:
        shown["_types"] = event_types.ancestors(shown["_type"])
    if event.get("_id") not in (None, "not an id"):
        shown["_producer"] = NotificationId.parse(event["_id"]).producer
    return shown


def _record(schema: spark.StructType, row: Sequence[Any]) -> dict[str, Any]:
    found = {}
    for field, stored in zip(schema.fields, row, strict=True):
        value = _value(field.dataType, stored)
        if value is not None:
            found[field.name] = value
    return found


def _value(data_type: spark.DataType, stored: Any) -> Any:
    if stored is None or stored != stored:
        return None
    if isinstance(data_type, spark.StructType):
        return _record(data_type, stored)
    if isinstance(data_type, spark.ArrayType):
        values = [_value(data_type.elementType, element) for element in stored]
        return [value for value in values if value is not None]
    if isinstance(data_type, spark.DecimalType):
        is_integer = data_type.scale == 0 and -(2**63) <= stored < 2**63
        return int(stored) if is_integer else float(stored)
    if isinstance(data_type, spark.TimestampNTZType):
        return stored.replace(tzinfo=UTC)
    return stored


def disagreements(
    schema: spark.StructType,
    rows: Sequence[Row],
    filters: Sequence[Filter],
    found: Sequence[Sequence[Any]],
) -> list[str]:
    """Where Spark and the broker differ, in words."""
    wrong = []
    for row, columns in zip(rows, found, strict=True):
        event: Mapping[str, Any] = event_of(schema, row)
        for filter, answer in zip(filters, columns, strict=True):
            if filter.matches(event) is not answer:
                wrong.append(f"{filter} is {answer} of {event} in {schema.simpleString()}")
    return wrong
