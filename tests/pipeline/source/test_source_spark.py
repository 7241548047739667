"""The source inside of Spark: batches with predicates, schemas, and a stream over restarts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from journal_filling import TIME, fill
from overlay_processes import LIMITS, BrokerProcess, Overlay
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from stentor.errors import FilterSyntaxError, InvalidConfiguration, UnsupportedColumn
from stentor.model.event_types import event_types
from stentor.pipeline import register, session
from stentor.pipeline.source import counted

if TYPE_CHECKING:
    from nursery import Nursery
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "symbol string, price double, volume long"
STANDARD = ["_id", "_type", "_time", "_broker", "_offset", "_corrupt"]


def quote(n: int) -> dict[str, Any]:
    symbol = ("IBM", "SAP", "SIE")[n % 3]
    found: dict[str, Any] = {"symbol": symbol, "price": n / 2, "volume": n, "pos.x": n}
    if n % 10 == 0:
        found["price"] = n  # an integer among floats
    if n % 100 == 7:
        found["volume"] = "many"
    if n % 5 == 0:
        found["tags"] = {"a", f"t{n}"}
    return found


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, nursery: Nursery
) -> Iterator[list[BrokerProcess]]:
    """Two brokers with 300 quotes and 100 trades between them."""
    with Overlay(tmp_path_factory.mktemp("brokers"), nursery) as overlay:
        found = [overlay.broker(name, limits=LIMITS) for name in ("b1", "b2")]
        for broker in found:
            broker.start()
        fill(found[0], range(200), quote, type="quote.stock")
        fill(found[1], range(200, 300), quote, type="quote")
        fill(found[1], range(100), lambda n: {"id": n, "paid": 0.5}, "till", type="trade")
        yield found


def read(spark: SparkSession, brokers: list[BrokerProcess], **options: Any) -> Any:
    reader = spark.read.format("stentor").option("brokers", ",".join(b.address for b in brokers))
    return reader.options(**options)


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def test_a_table_of_events(spark: SparkSession, brokers: list[BrokerProcess]) -> None:
    events: DataFrame = read(spark, brokers, maxRowsPerPartition=64).schema(COLUMNS).load()
    assert events.columns == ["symbol", "price", "volume", *STANDARD]
    assert events.rdd.getNumPartitions() == 4 + 4
    rows = events.where("_type like 'quote%'").collect()
    assert len(rows) == 300
    by_number = {int(row._id.split(":")[2]): row for row in rows}
    for n in range(300):
        row = by_number[n]
        assert (row.symbol, row.price) == (quote(n)["symbol"], n / 2 if n % 10 else n)
        assert row.volume == (None if n % 100 == 7 else n)
        assert row._corrupt == ('{"volume": "many"}' if n % 100 == 7 else None)
        assert (row._broker, row._offset) == (("b1", n + 1) if n < 200 else ("b2", n - 199))
        assert row._type == ("quote.stock" if n < 200 else "quote")
    # The session's time zone has no say in what instant it is.
    assert [r[0] for r in events.select(F.unix_micros("_time")).distinct().collect()] == [
        int(TIME.timestamp() * 1e6)
    ]


def test_predicates_and_filters_leave_the_same_rows(
    spark: SparkSession, brokers: list[BrokerProcess]
) -> None:
    everything = read(spark, brokers).schema(COLUMNS).load().collect()
    wanted = {r._id for r in everything if r.symbol == "IBM" and r.price and 100 < r.price <= 120}
    assert wanted
    by_predicate = read(spark, brokers).schema(COLUMNS).load()
    by_predicate = by_predicate.where("symbol = 'IBM' and price > 100 and price <= 120")
    by_filter = read(spark, brokers, filter="symbol = 'IBM' and price > 100 and price <= 120")
    assert {r._id for r in by_predicate.collect()} == wanted
    assert {r._id for r in by_filter.schema(COLUMNS).load().collect()} == wanted
    corrupt = read(spark, brokers).schema(COLUMNS).load().where("_corrupt is not null")
    assert {r._offset for r in corrupt.collect()} == {8, 108}
    dropped = read(spark, brokers, mode="dropMalformed").schema(COLUMNS).load()
    assert dropped.count() == 400 - 3
    with pytest.raises(PySparkException, match=r"offset 8 of broker 'b[12]' does not fit"):
        read(spark, brokers, mode="failfast").schema(COLUMNS).load().collect()


def test_a_schema_is_inferred(spark: SparkSession, brokers: list[BrokerProcess]) -> None:
    events = read(spark, brokers).load()
    assert events.drop(*STANDARD).schema.simpleString() == (
        "struct<id:bigint,paid:double,pos:struct<x:bigint>,price:double,symbol:string,"
        "tags:array<string>,volume:bigint>"
    )
    assert events.columns[-6:] == STANDARD
    found = events.where("array_contains(tags, 'a') and pos.x < 20").select("tags", "pos.x")
    assert {row.x: row.tags for row in found.collect()} == {
        n: sorted({"a", f"t{n}"}) for n in (0, 5, 10, 15)
    }
    trades = read(spark, brokers, eventType="trade").load()
    assert trades.columns == ["id", "paid", *STANDARD]
    assert trades.count() == 100
    # What the program declares of a type, the process that infers is told.
    event_types.declare("trade", attributes={"paid": "number", "venue": "string"})
    trades = spark.read.load(
        format="stentor", brokers=brokers[0].address, eventType="trade", sample=10
    )
    assert dict(trades.dtypes)["venue"] == "string"
    with pytest.raises(PySparkException, match="no events to infer a schema from"):
        read(spark, brokers, filter="price = -1").load()


def test_where_a_batch_begins_and_ends(spark: SparkSession, brokers: list[BrokerProcess]) -> None:
    limits = {"startingOffsets": '{"b1": 195}', "endingOffsets": '{"b2": 4}'}
    events = read(spark, brokers, **limits).schema("_id string").load()
    numbers = sorted(int(row._id.split(":")[2]) for row in events.collect())
    assert numbers == [*range(194, 200), *range(200, 203)]
    none = read(spark, brokers, endingTimestamp="2000-01-01T00:00:00Z").schema(COLUMNS).load()
    assert none.collect() == []


def test_readers_of_other_formats_are_left_alone(
    spark: SparkSession, brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    register(spark)  # twice does no harm
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"a": 1, "_id": "x"}) + "\n")
    assert spark.read.schema("a long").json(str(file)).columns == ["a"]
    assert spark.read.schema("a long").format("json").load(str(file)).columns == ["a"]
    stream = spark.readStream.format("json").schema("a long, _id string").load(str(tmp_path))
    assert stream.columns == ["a", "_id"]
    # In whatever order it is said, and what is named is not added twice.
    address = brokers[0].address
    first = spark.read.schema("a long, _offset long").format("stentor").load(address)
    assert first.columns == ["a", "_offset", "_id", "_type", "_time", "_broker", "_corrupt"]
    second = spark.readStream.schema("a long").option("brokers", address).format("STENTOR").load()
    assert second.columns == ["a", *STANDARD]


def test_mistakes_are_told(spark: SparkSession, brokers: list[BrokerProcess]) -> None:
    """By this program, not from within Spark, where that is possible."""
    with pytest.raises(InvalidConfiguration, match="did you mean maxRowsPerPartition"):
        read(spark, brokers, maxRowsPerPartitions=1).schema(COLUMNS).load()
    with pytest.raises(UnsupportedColumn, match="use timestamp, and to_date on it"):
        read(spark, brokers).schema("day date").load()
    with pytest.raises(InvalidConfiguration, match="which brokers"):
        spark.read.format("stentor").load()
    with pytest.raises(FilterSyntaxError, match="price >> 3"):
        read(spark, brokers, filter="price >> 3").load()
    with pytest.raises(InvalidConfiguration, match="latest"):
        read(spark, brokers, startingOffsets="latest").schema(COLUMNS).load()


def environment(spark: SparkSession) -> set[str]:
    """The names of the entries that all queries on the source share."""
    known: Any = spark._jsparkSession.sessionState().dataSourceManager()
    return set(known.lookupDataSource("stentor").dataSourceCls().envVars())


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, overlay: Overlay, tmp_path: Path
) -> None:
    broker = overlay.broker("b1", limits=LIMITS)
    broker.start()

    def run() -> Any:
        events = (
            spark.readStream.format("stentor")
            .option("brokers", broker.address)
            .option("filter", "n >= 10")
            .option("maxRowsPerBatch", 400)
            .schema("n short")
            .load()
        )
        query = (
            counted(events, "numbers")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(120)
        return query

    fill(broker, range(1000))
    fill(broker, [1000], lambda n: {"n": 10**6})  # too much for the column
    shared = environment(spark)
    first = run()
    assert environment(spark) == shared  # another query may be writing it into its tasks
    assert [p["numInputRows"] for p in first.recentProgress] == [390, 400, 201]
    observed = [p["observedMetrics"]["numbers"] for p in first.recentProgress]
    assert [(o["rows"], o["corrupt"]) for o in observed] == [(390, 0), (400, 0), (201, 1)]
    fill(broker, range(1001, 1100))
    broker.restart()
    run()
    table = spark.read.parquet(str(tmp_path / "table"))
    numbers = [None, *range(10, 1000), *range(1001, 1100)]
    assert [row.n for row in table.orderBy("n").collect()] == numbers
    assert table.select("_id").distinct().count() == 1090


def test_workers_run_the_python_that_has_the_package(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    register(spark)  # somebody has chosen one: the environment says which
    assert spark.sparkContext.pythonExec == "python3"
    monkeypatch.delenv("PYSPARK_PYTHON")
    register(spark)
    assert spark.sparkContext.pythonExec == sys.executable


def test_a_session_knows_the_format(spark: SparkSession) -> None:
    found = session(master="local[2]")  # the one that runs
    assert found.sparkContext is spark.sparkContext
    assert found.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
