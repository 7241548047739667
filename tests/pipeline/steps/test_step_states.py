"""Collapse and expand: histories become states and the other way round."""

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from event_files import Event, at, batch, drained, event, stream

from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.model import NotificationId
from stentor.pipeline.steps import collapse, expand, watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "case int, symbol string, price double, volume long, _id string, _time timestamp"

#: Rules that have a history, together with every function.
RULES: dict[str, dict[str, str]] = {
    "bars": {
        "open": "first price",
        "high": "max price",
        "low": "min price",
        "close": "last price",
        "volume": "sum",
        "trades": "count",
    },
    "counted": {"n": "count price", "price": "last", "high": "max price", "m": "count volume"},
    "added": {"total": "sum volume", "sales": "count volume", "average": "mean price"},
    "first": {"price": "first", "volume": "first"},
}


def histories(seed: int, cases: int) -> list[Event]:
    """Many small histories; in each, some symbols, values that repeat, and attributes missing."""
    rng = random.Random(seed)
    events = []
    for case in range(cases):
        for number in range(rng.randint(1, 6)):
            producer = rng.choice("pq")
            price = rng.choice([None, math.nan, math.inf, -0.5, 1.0, 2.0, 2.0, 3.25])
            volume = rng.choice([None, 0, 1, 7, -(2**40)])
            events.append(
                event(
                    f"{producer}:{rng.randint(0, 1)}:{number}",
                    rng.choice([1, 1, 2, 59, 61, 119.5]),
                    case=case,
                    symbol=rng.choice(["IBM", "IBM", "MSFT", None]),
                    price=price,
                    volume=volume,
                )
            )
    return events


def expected(events: list[Event], rule: dict[str, str], window: int | None) -> dict[Any, Any]:
    """The states by key, computed one by one."""
    groups: dict[Any, list[Event]] = {}
    for each in events:
        if each["symbol"] is not None:
            cut = None if window is None else int((_seconds(each)) // window)
            groups.setdefault((each["case"], each["symbol"], cut), []).append(each)
    return {
        key: {output: _value(group, text, output) for output, text in rule.items()}
        for key, group in groups.items()
    }


def _seconds(each: Event) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(each["_time"]) - at(0)).total_seconds()


def _value(group: list[Event], text: str, output: str) -> Any:
    function, _, attribute = text.partition(" ")
    if text == "count":
        return len(group)
    ordered = sorted(group, key=lambda e: (e["_time"], NotificationId.parse(e["_id"])))
    values = [e[attribute or output] for e in ordered]
    values = [v for v in values if v is not None and v == v]
    if function == "count":
        return len(values)
    if not values:
        return None
    found = {
        "first": lambda: values[0],
        "last": lambda: values[-1],
        "min": lambda: min(values),
        "max": lambda: max(values),
        "sum": lambda: sum(values),
        "mean": lambda: sum(values) / len(values),
    }[function]()
    return None if isinstance(found, float) and math.isnan(found) else found


def states(table: "DataFrame", rule: dict[str, str]) -> dict[Any, Any]:
    found = {}
    for row in table.collect():
        cut = None
        if "window_start" in table.columns:
            start = row["window_start"].timestamp()
            cut = round(start - at(0).timestamp()) // 60
        found[(row["case"], row["symbol"], cut)] = {name: row[name] for name in rule}
    return found


@pytest.mark.spec("R-07.59", "R-07.85")
@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("bars", "1 minute"),
        ("counted", None),
        pytest.param("added", None, marks=pytest.mark.slow),
        pytest.param("first", None, marks=pytest.mark.slow),
    ],
)
def test_collapse_follows_its_rule_and_expand_inverts_it(
    spark: "SparkSession", name: str, window: str | None
) -> None:
    rule = RULES[name]
    key = ["case", "symbol"]
    events = histories(len(name), 150)
    state = collapse(batch(spark, events, SCHEMA), key, rule, window).cache()
    assert states(state, rule) == expected(events, rule, 60 if window else None)
    again = collapse(expand(state, key, rule, window), key, rule, window)
    # Also the times and windows are the same.
    assert again.columns == state.columns
    difference = state.exceptAll(again).unionAll(again.exceptAll(state))
    assert difference.collect() == []
    state.unpersist()


