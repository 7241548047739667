"""A driver that archives a stream of files and may be killed at any moment.

    python archiving_driver.py '{"source": PATH, "archive": PATH, "home": PATH, "finish": false}'

Prints `running` when the query has begun. To finish means to archive what there is, and to end.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from stentor.pipeline import archive, session

COLUMNS = "n long, _id string, _type string, _time timestamp, _broker string, _offset long"


def main(source: str, archive_path: str, home: str, finish: bool) -> None:
    config: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": f"{home}/local",
        "spark.sql.warehouse.dir": f"{home}/warehouse",
    }
    spark = session(master="local[2]", **config)
    spark.sparkContext.setLogLevel("ERROR")
    events = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(source)
    trigger = "availableNow" if finish else "0 seconds"
    query = archive(events, archive_path, query_name="mortal", trigger=trigger)
    print("running", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(given["source"], given["archive"], given["home"], given["finish"])
