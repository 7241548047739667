"""A driver that is killed: it follows a broker and writes to another broker, twice, and to Parquet.

    python mortal_driver.py '{"source": ADDRESS, "sink": ADDRESS, "home": PATH, "finish": false}'

Prints `running` when the queries have begun. To finish means to read what there is, and to say
what the Parquet table holds then.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from stentor.pipeline import publish, session


def main(source: str, sink: str, home: str, finish: bool) -> None:
    config: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": f"{home}/local",
        "spark.sql.warehouse.dir": f"{home}/warehouse",
    }
    spark = session(master="local[2]", **config)
    spark.sparkContext.setLogLevel("ERROR")

    def events() -> DataFrame:
        return (
            spark.readStream.format("stentor")
            .option("brokers", source)
            .option("maxRowsPerBatch", 20_000 if finish else 700)
            .option("maxRowsPerPartition", 5_000 if finish else 200)
            .schema("n long")
            .load()
        )

    trigger: dict[str, Any] = {"availableNow": True} if finish else {"processingTime": "0 seconds"}

    def published() -> StreamingQuery:
        return (
            events()
            .select("n")
            .repartition(2, "n")  # rows come in another order each time
            .writeStream.format("stentor")
            .option("brokers", sink)
            .option("checkpointLocation", f"{home}/published")
            .trigger(**trigger)
            .start()
        )

    def written() -> StreamingQuery:
        """By hand, and in other partitions each time."""

        def write(batch: DataFrame, number: int) -> None:
            rows = batch.select(F.col("n").alias("m")).repartition(random.randint(1, 4))
            publish(rows, brokers=sink, txnAppId="written", txnVersion=number)

        return (
            events()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{home}/written")
            .trigger(**trigger)
            .start()
        )

    def stored() -> StreamingQuery:
        return (
            events()
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{home}/stored")
            .trigger(**trigger)
            .start(f"{home}/table")
        )

    queries = [(start, start()) for start in (published, written, stored)]
    print("running", flush=True)
    for start, query in queries:
        ended(start, query)
    table = spark.read.parquet(f"{home}/table")
    found = table.agg(F.count("n"), F.countDistinct("n"), F.min("n"), F.max("n")).first()
    print(json.dumps(list(found or ())), flush=True)
    spark.stop()


def ended(start: Callable[[], StreamingQuery], query: StreamingQuery) -> None:
    """Until it has; Spark gives a Python process ten seconds to begin, which may not be enough."""
    while True:
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if "connect back" not in str(error):
                raise
            query = start()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
