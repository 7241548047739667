"""A program for the cluster: quotes from brokers, matched, published again.

cluster_job.py BROKERS SUBSCRIPTIONS CHECKPOINT ROWS
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from stentor.pipeline import match, register


def main(brokers: str, subscriptions: str, checkpoint: str, rows: str) -> None:
    spark = SparkSession.builder.appName("cluster").getOrCreate()
    register(spark)
    quotes = (
        spark.readStream.format("stentor")
        .option("brokers", brokers)
        .option("filter", "exists price")
        .option("maxRowsPerBatch", rows)
        .schema("n long, symbol string, price double")
        .load()
    )
    matched = match(quotes, spark.read.parquet(subscriptions)).selectExpr(
        "subscription_id as wanted_by", "n"
    )
    query = (
        matched.writeStream.format("stentor")
        .option("brokers", brokers)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    said = -1
    while not query.awaitTermination(1):
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > said:
            said = progress["batchId"]
            print(f"batch {said} is done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
