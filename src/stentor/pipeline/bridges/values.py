"""What is in a record of Kafka: JSON, Avro or JSON Schema by a registry, or just bytes.

JSON is plain, as others write and expect it: records nest, an instant is a text such as
2026-01-31T12:00:00Z, bytes are in base64, a set is an array. So an instant that went through Kafka
comes back as a text. Avro has types for instants and bytes, and keeps them.

With a registry, a value names its schema, which the registry's own client looks up and remembers.
What is written has the newest schema that is registered for the topic; none is ever registered.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import isinf
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from stentor.errors import PipelineDefinitionError, PipelineError, StentorError
from stentor.model import Notification, value_type, value_type_of
from stentor.pipeline.steps.options import secret

#: From the topic and the bytes to attributes.
ValueReader: TypeAlias = Callable[[str, bytes], Mapping[str, Any]]
#: From the topic and a notification to the bytes.
ValueWriter: TypeAlias = Callable[[str, Notification], bytes]

_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()


class BadValue(Exception):
    """A value that cannot be read or written; it says why."""


def value_reader(options: Mapping[str, Any], registry: Any = None) -> ValueReader | None:
    """How values of a source are read; None if they are bytes. `registry` is its client."""
    form = options.get("format", "json")
    if form == "raw":
        return None
    if form == "json":
        return lambda topic, data: _object(_from_json(data))
    registry = registry or registry_client(options)
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    if form == "avro":
        return _by_registry(AvroDeserializer(registry))
    return _by_registry(JSONDeserializer(None, schema_registry_client=registry))


def _by_registry(deserialize: Any) -> ValueReader:
    from confluent_kafka.serialization import MessageField, SerializationContext

    def read(topic: str, data: bytes) -> Mapping[str, Any]:
        try:
            value = deserialize(data, SerializationContext(topic, MessageField.VALUE))
        except Exception as error:
            raise _registry_error(error) from error
        return _object(_known(value))

    return read


def value_writer(options: Mapping[str, Any], registry: Any = None) -> ValueWriter:
    """How values for a sink are written."""
    form = options.get("format", "json")
    if form == "raw":
        return lambda topic, n: n.payload
    if form == "json":
        return lambda topic, n: to_json(n)
    registry = registry or registry_client(options)
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    conf = {"auto.register.schemas": False, "use.latest.version": True}
    if form == "avro":
        serialize = AvroSerializer(registry, None, conf=conf)
    else:
        serialize = JSONSerializer(None, registry, conf=conf)

    def write(topic: str, n: Notification) -> bytes:
        value = nested(n) if form == "avro" else _decoder.decode(to_json(n))
        try:
            data: bytes = serialize(value, SerializationContext(topic, MessageField.VALUE))
        except Exception as error:
            raise _registry_error(error) from error
        return data

    return write


def registry_client(options: Mapping[str, Any]) -> Any:
    """The client of the registry that the options name."""
    if "registry" not in options:
        raise PipelineDefinitionError(
            f"format = {options['format']!r} needs registry = URL, where the schemas are"
        )
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError:
        raise PipelineError(
            "a schema registry needs its client: pip install 'stentor[kafka]'"
        ) from None
    settings = {k: secret(v) for k, v in options.get("registry_settings", {}).items()}
    return SchemaRegistryClient.new_client({**settings, "url": options["registry"]})


def _registry_error(error: Exception) -> Exception:
    """A registry that cannot be asked is no fault of the value."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SchemaRegistryError) and cause.http_status_code in (404, 422):
            return BadValue(f"the schema registry: {cause.error_message}")
        if isinstance(cause, SchemaRegistryError) or type(cause).__module__.startswith("httpx"):
            return PipelineError(f"the schema registry cannot be asked: {cause}")
        cause = cause.__cause__ or cause.__context__
    return BadValue(f"{type(error).__name__}: {error}")


# -- from Kafka


def _from_json(data: bytes) -> Any:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadValue(f"not JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
    except RecursionError:
        raise BadValue("JSON that is nested too deeply") from None


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadValue(f"it is a {type(value).__name__}, and only an object has attributes")
    return value


def _known(value: Any) -> Any:
    """A value of Avro, as one that attributes can have."""
    match value:
        case dict():
            return {key: _known(each) for key, each in value.items()}
        case list():
            return [_known(each) for each in value]
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        case date() | time():
            return value.isoformat()
        case Decimal():
            return float(value)
        case UUID():
            return str(value)
        case _:
            return value


# -- to Kafka


def nested(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes, those with dotted names as records."""
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        *path, last = name.split(".")
        place = found
        for part in path:
            place = place.setdefault(part, {})
        place[last] = _element(value)
    return found


def _element(value: Any) -> Any:
    match value:
        case Mapping():
            return nested(value)
        case frozenset():
            return sorted(value, key=str)
        case tuple():
            return [_element(each) for each in value]
        case _:
            return value


def to_json(notification: Notification) -> bytes:
    """The attributes as plain JSON.

    >>> to_json(Notification({"pos": {"x": 1}, "at": datetime(2026, 1, 1, tzinfo=UTC)}))
    b'{"pos":{"x":1},"at":"2026-01-01T00:00:00Z"}'
    """
    return _encoder.encode(_plain(nested(notification)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and isinf(value):
        raise BadValue(f"JSON has no number {value}")
    if value is None or isinstance(value, (bool, int, float, str, datetime)):
        return value
    try:
        form = value_type(value_type_of(value)).format
    except StentorError:
        form = None
    if form is None:
        raise BadValue(f"a {type(value).__name__} has no written form")
    return form(value)
