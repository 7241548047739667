"""The tables of a pipeline as DataFrames: sources are opened, steps are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from stentor.errors import PipelineError, StentorError
from stentor.pipeline.event_table import events
from stentor.pipeline.runs.connectors import check_filter, jdbc_options, kafka_table
from stentor.pipeline.runs.definition import Pipeline, Source, Step
from stentor.pipeline.runs.reader import is_remote
from stentor.pipeline.source.options import FORMAT
from stentor.pipeline.source.row_counts import counted
from stentor.pipeline.steps.durations import microseconds
from stentor.pipeline.steps.options import secret

#: How files are read, by the end of their names; without one they are Parquet.
_FORMS: Final = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}
#: Options whose names differ from those in a pipeline in more than in their spelling.
_NAMES: Final = {"max_files": "maxFilesPerTrigger"}
#: Options that are not handed to Spark as such.
_OWN: Final = ("parquet", "json", "csv", "schema")


class Tables:
    """Makes tables when they are first asked for."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        open_source: Callable[[Source], DataFrame] | None = None,
    ) -> None:
        """Sources are opened, or made by the function that is given."""
        self._open_source = open_source or self._source
        self._spark = spark
        self._pipeline = pipeline
        self._base = pipeline.file.absolute().parent
        self._made: dict[str, DataFrame] = {}

    def table(self, name: str) -> DataFrame:
        """A source, a step, or else a file; `PipelineError` if it cannot be made."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(name)
        return made

    def _make(self, name: str) -> DataFrame:
        if name in self._pipeline.sources:
            with explained(f"source {name!r}"):
                return self._open_source(self._pipeline.sources[name])
        if name in self._pipeline.steps:
            return self.step(self._pipeline.steps[name])
        with explained(f"file {name!r}"):
            path = name if is_remote(name) else str(self._base / name)
            form = _FORMS.get(Path(name).suffix.lower(), "parquet")
            reader = self._spark.read.format(form)
            return reader.load(path, header=True) if form == "csv" else reader.load(path)

    def step(self, step: Step) -> DataFrame:
        """What a step makes of its tables; `PipelineError` if it can make nothing."""
        made = [self.table(each) for each in step.inputs]
        others = {
            key: self.table(value)
            for key, value in step.options.items()
            if step.kind.options[key].kind == "table"
        }
        with explained(f"step {step.name!r}"):
            return _step(step, made, others)

    def _source(self, source: Source) -> DataFrame:
        if source.kind == "archive":
            return self._history(source.options)
        if source.kind == "kafka":
            return kafka_table(self._spark, source)
        if source.kind == "jdbc":
            options = jdbc_options(source.options, source.options["jdbc"])
            return self._spark.read.format("jdbc").options(**options).load()
        table = self._events(source) if source.kind == FORMAT else self._files(source)
        if source.stream and "_corrupt" in table.columns:
            return counted(table, f"source.{source.name}")  # in every query that reads it
        return table

    def _events(self, source: Source) -> DataFrame:
        options = spark_options(source.options)
        return events(
            self._spark,
            brokers=options.pop("brokers"),
            filter=options.pop("filter", ""),
            columns=source.options.get("schema"),
            stream=source.stream,
            **options,
        ).table()

    def _files(self, source: Source) -> DataFrame:
        reader: Any = self._spark.readStream if source.stream else self._spark.read
        reader = reader.format(source.kind).options(**spark_options(source.options))
        if source.kind == "csv":
            reader = reader.option("header", source.options.get("header", True))
        if "schema" in source.options:
            reader = reader.schema(source.options["schema"])
        table: DataFrame = reader.load(source.options[source.kind])
        return table

    def _history(self, options: Mapping[str, Any]) -> DataFrame:
        from stentor.pipeline import history

        return history(
            self._spark,
            options["archive"],
            options.get("filter", ""),
            since=options.get("since"),
            until=options.get("until"),
        )


def _step(step: Step, made: list[DataFrame], others: Mapping[str, DataFrame]) -> DataFrame:
    if not step.kind.many:
        for key, value in step.options.items():
            if step.kind.options[key].kind == "filter":
                check_filter(made[0], value)
    function = step.kind.call()
    options = {**step.options, **others}
    if step.kind.many:
        result = function(dict(zip(step.inputs, made, strict=True)), **options)
    else:
        result = function(made[0], **options)
    return result  # type: ignore[no-any-return]


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Errors inside say what they are about, in words."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineError(f"{what}: {cause(error)}") from error
    except StentorError as error:
        raise type(error)(f"{what}: {error}") from error
    except TypeError as error:  # options that a function does not take
        raise PipelineError(f"{what}: {error}") from error


def spark_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark takes them: names in its spelling, values as text.

    >>> spark_options({"brokers": ["b1:7411", "b2:7411"], "max_rows_per_batch": 5})
    {'brokers': 'b1:7411,b2:7411', 'maxRowsPerBatch': '5'}
    """
    found = {}
    for name, value in options.items():
        if name not in _OWN:
            head, *rest = name.split("_")
            spelled = _NAMES.get(name) or head + "".join(word.capitalize() for word in rest)
            found[spelled] = _option(name, value)
    return found


