"""Archives of an earlier version, with a log of their own, become Delta tables."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archive_events import DAWN, SCHEMA, at, event, table_of
from click.testing import CliRunner
from deltalake import DeltaTable

import stentor
from stentor.cli.app import app
from stentor.errors import ArchiveError
from stentor.pipeline.archives.conversion import convert
from stentor.pipeline.archives.frames import spark_schema
from stentor.pipeline.archives.tables import Batch, Progress

LARGE = 2**53 + 1


class Old:
    """Writes what the earlier version wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0

    def file(self, name: str, table: pa.Table, schema: int = 0) -> dict[str, Any]:
        path = f"data/type=quote/day=2026-01-01/{name}.parquet"
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, self.path / path)
        more = {"bytes": 1, "schema": schema, "columns": {}, "offsets": {"b1": [1, 9]}}
        return {"path": path, "type": "quote", "day": "2026-01-01", "rows": len(table), **more}

    def commit(self, **what: Any) -> None:
        self.version += 1
        log = self.path / "_stentor" / "log" / f"{self.version:020}.json"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(json.dumps({"at": 0.0, "operation": "append", **what}))

    def snapshot(self, state: dict[str, Any]) -> None:
        folder = self.path / "_stentor" / "snapshots"
        folder.mkdir(parents=True)
        file = folder / f"{self.version:020}.json.zst"
        with pa.CompressedOutputStream(str(file), "zstd") as stream:
            stream.write(json.dumps({"version": self.version, "format": 1, **state}).encode())


def old_archive(path: Path, *, snapshot: bool) -> None:
    old = Old(path)
    fields = SCHEMA.jsonValue()["fields"]
    first = table_of([event(n, n) for n in range(1, 4)])
    late = first.append_column("_turn", pa.nulls(3, pa.timestamp("us", "UTC")))
    one = old.file("one", late)
    progress = {"next": {"b1": 4}, "latest": {"b1": DAWN + 3}}
    begin = {"schemas": [fields], "batch": ["query", 0], "writer": "w", "progress": progress}
    if snapshot:
        # The commits that it stands for were tidied up.
        old.version = 7
        state = {"files": {one["path"]: one}, "schemas": [fields], "batches": {"query": 0}}
        old.snapshot({**state, "progress": {"w": progress}, "removed": {"data/x": 1.0}})
    else:
        old.commit(add=[one], **begin)
    two = old.file("two", table_of([event(4, 4)]))
    old.commit(add=[two], schemas=[fields], batch=["query", 1], writer="w",
               progress={"next": {"b1": 5}})  # fmt: skip
    whole = pa.table({"price": [LARGE], "_offset": [5], "_broker": ["b1"], "_type": ["quote"]})
    three = old.file("three", whole)
    old.commit(add=[three], schemas=[spark_schema(whole.schema).jsonValue()["fields"]])
    joined = old.file("joined", table_of([event(n, n) for n in range(1, 5)]))
    old.commit(
        operation="compact", add=[joined], schemas=[fields], remove=[one["path"], two["path"]]
    )
    (path / "_stentor" / "checkpoints" / "w").mkdir(parents=True)
    (path / "_stentor" / "checkpoints" / "w" / "metadata").write_text('{"id": "query"}')


@pytest.mark.parametrize("snapshot", [False, True])
def test_an_old_archive_becomes_a_table_in_its_place(tmp_path: Path, snapshot: bool) -> None:
    path = tmp_path / "archive"
    old_archive(path, snapshot=snapshot)
    with pytest.raises(ArchiveError, match="stentor archive convert"):
        stentor.history(path)
    done = CliRunner().invoke(app, ["archive", "convert", str(path)])
    assert done.exit_code == 0, done.output
    assert "5 events in 2 files" in done.output
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted(row["_offset"] for row in found) == [1, 2, 3, 4, 5]
    assert [row["price@bigint"] for row in found if row["_offset"] == 5] == [LARGE]
    table = at(path).table()
    assert table.has(Batch("query", 1))
    assert not table.has(Batch("query", 2))
    assert table.progress == {"w": Progress({"b1": 5})}
    assert (path / "_stentor" / "checkpoints" / "w" / "metadata").exists()
    assert (tmp_path / "archive.before" / "data").exists()
    assert not (tmp_path / "archive.converting").exists()
    assert not (path / "data" / "type=quote").exists()
    assert stentor.history(path, f"price = {LARGE}").to_arrow().num_rows == 1
    with pytest.raises(ArchiveError, match="no archive of an older version"):
        convert(path)


def test_elsewhere_and_what_is_damaged(tmp_path: Path) -> None:
    old_archive(tmp_path / "old", snapshot=False)
    done = convert(tmp_path / "old", tmp_path / "new")
    assert (done.rows, done.path) == (5, str(tmp_path / "new"))
    assert (tmp_path / "old" / "data").exists()
    with pytest.raises(ArchiveError, match="give a new directory"):
        convert(tmp_path / "old", tmp_path / "new")
    (tmp_path / "old" / "_stentor" / "log" / f"{2:020}.json").write_text("{")
    with pytest.raises(ArchiveError, match=r"commit 2 .* is damaged"):
        convert(tmp_path / "old", tmp_path / "third")
