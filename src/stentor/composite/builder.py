"""Patterns built in Python (R-06.22): `eventA.after(eventB.repeated(3))` is B, B, B, then A.

An `Event` names a filter, or another pattern. Methods combine expressions and carry along what the
names in them stand for; `pattern()` makes the value that detectors take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from stentor.composite import expressions as e
from stentor.composite.intervals import micros_of
from stentor.composite.parser import absence, parse_pattern
from stentor.composite.pattern import Pattern
from stentor.errors import InvalidPattern
from stentor.filters import Filter


class Built:
    """An expression, and what its names stand for.

    >>> fails, lockout = Event("F", "type = 'login_failed'"), Event("L", "type = 'lockout'")
    >>> print(lockout.after(fails.repeated(3)).within("1m").pattern(partition_by=["account"]))
    F{3} ; L within 1m partition by account
    """

    def __init__(
        self, expression: e.Expression, events: Mapping[str, str | Filter | Pattern]
    ) -> None:
        self.expression = expression
        self.events = dict(events)

    def _with(self, other: Built, expression: e.Expression) -> Built:
        for name in self.events.keys() & other.events.keys():
            if self.events[name] != other.events[name]:
                raise InvalidPattern(f"two different events are called {name}; rename one of them")
        return Built(expression, {**self.events, **other.events})

    def followed_by(self, other: Built, within: str | float | timedelta | None = None) -> Built:
        """The other one strictly after this one, and within that time if one is given."""
        if within is None:
            return self._with(other, e.Sequence(self.expression, other.expression))
        made = e.Deadline(self.expression, other.expression, micros_of(within))
        return self._with(other, made)

    def not_followed_by(self, other: Built, within: str | float | timedelta) -> Built:
        """This one, and then none of the other for that time."""
        if not isinstance(other.expression, e.Atom) or other.expression.negated:
            raise InvalidPattern("only a single event can be absent")
        return self._with(other, absence(self.expression, other.expression, micros_of(within)))

    def after(self, other: Built) -> Built:
        """This one strictly after the other."""
        return other.followed_by(self)

    def loosely_after(self, other: Built) -> Built:
        """This one after the other in weak order: their intervals may overlap."""
        return other._with(self, e.Concatenation(other.expression, self.expression))

    def __or__(self, other: Built) -> Built:
        return self._with(other, e.Alternation(self.expression, other.expression))

    def __and__(self, other: Built) -> Built:
        """Both, in any order."""
        return self._with(other, e.Parallel(self.expression, other.expression))

    def repeated(
        self, least: int = 1, most: int | None = -1, distinct_by: str | None = None
    ) -> Built:
        """So many times; `most=None` is without a limit, and left out it is `least`."""
        made: e.Expression = e.Iteration(self.expression, least, least if most == -1 else most)
        if distinct_by is not None:
            made = e.Distinct(made, distinct_by)
        return Built(made, self.events)

    def within(self, time: str | float | timedelta) -> Built:
        """All of it in that time after its first event."""
        return Built(e.Within(self.expression, micros_of(time)), self.events)

    def where(self, condition: str) -> Built:
        """Only events for which the condition holds, written as in the language."""
        inner = parse_pattern(f"E where {condition}").expression
        if not isinstance(inner, e.Where) or inner.body != e.Atom(("E",), ("E",)):
            raise InvalidPattern(f"{condition!r} is not a condition by itself")
        return Built(e.Where(self.expression, inner.condition), self.events)

    def pattern(
        self, *, partition_by: str | Iterable[str] = (), name: str | None = None
    ) -> Pattern:
        """The pattern as a value."""
        return Pattern(self.expression, self.events, partition=partition_by, name=name)


def Event(name: str, meaning: str | Filter | Pattern) -> Built:  # noqa: N802
    """An event by its name, as it stands in expressions."""
    return Built(e.Atom((name,), (name,)), {name: meaning})
