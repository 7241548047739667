"""Select and deduplicate: steps that leave events out and change none.

*Late events.* Spark drops every event that is behind the watermark before it asks whether it has
seen the event; but what one broker has kept for a day is old and no copy of anything. So Spark is
not shown the time of the events. It gets a clock that is the time put so far ahead that no
watermark ever reaches it, and that bears the watermark's mark with a delay that is shorter by the
same amount: nothing is late, and ids are still forgotten when the watermark is `within` past them.
"""

from __future__ import annotations

from typing import Final

import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from stentor.filters import Filter
from stentor.pipeline.steps.durations import Duration, interval
from stentor.pipeline.steps.events import WATERMARK, column, remembering, require, unmarked

_KEY: Final = "__key"
_CLOCK: Final = "__clock"
#: How far the clock is ahead, in milliseconds: 35,000 years, more than any two times are apart.
_AHEAD: Final = 2**50


def select(events: DataFrame, filter: str | Filter) -> DataFrame:
    """The events that the filter matches: the same that a broker would deliver.

    select(quotes, "symbol = 'IBM' and price > 100")
    """
    from stentor.pipeline.filters import to_column

    wanted = filter if isinstance(filter, Filter) else Filter(filter)
    return events.where(to_column(wanted, events.schema))


def deduplicate(events: DataFrame, within: Duration = "1 hour") -> DataFrame:
    """Each event once, by its `_id`. Two that say the same are still two.

    A stream remembers ids until the watermark is `within` past the times of their events; a copy
    that comes later than that is not recognized, and an event that is itself so late is remembered
    for one micro-batch only. No event is lost for being late. A batch remembers all ids. Events
    without an id are all kept.

        deduplicate(quotes, within="1 hour")
    """
    require(events, "_id")
    # Nulls would count as equal.
    keyed = events.withColumn(_KEY, F.coalesce(column("_id"), F.uuid()))
    if not events.isStreaming:
        interval(within)  # a mistake is a mistake in a batch, too
        return keyed.dropDuplicates([_KEY]).drop(_KEY)
    return _first_of_each(remembering(keyed, within)).drop(_KEY)


def _first_of_each(keyed: DataFrame) -> DataFrame:
    """The first event of each key, however late, from a stream that has a watermark."""
    fields = keyed.schema.fields
    delay = int(keyed.schema["_time"].metadata[WATERMARK])
    # An event without a time is remembered as if it were of now.
    time = F.unix_micros(F.coalesce(column("_time"), F.current_timestamp()))
    clock = F.timestamp_micros(time + F.lit(_AHEAD * 1_000))
    hidden = keyed.select(
        *(unmarked(column(field.name), field.name, field.metadata) for field in fields),
        clock.alias(_CLOCK, metadata={WATERMARK: delay - _AHEAD}),
    )
    found = hidden.dropDuplicatesWithinWatermark([_KEY])
    return found.select(*(column(f.name).alias(f.name, metadata=f.metadata) for f in fields))
