"""What the pipeline needs of Spark that not every version or session has, and what to do then."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from inspect import signature
from typing import Any, Final, cast

import pyarrow as pa
import pyspark
from pyspark.sql import Column, SparkSession, datasource
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from stentor.errors import PipelineError


def missing(what: str, since: str) -> PipelineError:
    """What to say where a version of Spark lacks something."""
    return PipelineError(
        f"{what} needs Spark {since} or later, and this is {pyspark.__version__}: "
        f"pip install 'pyspark>={since}'"
    )


def arrow_function(
    function: Callable[..., Any], returns: T.DataType | str
) -> Callable[..., Column]:
    """A Python function of Arrow arrays as a function of columns; plans show it by its name."""
    arrow_udf: Any = getattr(F, "arrow_udf", None)
    if arrow_udf is None:
        raise missing("matching in Python", "4.1")
    return cast("Callable[..., Column]", arrow_udf(function, returns))


def has_arrow_functions() -> bool:
    """Whether there are functions of Arrow arrays."""
    return hasattr(F, "arrow_udf")


def check_streams() -> None:
    """Raise if a source in Python cannot be told where a batch begins and how large it may be."""
    try:
        import pyspark.sql.streaming.datasource  # noqa: F401
    except ImportError:
        raise missing("a stream of events", "4.2") from None


def check_published_streams() -> None:
    """Raise if a sink in Python is not handed the rows of a stream as Arrow batches."""
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise missing("publishing a stream", "4.1")


STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def check_state(spark: SparkSession, what: str) -> None:
    """Raise if a session cannot keep the state of functions in Python, and say what to do."""
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise PipelineError(
            "Spark keeps the state of Python functions with the package protobuf, which is not "
            "installed: pip install protobuf"
        )
    if spark.conf.get(STATE_STORE) != ROCKSDB:
        raise PipelineError(
            f"{what} are kept in RocksDB; before the query is started say "
            f'spark.conf.set("{STATE_STORE}", "{ROCKSDB}")'
        )


#: Spark's own way from its types to Arrow's is not public, and until 4.1 took no zone: it was UTC.
_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
)


def to_arrow_type_in_utc(kind: T.DataType) -> pa.DataType:
    """The Arrow type of a type of Spark; times are in UTC."""
    return to_arrow_type(kind, **_IN_UTC)


def to_arrow_schema_in_utc(schema: T.StructType) -> pa.Schema:
    """The same for all columns of a table."""
    return to_arrow_schema(schema, **_IN_UTC)
