"""Filters tested directly: for those that are few, or too new to be compiled.

A filter is taken apart into *conditions*, each on one attribute, that can be tested on a single
value or on a whole column. In a batch the first condition of a conjunct picks the rows that satisfy
it, and each further one only looks at what is left; so the cheapest come first, equalities with a
string before all others, as they usually leave nothing. Comparisons with numbers and strings are
plain Python comparisons if the column holds nothing else. For all that has no quick form (sets of
many pieces, collections, patterns, comparisons between attributes) the filter itself is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint
from stentor.filters.ranges import Ranges
from stentor.matching.index.columns import Row, RowSource, Source

Holds = Callable[[Any], bool]
#: From the values of a column, all of a suitable type, to the rows that satisfy a comparison.
Pick = Callable[[Sequence[Any]], list[int]]

_NUMBERS: Final = frozenset({int, float})
_STRINGS: Final = frozenset({str})


class Condition(NamedTuple):
    """What a conjunct says about one attribute, or half of it (a lower or an upper end)."""

    name: str
    #: Whether it is satisfied if there is no value.
    absent: bool
    #: Whether a value satisfies it, of whatever type it is.
    holds: Holds
    #: The rows that satisfy it in a column that holds no other types than `kinds`.
    pick: Pick | None = None
    kinds: frozenset[type] = frozenset()
    #: The lowest are tested first.
    cost: int = 2


class Direct:
    """One filter, ready to be tested."""

    __slots__ = ("_filter", "_ways")

    def __init__(self, filter: Filter) -> None:
        self._filter = filter
        self._ways: list[list[Condition] | Conjunct] | None = None

    @property
    def ways(self) -> list[list[Condition] | Conjunct]:
        """The conjuncts; one with comparisons between attributes stays as it is."""
        if self._ways is None:
            self._ways = [_conditions(conjunct) for conjunct in self._filter.conjuncts]
        return self._ways

    def matches(self, facts: Mapping[str, Any]) -> bool:
        """Whether a notification that says this, in normal values, matches."""
        for way in self._ways or self.ways:
            if isinstance(way, Conjunct):
                if way.matches(facts):
                    return True
                continue
            for condition in way:
                value = facts.get(condition[0])
                if not (condition[1] if value is None else condition[2](value)):
                    break
            else:
                return True
        return False

    def rows(self, source: Source) -> list[int]:
        """The rows of a batch that match, ascending."""
        ways = self.ways
        if len(ways) == 1:
            return self._rows(ways[0], source)
        return sorted({row for way in ways for row in self._rows(way, source)})

    def _rows(self, way: list[Condition] | Conjunct, source: Source) -> list[int]:
        if isinstance(way, Conjunct):
            names = self._filter.names
            return [row for row in range(source.count) if way.matches(source.facts(row, names))]
        rows: list[int] | None = None
        for name, absent, holds, pick, kinds, _ in way:
            found = source.objects(name)
            if found is None:  # no notification has it
                if not absent:
                    return []
                continue
            values, present = found
            if rows is not None:
                if absent:
                    rows = [i for i in rows if (v := values[i]) is None or holds(v)]
                else:
                    rows = [i for i in rows if (v := values[i]) is not None and holds(v)]
            elif pick is not None and present <= kinds:
                rows = pick(values)
            elif absent:
                rows = [i for i, v in enumerate(values) if v is None or holds(v)]
            else:
                rows = [i for i, v in enumerate(values) if v is not None and holds(v)]
            if not rows:
                return rows
        return list(range(source.count)) if rows is None else rows


def select(filter: Filter, events: Sequence[Row]) -> list[int]:
    """The indexes of the events that a single filter matches.

    >>> select(Filter("x > 1"), [{"x": 1}, {"x": 2}, {"y": 2}, {"x": 3}])
    [1, 3]
    """
    return Direct(filter).rows(RowSource(events, filter.names))


# -- conditions


def _conditions(conjunct: Conjunct) -> list[Condition] | Conjunct:
    if conjunct.residuals:
        return conjunct
    found = [c for item in conjunct.constraints.items() for c in _of_constraint(*item)]
    return sorted(found, key=lambda condition: condition.cost)


def _of_constraint(name: str, constraint: Constraint) -> list[Condition]:
    if len(constraint.parts) == 1 and not (constraint.rest or constraint.absent):
        type_name, part = constraint.parts[0]
        if isinstance(part, Ranges):
            if type_name == "number":
                return _of_numbers(name, part) or [_of_any(name, constraint)]
            if type_name == "string" and part.values is not None and len(part.values) == 1:
                return [_of_text(name, part.values[0])]
    return [_of_any(name, constraint)]


def _of_any(name: str, constraint: Constraint) -> Condition:
    return Condition(name, constraint.absent, constraint.accepts)


def _of_text(name: str, text: str) -> Condition:
    def holds(value: Any) -> bool:
        return type(value) is str and value == text

    def pick(values: Sequence[Any]) -> list[int]:
        if text not in values:  # the usual answer, found without a step of the interpreter
            return []
        return [i for i, v in enumerate(values) if v == text]

    return Condition(name, False, holds, pick, _STRINGS, 0)


def _of_numbers(name: str, numbers: Ranges) -> list[Condition]:
    """A number, an interval or one end of one; nothing for any other set."""
    pieces = numbers.pieces
    if len(pieces) != 1:
        return []
    low, high = pieces[0]
    if low is not None and high is not None and low[0] == high[0]:
        return [_compared(name, "=", low[0], 1)]
    found: list[Condition] = []
    if low is not None:
        found.append(_compared(name, ">" if low[1] else ">=", low[0], 1))
    if high is not None:
        found.append(_compared(name, "<=" if high[1] else "<", high[0], 1))
    return found


def _compared(name: str, operator: str, end: float, cost: int) -> Condition:
    holds, pick = _COMPARED[operator](end)
    return Condition(name, False, holds, pick, _NUMBERS, cost)


# Python compares integers and floats by their mathematical values, which is what filters mean.
# Booleans are instances of `int`, which filters do not mean: hence the exact types.


def _equal(end: float) -> tuple[Holds, Pick]:
    return (
        lambda v: type(v) in _NUMBERS and v == end,
        lambda values: [i for i, v in enumerate(values) if v == end],
    )


def _above(end: float) -> tuple[Holds, Pick]:
    return (
        lambda v: type(v) in _NUMBERS and v > end,
        lambda values: [i for i, v in enumerate(values) if v > end],
    )


def _from(end: float) -> tuple[Holds, Pick]:
    return (
        lambda v: type(v) in _NUMBERS and v >= end,
        lambda values: [i for i, v in enumerate(values) if v >= end],
    )


def _below(end: float) -> tuple[Holds, Pick]:
    return (
        lambda v: type(v) in _NUMBERS and v < end,
        lambda values: [i for i, v in enumerate(values) if v < end],
    )


def _up_to(end: float) -> tuple[Holds, Pick]:
    return (
        lambda v: type(v) in _NUMBERS and v <= end,
        lambda values: [i for i, v in enumerate(values) if v <= end],
    )


_COMPARED: Final = {"=": _equal, ">": _above, ">=": _from, "<": _below, "<=": _up_to}
