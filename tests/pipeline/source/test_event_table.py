"""One table under many queries: none sees the rows of another, in whatever form they are asked."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from journal_filling import fill
from overlay_processes import LIMITS, BrokerProcess, Overlay
from pyspark.sql import functions as F

from stentor import Filter
from stentor.errors import (
    FilterSyntaxError,
    InvalidConfiguration,
    PipelineError,
    Unreachable,
    UnsupportedColumn,
)
from stentor.model.event_types import event_types
from stentor.pipeline import events, match, register

if TYPE_CHECKING:
    from nursery import Nursery
    from pyspark.sql import DataFrame, SparkSession

    from stentor.pipeline.event_table import Events

COLUMNS = "n long, symbol string, price double, volume long"
STANDARD = ["_id", "_type", "_time", "_broker", "_offset", "_corrupt"]
SYMBOLS = ("IBM", "it's", 'a "b"', "ö, %_\\", "")
#: Beyond what a double holds.
LARGE = 2**53
COUNT = 120


def event(n: int) -> dict[str, Any]:
    found: dict[str, Any] = {"n": n, "symbol": SYMBOLS[n % len(SYMBOLS)]}
    if n % 4:
        found["price"] = n / 2
    if n % 7:
        found["volume"] = LARGE + n
    return found


@dataclass(frozen=True)
class Predicate:
    """A condition in SQL, in Stentor's language, and as a function that may not know."""

    sql: str
    filter: str
    holds: Callable[[dict[str, Any]], bool | None]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def sql_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def atom(random: Random) -> Predicate:
    kind = random.randrange(4)
    if kind == 0:
        symbol = random.choice([*SYMBOLS, "nobody's"])
        return Predicate(
            f"symbol = {sql_quoted(symbol)}",
            f"symbol = {quoted(symbol)}",
            lambda e: e["symbol"] == symbol,
        )
    if kind == 1:
        bound = random.randrange(COUNT) / 2
        return Predicate(
            f"price > {bound}",
            f"price > {bound}",
            lambda e: None if "price" not in e else e["price"] > bound,
        )
    if kind == 2:
        least = LARGE + random.randrange(COUNT)
        return Predicate(
            f"volume >= {least}",
            f"volume >= {least}",
            lambda e: None if "volume" not in e else e["volume"] >= least,
        )
    return Predicate("volume is null", "not exists volume", lambda e: "volume" not in e)


def predicate(random: Random, depth: int = 2) -> Predicate:
    """Also with "and" and "or"; a negation means something else in either language."""
    if not depth or random.random() < 0.3:
        return atom(random)
    left, right = predicate(random, depth - 1), predicate(random, depth - 1)
    word = random.choice(["and", "or"])
    meaning = (
        (lambda e: left.holds(e) and right.holds(e))
        if word == "and"
        else (lambda e: left.holds(e) or right.holds(e))
    )
    return Predicate(
        f"(({left.sql}) {word} ({right.sql}))",
        f"(({left.filter}) {word} ({right.filter}))",
        meaning,
    )


EVENTS = [event(n) for n in range(COUNT)]


def chosen(*predicates: Predicate) -> list[int]:
    """The numbers of the events for which all hold."""
    return [e["n"] for e in EVENTS if all(p.holds(e) for p in predicates)]


def numbers(frame: Any) -> list[int]:
    return sorted(row.n for row in frame.select("n").collect())


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, nursery: Nursery
) -> Iterator[list[BrokerProcess]]:
    """Two brokers that share the events, some of the type "trade"."""
    with Overlay(tmp_path_factory.mktemp("brokers"), nursery) as overlay:
        found = [overlay.broker(name, limits=LIMITS) for name in ("b1", "b2")]
        for broker in found:
            broker.start()
        fill(found[0], range(0, COUNT, 2), event)
        fill(found[1], range(1, COUNT, 2), event)
        yield found


def addresses(brokers: list[BrokerProcess]) -> str:
    return ",".join(broker.address for broker in brokers)


@pytest.fixture
def quotes(spark: SparkSession, brokers: list[BrokerProcess]) -> Events:
    return events(spark, brokers=addresses(brokers), columns=COLUMNS)


# -- ways to ask one table, and what they must answer


def ask_filtered(table: DataFrame, one: Predicate, two: Predicate) -> None:
    assert numbers(table.where(one.sql)) == chosen(one)
    assert table.count() == COUNT


def ask_union(table: DataFrame, one: Predicate, two: Predicate) -> None:
    found = numbers(table.where(one.sql).union(table.where(two.sql)).union(table))
    assert found == sorted(chosen(one) + chosen(two) + chosen())


