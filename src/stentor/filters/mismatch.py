"""Why a filter does not match: which of its parts hold, and what an event says instead.

A filter is a union of alternatives, each of which asks something of several attributes. An event
that matches none fails each of them somewhere. Whoever wonders why wants to know the alternatives
that were nearest, so those that fail in the fewest places come first.

To find these costs about what matching does. To put one into words costs more, above all to guess
which name was meant. So that is done of those that are shown only, part by part (`asked`), and
names are only guessed where they are few and short.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import ceil, floor, isfinite
from operator import itemgetter
from typing import Any, Final

from stentor.errors import InvalidNotification
from stentor.filters.collection import CollectionSet
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.describe import constraint_expression
from stentor.filters.expression import Atom, Expression
from stentor.filters.facts import facts_of
from stentor.filters.filter import Filter
from stentor.filters.language.printer import format_expression, format_literal
from stentor.filters.records import Records
from stentor.filters.unordered import plain
from stentor.filters.witness import witness
from stentor.model.notification import Notification
from stentor.model.record import Record
from stentor.model.values import COLLECTION, RECORD, value_type_of


@dataclass(frozen=True)
class Asked:
    """One thing that an alternative asks for, in the words of the language."""

    text: str
    holds: bool
    #: What the event says about it.
    found: str


def alternatives(filter: Filter, event: Notification | Mapping[str, Any]) -> list[list[Asked]]:
    """What each alternative of the filter asks for, the nearest to a match first.

    >>> for asked in alternatives(Filter("price > 100 and symbol = 'IBM'"), {"price": 99})[0]:
    ...     print(asked)
    Asked(text='price > 100', holds=False, found='price is 99')
    Asked(text="symbol = 'IBM'", holds=False, found="there is no 'symbol'")
    """
    return [list(asked(conjunct, event)) for _, conjunct in ranked(filter, event)]


def ranked(filter: Filter, event: Notification | Mapping[str, Any]) -> list[tuple[int, Conjunct]]:
    """The alternatives of the filter, each behind the number of its parts that fail, by that.

    >>> [count for count, _ in ranked(Filter("x = 1 and y = 1 or x = 2"), {"x": 2, "y": 2})]
    [0, 2]
    """
    facts = facts_of(event, {name for conjunct in filter.conjuncts for name in _names(conjunct)})
    found = [(_failing(conjunct, facts), conjunct) for conjunct in filter.conjuncts]
    return sorted(found, key=itemgetter(0))


#: Alternatives for which an event that satisfies them is looked for.
_TRIED: Final = 8


def nearest(filter: Filter, event: Notification) -> Notification | None:
    """The event with as little changed as makes it match; None if no such change was found.

    >>> nearest(Filter("price > 100 and symbol = 'IBM'"), Notification({"price": 99}))
    Notification({'price': 101, 'symbol': 'IBM'})
    """
    for _, conjunct in ranked(filter, event)[:_TRIED]:
        changed = _satisfying(conjunct, event)
        if changed is not None and filter.matches(changed):
            return changed
    return None


#: What a notification has beside its attributes, under the names that filters have for it.
_PARTS: Final = {"_types": "type", "_subject": "subject", "_channel": "channel"}


def _satisfying(conjunct: Conjunct, event: Notification) -> Notification | None:
    """The event with another value for each constraint that it fails, where one is known."""
    attributes = dict(event)
    parts: dict[str, Any] = {}
    for name, constraint in conjunct.constraints.items():
        value = event.facts.get(name)
        if _holds(constraint, value):
            continue
        found = witness(constraint)
        if found is None or (name.startswith("_") and name not in _PARTS):
            return None
        new = _agreeable(constraint, value, plain(found[1])) if isinstance(found, tuple) else None
        if name in _PARTS:
            parts[_PARTS[name]] = max(new, key=len) if name == "_types" and new else new
        elif new is None:
            attributes.pop(name, None)
        else:
            attributes[name] = new
    try:
        return event.replace(attributes=attributes, **parts)
    except InvalidNotification:  # nothing is left, or both `a` and `a.b` are asked for
        return None


def _agreeable(constraint: Constraint, old: Any, new: Any) -> Any:
    """A value that the constraint accepts, with what the old one has, and easy to read."""
    new = _readable(new, constraint.accepts)
    if type(new) is tuple and type(old) in (tuple, frozenset):
        both = old + new if type(old) is tuple else old.union(new)
        return both if constraint.accepts(both) else new
    return new


def _readable(value: Any, accepts: Callable[[Any], bool]) -> Any:
    """The value, or one like it that is shorter to write and accepted as well."""
    kind = type(value)
    if kind is tuple:
        for i, element in enumerate(value):
            before, after = value[:i], value[i + 1 :]
            new = _readable(element, lambda v, b=before, a=after: accepts((*b, v, *a)))  # type: ignore[misc]
            value = (*before, new, *after)
    elif kind is Record:
        for name, field in value.items():
            others = dict(value)
            new = _readable(field, lambda v, n=name, o=others: accepts(Record(o | {n: v})))  # type: ignore[misc]
            value = Record(others | {name: new})
    return next((v for v in _shorter(value) if accepts(v)), value)


def _shorter(value: Any) -> Iterator[Any]:
    if type(value) is float and isfinite(value):
        yield ceil(value)
        yield floor(value)
        for digits in range(1, 16):
            yield round(value + 10**-digits / 2, digits)
            yield round(value - 10**-digits / 2, digits)
    elif type(value) is str and "\0" in value:
        yield value.replace("\0", "a")


def _names(conjunct: Conjunct) -> set[str]:
    return set(conjunct.constraints).union(*(r.names for r in conjunct.residuals))


def _holds(constraint: Constraint, value: Any) -> bool:
    return constraint.absent if value is None else constraint.accepts(value)


def _failing(conjunct: Conjunct, facts: Mapping[str, Any]) -> int:
    return sum(
        not _holds(constraint, facts.get(name)) for name, constraint in conjunct.constraints.items()
    ) + sum(not residual.holds(facts) for residual in conjunct.residuals)


def asked(conjunct: Conjunct, event: Notification | Mapping[str, Any]) -> Iterator[Asked]:
    """What one alternative asks for, part by part."""
    facts = facts_of(event, _names(conjunct))
    known = list(event)
    for name, constraint in conjunct.constraints.items():
        value = facts.get(name)
        text = format_expression(_expression(name, constraint))
        holds = _holds(constraint, value)
        wanted = [type_name for type_name, _ in constraint.parts]
        said = _said(name, value, known, [] if holds else wanted)
        if not holds and type(value) is tuple:
            said += _about_elements(constraint, value)
        yield Asked(text, holds, said)
    for residual in sorted(conjunct.residuals, key=repr):
        said = ", ".join(_said(name, facts.get(name), known) for name in sorted(residual.names))
        yield Asked(format_expression(residual.compare), residual.holds(facts), said)


def _expression(name: str, constraint: Constraint) -> Expression:
    """The constraint in words; one that asks for an event type and those above it by that type."""
    found = witness(constraint) if name == "_types" else None
    if isinstance(found, tuple) and found[1]:
        atom = Atom(name, "isa", (max(found[1], key=len),))
        if Filter.of_expression(atom).conjuncts[0].constraints == {name: constraint}:
            return atom
    return constraint_expression(name, constraint)


#: Elements of a list among which the nearest to what is asked for is looked for.
_EXAMINED: Final = 100


def _about_elements(constraint: Constraint, elements: Iterable[Any]) -> str:
    """Which record in a list fails, or comes nearest to what one of them should be, and where."""
    part = constraint.part(COLLECTION)
    if not isinstance(part, CollectionSet) or len(part.cells) != 1:
        return ""
    universe, hits = part.cells[0].key
    numbered = enumerate(islice(elements, _EXAMINED), 1)
    records = [(number, each) for number, each in numbered if type(each) is Record]
    for number, record in records:
        if not universe.accepts(record):
            return f"; element {number} fails: {_failed(universe, record)[1]}"
    for hit in hits:
        ranks = [(*_failed(hit, record), number) for number, record in records]
        if ranks and all(count for count, _, _ in ranks):
            _, said, number = min(ranks, key=itemgetter(0))
            return f"; element {number} is nearest: {said}"
    return ""


def _failed(constraint: Constraint, record: Record) -> tuple[int, str]:
    """How many parts of the nearest alternative a record fails, and what it says there."""
    part = constraint.part(RECORD)
    if not isinstance(part, Records) or not part.conjuncts or constraint.accepts(record):
        return int(not constraint.accepts(record)), _shown(record)
    ways = ((_failing(way, facts_of(record, _names(way))), way) for way in part.conjuncts)
    count, nearest = min(ways, key=itemgetter(0))
    return count, ", ".join(each.found for each in asked(nearest, record) if not each.holds)


#: Names of an event among which the one that was meant is looked for, and their length.
_GUESSED: Final = 100
_GUESSED_LENGTH: Final = 40


def _said(name: str, value: Any, known: list[str], wanted: list[str] | None = None) -> str:
    """What the event says under this name, and how it differs in kind from what is wanted."""
    if name == "_types":
        return "it has no event type" if value is None else f"its event type is {_shown(value)}"
    if value is None:
        near = []
        if len(known) <= _GUESSED and len(name) <= _GUESSED_LENGTH:
            others = [o for o in known if o != name and len(o) <= _GUESSED_LENGTH]
            near = difflib.get_close_matches(name, others, n=1)
        return f"there is no {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    said = f"{name} is {_shown(value)}"
    kind = value_type_of(value)
    if wanted and kind not in wanted:
        said += f", a {kind} and not a {' or a '.join(wanted)}"
    return said


#: Elements of a list that are shown.
_SHOWN: Final = 5


def _shown(value: Any) -> str:
    """The value in the words of the language, of a list the first elements."""
    if type(value) is Record:
        return f"{{{', '.join(f'{name}: {_shown(field)}' for name, field in value.items())}}}"
    if value_type_of(value) != COLLECTION:
        return format_literal(value)
    elements = [_shown(element) for element in list(value)[:_SHOWN]]
    more = [f"and {len(value) - _SHOWN:,} more"] if len(value) > _SHOWN else []
    return f"[{', '.join([*elements, *more])}]"
