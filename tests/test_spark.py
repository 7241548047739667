"""The same engine inside Spark: an index that is broadcast to Arrow functions answers the same."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stentor import Filter
from stentor.matching import Index


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.mark.slow
@pytest.mark.spec("02/P13")
def test_an_index_matches_inside_spark_as_it_does_outside(spark: SparkSession) -> None:
    texts = ["symbol = 'IBM' and price > 100", "price < 50", "symbol prefix 'S'", "exists price"]
    index = Index(enumerate(map(Filter, texts)))
    rows = [
        (i, symbol, price)
        for i, (symbol, price) in enumerate(
            [("IBM", 120.5), ("IBM", 99.0), ("SAP", None), (None, 3.0), ("SIE", 170.25)] * 20
        )
    ]
    shared = spark.sparkContext.broadcast(index)

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found, keys = shared.value.match_batch(batch)
            yield pa.record_batch({"n": batch.column("n").take(pa.array(found)), "key": keys})

    frame = spark.createDataFrame(rows, "n long, symbol string, price double").repartition(3)
    inside = {(r.n, r.key) for r in frame.mapInArrow(match, "n long, key long").collect()}
    outside, keys = index.match_batch(
        [{"symbol": symbol, "price": price} for _, symbol, price in rows]
    )
    assert inside == set(zip(outside.tolist(), keys.tolist(), strict=True))
    assert len(inside) == 20 * 8
