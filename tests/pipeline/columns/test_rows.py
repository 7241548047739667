"""Rows become notifications: columns are attributes, null is absent, errors name row and column."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
)

from stentor.errors import InvalidNotification, UnsupportedColumn
from stentor.model import Notification, decode, encode
from stentor.model.identity import IdSource
from stentor.pipeline.columns import BatchMaker, RowEncoder, numbered, row_of, with_reserved

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def schema(**columns: str | DataType) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found = found.add(name, kind)
    return found


def published(columns: StructType, *rows: dict[str, Any], zone: str = "UTC") -> list[Notification]:
    arrow = to_arrow_schema(columns, timezone=zone)
    batch = pa.RecordBatch.from_pylist(list(rows), arrow)
    items = numbered(RowEncoder(columns).drafts(batch), IdSource("spark/q/0", 5), NOON)
    return [decode(item) for item in items]


def test_columns_are_attributes() -> None:
    inner = StructType().add("x", "long").add("y", StructType().add("z", "string"))
    columns = schema(
        symbol="string",
        price="double",
        small="byte",
        flag="boolean",
        raw="binary",
        at="timestamp",
        tags=ArrayType(StringType()),
        pos=inner,
        nothing="void",
        _payload="void",
    )
    full = {
        "symbol": "IBM",
        "price": 1.5,
        "small": 3,
        "flag": True,
        "raw": b"x",
        "at": NOON,
        "tags": ["b", "a", "b"],
        "pos": {"x": 1, "y": {"z": "deep"}},
    }
    first, second, third = published(
        columns, full, {"symbol": "SAP", "pos": {"y": {}}}, {"price": 2.0}, zone="Asia/Tokyo"
    )
    assert dict(first) == {
        "symbol": "IBM",
        "price": 1.5,
        "small": 3,
        "flag": True,
        "raw": b"x",
        "at": NOON,
        "tags": ("b", "a", "b"),
        "pos.x": 1,
        "pos.y.z": "deep",
    }
    assert dict(second) == {"symbol": "SAP"}
    assert dict(third) == {"price": 2.0}
    assert [str(n.id) for n in (first, second, third)] == [f"spark/q/0:5:{i}" for i in range(3)]
    assert first.time == NOON


def test_nan_and_null_elements_are_absent() -> None:
    columns = schema(a="double", b=ArrayType(DoubleType()), c="long")
    (found,) = published(columns, {"a": float("nan"), "b": [1.0, None, float("nan")], "c": 1})
    assert dict(found) == {"b": (1.0,), "c": 1}


def test_reserved_columns_set_parts_or_are_left_out() -> None:
    own = datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=5)))
    columns = schema(
        a="long",
        _id="string",
        _type="string",
        _time="timestamp",
        _broker="string",
        _offset="long",
        _stream="string",
        _corrupt="string",
        _subject="string",
        _channel="string",
        _payload="binary",
        _content_type="string",
    )
    row = {
        "a": 1,
        "_id": "x:1:1",
        "_type": "quote",
        "_time": own,
        "_broker": "b9",
        "_offset": 9,
        "_stream": "b9#1",
        "_corrupt": "{}",
        "_subject": "s/t",
        "_channel": "c",
        "_payload": b"p" * 2_000_000,
        "_content_type": "text/plain",
    }
    first, second = published(columns, row, {"_type": "bare"})
    assert dict(first) == {"a": 1}
    assert (first.type, first.subject, first.channel) == ("quote", "s/t", "c")
    assert (first.payload, first.content_type, first.time) == (b"p" * 2_000_000, "text/plain", own)
    assert (dict(second), second.type, second.time) == ({}, "bare", NOON)


def test_decimals_become_the_number_that_is_written_the_same() -> None:
    columns = schema(price=DecimalType(10, 2), count=DecimalType(20, 0))
    (found,) = published(columns, {"price": Decimal("12.94"), "count": Decimal(2**60)})
    assert dict(found) == {"price": 12.94, "count": 2**60}
    assert type(found["count"]) is int
    with pytest.raises(InvalidNotification, match=r"column 'x'.*cast it to double or string") as e:
        published(
            schema(x=DecimalType(38, 18)),
            {"x": Decimal("0.5")},
            {"x": Decimal("0.123456789012345678")},
        )
    assert row_of(e.value) == 1


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        (schema(a="long", b="string"), {}, "all attributes are null"),
        (schema(a="long", _type="string"), {"a": 1, "_type": "a..b"}, "column _type"),
        (schema(a="long", _subject="string"), {"a": 1, "_subject": "x\x00"}, "column _subject"),
        (schema(a="string"), {"a": "x" * (2**20 + 1)}, "column 'a': 1048577 bytes"),
        (schema(a=ArrayType(StringType())), {"a": ["x" * (2**20 + 1)]}, "column 'a'"),
        (schema(a="long", _priority="integer"), {"a": 1, "_priority": 10}, "from 0 to 9"),
        (
            schema(a="long", _deliver_at="timestamp", _expires="timestamp"),
            {"a": 1, "_deliver_at": LATER, "_expires": NOON},
            "would expire",
        ),
        (schema(a="string", b="string", c="string"), dict.fromkeys("abc", "x" * 2**20), "the attr"),
    ],
)
def test_a_row_that_cannot_be_published_is_named(
    columns: StructType, row: dict[str, Any], said: str
) -> None:
    values: dict[str, Any] = {"bigint": 1, "string": "x", "array<string>": ["x"]}
    good = {"a": values[columns["a"].dataType.simpleString()]}
    with pytest.raises(InvalidNotification, match=said) as e:
        published(columns, good, good, row)
    assert row_of(e.value) == 2


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (schema(day=DateType()), "cast it to timestamp"),
        (schema(t=TimestampNTZType()), "cast it to timestamp"),
        (schema(m=MapType(StringType(), StringType())), "make a struct"),
        (schema(a=ArrayType(ArrayType(LongType()))), "plain elements"),
        (schema(a=ArrayType(StructType().add("x", "long"))), "plain elements"),
        (schema(a="long", _time="string"), "_time must be a timestamp"),
        (schema(a="long", _priority="double"), "_priority must be a bigint"),
        (schema(a="long", _mine="string"), "underscore"),
        (schema(a="long").add("a.b", "long"), "both a value and the record"),
        (schema(a=StructType().add("b", "long")).add("a.b", "long"), "several columns"),
        (schema(_offset="long"), "no column to publish"),
    ],
)
def test_columns_that_cannot_be_published_are_refused(columns: StructType, said: str) -> None:
    with pytest.raises(UnsupportedColumn, match=said):
        RowEncoder(columns)


def test_what_was_read_can_be_published_as_it_is() -> None:
    inner = StructType().add("x", "long")
    columns = with_reserved(
        schema(
            pos=inner,
            tags=ArrayType(StringType()),
            at="timestamp",
            _payload="binary",
            _expires="timestamp",
            _deliver_at="timestamp",
            _priority="long",
        )
    )
    events = [
        Notification(
            {"pos.x": 1, "tags": ["a", "b"], "at": NOON}, type="t", time=NOON, payload=b"1"
        ),
        Notification({"tags": []}, time=NOON),
        Notification({"at": NOON}, time=NOON, deliver_at=NOON, expires=LATER, priority=9),
        Notification({"at": NOON}, time=NOON, expires=LATER),
    ]
    items = [encode(e) for e in events]
    batch = BatchMaker(columns).batch(items, [1, 2, 3, 4], stream="b1#1", broker="b1")
    again = numbered(RowEncoder(columns).drafts(batch), IdSource("p", 0), NOON)
    assert [decode(item).replace(id=None) for item in again] == events
