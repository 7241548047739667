"""`compact`: tidy up an archive, with Spark or without."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from stentor.errors import InvalidConfiguration
from stentor.pipeline.archives.compaction import (
    TARGET_BYTES,
    Compaction,
    Group,
    Joined,
    clean,
    join_files,
    join_partition,
    plan,
    replace_files,
)
from stentor.pipeline.archives.log import Log
from stentor.pipeline.archives.manifests import Commit, State
from stentor.pipeline.archives.moments import duration
from stentor.pipeline.archives.places import place_of
from stentor.pipeline.archives.stores import store_of
from stentor.pipeline.archives.writing import REPORT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long files that were replaced stay on the disk, for readers who began before.
GRACE: Final = timedelta(days=1)


def compact(
    spark: SparkSession | None,
    path: str | os.PathLike[str],
    *,
    target_bytes: int = TARGET_BYTES,
    grace: timedelta | str = GRACE,
    retire: Iterable[str] = (),
) -> Compaction:
    """Join the small files of an archive, and delete what is no longer needed.

        compact(spark, "/data/events")

    It may run at any time, beside writers and readers. Files of one type and day are joined up to
    `target_bytes`. Files that were replaced, and what writers that died have left behind, are
    deleted after `grace`, which must be longer than the longest query on the archive and the
    longest micro-batch. Without a SparkSession the work is done in this process.

    `retire` names queries that wrote into the archive and never will again. Until then a live
    `history` goes on where the slowest query is.
    """
    if target_bytes < 1:
        raise InvalidConfiguration(f"target_bytes={target_bytes} is no size; give some megabytes")
    seconds = grace_seconds(grace)
    place = place_of(path, spark)
    log = Log(store_of(place, spark))
    _retire(log, retire)
    groups = plan(log.existing(), place.root, target_bytes)
    joined = replace_files(log, run_groups(spark, groups)) if groups else []
    deleted = clean(log, seconds)
    return Compaction(
        version=log.state().version,
        files_before=sum(len(each.replaced) for each in joined),
        files_after=len(joined),
        rows=sum(each.file.rows for each in joined),
        deleted=deleted,
    )


def _retire(log: Log, names: Iterable[str]) -> None:
    retired = sorted(set(names))

    def make(state: State) -> Commit | None:
        unknown = [name for name in retired if name not in state.progress]
        if unknown:
            known = ", ".join(map(repr, sorted(state.progress))) or "none"
            raise InvalidConfiguration(
                f"no query {unknown[0]!r} has written into this archive; those that have: {known}"
            )
        holding = [name for name in retired if state.progress[name].holds]
        if holding:
            raise InvalidConfiguration(
                f"the query {holding[0]!r} held events back, and what it did not get to archive is "
                "missing with or without it; archive events before they are ordered or aggregated"
            )
        return Commit(at=time.time(), operation="retire", retired=retired) if retired else None

    log.existing()
    log.commit(make)


def run_groups(spark: SparkSession | None, groups: Sequence[Group]) -> list[Joined]:
    """Join the files of each group: by the executors, if there are any."""
    if spark is None:
        return [join_files(group) for group in groups]
    rows = [(msgspec.json.encode(group),) for group in groups]
    tasks = spark.createDataFrame(rows, REPORT).repartition(len(rows))
    found = tasks.mapInArrow(join_partition, REPORT).collect()
    return [msgspec.json.decode(bytes(row.report), type=Joined) for row in found]


def grace_seconds(grace: timedelta | str) -> float:
    """A grace time as users write it, in seconds."""
    found = duration(grace) if isinstance(grace, str) else grace
    if not isinstance(found, timedelta) or found < timedelta(0):
        raise InvalidConfiguration(
            f"grace={grace!r} is no duration; give a timedelta, or a text such as '1 day'"
        )
    return found.total_seconds()
