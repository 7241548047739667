"""Joins small files: what to join, and how.

A micro-batch makes a file for each type and day, however few events it has. A compaction takes
files of one type and day whose columns are of the same types, merges them in the order of the
archive, and commits: these are replaced by that one. Until then nothing has changed for anybody,
and after it the old files stay for a grace time, because readers who began before still look at
them. If somebody else has replaced one of the files meanwhile, that group is left as it is.

Before it is committed, the new file is opened once more, and must have as many rows as the old ones
together; statistics, offsets and turns are those of the old files, since the rows are.

The plan follows the idea of a log-structured merge tree: joined are files of about the same size,
and only when there are enough of them, so that a row is written again a few times in its life and
not with every batch. A compaction that is asked for by hand joins everything that is small.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from math import log
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from stentor.errors import ArchiveError
from stentor.pipeline.archives.log import Log
from stentor.pipeline.archives.manifests import Bounds, Commit, File, State
from stentor.pipeline.archives.merging import in_order
from stentor.pipeline.archives.places import Place
from stentor.pipeline.archives.schemas import agree, joined, leaves
from stentor.pipeline.archives.writing import DATA, FileWriter
from stentor.pipeline.columns.types import as_json, from_json

#: The size that files should have.
TARGET_BYTES: Final = 128 * 2**20
#: Files that are joined at once, at most.
MAX_FILES: Final = 256
#: As many files of similar size are joined without being asked; similar is within this factor.
TIER: Final = 16
#: Files below this size are all the same.
SMALL_BYTES: Final = 64 * 1024


#: An event type and a day.
Partition: TypeAlias = tuple[str | None, str | None]
#: Files that may be joined: an event type, a day, and a number for the types of the columns.
Like: TypeAlias = tuple[str | None, str | None, int]


class Group(msgspec.Struct, frozen=True):
    """Files to be joined."""

    root: str
    schemas: list[list[dict[str, Any]]]
    files: list[File]


class Joined(msgspec.Struct, frozen=True):
    """A file that takes the place of others."""

    file: File
    fields: list[dict[str, Any]]
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


# -- the plan


def plan(state: State, root: str, target: int, *, at_least: int = 2) -> list[Group]:
    """What to join: all small files, if there are so many of them in a partition."""
    found = []
    for files in _alike(state).values():
        small = [file for file in files if file.bytes < target * 3 // 4]
        if len(small) >= at_least:
            found += [_group(state, root, files) for files in _packed(small, target)]
    return found


def tiered_plan(
    state: State, root: str, target: int, partitions: Container[Partition]
) -> list[Group]:
    """What to join in these partitions without being asked: many files of similar size."""
    found = []
    for files in _alike(state, partitions).values():
        tiers: dict[int, list[File]] = defaultdict(list)
        for file in files:
            if file.bytes < target * 3 // 4:
                tiers[int(log(max(file.bytes, SMALL_BYTES) / SMALL_BYTES, TIER))].append(file)
        for tier in tiers.values():
            if len(tier) >= TIER:
                found += [_group(state, root, files) for files in _packed(tier, target)]
    return found


def _alike(state: State, partitions: Container[Partition] | None = None) -> dict[Like, list[File]]:
    """Files of one partition whose columns are of the same types."""
    found: dict[Like, list[File]] = defaultdict(list)
    types = _types(state)
    for file in state.files.values():
        if partitions is None or file.partition in partitions:
            found[*file.partition, types[file.schema]].append(file)
    for files in found.values():
        files.sort(key=lambda file: (file.low, file.path))
    return found


def _types(state: State) -> list[int]:
    """A number for each schema; those of one number agree in the types of all columns."""
    together: list[pa.Schema] = []
    found = []
    for fields in state.schemas:
        schema = from_json(fields)
        number = next((i for i, one in enumerate(together) if agree(one, schema)), len(together))
        if number == len(together):
            together.append(schema)
        else:
            together[number] = joined(together[number], schema)
        found.append(number)
    return found


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


def _group(state: State, root: str, files: list[File]) -> Group:
    numbers = sorted({file.schema for file in files})
    place = {number: i for i, number in enumerate(numbers)}
    return Group(
        root,
        [state.schemas[number] for number in numbers],
        [msgspec.structs.replace(file, schema=place[file.schema]) for file in files],
    )


# -- the work


def join_files(group: Group) -> Joined:
    """Write one file in place of several."""
    place = Place(group.root)
    schemas = [from_json(fields) for fields in group.schemas]
    schema = pa.schema([])
    for one in schemas:
        schema = joined(schema, one)
    first = group.files[0]
    late = any(file.late or file.floors for file in group.files)
    writer = FileWriter(place, schema, first.type, first.day, late=late)
    with writer.open():
        for portion in in_order(place, group.files, schema):
            writer.write(portion.events, portion.turn)
    outside = sum(file.outside for file in group.files)
    early = min((file.early for file in group.files if file.early is not None), default=None)
    bounds, offsets = _bounds(group.files, schemas, schema), _offsets(group.files)
    file = writer.file(bounds, offsets, outside, early)
    _verify(place, file, sum(each.rows for each in group.files))
    return Joined(file, as_json(schema), [each.path for each in group.files])


def join_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same for groups in rows; for `mapInArrow`."""
    for batch in batches:
        for data in batch.column("report").to_pylist():
            found = join_files(msgspec.json.decode(data, type=Group))
            yield pa.record_batch({"report": pa.array([msgspec.json.encode(found)], pa.binary())})


