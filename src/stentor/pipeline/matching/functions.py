"""Python functions as Spark's Arrow functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

if TYPE_CHECKING:
    from pyspark.sql import Column


def id_lists(
    function: Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]], id_type: T.DataType
) -> Callable[..., Column]:
    """A function of columns that gives a list of ids for each row. Plans show it by its name."""
    arrow_udf: Any = F.arrow_udf  # type: ignore[attr-defined]
    return cast("Callable[..., Column]", arrow_udf(function, T.ArrayType(id_type, False)))
