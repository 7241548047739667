"""Which names attributes and event types may have, and which texts a header may carry.

A name is a dotted path, `position.x`. Its segments are what nested records flatten to, so a name
without an empty segment can always be read back as a path. Names that start with an underscore
belong to the system: event type, subject, channel and the like appear to filters under them.

The names of one notification form a small tree, in which a path cannot be both a value and a
branch: `a` beside `a.b` is refused (R-02.07). Publishers send the same few sets of names again and
again, so what was found good is remembered. Names without a dot cannot clash with each other, so it
is enough that each of them is known (`plain_names`); sets with dotted names are remembered as
a whole. Both memories are bounded; a sender that never repeats itself only pays the full check.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from stentor.errors import InvalidNotification

#: The longest name of an attribute, event type, channel, content type or producer, in UTF-8 bytes.
MAX_NAME_BYTES: Final = 255
#: The longest subject, in UTF-8 bytes.
MAX_SUBJECT_BYTES: Final = 1024
#: How deep records may nest, which is also how many segments a dotted name may have.
MAX_DEPTH: Final = 32
#: How many attributes a notification may have.
MAX_ATTRIBUTES: Final = 1024

#: What filters call the parts of a notification that are not attributes, and the parameter of
#: `Notification` that sets each.
RESERVED: Final = {
    "_type": "type",
    "_types": "type",
    "_subject": "subject",
    "_channel": "channel",
    "_time": "time",
    "_producer": "id",
    "_deliver_at": "deliver_at",
    "_expires": "expires",
    "_priority": "priority",
}

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def text_problem(text: object, limit: int = MAX_NAME_BYTES) -> str | None:
    """Why the text cannot stand in a header, or None if it can.

    >>> text_problem("stocks/nyse")
    >>> text_problem("")
    'is empty'
    """
    if type(text) is not str:
        return f"is a {type(text).__name__}, not a string"
    if len(text) > limit:  # before the cache, which must not hold on to long texts
        return f"is longer than {limit} bytes of UTF-8"
    if text and text.isascii() and text.isprintable():
        return None
    return _text_problem(text, limit)


def name_problem(name: object) -> str | None:
    """Why this is not the name of an attribute or event type, or None if it is one.

    >>> name_problem("position.x")
    >>> name_problem("position..x")
    'has an empty segment between its dots'
    """
    if type(name) is not str:
        return f"is a {type(name).__name__}, not a string"
    if len(name) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes of UTF-8"
    return _name_problem(name)


@lru_cache(maxsize=4096)
def _text_problem(text: str, limit: int) -> str | None:
    if not text:
        return "is empty"
    if _SURROGATE.search(text):
        return "holds half a surrogate pair and cannot be written as UTF-8"
    if _CONTROL.search(text):
        return "holds a control character"
    if len(text) * 4 > limit and len(text.encode()) > limit:
        return f"is longer than {limit} bytes of UTF-8"
    return None


@lru_cache(maxsize=4096)
def _name_problem(name: str) -> str | None:
    problem = _text_problem(name, MAX_NAME_BYTES)
    if problem is None and "." in name:
        if name[0] == "." or name[-1] == "." or ".." in name:
            return "has an empty segment between its dots"
        if name.count(".") >= MAX_DEPTH:
            return f"nests deeper than {MAX_DEPTH} levels"
    return problem


_MAX_PLAIN_NAMES: Final = 4096
_MAX_SHAPES: Final = 1024
_MAX_SHAPE_WIDTH: Final = 64

#: Names without dots that were found good: any of them can stand together in one notification.
plain_names: Final[set[str]] = set()
_good_shapes: set[tuple[str, ...]] = set()


def check_attribute_names(names: tuple[str, ...]) -> None:
    """Raise `InvalidNotification` unless these names can stand together in one notification.

    The names are distinct and of type `str` proper.

    >>> check_attribute_names(("position.x", "position.y"))
    >>> check_attribute_names(("position", "position.x"))
    Traceback (most recent call last):
    ...
    stentor.errors.InvalidNotification: 'position' is both a value and the record that holds \
'position.x'; rename one
    """
    if len(names) > MAX_ATTRIBUTES:
        raise InvalidNotification(
            f"{len(names)} attributes; a notification may have at most {MAX_ATTRIBUTES}"
        )
    if plain_names.issuperset(names) or names in _good_shapes:
        return
    present = set(names)
    for name in names:
        problem = name_problem(name)
        if problem is not None:
            raise InvalidNotification(f"the attribute name {shown(name)} {problem}")
        if name[0] == "_":
            raise InvalidNotification(_reserved_message(name))
        end = name.find(".")
        while end >= 0:
            if name[:end] in present:
                raise InvalidNotification(
                    f"{shown(name[:end])} is both a value and the record that holds "
                    f"{shown(name)}; rename one"
                )
            end = name.find(".", end + 1)
    if len(names) > _MAX_SHAPE_WIDTH:
        return
    plain = [name for name in names if "." not in name]
    if len(plain_names) + len(plain) > _MAX_PLAIN_NAMES:
        plain_names.clear()
    plain_names.update(plain)
    if len(plain) < len(names):
        if len(_good_shapes) >= _MAX_SHAPES:
            _good_shapes.clear()
        _good_shapes.add(names)


def _reserved_message(name: str) -> str:
    parameter = RESERVED.get(name)
    if parameter is None:
        return (
            f"the attribute name {shown(name)} starts with an underscore, "
            "which is reserved for the system; rename it"
        )
    return (
        f"{name!r} is set by the system; pass {parameter}=... to Notification "
        "instead of giving it as an attribute"
    )


def shown(text: object) -> str:
    """A name for an error message, shortened when it is absurdly long."""
    written = repr(text)
    return written if len(written) <= 80 else written[:60] + "..." + written[-10:]
