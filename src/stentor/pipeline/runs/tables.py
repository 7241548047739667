"""The tables of a pipeline as DataFrames: sources are opened, steps are made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from stentor.errors import PipelineError, StentorError
from stentor.pipeline.event_table import events
from stentor.pipeline.runs.causes import cause
from stentor.pipeline.runs.connectors import check_filter, jdbc_table, kafka_table
from stentor.pipeline.runs.definition import Pipeline, Source, Step
from stentor.pipeline.runs.reader import is_remote
from stentor.pipeline.source.options import FORMAT
from stentor.pipeline.source.row_counts import counted
from stentor.pipeline.steps.durations import microseconds
from stentor.pipeline.steps.options import secret

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
            return jdbc_table(self._spark, source.options)
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
