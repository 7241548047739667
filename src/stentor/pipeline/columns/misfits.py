"""Values that do not fit their columns, as `_corrupt` shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from stentor.pipeline.columns.message_values import Foreign


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
