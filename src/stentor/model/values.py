"""What an attribute can hold, and which values can be compared with each other.

A *value type* groups the values that have one order and one equality among them. Two values of
different value types are never equal and never ordered; a comparison between them is false. The
built-in ones:

    bool      False < True. A bool is not a number: `x = 1` rejects True.
    number    64-bit integers and IEEE doubles together, compared by mathematical value, so
              1 = 1.0. NaN has no place in an order and is rejected.
    string    Unicode text by code point, which is also the order of its UTF-8 bytes (and Spark's).
    bytes     byte strings, lexicographic.
    time      instants, UTC, microsecond resolution.

Three more are registered from the start: `date`, `uuid`, and `null` with its one value `NULL`. A
`Decimal` is a number: the integer or the double that is written like it. One with more digits than
a double can tell apart is refused, so no number that was given is ever another one.

A *collection* is a finite set of such values under one attribute name. It may be given as a set or
as a list; filters see it as a set, so order and repetition are kept but mean nothing. Its elements
may be *records* as well (`Record`): names with values, collections among them. A record is no value
of its own; outside of a list it is flattened into the names around it.

New value types are registered with `register_value_type`. A type whose class implements `<`, `==`
and `hash` gains every comparison of the filter language; an unordered one gains equality and set
membership. Nothing else in the system has to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from stentor.errors import InvalidNotification, InvalidValue
from stentor.model.names import MAX_ATTRIBUTES, MAX_DEPTH, check_attribute_names, shown
from stentor.model.null import NULL, Null
from stentor.model.record import Record

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

#: The name under which collections appear beside the value types.
COLLECTION: Final = "collection"
#: The name under which records, as elements of collections, appear beside them.
RECORD: Final = "record"
#: How deep lists may lie in records of lists.
MAX_LISTS: Final = 8


@dataclass(frozen=True, slots=True)
class ValueType:
    """One family of mutually comparable values.

    `format` and `parse` turn a value into the text of the typed literal `name 'text'` of the filter
    language and back; `dump` and `load` do the same for the wire, to and from bytes. All four are
    optional: without them values still match, but cannot be written in the language, or sent.
    """

    name: str
    classes: tuple[type, ...]
    ordered: bool = True
    format: Callable[[Any], str] | None = None
    parse: Callable[[str], Any] | None = None
    dump: Callable[[Any], bytes] | None = None
    load: Callable[[bytes], Any] | None = None


_types: dict[str, ValueType] = {}
_type_of_class: dict[type, str] = {}


def register_value_type(value_type: ValueType) -> ValueType:
    """Make a new family of values known. Registering the same name again replaces it.

    >>> class Version(tuple): pass
    >>> _ = register_value_type(ValueType("version", (Version,)))
    >>> value_type_of(Version((1, 2)))
    'version'
    """
    name = value_type.name
    if name in _BUILT_IN:
        raise InvalidValue(f"{name!r} is a built-in value type; register under another name")
    for cls in value_type.classes:
        owner = _type_of_class.get(cls)
        if cls in _PLAIN:  # `normal` turns these into built-in values, whoever registers them
            owner = owner or ("number" if cls is Decimal else "bytes")
        if owner is not None and owner != name:
            raise InvalidValue(f"{cls.__name__} already belongs to the value type {owner!r}")
    for cls in [cls for cls, owner in _type_of_class.items() if owner == name]:
        del _type_of_class[cls]
    _register(value_type)
    return value_type


def _register(value_type: ValueType) -> None:
    _types[value_type.name] = value_type
    for cls in value_type.classes:
        _type_of_class[cls] = value_type.name


def value_type(name: str) -> ValueType:
    """The value type of that name; `KeyError` if there is none."""
    return _types[name]


def value_type_names() -> Iterable[str]:
    return tuple(_types)


def value_type_of(value: object) -> str:
    """The name of the value's type, or `COLLECTION`; `InvalidValue` if no attribute can hold it.

    >>> value_type_of(1), value_type_of(1.5), value_type_of(True), value_type_of(["a"])
    ('number', 'number', 'bool', 'collection')
    """
    name = _type_of_class.get(type(value))
    if name is None:
        name = _family(type(normal(value)))
        assert name is not None
    return name


def _family(kind: type) -> str | None:
    """The value type that a class belongs to, itself or by inheritance."""
    for cls in kind.__mro__:
        name = _type_of_class.get(cls)
        if name is not None:
            return name
    for cls, name in list(_type_of_class.items()):
        if issubclass(kind, cls):  # a virtual subclass of a registered abstract class
            return name
    return None


def normal(value: Any) -> Any:
    """The value as Stentor stores it, or `InvalidValue`.

    Lists become tuples, sets become frozensets, mappings in them records, times become UTC;
    subclasses of the built-in types and NumPy scalars become the built-in type itself.

    >>> normal({3, 4}) == frozenset({3, 4})
    True
    >>> normal(float("nan"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    stentor.errors.InvalidValue: NaN cannot be an attribute value: it has no place in the order ...
    """
    kind = type(value)
    if kind is str:
        if not value.isascii():
            _check_text(value)
        return value
    if kind is float:
        if value != value:
            raise InvalidValue(
                "NaN cannot be an attribute value: it has no place in the order of numbers; "
                "leave the attribute out instead"
            )
        return value
    if kind is bool or kind is bytes:
        return value
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise InvalidValue(f"{value} does not fit a 64-bit integer; use a float or a string")
        return value
    if kind is datetime:
        return value if value.tzinfo is UTC and not value.fold else _in_utc(value)
    if kind in _COLLECTIONS:
        return _collection(value, 1)
    if kind is Record:
        raise InvalidValue("a record is an element of a list; as an attribute it is flattened")
    if kind in _type_of_class:
        return value
    return _normal_subclass(value)


def _collection(value: Any, level: int) -> Any:
    elements = [_element(v, level) for v in value]
    return frozenset(elements) if isinstance(value, set | frozenset) else tuple(elements)


def _element(value: Any, level: int) -> Any:
    if type(value) is Record and level == 1:
        return value
    if value is None:
        raise InvalidValue("a collection holds no null; leave the element out instead")
    if isinstance(value, Mapping):
        fields: dict[str, Any] = {}
        _add_fields(value, "", fields, level)
        try:
            check_attribute_names(tuple(fields))
        except InvalidNotification as error:
            raise InvalidValue(f"in a record, {error}") from None
        return Record(fields)
    element = normal(value)
    if type(element) is tuple or type(element) is frozenset:
        raise InvalidValue(
            "a collection holds values and records, not other collections; put all elements into "
            "one, or each collection into a record"
        )
    return element


def _add_fields(
    mapping: Mapping[Any, Any], prefix: str, fields: dict[str, Any], level: int
) -> None:
    for key, value in mapping.items():
        if value is None:
            continue
        if not isinstance(key, str):
            raise InvalidValue(f"the name {shown(key)} in a record is not a string")
        name = prefix + str.__str__(key)
        if isinstance(value, Mapping):
            if name.count(".") + 1 >= MAX_DEPTH:
                raise InvalidValue(f"{shown(name)} nests deeper than {MAX_DEPTH} levels of records")
            _add_fields(value, name + ".", fields, level)
            continue
        if name in fields:
            raise InvalidValue(f"{shown(name)} is given twice in a record, flat and nested")
        try:
            fields[name] = _field(value, level)
        except InvalidValue as error:
            raise InvalidValue(f"{shown(name)} in a record: {error}") from None
    if len(fields) > MAX_ATTRIBUTES:
        raise InvalidValue(f"a record has {len(fields)} fields; at most {MAX_ATTRIBUTES} may be")


def _field(value: Any, level: int) -> Any:
    if isinstance(value, _COLLECTIONS):
        if level >= MAX_LISTS:
            raise InvalidValue(f"lists lie more than {MAX_LISTS} levels deep in each other")
        return _collection(value, level + 1)
    return normal(value)


def _normal_subclass(value: Any) -> Any:
    """Values that are instances of a known type without being of that very type."""
    for cls in type(value).__mro__:  # nearest first: a registered subclass of str is no str
        plain = _PLAIN.get(cls)
        if plain is not None:
            return normal(plain(value))
        if cls in _type_of_class:
            return value
    if _family(type(value)) is not None:
        return value
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "ndim", None) == 0:  # a NumPy scalar
        if value.dtype.kind in "mM":  # `item()` would make a plain integer of nanoseconds
            raise InvalidValue(
                f"a {type(value).__name__} has no time zone; give a datetime in UTC instead"
            )
        plain_value = item()
        if type(plain_value) in _type_of_class:
            return normal(plain_value)
    names = ", ".join([*_types, COLLECTION])
    raise InvalidValue(f"a value cannot be of type {type(value).__name__}; the types are {names}")


def _from_decimal(value: Decimal) -> int | float:
    """The number that is written like it."""
    exponent = value.as_tuple().exponent
    if value.is_finite() and isinstance(exponent, int) and 0 <= exponent <= 18:
        return int(value)
    number = float(value)
    if value.is_finite() and Decimal(repr(number)) != value:
        raise InvalidValue(
            f"the decimal {str(value)[:40]} has more digits than a number can tell apart here "
            "(about 16); round it, or send it as a string"
        )
    return number


def _in_utc(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise InvalidValue(f"{value.isoformat()} has no time zone; give one, for example UTC")
    try:
        return value.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise InvalidValue(
            f"{value.isoformat()} falls outside of the years 1 to 9999 in UTC"
        ) from None


def _plain_datetime(value: datetime) -> datetime:
    """The same instant as a `datetime` proper; pandas' NaT is a `datetime` without a year."""
    try:
        return datetime(
            value.year,
            value.month,
            value.day,
            value.hour,
            value.minute,
            value.second,
            value.microsecond,
            tzinfo=value.tzinfo,
            fold=value.fold,
        )
    except (TypeError, ValueError):
        raise InvalidValue(
            f"{value!r} is not an instant; leave the attribute out instead"
        ) from None


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            f"a string holds half a surrogate pair at position {error.start} "
            "and cannot be written as UTF-8"
        ) from None


# How an instance of a subclass becomes the built-in value that it stands for.
_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    bool: bool,
    int: int,
    float: float,
    str: str.__str__,  # not `str`, which asks the subclass and gets "Color.RED" from an enumeration
    bytes: lambda v: bytes(memoryview(v)),
    bytearray: bytes,
    memoryview: bytes,
    datetime: _plain_datetime,
    Decimal: _from_decimal,
    set: frozenset,
    frozenset: lambda v: frozenset(iter(v)),
    list: list,
    tuple: list,
}


