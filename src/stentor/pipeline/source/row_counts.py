"""How many events a query has read, and how many of them did not fit the schema."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def counted(events: DataFrame, name: str = "stentor") -> DataFrame:
    """The same events, counted into the metrics of the query under a name of their own.

        query = counted(events).writeStream...start()
        query.lastProgress["observedMetrics"]["stentor"]    # {"rows": 1000, "corrupt": 3}

    The events need the column `_corrupt`.
    """
    return events.observe(
        name, F.count(F.lit(1)).alias("rows"), F.count("_corrupt").alias("corrupt")
    )
