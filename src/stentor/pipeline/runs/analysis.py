"""Checks a pipeline as far as that is possible without reading a single event.

Reading the file finds what is wrong by itself. Whether a column or a function exists, and whether
types go together, is for Spark's analyzer to say: it runs when tables are made of tables, long
before anything is read. So the steps are made here, in a session on this machine, of sources that
are empty and have the schemas that the file gives them; brokers and clusters are not asked. A
source without a schema, and what is made of it, cannot be checked, and that is said.

Every mistake is told with its line: that of the option in which the name stands that Spark does not
know, or else that of the step. Spark tells one at a time, so a step is made again without what was
found wrong, as long as that finds more names that are not known; what else is said of such a
remainder may only follow from what it lacks, and is not told. Nor is what is made of a table with a
mistake.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from stentor.errors import ArchiveError, StentorError
from stentor.notation.document import Document, near
from stentor.notation.toml_lines import KeyPath
from stentor.pipeline.archives.frames import archived, spark_schema
from stentor.pipeline.archives.places import place_of
from stentor.pipeline.archives.statistics import table_schema
from stentor.pipeline.archives.tables import Archive
from stentor.pipeline.columns import RowEncoder, with_reserved
from stentor.pipeline.runs.connectors import KAFKA_SCHEMA, kafka_events, kafka_records
from stentor.pipeline.runs.definition import Sink, Source, Step
from stentor.pipeline.runs.loader import Loaded
from stentor.pipeline.runs.reader import is_remote
from stentor.pipeline.runs.tables import Tables, explained
from stentor.pipeline.steps.events import NoColumn
from stentor.pipeline.steps.registry import steps

_NOT_CHECKED: Final = "what is made of the source {!r} is not checked"
#: Names in what is said of a mistake.
_NAMED: Final = re.compile(r"['`]([^'`]+)['`]")


#: Options of `match` that name the columns of subscriptions, and what they are by default.
_SUBSCRIPTION: Final = (("id", "subscription_id"), ("filter", "filter"))


class _NoSchema(Exception):
    """A source whose columns only those who have the events can tell."""


class _Told(Exception):
    """A source that cannot be made, for a reason that is noted."""


def check_tables(loaded: Loaded, spark: SparkSession) -> list[str]:
    """Make all tables without their events, and note every mistake in the document.

    Returns what could not be checked, in words.
    """
    with tempfile.TemporaryDirectory(prefix="stentor-check-") as empty:
        checking = _Checking(loaded, spark, Path(empty))
        checking.run()
    return checking.unchecked


class _Checking:
    def __init__(self, loaded: Loaded, spark: SparkSession, empty: Path) -> None:
        self._document: Document = loaded.document
        self._places = loaded.places
        self._sinks = loaded.sinks
        self._pipeline = loaded.pipeline
        self._spark = spark
        self._empty = empty
        self._tables = Tables(spark, loaded.pipeline, self._source)
        #: Tables with mistakes, or that could not be made, and those that are made of them.
        self._left_out: set[str] = set()
        self.unchecked: list[str] = []

    def run(self) -> None:
        pipeline, document = self._pipeline, self._document
        for name in pipeline.sources:
            if document.is_wrong(self._places[name]):
                self._left_out.add(name)
            else:
                self._make(name)
        wrong = {name for name in pipeline.steps if document.is_wrong(self._places[name])}
        # To a fixed point, for wrong ones may go round in a cycle.
        lacking: set[str] = set()
        while more := {
            step.name
            for step in pipeline.steps.values()
            if step.name not in lacking and (self._left_out | wrong | lacking) & {*step.tables}
        }:
            lacking |= more
        self._left_out |= lacking | wrong
        for step in pipeline.steps.values():
            if step.name in lacking:
                continue
            if step.name in wrong:
                self._probe(step)
            elif not self._left_out.intersection(step.tables):
                self._make(step.name)
            else:
                self._left_out.add(step.name)
        for sink in pipeline.sinks.values():
            if sink.input in self._places and sink.input not in self._left_out:
                self._sink(sink, self._sinks[sink.name])

    def _make(self, name: str) -> None:
        step = self._pipeline.steps.get(name)
        path = self._places[name] if step is None else self._path(step)
        try:
            self._tables.table(name)
        except _NoSchema as error:
            self.unchecked.append(str(error))
            self._left_out.add(name)
        except _Told:
            self._left_out.add(name)
        except StentorError as error:
            self._left_out.add(name)
            place = self._problem(path, error)
            if step is not None and _name_not_known(error) is not None:
                self._probe(_without(step, place[len(path) :]))

    def _probe(self, step: Step | None) -> None:
        """Look for more names that are not known in what is right of a step."""
        while step is not None and step.kind.name in steps():
            path = self._path(step)
            try:
                self._tables.step(step)
                return
            except StentorError as error:
                if _name_not_known(error) is None:
                    return
                step = _without(step, self._problem(path, error)[len(path) :])

    def _path(self, step: Step) -> KeyPath:
        return (*self._places[step.name], step.kind.name)

    # -- what goes in

    def _source(self, source: Source) -> DataFrame:
        """The source, without its events."""
        if source.kind == "kafka":
            schema = cast(StructType, StructType.fromDDL(KAFKA_SCHEMA))
            return kafka_events(self._without_rows(source, schema), source.options)
        return self._without_rows(source, self._schema(source))

    def _without_rows(self, source: Source, schema: StructType) -> DataFrame:
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
                return spark_schema(table_schema(Archive(place_of(path)).table()))
            except ArchiveError as error:
                raise _NoSchema(f"{_NOT_CHECKED.format(source.name)}: {error}") from None
        path = None if source.kind == "jdbc" else source.options.get(source.kind)
        if path is None:
            raise _NoSchema(f"{_NOT_CHECKED.format(source.name)}, as it has no schema")
        if is_remote(path):
            raise _NoSchema(f"{_NOT_CHECKED.format(source.name)}: {path} is not on this machine")
        if not Path(path).exists() and "*" not in path:
            return self._missing(source, path)
        header = {"header": source.options.get("header", True)} if source.kind == "csv" else {}
        return self._spark.read.format(source.kind).load(path, **header).schema

    def _missing(self, source: Source, path: str) -> StructType:
        """What a file has to hold that is not there, if those who read it tell."""
        readers = [
            step
            for step in self._pipeline.steps.values()
            if step.kind.name == "match" and step.options.get("subscriptions") == source.name
        ]
        place, text = (*self._places[source.name], source.kind), f"there is no file {path}"
        if not readers:
            self._document.problem(place, f"{text}; make it first, or give a schema")
            raise _Told
        names = [readers[0].options.get(each, default) for each, default in _SUBSCRIPTION]
        self._document.problem(
            place, f"{text}; make it first, as a table with the columns {' and '.join(names)}"
        )
        return StructType([StructField(name, StringType()) for name in names])

    # -- what goes out

    def _sink(self, sink: Sink, path: KeyPath) -> None:
        schema = self._tables.table(sink.input).schema
        try:
            with explained(f"sink {sink.name!r}"):
                if sink.kind == "stentor":
                    RowEncoder(schema)
                elif sink.kind == "archive":
                    archived(schema)
                elif sink.kind == "kafka":
                    kafka_records(self._tables.table(sink.input), sink.options)
        except StentorError as error:
            self._problem(path, error)
        for name in sink.options.get("partition_by", ()):
            if name not in schema.fieldNames():
                text = _unknown(f"sink {sink.name!r}", "column", name, schema.fieldNames())
                self._document.problem(_place(self._document.data, path, name), text)

    # -- what is told

    def _problem(self, path: KeyPath, error: StentorError) -> KeyPath:
        """Note it, at the place where the name stands that is not known: there."""
        found = _name_not_known(error)
        if found is None:
            said = str(error).partition(": ")[2]
            places = [_place(self._document.data, path, name) for name in _NAMED.findall(said)]
            place = next((p for p in places if p != path), path)
            self._document.problem(place, str(error))
            return place
        kind, name, known = found
        if kind == "function":
            known = [row[0] for row in self._spark.sql("SHOW FUNCTIONS").collect()]
        what = str(error).partition(":")[0]
        text = _unknown(what, kind, name, known, told=kind == "column")
        place = _place(self._document.data, path, name.split(".")[-1])
        self._document.problem(place, text)
        return place


def _without(step: Step, place: KeyPath) -> Step | None:
    """The step without one entry of an option; None if there is no such, or it is the last."""
    main = step.kind.main
    if place and place[0] not in step.options and main is not None:
        place = (main, *place)
    if len(place) < 2:
        return None
    value = step.options[str(place[0])]
    rest: Any = None
    if isinstance(value, dict):
        rest = {key: each for key, each in value.items() if key != place[1]}
    elif isinstance(value, list):
        rest = [each for index, each in enumerate(value) if index != place[1]]
    if not rest or len(rest) == len(value):
        return None
    return replace(step, options={**step.options, str(place[0]): rest})


def _unknown(what: str, kind: str, name: str, known: Sequence[str], *, told: bool = True) -> str:
    listed = f" known: {', '.join(known)}" if known and told else ""
    return f"{what}: there is no {kind} {name!r}{near(name, known)}{listed}".rstrip(";")


def _name_not_known(error: BaseException | None) -> tuple[str, str, list[str]] | None:
    """Of which kind it is, the name that Spark does not know, and those that it knows."""
    while error is not None and not isinstance(error, PySparkException):
        if isinstance(error, NoColumn) and error.name:
            return "column", error.name, [*error.known]
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
