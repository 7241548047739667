"""From encoded notifications to the record batches that Spark takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from stentor.errors import InvalidValue, UnknownStrategy
from stentor.pipeline.columns.headers import (
    Header,
    HeaderReader,
    as_json,
    header_reader,
    id_column,
    moment_column,
    payloads,
    plain,
    priority_column,
    time_column,
)
from stentor.pipeline.columns.layout import Branch, Layout, Leaf

#: What happens with an event that has an attribute which does not fit its column: it is kept, with
#: null there and the value in `_corrupt`; it is left out; or the read fails.
PERMISSIVE: Final = "PERMISSIVE"
DROPMALFORMED: Final = "DROPMALFORMED"
FAILFAST: Final = "FAILFAST"
MODES: Final = (PERMISSIVE, DROPMALFORMED, FAILFAST)

#: Events that are decoded at a time: as many as a processor's cache has room for, once they are
#: objects. With ten times as many, each takes half as long again.
PORTION: Final = 2_500


class BatchMaker:
    """Makes the record batches of one schema.

    >>> from pyspark.sql.types import LongType
    >>> from stentor.model import Notification, encode
    >>> maker = BatchMaker(StructType().add("x", LongType()).add("_offset", LongType()))
    >>> items = [encode(Notification({"x": x})) for x in (3, 4)]
    >>> maker.batch(items, [7, 8], stream="b1#0", broker="b1").to_pydict()
    {'x': [3, 4], '_offset': [7, 8]}
    """

    def __init__(self, schema: StructType, mode: str = PERMISSIVE) -> None:
        if mode not in MODES:
            raise UnknownStrategy(f"mode {mode!r} is none; choose one of {', '.join(MODES)}")
        self.layout = Layout(schema)
        #: Rows so far, and those among them that had a misfit, whether they were kept or not.
        self.rows = 0
        self.corrupt = 0
        self._mode = mode
        self._reader = header_reader(tuple(self.layout.attributes))

    def batch(
        self, items: Sequence[bytes], offsets: Sequence[int], *, stream: str, broker: str
    ) -> pa.RecordBatch:
        """Encoded notifications of one journal, with their offsets."""
        portions = [
            self._portion(items[at : at + PORTION], offsets[at : at + PORTION], stream, broker)
            for at in range(0, max(1, len(items)), PORTION)
        ]
        return portions[0] if len(portions) == 1 else pa.concat_batches(portions)

    def _portion(
        self, items: Sequence[bytes], offsets: Sequence[int], stream: str, broker: str
    ) -> pa.RecordBatch:
        work = _Work(self._reader, items, offsets, stream, broker)
        attributes = [
            work.attribute(column) if isinstance(column, (Leaf, Branch)) else None
            for column in self.layout.columns
        ]
        self.rows += len(items)
        self.corrupt += len(work.misfits)
        if work.misfits and self._mode == FAILFAST:
            raise work.refusal(self.layout)
        arrays = [
            work.reserved(name) if array is None else array
            for array, name in zip(attributes, self.layout.arrow.names, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.layout.arrow)
        if work.misfits and self._mode == DROPMALFORMED:
            keep = [row not in work.misfits for row in range(len(items))]
            batch = batch.filter(pa.array(keep, pa.bool_()))
        return batch


@dataclass
class _Work:
    """One batch while it is made."""

    reader: HeaderReader
    items: Sequence[bytes]
    offsets: Sequence[int]
    stream: str
    broker: str
    #: By row: the attributes that do not fit, and their values.
    misfits: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.headers: list[Header] = self.reader.read(self.items)
        self._attributes: list[Any] = [header.attributes for header in self.headers]

    def attribute(self, column: Leaf | Branch) -> pa.Array:
        values = self.reader.values(self._attributes, column.attribute)
        if isinstance(column, Leaf):
            return column.fit.column(values, self._noting(column.attribute))
        if any(value is not None for value in values):
            note = self._noting(column.attribute)
            for row, value in enumerate(values):
                if value is not None:
                    note(row, plain(value))
        children = [self.attribute(child) for child in column.children]
        absent = reduce(pc.and_, [child.is_null() for child in children])
        return pa.StructArray.from_arrays(children, fields=list(column.arrow), mask=absent)

    def _noting(self, attribute: str) -> Callable[[int, Any], None]:
        def note(row: int, value: Any) -> None:
            self.misfits.setdefault(row, {})[attribute] = value

        return note

    def reserved(self, name: str) -> pa.Array:
        return _RESERVED[name](self)

    def texts(self, field: str) -> pa.Array:
        return pa.array(list(map(attrgetter(field), self.headers)), pa.string())

    def same(self, text: str) -> pa.Array:
        return pa.repeat(text, len(self.items))

    def corrupt(self) -> pa.Array:
        if not self.misfits:
            return pa.nulls(len(self.items), pa.string())
        found = map(self.misfits.get, range(len(self.items)))
        return pa.array([None if m is None else as_json(m) for m in found], pa.string())

    def refusal(self, layout: Layout) -> InvalidValue:
        row = min(self.misfits)
        fits = dict(_fits(layout))
        said = ", ".join(
            f"{name!r} is to be a {fits[name]}" if name in fits else f"{name!r} is to be a struct"
            for name in self.misfits[row]
        )
        return InvalidValue(
            f"the event at offset {self.offsets[row]} of broker {self.broker!r} does not fit the "
            f"schema: {said}, and the event has {as_json(self.misfits[row])}; change the schema, "
            f"or read with mode {PERMISSIVE} or {DROPMALFORMED}"
        )


def _fits(layout: Layout) -> Iterator[tuple[str, str]]:
    for column in layout.columns:
        if isinstance(column, Leaf):
            yield column.attribute, column.fit.spark.simpleString()
        elif isinstance(column, Branch):
            for leaf in column.leaves():
                yield leaf.attribute, leaf.fit.spark.simpleString()


_RESERVED: Final[dict[str, Callable[[_Work], pa.Array]]] = {
    "_id": lambda work: id_column(work.headers),
    "_type": lambda work: work.texts("type"),
    "_time": lambda work: time_column(work.headers),
    "_broker": lambda work: work.same(work.broker),
    "_offset": lambda work: pa.array(work.offsets, pa.int64()),
    "_corrupt": lambda work: work.corrupt(),
    "_stream": lambda work: work.same(work.stream),
    "_subject": lambda work: work.texts("subject"),
    "_channel": lambda work: work.texts("channel"),
    "_payload": lambda work: pa.array(payloads(work.items), pa.binary()),
    "_content_type": lambda work: work.texts("content_type"),
    "_deliver_at": lambda work: moment_column(work.headers, 0),
    "_expires": lambda work: moment_column(work.headers, 1),
    "_priority": lambda work: priority_column(work.headers),
}
