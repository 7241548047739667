"""Events as objects of a class (R-01.73, typed on untyped).

A dataclass, a msgspec struct or a pydantic model is an event class: its fields are the attributes,
and its event type is its name. A class that extends another has the path of both as its type,
`Quote.StockQuote`, so that every broker knows by the name alone that each stock quote is a quote;
nothing has to be declared anywhere. `__event_type__` in a class sets its type to something else. A
field that holds another such object becomes attributes with dotted names, a list of them a list of
records, an enumeration is sent as its value, and None means that the attribute is absent.

On the way back a notification becomes an instance of the class that its type names among the
subclasses of the one subscribed to; a type that this program has no class for becomes an instance
of the nearest class that it does have. Attributes without a field are left out.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Generic, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import msgspec.inspect

from stentor.errors import InvalidConfiguration, InvalidNotification, UnknownEventType
from stentor.model import NULL, Notification
from stentor.model.names import name_problem, shown
from stentor.model.record import Record

if TYPE_CHECKING:
    from stentor.filters import Filter

T = TypeVar("T")

_MAX_DEPTH: Final = 32


def is_event_class(candidate: object) -> TypeGuard[type[Any]]:
    """Whether this is a dataclass, a struct or a model, not an instance of one."""
    return isinstance(candidate, type) and _is_record_class(candidate)


def taken_by(handler: Callable[..., object], names: Mapping[str, Any]) -> type[Any] | None:
    """The event class that a function says its first parameter is; `names` are known around it.

    >>> def costly(quote: Quote) -> None: ...
    >>> taken_by(costly, {"Quote": dataclasses.make_dataclass("Quote", ["price"])}).__name__
    'Quote'
    """
    try:
        parameters = signature(handler, locals=names, eval_str=True).parameters
    except (NameError, TypeError, ValueError):  # it says something that is not known here
        return None
    first = next(iter(parameters.values()), None)
    return first.annotation if first is not None and is_event_class(first.annotation) else None


def is_event(candidate: object) -> bool:
    """Whether this is an instance of an event class."""
    return not isinstance(candidate, type) and _is_record_class(type(candidate))


def _is_record_class(cls: type) -> bool:
    known = _record_classes.get(cls)
    if known is None:
        known = _record_classes[cls] = (
            dataclasses.is_dataclass(cls)
            or (issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct)
            or _is_model(cls)
        )
    return known


_record_classes: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def _is_model(cls: type) -> bool:
    """Whether it is a pydantic model; whoever has defined one has imported pydantic."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return base is not None and issubclass(cls, base) and cls is not base


_names: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def event_type_of(cls: type) -> str:
    """The event type of a class.

    >>> @dataclasses.dataclass
    ... class Quote:
    ...     price: float
    >>> @dataclasses.dataclass
    ... class StockQuote(Quote):
    ...     symbol: str
    >>> event_type_of(StockQuote)
    'Quote.StockQuote'
    """
    known = _names.get(cls)
    if known is None:
        known = _names[cls] = _event_type(cls)
    return known


def _event_type(cls: type) -> str:
    own = cls.__dict__.get("__event_type__")
    if own is None:
        bases = [base for base in cls.__bases__ if _is_record_class(base)]
        if len(bases) > 1:
            raise UnknownEventType(
                f"{cls.__name__} extends several event classes, "
                f"{', '.join(base.__name__ for base in bases)}, but the path of an event type has "
                "one parent; set __event_type__ in the class"
            )
        own = f"{event_type_of(bases[0])}.{cls.__name__}" if bases else cls.__name__
    problem = name_problem(own)
    if problem is not None:
        raise UnknownEventType(f"the event type {shown(own)} of {cls.__name__} {problem}")
    return str(own)


# -- to notifications


def attributes_of(event: Any) -> dict[str, Any]:
    """The fields of an instance, nested ones as mappings.

    >>> @dataclasses.dataclass
    ... class Position:
    ...     x: float
    >>> @dataclasses.dataclass
    ... class Sighting:
    ...     badge: int
    ...     at: Position
    >>> attributes_of(Sighting(7, Position(1.5)))
    {'badge': 7, 'at': {'x': 1.5}}
    """
    return _record(event, 0)


def _record(event: Any, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise InvalidNotification(
            f"the event nests deeper than {_MAX_DEPTH} records, or contains itself"
        )
    return {name: _plain(getattr(event, field), depth) for field, name in _field_names(type(event))}


_BUILT_IN: Final = frozenset({str, int, float, bool, bytes, datetime, type(None)})


def _plain(value: Any, depth: int) -> Any:
    if type(value) in _BUILT_IN:
        return value
    if isinstance(value, Enum):
        return value.value
    if is_event(value):
        return _record(value, depth + 1)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, depth + 1) for each in value] if _has_more(value) else value
    if isinstance(value, Mapping):
        return {name: _plain(each, depth + 1) for name, each in value.items()}
    return value


def _has_more(values: Any) -> bool:
    """Whether some element is not sent as it is."""
    return any(type(each) not in _BUILT_IN for each in values)


