"""Notifications as bytes: one MessagePack header, one opaque payload.

A publisher encodes once, every broker forwards the same bytes, and a broker that routes reads the
header only. The layout, all integers big-endian:

    offset  size  content
    0       1     version, 1
    1       4     h, the size of the header
    5       4     p, the size of the payload
    9       h     header
    9 + h   p     payload, raw

Nothing may follow the payload. The header is a MessagePack array of exactly seven items:

    attributes    map from name to value
    type          string or nil
    subject       string or nil
    channel       string or nil
    content type  string or nil
    id            array [producer, epoch, sequence], or nil
    time          timestamp, or nil

Values use MessagePack's own forms where there is one: boolean, integer, float (always 64 bits, so
that 1 and 1.0 stay apart), string, binary, timestamp (extension -1; what is finer than a
microsecond is dropped on reading), array for a list. The others are extensions:

    1   a set: the MessagePack array of its elements, sorted by their encodings, so that equal sets
        have equal bytes
    2   a value of a registered value type: the MessagePack array [name of the type, its dump]

The reader trusts nothing. It accepts exactly the notifications that the constructor accepts, and
every other input, of whatever kind, raises `DecodeError` and nothing else. The work is divided:
msgspec checks the framing, UTF-8 and the types of the fixed fields while it decodes; one pass over
the attributes checks what its types cannot say (NaN, integers beyond 64 bits, nested collections);
names are checked through the memory of known name sets in `stentor.model.names`. MessagePack lets a
map repeat a key, and decoders keep the last; the number of entries that the map declares gives
that away.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from struct import Struct as Layout
from typing import Any, Final

import msgspec
from msgspec.msgpack import Decoder, Encoder, Ext

from stentor.errors import DecodeError, InvalidNotification
from stentor.model.identity import NotificationId
from stentor.model.names import MAX_ATTRIBUTES, shown
from stentor.model.notification import (
    MAX_ELEMENTS,
    MAX_PAYLOAD_BYTES,
    MAX_VALUE_BYTES,
    Notification,
    check_header,
    check_size,
    facts_of,
)
from stentor.model.values import (
    INT_MAX,
    INT_MIN,
    normal,
    value_type,
    value_type_names,
    value_type_of,
)

VERSION: Final = 1
#: The largest header: all attributes, names and values, encoded.
MAX_HEADER_BYTES: Final = 2 * 2**20

_SET: Final = 1
_REGISTERED: Final = 2

_PREFIX: Final = Layout(">BII")
_HEADER_START: Final = 0x97  # a MessagePack array of seven
_NATIVE: Final = frozenset({bool, int, float, str, bytes, datetime})

Buffer = bytes | bytearray | memoryview


class _Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    attributes: dict[str, Any]
    type: str | None
    subject: str | None
    channel: str | None
    content_type: str | None
    id: NotificationId | None
    time: Any  # as `datetime`, msgspec would also take a string


class _Registered(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    type: str
    dump: bytes


_encoder: Final = Encoder()
_header_decoder: Final = Decoder(_Header)
_elements_decoder: Final = Decoder(list[Any])
_registered_decoder: Final = Decoder(_Registered)


def encode(notification: Notification) -> bytes:
    """The notification as bytes; `InvalidNotification` if it is too large or cannot be sent.

    >>> decode(encode(Notification({"price": 9.5}, payload=b"..."))).payload
    b'...'
    """
    n = notification
    attributes = n._attributes
    if not _NATIVE.issuperset(map(type, attributes.values())):
        attributes = {name: _outgoing(name, value) for name, value in attributes.items()}
    header = _encoder.encode(
        (attributes, n._type, n._subject, n._channel, n._content_type, n._id, n._time)
    )
    if len(header) > MAX_HEADER_BYTES:
        raise InvalidNotification(
            f"the attributes take {len(header)} bytes; "
            f"at most {MAX_HEADER_BYTES} are allowed, put more into the payload"
        )
    return b"".join((_PREFIX.pack(VERSION, len(header), len(n._payload)), header, n._payload))


def decode(data: Buffer) -> Notification:
    """The notification that was encoded; `DecodeError` if these bytes are not one.

    >>> decode(encode(Notification({"price": 9.5})))
    Notification({'price': 9.5})
    """
    return decode_header(data).notification()


def decode_header(data: Buffer) -> Envelope:
    """Everything but the payload, which is neither read nor copied.

    >>> envelope = decode_header(encode(Notification({"price": 9.5}, payload=b"...")))
    >>> envelope.attributes, envelope.payload_size
    ({'price': 9.5}, 3)
    """
    try:
        return _read(data)
    except DecodeError:
        raise
    except Exception as error:
        # Whatever a decoder, a check, or the `load` of a registered type raises, deep nesting
        # (RecursionError) and exhausted memory included, is a fault of the bytes.
        raise DecodeError(f"not an encoded notification: {error}") from error


class Envelope:
    """A notification whose payload is still in the encoded bytes. Made by `decode_header`."""

    __slots__ = (
        "_data",
        "_facts",
        "_payload_start",
        "attributes",
        "channel",
        "content_type",
        "id",
        "subject",
        "time",
        "type",
    )

    attributes: dict[str, Any]
    type: str | None
    subject: str | None
    channel: str | None
    content_type: str | None
    id: NotificationId | None
    time: datetime | None
    _data: Buffer
    _payload_start: int
    _facts: dict[str, Any] | None

    def __init__(self, header: _Header, data: Buffer, payload_start: int) -> None:
        self.attributes = header.attributes
        self.type = header.type
        self.subject = header.subject
        self.channel = header.channel
        self.content_type = header.content_type
        self.id = header.id
        self.time = header.time
        self._data = data
        self._payload_start = payload_start
        self._facts = None

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that filters can see, as in `Notification.facts`."""
        facts = self._facts
        if facts is None:
            facts = self._facts = facts_of(
                self.attributes, self.type, self.subject, self.channel, self.id, self.time
            )
        return facts

    @property
    def payload_size(self) -> int:
        return len(self._data) - self._payload_start

    @property
    def payload(self) -> bytes:
        """A copy of the payload, made when asked for."""
        return bytes(self._data[self._payload_start :])

    @property
    def encoded(self) -> Buffer:
        """The bytes that it was read from, to be forwarded as they are."""
        return self._data

    def notification(self) -> Notification:
        """The whole notification."""
        return Notification.from_checked(
            self.attributes,
            self.type,
            self.subject,
            self.channel,
            self.payload,
            self.content_type,
            self.id,
            self.time,
        )