def test_states_of_any_type_can_be_expanded(spark: "SparkSession") -> None:
    schema = "symbol string, note string, open boolean, at timestamp, day smallint, " + (
        "_id string, _time timestamp"
    )
    rule = {
        "note": "last",
        "least": "min note",
        "notes": "count note",
        "open": "first",
        "opens": "count open",
        "at": "max",
        "earliest": "min at",
        "times": "count at",
        "day": "last",
        "days": "count",
    }
    events = [
        event(f"p:0:{n}", n, symbol="A", note=f"n{n % 3}", open=n == 1, at=at(n), day=n)
        for n in range(1, 6)
    ]
    events.append(event("p:0:9", 9, symbol="B", note="alone"))
    table = batch(spark, events, schema)
    state = collapse(table, ["symbol"], rule)
    history = expand(state, ["symbol"], rule)
    assert {name: history.schema[name].dataType for name in ("note", "open", "at", "day")} == {
        name: table.schema[name].dataType for name in ("note", "open", "at", "day")
    }
    rows = {row["symbol"]: row for row in state.collect()}
    assert (rows["A"]["note"], rows["A"]["least"], rows["A"]["open"]) == ("n2", "n0", True)
    again = {row["symbol"]: row for row in collapse(history, ["symbol"], rule).collect()}
    assert again == rows


def test_expanded_events_have_ids_of_their_own_and_are_few(spark: "SparkSession") -> None:
    rule = RULES["bars"]
    events = [event(f"p:0:{n}", n, case=0, symbol="A", price=float(n % 9)) for n in range(50)]
    state = collapse(batch(spark, events, SCHEMA), ["symbol"], {**rule, "trades": "last price"})
    rows = expand(state, ["symbol"], {**rule, "trades": "last price"}).collect()
    assert len(rows) == 3  # first and smallest, largest, last
    assert len({row["_id"] for row in rows}) == 3
    assert [NotificationId.parse(row["_id"]).sequence for row in rows] == [0, 1, 2]


def test_a_state_of_nothing_is_nothing(spark: "SparkSession") -> None:
    empty = batch(spark, [], SCHEMA)
    assert collapse(empty, [], {"n": "count"}).collect() == []
    one = batch(spark, [event("p:0:0", 0, case=1)], SCHEMA)
    assert [row["n"] for row in collapse(one, [], {"n": "count"}).collect()] == [1]


def test_sums_that_are_too_large_are_null(spark: "SparkSession") -> None:
    events = [event(f"p:0:{n}", n, case=0, symbol="A", volume=2**62) for n in range(3)]
    (row,) = collapse(batch(spark, events, SCHEMA), ["symbol"], {"volume": "sum"}).collect()
    assert row["volume"] is None


def test_mistakes_are_told_when_the_step_is_made(spark: "SparkSession", tmp_path: Path) -> None:
    table = batch(spark, [], SCHEMA)
    with pytest.raises(PipelineError, match="did you mean 'price'"):
        collapse(table, ["symbol"], {"x": "last prize"})
    with pytest.raises(PipelineError, match="no column 'symbl'"):
        collapse(table, ["symbl"], {"price": "last"})
    with pytest.raises(PipelineDefinitionError):
        collapse(table, ["symbol"], {"price": "latest"})
    events = stream(spark, tmp_path / "none", [], SCHEMA)
    with pytest.raises(PipelineError, match="need a watermark"):
        collapse(events, ["symbol"], {"price": "last"}, window="1 minute")


def test_a_stream_tells_updates_of_its_state(spark: "SparkSession", tmp_path: Path) -> None:
    batches = [
        [event("p:0:0", 5, symbol="A", price=1.0), event("p:0:1", 5, symbol="B", price=2.0)],
        [event("p:0:2", 9, symbol="A", price=3.0), event("p:0:9", 1, symbol="B", price=9.0)],
    ]
    events = stream(spark, tmp_path / "in", batches, SCHEMA)
    latest = collapse(events, ["symbol"], {"price": "last", "n": "count"})
    first, second = drained(latest, "update")
    assert {(r["symbol"], r["price"], r["n"]) for r in first} == {("A", 1.0, 1), ("B", 2.0, 1)}
    # What came late has not become the latest.
    assert {(r["symbol"], r["price"], r["n"]) for r in second} == {("A", 3.0, 2), ("B", 2.0, 2)}


@pytest.mark.slow
def test_windows_of_a_stream_are_told_once_and_can_be_collapsed_again(
    spark: "SparkSession", tmp_path: Path
) -> None:
    seconds = [*range(0, 600, 20), 3600]
    batches = [
        [event(f"p:0:{s}", s, symbol="A", price=float(s)) for s in seconds[i : i + 16]]
        for i in range(0, len(seconds), 16)
    ]
    events = watermark(stream(spark, tmp_path / "in", batches, SCHEMA), "10 seconds")
    minutes = collapse(events, ["symbol"], {"high": "max price", "n": "count"}, window="1 minute")
    fives = collapse(minutes, ["symbol"], {"high": "max", "n": "sum"}, window="5 minutes")
    rows = [row for rows in drained(fives) for row in rows]
    assert sorted((row["high"], row["n"]) for row in rows) == [(280.0, 15), (580.0, 15)]
