"""A program that uses everything, in a session of its own or through Spark Connect.

    session_driver.py classic|connect BROKER SINK FOLDER PART ...

Spark has one kind of session, and one version, in a process, so this one is apart. A Connect server
runs on this machine. Each part says its name when it has done what it should.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from stentor.errors import FilterSyntaxError, InvalidConfiguration, PipelineError
from stentor.pipeline import (
    archive,
    audit,
    compact,
    events,
    history,
    match,
    publish,
    register,
    register_subscriptions,
    replay,
    session,
    to_column,
)
from stentor.pipeline.runs import Pipeline, Runner

SUBSCRIPTIONS = {"small": "n < 5", "even": "even = true", "none": "n = -1"}
WANTED = Counter(small=5, even=20)


def read(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    found = events(spark, brokers=broker, filter="n < 40", columns="n long, even boolean")
    table = found.table()
    assert table.where("even").count() == 20
    assert table.count() == 40
    assert found.where("even = true").where("n < 10").count() == 5
    assert found.count() == 40
    assert table.where("n < 3").union(table.where("n >= 38")).count() == 5
    table.createOrReplaceTempView("numbers")
    (row,) = spark.sql(
        "select count(*) as all, (select count(*) from numbers where n < 7) as some from numbers"
    ).collect()
    assert (row.all, row.some) == (40, 7)
    assert events(spark, brokers=broker).columns[:2] == ["even", "n"]
    exact = spark.read.format("stentor").option("brokers", broker).schema("n long, _offset long")
    assert exact.load().columns == ["n", "_offset"]
    more = spark.read.format("stentor").option("columns", "n long").load(broker)
    assert more.columns[:2] == ["n", "_id"]
    refused = (
        (FilterSyntaxError, "n >> 3", {"filter": "n >> 3", "columns": "n long"}),
        (InvalidConfiguration, "did you mean maxRowsPer", {"maxRowsPr": 1, "columns": "n long"}),
        (
            (PySparkException, PipelineError),
            "no events to infer a schema from",
            {"filter": "n = -1"},
        ),
    )
    for error, said, options in refused:
        with pytest.raises(error, match=said):
            events(spark, brokers=broker, **options)


def write(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    numbers = events(spark, brokers=broker, columns="n long")
    numbers.select("n").write.format("stentor").option("brokers", sink).mode("append").save()
    assert events(spark, brokers=sink, columns="n long").count() == 40
    for partitions in (1, 3):  # the same batch again, in other partitions
        rows = numbers.select("n", lit("once").alias("_type")).repartition(partitions)
        publish(rows, brokers=sink, txnAppId="connected", txnVersion=1)
    assert events(spark, brokers=sink, columns="n long", eventType="once").count() == 40


def stream(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    numbers = events(spark, brokers=broker, columns="n long", stream=True, maxRowsPerBatch=15)
    run(numbers.where("n >= 10").selectExpr("n", "'copy' as _type"), sink, f"{folder}/stream")
    copied = events(spark, brokers=sink, columns="n long", eventType="copy")
    assert sorted(row.n for row in copied.collect()) == list(range(10, 40))


def run(frame: DataFrame, sink: str, checkpoint: str) -> None:
    query = (
        frame.writeStream.format("stentor")
        .option("brokers", sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert query.exception() is None


def matching(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    found = events(spark, brokers=broker, columns="n long, even boolean")
    for plan in ("native", "index", "sharded"):
        matched = match(found, SUBSCRIPTIONS, plan=plan)
        assert Counter(row.subscription_id for row in matched.collect()) == WANTED, plan
    table = spark.createDataFrame(
        list(SUBSCRIPTIONS.items()), "subscription_id string, filter string"
    )
    matched = match(found, table)
    assert Counter(row.subscription_id for row in matched.collect()) == WANTED


def matching_streams(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    numbers = events(
        spark, brokers=broker, filter="exists n", columns="n long, even boolean", stream=True
    )
    many = SUBSCRIPTIONS | {f"s{i}": f"n = {1000 + i}" for i in range(30)}
    for name, subscriptions in (("index", many), ("changing", changes(spark, folder))):
        matched = match(numbers, subscriptions)
        wanted = matched.selectExpr("subscription_id as id", f"'{name}' as _type")
        run(wanted, sink, f"{folder}/{name}")
        copied = events(spark, brokers=sink, columns="id string", eventType=name)
        assert Counter(row.id for row in copied.collect()) == WANTED, name


def changes(spark: SparkSession, folder: str) -> DataFrame:
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    schema = "subscription_id string, filter string"
    table = spark.createDataFrame(list(SUBSCRIPTIONS.items()), schema)
    table.write.mode("overwrite").parquet(f"{folder}/subscriptions")
    return spark.readStream.schema(schema).parquet(f"{folder}/subscriptions")


def archives(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    archive(events(spark, brokers=broker, columns="n long, _stream string"), f"{folder}/archive")
    assert history(spark, f"{folder}/archive", "n < 5").count() == 5


def continued(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    """What is archived, and then the journals behind it."""
    found = history(spark, f"{folder}/archive", "n < 5", brokers=broker, live=True)
    run(found.selectExpr("n", "'live' as _type"), sink, f"{folder}/live")
    copied = events(spark, brokers=sink, columns="n long", eventType="live")
    assert sorted(row.n for row in copied.collect()) == list(range(5))


def without_streams(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    """What a version of Spark lacks is told, with what to do."""
    with pytest.raises(PipelineError, match=r"a stream of events needs Spark 4.2 or later"):
        events(spark, brokers=broker, columns="n long", stream=True)
    with pytest.raises(PipelineError, match=r"a stream of events needs Spark 4.2 or later"):
        history(spark, f"{folder}/archive", brokers=broker, live=True)


def without_functions(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    """The same for matching in Python and for streams that are published; columns will do."""
    found = events(spark, brokers=broker, columns="n long, even boolean")
    matched = match(found, SUBSCRIPTIONS, plan="native")
    assert Counter(row.subscription_id for row in matched.collect()) == WANTED
    with pytest.raises(PipelineError, match=r"matching in Python needs Spark 4.1 or later"):
        match(found, SUBSCRIPTIONS, plan="index")
    ticks = spark.readStream.format("rate").load().selectExpr("value as n")
    with pytest.raises(PySparkException, match=r"publishing a stream needs Spark 4.1 or later"):
        run(ticks, sink, f"{folder}/ticks")


def sql(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    """Views, functions and filters in SQL; and a filter as a column."""
    options = f"(brokers '{broker}', filter 'n < 40', columns 'n long, even boolean')"
    spark.sql(f"create temporary view seen using stentor options {options}")
    small = "select * from seen where stentor_match('n < 5 and exists even', struct(n, even))"
    assert sorted(row.n for row in spark.sql(small).collect()) == list(range(5))
    register_subscriptions(spark, SUBSCRIPTIONS)
    found = spark.sql("select explode(stentor_matches(struct(*))) as id from seen").collect()
    assert Counter(row.id for row in found) == WANTED
    table = spark.table("seen")
    assert table.where(to_column("even = true and n > 30", table.schema)).count() == 4
    with pytest.raises(PySparkException, match="n >> 3"):
        spark.sql("select * from seen where stentor_match('n >> 3', struct(*))").collect()


def refused(spark: SparkSession, broker: str, sink: str, folder: str) -> None:
    """What needs a Spark of its own says so, whatever it is asked, and has done nothing."""
    found = events(spark, brokers=broker, columns="n long")
    pipeline = Pipeline("p", Path(folder, "p.toml"), {}, {}, {}, None, {}, (), ())
    attempts: dict[str, Callable[[], Any]] = {
        "an archive": lambda: archive(found, folder),
        "an archive ": lambda: compact(spark, folder),
        "an archive  ": lambda: history(spark, folder),
        "an archive   ": lambda: replay(spark, folder, broker),
        "audit": lambda: audit(found.select(lit("t").alias("trace"))),
        "a pipeline": lambda: Runner(pipeline, spark),
    }
    for what, attempt in attempts.items():
        with pytest.raises(PipelineError, match=f"{what.strip()} needs a session .* of its own"):
            attempt()
    assert not Path(folder).exists()


PARTS: dict[str, Callable[..., None]] = {
    part.__name__: part
    for part in (
        *(read, sql, refused, write, stream),
        *(matching, matching_streams, archives, continued, without_streams, without_functions),
    )
}


def main(kind: str, broker: str, sink: str, folder: str, *parts: str) -> None:
    if kind == "connect":
        spark = register(SparkSession.builder.remote("local[2]").getOrCreate())
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    else:
        spark = session(master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    for part in parts:
        PARTS[part](spark, broker, sink, folder)
        print(f"\n{part}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