def _read(data: Buffer) -> Envelope:
    version, header_size, payload_size = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise DecodeError(f"version {version} of the encoding; this release reads {VERSION}")
    if header_size > MAX_HEADER_BYTES:
        raise DecodeError(f"a header of {header_size} bytes; the limit is {MAX_HEADER_BYTES}")
    if payload_size > MAX_PAYLOAD_BYTES:
        raise DecodeError(f"a payload of {payload_size} bytes; the limit is {MAX_PAYLOAD_BYTES}")
    payload_start = _PREFIX.size + header_size
    if len(data) != payload_start + payload_size:
        raise DecodeError(
            f"{len(data)} bytes, but the sizes at the start add up to "
            f"{payload_start + payload_size}: truncated, or followed by something else"
        )
    raw = data[_PREFIX.size : payload_start]
    if len(raw) < 2 or raw[0] != _HEADER_START:
        raise DecodeError("the header is not an array of seven items")
    declared = _map_size(raw)
    if declared > MAX_ATTRIBUTES:
        raise DecodeError(f"{declared} attributes; the limit is {MAX_ATTRIBUTES}")
    header = _header_decoder.decode(raw)
    attributes = header.attributes
    if len(attributes) != declared:
        raise DecodeError("an attribute name occurs twice")
    for name, value in attributes.items():
        kind = type(value)
        if kind is str or kind is bool or kind is bytes or kind is datetime:
            continue
        if kind is float:
            if value == value:
                continue
        elif kind is int and INT_MIN <= value <= INT_MAX:
            continue
        attributes[name] = _incoming(name, value)  # same key: safe while iterating
    if header_size > MAX_VALUE_BYTES:  # otherwise nothing in it can be too long
        for value in attributes.values():
            check_size(value)
    check_header(attributes, header.type, header.subject, header.channel, header.content_type)
    if header.time is not None and type(header.time) is not datetime:
        raise DecodeError(f"the time is a {type(header.time).__name__}, not a timestamp")
    return Envelope(header, data, payload_start)


