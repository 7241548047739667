"""Spark sessions that know `format("stentor")` and the functions in SQL."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from stentor.pipeline.datasource import register_format
from stentor.pipeline.matching.sql_functions import register_functions
from stentor.pipeline.spark_features import ROCKSDB, STATE_STORE, has_arrow_functions

#: What `session` sets unless told otherwise.
_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    # Few, large Arrow batches: each costs a turn between the JVM and Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # `match` takes few columns of many; Spark hands those over faster by rows.
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    # What subscriptions that change, and streams that are put in order, are kept in.
    STATE_STORE: ROCKSDB,
}


def register(spark: SparkSession) -> SparkSession:
    """Make `format("stentor")` and `stentor_match` known to a session; again does no harm.

        register(spark)
        spark.read.format("stentor").option("brokers", "127.0.0.1:7411").load().show()
        spark.sql("select * from quotes where stentor_match('price > 100', struct(*))").show()

    One setting of the session changes, without which the sink could publish rows twice: adaptive
    execution of streams (`spark.sql.adaptive.streaming.stateless.enabled`) is switched off. It may
    put the rows of a micro-batch into other partitions when the batch is run again after a crash,
    and the sink tells what it has published by partition. And where nobody has said which Python is
    to be used on this machine, it is the one of this program, which has the package.
    """
    register_format(spark)
    if has_arrow_functions():
        register_functions(spark)
    return spark


def session(name: str = "stentor", master: str = "local[*]", **config: Any) -> SparkSession:
    """A session with good defaults for events, with `format("stentor")` registered.

        spark = session(master="local[2]", **{"spark.sql.shuffle.partitions": 2})

    config    settings of Spark by their names; they go before the defaults
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    local = master.startswith("local")  # on a cluster, executors reach the driver by its address
    chosen = {k: v for k, v in _DEFAULTS.items() if local or not k.startswith("spark.driver.")}
    for key, value in (chosen | config).items():
        builder = builder.config(key, str(value))
    return register(builder.getOrCreate())
