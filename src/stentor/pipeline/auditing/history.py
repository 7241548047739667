"""The history of each component: what liveness and the orders are about, in turn.

That is each notification's first publication and the first delivery of it to each component that
came after. The rows of one component come together once, and then each knows:

    publishes    the component publishes something in this run
    before       the publication of what was delivered to the component before this
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def history(actions: DataFrame) -> DataFrame:
    """The part of the publications and deliveries that is not at fault by itself."""
    publishes = F.col("op") == "pub"
    of_component = Window.partitionBy("trace", "comp")
    earlier = of_component.orderBy("pos").rowsBetween(Window.unboundedPreceding, -1)

    delivered = F.when(~publishes, F.col("at"))
    return (
        actions.where("in_history")
        .select("trace", "pos", "op", "comp", "nid", "at", "publisher", "last", "clock")
        .withColumn("publishes", F.max(publishes).over(of_component))
        .withColumn("before", F.last(delivered, ignorenulls=True).over(earlier))
    )