def ask_view(table: DataFrame, one: Predicate, two: Predicate) -> None:
    table.createOrReplaceTempView("quotes")
    (row,) = table.sparkSession.sql(
        f"select (select count(*) from quotes where {one.sql}) as one, count(*) as all, "
        f"(select count(*) from quotes where {two.sql}) as two from quotes"
    ).collect()
    assert (row.one, row.two, row.all) == (len(chosen(one)), len(chosen(two)), COUNT)


def ask_subquery(table: DataFrame, one: Predicate, two: Predicate) -> None:
    table.createOrReplaceTempView("quotes")
    found = table.sparkSession.sql(
        f"select n from quotes where {one.sql} and n in (select n from quotes where {two.sql})"
    )
    assert numbers(found) == chosen(one, two)


def ask_join(table: DataFrame, one: Predicate, two: Predicate) -> None:
    other = table.where(two.sql).select("n")
    assert numbers(table.where(one.sql).join(other, "n")) == chosen(one, two)
    assert numbers(table.join(other, "n", "left_anti")) == sorted(set(chosen()) - set(chosen(two)))


def ask_match(table: DataFrame, one: Predicate, two: Predicate) -> None:
    assert table.where(one.sql).count() == len(chosen(one))
    matched = match(table, {"one": one.filter, "two": two.filter})
    found = Counter(row.subscription_id for row in matched.collect())
    assert found == Counter({"one": len(chosen(one)), "two": len(chosen(two))})


def ask_cached(table: DataFrame, one: Predicate, two: Predicate) -> None:
    cached = table.where(one.sql).cache()
    try:
        assert numbers(cached) == chosen(one)
        assert numbers(table.where(two.sql)) == chosen(two)
        assert numbers(cached.where(two.sql)) == chosen(one, two)
    finally:
        cached.unpersist()
    assert numbers(table.where(one.sql)) == chosen(one)


def ask_aggregate(table: DataFrame, one: Predicate, two: Predicate) -> None:
    some = table.where(one.sql).groupBy("symbol").count().withColumnRenamed("count", "some")
    found = table.groupBy("symbol").count().join(some, "symbol", "left").collect()
    by_symbol = Counter(EVENTS[n]["symbol"] for n in chosen(one))
    assert {row.symbol: row.some or 0 for row in found} == {s: by_symbol[s] for s in SYMBOLS}
    assert sum(row["count"] for row in found) == COUNT


WAYS = (
    ask_filtered,
    ask_union,
    ask_view,
    ask_subquery,
    ask_join,
    ask_match,
    ask_cached,
    ask_aggregate,
)


def ask_in_turns(table: DataFrame, random: Random, turns: int) -> None:
    ways = list(WAYS)
    random.shuffle(ways)
    for turn in range(turns):
        ways[turn % len(ways)](table, predicate(random), predicate(random))


