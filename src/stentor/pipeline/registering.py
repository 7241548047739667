"""Making a data source known to Spark, in a way that several queries can use it at once.

All queries on a source share what was registered, and with it the environment that Spark gives to
Python processes, a Java map. Whenever a query on the source starts, Spark adds some entries to this
map; and while it does, another query may be writing the same map into its tasks, which then cannot
be read (`java.io.OptionalDataException`). An entry that is there already is only replaced, and that
disturbs nobody. So the entries are there from the beginning; what they say does not matter.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.utils import is_remote

#: What Spark adds.
_ADDED: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a data source known to a session; to do so again does no harm."""
    if is_remote():
        spark.dataSource.register(source)
        return
    context = spark.sparkContext
    before = context.environment
    context.environment = dict.fromkeys(_ADDED, "") | before
    try:
        spark.dataSource.register(source)
    finally:
        context.environment = before
