"""`match` on all plans: the answer of brute force, ids of any type, and what can be wrong."""

import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

import matching_cases as cases

from stentor import Filter
from stentor.errors import InvalidConfiguration, PipelineDefinitionError, UnsupportedColumn
from stentor.pipeline.filters import is_native
from stentor.pipeline.matching import match
from workloads import KNOWN_MATCHES, stock

NAMES = {
    "native": "stentor_match_native",
    "index": "stentor_match_index",
    "sharded": "stentor_match_shard",
}


def plan_of(frame: DataFrame) -> str:
    """What `explain()` shows."""
    return str(frame._jdf.queryExecution().toString())


def pairs(frame: DataFrame, id: str = "subscription_id") -> set[tuple[Any, int]]:
    """Matches as a set; each must have been reported once."""
    found = [tuple(row) for row in frame.select(id, "n").collect()]
    assert len(found) == len(set(found))
    return set(found)


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> Iterator[tuple[DataFrame, list[Row]]]:
    cases.declare_types()
    frame = spark.createDataFrame(cases.rows(5, 150), cases.SCHEMA).repartition(2).cache()
    yield frame, frame.collect()
    frame.unpersist()


@pytest.mark.spec("02/P13")
@pytest.mark.parametrize("plan", NAMES)
def test_a_plan_gives_the_answer_of_brute_force(
    events: tuple[DataFrame, list[Row]], plan: str
) -> None:
    frame, rows = events
    filters = dict(enumerate(cases.texts(11, 400)))
    if plan == "native":  # Spark compiles each of them
        native = [id for id, text in filters.items() if is_native(text, frame.schema)]
        filters = {id: filters[id] for id in native[:80]}
    matches = match(frame, filters, plan=plan, shards=3 if plan == "sharded" else None)
    assert matches.columns == ["subscription_id", *frame.columns]
    assert NAMES[plan] in plan_of(matches)
    expected = cases.expected(filters, rows)
    assert pairs(matches) == expected
    assert len(expected) > 20 * len(filters)


def test_events_come_through_unchanged(events: tuple[DataFrame, list[Row]]) -> None:
    frame, rows = events
    by_number = {row.n: str(tuple(row)) for row in rows}  # as text NaN equals itself
    matched = [match(frame, {plan: ""}, plan=plan) for plan in NAMES]
    found = matched[0].union(matched[1]).union(matched[2]).collect()
    assert len(found) == len(NAMES) * len(rows)
    for plan in NAMES:
        these = [row for row in found if row.subscription_id == plan]
        assert {row.n: str(tuple(row)[1:]) for row in these} == by_number


@pytest.mark.spec("02/5.12")
@pytest.mark.parametrize(
    ("filters", "shards"),
    [
        (1_000, None),
        pytest.param(10_000, None, marks=pytest.mark.slow),
        pytest.param(10_000, 3, marks=pytest.mark.slow),
    ],
)
def test_stock_quotes_have_the_known_number_of_matches(
    spark: SparkSession, filters: int, shards: int | None
) -> None:
    workload = stock(filters)
    frame = spark.createDataFrame(pa.Table.from_batches([workload.batch])).repartition(2)
    found = match(frame, enumerate(workload.texts()), shards=shards)
    assert found.count() == KNOWN_MATCHES[filters]


def test_the_plan_follows_from_size_and_filters(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("IBM", 120.0)], "symbol string, price double")
    few = {str(n): f"price > {n}" for n in range(16)}
    assert NAMES["native"] in plan_of(match(frame, few))
    assert NAMES["index"] in plan_of(match(frame, {**few, "one more": "price > 100"}))
    assert NAMES["index"] in plan_of(match(frame, {"odd": "price multiple_of 2"}))
    large = " or ".join(f"price = {n} and symbol = '{n}'" for n in range(30))
    assert NAMES["index"] in plan_of(match(frame, {"large": large}))
    assert NAMES["sharded"] in plan_of(match(frame, few, shards=2))


def test_ids_keep_their_type(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "IBM")], "n long, symbol string")
    ids = {
        "int": 7,
        "bigint": 2**40,
        "string": "seven",
        "date": date(2024, 1, 31),
        "binary": bytearray(b"\0\1"),
    }
    plans = [*((kind, "index") for kind in ids), ("date", "native"), ("date", "sharded")]
    found: DataFrame | None = None
    for kind, plan in plans:
        table = spark.createDataFrame([(ids[kind], "symbol = 'IBM'")], f"who {kind}, wants string")
        matched = match(frame, table, id="who", filter="wants", plan=plan)
        assert matched.schema["who"].dataType.simpleString() == kind
        assert matched.columns == ["who", "n", "symbol"]
        column = matched.select(matched["who"].alias(f"{kind} {plan}"))
        found = column if found is None else found.unionByName(column, allowMissingColumns=True)
    assert found is not None
    values = [value for row in found.collect() for value in row if value is not None]
    assert values == [ids[kind] for kind, _ in plans]


