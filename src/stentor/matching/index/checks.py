"""Checks: what boxes leave open, decided on the candidates that are left.

A check looks at one attribute (a constraint that no box can express) or at several (a residual). On
strings, the common tests are turned into plain functions once, because a batch may bring hundreds
of thousands of candidates; tests that take long are made once for each distinct value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from stentor.filters.collection import CollectionSet
from stentor.filters.constraint import Constraint
from stentor.filters.domains import STRING
from stentor.filters.patterns import Pattern
from stentor.filters.residual import Residual
from stentor.filters.tested import Tested
from stentor.matching.index.columns import Source
from stentor.matching.index.plan import Check, finite_values

_COLLECTIONS: Final = (tuple, frozenset)

TextTest = Callable[[str], bool]


class Compiled(NamedTuple):
    """A check ready for use. `quick` is a cheap test of strings, `slow` one to be remembered.

    It stays with its box from table to segment to table: objects that were made anew for every
    compilation would set off Python's search for garbage, for which all threads have to wait.
    """

    name: str
    constraint: Constraint | None
    residual: Residual | None
    quick: TextTest | None
    slow: TextTest | None
    #: Strings of which a collection must have one, if that is all the check says of collections.
    listed: frozenset[str] | None = None

    @property
    def names(self) -> Iterable[str]:
        """The attributes that it looks at."""
        return (self.name,) if self.residual is None else self.residual.names

    def __reduce__(self) -> tuple[Callable[[Check], Compiled], tuple[Check]]:
        if self.constraint is not None:
            return compiled, ((self.name, self.constraint),)
        assert self.residual is not None
        return compiled, (self.residual,)


def compiled(check: Check) -> Compiled:
    """The check of a box, made ready once."""
    if isinstance(check, Residual):
        return Compiled("", None, check, None, None)
    name, constraint = check
    quick, slow = _text_tests(constraint)
    return Compiled(name, constraint, None, quick, slow, _listed(constraint))


class CheckMaker:
    """Makes checks ready. Those that the boxes of a filter have in common are made once."""

    def __init__(self) -> None:
        self._last: list[tuple[Check, Compiled]] = []

    def __call__(self, checks: Iterable[Check]) -> tuple[Compiled, ...]:
        return tuple([self._ready(check) for check in checks])

    def _ready(self, check: Check) -> Compiled:
        for known, ready in self._last:
            if known is check:
                return ready
        ready = compiled(check)
        self._last = [(check, ready), *self._last[:3]]
        return ready


def _text_tests(constraint: Constraint) -> tuple[TextTest | None, TextTest | None]:
    if constraint.rest or len(constraint.parts) != 1:
        return None, None
    part = constraint.parts[0][1]
    if not isinstance(part, Tested) or part.domain is not STRING:
        return None, None
    if part.operator not in ("leaf", "not") or type(part.test) is not Pattern:
        return None, part.contains
    pattern = part.test
    negated = part.operator == "not"
    if pattern.kind == "contains":
        text = pattern.text
        return ((lambda v: text not in v) if negated else (lambda v: text in v)), None
    if pattern.kind == "suffix":
        text = pattern.text
        return ((lambda v: not v.endswith(text)) if negated else (lambda v: v.endswith(text))), None
    return None, (lambda v: not pattern.matches(v)) if negated else pattern.matches


def _listed(constraint: Constraint) -> frozenset[str] | None:
    if constraint.rest or len(constraint.parts) != 1:
        return None
    part = constraint.parts[0][1]
    if not isinstance(part, CollectionSet) or len(part.cells) != 1:
        return None
    (cell,) = part.cells
    if len(cell.hits) != 1 or not cell.universe.is_all_values:
        return None
    values = finite_values(next(iter(cell.hits)))
    if values is None or any(type_name != "string" for type_name, _ in values):
        return None
    return frozenset(str(value) for _, value in values)


class Checker:
    """Makes checks on the rows of one batch, and remembers what it found."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._values: dict[str, Sequence[Any] | None] = {}
        self._known: dict[tuple[int, str], bool] = {}

    def passes(self, checks: tuple[Compiled, ...], row: int) -> bool:
        """Whether all checks hold for a row."""
        for check in checks:
            constraint = check.constraint
            if constraint is None:
                assert check.residual is not None
                if not check.residual.holds(self._source.facts(row, check.residual.names)):
                    return False
                continue
            value = self._value(check.name, row)
            if value is None:
                if not constraint.absent:
                    return False
            elif type(value) is not str:
                if check.listed is not None and type(value) in _COLLECTIONS:
                    if check.listed.isdisjoint(value):
                        return False
                elif not constraint.accepts(value):
                    return False
            elif check.quick is not None:
                if not check.quick(value):
                    return False
            elif not self._slow(check, value):
                return False
        return True

    def _value(self, name: str, row: int) -> Any:
        try:
            column = self._values[name]
        except KeyError:
            column = self._values[name] = self._source.values(name)
        return None if column is None else column[row]

    def _slow(self, check: Compiled, value: str) -> bool:
        key = (id(check.constraint), value)
        found = self._known.get(key)
        if found is None:
            assert check.constraint is not None
            found = (check.slow or check.constraint.accepts)(value)
            self._known[key] = found
        return found
