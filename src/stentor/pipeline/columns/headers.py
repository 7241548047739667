"""From encoded notifications to lists of values, one list per attribute that is wanted.

`stentor.model.codec` trusts nothing and hands out whole notifications. Here the bytes come from a
broker, which has checked each of them when it was published, and of each only a few attributes are
wanted, millions of times. So the headers of a batch are joined into one MessagePack array and
decoded in one call, into structs that have a field for each wanted attribute: what is not wanted is
skipped by the decoder, and no dictionaries are made. Times and ids stay bytes and numbers, for
Arrow and NumPy to turn into columns.

If anything is not as expected, the careful reader is asked, and says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.msgpack import Decoder, Encoder, Ext
from numpy.typing import NDArray

from stentor.errors import DecodeError
from stentor.model.codec import VERSION, decode_headers
from stentor.model.handling import DEFAULT
from stentor.model.projection import are_fields

# The layout is described in `stentor.model.codec`.
_PREFIX: Final = 9
_NO_PAYLOAD: Final = bytes(4)

_TIME: Final = pa.timestamp("us", "UTC")
#: A MessagePack timestamp of 64 bits, and how it is divided into nanoseconds and seconds.
_TIMESTAMP: Final = np.dtype([("extension", ">u2"), ("value", ">u8")])
_TIMESTAMP_CODE: Final = 0xD7FF
_SECONDS: Final = np.uint64(2**34 - 1)
_SECONDS_BITS: Final = np.uint64(34)

_time_decoder: Final = Decoder(datetime | None)
_encoder: Final = Encoder()
#: The greatest number that is one byte in MessagePack.
_FIXED: Final = 0x7F


class Id(msgspec.Struct, array_like=True, gc=False):
    """The id of a notification."""

    producer: str
    epoch: int
    sequence: int


_id_decoder: Final = Decoder(Id | None)
_ids_decoder: Final = Decoder(list[Id | None])


class Header(msgspec.Struct, array_like=True, gc=False):
    """A header with all attributes, their values as MessagePack has them."""

    attributes: Any
    type: str | None
    subject: str | None
    channel: str | None
    content_type: str | None
    id: msgspec.Raw
    time: msgspec.Raw
    handling: tuple[datetime | None, datetime | None, int] | None = None


class AnyHeader(Header):
    """One whose attributes are a dictionary."""

    attributes: dict[str, Any]


_any_decoder: Final = Decoder(list[AnyHeader])


class HeaderReader:
    """Reads the headers of batches.

    >>> from stentor.model import Notification, encode
    >>> items = [encode(Notification({"x": x, "y": 2 * x})) for x in (1, 2)]
    >>> reader = HeaderReader(["y", "z"])
    >>> attributes = [header.attributes for header in reader.read(items)]
    >>> reader.values(attributes, "y"), reader.values(attributes, "z")
    ([2, 4], [None, None])
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Only the attributes of these names are read."""
        wanted = list(dict.fromkeys(names))
        self._decoder: Decoder[Any]
        if not are_fields(wanted):
            self._decoder = _any_decoder
            self._get: dict[str, Any] = {name: methodcaller("get", name) for name in wanted}
            return
        fields = {name: f"a{i}" for i, name in enumerate(wanted)}
        attributes = msgspec.defstruct(
            "Attributes",
            [(field, Any, None) for field in fields.values()],
            rename={field: name for name, field in fields.items()},
            gc=False,
        )
        header = msgspec.defstruct(
            "WantedHeader", [("attributes", attributes)], bases=(Header,), array_like=True, gc=False
        )
        self._decoder = Decoder(list[header])  # type: ignore[valid-type]
        self._get = {name: attrgetter(field) for name, field in fields.items()}

    def read(self, items: Sequence[bytes]) -> list[Header]:
        """The headers of encoded notifications."""
        return _decoded(self._decoder, items)

    def values(self, attributes: Sequence[Any], name: str) -> list[Any]:
        """The values of an attribute, of those of some headers, as MessagePack has them.

        None where it is absent.
        """
        return list(map(self._get[name], attributes))


@lru_cache(maxsize=64)
def header_reader(names: tuple[str, ...]) -> HeaderReader:
    """A reader that others of the process share: to make one means to make classes."""
    return HeaderReader(names)


def all_attributes(items: Sequence[bytes]) -> list[dict[str, Any]]:
    """The attributes of encoded notifications, whatever they are."""
    return [
        {name: plain(value) for name, value in header.attributes.items()}
        for header in _decoded(_any_decoder, items)
    ]


def _decoded(decoder: Any, items: Sequence[bytes]) -> list[Any]:
    try:
        if set(map(itemgetter(0), items)) - {VERSION}:
            raise ValueError("an unknown version of the encoding")
        headers = [item[_PREFIX:] for item in items if item[5:_PREFIX] == _NO_PAYLOAD]
        if len(headers) < len(items):
            headers = [item[_PREFIX : _payload_start(item)] for item in items]
        found = decoder.decode(b"\xdd" + len(items).to_bytes(4) + b"".join(headers))
    except (msgspec.DecodeError, ValueError, IndexError) as error:
        decode_headers(items)  # knows better what is wrong
        raise DecodeError(f"not encoded notifications: {error}") from error
    return found  # type: ignore[no-any-return]


def _payload_start(item: bytes) -> int:
    return _PREFIX + int.from_bytes(item[1:5])


def payloads(items: Sequence[bytes]) -> list[bytes | None]:
    """The payloads, None where there is none."""
    return [item[_payload_start(item) :] or None for item in items]


# -- columns that every notification has


def id_column(headers: Sequence[Header]) -> pa.Array:
    """`producer:epoch:sequence` of each."""
    raw = [header.id for header in headers]
    joined = b"".join(raw)
    if raw and len(joined) == len(raw) * len(raw[0]):
        found = _of_one_life(np.frombuffer(joined, np.uint8).reshape(len(raw), -1))
        if found is not None:
            return found
    ids = _ids_decoder.decode(b"\xdd" + len(raw).to_bytes(4) + joined)
    written = [None if i is None else f"{i.producer}:{i.epoch}:{i.sequence}" for i in ids]
    return pa.array(written, pa.string())


def _of_one_life(ids: NDArray[np.uint8]) -> pa.Array | None:
    """The column of encoded ids of one length, if they differ in their last numbers only."""
    first = _id_decoder.decode(ids[0].tobytes())
    if first is None:
        return None
    width = len(_encoder.encode(first.sequence))  # a code and so many bytes, or all in one byte
    at = ids.shape[1] - width
    data = ids[:, at + (width > 1) :]
    same = ids[:, : at + (width > 1)]
    if not (same == same[0]).all() or (width == 1 and data.max() > _FIXED):
        return None
    numbers = np.ascontiguousarray(data).view(f">u{data.shape[1]}").ravel().astype(np.int64)
    texts = pa.array(numbers).cast(pa.string())
    return pc.binary_join_element_wise(f"{first.producer}:{first.epoch}", texts, ":")


def moment_column(headers: Sequence[Header], place: int) -> pa.Array:
    """When each may be delivered (0), or expires (1)."""
    return pa.array([h.handling and h.handling[place] for h in headers], _TIME)


def priority_column(headers: Sequence[Header]) -> pa.Array:
    """The priority of each that has another than the usual one."""
    found = (DEFAULT if h.handling is None else h.handling[2] for h in headers)
    return pa.array([None if priority == DEFAULT else priority for priority in found], pa.int64())


def time_column(headers: Sequence[Header]) -> pa.Array:
    """The time of each."""
    raw = [header.time for header in headers]
    joined = b"".join(raw)
    if len(joined) == _TIMESTAMP.itemsize * len(raw):
        found = np.frombuffer(joined, _TIMESTAMP)
        if (found["extension"] == _TIMESTAMP_CODE).all():
            value = found["value"].astype(np.uint64)
            nanoseconds = (value >> _SECONDS_BITS).astype(np.int64)
            seconds = (value & _SECONDS).astype(np.int64)
            return pa.array(seconds * 1_000_000 + nanoseconds // 1_000).view(_TIME)
    return pa.array([_time_decoder.decode(time) for time in raw], _TIME)


# -- values as they are meant


# The codes are those of `stentor.model.codec`.
_SET: Final = 1
_REGISTERED: Final = 2

_elements_decoder: Final = Decoder(list[Any])
_registered_decoder: Final = Decoder(tuple[str, bytes])


class Foreign(NamedTuple):
    """A value of a registered value type: no column holds it, but it can be shown."""

    type: str
    dump: bytes


def plain(value: Any) -> Any:
    """A value that is no extension of MessagePack: sets are frozen sets, lists are lists."""
    if type(value) is Ext:
        if value.code == _SET:
            return frozenset(map(plain, _elements_decoder.decode(value.data)))
        if value.code == _REGISTERED:
            return Foreign(*_registered_decoder.decode(value.data))
    elif type(value) is list:
        return [plain(element) for element in value]
    return value


def as_json(misfits: dict[str, Any]) -> str:
    """What `_corrupt` says of a row.

    >>> as_json({"price": "high", "at": datetime(2026, 1, 1, tzinfo=UTC), "size": b"xl"})
    '{"price": "high", "at": "2026-01-01T00:00:00Z", "size": "0x786c"}'
    """
    return json.dumps({name: _shown(value) for name, value in misfits.items()}, ensure_ascii=False)


def _shown(value: Any) -> Any:
    if type(value) is float and value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Foreign):
        return f"{value.type} 0x{value.dump.hex()}"
    if isinstance(value, list):
        return [_shown(element) for element in value]
    if isinstance(value, frozenset):
        return sorted(map(_shown, value), key=repr)
    return value
