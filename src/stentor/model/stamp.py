"""Stamps: in which places of the scope graph a notification is visible, as brokers tell each other.

The broker at which a publication enters decides where it is visible, by the scope graph as it knows
it then, and writes that before the notification's own bytes, which stay as they are:

    offset  size  content
    0       1     0x53, an S
    1       4     s, the size of the stamp, big-endian
    5       s     MessagePack array [epoch, publisher, array of keys]
    5 + s         the notification, as in `stentor.model.codec`

A *key* names a place where members are given what arrives there (`stentor.scopes.entry`). *Epoch*
says which change of the graph was the last that the broker knew. Filters see both, so routers,
journals and everybody who reads them need to know nothing of scopes. The names of these facts are
for brokers alone: filters of clients must not mention them, and clients are given no stamps.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from struct import Struct as Layout
from typing import Any, Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from stentor.errors import DecodeError

#: The first byte of what has a stamp.
STAMPED: Final = 0x53
#: What filters of brokers see of it.
KEYS: Final = "_scopes"
EPOCH: Final = "_scope_epoch"
#: Both are for brokers alone.
HIDDEN: Final = frozenset({KEYS, EPOCH})

_HEAD: Final = Layout(">BI")
_first: Final = itemgetter(0)
_MAX_KNOWN: Final = 4_096


class Stamp(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Where something is visible, who has published it, and as of which change of the graph."""

    epoch: int
    publisher: str
    keys: tuple[str, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """What filters see of it; in whatever version, the publisher is the same."""
        return {KEYS: self.keys, EPOCH: self.epoch, "_producer": self.publisher}

    @property
    def prefix(self) -> bytes:
        """What is put before the bytes of a notification.

        >>> stamp = Stamp(1, "ann", ("=desk",))
        >>> split(stamp.prefix + b"...") == (stamp, b"...")
        True
        """
        data = _encoder.encode(self)
        return _HEAD.pack(STAMPED, len(data)) + data


_encoder: Final = Encoder()
_decoder: Final = Decoder(Stamp)
#: Stamps that were read lately: most are like one before.
_known: Final[dict[bytes, Stamp]] = {}


def is_stamped(data: bytes | bytearray | memoryview) -> bool:
    return len(data) > 0 and data[0] == STAMPED


def any_stamped(items: Iterable[Any]) -> bool:
    """Whether one of these has a stamp; what is empty, or no bytes, is no notification."""
    try:
        return STAMPED in map(_first, filter(None, items))
    except (TypeError, KeyError):
        return False


def stamp_size(data: bytes | bytearray | memoryview) -> int:
    """How many bytes of a well-formed item are its stamp."""
    if not is_stamped(data):
        return 0
    size: int = _HEAD.unpack_from(data)[1]
    return _HEAD.size + size


def split(data: bytes) -> tuple[Stamp, bytes]:
    """The stamp, and what follows it; `DecodeError` if there is none."""
    try:
        end = stamp_size(data)
        head, rest = data[_HEAD.size : end], data[end:]
        if not end or len(head) != end - _HEAD.size:
            raise DecodeError("a stamp that is cut off")
        stamp = _known.get(head)
        if stamp is None:
            stamp = _decoder.decode(head)
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            _known[head] = stamp
    except DecodeError:
        raise
    except Exception as error:
        raise DecodeError(f"not a stamp: {error}") from None
    return stamp, rest


def without_stamps(items: list[bytes]) -> list[bytes]:
    """Notifications as their publishers have written them, or as mappings have left them.

    >>> without_stamps([Stamp(1, "ann", ()).prefix + b"...", b"x"])
    [b'...', b'x']
    """
    if not any_stamped(items):
        return items
    found: list[bytes] = []
    head, size = b"", 0
    for data in items:  # most have the stamp of the one before
        if not size or not data.startswith(head):
            size = _HEAD.size + int.from_bytes(data[1:5], "big") if data[0] == STAMPED else 0
            head = data[:size]
        found.append(data[size:])
    return found