def _parse_time(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    return _in_utc(value.replace(tzinfo=UTC) if value.tzinfo is None else value)


_register(ValueType("bool", (bool,)))
_register(ValueType("number", (int, float), parse=float, format=repr))
_register(ValueType("string", (str,)))
_register(ValueType("bytes", (bytes,), parse=bytes.fromhex, format=bytes.hex))
_register(
    ValueType(
        "time",
        (datetime,),
        parse=_parse_time,
        format=lambda t: t.isoformat().replace("+00:00", "Z"),
    )
)
_COLLECTIONS: Final = (tuple, frozenset, list, set)
for _cls in _COLLECTIONS:
    _type_of_class[_cls] = COLLECTION
_type_of_class[Record] = RECORD

_BUILT_IN: Final = frozenset([*_types, COLLECTION, RECORD])

_register(
    ValueType(
        "date",
        (date,),
        parse=date.fromisoformat,
        format=date.isoformat,
        dump=lambda day: day.isoformat().encode(),
        load=lambda data: date.fromisoformat(data.decode()),
    )
)
_register(
    ValueType(
        "uuid",
        (UUID,),
        parse=UUID,
        format=str,
        dump=lambda uuid: uuid.bytes,
        load=lambda data: UUID(bytes=data),
    )
)
_register(
    ValueType(
        "null",
        (Null,),
        ordered=False,
        parse=lambda text: NULL,
        format=lambda null: "",
        dump=lambda null: b"",
        load=lambda data: NULL,
    )
)
