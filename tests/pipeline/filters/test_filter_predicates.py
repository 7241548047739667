"""Spark's predicates as a filter: never too narrow, and where it can be, exact."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from random import Random
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.datasource import Filter as Predicate
from pyspark.sql.types import StructType

from stentor.filters import Filter
from stentor.model.values import value_type_of
from stentor.pipeline.filters import from_predicates
from stentor.pipeline.source.batch import BatchReader
from stentor.pipeline.source.options import reading

_NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)

_SCHEMA = (
    StructType()
    .add("s", "string")
    .add("b", "boolean")
    .add("l", "long")
    .add("t", "byte")
    .add("d", "double")
    .add("f", "float")
    .add("c", spark_types.DecimalType(10, 2))
    .add("at", "timestamp")
    .add("y", "binary")
    .add("day", "date")
    .add("local", "timestamp_ntz")
    .add("lower", spark_types.StringType("UTF8_LCASE"))
    .add("tags", spark_types.ArrayType(spark_types.StringType()))
    .add("map", spark_types.MapType(spark_types.StringType(), spark_types.StringType()))
    .add("pos", StructType().add("x", "double"))
    .add("size.w", "long")
    .add("_type", "string")
    .add("_time", "timestamp")
    .add("_id", "string")
    .add("_offset", "long")
    .add("_corrupt", "string")
)

_HALF = float(np.float32(0.1))
_BELOW, _ABOVE = (float(np.nextafter(np.float32(0.1), np.float32(to))) for to in (-inf, inf))


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (GreaterThan(("d",), 100.0), "d > 100"),
        (GreaterThanOrEqual(("l",), 5), "l >= 5"),
        (LessThan(("d",), 0.1), "d < 0.1"),
        (LessThanOrEqual(("t",), -1), "t <= -1"),
        (EqualTo(("s",), "it's"), "s = 'it''s'"),
        (EqualTo(("b",), True), "b = true"),
        (Not(EqualTo(("b",), True)), "b != true"),
        (Not(EqualTo(("l",), 5)), "l != 5"),
        (Not(GreaterThan(("l",), 5)), "l <= 5"),
        (EqualNullSafe(("l",), 5), "l = 5"),
        (In(("l",), [1, 2, None]), "l in (1, 2)"),
        (Not(In(("l",), (1, 2))), "l not in (1, 2)"),
        (IsNotNull(("tags",)), "exists tags"),
        (Not(IsNull(("s",))), "exists s"),
        (Not(EqualNullSafe(("s",), None)), "exists s"),
        (StringStartsWith(("s",), "ab"), "s prefix 'ab'"),
        (StringEndsWith(("s",), "ab"), "s suffix 'ab'"),
        (Not(StringContains(("s",), "ab")), "s not contains 'ab'"),
        (StringContains(("s",), ""), "exists s"),
        (EqualTo(("y",), bytearray(b"ab")), "y = bytes '6162'"),
        (GreaterThan(("at",), _NOON), "at > time '2024-07-01T12:00:00Z'"),
        (LessThan(("_time",), _NOON), "_time < time '2024-07-01T12:00:00Z'"),
        (EqualTo(("_type",), "quote"), "_type = 'quote'"),
        (GreaterThan(("pos", "x"), 1.5), "pos.x > 1.5"),
        (EqualTo(("size.w",), 3), "size.w = 3"),
        # Rounded to 32 bits.
        (GreaterThan(("f",), _HALF), f"f > {_HALF!r}"),
        (GreaterThanOrEqual(("f",), _HALF), f"f >= {_BELOW!r}"),
        (EqualTo(("f",), _HALF), f"f between {_BELOW!r} and {_ABOVE!r}"),
        (Not(EqualTo(("f",), _HALF)), f"f != {_HALF!r}"),
        # Never true.
        (EqualTo(("l",), None), "false"),
        (Not(EqualTo(("l",), None)), "false"),
        (In(("l",), [None]), "false"),
        (Not(In(("l",), [1, None])), "false"),
        (Not(StringStartsWith(("s",), "")), "false"),
    ],
)
def test_predicates_that_are_pushed_down(predicate: Predicate, text: str) -> None:
    filter, used = from_predicates([predicate], _SCHEMA)
    assert used == [predicate]
    assert filter == Filter(text)


def test_infinity_is_a_number_like_others() -> None:
    filter, _ = from_predicates([GreaterThanOrEqual(("d",), inf)], _SCHEMA)
    assert filter.matches({"d": inf})
    assert not filter.matches({"d": 1.7976931348623157e308})


@pytest.mark.parametrize(
    "predicate",
    [
        IsNull(("s",)),  # the event may have it, as another type
        Not(IsNotNull(("s",))),
        EqualNullSafe(("s",), None),
        Not(EqualNullSafe(("s",), "a")),  # true of null
        Not(In(("l",), [])),
        EqualTo(("d",), nan),
        LessThan(("d",), nan),
        In(("d",), [1.0, nan]),
        GreaterThan(("at",), datetime(1899, 12, 31, tzinfo=UTC)),  # another calendar
        GreaterThan(("at",), datetime(2024, 1, 1)),  # no zone
        EqualTo(("local",), datetime(2024, 1, 1)),
        EqualTo(("day",), date(2024, 1, 1)),
        EqualTo(("lower",), "abc"),
        EqualTo(("tags",), ["a"]),
        IsNotNull(("map",)),
        IsNotNull(("pos",)),
        EqualTo(("l",), "5"),
        EqualTo(("l",), True),
        EqualTo(("_id",), "p:1:1"),
        GreaterThan(("_offset",), 5),
        IsNotNull(("_corrupt",)),
        EqualTo(("nowhere",), 5),
        EqualTo(("pos", "nowhere"), 5),
        EqualTo(("s", "x"), 5),
        EqualTo((), 5),
        Not(Not(EqualTo(("l",), 5))),
    ],
)
def test_predicates_that_are_left_to_spark(predicate: Predicate) -> None:
    filter, used = from_predicates([predicate], _SCHEMA)
    assert used == []
    assert filter.is_always


def test_all_predicates_together() -> None:
    given = [
        IsNotNull(("d",)),
        GreaterThan(("d",), 100.0),
        IsNull(("s",)),
        In(("_type",), ("quote", "trade")),
    ]
    filter, used = from_predicates(given, _SCHEMA)
    assert filter == Filter("d > 100 and _type in ('quote', 'trade')")
    assert used == [given[0], given[1], given[3]]
    assert from_predicates([], _SCHEMA) == (Filter(""), [])
    contradiction, _ = from_predicates([EqualTo(("l",), 1), EqualTo(("l",), 2)], _SCHEMA)
    assert contradiction.is_never


def test_long_lists_become_an_interval() -> None:
    filter, _ = from_predicates([In(("l",), tuple(range(0, 20_000, 2)))], _SCHEMA)
    assert filter == Filter("l between 0 and 19998")
    filter, _ = from_predicates([Not(In(("l",), tuple(range(20_000))))], _SCHEMA)
    assert filter == Filter("exists l")


def test_what_is_too_long_for_a_filter_is_left_to_spark() -> None:
    """Each predicate by itself: the others are pushed down all the same."""
    options = reading({"brokers": "127.0.0.1:7411", "filter": "l > 0"})
    readable = [field for field in _SCHEMA.fields if field.name in ("s", "l", "t", "d")]
    reader = BatchReader(StructType(readable), options)
    long = In(("s",), tuple(f"{n:04}" + 1_100 * "x" for n in range(1_000)))
    one = StringContains(("s",), 2**20 * "x")
    given = [GreaterThan(("d",), 1.0), long, one, EqualTo(("t",), 7)]
    assert list(reader.pushFilters(given)) == given
    assert Filter(reader._filter) == Filter("l > 0 and d > 1 and t = 7")


# -- against Spark: the rows of random events, and random predicates over them


@dataclass(frozen=True)
class _Column:
    """A column: its SQL type, how an attribute's value becomes the row's, constants for it."""

    type: str
    value: Callable[[Any], Any]
    constants: tuple[Any, ...]
    literal: Callable[[Any], str]
    #: A row's value is the attribute's: the filter is exact.
    exact: bool = True


def _only(kind: str) -> Callable[[Any], Any]:
    return lambda value: value if value_type_of(value) == kind else None


def _integer(bits: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if value_type_of(value) != "number" or value in (inf, -inf) or value != int(value):
            return None
        return int(value) if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None

    return convert


def _double(value: Any) -> Any:
    return float(value) if value_type_of(value) == "number" and float(value) == value else None


def _float(value: Any) -> Any:
    if value_type_of(value) != "number":
        return None
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return rounded if rounded not in (inf, -inf) or rounded == value else None


def _decimal(value: Any) -> Any:
    if value_type_of(value) != "number" or value in (inf, -inf):
        return None
    exact = Decimal(repr(value))
    rounded = exact.quantize(Decimal("0.01")) if abs(exact) < 10**7 else None
    return rounded if rounded == exact else None


def _plain(suffix: str) -> Callable[[Any], str]:
    def literal(value: Any) -> str:
        if isinstance(value, float) and (value != value or value in (inf, -inf)):
            name = {inf: "Infinity", -inf: "-Infinity"}.get(value, "NaN")
            return f"CAST('{name}' AS DOUBLE)"
        return f"{value!r}{suffix}"

    return literal


def _timestamp(value: datetime) -> str:
    return f"TIMESTAMP'{value.isoformat()}'"


_NUMBERS = (0, 1, 2, 127, -128, 128, 2**53 + 1, 2**63 - 1, 0.0, -0.0, 0.5, 0.1, 1.0, 2**60 * 1.0)
_MORE = (inf, -inf, 1e300, 0.10000000149011612, 12345678.9, 1.25, 2.50)
_STRINGS = ("", "a", "ab", "b", "é", "😀", "quote")
_INSTANTS = (_NOON, _NOON + timedelta(microseconds=1), datetime(1899, 1, 1, tzinfo=UTC))
_VALUES = (*_NUMBERS, *_MORE, *_STRINGS, True, False, b"", b"a", b"\xff", *_INSTANTS, ("a",), ())

_DOUBLES = tuple(v for v in (*_NUMBERS, *_MORE) if isinstance(v, float))
COLUMNS = {
    "s": _Column("string", _only("string"), _STRINGS, repr),
    "b": _Column("boolean", _only("bool"), (True, False), repr),
    "l": _Column("bigint", _integer(64), (0, 1, 2, 128, 2**53 + 1, 2**60), _plain("L")),
    "t": _Column("tinyint", _integer(8), (0, 1, 127, -128), _plain("Y")),
    "d": _Column("double", _double, (*_DOUBLES, nan), _plain("D")),
    "f": _Column(
        "float",
        _float,
        tuple(float(np.float32(v)) for v in (0.0, 0.1, 1.0, 12345678.9, inf)),
        lambda value: f"CAST({_plain('D')(value)} AS FLOAT)",
        exact=False,
    ),
    "c": _Column(
        "decimal(10,2)",
        _decimal,
        tuple(map(Decimal, ("0.10", "1.25", "1.26", "2.50", "0.00"))),
        lambda value: f"CAST('{value}' AS DECIMAL(10,2))",
        exact=False,
    ),
    "at": _Column("timestamp", _only("time"), _INSTANTS, _timestamp),
    "y": _Column("binary", _only("bytes"), (b"", b"a", b"ab"), lambda v: f"X'{v.hex()}'"),
    "_type": _Column("string", _only("string"), ("quote", "a"), repr),
    "_time": _Column("timestamp", _only("time"), _INSTANTS, _timestamp),
}

_COMPARISONS: dict[str, type[Predicate]] = {
    "=": EqualTo,
    "<=>": EqualNullSafe,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "<": LessThan,
    "<=": LessThanOrEqual,
}
_TEXTS: dict[str, type[Predicate]] = {
    "startswith": StringStartsWith,
    "endswith": StringEndsWith,
    "contains": StringContains,
}


def _random_predicate(random: Random) -> tuple[str, Predicate, str]:
    """A column, a predicate on it, and the predicate in SQL."""
    name = random.choice([*COLUMNS])
    column = COLUMNS[name]

    def constant() -> tuple[Any, str]:
        if random.random() < 0.1:
            return None, f"CAST(NULL AS {column.type})"
        value = random.choice(column.constants)
        return value, column.literal(value)

    shape = random.choice(["compare", "compare", "in", "null", "text"])
    predicate: Predicate
    if shape == "compare":
        operator = random.choice([*_COMPARISONS])
        value, literal = constant()
        predicate = _COMPARISONS[operator](attribute=(name,), value=value)  # type: ignore[call-arg]
        sql = f"{name} {operator} {literal}"
    elif shape == "in":
        listed = [constant() for _ in range(random.randint(1, 3))]
        predicate = In((name,), tuple(value for value, _ in listed))
        sql = f"{name} IN ({', '.join(literal for _, literal in listed)})"
    elif shape == "text" and column.type == "string":
        function = random.choice([*_TEXTS])
        value = random.choice(column.constants)
        predicate = _TEXTS[function](attribute=(name,), value=value)  # type: ignore[call-arg]
        sql = f"{function}({name}, {value!r})"
    else:
        null = random.random() < 0.5
        predicate = IsNull((name,)) if null else IsNotNull((name,))
        sql = f"{name} IS {'' if null else 'NOT '}NULL"
    if random.random() < 0.3:
        return name, Not(predicate), f"NOT ({sql})"
    return name, predicate, sql


def _random_event(random: Random) -> dict[str, Any]:
    event = {}
    for name, column in COLUMNS.items():
        pool = column.constants if name.startswith("_") or random.random() < 0.6 else _VALUES
        value = random.choice((None, *pool))
        if isinstance(value, Decimal):
            value = float(value)
        if value is not None and value == value:
            event[name] = value
    return event


def _check_predicates(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    events = [_random_event(random) for _ in range(60)]
    drawn = [_random_predicate(random) for _ in range(150)]
    schema = StructType()
    for name, column in COLUMNS.items():
        schema.add(name, spark_types.DataType.fromDDL(column.type))
    rows = [
        tuple(None if n not in e else c.value(e[n]) for n, c in COLUMNS.items()) for e in events
    ]
    table = spark.createDataFrame(rows, schema)
    answers = table.selectExpr(*[f"({sql}) AS p{i}" for i, (_, _, sql) in enumerate(drawn)])
    found = answers.collect()
    pushed = 0
    for number, (name, predicate, sql) in enumerate(drawn):
        filter, used = from_predicates([predicate], schema)
        pushed += bool(used)
        for event, row, answer in zip(events, rows, found, strict=True):
            if answer[number]:
                assert filter.matches(event), f"{filter} loses {event} of {sql}"
            elif used and COLUMNS[name].exact and row[schema.names.index(name)] is not None:
                assert not filter.matches(event), f"{filter} is too wide for {event} of {sql}"
    assert pushed > len(drawn) / 2
    for _ in range(100):
        chosen = random.sample(range(len(drawn)), 3)
        filter, _ = from_predicates([drawn[i][1] for i in chosen], schema)
        for event, answer in zip(events, found, strict=True):
            if all(answer[i] for i in chosen):
                assert filter.matches(event)


@pytest.mark.spec("R-02.08", "02/T4")
@pytest.mark.parametrize("seed", [1])
def test_no_row_is_lost(spark: SparkSession, seed: int) -> None:
    _check_predicates(spark, seed)


@pytest.mark.slow
@pytest.mark.spec("R-02.08", "02/T4")
@pytest.mark.parametrize("seed", range(100, 115))
def test_no_row_is_lost_by_many_predicates(spark: SparkSession, seed: int) -> None:
    _check_predicates(spark, seed)


# -- how Spark itself hands over its predicates


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_sparks_own_predicates(pushdown: SparkSession) -> None:
    """Constants arrive as they were meant, whatever the session's time zone is."""
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):
        def __init__(self, schema: StructType) -> None:
            self.schema, self.text = schema, ""

        def pushFilters(self, filters: list[Predicate]) -> list[Predicate]:  # noqa: N802
            from stentor.pipeline.filters import from_predicates

            derived, used = from_predicates(filters, self.schema)
            self.text = f"{len(used)} of {len(filters)}: {derived}"
            return filters

        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
            yield self.text, "IBM", 120.5, 7, True, noon, Decimal("1.25"), 0.5, (3,), b"ab"

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "predicates_probe"

        def schema(self) -> str:
            return (
                "filter string, symbol string, price double, volume long, open boolean, "
                "at timestamp, fee decimal(10,2), ratio float, pos struct<x: int>, raw binary"
            )

        def reader(self, schema: StructType) -> Reader:
            return Reader(schema)

    assert pushdown.conf.get("spark.sql.session.timeZone") == "America/New_York"
    pushdown.dataSource.register(Source)
    found = (
        pushdown.read.format("predicates_probe")
        .load()
        .where("symbol IN ('IBM', 'AXP') AND price > 100 AND volume <> 8 AND open")
        .where("at >= TIMESTAMP'2024-07-01 08:00:00' AND at < TIMESTAMP'2024-07-01 12:00:00.5Z'")
        .where("fee = 1.25 AND ratio < 1 AND pos.x > 2 AND raw = X'6162' AND symbol LIKE 'I%'")
        .collect()
    )
    (row,) = found
    count, _, text = row[0].partition(": ")
    assert Filter(text) == Filter(
        "symbol = 'IBM' and price > 100 and volume != 8 and open = true and "
        "at >= time '2024-07-01T12:00:00Z' and at < time '2024-07-01T12:00:00.5Z' and "
        "fee between 1.2499999999999998 and 1.2500000000000002 and ratio < 1 and pos.x > 2 and "
        "raw = bytes '6162'"
    )
    used, _, given = count.partition(" of ")
    assert used == given