def test_names_of_columns_may_have_dots(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "IBM")], "n long, symbol string")
    table = spark.createDataFrame(
        [(7, "symbol = 'IBM'", (8, ""))], "`a.b` int, `b.c` string, a struct<b: int, c: string>"
    )
    found = match(frame, table, id="a.b", filter="b.c", plan="index")
    assert found.columns == ["a.b", "n", "symbol"]
    assert [tuple(row) for row in found.collect()] == [(7, 1, "IBM")]


@pytest.mark.parametrize("plan", NAMES)
def test_without_subscriptions_nothing_matches(spark: SparkSession, plan: str) -> None:
    frame = spark.createDataFrame([(1, "IBM")], "n long, symbol string")
    table = spark.createDataFrame([], "subscription_id int, filter string")
    found = match(frame, table, plan=plan)
    assert found.dtypes[0] == ("subscription_id", "int")
    assert found.count() == 0


@pytest.mark.parametrize("plan", ["auto", "index", "sharded"])
def test_filters_that_do_not_parse_are_named_together(spark: SparkSession, plan: str) -> None:
    frame = spark.createDataFrame([(1.0,)], "price double")
    wrong = {f"wrong {n}": f"price >> {n}" for n in range(12)}
    with pytest.raises(PipelineDefinitionError) as caught:
        match(frame, {"right": "price > 1", **wrong, "null": None}, plan=plan)
    shown = str(caught.value)
    assert "13 subscriptions cannot be used" in shown
    assert len(re.findall(r"^  '(wrong \d+|null)': ", shown, re.MULTILINE)) == 10
    assert "price >> 1" in shown
    assert "and 3 more" in shown
    assert "'right'" not in shown


def test_what_is_wrong_with_subscriptions_is_said(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1.0, date(2024, 1, 1))], "price double, day date")
    table = spark.createDataFrame(
        [("a", "price > 1"), ("a", "price > 2"), ("b", "")], "subscription_id string, filter string"
    )
    for plan in ("index", "sharded"):
        with pytest.raises(PipelineDefinitionError, match="'a': the id is used more than once"):
            match(frame, table, plan=plan)
    nameless = spark.createDataFrame([(None, "")], "subscription_id string, filter string")
    for plan in ("index", "sharded"):
        with pytest.raises(PipelineDefinitionError, match="null"):
            match(frame, nameless, plan=plan)
    with pytest.raises(PipelineDefinitionError, match="the filter is null"):
        match(frame, {1: None})
    with pytest.raises(PipelineDefinitionError, match="no column 'who'"):
        match(frame, table, id="who")
    with pytest.raises(PipelineDefinitionError, match="filters are text"):
        match(frame, table.selectExpr("subscription_id", "1 as filter"))
    with pytest.raises(PipelineDefinitionError, match="an id is a single value"):
        match(frame, table.selectExpr("array(1) as subscription_id", "filter"))
    with pytest.raises(PipelineDefinitionError, match="all strings or all 64-bit integers"):
        match(frame, {1: "", "1": ""})
    with pytest.raises(PipelineDefinitionError, match="pairs of an id and a filter"):
        match(frame, ["price > 1"])
    with pytest.raises(PipelineDefinitionError, match="there is no plan 'best'"):
        match(frame, {}, plan="best")
    with pytest.raises(PipelineDefinitionError, match="shards=0"):
        match(frame, {}, shards=0)
    with pytest.raises(InvalidConfiguration, match="events are a DataFrame"):
        match("quotes", {})  # type: ignore[arg-type]
    with pytest.raises(PipelineDefinitionError, match="have a column 'price' already"):
        match(frame, table, id="price")
    with pytest.raises(PipelineDefinitionError, match="cannot be said in Spark's expressions"):
        match(frame, {"odd": "price multiple_of 2"}, plan="native")
    for plan in ("native", "index", "sharded"):
        with pytest.raises(UnsupportedColumn, match="'day' has the type date"):
            match(frame, {"today": "day = 1"}, plan=plan)
    with pytest.raises(PipelineDefinitionError, match="about subscriptions that are a stream"):
        match(frame, {}, on_error="skip")


def test_filters_may_be_given_parsed(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 5.0), (2, 50.0)], "n long, price double")
    given = [(7, Filter("price > 10")), (8, "price < 10")]
    for plan in ("native", "index"):
        assert pairs(match(frame, given, plan=plan)) == {(7, 2), (8, 1)}