def _verify(place: Place, file: File, rows: int) -> None:
    with place.open(file.path) as source:
        found = pq.read_metadata(source).num_rows
    if not found == file.rows == rows:
        raise ArchiveError(
            f"joining files of {rows:,} rows has made one of {found:,}; nothing is changed. Is the "
            f"disk in order? {file.path} can be deleted"
        )


def _bounds(
    files: Sequence[File], schemas: Sequence[pa.Schema], schema: pa.Schema
) -> dict[str, Bounds]:
    """The bounds of the rows of all files."""
    names = [{name for name, _ in leaves(one)} for one in schemas]
    found = {}
    for name, _ in leaves(schema):
        parts = [
            file.columns.get(name) if name in names[file.schema] else Bounds(None, None, file.rows)
            for file in files
        ]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            continue  # not measured in some file
        having = [(p, f) for p, f in zip(known, files, strict=True) if p.absent < f.rows]
        lows: list[Any] = [part.low for part, _ in having]
        highs: list[Any] = [part.high for part, _ in having]
        found[name] = Bounds(
            None if None in lows else min(lows, default=None),
            None if None in highs else max(highs, default=None),
            sum(part.absent for part in known),
        )
    return found


def _offsets(files: Iterable[File]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for file in files:
        for journal, (first, last) in file.offsets.items():
            known = found.get(journal, (first, last))
            found[journal] = min(first, known[0]), max(last, known[1])
    return found


# -- the commit


def replace_files(log: Log, results: Sequence[Joined], now: float | None = None) -> list[Joined]:
    """Put joined files in the place of theirs; those for which that was possible."""
    kept: list[Joined] = []

    def make(state: State) -> Commit | None:
        kept[:] = [r for r in results if all(path in state.files for path in r.replaced)]
        if not kept:
            return None
        return Commit(
            at=time.time() if now is None else now,
            operation="compact",
            schemas=[result.fields for result in kept],
            add=[msgspec.structs.replace(r.file, schema=i) for i, r in enumerate(kept)],
            remove=[path for result in kept for path in result.replaced],
        )

    log.commit(make)
    log.discard({result.file.path for result in results} - {result.file.path for result in kept})
    return kept


def clean(log: Log, grace: float, now: float | None = None) -> int:
    """Delete what nobody needs who began less than `grace` seconds ago; how many data files."""
    before = (time.time() if now is None else now) - grace
    state = log.existing()
    gone = {path for path, at in state.removed.items() if at < before}
    known = state.files.keys() | state.removed.keys()
    listed = log.store.entries(DATA)
    # A file that is not mentioned may be about to be; its writer gets the same time.
    unknown = {e.name for e in listed if e.modified < before and e.name not in known}
    if unknown:
        state = log.state()  # some of them may have been committed while the list was made
        unknown -= state.files.keys() | state.removed.keys()
    log.store.delete(gone | unknown)
    if gone:

        def make(state: State) -> Commit | None:
            still = sorted(gone & state.removed.keys())
            return Commit(at=time.time(), operation="clean", deleted=still) if still else None

        log.commit(make)
    log.tidy(before)
    return len(gone | unknown)
