"""`history`: one query form for what was, what is and what will be published."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.pipeline.archives.frames import load
from stentor.pipeline.archives.moments import Between, Moment
from stentor.pipeline.archives.places import place_of
from stentor.pipeline.archives.statistics import Pruner
from stentor.pipeline.archives.tables import Archive
from stentor.pipeline.filters.to_column import given_filter
from stentor.pipeline.spark_features import check_streams


def history(
    spark: SparkSession,
    path: str | os.PathLike[str],
    filter: str | Filter = "",
    since: Moment | None = None,
    until: Moment | None = None,
    *,
    brokers: str | None = None,
    live: bool = False,
    options: Mapping[str, str] | None = None,
    version: int | str | datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """What was published and archived, as an event table.

        history(spark, "/data/events", "symbol = 'IBM'", since="2 hours")
        history(spark, "/data/events", since="2026-01-01T00:00:00Z", until="2026-02-01T00:00:00Z")

    The filter means what it means for a subscriber. `since` and `until` bound `_time`, the latter
    exclusively: a datetime or ISO text with its zone, or a duration for so long ago. Files that
    cannot hold such events are not read. A number that the type of its column cannot hold, since
    the column had another type when it was archived, is null, and `_corrupt` says what it was.

        history(spark, "/data/events", "symbol = 'IBM'", brokers="b1:7411,b2:7411", live=True)

    With `live` it is a streaming DataFrame: what is archived comes first, and then what the
    brokers' journals hold behind it, and what comes, without a gap and without a duplicate. The
    archive must hold `_broker` (or better `_stream`) and `_offset`. `options` are passed to the
    source "stentor", such as a token or maxRowsPerBatch.

    `version` is an earlier version of the archive, by its number or its time, as long as its files
    are kept; `storage_options` are for object stores.
    """
    if isinstance(spark, str | os.PathLike):
        raise InvalidConfiguration(
            f"first the session, then the path: history(spark, {os.fspath(spark)!r}, ...); without "
            "Spark it is stentor.history"
        )
    wanted = given_filter(filter, "history(...).where(...)")
    between = Between.of(since, until)
    if live != (brokers is not None):
        raise InvalidConfiguration(
            "live=True needs the addresses of brokers, as in brokers='b1:7411,b2:7411'"
            if live
            else "brokers are asked only with live=True"
        )
    archive = Archive(place_of(path, spark, storage_options))
    table = archive.table() if version is None else archive.at(version)
    bounded = wanted & between.filter
    if live:
        check_streams()
        from stentor.pipeline.archives.continuation import continued

        given = {**(options or {}), "brokers": str(brokers)}
        return continued(spark, table, bounded, given)
    if options:
        raise InvalidConfiguration("options are for the brokers, and are used only with live=True")
    from stentor.pipeline.filters import to_column

    pruner = Pruner(bounded, table.columns)
    files = [file for file in table.files.values() if pruner.may_match(file)]

    def matching(events: DataFrame) -> DataFrame:
        if "_time" in events.columns:  # said in this way, Parquet understands it
            if between.since is not None:
                events = events.where(F.col("_time") >= F.timestamp_micros(F.lit(between.since)))
            if between.until is not None:
                events = events.where(F.col("_time") < F.timestamp_micros(F.lit(between.until)))
        return events if bounded.is_always else events.where(to_column(bounded, events.schema))

    return load(spark, table, files, filter=bounded, where=matching)
