"""Checks a pipeline as far as that is possible without reading a single event.

Reading the file finds what is wrong by itself. Whether a column or a function exists, and whether
types go together, is for Spark's analyzer to say: it runs when tables are made of tables, long
before anything is read. So the steps are made here, in a session on this machine, of sources that
are empty and have the schemas that the file gives them; brokers and clusters are not asked. A
source without a schema, and what is made of it, cannot be checked, and that is said.

Every mistake is told with its line: that of the option in which the name stands that Spark does not
know, or else that of the step.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from stentor.errors import ArchiveError, StentorError
from stentor.notation.toml_lines import KeyPath
from stentor.pipeline.archives.log import Log
from stentor.pipeline.archives.places import place_of
from stentor.pipeline.archives.reading import table_schema
from stentor.pipeline.archives.spark_schemas import archived, spark_schema
from stentor.pipeline.archives.stores import store_of
from stentor.pipeline.columns import RowEncoder, with_reserved
from stentor.pipeline.runs.definition import Sink, Source
from stentor.pipeline.runs.document import Document, near
from stentor.pipeline.runs.loading import Loaded
from stentor.pipeline.runs.reading import is_remote
from stentor.pipeline.runs.tables import Tables, explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NOT_CHECKED: Final = "what is made of the source {!r} is not checked"
#: Names in what is said of a mistake.
_NAMED: Final = re.compile(r"['`]([^'`]+)['`]")


class _NoSchema(Exception):
    """A source whose columns only those who have the events can tell."""


def check_tables(loaded: Loaded, spark: SparkSession) -> list[str]:
    """Make all tables without their events; `PipelineDefinitionError` with every mistake.

    Returns what could not be checked, in words.
    """
    with tempfile.TemporaryDirectory(prefix="stentor-check-") as empty:
        checking = _Checking(loaded, spark, Path(empty))
        checking.run()
    loaded.document.check()
    return checking.unchecked


class _Checking:
    def __init__(self, loaded: Loaded, spark: SparkSession, empty: Path) -> None:
        self._document: Document = loaded.document
        self._places = loaded.places
        self._pipeline = loaded.pipeline
        self._spark = spark
        self._empty = empty
        self._tables = Tables(spark, loaded.pipeline, self._source)
        #: Tables that could not be made, and those that are made of them.
        self._left_out: set[str] = set()
        self.unchecked: list[str] = []

    def run(self) -> None:
        pipeline = self._pipeline
        for name in pipeline.sources:
            self._make(name, self._places[name])
        for name, step in pipeline.steps.items():
            if self._left_out.intersection(step.tables):
                self._left_out.add(name)
            else:
                self._make(name, (*self._places[name], step.kind.name))
        for index, sink in enumerate(pipeline.sinks.values()):
            if sink.input not in self._left_out:
                self._sink(sink, ("sink", index))

    def _make(self, name: str, path: KeyPath) -> None:
        try:
            self._tables.table(name)
        except _NoSchema as error:
            self.unchecked.append(str(error))
            self._left_out.add(name)
        except StentorError as error:
            self._left_out.add(name)
            self._problem(path, error)

    # -- what goes in

    def _source(self, source: Source) -> DataFrame:
        """The source, without its events."""
        schema = self._schema(source)
        if not source.stream:
            return self._spark.createDataFrame([], schema)
        return self._spark.readStream.schema(schema).parquet(str(self._empty))

    def _schema(self, source: Source) -> StructType:
        given = source.options.get("schema")
        if given is not None:
            schema = cast(StructType, StructType.fromDDL(given))
            return with_reserved(schema) if source.kind == "stentor" else schema
        if source.kind == "archive":
            path = source.options["archive"]
            try:
                return spark_schema(table_schema(Log(store_of(place_of(path))).existing()))
            except ArchiveError as error:
                raise _NoSchema(f"{_NOT_CHECKED.format(source.name)}: {error}") from None
        path = source.options.get(source.kind)
        if path is None:
            raise _NoSchema(f"{_NOT_CHECKED.format(source.name)}, as it has no schema")
        if is_remote(path):
            raise _NoSchema(f"{_NOT_CHECKED.format(source.name)}: {path} is not on this machine")
        header = {"header": source.options.get("header", True)} if source.kind == "csv" else {}
        return self._spark.read.format(source.kind).load(path, **header).schema

    # -- what goes out

    def _sink(self, sink: Sink, path: KeyPath) -> None:
        schema = self._tables.table(sink.input).schema
        try:
            with explained(f"sink {sink.name!r}"):
                if sink.kind == "stentor":
                    RowEncoder(schema)
                elif sink.kind == "archive":
                    archived(schema)
        except StentorError as error:
            self._problem(path, error)
        for name in sink.options.get("partition_by", ()):
            if name not in schema.fieldNames():
                text = _unknown(f"sink {sink.name!r}", "column", name, schema.fieldNames())
                self._document.problem(_place(self._document.data, path, name), text)

    # -- what is told

    def _problem(self, path: KeyPath, error: StentorError) -> None:
        """Note it, at the place where the name stands that is not known."""
        found = _name_not_known(error)
        if found is None:
            said = str(error).partition(": ")[2]
            places = [_place(self._document.data, path, name) for name in _NAMED.findall(said)]
            self._document.problem(next((p for p in places if p != path), path), str(error))
            return
        kind, name, known = found
        if kind == "function":
            known = [row[0] for row in self._spark.sql("SHOW FUNCTIONS").collect()]
        what = str(error).partition(":")[0]
        text = _unknown(what, kind, name, known, told=kind == "column")
        self._document.problem(_place(self._document.data, path, name.split(".")[-1]), text)


def _unknown(what: str, kind: str, name: str, known: Sequence[str], *, told: bool = True) -> str:
    listed = f" known: {', '.join(known)}" if known and told else ""
    return f"{what}: there is no {kind} {name!r}{near(name, known)}{listed}".rstrip(";")


def _name_not_known(error: BaseException | None) -> tuple[str, str, list[str]] | None:
    """Of which kind it is, the name that Spark does not know, and those that it knows."""
    while error is not None and not isinstance(error, PySparkException):
        error = error.__cause__
    if error is None:
        return None
    condition, said = error.getCondition() or "", error.getMessageParameters() or {}
    if condition.startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD", "UNRESOLVED_MAP_KEY")):
        return "column", _plain(said["objectName"]), _names(said.get("proposal", ""))
    if condition == "FIELD_NOT_FOUND":
        return "column", _plain(said["fieldName"]), _names(said.get("fields", ""))
    if condition == "UNRESOLVED_ROUTINE":
        return "function", _plain(said["routineName"]), []
    return None


def _names(listed: str) -> list[str]:
    return [_plain(each) for each in listed.split(", ") if each]


def _plain(name: str) -> str:
    return name.replace("`", "")


def _place(data: Any, path: KeyPath, word: str) -> KeyPath:
    """The value below a path in which a word stands; the path itself if there is none."""
    for part in path:
        data = data[part]
    found = _mentions(data, re.compile(rf"(?<!\w){re.escape(word)}(?!\w)"))
    return (*path, *next(found, ()))


def _mentions(data: Any, word: re.Pattern[str]) -> Iterator[KeyPath]:
    if isinstance(data, str) and word.search(data):
        yield ()
    inner: Any = ()
    if isinstance(data, dict):
        inner = data.items()
    elif isinstance(data, list):
        inner = enumerate(data)
    for key, value in inner:
        for path in _mentions(value, word):
            yield (key, *path)
        if isinstance(key, str) and word.search(key):
            yield (key,)
