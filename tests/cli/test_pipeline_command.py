"""`stentor pipeline`: checking, listing, and a run as a process of its own."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from stentor.cli.pipeline import _stop_on_signals, _told
from stentor.pipeline.runs import Outcome

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


def stentor(
    *arguments: str | Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stentor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)


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
    quick = stentor("pipeline", "check", file, "--quick", "--json")
    assert quick.returncode == 0
    assert json.loads(quick.stdout)["sinks"] == [
        {"name": "kept", "input": "once", "kind": "parquet", "how": "append"}
    ]
    bad = stentor("pipeline", "check", file, "--set", "sink.kept.trigger=soon")
    assert bad.returncode == 2
    assert "--set sink.kept.trigger: 'soon' is not a length of time" in bad.stderr
    assert "STN-702" in bad.stderr


def test_check_finds_what_does_not_exist(tmp_path: Path) -> None:
    file = tmp_path / "lines.toml"
    file.write_text(PIPELINE.replace('deduplicate = "1 hour"', 'transform = { m = "nn + 1" }'))
    bad = stentor("pipeline", "check", file)
    assert bad.returncode == 2
    assert bad.stderr.startswith(
        f"stentor: STN-702: {file}:10: step 'once': there is no column 'nn'; did you mean 'n'?"
    )
    assert stentor("pipeline", "check", file, "--quick").returncode == 0
    assert sorted(tmp_path.iterdir()) == [file]
    # Where there is no Spark, the rest is still checked.
    without = {"PYTHONPATH": str(Path(__file__).parents[1] / "processes" / "without_spark")}
    some = stentor("pipeline", "check", file, env=os.environ | without)
    assert some.returncode == 0
    assert (
        "warning: columns and functions are not checked: this needs the package py" in some.stderr
    )


def test_a_dead_master_is_told_at_once(tmp_path: Path) -> None:
    """In words that say what to do, and before Spark is started."""
    file = tmp_path / "lines.toml"
    file.write_text(PIPELINE)
    began = time.monotonic()
    dead = stentor("pipeline", "run", file, "--master", "spark://127.0.0.1:1")
    assert dead.returncode == 1
    assert dead.stderr.startswith(
        "stentor: STN-701: there is no Spark master at spark://127.0.0.1:1 (127.0.0.1:1: "
    )
    assert "is it running" in dead.stderr
    assert not (tmp_path / ".stentor").exists()
    assert time.monotonic() - began < 60  # Spark itself takes more than a minute


@pytest.mark.parametrize(
    ("number", "once", "code"),
    [
        (signal.SIGINT, False, 130),
        (signal.SIGTERM, False, 0),
        (signal.SIGINT, True, 130),
        (signal.SIGTERM, True, 143),
    ],
)
def test_what_the_exit_code_says(number: signal.Signals, once: bool, code: int) -> None:
    def told(outcome: Outcome, *received: signal.Signals) -> int:
        console = Console(file=io.StringIO())
        return _told(outcome, console, list(received), Path("spark.log"), once=once)

    assert told(Outcome({}, stopped=True), number) == code
    assert told(Outcome({}, stopped=False), number) == 0  # it was done already
    assert told(Outcome({}, "a table is gone", stopped=True), number) == 1
    # What the help says is what happens.
    said = " ".join(stentor("pipeline", "run", "--help").stdout.split())
    assert "0 it was stopped by SIGTERM, which is how a pipeline ends" in said
    assert "130 it was stopped by Ctrl-C; with --once 143 by SIGTERM" in said


def test_a_signal_that_comes_twice_in_a_moment_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from `timeout`, which tells the process and then its group; and later it is a second."""
    now, stopped = 100.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(os, "_exit", sys.exit)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        received = _stop_on_signals(SimpleNamespace(stop=lambda: stopped.append(now)))  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert (received, stopped) == ([signal.SIGTERM], [100.0])
        now = 101.0
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)
        assert stopped == [100.0]
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def test_steps_are_listed_with_their_options() -> None:
    listed = stentor("pipeline", "steps")
    assert listed.returncode == 0
    assert any(line.startswith("collapse ") for line in listed.stdout.splitlines())
    one = stentor("pipeline", "steps", "order")
    assert "within: how long a stream waits for earlier ones (required" in one.stdout
    assert stentor("pipeline", "steps", "nothing").returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "to_all"),
    [(signal.SIGINT, 130, True), (signal.SIGTERM, 0, False), (signal.SIGTERM, 0, True)],
)
def test_a_process_is_stopped_and_goes_on(
    tmp_path: Path, number: signal.Signals, code: int, to_all: bool
) -> None:
    """All processes are told at once by Ctrl-C in a terminal, and by service managers."""
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
        if to_all:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(120) == code
        stderr.seek(0)
        said = stderr.read()
    assert f"{number.name}: finishing the batches that are under way" in said
    assert "kept: stopped" in said
    assert "Exception" not in said
    assert "WARN" not in said  # that is in Spark's own log
    assert (tmp_path / ".stentor" / "lines" / "spark.log").read_text()
    put(tmp_path, 1)
    put(tmp_path, 2)
    again = subprocess.run(
        [*command, "--once", "--json"], capture_output=True, text=True, env=environment, timeout=300
    )
    assert again.returncode == 0, again.stderr
    *steps, last = map(json.loads, again.stdout.splitlines())
    assert (steps[-1]["query"], steps[-1]["state"]) == ("kept", "done")
    assert (last["pipeline"], last["ended"], last["problem"]) == ("lines", "done", None)
    assert all(json.loads(line)["level"] for line in again.stderr.splitlines())
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


@pytest.mark.slow
def test_java_that_is_killed_is_told(tmp_path: Path) -> None:
    file, metrics = tmp_path / "lines.toml", tmp_path / "metrics.jsonl"
    file.write_text(PIPELINE)
    put(tmp_path, 0)
    command = [sys.executable, "-m", "stentor", "pipeline", "run", str(file)]
    process = subprocess.Popen(
        [*command, "--metrics", str(metrics)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        start_new_session=True,
    )
    deadline = time.monotonic() + 240
    while not (metrics.exists() and any(_rows(metrics))):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [java] = [int(c) for c in children if "java" in Path(f"/proc/{c}/cmdline").read_text()]
    os.kill(java, signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "STN-701: Spark has ended before the run: its Java process was stopped or kill" in said
    assert "Traceback" not in said
