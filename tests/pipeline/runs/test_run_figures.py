"""Figures, metrics and causes: what is told of a run, from what Spark says."""

import io
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stentor.errors import PipelineError
from stentor.pipeline.runs.figures import Figures, lag
from stentor.pipeline.runs.metrics import MetricsFile, MetricsServer, prometheus
from stentor.pipeline.runs.spark_session import check_requirements, java_problem, java_version
from stentor.pipeline.runs.tables import cause
from stentor.pipeline.runs.view import Lines, line, shown, table


def progress(batch: int, rows: int, **others: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
        "numInputRows": rows,
        "processedRowsPerSecond": 10.0 * rows,
        "batchDuration": 250,
        **others,
    }


def test_figures_add_up() -> None:
    figures = Figures("bars")
    first = progress(
        0,
        100,
        observedMetrics={"source.q": {"rows": 100, "corrupt": 3}, "order1": {"late": 1}},
        stateOperators=[{"numRowsTotal": 5, "numRowsDroppedByWatermark": 2}],
        eventTime={"watermark": "2026-01-01T00:00:00Z"},
    )
    figures.add(first)
    figures.add(first)  # the same again
    figures.add(progress(1, 50, observedMetrics={"mine": {"odd": 7, "text": "x"}}))
    assert (figures.rows, figures.batches, figures.batch) == (150, 2, 1)
    assert (figures.corrupt, figures.late, figures.state_rows) == (3, 3, 0)
    assert figures.observed == {"odd": 7}
    assert figures.watermark == "2026-01-01T00:00:00Z"
    assert figures.summary()["rows"] == 150


@pytest.mark.parametrize(
    ("end", "latest", "found"),
    [
        ({"streams": {"b1#0": 4}}, {"streams": {"b1#0": 9, "b2#0": 3}}, 8),
        ('{"streams": {"b1#0": 4}}', '{"streams": {"b1#0": 4}}', 0),
        ({"streams": {"b1#0": 4}}, None, None),
        ({"logOffset": 3}, {"logOffset": 5}, None),
        ("no json", "no json", None),
    ],
)
def test_lag_is_known_for_journals(end: Any, latest: Any, found: int | None) -> None:
    assert lag({"sources": [{"endOffset": end, "latestOffset": latest}]}) == found


def test_the_journal_that_others_wait_for_is_told() -> None:
    """The earliest of which something is left; before it, one whose broker does not answer."""
    end = {
        "streams": {"b1#0": 4, "b2#0": 9, "b3#0": 7},
        "times": {"b1#0": "2026-01-01T00:00:02+00:00", "b2#0": "2026-01-01T00:00:01+00:00"},
    }
    figures = Figures("bars", "running")

    def after(**heads: int) -> tuple[str | None, str]:
        latest = {"streams": {f"{broker}#0": head for broker, head in heads.items()}}
        more = {"sources": [{"endOffset": end, "latestOffset": json.dumps(latest)}, {"x": 1}]}
        figures.add({**progress(figures.batches, 5), **more})
        return figures.held_back_by, line(figures)

    assert after(b1=4, b2=9, b3=7)[0] is None
    held, told = after(b1=6, b2=9, b3=7)
    assert held == "b1#0"
    assert told.endswith("held back by b1 at 2026-01-01T00:00:02+00:00, 2 left")
    assert after(b1=6, b2=10, b3=7)[0] == "b2#0"
    held, told = after(b1=6, b2=10)
    assert held == "b3#0"
    assert told.endswith("held back by b3, which does not answer")
    assert figures.summary()["journals"]["b2#0"] == {"time": "2026-01-01T00:00:01+00:00", "lag": 1}
    text = prometheus("market", [figures])
    assert 'journal_lag{pipeline="market",query="bars",journal="b1#0"} 2' in text
    assert (
        'journal_time_seconds{pipeline="market",query="bars",journal="b2#0"} 1767225601.0' in text
    )
    assert 'journal="b3#0"}' not in text


