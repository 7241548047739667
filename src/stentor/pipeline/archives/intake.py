"""`archive`: events into an archive, once or for as long as they come."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from stentor.errors import InvalidConfiguration
from stentor.pipeline.archives.appender import Appender
from stentor.pipeline.archives.compaction import GRACE, TARGET_BYTES, grace_seconds
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.spark_schemas import archived
from stentor.pipeline.archives.tables import Archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from stentor.pipeline.event_table import Events

CHECKPOINTS: Final = "_stentor/checkpoints"
#: The name of a query that is given none.
DEFAULT_NAME: Final = "archive"


def archive(
    events: DataFrame | Events,
    path: str | os.PathLike[str],
    *,
    query_name: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    trigger: str | Mapping[str, Any] | None = None,
    deduplicate: bool = False,
    cluster: bool | None = None,
    compaction: bool = True,
    target_bytes: int = TARGET_BYTES,
    grace: timedelta | str = GRACE,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Keep events as a Delta table, partitioned by event type and day, each exactly once.

        query = archive(events, "/data/events", trigger="10 seconds")     # a stream: runs on
        written = archive(events, "/data/events")                         # a batch: appended once

    A streaming DataFrame starts a query, which is returned. Its checkpoint is in the archive, under
    `query_name`, unless another place is given: a query that is started again under its name goes
    on where it was. Several queries may write into one archive under different names. `trigger` is
    an interval, "availableNow", or what `DataStreamWriter.trigger` takes by name.

    A batch DataFrame is appended in one step, and `Appended` says what was. It is appended as often
    as it is archived; `deduplicate` leaves out events whose `_id` the archive has, for both.

    New columns may come at any time, and numbers may change their type: each event keeps the type
    that it came with. A column that changes its type otherwise is an `ArchiveError`. `cluster` says
    whether events of one type and day are brought together before they are written, which costs a
    shuffle and saves small files: by default only of a batch. `compaction` lets a query join its
    small files up to `target_bytes` when there are many, and delete what it has replaced after
    `grace`, which must be longer than the longest query on the archive and the longest replay;
    `compact` does the rest. `storage_options` say how to get to an object store, as `deltalake`
    takes them; without them, the environment does.

    Archive events before they are ordered or aggregated: a query that holds events back cannot say
    which events of the journals are in the archive, so no live `history` and no `past` can follow.
    """
    from stentor.pipeline.event_table import table_of

    events = table_of(events)
    spark = events.sparkSession
    place = place_of(path, spark, storage_options)
    schema = archived(events.schema)
    appender = Appender(
        archive=Archive(place),
        name=query_name or (DEFAULT_NAME if checkpoint is None else os.fspath(checkpoint)),
        deduplicate=deduplicate,
        cluster=cluster if cluster is not None else not events.isStreaming,
        target=target_bytes if compaction else 0,
        grace=grace_seconds(grace),
    )
    if deduplicate and "_id" not in schema.names:
        raise InvalidConfiguration("deduplicate compares `_id`, and the events have no such column")
    if not events.isStreaming and (query_name or checkpoint or trigger):
        raise InvalidConfiguration(
            "query_name, checkpoint and trigger are for streams, and these events are a batch"
        )
    if events.isStreaming:
        appender.checkpoint = _checkpoint(place, appender.name, checkpoint, spark)
    # To say now rather than later what contradicts, or that nothing can be written there.
    appender.archive.columns(schema)
    if appender.checkpoint is None:
        return appender.append(spark, events, None)
    stream = events.writeStream.foreachBatch(appender.batch).option(
        "checkpointLocation", appender.checkpoint.for_spark("")
    )
    if trigger is not None:
        stream = stream.trigger(**_trigger(trigger))
    query: StreamingQuery = stream.queryName(query_name).start() if query_name else stream.start()
    return query


def _trigger(trigger: str | Mapping[str, Any]) -> dict[str, Any]:
    if trigger == "availableNow":
        return {"availableNow": True}
    return {"processingTime": trigger} if isinstance(trigger, str) else dict(trigger)


def _checkpoint(
    place: Place, name: str, given: str | os.PathLike[str] | None, spark: SparkSession
) -> Place:
    if given is not None:
        return place_of(given, spark, dict(place.options))
    if "/" in name or name.startswith("."):
        raise InvalidConfiguration(
            f"query_name={name!r} names a directory of the archive; leave out slashes and a dot at "
            "the beginning, or give a checkpoint"
        )
    return place.below(f"{CHECKPOINTS}/{name}")
