"""Notifications as JSON objects, one per line, and back.

A notification is the object of its attributes, flat: a nested record appears under dotted names,
and may be given either way. Strings, truth values and numbers are JSON's own, where 1 is an
integer and 1.0 is not; the objects in an array are records. What JSON lacks is written as an object
with one member, whose name is the value's type after a dollar sign. Its text is that
of the typed literal in the filter language:

    {"$time": "2026-01-01T12:00:00Z"}      an instant
    {"$bytes": "00ff"}                     bytes, in hexadecimal
    {"$number": "inf"}                     an infinity
    {"$set": ["a", "b"]}                   a set; a list is a JSON array
    {"$record": {"$set": 1}}               a record that would look like one of these
    {"$version": "1.2"}                    a value of a registered type

What a notification has beside its attributes goes under names that begin with an underscore, and no
attribute does: `_type`, `_subject`, `_channel`, `_content_type`, `_priority`, `_payload`, `_time`,
`_deliver_at` and `_expires`, the latter four in the forms above. Only `subscribe --meta` writes
them; `publish` reads them. `_id` is written
too, and so are `_filters`, those of several that match; both are ignored when they are read, since
what is published is new.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import datetime
from math import isinf
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stentor.errors import InvalidNotification, InvalidValue, StentorError
from stentor.model import Notification, normal, value_type, value_type_of
from stentor.model.names import shown
from stentor.model.record import Record

if TYPE_CHECKING:
    from stentor.filters import Filter

_PLAIN: Final = frozenset({str, int, bool})
_MOMENTS: Final = ("_time", "_deliver_at", "_expires")
_PARTS: Final = ("_type", "_subject", "_channel", "_content_type")
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder()


def to_json(
    notification: Notification, *, meta: bool = False, words: Mapping[Filter, str] | None = None
) -> bytes:
    """One line, without its end; `words` are filters as somebody has written them.

    >>> to_json(Notification({"a": 1, "b": b"x"}, type="quote"), meta=True)
    b'{"a":1,"b":{"$bytes":"78"},"_type":"quote"}'
    """
    fields = {name: _out(value) for name, value in notification.items()}
    if meta:
        fields |= _meta(notification, words or {})
    return _encoder.encode(fields)


def _meta(n: Notification, words: Mapping[Filter, str]) -> dict[str, Any]:
    filters = [each.filter for each in n.subscriptions]
    found = {
        "_id": None if n.id is None else str(n.id),
        "_time": None if n.time is None else _out(n.time),
        "_type": n.type,
        "_subject": n.subject,
        "_channel": n.channel,
        "_content_type": n.content_type,
        "_payload": _out(n.payload) if n.payload else None,
        "_deliver_at": None if n.deliver_at is None else _out(n.deliver_at),
        "_expires": None if n.expires is None else _out(n.expires),
        "_priority": None if n.handling is None else n.priority,
        "_filters": [words.get(filter, str(filter)) for filter in filters] or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _out(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is float and not isinf(value)):
        return value
    if kind is tuple:
        return [_out(each) for each in value]
    if kind is Record:
        fields = {name: _out(field) for name, field in value.items()}
        looks_special = len(fields) == 1 and next(iter(fields)).startswith("$")
        return {"$record": fields} if looks_special else fields
    if kind is frozenset:
        elements = [_out(each) for each in value]
        return {"$set": sorted(elements, key=_encoder.encode)}
    name = value_type_of(value)
    form = value_type(name).format
    if form is None:
        raise InvalidValue(f"values of type {name} have no written form")
    return {f"${name}": form(value)}


def from_json(line: bytes | str) -> Notification:
    """The notification that a line describes, or a `StentorError` that says what is wrong.

    >>> from_json('{"pos": {"x": 1}, "raw": {"$bytes": "78"}}')
    Notification({'pos.x': 1, 'raw': b'x'})
    """
    try:
        data = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidNotification(f"not JSON: {_reason(error, line)}") from None
    except RecursionError:
        raise InvalidNotification("not a notification: nested too deeply") from None
    if not isinstance(data, dict):
        raise InvalidNotification(
            f'a notification is a JSON object such as {{"symbol": "IBM"}}, not {_kind(data)}'
        )
    parts: dict[str, Any] = {}
    for name in _PARTS:
        value = data.pop(name, None)
        if value is not None and not isinstance(value, str):
            raise InvalidNotification(f"{name} is a text, not {_kind(value)}")
        parts[name[1:]] = value
    data.pop("_id", None)
    data.pop("_filters", None)
    payload = _in(data.pop("_payload", None), "_payload")
    if payload is not None and not isinstance(payload, bytes):
        raise InvalidNotification('_payload is bytes: {"$bytes": "00ff"}')
    for name in _MOMENTS:
        moment = parts[name[1:]] = _in(data.pop(name, None), name)
        if moment is not None and not isinstance(moment, datetime):
            raise InvalidNotification(f'{name} is an instant: {{"$time": "2026-01-01T00:00:00Z"}}')
    if "_priority" in data:
        parts["priority"] = data.pop("_priority")
    attributes = {name: _in(value, name) for name, value in data.items()}
    return Notification(attributes, payload=payload or b"", **parts)


def _in(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_in(each, name) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key.startswith("$"):
            return _special(key[1:], inner, name)
    return {key: _in(each, f"{name}.{key}") for key, each in value.items()}


def _special(kind: str, inner: Any, name: str) -> Any:
    if kind == "set":
        if not isinstance(inner, list):
            raise InvalidValue(f'attribute {shown(name)}: write a set as {{"$set": [...]}}')
        return {_hashable(_in(each, name), name) for each in inner}
    if kind == "record" and isinstance(inner, dict):
        return {key: _in(each, f"{name}.{key}") for key, each in inner.items()}
    try:
        parse = value_type(kind).parse
    except KeyError:
        parse = None
    if parse is None or not isinstance(inner, str):
        raise InvalidValue(
            f'attribute {shown(name)}: there is no form {{"${kind}": ...}}; known are $time, '
            "$bytes, $number and $set, and registered types, each with a text (a set: a list)"
        )
    try:
        return parse(inner)
    except StentorError:
        raise
    except Exception as error:  # whatever the parse function of a registered type may raise
        raise InvalidValue(
            f"attribute {shown(name)}: {shown(inner)} is not a {kind}: {error}"
        ) from None


def _hashable(value: Any, name: str) -> Any:
    if isinstance(value, list | set):
        raise InvalidValue(f"attribute {shown(name)}: a set holds plain values and records")
    return normal([value])[0] if isinstance(value, Mapping) else value


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "an object" if isinstance(value, dict) else "a number")


_NAN: Final = "NaN compares with nothing, so it is not a value here; leave the attribute out"
#: Words that other languages write, and what to do about them.
_FOREIGN: Final = {
    "NaN": _NAN,
    "nan": _NAN,
    "Infinity": 'write {"$number": "inf"} instead of Infinity',
    "-Infinity": 'write {"$number": "-inf"} instead of -Infinity',
    "True": "write true instead of True",
    "False": "write false instead of False",
    "None": "write null instead of None",
}


def _reason(error: Exception, line: bytes | str) -> str:
    reason = str(error).removeprefix("JSON is malformed: ")
    if "keys must be strings" in reason:
        return f'{reason}; names and texts are in double quotes: {{"symbol": "IBM"}}'
    if "truncated" in reason:
        return "the text ends too early; is a quote or a bracket missing?"
    text = line if isinstance(line, str) else line.decode("utf-8", "replace")
    foreign = re.search(r"[:\[,]\s*(-?[A-Za-z]+)", text)
    advice = _FOREIGN.get(foreign[1]) if foreign else None
    return f"{reason}; {advice}" if advice else reason


def print_json(data: Any) -> None:
    """The whole answer of a command, for scripts: indented, on stdout."""
    sys.stdout.write(msgspec.json.format(_plain(data)).decode() + "\n")


def print_line(data: Any) -> None:
    """One of many answers, for scripts: on a line of stdout that is read at once."""
    sys.stdout.write(_plain(data).decode() + "\n")
    sys.stdout.flush()


def _plain(data: Any) -> bytes:
    return msgspec.json.encode(data, enc_hook=str)
