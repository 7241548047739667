"""When encoded notifications were, for who wants nothing else of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from stentor.model.codec import Buffer, decode_headers

#: The name of the time that every notification has, beside those of attributes.
TIME: Final = "_time"


def moments(items: Sequence[Buffer], name: str = TIME) -> list[float | None]:
    """The time of each, or an attribute that is a time (in seconds since 1970) or a number.

    Where that is absent, or something else, it is None.

    >>> from stentor.model import Notification, encode
    >>> moments([encode(Notification({"at": 7})), encode(Notification({"at": "noon"}))], "at")
    [7.0, None]
    """
    envelopes = decode_headers(items)
    if name == TIME:
        return [None if e.time is None else e.time.timestamp() for e in envelopes]
    return [_moment(e.attributes.get(name)) for e in envelopes]


def _moment(value: object) -> float | None:
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if type(value) in (int, float) else None  # type: ignore[arg-type]
