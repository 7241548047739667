"""Subscriptions as users have them: a table, a mapping, or pairs; and what can be wrong with them.

Filters that do not parse are reported together, each with the id of its subscription, because
whoever loads a table of thousands wants to see more than the first.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from stentor.errors import PipelineDefinitionError, StentorError
from stentor.filters import Filter
from stentor.model.names import shown
from stentor.model.values import INT_MAX, INT_MIN
from stentor.notation.counts import counted
from stentor.pipeline.filters.sql import quoted

#: So many mistakes are shown, and then how many there are.
MOST_SHOWN: Final = 10

#: A mistake: the id, and what is wrong.
Mistake = tuple[Any, str]


@dataclass
class Subscriptions:
    """Ids, all of one type, and filters in parallel: as texts, or parsed already."""

    id_type: T.DataType
    ids: pa.Array
    filters: Sequence[str | Filter | None]
    _parsed: list[Filter] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.filters)

    def parsed(self) -> list[Filter]:
        """All filters; an error that names those that are none."""
        if self._parsed is None:
            filters, mistakes = parse_all(self.ids, self.filters)
            refuse(mistakes, len(mistakes))
            self._parsed = filters
        return self._parsed

    def table(self, spark: SparkSession) -> DataFrame:
        """The same as a table of ids and texts."""
        texts = [None if given is None else str(given) for given in self.filters]
        table = pa.table([self.ids, pa.array(texts, pa.string())], ["id", "filter"])
        schema = T.StructType().add("id", self.id_type).add("filter", "string")
        return spark.createDataFrame(table, schema)

    def as_bytes(self) -> Iterator[bytes]:
        """All that it consists of."""
        yield self.id_type.json().encode()
        for buffer in self.ids.buffers():
            yield b"" if buffer is None else bytes(buffer)
        yield pickle.dumps(list(self.filters))


def from_pairs(given: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> Subscriptions:
    """From `{id: filter}` or `(id, filter)` pairs; ids are all strings, or all integers."""
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise PipelineDefinitionError(
                f"subscriptions are pairs of an id and a filter, not {shown(pair)}"
            )
    ids = [id for id, _ in pairs]
    kinds = set(map(type, ids))
    id_type: T.DataType
    if kinds <= {str}:
        id_type, array = T.StringType(), pa.array(ids, pa.string())
    elif kinds == {int} and min(ids) >= INT_MIN and max(ids) <= INT_MAX:
        id_type, array = T.LongType(), pa.array(ids, pa.int64())
    else:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise PipelineDefinitionError(
            f"the ids of subscriptions are all strings or all 64-bit integers, not {found}; "
            "ids of other types can be given in a DataFrame"
        )
    _refuse_repeated(array)
    return Subscriptions(id_type, array, [filter_ for _, filter_ in pairs])


def from_table(frame: DataFrame, id: str, filter: str, most: int) -> Subscriptions | None:
    """From a table; None if it has more rows than `most`."""
    table = subscription_columns(frame, id, filter).limit(most + 1).toArrow()
    if table.num_rows > most:
        return None
    ids = one_array(table.column(0))
    if ids.null_count:
        nameless = counted(ids.null_count, "subscription has", "subscriptions have")
        raise PipelineDefinitionError(f"{nameless} no id: {id} is null")
    _refuse_repeated(ids)
    return Subscriptions(frame.schema[id].dataType, ids, table.column(1).to_pylist())


def subscription_columns(
    frame: DataFrame, id: str, filter: str, also: str | None = None
) -> DataFrame:
    """A table of subscriptions as `id` and `filter`, and maybe `order`; an error if it is none."""
    for name in (id, filter, *([also] if also else [])):
        if name not in frame.columns:
            raise PipelineDefinitionError(
                f"the subscriptions have no column {name!r}, only {', '.join(frame.columns)}; "
                "say which are meant by id= and filter="
            )
    id_type, filter_type = frame.schema[id].dataType, frame.schema[filter].dataType
    if isinstance(id_type, T.ArrayType | T.MapType | T.StructType | T.NullType | T.VariantType):
        raise PipelineDefinitionError(
            f"the column {id!r} has the type {id_type.simpleString()}; an id is a single value"
        )
    if not isinstance(filter_type, T.StringType):
        raise PipelineDefinitionError(
            f"the column {filter!r} has the type {filter_type.simpleString()}; filters are text"
        )
    chosen = {"id": id, "filter": filter, **({"order": also} if also else {})}
    return frame.select(*(frame[quoted(name)].alias(part) for part, name in chosen.items()))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column without seams."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def parse_all(
    ids: pa.Array, filters: Iterable[str | Filter | None]
) -> tuple[list[Filter], list[Mistake]]:
    """Parse all, each text once; and what is wrong with those that do not parse."""
    known: dict[str, Filter] = {}
    parsed: list[Filter] = []
    mistakes: list[Mistake] = []
    for place, given in enumerate(filters):
        if isinstance(given, Filter):
            parsed.append(given)
            continue
        try:
            filter_ = known.get(given) if isinstance(given, str) else None
            if filter_ is None:
                filter_ = parse_one(given)
                known[str(given)] = filter_
            parsed.append(filter_)
        except StentorError as error:
            mistakes.append((ids[place].as_py(), str(error)))
    return parsed, mistakes


def parse_one(given: object) -> Filter:
    """The filter that a text is; an error of Stentor's if it is none."""
    if given is None:
        raise PipelineDefinitionError("the filter is null; the one that matches everything is ''")
    if not isinstance(given, str):
        raise PipelineDefinitionError(f"{shown(given)} is neither text nor a Filter")
    return Filter(given)


def refuse(mistakes: Sequence[Mistake], count: int) -> None:
    """Raise if there are mistakes; `count` is how many there are, also where not all are given."""
    if not count:
        return
    lines = [f"{counted(count, 'subscription')} cannot be used:"]
    for id, problem in mistakes[:MOST_SHOWN]:
        lines.append(f"  {shown(id)}: " + problem.replace("\n", "\n    "))
    if count > MOST_SHOWN:
        lines.append(f"  and {count - MOST_SHOWN} more")
    raise PipelineDefinitionError("\n".join(lines))


def repeated(ids: pa.Array) -> list[Any]:
    """Ids that occur more than once."""
    if len(ids.unique()) == len(ids):
        return []
    counts = pc.value_counts(ids)
    again = pc.greater(counts.field("counts"), 1)
    found: list[Any] = counts.field("values").filter(again).to_pylist()
    return found


def _refuse_repeated(ids: pa.Array) -> None:
    found = repeated(ids)
    refuse([(id, "the id is used more than once") for id in found], len(found))
