"""Values as MessagePack has them, and as they are meant.

The decoder leaves extensions alone: sets, and values of registered value types. Most columns hold
neither, so this is asked only where a column turns out not to be plain.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec.msgpack import Decoder, Ext

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
