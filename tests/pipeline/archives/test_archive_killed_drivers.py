"""Drivers that are killed at random moments: the archive ends with exactly what was published."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from stentor.pipeline.archives.compaction import compact
from stentor.pipeline.archives.places import place_of
from stentor.pipeline.archives.tables import Archive

KILLS = 20
FILES = 100
ROWS = 25


def publish(directory: Path) -> None:
    directory.mkdir()
    n = 0
    for number in range(FILES):
        lines = []
        for _ in range(ROWS):
            n += 1
            lines.append(
                json.dumps(
                    {
                        "n": n,
                        "_id": f"p:1:{n}",
                        "_type": ("quote", "trade")[n % 2],
                        "_time": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z",
                        "_broker": "b1",
                        "_offset": n,
                    }
                )
            )
        (directory / f"{number:04}.json").write_text("\n".join(lines))


class Driver:
    def __init__(self, home: Path, *, finish: bool) -> None:
        given = {
            "source": str(home / "source"),
            "archive": str(home / "archive"),
            "home": str(home),
            "finish": finish,
        }
        script = Path(__file__).with_name("archiving_driver.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def begun(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "running\n"

    def kill(self) -> None:
        """With its JVM, which ends when the driver's Python is gone, and its workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.mark.slow
@pytest.mark.spec("R-07.60")
def test_killed_drivers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    publish(tmp_path / "source")
    archive = Archive(place_of(tmp_path / "archive"))
    versions = [0]
    for _ in range(KILLS):
        driver = Driver(tmp_path, finish=False)
        try:
            driver.begun()
            # A moment anywhere in the course of a few batches.
            wanted = min(versions[-1] + chance.randint(0, 4), FILES - 2)
            deadline = time.monotonic() + 120
            while version(archive) < wanted and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(chance.random() * 0.8)
        finally:
            driver.kill()
        versions.append(version(archive))
    driver = Driver(tmp_path, finish=True)
    try:
        driver.begun()
        assert driver.process.wait(300) == 0
    finally:
        if driver.process.poll() is None:
            driver.kill()
    assert versions[-1] > versions[1], "nothing was archived between the kills"
    check(tmp_path, archive)
    compact(None, tmp_path / "archive")
    check(tmp_path, archive)


def version(archive: Archive) -> int:
    return archive.table().version if archive.exists() else 0


def check(home: Path, archive: Archive) -> None:
    table = archive.table()
    found: Counter[int] = Counter()
    for file in table.files.values():
        rows = pq.read_table(home / "archive" / file.path, partitioning=None)
        assert rows.num_rows == file.rows
        found.update(rows.column("n").to_pylist())
    assert found == Counter(range(1, FILES * ROWS + 1))
    assert table.positions() == {"b1": FILES * ROWS + 1}
    # By a reader that is not ours.
    assert Counter(DeltaTable(home / "archive").to_pyarrow_table().column("n").to_pylist()) == found
