"""Select and deduplicate: steps that leave events out and change none."""

from __future__ import annotations

from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from stentor.filters import Filter
from stentor.pipeline.steps.durations import Duration, interval
from stentor.pipeline.steps.events import column, remembering, require

_KEY: Final = "__key"


def select(events: DataFrame, filter: str | Filter) -> DataFrame:
    """The events that the filter matches: the same that a broker would deliver.

    select(quotes, "symbol = 'IBM' and price > 100")
    """
    from stentor.pipeline.filters import to_column

    wanted = filter if isinstance(filter, Filter) else Filter(filter)
    return events.where(to_column(wanted, events.schema))


def deduplicate(events: DataFrame, within: Duration = "1 hour") -> DataFrame:
    """Each event once, by its `_id`. Two that say the same are still two.

    A stream remembers ids until the watermark is `within` past them; a copy that comes later than
    that is not recognized. A batch remembers all. Events without an id are all kept.

        deduplicate(quotes, within="1 hour")
    """
    require(events, "_id")
    # Nulls would count as equal.
    keyed = events.withColumn(_KEY, F.coalesce(column("_id"), F.uuid()))
    if not events.isStreaming:
        interval(within)  # a mistake is a mistake in a batch, too
        return keyed.dropDuplicates([_KEY]).drop(_KEY)
    return remembering(keyed, within).dropDuplicatesWithinWatermark([_KEY]).drop(_KEY)
