"""How compiled filters get to the workers: by Spark's broadcast, or with the function itself.

A client of Spark Connect has no broadcast. It has files that belong to its session, but the tasks
of a streaming query do not find them. So there the filters are part of the function, and of every
plan that the client sends; what is too much for that is refused.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stentor.errors import PipelineError
from stentor.pipeline.registration import is_connect

if TYPE_CHECKING:
    from stentor.pipeline.matching.packed_index import Packed

#: Bytes that the filters in one plan have, at most; a server takes plans of 128 MiB.
MOST_CARRIED: Final = 64 * 2**20


class Shipped(Protocol):
    """Something that travels with a function; its value is unpacked where the function runs."""

    @property
    def value(self) -> Packed: ...


class Carried:
    """A value in a function that is sent to a Spark Connect server."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    @property
    def value(self) -> Any:
        return pickle.loads(self._pickled)


def shipped(spark: SparkSession, value: Any, among: int = 1) -> Shipped:
    """Make a value available to all workers; it is one of so many in a plan."""
    if not is_connect(spark):
        found: Shipped = spark.sparkContext.broadcast(value)
        return found
    pickled = pickle.dumps(value)
    if len(pickled) > MOST_CARRIED // among:
        raise PipelineError(
            f"these filters are too many for Spark Connect: {len(pickled) * among:,} bytes, and "
            f"{MOST_CARRIED:,} can be sent. Match fewer at a time, or run the program in a session "
            "with a Spark of its own: SparkSession.builder.master(...)"
        )
    return Carried(pickled)


def lifetime(spark: SparkSession) -> str:
    """What a shipped value lives as long as: the application, or the Spark Connect session."""
    if is_connect(spark):
        return str(spark.session_id)  # type: ignore[attr-defined]
    return str(spark.sparkContext.applicationId)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at the same time."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    # A range is cut into so many parts.
    return spark.range(1 << 16).select(F.spark_partition_id()).distinct().count()
