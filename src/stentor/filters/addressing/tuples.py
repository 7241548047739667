"""Tuples and templates: notifications whose values are told apart by position (R-02.01 to R-02.04).

A tuple of n values is a notification with the attributes `0`, `1`, ... and `arity`, which is n. A
template is a filter that fixes the arity and says something about some of the positions: an exact
value, a type, a prefix, or nothing. Arity is part of it because templates match tuples of equal
length only; so `("a", ...)` and `("a",)` never meet, although they agree on all that both have.

In Linda's terms an exact value is an actual field and a type is a formal one. In JEDI all fields
are strings, the first is the name of the event, and a field of a template is an equality or a
prefix test.

Position costs what names give: there are no optional fields, every template has to say that it
does not care about the rest, and a field more breaks all of them (R-02.05).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stentor.errors import FilterTypeError, InvalidNotification
from stentor.filters.addressing.kinds import is_kind, type_names
from stentor.filters.expression import And, Atom, Expression, Or
from stentor.filters.filter import Filter
from stentor.model.notification import Notification

#: How many values the tuple has.
ARITY: Final = "arity"
#: The field of a template that accepts any value; the same as `...`.
ANY: Final = ...


@dataclass(frozen=True, slots=True)
class Prefix:
    """The field of a template that accepts every string (or byte string) with this beginning."""

    text: str | bytes


def tuple_attributes(values: tuple[Any, ...]) -> dict[str, Any]:
    """The attributes by which a notification carries the values."""
    for position, value in enumerate(values):
        if value is None or isinstance(value, Mapping):
            raise InvalidNotification(
                f"field {position} of a tuple is {value!r}; fields are values, and never left out"
            )
    return {ARITY: len(values), **{str(i): value for i, value in enumerate(values)}}


def tuple_notification(*values: Any, **parts: Any) -> Notification:
    """A positional notification. The keyword arguments are those of `Notification`.

    >>> tuple_notification("StockQuote", "Foo Inc.", 45)
    Notification({'arity': 3, '0': 'StockQuote', '1': 'Foo Inc.', '2': 45})
    """
    return Notification(tuple_attributes(values), **parts)


def tuple_values(notification: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of a positional notification, in order.

    >>> tuple_values(tuple_notification("a", 1))
    ('a', 1)
    """
    arity = notification.get(ARITY)
    if type(arity) is not int or not all(str(i) in notification for i in range(arity)):
        raise InvalidNotification(
            f"this is not a positional notification: it needs {ARITY!r} and the attributes '0', "
            "'1', ... up to it; make one with tuple_notification"
        )
    return tuple([notification[str(i)] for i in range(arity)])


def template(*fields: Any) -> Filter:
    """Tuples of as many values, each accepted by the field at its position.

    A field is a value, which must be equal; `...`, which accepts anything; a class such as `int`,
    `str` or `int | float`; or a `Prefix`.

    >>> f = template("StockQuote", Prefix("Foo"), int | float)
    >>> f.matches(tuple_notification("StockQuote", "Foo Inc.", 45))
    True
    >>> template("StockQuote", ..., ...).covers(f), template("StockQuote", ...).overlaps(f)
    (True, False)
    """
    parts: list[Expression] = [Atom(ARITY, "=", (len(fields),))]
    for position, field in enumerate(fields):
        if field is not ANY:
            parts.append(_field(str(position), field))
    return Filter.of_expression(And(tuple(parts)))


def jedi_event(name: str, *fields: str) -> Notification:
    """An event of JEDI: its name and its parameters, all strings.

    >>> jedi_event("open", "report.txt")["1"]
    'report.txt'
    """
    for field in (name, *fields):
        if not isinstance(field, str):
            raise InvalidNotification(
                f"the fields of a JEDI event are strings, and {field!r} is not one"
            )
    return tuple_notification(name, *fields)


def jedi_template(name: str, *fields: str) -> Filter:
    """Events of JEDI. A field that ends with `*` accepts all strings with the beginning before it.

    >>> f = jedi_template("open", "report*", "*")
    >>> f.matches(jedi_event("open", "report.txt", "alice"))
    True
    >>> f.matches(jedi_event("open", "report.txt"))
    False
    """
    return template(*[_jedi_field(field) for field in (name, *fields)])


def _jedi_field(field: str) -> str | Prefix | type:
    if not isinstance(field, str):
        raise FilterTypeError(
            f"the fields of a JEDI template are strings, and {field!r} is not one; "
            "for other values use template"
        )
    if field == "*":
        return str
    return Prefix(field[:-1]) if field.endswith("*") else field


def _field(name: str, field: Any) -> Expression:
    if isinstance(field, Prefix):
        kind = "bytes" if isinstance(field.text, bytes) else "string"
        # An empty prefix says nothing else than the type.
        return And((Atom(name, "is", (kind,)), Atom(name, "prefix", (field.text,))))
    if is_kind(field):
        return Or(tuple([Atom(name, "is", (kind,)) for kind in type_names(field)]))
    if field is None:
        raise FilterTypeError(
            f"field {name} of a template is None, and no tuple has that; write ... for any value"
        )
    return Atom(name, "=", (field,))
