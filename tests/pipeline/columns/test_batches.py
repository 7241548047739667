"""Encoded notifications become exactly the record batches that a schema asks for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from stentor.errors import DecodeError, InvalidValue, UnknownStrategy, UnsupportedColumn
from stentor.model import Notification, NotificationId, encode
from stentor.model.codec import decode_headers
from stentor.model.values import ValueType, register_value_type
from stentor.pipeline.columns import BatchMaker, with_reserved
from stentor.pipeline.columns.headers import all_attributes

NOON = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)


def schema(**columns: str | DataType) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found = found.add(name.replace("__", "."), kind)
    return found


def table(
    notifications: list[Notification], columns: StructType, mode: str = "PERMISSIVE"
) -> list[dict[str, Any]]:
    maker = BatchMaker(columns, mode)
    items = [encode(n) for n in notifications]
    offsets = list(range(7, 7 + len(items)))
    batch = maker.batch(items, offsets, stream="b1#77", broker="b1")
    assert batch.schema.equals(to_arrow_schema(columns, timezone="UTC"))
    batch.validate(full=True)
    return batch.to_pylist()  # type: ignore[no-any-return]


def column(kind: str | DataType, *values: Any) -> tuple[list[Any], list[Any]]:
    """What becomes of the values of an attribute, and what `_corrupt` says of each."""
    notifications = [
        Notification({"a": value} if value is not None else {"b": 0}) for value in values
    ]
    rows = table(notifications, schema(a=kind, _corrupt="string"))
    corrupt = [None if r["_corrupt"] is None else json.loads(r["_corrupt"])["a"] for r in rows]
    return [row["a"] for row in rows], corrupt


def test_columns_may_have_any_name_that_attributes_have() -> None:
    name = 'the "odd" \\ one'
    rows = table(
        [Notification({name: 1, "b": 2}), Notification({"b": 3})], schema(**{name: "long"})
    )
    assert rows == [{name: 1}, {name: None}]


def test_the_columns_of_an_event_table() -> None:
    rows = table(
        [
            Notification(
                {"symbol": "IBM", "price": 99.5},
                type="quote.stock",
                id=NotificationId("desk", 3, 41),
                time=NOON,
                subject="stocks/nyse",
                channel="quotes",
                payload=b"xyz",
                content_type="text/plain",
            ),
            Notification({"symbol": "SAP"}, id=NotificationId("desk", 3, 42)),
        ],
        with_reserved(
            schema(
                symbol="string",
                price="double",
                _stream="string",
                _subject="string",
                _channel="string",
                _payload="binary",
                _content_type="string",
            )
        ),
    )
    assert rows == [
        {
            "symbol": "IBM",
            "price": 99.5,
            "_stream": "b1#77",
            "_subject": "stocks/nyse",
            "_channel": "quotes",
            "_payload": b"xyz",
            "_content_type": "text/plain",
            "_id": "desk:3:41",
            "_type": "quote.stock",
            "_time": NOON,
            "_broker": "b1",
            "_offset": 7,
            "_corrupt": None,
        },
        {
            "symbol": "SAP",
            "price": None,
            "_stream": "b1#77",
            "_subject": None,
            "_channel": None,
            "_payload": None,
            "_content_type": None,
            "_id": "desk:3:42",
            "_type": None,
            "_time": None,
            "_broker": "b1",
            "_offset": 8,
            "_corrupt": None,
        },
    ]


def test_times_are_exact_in_every_form_that_messagepack_has() -> None:
    times = [
        NOON,
        NOON.replace(microsecond=0),
        datetime(1903, 5, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        None,
    ]
    for chosen in ([NOON, NOON + timedelta(microseconds=1)], times):
        found = table([Notification({"a": 1}, time=t) for t in chosen], schema(_time="timestamp"))
        assert [row["_time"] for row in found] == chosen


def test_ids_of_one_producer_and_of_many() -> None:
    for ids in (
        [NotificationId("a", 1, n) for n in (0, 1, 2**63 - 1)],
        [NotificationId("a:b", 1, 1), NotificationId("ü", 2, 5), None],
    ):
        found = table([Notification({"a": 1}, id=i) for i in ids], schema(_id="string"))
        assert [row["_id"] for row in found] == [None if i is None else str(i) for i in ids]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "x", "ü"], [1, 1.5, True, b"x", NOON, ["x"]]),
        ("boolean", [True, False], [0, 1, "true", 1.0]),
        ("binary", [b"", b"x"], ["x", 1]),
        ("timestamp", [NOON], ["2026-01-01", 0, 1.5]),
        ("long", [0, -(2**63), 2**63 - 1], [1.5, True, "1", 2.0**63, float("inf")]),
        ("integer", [2**31 - 1, -(2**31)], [2**31, 1e10, True]),
        ("short", [2**15 - 1], [2**15]),
        ("byte", [-128], [128, -129]),
        ("double", [1.5, float("inf"), float("-inf")], [2**53 + 1, True, "1", [1.0]]),
        ("float", [1.5, float("inf")], [1e300, True, "1"]),
        (ArrayType(StringType()), [["b", "a"], []], ["a", ["a", 1], {1, 2}, [True]]),
    ],
)
def test_a_column_holds_what_its_type_says_and_nothing_else(
    kind: str | DataType, good: list[Any], bad: list[Any]
) -> None:
    values, corrupt = column(kind, *good, None)
    assert values == [*good, None]
    assert corrupt == [None] * (len(good) + 1)
    values, corrupt = column(kind, *good, *bad)  # the same, with misfits among them
    assert values == [*good, *[None] * len(bad)]
    assert corrupt[: len(good)] == [None] * len(good)
    assert None not in corrupt[len(good) :]


def test_numbers_that_are_equal_fit() -> None:
    assert column("long", 3.0, -4.0, 5) == ([3, -4, 5], [None] * 3)
    assert column("double", 3, 2**53, 0.5) == ([3.0, 2.0**53, 0.5], [None] * 3)
    assert column("float", 0.1, 3)[0] == [pytest.approx(0.1, rel=1e-7), 3.0]
    exact = [Decimal("12.94"), Decimal("-7.00"), None, None, None, Decimal("0.10")]
    values, corrupt = column(DecimalType(5, 2), 12.94, -7, 0.125, 12345, float("inf"), 0.1)
    assert values == exact
    assert corrupt == [None, None, 0.125, 12345, "inf", None]


def test_sets_come_sorted_and_lists_as_they_are() -> None:
    assert column(ArrayType(StringType()), {"bb", "a", "ccc"}, ["z", "a", "z"]) == (
        [["a", "bb", "ccc"], ["z", "a", "z"]],
        [None, None],
    )
    assert column(ArrayType(LongType()), {3, 1, 2.0})[0] == [[1, 2, 3]]


def test_misfits_are_told_as_json() -> None:
    rows = table(
        [
            Notification({"a": "high", "b": NOON, "c": b"\x01", "d": 2}),
            Notification({"a": 1, "b": {2, 1}, "c": float("-inf")}),
        ],
        schema(a="double", b="string", c="string", d="string", _corrupt="string"),
    )
    assert [json.loads(row["_corrupt"]) for row in rows] == [
        {"a": "high", "b": "2026-03-01T12:30:15.123456Z", "c": "0x01", "d": 2},
        {"b": [1, 2], "c": "-inf"},
    ]
    assert [row["a"] for row in rows] == [None, 1.0]


def test_structs_are_dotted_names() -> None:
    inner = StructType().add("x", "long").add("y", StructType().add("z", "string"))
    columns = schema(pos=inner, pos__x="double", _corrupt="string")
    rows = table(
        [
            Notification({"pos": {"x": 1, "y": {"z": "deep"}}}),
            Notification({"pos.x": 2.5}),
            Notification({"other": 1}),
            Notification({"pos": "a word"}),
        ],
        columns,
    )
    assert [row["pos"] for row in rows] == [
        {"x": 1, "y": {"z": "deep"}},
        None,
        None,
        None,
    ]
    assert [row["pos.x"] for row in rows] == [1.0, 2.5, None, None]
    assert [row["_corrupt"] for row in rows] == [None, '{"pos.x": 2.5}', None, '{"pos": "a word"}']


def test_the_modes() -> None:
    events = [Notification({"a": 1}), Notification({"a": "x"}), Notification({"a": 3})]
    columns = schema(a="long", _offset="long")
    assert table(events, columns, "DROPMALFORMED") == [
        {"a": 1, "_offset": 7},
        {"a": 3, "_offset": 9},
    ]
    with pytest.raises(InvalidValue, match=r"offset 8 of broker 'b1'.*'a' is to be a bigint") as e:
        table(events, columns, "FAILFAST")
    assert '{"a": "x"}' in str(e.value)
    assert len(table(events, columns)) == 3
    with pytest.raises(UnknownStrategy, match="PERMISSIVE"):
        BatchMaker(columns, "SLOPPY")


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_a_batch_that_is_decoded_in_portions_is_one(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    notifications = [Notification({"a": "odd" if n in (4, 8) else n}) for n in range(10)]
    columns = schema(a="long", _offset="long", _corrupt="string")

    def made() -> Any:
        try:
            return table(notifications, columns, mode)
        except InvalidValue as error:
            return str(error)

    whole = made()
    monkeypatch.setattr("stentor.pipeline.columns.to_arrow.PORTION", 3)
    assert made() == whole
    assert ("offset 11 " in whole) if mode == "FAILFAST" else (whole[0]["_offset"] == 7)


def test_misfits_are_counted() -> None:
    maker = BatchMaker(schema(a="long", b="long"))
    items = [encode(Notification({"a": "x", "b": "y"})), encode(Notification({"a": 1}))]
    for _ in range(2):
        maker.batch(items, [1, 2], stream="s#1", broker="s")
    assert (maker.rows, maker.corrupt) == (4, 2)


def test_values_of_registered_types_fit_no_column_and_harm_none() -> None:
    class Version(tuple):  # type: ignore[type-arg]
        pass

    kind = ValueType("test-version", (Version,), dump=lambda v: bytes(v), load=Version)
    register_value_type(kind)
    event = Notification({"v": Version((1, 2)), "a": 1})
    (row,) = table([event], schema(v="string", a="long", _corrupt="string"))
    assert row == {"v": None, "a": 1, "_corrupt": '{"v": "test-version 0x0102"}'}
    (row,) = table([event], schema(a="long", _corrupt="string"))
    assert row == {"a": 1, "_corrupt": None}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (schema(day=DateType()), "use timestamp"),
        (schema(t=TimestampNTZType()), "use timestamp"),
        (schema(m=MapType(StringType(), StringType())), "struct"),
        (schema(a=ArrayType(ArrayType(StringType()))), "plain elements"),
        (schema(a=ArrayType(StructType().add("b", "long"))), "plain elements"),
        (schema(_offset="string"), "_offset is a bigint, not a string"),
        (schema(_producer="string"), "reserved columns are _id"),
        (schema(a__="string"), "empty segment"),
        (StructType([StructField("a", StringType(), nullable=False)]), "NOT NULL"),
        (StructType([StructField("a", StringType()), StructField("a", StringType())]), "several"),
    ],
)
def test_columns_that_events_do_not_have_are_refused(columns: StructType, said: str) -> None:
    with pytest.raises(UnsupportedColumn, match=said):
        BatchMaker(columns)


def test_bytes_that_are_no_notification_are_refused_as_elsewhere() -> None:
    good = encode(Notification({"a": 1}))
    maker = BatchMaker(schema(a="long"))
    for bad in (b"\x02" + good[1:], good[:-1], good[:9] + b"\xc0" + good[10:]):
        with pytest.raises(DecodeError):
            maker.batch([good, bad], [1, 2], stream="s#1", broker="s")


def test_not_null_is_relaxed_with_the_standard_columns() -> None:
    strict = StructType(
        [
            StructField("a", StringType(), False),
            StructField("s", StructType([StructField("x", StringType(), False)]), False),
            StructField("_id", StringType(), False),
        ]
    )
    relaxed = with_reserved(strict)
    assert [f.name for f in relaxed] == [
        "a",
        "s",
        "_id",
        "_type",
        "_time",
        "_broker",
        "_offset",
        "_corrupt",
    ]
    assert all(f.nullable for f in relaxed)
    inner = relaxed["s"].dataType
    assert isinstance(inner, StructType)
    assert inner["x"].nullable
    assert with_reserved(relaxed) == relaxed


_scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
)
_values = _scalars | st.lists(_scalars, max_size=4) | st.frozensets(_scalars, max_size=4)
_events = st.dictionaries(st.sampled_from(["a", "b", "c.d", "c.e"]), _values, max_size=4)


@given(
    events=st.lists(_events, min_size=1, max_size=8),
    kinds=st.lists(
        st.sampled_from(["string", "long", "double", "boolean", "timestamp"]), min_size=2
    ),
    payload=st.binary(max_size=3),
)
def test_nothing_is_lost_whatever_comes(
    events: list[dict[str, Any]], kinds: list[str], payload: bytes
) -> None:
    """Each wanted attribute is in its column, or in `_corrupt`; and nothing else is."""
    columns = schema(a=kinds[0], b=kinds[1], c=StructType().add("d", "string"), _corrupt="string")
    made = [Notification(event, type="t", payload=payload) for event in events]
    rows = table(made, columns)
    for notification, row in zip(made, rows, strict=True):
        corrupt = json.loads(row["_corrupt"] or "{}")
        seen = {"a": row["a"], "b": row["b"], "c.d": (row["c"] or {}).get("d")}
        for name, value in seen.items():
            assert (value is not None) + (name in corrupt) == (name in notification)
            if value is not None:
                assert value == notification[name]
        assert set(corrupt) <= set(seen)


@given(st.lists(_events, min_size=1, max_size=8), st.binary(max_size=3))
def test_the_quick_reader_reads_what_the_careful_one_reads(
    events: list[dict[str, Any]], payload: bytes
) -> None:
    items = [encode(Notification(event, type="t", payload=payload)) for event in events]
    careful = [
        {n: list(v) if type(v) is tuple else v for n, v in envelope.attributes.items()}
        for envelope in decode_headers(items)
    ]
    assert all_attributes(items) == careful


def test_batches_are_as_spark_wants_them_even_if_empty() -> None:
    columns = with_reserved(schema(a="long", s=StructType().add("x", "long")))
    batch = BatchMaker(columns).batch([], [], stream="s#1", broker="s")
    assert batch.num_rows == 0
    assert batch.schema.equals(to_arrow_schema(columns, timezone="UTC"))
    assert isinstance(batch, pa.RecordBatch)