def _option(name: str, value: Any) -> str:
    if name == "token":
        return secret(value)
    if name == "patience":
        return str(microseconds(value) / 1e6)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value)


# -- what went wrong, in words

# An error in a Python worker reaches the driver as text: a Java stack trace, in it the Python
# traceback, and at its end the line that matters. An error of analysis has a plan below it.

#: The module before the name of an exception, in the last line of a Python traceback.
_MODULE: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*:)")
_TRACEBACK: Final = "Traceback (most recent call last)"
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_JAVA: Final = re.compile(
    r"^(?:Caused by: |: )?(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error)\w*: "
)
_NOISE: Final = re.compile(
    r"^(\s+at |\s*\.\.\. \d+ more|=== |== |Driver stacktrace|JVM stacktrace|Job aborted"
    r"|An error occurred while calling )"
)
#: Conditions of Spark that only wrap others, and say nothing themselves.
_WRAPPERS: Final = re.compile(
    r"^\[(STREAM_FAILED|PYTHON_DATA_SOURCE_ERROR|PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR"
    r"|TASK_WRITE_FAILED|FAILED_EXECUTE_UDF|FOREACH_BATCH_USER_FUNCTION_ERROR)\]"
)


def cause(error: BaseException | str) -> str:
    """The line that says what went wrong.

    >>> cause("org.apache.spark.SparkException: Job aborted\\n  at x.y(Z.scala:1)\\n"
    ...       "Traceback (most recent call last):\\n  File ...\\nValueError: no such price")
    'ValueError: no such price'
    """
    text = str(error)
    return _python_cause(text) or _spark_cause(text) or type(error).__name__


def _python_cause(text: str) -> str | None:
    """What the innermost Python traceback ends with; its message may have several lines."""
    start = text.rfind(_TRACEBACK)
    if start < 0:
        return None
    lines = text[start:].splitlines()[1:]
    for number, line in enumerate(lines):
        if line.startswith((" ", "\t")) or not line.strip():
            continue
        message = [line.strip()]
        for further in lines[number + 1 :]:
            if not further.strip() or _NOISE.match(further) or _JAVA.match(further):
                break
            message.append(further.rstrip())
        return _STATE.sub("", _MODULE.sub("", "\n".join(message)))
    return None


def _spark_cause(text: str) -> str | None:
    """What Spark says, without stack traces, plans and codes."""
    found: list[str] = []
    for line in text.splitlines():
        if _NOISE.match(line) or not line.strip():
            if found:
                break
            continue
        plain = _JAVA.sub("", line)
        if _WRAPPERS.match(plain):
            continue
        found.append(_STATE.sub("", plain).rstrip().removesuffix(";"))
        if line.rstrip().endswith(";"):  # a plan follows
            break
    return "\n".join(found) or None
