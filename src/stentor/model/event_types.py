"""Event types: a tree by their names, a lattice by declaration.

The name of an event type is a path. Without any declaration `quote.stock` is a kind of `quote`,
because its name says so: its parent is the path without the last segment. Whole segments count, so
`Stock` has nothing to do with `StockQuote`. A declaration adds what a path cannot say: further
parents (multiple inheritance), the attributes that events of the type may carry, and whether the
type is abstract. Types need no declaration, and a parent may be declared after its children.

The registry keeps two promises. There are no cycles: every declaration adds edges from one type
only, so a cycle exists exactly when that type is already an ancestor of one of its new parents.
And the attributes of a type include those of all its supertypes (R-02.22): a name has one value
type along every line of descent, and a declaration that would break this is refused and leaves the
registry as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stentor.errors import InvalidNotification, UnknownEventType
from stentor.model.names import RESERVED, name_problem, shown
from stentor.model.values import COLLECTION, value_type_names, value_type_of

if TYPE_CHECKING:
    from stentor.model.notification import Notification

_MAX_CACHED: Final = 4096


@dataclass(frozen=True, slots=True)
class EventType:
    """One declaration. `attributes` holds what this type adds, not what it inherits."""

    name: str
    parents: frozenset[str]
    attributes: Mapping[str, str] = field(hash=False)
    abstract: bool


class EventTypes:
    """A registry of event types.

    >>> types = EventTypes()
    >>> types.is_subtype("quote.stock", "quote"), types.is_subtype("StockQuote", "Stock")
    (True, False)
    >>> _ = types.declare("alert", attributes={"severity": "number"})
    >>> _ = types.declare("quote.halt", parents=["alert"], attributes={"symbol": "string"})
    >>> sorted(types.ancestors("quote.halt"))
    ['alert', 'quote', 'quote.halt']
    >>> sorted(types.attributes("quote.halt"))
    ['severity', 'symbol']
    """

    def __init__(self) -> None:
        self._declared: dict[str, EventType] = {}
        self._ancestors: dict[str, frozenset[str]] = {}
        self._lock = Lock()

    def declare(
        self,
        name: str,
        parents: Iterable[str] = (),
        attributes: Mapping[str, str] | None = None,
        abstract: bool = False,
    ) -> EventType:
        """Say more about an event type than its name does.

        `attributes` maps names to value types: "number", "string", ..., or "collection". Declaring
        the same thing twice is harmless; anything else about a declared type is an error.
        """
        own = MappingProxyType(dict(attributes or {}))
        declaration = EventType(name, _parents(parents), own, abstract)
        _check_declaration(declaration)
        with self._lock:
            known = self._declared.get(name)
            if known == declaration:
                return known
            if known is not None:
                raise UnknownEventType(
                    f"the event type {shown(name)} is already declared, and differently; "
                    "declare a type once, with all its parents and attributes"
                )
            for parent in sorted(declaration.parents):
                if name in _closure(self._declared, parent):
                    raise UnknownEventType(
                        f"{shown(parent)} cannot be a parent of {shown(name)}: "
                        "it is already one of its subtypes"
                    )
            declared = {**self._declared, name: declaration}
            for other in declared:
                if name in _closure(declared, other):
                    _inherited(declared, other)
            # Readers take no lock: they see the old registry or the new one, each with its cache.
            self._declared, self._ancestors = declared, {}
        return declaration

    @property
    def declared(self) -> tuple[str, ...]:
        """The names of all types that were declared."""
        return tuple(self._declared)

    def ancestors(self, name: str) -> frozenset[str]:
        """The type and all its supertypes."""
        cache = self._ancestors
        found = cache.get(name)
        if found is None:
            declared = self._declared
            problem = name_problem(name)
            if problem is not None:
                raise UnknownEventType(f"the event type {shown(name)} {problem}")
            found = _closure(declared, name)
            if cache is self._ancestors:  # no declaration came in between
                if len(cache) >= _MAX_CACHED:
                    cache.clear()
                cache[name] = found
        return found

    def is_subtype(self, name: str, of: str) -> bool:
        """Whether every event of the first type is also one of the second. A type is its own."""
        return of in self.ancestors(name)

    def declarations(self) -> tuple[EventType, ...]:
        """Everything that was declared."""
        return tuple(self._declared.values())

    def declaration(self, name: str) -> EventType | None:
        """What was declared about the type itself, or None."""
        return self._declared.get(name)

    def attributes(self, name: str) -> dict[str, str]:
        """The declared attributes of a type and of all its supertypes, with their value types."""
        return _inherited(self._declared, name)

    def check(self, notification: Notification, *, strict: bool = False) -> None:
        """Raise unless the notification is a legal event of its type.

        A declared attribute has the declared value type, if it is there at all; no event has an
        abstract type. When `strict`, the type must be declared and so must every attribute.

        >>> from stentor.model import Notification
        >>> types = EventTypes()
        >>> _ = types.declare("quote", attributes={"price": "number"})
        >>> types.check(Notification({"price": 9.5}, type="quote"))
        >>> types.check(Notification({"price": "high"}, type="quote"))
        Traceback (most recent call last):
        ...
        stentor.errors.InvalidNotification: 'price' of event type 'quote' is a string; declared \
