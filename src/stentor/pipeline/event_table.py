"""`events`: the journals of brokers as a table that is up to date whenever it is used.

A DataFrame of a Python source is a picture: Spark plans its reading once, when it is first
executed, and keeps the plan for every later use (see `batch_reader`). And what Spark is told by
`where` never reaches the brokers. `Events` is what a DataFrame is made of, and makes a new one each
time: so it sees what is in the journals by then, and what it is told by `where` the brokers leave
out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from html import escape
from typing import Any, Final, overload

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.utils import to_str

from stentor.errors import InvalidConfiguration, StentorError
from stentor.filters import Filter
from stentor.model.event_types import event_types
from stentor.model.names import shown
from stentor.pipeline.columns import MODES, Layout, with_reserved
from stentor.pipeline.datasource import register_format
from stentor.pipeline.filters.to_column import given_filter
from stentor.pipeline.registration import is_connect
from stentor.pipeline.source.options import FORMAT, Reading, reading
from stentor.pipeline.spark_features import check_streams

PERMISSIVE: Final = MODES[0]
#: Events that a notebook shows.
SHOWN: Final = 10
#: Where conditions in SQL are for Spark.
_SQL: Final = "table().where(...)"
#: Options that are arguments, or follow from them.
_ARGUMENTS: Final = ("brokers", "filter", "columns", "attributes", "path")


@dataclass(frozen=True, eq=False)
class Events:
    """Events in the journals of brokers; `events` makes them.

        quotes = events(spark, brokers="127.0.0.1:7411", columns="symbol string, price double")
        quotes.count()                                  # what is there now
        dear = quotes.where("price > 100")              # the brokers filter
        dear.groupBy("symbol").avg("price").show()

    Everything that a DataFrame can do, this can: it makes a new DataFrame, `table()`, and lets that
    do it. So each use sees what the journals hold by then. A DataFrame that was made stays as it
    was when it was first executed; take `table()` to look at the same events several times, and for
    columns by `table["price"]`.
    """

    spark: SparkSession
    #: All columns of the table.
    schema: StructType
    #: Of `format("stentor")`, as Spark takes them.
    options: Mapping[str, str] = field(repr=False)
    #: Whether it is read as it comes.
    stream: bool = False

    def table(self) -> DataFrame:
        """A new DataFrame of these events."""
        reader: Any = self.spark.readStream if self.stream else self.spark.read
        found: DataFrame = reader.format(FORMAT).schema(self.schema).options(**self.options).load()
        return found

    @overload
    def where(self, condition: str | Filter) -> Events: ...
    @overload
    def where(self, condition: Column) -> DataFrame: ...
    def where(self, condition: str | Filter | Column) -> Events | DataFrame:
        """Those of the events that a filter matches, in Stentor's language; the brokers filter.

        The columns stay as they are. A condition of Spark's, a `Column`, makes a DataFrame that
        Spark filters; conditions in SQL are for `table()`.
        """
        if isinstance(condition, Column):
            return self.table().where(condition)
        narrower = Filter(self.options["filter"]) & given_filter(condition, _SQL)
        options = {**self.options, "filter": str(narrower)}
        reading(options, streaming=self.stream)
        return replace(self, options=options)

    filter = where

    def count(self) -> int:
        """How many there are now. Brokers count; nothing is read, unless the mode may leave out."""
        from stentor.pipeline.source.batch_reader import BatchReader

        if self.stream:
            return self.table().count()  # Spark says why that is impossible
        found = reading(self.options, streaming=False)
        if found.mode != PERMISSIVE:
            return self.table().count()
        narrow = StructType().add("_offset", "long")
        if is_connect(self.spark):  # only the server may reach the brokers
            return replace(self, schema=narrow).table().count()
        return BatchReader(narrow, found).count()

    def limit(self, num: int) -> DataFrame:
        """Some of the events, at most so many; brokers send no more than that, or little more."""
        if self.stream:
            return self.table().limit(num)
        fewest = min(num, int(self.options.get("limit", num)))
        return replace(self, options={**self.options, "limit": str(fewest)}).table().limit(num)

    def take(self, num: int) -> list[Row]:
        """Some of the events as rows, at most so many."""
        return self.limit(num).collect()

    def show(self, n: int = 20, truncate: bool | int = True, vertical: bool = False) -> None:
        """Print some of the events."""
        self.limit(n + 1).show(n, truncate, vertical)  # one more tells that there are more

    def _repr_html_(self) -> str:
        """For notebooks: what it is, and the first events; of a stream just the columns."""
        said = Filter(self.options["filter"])._repr_html_()
        kind = "a stream of events" if self.stream else "events"
        head = f"<p>{kind} at {escape(self.options['brokers'])}: {said}</p>"
        names = "".join(
            f"<th>{escape(field.name)}<br><small>{escape(field.dataType.simpleString())}</small></th>"
            for field in self.schema.fields
        )
        rows, tail = [], ""
        if not self.stream:
            try:
                rows = self.take(SHOWN + 1)
            except (PySparkException, StentorError) as error:
                tail = f"<p><strong>{escape(str(error))}</strong></p>"
        if len(rows) > SHOWN:
            tail = f"<p>and more; these are {SHOWN} of them</p>"
        shown = [["" if v is None else escape(str(v)) for v in row] for row in rows[:SHOWN]]
        cells = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in row)}</tr>" for row in shown)
        return f"{head}<table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table>{tail}"

    def __getattr__(self, name: str) -> Any:
        if name in Events.__dataclass_fields__ or name.startswith("__"):
            raise AttributeError(name)  # of a copy that is being made
        table = self.table()
        if name in self.schema.names and not hasattr(type(table), name):
            raise AttributeError(
                f"each use of events is a new DataFrame, and this column would be of another one; "
                f"write col({name!r}), or say table() first"
            )
        return getattr(table, name)


def events(
    spark: SparkSession,
    *,
    brokers: str | Iterable[str],
    filter: str | Filter = "",
    columns: str | StructType | None = None,
    stream: bool = False,
    **options: Any,
) -> Events:
    """The events in the journals of brokers, as a table, or as a stream that goes on.

        quotes = events(
            spark, brokers="127.0.0.1:7411", filter="price > 100",
            columns="symbol string, price double",
        )
        quotes.where("symbol = 'IBM'").show()

    brokers    addresses, separated by commas or as a list
    filter     which events: the brokers filter. `where` narrows it down later
    columns    attributes and their types; `_id`, `_type`, `_time`, `_broker`, `_offset` and
               `_corrupt` are added. Without them, what the events and the declarations of the
               option `eventType` say
    stream     whether to go on with what comes, as `spark.readStream` does
    options    of `format("stentor")`: startingOffsets, eventType, mode, maxRowsPerBatch, token ...

    Mistakes in all of these are told at once. The session is registered if it is not yet. See
    `Events` for what can be done with them.
    """
    register_format(spark)
    if stream and not is_connect(spark):
        check_streams()
    given = _options(options)
    addresses = brokers if isinstance(brokers, str) else ",".join(brokers)
    given |= {"brokers": addresses, "filter": str(given_filter(filter, _SQL))}
    found = reading(given, streaming=stream)
    if columns is None:
        declared = None if found.event_type is None else event_types.attributes(found.event_type)
        schema = _inferred(spark, found, given, declared or {})
    else:
        schema = with_reserved(_columns(columns))
    Layout(schema)  # what no event can have is refused
    return Events(spark, schema, given, stream)


def table_of(events: DataFrame | Events) -> DataFrame:
    """The DataFrame that is meant, where either may be given; `InvalidConfiguration` if none is."""
    found = events.table() if isinstance(events, Events) else events
    if not isinstance(found, DataFrame):
        raise InvalidConfiguration(
            f"events are a DataFrame, or what events(spark, brokers=...) gives, not {shown(found)}"
        )
    return found


def _columns(given: str | StructType) -> StructType:
    if isinstance(given, StructType):
        return given
    found = StructType.fromDDL(given) if given.strip() else StructType()
    assert isinstance(found, StructType)
    return found


def _inferred(
    spark: SparkSession, found: Reading, options: Mapping[str, str], declared: Mapping[str, str]
) -> StructType:
    if not is_connect(spark):
        from stentor.pipeline.source.sample import inferred

        return inferred(replace(found, attributes=declared))
    # Only the server may reach the brokers.
    reader = spark.read.format(FORMAT).options(**options)
    return reader.option("attributes", json.dumps(declared)).load().schema


def _options(options: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, value in options.items():
        if name.lower() in _ARGUMENTS:
            raise InvalidConfiguration(
                f"{name!r} is not an option; use the argument {name.lower()}"
            )
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, dict):
            value = json.dumps(value)
        if value is not None:
            found[name] = str(to_str(value))
    return found
