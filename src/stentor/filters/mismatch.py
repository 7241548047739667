"""Why a filter does not match: which of its parts hold, and what an event says instead.

A filter is a union of alternatives, each of which asks something of several attributes. An event
that matches none fails each of them somewhere. Whoever wonders why wants to know the alternatives
that were nearest, so those that fail in the fewest places come first.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stentor.filters.conjunct import Conjunct
from stentor.filters.describe import constraint_expression
from stentor.filters.facts import facts_of
from stentor.filters.filter import Filter
from stentor.filters.language.printer import format_expression, format_literal
from stentor.model.notification import Notification
from stentor.model.record import Record
from stentor.model.values import COLLECTION, value_type_of


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
    names = {name for conjunct in filter.conjuncts for name in _names(conjunct)}
    facts = facts_of(event, names)
    known = list(event)
    found = [_asked(conjunct, facts, known) for conjunct in filter.conjuncts]
    return sorted(found, key=lambda parts: sum(not part.holds for part in parts))


def _names(conjunct: Conjunct) -> set[str]:
    return set(conjunct.constraints).union(*(r.names for r in conjunct.residuals))


def _asked(conjunct: Conjunct, facts: Mapping[str, Any], known: list[str]) -> list[Asked]:
    parts = []
    for name, constraint in conjunct.constraints.items():
        value = facts.get(name)
        text = format_expression(constraint_expression(name, constraint))
        holds = constraint.absent if value is None else constraint.accepts(value)
        wanted = [type_name for type_name, _ in constraint.parts]
        parts.append(Asked(text, holds, _said(name, value, known, [] if holds else wanted)))
    for residual in sorted(conjunct.residuals, key=repr):
        said = ", ".join(_said(name, facts.get(name), known) for name in sorted(residual.names))
        parts.append(Asked(format_expression(residual.compare), residual.holds(facts), said))
    return parts


def _said(name: str, value: Any, known: list[str], wanted: list[str] | None = None) -> str:
    """What the event says under this name, and how it differs in kind from what is wanted."""
    if value is None:
        near = difflib.get_close_matches(name, [each for each in known if each != name], n=1)
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
