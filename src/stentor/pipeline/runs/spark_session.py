"""Starts the session that a pipeline runs in, and keeps Spark's own talk off the terminal.

Spark is a Java process that inherits standard error and writes warnings there for as long as it
lives, in the middle of whatever is shown. So while it starts, standard error is the pipeline's log
file, and stays that for Java. Where a session exists already, as in a notebook, it is used as is.

What the machine lacks is told before. Spark asks a standalone master three times, twenty seconds
apart, and then fails in words of its own; a connection that is made and closed tells within moments
that nobody is there. Other masters (`local`, `yarn`, `k8s://…`) are left to Spark.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from stentor.errors import InvalidConfiguration, PipelineError
from stentor.pipeline.runs.definition import Pipeline

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


def stop_session(spark: SparkSession) -> None:
    """End it; nothing is left to do if Java has ended before."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, ConnectionError):
        spark.stop()


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
    # So is that Java has ended, which py4j logs with a traceback for each call, as nobody's logger.
    logging.getLogger().addFilter(_is_not_of_py4j)
    try:
        with stderr_to(log):
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


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
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


#: Seconds in which a master must take a connection.
PATIENCE: Final = 3.0

_SCHEME: Final = "spark://"
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,]+):(?P<port>[0-9]{1,5})")


def check_master(url: str, patience: float = PATIENCE) -> None:
    """`PipelineError` if no master answers at `spark://host:port[,host:port]`.

    >>> check_master("local[2]")
    """
    if url.startswith("sc://"):
        raise InvalidConfiguration(
            f"{url} is a server of Spark Connect, and a pipeline needs a Spark of its own; give a "
            "master, such as spark://host:7077 or local[4]"
        )
    if not url.startswith(_SCHEME):
        return
    addresses = [_address(url, part) for part in url[len(_SCHEME) :].split(",")]
    answers: SimpleQueue[str | None] = SimpleQueue()
    for address in addresses:
        # To look up a name may take any time, and nothing can interrupt it.
        ask = threading.Thread(target=_ask, args=(*address, patience, answers), daemon=True)
        ask.start()
    problems = []
    for _ in addresses:
        try:
            problem = answers.get(timeout=patience)
        except Empty:
            problem = f"no answer within {patience:g} s"
        if problem is None:
            return
        problems.append(problem)
    raise PipelineError(
        f"there is no Spark master at {url} ({'; '.join(dict.fromkeys(problems))}); is it running, "
        "and is the address the one that it shows on its web page? Without --master and [spark] "
        "master, Spark runs on this machine"
    )


def _address(url: str, part: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(part)
    if match is None or not 0 < int(match["port"]) < 65_536:
        raise InvalidConfiguration(
            f"{url!r} is not an address of a Spark master; write spark://host:port, the port is "
            "7077 unless it was chosen, and several with commas: spark://h1:7077,h2:7077"
        )
    return match["host"].strip("[]"), int(match["port"])


def _ask(host: str, port: int, patience: float, answers: SimpleQueue[str | None]) -> None:
    try:
        socket.create_connection((host, port), timeout=patience).close()
    except TimeoutError:
        answers.put(f"{host}:{port} does not answer")
    except (OSError, UnicodeError) as error:
        text = getattr(error, "strerror", None) or str(error)
        answers.put(f"{host}:{port}: {text}")
    else:
        answers.put(None)


#: The first release of Java that Spark runs on.
JAVA: Final = 17


def check_package() -> None:
    """`PipelineError` that says what to install, if there is no package `pyspark`."""
    if importlib.util.find_spec("pyspark") is None:
        raise PipelineError("this needs the package pyspark: pip install 'stentor[spark]'")


def check_requirements() -> None:
    """`PipelineError` that says what to install, if Spark or Java is missing. Starts nothing."""
    check_package()
    if find_java() is None:
        home = os.environ.get("JAVA_HOME")
        found = f"there is none in JAVA_HOME, {home}" if home else "there is none on this machine"
        raise PipelineError(f"Spark needs Java {JAVA} or later, and {found}; {_advice()}")


def find_java() -> Path | None:
    """The program `java` that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if java.exists() else None
    found = shutil.which("java")
    return None if found is None else Path(found)


def java_problem() -> str:
    """Why Java did not start Spark, as far as can be told."""
    java = find_java()
    if java is None:
        return f"there is no Java; {_advice()}"
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
        said = run.stderr + run.stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not run: {error}; {_advice()}"
    version = java_version(said)
    if version is not None and version < JAVA:
        return f"{java} is Java {version}, and Spark needs {JAVA} or later; {_advice()}"
    return f"{java} could not start Spark"


def java_version(text: str) -> int | None:
    """The release that `java -version` names.

    >>> java_version('openjdk version "17.0.9" 2023-10-17'), java_version('version "1.8.0_392"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])


def _advice() -> str:
    return (
        f"install one (Debian and Ubuntu: apt install openjdk-{JAVA}-jre-headless) "
        "or let JAVA_HOME point at it"
    )
