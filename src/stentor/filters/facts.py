"""What a plain mapping says to filters: attributes under their full names, as normal values.

Nested mappings are reached by dotted names, and None means absent, as in a `Notification`. Whoever
matches has two ways to look: a filter knows the few names it asks for (`facts_of`), an engine with
very many filters goes through the mapping instead (`flat_facts`). Either refuses what it is asked
about and no notification could hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

from stentor.errors import InvalidValue
from stentor.model.codec import Envelope
from stentor.model.names import shown
from stentor.model.notification import Notification
from stentor.model.values import normal

Event: TypeAlias = Notification | Envelope | Mapping[str, Any]

#: The commonest classes, with nothing inside of them: to ask what else they may be takes longer.
_SINGLE: Final = frozenset({str, int, float, bool})


def facts_of(notification: Event, names: Iterable[str]) -> Mapping[str, Any]:
    """What a notification says under these names, the names leading the way."""
    if isinstance(notification, Notification | Envelope):
        return notification.facts
    _require_mapping(notification)
    facts: dict[str, Any] = {}
    for name in names:
        value = notification.get(name)
        if value is None and "." in name:
            value = _nested(notification, name)
        if value is not None and not isinstance(value, Mapping):
            facts[name] = _value(name, value)
    return facts


def flat_facts(notification: Event, names: Collection[str], within: str = "") -> Mapping[str, Any]:
    """What a notification says under any of these names, the mapping leading the way."""
    if isinstance(notification, Notification | Envelope):
        return notification.facts
    _require_mapping(notification)
    facts: dict[str, Any] = {}
    for key, value in notification.items():
        if value is None or not isinstance(key, str):
            continue
        name = within + key
        if type(value) in _SINGLE:
            if name in names:
                try:
                    facts[name] = normal(value)
                except InvalidValue as error:
                    raise _about(name, error) from None
        elif isinstance(value, Mapping):
            facts.update(flat_facts(value, names, name + "."))
        elif name in names:
            facts[name] = _value(name, value)
    return facts


def _nested(mapping: Mapping[str, Any], name: str) -> Any:
    """The value at a dotted name, however the nesting and the dots are mixed."""
    head, dot, tail = name.partition(".")
    while dot:
        inner = mapping.get(head)
        if isinstance(inner, Mapping):
            value = inner.get(tail)
            if value is None and "." in tail:
                value = _nested(inner, tail)
            if value is not None:
                return value
        more, dot, tail = tail.partition(".")
        head = f"{head}.{more}"
    return None


def _value(name: str, value: Any) -> Any:
    try:
        return normal(value)
    except InvalidValue as error:
        raise _about(name, error) from None


def _about(name: str, error: InvalidValue) -> InvalidValue:
    return InvalidValue(f"attribute {shown(name)}: {error}")


def _require_mapping(notification: Any) -> None:
    if not isinstance(notification, Mapping):
        kind = type(notification).__name__
        raise TypeError(f"expected a Notification or a mapping of attributes, not a {kind}")
