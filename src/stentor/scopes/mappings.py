"""Mappings: what becomes of a notification where it crosses an edge (R-04.40 to R-04.51).

A mapping is a total function from notifications to notifications or None, which is the ε of the
model: blocked. There are two kinds. `ContentMapping` says declaratively what the attributes become,
so it can be read, inverted where that is possible, run in Spark as columns, and filters can be
translated through it. `FunctionMapping` is a function in Python, for all the rest; one that fails
blocks what it failed on.

Neither can change who published something, or its id: these are no part of what a mapping sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

from msgspec import Struct

from stentor.errors import InvalidScopeGraph, StentorError
from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.expression import Arithmetic, Attribute, Constant
from stentor.model import Notification
from stentor.scopes.expressions import Call, Expression, Tables, evaluate, names_in

#: What is no attribute and can be set all the same, and by which parameter of a notification.
SETTABLE: Final = {"_type": "type", "_subject": "subject", "_channel": "channel"}


class ContentMapping(Struct, frozen=True):
    """Attributes that are set, dropped, or kept; all expressions see the notification as it was.

    >>> from stentor.filters.expression import Attribute
    >>> rename = ContentMapping((("price", Attribute("px")),), drop=("px",))
    >>> dict(rename.apply(Notification({"px": 5, "symbol": "IBM"})))
    {'symbol': 'IBM', 'price': 5}
    """

    #: Names, and what each becomes. What has no value becomes absent.
    set: tuple[tuple[str, Expression], ...] = ()
    #: If given, the only old attributes that stay.
    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()

    def apply(self, n: Notification, tables: Tables = {}) -> Notification | None:  # noqa: B006
        facts = n.facts
        content = {
            name: value
            for name, value in n.items()
            if name not in self.drop and (self.keep is None or name in self.keep)
        }
        parts: dict[str, Any] = {}
        for name, expression in self.set:
            value = evaluate(expression, facts, tables)
            if name in SETTABLE:
                parts[SETTABLE[name]] = value if isinstance(value, str) else None
            elif value is None:
                content.pop(name, None)
            else:
                content[name] = value
        try:
            return n.replace(attributes=content, **parts)
        except StentorError:  # nothing is left of it
            return None

    @property
    def reads(self) -> frozenset[str]:
        """All attributes that its expressions look at."""
        return frozenset(name for _, each in self.set for name in names_in(each))

    def touches(self, name: str) -> bool:
        """Whether the attribute may have another value afterwards."""
        facts = {"_types", "_type"} if name in ("_types", "_type") else {name}
        if any(each in facts for each, _ in self.set) or name in self.drop:
            return True
        return self.keep is not None and not name.startswith("_") and name not in self.keep

    def inverse(self) -> ContentMapping | None:
        """The mapping that undoes it, where that can be derived: renaming and linear conversion."""
        if self.keep is not None:
            return None
        back: dict[str, Expression] = {}
        drop: list[str] = []
        for name, expression in self.set:
            solved = _solved(expression, Attribute(name))
            if solved is None or solved[0] in back or name in SETTABLE:
                return None
            back[solved[0]] = solved[1]
            if name != solved[0]:
                drop.append(name)
        # What was dropped must have been carried over under another name, and nothing else.
        if set(self.drop) != set(back) - {name for name, _ in self.set}:
            return None
        return ContentMapping(
            tuple(back.items()), drop=tuple(each for each in drop if each not in back)
        )


class FunctionMapping(Struct, frozen=True):
    """A function from a notification to a notification, or to None to block it.

    It is given as an object or, so that it can be sent and stored, as "module:function".
    """

    function: str | Callable[[Notification], Notification | None]

    def apply(self, n: Notification, tables: Tables = {}) -> Notification | None:  # noqa: B006
        try:
            found = self.call(n)
            return None if found is None else found.replace(id=n.id)
        except Exception:  # whatever it is, the notification does not cross
            return None

    @property
    def call(self) -> Callable[[Notification], Notification | None]:
        """The function itself."""
        return named_function(self.function) if isinstance(self.function, str) else self.function


NotificationMapping: TypeAlias = ContentMapping | FunctionMapping
#: Both directions of an edge; None is the identity.


class EdgeMapping(Struct, frozen=True):
    """How notifications are translated on one edge: upwards and downwards; None is the identity.

    `undo(up)` derives the other direction where that is possible.
    """

    up: NotificationMapping | None = None
    down: NotificationMapping | None = None


_functions: Final[dict[str, Callable[[Notification], Notification | None]]] = {}
_inverses: Final[dict[str, str]] = {}


def register_mapping(
    name: str, function: Callable[[Notification], Notification | None], *, inverse: str = ""
) -> None:
    """Make a function known to scope graphs under a name, and which other one undoes it.

    >>> register_mapping("doc-shout", lambda n: n.replace(attributes={"t": n["t"].upper()}))
    >>> FunctionMapping("doc-shout").apply(Notification({"t": "hi"}))["t"]
    'HI'
    """
    _functions[name] = function
    if inverse:
        _inverses[name], _inverses[inverse] = inverse, name


def is_registered(name: str) -> bool:
    """Whether a function is known under this name."""
    return name in _functions


def named_function(name: str) -> Callable[[Notification], Notification | None]:
    """A registered function, or one that a module has: "module:function"."""
    if name in _functions:
        return _functions[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InvalidScopeGraph(
            f"there is no mapping {name!r}; register it, or write module:function"
        )
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidScopeGraph(f"the mapping {name!r} cannot be loaded: {error}") from None
    if not callable(found):
        raise InvalidScopeGraph(f"{name!r} is not a function")
    return found  # type: ignore[no-any-return]


def undo(mapping: NotificationMapping) -> NotificationMapping | None:
    """The mapping of the opposite direction, if it is known or can be derived (R-05.33)."""
    if isinstance(mapping, ContentMapping):
        return mapping.inverse()
    if isinstance(mapping.function, str) and mapping.function in _inverses:
        return FunctionMapping(_inverses[mapping.function])
    return None


def apply(
    mapping: NotificationMapping | None, n: Notification, tables: Tables
) -> Notification | None:
    return n if mapping is None else mapping.apply(n, tables)


def translated(filter: Filter, mapping: NotificationMapping | None) -> Filter:
    """A filter for what is not mapped yet: it matches whatever `filter` matches once mapped.

    It may match more; the exact test is made behind the mapping (R-04.49, 04/P18).

    >>> double = ContentMapping((("x", Arithmetic("*", Attribute("x"), Constant(2))),))
    >>> print(translated(Filter("x > 4 and symbol = 'IBM'"), double))
    symbol = 'IBM'
    """
    if mapping is None:
        return filter
    if isinstance(mapping, FunctionMapping):
        return Filter()
    return Filter.of_conjuncts(
        Conjunct(
            {k: v for k, v in each.constraints.items() if not mapping.touches(k)},
            frozenset(r for r in each.residuals if not any(map(mapping.touches, r.names))),
        )
        for each in filter.conjuncts
    )


def _solved(expression: Expression, result: Expression) -> tuple[str, Expression] | None:
    """The one attribute of a linear expression, and what it is in terms of the result."""
    match expression:
        case Attribute(name):
            return name, result
        case Arithmetic("+", inner, Constant(value)) | Arithmetic("+", Constant(value), inner):
            return _solved(inner, Arithmetic("-", _term(result), Constant(value)))
        case Arithmetic("-", inner, Constant(value)):
            return _solved(inner, Arithmetic("+", _term(result), Constant(value)))
        case Arithmetic("-", Constant(value), inner):
            return _solved(inner, Arithmetic("-", Constant(value), _term(result)))
        case Arithmetic("*", inner, Constant(value)) | Arithmetic("*", Constant(value), inner):
            return (
                _solved(inner, Arithmetic("/", _term(result), Constant(value))) if value else None
            )
        case Arithmetic("/", inner, Constant(value)):
            return (
                _solved(inner, Arithmetic("*", _term(result), Constant(value))) if value else None
            )
    return None


def _term(expression: Expression) -> Any:
    """Arithmetic of filters is typed without calls; ours may hold them."""
    return expression


def mapping_of(
    set: Mapping[str, Expression | Any] | None = None,
    *,
    rename: Mapping[str, str] | None = None,
    keep: Iterable[str] | None = None,
    drop: Iterable[str] = (),
) -> ContentMapping:
    """A mapping from plain parts: values that are no expressions are constants.

    >>> to_market = mapping_of({"currency": "EUR"}, rename={"px": "price"})
    >>> dict(to_market.apply(Notification({"px": 5})))
    {'price': 5, 'currency': 'EUR'}
    """
    pairs: list[tuple[str, Expression]] = [
        (new, Attribute(old)) for old, new in (rename or {}).items()
    ]
    for name, value in (set or {}).items():
        plain = not isinstance(value, (Attribute, Constant, Arithmetic, Call))
        pairs.append((name, Constant(value) if plain else value))
    new = {name for name, _ in pairs}
    gone = [old for old in (rename or {}) if old not in new]
    return ContentMapping(tuple(pairs), None if keep is None else tuple(keep), (*drop, *gone))
