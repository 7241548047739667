"""A record as an element of a list: an order has lines, and each line has a product and a quantity.

A record is to its list what the attributes are to a notification: flat names with values, nested
records flattened by dotted names, None left out. It is immutable and can be hashed, so lists and
sets of records are values like all others. Two records are equal if their fields are, in type and
in value.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, final


@final
class Record(Mapping[str, Any]):
    """The fields of one element of a list. Made by `normal` from any mapping.

    >>> from stentor.model.values import normal
    >>> (line,) = normal([{"sku": "A-17", "price": {"amount": 9}}])
    >>> line["sku"], line["price.amount"], line.get("quantity")
    ('A-17', 9, None)
    >>> line == {"sku": "A-17", "price.amount": 9}
    True
    """

    __slots__ = ("_hash", "fields")

    #: All fields, not to be changed.
    fields: dict[str, Any]

    def __init__(self, fields: dict[str, Any]) -> None:
        """The dictionary is kept, not copied; names and values are taken as checked."""
        self.fields = fields
        self._hash = 0

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def get(self, name: str, default: Any = None) -> Any:
        return self.fields.get(name, default)

    def keys(self) -> KeysView[str]:
        return self.fields.keys()

    def values(self) -> ValuesView[Any]:
        return self.fields.values()

    def items(self) -> ItemsView[str, Any]:
        return self.fields.items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record):
            return self is other or (
                self.fields == other.fields and _typed(self.fields) == _typed(other.fields)
            )
        return self.fields == other if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash(frozenset(self.fields.items()))
        return self._hash

    def __repr__(self) -> str:
        return repr(self.fields)

    def __copy__(self) -> Record:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Record:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self.fields,)


def _typed(value: Any) -> Any:
    """The same with the type of everything in it, as 1, 1.0 and True are equal to Python."""
    kind = type(value)
    if kind is dict:
        return {name: _typed(field) for name, field in value.items()}
    if kind is tuple:
        return kind, [_typed(element) for element in value]
    if kind is frozenset:
        return kind, {(type(element), element) for element in value}
    return kind, value