def field_names(cls: type) -> set[str]:
    """The names of the attributes that events of a class may have, and of its subclasses."""
    family: Iterator[type[Any]] = _family(cls)
    return {name for each in family for _, name in _field_names(each)}


#: For each class its fields, each with the name under which it is sent.
_fields: WeakKeyDictionary[type, tuple[tuple[str, str], ...]] = WeakKeyDictionary()


def _field_names(cls: type) -> tuple[tuple[str, str], ...]:
    names = _fields.get(cls)
    if names is None:
        found: list[tuple[str, str]]
        if issubclass(cls, msgspec.Struct):
            found = list(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
        elif dataclasses.is_dataclass(cls):
            found = [(field.name, field.name) for field in dataclasses.fields(cls)]
        else:
            models: Any = cls
            found = [(name, field.alias or name) for name, field in models.model_fields.items()]
        names = _fields[cls] = tuple([pair for pair in found if not pair[0].startswith("_")])
    return names


# -- and back


def filter_of(filter: object, where: str | Filter | None = None) -> Filter:
    """The filter that a text, a filter or an event class says, narrowed by another."""
    if is_event_class(filter):
        return class_filter(filter, where)
    from stentor.filters import Filter  # half of what a publisher would load

    if isinstance(filter, str):
        filter = Filter(filter)
    if not isinstance(filter, Filter):
        raise InvalidConfiguration(
            f'{filter!r} is not a filter; give a text such as "price > 100", a Filter, or a class '
            "of events"
        )
    return filter if where is None else filter & filter_of(where)


def class_filter(cls: type, where: str | Filter | None = None) -> Filter:
    """What a subscription to a class, and to a condition on its fields, asks for.

    >>> @dataclasses.dataclass
    ... class Quote:
    ...     price: float
    >>> print(class_filter(Quote, "price > 100"))
    _types has 'Quote' and price > 100
    """
    kind = filter_of("_types has '" + event_type_of(cls).replace("'", "''") + "'")
    return kind if where is None else kind & filter_of(where)


class Reader(Generic[T]):
    """Makes instances of an event class, or of its subclasses, from notifications.

    >>> @dataclasses.dataclass
    ... class Quote:
    ...     symbol: str
    ...     price: float
    >>> Reader(Quote)(Notification({"symbol": "IBM", "price": 120}, type="Quote"))
    Quote(symbol='IBM', price=120.0)
    """

    def __init__(self, cls: type[T]) -> None:
        try:
            msgspec.inspect.type_info(cls)
        except (NameError, TypeError) as error:
            raise UnknownEventType(
                f"{cls.__name__} cannot be subscribed to: {error}; its fields need types that are "
                "known where the class is defined"
            ) from error
        self._cls = cls
        self._makers: dict[str | None, Callable[[Notification], T]] = {}

    def __call__(self, notification: Notification) -> T:
        """The instance; `InvalidNotification` if the attributes do not fit the fields."""
        kind = notification.type
        make = self._makers.get(kind)
        if make is None:
            if len(self._makers) >= 1024:  # a producer that invents types must not fill memory
                self._makers.clear()
            make = self._makers[kind] = _maker(self._class_for(kind))
        return make(notification)

    def _class_for(self, kind: str | None) -> type[T]:
        """The class whose event type is the longest path that leads to this one."""
        leading = [
            cls
            for cls in _family(self._cls)
            if kind is not None and f"{kind}.".startswith(f"{event_type_of(cls)}.")
        ]
        return max(leading, key=lambda cls: len(event_type_of(cls)), default=self._cls)


def _family(cls: type[T]) -> Iterator[type[T]]:
    yield cls
    for subclass in cls.__subclasses__():
        if _is_record_class(subclass):
            yield from _family(subclass)


def _maker(cls: type[T]) -> Callable[[Notification], T]:
    convert: Callable[[dict[str, Any]], T]
    if _is_model(cls):
        model: Any = cls
        convert = model.model_validate
    else:

        def convert(record: dict[str, Any]) -> T:
            return msgspec.convert(record, cls, dec_hook=_model)

    def make(notification: Notification) -> T:
        try:
            return convert(_nested(notification))
        except (msgspec.ValidationError, ValueError) as error:  # pydantic's is a ValueError
            raise InvalidNotification(
                f"{notification.id}: this is not a {cls.__name__}: {error}; "
                "publisher and subscriber use different definitions of the event"
            ) from None

    return make


def _model(cls: type, value: Any) -> Any:
    """A field of a type that msgspec does not know: a model, or what has the type already."""
    if _is_model(cls):
        model: Any = cls
        return model.model_validate(value)
    if isinstance(value, cls):
        return value
    raise msgspec.ValidationError(f"expected {cls.__name__}, got {type(value).__name__}")


def _nested(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as records again, here and in lists."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if type(value) is tuple or type(value) is frozenset:
            value = [_nested(each) if type(each) is Record else each for each in value]
        elif value is NULL:
            value = None
        if "." not in name:
            root[name] = value
            continue
        *path, last = name.split(".")
        record = root
        for segment in path:
            record = record.setdefault(segment, {})
        record[last] = value
    return root
