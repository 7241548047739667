"""From the rows of a DataFrame to encoded notifications.

Columns are attributes, structs are dotted names, arrays are collections. Null means that the
attribute is absent, and so does NaN, which no attribute can be. `_type`, `_subject`, `_channel`,
`_payload`, `_content_type`, `_time`, `_deliver_at`, `_expires` and `_priority` set the parts of
that name; the other columns of an event table (`_id`, `_offset`, ...) say where a row came from and
are left out, so that events that were read can be published again as they are.

What a whole column can be checked for is checked once: its type and name when the writer is made,
sizes by Arrow. Then each row is a dictionary and is encoded. Errors name the row and the column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stentor.errors import InvalidNotification, StentorError, UnsupportedColumn
from stentor.model.codec import encode_batch
from stentor.model.handling import DEFAULT, Handling, handling
from stentor.model.identity import IdSource, NotificationId, parse_ids
from stentor.model.names import check_attribute_names
from stentor.model.notification import Notification, check_texts
from stentor.pipeline.columns.attribute_values import (
    RowFault,
    Source,
    Values,
    objection,
    payload_values,
    sources_of,
    values_of,
)
from stentor.pipeline.columns.types import sql_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Parts of a notification that columns set, and the columns that are left out.
_TEXTS: Final = ("_type", "_subject", "_channel", "_content_type")
_PARTS: Final = dict.fromkeys(_TEXTS, "string") | {"_payload": "binary", "_time": "timestamp"}
_HANDLING: Final = {"_deliver_at": "timestamp", "_expires": "timestamp", "_priority": "bigint"}
_SET: Final = _PARTS | _HANDLING
_LEFT_OUT: Final = frozenset({"_id", "_broker", "_stream", "_offset", "_corrupt", "_events"})


class Draft(NamedTuple):
    """A notification without an id; the time is that of the row, if it has one."""

    attributes: dict[str, Any]
    type: str | None
    subject: str | None
    channel: str | None
    payload: bytes
    content_type: str | None
    time: datetime | None
    handling: Handling | None = None

    def notification(self, id: NotificationId | None, now: datetime | None = None) -> Notification:
        """With this id; at the time of the row, or else `now`."""
        return Notification.from_checked(*self[:6], id, self.time or now, self.handling)


class RowEncoder:
    """Encodes the rows of one schema.

    >>> encoder = RowEncoder(pa.schema({"x": pa.int64(), "_type": pa.string()}))
    >>> rows = pa.record_batch({"x": [1, None], "_type": ["quote", "quote"]})
    >>> from stentor.model import decode
    >>> from datetime import UTC
    >>> items = numbered(encoder.drafts(rows), IdSource("ann", epoch=7), datetime.now(UTC))
    >>> decode(items[0])["x"], str(decode(items[1]).id), decode(items[1]).type
    (1, 'ann:7:1', 'quote')
    """

    def __init__(self, schema: pa.Schema | StructType) -> None:
        """`UnsupportedColumn` if rows of this schema, Arrow's or Spark's, cannot be published."""
        if not isinstance(schema, pa.Schema):
            from stentor.pipeline.columns.layout import arrow_schema

            schema = arrow_schema(schema)
        self._parts: dict[str, tuple[int, Values]] = {}
        self._sources: list[Source] = []
        for index, field in enumerate(schema):
            name, kind = field.name, field.type
            if name in _LEFT_OUT or pa.types.is_null(kind):
                continue
            if name in _SET:
                if name in self._parts:
                    raise UnsupportedColumn(f"there are several columns named {name!r}")
                said = "bigint" if pa.types.is_signed_integer(kind) else sql_name(kind)
                if said != _SET[name]:
                    raise UnsupportedColumn(
                        f"column {name} must be a {_SET[name]}, not a {sql_name(kind)}; cast it"
                    )
                values = payload_values if name == "_payload" else values_of(name, kind)
                self._parts[name] = index, values
            else:
                self._sources.extend(sources_of(name, kind, (index,)))
        names = tuple(source.attribute for source in self._sources)
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise UnsupportedColumn(f"the attribute {min(twice)!r} comes from several columns")
        try:
            check_attribute_names(names)
        except InvalidNotification as error:
            raise UnsupportedColumn(f"{error}, in the DataFrame that is to be published") from None
        if not (names or self._parts.keys() & {"_type", "_subject", "_channel"}):
            raise UnsupportedColumn(
                "there is no column to publish: every row would be an event without attributes"
            )
        self._names = names

    def notifications(self, batch: pa.RecordBatch) -> list[Notification]:
        """The rows as notifications under their own ids and times, as far as they have them."""
        ids: list[NotificationId | None] = [None] * batch.num_rows
        if "_id" in batch.schema.names:
            ids = parse_ids(batch.column("_id").to_pylist())
        rows, (*parts, times), handled = self._read(batch)
        found = zip(rows, *parts, ids, times, handled, strict=True)
        return list(starmap(Notification.from_checked, found))

    def drafts(self, batch: pa.RecordBatch) -> list[Draft]:
        """The rows as notifications that have no id yet."""
        rows, parts, handled = self._read(batch)
        return list(map(Draft, rows, *parts, handled))

    def _read(
        self, batch: pa.RecordBatch
    ) -> tuple[list[dict[str, Any]], list[Sequence[Any]], Sequence[Handling | None]]:
        """The attributes of each row, the parts in the order in which drafts have them, and how
        each is to be handled.
        """
        rows = self._rows(batch)
        parts = {
            name: values(batch.column(index), objection(name))
            for name, (index, values) in self._parts.items()
        }
        for name in _TEXTS:
            if name in parts:
                _check_texts(name, parts[name])
        nothing: Sequence[Any] = [None] * batch.num_rows
        types, subjects, channels, contents, payloads, times = (
            parts.get(name, nothing) for name in _PARTS
        )
        if not all(rows):
            _check_empty(rows, types, subjects, channels)
        payloads = [payload or b"" for payload in payloads]
        ordered = [types, subjects, channels, payloads, contents, times]
        return rows, ordered, _handlings(parts) or nothing

    def _rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The attributes of each row."""
        columns = []
        complete = True
        for source in self._sources:
            array = batch.column(source.path[0])
            for step in source.path[1:]:
                array = pc.struct_field(array, step)  # null where the struct is
            values = source.values(array, objection(source.attribute))
            complete = complete and None not in values
            columns.append(values)
        if not columns:
            return [{} for _ in range(batch.num_rows)]
        names = self._names
        rows = zip(*columns, strict=True)
        if complete:
            return [dict(zip(names, row, strict=True)) for row in rows]
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in rows
        ]


