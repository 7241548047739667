"""`convert`: a Delta table of an archive that was written before archives were Delta tables.

Such an archive had a log of its own: numbered commits as JSON in `_stentor/log`, and from time to
time the state that they add up to in `_stentor/snapshots`. Only what is needed to read it once is
here. The events are written anew, into a directory beside it that takes its place when everything
is there; the old one stays under another name. Queries go on from their checkpoints, which come
along: the micro-batches that are archived, and how far each query is, are part of the new table.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from stentor.errors import ArchiveError, InvalidConfiguration
from stentor.pipeline.archives.columns import as_columns
from stentor.pipeline.archives.data_files import Written, pieces, safe_name, write_piece
from stentor.pipeline.archives.places import Place, place_of
from stentor.pipeline.archives.schemas import aligned
from stentor.pipeline.archives.tables import WRITERS, Archive, Step, Writer, position
from stentor.pipeline.columns.types import TIME, list_of

_LOG: Final = "_stentor/log"
_SNAPSHOTS: Final = "_stentor/snapshots"
_CHECKPOINTS: Final = "_stentor/checkpoints"
#: What such an archive had for columns, in Spark's notation.
_ARROW: Final = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "timestamp": TIME,
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


class Converted(msgspec.Struct, frozen=True):
    """What a conversion has made."""

    path: str
    rows: int
    files: int
    #: Where the old archive is now.
    before: str


class _State(msgspec.Struct):
    """What the old commits add up to."""

    version: int = 0
    files: dict[str, dict[str, Any]] = {}
    schemas: list[list[dict[str, Any]]] = []
    batches: dict[str, int] = {}
    progress: dict[str, dict[str, Any]] = {}

    def follow(self, commit: Mapping[str, Any]) -> None:
        """Do what a commit does."""
        self.version += 1
        for path in commit.get("remove", ()):
            del self.files[path]
        for file in commit.get("add", ()):
            fields = commit["schemas"][file["schema"]]
            if fields not in self.schemas:
                self.schemas.append(fields)
            self.files[file["path"]] = {**file, "schema": self.schemas.index(fields)}
        if commit.get("batch"):
            query, number = commit["batch"]
            self.batches[query] = number
        if commit.get("writer"):
            known = self.progress.setdefault(commit["writer"], {"next": {}})
            found = commit.get("progress") or {}
            for journal, offset in found.get("next", {}).items():
                known["next"][journal] = max(offset, known["next"].get(journal, 0))
            known["holds"] = bool(known.get("holds") or found.get("holds"))
        for writer in commit.get("retired", ()):
            self.progress.pop(writer, None)


def convert(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Converted:
    """Make a Delta table of an archive of an older version of Stentor.

        convert("/data/events")

    Nobody may write to it meanwhile. The table takes the place of the archive, which stays as
    `/data/events.before` until somebody deletes it; or it is made in another directory, `to`, which
    is how archives in object stores are converted.
    """
    old = place_of(path, None, storage_options)
    state = _read(old)
    if to is None and not old.is_local:
        raise InvalidConfiguration(f"{old.root} is not on this machine; say with `to` where to")
    beside = f"{old.root}.converting"
    if to is None:
        shutil.rmtree(beside, ignore_errors=True)
    archive = Archive(place_of(beside if to is None else to, None, storage_options))
    if archive.exists():
        raise ArchiveError(f"there is an archive at {archive.place.root}; give a new directory")
    files = list(_written(old, state, archive))
    _commit(archive, state, files)
    rows, before = sum(file.rows for file in files), old.root
    wanted = sum(file["rows"] for file in state.files.values())
    if rows != wanted:
        raise ArchiveError(
            f"the archive has {wanted:,} events, and {rows:,} were converted; nothing is changed"
        )
    if to is None:
        if os.path.isdir(old.path(_CHECKPOINTS)):
            shutil.copytree(old.path(_CHECKPOINTS), f"{beside}/{_CHECKPOINTS}")
        before = f"{old.root}.before"
        os.rename(old.root, before)
        os.rename(beside, old.root)
    found = archive.place.root if to is not None else old.root
    return Converted(found, rows, len(files), before)


def _read(place: Place) -> _State:
    snapshots = sorted(n for n in place.names(_SNAPSHOTS) if n.endswith(".zst"))
    state = _State()
    if snapshots:
        data = place.read(snapshots[-1])
        plain = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
        state = msgspec.json.decode(plain, type=_State)
    while (data := place.read(f"{_LOG}/{state.version + 1:020}.json")) is not None:
        try:
            state.follow(msgspec.json.decode(data))
        except (msgspec.DecodeError, KeyError, IndexError) as error:
            raise ArchiveError(
                f"commit {state.version + 1} of the archive at {place.root} is damaged: {error}; "
                "restore it from a backup"
            ) from error
    if not state.version:
        raise ArchiveError(
            f"there is no archive of an older version at {place.root}; is the path right?"
        )
    return state


def _written(old: Place, state: _State, archive: Archive) -> Iterator[Written]:
    """Write all events of the old archive; what of them is in one type of columns goes together."""
    for number, fields in enumerate(state.schemas):
        schema = _schema(fields)
        own = archive.columns(schema)
        files = [file for file in state.files.values() if file["schema"] == number]
        files.sort(key=lambda file: (str(file["type"]), str(file["day"]), file["path"]))
        paths = [file["path"] for file in files]
        for table in pieces(_batches(old, paths, schema, own), own):
            yield from write_piece(archive.place, table)


def _batches(
    place: Place, paths: list[str], schema: pa.Schema, own: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with place.open(path) as source:
            parquet = pq.ParquetFile(source)
            # A file may have a column more, which said when the turns of its events were.
            names = [name for name in schema.names if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(columns=names):
                yield as_columns(aligned(batch, schema), own)


def _commit(archive: Archive, state: _State, files: list[Written]) -> None:
    transactions = dict(state.batches)
    for name, progress in state.progress.items():
        found = progress.get("next", {})
        transactions |= {position(name, journal): offset for journal, offset in found.items()}
        writer = Writer(name, sorted(found), bool(progress.get("holds")))
        archive.place.write(f"{WRITERS}/{safe_name(name)}.json", msgspec.json.encode(writer))
    add = [file.action() for file in files]
    if not archive.exists():
        archive.columns(pa.schema({"_type": pa.string()}))
    archive.commit(lambda _: Step(add=add, transactions=transactions))


def _schema(fields: Iterable[Mapping[str, Any]]) -> pa.Schema:
    """The schema that is written in Spark's notation."""
    return pa.schema([_field(field) for field in fields])


def _field(field: Mapping[str, Any]) -> pa.Field:
    return pa.field(field["name"], _from_json(field["type"]))


def _from_json(written: Any) -> pa.DataType:
    if isinstance(written, str):
        decimal = _DECIMAL.fullmatch(written)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW[written]
    if written["type"] == "array":
        return list_of(_from_json(written["elementType"]))
    return pa.struct([_field(field) for field in written["fields"]])
