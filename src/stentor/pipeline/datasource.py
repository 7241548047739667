"""`format("stentor")`: the journals of brokers as a table, and brokers as a sink."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from stentor.pipeline.columns import completed
from stentor.pipeline.registration import is_connect, is_registered, register_source
from stentor.pipeline.source.options import FORMAT, reading
from stentor.pipeline.spark_features import check_published_streams, check_streams


class StentorSource(DataSource):
    """What Spark is given; `stentor.pipeline.register` does that.

    A schema that the user gives with `.schema(...)` is taken as it is: exactly these columns.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType | str:
        """The option `columns` and the standard columns; or else inferred from a sample."""
        from stentor.pipeline.source.sample import inferred

        options = reading(self.options)
        return inferred(options) if options.columns is None else completed(options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from stentor.pipeline.source.batch_reader import BatchReader

        return BatchReader(schema, reading(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        check_streams()
        from stentor.pipeline.source.stream_reader import StreamReader

        return StreamReader(schema, reading(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from stentor.pipeline.sink import BatchWriter

        return BatchWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        check_published_streams()
        from stentor.pipeline.sink import StreamWriter

        return StreamWriter(schema, self.options, overwrite)


def register_format(spark: SparkSession) -> None:
    """Make the source and sink known to a session, with what they need of it."""
    _use_this_python(spark)
    if is_registered(spark, FORMAT):
        return
    spark.conf.set("spark.sql.adaptive.streaming.stateless.enabled", "false")
    register_source(spark, StentorSource)


def _use_this_python(spark: SparkSession) -> None:
    """Spark would take whatever `python3` comes first on the path."""
    if is_connect(spark) or "PYSPARK_PYTHON" in os.environ:
        return
    context = spark.sparkContext
    conf = context.getConf()
    local = (conf.get("spark.master") or "").startswith("local")
    if local and not conf.contains("spark.pyspark.python"):
        context.pythonExec = sys.executable
