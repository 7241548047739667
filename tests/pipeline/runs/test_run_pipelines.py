"""Pipelines that are run: from files through steps to sinks, stopped, failed and started again."""

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stentor.errors import PipelineError
from stentor.pipeline import history
from stentor.pipeline.runs import Runner, load
from stentor.pipeline.runs.figures import Figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = """
name = "test-run"
[source.quotes]
json = "in"
stream = true
max_files = 1
schema = "symbol string, price double, _id string, _time timestamp, _corrupt string"
"""


def put(directory: Path, number: int, count: int = 20) -> None:
    """A file with events, each half a second after the other."""
    inside = directory / "in"
    inside.mkdir(exist_ok=True)
    rows = [
        {
            "symbol": "IBM" if n % 2 else "MSFT",
            "price": float(n),
            "_id": f"p:0:{n}",
            "_time": f"2026-01-01T00:{n // 120:02}:{n % 120 / 2:04.1f}Z",
            "_corrupt": None if n % 10 else "{}",
        }
        for n in range(number * count, (number + 1) * count)
    ]
    hidden = inside / f".{number}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(hidden, (1_700_000_000 + number,) * 2)
    hidden.rename(inside / f"{number}.json")


def pipeline(directory: Path, text: str) -> Any:
    (directory / "p.toml").write_text(HEAD + text)
    return load(directory / "p.toml")


def prices(spark: "SparkSession", path: Path) -> list[float]:
    return sorted(row["price"] for row in spark.read.parquet(str(path)).collect())


def test_a_run_goes_on_where_the_last_one_ended(spark: "SparkSession", tmp_path: Path) -> None:
    text = """
    [[step]]
    name = "dear"
    select = "price >= 5"
    [[step]]
    name = "latest"
    collapse = { key = ["symbol"], rule = { price = "last", n = "count" } }
    [[sink]]
    from = "dear"
    parquet = "out"
    [[sink]]
    from = "latest"
    memory = "run_latest"
    """
    put(tmp_path, 0)
    seen: list[tuple[str, str]] = []
    first = Runner(
        pipeline(tmp_path, text),
        spark,
        once=True,
        watch=lambda figures, progress: seen.append((figures.name, figures.state)),
    ).run()
    assert first.problem is None
    assert not first.stopped
    figures = first.figures["dear-parquet"]
    assert (figures.rows, figures.corrupt, figures.state) == (20, 2, "done")
    assert ("latest-memory", "done") in seen
    assert prices(spark, tmp_path / "out") == [float(n) for n in range(5, 20)]
    state = {(row["symbol"], row["price"], row["n"]) for row in spark.table("run_latest").collect()}
    assert state == {("IBM", 19.0, 8), ("MSFT", 18.0, 7)}

    put(tmp_path, 1)
    only = pipeline(tmp_path, text.partition('[[sink]]\n    from = "latest"')[0])
    second = Runner(only, spark, once=True).run()
    assert second.figures["dear-parquet"].rows == 20
    assert prices(spark, tmp_path / "out") == [float(n) for n in range(5, 40)]


def test_a_run_that_is_stopped_finishes_its_batch(spark: "SparkSession", tmp_path: Path) -> None:
    put(tmp_path, 0)
    found = pipeline(tmp_path, '[[sink]]\nparquet = "out"\ntrigger = "0 seconds"\n')
    progressed = threading.Event()

    def watch(figures: Figures, progress: Any) -> None:
        if figures.rows:
            progressed.set()

    runner = Runner(found, spark, watch=watch)

    def stop_soon() -> None:
        progressed.wait(120)
        runner.stop()

    stopper = threading.Thread(target=stop_soon)
    stopper.start()
    outcome = runner.run()
    stopper.join()
    assert progressed.is_set()
    assert (outcome.problem, outcome.stopped) == (None, True)
    assert outcome.figures["quotes-parquet"].state == "stopped"
    assert prices(spark, tmp_path / "out") == [float(n) for n in range(20)]
    assert spark.streams.active == []


def test_one_failure_ends_all_and_is_told_in_words(spark: "SparkSession", tmp_path: Path) -> None:
    put(tmp_path, 0)
    (tmp_path / "test_run_mappings.py").write_text(
        "def picky(n):\n"
        "    if n['price'] > 3:\n        raise ValueError('too dear')\n    return n\n"
    )
    text = """
    [[step]]
    name = "mapped"
    apply = { function = "test_run_mappings:picky", schema = "price double" }
    [[sink]]
    from = "mapped"
    memory = "run_mapped"
    trigger = "0 seconds"
    [[sink]]
    from = "quotes"
    memory = "run_all"
    """
    (tmp_path / "p.toml").write_text("python = ['test_run_mappings.py']\n" + HEAD + text)
    outcome = Runner(load(tmp_path / "p.toml"), spark).run()
    assert outcome.problem == (
        "sink 'mapped-memory': PipelineError: picky failed on the event p:0:4: ValueError: too dear"
    )
    states = {name: figures.state for name, figures in outcome.figures.items()}
    assert states == {"mapped-memory": "failed", "quotes-memory": "stopped"}
    assert spark.streams.active == []


def test_tables_that_cannot_be_made(spark: "SparkSession", tmp_path: Path) -> None:
    put(tmp_path, 0)
    step = '[[step]]\nname = "x"\ntransform = { y = "prize * 2" }\n[[sink]]\nmemory = "run_x"\n'
    with pytest.raises(PipelineError, match=r"^step 'x': .*`prize`.*Did you mean.*`price`"):
        Runner(pipeline(tmp_path, step), spark).run()
    assert spark.streams.active == []


