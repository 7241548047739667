"""`compact`: joins small files, and deletes what is no longer needed; with Spark or without.

A micro-batch makes a file for each type, day and journal, however few events it has. A compaction
takes such files, merges them in the order of the archive, and commits: these are replaced by that
one. Until then nothing has changed for anybody, and after it the old files stay for a grace time,
because readers who began before still look at them. If somebody else has replaced one of the files
meanwhile, that group is left as it is.

`deltalake` has a compaction of its own. It does not keep rows in order, which a replay in bounded
memory depends on, so only its commits are used. Whoever runs it, or that of another engine, does
no harm: such files are sorted when they are read in order, and put in order when they are joined.

The plan follows the idea of a log-structured merge tree: joined are files of about the same size,
and only when there are enough of them, so that a row is written again a few times in its life and
not with every batch. A compaction that is asked for by hand joins everything that is small.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from math import log
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from stentor.errors import ArchiveError, InvalidConfiguration
from stentor.pipeline.archives.columns import DAY, chosen, variants
from stentor.pipeline.archives.data_files import REPORT, FileWriter, Written, safe_name
from stentor.pipeline.archives.merge import in_order
from stentor.pipeline.archives.moments import duration
from stentor.pipeline.archives.order import AHEAD
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.statistics import Statistics, kind_of
from stentor.pipeline.archives.tables import WRITERS, Archive, File, Step, Table

if TYPE_CHECKING:
    from deltalake.transaction import RemoveAction
    from pyspark.sql import SparkSession

#: The size that files should have.
TARGET_BYTES: Final = 128 * 2**20
#: How long files that were replaced stay on the disk, for readers who began before.
GRACE: Final = timedelta(days=1)
#: Files that are joined at once, at most.
MAX_FILES: Final = 256
#: Files are of similar size within this factor; below the other size they are all the same.
TIER: Final = 16
SMALL_BYTES: Final = 64 * 1024


class Group(NamedTuple):
    """Files to be joined, and the columns that they have."""

    place: Place
    columns: pa.Schema
    files: list[File]


class Joined(msgspec.Struct, frozen=True):
    """A file that takes the place of others."""

    file: Written
    replaced: list[str]


class Compaction(msgspec.Struct, frozen=True):
    """What a compaction has done.

    `files_before` were joined to `files_after`, with `rows` rows; `deleted` files, of earlier
    compactions or of writers that died, are no longer on the disk.
    """

    version: int
    files_before: int
    files_after: int
    rows: int
    deleted: int


def compact(
    spark: SparkSession | None,
    path: str | os.PathLike[str],
    *,
    target_bytes: int = TARGET_BYTES,
    grace: timedelta | str = GRACE,
    retire: Iterable[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> Compaction:
    """Join the small files of an archive, and delete what is no longer needed.

        compact(spark, "/data/events")

    It may run at any time, beside writers and readers. Files of one type, day and journal are
    joined up to `target_bytes`. Files that were replaced, and what writers that died have left
    behind, are deleted after `grace`, in whole hours, which must be longer than the longest query
    on the archive and the longest micro-batch. Without a SparkSession the work is done in this
    process.

    `retire` names queries that wrote into the archive and never will again. Until then a live
    `history` goes on where the slowest query is.
    """
    if target_bytes < 1:
        raise InvalidConfiguration(
            f"target_bytes={target_bytes} is not a size; give some megabytes"
        )
    seconds = grace_seconds(grace)
    archive = Archive(place_of(path, spark, storage_options))
    _retire(archive.table(), retire)
    joined = join_small(spark, archive, target_bytes)
    deleted = archive.vacuum(seconds)
    return Compaction(
        version=archive.table().version,
        files_before=sum(len(each.replaced) for each in joined),
        files_after=len(joined),
        rows=sum(each.file.rows for each in joined),
        deleted=len(deleted),
    )


def grace_seconds(grace: timedelta | str) -> float:
    """A grace time as users write it, in seconds."""
    found = duration(grace) if isinstance(grace, str) else grace
    if not isinstance(found, timedelta) or found < timedelta(0):
        raise InvalidConfiguration(
            f"grace={grace!r} is not a duration; give a timedelta, or a text such as '1 day'"
        )
    return found.total_seconds()


def _retire(table: Table, names: Iterable[str]) -> None:
    retired = sorted(set(names))
    for name in retired:
        if name not in table.progress:
            known = ", ".join(map(repr, sorted(table.progress))) or "none"
            raise InvalidConfiguration(
                f"no query {name!r} has written into this archive; those that have: {known}"
            )
        if table.progress[name].holds:
            raise InvalidConfiguration(
                f"the query {name!r} held events back, and what it did not get to archive is "
                "missing with or without it; archive events before they are ordered or aggregated"
            )
    table.place.delete(f"{WRITERS}/{safe_name(name)}.json" for name in retired)


def join_small(
    spark: SparkSession | None, archive: Archive, target: int, *, at_least: int = 1
) -> list[Joined]:
    """Join small files, where there are so many of similar size; what was done."""
    groups = list(_plan(archive.table(), target, at_least))
    if not groups:
        return []
    if spark is None:
        return _replace(archive, [join_files(group) for group in groups])
    from stentor.pipeline.archives.frames import in_tasks

    found = in_tasks(spark, groups, _joined, REPORT).collect()
    return _replace(archive, [msgspec.json.decode(bytes(r.report), type=Joined) for r in found])


# -- the plan


def _plan(table: Table, target: int, at_least: int) -> Iterator[Group]:
    attributes = variants(table.columns)
    alike: dict[tuple[Any, ...], list[File]] = defaultdict(list)
    for file in table.files.values():
        if file.bytes >= target * 3 // 4 and file.is_own:
            continue
        size = log(max(file.bytes, SMALL_BYTES) / SMALL_BYTES, TIER)
        # Rows of several types stay apart, because that lets Spark read them by itself.
        kind = kind_of(file, attributes)
        ahead = file.times is None or file.times[1] > file.modified + AHEAD
        tier = int(size) if at_least > 1 else 0
        alike[file.type, file.day, file.journal, kind, ahead, tier].append(file)
    for key, files in alike.items():
        if len(files) < at_least:
            continue
        columns = table.columns if key[3] is None else pa.schema(chosen(table.columns, key[3]))
        files.sort(key=lambda file: (file.begins, file.path))
        for some in _packed(files, target):
            yield Group(table.place, columns, some)


def _packed(files: Sequence[File], target: int) -> Iterator[list[File]]:
    """Neighbours in time, up to the target size; single files are left alone."""
    packed: list[File] = []
    size = 0
    for file in files:
        if packed and (size + file.bytes > target or len(packed) == MAX_FILES):
            if len(packed) > 1:
                yield packed
            packed, size = [], 0
        packed.append(file)
        size += file.bytes
    if len(packed) > 1:
        yield packed


# -- the work


def join_files(group: Group) -> Joined:
    """Write one file in place of several."""
    place, columns, _ = group
    first = group.files[0]
    statistics = Statistics(columns)
    journal = first.journal if first.is_own else None
    writer = FileWriter(place, columns, first.type, first.day, journal)
    doubtful = {
        path
        for kinds in variants(columns).values()
        for path, kind in kinds.items()
        if pa.types.is_floating(kind) and any(_may_be_odd(file, path) for file in group.files)
    }
    with writer.open(doubtful):
        for portion in in_order(place, group.files, columns):
            statistics.add(portion.events)
            writer.write(portion.events)
    modified = max(file.modified for file in group.files) // 1_000
    found = writer.written(modified, statistics)
    rows = sum(file.rows for file in group.files)
    if found.rows != rows:
        place.delete([found.path])
        raise ArchiveError(
            f"joining files of {rows:,} rows has made one of {found.rows:,}; nothing is changed. "
            "Is the disk in order?"
        )
    return Joined(found, [file.path for file in group.files])


def _may_be_odd(file: File, path: str) -> bool:
    """Whether a column of floats may have values that are no numbers."""
    found = file.known(path)
    return found is None or not file.is_own or (found.high is None and found.absent != file.rows)


def _joined(group: Group) -> Iterator[pa.RecordBatch]:
    """The report on it, for Spark."""
    yield pa.record_batch({"report": [msgspec.json.encode(join_files(group))]})


def _replace(archive: Archive, results: Sequence[Joined]) -> list[Joined]:
    """Put joined files in the place of theirs; those for which that was possible."""
    kept: list[Joined] = []

    def make(table: Table) -> Step | None:
        kept[:] = [r for r in results if all(path in table.files for path in r.replaced)]
        if not kept:
            return None
        remove = [_removal(table.files[path]) for each in kept for path in each.replaced]
        return Step(add=[each.file.action(moved=True) for each in kept], remove=remove)

    table = archive.commit(make)
    unused = [each.file.path for each in results if each.file.path not in table.files]
    archive.place.delete(unused)
    return kept


def _removal(file: File) -> RemoveAction:
    from deltalake.transaction import RemoveAction

    partition = {"_type": file.type, DAY: file.day}
    return RemoveAction(file.path, False, int(time.time() * 1_000), file.bytes, partition)
