"""Starts the session that a pipeline runs in, and keeps Spark's own talk off the terminal.

Spark is a Java process that inherits standard error and writes warnings there for as long as it
lives, in the middle of whatever is shown. So while it starts, standard error is the pipeline's log
file, and stays that for Java. Where a session exists already, as in a notebook, it is used as is.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stentor.errors import PipelineError
from stentor.pipeline.runs.definition import Pipeline
from stentor.pipeline.runs.masters import check_master
from stentor.pipeline.runs.requirements import check_requirements, java_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def log_file(pipeline: Pipeline) -> Path:
    """Where Spark's log goes unless told otherwise; that of the last run is replaced."""
    return pipeline.file.absolute().parent / ".stentor" / pipeline.name / "spark.log"


def start_session(pipeline: Pipeline, *, master: str | None = None, log: Path) -> SparkSession:
    """A session for the pipeline; `PipelineError` that says what is missing."""
    check_requirements()
    chosen = master or pipeline.master or "local[*]"
    check_master(chosen)
    return _started(pipeline.name, chosen, pipeline.config, log)


@contextmanager
def checking_session() -> Iterator[SparkSession]:
    """A small session on this machine, to ask Spark's analyzer; what it logs is not kept."""
    with tempfile.TemporaryDirectory(prefix="stentor-check-") as directory:
        config = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": directory}
        spark = _started("check", "local[1]", config, Path(directory) / "spark.log")
        try:
            yield spark
        finally:
            spark.stop()


def _started(name: str, master: str, config: Mapping[str, str], log: Path) -> SparkSession:
    from pyspark.errors import PySparkException

    from stentor.pipeline.sessions import session

    if os.environ.get("SPARK_REMOTE"):
        raise PipelineError(
            "SPARK_REMOTE is set, for sessions of Spark Connect, and a pipeline needs a Spark of "
            "its own; unset it"
        )
    # Errors in expressions are told by the run, in one line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        with _stderr_to(log):
            spark = session(name, master, **config)
    except PySparkException as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise PipelineError(f"Spark did not start: {java_problem()}; see {log}") from error
        raise PipelineError(f"Spark did not start: {error}; see {log}") from error
    except Exception as error:  # of Java, by way of py4j: a master that cannot be reached, ...
        first = str(error).strip().splitlines()
        said = next((line for line in first if "Exception: " in line), first[0] if first else "")
        raise PipelineError(
            f"Spark did not start with the master {master!r}: {said}; see {log}"
        ) from error
    spark.sparkContext.setLogLevel("WARN")
    return spark


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Processes that are started in here write their errors to the file."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    except OSError as error:
        raise PipelineError(f"the log {file} cannot be written: {error.strerror}") from None
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(target, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