as number
        """
        name = notification.type
        if name is None:
            if strict:
                raise UnknownEventType("the notification has no event type; pass type=... to it")
            return
        declaration = self._declared.get(name)
        if declaration is None and strict:
            raise UnknownEventType(f"the event type {shown(name)} was never declared")
        if declaration is not None and declaration.abstract:
            raise InvalidNotification(
                f"the event type {shown(name)} is abstract; publish one of its subtypes"
            )
        declared = self.attributes(name)
        for attribute, value in notification.items():
            expected = declared.get(attribute)
            if expected is None:
                if strict:
                    raise InvalidNotification(
                        f"{shown(attribute)} is not a declared attribute of the event type "
                        f"{shown(name)}"
                    )
            elif value_type_of(value) != expected:
                raise InvalidNotification(
                    f"{shown(attribute)} of event type {shown(name)} is a "
                    f"{value_type_of(value)}; declared as {expected}"
                )

    def known(self) -> frozenset[str]:
        """The types that were declared, and all that these descend from."""
        declared = self._declared
        return frozenset().union(*(_closure(declared, name) for name in declared))


def _path_parent(name: str) -> str | None:
    parent, dot, _ = name.rpartition(".")
    return parent if dot else None


def _direct_parents(declared: Mapping[str, EventType], name: str) -> frozenset[str]:
    path_parent = _path_parent(name)
    parents = frozenset() if path_parent is None else frozenset([path_parent])
    declaration = declared.get(name)
    return parents if declaration is None else parents | declaration.parents


def _closure(declared: Mapping[str, EventType], name: str) -> frozenset[str]:
    found = {name}
    pending = [name]
    while pending:
        new = _direct_parents(declared, pending.pop()) - found
        found |= new
        pending.extend(new)
    return frozenset(found)


def _inherited(declared: Mapping[str, EventType], name: str) -> dict[str, str]:
    """The attributes of a type and its supertypes, or an error if two of them disagree."""
    merged: dict[str, str] = {}
    source: dict[str, str] = {}
    for ancestor in sorted(_closure(declared, name)):
        declaration = declared.get(ancestor)
        if declaration is None:
            continue
        for attribute, value_type in declaration.attributes.items():
            if merged.setdefault(attribute, value_type) != value_type:
                raise UnknownEventType(
                    f"the event type {shown(name)} would have {shown(attribute)} twice: "
                    f"a {merged[attribute]} from {shown(source[attribute])} and "
                    f"a {value_type} from {shown(ancestor)}; rename one"
                )
            source.setdefault(attribute, ancestor)
    return merged


def _parents(parents: Iterable[str]) -> frozenset[str]:
    if isinstance(parents, str):  # a string is iterable, but never meant as its letters
        return frozenset([parents])
    return frozenset(parents)


def _check_declaration(declaration: EventType) -> None:
    for name in (declaration.name, *declaration.parents):
        problem = name_problem(name)
        if problem is not None:
            raise UnknownEventType(f"the event type {shown(name)} {problem}")
    known = {*value_type_names(), COLLECTION}
    for attribute, value_type in declaration.attributes.items():
        problem = name_problem(attribute)
        if problem is not None:
            raise UnknownEventType(f"the attribute name {shown(attribute)} {problem}")
        if attribute.startswith("_"):
            hint = " and set by the system" if attribute in RESERVED else "; rename it"
            raise UnknownEventType(f"the attribute name {shown(attribute)} is reserved{hint}")
        if value_type not in known:
            raise UnknownEventType(
                f"{shown(attribute)} is declared as {shown(value_type)}, "
                f"which is not a value type; known: {', '.join(sorted(known))}"
            )


#: The registry that notifications consult for their supertypes.
event_types: Final = EventTypes()
