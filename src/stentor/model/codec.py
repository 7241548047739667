"""Notifications as bytes: one MessagePack header, one opaque payload.

A publisher encodes once, every broker forwards the same bytes, and a broker that routes reads the
header only. The layout, all integers big-endian:

    offset  size  content
    0       1     version, 1
    1       4     h, the size of the header
    5       4     p, the size of the payload
    9       h     header
    9 + h   p     payload, raw

Nothing may follow the payload. The header is a MessagePack array of seven items, or eight:

    attributes    map from name to value
    type          string or nil
    subject       string or nil
    channel       string or nil
    content type  string or nil
    id            array [producer, epoch, sequence], or nil
    time          timestamp, or nil
    handling      array [deliver at, expires, priority]: timestamps or nil, and an integer from 0 to
                  9; left out if it would be [nil, nil, 4]

Values use MessagePack's own forms where there is one: boolean, integer, float (always 64 bits, so
that 1 and 1.0 stay apart), string, binary, timestamp (extension -1; what is finer than a
microsecond is dropped on reading), array for a list. The others are extensions:

    1   a set: the MessagePack array of its elements, sorted by their encodings, so that equal sets
        have equal bytes
    2   a value of a registered value type: the MessagePack array [name of the type, its dump]

A *stamp* may precede all this, which brokers write and clients never see (`model/stamp.py`): then
the first byte is 0x53, and the notification as above follows behind the stamp. Both forms are read
alike; what a client publishes must have none.

A record in a list is the array of its names and values in turn. A list never holds another one
directly, so there is nothing that it could be taken for.

The reader trusts nothing. It accepts exactly the notifications that the constructor accepts, and
every other input, of whatever kind, raises `DecodeError` and nothing else. The work is divided:
msgspec checks the framing, UTF-8 and the types of the fixed fields while it decodes; one pass over
the attributes checks what its types cannot say (NaN, integers beyond 64 bits, nested collections);
names are checked through the memories of known names in `stentor.model.names` and `identity`.
MessagePack lets a map repeat a key, and decoders keep the last; the number of entries that the map
declares gives that away.

Batches are read by a tight loop for the common case: all attributes are numbers, strings and
Booleans. There msgspec checks the values, too, by the types of `_Bare`, or `_Plain` if there are an
event type, a subject and the like. As soon as the loop meets anything else, good or bad, the rest
of the batch is read item by item as above, so there is only one place that decides what is
refused, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from struct import Struct as Layout
from sys import float_info
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta
from msgspec.msgpack import Decoder, Encoder, Ext

from stentor.errors import DecodeError, InvalidNotification
from stentor.model.handling import Handling
from stentor.model.handling import check as check_handling
from stentor.model.identity import NotificationId, check_producer, good_producers
from stentor.model.names import MAX_ATTRIBUTES, check_attribute_names, plain_names, shown
from stentor.model.notification import (
    MAX_ELEMENTS,
    MAX_PAYLOAD_BYTES,
    MAX_VALUE_BYTES,
    Notification,
    check_size,
    check_texts,
    facts_of_parts,
)
from stentor.model.record import Record
from stentor.model.stamp import STAMPED, Stamp, any_stamped, is_stamped, split, stamp_size
from stentor.model.values import (
    INT_MAX,
    INT_MIN,
    MAX_LISTS,
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
#: Where the header of an item begins.
HEADER_AT: Final = _PREFIX.size
#: The same with the first two bytes of the header: an array of so many, and the code of the map.
_START: Final = Layout(">BIIBB")
_START_PART: Final = slice(_START.size)
#: An array of seven, and one of eight: with handling.
_HEADER_START: Final = 0x97
_HANDLED_START: Final = 0x98
_header_start: Final = itemgetter(HEADER_AT)
_first: Final = itemgetter(0)
_NATIVE: Final = frozenset({bool, int, float, str, bytes, datetime})

Buffer = bytes | bytearray | memoryview


if TYPE_CHECKING:
    _Absent = Handling | None
else:
    _Absent = Handling  # what is absent is None; nil in its place is refused


class Envelope(msgspec.Struct, array_like=True, eq=False, gc=False):
    """A notification whose payload is still in the encoded bytes. Made by `decode_header`."""

    # The first eight fields are the header. The bytes read must begin with an array of seven or
    # eight, or they could set the others as well.
    attributes: dict[str, Any]
    type: str | None
    subject: str | None
    channel: str | None
    content_type: str | None
    id: NotificationId | None
    time: Any  # a datetime or None; declared as `datetime`, msgspec would also take a string
    handling: _Absent = None
    _data: Any = b""
    #: Where the payload begins; 0 if there is none.
    _payload_start: int = 0
    _facts: Any = None
    _stamp: Any = None

    @property
    def stamp(self) -> Stamp | None:
        """In which scopes it is visible, where a broker has decided that."""
        stamp: Stamp | None = self._stamp
        return stamp

    def put_stamp(self, stamp: Stamp, stamped: bytes) -> None:
        """A broker has decided it; `stamped` are the same bytes, with the stamp before them."""
        if self._payload_start:
            self._payload_start += len(stamped) - len(self._data)
        self._stamp, self._data = stamp, stamped
        if self._facts is not None:
            self._facts |= stamp.facts

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that filters can see, as in `Notification.facts`."""
        facts: dict[str, Any] | None = self._facts
        if facts is None:
            facts = self._facts = facts_of_parts(
                self.attributes,
                self.type,
                self.subject,
                self.channel,
                self.id,
                self.time,
                self.handling,
            )
            if self._stamp is not None:
                facts |= self._stamp.facts
        return facts

    @property
    def payload_size(self) -> int:
        return len(self._data) - self._payload_start if self._payload_start else 0

    @property
    def payload(self) -> bytes:
        """A copy of the payload, made when asked for."""
        return bytes(self._data[self._payload_start :]) if self._payload_start else b""

    @property
    def encoded(self) -> Buffer:
        """The bytes that it was read from, to be forwarded as they are."""
        data: Buffer = self._data
        return data

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
            self.handling,
        )

    def __repr__(self) -> str:
        return f"<Envelope {self.attributes!r}, {self.payload_size} bytes of payload>"


