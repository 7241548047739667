"""The figures of a query, from what Spark says about each of its micro-batches.

Everything is taken from the JSON form of a progress, which is the same in a listener, in
`query.lastProgress` and in a file; nothing here knows of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from stentor.pipeline.runs.lateness import Lateness

#: Called with the figures of a query and what Spark says, when either has changed.
Watcher: TypeAlias = "Callable[[Figures, Mapping[str, Any] | None], None]"


@dataclass
class Outcome:
    """How a run ended."""

    figures: dict[str, Figures]
    #: What went wrong, if something did.
    problem: str | None = None
    #: Whether it was ended from outside before it was done.
    stopped: bool = False
    seconds: float = 0.0


class Journal(NamedTuple):
    """How far a journal has been read."""

    #: In the time of events: the latest of the last ones; None if that is not known.
    time: str | float | None
    #: Events that are there and not yet read; None while its broker does not answer.
    lag: int | None


@dataclass
class Figures:
    """One query, or one way over a bridge, since it was started."""

    name: str
    #: starting, running, waiting (for somebody who does not answer), done, stopped or failed
    state: str = "starting"
    batches: int = 0
    #: The id of the last micro-batch; they are counted over restarts.
    batch: int | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    #: Milliseconds that the last micro-batch with events took.
    duration: int = 0
    #: Events that are there and not yet read; None if the source does not say.
    lag: int | None = None
    state_rows: int = 0
    #: Events with attributes that did not fit, and events that came too late for their order or
    #: window and are in no result.
    corrupt: int = 0
    late: int = 0
    watermark: str | None = None
    #: How far each journal has been read, by its id.
    journals: dict[str, Journal] = field(default_factory=dict)
    problem: str | None = None
    #: The time of the last progress that was taken in; they come in order.
    latest: str = ""
    #: What steps have observed under other names, summed up.
    observed: dict[str, int] = field(default_factory=dict)
    lateness: Lateness = field(default_factory=Lateness, repr=False)

    def add(self, progress: Mapping[str, Any]) -> None:
        """Take in what Spark says about one more micro-batch; the same again does no harm."""
        time = str(progress.get("timestamp") or "")
        if time and time <= self.latest:
            return
        self.latest = time
        rows = int(progress.get("numInputRows") or 0)
        self.batch = progress.get("batchId", self.batch)
        self.batches += 1
        self.rows += rows
        self.rows_per_second = float(progress.get("processedRowsPerSecond") or 0.0)
        if rows:
            self.duration = int(progress.get("batchDuration") or 0)
        self.lag = lag(progress)
        self.journals = journals(progress) or self.journals
        operators = progress.get("stateOperators") or []
        self.state_rows = sum(int(each.get("numRowsTotal") or 0) for each in operators)
        self.late += self.lateness.add(progress)
        self.watermark = (progress.get("eventTime") or {}).get("watermark", self.watermark)
        for metrics in (progress.get("observedMetrics") or {}).values():
            self._observe(metrics)

    @property
    def held_back_by(self) -> str | None:
        """The journal that others wait for: one that does not answer, or else the earliest.

        None if all of them are read to their ends.
        """
        behind = {name: each for name, each in self.journals.items() if each.lag != 0}
        return min(behind, key=lambda name: _rank(behind[name]), default=None)

    def _observe(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            if not isinstance(value, int) or name == "rows":
                continue
            if name in ("corrupt", "late"):
                setattr(self, name, getattr(self, name) + value)
            else:
                self.observed[name] = self.observed.get(name, 0) + value

    def summary(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {
            "query": self.name,
            "state": self.state,
            "batch": self.batch,
            "rows": self.rows,
            "rowsPerSecond": round(self.rows_per_second, 1),
            "batchMilliseconds": self.duration,
            "lag": self.lag,
            "stateRows": self.state_rows,
            "corrupt": self.corrupt,
            "late": self.late,
            "watermark": self.watermark,
            "journals": {name: each._asdict() for name, each in self.journals.items()},
            "heldBackBy": self.held_back_by,
            **({"observed": self.observed} if self.observed else {}),
            **({"problem": self.problem} if self.problem else {}),
        }


def lag(progress: Mapping[str, Any]) -> int | None:
    """How many events wait in the sources; None if none of them says.

    >>> lag({"sources": [{"endOffset": {"streams": {"b1#0": 4}},
    ...                   "latestOffset": {"streams": {"b1#0": 9, "b2#0": 3}}}]})
    8
    """
    known = [_waiting(source) for source in progress.get("sources") or []]
    found = [each for each in known if each is not None]
    return sum(found) if found else None


def _rank(journal: Journal) -> tuple[bool, str, float]:
    time = journal.time
    text, number = (time, 0.0) if isinstance(time, str) else ("", time or 0.0)
    return journal.lag is not None, text, number


def journals(progress: Mapping[str, Any]) -> dict[str, Journal]:
    """How far each journal has been read, of all sources that are journals.

    >>> journals({"sources": [{"endOffset": {"streams": {"b1#0": 4}, "times": {"b1#0": 7.5}},
    ...                        "latestOffset": {"streams": {"b1#0": 9}}}]})
    {'b1#0': Journal(time=7.5, lag=5)}
    """
    found = {}
    for source in progress.get("sources") or []:
        end, latest = (_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
        heads = _streams(latest) or {}
        for stream, offset in (_streams(end) or {}).items():
            left = max(0, heads[stream] - offset) if stream in heads else None
            found[stream] = Journal(end.get("times", {}).get(stream), left)
    return found


def _waiting(source: Mapping[str, Any]) -> int | None:
    end, latest = _streams(source.get("endOffset")), _streams(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(stream, 0)) for stream, offset in latest.items())


def _streams(offset: Any) -> dict[str, int] | None:
    """The offsets of journals; those of other sources count something else."""
    streams = _offset(offset).get("streams")
    return streams if isinstance(streams, dict) else None


def _offset(written: Any) -> dict[str, Any]:
    """An offset as Spark shows it; that of a `live` history has one of journals inside."""
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except ValueError:
            return {}
    found = written if isinstance(written, dict) else {}
    return found.get("live") or found