def test_a_dataframe_answers_each_query_for_itself(
    spark: SparkSession, brokers: list[BrokerProcess]
) -> None:
    """In a session where predicates are handed to sources, for others that want them."""
    other = spark.newSession()
    other.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    quotes = events(other, brokers=addresses(brokers), columns=COLUMNS)
    ask_in_turns(quotes.table(), Random(1), len(WAYS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_dataframes_answer_each_query_for_themselves(
    spark: SparkSession, brokers: list[BrokerProcess], seed: int
) -> None:
    """However they were made, in sessions of their own, and side by side."""
    random = Random(seed)
    address = addresses(brokers)
    register(spark)
    plain = spark.read.format("stentor").option("columns", COLUMNS).load(address)
    other = events(spark.newSession(), brokers=address, columns=COLUMNS)
    tables = [plain, events(spark, brokers=address).table(), other.table()]
    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(lambda table: ask_in_turns(table, Random(random.random()), 16), tables))


def test_brokers_filter_by_what_events_are_told(spark: SparkSession, quotes: Events) -> None:
    random = Random(9)
    one, two, three = predicate(random), predicate(random), predicate(random)
    some = quotes.where(one.filter)
    assert numbers(some) == chosen(one)
    assert numbers(some.where(Filter(two.filter))) == chosen(one, two)
    assert numbers(some.filter(three.filter)) == chosen(one, three)
    assert numbers(some) == chosen(one)
    assert some.columns == quotes.columns == ["n", "symbol", "price", "volume", *STANDARD]
    assert numbers(some.where(F.col("n") < 50)) == [n for n in chosen(one) if n < 50]
    assert numbers(quotes.where("n = 1").where("n = 2")) == []
    assert numbers(quotes) == chosen()
    # The scan itself brings no more than that.
    plan = quotes.where("n < 3").table()
    assert plan.rdd.count() == 3


def test_events_are_those_that_are_there(
    spark: SparkSession, overlay: Overlay, tmp_path: Any
) -> None:
    """A DataFrame is a picture, and says the same each time; events are up to date."""
    broker = overlay.broker("b1", limits=LIMITS)
    broker.start()
    fill(broker, range(10))
    found = events(spark, brokers=[broker.address], columns="n long, even boolean")
    even = found.where("even = true")
    picture = found.table()
    assert (found.count(), even.count(), picture.count()) == (10, 5, 10)
    fill(broker, range(10, 30))
    assert (found.count(), even.count(), picture.count()) == (30, 15, 10)
    assert picture.where("even").count() == 5
    assert match(found, {"odd": "even = false"}).count() == 15
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(even.count).result() == 15
    # Counting reads nothing, and a limit little more than it says; neither starts a job of Spark.
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("counting", "counting")
    assert (found.where("n < 7").count(), found.where("n < -1").count()) == (7, 0)
    first = events(spark, brokers=broker.address, columns="n long", endingOffsets={"b1": 5})
    assert first.count() == 4
    assert list(tracker.getJobIdsForGroup("counting")) == []
    strict = events(spark, brokers=broker.address, columns="n string", mode="DROPMALFORMED")
    assert strict.count() == 0
    assert [len(found.take(count)) for count in (0, 3, 30, 99)] == [0, 3, 30, 30]
    assert {row.even for row in even.take(5)} == {True}
    assert even.limit(5).count() == 5
    # A stream of the same events, and of those that come.
    stream = events(spark, brokers=broker.address, columns="n long", stream=True, maxRowsPerBatch=7)
    fill(broker, range(30, 40))
    query = (
        stream.where("n >= 5")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "table"))
    )
    assert query.awaitTermination(120)
    assert len(query.recentProgress) > 3
    assert numbers(spark.read.parquet(str(tmp_path / "table"))) == list(range(5, 40))
    # What is declared of an event type by this program gives columns.
    event_types.declare("sale", attributes={"paid": "number", "venue": "string"})
    fill(broker, range(40, 44), lambda n: {"paid": n}, type="sale")
    sales = events(spark, brokers=broker.address, eventType="sale")
    assert dict(sales.dtypes)["venue"] == "string"
    assert sales.count() == 4


def test_mistakes_are_told_at_once(spark: SparkSession, brokers: list[BrokerProcess]) -> None:
    address = addresses(brokers)
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"filter": "price >> 3"}, FilterSyntaxError, "price >> 3"),
        ({"filter": 3}, InvalidConfiguration, "text or a Filter"),
        ({"columns": "day date"}, UnsupportedColumn, "use timestamp, and to_date on it"),
        ({"columns": "_ID string"}, UnsupportedColumn, "reserved columns are _id"),
        ({"maxRowsPerPartitions": 1}, InvalidConfiguration, "did you mean maxRowsPerPartition"),
        ({"startingOffsets": "latest"}, InvalidConfiguration, "latest"),
        ({"endingOffsets": "latest", "stream": True}, InvalidConfiguration, "no end"),
        ({"Filter": "x = 1"}, InvalidConfiguration, "the argument filter"),
        ({"brokers": ""}, InvalidConfiguration, "which brokers"),
        ({"filter": "price = -1"}, PipelineError, "no events to infer a schema from"),
        ({"brokers": "127.0.0.1:1", "patience": 0}, Unreachable, "127.0.0.1:1"),
    ]
    for options, error, said in wrong:
        with pytest.raises(error, match=said):
            events(spark, **{"brokers": address, **options})
    quotes = events(spark, brokers=address, columns=COLUMNS, token="secret")
    with pytest.raises(FilterSyntaxError, match="price >>"):
        quotes.where("price >> 3")
    with pytest.raises(
        FilterSyntaxError, match=r"call no functions(.|\n)*SQL write table\(\)\.where"
    ):
        quotes.where("date(price) = '2026-01-01'")
    with pytest.raises(AttributeError, match=r"write col\('price'\), or say table\(\)"):
        _ = quotes.price
    with pytest.raises(AttributeError, match="cuont"):
        _ = quotes.cuont
    assert "secret" not in repr(quotes)
    assert copy.copy(quotes).schema == quotes.schema
    assert quotes.table()["price"] is not None
