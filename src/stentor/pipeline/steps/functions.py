"""Apply: a function of the user, from one notification to none, one or many.

For mappings that SQL cannot say. The function sees `Notification`s, as a subscriber would, and
returns None, a notification, or several. It runs in Spark's Python workers, over Arrow batches. It
should depend on nothing but its argument: Spark may run it twice for the same event.

*Identity.* What a mapping makes of an event is still that event: the first result has the event's
id and time, unless the function sets others. A further result `i` has the producer `name+i`, with
the same epoch and sequence number; so ids are unique, the same in every run, and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import or_
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, NullType, StructType

from stentor.errors import PipelineError, StentorError
from stentor.model import Notification, NotificationId, encode
from stentor.pipeline.columns import BatchMaker, RowEncoder, with_reserved
from stentor.pipeline.steps.events import FLOATS, attributes, column, require, without_nan
from stentor.pipeline.steps.registry import find_function

Mapping: TypeAlias = Callable[[Notification], Notification | Iterable[Notification] | None]

#: What makes a notification of a row that has no attributes.
_HEADERS: Final = ("_type", "_subject", "_channel")
#: Where an event came from, and when it is for; that is so of a result as well.
_ORIGIN: Final = ("_broker", "_offset", "_stream", "_deliver_at", "_expires", "_priority")


def apply(events: DataFrame, function: str | Mapping, schema: str | StructType) -> DataFrame:
    """Map each event with a function, given itself or as "module:name".

    `schema` names the attributes of the results and their types; what does not fit goes to
    `_corrupt`. Modules must be there on every machine of a cluster.

        def split(n):
            return [n.replace(attributes={"symbol": s}) for s in n["symbols"]]

        apply(quotes, split, "symbol string")
        apply(quotes, "market.mappings:split", "symbol string")
    """
    require(events, "_id", "_time")
    if isinstance(function, str):
        find_function(function)  # a mistake is told here, not by a worker
    named = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    wanted = with_reserved(cast("StructType", named))
    source = events.schema

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _mapped(batches, function, source, wanted)

    return noticeable(events).mapInArrow(work, wanted)


def noticeable(events: DataFrame) -> DataFrame:
    """The rows that are notifications: where everything is absent, there is none."""
    parts = [*attributes(events), *(name for name in _HEADERS if name in events.columns)]
    something = [
        there for name in parts for there in _present(column(name), events.schema[name].dataType)
    ]
    if not something:
        raise PipelineError(
            "there is nothing that a function could see: the events have neither attributes nor "
            f"{', '.join(_HEADERS)}, only {', '.join(events.columns)}"
        )
    return events.where(reduce(or_, something)).select(*map(column, events.columns))


def _present(value: Column, kind: DataType) -> Iterator[Column]:
    """Whether it is there; of a record, whether its attributes are."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _present(value.getField(field.name), field.dataType)
    elif not isinstance(kind, NullType):
        yield (without_nan(value) if isinstance(kind, FLOATS) else value).isNotNull()


# -- in the workers


def _mapped(
    batches: Iterator[pa.RecordBatch],
    function: str | Mapping,
    source: StructType,
    wanted: StructType,
) -> Iterator[pa.RecordBatch]:
    call = find_function(function) if isinstance(function, str) else function
    encoder = RowEncoder(source)
    maker = BatchMaker(wanted)
    for batch in batches:
        rows: list[int] = []
        items: list[bytes] = []
        for row, event in enumerate(encoder.notifications(batch)):
            for result in _results(call, event):
                rows.append(row)
                items.append(encode(result))
        if not items:
            continue
        made = maker.batch(items, [0] * len(items), stream="", broker="")
        yield from_same(made, batch, pa.array(rows, pa.int64()))


def from_same(made: pa.RecordBatch, batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """The results, with the origins of the rows that they were made of."""
    for name in set(_ORIGIN) & set(made.schema.names):
        index = made.schema.get_field_index(name)
        field = made.schema.field(index)
        known = name in batch.schema.names
        origin = batch[name].take(rows) if known else pa.nulls(len(rows), field.type)
        made = made.set_column(index, field, origin)
    return made


def _results(call: Mapping, event: Notification) -> Iterator[Notification]:
    try:
        found = call(event)
        if found is None:
            return
        results: list[Any] = [found] if isinstance(found, Notification) else list(found)
        wrong = next((each for each in results if not isinstance(each, Notification)), None)
        if wrong is not None:
            raise TypeError(f"it returned a {type(wrong).__name__}, not a Notification")
    except StentorError:
        raise
    except Exception as error:
        name = getattr(call, "__qualname__", repr(call))
        raise PipelineError(
            f"{name} failed on the event {event.id}: {type(error).__name__}: {error}"
        ) from error
    for number, result in enumerate(results):
        id = result.id
        if event.id is not None and (id is None or (number > 0 and id == event.id)):
            id = event.id if number == 0 else _derived(event.id, number)
        yield result.replace(id=id, time=result.time or event.time)


def _derived(id: NotificationId, number: int) -> NotificationId:
    return NotificationId(f"{id.producer}+{number}", id.epoch, id.sequence)
