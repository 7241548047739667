"""Making a data source known to Spark, in a way that several queries can use it at once.

All queries on a source share what was registered, and with it the environment that Spark gives to
Python processes, a Java map. Whenever a query on the source starts, Spark adds some entries to this
map; and while it does, another query may be writing the same map into its tasks, which then cannot
be read (`java.io.OptionalDataException`). An entry that is there already is only replaced, and that
disturbs nobody. So the entries are there from the beginning; what they say does not matter.

And Spark refuses a name that the *active* session knows already, whichever session it is asked to
register it with (`DataSourceRegistration.checkDataSourceExists`). So a session is the active one
for as long as that takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from stentor.errors import PipelineError

#: What Spark adds.
_ADDED: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)

#: The names of the sources that were made known to each session.
_registered: Final[WeakKeyDictionary[SparkSession, set[str]]] = WeakKeyDictionary()


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a data source known to a session; to do so again changes nothing."""
    if is_registered(spark, source.name()):
        return
    if is_connect(spark):
        spark.dataSource.register(source)
    else:
        context = spark.sparkContext
        # Not of Spark's public interface: without it, queries may have to be started one by one.
        before = getattr(context, "environment", None)
        if before is not None:
            context.environment = dict.fromkeys(_ADDED, "") | before
        try:
            with _active(spark):
                spark.dataSource.register(source)
        finally:
            if before is not None:
                context.environment = before
    _registered.setdefault(spark, set()).add(source.name())


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    try:
        sessions: Any = spark._jvm.SparkSession  # type: ignore[union-attr]
        session = spark._jsparkSession
    except AttributeError:
        raise PipelineError(
            f"this is not a session that Spark {pyspark.__version__} is known to have: a "
            f"{type(spark).__module__}.{type(spark).__name__}. Make one with "
            "stentor.pipeline.session(), or with SparkSession.builder of pyspark 4.0 to 4.3"
        ) from None
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def is_registered(spark: SparkSession, name: str) -> bool:
    """Whether a source was made known to a session by this program."""
    return name in _registered.get(spark, ())


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is the client of a Spark Connect server: it has no Spark of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def require_own(spark: SparkSession, what: str) -> None:
    """`PipelineError` if a session has no Spark of its own, which `what` needs."""
    if is_connect(spark):
        raise PipelineError(
            f"{what} needs a session with a Spark of its own, and this is one of Spark Connect: "
            "use SparkSession.builder.master(...), or submit the program to the cluster; events, "
            "match and publish work here"
        )
