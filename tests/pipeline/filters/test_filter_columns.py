"""A filter as a column of a DataFrame gives the broker's answer for every row."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from random import Random

import pytest
from filter_tables import (
    answers,
    declare_event_types,
    disagreements,
    random_filter,
    random_table,
)
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType

from stentor.errors import UnsupportedColumn
from stentor.filters import Filter
from stentor.pipeline.filters import is_native, to_column


def _check_random_filters(spark: SparkSession, seed: int, filters: int) -> None:
    declare_event_types()
    random = Random(seed)
    schema, rows = random_table(random, 40)
    drawn = [random_filter(random) for _ in range(filters)]
    found = answers(spark, schema, rows, drawn)
    assert disagreements(schema, rows, drawn, found) == []
    assert {answer for row in found for answer in row} == {True, False}


@contextmanager
def configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            spark.conf.set(name, known)


@pytest.mark.spec("R-02.08", "R-02.11", "02/T4")
@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        (1, {}),
        (
            2,
            {
                "spark.sql.ansi.enabled": "false",
                "spark.sql.caseSensitive": "true",
                "spark.sql.parser.escapedStringLiterals": "true",
                "spark.sql.session.timeZone": "Asia/Kathmandu",
                "spark.sql.timestampType": "TIMESTAMP_NTZ",
            },
        ),
    ],
    ids=["as it comes", "other settings"],
)
def test_columns_give_the_brokers_answer(
    spark: SparkSession, seed: int, settings: dict[str, str]
) -> None:
    with configured(spark, settings):
        _check_random_filters(spark, seed, 50)


@pytest.mark.slow
@pytest.mark.spec("R-02.08", "R-02.11", "02/T4")
@pytest.mark.parametrize("seed", range(100, 120))
def test_columns_give_the_brokers_answer_for_many_tables(spark: SparkSession, seed: int) -> None:
    _check_random_filters(spark, seed, 250)


# -- the traps, one by one: all cases in one job

_SCHEMA = (
    StructType()
    .add("row", "string")
    .add("l", "long")
    .add("t", "byte")
    .add("d", "double")
    .add("f", "float")
    .add("cents", spark_types.DecimalType(12, 2))
    .add("s", "string")
    .add("lower", spark_types.StringType("UTF8_LCASE"))
    .add("at", "timestamp")
    .add("local", "timestamp_ntz")
    .add("tags", spark_types.ArrayType(spark_types.DoubleType()))
    .add("wides", spark_types.ArrayType(spark_types.DecimalType(30, 0)))
    .add("pos", StructType().add("x", "long").add("deep", StructType().add("y", "string")))
    .add("pos.x", "string")
    .add("nothing", spark_types.NullType())
    .add("_type", "string")
    .add("_id", "string")
    .add("_time", "timestamp")
    .add("_offset", "long")
    .add("_corrupt", "string")
)
_NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
_ROWS: dict[str, dict[str, object]] = {
    "empty": {},
    "nan": {"d": nan, "tags": [nan, None]},
    "infinite": {"d": inf, "f": inf},
    "minus zero": {"d": -0.0, "l": 0, "t": 0, "f": -0.0, "tags": [-0.0]},
    "big": {"l": 2**53 + 1, "d": 2.0**53, "wides": [Decimal(2**53 + 1), None]},
    "bigger": {"l": 2**63 - 1, "d": 2.0**63, "wides": [Decimal(2**63 - 1), Decimal(10**29 + 1)]},
    "least": {"l": -(2**63), "t": -128, "d": -(2.0**63)},
    "tenth": {"d": 0.1, "f": 0.1, "cents": Decimal("0.10"), "tags": [0.1, 2.0]},
    "text": {"s": "Abc", "lower": "Abc", "pos.x": "flat"},
    "odd text": {"s": "it's a \\ ${x}\n😀", "lower": "abc", "_type": "trap.fish"},
    "noon": {"at": _NOON, "local": _NOON.replace(tzinfo=None), "_time": _NOON, "_offset": 7},
    "nested": {"pos": (5, ("deep",)), "_type": "trap_alert.big", "_id": "a:b:1:2"},
    "both": {"pos": (5, None), "pos.x": "flat", "_type": "trap", "_corrupt": '{"l": "x"}'},
}

#: A filter and the rows that it matches.
CASES: dict[str, set[str]] = {
    "": set(_ROWS),
    "l > 1 and l < 0": set(),
    # What is absent satisfies nothing but `is missing`, negated or not.
    "d is missing": set(_ROWS) - {"infinite", "minus zero", "big", "bigger", "least", "tenth"},
    "exists d": {"infinite", "minus zero", "big", "bigger", "least", "tenth"},
    "d != 0.1": {"infinite", "minus zero", "big", "bigger", "least"},
    "not d < 1": {"infinite", "big", "bigger"},
    "d not in (0, 0.1)": {"infinite", "big", "bigger", "least"},
    "s not prefix 'A'": {"odd text"},
    "not (l = 0 or d > 0)": {"least"},
    # NaN is greater than any number to Spark.
    "d > 1e308": {"infinite"},
    "d >= 0.1 and d <= 1": {"tenth"},
    # -0.0 is 0, in long lists too.
    "d = 0": {"minus zero"},
    "d in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)": {"minus zero"},
    "tags has 0": {"minus zero"},
    # 64-bit integers against doubles, exactly.
    "l = 9007199254740992": set(),
    "l > 9007199254740992.0 and l < 9223372036854775807": {"big"},
    "l >= 9223372036854775808.0": set(),
    "d < 9007199254740993 and d > 9007199254740991": {"big"},
    "d >= 9007199254740993": {"infinite", "bigger"},
    "d = 9007199254740993": set(),
    "d > 9223372036854775807": {"infinite", "bigger"},
    "l = (d)": {"minus zero", "least"},
    "l > (d)": {"big"},
    "l < (d)": {"bigger"},
    "l + 1 > (d)": {"minus zero", "big", "least"},
    "l * l >= 0": {"minus zero", "big", "bigger", "least"},
    "d - d = 0": {"minus zero", "big", "bigger", "least", "tenth"},
    "1 / d > 0": {"big", "bigger", "tenth"},
    "t > 200": set(),
    "t < 200": {"minus zero", "least"},
    "t >= -128.5 and t < 0.5": {"minus zero", "least"},
    "l < 0.5 and l > -0.5": {"minus zero"},
    # A float column holds what 32 bits keep of a number.
    "f = 0.1": set(),
    "f > 0.1 and f < 0.11": {"tenth"},
    "f > 1e300": {"infinite"},
    # A decimal is the number that would be published.
    "cents = 0.1": {"tenth"},
    "cents is float": {"tenth"},
    # Types.
    "l is int and l > 0": {"big", "bigger"},
    "d is int": set(),
    "d is not int": set(_ROWS) & {"infinite", "minus zero", "big", "bigger", "least", "tenth"},
    "s = 1 or s > 0": set(),
    "l = 'a' or l contains 'a'": set(),
    "tags is collection": {"nan", "minus zero", "tenth"},
    # Strings are compared byte by byte.
    "s = 'abc'": set(),
    "lower = 'abc'": {"odd text"},
    "lower < 'a'": {"text"},
    "s contains '''s' and s contains '\\'": {"odd text"},
    "s contains '${x}'": {"odd text"},
    "s suffix '😀'": {"odd text"},
    "s like 'it%\\%😀' escape '!'": {"odd text"},
    "s regex '}.😀'": set(),
    "s regex '(?s)}.😀$'": {"odd text"},
    "s regex '(?i)^aBC$'": {"text"},
    "s > 'Abb' and s < 'Abd'": {"text"},
    # Instants do not depend on the session's time zone.
    "at = time '2024-07-01T12:00:00Z'": {"noon"},
    "local = time '2024-07-01T12:00:00Z'": {"noon"},
    "at > time '2024-07-01T12:00:00Z'": set(),
    "_time <= time '2024-07-01T12:00:00Z'": {"noon"},
    # Collections: null elements and NaN are none.
    "some tags > 0": {"tenth"},
    "tags subset of (0)": {"nan", "minus zero"},
    "tags disjoint from (0, 2)": {"nan"},
    "tags lacks 2": {"nan", "minus zero"},
    "tags superset of (0.1, 2)": {"tenth"},
    # Wide decimals are integers where they can be, and floats elsewhere.
    "wides has 9007199254740993": {"big"},
    "wides has 9007199254740992": set(),
    "some wides > 9223372036854775806 and some wides is int": {"bigger"},
    "wides has 1e29": {"bigger"},
    "some wides is float": {"bigger"},
    "wides subset of (9007199254740993, 1)": {"big"},
    "some wides divides 9007199254740993": {"big"},
    "wides = (wides)": {"big", "bigger"},
    # Names with dots: a column, a field, or one of them in each row.
    "pos.x = 5": {"nested"},
    "pos.x = 'flat'": {"text", "both"},
    "pos.x is missing": set(_ROWS) - {"nested", "text", "both"},
    "pos.deep.y prefix 'd'": {"nested"},
    "exists pos or exists pos.deep or exists nothing or exists nowhere": set(),
    # Reserved names.
    "isa trap": {"odd text", "nested", "both"},
    "isa trap_alert": {"nested"},
    "not _types has 'trap_alert'": {"odd text", "both"},
    "some _types prefix 'trap_a'": {"nested"},
    "_types subset of ('trap')": {"both"},
    "_producer = 'a:b'": {"nested"},
    "_offset > 0 or exists _corrupt or exists _id": set(),
    "_offset is missing and _corrupt is missing": set(_ROWS),
    # What has no native form.
    "l divides 12": set(),
    "d divides 1 and d > 0.05": set(),
    "f divides 0 and f < 1 and f is float": {"tenth"},
    "s shouts 4": {"odd text"},
    "s not shouts 4 or l = 0": {"text", "minus zero"},
    "s regex '^(A|b+)*c$'": {"text"},
    "pos.x shouts 4": {"text", "both"},
    "tags = (tags)": {"nan", "minus zero", "tenth"},
    "pos = (pos.deep) or pos = (nowhere)": set(),
    "pos.x = (s)": set(),
    "pos.x != (s)": {"text"},
}


@pytest.fixture(scope="module")
def traps(spark: SparkSession) -> dict[str, set[str]]:
    """For each filter, the rows that Spark finds."""
    declare_trap_types()
    names = [field.name for field in _SCHEMA.fields]
    rows = [tuple({"row": row, **values}.get(n) for n in names) for row, values in _ROWS.items()]
    found = answers(spark, _SCHEMA, rows, [*CASES])
    assert all(type(answer) is bool for row in found for answer in row), "never null"
    return {
        text: {row for row, columns in zip(_ROWS, found, strict=True) if columns[i]}
        for i, text in enumerate(CASES)
    }


def declare_trap_types() -> None:
    from stentor.model.event_types import event_types

    event_types.declare("trap_alert", parents=["trap"])


@pytest.mark.spec("R-02.07", "R-02.08", "R-02.13", "R-02.22", "02/T4")
@pytest.mark.parametrize("text", CASES)
def test_traps(traps: dict[str, set[str]], text: str) -> None:
    assert traps[text] == CASES[text]


def test_the_negated_column_keeps_all_other_rows(spark: SparkSession) -> None:
    schema = StructType().add("x", "double")
    table = spark.createDataFrame([(None,), (nan,), (1.0,), (3.0,)], schema)
    column = to_column("x > 2", schema)
    assert [row.x for row in table.where(column).collect()] == [3.0]
    assert table.where(~column).count() == 3


# -- what Spark makes of it


def _plan(table: object) -> str:
    return str(table._jdf.queryExecution().executedPlan().toString())  # type: ignore[attr-defined]


def test_native_conditions_reach_the_files(spark: SparkSession, tmp_path: Path) -> None:
    schema = StructType().add("symbol", "string").add("price", "double").add("_time", "timestamp")
    path = str(tmp_path / "quotes")
    spark.createDataFrame([("IBM", 120.0, _NOON)], schema).write.parquet(path)
    quotes = spark.read.parquet(path)
    filter = Filter("symbol in ('IBM', 'AXP') and price > 100 and _time < time '2024-07-02'")
    found = quotes.where(to_column(filter, quotes.schema))
    assert [row.symbol for row in found.collect()] == ["IBM"]
    with configured(spark, {"spark.sql.maxMetadataStringLength": "1000"}):
        plan = _plan(quotes.where(to_column(filter, quotes.schema)))
    assert "GreaterThan(price,100.0)" in plan
    assert "In(symbol" in plan
    assert "LessThan(_time" in plan
    assert "Python" not in plan


def test_python_gets_only_the_rows_that_are_left(spark: SparkSession) -> None:
    schema = StructType().add("x", "long").add("y", "long")
    table = spark.createDataFrame([(3, 1), (4, 1), (-6, 1), (6, 0)], schema)
    found = table.where(to_column("x divides 12 and x > 3 and y = 1", schema))
    assert [tuple(row) for row in found.collect()] == [(4, 1)]
    plan = _plan(found)
    before, _, scan = plan.partition("ArrowEvalPython")
    assert scan, "the registered operator runs in Python"
    assert ">= 4" in scan, "the interval around it does not"
    assert "= 1" in scan
    assert "= 1" not in before


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_both_zeros_are_found_in_files_that_have_only_one(
    spark: SparkSession, tmp_path: Path, zero: float, kind: str
) -> None:
    schema = StructType().add("x", kind)
    path = str(tmp_path / "zeros")
    spark.createDataFrame([(zero,)] * 3, schema).coalesce(1).write.parquet(path)
    for text in ("x = 0", "x = -0.0", "x >= 0", "x <= -0.0", "x in (0, 1, 2)", "not x != 0"):
        found = spark.read.parquet(path).where(to_column(Filter(text), schema))
        assert found.count() == 3, text


def test_a_filter_of_many_alternatives(spark: SparkSession) -> None:
    schema = StructType().add("x", "long").add("s", "string")
    filter = Filter(" or ".join(f"(x = {i} and s = 'n{i}')" for i in range(300)))
    table = spark.createDataFrame([(7, "n7"), (7, "n8"), (299, "n299")], schema)
    assert table.where(to_column(filter, schema)).count() == 2


# -- what needs no session


def test_which_filters_are_native() -> None:
    assert is_native("l > 1 and s prefix 'a' and tags has 2 and l < (d) and isa quote", _SCHEMA)
    assert is_native(
        "s like 'a%b' and s regex '^[a-z]+[0-9]{2,3}$' and s regex 'IBM.*USD'", _SCHEMA
    )
    assert not is_native("l divides 2", _SCHEMA)
    assert is_native("s divides 2", _SCHEMA), "a string is never divided: settled at once"
    assert not is_native("s regex '^(a|b+)*c'", _SCHEMA)
    assert not is_native("l + d > 3 and l * l * l > 5", _SCHEMA)


def test_columns_that_hold_no_attributes_are_an_error_if_the_filter_names_them() -> None:
    schema = (
        StructType()
        .add("day", "date")
        .add("grid", spark_types.ArrayType(spark_types.ArrayType(spark_types.LongType())))
        .add("x", "long")
        .add("twice", "long")
        .add("twice", "long")
    )
    assert is_native("x > 1", schema)
    for name in ("day", "grid", "twice"):
        with pytest.raises(UnsupportedColumn, match=name):
            is_native(f"exists {name}", schema)


def test_filters_look_into_listed_records(spark: SparkSession) -> None:
    line = StructType().add("sku", "string").add("count", "long").add("price", "double")
    schema = StructType().add("x", "long").add("lines", spark_types.ArrayType(line))
    rows = [
        (1, [("A-17", 12, 1.5), ("B-4", 1, None)]),
        (2, [("A-17", 1, nan), ("B-4", 12, 2.5)]),
        (3, []),
        (4, None),
        (5, [("C", None, None), None]),
    ]
    texts = [
        "any l in lines: l.sku = 'A-17' and l.count > 10",
        "all l in lines: l.count > 0",
        "not (any l in lines: exists l.price)",
        "x > 1 and (any l in lines: l.count = 12)",
        "lines is collection",
        "exists lines",
        "lines.sku = 'A-17'",
        "lines.sku is missing",
    ]
    found = answers(spark, schema, rows, texts)
    assert [[row for row, *_ in rows if found[row - 1][i]] for i in range(len(texts))] == [
        [1],
        [1, 2, 3],
        [3, 5],
        [2],
        [1, 2, 3, 5],
        [1, 2, 3, 5],
        [],
        [1, 2, 3, 4, 5],
    ]
    assert not is_native(texts[0], schema)
    assert is_native("exists lines", schema)
