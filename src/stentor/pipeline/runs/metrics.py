"""Figures for machines: a file with a line of JSON for each micro-batch, and Prometheus by HTTP."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from stentor.errors import PipelineError
from stentor.pipeline.runs.figures import Figures, Journal
from stentor.transport.address import Address

#: Metric, kind, help, and where it is in `Figures`.
_METRICS: Final = (
    ("rows_total", "counter", "Events that the query has read.", "rows"),
    ("batches_total", "counter", "Micro-batches that it has finished.", "batches"),
    ("corrupt_total", "counter", "Events with attributes that did not fit.", "corrupt"),
    ("late_total", "counter", "Events that came too late.", "late"),
    ("rows_per_second", "gauge", "Speed of the last micro-batch.", "rows_per_second"),
    ("batch_milliseconds", "gauge", "Time that the last micro-batch took.", "duration"),
    ("lag", "gauge", "Events that are there and not yet read.", "lag"),
    ("state_rows", "gauge", "Rows of state that the query keeps.", "state_rows"),
)


def _seconds(journal: Journal) -> float | None:
    if isinstance(journal.time, str):
        return datetime.fromisoformat(journal.time).timestamp()
    return journal.time


_JOURNALS: Final[tuple[tuple[str, str, Callable[[Journal], float | None]], ...]] = (
    ("time_seconds", "How far it has been read, in the time of events, since 1970.", _seconds),
    ("lag", "Events of it that are there and not yet read.", lambda journal: journal.lag),
)
_STATES: Final = ("starting", "running", "waiting", "done", "stopped", "failed")


class MetricsFile:
    """Appends a line of JSON for each micro-batch: the figures, and all that Spark says."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: IO[str] = path.open("a", encoding="utf-8")
        except OSError as error:
            raise PipelineError(f"metrics cannot be written to {path}: {error.strerror}") from None
        self._lock = threading.Lock()

    def write(self, figures: Figures, progress: Mapping[str, Any] | None = None) -> None:
        """One line; `progress` is what Spark says about the micro-batch."""
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(), **figures.summary()}
        if progress is not None:
            line["progress"] = progress
        text = json.dumps(line, default=str)
        with self._lock:
            self._file.write(text + "\n")
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()


def prometheus(pipeline: str, queries: Iterable[Figures]) -> str:
    """The figures of all queries in the text form of Prometheus."""
    known = list(queries)
    lines = []
    for metric, kind, help, field in _METRICS:
        name = f"stentor_pipeline_{metric}"
        lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        for figures in known:
            value = getattr(figures, field)
            if value is not None:
                lines.append(f"{name}{{{_labels(pipeline, figures)}}} {value}")
    for metric, help, value in _JOURNALS:
        name = f"stentor_pipeline_journal_{metric}"
        lines += [f"# HELP {name} {help}", f"# TYPE {name} gauge"]
        for figures in known:
            for stream, journal in figures.journals.items():
                if (number := value(journal)) is not None:
                    escaped = stream.translate({92: r"\\", 34: r"\"", 10: r"\n"})
                    labels = f'{_labels(pipeline, figures)},journal="{escaped}"'
                    lines.append(f"{name}{{{labels}}} {number}")
    lines += [
        "# HELP stentor_pipeline_state What the query does; 1 for what it is.",
        "# TYPE stentor_pipeline_state gauge",
    ]
    for figures in known:
        for state in _STATES:
            labels = f'{_labels(pipeline, figures)},state="{state}"'
            lines.append(f"stentor_pipeline_state{{{labels}}} {int(figures.state == state)}")
    return "\n".join(lines) + "\n"


def _labels(pipeline: str, figures: Figures) -> str:
    # Names have no characters that would have to be escaped.
    return f'pipeline="{pipeline}",query="{figures.name}"'


class MetricsServer:
    """Serves the metrics at `http://ADDRESS/metrics`, in a thread of its own."""

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        where = Address.parse(address)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path.partition("?")[0] == "/metrics"
                body = (text() if known else "there is only /metrics\n").encode()
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: a scrape is not worth a line."""

        try:
            self._server = http.server.ThreadingHTTPServer((where.host, where.port), Handler)
        except OSError as error:
            raise PipelineError(f"nobody can listen at {address}: {error.strerror}") from None
        self._server.daemon_threads = True
        self.address = f"{where.host}:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, name="stentor-metrics", daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
