"""Records of Kafka as notifications, and back: names, formats, and what cannot be read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stentor.model import Notification, NotificationId
from stentor.pipeline.bridges.inbound import producer_name
from stentor.pipeline.bridges.records import notification_of, outgoing, written_by
from stentor.pipeline.bridges.values import BadValue, to_json, value_reader, value_writer

ID = NotificationId("kafka/c/b/quotes/0", 0, 7)
TIME = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Record:
    """What the client of Kafka hands out."""

    def __init__(
        self, value: bytes | None, key: bytes | None = None, headers: Any = None, time: int = -1
    ) -> None:
        self._parts = value, key, headers, time

    def topic(self) -> str:
        return "quotes"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 7

    def value(self) -> bytes | None:
        return self._parts[0]

    def key(self) -> bytes | None:
        return self._parts[1]

    def headers(self) -> Any:
        return self._parts[2]

    def timestamp(self) -> tuple[int, int]:
        return (1, self._parts[3]) if self._parts[3] >= 0 else (0, -1)


def read(record: Record, form: str = "json", type: str | None = None) -> Notification:
    return notification_of(record, value_reader({"format": form}), type, ID)


def test_a_record_of_json_has_its_members_and_what_kafka_knows_as_attributes() -> None:
    headers = [("source", b"nyse"), ("hop", b"a"), ("hop", b"b"), ("raw", b"\xff")]
    value = b'{"symbol": "IBM", "at": {"x": 1}, "none": null, "tags": ["a", "b"]}'
    found = read(Record(value, b"IBM", headers, 1_777_636_800_000))
    assert dict(found) == {
        "symbol": "IBM",
        "at.x": 1,
        "tags": ("a", "b"),
        "kafka.topic": "quotes",
        "kafka.partition": 3,
        "kafka.offset": 7,
        "kafka.key": "IBM",
        "kafka.headers.source": "nyse",
        "kafka.headers.hop": ("a", "b"),
        "kafka.headers.raw": b"\xff",
    }
    assert (found.type, found.time, found.id) == ("quotes", TIME, ID)


def test_the_type_is_what_is_said_or_else_the_header_or_else_the_topic() -> None:
    record = Record(b"{}", headers=[("stentor-type", b"trade")])
    assert [read(record, type="said").type, read(record).type] == ["said", "trade"]
    assert read(Record(b"{}")).type == "quotes"


def test_bytes_are_the_payload_and_a_record_without_value_deletes() -> None:
    found = read(Record(b"\x00\x01", b"\xfe", [("content-type", b"image/png")]), "raw")
    assert (found.payload, found.content_type) == (b"\x00\x01", "image/png")
    assert found["kafka.key"] == b"\xfe"
    assert read(Record(None, b"IBM"))["kafka.deleted"] is True


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "it is a list, and only an object has attributes"),
        (b'{"kafka": 1}', "'kafka', which is the name of what Kafka adds"),
        (b'{"a..b": 1}', "empty segment"),
        (b'{"a": [[1]]}', "a"),
        (b'{"n": 123456789012345678901234567890}', "n"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_notification_says_why(value: bytes, why: str) -> None:
    with pytest.raises(BadValue) as caught:
        read(Record(value))
    assert why in str(caught.value)


names = st.from_regex(r"[a-z]{1,5}", fullmatch=True).filter(lambda name: name != "kafka")
plain = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple),
)


@given(st.dictionaries(names, st.one_of(plain, st.dictionaries(names, plain, min_size=1))))
def test_what_json_has_goes_through_kafka_and_comes_back(attributes: dict[str, Any]) -> None:
    sent = Notification({**attributes, "always": 1})
    found = read(Record(to_json(sent)))
    assert {k: v for k, v in found.items() if not k.startswith("kafka.")} == dict(sent)
    assert {k: type(v) for k, v in found.items() if k in sent} == {
        k: type(v) for k, v in sent.items()
    }


def test_a_notification_as_a_record() -> None:
    n = Notification(
        {
            "symbol": "IBM",
            "at": TIME,
            "raw": b"x",
            "set": {"b", "a"},
            "pos": {"x": 1.5},
            "lines": [{"sku": "A", "box": {"n": 1}}, {"sku": "B"}],
        },
        type="trade",
        subject="nyse/ibm",
        id=NotificationId("desk", 0, 4),
        time=TIME,
    )
    record = outgoing(n, "copies", value_writer({}), "symbol", "b.out")
    assert json.loads(record.value) == {
        "symbol": "IBM",
        "at": "2026-05-01T12:00:00Z",
        "raw": "eA==",
        "set": ["a", "b"],
        "pos": {"x": 1.5},
        "lines": [{"sku": "A", "box": {"n": 1}}, {"sku": "B"}],
    }
    assert (record.key, record.timestamp) == (b"IBM", 1_777_636_800_000)
    assert dict(record.headers) == {
        "stentor-id": b"desk:0:4",
        "stentor-bridge": b"b.out",
        "stentor-type": b"trade",
        "stentor-subject": b"nyse/ibm",
    }
    there = Record(record.value, headers=record.headers)
    assert [written_by(there, name) for name in ("b.out", "other")] == ["desk:0:4", None]


@pytest.mark.parametrize(
    ("value", "key"), [(1, b"1"), (True, b"true"), (b"\xff", b"\xff"), ("é", "é".encode())]
)
def test_a_key_is_the_text_of_an_attribute(value: Any, key: bytes) -> None:
    assert outgoing(Notification({"k": value}), "t", value_writer({}), "k", "b").key == key
    assert outgoing(Notification({"x": 1}), "t", value_writer({}), "k", "b").key is None


def test_what_json_lacks_cannot_be_written() -> None:
    with pytest.raises(BadValue, match="no number inf"):
        to_json(Notification({"x": float("inf")}))


# -- with a schema registry: the mock that its client library has

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Quote",
        "fields": [
            {"name": "symbol", "type": "string"},
            {"name": "price", "type": ["null", "double"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "size",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ],
    }
)


def mock_registry(form: str, text: str) -> Any:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    client = SchemaRegistryClient.new_client({"url": "mock://test"})
    client.register_schema("quotes-value", Schema(text, form))
    return client


def test_avro_by_a_mock_registry() -> None:
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    registry = mock_registry("AVRO", AVRO)
    serialize = AvroSerializer(registry, AVRO)
    value = {"symbol": "IBM", "price": None, "at": TIME, "size": Decimal("1.25")}
    data = serialize(value, SerializationContext("quotes", MessageField.VALUE))
    reader = value_reader({"format": "avro"}, registry)
    found = notification_of(Record(data), reader, None, ID)
    assert (found["symbol"], found["at"], found["size"]) == ("IBM", TIME, 1.25)
    assert "price" not in found
    with pytest.raises(BadValue):
        notification_of(Record(b'{"symbol": "IBM"}'), reader, None, ID)


def test_avro_is_written_by_the_newest_schema_of_a_mock_registry() -> None:
    text = AVRO.replace(', {"name": "size"', "#").partition("#")[0] + "]}"
    registry = mock_registry("AVRO", text)
    n = Notification({"symbol": "IBM", "price": 1.5, "at": TIME})
    data = value_writer({"format": "avro"}, registry)("quotes", n)
    reader = value_reader({"format": "avro"}, registry)
    assert reader is not None
    assert reader("quotes", data) == dict(n)
    with pytest.raises(BadValue):
        value_writer({"format": "avro"}, registry)("quotes", Notification({"symbol": 1}))


def test_json_schema_by_a_mock_registry() -> None:
    schema = {
        "title": "Quote",
        "type": "object",
        "properties": {"symbol": {"type": "string"}},
        "required": ["symbol"],
    }
    registry = mock_registry("JSON", json.dumps(schema))
    options = {"format": "json_schema"}
    data = value_writer(options, registry)("quotes", Notification({"symbol": "IBM"}))
    reader = value_reader(options, registry)
    assert reader is not None
    assert reader("quotes", data) == {"symbol": "IBM"}
    with pytest.raises(BadValue):
        value_writer(options, registry)("quotes", Notification({"symbol": 1}))


def test_a_registry_that_cannot_be_asked_is_no_fault_of_the_value() -> None:
    from stentor.errors import PipelineDefinitionError, PipelineError

    options = {"format": "avro", "registry": "http://127.0.0.1:9", "registry_settings": {}}
    reader = value_reader(options)
    assert reader is not None
    with pytest.raises(PipelineError, match="the schema registry cannot be asked"):
        reader("quotes", b"\x00\x00\x00\x00\x01x")
    with pytest.raises(PipelineDefinitionError, match="needs registry = URL"):
        value_reader({"format": "avro"})


def test_a_long_name_of_a_topic_gives_a_producer_all_the_same() -> None:
    long = producer_name("c", "bridge.in", "t" * 249, 3)
    assert len(long) < 200
    assert long != producer_name("c", "bridge.in", "t" * 248, 3)