def test_metrics_go_to_a_file(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl")
    figures = Figures("bars")
    file.write(figures)
    figures.add(progress(0, 5))
    file.write(figures, progress(0, 5))
    file.close()
    lines = [json.loads(text) for text in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [each["rows"] for each in lines] == [0, 5]
    assert lines[1]["progress"]["batchId"] == 0
    with pytest.raises(PipelineError, match="cannot be written"):
        MetricsFile(tmp_path)


def test_metrics_are_served_for_prometheus() -> None:
    figures = Figures("bars", "running", rows=5)
    monitor = MetricsServer("127.0.0.1:0", lambda: prometheus("market", [figures]))
    try:
        url = f"http://{monitor.address}"
        text = urllib.request.urlopen(f"{url}/metrics").read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}/other")
        with pytest.raises(PipelineError, match="nobody can listen"):
            MetricsServer(monitor.address, lambda: "")
    finally:
        monitor.close()
    assert 'stentor_pipeline_rows_total{pipeline="market",query="bars"} 5' in text
    assert 'query="bars",state="running"} 1' in text
    assert "stentor_pipeline_lag{" not in text  # not known
    for each in text.splitlines():
        assert each.startswith("#") or each.rsplit(" ", 1)[1].replace(".", "").isdigit()


def test_lines_are_few(tmp_path: Path) -> None:
    now = 0.0
    with (tmp_path / "out").open("w") as out:
        lines = Lines(Console(file=out), clock=lambda: now)
        figures = Figures("bars", "running")
        for batch in range(100):
            now = batch / 2
            figures.add(progress(batch, 10))
            lines(figures)
        figures.state = "done"
        lines(figures)
    told = (tmp_path / "out").read_text().splitlines()
    assert len(told) == 6
    assert told[-1].startswith("bars: done, batch 99, 1,000 rows")


def test_a_table_shows_every_query() -> None:
    console = Console(record=True, width=120, force_terminal=True, file=io.StringIO())
    queries = [Figures("bars", "running", rows=1234, corrupt=5, lag=7), Figures("all", "failed")]
    with shown(console, lambda: queries) as changed:
        changed(queries[0])
    console.print(table(queries))
    text = console.export_text()
    assert "1,234" in text
    assert "failed" in text
    assert "lag 7" in line(queries[0])
    assert "5 corrupt" in line(queries[0])


# -- causes

WORKER = """\
[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Job aborted due to stage \
failure: Task 1 in stage 0.0 failed 1 times, most recent failure: Lost task 1.0 in stage 0.0: \
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] thrown: Traceback (most recent \
call last):
  File "/x/worker.py", line 1, in main
    process()
  File "/x/applying.py", line 9, in _results
    raise PipelineError(
stentor.errors.PipelineError: split failed on the event p:0:1: KeyError: 'symbol'
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1097)

Driver stacktrace: SQLSTATE: XXKST
"""
CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
ConnectionRefusedError: [Errno 111] refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in g
stentor.errors.Unreachable: nobody is at b1:7411;
is the broker running?
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
ANALYSIS = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. SQLSTATE: 42703; \
line 1 pos 0;
'Project [nope]
+- LogicalRDD [symbol#1]

JVM stacktrace:
org.apache.spark.sql.AnalysisException
\tat org.apache.spark.sql.X.f(X.scala:1)
"""
JAVA = """\
org.apache.spark.SparkException: [CANNOT_MERGE] These do not fit. SQLSTATE: 12345
\tat org.apache.spark.X.f(X.scala:1)
Caused by: java.io.IOException: more
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (WORKER, "PipelineError: split failed on the event p:0:1: KeyError: 'symbol'"),
        (CHAINED, "Unreachable: nobody is at b1:7411;\nis the broker running?"),
        (
            ANALYSIS,
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved.; "
            "line 1 pos 0",
        ),
        (JAVA, "[CANNOT_MERGE] These do not fit."),
        (ValueError("just this"), "just this"),
        (ValueError(), "ValueError"),
    ],
)
def test_the_cause_is_found(text: Any, found: str) -> None:
    assert cause(text) == found


# -- requirements


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_requirements()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match=r"needs Java 17 or later.*JAVA_HOME.*install one"):
        check_requirements()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match="none on this machine"):
        check_requirements()
    assert "there is no Java" in java_problem()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"pip install 'stentor\[spark\]'"):
        check_requirements()


def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "is Java 11, and Spark needs 17" in java_problem()
    java.write_text("#!/bin/nothing\n")
    assert "does not run" in java_problem()


@pytest.mark.parametrize(
    ("text", "version"),
    [('version "1.8.0_392"', 8), ('openjdk version "21" 2023', 21), ("what?", None)],
)
def test_java_versions(text: str, version: int | None) -> None:
    assert java_version(text) == version
