"""From Python classes, as people write them in templates, to the types of the filter language."""

from __future__ import annotations

from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from stentor.errors import FilterTypeError
from stentor.model.values import COLLECTION, value_type, value_type_names

_TOLD_APART: Final = {int: "int", float: "float"}
_COLLECTIONS: Final = (tuple, list, set, frozenset)


def is_kind(field: object) -> bool:
    """Whether the field names a type rather than being a value."""
    return isinstance(field, type | UnionType) or get_origin(field) is not None


def type_names(kind: Any) -> tuple[str, ...]:
    """What `is` tests for the class, or for each class of a union.

    >>> type_names(int), type_names(str | bool)
    (('int',), ('string', 'bool'))
    """
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return tuple(dict.fromkeys(name for part in get_args(kind) for name in type_names(part)))
    origin = get_origin(kind) or kind
    if isinstance(origin, type):
        for cls in origin.__mro__:
            name = _name(cls)
            if name is not None:
                return (name,)
    raise FilterTypeError(
        f"{getattr(kind, '__name__', kind)!s} is not a type that attributes have; known types: "
        f"int, float, {', '.join((*value_type_names(), COLLECTION))}"
    )


def _name(cls: type) -> str | None:
    if cls in _TOLD_APART:
        return _TOLD_APART[cls]
    if cls in _COLLECTIONS:
        return COLLECTION
    return next((n for n in value_type_names() if cls in value_type(n).classes), None)
