"""Select, transform, rename, convert, enrich, apply, join and queries, on batches and streams."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from event_files import batch, drained, event, stream

from stentor import Notification
from stentor.errors import PipelineDefinitionError, PipelineError
from stentor.pipeline.steps import (
    apply,
    convert,
    deduplicate,
    enrich,
    join,
    multi_topic,
    relational,
    rename,
    select,
    transform,
)
from stentor.pipeline.steps.events import has_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "symbol string, price double, volume string, pos struct<x: int>, _id string, _type string, "
    "_time timestamp, _broker string, _corrupt string"
)

QUOTES = [
    event("p:0:0", 0, symbol="IBM", price=101.0, volume="5", pos={"x": 1}, _broker="b1"),
    event("p:0:1", 10, symbol="IBM", price=99.0, volume="many", _corrupt='{"size": "big"}'),
    event("p:0:2", 20, symbol="MSFT", price=float("nan"), volume="7", pos={"x": 2}),
    event("p:0:3", 30, price=300.0, _type="quote"),
    event("p:0:4", 40, _type="nothing"),
]
NEWS = [
    event("n:0:0", 5, symbol="IBM", headline="up", urgency=5),
    event("n:0:1", 8, symbol="IBM", headline="down", urgency=1),
    event("n:0:2", 21, symbol="MSFT", headline="new", urgency=4),
    event("n:0:3", 500, symbol="MSFT", headline="late", urgency=4),
]
NEWS_SCHEMA = "symbol string, headline string, urgency int, _id string, _time timestamp"


@pytest.fixture
def quotes(spark: "SparkSession") -> "DataFrame":
    return batch(spark, QUOTES, SCHEMA)


@pytest.fixture
def news(spark: "SparkSession") -> "DataFrame":
    return batch(spark, NEWS, NEWS_SCHEMA)


def ids(table: "DataFrame") -> list[str]:
    return sorted(row["_id"] for row in table.select("_id").collect())


@pytest.mark.spec("R-07.59")
def test_select_keeps_what_the_filter_matches(quotes: "DataFrame") -> None:
    wanted = "(symbol = 'IBM' and price > 100) or pos.x = 2 or _type = 'nothing'"
    chosen = select(quotes, wanted)
    assert chosen.schema == quotes.schema
    assert ids(chosen) == ["p:0:0", "p:0:2", "p:0:4"]


@pytest.mark.spec("R-07.59")
def test_transform_computes_from_the_event_as_it_was(quotes: "DataFrame") -> None:
    changed = transform(
        quotes, {"price": "price * 2", "old": "price", "_type": "'trade'"}, keep=["symbol", "price"]
    )
    assert changed.columns == [
        "symbol",
        "price",
        "old",
        *("_id", "_type", "_time", "_broker", "_corrupt"),
    ]
    row = changed.where("_id = 'p:0:0'").first()
    assert row is not None
    assert (row["price"], row["old"], row["_type"]) == (202.0, 101.0, "trade")
    assert transform(quotes, {"x": "1"}, keep="none").columns[:2] == ["x", "_id"]
    with pytest.raises(PipelineDefinitionError, match="_offset"):
        transform(quotes, {"_offset": "1"})
    with pytest.raises(PipelineDefinitionError, match=r"write \['symbol'\]"):
        transform(quotes, {"x": "1"}, keep="symbol")


def test_rename_can_swap(quotes: "DataFrame") -> None:
    swapped = rename(quotes, {"symbol": "volume", "volume": "symbol"})
    row = swapped.where("_id = 'p:0:0'").first()
    assert row is not None
    assert (row["symbol"], row["volume"]) == ("5", "IBM")
    with pytest.raises(PipelineError, match="two columns 'price'"):
        rename(quotes, {"symbol": "price"})
    with pytest.raises(PipelineDefinitionError):
        rename(quotes, {"symbol": "_id"})


def test_convert_notes_what_does_not_fit(quotes: "DataFrame") -> None:
    converted = convert(quotes, {"volume": "long"})
    rows = {row["_id"]: row for row in converted.collect()}
    assert [rows[f"p:0:{n}"]["volume"] for n in range(3)] == [5, None, 7]
    assert json.loads(rows["p:0:1"]["_corrupt"]) == {"size": "big", "volume": "many"}
    assert [rows[f"p:0:{n}"]["_corrupt"] for n in (0, 2, 3)] == [None, None, None]


def test_convert_takes_arrays_as_a_whole_and_looks_into_records(spark: "SparkSession") -> None:
    schema = (
        "sizes array<string>, pos struct<x: string, y: string>, _id string, _time timestamp, "
        "_corrupt string"
    )
    noted = '{"old":{"deep":1}}'
    events = [
        event("p:0:0", 0, sizes=["1", None, "3"], pos={"x": "1", "y": None}),
        event("p:0:1", 0, sizes=["1", "two"], pos={"x": "1", "y": "up"}, _corrupt=noted),
        event("p:0:2", 0),
    ]
    converted = convert(
        batch(spark, events, schema), {"sizes": "array<long>", "pos": "struct<x: int, y: int>"}
    )
    rows = {row["_id"]: row for row in converted.collect()}
    assert rows["p:0:0"]["sizes"] == [1, None, 3]
    assert rows["p:0:1"]["sizes"] is None
    assert [rows[f"p:0:{n}"]["pos"] for n in range(3)] == [(1, None), (1, None), None]
    assert [rows[f"p:0:{n}"]["_corrupt"] for n in (0, 2)] == [None, None]
    assert json.loads(rows["p:0:1"]["_corrupt"]) == {
        "old": {"deep": 1},
        "sizes": ["1", "two"],
        "pos": {"x": "1", "y": "up"},
    }


def test_enrich_adds_what_a_table_knows(spark: "SparkSession", quotes: "DataFrame") -> None:
    rows = [("IBM", "hardware", 1), ("IBM", "services", 2), ("SAP", "software", 3)]
    companies = spark.createDataFrame(rows, "symbol string, sector string, rank int")
    known = enrich(quotes, companies, on=["symbol"], columns=["sector"])
    assert {row["_id"]: row["sector"] for row in known.collect()} == {
        "p:0:0": "services",
        "p:0:1": "services",
        "p:0:2": None,
        "p:0:3": None,
        "p:0:4": None,
    }
    with pytest.raises(PipelineError, match="a prefix"):
        enrich(quotes, companies.withColumnRenamed("rank", "price"), on=["symbol"])


def test_apply_maps_notifications_to_any_number(quotes: "DataFrame") -> None:
    def split(n: Notification) -> list[Notification] | Notification | None:
        """One for each letter of the symbol; without one, the price, if there is one."""
        if "symbol" in n:
            return [n.replace(attributes={"letter": letter}) for letter in n["symbol"][:2]]
        return n.replace(attributes={"letter": n["price"]}) if "price" in n else None

    mapped = apply(quotes, split, "letter string")
    found = {row["_id"]: row for row in mapped.collect()}
    assert sorted((id, row["letter"]) for id, row in found.items() if row["letter"]) == [
        ("p+1:0:0", "B"),
        ("p+1:0:1", "B"),
        ("p+1:0:2", "S"),
        ("p:0:0", "I"),
        ("p:0:1", "I"),
        ("p:0:2", "M"),
    ]
    # A number is no string: it is noted, not lost.
    assert json.loads(found["p:0:3"]["_corrupt"]) == {"letter": 300.0}
    assert "p:0:4" not in found
    assert found["p+1:0:0"]["_broker"] == "b1"
    assert found["p+1:0:0"]["_time"] == found["p:0:0"]["_time"]
    with pytest.raises(PipelineDefinitionError, match="cannot be found"):
        apply(quotes, "event_files:nothing", "x int")


def test_apply_leaves_out_what_is_no_notification(spark: "SparkSession") -> None:
    schema = "pos struct<x: double, at: struct<y: int>>, _id string, _time timestamp"
    nowhere: list[object] = [None, {"x": None, "at": {"y": None}}, {"x": float("nan"), "at": None}]
    events = [event(f"p:0:{n}", 0, pos=pos) for n, pos in enumerate(nowhere)]
    table = batch(spark, [*events, event("p:0:3", 0, pos={"x": None, "at": {"y": 1}})], schema)
    assert ids(apply(table, lambda n: n, "`pos.at.y` int")) == ["p:0:3"]
    with pytest.raises(PipelineError, match="nothing that a function could see"):
        apply(table.drop("pos"), lambda n: n, "x int")


@pytest.mark.spec("R-07.44")
def test_join_pairs_what_is_close(quotes: "DataFrame", news: "DataFrame") -> None:
    def pairs(**options: object) -> set[tuple[str, str | None]]:
        joined = join(quotes, news, on=["symbol"], within="10 seconds", **options)  # type: ignore[arg-type]
        return {(row["_id"], row["headline"]) for row in joined.collect()}

    around = {("p:0:0", "up"), ("p:0:0", "down"), ("p:0:1", "up"), ("p:0:1", "down")}
    assert pairs() == around | {("p:0:2", "new")}
    assert pairs(side="before") == {("p:0:1", "up"), ("p:0:1", "down")}
    alone = {("p:0:1", None), ("p:0:3", None), ("p:0:4", None)}
    assert pairs(side="after", where="right.urgency > 3", how="left") == {
        ("p:0:0", "up"),
        ("p:0:2", "new"),
        *alone,
    }
    with pytest.raises(PipelineDefinitionError, match="side is one of"):
        pairs(side="left")
    joined = join(quotes, news.withColumnRenamed("headline", "price"), on=["symbol"])
    assert {"right_price", "right_id", "right_time"} <= set(joined.columns)


@pytest.mark.spec("R-07.44", "R-07.61")
def test_queries_join_filter_aggregate_and_project(
    spark: "SparkSession", quotes: "DataFrame", news: "DataFrame"
) -> None:
    quotes.limit(0).createOrReplaceTempView("quotes")  # must not be mistaken for ours
    before = {table.name for table in spark.catalog.listTables()}
    answer = multi_topic(
        """
        WITH urgent AS (SELECT * FROM news WHERE urgency > 3)
        SELECT quotes.symbol, count(*) AS pairs, max(quotes.price) AS price
        FROM quotes JOIN urgent ON quotes.symbol = urgent.symbol
        GROUP BY quotes.symbol  -- nothing else;
        """,
        quotes=quotes.where("not isnan(price)"),
        news=news,
    )
    assert [tuple(row) for row in answer.collect()] == [("IBM", 2, 101.0)]
    assert {table.name for table in spark.catalog.listTables()} == before
    spark.catalog.dropTempView("quotes")
    assert relational(quotes, "SELECT max(price) AS m FROM events WHERE price < 200").first() == (
        101.0,
    )
    for query in ("SELECT nothing FROM events", "DROP TABLE events", "SELECT"):
        with pytest.raises(PipelineError, match="cannot be answered"):
            relational(quotes, query)


def test_deduplicate_goes_by_id_alone(spark: "SparkSession", tmp_path: Path) -> None:
    def one(id: str | None, seconds: float) -> dict[str, object]:
        return event(id, seconds, symbol="A", price=1.0)  # type: ignore[arg-type]

    first = [one("p:0:0", 0), one("p:0:1", 0), one("p:0:0", 0), one(None, 1), one(None, 1)]
    later = [one("p:0:1", 0), one("p:0:2", 2), one("p:0:0", 0)]
    wanted = ["None", "None", "p:0:0", "p:0:1", "p:0:2"]
    table = deduplicate(batch(spark, [*first, *later], SCHEMA))
    assert sorted(str(row["_id"]) for row in table.collect()) == wanted
    events = stream(spark, tmp_path / "in", [first, later], SCHEMA)
    rows = [row for rows in drained(deduplicate(events, "1 minute")) for row in rows]
    assert sorted(str(row["_id"]) for row in rows) == wanted


def test_deduplicate_loses_no_event_for_being_late(spark: "SparkSession", tmp_path: Path) -> None:
    """One broker is up to date; what another has kept for a day comes behind it."""

    def one(id: str, seconds: float | None) -> dict[str, object]:
        found = event(id, seconds or 0, symbol="A")
        return found if seconds is not None else {**found, "_time": None}

    day = 86_400.0
    batches = [
        [one("new:0:0", day), one("old:0:0", 0), one("timeless:0:0", None)],
        [one("new:0:1", day + 10)],
        [one("old:0:1", 10), one("old:0:1", 10), one("new:0:0", day), one("timeless:0:0", None)],
        [one("old:0:2", 20), one("new:0:1", day + 10)],
        [one("old:0:3", 30)],
    ]
    events = stream(spark, tmp_path / "in", batches, SCHEMA)
    unique = deduplicate(events, "1 minute")
    assert unique.columns == events.columns
    assert has_watermark(unique)
    found: list[str] = []

    def collect(rows: "DataFrame", number: int) -> None:
        found.extend(row["_id"] for row in rows.select("_id").collect())

    query = unique.writeStream.foreachBatch(collect).trigger(availableNow=True).start()
    query.awaitTermination()
    late = [f"old:0:{n}" for n in range(4)]
    assert sorted(found) == ["new:0:0", "new:0:1", *late, "timeless:0:0"]
    # Ids are forgotten as the watermark goes: what was late at once.
    (state,) = query.lastProgress["stateOperators"]  # type: ignore[index]
    assert state["numRowsTotal"] < len(found)
    assert state["numRowsDroppedByWatermark"] == 0


@pytest.mark.slow
def test_joined_streams_go_on(spark: "SparkSession", tmp_path: Path) -> None:
    """The pairs are events like others: they can be joined again, and deduplicated."""
    left = stream(spark, tmp_path / "quotes", [QUOTES[:1], QUOTES[1:]], SCHEMA)
    right = stream(spark, tmp_path / "news", [NEWS[:2], NEWS[2:]], NEWS_SCHEMA)
    pairs = join(left, right, on=["symbol"], within="10 seconds")
    again = join(pairs, right, on=["symbol"], within="10 seconds", prefix="again_")
    rows = [row for rows in drained(deduplicate(again, "10 seconds")) for row in rows]
    assert sorted(row["_id"] for row in rows) == ["p:0:0", "p:0:1", "p:0:2"]


@pytest.mark.slow
def test_streams_are_joined(spark: "SparkSession", tmp_path: Path) -> None:
    left = stream(spark, tmp_path / "quotes", [QUOTES[:1], QUOTES[1:]], SCHEMA)
    right = stream(spark, tmp_path / "news", [NEWS[:2], NEWS[2:]], NEWS_SCHEMA)
    joined = join(left, right, on=["symbol"], within="10 seconds")
    rows = [row for rows in drained(joined) for row in rows]
    assert sorted((row["_id"], row["headline"]) for row in rows) == [
        ("p:0:0", "down"),
        ("p:0:0", "up"),
        ("p:0:1", "down"),
        ("p:0:1", "up"),
        ("p:0:2", "new"),
    ]
