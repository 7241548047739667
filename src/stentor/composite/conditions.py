"""Conditions across the events of one composite event: `B.price > A.price * 1.1`.

A term is a constant, an attribute of an event (`A.price`: of the A that came last), an aggregate
over all events of a name (`count(F)`, `sum(F.amount)`, `first(F.amount)`), or arithmetic. Terms
without a value (a missing attribute, a string in arithmetic, a division by zero) make every
comparison false, as in filters.

When is a condition tested? Each of the parts that `and` joins is tested by itself, as soon as it
can be decided. A part that mentions an attribute of an event is tested when an event gets one of
its names, once every name in it has events; an event that fails the test is not one of those that
the pattern waits for, and is passed over. A part that only aggregates is tested when the
expression that the condition belongs to is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from stentor.filters.language import format_literal, format_name
from stentor.filters.residual import compared, evaluate
from stentor.model import Notification
from stentor.model.values import value_type_of

#: The events of each name, in the order in which they were taken.
Bindings: TypeAlias = Mapping[str, Sequence[Notification]]


@dataclass(frozen=True, slots=True)
class Value:
    """A constant."""

    value: Any


@dataclass(frozen=True, slots=True)
class Field:
    """`A.price`: of the event that got the name last."""

    name: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`sum(F.amount)` over all events of a name; `count(F)` has no attribute."""

    function: str
    name: str
    attribute: str = ""


@dataclass(frozen=True, slots=True)
class Calculation:
    """`left operator right` with one of `+ - * /`."""

    operator: str
    left: Term
    right: Term


Term: TypeAlias = Value | Field | Aggregate | Calculation


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right` with one of `= != < <= > >=`."""

    operator: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Both:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    part: Condition


Condition: TypeAlias = Comparison | Both | Either | Negation


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """The parts that are tested one by one."""
    if isinstance(condition, Both):
        return tuple(each for part in condition.parts for each in conjuncts(part))
    return (condition,)


def references(condition: Condition | Term) -> Iterator[Field | Aggregate]:
    """All that it says about events."""
    match condition:
        case Field() | Aggregate():
            yield condition
        case Comparison(_, left, right) | Calculation(_, left, right):
            yield from references(left)
            yield from references(right)
        case Both(parts) | Either(parts):
            for part in parts:
                yield from references(part)
        case Negation(part):
            yield from references(part)


def names_in(condition: Condition) -> frozenset[str]:
    return frozenset(each.name for each in references(condition))


def is_final(condition: Condition) -> bool:
    """Whether it only aggregates, and is tested in the end."""
    return all(
        isinstance(each, Aggregate) and each.function not in _PLACES
        for each in references(condition)
    )


def holds(condition: Condition, bindings: Bindings) -> bool:
    """Whether the condition is true of the events.

    >>> n = {"A": [Notification({"x": 1})], "B": [Notification({"x": 3})]}
    >>> holds(Comparison(">", Field("B", "x"), Calculation("*", Field("A", "x"), Value(2))), n)
    True
    """
    match condition:
        case Comparison(operator, left, right):
            return compared(operator, value_of(left, bindings), value_of(right, bindings))
        case Both(parts):
            return all(holds(part, bindings) for part in parts)
        case Either(parts):
            return any(holds(part, bindings) for part in parts)
        case Negation(part):
            return not holds(part, bindings)


def can_be_tested(condition: Condition, bindings: Bindings) -> bool:
    """Whether every name in it has events; `prev` needs two."""
    return all(len(bindings.get(name, ())) >= least for name, least in needs_of(condition))


def needs_of(condition: Condition) -> frozenset[tuple[str, int]]:
    """Of which names there have to be how many events for that."""
    return frozenset(
        (each.name, 2 if isinstance(each, Aggregate) and each.function == "prev" else 1)
        for each in references(condition)
    )


def value_of(term: Term, bindings: Bindings) -> Any:
    """The value of a term; None if it has none."""
    match term:
        case Value(value):
            return value
        case Field(name, attribute):
            found = bindings.get(name, ())
            return found[-1].facts.get(attribute) if found else None
        case Calculation(operator, left, right):
            one, other = value_of(left, bindings), value_of(right, bindings)
            return None if one is None or other is None else evaluate(operator, one, other)
        case Aggregate(function, name, attribute):
            return AGGREGATES[function](bindings.get(name, ()), attribute)


def _numbers(events: Sequence[Notification], attribute: str) -> list[Any]:
    values = (event.facts.get(attribute) for event in events)
    return [v for v in values if v is not None and value_type_of(v) == "number"]


def _sum(events: Sequence[Notification], attribute: str) -> Any:
    total: Any = 0
    for number in _numbers(events, attribute):
        total = evaluate("+", total, number)
        if total is None:
            return None
    return total


def _mean(events: Sequence[Notification], attribute: str) -> Any:
    numbers = _numbers(events, attribute)
    total = _sum(events, attribute)
    return evaluate("/", total, len(numbers)) if numbers and total is not None else None


def _distinct(events: Sequence[Notification], attribute: str) -> int:
    values = (event.facts.get(attribute) for event in events)
    return len({(value_type_of(v), v) for v in values if v is not None})


def _at(place: int) -> Callable[[Sequence[Notification], str], Any]:
    def value(events: Sequence[Notification], attribute: str) -> Any:
        inside = -len(events) <= place < len(events)
        return events[place].facts.get(attribute) if inside else None

    return value


#: Those that mean a single event, like an attribute of it.
_PLACES: Final = {"first": _at(0), "last": _at(-1), "prev": _at(-2)}
AGGREGATES: Final[dict[str, Callable[[Sequence[Notification], str], Any]]] = {
    "count": lambda events, _: len(events),
    "sum": _sum,
    "avg": _mean,
    "min": lambda events, attribute: min(_numbers(events, attribute), default=None),
    "max": lambda events, attribute: max(_numbers(events, attribute), default=None),
    "distinct": _distinct,
    **_PLACES,
}

_LEVELS: Final = {"+": 1, "-": 1, "*": 2, "/": 2}


def format_condition(condition: Condition, level: int = 0) -> str:
    """
    >>> format_condition(Comparison(">", Field("B", "x"), Aggregate("count", "F")))
    'B.x > count(F)'
    """
    match condition:
        case Comparison(operator, left, right):
            return f"{_term(left)} {operator} {_term(right)}"
        case Negation(part):
            return f"not {format_condition(part, 2)}"
        case Both(parts):
            text, own = " and ".join(format_condition(part, 2) for part in parts), 1
        case Either(parts):
            text, own = " or ".join(format_condition(part, 1) for part in parts), 0
    return text if own >= level else f"({text})"


def _term(term: Term, level: int = 0) -> str:
    match term:
        case Value(value):
            return format_literal(value)
        case Field(name, attribute):
            return f"{name}.{format_name(attribute)}"
        case Aggregate(function, name, attribute):
            return f"{function}({name}{'.' + format_name(attribute) if attribute else ''})"
        case Calculation(operator, left, right):
            own = _LEVELS[operator]
            text = f"{_term(left, own)} {operator} {_term(right, own + 1)}"
            return text if own >= level else f"({text})"
