"""Statistics: a file that is passed over holds nothing that was asked for."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)
from strategies import VALUES, events, filters

from stentor.filters import Filter
from stentor.pipeline.archives.facts import RowFilter, publishable
from stentor.pipeline.archives.moments import micros
from stentor.pipeline.archives.statistics import MAX_TEXT, Pruner, Statistics
from stentor.pipeline.archives.tables import Bounds, File
from stentor.pipeline.columns.layout import arrow_schema

KINDS: dict[str, list[DataType]] = {
    "x": [DoubleType(), LongType()],
    "y": [DoubleType()],
    "s": [StringType()],
    "b": [BooleanType()],
    "at": [TimestampType()],
    "tags": [ArrayType(StringType()), ArrayType(LongType())],
    "m": [StringType(), DoubleType(), BooleanType(), TimestampType()],
    "n": [DoubleType(), LongType()],
}
CLASSES: dict[type[DataType], tuple[type, ...]] = {
    DoubleType: (float,),
    LongType: (int,),
    StringType: (str,),
    BooleanType: (bool,),
    TimestampType: (datetime,),
}


def fits(value: Any, kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return isinstance(value, list | tuple) and all(fits(v, kind.elementType) for v in value)
    return type(value) in CLASSES[type(kind)]


def file_of(
    rows: list[dict[str, Any]], schema: StructType, kind: str | None
) -> tuple[File, pa.Table]:
    columns = {f.name: [row.get(f.name) for row in rows] for f in schema.fields}
    table = pa.table(columns, schema=arrow_schema(schema))
    return File("events-f", kind, None, len(rows), 1, 0, bounds=measured(table)), table


def measured(table: pa.Table) -> dict[str, Bounds]:
    """What the statistics of a commit say, as it is read of a table."""
    statistics = Statistics(table.schema)
    for batch in table.to_batches(max_chunksize=2):
        statistics.add(pa.Table.from_batches([batch]))
    written = json.loads(statistics.json())
    assert written["numRecords"] == table.num_rows

    def bounds(nulls: Any, low: Any, high: Any, within: str = "") -> Iterator[tuple[str, Bounds]]:
        for name, count in nulls.items():
            lower, upper = low.get(name), high.get(name)
            if isinstance(count, dict):
                yield from bounds(count, lower or {}, upper or {}, f"{within}{name}.")
            else:
                ends = [_micros(end) if _is_time(end) else end for end in (lower, upper)]
                yield within + name, Bounds(*ends, count)

    return dict(bounds(written["nullCount"], written["minValues"], written["maxValues"]))


def _is_time(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", text) is not None


def _micros(text: str) -> int:
    return micros(datetime.fromisoformat(text))


@given(st.data(), st.lists(events, min_size=1, max_size=5), filters)
def test_what_matches_is_never_passed_over(
    data: st.DataObject, drawn: list[dict[str, Any]], filter: Filter
) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(KINDS)), min_size=1))
    schema = StructType()
    for name in sorted(names):
        schema = schema.add(name, data.draw(st.sampled_from(KINDS[name])))
    rows = [
        {f.name: e[f.name] for f in schema if f.name in e and fits(e[f.name], f.dataType)}
        for e in drawn
    ]
    file, table = file_of(rows, schema, None)
    matching = [filter.matches(row) for row in rows]
    assert RowFilter(filter).matches(table).tolist() == matching
    assert Pruner(filter, table.schema).may_match(file) or not any(matching)
    assert publishable(table).tolist() == [bool(row) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        "price < 1 or price = 0.5",
        "symbol < 'a' or symbol prefix 'z'",
        "symbol = 'IBM' and price = 3",
        "volume > 10",
        "exists volume",
        "volume = 'many'",
        "exists later",
        "at >= time '2024-01-03T00:00:00Z'",
        "deep.x != 1",
        "_type = 'trade'",
        "isa trade",
    ],
)
def test_files_are_passed_over(text: str) -> None:
    schema = (
        StructType()
        .add("price", DoubleType())
        .add("symbol", StringType())
        .add("volume", LongType())
        .add("at", TimestampType())
        .add("deep", StructType().add("x", LongType()))
    )
    rows = [
        {"price": 1.0, "symbol": "a", "deep": {"x": 1}},
        {"price": 5.0, "symbol": "b", "at": datetime.fromisoformat("2024-01-02T00:00:00Z")},
        {"price": float("nan"), "symbol": "y", "deep": None},
    ]
    file, _ = file_of(rows, schema, "quote.stock")
    assert not Pruner(Filter(text), arrow_schema(schema)).may_match(file)


@pytest.mark.parametrize(
    "text", ["", "price >= 5", "price > 9", "price is missing", "isa quote", "_producer = 'p'"]
)
def test_files_are_not_passed_over(text: str) -> None:
    schema = StructType().add("price", DoubleType())
    file, _ = file_of([{"price": 5.0}, {"price": float("nan")}], schema, "quote.stock")
    assert Pruner(Filter(text), arrow_schema(schema)).may_match(file)


@given(st.lists(st.text(max_size=MAX_TEXT + 3), min_size=1, max_size=4), st.data())
def test_long_texts_are_cut_on_the_safe_side(texts: list[str], data: st.DataObject) -> None:
    long = [text + text[-1:] * data.draw(st.sampled_from([0, 0, MAX_TEXT])) for text in texts]
    schema = StructType().add("s", StringType())
    file, _ = file_of([{"s": text} for text in long], schema, None)
    bounds = file.bounds["s"]
    assert isinstance(bounds.low, str)
    assert all(bounds.low <= text for text in long)
    assert len(bounds.low) <= MAX_TEXT
    if bounds.high is None:
        assert max(long).startswith(chr(0x10FFFF))
    else:
        assert isinstance(bounds.high, str)
        assert all(text <= bounds.high for text in long)
        assert len(bounds.high) <= MAX_TEXT


def test_not_a_number_is_greater_than_all_in_sql() -> None:
    """So a column that has it has no greatest value, and its least one is that of the others."""
    schema = StructType().add("x", DoubleType())
    nan = float("nan")
    cases: list[tuple[list[float], Bounds]] = [
        ([1.0, nan, 3.0], Bounds(1.0, None, 0)),
        ([nan, nan], Bounds(None, None, 0)),
        ([1.0, 2.0, nan], Bounds(1.0, None, 0)),
        ([1.0, 2.0, 3.0], Bounds(1.0, 3.0, 0)),
    ]
    for values, bounds in cases:
        file, table = file_of([{"x": value} for value in values], schema, None)
        assert file.bounds["x"] == bounds
        statistics = Statistics(table.schema)
        statistics.add(table)
        assert statistics.doubtful() == ({"x"} if bounds.high is None else set())


def test_numbers_that_json_lacks_and_doubles_lack() -> None:
    schema = StructType().add("x", DoubleType()).add("n", LongType())
    rows = [{"x": float("-inf"), "n": 2**60}, {"x": float("inf"), "n": 2**60 + 1}]
    file, _ = file_of(rows, schema, None)
    assert file.bounds["x"] == Bounds(None, None, 0)
    columns = arrow_schema(schema)
    assert Pruner(Filter(f"n = {2**60 + 1}"), columns).may_match(file)
    assert not Pruner(Filter(f"n = {2**60 + 2}"), columns).may_match(file)


def test_the_values_of_the_strategies_are_covered() -> None:
    assert set(KINDS) == set(VALUES) - {"other"}
