"""A driver that is killed: it follows a broker and writes to another broker and to Parquet.

    python mortal_driver.py '{"source": ADDRESS, "sink": ADDRESS, "home": PATH, "finish": false}'

Prints `running` when both queries have begun. To finish means to read what there is, and to say
what the Parquet table holds then.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import functions as F

from stentor.pipeline import session


def main(source: str, sink: str, home: str, finish: bool) -> None:
    config: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": f"{home}/local",
        "spark.sql.warehouse.dir": f"{home}/warehouse",
    }
    spark = session(master="local[2]", **config)
    spark.sparkContext.setLogLevel("ERROR")

    def events() -> Any:
        return (
            spark.readStream.format("stentor")
            .option("brokers", source)
            .option("maxRowsPerBatch", 700)
            .option("maxRowsPerPartition", 200)
            .schema("n long")
            .load()
        )

    trigger = {"availableNow": True} if finish else {"processingTime": "0 seconds"}
    published = (
        events()
        .select("n")
        .repartition(2, "n")  # rows come in another order each time
        .writeStream.format("stentor")
        .option("brokers", sink)
        .option("checkpointLocation", f"{home}/published")
        .trigger(**trigger)
        .start()
    )
    stored = (
        events()
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{home}/stored")
        .trigger(**trigger)
        .start(f"{home}/table")
    )
    print("running", flush=True)
    published.awaitTermination()
    stored.awaitTermination()
    table = spark.read.parquet(f"{home}/table")
    found = table.agg(F.count("n"), F.countDistinct("n"), F.min("n"), F.max("n")).first()
    print(json.dumps(list(found or ())), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
