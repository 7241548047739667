"""A workload: filters and events, each in every form that somebody may want to start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

#: `[attribute, operator, value]`; all of a filter's constraints must hold.
Constraints = list[list[Any]]
Event = dict[str, Any]

#: Operators whose value is a list in parentheses.
LISTED = ("in", "overlaps")


@dataclass(frozen=True)
class Workload:
    """Filters as constraint lists and events as plain dictionaries; the rest is derived."""

    name: str
    about: str
    constraints: list[Constraints]
    events: list[Event]

    def texts(self) -> Iterator[str]:
        """The filters in the subscription language."""
        return map(text_of, self.constraints)

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """The events as Arrow columns; null where an event lacks the attribute."""
        names = dict.fromkeys(name for event in self.events for name in event)
        columns = {name: pa.array([event.get(name) for event in self.events]) for name in names}
        return pa.record_batch(columns)


def text_of(constraints: Constraints) -> str:
    """A constraint list in the subscription language.

    >>> text_of([["symbol", "=", "IBM"], ["price", "between", [1, 2.5]], ["tag", "in", ["a"]]])
    "symbol = 'IBM' and price between 1 and 2.5 and tag in ('a')"
    """
    return " and ".join([_condition(*constraint) for constraint in constraints])


def _condition(name: str, operator: str, value: Any) -> str:
    if operator == "between":
        return f"{name} between {_literal(value[0])} and {_literal(value[1])}"
    if operator in LISTED:
        return f"{name} {operator} ({', '.join(map(_literal, value))})"
    return f"{name} {operator} {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
