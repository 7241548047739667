"""A record of Kafka as a notification, and a notification as a record.

What a record has beside its value are attributes of the notification, too:

    kafka.topic, kafka.partition, kafka.offset    where it is
    kafka.key                                     a text; bytes, if it is no UTF-8
    kafka.headers.NAME                            the same; a list, if there are several of the name
    kafka.deleted                                 true, if it has no value: it deletes its key

Its timestamp is the notification's time. Its type is what the source says, else what the header
`stentor-type` says, else the topic. A value that is not read (`format = "raw"`) is the payload.

On the way out the attributes are the value, an attribute that the sink names is the key, and the
time is the timestamp. The rest are headers: `stentor-id`, `stentor-bridge`, `stentor-type`,
`stentor-subject`, `stentor-channel` and `content-type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from stentor.errors import StentorError
from stentor.model import Notification, NotificationId
from stentor.pipeline.bridges.values import BadValue, ValueReader, ValueWriter

ID: Final = "stentor-id"
BRIDGE: Final = "stentor-bridge"
_TYPE: Final = "stentor-type"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Outgoing(NamedTuple):
    """What is to be written."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    #: Milliseconds since 1970; 0 is now.
    timestamp: int


def notification_of(
    record: Any, read: ValueReader | None, type: str | None, id: NotificationId
) -> Notification:
    """The notification that a record is; `BadValue` if it cannot be read."""
    value = record.value()
    found: Mapping[str, Any] = {}
    payload = b""
    if value is not None and read is None:
        payload = value
    elif value is not None and read is not None:
        found = read(record.topic(), value)
    if "kafka" in found:
        raise BadValue("the value has a member 'kafka', which is the name of what Kafka adds")
    headers = record.headers() or []
    about = {**about_record(record), "headers": _by_name(headers)}
    given = dict(headers)
    try:
        return Notification(
            {**found, "kafka": about},
            type=type or _text(given.get(_TYPE)) or record.topic(),
            payload=payload,
            content_type=_text(given.get("content-type")) if payload else None,
            id=id,
            time=time_of(record),
        )
    except StentorError as error:
        raise BadValue(str(error)) from error


def about_record(record: Any) -> dict[str, Any]:
    """Where it is, and its key."""
    found = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "key": None if record.key() is None else _text_or_bytes(record.key()),
    }
    if record.value() is None:
        found["deleted"] = True
    return found


def time_of(record: Any) -> datetime | None:
    """The record's timestamp."""
    kind, milliseconds = record.timestamp()
    return _EPOCH + milliseconds * _MILLISECOND if kind and milliseconds >= 0 else None


def outgoing(
    n: Notification, topic: str, write: ValueWriter, key: str | None, bridge: str
) -> Outgoing:
    """The record that a notification becomes; `BadValue` if it cannot be written."""
    about = {
        ID: None if n.id is None else str(n.id),
        BRIDGE: bridge,
        _TYPE: n.type,
        "stentor-subject": n.subject,
        "stentor-channel": n.channel,
        "content-type": n.content_type,
    }
    headers = [(name, text.encode()) for name, text in about.items() if text is not None]
    moment = 0 if n.time is None else max(0, (n.time - _EPOCH) // _MILLISECOND)
    found = None if key is None else n.get(key)
    return Outgoing(None if found is None else _key(found), write(topic, n), headers, moment)


def written_by(record: Any, bridge: str) -> str | None:
    """The id of the notification that this bridge has made the record of."""
    headers = dict(record.headers() or [])
    return _text(headers.get(ID)) if _text(headers.get(BRIDGE)) == bridge else None


def _key(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode()


def _by_name(headers: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in headers:
        shown = "" if value is None else _text_or_bytes(value)
        if name in found:
            before = found[name]
            found[name] = [*(before if isinstance(before, list) else [before]), shown]
        else:
            found[name] = shown
    return found


def _text_or_bytes(data: Any) -> str | bytes:
    text = _text(data)
    return bytes(data) if text is None else text


def _text(data: Any) -> str | None:
    if data is None or isinstance(data, str):
        return data
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return None