def test_batches_are_written_once(spark: "SparkSession", tmp_path: Path) -> None:
    put(tmp_path, 0)
    text = """
    [[step]]
    name = "known"
    enrich = { table = "sectors.csv", on = "symbol" }
    [[step]]
    name = "counts"
    collapse = { key = ["sector"], rule = { n = "count" } }
    [[sink]]
    json = "out"
    """
    (tmp_path / "sectors.csv").write_text("symbol,sector\nIBM,old\nMSFT,young\n")
    (tmp_path / "p.toml").write_text(HEAD.replace("stream = true\nmax_files = 1\n", "") + text)
    outcome = Runner(load(tmp_path / "p.toml"), spark).run()
    assert outcome.problem is None
    rows = spark.read.json(str(tmp_path / "out")).collect()
    assert sorted((row["sector"], row["n"]) for row in rows) == [("old", 10), ("young", 10)]
    again = Runner(load(tmp_path / "p.toml"), spark).run()
    assert again.problem is not None
    assert "PATH_ALREADY_EXISTS" in again.problem
    replaced = load(tmp_path / "p.toml", set=["sink.0.existing=replace"])
    assert Runner(replaced, spark).run().problem is None


def test_a_batch_does_not_archive_again_unless_it_is_told_to(
    spark: "SparkSession", tmp_path: Path
) -> None:
    put(tmp_path, 0)
    head = HEAD.replace("stream = true\nmax_files = 1\n", "")
    (tmp_path / "p.toml").write_text(head + '[[sink]]\narchive = { path = "kept" }\n')

    def run(*set: str) -> tuple[str | None, int]:
        outcome = Runner(load(tmp_path / "p.toml", set=set), spark).run()
        return outcome.problem, history(spark, tmp_path / "kept").count()

    assert run() == (None, 20)
    problem, count = run()
    assert problem is not None
    assert "there is an archive at" in problem
    assert 'existing = "add"' in problem
    assert count == 20
    assert run("sink.0.existing=add", "sink.0.archive.deduplicate=true") == (None, 20)
    assert run("sink.0.existing=add") == (None, 40)


def test_a_batch_that_takes_too_long_is_cancelled(spark: "SparkSession", tmp_path: Path) -> None:
    """It says that it has begun, and then waits for something that never comes."""
    put(tmp_path, 0)
    begun, never = tmp_path / "begun", tmp_path / "never"
    os.mkfifo(begun)
    os.mkfifo(never)
    (tmp_path / "test_run_waiting.py").write_text(
        f"def wait(n):\n    open({str(begun)!r}, 'w').close()\n    open({str(never)!r}).close()\n"
    )
    text = """
    [[step]]
    name = "slow"
    apply = { function = "test_run_waiting:wait", schema = "price double" }
    [[sink]]
    parquet = "out"
    [[sink]]
    from = "quotes"
    json = "next"
    """
    head = HEAD.replace("stream = true\nmax_files = 1\n", "")
    (tmp_path / "p.toml").write_text("python = ['test_run_waiting.py']\n" + head + text)
    runner = Runner(load(tmp_path / "p.toml"), spark, grace=0.0)

    def stop_when_begun() -> None:
        begun.open().close()
        runner.stop()

    stopper = threading.Thread(target=stop_when_begun)
    stopper.start()
    outcome = runner.run()
    stopper.join()
    assert (outcome.problem, outcome.stopped) == (None, True)
    assert {figures.state for figures in outcome.figures.values()} == {"stopped"}
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert not (tmp_path / "next").exists()


class _Gone:
    """A Java process that has ended."""

    def sc(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("asked", [True, False])
def test_java_that_has_ended_ends_the_run(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """As it is when a service manager ends all processes at once, or when it is killed."""
    put(tmp_path, 0)
    runner = Runner(pipeline(tmp_path, '[[sink]]\nname = "kept"\nparquet = "out"\n'), spark)
    if asked:
        runner.stop()
    with monkeypatch.context() as patched:
        patched.setattr(runner, "_run", _Gone().sc)
        patched.setattr(spark.sparkContext, "_jsc", _Gone())
        outcome = runner.run()
    assert outcome.stopped == asked
    assert [each.state for each in outcome.figures.values()] == ["stopped" if asked else "failed"]
    assert (outcome.problem or "").startswith("" if asked else "Spark has ended before the run")
    assert (outcome.problem is None) == asked


@pytest.mark.parametrize("stream", [True, False])
def test_a_batch_that_fails_when_the_run_is_to_stop_is_to_be_done_again(
    spark: "SparkSession", tmp_path: Path, stream: bool
) -> None:
    """Its workers may have been told to end, too."""
    put(tmp_path, 0)
    begun, told = tmp_path / "begun", tmp_path / "told"
    os.mkfifo(begun)
    os.mkfifo(told)
    module = f"test_run_ended_{stream}"
    (tmp_path / f"{module}.py").write_text(
        f"def wait(n):\n    open({str(begun)!r}, 'w').close()\n    open({str(told)!r}).close()\n"
        "    raise SystemError('told to end')\n"
    )
    text = f"""
    [[step]]
    name = "slow"
    apply = {{ function = "{module}:wait", schema = "price double" }}
    [[sink]]
    parquet = "out"
    """
    head = HEAD if stream else HEAD.replace("stream = true\nmax_files = 1\n", "")
    (tmp_path / "p.toml").write_text(f"python = ['{module}.py']\n" + head + text)
    runner = Runner(load(tmp_path / "p.toml"), spark, once=True)

    def stop_when_begun() -> None:
        begun.open().close()
        runner.stop()
        told.open("w").close()

    stopper = threading.Thread(target=stop_when_begun)
    stopper.start()
    outcome = runner.run()
    stopper.join()
    assert (outcome.problem, outcome.stopped) == (None, True)