def numbered(drafts: Sequence[Draft], ids: IdSource, now: datetime) -> list[bytes]:
    """Encoded, under the next ids; `now` is the time of those that have none."""
    return _encoded([draft.notification(next(ids), now) for draft in drafts])


def _handlings(parts: Mapping[str, Sequence[Any]]) -> list[Handling | None]:
    """How each is to be handled; nothing if no column says it."""
    given = [parts[name] for name in _HANDLING if name in parts]
    if not given:
        return []
    nothing = [None] * len(given[0])
    columns = [parts.get(name, nothing) for name in _HANDLING]
    found = []
    for row, (at, expires, priority) in enumerate(zip(*columns, strict=True)):
        try:
            found.append(handling(at, expires, DEFAULT if priority is None else priority))
        except InvalidNotification as error:
            raise RowFault(row, str(error)) from None
    return found


def _check_empty(rows: Sequence[dict[str, Any]], *texts: Sequence[str | None]) -> None:
    for row, (attributes, *said) in enumerate(zip(rows, *texts, strict=True)):
        if not attributes and not any(said):
            raise RowFault(
                row,
                "all attributes are null, so there is nothing to publish; filter such rows out",
            )


def _check_texts(name: str, values: Sequence[str | None]) -> None:
    for text in dict.fromkeys(values):
        if text is not None:
            parts = {part[1:]: text if part == name else None for part in _TEXTS}
            try:
                check_texts({"": 0}, **parts)
            except InvalidNotification as error:
                raise RowFault(values.index(text), f"column {name}: {error}") from None


def _encoded(notifications: list[Notification]) -> list[bytes]:
    try:
        return encode_batch(notifications)
    except StentorError:
        for row, notification in enumerate(notifications):
            try:
                encode_batch((notification,))
            except StentorError as error:
                raise RowFault(row, str(error)) from None
        raise