def _map_size(raw: Buffer) -> int:
    """The number of entries that the map after the first byte declares."""
    code = raw[1]
    if 0x80 <= code <= 0x8F:
        return code & 0x0F
    if code == 0xDE:
        return int.from_bytes(raw[2:4])
    if code == 0xDF:
        return int.from_bytes(raw[2:6])
    raise DecodeError("the attributes are not a map")


def _outgoing(name: str, value: Any) -> Any:
    kind = type(value)
    if kind in _NATIVE:
        return value
    if kind is tuple:
        return [_outgoing(name, element) for element in value]
    if kind is frozenset:
        elements = sorted(_encoder.encode(_outgoing(name, element)) for element in value)
        return Ext(_SET, _encoder.encode([msgspec.Raw(element) for element in elements]))
    registered = value_type(value_type_of(value))
    if registered.dump is None or registered.load is None:
        raise InvalidNotification(
            f"attribute {shown(name)}: a value of type {registered.name!r} cannot be sent; "
            "register the type with dump and load"
        )
    dump = registered.dump(value)
    if type(dump) is not bytes:
        raise InvalidNotification(
            f"attribute {shown(name)}: dump of the value type {registered.name!r} "
            f"returned a {type(dump).__name__}, not bytes"
        )
    if len(dump) > MAX_VALUE_BYTES:
        raise InvalidNotification(
            f"attribute {shown(name)}: a value of {len(dump)} bytes; "
            f"at most {MAX_VALUE_BYTES} are allowed"
        )
    return Ext(_REGISTERED, _encoder.encode((registered.name, dump)))


def _incoming(name: str, value: Any) -> Any:
    """A value that is not already as it should be."""
    if type(value) is list:
        return tuple(_elements(name, value))
    if type(value) is Ext and value.code == _SET:
        elements = list(_elements(name, _elements_decoder.decode(value.data)))
        found = frozenset(elements)
        if len(found) != len(elements):
            raise DecodeError(f"attribute {shown(name)}: a set holds an element twice")
        return found
    return _element(name, value)


def _elements(name: str, values: list[Any]) -> Iterable[Any]:
    if len(values) > MAX_ELEMENTS:
        raise DecodeError(
            f"attribute {shown(name)}: {len(values)} elements; the limit is {MAX_ELEMENTS}"
        )
    return (_element(name, value) for value in values)


def _element(name: str, value: Any) -> Any:
    if type(value) in _NATIVE:
        return normal(value)
    if type(value) is Ext and value.code == _REGISTERED:
        return _load(name, _registered_decoder.decode(value.data))
    described = f"extension {value.code}" if type(value) is Ext else type(value).__name__
    raise DecodeError(f"attribute {shown(name)}: {described} is no value at this place")


def _load(name: str, registered: _Registered) -> Any:
    if registered.type not in value_type_names():
        raise DecodeError(
            f"attribute {shown(name)}: unknown value type {shown(registered.type)}; "
            "register it before decoding"
        )
    load = value_type(registered.type).load
    if load is None:
        raise DecodeError(
            f"attribute {shown(name)}: the value type {registered.type!r} has no load"
        )
    if len(registered.dump) > MAX_VALUE_BYTES:
        raise DecodeError(
            f"attribute {shown(name)}: {len(registered.dump)} bytes; the limit is {MAX_VALUE_BYTES}"
        )
    value = normal(load(registered.dump))
    if value_type_of(value) != registered.type:
        raise DecodeError(
            f"attribute {shown(name)}: load of the value type {registered.type!r} "
            f"returned a {type(value).__name__}"
        )
    return value