_Integer = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
# NaN is not at least anything. Nor is minus infinity at least the least finite number, but that is
# a value: msgspec accepts no other bound, so the careful reader has to let it in.
_Float = Annotated[float, Meta(ge=-float_info.max)]


class _Plain(Envelope):
    """An envelope whose values need no further look, unless one is very long."""

    attributes: dict[str, _Integer | _Float | str | bool]


class _Bare(_Plain):
    """One that has nothing but attributes, id and time."""

    type: None
    subject: None
    channel: None
    content_type: None


class Headers(list[Envelope]):
    """What was read of several items, with what is known of all of them when they have been read.

    >>> read = decode_headers([encode(Notification({"x": 1}))])
    >>> read.handled, read.stamped, read.sources
    (False, False, {None})
    """

    __slots__ = ("handled", "sources", "stamped")

    def __init__(self) -> None:
        #: Whether any of them says how it is to be handled.
        self.handled = False
        #: Whether any of them has a stamp.
        self.stamped = False
        #: The producers and epochs of their ids; None if one has no id.
        self.sources: set[tuple[str, int] | None] = set()


class _Registered(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    type: str
    dump: bytes


_encoder: Final = Encoder()
_envelope_decoder: Final = Decoder(Envelope)
_plain_decoder: Final = Decoder(_Plain)
_bare_decoder: Final = Decoder(_Bare)
_elements_decoder: Final = Decoder(list[Any])
_registered_decoder: Final = Decoder(_Registered)


def encode(notification: Notification) -> bytes:
    """The notification as bytes; `InvalidNotification` if it is too large or cannot be sent.

    >>> decode(encode(Notification({"price": 9.5}, payload=b"..."))).payload
    b'...'
    """
    return encode_batch((notification,))[0]


def encode_batch(notifications: Iterable[Notification]) -> list[bytes]:
    """As `encode` for each.

    >>> [len(data) for data in encode_batch([Notification({"x": 1}), Notification({"x": "1"})])]
    [20, 21]
    """
    found: list[bytes] = []
    encoded, prefix = _encoder.encode, _PREFIX.pack
    for n in notifications:
        attributes = n._attributes
        if not n._is_plain and not _NATIVE.issuperset(map(type, attributes.values())):
            attributes = {name: _outgoing(name, value) for name, value in attributes.items()}
        parts = (attributes, n._type, n._subject, n._channel, n._content_type, n._id, n._time)
        header = encoded(parts if n._handling is None else (*parts, n._handling))
        size = len(header)
        if size > MAX_HEADER_BYTES:
            raise InvalidNotification(
                f"the attributes take {size} bytes; "
                f"at most {MAX_HEADER_BYTES} are allowed, put more into the payload"
            )
        payload = n._payload
        if payload:
            found.append(b"".join((prefix(VERSION, size, len(payload)), header, payload)))
        else:
            found.append(prefix(VERSION, size, 0) + header)
    return found


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
    return decode_headers((data,))[0]


def decode_headers(items: Sequence[Buffer]) -> Headers:
    """As `decode_header` for each, and faster; the error's `index` says which item is bad first.

    >>> [envelope.attributes for envelope in decode_headers([encode(Notification({"x": 1}))])]
    [{'x': 1}]
    """
    found = Headers()
    _read_plain(items, found, _bare_decoder)
    if len(found) < len(items):
        if any_stamped(items):
            return _read_stamped(items)
        _read_plain(items[len(found) :], found, _plain_decoder)
    for data in items[len(found) :]:
        try:
            envelope = _read(data)
        except DecodeError as error:
            error.index = len(found)
            raise
        except Exception as error:
            # Whatever a decoder, a check, or the `load` of a registered type raises, deep nesting
            # (RecursionError) and exhausted memory included, is a fault of the bytes.
            refusal = DecodeError(f"not an encoded notification: {error}")
            refusal.index = len(found)
            raise refusal from error
        id = envelope.id
        found.sources.add(None if id is None else (id.producer, id.epoch))
        found.handled = found.handled or envelope.handling is not None
        found.append(envelope)
    return found


def _read_stamped(items: Sequence[Buffer]) -> Headers:
    """The same where some have stamps."""
    parts: list[tuple[Stamp | None, Buffer]] = []
    for i, data in enumerate(items):
        try:
            parts.append(split(bytes(data)) if is_stamped(data) else (None, data))
        except DecodeError as error:
            error.index = i
            raise
        if is_stamped(parts[-1][1]):
            refusal = DecodeError("a stamp behind a stamp")
            refusal.index = i
            raise refusal
    found = decode_headers([data for _, data in parts])
    for envelope, (stamp, _), data in zip(found, parts, items, strict=True):
        if stamp is not None:
            envelope.put_stamp(stamp, bytes(data))
            found.stamped = True
    return found


def any_handled(items: Iterable[Buffer]) -> bool:
    """Whether any of these well-formed items says how it is to be handled.

    >>> any_handled([encode(Notification({"x": 1}))]), any_handled([encode(
    ...     Notification({"x": 1}, priority=7))])
    (False, True)
    """
    items = list(items)
    if STAMPED in map(_first, items):
        items = [data[stamp_size(data) :] for data in items]
    return _HANDLED_START in map(_header_start, items)


def decode_many(items: Sequence[Buffer]) -> list[Notification]:
    """As `decode` for each, and faster; the error's `index` says which item is bad first.

    >>> decode_many([encode(Notification({"x": x})) for x in (1, 2)])
    [Notification({'x': 1}), Notification({'x': 2})]
    """
    make = Notification.from_checked
    return [
        make(
            e.attributes,
            e.type,
            e.subject,
            e.channel,
            e.payload if e._payload_start else b"",
            e.content_type,
            e.id,
            e.time,
            e.handling,
        )
        for e in decode_headers(items)
    ]


#: For beginnings of items, up to the code of the map, that were found good: where the header is,
#: where the payload begins (0 if there is none), where the item ends, and the number of attributes,
#: as its complement if the header has handling. Most items begin like one before.
_frames: Final[dict[bytes, tuple[slice, int, int, int]]] = {}
_MAX_FRAMES: Final = 4096
#: The sizes of larger payloads seldom repeat.
_MAX_FRAME_PAYLOAD: Final = 1024


def without_payloads(items: Sequence[bytes]) -> list[bytes]:
    """Encoded notifications as they would be if they had no payloads.

    >>> whole = encode(Notification({"x": 1}, payload=bytes(1000)))
    >>> without_payloads([whole]) == [encode(Notification({"x": 1}))]
    True
    """
    found = []
    for item in items:
        stamp = stamp_size(item)
        _, header, payload = _PREFIX.unpack_from(item, stamp)
        if payload:
            start = stamp + _PREFIX.size
            end = start + header
            item = item[:stamp] + _PREFIX.pack(VERSION, header, 0) + item[start:end]
        found.append(item)
    return found


def _frame(data: bytes) -> tuple[slice, int, int, int]:
    """What the beginning of an item says; `ValueError` if that is nothing for the tight loop."""
    version, header_size, payload_size, first, code = _START.unpack_from(data)
    if (
        version != VERSION
        or first not in (_HEADER_START, _HANDLED_START)
        or not 0x80 <= code <= 0x8F  # a map of up to 15
        or header_size > MAX_VALUE_BYTES  # in less than that, nothing can be too long
        or payload_size > MAX_PAYLOAD_BYTES
    ):
        raise ValueError
    end = HEADER_AT + header_size
    count = code & 0x0F
    payload_start = end if payload_size else 0
    total = end + payload_size
    frame = slice(HEADER_AT, end), payload_start, total, count if first == _HEADER_START else ~count
    if payload_size <= _MAX_FRAME_PAYLOAD:
        if len(_frames) >= _MAX_FRAMES:
            _frames.clear()
        _frames[bytes(data[_START_PART])] = frame  # a view would keep the whole buffer alive
    return frame


def _read_plain(
    items: Sequence[Buffer], found: Headers, decoder: Decoder[_Bare] | Decoder[_Plain]
) -> None:
    """Append the items up to the first that does not suit the decoder."""
    frames, start = _frames.get, _START_PART
    decode, names_known = decoder.decode, plain_names.issuperset
    append = found.append
    bare = decoder is _bare_decoder
    producer = epoch = None
    try:
        for data in items:
            # A buffer that can change is no key: TypeError.
            header, payload_start, end, count = frames(data[start]) or _frame(data)  # type: ignore[arg-type]
            if len(data) != end:
                return
            envelope = decode(data[header])
            attributes = envelope.attributes
            if len(attributes) != count:
                if ~len(attributes) != count:
                    return
                check_handling(envelope.handling)  # type: ignore[arg-type]
                found.handled = True
            if not names_known(attributes):
                check_attribute_names(tuple(attributes))
            if not (bare and attributes):
                check_texts(
                    attributes,
                    envelope.type,
                    envelope.subject,
                    envelope.channel,
                    envelope.content_type,
                )
            time = envelope.time
            if type(time) is not datetime and time is not None:
                return
            id = envelope.id
            if id is None:
                found.sources.add(None)
            elif id.epoch != epoch or id.producer != producer:
                producer, epoch = id.producer, id.epoch
                if producer not in good_producers:
                    check_producer(producer)
                found.sources.add((producer, epoch))
            envelope._data = data
            if payload_start:
                envelope._payload_start = payload_start
            append(envelope)
    except Exception:  # whatever it is, the careful reader meets it again, and says what it is
        return


def _read(data: Buffer) -> Envelope:
    version, header_size, payload_size = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise DecodeError(f"version {version} of the encoding; this release reads {VERSION}")
    if header_size > MAX_HEADER_BYTES:
        raise DecodeError(f"a header of {header_size} bytes; the limit is {MAX_HEADER_BYTES}")
    if payload_size > MAX_PAYLOAD_BYTES:
        raise DecodeError(f"a payload of {payload_size} bytes; the limit is {MAX_PAYLOAD_BYTES}")
    payload_start = HEADER_AT + header_size
    if len(data) != payload_start + payload_size:
        raise DecodeError(
            f"{len(data)} bytes, but the sizes at the start add up to "
            f"{payload_start + payload_size}: truncated, or followed by something else"
        )
    raw = data[HEADER_AT:payload_start]
    if len(raw) < 2 or raw[0] not in (_HEADER_START, _HANDLED_START):
        raise DecodeError("the header is not an array of seven or eight items")
    declared = _map_size(raw)
    if declared > MAX_ATTRIBUTES:
        raise DecodeError(f"{declared} attributes; the limit is {MAX_ATTRIBUTES}")
    envelope = _envelope_decoder.decode(raw)
    attributes = envelope.attributes
    if len(attributes) != declared:
        raise DecodeError("an attribute name occurs twice")
    room: list[int] | None = None
    for name, value in attributes.items():
        kind = type(value)
        if kind is str or kind is bool or kind is bytes or kind is datetime:
            continue
        if kind is float:
            if value == value:
                continue
        elif kind is int and INT_MIN <= value <= INT_MAX:
            continue
        if room is None:
            room = [MAX_ELEMENTS]
        attributes[name] = _incoming(name, value, room)  # same key: safe while iterating
    if header_size > MAX_VALUE_BYTES:  # otherwise nothing in it can be too long
        for value in attributes.values():
            check_size(value)
    check_attribute_names(tuple(attributes))
    check_texts(
        attributes, envelope.type, envelope.subject, envelope.channel, envelope.content_type
    )
    if envelope.time is not None and type(envelope.time) is not datetime:
        raise DecodeError(f"the time is a {type(envelope.time).__name__}, not a timestamp")
    if envelope.handling is not None:
        check_handling(envelope.handling)
    if envelope.id is not None and envelope.id.producer not in good_producers:
        check_producer(envelope.id.producer)
    envelope._data = data
    if payload_size:
        envelope._payload_start = payload_start
    return envelope


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
    if kind is Record:
        return [part for field, v in value.items() for part in (field, _outgoing(name, v))]
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


def _incoming(name: str, value: Any, room: list[int], level: int = 1) -> Any:
    """A value that is not already as it should be; `room` is how many elements may still come."""
    if type(value) is list:
        return tuple(_elements(name, value, room, level))
    if type(value) is Ext and value.code == _SET:
        elements = list(_elements(name, _elements_decoder.decode(value.data), room, level))
        found = frozenset(elements)
        if len(found) != len(elements):
            raise DecodeError(f"attribute {shown(name)}: a set holds an element twice")
        return found
    return _single(name, value)


def _elements(name: str, values: list[Any], room: list[int], level: int) -> Iterable[Any]:
    if level > MAX_LISTS:
        raise DecodeError(f"attribute {shown(name)}: more than {MAX_LISTS} lists in each other")
    _take(name, len(values), room)
    return [
        _record(name, value, room, level) if type(value) is list else _single(name, value)
        for value in values
    ]


def _take(name: str, count: int, room: list[int]) -> None:
    room[0] -= count
    if room[0] < 0:
        raise DecodeError(
            f"attribute {shown(name)}: {count} elements; the limit for all lists and sets "
            f"of a notification is {MAX_ELEMENTS}"
        )


def _record(name: str, parts: list[Any], room: list[int], level: int) -> Record:
    """The record whose names and values follow each other."""
    names, values = parts[::2], parts[1::2]
    if len(names) != len(values):
        raise DecodeError(f"attribute {shown(name)}: a record with a name that has no value")
    if len(names) > MAX_ATTRIBUTES:
        raise DecodeError(f"attribute {shown(name)}: a record with {len(names)} fields")
    _take(name, len(names), room)
    fields = dict(
        zip(names, [_incoming(name, value, room, level + 1) for value in values], strict=True)
    )
    if len(fields) != len(names):
        raise DecodeError(f"attribute {shown(name)}: a record with a name that occurs twice")
    if not plain_names.issuperset(fields):
        check_attribute_names(tuple(fields))
    return Record(fields)


def _single(name: str, value: Any) -> Any:
    if type(value) in _NATIVE:
        return normal(value)
    if type(value) is Ext and value.code == _REGISTERED:
        return _load(name, _registered_decoder.decode(value.data))
    described = f"extension {value.code}" if type(value) is Ext else type(value).__name__
    raise DecodeError(f"attribute {shown(name)}: {described} is not a value at this place")


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
