"""The values that literals stand for.

    12  -1.5  1e3          numbers; without point and exponent a 64-bit integer
    'it''s'                a string; a quote is doubled, and nothing else is special
    x'00ff'                bytes, in hexadecimal
    time '2026-01-01'      any value type that can be read from text: its name, then the text

Each function takes the text of one token and raises a `TextError` without a place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stentor.errors import InvalidValue
from stentor.filters.language.mistakes import TextError, shown
from stentor.model.values import COLLECTION, INT_MAX, RECORD, normal, value_type, value_type_names

_INFINITY: Final = float("inf")

#: Other names of value types in typed literals.
_ALIASES: Final = {"x": "bytes", "X": "bytes", "timestamp": "time"}

#: What `is` tests for beside the value types.
_TESTED_TYPES: Final = ("int", "float", COLLECTION, RECORD)


def string(token: str) -> str:
    """
    >>> string("'it''s'")
    "it's"
    """
    return token[1:-1].replace("''", "'")


def quoted_name(token: str) -> str:
    """
    >>> quoted_name('"odd ""name"')
    'odd "name'
    """
    name = token[1:-1].replace('""', '"')
    if not name:
        raise TextError("an attribute name cannot be empty")
    return name


def number(token: str) -> int | float:
    """
    >>> number("12"), number("1.5e3")
    (12, 1500.0)
    """
    if token.isdigit():
        if len(token) > 18 and (len(token.lstrip("0")) > 19 or int(token) > INT_MAX):
            raise _too_large(token)
        return int(token)
    return _float(token)


def negative_number(token: str) -> int | float:
    """The number with a minus before it. The least integer has no positive counterpart.

    >>> negative_number("9223372036854775808")
    -9223372036854775808
    """
    if token.isdigit():
        if len(token) > 18 and (len(token.lstrip("0")) > 19 or int(token) > INT_MAX + 1):
            raise _too_large("-" + token)
        return -int(token)
    return -_float(token)


def _float(token: str) -> float:
    # The scanner lets only letters, digits, points, signs and underscores come here, after a digit
    # or a point; of these, float() takes just the numbers, but also 1_000.
    value: float | None
    try:
        value = float(token)
    except ValueError:
        value = None
    if value is None or "_" in token:
        raise TextError(
            f"{shown(token)} is not a number", expected=("a number such as 12 or 1.5e3",)
        )
    if value == _INFINITY:
        raise TextError(f"{shown(token)} is too large for a float; write number 'inf' for infinity")
    return value


def _too_large(token: str) -> TextError:
    return TextError(
        f"{shown(token)} does not fit a 64-bit integer; write it with a decimal point for a float"
    )


def typed(type_name: str, token: str) -> Any:
    """The value of `type_name 'text'`.

    >>> typed("x", "'00ff'")
    b'\\x00\\xff'
    """
    name = _ALIASES.get(type_name, type_name)
    text = string(token)
    try:
        parse = value_type(name).parse
    except KeyError:
        raise _unknown_type(type_name, value_type_names()) from None
    if parse is None:
        raise TextError(f"values of type {name} are not written with the name of the type")
    try:
        return normal(parse(text))
    except InvalidValue as error:
        raise TextError(str(error)) from None
    except Exception as error:  # whatever the parse function of a registered type may raise
        raise TextError(f"{shown(token)} is not a {name}: {shown(str(error))}") from None


def tested_type(name: str) -> str:
    """The name of the type after `is`.

    >>> tested_type("int")
    'int'
    """
    known = tested_types()
    for candidate in (name, name.lower()):
        if candidate in known:
            return candidate
        if candidate in _ALIASES and candidate != "x":
            return _ALIASES[candidate]
    raise _unknown_type(name, known)


def tested_types() -> tuple[str, ...]:
    """The types that `is` may ask for."""
    return (*value_type_names(), *_TESTED_TYPES)


def listed(tokens: Sequence[str], kinds: Sequence[str]) -> tuple[Any, ...]:
    """The constants of a long list, with the commas between them.

    >>> listed(["1", ",", "-", "2", ",", "'a'"], "NUMBER _COMMA MINUS NUMBER _COMMA STRING".split())
    (1, -2, 'a')
    """
    found: list[Any] = []
    minus = False
    for text, kind in zip(tokens, kinds, strict=True):
        if kind == "NUMBER":
            found.append(negative_number(text) if minus else number(text))
        elif kind == "STRING":
            found.append(string(text))
        elif kind in ("TRUE", "FALSE"):
            found.append(kind == "TRUE")
        minus = kind == "MINUS"
    return tuple(found)


def _unknown_type(name: str, known: Any) -> TextError:
    names = sorted(known)
    return TextError(
        f"there is no value type {shown(name)!r}; known are {', '.join(names)}",
        expected=("a type name",),
    )
