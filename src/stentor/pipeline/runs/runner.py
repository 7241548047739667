"""Runs a pipeline: one query for each sink that is a stream, one job for each that is not.

Batches come first, one after the other; then all queries are started and run side by side. They
end together: when one fails, when the caller asks for it, or, with `once`, when each has dealt with
everything that was there. What a query has done is in its checkpoint, so the next run goes on from
there, however this one ended.

*Stopping.* Spark's `stop` interrupts a micro-batch wherever it is. Nothing is lost by that, for the
batch is done again, but its work is; so a query may finish the batch that it is at, within `grace`
seconds, and is stopped between two. A batch that is no query gets the same time, and then its jobs
are cancelled; so it runs in a thread of its own, under a tag by which Spark knows its jobs.

A batch that fails once the run is told to stop counts as stopped, too: it is done again in the next
run, which tells if it fails there. For whoever stops a run often ends all its processes at once, as
systemd does: then Java, or a worker, is gone before the batch is done.

*Progress.* A listener takes in what Spark says of each micro-batch, in a thread of Spark's own. A
query may end before the last words about it have come, so those are asked for at the end.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from stentor.errors import StentorError
from stentor.pipeline.registration import require_own
from stentor.pipeline.runs.definition import Pipeline, Sink
from stentor.pipeline.runs.figures import Figures, Outcome, Watcher
from stentor.pipeline.runs.lateness import Lateness, checkpointed_watermark
from stentor.pipeline.runs.sinks import query_name, start, write
from stentor.pipeline.runs.tables import Tables, cause, explained

#: Seconds between two looks at the queries.
_LOOK: Final = 0.1
#: Seconds that a query may take to finish its batch when it is told to stop.
GRACE: Final = 30.0
#: Seconds that a batch may take to end when its jobs are cancelled; then it is left to itself.
_CANCELLING: Final = 10.0
#: Seconds in which the run is told to stop, if whoever ended Java ends all processes.
_TOLD: Final = 2.0


@dataclass
class _Query:
    sink: Sink
    figures: Figures
    query: StreamingQuery | None = None
    #: Batches that were done when it was told to stop.
    batches: int = 0


@dataclass
class Runner:
    """One run of a pipeline in a session.

        outcome = Runner(load("market.toml"), spark, once=True).run()

    `stop`, which may be called from anywhere, even a signal handler, ends it in good order.
    """

    pipeline: Pipeline
    spark: SparkSession
    once: bool = False
    grace: float = GRACE
    watch: Watcher | None = None
    #: A plain value: an event has a lock, which whoever a signal interrupts may hold.
    _asked: bool = False
    _queries: dict[str, _Query] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        require_own(self.spark, "a pipeline")
        for sink in self.pipeline.sinks.values():
            name = query_name(sink, f"{self.pipeline.name}.{sink.name}")
            self._queries[name] = _Query(sink, Figures(sink.name))

    @property
    def figures(self) -> dict[str, Figures]:
        """By the names of the sinks; they change while it runs."""
        return {each.sink.name: each.figures for each in self._queries.values()}

    def stop(self) -> None:
        """Let it end soon."""
        self._asked = True

    def run(self) -> Outcome:
        """Run until everything is done, something has failed, or it is told to stop.

        `PipelineError` if a table cannot be made at all; then nothing was started.
        """
        began = time.monotonic()
        problem = None
        try:
            problem = self._run()
        except Exception:
            if not self._is_lost():
                raise
        if self._is_lost():
            problem = self._lost()
        unfinished = any(f.state == "stopped" for f in self.figures.values())
        return Outcome(self.figures, problem, unfinished, time.monotonic() - began)

    def _run(self) -> str | None:
        tables = self._tables()
        listener = _Listener(self)
        self.spark.streams.addListener(listener)
        try:
            return self._batches(tables) or self._streams(tables) or self._wait()
        finally:
            self._end()
            self.spark.streams.removeListener(listener)

    def _is_lost(self) -> bool:
        """Whether Spark has ended before the run."""
        java = self.spark.sparkContext._jsc
        try:
            return java is None or bool(java.sc().isStopped())
        except (Py4JError, ConnectionError):
            return True

    def _lost(self) -> str | None:
        """What was under way has ended with Spark; the problem, if the run was to go on."""
        deadline = time.monotonic() + _TOLD
        while not self._asked and time.monotonic() < deadline:
            time.sleep(_LOOK)
        problem = None
        if not self._asked:
            problem = (
                "Spark has ended before the run: its Java process was stopped or killed, or ran "
                "out of memory; the next run goes on from the last checkpoint"
            )
        for each in self._queries.values():
            if each.query is not None or each.figures.state in ("starting", "running"):
                each.figures.problem = problem
                self._changed(each, "failed" if problem else "stopped")
        return problem

    def _tables(self) -> dict[str, DataFrame]:
        made = Tables(self.spark, self.pipeline)
        for file in self.pipeline.python:
            self.spark.sparkContext.addPyFile(str(file))
        return {name: made.table(each.sink.input) for name, each in self._queries.items()}

    # -- one after the other

    def _batches(self, tables: Mapping[str, DataFrame]) -> str | None:
        for name, table in tables.items():
            each = self._queries[name]
            if table.isStreaming:
                continue
            if self._asked:
                self._changed(each, "stopped")
                continue
            self._changed(each, "running")
            job = _Job(self.spark, each.sink, partial(write, table, each.sink, name))
            try:
                stopped = not self._finished(job)
            finally:
                job.cancel()
            stopped = stopped or (job.problem is not None and self._asked)
            problem = None if stopped else job.problem
            each.figures.problem = problem
            self._changed(each, "stopped" if stopped else "failed" if problem else "done")
            if problem:
                return problem
        return None

    def _finished(self, job: _Job) -> bool:
        """Whether it is done, well or badly; False if there was no more time for it."""
        deadline: float | None = None
        while not job.ended(_LOOK):
            if self._asked:
                deadline = time.monotonic() + self.grace if deadline is None else deadline
                if time.monotonic() >= deadline:
                    return False
        return True

    # -- side by side

    def _streams(self, tables: Mapping[str, DataFrame]) -> str | None:
        for name, table in tables.items():
            each = self._queries[name]
            if table.isStreaming and not self._asked:
                problem = _attempt(each.sink, partial(self._start, each, table, name))
                if problem:
                    each.figures.problem = problem
                    self._changed(each, "failed")
                    return problem
                self._changed(each, "running")
        return None

    def _start(self, each: _Query, table: DataFrame, name: str) -> None:
        if each.sink.checkpoint is not None:
            found = partial(checkpointed_watermark, self.spark, each.sink.checkpoint)
            each.figures.lateness = Lateness(found)
        each.query = start(table, each.sink, name, once=self.once)

    def _wait(self) -> str | None:
        """Until all are done or the run is told to stop; the problem of the first that fails."""
        while not self._asked:
            running = False
            for each in self._queries.values():
                if each.query is None:
                    continue
                if each.query.isActive:
                    running = True
                    continue
                error = each.query.exception()
                if error is not None and not self._asked:
                    each.figures.problem = f"sink {each.sink.name!r}: {cause(error)}"
                    self._changed(each, "failed")
                    return each.figures.problem
            if not running:
                return None
            time.sleep(_LOOK)
        return None

    # -- the end

    def _end(self) -> None:
        """End what still runs, and take in its last words."""
        active = [q for q in self._queries.values() if q.query is not None and q.query.isActive]
        for each in active:
            each.batches = each.figures.batches
        deadline = time.monotonic() + self.grace
        while active and time.monotonic() < deadline:
            active = [each for each in active if not self._stopped(each)]
            if active:
                time.sleep(_LOOK / 2)
        for each in active:
            self._force(each)
        for each in self._queries.values():
            self._last_words(each)

    def _stopped(self, each: _Query) -> bool:
        """Stop the query if it is between two batches; whether it has ended."""
        assert each.query is not None
        if not each.query.isActive:
            return True
        if each.query.status["isTriggerActive"] and each.figures.batches == each.batches:
            return False
        self._force(each)
        return True

    def _force(self, each: _Query) -> None:
        assert each.query is not None
        each.query.stop()
        self._changed(each, "stopped")

    def _last_words(self, each: _Query) -> None:
        if each.query is None:
            if each.figures.state == "starting":
                self._changed(each, "stopped")
            return
        for progress in each.query.recentProgress:
            self._progressed(each.query.name, json.loads(progress.json))
        if each.figures.state not in ("failed", "stopped"):
            # With `once`, a query that ends by itself has done all that was asked for.
            error = each.query.exception()
            asked = "stopped" if self._asked else "failed"
            self._changed(each, "done" if error is None else asked)

    # -- what is told

    def _progressed(self, name: str | None, progress: Mapping[str, Any]) -> None:
        each = self._queries.get(name or "")
        if each is None:
            return
        with self._lock:
            before = each.figures.batches
            each.figures.add(progress)
            new = each.figures.batches > before
        if new and self.watch is not None:
            self.watch(each.figures, progress)

    def _changed(self, each: _Query, state: str) -> None:
        each.figures.state = state
        if self.watch is not None:
            self.watch(each.figures, None)


class _Job:
    """A batch at work, in a thread of its own."""

    def __init__(self, spark: SparkSession, sink: Sink, action: Callable[[], Any]) -> None:
        from pyspark import InheritableThread

        #: What went wrong, once it has ended.
        self.problem: str | None = None
        self._spark = spark
        self._tag = f"stentor-{uuid.uuid4().hex}"
        self._failure: BaseException | None = None
        self._thread = InheritableThread(
            target=self._run, args=(sink, action), name=f"sink {sink.name}", daemon=True
        )
        self._thread.start()

    def _run(self, sink: Sink, action: Callable[[], Any]) -> None:
        try:
            self._spark.sparkContext.addJobTag(self._tag)
            self._spark.sparkContext.setInterruptOnCancel(True)
            self.problem = _attempt(sink, action)
        except BaseException as error:
            self._failure = error

    def ended(self, seconds: float) -> bool:
        """Whether it has ended, within so many seconds; raises what nobody expected."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def cancel(self) -> None:
        """End it, if it still runs. It may be between two jobs, so this is said repeatedly."""
        deadline = time.monotonic() + _CANCELLING
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._spark.sparkContext.cancelJobsWithTag(self._tag)
            self._thread.join(_LOOK)


def _attempt(sink: Sink, action: Callable[[], Any]) -> str | None:
    """Do it; what went wrong, in words."""
    try:
        with explained(f"sink {sink.name!r}"):
            action()
    except (StentorError, PySparkException) as error:
        return str(error)
    return None


class _Listener(StreamingQueryListener):
    """Hands on what Spark says about the queries of a run."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """It is known already."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._runner._progressed(event.progress.name, json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to say."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The run sees by itself that a query has ended."""
