"""What a user would write without Stentor: filters as a table of bounds, and a join.

Each column of the table bounds one attribute, and is null where the filter says nothing about it.
The table is broadcast, and Spark holds every event against every row of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from workloads import Constraints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The column for an attribute and an operator of the stock workload, its type, and its condition.
_BOUNDS: Final = {
    ("symbol", "="): ("symbol_is", "string", "e.symbol = f.symbol_is"),
    ("price", ">="): ("price_from", "double", "e.price >= f.price_from"),
    ("price", "<="): ("price_to", "double", "e.price <= f.price_to"),
    ("volume", ">"): ("volume_above", "long", "e.volume > f.volume_above"),
    ("sector", "="): ("sector_is", "string", "e.sector = f.sector_is"),
    ("exchange", "="): ("exchange_is", "string", "e.exchange = f.exchange_is"),
    ("change", ">"): ("change_above", "double", "e.change > f.change_above"),
    ("symbol", "prefix"): ("symbol_begins", "string", "startswith(e.symbol, f.symbol_begins)"),
    ("price", ">"): ("price_above", "double", "e.price > f.price_above"),
    ("change", "<"): ("change_below", "double", "e.change < f.change_below"),
}


def join_by_conditions(
    spark: SparkSession, events: DataFrame, filters: list[Constraints]
) -> DataFrame:
    """The pairs of filters and events, by a broadcast nested-loop join."""
    from pyspark.sql import functions as F

    rows: list[tuple[Any, ...]] = []
    for number, constraints in enumerate(filters):
        bounds = {(name, operator): value for name, operator, value in constraints}
        rows.append((number, *(bounds.get(known) for known in _BOUNDS)))
    schema = ", ".join(f"{name} {kind}" for name, kind, _ in _BOUNDS.values())
    table = spark.createDataFrame(rows, f"subscription_id long, {schema}").cache()
    table.count()
    condition = " and ".join(
        f"(f.{name} is null or {condition})" for name, _, condition in _BOUNDS.values()
    )
    joined = events.alias("e").join(F.broadcast(table.alias("f")), F.expr(condition))
    return joined.select("f.subscription_id", "e.*")
