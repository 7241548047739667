"""Values as MessagePack has them, and as they are meant.

The decoder leaves extensions alone: sets, and values of registered value types. Most columns hold
neither, so this is asked only where a column turns out not to be plain. What does not fit its
column is a *misfit*, and `_corrupt` shows it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
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
