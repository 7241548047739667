"""`stentor pipeline`: checking, listing, and a run as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PIPELINE = """
name = "lines"
[source.lines]
json = "in"
stream = true
max_files = 1
schema = "n long, _id string, _time timestamp"
[[step]]
name = "once"
deduplicate = "1 hour"
[[sink]]
name = "kept"
parquet = "out"
trigger = "0 seconds"
[spark]
master = "local[2]"
config = { "spark.ui.enabled" = false, "spark.sql.shuffle.partitions" = 2 }
"""


def stentor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stentor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def put(directory: Path, number: int) -> None:
    rows = [
        {"n": n, "_id": f"p:0:{n}", "_time": f"2026-01-01T00:00:{n % 60:02}Z"}
        for n in range(number * 10, number * 10 + 10)
    ]
    (directory / "in").mkdir(exist_ok=True)
    hidden = directory / "in" / f".{number}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(directory / "in" / f"{number}.json")


def test_check_says_what_is_wrong_or_what_it_does(tmp_path: Path) -> None:
    file = tmp_path / "lines.toml"
    file.write_text(PIPELINE)
    good = stentor("pipeline", "check", file)
    assert good.returncode == 0, good.stderr
    assert good.stdout.splitlines()[1:] == [
        "  source lines: json, stream",
        "  step once: deduplicate of lines",
        "  sink kept: once to parquet, append",
    ]
    bad = stentor("pipeline", "check", file, "--set", "sink.kept.trigger=soon")
    assert bad.returncode == 2
    assert "--set sink.kept.trigger: 'soon' is not a length of time" in bad.stderr
    assert "STN-702" in bad.stderr


def test_steps_are_listed_with_their_options() -> None:
    listed = stentor("pipeline", "steps")
    assert listed.returncode == 0
    assert any(line.startswith("collapse ") for line in listed.stdout.splitlines())
    one = stentor("pipeline", "steps", "order")
    assert "within: how long a stream waits for earlier ones (required" in one.stdout
    assert stentor("pipeline", "steps", "nothing").returncode == 2


@pytest.mark.slow
def test_a_process_is_stopped_and_goes_on(tmp_path: Path) -> None:
    file, metrics = tmp_path / "lines.toml", tmp_path / "metrics.jsonl"
    file.write_text(PIPELINE)
    put(tmp_path, 0)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "stentor", "pipeline", "run", str(file)]
    with (tmp_path / "stderr").open("w+") as stderr:
        process = subprocess.Popen(
            [*command, "--metrics", str(metrics)],
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
        deadline = time.monotonic() + 240
        while not (metrics.exists() and any(_rows(metrics))):
            assert process.poll() is None, (tmp_path / "stderr").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        # As Ctrl-C in a terminal does: everybody in the group gets it.
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(120) == 0
        stderr.seek(0)
        said = stderr.read()
    assert "SIGINT: finishing the batches that are under way" in said
    assert "kept: stopped" in said
    assert "Exception" not in said
    assert "WARN" not in said  # that is in Spark's own log
    assert (tmp_path / ".stentor" / "lines" / "spark.log").read_text()
    put(tmp_path, 1)
    put(tmp_path, 2)
    again = subprocess.run(
        [*command, "--once"], capture_output=True, text=True, env=environment, timeout=300
    )
    assert again.returncode == 0, again.stderr
    assert "kept: done" in again.stderr
    assert sorted(_written(tmp_path / "out")) == list(range(30))


def _rows(metrics: Path) -> list[int]:
    return [json.loads(line)["rows"] for line in metrics.read_text().splitlines()]


def _written(directory: Path) -> list[int]:
    """What the sink's own list says was written; other files would be left by failed attempts."""
    import pyarrow.parquet as pq

    names = set()
    for log in sorted((directory / "_spark_metadata").iterdir(), key=lambda f: f.name):
        if log.name.isdigit():
            for line in log.read_text().splitlines()[1:]:
                names.add(json.loads(line)["path"].removeprefix("file://"))
    return [n for name in names for n in pq.read_table(name)["n"].to_pylist()]
