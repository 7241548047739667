"""Encoded notifications with a few of their attributes, for who has no use for the others.

A header is a MessagePack array that begins with the map of attributes, and nothing refers to a
place in it. So a shorter map takes the place of the map, and everything else stays byte for byte.
The decoder skips what is not wanted and hands out the rest as it is; no value is ever looked at.

To do so costs more than to pass an item on. Where events have nothing but what is wanted, that
would be in vain, so some of them, evenly spread, are tried first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.msgpack import Decoder, Encoder

from stentor.model.codec import HEADER_AT

#: So many are tried.
_TRIED: Final = 32
#: Sets of names that are remembered: to make a decoder means to make a class.
_REMEMBERED: Final = 64

_Shorten = Callable[[msgspec.Raw], bytes]

_encoder: Final = Encoder()


class _Whole(msgspec.Struct, array_like=True, gc=False):
    """A header, of which only the map of attributes is of interest."""

    attributes: msgspec.Raw


_whole_decoder: Final = Decoder(_Whole)


def projected(items: Sequence[bytes], names: Sequence[str]) -> list[bytes]:
    """The items without attributes of other names, if that makes them smaller.

    One of which no attribute is left need not be a notification any more.

    >>> from stentor.model import Notification, decode, encode
    >>> item = encode(Notification({"symbol": "IBM", "price": 9.5, "note": "..."}, type="quote"))
    >>> [decode(each) for each in projected([item], ["price", "volume"])]
    [Notification({'price': 9.5}, type='quote')]
    """
    shorten = _shortener(tuple(names))
    some = items[:: max(1, len(items) // _TRIED)]
    if all(_projected(item, shorten) is item for item in some):
        return list(items)
    return [_projected(item, shorten) for item in items]


def _projected(item: bytes, shorten: _Shorten) -> bytes:
    end = HEADER_AT + int.from_bytes(item[1:5])
    header = item[HEADER_AT:end]
    before = _whole_decoder.decode(header).attributes
    after = shorten(before)
    if len(after) == len(before):
        return item
    size = len(header) - len(before) + len(after)
    parts = (item[:1], size.to_bytes(4), item[5:HEADER_AT], header[:1], after)
    return b"".join((*parts, header[1 + len(before) :], item[end:]))


def are_fields(names: Iterable[str]) -> bool:
    """Whether fields of a struct of msgspec can be called so."""
    return not any(each in '"\\' or each < " " for name in names for each in name)


@lru_cache(maxsize=_REMEMBERED)
def _shortener(names: tuple[str, ...]) -> _Shorten:
    """From an encoded map to one that has what is there of these names."""
    if not are_fields(names):
        wanted = frozenset(names)
        every = Decoder(dict[str, msgspec.Raw])
        return lambda data: _encoder.encode(
            {name: value for name, value in every.decode(data).items() if name in wanted}
        )
    fields = {f"a{number}": name for number, name in enumerate(dict.fromkeys(names))}
    absent = msgspec.Raw(b"\xc0")
    struct = msgspec.defstruct(
        "Wanted",
        [(field, msgspec.Raw, absent) for field in fields],
        rename=fields,
        omit_defaults=True,  # what is absent is this very object
        gc=False,
    )
    decoder: Decoder[msgspec.Struct] = Decoder(struct)
    return lambda data: _encoder.encode(decoder.decode(data))
