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

from stentor.pipeline import register, session
from stentor.pipeline.source.row_counts import counted

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


def quotes(spark: SparkSession, brokers: list[BrokerProcess], **options: Any) -> DataFrame:
    found: DataFrame = read(spark, brokers, columns=COLUMNS, **options).load()
    return found


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def test_a_table_of_events(spark: SparkSession, brokers: list[BrokerProcess]) -> None:
    events = quotes(spark, brokers, maxRowsPerPartition=64)
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
    everything = quotes(spark, brokers).collect()
    wanted = {r._id for r in everything if r.symbol == "IBM" and r.price and 100 < r.price <= 120}
    assert wanted
    by_predicate = quotes(spark, brokers).where("symbol = 'IBM' and price > 100 and price <= 120")
    by_filter = quotes(spark, brokers, filter="symbol = 'IBM' and price > 100 and price <= 120")
    assert {r._id for r in by_predicate.collect()} == wanted
    assert {r._id for r in by_filter.collect()} == wanted
    corrupt = quotes(spark, brokers).where("_corrupt is not null")
    assert {r._offset for r in corrupt.collect()} == {8, 108}
    dropped = quotes(spark, brokers, mode="dropMalformed")
    assert dropped.count() == 400 - 3
    with pytest.raises(PySparkException, match=r"offset 8 of broker 'b[12]' does not fit"):
        quotes(spark, brokers, mode="failfast").collect()


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
    # What is known of a type can be said; `events` says what the program has declared.
    known = json.dumps({"paid": "number", "venue": "string"})
    trades = spark.read.load(
        format="stentor", brokers=brokers[0].address, eventType="trade", sample=10, attributes=known
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


def test_a_schema_is_taken_as_it_is(spark: SparkSession, brokers: list[BrokerProcess]) -> None:
    """The source is one like any other: these columns and no more."""
    address = brokers[0].address
    for reader in (spark.read, spark.readStream):
        named = reader.format("stentor").schema("volume long, _offset long, _payload binary")
        assert named.load(address).columns == ["volume", "_offset", "_payload"]
        more = reader.format("STENTOR").option(
            "columns", "`a``, b` long, s struct<x: long, y: int>"
        )
        if reader is spark.read:
            assert more.load(address).columns == ["a`, b", "s", *STANDARD]
    row = spark.read.format("stentor").schema("_offset long, volume long").load(address).head()
    assert row is not None
    assert row.asDict() == {"_offset": 1, "volume": 0}
    some = spark.read.option("columns", "_offset long, volume long").format("stentor").load(address)
    assert some.columns == ["_offset", "volume", *(c for c in STANDARD if c != "_offset")]


def test_mistakes_are_told(spark: SparkSession, brokers: list[BrokerProcess]) -> None:
    """What Spark says has our words in it; `events` says them itself."""
    with pytest.raises(PySparkException, match="did you mean maxRowsPerPartition"):
        read(spark, brokers, maxRowsPerPartitions=1).load()
    with pytest.raises(PySparkException, match="use timestamp, and to_date on it"):
        read(spark, brokers).schema("day date").load().count()
    with pytest.raises(PySparkException, match="which brokers"):
        spark.read.format("stentor").load()
    with pytest.raises(PySparkException, match="price >> 3"):
        read(spark, brokers, filter="price >> 3").load()
    with pytest.raises(PySparkException, match="latest"):
        read(spark, brokers, startingOffsets="latest").schema(COLUMNS).load().count()
    with pytest.raises(PySparkException, match="attributes=3: write JSON"):
        read(spark, brokers, attributes="3").load()


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
            .schema("n short, _id string, _corrupt string")
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
    assert found.conf.get("spark.sql.python.filterPushdown.enabled") == "false"


def test_registering_changes_what_it_says_and_no_more(spark: SparkSession) -> None:
    fresh = spark.newSession()
    before = fresh.conf.getAll
    register(fresh)
    register(fresh)  # again does no harm
    after = fresh.conf.getAll
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed == {"spark.sql.adaptive.streaming.stateless.enabled"}
