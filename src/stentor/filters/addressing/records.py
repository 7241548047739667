"""Tuples that a class describes: order and types of the fields come from its definition (R-02.03).

`TupleClass(Quote)` turns instances of the dataclass `Quote` into positional notifications of the
event type `Quote`, and back, and makes templates in which the fields that matter are named and all
others are don't-cares. A value of the wrong type is an error where it is written, in the event as
in the template, instead of a subscription that silently never matches.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar, get_type_hints

from stentor.errors import FilterTypeError, InvalidNotification, InvalidValue
from stentor.filters.addressing.event_types import event_type
from stentor.filters.addressing.kinds import type_names
from stentor.filters.addressing.tuples import (
    ANY,
    Prefix,
    template,
    tuple_notification,
    tuple_values,
)
from stentor.filters.filter import Filter
from stentor.model.notification import Notification
from stentor.model.values import normal, value_type_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    types: tuple[str, ...]

    def admits(self, value: Any) -> bool:
        """Whether the value has the declared type. As in Python, an int will do for a float."""
        found = value_type_of(value)
        if found == "number":
            found = "float" if isinstance(value, float) else "int"
            return found in self.types or "number" in self.types or "float" in self.types
        return found in self.types


class TupleClass(Generic[T]):
    """Notifications and templates for one dataclass.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Quote:
    ...     symbol: str
    ...     price: float
    >>> quotes = TupleClass(Quote)
    >>> n = quotes.notification(Quote("IBM", 120.5))
    >>> quotes.template(symbol="IBM").matches(n), quotes.template(symbol="SUN").matches(n)
    (True, False)
    >>> quotes.instance(n)
    Quote(symbol='IBM', price=120.5)
    """

    def __init__(self, cls: type[T], name: str | None = None) -> None:
        """`name` is the event type; by default the name of the class."""
        definition: Any = cls
        if not isinstance(definition, type) or not is_dataclass(definition):
            raise FilterTypeError(
                f"{definition!r} is not a dataclass, from whose definition the fields could come"
            )
        hints = get_type_hints(cls)
        self.cls: type[T] = cls
        self.name = cls.__name__ if name is None else name
        self._fields = [
            _Field(f.name, type_names(hints[f.name])) for f in fields(definition) if f.init
        ]
        self._address = event_type(self.name)

    def notification(self, instance: T, **parts: Any) -> Notification:
        """The instance as a notification. Keyword arguments are those of `Notification`."""
        if not isinstance(instance, self.cls):
            raise InvalidNotification(f"{instance!r} is not a {self.cls.__name__}")
        values: list[Any] = []
        for field in self._fields:
            value = normal(getattr(instance, field.name))
            if not field.admits(value):
                raise InvalidValue(self._mismatch(field, value))
            values.append(value)
        return tuple_notification(*values, type=self.name, **parts)

    def instance(self, notification: Notification) -> T:
        """The instance that the notification was made from."""
        values = tuple_values(notification)
        if notification.type != self.name or len(values) != len(self._fields):
            raise InvalidNotification(
                f"the notification is not a {self.cls.__name__}: it has the event type "
                f"{notification.type!r} and {len(values)} fields"
            )
        arguments = {f.name: value for f, value in zip(self._fields, values, strict=True)}
        return self.cls(**arguments)

    def template(self, **wanted: Any) -> Filter:
        """Instances with these values (or a `Prefix`) in these fields, whatever the others hold."""
        unknown = wanted.keys() - {field.name for field in self._fields}
        if unknown:
            raise FilterTypeError(
                f"{self.cls.__name__} has no field {', '.join(sorted(unknown))}; "
                f"it has {', '.join([field.name for field in self._fields])}"
            )
        return self._address & template(*[self._wanted(f, wanted) for f in self._fields])

    def _wanted(self, field: _Field, wanted: dict[str, Any]) -> Any:
        value = wanted.get(field.name, ANY)
        if value is ANY:
            return ANY
        sample = value.text if isinstance(value, Prefix) else normal(value)
        if not field.admits(sample):
            raise FilterTypeError(self._mismatch(field, sample))
        return value

    def _mismatch(self, field: _Field, value: Any) -> str:
        return (
            f"{field.name} of {self.cls.__name__} is {value!r}; "
            f"declared as {' or '.join(field.types)}"
        )
